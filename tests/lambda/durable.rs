//! Durable Streams through every front of a function: the waits end themselves, with a way on.

use std::time::{Duration, Instant};

use crate::events::{Call, FRONTS, Via};
use crate::world::{Reply, World, reply};

const SHORT: Duration = Duration::from_secs(3);

fn path(via: Via) -> String {
    format!("/v1/stream/function/{via:?}")
}

fn header(reply: &Reply, name: &str) -> String {
    reply.headers().get(name).cloned().unwrap_or_default()
}

/// A world with one message in a stream for each front.
async fn world() -> World {
    let world = World::with(&[]).await;
    for via in FRONTS {
        let made = world.call(via, Call::new("PUT", &path(via)).body("text/plain", "")).await.is(201);
        assert!(header(&made, "location").ends_with(&path(via)), "{}", header(&made, "location"));
        let added = world.call(via, Call::new("POST", &path(via)).body("text/plain", "one")).await.is(204);
        assert_eq!(header(&added, "stream-next-offset"), "0000000000000001", "{via:?}");
    }
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_and_reads_work_through_every_front() {
    let world = world().await;
    for via in FRONTS {
        let read = world.call(via, Call::new("GET", &path(via))).await.is(200);
        assert_eq!((read.text(), header(&read, "stream-up-to-date")), ("one".to_owned(), "true".to_owned()));
        assert_eq!(header(&read, "x-content-type-options"), "nosniff", "{via:?}");
        let bytes: Vec<u8> = (0..=255).collect();
        world.call(via, Call::new("POST", &path(via)).body("text/plain", bytes.clone())).await.is(204);
        let query = format!("{}?offset=0000000000000001", path(via));
        assert_eq!(world.call(via, Call::new("GET", &query)).await.is(200).body, bytes, "{via:?}");
        let producer = |call: Call| {
            call.header("producer-id", "p").header("producer-epoch", "0").header("producer-seq", "0")
        };
        let add = || producer(Call::new("POST", &path(via)).body("text/plain", "two"));
        world.call(via, add()).await.is(200);
        world.call(via, add()).await.is(204);
        world.call(via, Call::new("DELETE", &path(via))).await.is(204);
        world.call(via, Call::new("GET", &path(via))).await.is(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_is_answered_before_the_deadline() {
    let world = world().await;
    for via in FRONTS {
        let query = format!("{}?offset=0000000000000001&live=long-poll", path(via));
        let asked = Instant::now();
        let waiting = world.runtime.invoke(&Call::new("GET", &query).event(via), SHORT);
        let got = reply(waiting, via).await.is(204);
        let took = asked.elapsed();
        assert!((2_000..3_000).contains(&took.as_millis()), "{via:?}: {took:?}");
        assert_eq!(header(&got, "stream-next-offset"), "0000000000000001", "{via:?}");
        assert_eq!(header(&got, "stream-up-to-date"), "true", "{via:?}");
        assert!(header(&got, "stream-cursor").parse::<u64>().is_ok(), "{via:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_end_before_the_deadline_with_a_last_control() {
    let world = world().await;
    for via in FRONTS {
        let query = format!("{}?offset=-1&live=sse", path(via));
        let asked = Instant::now();
        let following = world.runtime.invoke(&Call::new("GET", &query).event(via), SHORT);
        let events = reply(following, via).await.is(200).text();
        let took = asked.elapsed();
        // Clients take less than a second for a way that is broken.
        assert!((1_000..3_000).contains(&took.as_millis()), "{via:?}: {took:?}");
        assert!(
            events.starts_with(
                "id: 0000000000000001\nevent: data\ndata:one\n\nid: 0000000000000001\nevent: control\n"
            ),
            "{events}"
        );
        let cursors: Vec<u64> = events
            .split("\"streamCursor\":\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(cursors.len(), 2, "{via:?}: {events}");
        assert!(cursors[0] < cursors[1], "{via:?}: {cursors:?}");
        assert!(events.ends_with("\"upToDate\":true}\n\n"), "{events}");
    }
}
