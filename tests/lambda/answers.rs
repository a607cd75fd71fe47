//! Answers of any length: read on, or refused, never lost.

use serde_json::{Value, json};

use crate::events::{FRONTS, Via};
use crate::world::{World, append, call, encode, follow, read, records};

/// What JSON makes the most of: each byte becomes `\u0001`, and each `\` of that is escaped again.
const WORST: &str = "\u{1}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worst_bodies_are_read_to_their_end_through_every_front() {
    let world = World::with_basin(&[("LEAT_RESPONSES", "buffer")]).await;
    let body = WORST.repeat(32 * 1024);
    for _ in 0..3 {
        let records_of: Vec<Value> = (0..12).map(|_| json!({ "body": body })).collect();
        // As base64, or the request would be longer than it may be.
        use base64::Engine;
        let packed = base64::prelude::BASE64_STANDARD.encode(&body);
        let records_of: Vec<Value> = records_of.iter().map(|_| json!({ "body": packed })).collect();
        let batch = call("POST", &records("worst")).json(&json!({ "records": records_of }));
        world.call(Via::Url, batch.header("s2-format", "base64")).await.is(200);
    }
    for via in FRONTS {
        for count in ["", "&count=1000", "&bytes=1048576"] {
            let (mut next, mut reads) = (0, 0);
            while next < 36 {
                let got = world.call(via, read("worst", &format!("seq_num={next}{count}"))).await.is(200);
                let bodies = got.bodies();
                assert!(!bodies.is_empty() && bodies.iter().all(|got| *got == body), "{via:?}");
                next += bodies.len();
                reads += 1;
            }
            assert!(reads >= 2, "{via:?}: one answer cannot hold all");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_collected_up_to_what_an_answer_holds() {
    let world = World::with_basin(&[("LEAT_RESPONSES", "buffer")]).await;
    let body = "\"\\".repeat(8 * 1024);
    for _ in 0..2 {
        let batch: Vec<Value> = (0..40).map(|_| json!({ "body": body })).collect();
        world
            .call(Via::Url, call("POST", &records("quotes")).json(&json!({ "records": batch })))
            .await
            .is(200);
    }
    for via in FRONTS {
        let (mut next, mut answers) = (0, 0);
        while next < 80 {
            let events = world.call(via, follow("quotes", &format!("seq_num={next}"))).await.is(200);
            assert_eq!(events.headers()["content-type"], "text/event-stream");
            let text = events.text();
            assert!(text.contains("event: error") && text.contains("server_draining"), "{via:?}");
            let mut ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
            let last = ids.next_back().expect("some records").split(',').next().unwrap();
            next = last.parse::<u64>().unwrap() + 1;
            answers += 1;
        }
        let many = via == Via::Balancer;
        assert!(if many { answers > 3 } else { answers <= 2 }, "{via:?}: {answers}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_fits_into_no_answer_is_refused_by_its_length() {
    use base64::Engine;
    let world = World::with_basin(&[("LEAT_RESPONSES", "buffer")]).await;
    let body = WORST.repeat(1024 * 1024 - 8);
    let packed = base64::prelude::BASE64_STANDARD.encode(&body);
    let batch = call("POST", &records("one")).json(&json!({ "records": [{ "body": packed }, ] }));
    world.call(Via::Url, batch.header("s2-format", "base64")).await.is(200);
    world.call(Via::Url, append("one", "after")).await.is(200);
    for via in FRONTS {
        world.call(via, read("one", "seq_num=0")).await.refused(422, "invalid", "this front takes at most");
        assert_eq!(world.call(via, read("one", "seq_num=1")).await.is(200).bodies(), ["after"]);
        let events = world.call(via, follow("one", "seq_num=0")).await.is(200).text();
        assert!(events.contains("event: error") && events.contains("\"invalid\""), "{events}");
        // In fewer bytes it fits everywhere but behind a load balancer.
        let smaller = world.call(via, read("one", "seq_num=0&count=1").header("s2-format", "base64")).await;
        match via {
            Via::Balancer => smaller.refused(422, "invalid", "1048576"),
            _ => assert_eq!(smaller.is(200).bodies(), std::slice::from_ref(&packed)),
        }
    }
    let streamed = World::with_basin(&[]).await;
    let batch = call("POST", &records("one")).json(&json!({ "records": [{ "body": packed }] }));
    streamed.call(Via::Url, batch.header("s2-format", "base64")).await.is(200);
    assert_eq!(streamed.call(Via::Url, read("one", "seq_num=0")).await.is(200).bodies(), [body]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_of_the_longest_names_is_read_to_its_end() {
    let world = World::with_basin(&[("LEAT_RESPONSES", "buffer")]).await;
    // Names that JSON makes the most of.
    let names: Vec<String> = (0..210).map(|n| format!("{n:03}{}", WORST.repeat(509))).collect();
    for name in &names {
        world.call(Via::Url, call("PUT", &format!("/streams/{}", encode(name)))).await.is(201);
    }
    for via in FRONTS {
        let (mut listed, mut pages) = (Vec::<String>::new(), 0);
        loop {
            let after = listed.last().map(|name| encode(name)).unwrap_or_default();
            let page =
                world.call(via, call("GET", &format!("/streams?start_after={after}"))).await.is(200).json();
            listed.extend(
                page["streams"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()),
            );
            pages += 1;
            if page["has_more"] == false {
                break;
            }
        }
        assert_eq!(listed, names, "{via:?}");
        assert_eq!(pages, if via == Via::Balancer { 2 } else { 1 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_too_long_is_refused_in_the_shape_of_the_api() {
    let world = World::with_basin(&[]).await;
    for via in FRONTS {
        let body = vec![b' '; 4 * 1024 * 1024];
        let sent = call("POST", &records("s")).body("application/json", body.clone());
        world.call(via, sent).await.refused(422, "invalid", "2097152");
        let sent = call("POST", &records("s")).body("application/protobuf", body);
        world.call(via, sent).await.refused(422, "invalid", "2097152");
    }
}
