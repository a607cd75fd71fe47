//! Uploads that meet a lost race: what may be named again, what must be made again, and what must never enter.

use std::time::Duration;

use leat::engine;
use leat::service::Error;
use leat::store::Operation;
use leat::types::config::{Patch, RetentionPolicy, StreamConfigPatch};
use leat::types::record::{AppendAck, AppendInput, Record};
use leat::types::time::Clock;

use crate::faulty::Fault;
use crate::world::{Process, World, basin, batch, impatient, name, record};

/// Metered size of a batch that makes a chunk of its own.
const LARGE: usize = 40_000;

/// A batch of one large record.
fn large(fill: u8, match_seq_num: Option<u64>, timestamp: Option<u64>) -> AppendInput {
    let r = Record { timestamp, ..record(&[fill; LARGE]) };
    AppendInput::new(vec![r], match_seq_num, None).expect("legal")
}

/// Chunks that hold at least one large record.
async fn large_chunks(process: &Process) -> Vec<u64> {
    let chunks = process.service_list("data/").await;
    chunks.iter().map(|l| l.size).filter(|size| *size >= LARGE as u64).collect()
}

/// Three large batches are uploaded while a small commit is on its way; that commit loses to another process, so
/// they are judged anew. Those with a number they expected are refused.
async fn overlapped(world: &World, batches: [AppendInput; 3]) -> (Process, [Result<AppendAck, Error>; 3]) {
    let (a, b) = (world.process_with_basin().await, world.process());
    // Stamped long ago, so that they lift no timestamp after them.
    let small = || batch(vec![Record { timestamp: Some(1), ..record(b"small") }]);
    a.append_input("s", small()).await.expect("created");
    b.tail("s").await.expect("there");
    let (commits, uploads) =
        (a.faults.count(Operation::Replace, ""), a.faults.count(Operation::Put, "data/"));
    a.faults.hold(Operation::Replace, "manifest/");
    let [x, y, z] = batches;
    let pipeline = async {
        a.faults.seen(commits + 1, Operation::Replace, "").await;
        tokio::join!(a.append_input("s", x), a.append_input("s", y), a.append_input("s", z))
    };
    let theirs = async {
        a.faults.seen(uploads + 1, Operation::Put, "data/").await;
        let theirs = b.append_input("s", small()).await.expect("appended");
        a.faults.release();
        theirs
    };
    let (mine, (x, y, z), theirs) = tokio::join!(a.append_input("s", small()), pipeline, theirs);
    assert_eq!((theirs.start.seq_num, mine.expect("appended").start.seq_num), (1, 2));
    (a, [x, y, z])
}

/// What is acknowledged is read back so by a cold process: number, timestamp, content; and nothing else.
async fn check(world: &World, fills: [u8; 3], outcomes: &[Result<AppendAck, Error>; 3]) {
    let all = world.process().read_all("s", 0).await.expect("readable");
    let mut next = 3;
    for (fill, outcome) in fills.into_iter().zip(outcomes) {
        match outcome {
            Ok(ack) => {
                assert_eq!(ack.start.seq_num, next, "dense");
                let r = &all[next as usize];
                assert_eq!((r.seq_num, r.timestamp), (next, ack.start.timestamp));
                assert!(
                    r.body.len() == LARGE && r.body.iter().all(|byte| *byte == fill),
                    "content of {next}"
                );
                next += 1;
            }
            Err(Error::SeqNumMismatch { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(all.len() as u64, next);
    assert!(all.is_sorted_by_key(|r| (r.seq_num, r.timestamp)));
}

#[tokio::test]
async fn an_overlapped_upload_is_named_again_after_a_lost_race_in_part_or_whole() {
    // A batch that expects a number here is refused.
    let cases: [([Option<u64>; 3], usize); 5] = [
        ([None, None, None], 1),
        ([Some(9), None, None], 1),
        ([None, None, Some(9)], 1),
        ([Some(9), None, Some(9)], 1),
        // What is left is not in one piece: it is uploaded again.
        ([None, Some(9), None], 2),
    ];
    for (expects, uploads) in cases {
        for timestamp in [None, Some(7)] {
            let world = World::new();
            let fills = [b'x', b'y', b'z'];
            let batches = [0, 1, 2].map(|i| large(fills[i], expects[i], timestamp));
            let (a, outcomes) = Box::pin(overlapped(&world, batches)).await;
            for (outcome, expected) in outcomes.iter().zip(expects) {
                assert_eq!(outcome.is_ok(), expected.is_none(), "{expects:?}: {outcome:?}");
            }
            check(&world, fills, &outcomes).await;
            let chunks = large_chunks(&a).await;
            assert_eq!(chunks.len(), uploads, "{expects:?} at {timestamp:?}: {chunks:?}");
        }
    }
}

#[tokio::test]
async fn an_upload_whose_timestamps_leaned_on_a_refused_batch_is_made_again() {
    let world = World::new();
    // The first is stamped with its arrival, and pulls the others up to it; then it is refused.
    let batches = [large(b'x', Some(9), None), large(b'y', None, Some(7)), large(b'z', None, Some(8))];
    let (a, outcomes) = Box::pin(overlapped(&world, batches)).await;
    assert!(matches!(outcomes[0], Err(Error::SeqNumMismatch { .. })), "{:?}", outcomes[0]);
    let at = |i: usize| outcomes[i].as_ref().expect("appended").start.timestamp;
    assert_eq!((at(1), at(2)), (7, 8));
    check(&world, [b'x', b'y', b'z'], &outcomes).await;
    assert_eq!(large_chunks(&a).await.len(), 2);
}

/// Loses the race for a large batch; `meanwhile` runs while its commit is on its way.
async fn upload_beside(world: &World, meanwhile: impl AsyncFnOnce(&Process)) -> Vec<u64> {
    let (a, b) = (world.process_with_basin().await, world.process());
    a.append("s", &["seed"]).await.expect("created");
    let commits = a.faults.count(Operation::Replace, "");
    a.faults.hold(Operation::Replace, "manifest/");
    let (mine, ()) = tokio::join!(a.append_input("s", large(b'x', None, None)), async {
        a.faults.seen(commits + 1, Operation::Replace, "").await;
        meanwhile(&b).await;
        a.faults.release();
    });
    let seq = mine.expect("appended").start.seq_num as usize;
    let all = world.process().read_all("s", 0).await.expect("readable");
    assert_eq!(all[seq].body.len(), LARGE);
    large_chunks(&a).await
}

#[tokio::test]
async fn an_upload_of_an_older_collection_epoch_is_made_again() {
    let world = World::new();
    let chunks = upload_beside(&world, async |b| {
        // There and back: the class is the same, but a collection may have run between.
        for age in [RetentionPolicy::Infinite, RetentionPolicy::Age(604_800)] {
            let patch =
                StreamConfigPatch { retention_policy: Patch::Set(age), ..StreamConfigPatch::default() };
            b.service.reconfigure_stream(&basin(), &name("s"), patch).await.expect("changed");
        }
    });
    assert_eq!(chunks.await.len(), 2);
}

#[tokio::test]
async fn an_upload_begun_an_hour_ago_is_made_again() {
    let clock = Clock::manual(1_800_000_000_000);
    let world = World { clock: clock.clone(), ..World::new() };
    let chunks = upload_beside(&world, async |b| {
        b.append("s", &["theirs"]).await.expect("appended");
        clock.advance_ms(3_700_000);
    });
    assert_eq!(chunks.await.len(), 2);
    let world = World { clock: Clock::manual(1_800_000_000_000), ..World::new() };
    let chunks = upload_beside(&world, async |b| {
        b.append("s", &["theirs"]).await.expect("appended");
    });
    assert_eq!(chunks.await.len(), 1, "a young one is named again");
}

/// The tail is rolled ahead beside a commit that loses; the tail that won looks the same but for its content.
#[tokio::test]
async fn a_tail_rolled_ahead_of_a_lost_commit_never_enters() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    for n in 0..7u8 {
        a.append_input("s", batch(vec![record(&[n; 2_000])])).await.expect("appended");
    }
    b.tail("s").await.expect("there");
    let uploads = a.faults.count(Operation::Put, "data/");
    a.faults.hold(Operation::Replace, "manifest/");
    let (mine, theirs) = tokio::join!(a.append_input("s", batch(vec![record(&[b'm'; 3_000])])), async {
        a.faults.seen(uploads + 1, Operation::Put, "data/").await;
        let theirs = b.append_input("s", batch(vec![record(&[b't'; 3_000])])).await;
        a.faults.release();
        theirs
    });
    assert_eq!(theirs.expect("appended").start.seq_num, 7);
    assert_eq!(mine.expect("appended").start.seq_num, 8);
    for n in 9..20u8 {
        a.append_input("s", batch(vec![record(&[n; 2_000])])).await.expect("appended");
    }
    let all = world.process().read_all("s", 0).await.expect("readable");
    let fills: Vec<u8> = all.iter().map(|r| r.body[0]).collect();
    let expected: Vec<u8> = (0..7).chain([b't', b'm']).chain(9..20).collect();
    assert_eq!(fills, expected);
}

/// A hanging upload, or a look that hangs, costs those who wait for it; the next append is served.
#[tokio::test]
async fn a_store_that_never_answers_does_not_stop_the_writer() {
    for (operation, prefix) in [(Operation::Put, "data/"), (Operation::Get, "manifest/")] {
        let world = World { options: impatient(), ..World::new() };
        world.process_with_basin().await.append("s", &["seed"]).await.expect("created");
        let process = world.process();
        process.service.basin_config(&basin()).await.expect("there");
        process.faults.inject(operation, prefix, 1, Fault::Hang);
        let stuck = process.append_input("s", large(b'x', None, None)).await;
        assert!(stuck.is_err(), "{operation}: {stuck:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let ack = process.append("s", &["next"]).await.expect("the writer goes on");
        assert_eq!(ack.start.seq_num, 1, "{operation}");
        assert_eq!(process.bodies("s").await, ["seed", "next"], "{operation}");
    }
}

/// The same for what is uploaded ahead of its need.
#[tokio::test]
async fn a_tail_whose_upload_ahead_hangs_is_uploaded_again() {
    let world = World {
        options: engine::Options { write_timeout: Duration::from_millis(400), ..impatient() },
        ..World::new()
    };
    let process = world.process_with_basin().await;
    process.append("s", &["seed"]).await.expect("created");
    process.faults.inject(Operation::Put, "data/", 1, Fault::Hang);
    let mut acked = 1;
    for n in 0..30u8 {
        if process.append_input("s", batch(vec![record(&[n; 3_000])])).await.is_ok() {
            acked += 1;
        } else {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert!(acked > 25, "{acked}");
    assert_eq!(process.read_all("s", 0).await.expect("readable").len(), acked);
}
