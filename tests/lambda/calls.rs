//! Single calls through every front.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::events::{Call, FRONTS, Via};
use crate::runtime::{Piece, Runtime};
use crate::world::{Environment, World, append, call, follow, read, records, send};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_written_and_read_through_every_front() {
    for responses in ["stream", "buffer"] {
        let world = World::with_basin(&[("LEAT_RESPONSES", responses)]).await;
        for (index, via) in FRONTS.into_iter().enumerate() {
            let ack = world.call(via, append("orders", &format!("{via:?}"))).await.is(200).json();
            assert_eq!(ack["end"]["seq_num"], index + 1, "{via:?}");
        }
        for via in FRONTS {
            let got = world.call(via, read("orders", "seq_num=1&count=2")).await.is(200);
            assert_eq!(got.bodies(), ["Http", "Rest"], "{via:?}");
            assert_eq!(got.headers()["content-type"], "application/json");
            let tail =
                world.call(via, call("GET", &format!("{}/tail", records("orders")))).await.is(200).json();
            assert_eq!(tail["tail"]["seq_num"], 4);
            let listed = world.call(via, call("GET", "/streams?prefix=ord&limit=5")).await.is(200).json();
            assert_eq!(listed["streams"][0]["name"], "orders");
            let beyond = world.call(via, read("orders", "seq_num=9")).await.is(416).json();
            assert_eq!(beyond["tail"]["seq_num"], 4);
            let mismatch = json!({ "match_seq_num": 1, "records": [{ "body": "x" }] });
            let refused =
                world.call(via, call("POST", &records("orders")).json(&mismatch)).await.is(412).json();
            assert_eq!(refused, json!({ "seq_num_mismatch": 4 }));
            world.call(via, read("nothing", "seq_num=0")).await.refused(404, "stream_not_found", "nothing");
            world.call(via, Call::new("GET", "/v2")).await.refused(404, "not_found", "`/v2`");
            assert_eq!(world.call(via, Call::new("GET", "/health")).await.is(200).text(), "OK");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_without_a_body_are_not_said_to_be_json() {
    for responses in ["stream", "buffer"] {
        let world = World::with_basin(&[("LEAT_RESPONSES", responses)]).await;
        for via in FRONTS {
            world.call(via, append("s", "x")).await.is(200);
            let deleted = world.call(via, call("DELETE", "/streams/s")).await.is(202);
            assert_eq!(deleted.headers()["content-type"], "application/octet-stream", "{via:?}");
            let streams = responses == "stream" && matches!(via, Via::Url | Via::Rest);
            assert_eq!(deleted.text(), if streams { "\n" } else { "" }, "{via:?}");
            let asked = Call::new("OPTIONS", "/v1/streams")
                .header("origin", "https://app.example")
                .header("access-control-request-method", "PUT")
                .header("access-control-request-headers", "authorization,s2-basin");
            let allowed = world.call(via, asked).await.is(200);
            assert_eq!(allowed.headers()["access-control-allow-headers"], "authorization,s2-basin");
            assert_eq!(allowed.headers()["vary"], "access-control-request-headers");
        }
    }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_bodies_are_the_same_bytes_in_both_directions() {
    use prost::Message;
    use s2_api::v1::stream::proto::{AppendAck, AppendInput, AppendRecord, ReadBatch};
    let bytes: Vec<u8> = (0..=255).chain([0xef, 0xbb, 0xbf, 0xff, 0xfe]).collect();
    for responses in ["stream", "buffer"] {
        let world = World::with_basin(&[("LEAT_RESPONSES", responses)]).await;
        for (index, via) in FRONTS.into_iter().enumerate() {
            let record = AppendRecord { body: bytes.clone().into(), ..AppendRecord::default() };
            let input = AppendInput { records: vec![record], ..AppendInput::default() }.encode_to_vec();
            let proto = |kind| call("POST", &records("b")).body(kind, input.clone()).header("accept", kind);
            let ack = world.call(via, proto("application/protobuf")).await.is(200);
            assert_eq!(ack.headers()["content-type"], "application/protobuf");
            let end = AppendAck::decode(&ack.body[..]).unwrap().end.unwrap();
            assert_eq!(end.seq_num, 2 * index as u64 + 1);
            let json = gzip(br#"{"records":[{"body":"packed"}]}"#);
            let packed = call("POST", &records("b")).body("application/json", json);
            world.call(via, packed.header("content-encoding", "gzip")).await.is(200);
            let got = read("b", &format!("seq_num={}", 2 * index)).header("accept", "application/protobuf");
            let got = ReadBatch::decode(&world.call(via, got).await.is(200).body[..]).unwrap();
            assert_eq!(got.records[0].body, bytes, "{via:?}");
            assert_eq!(got.records[1].body, "packed".as_bytes());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_session_is_refused_with_the_reason() {
    let world = World::with_basin(&[]).await;
    for via in FRONTS {
        let session = call("POST", &records("s")).body("s2s/proto", vec![0, 0, 1, 0]);
        world.call(via, session).await.refused(501, "not_implemented", "`leat serve`");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_in_without_the_token() {
    let token = "0123456789abcdef-the-token";
    let world = World::with(&[("LEAT_AUTH", ""), ("LEAT_ROOT_TOKEN", token)]).await;
    for via in FRONTS {
        let listing = || Call::new("GET", "/v1/basins");
        let refused = world.call(via, listing()).await;
        assert_eq!(refused.headers()["www-authenticate"], "Bearer");
        refused.refused(401, "authn", "`authorization`");
        let wrong = listing().header("authorization", "Bearer 0123456789abcdef");
        world.call(via, wrong).await.refused(401, "authn", "not known");
        world.call(via, listing().header("authorization", &format!("Bearer {token}"))).await.is(200);
        world.call(via, Call::new("GET", "/health")).await.is(200);
    }
    // What cannot be understood is no way around it, and whoever may call learns what is wrong.
    let with = format!("Bearer {token}");
    let (without, with) =
        (Call::new("GET", "/v1/basins"), Call::new("GET", "/v1/basins").header("authorization", &with));
    for (call, status, code, part) in
        [(without, 401, "authn", "`authorization`"), (with, 400, "bad_json", "base64")]
    {
        let mut event = call.event(Via::Url);
        event["body"] = "%%%".into();
        event["isBase64Encoded"] = true.into();
        let refused = world.runtime.invoke(&event, Duration::from_secs(10));
        crate::world::reply(refused, Via::Url).await.refused(status, code, part);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_cannot_be_understood_are_refused_and_the_function_lives_on() {
    let world = World::with_basin(&[]).await;
    let base = || append("s", "x").event(Via::Url);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut event = base();
        change(&mut event);
        event
    };
    let not_base64 = with(&|event| {
        event["body"] = "not base64!".into();
        event["isBase64Encoded"] = true.into();
    });
    for (event, code) in [
        (not_base64, "bad_json"),
        (with(&|event| event["rawPath"] = "/v1/streams/a b".into()), "bad_path"),
        (with(&|event| event["rawPath"] = "no slash".into()), "bad_path"),
        (with(&|event| event["rawQueryString"] = "x={\"a\":\"<> \"}".into()), "bad_query"),
        (with(&|event| event["headers"]["x"] = "a\nb".into()), "bad_header"),
    ] {
        let invocation = world.runtime.invoke(&event, Duration::from_secs(10));
        crate::world::reply(invocation, Via::Url).await.refused(400, code, "");
    }
    let schedule = json!({
        "version": "0", "id": "e", "detail-type": "Scheduled Event", "source": "aws.events", "account": "1",
        "time": "2026-11-30T00:00:00Z", "region": "eu-central-1", "resources": [], "detail": {},
    });
    for (event, part) in [(schedule, "aws.events"), (json!("tick"), "an HTTP event")] {
        let Piece::Failed(error) = world.runtime.invoke(&event, Duration::from_secs(10)).piece().await else {
            panic!("{event} is no request");
        };
        let error: Value = serde_json::from_slice(&error).unwrap();
        assert!(error["errorMessage"].as_str().unwrap().contains(part), "{error}");
    }
    world.call(Via::Url, append("s", "x")).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_says_what_its_environment_lacks() {
    let runtime = Runtime::start().await;
    let lacking = [("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", ""), ("AWS_LAMBDA_FUNCTION_NAME", "")];
    let mut environment = Environment::start(&runtime, "memory:", &lacking);
    assert_eq!(environment.wait(Duration::from_secs(20)).code(), Some(2));
    for (name, _) in lacking {
        assert!(environment.log().contains(name), "{}", environment.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_environments_share_a_bucket() {
    let world = World::with_basin(&[]).await;
    let _others: Vec<_> = (0..3).map(|_| Environment::start(&world.runtime, &world.store(), &[])).collect();
    let appends = (0..24).map(|n| {
        let runtime = world.runtime.clone();
        async move { send(&runtime, Via::Url, &append("shared", &n.to_string())).await.is(200).json() }
    });
    let acks = futures::future::join_all(appends).await;
    let mut ends: Vec<u64> = acks.iter().map(|ack| ack["end"]["seq_num"].as_u64().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, (1..=24).collect::<Vec<_>>());
    let mut bodies = world.call(Via::Url, read("shared", "seq_num=0")).await.is(200).bodies();
    bodies.sort_unstable_by_key(|body| body.parse::<u64>().unwrap());
    assert_eq!(bodies, (0..24).map(|n| n.to_string()).collect::<Vec<_>>());
    // A finite read of events ends in order.
    let events = world.call(Via::Url, follow("shared", "seq_num=0&count=3")).await.is(200).text();
    assert!(events.ends_with("data: [DONE]\n\n"), "{events}");
}
