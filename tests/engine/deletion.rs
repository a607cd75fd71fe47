//! Lives end: streams and basins go at once, their names come back, nothing crosses over.

use std::sync::Arc;
use std::time::Duration;

use leat::service::Error;
use leat::service::records::ReadEvent;
use leat::storage::documents::{Found, load_basin, load_manifest};
use leat::storage::identity::Identity;
use leat::storage::key::StreamKind;
use leat::store::Operation;
use leat::types::config::{BasinConfig, StreamConfigLayer};
use leat::types::record::{BeyondTail, ReadLimits, ReadRequest, ReadStart};

use crate::faulty::Fault;
use crate::world::{World, basin, batch, impatient, name, record, target};

fn auto() -> BasinConfig {
    BasinConfig { create_stream_on_append: true, create_stream_on_read: true, ..BasinConfig::default() }
}

#[tokio::test]
async fn a_recreated_stream_never_sees_its_former_life() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    a.service.ensure_basin(&basin(), BasinConfig::default()).await.expect("changed");
    let config = StreamConfigLayer::default();
    a.service.create_stream(&basin(), &name("s"), config, None).await.expect("created");
    for n in 0..10 {
        let process = if n % 2 == 0 { &a } else { &b };
        process.append_input("s", batch(vec![record(&[b'x'; 9_000])])).await.expect("appended");
    }
    let follow = ReadRequest {
        start: ReadStart::TailOffset(0),
        beyond_tail: BeyondTail::Refuse,
        limits: ReadLimits::default(),
        wait_secs: None,
    };
    let mut follower = b.service.read_session(&target("s"), follow).await.expect("open");
    assert!(matches!(follower.next().await, Some(Ok(ReadEvent::Heartbeat(_)))));
    a.service.delete_stream(&basin(), &name("s")).await.expect("deleted");
    assert!(matches!(b.tail("s").await, Err(Error::StreamNotFound(_))));
    assert!(matches!(b.append("s", &["x"]).await, Err(Error::StreamNotFound(_))));
    let again = a.service.delete_stream(&basin(), &name("s")).await;
    assert!(matches!(again, Err(Error::StreamNotFound(_))), "{again:?}");
    a.service.create_stream(&basin(), &name("s"), config, None).await.expect("the name is free");
    assert_eq!(b.append("s", &["x"]).await.expect("appended").start.seq_num, 0);
    assert_eq!(a.bodies("s").await, ["x"]);
    assert_eq!(b.bodies("s").await, ["x"]);
    let event = follower.next().await;
    assert!(matches!(event, Some(Err(Error::StreamNotFound(_)))), "{event:?}");
    assert!(follower.next().await.is_none());
}

/// ABA: the manifest of the new life must not be one that an old conditional PUT could replace.
#[tokio::test]
async fn a_put_of_a_former_life_cannot_land_in_the_next() {
    let world = World { options: impatient(), ..World::new() };
    let (a, b) = (world.process_with_basin().await, world.process());
    b.service.create_stream(&basin(), &name("s"), StreamConfigLayer::default(), None).await.expect("created");
    a.tail("s").await.expect("there");
    a.faults.inject(Operation::Replace, "manifest/", 1, Fault::ApplyLate(Duration::from_millis(300)));
    a.faults.inject(Operation::Replace, "manifest/", 1_000, Fault::Unavailable);
    let (outcome, ()) = tokio::join!(a.append("s", &["old"]), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        b.service.delete_stream(&basin(), &name("s")).await.expect("deleted");
        b.service
            .create_stream(&basin(), &name("s"), StreamConfigLayer::default(), None)
            .await
            .expect("created");
    });
    // The engine may not rebase onto another life, and may not call it definite.
    assert!(matches!(outcome, Err(Error::Indefinite { .. })), "{outcome:?}");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(b.tail("s").await.expect("there"), 0);
}

#[tokio::test]
async fn a_basin_goes_with_everything_in_it_and_its_name_comes_back() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    for n in 0..40 {
        a.append(&format!("s{n}"), &["old"]).await.expect("created");
    }
    b.tail("s7").await.expect("there");
    a.service.delete_basin(&basin()).await.expect("accepted");
    a.service.finish().await;
    for process in [&a, &b] {
        assert!(matches!(process.tail("s7").await, Err(Error::BasinNotFound(_))));
        let config = process.service.basin_config(&basin()).await;
        assert!(matches!(config, Err(Error::BasinNotFound(_))), "{config:?}");
    }
    let again = b.service.delete_basin(&basin()).await;
    assert!(matches!(again, Err(Error::BasinNotFound(_))), "{again:?}");
    b.service.create_basin(&basin(), auto(), None).await.expect("the name is free");
    assert_eq!(a.append("s7", &["new"]).await.expect("appended").start.seq_num, 0);
    assert_eq!(b.bodies("s7").await, ["new"]);
}

#[tokio::test]
async fn a_basin_being_deleted_refuses_changes_and_a_repeat_finishes_it() {
    let world = World { options: impatient(), ..World::new() };
    let (a, b) = (world.process_with_basin().await, world.process());
    for n in 0..5 {
        a.append(&format!("s{n}"), &["old"]).await.expect("created");
    }
    // The process that accepted the deletion dies before it has ended a stream.
    a.faults.inject(Operation::List, "catalog/", 1_000, Fault::Hang);
    a.service.delete_basin(&basin()).await.expect("accepted");
    let pending = |outcome: &Error| matches!(outcome, Error::BasinDeletionPending(_));
    let create = b.service.create_basin(&basin(), auto(), None).await.expect_err("pending");
    assert!(pending(&create), "{create:?}");
    let ensure = b.service.ensure_basin(&basin(), auto()).await.expect_err("pending");
    assert!(pending(&ensure), "{ensure:?}");
    let patch = leat::types::config::BasinConfigPatch::default();
    let patch = b.service.reconfigure_basin(&basin(), patch).await.expect_err("pending");
    assert!(pending(&patch), "{patch:?}");
    let config = b.service.basin_config(&basin()).await.expect_err("404");
    assert!(matches!(config, Error::BasinNotFound(_)), "{config:?}");
    let page = b.service.list_streams(&basin(), crate::listing::request("", "", 10)).await.expect("listed");
    assert_eq!(page.items.len(), 5);
    b.service.delete_basin(&basin()).await.expect("works on");
    b.service.finish().await;
    b.service.create_basin(&basin(), auto(), None).await.expect("the name is free");
}

/// The holes of a basin deletion: a creation that is on its way must not leave a live stream in a gone basin.
#[tokio::test]
async fn a_creation_on_its_way_never_lands_in_a_gone_basin() {
    for was_there_before in [false, true] {
        for pause_at in ["catalog/", "manifest/"] {
            let world = World::new();
            let (a, b) = (world.process_with_basin().await, world.process());
            if was_there_before {
                b.append("s", &["former"]).await.expect("created");
                b.service.delete_stream(&basin(), &name("s")).await.expect("deleted");
            }
            let pause = Fault::Delay(Duration::from_millis(250));
            for operation in [Operation::Put, Operation::Create, Operation::Replace] {
                a.faults.inject(operation, pause_at, 1, pause);
            }
            let former = load_basin(&*world.store, &basin()).await.expect("read").expect("there").doc;
            let create = async {
                a.service.create_stream(&basin(), &name("s"), StreamConfigLayer::default(), None).await
            };
            let (created, ()) = tokio::join!(create, async {
                tokio::time::sleep(Duration::from_millis(80)).await;
                b.service.delete_basin(&basin()).await.expect("accepted");
                b.service.finish().await;
            });
            let case = format!("paused at {pause_at}, before: {was_there_before}: {created:?}");
            assert!(created.is_err(), "{case}");
            let identity = Identity { kind: StreamKind::S2, basin: former.head.incarnation, name: name("s") };
            let left = load_manifest(&*world.store, &identity, None).await.expect("readable");
            let is_live = matches!(&left, Found::Changed(m) if m.doc.head.is_live());
            assert!(!is_live, "{case}");
        }
    }
}

#[tokio::test]
async fn appends_beside_a_deletion_are_kept_or_refused_never_stuck() {
    let world = World::new();
    let (a, b) = (Arc::new(world.process_with_basin().await), world.process());
    a.service.ensure_basin(&basin(), BasinConfig::default()).await.expect("changed");
    a.service.create_stream(&basin(), &name("s"), StreamConfigLayer::default(), None).await.expect("created");
    a.faults.inject(Operation::Replace, "manifest/", 30, Fault::Delay(Duration::from_millis(5)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let a = a.clone();
        tasks.spawn(async move { a.append("s", &["x"]).await });
    }
    b.service.delete_stream(&basin(), &name("s")).await.expect("deleted");
    for outcome in tasks.join_all().await {
        assert!(matches!(outcome, Ok(_) | Err(Error::StreamNotFound(_))), "{outcome:?}");
    }
    assert!(matches!(a.tail("s").await, Err(Error::StreamNotFound(_))));
}

/// A process that knows a former life of a basin must not answer from it.
#[tokio::test]
async fn a_stream_of_a_recreated_basin_is_found_by_a_process_that_knew_the_former() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    a.append("s", &["old"]).await.expect("created");
    assert_eq!(b.tail("s").await.expect("there"), 1);
    a.service.delete_basin(&basin()).await.expect("accepted");
    a.service.finish().await;
    a.service.create_basin(&basin(), BasinConfig::default(), None).await.expect("the name is free");
    let config = StreamConfigLayer::default();
    a.service.create_stream(&basin(), &name("s"), config, None).await.expect("created");
    a.append("s", &["new", "new"]).await.expect("appended");
    assert_eq!(b.tail("s").await.expect("there"), 2);
    assert_eq!(b.append("s", &["x"]).await.expect("appended").start.seq_num, 2);
    assert_eq!(b.bodies("s").await, ["new", "new", "x"]);
}

/// A deletion that was held up must not end the life after the one it was asked to end.
#[tokio::test]
async fn a_deletion_ends_only_the_life_it_found() {
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    let config = StreamConfigLayer::default();
    a.service.create_stream(&basin(), &name("s"), config, None).await.expect("created");
    let markers = a.faults.count(Operation::Put, "due/");
    a.faults.hold(Operation::Put, "due/");
    let delete = async { a.service.delete_stream(&basin(), &name("s")).await };
    let (late, ()) = tokio::join!(delete, async {
        a.faults.seen(markers + 1, Operation::Put, "due/").await;
        b.service.delete_stream(&basin(), &name("s")).await.expect("deleted");
        b.service.create_stream(&basin(), &name("s"), config, None).await.expect("created");
        b.append("s", &["new"]).await.expect("appended");
        a.faults.release();
    });
    assert!(matches!(late, Err(Error::StreamNotFound(_))), "{late:?}");
    assert_eq!(b.bodies("s").await, ["new"]);
}

/// The stream is gone once its tombstone is there: an error after that must not promise that nothing happened.
#[tokio::test]
async fn a_deletion_that_cannot_take_its_name_out_of_the_listing_is_indefinite_and_a_repeat_finishes_it() {
    let process = World::new().process_with_basin().await;
    process.service.ensure_basin(&basin(), BasinConfig::default()).await.expect("changed");
    let config = StreamConfigLayer::default();
    process.service.create_stream(&basin(), &name("s"), config, None).await.expect("created");
    process.faults.inject(Operation::Delete, "catalog/", 1, Fault::Unavailable);
    let outcome = process.service.delete_stream(&basin(), &name("s")).await;
    assert!(matches!(outcome, Err(Error::Indefinite { .. })), "{outcome:?}");
    assert!(matches!(process.tail("s").await, Err(Error::StreamNotFound(_))));
    let again = process.service.delete_stream(&basin(), &name("s")).await;
    assert!(matches!(again, Err(Error::StreamNotFound(_))), "{again:?}");
    let page = process.service.list_streams(&basin(), crate::listing::request("", "", 10)).await;
    assert!(page.expect("listed").items.is_empty());
}

#[tokio::test]
async fn a_creation_that_fails_for_certain_is_not_listed() {
    for fault in [Fault::DropAfterApply, Fault::Unavailable] {
        let process = World::new().process_with_basin().await;
        process.faults.inject(Operation::Put, "catalog/", 1, fault);
        let config = StreamConfigLayer::default();
        let outcome = process.service.create_stream(&basin(), &name("s"), config, None).await;
        assert!(matches!(outcome, Err(Error::Storage { .. })), "{outcome:?}");
        let page = process.service.list_streams(&basin(), crate::listing::request("", "", 10)).await;
        assert!(page.expect("listed").items.is_empty(), "{fault:?}");
    }
}

/// The life a reconfiguration meets may not be the one it set out to change: the marker must name the former.
#[tokio::test]
async fn a_reconfigured_stream_stands_under_a_marker_of_its_own_life() {
    use leat::storage::meta::DueMarker;
    use leat::types::config::{Patch, RetentionPolicy, StreamConfigPatch};
    let world = World::new();
    let (a, b) = (world.process_with_basin().await, world.process());
    let config = StreamConfigLayer::default();
    a.service.create_stream(&basin(), &name("s"), config, None).await.expect("created");
    let markers = a.faults.count(Operation::Put, "due/");
    a.faults.hold(Operation::Put, "due/");
    let infinite = Patch::Set(RetentionPolicy::Infinite);
    let patch = StreamConfigPatch { retention_policy: infinite, ..StreamConfigPatch::default() };
    let reconfigure = async { a.service.reconfigure_stream(&basin(), &name("s"), patch).await };
    let (changed, ()) = tokio::join!(reconfigure, async {
        a.faults.seen(markers + 1, Operation::Put, "due/").await;
        b.service.delete_stream(&basin(), &name("s")).await.expect("deleted");
        b.service.create_stream(&basin(), &name("s"), config, None).await.expect("created");
        a.faults.release();
    });
    assert_eq!(changed.expect("changed").retention_policy, RetentionPolicy::Infinite);
    let basin_life = load_basin(&*world.store, &basin()).await.expect("read").expect("there").doc.head;
    let identity = Identity { kind: StreamKind::S2, basin: basin_life.incarnation, name: name("s") };
    let found = load_manifest(&*world.store, &identity, None).await.expect("readable");
    let Found::Changed(manifest) = found else { panic!("{found:?}") };
    let marker = world.store.get(&manifest.doc.due).await.expect("read").expect("named, so there").bytes;
    let DueMarker::Stream { incarnation, .. } = DueMarker::decode(&marker).expect("whole") else {
        panic!("a marker of a basin")
    };
    assert_eq!(incarnation, manifest.doc.head.incarnation);
}

/// An entry that this version cannot remove must not keep a deletion listing for ever.
#[tokio::test]
async fn a_deletion_stops_at_an_entry_that_stays() {
    use leat::storage::key::{CatalogEntry, Incarnation, catalog_entry};
    let world = World::new();
    let process = world.process_with_basin().await;
    process.append("s", &["x"]).await.expect("created");
    let life = load_basin(&*world.store, &basin()).await.expect("read").expect("there").doc.head.incarnation;
    let entry = CatalogEntry { name: name("t"), created_at_ms: 1, incarnation: Incarnation::fresh() };
    let key = catalog_entry(life, &entry);
    let of_a_later_version = format!("{}-7", key.strip_suffix("-0").expect("no cipher"));
    world.store.put(&of_a_later_version, bytes::Bytes::new()).await.expect("written");
    process.service.delete_basin(&basin()).await.expect("accepted");
    tokio::time::timeout(Duration::from_secs(10), process.service.finish()).await.expect("it ends");
    assert!(process.faults.count(Operation::List, "catalog/") < 10);
    let config = process.service.basin_config(&basin()).await;
    assert!(matches!(config, Err(Error::BasinNotFound(_))), "{config:?}");
    let again = process.service.create_basin(&basin(), BasinConfig::default(), None).await;
    assert!(matches!(again, Err(Error::BasinDeletionPending(_))), "{again:?}");
}
