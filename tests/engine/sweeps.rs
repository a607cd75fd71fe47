//! The sweeper: what is dead goes, what is alive stays, whoever else is at work and wherever a pass is cut off.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use leat::engine;
use leat::service::Error;
use leat::storage::documents::{Found, load_basin, load_bucket, load_manifest};
use leat::storage::head::State;
use leat::storage::identity::Identity;
use leat::storage::index::{Page, Ref, Target};
use leat::storage::key::{self, Incarnation, StreamKind};
use leat::storage::manifest::{Manifest, Shape};
use leat::store::{ListQuery, Operation};
use leat::sweeper;
use leat::types::config::{Patch, RetentionPolicy, StreamConfigLayer, StreamConfigPatch};
use leat::types::name::BucketName;
use leat::types::record::{AppendInput, FencingToken, Header, Record, SequencedRecord};
use leat::types::time::Clock;

use crate::faulty::Fault;
use crate::world::{Process, SMALL, World, basin, batch, name, record};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Small, but with lists that are long enough to be worth merging.
const LONG: Shape = Shape { refs_max: 8, page_refs_max: 128, ..SMALL };

fn long() -> World {
    World { options: engine::Options { shape: LONG, ..engine::Options::default() }, ..World::timed() }
}

fn small() -> World {
    World { options: engine::Options { shape: SMALL, ..engine::Options::default() }, ..World::timed() }
}

fn kept_for(secs: u64) -> StreamConfigLayer {
    StreamConfigLayer { retention_policy: Some(RetentionPolicy::Age(secs)), ..StreamConfigLayer::default() }
}

fn deletes_itself_after(secs: u64) -> StreamConfigLayer {
    StreamConfigLayer {
        delete_on_empty_min_age_secs: Some(secs),
        retention_policy: Some(RetentionPolicy::Infinite),
        ..StreamConfigLayer::default()
    }
}

/// Keys under a prefix.
async fn keys(world: &World, prefix: &str) -> BTreeSet<String> {
    let query = ListQuery { prefix: prefix.to_owned(), start_after: None, limit: 100_000 };
    world.store.list(query).await.expect("listed").into_iter().map(|listed| listed.key).collect()
}

async fn count(world: &World, prefix: &str) -> usize {
    keys(world, prefix).await.len()
}

/// Checks that chunks, pages and markers are exactly those that the listed streams name, and that nothing else is listed.
pub(crate) async fn assert_tidy(world: &World) {
    let named = named(world).await;
    let mut there = BTreeSet::new();
    for prefix in ["data/", "index/", "due/"] {
        there.append(&mut keys(world, prefix).await);
    }
    let left: Vec<_> = there.difference(&named).collect();
    let missing: Vec<_> = named.difference(&there).collect();
    assert!(left.is_empty() && missing.is_empty(), "left {left:#?}, missing {missing:#?}");
    assert_eq!(count(world, "catalog/").await, manifests(world).await.len(), "entries of what has ended");
}

/// The chunks, pages and markers that the listed streams name.
async fn named(world: &World) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for manifest in manifests(world).await {
        assert!(named.insert(manifest.due.clone()), "a marker of two streams");
        for refs in &manifest.levels {
            reach(world, &manifest, refs, &mut named).await;
        }
        let objects: Vec<_> = manifest.log.ledger.iter().flat_map(|ledger| ledger.objects()).collect();
        reach(world, &manifest, &objects, &mut named).await;
    }
    named
}

/// The lives of what streams lie in.
async fn lives(world: &World) -> Vec<(StreamKind, Incarnation)> {
    let mut lives = Vec::new();
    if let Some(basin) = load_basin(&*world.store, &basin()).await.expect("readable") {
        lives.push((StreamKind::S2, basin.doc.head.incarnation));
    }
    for key in keys(world, key::BUCKETS).await {
        let name = BucketName::try_from(&key[key::BUCKETS.len()..]).expect("legal");
        let bucket = load_bucket(&*world.store, &name).await.expect("readable").expect("there");
        if bucket.doc.head.state != State::Tombstone {
            lives.push((StreamKind::Durable, bucket.doc.head.incarnation));
        }
    }
    lives
}

/// The manifests of all listed streams.
pub(crate) async fn manifests(world: &World) -> Vec<Manifest> {
    let mut manifests = Vec::new();
    for (kind, life) in lives(world).await {
        for key in keys(world, &key::catalog(life)).await {
            let entry = key::parse_catalog_entry(life, &key).expect("an entry");
            let identity = Identity { kind, basin: life, name: entry.name };
            let found = load_manifest(&*world.store, &identity, None).await.expect("readable");
            let Found::Changed(found) = found else { panic!("{} is listed and not there", identity.name) };
            assert_eq!(found.doc.head.incarnation, entry.incarnation, "an entry of another life");
            manifests.push(found.doc);
        }
    }
    manifests
}

/// The key of the chunk with the oldest records of the first stream that is listed.
async fn oldest_chunk(world: &World) -> String {
    let manifest = manifests(world).await.into_iter().next().expect("a stream");
    let life = manifest.head.incarnation;
    let mut oldest = *manifest.levels.iter().rev().flatten().next().expect("a ref");
    loop {
        match oldest.target {
            Target::Chunk { class, .. } => return key::chunk(class, &manifest.hash, life, oldest.id),
            Target::Page { .. } => {
                let key = key::page(&manifest.hash, life, oldest.id);
                let object = world.store.get(&key).await.expect("readable").expect("there");
                oldest = Page::decode(&object.bytes, life).expect("whole").refs[0];
            }
        }
    }
}

fn reach<'a>(
    world: &'a World,
    manifest: &'a Manifest,
    refs: &'a [Ref],
    named: &'a mut BTreeSet<String>,
) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let life = manifest.head.incarnation;
        for r in refs {
            match r.target {
                Target::Chunk { class, .. } => {
                    named.insert(key::chunk(class, &manifest.hash, life, r.id));
                }
                Target::Page { .. } => {
                    let key = key::page(&manifest.hash, life, r.id);
                    let object = world.store.get(&key).await.expect("readable");
                    let page = Page::decode(&object.expect("a page that is named is there").bytes, life);
                    reach(world, manifest, &page.expect("whole").refs, named).await;
                    named.insert(key);
                }
            }
        }
    })
}

/// Appends records of some size, a commit each.
async fn fill(process: &Process, stream: &str, records: usize, bytes: usize) {
    for n in 0..records {
        let mut body = format!("{n};").into_bytes();
        body.resize(bytes.max(body.len()), b'.');
        process.append_input(stream, batch(vec![record(&body)])).await.expect("appended");
    }
}

async fn command(process: &Process, stream: &str, command: &'static str, body: Vec<u8>) {
    let header = Header { name: "".into(), value: command.into() };
    let record = Record { timestamp: None, headers: vec![header], body: body.into() };
    let input = AppendInput::new(vec![record], None, None).expect("legal");
    process.append_input(stream, input).await.expect("appended");
}

async fn trim(process: &Process, stream: &str, to: u64) {
    command(process, stream, "trim", to.to_be_bytes().to_vec()).await;
}

async fn create(process: &Process, stream: &str, config: StreamConfigLayer) {
    process.service.create_stream(&basin(), &name(stream), config, None).await.expect("created");
}

async fn swept(process: &Process) -> sweeper::Report {
    let report = process.sweep().await.expect("swept");
    assert_eq!(report.failures, 0, "{report}");
    report
}

async fn all(process: &Process, stream: &str) -> Vec<SequencedRecord> {
    process.read_all(stream, 0).await.expect("readable")
}

async fn exists(process: &Process, stream: &str) -> bool {
    match process.service.stream_config(&basin(), &name(stream)).await {
        Ok(_) => true,
        Err(Error::StreamNotFound(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn what_is_past_its_age_goes_and_the_numbers_go_on() {
    let world = small();
    let process = world.process_with_basin().await;
    create(&process, "s", kept_for(DAY / 1_000)).await;
    fill(&process, "s", 60, 400).await;
    world.clock.advance_ms(20 * HOUR);
    fill(&process, "s", 30, 400).await;
    let before = count(&world, "data/").await;
    world.clock.advance_ms(5 * HOUR);
    let report = swept(&process).await;
    assert_eq!(report.streams_visited, 1);
    assert!(report.objects_removed as usize > before / 2 && report.bytes_removed > 60 * 300, "{report}");
    let kept = all(&world.process(), "s").await;
    assert_eq!((kept.first().map(|r| r.seq_num), kept.len()), (Some(60), 30));
    assert_eq!(process.tail("s").await.expect("there"), 90);
    assert_tidy(&world).await;
    world.clock.advance_ms(3 * DAY);
    swept(&process).await;
    assert_eq!(count(&world, "data/").await + count(&world, "index/").await, 0);
    assert!(all(&process, "s").await.is_empty());
    assert_eq!(process.append("s", &["x"]).await.expect("appended").start.seq_num, 90);
}

#[tokio::test]
async fn what_is_trimmed_goes_and_the_rest_stays() {
    let world = small();
    let process = world.process_with_basin().await;
    create(&process, "s", deletes_itself_after(0)).await;
    fill(&process, "s", 90, 400).await;
    trim(&process, "s", 77).await;
    let before = all(&process, "s").await;
    world.clock.advance_ms(2 * DAY);
    let report = swept(&process).await;
    assert!(report.objects_removed > 20, "{report}");
    assert_eq!(all(&world.process(), "s").await, before);
    assert_tidy(&world).await;
}

#[tokio::test]
async fn an_age_made_shorter_or_longer_counts_for_what_is_stored() {
    let world = small();
    let process = world.process_with_basin().await;
    create(&process, "s", kept_for(DAY / 1_000)).await;
    create(&process, "t", kept_for(10 * DAY / 1_000)).await;
    fill(&process, "s", 40, 400).await;
    fill(&process, "t", 40, 400).await;
    world.clock.advance_ms(20 * HOUR);
    for (stream, retention) in [("s", RetentionPolicy::Infinite), ("t", RetentionPolicy::Age(3_600))] {
        let patch =
            StreamConfigPatch { retention_policy: Patch::Set(retention), ..StreamConfigPatch::default() };
        process.service.reconfigure_stream(&basin(), &name(stream), patch).await.expect("changed");
    }
    let kept = all(&process, "s").await;
    assert_eq!(kept.len(), 40);
    // A change of the retention asks for a visit at once; that of `s` copies to the class without an end.
    let report = swept(&process).await;
    assert_eq!(report.streams_visited, 2, "{report}");
    assert!(report.chunks_copied + report.chunks_merged > 0, "{report}");
    let data = keys(&world, "data/").await;
    assert!(!data.is_empty() && data.iter().all(|key| key.starts_with("data/inf/")), "{data:?}");
    world.clock.advance_ms(400 * DAY);
    swept(&process).await;
    assert_eq!(all(&world.process(), "s").await, kept);
    assert!(all(&process, "t").await.is_empty());
    assert_tidy(&world).await;
}

#[tokio::test]
async fn small_chunks_are_merged_and_every_record_keeps_its_place_and_its_age() {
    let world = long();
    let process = world.process_with_basin().await;
    create(&process, "s", kept_for(10 * DAY / 1_000)).await;
    for _ in 0..4 {
        fill(&process, "s", 60, 400).await;
        world.clock.advance_ms(DAY);
    }
    let (before, chunks) = (all(&process, "s").await, count(&world, "data/").await);
    let report = swept(&process).await;
    assert!(report.chunks_merged > 60, "{report}");
    assert!(count(&world, "data/").await < chunks / 4, "{chunks}");
    assert_eq!(all(&world.process(), "s").await, before);
    // A process that read before follows.
    assert_eq!(all(&process, "s").await, before);
    assert_tidy(&world).await;
    // The first day's records, and they alone, are past their age.
    world.clock.advance_ms(6 * DAY + HOUR);
    assert_eq!(all(&world.process(), "s").await, before[60..]);
    swept(&process).await;
    assert_eq!(all(&world.process(), "s").await, before[60..]);
    world.clock.advance_ms(DAY);
    swept(&process).await;
    assert_eq!(all(&world.process(), "s").await, before[120..]);
    assert_tidy(&world).await;
}

#[tokio::test]
async fn a_stream_deletes_itself_when_it_is_empty_for_long_enough_and_not_before() {
    let world = small();
    let process = world.process_with_basin().await;
    let hour = deletes_itself_after(3_600);
    for stream in ["never-written", "trimmed", "in-use", "changed-its-mind", "written-again"] {
        create(&process, stream, hour).await;
    }
    for stream in ["trimmed", "in-use", "changed-its-mind", "written-again"] {
        fill(&process, stream, 20, 400).await;
    }
    world.clock.advance_ms(30 * MINUTE);
    assert_eq!(swept(&process).await.streams_deleted, 0);
    for stream in ["trimmed", "changed-its-mind", "written-again"] {
        trim(&process, stream, u64::MAX).await;
    }
    world.clock.advance_ms(50 * MINUTE);
    // The trim command was a write.
    assert_eq!(swept(&process).await.streams_deleted, 1);
    assert!(!exists(&process, "never-written").await && exists(&process, "trimmed").await);
    let off =
        StreamConfigPatch { delete_on_empty_min_age_secs: Patch::Set(0), ..StreamConfigPatch::default() };
    process.service.reconfigure_stream(&basin(), &name("changed-its-mind"), off).await.expect("changed");
    process.append("written-again", &["x"]).await.expect("appended");
    world.clock.advance_ms(DAY + 20 * MINUTE);
    assert_eq!(swept(&process).await.streams_deleted, 1);
    for (stream, is_there) in
        [("trimmed", false), ("in-use", true), ("changed-its-mind", true), ("written-again", true)]
    {
        assert_eq!(exists(&process, stream).await, is_there, "{stream}");
    }
    // A name that comes back begins at 0, under the same rules.
    create(&process, "trimmed", hour).await;
    assert_eq!(process.append("trimmed", &["new"]).await.expect("appended").start.seq_num, 0);
    for _ in 0..3 {
        world.clock.advance_ms(26 * HOUR);
        swept(&process).await;
    }
    assert_eq!(process.bodies("trimmed").await, ["new"]);
    assert_tidy(&world).await;
}

/// T12: an append between the sweeper's look and its commit keeps the stream alive.
#[tokio::test]
async fn an_append_beside_the_decision_to_delete_keeps_the_stream() {
    for (operation, prefix) in [(Operation::Put, "due/"), (Operation::Replace, "manifest/")] {
        let world = small();
        let (writer, other) = (world.process_with_basin().await, world.process());
        create(&writer, "s", deletes_itself_after(60)).await;
        world.clock.advance_ms(DAY);
        other.faults.hold(operation, prefix);
        let (report, ()) = tokio::join!(other.sweep(), async {
            other.faults.seen(1, operation, prefix).await;
            writer.append("s", &["alive"]).await.expect("appended");
            other.faults.release();
        });
        assert_eq!(report.expect("swept").streams_deleted, 0);
        assert_eq!(writer.bodies("s").await, ["alive"]);
        assert!(exists(&other, "s").await);
    }
}

#[tokio::test]
async fn a_deleted_stream_leaves_nothing_after_its_second_visit() {
    let world = small();
    let process = world.process_with_basin().await;
    create(&process, "s", kept_for(10 * DAY / 1_000)).await;
    fill(&process, "s", 90, 400).await;
    // An upload that is on its way when the stream ends, and lands between the visits.
    let straggler = keys(&world, "data/").await.into_iter().next().expect("a chunk");
    process.service.delete_stream(&basin(), &name("s")).await.expect("deleted");
    create(&process, "s", kept_for(10 * DAY / 1_000)).await;
    process.append("s", &["new life"]).await.expect("appended");
    assert_eq!(swept(&process).await.lives_cleared, 1);
    assert_eq!(count(&world, "data/").await + count(&world, "index/").await, 0);
    world.store.put(&straggler, "late".into()).await.expect("written");
    world.clock.advance_ms(20 * HOUR);
    assert_eq!(swept(&process).await.lives_cleared, 0, "not yet");
    world.clock.advance_ms(6 * HOUR);
    let report = swept(&process).await;
    assert_eq!((report.lives_cleared, report.objects_removed), (1, 1), "{report}");
    assert_tidy(&world).await;
    assert_eq!(process.bodies("s").await, ["new life"]);
}

/// T11: an upload that waits longer than the grace period is either refused, or all of it can be read.
#[tokio::test]
async fn a_writer_that_is_frozen_beyond_the_grace_loses_its_upload_and_no_record() {
    let world = small();
    let other = world.process_with_basin().await;
    // Its own clock stands still: safety must not rest on it.
    let clock = Clock::manual(world.clock.local_ms());
    let sleepy = World { store: world.store.clone(), clock, options: world.options.clone() }.process();
    create(&sleepy, "s", kept_for(90 * DAY / 1_000)).await;
    fill(&sleepy, "s", 3, 100).await;
    let commits = sleepy.faults.count(Operation::Replace, "manifest/");
    sleepy.faults.hold(Operation::Replace, "manifest/");
    let (outcome, ()) = tokio::join!(sleepy.append_input("s", batch(vec![record(&[b'z'; 5_000])])), async {
        sleepy.faults.seen(commits + 1, Operation::Replace, "manifest/").await;
        for _ in 0..10 {
            world.clock.advance_ms(DAY / 2);
            swept(&other).await;
        }
        sleepy.faults.release();
    });
    let ack = outcome.expect("made again under the new epoch");
    assert_eq!(ack.end.seq_num, 4);
    assert_eq!(all(&world.process(), "s").await.last().map(|r| r.body.len()), Some(5_000));
    // An idle stream is visited less and less often.
    world.clock.advance_ms(10 * DAY);
    swept(&other).await;
    assert_tidy(&world).await;
    assert_eq!(all(&world.process(), "s").await.len(), 4);
}

#[tokio::test]
async fn a_creation_that_died_half_way_is_taken_out_of_the_listing() {
    let world = small();
    let process = world.process_with_basin().await;
    process.faults.inject(Operation::Create, "manifest/", 1, Fault::Hang);
    let (basin, ghost) = (basin(), name("ghost"));
    let creation = process.service.create_stream(&basin, &ghost, kept_for(3_600), None);
    assert!(tokio::time::timeout(Duration::from_millis(100), creation).await.is_err());
    assert_eq!(count(&world, "catalog/").await, 1);
    world.clock.advance_ms(2 * HOUR);
    assert_eq!(swept(&process).await.lives_cleared, 1);
    assert_eq!(count(&world, "catalog/").await, 0);
    create(&process, "ghost", kept_for(3_600)).await;
    process.append("ghost", &["alive"]).await.expect("appended");
    world.clock.advance_ms(27 * HOUR);
    swept(&process).await;
    assert_tidy(&world).await;
}

#[tokio::test]
async fn a_basin_whose_deletion_stopped_is_finished() {
    let world = small();
    let process = world.process_with_basin().await;
    for n in 0..5 {
        process.append(&format!("s{n}"), &["x"]).await.expect("appended");
    }
    // The process that accepted it does not get far.
    let doomed = world.process();
    doomed.faults.inject(Operation::List, "catalog/", 1_000, Fault::Hang);
    doomed.service.delete_basin(&basin()).await.expect("accepted");
    drop(doomed);
    let report = swept(&world.process()).await;
    assert_eq!(report.basins_deleted, 1, "{report}");
    assert_eq!(count(&world, "catalog/").await, 0);
    world.clock.advance_ms(HOUR);
    for _ in 0..3 {
        swept(&world.process()).await;
        world.clock.advance_ms(27 * HOUR);
    }
    // A key that is changed by compare-and-swap is never absent again; nothing else is left.
    let mut left = keys(&world, "").await;
    assert!(left.remove(key::CLOCK) && left.remove(&key::basin(&basin())));
    assert!(left.len() == 5 && left.iter().all(|key| key.starts_with("manifest/")), "{left:?}");
}

/// A pass is cut off at each of its requests in turn; the next one repairs what is left.
#[tokio::test]
async fn a_pass_may_be_cut_off_at_any_request() {
    const OPERATIONS: [Operation; 5] =
        [Operation::Get, Operation::Put, Operation::Replace, Operation::Delete, Operation::List];
    for operation in OPERATIONS {
        for (skip, fault) in (0..9).flat_map(|n| [(n, Fault::Hang), (n, Fault::DropAfterApply)]) {
            let world = small();
            let process = world.process_with_basin().await;
            create(&process, "s", kept_for(DAY / 1_000)).await;
            create(&process, "gone", kept_for(DAY / 1_000)).await;
            fill(&process, "s", 40, 400).await;
            fill(&process, "gone", 20, 400).await;
            world.clock.advance_ms(20 * HOUR);
            fill(&process, "s", 40, 400).await;
            process.service.delete_stream(&basin(), &name("gone")).await.expect("deleted");
            let alive = all(&process, "s").await[40..].to_vec();
            world.clock.advance_ms(5 * HOUR);
            let sweeper = world.process();
            sweeper.faults.inject_after((skip, 1), operation, "", fault);
            let _cut_off = tokio::time::timeout(Duration::from_millis(30), sweeper.sweep()).await;
            assert_eq!(all(&world.process(), "s").await, alive, "{operation} {skip} {fault:?}");
            for _ in 0..2 {
                world.clock.advance_ms(2 * HOUR);
                swept(&world.process()).await;
                assert_eq!(all(&world.process(), "s").await, alive, "{operation} {skip} {fault:?}");
                world.clock.advance_ms(2 * HOUR);
            }
            world.clock.advance_ms(DAY);
            // By now all of it is past its age, and the ended life was visited twice.
            for _ in 0..2 {
                world.clock.advance_ms(27 * HOUR);
                swept(&world.process()).await;
            }
            assert_tidy(&world).await;
        }
    }
}

#[tokio::test]
async fn two_sweepers_and_a_writer_at_once_do_no_harm() {
    let world = small();
    let (writer, one, two) = (world.process_with_basin().await, world.process(), world.process());
    create(&writer, "s", kept_for(30 * DAY / 1_000)).await;
    for round in 0..6 {
        let (_, a, b) = tokio::join!(fill(&writer, "s", 40, 400), one.sweep(), two.sweep());
        for report in [a, b] {
            assert!(report.expect("swept").streams_visited <= 1);
        }
        assert_eq!(all(&world.process(), "s").await.len(), 40 * (round + 1));
        world.clock.advance_ms(DAY);
    }
    swept(&one).await;
    assert_tidy(&world).await;
}

#[tokio::test]
async fn a_pass_costs_what_is_due_and_not_what_exists() {
    let world = World::timed();
    let process = world.process_with_basin().await;
    for n in 0..300 {
        create(&process, &format!("idle-{n}"), kept_for(30 * DAY / 1_000)).await;
    }
    world.clock.advance_ms(DAY / 2);
    for n in 0..20 {
        create(&process, &format!("due-{n}"), kept_for(600)).await;
    }
    world.clock.advance_ms(HOUR);
    let before = process.faults.log().len();
    let report = swept(&process).await;
    let requests = process.faults.log().len() - before;
    assert_eq!(report.streams_visited, 20, "{report}");
    // A visit: the marker, the manifest, a LIST for orphans and the look after it, the next marker, the commit
    // and the old marker's end; a pass: the clock and one LIST.
    assert!(requests <= 20 * 7 + 3, "{requests}");
    let before = process.faults.log().len();
    assert_eq!(swept(&process).await.markers, 0);
    assert_eq!(process.faults.log().len() - before, 3, "nothing is due");
}

#[tokio::test]
async fn a_dry_run_tells_and_changes_nothing() {
    let world = small();
    let process = world.process_with_basin().await;
    create(&process, "s", kept_for(DAY / 1_000)).await;
    create(&process, "empty", deletes_itself_after(60)).await;
    fill(&process, "s", 60, 400).await;
    process.append("gone", &["x"]).await.expect("appended");
    process.service.delete_stream(&basin(), &name("gone")).await.expect("deleted");
    world.clock.advance_ms(2 * DAY);
    let before = keys(&world, "").await;
    let options = sweeper::Options { dry_run: true, ..sweeper::Options::default() };
    let report = process.sweep_as(options).await.expect("swept");
    let mut after = keys(&world, "").await;
    after.remove(key::CLOCK);
    assert_eq!(after, before);
    assert!(report.dry_run && report.objects_removed > 20, "{report}");
    assert_eq!((report.streams_visited, report.streams_deleted, report.lives_cleared), (1, 1, 1));
    let done = swept(&process).await;
    assert_eq!(done.streams_deleted, report.streams_deleted);
    assert!(done.objects_removed >= report.objects_removed, "{done} after {report}");
}

#[tokio::test]
async fn one_pass_visits_no_more_than_it_may() {
    let world = World::timed();
    let process = world.process_with_basin().await;
    for n in 0..10 {
        create(&process, &format!("s{n}"), kept_for(3_600)).await;
    }
    world.clock.advance_ms(DAY);
    let options = sweeper::Options { visits_max: 4, ..sweeper::Options::default() };
    let visited = async || process.sweep_as(options).await.expect("swept");
    let reports = [visited().await, visited().await, visited().await];
    assert_eq!(
        reports.each_ref().map(|r| (r.streams_visited, r.more_is_due)),
        [(4, true), (4, true), (2, false)]
    );
    assert!(reports[0].lag_seconds > 20 * 3_600, "{}", reports[0]);
}

#[tokio::test]
async fn clocks_that_disagree_stop_the_pass() {
    let world = World::new();
    let process = world.process_with_basin().await;
    // The store in memory goes by the machine's clock.
    let astray = World { clock: Clock::manual(1_000), ..World::new() };
    let sweeper = World { store: world.store.clone(), ..astray }.process();
    assert!(matches!(sweeper.sweep().await, Err(sweeper::Error::ClocksDisagree { .. })));
    drop(process);
}

#[tokio::test]
async fn a_damaged_stream_fails_its_own_visit_and_no_other() {
    let world = long();
    let process = world.process_with_basin().await;
    for stream in ["a", "b"] {
        create(&process, stream, kept_for(10 * DAY / 1_000)).await;
        fill(&process, stream, 90, 400).await;
    }
    let lost = oldest_chunk(&world).await;
    world.store.delete(&lost).await.expect("removed");
    world.clock.advance_ms(2 * DAY);
    let report = process.sweep().await.expect("swept");
    assert_eq!((report.failures, report.streams_visited), (1, 1), "{report}");
    // Its marker stays, and it is tried again.
    let report = process.sweep().await.expect("swept");
    assert_eq!(report.failures, 1, "{report}");
}

/// T13: what a reader has seen after the retention was made longer does not go any more.
#[tokio::test]
async fn a_retention_made_longer_beside_a_visit_keeps_what_is_there() {
    // Within one data class, and to another.
    for longer in [RetentionPolicy::Age(2 * DAY / 1_000), RetentionPolicy::Infinite] {
        for held in 1..4 {
            let world = small();
            let (writer, sweeper) = (world.process_with_basin().await, world.process());
            create(&writer, "s", kept_for(DAY / 1_000)).await;
            fill(&writer, "s", 40, 400).await;
            world.clock.advance_ms(DAY / 2);
            fill(&writer, "s", 40, 400).await;
            world.clock.advance_ms(13 * HOUR);
            sweeper.faults.inject_after((held - 1, usize::MAX), Operation::Replace, "manifest/", Fault::Held);
            let (report, kept) = tokio::join!(sweeper.sweep(), async {
                let beginning = sweeper.faults.seen(held, Operation::Replace, "manifest/");
                let _ended_before = tokio::time::timeout(Duration::from_millis(50), beginning).await;
                let patch = StreamConfigPatch {
                    retention_policy: Patch::Set(longer),
                    ..StreamConfigPatch::default()
                };
                writer.service.reconfigure_stream(&basin(), &name("s"), patch).await.expect("changed");
                let kept = all(&world.process(), "s").await;
                sweeper.faults.release();
                kept
            });
            report.expect("swept");
            assert!(kept.len() >= 40);
            for _ in 0..3 {
                assert_eq!(all(&world.process(), "s").await, kept, "{longer:?}, held at {held}");
                swept(&world.process()).await;
                world.clock.advance_ms(2 * HOUR);
            }
            if longer == RetentionPolicy::Infinite {
                let mut data = named(&world).await;
                data.retain(|key| key.starts_with("data/") && !key.starts_with("data/inf/"));
                assert!(data.is_empty(), "{data:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_upload_that_is_on_its_way_is_left_alone_and_used() {
    let world = small();
    let (writer, other) = (world.process_with_basin().await, world.process());
    create(&writer, "s", kept_for(10 * DAY / 1_000)).await;
    let sooner = StreamConfigPatch {
        retention_policy: Patch::Set(RetentionPolicy::Age(9 * DAY / 1_000)),
        ..StreamConfigPatch::default()
    };
    other.service.reconfigure_stream(&basin(), &name("s"), sooner).await.expect("changed");
    writer.tail("s").await.expect("there");
    writer.faults.hold(Operation::Replace, "manifest/");
    let (outcome, report) =
        tokio::join!(writer.append_input("s", batch(vec![record(&[b'z'; 5_000])])), async {
            writer.faults.seen(1, Operation::Replace, "manifest/").await;
            world.clock.advance_ms(HOUR / 2);
            let report = swept(&other).await;
            writer.faults.release();
            report
        });
    outcome.expect("appended");
    assert_eq!((report.streams_visited, report.orphans_removed), (1, 0), "{report}");
    assert_eq!(writer.faults.count(Operation::Put, "data/"), 1, "uploaded once");
    assert_eq!(all(&world.process(), "s").await.len(), 1);
}

#[tokio::test]
async fn merged_records_keep_each_its_own_age() {
    let world = long();
    let process = world.process_with_basin().await;
    create(&process, "s", kept_for(10 * DAY / 1_000)).await;
    let mut arrivals = Vec::new();
    for n in 0..240 {
        arrivals.push(world.clock.local_ms());
        fill(&process, "s", 1, 400).await;
        world.clock.advance_ms(if n < 200 { 20 * MINUTE } else { MINUTE });
    }
    let report = swept(&process).await;
    assert!(report.chunks_merged > 60, "{report}");
    // No record is exactly as old as that at any of the steps.
    world.clock.advance_ms(10 * DAY - 240 * 20 * MINUTE + 7 * MINUTE);
    for _ in 0..120 {
        world.clock.advance_ms(20 * MINUTE);
        let oldest = world.clock.local_ms() - 10 * DAY;
        let alive = arrivals.iter().filter(|arrival| **arrival >= oldest).count();
        let seen = all(&world.process(), "s").await.len();
        assert_eq!(seen, alive);
    }
}

/// T7: a writer that is frozen while others fence it off, trim and sweep gets nothing in.
#[tokio::test]
async fn a_writer_that_was_fenced_off_while_it_was_frozen_is_refused() {
    let world = small();
    let (frozen, other) = (world.process_with_basin().await, world.process());
    create(&frozen, "s", kept_for(10 * DAY / 1_000)).await;
    fill(&frozen, "s", 5, 400).await;
    let commits = frozen.faults.count(Operation::Replace, "manifest/");
    frozen.faults.hold(Operation::Replace, "manifest/");
    let token = |text: &str| FencingToken::new(text.to_owned()).expect("short");
    let stale = AppendInput::new(vec![record(&[b'z'; 5_000])], None, Some(token(""))).expect("legal");
    let (outcome, ()) = tokio::join!(frozen.append_input("s", stale), async {
        frozen.faults.seen(commits + 1, Operation::Replace, "manifest/").await;
        command(&other, "s", "fence", b"other".to_vec()).await;
        for n in 0..100 {
            let input = AppendInput::new(vec![record(&[n; 400])], None, Some(token("other"))).expect("legal");
            other.append_input("s", input).await.expect("appended");
        }
        trim(&other, "s", 50).await;
        for _ in 0..4 {
            world.clock.advance_ms(DAY);
            swept(&other).await;
        }
        frozen.faults.release();
    });
    let refused = outcome.expect_err("its token is stale");
    assert!(matches!(&refused, Error::FencingTokenMismatch { .. }), "{refused}");
    let kept = all(&world.process(), "s").await;
    assert_eq!((kept.first().map(|r| r.seq_num), kept.last().map(|r| r.seq_num)), (Some(50), Some(106)));
    assert!(kept.iter().all(|r| r.body.len() <= 400), "nothing of the frozen writer");
}

/// A change that lands hours after its marker was written, which the sweeper took for one that nobody names.
#[tokio::test]
async fn a_change_that_lands_hours_after_its_marker_is_swept_all_the_same() {
    for deletes in [true, false] {
        let world = small();
        let (slow, other) = (world.process_with_basin().await, world.process());
        create(&slow, "s", kept_for(10 * DAY / 1_000)).await;
        fill(&slow, "s", 40, 400).await;
        let (basin, name) = (basin(), name("s"));
        let change: BoxFuture<'_, Result<(), Error>> = if deletes {
            Box::pin(slow.service.delete_stream(&basin, &name))
        } else {
            let patch = StreamConfigPatch {
                retention_policy: Patch::Set(RetentionPolicy::Age(DAY / 1_000)),
                ..StreamConfigPatch::default()
            };
            let changed = slow.service.reconfigure_stream(&basin, &name, patch);
            Box::pin(async move { changed.await.map(drop) })
        };
        let commits = slow.faults.count(Operation::Replace, "manifest/");
        slow.faults.hold(Operation::Replace, "manifest/");
        let (changed, ()) = tokio::join!(change, async {
            slow.faults.seen(commits + 1, Operation::Replace, "manifest/").await;
            world.clock.advance_ms(2 * HOUR);
            swept(&other).await;
            slow.faults.release();
        });
        changed.expect("it lands");
        for _ in 0..3 {
            world.clock.advance_ms(26 * HOUR);
            swept(&other).await;
        }
        assert_eq!(count(&world, "data/").await + count(&world, "index/").await, 0, "deletes: {deletes}");
        assert_tidy(&world).await;
    }
}
