//! The end of a Durable stream: what was judged to be over and is not any more does not end.

use std::time::Duration;

use bytes::Bytes;
use leat::service::durable::{Buckets, Creation, DurableRef, Error, ForkOf, Post, Posted, ReadFrom};
use leat::store::Operation;
use leat::types::ledger::{ContentType, Lifetime};
use leat::types::name::BucketName;
use leat::types::stream::Provision;

use crate::faulty::Fault;
use crate::world::{Process, World, name};

const SECOND: u64 = 1_000;

fn at(stream: &str) -> DurableRef {
    let bucket = BucketName::try_from("bucket").expect("legal");
    DurableRef { bucket, name: name(stream), buckets: Buckets::AreMade }
}

fn text() -> Option<ContentType> {
    Some(ContentType::new("text/plain").expect("legal"))
}

fn lasting(secs: u64, bytes: usize) -> Creation {
    let lifetime = Some(Lifetime::Idle(secs));
    Creation { content_type: text(), lifetime, body: vec![b'x'; bytes].into(), ..Creation::default() }
}

async fn append(process: &Process) -> Result<Posted, Error> {
    let body = Bytes::from_static(b"y");
    process.service.post(&at("s"), Post { content_type: text(), body, ..Post::default() }).await
}

/// The length of everything in a stream.
async fn length(process: &Process, stream: &str) -> Result<usize, Error> {
    let mut reader = process.service.durable_reader(&at(stream), ReadFrom::Start).await?;
    let read = reader.messages(4 * 1024 * 1024).await?;
    Ok(read.iter().map(|message| message.body.len()).sum())
}

/// Others come between: `late` has a PUT of a manifest on its way that lands once `other` has judged the stream and is
/// about to end it.
async fn lands_in_between<T, U>(
    (late, other): (&Process, &Process),
    landing: impl Future<Output = T>,
    ending: impl Future<Output = U>,
) -> (T, U) {
    let sent = late.faults.count(Operation::Replace, "manifest/");
    late.faults.hold(Operation::Replace, "manifest/");
    other.faults.hold(Operation::Put, "due/");
    let ending = async {
        late.faults.seen(sent + 1, Operation::Replace, "manifest/").await;
        ending.await
    };
    let between = async {
        other.faults.seen(1, Operation::Put, "due/").await;
        late.faults.release();
        tokio::time::sleep(Duration::from_millis(20)).await;
        other.faults.release();
    };
    let (landed, ended, ()) = tokio::join!(landing, ending, between);
    (landed, ended)
}

#[tokio::test]
async fn an_append_that_lands_as_its_stream_is_found_expired_keeps_it_alive() {
    let world = World::timed();
    let (writer, other) = (world.process(), world.process());
    writer.service.create_durable(&at("s"), &lasting(100, 1)).await.expect("created");
    world.clock.advance_ms(99 * SECOND);
    let creation = async {
        world.clock.advance_ms(SECOND);
        other.service.create_durable(&at("s"), &lasting(100, 1)).await
    };
    let (appended, found) = Box::pin(lands_in_between((&writer, &other), append(&writer), creation)).await;
    assert_eq!(appended.expect("appended").tag.tail, 2);
    assert_eq!(found.expect("it is there").1, Provision::Noop);
    assert_eq!(length(&other, "s").await.expect("readable"), 2);
}

#[tokio::test]
async fn a_deletion_that_found_its_stream_expired_deletes_it_if_it_was_not() {
    let world = World::timed();
    let (writer, other) = (world.process(), world.process());
    writer.service.create_durable(&at("s"), &lasting(100, 1)).await.expect("created");
    world.clock.advance_ms(99 * SECOND);
    let target = at("s");
    let deletion = async {
        world.clock.advance_ms(SECOND);
        other.service.delete_durable(&target).await
    };
    let (appended, deleted) = Box::pin(lands_in_between((&writer, &other), append(&writer), deletion)).await;
    appended.expect("appended");
    deleted.expect("there was something to delete");
    assert!(matches!(length(&writer, "s").await, Err(Error::StreamNotFound(_))));
}

#[tokio::test]
async fn a_creation_that_is_completed_as_it_is_found_abandoned_is_there() {
    let world = World::timed();
    let (maker, other) = (world.process(), world.process());
    let (first, second) = (lasting(1_000, 100_000), lasting(1_000, 100_000));
    let (target, same) = (at("s"), at("s"));
    let creation = async {
        world.clock.advance_ms(30 * SECOND);
        other.service.create_durable(&same, &second).await
    };
    let making = maker.service.create_durable(&target, &first);
    let (made, found) = Box::pin(lands_in_between((&maker, &other), making, creation)).await;
    assert_eq!(made.expect("created").1, Provision::Created);
    assert_eq!(found.expect("it is there").1, Provision::Noop);
    assert_eq!(length(&other, "s").await.expect("readable"), 100_000);
}

#[tokio::test]
async fn a_fork_that_is_marked_and_not_there_cannot_come_any_more_once_its_source_is_deleted() {
    let world = World::timed();
    let (deleting, forking) = (world.process(), world.process());
    deleting.service.create_durable(&at("s"), &lasting(1_000, 1)).await.expect("created");
    // Once over nothing, once over what an earlier fork has left.
    for _ in 0..2 {
        let target = at("fork");
        let creation = || Creation {
            fork: Some(ForkOf { source: at("s"), at: None, beyond: 0 }),
            ..Creation::default()
        };
        let (sent, made) = (forking.faults.log().len(), creation());
        forking.faults.hold(Operation::Create, "manifest/");
        forking.faults.inject_after((1, usize::MAX), Operation::Replace, "manifest/", Fault::Held);
        let deletion = async {
            loop {
                let log = forking.faults.log().split_off(sent);
                let mut manifests = log.iter().filter(|(_, key)| key.starts_with("manifest/"));
                // The first replaces the source, with the mark.
                if manifests.clone().filter(|(op, _)| *op == Operation::Replace).count() > 1
                    || manifests.any(|(op, _)| *op == Operation::Create)
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let deleted = deleting.service.delete_durable(&at("s")).await;
            forking.faults.release();
            deleted
        };
        let (forked, deleted) = tokio::join!(forking.service.create_durable(&target, &made), deletion);
        deleted.expect("deleted");
        assert!(forked.is_err(), "{forked:?}");
        for stream in ["s", "fork"] {
            let there = length(&deleting, stream).await;
            assert!(matches!(there, Err(Error::StreamNotFound(_))), "{stream}: {there:?}");
        }
        // The names are free, and the bucket is empty once the sweeper was there.
        deleting.service.create_durable(&at("s"), &lasting(1_000, 1)).await.expect("created again");
    }
    deleting.service.delete_durable(&at("s")).await.expect("deleted");
    world.clock.advance_ms(26 * 60 * 60 * SECOND);
    deleting.sweep().await.expect("swept");
    deleting.service.delete_bucket(&at("s").bucket).await.expect("empty");
}

#[tokio::test]
async fn a_stream_that_is_forked_as_it_is_deleted_is_kept_in_mind() {
    let world = World::timed();
    let (deleting, forking) = (world.process(), world.process());
    forking.service.create_durable(&at("s"), &lasting(1_000, 1)).await.expect("created");
    deleting.faults.hold(Operation::Put, "due/");
    let fork = async {
        deleting.faults.seen(1, Operation::Put, "due/").await;
        let fork = Some(ForkOf { source: at("s"), at: None, beyond: 0 });
        let made =
            forking.service.create_durable(&at("fork"), &Creation { fork, ..Creation::default() }).await;
        deleting.faults.release();
        made.expect("forked");
    };
    let target = at("s");
    let (deleted, ()) = tokio::join!(deleting.service.delete_durable(&target), fork);
    deleted.expect("deleted");
    assert!(matches!(length(&forking, "s").await, Err(Error::Retired(_))));
    assert_eq!(length(&forking, "fork").await.expect("there"), 1);
    forking.service.delete_durable(&at("fork")).await.expect("deleted");
    assert!(matches!(length(&forking, "s").await, Err(Error::StreamNotFound(_))));
}

#[tokio::test]
async fn a_stream_that_is_made_again_as_it_is_opened_is_not_gone_on_with() {
    let world = World::timed();
    let (reading, other) = (world.process(), world.process());
    other.service.create_durable(&at("s"), &lasting(60, 1)).await.expect("created");
    world.clock.advance_ms(SECOND);
    // The use is to be recorded, and what is found then is another life.
    reading.faults.inject_after((1, usize::MAX), Operation::Get, "manifest/", Fault::Held);
    let remade = async {
        reading.faults.seen(2, Operation::Get, "manifest/").await;
        other.service.delete_durable(&at("s")).await.expect("deleted");
        other.service.create_durable(&at("s"), &lasting(60, 1)).await.expect("created");
        append(&other).await.expect("appended");
        reading.faults.release();
    };
    let target = at("s");
    let (opened, ()) = tokio::join!(reading.service.durable_reader(&target, ReadFrom::At(1)), remade);
    let mut reader = opened.expect("it was there");
    assert_eq!(reader.messages(1_000).await.expect("nothing new").len(), 0);
    let waited = reader.wait(Duration::from_secs(5)).await;
    assert!(matches!(waited, Err(Error::StreamNotFound(_))), "{waited:?}");
}

fn fork(lifetime: Option<Lifetime>) -> Creation {
    Creation { fork: Some(ForkOf { source: at("s"), at: None, beyond: 0 }), lifetime, ..Creation::default() }
}

#[tokio::test]
async fn a_source_is_not_kept_in_mind_for_forks_that_have_expired() {
    let world = World::timed();
    let process = world.process();
    let create = async |stream: &str, creation| process.service.create_durable(&at(stream), &creation).await;
    let endless = || Creation { lifetime: None, ..lasting(1, 1) };
    create("s", endless()).await.expect("created");
    create("f", fork(Some(Lifetime::Idle(1)))).await.expect("forked");
    world.clock.advance_ms(2 * SECOND);
    process.service.delete_durable(&at("s")).await.expect("deleted");
    assert!(matches!(length(&process, "s").await, Err(Error::StreamNotFound(_))));
    assert_eq!(create("s", endless()).await.expect("its name is free").1, Provision::Created);
    assert_eq!(process.service_list("catalog/").await.len(), 1);
}

#[tokio::test]
async fn the_name_of_a_source_is_free_once_its_last_fork_is_gone_whoever_died_over_that() {
    let world = World::timed();
    let (process, dying) = (world.process(), world.process());
    let endless = || Creation { lifetime: None, ..lasting(1, 1) };
    process.service.create_durable(&at("s"), &endless()).await.expect("created");
    process.service.create_durable(&at("f"), &fork(None)).await.expect("forked");
    process.service.delete_durable(&at("s")).await.expect("deleted");
    let taken = process.service.create_durable(&at("s"), &endless()).await;
    assert!(matches!(taken, Err(Error::Taken { .. })), "{taken:?}");
    // The fork's tombstone is there, and its source has not heard of it.
    dying.faults.inject_after((1, usize::MAX), Operation::Replace, "manifest/", Fault::Held);
    let target = at("f");
    tokio::select! {
        ended = dying.service.delete_durable(&target) => panic!("{ended:?}"),
        () = dying.faults.seen(2, Operation::Replace, "manifest/") => {}
    }
    let made = process.service.create_durable(&at("s"), &endless()).await.expect("its name is free");
    assert_eq!(made.1, Provision::Created);
}
