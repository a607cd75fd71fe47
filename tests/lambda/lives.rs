//! Reads that go on.

use std::time::{Duration, Instant};

use crate::events::{FRONTS, Via};
use crate::runtime::{Invocation, Piece, Runtime};
use crate::world::{Environment, TIMEOUT, World, append, follow, read, records, reply};

/// Reads chunks until the text so far holds this.
async fn until(invocation: &mut Invocation, got: &mut String, part: &str) {
    while !got.contains(part) {
        match invocation.chunk().await {
            Ok(Some(chunk)) => got.push_str(std::str::from_utf8(&chunk).unwrap()),
            other => panic!("{other:?} after {got}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_arrive_as_they_are_made() {
    for via in [Via::Url, Via::Rest] {
        let world = World::with_basin(&[]).await;
        world.call(via, append("live", "zero")).await.is(200);
        let _second = Environment::start(&world.runtime, &world.store(), &[]);
        let mut following = world.runtime.invoke(&follow("live", "seq_num=0").event(via), TIMEOUT);
        let head = following.head().await;
        assert_eq!((head.status, head.headers["content-type"].as_str()), (200, "text/event-stream"));
        assert_eq!(head.headers["cache-control"], "no-cache, no-transform");
        assert_eq!(head.headers["x-accel-buffering"], "no");
        let mut got = String::new();
        until(&mut following, &mut got, "\"zero\"").await;
        for body in ["one", "two"] {
            world.call(via, append("live", body)).await.is(200);
            let appended = Instant::now();
            until(&mut following, &mut got, &format!("\"{body}\"")).await;
            assert!(appended.elapsed() < Duration::from_secs(3), "{:?}", appended.elapsed());
        }
        assert!(!got.contains("DONE") && !got.contains("event: error"), "{got}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fronts_that_take_only_whole_answers_get_what_is_there_and_a_way_on() {
    let world = World::with_basin(&[("LEAT_RESPONSES", "buffer")]).await;
    for body in ["zero", "one"] {
        world.call(Via::Url, append("live", body)).await.is(200);
    }
    for via in FRONTS {
        let asked = Instant::now();
        let events = world.call(via, follow("live", "seq_num=0")).await.is(200).text();
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        let (records, end) = events.split_once("event: error").expect("no clean end");
        assert!(records.contains("\"zero\"") && records.contains("id: 1,2,"), "{events}");
        assert!(end.contains("server_draining") && !end.contains("DONE"), "{events}");
        let id = records.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
        let one_more = append("live", &format!("{via:?}"));
        // The answer to whoever waits comes with the next record.
        let waits = follow("live", "seq_num=0").header("last-event-id", id);
        let waiting = world.runtime.invoke(&waits.event(via), TIMEOUT);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let _second = Environment::start(&world.runtime, &world.store(), &[("LEAT_RESPONSES", "buffer")]);
        world.call(Via::Url, one_more).await.is(200);
        let events = reply(waiting, via).await.is(200).text();
        assert!(events.contains(&format!("\"{via:?}\"")) && !events.contains("\"one\""), "{events}");
        world.call(Via::Url, crate::world::call("DELETE", "/streams/live")).await.is(202);
        for body in ["zero", "one"] {
            world.call(Via::Url, append("live", body)).await.is(200);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_frames_is_read_streamed_or_whole() {
    use prost::Message;
    let world = World::with_basin(&[]).await;
    world.call(Via::Url, append("framed", "zero")).await.is(200);
    for via in FRONTS {
        for (query, is_finite) in [("seq_num=0&count=1", true), ("seq_num=0", false)] {
            if !is_finite && matches!(via, Via::Url | Via::Rest) {
                continue;
            }
            let session = read("framed", query).header("content-type", "s2s/proto");
            let got = world.call(via, session).await.is(200);
            assert_eq!(got.headers()["content-type"], "s2s/proto");
            let length = usize::from(got.body[1]) * 256 + usize::from(got.body[2]);
            assert_eq!((got.body[0], got.body[3]), (0, 0));
            let batch = s2_api::v1::stream::proto::ReadBatch::decode(&got.body[4..3 + length]).unwrap();
            assert_eq!(batch.records[0].body, "zero".as_bytes());
            let rest = &got.body[3 + length..];
            match is_finite {
                true => assert!(rest.is_empty(), "one frame, and a clean end"),
                // After a sign of life a terminal frame: whoever wants more comes again.
                false => assert!(String::from_utf8_lossy(rest).contains("server_draining"), "{rest:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_dies_leaves_an_answer_without_its_end() {
    let mut world = World::with_basin(&[]).await;
    world.call(Via::Url, append("live", "zero")).await.is(200);
    let mut following = world.runtime.invoke(&follow("live", "seq_num=0").event(Via::Url), TIMEOUT);
    following.head().await;
    until(&mut following, &mut String::new(), "\"zero\"").await;
    world.environment.kill_9();
    let end = loop {
        match following.chunk().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(end, Err(Piece::Cut));
    // The next environment goes on.
    let _next = Environment::start(&world.runtime, &world.store(), &[]);
    world.call(Via::Url, append("live", "one")).await.is(200);
    assert_eq!(world.call(Via::Url, read("live", "seq_num=0")).await.is(200).bodies(), ["zero", "one"]);
}

/// What streaming costs here, printed: the runtime's client waits for acknowledgements between its parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_whole_and_streamed_answers() {
    for responses in ["buffer", "stream"] {
        let world = World::with_basin(&[("LEAT_RESPONSES", responses)]).await;
        world.call(Via::Url, append("s", "x")).await.is(200);
        let mut took: Vec<Duration> = Vec::new();
        for _ in 0..50 {
            let asked = Instant::now();
            world.call(Via::Url, crate::world::call("GET", &format!("{}/tail", records("s")))).await.is(200);
            took.push(asked.elapsed());
        }
        took.sort_unstable();
        eprintln!("{responses}: median {:?}, best {:?}", took[25], took[0]);
    }
    let runtime = Runtime::start().await;
    let started = Instant::now();
    let _environment = Environment::start(&runtime, "memory:", &[]);
    crate::world::send(&runtime, Via::Url, &crate::events::Call::new("GET", "/health")).await.is(200);
    eprintln!("start to first answer: {:?}", started.elapsed());
}
