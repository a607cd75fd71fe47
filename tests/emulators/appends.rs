//! Lost, late and unclear answers to appends, and appends of several processes at once.

use std::time::Duration;

use serde_json::json;

use crate::bucket::{Bucket, CHUNKS, MANIFESTS, Process, read_all, start};
use crate::support::fault_proxy::{Fault, FaultProxy};
use crate::world::Answer;

/// Too large for a manifest: it becomes a chunk.
const LARGE: usize = 40_000;

/// Codes by which clients know that nothing happened, and append again.
const NO_EFFECT: [&str; 4] = ["rate_limited", "hot_server", "transaction_conflict", "server_draining"];

/// For a write that arrives when nobody waits for it any more.
const LATE: Duration = Duration::from_millis(1_500);

/// Statuses that leave open what happened.
const UNKNOWN: [u16; 4] = [500, 503, 504, 408];

pub async fn a_lost_answer_of_a_commit_is_found_again(bucket: Bucket) {
    let proxy = bucket.proxy().await;
    let [process] = start([bucket.through(&proxy)]).await;
    process.stream("s").await;
    process.append_bodies("s", &["first"]).await;
    let mut expected = vec!["first".to_owned()];
    // What the PUTs of one append meet, one after the other.
    let stories: [&[Fault]; 6] = [
        &[Fault::DropAfterApply],
        &[Fault::AnswerAfterApply(500)],
        &[Fault::AnswerAfterApply(503)],
        &[Fault::Answer(503), Fault::DropAfterApply],
        &[Fault::Answer(500), Fault::AnswerAfterApply(500)],
        &[Fault::Answer(409), Fault::DropAfterApply],
    ];
    for story in stories {
        let before = proxy.met();
        for fault in story {
            proxy.inject("PUT", MANIFESTS, 1, *fault);
        }
        let body = format!("{story:?}");
        let ack = process.append_bodies("s", &[&body]).await;
        assert_eq!(proxy.met() - before, story.len(), "{story:?} took place");
        let seq_num = expected.len();
        assert_eq!(
            (&ack["start"]["seq_num"], &ack["end"]["seq_num"]),
            (&json!(seq_num), &json!(seq_num + 1))
        );
        expected.push(body);
        assert_eq!(read_all(&process, "s").await, expected);
    }
}

pub async fn a_lost_answer_is_found_although_others_commit_meanwhile(bucket: Bucket) {
    let proxy = bucket.proxy().await;
    let [a, b] = start([bucket.through(&proxy), bucket.straight()]).await;
    a.stream("s").await;
    for (round, lost) in [Fault::DropAfterApply, Fault::AnswerAfterApply(500)].into_iter().enumerate() {
        // The last committer writes without a look before.
        a.append_bodies("s", &["warm"]).await;
        let before = proxy.met();
        proxy.inject("PUT", MANIFESTS, 1, lost);
        proxy.inject("GET", MANIFESTS, usize::MAX, Fault::Hold);
        let world = a.world.clone();
        let mine = tokio::spawn(async move { world.append_bodies("s", &["mine"]).await });
        // The PUT has landed, and the look that would tell is on its way.
        proxy.has_met(before + 2).await;
        let theirs = b.append_bodies("s", &["theirs"]).await;
        proxy.release();
        let mine = mine.await.expect("appended");
        let first = round * 3;
        assert_eq!(mine["start"]["seq_num"], first + 1, "{lost:?}");
        assert_eq!(theirs["start"]["seq_num"], first + 2, "{lost:?}");
        assert_eq!(read_all(&b, "s").await[first..], ["warm", "mine", "theirs"]);
    }
}

pub async fn an_own_append_that_landed_is_no_conflict(bucket: Bucket) {
    let proxy = bucket.proxy().await;
    let [process] = start([bucket.through(&proxy)]).await;
    process.stream("s").await;
    process.append_bodies("s", &["first"]).await;
    let second = json!({"records": [{"body": "second"}], "match_seq_num": 1});
    proxy.inject("PUT", MANIFESTS, 1, Fault::DropAfterApply);
    let ack = process.append("s", second.clone()).await.is(200).json();
    assert_eq!((ack["start"]["seq_num"].as_u64(), proxy.met()), (Some(1), 1));
    let again = process.append("s", second).await.is(412).json();
    assert_eq!(again, json!({"seq_num_mismatch": 2}));
    assert_eq!(read_all(&process, "s").await, ["first", "second"]);
}

pub async fn a_put_that_lands_late_is_never_called_failed(bucket: Bucket) {
    let late = Duration::from_secs(4);
    let proxy = bucket.proxy().await;
    let [a, b] = start([bucket.impatient(&proxy.address, "2000"), bucket.straight()]).await;
    a.stream("s").await;
    a.append_bodies("s", &["first"]).await;
    proxy.inject("PUT", MANIFESTS, usize::MAX, Fault::Delay(late));
    let large = "x".repeat(LARGE);
    let answer = a.append("s", json!({"records": [{"body": large}]})).await;
    assert!(UNKNOWN.contains(&answer.status), "{} {}", answer.status, answer.text());
    assert!(proxy.met() > 0 && proxy.seen("PUT", CHUNKS) > 0, "a chunk, then a PUT that is late");
    assert_eq!(b.tail("s").await, 1, "it has not landed yet");
    proxy.heal();
    tokio::time::sleep(late + Duration::from_secs(1)).await;
    for process in [&a, &b] {
        let bodies = read_all(process, "s").await;
        assert_eq!(bodies.len(), 2, "it landed after all, once");
        assert!(bodies[1] == large, "its chunk is there");
    }
    assert_eq!(a.append_bodies("s", &["next"]).await["start"]["seq_num"], 2);
}

pub async fn parallel_appends_through_four_processes_are_dense_and_disjoint(bucket: Bucket) {
    const APPENDS: usize = 50;
    let proxy = bucket.proxy().await;
    let processes = start([(); 4].map(|()| bucket.through(&proxy))).await;
    for stream in ["calm", "flaky"] {
        processes[0].stream(stream).await;
        let before = proxy.met();
        if stream == "flaky" {
            proxy.inject_every(4, "PUT", MANIFESTS, Fault::Answer(503));
            proxy.inject_every(4, "GET", MANIFESTS, Fault::Answer(503));
        }
        let appends = (0..APPENDS).map(|n| {
            let world = processes[n % 4].world.clone();
            async move { (n, world.append_bodies(stream, &[&n.to_string()]).await) }
        });
        let mut acked = vec![None; APPENDS];
        for (n, ack) in futures::future::join_all(appends).await {
            let (start, end) = (ack["start"]["seq_num"].as_u64(), ack["end"]["seq_num"].as_u64());
            let start = start.expect("a number");
            assert_eq!(end, Some(start + 1));
            let place = &mut acked[usize::try_from(start).expect("small")];
            assert!(place.replace(n.to_string()).is_none(), "two were acknowledged as {start}");
        }
        proxy.heal();
        if stream == "flaky" {
            assert!(proxy.met() - before >= 3, "{} faults took place", proxy.met() - before);
        }
        let acked: Vec<_> = acked.into_iter().map(|body| body.expect("no number is left out")).collect();
        for process in &processes {
            assert_eq!(read_all(process, stream).await, acked);
        }
    }
}

/// What an answer to an append says of its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Landed,
    Nothing,
    Unknown,
}

fn says(answer: &Answer) -> Says {
    match answer.status {
        200 => Says::Landed,
        status if UNKNOWN.contains(&status) && !is_without_effect(answer) => Says::Unknown,
        // A 4xx of another kind would be as definite, and nothing here calls for one.
        _ => {
            assert!(is_without_effect(answer), "{} {}", answer.status, answer.text());
            Says::Nothing
        }
    }
}

fn is_without_effect(answer: &Answer) -> bool {
    NO_EFFECT.contains(&answer.json()["code"].as_str().unwrap_or_default())
}

/// An append, the fault it met, and what its answer said.
struct Told {
    stream: String,
    says: Says,
    case: String,
}

/// Appends a chunk's worth to a stream of its own, once for each fault of requests on such keys.
async fn append_under_faults(
    process: &Process,
    reader: &Process,
    proxy: &FaultProxy,
    part: &str,
) -> Vec<Told> {
    let faults = [
        Fault::DropAfterApply,
        Fault::AnswerAfterApply(500),
        Fault::AnswerAfterApply(503),
        Fault::ApplyAndSwallow,
        Fault::Answer(500),
        Fault::Answer(503),
        Fault::Answer(409),
        Fault::Swallow,
        Fault::Delay(LATE),
    ];
    let mut told = Vec::new();
    for fault in faults {
        for times in [1, usize::MAX] {
            let stream = format!("{part} {}", told.len());
            process.stream(&stream).await;
            process.append_bodies(&stream, &["first"]).await;
            let before = proxy.met();
            proxy.inject("PUT", part, times, fault);
            let body = "x".repeat(LARGE);
            let answer = process.append(&stream, json!({"records": [{"body": body}]})).await;
            let case = format!("{fault:?} on {part}, {times} times: {} {}", answer.status, answer.text());
            assert!(proxy.met() > before, "{case}: it took place");
            proxy.heal();
            let says = says(&answer);
            if says == Says::Landed {
                assert_eq!(reader.tail(&stream).await, 2, "{case}");
            }
            told.push(Told { stream, says, case });
        }
    }
    told
}

pub async fn an_error_that_promises_no_effect_has_none(bucket: Bucket) {
    let (manifests, chunks) = (bucket.proxy().await, bucket.proxy().await);
    let hurried = |proxy: &FaultProxy| bucket.impatient(&proxy.address, "700");
    let [a, b, reader] = start([hurried(&manifests), hurried(&chunks), bucket.straight()]).await;
    let (mut told, more) = tokio::join!(
        append_under_faults(&a, &reader, &manifests, MANIFESTS),
        append_under_faults(&b, &reader, &chunks, CHUNKS),
    );
    told.extend(more);
    tokio::time::sleep(LATE).await;
    let mut landed_unknown = 0;
    for Told { stream, says, case } in &told {
        let landed = reader.tail(stream).await == 2;
        match says {
            Says::Landed => assert!(landed, "{case}"),
            Says::Nothing => assert!(!landed, "{case}"),
            Says::Unknown => landed_unknown += usize::from(landed),
        }
    }
    let count = |wanted| told.iter().filter(|told| told.says == wanted).count();
    let all = (count(Says::Landed), count(Says::Nothing), count(Says::Unknown), landed_unknown);
    assert!(all.0 > 0 && all.1 > 0 && all.2 > 0, "each kind of answer was given: {all:?}");
    assert!(all.3 > 0, "an unknown outcome may be a success: {all:?}");
}
