//! The table of errors: codes and statuses that belong together, in JSON whatever was asked for.

use serde_json::json;

use crate::world::{World, records};

#[tokio::test]
async fn what_comes_later_says_that_it_is_not_there() {
    let world = World::new().await;
    for (method, path) in [
        ("GET", "/access-tokens"),
        ("POST", "/access-tokens"),
        ("DELETE", "/access-tokens/x"),
        ("GET", "/locations"),
        ("GET", "/locations/default"),
        ("PUT", "/locations/default"),
        ("GET", "/metrics?set=active-basins"),
        ("GET", "/metrics/some-basin?set=storage"),
        ("GET", "/metrics/some-basin/a%2Fb?set=storage"),
    ] {
        world.call(method, path).send().await.refused(501, "not_implemented", "available");
    }
    for method in ["GET", "POST"] {
        let session = world.call(method, &records("s")).header("content-type", "s2s/proto");
        session.send().await.refused(501, "not_implemented", "s2s/proto");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let world = World::new().await;
    for path in
        ["/", "/v1", "/v1/", "/v2/basins", "/v1/basins/", "/v1/streams/s/records/tail/x", "/favicon.ico"]
    {
        world.root("GET", path).send().await.refused(404, "not_found", "path");
    }
    for (method, path) in [
        ("DELETE", "/basins"),
        ("POST", "/basins/some-basin"),
        ("PATCH", "/streams"),
        ("POST", "/streams/s"),
        ("PUT", "/streams/s/records"),
        ("DELETE", "/streams/s/records"),
        ("POST", "/streams/s/records/tail"),
        ("BREW", "/basins"),
    ] {
        let answer = world.call(method, path).send().await.refused(405, "method_not_allowed", method);
        assert!(!answer.header("allow").is_empty());
    }
}

#[tokio::test]
async fn a_bad_header_is_refused_by_its_name() {
    let world = World::new().await;
    world.stream("s").await;
    for (method, path) in [
        ("GET", "/v1/streams"),
        ("POST", "/v1/streams"),
        ("GET", "/v1/streams/s"),
        ("PUT", "/v1/streams/s"),
        ("PATCH", "/v1/streams/s"),
        ("DELETE", "/v1/streams/s"),
        ("GET", "/v1/streams/s/records"),
        ("POST", "/v1/streams/s/records"),
        ("GET", "/v1/streams/s/records/tail"),
    ] {
        world.root(method, path).send().await.refused(400, "bad_header", "`s2-basin` is missing");
        let twice =
            world.root(method, path).header("s2-basin", &world.basin).header("s2-basin", &world.basin);
        twice.send().await.refused(400, "bad_header", "`s2-basin` must be given at most once");
    }
    let long = "x".repeat(45);
    for (name, value) in [
        ("s2-format", "hex"),
        ("s2-format", ""),
        ("s2-encryption-key", ""),
        ("s2-encryption-key", long.as_str()),
        ("s2-stream-config", "{"),
    ] {
        let append = world.post(&records("s")).header(name, value).json(&json!({"records": [{}]}));
        append.send().await.refused(400, "bad_header", name);
        let read = world.get(&format!("{}?seq_num=0", records("s"))).header(name, value);
        let answer = read.send().await.refused(400, "bad_header", name);
        assert!(!answer.text().contains(&long), "a key is never repeated");
    }
    // A key for a stream without a cipher is ignored.
    let append =
        world.post(&records("s")).header("s2-encryption-key", "a2V5").json(&json!({"records": [{}]}));
    append.send().await.is(200);
    for (path, body) in [("/basins", json!({"basin": "some-other"})), ("/streams", json!({"stream": "t"}))] {
        for token in ["", &"t".repeat(37)] {
            let create = world.post(path).header("s2-request-token", token).json(&body);
            create.send().await.refused(400, "bad_header", "s2-request-token");
        }
        let create = world.post(path).header("s2-request-token", &"t".repeat(36)).json(&body);
        assert_ne!(create.send().await.status, 400);
    }
}

#[tokio::test]
async fn errors_are_json_whatever_the_client_asked_for() {
    let world = World::new().await;
    for accept in ["application/protobuf", "text/event-stream", "text/html", "image/*;q=0.1"] {
        let read = world.get(&format!("{}?seq_num=0", records("none"))).header("accept", accept);
        read.send().await.refused(404, "stream_not_found", "`none`");
        let read = world.get(&format!("{}?seq_num=x", records("none"))).header("accept", accept);
        read.send().await.refused(400, "bad_query", "`seq_num`");
    }
}

#[tokio::test]
async fn a_head_is_checked_before_what_it_asks_for_is_looked_up() {
    // Nothing here exists: the first fault wins, in the order header and path, query, body, lookup.
    let world = World::bare();
    world.get("/streams/%ff/records?seq_num=x").send().await.refused(400, "bad_path", "");
    world.read("s", "seq_num=x").await.refused(400, "bad_query", "");
    world.read("s", "seq_num=0&timestamp=0").await.refused(422, "invalid", "");
    world.append("s", json!({"records": []})).await.refused(422, "invalid", "");
    world.read("s", "seq_num=0").await.refused(404, "basin_not_found", "");
}
