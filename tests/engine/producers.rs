//! Many producers on one stream: what does not fit into the ledger lies in a page, and nobody's appends get in twice.

use std::time::Duration;

use futures::StreamExt;
use leat::service::durable::{Error, Outcome, Post, Posted};
use leat::store::Operation;
use leat::types::ledger::{Producer, Refusal};

use crate::durable::{at, new, post};
use crate::faulty::Fault;
use crate::world::{Process, World};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

fn by(n: u64, seq: u64) -> Post {
    let producer = Some(Producer::new(&format!("producer-{n:027}"), 0, seq).expect("legal"));
    Post { producer, ..post(b".") }
}

async fn produce(process: &Process, n: u64, seq: u64) -> Result<Posted, Error> {
    process.service.post(&at("s"), by(n, seq)).await
}

/// As many producers as this make their first append, one after the other.
async fn begin(process: &Process, producers: std::ops::Range<u64>) {
    for n in producers {
        produce(process, n, 0).await.expect("appended");
    }
}

fn is_duplicate(posted: &Result<Posted, Error>) -> bool {
    matches!(posted, Ok(Posted { outcome: Outcome::Duplicate { .. }, .. }))
}

#[tokio::test]
async fn a_thousand_producers_are_remembered_by_everyone() {
    let world = World::new();
    let process = world.process();
    process.create("s", &new("")).await.expect("created");
    begin(&process, 0..1_000).await;
    let pages = process.faults.count(Operation::Put, "data/");
    assert!((6..=10).contains(&pages), "{pages} pages for a thousand producers");
    let other = world.process();
    for n in [0, 1, 500, 998, 999] {
        assert!(is_duplicate(&produce(&other, n, 0).await), "{n}");
        let posted = produce(&other, n, 1).await.expect("the next");
        assert_eq!(posted.outcome, Outcome::Appended, "{n}");
        assert!(is_duplicate(&produce(&process, n, 1).await), "{n}");
    }
    let unknown = produce(&other, 1_000, 1).await;
    let gap = Refusal::Gap { expected: 0, received: 1 };
    assert!(matches!(&unknown, Err(Error::Refused(refused)) if refused.why == gap), "{unknown:?}");
}

#[tokio::test]
async fn more_producers_than_a_ledger_holds_get_in_with_one_commit() {
    let process = World::new().process();
    process.create("s", &new("")).await.expect("created");
    // The first commit holds up the others, which are then committed together.
    process.faults.hold(Operation::Replace, "manifest/");
    let appends = futures::stream::iter(0..600).map(|n| produce(&process, n, 0)).buffer_unordered(600);
    let released = async {
        process.faults.seen(1, Operation::Replace, "manifest/").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        process.faults.release();
    };
    let (posted, ()) = tokio::join!(appends.collect::<Vec<_>>(), released);
    assert!(posted.iter().all(|posted| matches!(posted, Ok(p) if p.outcome == Outcome::Appended)));
    let commits = process.faults.count(Operation::Replace, "manifest/");
    assert!(commits <= 4, "{commits} commits");
    for n in 0..600 {
        assert!(is_duplicate(&produce(&process, n, 0).await), "{n}");
    }
}

#[tokio::test]
async fn a_page_that_cannot_be_written_leaves_nothing_of_the_append() {
    let world = World::new();
    let process = world.process();
    process.create("s", &new("")).await.expect("created");
    process.faults.inject(Operation::Put, "data/", usize::MAX, Fault::Unavailable);
    let mut n = 0;
    while produce(&process, n, 0).await.is_ok() {
        n += 1;
    }
    assert!((150..400).contains(&n), "{n}");
    assert_eq!(process.service.durable_status(&at("s")).await.expect("there").tail, n);
    // Those it knows go on, and the one that was refused gets in once it can.
    assert_eq!(produce(&process, 3, 1).await.expect("known").outcome, Outcome::Appended);
    process.faults.heal();
    assert_eq!(produce(&process, n, 0).await.expect("there is room").outcome, Outcome::Appended);
    assert!(is_duplicate(&produce(&world.process(), n, 0).await));
}

#[tokio::test]
async fn pages_are_swept_once_they_are_replaced_and_go_with_the_stream() {
    let world = World::timed();
    let (process, late) = (world.process(), world.process());
    process.create("s", &new("")).await.expect("created");
    begin(&process, 0..300).await;
    // It has seen a version whose page is about to go.
    assert!(is_duplicate(&produce(&late, 299, 0).await));
    begin(&process, 300..700).await;
    let pages = async || process.service_list("data/").await.len();
    assert!(pages().await > 2);
    world.clock.advance_ms(2 * DAY_MS);
    process.sweep().await.expect("swept");
    assert_eq!(pages().await, 1);
    assert!(is_duplicate(&produce(&late, 0, 0).await));
    assert!(is_duplicate(&produce(&late, 699, 0).await));
    // After a week of silence they are forgotten.
    world.clock.advance_ms(8 * DAY_MS);
    begin(&process, 700..1_000).await;
    assert_eq!(produce(&process, 0, 0).await.expect("as if new").outcome, Outcome::Appended);
    process.service.delete_durable(&at("s")).await.expect("deleted");
    for _ in 0..3 {
        world.clock.advance_ms(2 * DAY_MS);
        process.sweep().await.expect("swept");
    }
    assert_eq!(pages().await, 0);
}

#[tokio::test]
async fn a_page_that_is_replaced_as_it_is_looked_into_is_looked_for_anew() {
    let world = World::timed();
    let (process, cold) = (world.process(), world.process());
    process.create("s", &new("")).await.expect("created");
    begin(&process, 0..300).await;
    cold.faults.hold(Operation::GetRange, "data/");
    let replaced = async {
        cold.faults.seen(1, Operation::GetRange, "data/").await;
        begin(&process, 300..700).await;
        world.clock.advance_ms(2 * DAY_MS);
        process.sweep().await.expect("swept");
        cold.faults.release();
    };
    let (posted, ()) = tokio::join!(produce(&cold, 0, 0), replaced);
    assert!(is_duplicate(&posted), "{posted:?}");
}
