//! Requests are the bill: each promise of a number is held here.

use leat::service::records::ReadEvent;
use leat::store::{Counts, Operation};
use leat::types::record::{BeyondTail, ReadLimits, ReadRequest, ReadStart};
use leat::types::time::monotonic;

use crate::world::{World, batch, from_seq, record, target};

/// What a manifest's inline tail holds, in bytes.
const INLINE_MAX: u64 = 32 * 1024;

#[tokio::test]
async fn a_warm_small_append_is_one_request() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    for _ in 0..20 {
        let before = process.meter.counts();
        process.append("s", &["small"]).await.expect("appended");
        assert_eq!(process.meter.counts() - before, Counts { replace: 1, ..Counts::default() });
    }
}

#[tokio::test]
async fn appends_cost_one_manifest_put_each_and_few_chunks() {
    let process = World::new().process_with_basin().await;
    process.append("s", &["first"]).await.expect("created");
    let before = process.meter.counts();
    let (appends, size) = (600u64, 700usize);
    for _ in 0..appends {
        process.append_input("s", batch(vec![record(&vec![7; size])])).await.expect("appended");
    }
    let cost = process.meter.counts() - before;
    let bytes = appends * (size as u64 + 32);
    assert_eq!(cost.replace, appends);
    assert!(cost.put <= bytes / (INLINE_MAX / 2) + 1, "{} chunks for {bytes} bytes", cost.put);
    assert_eq!(cost.get + cost.get_range + cost.list + cost.create, 0, "{cost:?}");
}

#[tokio::test]
async fn a_cold_process_adds_one_basin_get() {
    let world = World::new();
    world.process_with_basin().await.append("s", &["a", "b"]).await.expect("created");
    let process = world.process();
    let before = process.meter.counts();
    assert_eq!(process.tail("s").await.expect("there"), 2);
    assert_eq!(process.meter.counts() - before, Counts { get: 2, ..Counts::default() });
    let before = process.meter.counts();
    assert_eq!(process.tail("s").await.expect("there"), 2);
    assert_eq!(process.meter.counts() - before, Counts { get: 1, ..Counts::default() });
    let before = process.meter.counts();
    process.service.read(&target("s"), from_seq(0)).await.expect("readable");
    assert_eq!(process.meter.counts() - before, Counts { get: 1, ..Counts::default() });
}

/// 100,000 records in batches of mixed size: small ones ride inline, some make chunks of their own.
#[tokio::test]
async fn cost_per_append_does_not_grow_with_the_stream() {
    let process = World::new().process_with_basin().await;
    let mixed = |i: usize| {
        let (records, size) = [(1, 200), (20, 100), (3, 900), (120, 350), (1, 20)][i % 5];
        batch(vec![record(&vec![i as u8; size]); records])
    };
    process.append("s", &["first"]).await.expect("created");
    let measure = async |from: usize| {
        let before = process.meter.counts();
        for i in 0..2_000 {
            process.append_input("s", mixed(from + i)).await.expect("appended");
        }
        process.meter.counts() - before
    };
    let young = measure(0).await;
    let mut i = 2_000;
    while process.tail("s").await.expect("there") < 100_000 {
        process.append_input("s", mixed(i)).await.expect("appended");
        i += 1;
    }
    let old = measure(i).await;
    assert_eq!(old.replace, young.replace);
    assert!(old.put <= young.put + young.put / 20 + 8, "{} PUTs, {} when young", old.put, young.put);
    assert!(old.get + old.get_range <= young.get + young.get_range + 2, "{old:?} against {young:?}");
    let (mut largest, mut manifests) = (0, 0);
    for listed in process.service_list("manifest/").await {
        largest = largest.max(listed.size);
        manifests += 1;
    }
    assert_eq!(manifests, 1);
    assert!(largest <= INLINE_MAX + 16 * 1024, "a manifest of {largest} bytes");
}

#[tokio::test]
async fn a_hundred_followers_cost_the_requests_of_one() {
    let world = World::new();
    let writer = world.process_with_basin().await;
    writer.append("s", &["a"]).await.expect("created");
    let reader = world.process();
    let follow = ReadRequest {
        start: ReadStart::TailOffset(0),
        beyond_tail: BeyondTail::Refuse,
        limits: ReadLimits::default(),
        wait_secs: None,
    };
    let mut sessions = Vec::new();
    for _ in 0..100 {
        let mut session = reader.service.read_session(&target("s"), follow).await.expect("open");
        assert!(matches!(session.next().await, Some(Ok(ReadEvent::Heartbeat(_)))));
        sessions.push(session);
    }
    let gets = || reader.faults.log().iter().filter(|(op, _)| *op == Operation::Get).count();
    let before = gets();
    let started = monotonic();
    for n in 0..5 {
        writer.append("s", &["x"]).await.expect("appended");
        for session in &mut sessions {
            let event = session.next().await;
            assert!(
                matches!(&event, Some(Ok(ReadEvent::Batch(b))) if b.records.len() == 1),
                "{n}: {event:?}"
            );
        }
    }
    let looks = started.elapsed().as_millis() / 100 + 2;
    assert!((gets() - before) as u128 <= looks, "{} GETs in {looks} poll intervals", gets() - before);
}

#[tokio::test]
async fn catching_up_fetches_every_chunk_once() {
    let world = World::new();
    let writer = world.process_with_basin().await;
    for i in 0..40u8 {
        let records = vec![record(&[i; 1_024]); 200];
        writer.append_input("s", batch(records)).await.expect("appended");
    }
    let reader = world.process();
    let request = ReadRequest { limits: ReadLimits::default(), wait_secs: Some(0), ..from_seq(0) };
    let mut session = reader.service.read_session(&target("s"), request).await.expect("readable");
    let mut next = 0;
    while let Some(event) = session.next().await {
        let ReadEvent::Batch(batch) = event.expect("readable") else { continue };
        for r in batch.records {
            assert_eq!((r.seq_num, r.body[0]), (next, (next / 200) as u8));
            next += 1;
        }
    }
    assert_eq!(next, 8_000);
    // The basin, the manifest, and the chunks.
    assert_eq!(reader.meter.counts(), Counts { get: 2, get_range: 40, ..Counts::default() });
}
