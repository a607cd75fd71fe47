//! Streams that a call creates because its basin says so.

use serde_json::{Value, json};

use crate::world::{World, encode, records};

async fn config(world: &World, stream: &str) -> Value {
    world.get(&format!("/streams/{}", encode(stream))).send().await.is(200).json()
}

#[tokio::test]
async fn without_the_switches_nothing_is_created() {
    let world = World::new().await;
    world.append("s", json!({"records": [{}]})).await.refused(404, "stream_not_found", "`s`");
    world.read("s", "seq_num=0").await.refused(404, "stream_not_found", "`s`");
    world.get(&format!("{}/tail", records("s"))).send().await.refused(404, "stream_not_found", "`s`");
    assert_eq!(world.get("/streams").send().await.json()["streams"], json!([]));
}

#[tokio::test]
async fn an_append_creates_its_stream_with_the_basins_defaults() {
    let world = World::with(json!({
        "create_stream_on_append": true, "default_stream_config": {"retention_policy": {"age": 60}},
    }))
    .await;
    world.read("s", "seq_num=0").await.refused(404, "stream_not_found", "`s`");
    world.get(&format!("{}/tail", records("s"))).send().await.refused(404, "stream_not_found", "`s`");
    assert_eq!(world.append_bodies("s", &["first"]).await["start"]["seq_num"], 0);
    assert_eq!(config(&world, "s").await["retention_policy"]["age"], 60);
    let again = json!({"stream": "s"});
    world.post("/streams").json(&again).send().await.refused(409, "resource_already_exists", "`s`");
}

#[tokio::test]
async fn a_read_or_a_check_of_the_tail_creates_its_stream_and_then_finds_it_empty() {
    let world = World::with(json!({"create_stream_on_read": true})).await;
    world.append("s", json!({"records": [{}]})).await.refused(404, "stream_not_found", "`s`");
    let answer = world.read("read", "seq_num=0").await;
    assert_eq!((answer.status, answer.json()), (416, json!({"tail": {"seq_num": 0, "timestamp": 0}})));
    assert_eq!(world.tail("tail").await, 0);
    assert_eq!(world.read("zero", "count=0").await.json(), json!({"records": []}));
    let mut events = world.follow("events", "").await;
    assert_eq!(events.next().await.unwrap().name, "ping");
    let listed = world.get("/streams").send().await.json();
    let names: Vec<_> = listed["streams"].as_array().unwrap().iter().map(|s| s["name"].clone()).collect();
    assert_eq!(names, ["events", "read", "tail", "zero"]);
    assert_eq!(world.append_bodies("events", &["x"]).await["start"]["seq_num"], 0);
    assert_eq!(events.next_but_pings().await.unwrap().name, "batch");
}

#[tokio::test]
async fn a_stream_config_header_counts_over_the_basin_and_only_at_creation() {
    let world = World::with(json!({
        "create_stream_on_append": true, "create_stream_on_read": true,
        "default_stream_config": {"storage_class": "express", "retention_policy": {"age": 60}},
    }))
    .await;
    let spaced = r#"{ "retention_policy": { "infinite": {} }, "timestamping": { "mode": "arrival" } }"#;
    let append =
        || world.post(&records("s")).header("s2-stream-config", spaced).json(&json!({"records": [{}]}));
    append().send().await.is(200);
    let created = config(&world, "s").await;
    assert_eq!(created["retention_policy"], json!({"infinite": {}}));
    assert_eq!(created["timestamping"]["mode"], "arrival");
    assert_eq!(created["storage_class"], "express");
    let other = world.post(&records("s")).header("s2-stream-config", r#"{"retention_policy":{"age":5}}"#);
    other.json(&json!({"records": [{}]})).send().await.is(200);
    assert_eq!(config(&world, "s").await, created);

    let read = world
        .get(&format!("{}?seq_num=0", records("r")))
        .header("s2-stream-config", r#"{"storage_class":"standard"}"#);
    read.send().await.is(416);
    assert_eq!(config(&world, "r").await["storage_class"], "standard");
    let read = world.get(&records("e")).header("s2-stream-config", r#"{"retention_policy":{"age":7}}"#);
    read.events().await;
    assert_eq!(config(&world, "e").await["retention_policy"]["age"], 7);
}

#[tokio::test]
async fn a_bad_stream_config_header_is_refused_also_where_the_stream_exists() {
    let world = World::with(json!({"create_stream_on_append": true})).await;
    world.stream("there").await;
    for stream in ["there", "new"] {
        for (bad, part) in [
            ("", "s2-stream-config"),
            ("{", "s2-stream-config"),
            ("[]", "an object"),
            ("null", "an object"),
            (r#"{"retention_policy":{"age":0}}"#, "retention_policy.age"),
            (r#"{"storage_class":"ice"}"#, "storage_class"),
            (r#"{"timestamping":{"mode":"x"}}"#, "timestamping.mode"),
        ] {
            let append = world.post(&records(stream)).header("s2-stream-config", bad);
            append.json(&json!({"records": [{}]})).send().await.refused(400, "bad_header", part);
            let read = world.get(&records(stream)).header("s2-stream-config", bad);
            read.send().await.refused(400, "bad_header", part);
        }
    }
    assert_eq!(world.tail("there").await, 0);
    world.get("/streams/new").send().await.refused(404, "stream_not_found", "`new`");
}

#[tokio::test]
async fn a_refused_call_creates_nothing() {
    let world = World::with(json!({"create_stream_on_append": true, "create_stream_on_read": true})).await;
    world.append("s", json!({"records": []})).await.is(422);
    world.append("s", json!({"records": [{"headers": [["", "x"]]}]})).await.is(422);
    world.append("s", json!({})).await.is(400);
    world.read("s", "seq_num=0&timestamp=0").await.is(422);
    world.read("s", "clamp=maybe").await.is(400);
    assert_eq!(world.get("/streams").send().await.json()["streams"], json!([]));
}

#[tokio::test]
async fn a_condition_is_judged_on_the_stream_that_was_just_created() {
    let world = World::with(json!({"create_stream_on_append": true})).await;
    let answer = world.append("s", json!({"records": [{}], "match_seq_num": 5})).await;
    assert_eq!((answer.status, answer.json()), (412, json!({"seq_num_mismatch": 0})));
    assert_eq!(world.tail("s").await, 0);
    world.append("t", json!({"records": [{}], "match_seq_num": 0, "fencing_token": ""})).await.is(200);
}

#[tokio::test]
async fn racing_first_appends_all_land_in_one_stream() {
    let world = World::with(json!({"create_stream_on_append": true})).await;
    for name in ["a", "b/c", "d"] {
        let appends = (0..32).map(|_| world.append(name, json!({"records": [{}]})));
        for answer in futures::future::join_all(appends).await {
            answer.is(200);
        }
        assert_eq!(world.tail(name).await, 32);
    }
    assert_eq!(world.get("/streams").send().await.json()["streams"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_deleted_stream_is_created_anew_by_the_next_append() {
    let world = World::with(json!({"create_stream_on_append": true})).await;
    for _ in 0..5 {
        assert_eq!(world.append_bodies("s", &["x", "y"]).await["start"]["seq_num"], 0);
        world.delete("/streams/s").send().await.is(202);
    }
    assert_eq!(world.append_bodies("s", &["last"]).await["start"]["seq_num"], 0);
    assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["last"]);
}
