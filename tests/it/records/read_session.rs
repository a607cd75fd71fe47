//! Read sessions over frames: catching up, following, resuming, ends.

use std::time::{Duration, Instant};

use s2_api::v1::stream::proto::ReadBatch;
use serde_json::json;

use crate::session::{self, GZIP, Session, ZSTD};
use crate::support::server::ServerOptions;
use crate::world::{WITHIN, World, unique};

/// A stream of records `r0`, `r1`, …, over HTTP/2.
async fn filled(count: usize) -> World {
    let world = World::new().await.over_2();
    world.stream("s").await;
    let all: Vec<_> = (0..count).map(|n| json!({"body": format!("r{n}")})).collect();
    if count > 0 {
        world.append("s", json!({"records": all})).await.is(200);
    }
    world
}

fn seq_nums(batch: &ReadBatch) -> Vec<u64> {
    batch.records.iter().map(|record| record.seq_num).collect()
}

/// Asserts a sign of life with this tail.
#[track_caller]
fn is_heartbeat(batch: &ReadBatch, tail: u64) {
    assert!(batch.records.is_empty(), "{batch:?}");
    assert_eq!(batch.tail.expect("a tail").seq_num, tail);
}

#[tokio::test]
async fn a_session_catches_up_says_so_and_follows() {
    let world = filled(3).await;
    let mut session = world.read_session("s", "seq_num=1").await;
    assert_eq!(session.response.headers()["x-accel-buffering"], "no");
    let first = session.next().await.unwrap().batch();
    assert_eq!(seq_nums(&first), [1, 2]);
    assert_eq!(first.records[1].body, "r2");
    is_heartbeat(&session.next().await.unwrap().batch(), 3);
    for n in 3..6 {
        world.append_bodies("s", &["live"]).await;
        let live = session.records().await;
        assert_eq!((seq_nums(&live), live.tail.unwrap().seq_num), (vec![n], n + 1));
    }
}

#[tokio::test]
async fn a_session_works_over_http_1_as_well() {
    let world = filled(3).await;
    let mut session = world.over(crate::world::http_1()).read_session("s", "seq_num=0").await;
    assert_eq!(seq_nums(&session.records().await), [0, 1, 2]);
    is_heartbeat(&session.next().await.unwrap().batch(), 3);
}

#[tokio::test]
async fn a_finished_session_just_ends() {
    let world = filled(10).await;
    for (query, expected) in [
        ("seq_num=0&count=3", vec![0, 1, 2]),
        ("seq_num=8&count=5&wait=0", vec![8, 9]),
        ("seq_num=0&bytes=29", vec![0, 1]),
        ("seq_num=7&wait=0", vec![7, 8, 9]),
        ("seq_num=10&wait=0", vec![]),
        ("seq_num=99&clamp=true&wait=0", vec![]),
        ("seq_num=0&count=0", vec![]),
        ("seq_num=0&until=1", vec![]),
        ("seq_num=5&until=18446744073709551615", vec![5, 6, 7, 8, 9]),
        ("tail_offset=2&count=9", vec![8, 9]),
    ] {
        let frames = world.read_session("s", query).await.rest().await;
        let batches: Vec<_> = frames.iter().map(|frame| frame.batch()).collect();
        assert!(batches.iter().all(|batch| !batch.records.is_empty()), "{query}: no heartbeat");
        assert_eq!(batches.iter().flat_map(seq_nums).collect::<Vec<_>>(), expected, "{query}");
    }
}

#[tokio::test]
async fn what_is_wrong_at_the_start_is_an_ordinary_answer() {
    let world = filled(2).await;
    let open = async |query: &str| world.read_call("s", query).send().await;
    assert_eq!(open("seq_num=3").await.is(416).json()["tail"]["seq_num"], 2);
    assert_eq!(open("seq_num=2&count=1").await.is(416).json()["tail"]["seq_num"], 2);
    open("seq_num=0&tail_offset=1").await.refused(422, "invalid", "");
    open("seq_num=x").await.refused(400, "bad_query", "seq_num");
    world.read_call("none", "").send().await.refused(404, "stream_not_found", "none");
}

#[tokio::test]
async fn a_cut_after_each_batch_loses_and_repeats_nothing() {
    let world = filled(0).await;
    let (mut next, mut left) = (0, 20_u64);
    while left > 0 {
        let mut session = world.read_session("s", &format!("seq_num={next}&count={left}&wait=60")).await;
        is_heartbeat(&session.next().await.unwrap().batch(), next);
        world.append_bodies("s", &["x", "y"]).await;
        let batch = session.records().await;
        assert_eq!(seq_nums(&batch), [next, next + 1]);
        (next, left) = (next + 2, left - 2);
        if left == 0 {
            assert_eq!(session.next().await, None);
        }
    }
}

#[tokio::test]
async fn a_wait_is_the_longest_gap_between_batches() {
    let world = filled(1).await;
    let started = Instant::now();
    let mut session = world.read_session("s", "seq_num=0&wait=3").await;
    assert_eq!(seq_nums(&session.records().await), [0]);
    is_heartbeat(&session.next().await.unwrap().batch(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.append_bodies("s", &["x"]).await;
    assert_eq!(seq_nums(&session.records().await), [1]);
    assert_eq!(session.next().await, None);
    let took = started.elapsed();
    assert!(took > Duration::from_millis(4_900) && took < Duration::from_secs(7), "{took:?}");
}

#[tokio::test]
async fn a_silent_session_shows_that_it_lives_every_five_to_fifteen_seconds() {
    let world = filled(2).await;
    let mut session = world.read_session("s", "").await;
    is_heartbeat(&session.next().await.unwrap().batch(), 2);
    let since = Instant::now();
    is_heartbeat(&session.next().await.unwrap().batch(), 2);
    let silence = since.elapsed();
    assert!(silence > Duration::from_millis(4_500) && silence < Duration::from_secs(17), "{silence:?}");
}

#[tokio::test]
async fn news_that_brings_no_records_does_not_put_off_the_sign_of_life() {
    let world = filled(2).await;
    let mut session = world.read_session("s", "").await;
    is_heartbeat(&session.next().await.unwrap().batch(), 2);
    let since = Instant::now();
    let changes = {
        let world = world.clone();
        tokio::spawn(async move {
            for age in 1_000.. {
                tokio::time::sleep(Duration::from_secs(1)).await;
                world
                    .patch("/streams/s")
                    .json(&json!({"retention_policy": {"age": age}}))
                    .send()
                    .await
                    .is(200);
            }
        })
    };
    is_heartbeat(&session.next().await.unwrap().batch(), 2);
    changes.abort();
    let silence = since.elapsed();
    assert!(silence > Duration::from_millis(4_500) && silence < Duration::from_secs(17), "{silence:?}");
}

#[tokio::test]
async fn batches_are_compressed_as_the_client_accepts_and_only_where_it_pays() {
    let world = World::new().await.over_2();
    world.stream("s").await;
    world.append_bodies("s", &[&"compress me ".repeat(500)]).await;
    world.append_bodies("s", &["short"]).await;
    for (accepted, flag) in [
        ("zstd", ZSTD),
        ("gzip", GZIP),
        ("gzip, zstd;q=0.1", ZSTD),
        ("zstd;q=0, gzip", GZIP),
        ("zstd;q=0", 0),
        ("br", 0),
    ] {
        for (seq_num, flag) in [(0, flag), (1, 0)] {
            let query = format!("seq_num={seq_num}&count=1");
            let call = world.read_call("s", &query).header("accept-encoding", accepted);
            let mut session = session::read_session(call).await;
            assert!(!session.response.headers().contains_key("content-encoding"));
            let frame = session.next().await.unwrap();
            assert_eq!((frame.flag, seq_nums(&frame.batch())), (flag, vec![seq_num]), "{accepted}");
            assert_eq!(session.next().await, None);
        }
    }
}

#[tokio::test]
async fn a_big_stream_comes_in_batches_of_at_most_a_thousand_records_and_a_mebibyte() {
    let world = World::new().await.over_2();
    world.stream("s").await;
    for _ in 0..3 {
        world.append("s", json!({"records": vec![json!({}); 900]})).await.is(200);
    }
    for _ in 0..5 {
        world.append_bodies("s", &["x".repeat(400_000).as_str()]).await;
    }
    let frames = world.read_session("s", "seq_num=0&count=2705").await.rest().await;
    let batches: Vec<_> = frames.iter().map(|frame| frame.batch()).collect();
    assert_eq!(batches.iter().flat_map(seq_nums).collect::<Vec<_>>(), (0..2705).collect::<Vec<_>>());
    for batch in &batches {
        let bytes: usize = batch.records.iter().map(|record| 8 + record.body.len()).sum();
        assert!((1..=1000).contains(&batch.records.len()) && bytes <= 1024 * 1024);
    }
}

#[tokio::test]
async fn a_deleted_stream_ends_its_sessions_with_a_terminal_frame() {
    let world = filled(2).await;
    let mut session = world.read_session("s", "seq_num=0").await;
    assert_eq!(seq_nums(&session.records().await), [0, 1]);
    is_heartbeat(&session.next().await.unwrap().batch(), 2);
    world.delete("/streams/s").send().await.is(202);
    world.stream("s").await;
    world.append_bodies("s", &["of the new life"]).await;
    Session::ends_with(&session.rest().await, 0, 0, 404, &json!("stream_not_found"));
}

#[tokio::test]
async fn a_draining_server_sends_its_readers_away() {
    let mut server = ServerOptions::on("memory:").start();
    let world = World::on(&server, &unique("drain")).over_2();
    world.create_basin(json!({})).await;
    world.stream("s").await;
    let mut session = world.read_session("s", "").await;
    is_heartbeat(&session.next().await.unwrap().batch(), 0);
    server.sigterm();
    Session::ends_with(&session.rest().await, 0, 0, 503, &json!("server_draining"));
    // Not here: the client must go on to answer while the server says goodbye.
    let ended =
        tokio::task::spawn_blocking(move || (server.wait(WITHIN).code(), server.log())).await.unwrap();
    assert_eq!(ended.0, Some(0), "{}", ended.1);
}

#[tokio::test]
async fn followers_on_another_process_see_every_record_once() {
    const INPUTS: u64 = 400;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (a, b) =
        (ServerOptions::on_folder(folder.path()).start(), ServerOptions::on_folder(folder.path()).start());
    let writer = World::on(&a, &unique("follow")).over_2();
    writer.create_basin(json!({})).await;
    writer.stream("s").await;
    let reader = World::on(&b, &writer.basin).over_2();
    let followers: Vec<_> = (0..20_u64)
        .map(|n| {
            let reader = reader.clone();
            tokio::spawn(async move {
                // Spread over the time of writing, in an order of no pattern.
                tokio::time::sleep(Duration::from_millis(n * 7919 % 1900)).await;
                let mut session = reader.read_session("s", "seq_num=0").await;
                let mut seen = Vec::new();
                while seen.len() < INPUTS as usize {
                    seen.extend(seq_nums(&session.records().await));
                }
                seen
            })
        })
        .collect();
    let mut session = writer.append_session("s").await;
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    for n in 0..INPUTS {
        ticks.tick().await;
        session.append(&session::input_at(n, n.to_string()));
    }
    session.half_close();
    assert_eq!(session.rest().await.len(), INPUTS as usize);
    for follower in followers {
        assert_eq!(follower.await.unwrap(), (0..INPUTS).collect::<Vec<_>>());
    }
}
