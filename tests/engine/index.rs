//! The index tree, at sizes small enough to reach its depth: whatever is appended in whatever order is read back.

use std::sync::Arc;

use leat::engine;
use leat::storage::documents::{Found, load_basin, load_manifest};
use leat::storage::identity::Identity;
use leat::storage::index::{Page, Ref, Target};
use leat::storage::key::{self, StreamKind};
use leat::storage::manifest::{Manifest, Shape};
use leat::store::Store;
use leat::types::limits::MANIFEST_FIXED_BYTES_MAX;
use leat::types::record::{AppendInput, BeyondTail, ReadLimits, ReadRequest, ReadStart, Record};
use proptest::prelude::*;

use crate::world::{Process, World, basin, batch, name, record, target};

const SMALL: Shape = Shape {
    inline_bytes_standard: 512,
    inline_bytes_express: 512,
    refs_max: 4,
    page_refs_max: 4,
    ..Shape::DEFAULT
};

fn small_world() -> World {
    World { options: engine::Options { shape: SMALL, ..engine::Options::default() }, ..World::new() }
}

async fn manifest(world: &World) -> Manifest {
    let record = load_basin(&*world.store, &basin()).await.expect("read").expect("there");
    let identity = Identity { kind: StreamKind::S2, basin: record.doc.head.incarnation, name: name("s") };
    match load_manifest(&*world.store, &identity, None).await.expect("readable") {
        Found::Changed(found) => found.doc,
        other => panic!("{other:?}"),
    }
}

/// Walks the tree and checks every page: level, contiguity, fill. Returns the number of chunks.
async fn check_tree(store: &Arc<dyn Store>, manifest: &Manifest) -> usize {
    let mut chunks = 0;
    for (level, refs) in manifest.levels.iter().enumerate() {
        assert!(refs.len() <= SMALL.refs_max, "level {level} holds {}", refs.len());
        let mut open: Vec<(usize, Ref)> = refs.iter().map(|r| (level, *r)).collect();
        while let Some((level, r)) = open.pop() {
            match r.target {
                Target::Chunk { .. } => {
                    assert_eq!(level, 0);
                    chunks += 1;
                }
                Target::Page { refs, .. } => {
                    let key = key::page(&manifest.hash, manifest.head.incarnation, r.id);
                    let bytes = store.get(&key).await.expect("read").expect("named, so there").bytes;
                    let page = Page::decode(&bytes, manifest.head.incarnation).expect("whole");
                    assert_eq!(page.refs.len(), refs as usize);
                    assert!(page.refs.len() <= SMALL.page_refs_max);
                    assert_eq!(usize::from(page.level), level - 1);
                    let over = Ref::over(r.id, page.level, &page.refs).expect("not empty");
                    assert_eq!(over, r, "a page ref says what its refs say");
                    open.extend(page.refs.iter().map(|r| (level - 1, *r)));
                }
            }
        }
    }
    chunks
}

async fn append(process: &Process, sizes: &[usize], next: u64, timestamp: Option<u64>) -> u64 {
    let records = sizes
        .iter()
        .zip(next..)
        .map(|(size, seq)| {
            let mut body = seq.to_be_bytes().to_vec();
            body.resize(8 + size, b'.');
            Record { timestamp, ..record(&body) }
        })
        .collect();
    process.append_input("s", batch(records)).await.expect("appended").end.seq_num
}

#[tokio::test]
async fn the_tree_reaches_depth_three_and_every_record_is_found() {
    let world = small_world();
    let process = world.process_with_basin().await;
    let mut next = 0;
    for n in 0..420 {
        next = append(&process, if n % 9 == 0 { &[600] } else { &[250] }, next, None).await;
    }
    let state = manifest(&world).await;
    assert!(state.levels.len() > 3, "depth {}", state.levels.len());
    assert!(check_tree(&world.store, &state).await > 150);
    assert!(state.encode().len() <= 512 + MANIFEST_FIXED_BYTES_MAX);
    let cold = world.process();
    let all = cold.read_all("s", 0).await.expect("readable");
    assert_eq!(all.len() as u64, next);
    for (expected, r) in (0u64..).zip(&all) {
        assert_eq!((r.seq_num, &r.body[..8]), (expected, &expected.to_be_bytes()[..]));
    }
    for from in (0..next).step_by(17) {
        let request = ReadRequest {
            start: ReadStart::SeqNum(from),
            beyond_tail: BeyondTail::Refuse,
            limits: ReadLimits { count: Some(2), ..ReadLimits::default() },
            wait_secs: None,
        };
        let batch = cold.service.read(&target("s"), request).await.expect("readable");
        let seqs: Vec<u64> = batch.records.iter().map(|r| r.seq_num).collect();
        assert_eq!(seqs, (from..next.min(from + 2)).collect::<Vec<_>>());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append { by: usize, sizes: Vec<usize>, timestamp: Option<u64> },
    Trim { by: usize, to: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let append = (0usize..2, prop::collection::vec(0usize..700, 1..4), prop::option::of(0u64..5_000))
        .prop_map(|(by, sizes, timestamp)| Step::Append { by, sizes, timestamp });
    let trim = (0usize..2, 0u64..200).prop_map(|(by, to)| Step::Trim { by, to });
    prop::collection::vec(prop_oneof![12 => append, 1 => trim], 1..80)
}

async fn run(steps: Vec<Step>) {
    let world = small_world();
    let processes = [world.process_with_basin().await, world.process()];
    // What the stream must hold: timestamps and bodies' numbers by sequence number, and the trim point.
    let mut stamps: Vec<u64> = Vec::new();
    let mut trimmed = 0;
    for step in steps {
        match step {
            Step::Append { by, sizes, timestamp } => {
                let before = stamps.len() as u64;
                let end = append(&processes[by], &sizes, before, timestamp).await;
                assert_eq!(end, before + sizes.len() as u64);
                let last = stamps.last().copied().unwrap_or(0);
                // Without a client timestamp the arrival counts, which lies far above all of them.
                let stamp = timestamp.map_or(u64::MAX, |t| t.max(last));
                stamps.extend(sizes.iter().map(|_| stamp));
                if timestamp.is_none() {
                    let read = processes[by].read_all("s", before).await.expect("readable");
                    for (slot, r) in stamps[before as usize..].iter_mut().zip(read) {
                        *slot = r.timestamp;
                    }
                }
            }
            Step::Trim { by, to } => {
                let header = leat::types::record::Header { name: "".into(), value: "trim".into() };
                let body = to.to_be_bytes().to_vec().into();
                let trim = Record { timestamp: None, headers: vec![header], body };
                let input = AppendInput::new(vec![trim], None, None).expect("legal");
                let ack = processes[by].append_input("s", input).await.expect("trimmed");
                stamps.push(ack.start.timestamp);
                trimmed = trimmed.max(to.min(ack.end.seq_num));
            }
        }
    }
    let tail = stamps.len() as u64;
    check_tree(&world.store, &manifest(&world).await).await;
    for process in [&processes[0], &processes[1], &world.process()] {
        let all = process.read_all("s", 0).await.expect("readable");
        let found: Vec<(u64, u64)> = all.iter().map(|r| (r.seq_num, r.timestamp)).collect();
        let expected: Vec<(u64, u64)> =
            (0..tail).zip(stamps.iter().copied()).filter(|(seq, _)| *seq >= trimmed).collect();
        assert_eq!(found, expected);
        for timestamp in [0, 1, 777, 2_500, 4_999] {
            let request = ReadRequest {
                start: ReadStart::Timestamp(timestamp),
                beyond_tail: BeyondTail::Clamp,
                limits: ReadLimits { count: Some(1), ..ReadLimits::default() },
                wait_secs: None,
            };
            let first = process.service.read(&target("s"), request).await;
            let first = first.map(|b| b.records.first().map(|r| r.seq_num)).unwrap_or(None);
            let expected = expected.iter().find(|(_, t)| *t >= timestamp).map(|(seq, _)| *seq);
            assert_eq!(first, expected, "from timestamp {timestamp}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_history_of_two_writers_is_read_back(steps in steps().prop_filter("one append", |s|
        s.iter().any(|s| matches!(s, Step::Append { .. })))) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run(steps));
    }
}
