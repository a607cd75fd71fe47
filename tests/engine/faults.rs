//! Lost, late and unclear answers, races and crashes: what was acknowledged is there once, what was refused is
//! not there, what is unknown is called unknown.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leat::service::Error;
use leat::store::Operation;
use leat::types::record::{AppendInput, FencingToken};

use crate::faulty::Fault;
use crate::world::{World, basin, batch, impatient, name, record, target};

/// The unclear outcomes of a PUT that was applied, or not.
const UNCLEAR: [Fault; 2] = [Fault::DropAfterApply, Fault::Unavailable];

#[tokio::test]
async fn a_lost_answer_of_a_commit_is_found_again() {
    for fault in UNCLEAR {
        for times in [1, 2] {
            let process = World::new().process_with_basin().await;
            process.append("s", &["first"]).await.expect("created");
            process.faults.inject(Operation::Replace, "manifest/", times, fault);
            let ack = process.append("s", &["second"]).await.expect("landed");
            assert_eq!((ack.start.seq_num, ack.end.seq_num), (1, 2), "{fault:?}");
            assert_eq!(process.bodies("s").await, ["first", "second"], "{fault:?} × {times}");
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_found_although_others_commit_meanwhile() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    a.append("s", &["first"]).await.expect("created");
    a.faults.inject(Operation::Replace, "manifest/", 1, Fault::DropAfterApply);
    a.faults.inject(Operation::Get, "manifest/", 1, Fault::Delay(Duration::from_millis(150)));
    let (mine, theirs) = tokio::join!(a.append("s", &["mine"]), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        b.append("s", &["theirs"]).await
    });
    let (mine, theirs) = (mine.expect("landed"), theirs.expect("appended"));
    assert_eq!(mine.start.seq_num, 1);
    assert_eq!(theirs.start.seq_num, 2);
    assert_eq!(b.bodies("s").await, ["first", "mine", "theirs"]);
}

#[tokio::test]
async fn a_put_that_lands_late_is_never_given_up_as_failed() {
    let world = World { options: impatient(), ..World::new() };
    let process = world.process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    process.faults.inject(Operation::Replace, "manifest/", 1, Fault::ApplyLate(Duration::from_millis(1_300)));
    process.faults.inject(Operation::Replace, "manifest/", 1_000, Fault::Unavailable);
    let outcome = process.append("s", &["late"]).await;
    assert!(matches!(outcome, Err(Error::Indefinite { .. })), "{outcome:?}");
    process.faults.heal();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(process.bodies("s").await, ["first", "late"], "it landed after all, once");
    process.append("s", &["next"]).await.expect("appended");
    assert_eq!(process.bodies("s").await, ["first", "late", "next"]);
}

#[tokio::test]
async fn a_hanging_put_is_sent_again_and_commits_once() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    process.faults.inject(Operation::Replace, "manifest/", 1, Fault::Hang);
    let ack = process.append("s", &["second"]).await.expect("the hedge landed");
    assert_eq!(ack.start.seq_num, 1);
    assert_eq!(process.bodies("s").await, ["first", "second"]);
}

#[tokio::test]
async fn an_unknown_outcome_is_indefinite_and_a_definite_one_left_nothing() {
    let faults = [
        Fault::DropAfterApply,
        Fault::Unavailable,
        Fault::Conflict,
        Fault::ApplyLate(Duration::from_millis(60)),
        Fault::Hang,
    ];
    for operation in [Operation::Replace, Operation::Put, Operation::Get] {
        for fault in faults {
            for times in [1, 1_000] {
                let world = World { options: impatient(), ..World::new() };
                let process = world.process_with_basin().await;
                process.append("s", &["first"]).await.expect("created");
                process.faults.inject(operation, "", times, fault);
                let large = batch(vec![record(&[b'x'; 40_000])]);
                let outcome = process.append_input("s", large).await;
                process.faults.heal();
                let landed = || async { process.tail("s").await.expect("there") == 2 };
                let case = format!("{operation} {fault:?} × {times}: {outcome:?}");
                match outcome {
                    Ok(ack) => {
                        assert_eq!(ack.end.seq_num, 2, "{case}");
                        assert!(landed().await, "{case}");
                    }
                    Err(Error::Indefinite { .. }) => {}
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(150)).await;
                        assert!(!landed().await, "a definite error hides a landed write: {case}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_match_seq_num_conflict_names_the_next_number_and_an_own_landed_append_is_no_conflict() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["a"]).await.expect("created");
    let at = |seq| AppendInput::new(vec![record(b"x")], Some(seq), None).expect("legal");
    let refused = process.append_input("s", at(5)).await;
    assert!(matches!(refused, Err(Error::SeqNumMismatch { next: 1 })), "{refused:?}");
    process.faults.inject(Operation::Replace, "manifest/", 1, Fault::DropAfterApply);
    assert_eq!(process.append_input("s", at(1)).await.expect("landed").start.seq_num, 1);
    let refused = process.append_input("s", at(1)).await;
    assert!(matches!(refused, Err(Error::SeqNumMismatch { next: 2 })), "{refused:?}");
}

#[tokio::test]
async fn a_stale_writer_is_told_the_current_token_and_gets_nothing_in() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    let token = |text: &str| Some(FencingToken::new(text.to_owned()).expect("short"));
    let by = |text: &str| AppendInput::new(vec![record(b"x")], None, token(text)).expect("legal");
    a.append("s", &["a"]).await.expect("created");
    let fence = leat::types::record::Header { name: "".into(), value: "fence".into() };
    let fence = leat::types::record::Record { timestamp: None, headers: vec![fence], body: "t2".into() };
    b.append_input("s", batch(vec![fence])).await.expect("fenced");
    // The manifest that `a` knows says that the token is still empty.
    let stale = a.append_input("s", by("")).await;
    assert!(matches!(&stale, Err(Error::FencingTokenMismatch { current }) if current == "t2"), "{stale:?}");
    assert_eq!(a.tail("s").await.expect("there"), 2);
    a.append_input("s", by("t2")).await.expect("the current token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_of_many_processes_are_dense_and_disjoint() {
    for flaky in [false, true] {
        let world = World::new();
        let first = world.process_with_basin().await;
        first.append("s", &["seed"]).await.expect("created");
        let mut tasks = tokio::task::JoinSet::new();
        for p in 0..4 {
            let process = Arc::new(world.process());
            if flaky {
                for n in 0..12 {
                    let fault = UNCLEAR[n % 2];
                    process.faults.inject_after((n * 3, 1), Operation::Replace, "manifest/", fault);
                }
            }
            for n in 0..13 {
                let process = process.clone();
                tasks.spawn(async move {
                    let body = format!("{p}-{n}");
                    (body.clone(), process.append("s", &[&body]).await)
                });
            }
        }
        let mut acked = BTreeSet::new();
        let mut expected = vec![(0, "seed".to_owned())];
        for (body, outcome) in tasks.join_all().await {
            let ack = outcome.expect("appended in time");
            assert!(acked.insert(ack.start.seq_num), "two acks for {}", ack.start.seq_num);
            expected.push((ack.start.seq_num, body));
        }
        expected.sort();
        let bodies: Vec<String> = expected.into_iter().map(|(_, body)| body).collect();
        assert_eq!(first.bodies("s").await, bodies);
        assert_eq!(first.tail("s").await.expect("there"), 53);
    }
}

/// Stops a process at each request of an append in turn; another process must find the stream whole.
#[tokio::test]
async fn a_crash_at_any_request_loses_nothing_acknowledged_and_leaves_no_gap() {
    for crash_at in 0..12 {
        for drop_answer in [false, true] {
            let world = World::new();
            let (a, b) = (world.process_with_basin().await, world.process());
            a.append("s", &["first"]).await.expect("created");
            let fault = if drop_answer { Fault::DropAfterApply } else { Fault::Unavailable };
            let mut left = crash_at;
            for operation in [Operation::Put, Operation::Replace, Operation::Get, Operation::GetRange] {
                a.faults.inject_after((left, 1), operation, "", fault);
                a.faults.inject_after((left, 100_000), operation, "", Fault::Hang);
                left = left.saturating_sub(1);
            }
            let mut acked = 1;
            for n in 0..6 {
                let size = if n % 2 == 0 { 40_000 } else { 300 };
                let append = a.append_input("s", batch(vec![record(&vec![n; size])]));
                match tokio::time::timeout(Duration::from_millis(60), append).await {
                    Ok(Ok(ack)) => acked = ack.end.seq_num,
                    Ok(Err(_)) | Err(_) => break,
                }
            }
            drop(a);
            let tail = b.tail("s").await.expect("there");
            assert!(tail >= acked, "an acknowledged record is lost");
            assert_eq!(b.read_all("s", 0).await.expect("readable").len() as u64, tail, "a gap");
            b.append("s", &["after"]).await.expect("the stream goes on");
            assert_eq!(b.tail("s").await.expect("there"), tail + 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_race_of_first_appends_has_no_losers() {
    let world = World::new();
    world.process_with_basin().await;
    let processes: Vec<_> = (0..4).map(|_| Arc::new(world.process())).collect();
    for n in 0..10 {
        let stream = format!("race-{n}");
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..32 {
            let (process, stream) = (processes[i % 4].clone(), stream.clone());
            tasks.spawn(async move { process.append(&stream, &["x"]).await });
        }
        for outcome in tasks.join_all().await {
            outcome.expect("never a 404");
        }
        assert_eq!(processes[0].tail(&stream).await.expect("there"), 32);
        let page = processes[0]
            .service
            .list_streams(&basin(), crate::listing::request(&stream, "", 10))
            .await
            .expect("listed");
        assert_eq!(page.items.len(), 1);
        let entries = processes[0].service_list("catalog/").await.len();
        assert_eq!(entries, n + 1, "losers take their catalog entries away");
    }
}

#[tokio::test]
async fn a_lost_answer_of_a_creation_is_no_conflict() {
    for fault in UNCLEAR {
        let process = World::new().process();
        process.faults.inject(Operation::Create, "basins/", 1, fault);
        let config = leat::types::config::BasinConfig::default();
        process.service.create_basin(&basin(), config, None).await.expect("created");
        process.faults.inject(Operation::Create, "manifest/", 1, fault);
        let layer = leat::types::config::StreamConfigLayer::default();
        process.service.create_stream(&basin(), &name("s"), layer, None).await.expect("created");
        let again = process.service.create_stream(&basin(), &name("s"), layer, None).await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. })), "{again:?}");
        process.service.append(&target("s"), batch(vec![record(b"x")])).await.expect("appended");
    }
}

#[tokio::test]
async fn a_chunk_is_uploaded_again_when_its_stream_changes_its_data_class_meanwhile() {
    use leat::types::config::{Patch, RetentionPolicy, StreamConfigPatch};
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    a.append("s", &["first"]).await.expect("created");
    let commits = a.faults.count(Operation::Replace, "");
    a.faults.hold(Operation::Replace, "manifest/");
    let large = batch(vec![record(&[b'x'; 40_000])]);
    let (appended, changed) = tokio::join!(a.append_input("s", large), async {
        a.faults.seen(commits + 1, Operation::Replace, "").await;
        let patch = StreamConfigPatch {
            retention_policy: Patch::Set(RetentionPolicy::Infinite),
            ..StreamConfigPatch::default()
        };
        let changed = b.service.reconfigure_stream(&basin(), &name("s"), patch).await;
        a.faults.release();
        changed
    });
    appended.expect("appended");
    changed.expect("changed");
    let infinite = a.service_list("data/inf/").await;
    assert_eq!(infinite.len(), 2, "the tail's chunk and the batch's, in the class they must outlive");
    assert_eq!(b.read_all("s", 0).await.expect("readable").len(), 2);
}

/// The ring is the only witness of a commit: once it no longer reaches back, nobody knows.
#[tokio::test]
async fn a_commit_that_the_ring_may_have_forgotten_is_indefinite() {
    for fault in UNCLEAR {
        let world = World::new();
        let (a, b) = (world.process_with_basin().await, world.process());
        a.append("s", &["seed"]).await.expect("created");
        b.append("s", &["warm"]).await.expect("appended");
        a.tail("s").await.expect("there");
        a.faults.inject(Operation::Replace, "manifest/", 1, fault);
        // The look that would tell arrives after more commits than a manifest remembers.
        let looks = a.faults.count(Operation::Get, "manifest/");
        a.faults.hold(Operation::Get, "manifest/");
        let (mine, ()) = tokio::join!(a.append("s", &["mine"]), async {
            a.faults.seen(looks + 1, Operation::Get, "manifest/").await;
            for _ in 0..130 {
                b.append("s", &["x"]).await.expect("appended");
            }
            a.faults.release();
        });
        assert!(matches!(mine, Err(Error::Indefinite { .. })), "{fault:?}: {mine:?}");
        let bodies = b.bodies("s").await;
        let copies = bodies.iter().filter(|body| *body == "mine").count();
        assert_eq!(copies, usize::from(fault == Fault::DropAfterApply), "{fault:?}");
    }
}

/// A 412 that answers a second send may be the doing of the first.
#[tokio::test]
async fn a_conflict_after_a_second_send_is_no_verdict() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    // The first send is lost on the way for a while; the look finds nothing; the second is told 412 only
    // because the first has landed by then.
    process.faults.inject(Operation::Replace, "manifest/", 1, Fault::ApplyLate(Duration::from_millis(40)));
    process.faults.inject(Operation::Replace, "manifest/", 1, Fault::Delay(Duration::from_millis(120)));
    let at = AppendInput::new(vec![record(b"second")], Some(1), None).expect("legal");
    let ack = process.append_input("s", at).await.expect("its own commit is no conflict");
    assert_eq!(ack.start.seq_num, 1);
    assert_eq!(process.bodies("s").await, ["first", "second"]);
}

/// Its PUT is proven lost by the ring, but the caller meant the life that was there: no rebase onto the next.
#[tokio::test]
async fn an_unclear_commit_is_never_made_again_in_another_life() {
    for recreated in [false, true] {
        let world = World::new();
        let (a, b) = (world.process_with_basin().await, world.process());
        a.append("s", &["former"]).await.expect("created");
        a.faults.inject(Operation::Replace, "manifest/", 1, Fault::Unavailable);
        let looks = a.faults.count(Operation::Get, "manifest/");
        a.faults.hold(Operation::Get, "manifest/");
        let (mine, ()) = tokio::join!(a.append("s", &["mine"]), async {
            a.faults.seen(looks + 1, Operation::Get, "manifest/").await;
            b.service.delete_stream(&basin(), &name("s")).await.expect("deleted");
            if recreated {
                b.append("s", &["next"]).await.expect("created");
            }
            a.faults.release();
        });
        assert!(matches!(mine, Err(Error::Indefinite { .. })), "{mine:?}");
        b.append("s", &["last"]).await.expect("appended");
        assert!(!b.bodies("s").await.contains(&"mine".to_owned()));
    }
}

#[tokio::test]
async fn an_upload_that_hangs_fails_its_append_and_no_other() {
    let world = World { options: impatient(), ..World::new() };
    let process = world.process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    process.faults.inject(Operation::Put, "data/", 2, Fault::Hang);
    let large = process.append_input("s", batch(vec![record(&[b'x'; 40_000])])).await;
    assert!(matches!(large, Err(Error::RateLimited(_))), "nothing was sent: {large:?}");
    assert_eq!(process.append("s", &["second"]).await.expect("appended").start.seq_num, 1);
    assert_eq!(process.bodies("s").await, ["first", "second"]);
}

#[tokio::test]
async fn a_store_that_hangs_on_reads_fails_reads_in_time() {
    let world = World { options: impatient(), ..World::new() };
    world.process_with_basin().await.append("s", &["first"]).await.expect("created");
    let process = world.process();
    process.faults.inject(Operation::Get, "manifest/", 1, Fault::Hang);
    let refused = process.tail("s").await;
    assert!(matches!(refused, Err(Error::RateLimited(_))), "{refused:?}");
    assert_eq!(process.tail("s").await.expect("there"), 1);
}

#[tokio::test]
async fn a_store_that_hangs_on_reads_fails_appends_in_time() {
    let world = World { options: impatient(), ..World::new() };
    world.process_with_basin().await.append("s", &["first"]).await.expect("created");
    let process = world.process();
    process.faults.inject(Operation::Get, "manifest/", 1, Fault::Hang);
    let refused = process.append("s", &["second"]).await;
    assert!(matches!(refused, Err(Error::RateLimited(_))), "nothing was sent: {refused:?}");
    assert_eq!(process.append("s", &["third"]).await.expect("appended").start.seq_num, 1);
}

#[tokio::test]
async fn nothing_is_sent_after_the_deadline() {
    use leat::storage::documents::{commit_basin, load_basin};
    use leat::storage::head::State;
    use leat::types::time::Deadline;
    let process = World::new().process_with_basin().await;
    let base = load_basin(&process.faults, &basin()).await.expect("read").expect("there");
    let next = base.doc.next(State::Live);
    let before = process.faults.log().len();
    let latency = leat::storage::register::PutLatency::default();
    let passed = Deadline::after(Duration::ZERO);
    let outcome = commit_basin(&process.faults, &latency, Some(&base), &next, passed).await;
    assert!(matches!(outcome, Err(leat::storage::Error::Expired { .. })), "{outcome:?}");
    assert_eq!(process.faults.log().len(), before);
}
