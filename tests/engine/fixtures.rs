//! A frozen example of every stored format: what an older Leat wrote is read for ever.
//!
//! A change of format adds a file, never edits one. `LEAT_WRITE_FIXTURES=1` writes the ones that are missing.

use std::path::PathBuf;

use bytes::Bytes;
use leat::storage::bucket::BucketRecord;
use leat::storage::chunk::{ChunkWriter, Footer, decode_block, open_block};
use leat::storage::head::{Head, State};
use leat::storage::identity::Identity;
use leat::storage::index::{Page, Ref, Target};
use leat::storage::key::{DataClass, Incarnation, ObjectId, StreamKind};
use leat::storage::ledger::{Kin, Ledger, Origin, StandIn};
use leat::storage::manifest::{LogState, Manifest};
use leat::storage::meta::{BasinRecord, DueMarker, ProbeRecord, StoreRecord};
use leat::storage::producers::{Known, ProducerPage, Producers};
use leat::storage::record::RunWriter;
use leat::storage::tail::{InlineCommit, Tail};
use leat::storage::upkeep::{PendingCopy, Upkeep};
use leat::types::config::{
    BasinConfig, RetentionPolicy, StorageClass, StreamConfig, StreamConfigLayer, Timestamping,
    TimestampingMode,
};
use leat::types::ledger::{ContentType, Lifetime, Producer, WriterSeq};
use leat::types::name::BucketName;
use leat::types::record::{FencingToken, Header};

use crate::world::{basin, name};

const LIFE: [u8; 16] = *b"life-of-a-stream";
/// Where the document begins: before it stand the writer, and the checksum of all.
const HEADER: usize = 12;
const BASIN_LIFE: [u8; 16] = *b"life-of-a-basin!";

fn life(bytes: [u8; 16]) -> Incarnation {
    Incarnation::from_slice(&bytes).expect("16 bytes")
}

/// The frozen bytes.
#[allow(clippy::disallowed_methods, reason = "writes fixtures only when told to")]
fn frozen(file: &str, current: &Bytes) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file);
    if std::env::var("LEAT_WRITE_FIXTURES").is_ok() && !path.exists() {
        std::fs::write(&path, current).expect("written");
    }
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).into()
}

fn identity() -> Identity {
    Identity { kind: StreamKind::S2, basin: life(BASIN_LIFE), name: name("orders/é/42") }
}

fn headers() -> Vec<Header> {
    vec![
        Header { name: "type".into(), value: "created".into() },
        Header { name: "".into(), value: "".into() },
    ]
}

fn refs() -> Vec<Ref> {
    let one = |n: u8, target| Ref {
        id: ObjectId::from_slice(&[n; 16]).expect("16 bytes"),
        target,
        base_seq: 100 + u64::from(n) * 10,
        count: 10,
        timestamp_floor: 1_000 + u64::from(n),
        last_timestamp: 2_000 + u64::from(n),
        first_arrival_ms: 3_000 + u64::from(n),
        last_arrival_ms: 4_000 + u64::from(n),
        metered_bytes: 555,
    };
    let chunk = |class| Target::Chunk { class, first: 3, footer_at: 70_000, bytes: 70_100, writer: None };
    vec![one(0, chunk(DataClass::Days4)), one(1, chunk(DataClass::Infinite))]
}

fn manifest() -> Manifest {
    let mut run = RunWriter::default();
    run.push(7_000, &headers(), &"body".into());
    run.push(7_001, &[], &"".into());
    let commit = InlineCommit {
        arrival_ms: 8_000,
        last_timestamp: 7_001,
        count: 2,
        metered_bytes: 39,
        run: run.finish(),
    };
    Manifest {
        head: Head::first(life(LIFE), State::Live),
        hash: identity().hash(),
        identity: Some(identity()),
        created_at_ms: 1_800_000_000_000,
        creation_digest: Some([5; 16]),
        config: StreamConfig {
            storage_class: StorageClass::Express,
            retention_policy: RetentionPolicy::Age(86_400),
            timestamping: Timestamping { mode: TimestampingMode::ClientRequire, uncapped: true },
            delete_on_empty_min_age_secs: 60,
        },
        log: LogState {
            next_seq_num: 122,
            last_timestamp: 7_001,
            last_arrival_ms: 8_000,
            trim_point: 101,
            fencing_token: FencingToken::new("token".to_owned()).expect("short"),
            ledger: None,
        },
        tail: Tail(vec![commit]),
        levels: vec![refs()],
        inbox_epoch: 3,
        collection_epoch: 4,
        classes_used: 9,
        due: "due/0000500000/aa/x".to_owned(),
        upkeep: Upkeep::default(),
    }
}

/// What format 1 of a writer of 2 adds.
fn tended_manifest() -> Manifest {
    let copy = Some(PendingCopy { from: 101, to: 120, since_ms: 9_000 });
    Manifest { upkeep: Upkeep { compacted_to: 110, collected_ms: 8_500, copy }, ..manifest() }
}

/// The frozen document with the ids that are fresh in every version made equal.
fn with_head_of(mut wanted: Manifest, read: &Manifest) -> Manifest {
    wanted.head = read.head.clone();
    wanted
}

#[test]
fn a_manifest_of_format_1_is_read() {
    let bytes = frozen("manifest-1.bin", &manifest().encode());
    let read = Manifest::decode(&bytes, &identity()).expect("readable");
    assert_eq!(read, with_head_of(manifest(), &read));
    assert_eq!((read.head.version, read.head.state, read.head.min_writer), (1, State::Live, 1));
}

#[test]
fn a_manifest_of_writer_2_is_read() {
    let bytes = frozen("manifest-2.bin", &tended_manifest().encode());
    let read = Manifest::decode(&bytes, &identity()).expect("readable");
    assert_eq!(read, with_head_of(tended_manifest(), &read));
    assert_eq!((read.head.version, read.head.state, read.head.min_writer), (1, State::Live, 2));
    assert_eq!(read.encode()[HEADER..], bytes[HEADER..], "and written as it was");
}

/// A stream with a ledger, as Durable Streams have them.
fn durable_identity() -> Identity {
    Identity { kind: StreamKind::Durable, ..identity() }
}

fn manifest_with_ledger() -> Manifest {
    let producer = |seq| Producer::new("producer-1", 2, seq).expect("legal");
    let kin = |text: &str| Kin { bucket: life(BASIN_LIFE), name: name(text), life: life(LIFE) };
    let content_type = ContentType::new("application/json; charset=utf-8").expect("legal");
    let ledger = Ledger {
        is_closed: true,
        closed_by: Some(producer(7)),
        writer_seq: Some(WriterSeq::new(b"2026-11").expect("legal")),
        producers: Producers { newest: vec![Known { last: producer(7), at_ms: 8_000 }], page: None },
        origin: Some(Origin { source: kin("source"), at: 100, beyond: 1 }),
        forks: vec![kin("fork/1"), kin("fork/2")],
        stand_in: Some(StandIn { at: 101, content_type: ContentType::octets(), object: refs()[0] }),
        ..Ledger::new(content_type, Lifetime::Idle(3_600), 7_500)
    };
    let log = LogState { ledger: Some(Box::new(ledger)), ..manifest().log };
    let (hash, identity) = (durable_identity().hash(), Some(durable_identity()));
    Manifest { hash, identity, log, ..tended_manifest() }
}

#[test]
fn a_manifest_with_a_ledger_is_read() {
    let bytes = frozen("manifest-2-ledger.bin", &manifest_with_ledger().encode());
    let read = Manifest::decode(&bytes, &durable_identity()).expect("readable");
    assert_eq!(read, with_head_of(manifest_with_ledger(), &read));
    assert_eq!(read.encode()[HEADER..], bytes[HEADER..], "and written as it was");
}

/// A fork with many producers: what a writer of 3 adds.
fn manifest_of_a_fork() -> Manifest {
    let source = Manifest { levels: vec![], ..manifest_with_ledger() };
    let copied = |r: Ref| match r.target {
        Target::Chunk { class, first, footer_at, bytes, .. } => {
            let writer = Some(life(*b"life-of-a-source"));
            Ref { target: Target::Chunk { class, first, footer_at, bytes, writer }, ..r }
        }
        Target::Page { .. } => r,
    };
    let own = *refs().last().expect("two");
    let levels = vec![vec![copied(refs()[0]), own]];
    let mut ledger = source.log.ledger.clone().expect("it has one");
    ledger.producers.page = Some(ProducerPage { object: refs()[1], oldest_ms: 7_900 });
    Manifest { levels, log: LogState { ledger: Some(ledger), ..source.log.clone() }, ..source }
}

#[test]
fn a_manifest_of_writer_3_is_read() {
    let bytes = frozen("manifest-3-fork.bin", &manifest_of_a_fork().encode());
    let read = Manifest::decode(&bytes, &durable_identity()).expect("readable");
    assert_eq!(read, with_head_of(manifest_of_a_fork(), &read));
    assert_eq!(read.head.min_writer, 3);
    assert_eq!(read.encode(), bytes, "and written as it was");
}

#[test]
fn a_bucket_record_is_read() {
    let name = BucketName::try_from("some_bucket-1").expect("legal");
    let head = Head::first(life(BASIN_LIFE), State::Live);
    let wanted = BucketRecord { head, name: name.clone(), created_at_ms: 1_800_000_000_000 };
    let read = BucketRecord::decode(&frozen("bucket-1.bin", &wanted.encode()), &name).expect("readable");
    assert_eq!(read, BucketRecord { head: read.head.clone(), ..wanted });
}

#[test]
fn a_tombstone_of_format_1_is_read() {
    let wanted = manifest().tombstone("due/0000500001/aa/y".to_owned());
    // A writer of 1 did not take note of the class of its configuration.
    let wanted = Manifest { classes_used: manifest().classes_used, ..wanted };
    let bytes = frozen("tombstone-1.bin", &wanted.encode());
    assert!(bytes.len() < 512, "{} bytes", bytes.len());
    let read = Manifest::decode(&bytes, &identity()).expect("readable");
    assert_eq!(read, with_head_of(wanted, &read));
    assert_eq!((read.head.version, read.head.state), (2, State::Tombstone));
}

#[test]
fn a_basin_record_of_format_1_is_read() {
    let wanted = BasinRecord {
        head: Head::first(life(BASIN_LIFE), State::Live),
        name: basin(),
        created_at_ms: 1_800_000_000_000,
        deleted_at_ms: Some(1_800_000_000_001),
        creation_digest: Some([6; 16]),
        config: BasinConfig {
            default_stream_config: StreamConfigLayer {
                storage_class: Some(StorageClass::Express),
                retention_policy: Some(RetentionPolicy::Infinite),
                timestamping_mode: Some(TimestampingMode::Arrival),
                timestamping_uncapped: Some(false),
                delete_on_empty_min_age_secs: Some(0),
            },
            create_stream_on_append: true,
            create_stream_on_read: false,
        },
    };
    let bytes = frozen("basin-1.bin", &wanted.encode());
    let read = BasinRecord::decode(&bytes, &basin()).expect("readable");
    assert_eq!(read, BasinRecord { head: read.head.clone(), ..wanted });
}

#[test]
fn a_chunk_of_format_1_is_read() {
    let mut writer = ChunkWriter::new(life(LIFE));
    writer.begin_commit(5_000);
    writer.push(10, &headers(), &vec![b'x'; 70_000].into());
    writer.push(11, &[], &"two".into());
    writer.begin_commit(6_000);
    writer.push(11, &[], &"three".into());
    let encoded = writer.finish();
    let bytes = frozen("chunk-1.bin", &encoded.bytes);
    assert_eq!(bytes, encoded.bytes, "and written as it was");
    let at = encoded.footer_at as usize;
    let footer = Footer::decode(&bytes.slice(at..), life(LIFE)).expect("readable");
    assert_eq!(footer.commits, [(0, 5_000), (2, 6_000)]);
    let mut bodies = Vec::new();
    for (_, block) in footer.blocks_of(0..3) {
        let run =
            open_block(&bytes.slice(block.at as usize..(block.at + block.len) as usize)).expect("whole");
        bodies.extend(
            decode_block(&run, block).expect("whole").into_iter().map(|r| (r.timestamp, r.body.len())),
        );
    }
    assert_eq!(bodies, [(10, 70_000), (11, 3), (11, 5)]);
}

#[test]
fn an_index_page_of_format_1_is_read() {
    let wanted = Page { incarnation: life(LIFE), level: 0, refs: refs() };
    let bytes = frozen("page-1.bin", &wanted.encode());
    assert_eq!(Page::decode(&bytes, life(LIFE)), Ok(wanted));
    let over = Ref::over(ObjectId::from_slice(&[9; 16]).expect("16 bytes"), 0, &refs()).expect("not empty");
    let upper = Page { incarnation: life(LIFE), level: 1, refs: vec![over] };
    let bytes = frozen("page-of-pages-1.bin", &upper.encode());
    assert_eq!(Page::decode(&bytes, life(LIFE)), Ok(upper));
}

#[test]
fn small_documents_of_format_1_are_read() {
    let stream = DueMarker::Stream {
        is_last: false,
        kind: StreamKind::S2,
        basin: life(BASIN_LIFE),
        name: name("orders/é/42"),
        incarnation: life(LIFE),
    };
    let gone = DueMarker::Basin { name: basin(), incarnation: life(BASIN_LIFE) };
    for (file, wanted) in [("due-stream-1.bin", stream), ("due-basin-1.bin", gone)] {
        assert_eq!(DueMarker::decode(&frozen(file, &wanted.encode())), Ok(wanted));
    }
    let last = DueMarker::Stream {
        is_last: true,
        kind: StreamKind::S2,
        basin: life(BASIN_LIFE),
        name: name("orders/é/42"),
        incarnation: life(LIFE),
    };
    assert_eq!(DueMarker::decode(&frozen("due-stream-2.bin", &last.encode())), Ok(last));
    let store = StoreRecord::new(life(LIFE), 1_800_000_000_000, None);
    let place = "http://127.0.0.1:9000".to_owned();
    let probe = ProbeRecord { version: 1, place, passed_at_ms: 1_800_000_000_001 };
    let probed = StoreRecord { probe: Some(probe), ..store };
    for (file, wanted) in [("store-1.bin", store), ("store-1-probed.bin", probed)] {
        let read = StoreRecord::decode(&frozen(file, &wanted.encode())).expect("readable");
        assert_eq!(read.min_writer, 1);
        assert_eq!(StoreRecord { min_writer: wanted.min_writer, ..read }, wanted);
    }
}
