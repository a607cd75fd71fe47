//! What is there, what is on its way out, what is gone: streams and basins over their lives.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::server::ServerOptions;
use crate::world::{WITHIN, World, records};

/// Waits until a basin is gone.
pub async fn gone(world: &World) {
    let until = std::time::Instant::now() + WITHIN;
    loop {
        let page = world.get(&format!("/basins?prefix={}", world.basin)).send().await.is(200).json();
        if page["basins"] == json!([]) {
            return;
        }
        assert!(std::time::Instant::now() < until, "{page}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_absent_basin_answers_not_found_everywhere() {
    let world = World::bare();
    let basin = format!("/basins/{}", world.basin);
    for (method, path, body) in [
        ("GET", basin.as_str(), Value::Null),
        ("PATCH", &basin, json!({})),
        ("DELETE", &basin, Value::Null),
        ("GET", "/streams", Value::Null),
        ("POST", "/streams", json!({"stream": "s"})),
        ("GET", "/streams/s", Value::Null),
        ("PUT", "/streams/s", json!({})),
        ("PATCH", "/streams/s", json!({})),
        ("DELETE", "/streams/s", Value::Null),
        ("GET", "/streams/s/records?seq_num=0", Value::Null),
        ("GET", "/streams/s/records/tail", Value::Null),
        ("POST", "/streams/s/records", json!({"records": [{}]})),
    ] {
        let call = world.call(method, path);
        let call = if body.is_null() { call } else { call.json(&body) };
        call.send().await.refused(404, "basin_not_found", &world.basin);
    }
}

#[tokio::test]
async fn an_absent_stream_answers_not_found_everywhere() {
    let world = World::new().await;
    for (method, path, body) in [
        ("GET", "/streams/s", Value::Null),
        ("PATCH", "/streams/s", json!({})),
        ("DELETE", "/streams/s", Value::Null),
        ("GET", "/streams/s/records?seq_num=0", Value::Null),
        ("GET", "/streams/s/records?seq_num=0&count=0", Value::Null),
        ("GET", "/streams/s/records/tail", Value::Null),
        ("POST", "/streams/s/records", json!({"records": [{}]})),
    ] {
        let call = world.call(method, path);
        let call = if body.is_null() { call } else { call.json(&body) };
        call.send().await.refused(404, "stream_not_found", "`s`");
    }
}

#[tokio::test]
async fn a_deleted_stream_is_absent_at_once_and_its_name_is_free() {
    let world = World::new().await;
    world.stream("other").await;
    for life in 0..5 {
        let created = world.post("/streams").json(&json!({"stream": "s"})).send().await.is(201);
        assert_eq!(created.header("s2-provision-result"), "created");
        world.append("s", json!({"records": [{"headers": [["", "fence"]], "body": "t"}]})).await.is(200);
        world.append_bodies("s", &[&format!("life {life}")]).await;
        assert_eq!(world.read("s", "seq_num=1").await.bodies(), [format!("life {life}")]);

        let deleted = world.delete("/streams/s").send().await.is(202);
        assert_eq!((deleted.body.len(), deleted.header("content-length").as_str()), (0, "0"));
        assert!(!deleted.headers.contains_key("content-type"));
        world.get("/streams/s").send().await.refused(404, "stream_not_found", "`s`");
        world.delete("/streams/s").send().await.refused(404, "stream_not_found", "`s`");
        world.append("s", json!({"records": [{}]})).await.refused(404, "stream_not_found", "`s`");
        world.read("s", "seq_num=0").await.refused(404, "stream_not_found", "`s`");
        world.get(&format!("{}/tail", records("s"))).send().await.refused(404, "stream_not_found", "`s`");
        world.patch("/streams/s").json(&json!({})).send().await.refused(404, "stream_not_found", "`s`");
        let listed = world.get("/streams").send().await.json();
        assert_eq!(listed["streams"].as_array().unwrap().len(), 1, "{listed}");
    }
    // A new life begins at 0 with an empty token, a fresh configuration, and knows no token of the old one.
    world.put("/streams/s").json(&json!({"storage_class": "express"})).send().await.is(201);
    assert_eq!(world.tail("s").await, 0);
    world.append("s", json!({"records": [{}], "fencing_token": "", "match_seq_num": 0})).await.is(200);
    assert_eq!(world.get("/streams/s").send().await.json()["storage_class"], "express");
}

#[tokio::test]
async fn a_request_token_of_an_earlier_life_creates_again() {
    let world = World::new().await;
    let create = || world.post("/streams").header("s2-request-token", "t").json(&json!({"stream": "s"}));
    create().send().await.is(201);
    world.append_bodies("s", &["x"]).await;
    world.delete("/streams/s").send().await.is(202);
    assert_eq!(create().send().await.is(201).header("s2-provision-result"), "created");
    assert_eq!(world.tail("s").await, 0);
}

#[tokio::test]
async fn concurrent_deletions_of_a_stream_leave_it_deleted() {
    let world = World::new().await;
    world.stream("s").await;
    let deletions = (0..8).map(|_| world.delete("/streams/s").send());
    let mut statuses: Vec<_> = futures::future::join_all(deletions).await.iter().map(|a| a.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses[0], 202);
    assert!(statuses.iter().all(|status| matches!(status, 202 | 404)), "{statuses:?}");
    assert_eq!(world.get("/streams").send().await.json()["streams"], json!([]));
}

#[tokio::test]
async fn an_empty_basin_is_deleted_and_its_name_comes_free() {
    let world = World::new().await;
    world.stream("s").await;
    world.append_bodies("s", &["old"]).await;
    for _ in 0..3 {
        let path = format!("/basins/{}", world.basin);
        let deleted = world.delete(&path).send().await.is(202);
        assert_eq!((deleted.body.len(), deleted.header("content-length").as_str()), (0, "0"));
        world.get(&path).send().await.refused(404, "basin_not_found", &world.basin);
        gone(&world).await;
        world.delete(&path).send().await.refused(404, "basin_not_found", &world.basin);
        world.append("s", json!({"records": [{}]})).await.refused(404, "basin_not_found", &world.basin);
        world.create_basin(json!({})).await;
        world.get("/streams/s").send().await.refused(404, "stream_not_found", "`s`");
        assert_eq!(world.get("/streams").send().await.json()["streams"], json!([]));
        world.stream("s").await;
        assert_eq!(world.append_bodies("s", &["new"]).await["start"]["seq_num"], 0);
    }
}

#[tokio::test]
async fn a_basin_being_deleted_is_pending_until_one_more_delete_finishes_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = ServerOptions::on_folder(folder.path()).flag("--append-timeout-ms", "30000").start();
    let world = World::on(&server, "goes-away");
    world.create_basin(json!({"create_stream_on_append": true})).await;
    let names: Vec<_> = (0..200).map(|n| format!("s{n:03}")).collect();
    for some in names.chunks(50) {
        futures::future::join_all(some.iter().map(|name| world.stream(name))).await;
    }
    // A power cut right after the answer: what is left of the work waits for somebody to go on with it.
    world.delete("/basins/goes-away").send().await.is(202);
    server.kill_9();
    let server = ServerOptions::on_folder(folder.path()).flag("--append-timeout-ms", "30000").start();
    let world = World::on(&server, "goes-away");

    let page = world.get("/basins").send().await.is(200).json();
    let info = &page["basins"][0];
    assert_eq!((&info["name"], &info["state"]), (&json!("goes-away"), &json!("deleting")), "{page}");
    assert!(info["deleted_at"].is_string(), "{page}");
    world.get("/basins/goes-away").send().await.refused(404, "basin_not_found", "goes-away");
    for (method, path, body) in [
        ("POST", "/basins", json!({"basin": "goes-away"})),
        ("PUT", "/basins/goes-away", json!({})),
        ("PATCH", "/basins/goes-away", json!({})),
        ("POST", "/streams", json!({"stream": "new"})),
        ("PUT", "/streams/new", json!({})),
        ("PATCH", "/streams/new", json!({})),
        ("POST", "/streams/new/records", json!({"records": [{}]})),
    ] {
        world.call(method, path).json(&body).send().await.refused(409, "basin_deletion_pending", "goes-away");
    }
    for path in ["/streams/new", "/streams/new/records?seq_num=0", "/streams/new/records/tail"] {
        world.get(path).send().await.refused(409, "basin_deletion_pending", "goes-away");
    }
    world.delete("/streams/new").send().await.refused(409, "basin_deletion_pending", "goes-away");
    let left = world.get("/streams").send().await.is(200).json();
    assert!(!left["streams"].as_array().unwrap().is_empty());

    world.delete("/basins/goes-away").send().await.is(202);
    world.delete("/basins/goes-away").send().await; // while it works, or after
    gone(&world).await;
    world.create_basin(json!({})).await;
    assert_eq!(world.get("/streams").send().await.json(), json!({"streams": [], "has_more": false}));
    world.get("/streams/s000").send().await.refused(404, "stream_not_found", "`s000`");
    for name in ["s000", "s199"] {
        world.stream(name).await;
        assert_eq!(world.tail(name).await, 0);
    }
}

#[tokio::test]
async fn a_follower_of_a_deleted_basin_ends() {
    let world = World::new().await;
    world.stream("s").await;
    let mut events = world.follow("s", "").await;
    assert_eq!(events.next().await.unwrap().name, "ping");
    world.delete(&format!("/basins/{}", world.basin)).send().await.is(202);
    let last = events.next_but_pings().await.unwrap();
    assert_eq!(last.name, "error");
    let code = last.json()["code"].clone();
    assert!(code == "stream_not_found" || code == "basin_not_found", "{code}");
    assert_eq!(events.next().await, None);
}
