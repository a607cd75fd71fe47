//! Names in paths, bodies and queries: one name is one stream, however it is written.

use serde_json::json;

use crate::world::{World, encode, raw, raw_status, records};

/// Names that something on the way might change.
fn odd_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "a/b",
        "a%2Fb",
        "a%2fb",
        "a b",
        " a",
        "a ",
        "a+b",
        "a%b",
        "a%20b",
        "a%",
        "a?b",
        "a#b",
        "a&b=c",
        "a;b",
        "a\\b",
        "a\"b",
        "a'b",
        "a:b",
        "a,b",
        "é",
        "e\u{301}",
        "😀",
        "a/../b",
        "../a",
        "a/..",
        "./a",
        "a//b",
        "//",
        "/",
        "/a",
        "a/",
        "a/b/",
        "...",
        "records",
        "s/records",
        "s/records/tail",
        "\u{202e}rtl",
        "a\tb",
        "a\nb",
        "a\r\nb",
        "\u{7f}",
        "\u{feff}",
        "null",
        "undefined",
        "CON",
        "a.meta",
        "ÿ",
        "\u{10ffff}",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("ü".repeat(256));
    names.push("x".repeat(512));
    names
}

#[tokio::test]
async fn every_odd_name_is_a_stream_of_its_own() {
    let world = World::new().await;
    let names = odd_names();
    for name in &names {
        world.stream(name).await;
        let body = json!({"records": [{"body": name}]});
        world.append(name, body).await.is(200);
    }
    for name in &names {
        assert_eq!(world.read(name, "seq_num=0").await.bodies(), std::slice::from_ref(name), "{name:?}");
        assert_eq!(world.tail(name).await, 1);
        world.get(&format!("/streams/{}", encode(name))).send().await.is(200);
        let page = world.get(&format!("/streams?prefix={}", encode(name))).send().await.is(200).json();
        let listed: Vec<_> = page["streams"].as_array().unwrap().iter().map(|s| s["name"].clone()).collect();
        assert_eq!(listed[0], *name, "the name itself is the first with its prefix");
    }
    let all = world.get("/streams").send().await.is(200).json();
    let listed: Vec<_> =
        all["streams"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(listed, sorted, "in the order of bytes");
    for name in &names {
        let path = format!("/streams/{}", encode(name));
        world.delete(&path).send().await.is(202);
        world.get(&path).send().await.refused(404, "stream_not_found", "");
    }
    assert_eq!(world.get("/streams").send().await.json()["streams"], json!([]));
}

#[tokio::test]
async fn one_name_may_be_written_in_several_ways() {
    let world = World::new().await;
    world.stream("é+~a").await;
    for path in ["%C3%A9+~a", "%c3%a9%2B%7Ea", "%C3%A9%2b~%61"] {
        world.get(&format!("/streams/{path}")).send().await.is(200);
    }
    // Not percent-encoded at all, as no library would send it.
    let head = format!("s2-basin: {}\r\nhost: x\r\nconnection: close\r\n\r\n", world.basin);
    let answer = raw(&world.address, format!("GET /v1/streams/é+~a HTTP/1.1\r\n{head}").as_bytes());
    assert!(matches!(raw_status(&answer), 200 | 400), "{answer}");
}

#[tokio::test]
async fn dots_are_no_names_however_they_are_written() {
    let world = World::new().await;
    for name in [".", "..", "%2e", "%2E%2e", ".%2e"] {
        for (method, rest) in [
            ("GET", ""),
            ("PUT", ""),
            ("DELETE", ""),
            ("GET", "/records?seq_num=0"),
            ("GET", "/records/tail"),
        ] {
            let request = format!(
                "{method} /v1/streams/{name}{rest} HTTP/1.1\r\nhost: x\r\ns2-basin: {}\r\nconnection: close\r\n\r\n",
                world.basin
            );
            let answer = raw(&world.address, request.as_bytes());
            assert_eq!(raw_status(&answer), 400, "{method} {name}{rest}: {answer}");
            assert!(answer.contains("\"bad_path\"") && answer.contains("stream name"), "{answer}");
        }
    }
    for name in [".", ".."] {
        world
            .post("/streams")
            .json(&json!({"stream": name}))
            .send()
            .await
            .refused(400, "bad_json", "`stream`");
    }
}

#[tokio::test]
async fn a_name_that_breaks_its_rules_is_refused_by_where_it_stands() {
    let world = World::new().await;
    let too_long = "ü".repeat(257);
    for name in ["", "a\0b", &too_long] {
        world.post("/streams").json(&json!({"stream": name})).send().await.refused(
            400,
            "bad_json",
            "stream name",
        );
        if !name.is_empty() {
            world.put(&format!("/streams/{}", encode(name))).send().await.refused(
                400,
                "bad_path",
                "stream name",
            );
            world.read(name, "seq_num=0").await.refused(400, "bad_path", "stream name");
            for field in ["prefix", "start_after"] {
                let path = format!("/streams?{field}={}", encode(name));
                world.get(&path).send().await.refused(400, "bad_query", &format!("`{field}`"));
            }
        }
    }
    for broken in ["%", "%2", "%zz", "%ff", "%C3", "a%2"] {
        world.get(&format!("/streams/{broken}")).send().await.refused(400, "bad_path", "decoded");
    }
    for name in [
        "short",
        "UPPERCASE",
        "under_score",
        "-leading-dash",
        "trailing-dash-",
        "größe-größe",
        &"x".repeat(49),
    ] {
        world.post("/basins").json(&json!({"basin": name})).send().await.refused(400, "bad_json", "basin");
        world.get(&format!("/basins/{}", encode(name))).send().await.refused(400, "bad_path", "basin name");
        let call = world.root("GET", "/v1/streams");
        if name.is_ascii() {
            call.header("s2-basin", name).send().await.refused(400, "bad_header", "s2-basin");
        }
    }
}

#[tokio::test]
async fn a_plain_slash_separates_and_never_joins() {
    let world = World::new().await;
    world.stream("a/b").await;
    for path in [
        "/streams/a/b",
        "/streams/a/b/records",
        "/streams/a%2Fb/",
        "/streams/",
        "//streams",
        "/streams/a%2Fb/records/",
    ] {
        world.get(path).send().await.refused(404, "not_found", "path");
    }
    assert_eq!(world.tail("a/b").await, 0);
    assert_eq!(records("a/b"), "/streams/a%2Fb/records");
}
