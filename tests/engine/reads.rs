//! Reads: every case of the start, of the limits, of waiting; retention; damage.

use std::time::Duration;

use leat::service::Error;
use leat::service::records::ReadEvent;
use leat::store::Operation;
use leat::types::config::{Patch, RetentionPolicy, StreamConfigPatch};
use leat::types::record::{BeyondTail, ReadLimits, ReadRequest, ReadStart, Record};
use leat::types::time::{Clock, monotonic};

use crate::faulty::Fault;
use crate::world::{Process, World, basin, batch, name, record, target};

const UNARY: ReadLimits = ReadLimits { count: Some(1_000), bytes: Some(1024 * 1024), until: None };

fn read(start: ReadStart) -> ReadRequest {
    ReadRequest { start, beyond_tail: BeyondTail::Refuse, limits: UNARY, wait_secs: None }
}

/// Sequence numbers of the answer, or the tail that a 416 names.
async fn seqs(process: &Process, request: ReadRequest) -> Result<Vec<u64>, u64> {
    match process.service.read(&target("s"), request).await {
        Ok(batch) => Ok(batch.records.iter().map(|r| r.seq_num).collect()),
        Err(Error::BeyondTail { tail }) => Err(tail.seq_num),
        Err(error) => panic!("{error:?}"),
    }
}

/// Ten records with timestamps 0, 10, … 90; a large one in the middle makes chunks.
async fn ten(world: &World) -> Process {
    let process = world.process_with_basin().await;
    for n in 0..10u64 {
        let size = if n == 4 { 40_000 } else { 92 };
        let r = Record { timestamp: Some(n * 10), ..record(&vec![b'x'; size]) };
        process.append_input("s", batch(vec![r])).await.expect("appended");
    }
    process
}

#[tokio::test]
async fn starts_are_resolved_as_specified() {
    let world = World::new();
    let warm = ten(&world).await;
    for process in [&warm, &world.process()] {
        let all: Vec<u64> = (0..10).collect();
        let clamped = |start| ReadRequest { beyond_tail: BeyondTail::Clamp, ..read(start) };
        assert_eq!(seqs(process, read(ReadStart::SeqNum(0))).await, Ok(all.clone()));
        assert_eq!(seqs(process, read(ReadStart::SeqNum(7))).await, Ok(vec![7, 8, 9]));
        assert_eq!(seqs(process, read(ReadStart::SeqNum(10))).await, Err(10));
        assert_eq!(seqs(process, read(ReadStart::SeqNum(u64::MAX))).await, Err(10));
        assert_eq!(seqs(process, clamped(ReadStart::SeqNum(11))).await, Err(10));
        assert_eq!(seqs(process, read(ReadStart::TailOffset(0))).await, Err(10));
        assert_eq!(seqs(process, read(ReadStart::TailOffset(2))).await, Ok(vec![8, 9]));
        assert_eq!(seqs(process, read(ReadStart::TailOffset(u64::MAX))).await, Ok(all));
        assert_eq!(seqs(process, read(ReadStart::Timestamp(41))).await, Ok(vec![5, 6, 7, 8, 9]));
        assert_eq!(seqs(process, read(ReadStart::Timestamp(90))).await, Ok(vec![9]));
        assert_eq!(seqs(process, read(ReadStart::Timestamp(91))).await, Err(10));
        assert_eq!(seqs(process, clamped(ReadStart::Timestamp(91))).await, Err(10));
    }
}

#[tokio::test]
async fn limits_end_a_read_before_the_record_that_exceeds_them() {
    let process = ten(&World::new()).await;
    let limited = |count, bytes, until| {
        let limits = ReadLimits { count, bytes, until };
        seqs(&process, ReadRequest { limits, ..read(ReadStart::SeqNum(0)) })
    };
    assert_eq!(limited(Some(3), None, None).await, Ok(vec![0, 1, 2]));
    assert_eq!(limited(None, Some(300), None).await, Ok(vec![0, 1, 2]));
    assert_eq!(limited(None, Some(299), None).await, Ok(vec![0, 1]));
    assert_eq!(limited(None, Some(99), None).await, Ok(vec![]));
    assert_eq!(limited(None, None, Some(30)).await, Ok(vec![0, 1, 2]));
    assert_eq!(limited(None, None, Some(0)).await, Ok(vec![]));
    assert_eq!(limited(None, Some(40_408), None).await, Ok(vec![0, 1, 2, 3, 4]));
    assert_eq!(limited(Some(0), None, None).await, Ok(vec![]));
    assert_eq!(limited(None, Some(0), None).await, Ok(vec![]));
}

#[tokio::test]
async fn batches_hold_at_most_a_thousand_records_and_one_mib() {
    let process = World::new().process_with_basin().await;
    for _ in 0..3 {
        process.append_input("s", batch(vec![record(b"x"); 1_000])).await.expect("appended");
    }
    for _ in 0..4 {
        process.append_input("s", batch(vec![record(&vec![0; 400_000])])).await.expect("appended");
    }
    let limits = ReadLimits::default();
    let request = ReadRequest { limits, wait_secs: Some(0), ..read(ReadStart::SeqNum(0)) };
    let mut session = process.service.read_session(&target("s"), request).await.expect("open");
    let mut next = 0;
    while let Some(event) = session.next().await {
        let ReadEvent::Batch(batch) = event.expect("readable") else { panic!("no waiting, no heartbeat") };
        assert!(batch.records.len() <= 1_000);
        assert!(batch.records.iter().map(|r| r.metered_bytes()).sum::<u64>() <= 1024 * 1024);
        for r in batch.records {
            assert_eq!(r.seq_num, next);
            next += 1;
        }
    }
    assert_eq!(next, 3_004);
}

#[tokio::test]
async fn a_read_at_the_tail_waits_as_long_as_it_may() {
    let world = World::new();
    let (process, other) = (world.process_with_basin().await, world.process());
    process.append("s", &["a"]).await.expect("created");
    let waiting = ReadRequest { wait_secs: Some(1), ..read(ReadStart::TailOffset(0)) };
    let started = monotonic();
    assert_eq!(seqs(&process, waiting).await, Ok(vec![]));
    assert!(started.elapsed() >= Duration::from_secs(1));
    let waiting = ReadRequest { wait_secs: Some(30), ..waiting };
    let (found, _) = tokio::join!(seqs(&process, waiting), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        other.append("s", &["b", "c"]).await.expect("appended")
    });
    assert_eq!(found, Ok(vec![1, 2]));
}

#[tokio::test]
async fn records_past_their_age_are_not_served_and_the_tail_stays() {
    let clock = Clock::manual(1_800_000_000_000);
    let world = World { clock: clock.clone(), ..World::new() };
    let process = world.process_with_basin().await;
    // Timestamps lie ten days back: age counts from the arrival, not from them.
    let old = |size: usize| Record { timestamp: Some(1_799_136_000_000), ..record(&vec![0; size]) };
    let patch =
        |policy| StreamConfigPatch { retention_policy: Patch::Set(policy), ..StreamConfigPatch::default() };
    process.append_input("s", batch(vec![old(10), old(40_000)])).await.expect("created");
    let age = RetentionPolicy::Age(3_600);
    process.service.reconfigure_stream(&basin(), &name("s"), patch(age)).await.expect("changed");
    clock.advance_ms(3_000_000);
    process.append_input("s", batch(vec![old(10)])).await.expect("appended");
    assert_eq!(seqs(&process, read(ReadStart::SeqNum(0))).await, Ok(vec![0, 1, 2]));
    clock.advance_ms(660_000);
    assert_eq!(seqs(&process, read(ReadStart::SeqNum(0))).await, Ok(vec![2]));
    assert_eq!(seqs(&process, read(ReadStart::SeqNum(1))).await, Ok(vec![2]));
    assert_eq!(seqs(&process, read(ReadStart::Timestamp(0))).await, Ok(vec![2]));
    clock.advance_ms(3_600_000);
    assert_eq!(seqs(&process, read(ReadStart::SeqNum(0))).await, Ok(vec![]));
    assert_eq!(process.tail("s").await.expect("there"), 3);
    process.append("s", &["next"]).await.expect("appended");
    assert_eq!(seqs(&process, read(ReadStart::SeqNum(0))).await, Ok(vec![3]));
    // A changed age applies to what is stored.
    let infinite = RetentionPolicy::Infinite;
    process.service.reconfigure_stream(&basin(), &name("s"), patch(infinite)).await.expect("changed");
    assert_eq!(seqs(&process, read(ReadStart::SeqNum(0))).await, Ok(vec![0, 1, 2, 3]));
}

#[tokio::test]
async fn a_damaged_chunk_fails_the_read_loudly() {
    let world = World::new();
    let process = world.process_with_basin().await;
    process.append_input("s", batch(vec![record(&vec![b'x'; 100_000])])).await.expect("appended");
    let chunk = process.service_list("data/").await.remove(0).key;
    let mut bytes = world.store.get(&chunk).await.expect("read").expect("there").bytes.to_vec();
    bytes[50_000] ^= 1;
    world.store.put(&chunk, bytes.into()).await.expect("written");
    let outcome = world.process().service.read(&target("s"), read(ReadStart::SeqNum(0))).await;
    assert!(
        matches!(&outcome, Err(Error::Storage { message, .. }) if message.contains("checksum")),
        "{outcome:?}"
    );
    world.store.delete(&chunk).await.expect("deleted");
    let outcome = world.process().service.read(&target("s"), read(ReadStart::SeqNum(0))).await;
    assert!(
        matches!(&outcome, Err(Error::Storage { message, .. }) if message.contains("gone")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_check_tail_never_joins_a_look_that_began_before_it() {
    let world = World::new();
    let (reader, writer) = (world.process_with_basin().await, world.process());
    writer.append("s", &["a"]).await.expect("created");
    assert_eq!(reader.tail("s").await.expect("there"), 1);
    // This look is answered with what it saw at its start, long after.
    reader.faults.inject(Operation::Get, "manifest/", 1, Fault::AnswerLate(Duration::from_millis(200)));
    let (early, late) = tokio::join!(reader.tail("s"), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        writer.append("s", &["b"]).await.expect("appended");
        reader.tail("s").await
    });
    assert_eq!(early.expect("there"), 1);
    assert_eq!(late.expect("there"), 2, "an acknowledged append is seen by whoever asks after it");
}

/// A commit answers only the calls that came before it was sent, like any other request.
#[tokio::test]
async fn a_check_tail_is_not_answered_by_a_commit_that_was_sent_before_it() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    a.append("s", &["seed"]).await.expect("created");
    b.tail("s").await.expect("there");
    let commits = a.faults.count(Operation::Replace, "");
    a.faults.inject(Operation::Replace, "manifest/", 1, Fault::AnswerLate(Duration::from_millis(120)));
    a.faults.inject(Operation::Get, "manifest/", 1, Fault::AnswerLate(Duration::from_millis(200)));
    let (mine, early, late) = tokio::join!(
        a.append("s", &["mine"]),
        async {
            a.faults.seen(commits + 1, Operation::Replace, "").await;
            a.tail("s").await
        },
        async {
            // The look above is in flight, and what it saw is old by now.
            a.faults.seen(commits + 1, Operation::Replace, "").await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            b.tail("s").await.expect("there");
            b.append("s", &["theirs"]).await.expect("appended");
            a.tail("s").await
        }
    );
    assert_eq!(mine.expect("appended").end.seq_num, 2);
    assert!(early.expect("there") >= 2);
    assert_eq!(late.expect("there"), 3);
}

#[tokio::test]
async fn what_a_process_knows_never_goes_back() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["seed"]).await.expect("created");
    let commits = process.faults.count(Operation::Replace, "");
    // The look finds the second commit before its answer is here, and tells it after the third.
    process.faults.inject(Operation::Replace, "manifest/", 1, Fault::AnswerLate(Duration::from_millis(50)));
    process.faults.inject(Operation::Get, "manifest/", 1, Fault::AnswerLate(Duration::from_millis(200)));
    let two = async {
        process.append("s", &["second"]).await.expect("appended");
        process.append("s", &["third"]).await.expect("appended");
    };
    let look = async {
        process.faults.seen(commits + 1, Operation::Replace, "").await;
        process.tail("s").await.expect("there")
    };
    let ((), tail) = tokio::join!(two, look);
    assert!(tail >= 2);
    let before = process.meter.counts();
    process.append("s", &["next"]).await.expect("appended");
    assert_eq!((process.meter.counts() - before).replace, 1, "built on the newest version");
}

/// A writer whose clock is behind must not make its records look older than those before them.
#[tokio::test]
async fn a_writer_with_a_slow_clock_does_not_age_its_records() {
    let world = World { clock: Clock::manual(1_800_000_000_000), ..World::new() };
    let process = world.process_with_basin().await;
    process.append("s", &["seed"]).await.expect("created");
    let age = RetentionPolicy::Age(3_600);
    let patch = StreamConfigPatch { retention_policy: Patch::Set(age), ..StreamConfigPatch::default() };
    process.service.reconfigure_stream(&basin(), &name("s"), patch).await.expect("changed");
    process.append("s", &["a"]).await.expect("appended");
    let slow = World {
        store: world.store.clone(),
        clock: Clock::manual(world.clock.now_ms() - 7_200_000),
        options: world.options.clone(),
    };
    let slow = slow.process();
    slow.append_input("s", batch(vec![record(&[b'x'; 40_000])])).await.expect("appended");
    slow.append("s", &["b"]).await.expect("appended");
    assert_eq!(seqs(&process, read(ReadStart::SeqNum(0))).await, Ok(vec![0, 1, 2, 3]));
}
