//! The end of a bucket: only while it is empty, whoever creates streams in it meanwhile and wherever a deletion dies.

use std::time::Duration;

use bytes::Bytes;
use leat::service::durable::{Buckets, Creation, DurableRef, Error, ForkOf, ReadFrom};
use leat::storage::documents::load_bucket;
use leat::storage::head::State;
use leat::store::Operation;
use leat::types::ledger::{ContentType, Lifetime};
use leat::types::name::BucketName;

use crate::faulty::Fault;
use crate::world::{Process, World, impatient, name};

fn bucket() -> BucketName {
    BucketName::try_from("bucket").expect("legal")
}

fn at(stream: &str) -> DurableRef {
    DurableRef { bucket: bucket(), name: name(stream), buckets: Buckets::MustExist }
}

async fn create(process: &Process) -> Result<(), Error> {
    let content_type = Some(ContentType::new("text/plain").expect("legal"));
    let creation = Creation { content_type, body: Bytes::from_static(b"x"), ..Creation::default() };
    process.service.create_durable(&at("s"), &creation).await.map(|_| ())
}

/// Whether the stream is there, whole.
async fn is_there(world: &World) -> bool {
    match world.process().service.durable_reader(&at("s"), ReadFrom::Start).await {
        Ok(mut reader) => {
            assert_eq!(reader.messages(1_000).await.expect("readable").len(), 1);
            true
        }
        Err(Error::StreamNotFound(_) | Error::BucketNotFound(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

async fn state(world: &World) -> State {
    load_bucket(&*world.store, &bucket()).await.expect("readable").expect("there").doc.head.state
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Creation,
    RacingCreation,
    Deletion,
}

#[tokio::test]
async fn a_deletion_that_dies_at_any_request_stands_in_nobodys_way() {
    let mut cut_off = 0;
    for fault in [Fault::Hang, Fault::DropAfterApply, Fault::Unavailable] {
        for then in [Then::Creation, Then::RacingCreation, Then::Deletion] {
            // GET, LIST, GET, PUT, LIST, GET, PUT.
            for skip in 0..8 {
                let world = World { options: impatient(), ..World::timed() };
                let (dying, other) = (world.process(), world.process());
                other.service.create_bucket(&bucket()).await.expect("created");
                dying.faults.die_after(skip, fault);
                let bucket = bucket();
                let deletion = dying.service.delete_bucket(&bucket);
                let deletion = tokio::time::timeout(Duration::from_millis(20), deletion);
                let (deleted, created) = match then {
                    Then::RacingCreation => {
                        let (deleted, created) = tokio::join!(deletion, create(&other));
                        (deleted, Some(created))
                    }
                    _ => (deletion.await, None),
                };
                cut_off += usize::from(deleted.is_err());
                let case = format!("{fault:?} after {skip}, {then:?}: {deleted:?}, {created:?}");
                other.sweep().await.expect("swept");
                if then == Then::Deletion {
                    let again = other.service.delete_bucket(&bucket).await;
                    assert!(matches!(again, Ok(()) | Err(Error::BucketNotFound(_))), "{case}: {again:?}");
                    assert_eq!(state(&world).await, State::Tombstone, "{case}");
                    other.service.create_bucket(&bucket).await.expect(&case);
                    continue;
                }
                let created = match created {
                    Some(created) => created,
                    None => create(&other).await,
                };
                let ended = matches!(created, Err(Error::BucketNotFound(_)));
                assert!(ended || created.is_ok(), "{case}: {created:?}");
                assert_eq!(is_there(&world).await, !ended, "{case}");
                assert_eq!(state(&world).await == State::Tombstone, ended, "{case}");
                if then == Then::Creation && ended {
                    // Its last PUT had landed.
                    assert!(skip > 6 || skip == 6 && fault == Fault::DropAfterApply, "{case}");
                }
                if let Ok(Ok(())) = deleted {
                    assert!(ended, "{case}");
                }
            }
        }
    }
    assert!(cut_off >= 3 * 7, "only {cut_off} were cut off");
}

#[tokio::test]
async fn a_deletion_ends_no_bucket_that_a_creation_brought_back_meanwhile() {
    let world = World::timed();
    let (deleting, creating) = (world.process(), world.process());
    creating.service.create_bucket(&bucket()).await.expect("created");
    // It has found nothing, and its tombstone is on its way.
    deleting.faults.inject_after((1, 1), Operation::Replace, "buckets/", Fault::Held);
    let creation = async {
        deleting.faults.seen(2, Operation::Replace, "buckets/").await;
        assert_eq!(state(&world).await, State::Deleting);
        create(&creating).await.expect("it does not wait for the deletion");
        assert_eq!(state(&world).await, State::Live);
        deleting.faults.release();
    };
    let name = bucket();
    let (deleted, ()) = tokio::join!(deleting.service.delete_bucket(&name), creation);
    assert!(matches!(deleted, Err(Error::BucketNotEmpty(_))), "{deleted:?}");
    assert!(is_there(&world).await);
    assert_eq!(state(&world).await, State::Live);
}

#[tokio::test]
async fn a_bucket_that_was_brought_back_for_a_stream_that_never_came_is_deleted_after_all() {
    let world = World::timed();
    let (deleting, creating) = (world.process(), world.process());
    creating.service.create_bucket(&bucket()).await.expect("created");
    deleting.faults.inject_after((1, 1), Operation::Replace, "buckets/", Fault::Held);
    creating.faults.inject(Operation::Create, "manifest/", usize::MAX, Fault::Conflict);
    let creation = async {
        deleting.faults.seen(2, Operation::Replace, "buckets/").await;
        // It brings the bucket back and loses every race for the stream itself.
        let lost = tokio::time::timeout(Duration::from_millis(50), create(&creating)).await;
        assert!(lost.is_err(), "{lost:?}");
        deleting.faults.release();
    };
    let name = bucket();
    let (deleted, ()) = tokio::join!(deleting.service.delete_bucket(&name), creation);
    match deleted {
        Ok(()) => {}
        // The entry of its last attempt is left; the sweeper takes it away.
        Err(Error::BucketNotEmpty(_)) => {
            world.clock.advance_ms(26 * 60 * 60 * 1_000);
            deleting.sweep().await.expect("swept");
            deleting.service.delete_bucket(&name).await.expect("empty by now");
        }
        Err(error) => panic!("{error}"),
    }
    assert_eq!(state(&world).await, State::Tombstone);
    assert!(!is_there(&world).await);
}

#[tokio::test]
async fn what_has_ended_does_not_keep_its_bucket() {
    let world = World::timed();
    let process = world.process();
    let service = &process.service;
    service.create_bucket(&bucket()).await.expect("created");
    let create = async |stream: &str, creation: Creation| {
        service.create_durable(&at(stream), &creation).await.expect("created");
    };
    create("expires", Creation { lifetime: Some(Lifetime::Idle(1)), ..Creation::default() }).await;
    create("stays", Creation::default()).await;
    // A deletion that dies before it takes the name out of the listing.
    create("half-deleted", Creation::default()).await;
    process.faults.inject(Operation::Delete, "catalog/", 1, Fault::Unavailable);
    service.delete_durable(&at("half-deleted")).await.expect_err("cut off");
    // A source that was kept in mind for a fork that nobody uses any more.
    create("source", Creation::default()).await;
    let fork = ForkOf { source: at("source"), at: None, beyond: 0 };
    create("fork", Creation { fork: Some(fork), lifetime: Some(Lifetime::Idle(1)), ..Creation::default() })
        .await;
    service.delete_durable(&at("source")).await.expect("deleted");
    world.clock.advance_ms(2_000);

    let refused = service.delete_bucket(&bucket()).await;
    assert!(matches!(refused, Err(Error::BucketNotEmpty(_))), "{refused:?}");
    assert_eq!(service.durable_status(&at("stays")).await.expect("untouched").tail, 0);
    service.delete_durable(&at("stays")).await.expect("deleted");
    service.delete_bucket(&bucket()).await.expect("nothing is in it");
    assert_eq!(process.service_list("catalog/").await.len(), 0);
}

#[tokio::test]
async fn a_creation_that_died_does_not_keep_its_bucket_and_cannot_come_back() {
    let world = World::timed();
    let (frozen, process) = (world.process(), world.process());
    process.service.create_bucket(&bucket()).await.expect("created");
    frozen.faults.hold(Operation::Create, "manifest/");
    let deleted = async {
        frozen.faults.seen(1, Operation::Create, "manifest/").await;
        // It may be on its way.
        let refused = process.service.delete_bucket(&bucket()).await;
        assert!(matches!(refused, Err(Error::BucketNotEmpty(_))), "{refused:?}");
        world.clock.advance_ms(10_000);
        process.service.delete_bucket(&bucket()).await.expect("nothing is in it");
        frozen.faults.release();
    };
    let (created, ()) = tokio::join!(create(&frozen), deleted);
    assert!(matches!(created, Err(Error::BucketNotFound(_))), "{created:?}");
    assert!(!is_there(&world).await);
    assert_eq!(process.service_list("catalog/").await.len(), 0);
}
