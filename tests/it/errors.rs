//! The table of errors: codes and statuses that belong together, in JSON whatever was asked for.

use serde_json::json;

use crate::support::server::ServerOptions;
use crate::world::{Call, World, records};

#[tokio::test]
async fn what_comes_later_says_that_it_is_not_there() {
    let world = World::new().await;
    for (method, path) in [
        ("GET", "/access-tokens"),
        ("POST", "/access-tokens"),
        ("DELETE", "/access-tokens/x"),
        ("GET", "/metrics?set=active-basins"),
        ("GET", "/metrics/some-basin?set=storage"),
        ("GET", "/metrics/some-basin/a%2Fb?set=storage"),
    ] {
        world.call(method, path).send().await.refused(501, "not_implemented", "available");
    }
}

#[tokio::test]
async fn an_append_session_over_http_1_is_refused_with_the_reason() {
    let world = World::new().await;
    let session = world.post(&records("s")).header("content-type", "s2s/proto");
    session.send().await.refused(501, "not_implemented", "HTTP/2");
}

#[tokio::test]
async fn the_one_location_is_named_and_no_other_is_taken() {
    let world = World::new().await;
    let location = json!({
        "name": "local",
        "is_private": false,
        "storage_classes": ["standard", "express"],
        "default_storage_class": "standard",
    });
    assert_eq!(world.get("/locations").send().await.is(200).json(), json!([location]));
    assert_eq!(world.get("/locations/default").send().await.is(200).json(), location);
    let set = |name| world.put("/locations/default").json(&json!(name));
    assert_eq!(set("local").send().await.is(200).json(), location);
    set("aws:us-east-1").send().await.refused(422, "invalid", "aws:us-east-1");
    world.put("/locations/default").json(&json!({})).send().await.refused(400, "bad_json", "JSON string");
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

/// Picks by a plain congruential generator: the same requests in every run.
struct Dice(u64);

impl Dice {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from[(self.0 >> 33) as usize % from.len()]
    }

    fn number(&mut self) -> &'static str {
        self.pick(&[
            "0",
            "1",
            "2",
            "9",
            "1000",
            "1001",
            "4294967295",
            "4294967296",
            "18446744073709551614",
            "18446744073709551615",
            "18446744073709551616",
            "-1",
        ])
    }

    fn path(&mut self) -> String {
        let stream = self.pick(&["s", "t", "u", "%20", "%2F", "%ff", "%2e%2e%2e"]);
        match self.pick(&["records", "records", "records", "tail", "stream", "streams", "basin", "basins"]) {
            "records" => {
                let mut path = format!("/streams/{stream}/records?wait=0");
                for name in ["seq_num", "timestamp", "tail_offset", "count", "bytes", "until"] {
                    if self.pick(&["y", "n", "n", "n"]) == "y" {
                        path += &format!("&{name}={}", self.number());
                    }
                }
                path + self.pick(&["", "&clamp=true", "&clamp=no"])
            }
            "tail" => format!("/streams/{stream}/records/tail"),
            "stream" => format!("/streams/{stream}"),
            "streams" => format!("/streams?limit={}&prefix={stream}", self.number()),
            "basin" => "/basins/odd-requests-2".to_owned(),
            _ => format!("/basins?limit={}&start_after=o", self.number()),
        }
    }

    fn body(&mut self) -> String {
        let number = self.number();
        match self.pick(&["append", "append", "append", "config", "create", "basin", "junk"]) {
            "append" => format!(
                r#"{{"records":[{{"timestamp":{number},"body":"{}"}},{{"headers":[["{}","{}"]],"body":"{}"}}]{}}}"#,
                self.pick(&["", "x", r"\u0000"]),
                self.pick(&["", "k"]),
                self.pick(&["fence", "trim", "", "v"]),
                self.pick(&["", "token", r"\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0003", "zzzzzzzz"]),
                self.pick(&[
                    "",
                    "",
                    r#","match_seq_num":18446744073709551615"#,
                    r#","fencing_token":"token""#
                ]),
            ),
            "config" => format!(
                r#"{{"storage_class":{},"retention_policy":{{"age":{number}}},"timestamping":{{"mode":{},"uncapped":true}},"delete_on_empty":{{"min_age_secs":{number}}}}}"#,
                self.pick(&["null", r#""express""#, r#""standard""#]),
                self.pick(&["null", r#""arrival""#, r#""client-require""#]),
            ),
            "create" => r#"{"stream":"s","config":{"timestamping":{"uncapped":true}}}"#.to_owned(),
            "basin" => r#"{"basin":"odd-requests-2","config":null}"#.to_owned(),
            _ => self.pick(&["", "null", "[", "{}", "\0"]).to_owned(),
        }
    }

    fn call(&mut self, world: &World, method: &str, path: &str) -> Call {
        let call = world.call(method, path);
        let call = match self.pick(&["", "", "s2-format", "accept", "accept", "last-event-id"]) {
            "s2-format" => call.header("s2-format", "base64"),
            "accept" => {
                call.header("accept", self.pick(&["text/event-stream", "application/protobuf", "*/*"]))
            }
            "last-event-id" => {
                let id = format!("{},{},1", self.number(), self.number());
                call.header("accept", "text/event-stream").header("last-event-id", &id)
            }
            _ => call,
        };
        let json = "application/json";
        call.header(
            "content-type",
            self.pick(&[json, json, json, json, "application/protobuf", "text/plain"]),
        )
    }
}

#[tokio::test]
async fn no_odd_request_fails_the_server() {
    let server = ServerOptions::on("memory:").start();
    let world = World::on(&server, "odd-requests");
    world.create_basin(json!({"create_stream_on_append": true, "create_stream_on_read": true})).await;
    let mut dice = Dice(1);
    let mut answered = std::collections::BTreeMap::new();
    for _ in 0..150 {
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let method = dice.pick(&[
                    "GET", "GET", "GET", "POST", "POST", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD",
                ]);
                let (path, body) = (dice.path(), dice.body());
                let call = dice.call(&world, method, &path);
                async move { (call.body(body.clone()).send().await, format!("{method} {path} {body}")) }
            })
            .collect();
        for (answer, request) in futures::future::join_all(calls).await {
            let status = answer.status;
            assert!(status < 500, "{request}: {status} {}", answer.text());
            *answered.entry(status).or_insert(0) += 1;
        }
    }
    for status in [200, 201, 202, 400, 404, 405, 409, 412, 416, 422] {
        assert!(answered.contains_key(&status), "no {status} in {answered:?}");
    }
    let log = server.log();
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
}
