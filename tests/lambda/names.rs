//! One name is one stream, whatever the front (T17).

use serde_json::json;

use crate::events::{FRONTS, Via};
use crate::world::{World, append, call, encode, read, records};

const NAMES: [&str; 22] = [
    "a/b",
    "a%2Fb",
    "a b",
    "a+b",
    "a%b",
    "a?b",
    "a#b",
    "é",
    "e\u{301}",
    "😀",
    "a/../b",
    "../a",
    "./a",
    "a//b",
    "a/",
    "/",
    "a&b=c",
    "a;b:c,d@e~f",
    "a\"<b>|\\^`{}",
    "a\nb",
    "records",
    "...",
];

/// Whether an HTTP API, which decodes paths, can tell the name.
fn survives_decoding(name: &str) -> bool {
    !name.contains(['/', '?', '#', '%'])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_the_same_stream_through_every_front_or_refused() {
    let world = World::with_basin(&[]).await;
    let long = "ü".repeat(256);
    for name in NAMES.into_iter().chain([long.as_str()]) {
        let mut expected = Vec::new();
        for via in FRONTS {
            let appended = world.call(via, append(name, &format!("{via:?}"))).await;
            if via == Via::Http && !survives_decoding(name) {
                // At a `?` the front has cut the path: what is left of it is another one.
                match name.contains('?') {
                    true => assert_eq!(appended.head.status, 405),
                    false => appended.refused(400, "bad_path", "HTTP API"),
                }
                continue;
            }
            appended.is(200);
            expected.push(format!("{via:?}"));
        }
        for via in FRONTS {
            let path = format!("/streams/{}", encode(name));
            let (got, tail) = (
                world.call(via, read(name, "seq_num=0")).await,
                world.call(via, call("GET", &format!("{}/tail", records(name)))).await,
            );
            let listed =
                world.call(via, call("GET", &format!("/streams?prefix={}", encode(name)))).await.is(200);
            assert_eq!(listed.json()["streams"][0]["name"], name, "{via:?}");
            if via == Via::Http && !survives_decoding(name) {
                for refused in [got, tail, world.call(via, call("GET", &path)).await] {
                    assert!(matches!(refused.head.status, 400 | 404), "{name:?}: {refused:?}");
                    if !name.contains('?') {
                        refused.refused(400, "bad_path", "HTTP API");
                    }
                }
                continue;
            }
            assert_eq!(got.is(200).bodies(), expected, "{name:?} {via:?}");
            assert_eq!(tail.is(200).json()["tail"]["seq_num"], expected.len());
            world.call(via, call("GET", &path)).await.is(200);
        }
        world.call(Via::Rest, call("DELETE", &format!("/streams/{}", encode(name)))).await.is(202);
    }
    let all = world.call(Via::Url, call("GET", "/streams")).await.is(200).json();
    assert_eq!(all["streams"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dots_and_broken_escapes_are_refused_alike() {
    let world = World::with_basin(&[]).await;
    for written in [".", "..", "%2e", "%2E%2E", "%", "%zz", "%ff", "a%00b"] {
        for via in FRONTS {
            let refused = world.call(via, call("GET", &format!("/streams/{written}/records/tail"))).await;
            refused.refused(400, "bad_path", "");
        }
    }
    for via in FRONTS {
        for path in ["/streams/a/b/records", "/streams//records"] {
            let refused = world.call(via, call("GET", path)).await;
            assert!(matches!(refused.head.status, 400 | 404), "{via:?} {path}: {refused:?}");
        }
    }
}
