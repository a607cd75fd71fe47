//! Reads over server-sent events: catching up, following, resuming, ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::server::ServerOptions;
use crate::world::{Event, Events, World, bodies, records, seq_nums, unique};

/// A stream of one-record batches `r0`, `r1`, …
async fn filled(count: usize) -> World {
    let world = World::new().await;
    world.stream("s").await;
    let all: Vec<_> = (0..count).map(|n| json!({"body": format!("r{n}")})).collect();
    if count > 0 {
        world.append("s", json!({"records": all})).await.is(200);
    }
    world
}

async fn resume(world: &World, query: &str, id: &str) -> Events {
    world.get(&format!("{}?{query}", records("s"))).header("last-event-id", id).events().await
}

/// Sequence numbers of all batches among these events.
fn all_seq_nums(events: &[Event]) -> Vec<u64> {
    events.iter().filter(|e| e.name == "batch").flat_map(|e| seq_nums(&e.json())).collect()
}

#[track_caller]
fn is_done(event: &Event) {
    assert_eq!(*event, Event { data: "[DONE]".into(), ..Event::default() });
}

/// Asserts that the events end with an error of this code, and without the mark of a finished read.
#[track_caller]
fn ends_with_error(events: &[Event], code: &str) {
    let last = events.last().expect("an event");
    assert_eq!(last.name, "error", "{events:?}");
    assert_eq!(last.json()["code"], code);
    assert!(events.iter().all(|e| e.data != "[DONE]"), "{events:?}");
}

#[tokio::test]
async fn the_answer_is_an_event_stream_that_nothing_may_hold_back() {
    let world = filled(1).await;
    let events = world.follow("s", "seq_num=0").await;
    assert_eq!(events.headers["content-type"], "text/event-stream");
    assert_eq!(events.headers["cache-control"], "no-cache, no-transform");
    assert_eq!(events.headers["x-accel-buffering"], "no");
    assert!(events.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn a_session_catches_up_and_then_follows() {
    let world = filled(3).await;
    let mut events = world.follow("s", "seq_num=1").await;
    let first = events.next().await.unwrap();
    assert_eq!((first.name.as_str(), first.id.as_str()), ("batch", "2,2,20"));
    assert_eq!(
        (seq_nums(&first.json()), bodies(&first.json())),
        (vec![1, 2], vec!["r1".into(), "r2".into()])
    );
    let ping = events.next().await.unwrap();
    assert_eq!((ping.name.as_str(), ping.id.as_str()), ("ping", ""));
    assert_eq!(ping.json()["tail"]["seq_num"], 3);
    assert!(ping.json()["timestamp"].as_u64().unwrap() > 1_600_000_000_000);
    for n in 3..6 {
        world.append_bodies("s", &["live"]).await;
        let batch = events.next_but_pings().await.unwrap();
        assert_eq!(seq_nums(&batch.json()), [n]);
        assert_eq!(batch.json()["tail"]["seq_num"], n + 1);
        assert_eq!(batch.id, format!("{n},{},{}", n, 20 + (n - 2) * 12));
    }
}

#[tokio::test]
async fn a_session_without_a_start_begins_at_the_tail() {
    let world = filled(3).await;
    let mut events = world.follow("s", "").await;
    assert_eq!(events.next().await.unwrap().name, "ping");
    world.append_bodies("s", &["new"]).await;
    assert_eq!(all_seq_nums(&[events.next_but_pings().await.unwrap()]), [3]);
}

#[tokio::test]
async fn a_session_ends_with_its_limits() {
    let world = filled(10).await;
    // Each record is 8 metered bytes and `r0`.
    for (query, expected) in [
        ("seq_num=0&count=3", vec![0, 1, 2]),
        ("seq_num=8&count=5&wait=0", vec![8, 9]),
        ("seq_num=8&count=5", vec![8, 9]),
        ("seq_num=0&bytes=29", vec![0, 1]),
        ("seq_num=0&bytes=9", vec![]),
        ("seq_num=7&wait=0", vec![7, 8, 9]),
        ("seq_num=10&wait=0", vec![]),
        ("wait=0", vec![]),
        ("seq_num=0&count=0", vec![]),
        ("seq_num=99&bytes=0", vec![]),
        ("seq_num=0&until=1", vec![]),
        ("seq_num=5&until=18446744073709551615", vec![5, 6, 7, 8, 9]),
    ] {
        let events = world.follow("s", query).await.rest().await;
        assert_eq!(all_seq_nums(&events), expected, "{query}");
        is_done(events.last().unwrap());
        assert!(events.iter().all(|e| e.name != "ping"), "{query}: {events:?}");
    }
}

#[tokio::test]
async fn a_bounded_session_waits_for_what_is_missing() {
    let world = filled(1).await;
    let mut events = world.follow("s", "seq_num=0&count=3&wait=30").await;
    assert_eq!(events.next().await.unwrap().id, "0,1,10");
    for id in ["1,2,19", "2,3,28"] {
        world.append_bodies("s", &["x"]).await;
        assert_eq!(events.next_but_pings().await.unwrap().id, id);
    }
    is_done(&events.next().await.unwrap());
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn an_idle_session_ends_after_its_wait_and_a_batch_begins_it_anew() {
    let world = filled(1).await;
    let started = Instant::now();
    let mut events = world.follow("s", "seq_num=0&wait=2").await;
    assert_eq!(events.next().await.unwrap().name, "batch");
    assert_eq!(events.next().await.unwrap().name, "ping");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    world.append_bodies("s", &["x"]).await;
    assert_eq!(events.next().await.unwrap().name, "batch");
    let since = Instant::now();
    is_done(&events.next_but_pings().await.unwrap());
    let idle = since.elapsed();
    assert!(idle > Duration::from_millis(1_200) && idle < Duration::from_secs(3), "{idle:?}");
    assert!(started.elapsed() > Duration::from_millis(2_700));
}

#[tokio::test]
async fn a_start_that_cannot_be_is_an_answer_and_not_an_event() {
    let world = filled(2).await;
    for query in [
        "seq_num=3",
        "seq_num=2&count=1",
        "count=1",
        "seq_num=99&clamp=true&count=1",
        "timestamp=18446744073709551615",
    ] {
        let answer =
            world.get(&format!("{}?{query}", records("s"))).try_events().await.unwrap().expect_err(query);
        assert_eq!(answer.status, 416, "{query}");
        assert_eq!(answer.json()["tail"]["seq_num"], 2);
    }
    let answer = world.get(&records("none")).try_events().await.unwrap().expect_err("no stream");
    answer.refused(404, "stream_not_found", "`none`");
    let mut clamped = world.follow("s", "seq_num=99&clamp=true").await;
    assert_eq!(clamped.next().await.unwrap().json()["tail"]["seq_num"], 2);
}

#[tokio::test]
async fn a_session_resumes_after_every_event_with_what_is_left() {
    const COUNT: u64 = 12;
    let world = World::new().await;
    world.stream("s").await;
    // Batches of the wire follow chunks of the store, so sizes are mixed.
    for n in 0..6 {
        world.append_bodies("s", &vec!["abc"; n % 3 + 1]).await;
    }
    assert_eq!(world.tail("s").await, COUNT);
    // A reader that is cut after each record.
    let mut seen = Vec::new();
    let mut id = String::new();
    for k in 0..8 {
        let query = format!("seq_num=0&count=8&bytes=1000&until={}", u64::MAX);
        let mut events = match id.as_str() {
            "" => world.follow("s", &query).await,
            id => resume(&world, &query, id).await,
        };
        let first = events.next().await.unwrap();
        let numbers = all_seq_nums(std::slice::from_ref(&first));
        assert_eq!(numbers, (k..8).collect::<Vec<_>>(), "after {id:?}");
        assert_eq!(first.id, "7,8,88");
        is_done(events.next().await.as_ref().unwrap());
        seen.push(numbers[0]);
        // As if the batch had held one record only.
        id = format!("{k},{},{}", k + 1, (k + 1) * 11);
    }
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
    // The budget of bytes is kept as well, and a spent one ends at once.
    let mut events = resume(&world, "seq_num=0&bytes=45", "1,2,22").await;
    assert_eq!(all_seq_nums(&events.rest().await), [2, 3]);
    for (query, id) in
        [("count=2", "1,2,22"), ("count=2", "1,3,33"), ("bytes=22", "1,2,22"), ("bytes=5", "1,2,22")]
    {
        let rest = resume(&world, &format!("seq_num=0&{query}"), id).await.rest().await;
        assert_eq!(rest.len(), 1, "{query} {id}: {rest:?}");
        is_done(&rest[0]);
    }
}

#[tokio::test]
async fn a_real_cut_after_each_live_event_loses_and_repeats_nothing() {
    let world = filled(0).await;
    let mut id = String::new();
    for n in 0..10 {
        let mut events = match id.as_str() {
            "" => world.follow("s", "seq_num=0").await,
            id => resume(&world, "seq_num=0", id).await,
        };
        if n % 2 == 0 {
            // A sign of life before the first record leaves the id as it was.
            assert_eq!(events.next().await.unwrap().name, "ping");
        }
        world.append_bodies("s", &[&format!("r{n}")]).await;
        let batch = events.next_but_pings().await.unwrap();
        assert_eq!(bodies(&batch.json()), [format!("r{n}")]);
        id = batch.id;
    }
    assert_eq!(id, "9,10,100");
}

#[tokio::test]
async fn an_id_that_is_none_is_refused_and_never_wraps() {
    let world = filled(3).await;
    let try_id = async |id: &str| {
        let call = world.get(&format!("{}?seq_num=0", records("s"))).header("last-event-id", id);
        call.try_events().await.unwrap().expect_err(id)
    };
    for id in [
        "18446744073709551615",
        "-1",
        "abc",
        "",
        "5",
        "5,1",
        "5,1,1,1",
        "5,18446744073709551615,1",
        "18446744073709551615,0,0",
        "+1,1,1",
        "1, 1,1",
        "18446744073709551616,1,1",
    ] {
        try_id(id).await.refused(400, "bad_header", "last-event-id");
    }
    // Beyond the tail, up to the largest there is.
    for id in ["3,1,1", "18446744073709551614,1,1"] {
        let answer = try_id(id).await;
        assert_eq!((answer.status, &answer.json()["tail"]["seq_num"]), (416, &json!(3)), "{id}");
    }
    // Another kind of read does not look at it.
    let ignored = world.get(&format!("{}?seq_num=0", records("s"))).header("last-event-id", "abc");
    assert_eq!(ignored.send().await.seq_nums(), [0, 1, 2]);
}

#[tokio::test]
async fn an_id_at_the_tail_goes_on_with_the_next_record() {
    let world = filled(3).await;
    let mut events = resume(&world, "tail_offset=3", "2,3,30").await;
    assert_eq!(events.next().await.unwrap().name, "ping");
    world.append_bodies("s", &["next"]).await;
    assert_eq!(events.next_but_pings().await.unwrap().id, "3,4,42");
}

#[tokio::test]
async fn a_payload_that_looks_like_events_is_data() {
    let world = filled(0).await;
    let payload = "x\r\n\r\nevent: control\ndata:{}\n\nid: 9\u{2028}\u{0}";
    world
        .append("s", json!({"records": [{"body": payload, "headers": [["\r\n\r\n", "\n\n"]]}]}))
        .await
        .is(200);
    let events = world.follow("s", "seq_num=0&count=1").await.rest().await;
    assert_eq!(events.len(), 2, "{events:?}");
    let record = &events[0].json()["records"][0];
    assert_eq!((&record["body"], &record["headers"]), (&json!(payload), &json!([["\r\n\r\n", "\n\n"]])));
    is_done(&events[1]);
    let call = world.get(&format!("{}?seq_num=0&count=1", records("s"))).header("s2-format", "base64");
    let record = &call.events().await.rest().await[0].json()["records"][0];
    assert_eq!(record["headers"], json!([["DQoNCg==", "Cgo="]]));
}

#[tokio::test]
async fn a_big_stream_comes_in_batches_of_at_most_a_thousand() {
    let world = World::new().await;
    world.stream("s").await;
    for _ in 0..3 {
        world.append("s", json!({"records": vec![json!({}); 900]})).await.is(200);
    }
    let events = world.follow("s", "seq_num=0&count=2500").await.rest().await;
    assert_eq!(all_seq_nums(&events), (0..2500).collect::<Vec<_>>());
    for event in &events[..events.len() - 1] {
        assert!((1..=1000).contains(&seq_nums(&event.json()).len()));
    }
    assert_eq!(events[events.len() - 2].id, format!("2499,2500,{}", 2500 * 8));
}

#[tokio::test]
async fn a_deleted_stream_ends_its_sessions_with_an_error() {
    let world = filled(2).await;
    let mut follower = world.follow("s", "seq_num=0").await;
    assert_eq!(follower.next().await.unwrap().name, "batch");
    assert_eq!(follower.next().await.unwrap().name, "ping");
    world.delete("/streams/s").send().await.is(202);
    world.stream("s").await;
    world.append_bodies("s", &["of the new life"]).await;
    let rest = follower.rest().await;
    ends_with_error(&rest, "stream_not_found");
    assert_eq!(all_seq_nums(&rest), [0_u64; 0], "no record of another life");
}

#[tokio::test]
async fn a_client_that_leaves_is_let_go_of() {
    let world = filled(1).await;
    for _ in 0..50 {
        let mut events = world.follow("s", "seq_num=0").await;
        events.next().await.unwrap();
    }
    assert_eq!(world.append_bodies("s", &["after"]).await["start"]["seq_num"], 1);
}

#[tokio::test]
async fn sessions_share_one_connection_of_http_2() {
    let world = filled(1).await;
    let two = world.over(crate::world::http_2());
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let mut events = two.follow("s", "seq_num=0").await;
        assert_eq!(all_seq_nums(&[events.next().await.unwrap()]), [0]);
        sessions.push(events);
    }
    two.append_bodies("s", &["live"]).await;
    for events in &mut sessions {
        assert_eq!(all_seq_nums(&[events.next_but_pings().await.unwrap()]), [1]);
    }
}

#[tokio::test]
async fn followers_on_another_process_see_every_record_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (a, b) =
        (ServerOptions::on_folder(folder.path()).start(), ServerOptions::on_folder(folder.path()).start());
    let writer = World::on(&a, &unique("follow"));
    writer.create_basin(json!({})).await;
    writer.stream("s").await;
    let reader = World::on(&b, &writer.basin);
    const RECORDS: u64 = 400;
    let appender = {
        let writer = writer.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(5));
            let mut appends = Vec::new();
            for n in 0..RECORDS {
                ticks.tick().await;
                let writer = writer.clone();
                appends.push(tokio::spawn(async move { writer.append_bodies("s", &[&n.to_string()]).await }));
            }
            for append in appends {
                append.await.unwrap();
            }
        })
    };
    let followers: Vec<_> = (0..20_u64)
        .map(|n| {
            let reader = reader.clone();
            tokio::spawn(async move {
                // Spread over the time of writing, in an order of no pattern.
                tokio::time::sleep(Duration::from_millis(n * 7919 % 1900)).await;
                let mut events = reader.follow("s", "seq_num=0").await;
                let mut seen = Vec::new();
                while seen.len() < RECORDS as usize {
                    let event = events.next_but_pings().await.expect("it goes on");
                    assert_eq!(event.name, "batch", "{event:?}");
                    seen.extend(seq_nums(&event.json()));
                }
                seen
            })
        })
        .collect();
    appender.await.unwrap();
    for follower in followers {
        assert_eq!(follower.await.unwrap(), (0..RECORDS).collect::<Vec<_>>());
    }
    let mut seen = reader.read("s", "seq_num=0").await.bodies();
    seen.sort_unstable_by_key(|body| body.parse::<u64>().unwrap());
    assert_eq!(seen, (0..RECORDS).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_wait_of_the_largest_number_is_no_end() {
    let world = filled(1).await;
    let mut events = world.follow("s", "seq_num=0&wait=4294967295").await;
    assert_eq!(events.next().await.unwrap().name, "batch");
    assert_eq!(events.next().await.unwrap().name, "ping");
    world.append_bodies("s", &["x"]).await;
    let next: Value = events.next_but_pings().await.unwrap().json();
    assert_eq!(seq_nums(&next), [1]);
}

#[tokio::test]
async fn a_silent_session_is_pinged_every_five_to_fifteen_seconds() {
    let world = filled(2).await;
    let mut events = world.follow("s", "").await;
    assert_eq!(events.next().await.unwrap().name, "ping");
    let since = Instant::now();
    let ping = events.next().await.unwrap();
    assert_eq!((ping.name.as_str(), &ping.json()["tail"]["seq_num"]), ("ping", &json!(2)));
    let silence = since.elapsed();
    assert!(silence > Duration::from_millis(4_500) && silence < Duration::from_secs(17), "{silence:?}");
}
