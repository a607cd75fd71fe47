//! Sessions of pipelined appends: in order, and nothing after the first that fails, whatever the store does.

use std::sync::Arc;
use std::time::Duration;

use leat::service::Error;
use leat::store::Operation;
use leat::types::record::{AppendAck, AppendInput};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::faulty::Fault;
use crate::world::{World, batch, impatient, record, target};

type Outcome = Result<AppendAck, Error>;

fn one(body: &str) -> AppendInput {
    batch(vec![record(body.as_bytes())])
}

fn at(seq_num: u64, body: &str) -> AppendInput {
    AppendInput::new(vec![record(body.as_bytes())], Some(seq_num), None).expect("legal")
}

/// An input that is too large to ride inline.
fn large(name: &str) -> AppendInput {
    one(&name.repeat(45_000))
}

#[track_caller]
fn ended(outcome: &Outcome) {
    let Err(Error::Invalid(why)) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("earlier batch of the session"), "{why}");
}

#[tokio::test]
async fn a_session_commits_in_order_and_its_inputs_share_commits() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    let session = process.service.append_session(&target("s")).await.expect("open");
    let before = process.faults.log().len();
    let outcomes: Vec<_> = (1..=200).map(|n| session.append(at(n, &n.to_string()), None)).collect();
    for (n, outcome) in (1..).zip(outcomes) {
        let ack = outcome.await.expect("appended");
        assert_eq!((ack.start.seq_num, ack.end.seq_num), (n, n + 1));
    }
    let puts = process.faults.log()[before..].iter().filter(|(op, _)| *op == Operation::Replace).count();
    assert!(puts <= 3, "{puts} commits");
}

#[tokio::test]
async fn an_indefinite_commit_ends_the_session_for_what_waits_and_what_is_yet_to_come() {
    let world = World { options: impatient(), ..World::new() };
    let process = world.process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    let session = process.service.append_session(&target("s")).await.expect("open");
    process.faults.inject(Operation::Replace, "manifest/", 1_000, Fault::Hang);
    let in_flight = tokio::spawn(session.append(one("in flight"), None));
    tokio::time::sleep(Duration::from_millis(30)).await;
    let waiting = tokio::spawn(session.append(one("waiting"), None));
    let outcome = in_flight.await.expect("no panic");
    assert!(matches!(outcome, Err(Error::Indefinite { .. })), "{outcome:?}");
    process.faults.heal();
    ended(&session.append(one("late"), None).await);
    let outcome = waiting.await.expect("no panic");
    assert!(outcome.is_err(), "{outcome:?}");
    let ack = process.append("s", &["of nobody's session"]).await.expect("the stream goes on");
    assert_eq!(ack.start.seq_num, 1);
    assert_eq!(process.bodies("s").await, ["first", "of nobody's session"]);
}

#[tokio::test]
async fn a_group_that_was_uploaded_ahead_is_dropped_when_its_session_ends() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    a.append("s", &["first"]).await.expect("created");
    b.append("s", &["second"]).await.expect("appended");
    assert_eq!(a.tail("s").await.expect("there"), 2);
    let session = a.service.append_session(&target("s")).await.expect("open");
    // While the first input is on its way, another process takes its number.
    a.faults.inject(Operation::Replace, "manifest/", 1, Fault::Delay(Duration::from_millis(200)));
    let first = tokio::spawn(session.append(at(2, "mine"), None));
    tokio::time::sleep(Duration::from_millis(30)).await;
    let ahead: Vec<_> =
        ["x", "y", "z"].map(|name| tokio::spawn(session.append(large(name), None))).into_iter().collect();
    b.append("s", &["theirs"]).await.expect("appended");
    let outcome = first.await.expect("no panic");
    assert!(matches!(outcome, Err(Error::SeqNumMismatch { next: 3 })), "{outcome:?}");
    for outcome in ahead {
        ended(&outcome.await.expect("no panic"));
    }
    let uploads = |(op, key): &(Operation, String)| *op == Operation::Put && key.starts_with("data/");
    assert!(a.faults.log().iter().any(uploads), "the test is about a group that was uploaded");
    assert_eq!(a.append("s", &["after"]).await.expect("appended").start.seq_num, 3);
    assert_eq!(a.bodies("s").await, ["first", "second", "theirs", "after"]);
}

#[tokio::test]
async fn an_upload_that_fails_ends_the_session_and_no_other() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    let session = process.service.append_session(&target("s")).await.expect("open");
    let other = process.service.append_session(&target("s")).await.expect("open");
    process.faults.inject(Operation::Put, "data/", 2, Fault::Unavailable);
    let failed = tokio::spawn(session.append(large("x"), None));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(failed.await.expect("no panic").is_err());
    process.faults.heal();
    ended(&session.append(one("late"), None).await);
    assert_eq!(other.append(one("other"), None).await.expect("appended").start.seq_num, 1);
    assert_eq!(process.bodies("s").await, ["first", "other"]);
}

/// Whatever the store does, what lands of a session is a prefix of it: all that was acknowledged, and after a
/// definite failure nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lands_of_a_session_is_a_prefix_under_every_fault() {
    let faults = [
        Fault::DropAfterApply,
        Fault::Unavailable,
        Fault::Conflict,
        Fault::ApplyLate(Duration::from_millis(60)),
        Fault::Delay(Duration::from_millis(40)),
        Fault::Hang,
    ];
    let mut cases = JoinSet::new();
    for operation in [Operation::Replace, Operation::Put, Operation::Get] {
        for fault in faults {
            for skip_and_times in [(0, 1), (1, 1), (2, 2), (0, 1_000), (1, 1_000)] {
                cases.spawn(one_faulty_session(operation, fault, skip_and_times));
            }
        }
    }
    let failed = cases.join_all().await.into_iter().filter(|has_failed| *has_failed).count();
    assert!(failed > 20, "only {failed} sessions met a failure");
}

async fn one_faulty_session(operation: Operation, fault: Fault, skip_and_times: (usize, usize)) -> bool {
    let world = World { options: impatient(), ..World::new() };
    let process = world.process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    let session = process.service.append_session(&target("s")).await.expect("open");
    process.faults.inject_after(skip_and_times, operation, "", fault);
    let mut outcomes = Vec::new();
    for n in 0..9 {
        let input = if n % 3 == 1 { large(&n.to_string()) } else { one(&n.to_string()) };
        outcomes.push(tokio::spawn(session.append(input, None)));
        if n % 2 == 1 {
            tokio::time::sleep(Duration::from_millis(8)).await;
        }
    }
    let mut acked = 0;
    let mut failure: Option<Error> = None;
    let case = format!("{operation} {fault:?} {skip_and_times:?}");
    for outcome in outcomes {
        match (outcome.await.expect("no panic"), &failure) {
            (Ok(ack), None) => {
                acked += 1;
                assert_eq!(ack.end.seq_num, acked + 1, "{case}");
            }
            (Err(error), None) => failure = Some(error),
            (Ok(ack), Some(error)) => panic!("{case}: {ack:?} after {error:?}"),
            (Err(_), Some(_)) => {}
        }
    }
    process.faults.heal();
    tokio::time::sleep(Duration::from_millis(150)).await;
    let bodies = process.bodies("s").await;
    let landed: Vec<_> = bodies[1..].iter().map(|body| body[..1].to_owned()).collect();
    assert_eq!(landed, (0..landed.len()).map(|n| n.to_string()).collect::<Vec<_>>(), "{case}");
    assert!(landed.len() as u64 >= acked, "{case}: {acked} acknowledged, {} there", landed.len());
    if !matches!(failure, Some(Error::Indefinite { .. })) {
        assert_eq!(landed.len() as u64, acked, "{case}: {failure:?}");
    }
    failure.is_some()
}

#[tokio::test]
async fn an_input_that_finds_the_queue_full_fails_those_after_it_and_none_before() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    let session = process.service.append_session(&target("s")).await.expect("open");
    let body = "x".repeat(1024 * 1024 - 8);
    let outcomes: Vec<_> = (0..80).map(|_| session.append(one(&body), None)).collect();
    let mut acked = 0;
    let mut refused = Vec::new();
    for outcome in outcomes {
        match outcome.await {
            Ok(ack) => {
                assert!(refused.is_empty(), "{ack:?} after a failure");
                acked += 1;
            }
            Err(error) => refused.push(error),
        }
    }
    assert!((50..80).contains(&acked), "{acked}");
    assert!(matches!(&refused[0], Error::RateLimited(_)), "{:?}", refused[0]);
    refused.drain(1..).for_each(|error| ended(&Err(error)));
    assert_eq!(process.tail("s").await.expect("there"), acked + 1);
}

#[tokio::test]
async fn of_an_abandoned_session_nothing_enters_but_what_is_on_its_way() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    let session = process.service.append_session(&target("s")).await.expect("open");
    process.faults.inject(Operation::Replace, "manifest/", 1, Fault::Delay(Duration::from_millis(150)));
    let on_its_way = tokio::spawn(session.append(one("on its way"), None));
    tokio::time::sleep(Duration::from_millis(30)).await;
    let waiting = tokio::spawn(session.append(one("waiting"), None));
    session.abandon();
    on_its_way.await.expect("no panic").expect("appended");
    ended(&waiting.await.expect("no panic"));
    assert_eq!(process.bodies("s").await, ["first", "on its way"]);
}

#[tokio::test]
async fn the_budget_comes_back_although_nobody_asks_for_the_outcome() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    let session = process.service.append_session(&target("s")).await.expect("open");
    let budget = Arc::new(Semaphore::new(3));
    let permit = budget.clone().try_acquire_many_owned(3).expect("free");
    let unasked = session.append(one("x"), Some(permit));
    let again = tokio::time::timeout(Duration::from_secs(5), budget.acquire_many(3)).await;
    again.expect("in time").expect("open").forget();
    assert_eq!(unasked.await.expect("appended").start.seq_num, 1);
    session.abandon();
    let budget = Arc::new(Semaphore::new(1));
    let permit = budget.clone().try_acquire_owned().expect("free");
    let refused = session.append(one("y"), Some(permit));
    assert_eq!(budget.available_permits(), 1, "a refused input takes no memory");
    ended(&refused.await);
}
