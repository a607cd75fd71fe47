//! Forks of long streams: their chunks are copied within the store, and nothing is shared with the source afterwards.

use std::time::Duration;

use leat::engine;
use leat::service::durable::{Creation, Error, ReadFrom, StreamSnapshot};
use leat::storage::manifest::Shape;
use leat::store::{Counts, Operation};
use leat::types::ledger::{ContentType, Then};
use leat::types::stream::Provision;

use crate::durable::{at, fork_of, is_gone, new, post, text};
use crate::faulty::Fault;
use crate::world::{Process, World, impatient};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// So large that the store copies it.
const LARGE: usize = 300_000;

/// A stream of as many large messages, each of one letter; its text.
async fn long(process: &Process, stream: &str, messages: u8) -> String {
    process.create(stream, &new("")).await.expect("created");
    let mut all = String::new();
    for letter in (b'a'..).take(messages.into()) {
        let body = vec![letter; LARGE];
        process.service.post(&at(stream), post(&body)).await.expect("appended");
        all.push_str(std::str::from_utf8(&body).expect("text"));
    }
    all
}

/// Lets time pass and sweeps, until whatever is over is gone; how many chunks were merged.
async fn sweep(world: &World, process: &Process) -> u64 {
    let mut merged = 0;
    for _ in 0..3 {
        world.clock.advance_ms(2 * DAY_MS);
        merged += process.sweep().await.expect("swept").chunks_merged;
    }
    merged
}

#[tokio::test]
async fn a_long_stream_is_copied_within_the_store() {
    let world = World::new();
    let process = world.process();
    let all = long(&process, "source", 8).await;
    process.service.post(&at("source"), post(b"tail")).await.expect("appended");
    let other = world.process();
    let before = other.meter.counts();
    other.create("fork", &Creation { then: Then::Close, ..fork_of("source", None) }).await.expect("forked");
    let asked = other.meter.counts() - before;
    // The mark of the source, the creation, the copies as one commit, the tail as another.
    let expected = Counts { get: 7, put: 2, create: 1, replace: 3, copy: 8, ..Counts::default() };
    assert_eq!(asked, expected);
    assert_eq!(process.text("fork").await.expect("there"), format!("{all}tail"));
    let part = fork_of("source", Some(3));
    other.create("part", &part).await.expect("forked");
    assert_eq!(other.text("part").await.expect("there"), all[..3 * LARGE]);
    // What is short is read and written, in the creating commit.
    process.create("short", &fork_of("source", Some(0))).await.expect("forked");
    let before = process.meter.counts();
    process.create("of-short", &fork_of("short", None)).await.expect("forked");
    let asked = process.meter.counts() - before;
    assert_eq!((asked.copy, asked.replace, asked.create), (0, 1, 1), "{asked:?}");
}

#[tokio::test]
async fn copies_live_on_without_their_source_and_are_copied_again() {
    let world = World::timed();
    let process = world.process();
    let all = long(&process, "source", 6).await;
    process.create("a", &fork_of("source", None)).await.expect("forked");
    process.create("b", &fork_of("a", Some(4))).await.expect("forked");
    process.service.post(&at("b"), post(b"own")).await.expect("appended");
    process.create("c", &fork_of("b", None)).await.expect("forked");
    for stream in ["source", "a"] {
        process.service.delete_durable(&at(stream)).await.expect("deleted");
    }
    let expected = format!("{}own", &all[..4 * LARGE]);
    sweep(&world, &process).await;
    for stream in ["b", "c"] {
        assert_eq!(world.process().text(stream).await.expect("there"), expected, "{stream}");
    }
    process.service.delete_durable(&at("b")).await.expect("deleted");
    sweep(&world, &process).await;
    assert!(matches!(process.text("b").await, Err(Error::Retired(_))));
    assert_eq!(world.process().text("c").await.expect("there"), expected);
    // The sweeper makes chunks of its own of small neighbours, whoever wrote them.
    for n in 0..40 {
        let body = vec![b'0' + n % 10; 20_000];
        process.service.post(&at("c"), post(&body)).await.expect("appended");
    }
    let grown = process.text("c").await.expect("there");
    assert!(sweep(&world, &process).await > 40);
    assert_eq!(world.process().text("c").await.expect("there"), grown);
    process.service.delete_durable(&at("c")).await.expect("deleted");
    assert!(is_gone(&process.text("source").await) && is_gone(&process.text("b").await));
    sweep(&world, &process).await;
    assert_eq!(process.service_list("data/").await.len(), 0);
}

#[tokio::test]
async fn a_fork_ends_within_a_chunk_of_any_size() {
    let world = World::timed();
    let process = world.process();
    process.create("source", &new("")).await.expect("created");
    let body = |n: u64| vec![b'a' + (n % 26) as u8; 50_000];
    for n in 0..150 {
        process.service.post(&at("source"), post(&body(n))).await.expect("appended");
    }
    // One chunk of all of it, and more than one append may hold.
    sweep(&world, &process).await;
    for end in [1, 3, 60, 120, 150] {
        let fork = format!("fork-{end}");
        process.create(&fork, &fork_of("source", Some(end))).await.expect("forked");
        let read = world.process().text(&fork).await.expect("there");
        let expected: Vec<u8> = (0..end).flat_map(body).collect();
        assert!(read.as_bytes() == expected, "{end}: {} bytes", read.len());
    }
}

#[tokio::test]
async fn a_fork_of_very_many_chunks_has_an_index() {
    let shape = Shape { refs_max: 4, page_refs_max: 4, ..Shape::default() };
    let world = World { options: engine::Options { shape, ..engine::Options::default() }, ..World::new() };
    let process = world.process();
    let all = long(&process, "source", 25).await;
    process.create("fork", &fork_of("source", None)).await.expect("forked");
    assert_eq!(process.faults.count(Operation::Copy, "data/"), 25);
    assert_eq!(world.process().text("fork").await.expect("there"), all);
    process.create("part", &fork_of("fork", Some(17))).await.expect("forked");
    assert_eq!(world.process().text("part").await.expect("there"), all[..17 * LARGE]);
}

#[tokio::test]
async fn a_fork_that_ends_within_the_first_page_of_an_index_takes_everything_once() {
    let shape = Shape { refs_max: 4, ..Shape::default() };
    let world = World { options: engine::Options { shape, ..engine::Options::default() }, ..World::new() };
    let process = world.process();
    let all = long(&process, "source", 12).await;
    for end in [1, 2, 5, 7] {
        let fork = format!("fork-{end}");
        process.create(&fork, &fork_of("source", Some(end))).await.expect("forked");
        let status = process.service.durable_status(&at(&fork)).await.expect("there");
        assert_eq!(status.tail, end);
        let end = usize::try_from(end).expect("small");
        assert!(world.process().text(&fork).await.expect("there") == all[..end * LARGE], "{end}");
    }
}

#[tokio::test]
async fn a_fork_takes_as_much_of_its_own_as_any_append() {
    let world = World::new();
    let process = world.process();
    let json = |body: String| Creation {
        content_type: Some(ContentType::new("application/json").expect("legal")),
        body: body.into(),
        ..Creation::default()
    };
    process.create("source", &json("[1,2,3]".to_owned())).await.expect("created");
    let own = format!("[{}]", vec!["4"; 100_000].join(","));
    let fork = Creation { fork: fork_of("source", Some(2)).fork, ..json(own) };
    process.create("fork", &fork).await.expect("forked");
    assert_eq!(process.service.durable_status(&at("fork")).await.expect("there").tail, 100_002);
}

#[tokio::test]
async fn a_source_that_is_trimmed_while_it_is_copied_is_taken_from_where_it_is_whole() {
    // What is read, and what the store copies.
    for bytes in [20_000, LARGE] {
        let world = World::timed();
        let (process, other) = (world.process(), world.process());
        other.create("source", &new("")).await.expect("created");
        for n in 0..20 {
            other.service.post(&at("source"), post(&vec![b'a' + n; bytes])).await.expect("appended");
        }
        process.faults.hold(Operation::Put, "catalog/");
        let trimmed = async {
            process.faults.seen(1, Operation::Put, "catalog/").await;
            let snapshot = StreamSnapshot { at: 18, content_type: text(), bytes: "s".into() };
            other.service.put_snapshot(&at("source"), &snapshot).await.expect("stands");
            other.service.post(&at("source"), post(b"late")).await.expect("appended");
            sweep(&world, &other).await;
            process.faults.release();
        };
        let creation = fork_of("source", Some(19));
        let (made, ()) = tokio::join!(process.create("fork", &creation), trimmed);
        assert_eq!(made.expect("forked"), Provision::Created);
        let read = world.process().text_from("fork", ReadFrom::At(18)).await.expect("there");
        assert!(read.len() == bytes && read.bytes().all(|byte| byte == b's'), "{bytes}: {}", read.len());
    }
}

#[tokio::test]
async fn a_fork_begins_where_a_snapshot_ends_even_within_a_chunk() {
    let world = World::timed();
    let process = world.process();
    let mut all = long(&process, "source", 2).await;
    for n in 0..40 {
        let body = vec![b'0' + n % 10; 20_000];
        process.service.post(&at("source"), post(&body)).await.expect("appended");
        all.push_str(std::str::from_utf8(&body).expect("text"));
    }
    // Many messages to a chunk, of which some go.
    sweep(&world, &process).await;
    let snapshot = StreamSnapshot { at: 20, content_type: text(), bytes: bytes::Bytes::from_static(b"s") };
    process.service.put_snapshot(&at("source"), &snapshot).await.expect("stands");
    process.create("fork", &fork_of("source", None)).await.expect("forked");
    assert!(process.faults.count(Operation::Copy, "data/") > 0);
    process.service.delete_durable(&at("source")).await.expect("deleted");
    sweep(&world, &process).await;
    let expected = &all[2 * LARGE + 18 * 20_000..];
    let read = world.process().text_from("fork", ReadFrom::At(20)).await;
    assert_eq!(read.expect("there"), expected);
    // Who asks from the beginning is sent to where everything is that there is.
    assert!(matches!(process.text("fork").await, Err(Error::Trimmed { start: 20 })));
    let (snapshot, reader) = process.service.snapshot(&at("fork")).await.expect("readable");
    assert_eq!((snapshot, reader.next()), (None, 20));
}

#[tokio::test]
async fn marks_that_nobody_took_away_do_not_fill_their_source_for_ever() {
    let world = World { options: impatient(), ..World::new() };
    let process = world.process();
    process.create("source", &new("x")).await.expect("created");
    process.create("lives", &fork_of("source", None)).await.expect("forked");
    for n in 0..20 {
        let dying = world.process();
        dying.faults.hold(Operation::Put, "catalog/");
        let fork = format!("{}{n}", "x".repeat(500));
        let creation = fork_of("source", None);
        tokio::select! {
            made = dying.create(&fork, &creation) => panic!("{made:?}"),
            () = dying.faults.seen(1, Operation::Put, "catalog/") => {}
        }
    }
    assert_eq!(process.create("fork", &fork_of("source", None)).await.expect("forked"), Provision::Created);
    // Those that live are kept in mind.
    process.service.delete_durable(&at("fork")).await.expect("deleted");
    process.service.delete_durable(&at("source")).await.expect("deleted");
    assert!(matches!(process.text("source").await, Err(Error::Retired(_))));
    process.service.delete_durable(&at("lives")).await.expect("deleted");
    assert!(is_gone(&process.text("source").await));
}

#[tokio::test]
async fn a_source_may_be_rewritten_while_it_is_copied() {
    let world = World::timed();
    let (process, other) = (world.process(), world.process());
    process.create("source", &new("")).await.expect("created");
    let mut all = String::new();
    for n in 0..40 {
        let body = vec![b'0' + n % 10; if n % 8 == 7 { LARGE } else { 20_000 }];
        process.service.post(&at("source"), post(&body)).await.expect("appended");
        all.push_str(std::str::from_utf8(&body).expect("text"));
    }
    process.faults.hold(Operation::Copy, "data/");
    let rewritten = async {
        process.faults.seen(1, Operation::Copy, "data/").await;
        world.clock.advance_ms(2 * DAY_MS);
        let report = other.sweep().await.expect("swept");
        assert!(report.chunks_merged > 0, "{report:?}");
        process.faults.release();
    };
    let creation = fork_of("source", None);
    let (made, ()) = tokio::join!(process.create("fork", &creation), rewritten);
    assert_eq!(made.expect("forked"), Provision::Created);
    assert_eq!(world.process().text("fork").await.expect("there"), all);
}

#[tokio::test]
async fn a_fork_that_is_swept_while_it_is_made_is_made_in_the_end() {
    let world = World::timed();
    let (process, other) = (world.process(), world.process());
    let all = long(&process, "source", 3).await;
    // Between the copies and their commit, days pass, and a sweeper takes the copies for orphans.
    process.faults.inject_after((1, usize::MAX), Operation::Replace, "manifest/", Fault::Held);
    let swept = async {
        process.faults.seen(2, Operation::Replace, "manifest/").await;
        world.clock.advance_ms(2 * DAY_MS);
        other.sweep().await.expect("swept");
        process.faults.release();
    };
    let creation = fork_of("source", None);
    let (first, ()) = tokio::join!(process.create("fork", &creation), swept);
    let made = match first {
        Ok(made) => made,
        Err(_) => process.create("fork", &creation).await.expect("forked"),
    };
    assert_eq!(made, Provision::Created);
    assert_eq!(world.process().text("fork").await.expect("there"), all);
}

#[tokio::test]
async fn a_source_that_goes_while_it_is_copied_leaves_nothing_of_the_fork() {
    let world = World::timed();
    let (process, other) = (world.process(), world.process());
    long(&process, "source", 3).await;
    process.faults.hold(Operation::Put, "catalog/");
    let deleted = async {
        // The mark is set, the fork is not there yet: nobody sees that it will be.
        process.faults.seen(2, Operation::Put, "catalog/").await;
        other.service.delete_durable(&at("source")).await.expect("deleted");
        sweep(&world, &other).await;
        process.faults.release();
    };
    let creation = fork_of("source", None);
    let (made, ()) = tokio::join!(process.create("fork", &creation), deleted);
    assert!(matches!(&made, Err(Error::StreamNotFound(name)) if name == "source"), "{made:?}");
    // Its name is free at once.
    assert_eq!(process.create("fork", &new("x")).await.expect("created"), Provision::Created);
    process.service.delete_durable(&at("fork")).await.expect("deleted");
    sweep(&world, &process).await;
    assert_eq!(process.service_list("data/").await.len() + process.service_list("catalog/").await.len(), 0);
}

#[tokio::test]
async fn a_store_that_does_not_copy_fails_the_fork_and_nothing_else() {
    let world = World { options: impatient(), ..World::new() };
    let process = world.process();
    let all = long(&process, "source", 3).await;
    for fault in [Fault::Unavailable, Fault::Hang] {
        process.faults.inject(Operation::Copy, "data/", 2, fault);
        let refused = process.create("fork", &fork_of("source", None)).await;
        assert!(matches!(refused, Err(Error::Other(_))), "{refused:?}");
        process.faults.heal();
        let begun = std::time::Instant::now();
        process.create("fork", &fork_of("source", None)).await.expect("forked");
        assert!(begun.elapsed() < Duration::from_secs(1), "the name was free at once");
        assert_eq!(process.text("fork").await.expect("there"), all);
        process.service.delete_durable(&at("fork")).await.expect("deleted");
    }
}
