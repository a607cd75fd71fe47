//! Every front, with what it does to paths, queries, headers and bodies.

use serde_json::{Value, json};

use super::*;

/// Names, and how each is written in a path.
const NAMES: [(&str, &str); 15] = [
    ("ab", "ab"),
    ("a/b", "a%2Fb"),
    ("a%2Fb", "a%252Fb"),
    ("a b", "a%20b"),
    ("a+b", "a+b"),
    ("a%b", "a%25b"),
    ("a?b", "a%3Fb"),
    ("a#b", "a%23b"),
    ("é", "%C3%A9"),
    ("e\u{301}", "e%CC%81"),
    ("😀", "%F0%9F%98%80"),
    (".", "%2E"),
    ("..", ".."),
    ("a/../b", "a%2F..%2Fb"),
    ("a/", "a%2F"),
];

fn parse(event: Value) -> Incoming {
    let event: Event = serde_json::from_value(event).expect("an event");
    event.into_incoming().expect("an HTTP event")
}

fn request(event: Value) -> Request<Bytes> {
    parse(event).request.expect("a request")
}

fn v2(domain: &str, path: &str, query: &str) -> Value {
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": { "s2-basin": "demo-basin", "host": domain },
        "requestContext": { "domainName": domain, "stage": "$default", "http": { "method": "GET", "path": path } },
        "isBase64Encoded": false,
    })
}

const URL: &str = "abc123.lambda-url.eu-central-1.on.aws";
const API: &str = "abc123.execute-api.eu-central-1.amazonaws.com";

fn rest(path: &str, context_path: &str, stage: &str) -> Value {
    json!({
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": "GET",
        "headers": { "s2-basin": "demo-basin" },
        "multiValueHeaders": { "s2-basin": ["demo-basin"], "x-many": ["1", "2"] },
        "queryStringParameters": null,
        "multiValueQueryStringParameters": null,
        "requestContext": { "stage": stage, "path": context_path, "httpMethod": "GET", "domainName": API },
        "body": null,
        "isBase64Encoded": false,
    })
}

fn balancer(path: &str) -> Value {
    json!({
        "requestContext": { "elb": { "targetGroupArn": "arn:aws:elasticloadbalancing:r:1:targetgroup/leat/1" } },
        "httpMethod": "GET",
        "path": path,
        "queryStringParameters": {},
        "headers": { "s2-basin": "demo-basin" },
        "body": "",
        "isBase64Encoded": false,
    })
}

/// The name that the router would find.
fn name(request: &Request<Bytes>) -> String {
    let raw = request.uri().path().split('/').nth(3).expect("a name");
    percent_encoding::percent_decode_str(raw).decode_utf8().expect("UTF-8").into_owned()
}

#[test]
fn fronts_are_told_apart() {
    let balanced = |many: bool| {
        let mut event = balancer("/v1/basins");
        if many {
            event["multiValueHeaders"] = json!({ "host": ["x"] });
        }
        event
    };
    let mut payload_1 = rest("/v1/basins", "/v1/basins", "$default");
    payload_1["version"] = "1.0".into();
    for (event, front) in [
        (v2(URL, "/", ""), Front::FunctionUrl),
        (v2("localhost:9000", "/", ""), Front::FunctionUrl),
        (v2("127.0.0.1:9000", "/", ""), Front::FunctionUrl),
        (v2("abc.lambda-url.us-east-1.localhost.localstack.cloud:4566", "/", ""), Front::FunctionUrl),
        (v2(API, "/", ""), Front::HttpApi),
        (v2("streams.example.com", "/", ""), Front::HttpApi),
        (v2("abc.execute-api.localhost", "/", ""), Front::HttpApi),
        (payload_1, Front::HttpApi),
        (rest("/v1/basins", "/prod/v1/basins", "prod"), Front::RestApi),
        (balanced(false), Front::Balancer { multi_value_headers: false }),
        (balanced(true), Front::Balancer { multi_value_headers: true }),
    ] {
        assert_eq!(parse(event.clone()).front, front, "{event}");
    }
}

#[test]
fn every_name_arrives_through_the_fronts_that_keep_it() {
    for (expected, written) in NAMES {
        let path = format!("/v1/streams/{written}/records");
        for event in [
            v2(URL, &path, "seq_num=0"),
            v2("localhost:9000", &path, "seq_num=0"),
            rest(&path, &format!("/prod{path}"), "prod"),
            balancer(&path),
        ] {
            let request = request(event);
            assert_eq!(request.uri().path(), path);
            assert_eq!(name(&request), expected);
        }
    }
}

#[test]
fn a_path_that_arrives_decoded_is_encoded_again_or_refused() {
    for (expected, _) in NAMES {
        let path = format!("/v1/streams/{expected}/records");
        let incoming = parse(v2(API, &path, ""));
        if expected.contains(['/', '?', '#', '%']) {
            let Err(Malformed::Path(why)) = incoming.request else { panic!("{expected}") };
            assert!(why.contains("HTTP API"), "{why}");
        } else {
            assert_eq!(name(&incoming.request.expect("a request")), expected);
        }
    }
    for path in ["/v1/streams//records", "/v1/streams/", "/v1/streams/a/", "/v1/streams/a/records/x"] {
        assert!(parse(v2(API, path, "")).request.is_err(), "{path}");
    }
    for path in ["/v1/streams", "/v1/basins/x", "/health", "/v1/streams/a/records/tail", "/"] {
        assert_eq!(request(v2(API, path, "")).uri().path(), path);
    }
}

#[test]
fn a_stage_is_no_part_of_the_path() {
    let http = |path: &str, stage: &str| {
        let mut event = v2(API, path, "");
        event["requestContext"]["stage"] = stage.into();
        event
    };
    for (event, path) in [
        (http("/prod/v1/streams/a", "prod"), "/v1/streams/a"),
        (http("/v1/v1/streams/a", "v1"), "/v1/streams/a"),
        (http("/v1/streams/a", "v1"), "/v1/streams/a"),
        (http("/prod/health", "prod"), "/health"),
        (http("/production/health", "prod"), "/production/health"),
        (rest("/v1/streams/prod", "/prod/v1/streams/prod", "prod"), "/v1/streams/prod"),
        (rest("/v1/streams/a", "/v1/v1/streams/a", "v1"), "/v1/streams/a"),
        // As some emulators send it.
        (rest("/prod/v1/streams/a", "/prod/v1/streams/a", "prod"), "/v1/streams/a"),
    ] {
        assert_eq!(request(event.clone()).uri().path(), path, "{event}");
    }
}

#[test]
fn queries_arrive_as_they_were_meant() {
    let raw = "prefix=a%2Fb%26c&x=1+2";
    assert_eq!(request(v2(URL, "/v1/streams", raw)).uri().query(), Some(raw));
    assert_eq!(request(v2(URL, "/v1/streams", "")).uri().query(), None);
    let mut event = rest("/v1/streams", "/prod/v1/streams", "prod");
    event["queryStringParameters"] = json!({ "prefix": "a/b&c d", "limit": "2" });
    assert_eq!(request(event.clone()).uri().query(), Some("limit=2&prefix=a%2Fb%26c%20d"));
    event["multiValueQueryStringParameters"] = json!({ "prefix": ["a/b&c d"], "limit": ["2", "3"] });
    assert_eq!(request(event).uri().query(), Some("limit=2&limit=3&prefix=a%2Fb%26c%20d"));
    let mut event = balancer("/v1/streams");
    event["queryStringParameters"] = json!({ "prefix": "a%2Fb%26c+d", "limit": "2" });
    assert_eq!(request(event).uri().query(), Some("limit=2&prefix=a%2Fb%26c+d"));
}

#[test]
fn headers_and_cookies_arrive() {
    let mut event = v2(URL, "/", "");
    event["cookies"] = json!(["a=1", "b=2"]);
    event["headers"]["content-length"] = "7".into();
    event["headers"]["x-name"] = "é".into();
    let headers = request(event).headers().clone();
    assert_eq!(headers["s2-basin"], "demo-basin");
    assert_eq!(headers["cookie"], "a=1; b=2");
    assert_eq!(headers["x-name"].as_bytes(), "é".as_bytes());
    assert!(!headers.contains_key("content-length"));
    let headers = request(rest("/", "/prod/", "prod")).headers().clone();
    assert_eq!(headers["s2-basin"], "demo-basin");
    assert_eq!(headers.get_all("x-many").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(request(balancer("/")).headers()["s2-basin"], "demo-basin");
}

#[test]
fn bodies_are_the_same_bytes() {
    let bytes: Vec<u8> = (0..=255).collect();
    let mut event = v2(URL, "/", "");
    event["body"] = BASE64_STANDARD.encode(&bytes).into();
    event["isBase64Encoded"] = true.into();
    assert_eq!(request(event).body(), &bytes);
    let mut event = balancer("/");
    event["body"] = "é\u{0}\u{feff}".into();
    assert_eq!(request(event).body(), "é\u{0}\u{feff}".as_bytes());
    assert!(request(v2(URL, "/", "")).body().is_empty());
}

#[test]
fn what_cannot_be_understood_is_malformed_and_no_panic() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut event = v2(URL, "/v1/basins", "");
        change(&mut event);
        parse(event).request.expect_err("malformed")
    };
    let base64 = |body: &'static str| {
        with(&move |event| {
            event["body"] = body.into();
            event["isBase64Encoded"] = true.into();
        })
    };
    assert!(matches!(base64("%%%"), Malformed::Body(_)));
    assert!(matches!(base64("YQ"), Malformed::Body(_)));
    for path in ["", "v1/basins", "/a b", "/\u{7f}", "/a?b", "/a#b", &format!("/{}", "x".repeat(70_000))] {
        assert!(matches!(with(&|event| event["rawPath"] = path.into()), Malformed::Path(_)), "{path}");
    }
    for query in ["a b", "x=#", "\u{0}", "x=\n"] {
        let malformed = with(&|event| event["rawQueryString"] = query.into());
        assert!(matches!(malformed, Malformed::Query(_)), "{query:?}");
    }
    for (name, value) in [("a b", "x"), ("", "x"), ("x", "a\nb"), ("x", "a\u{0}")] {
        let malformed = with(&|event| event["headers"][name] = value.into());
        assert!(matches!(malformed, Malformed::Header(_)), "{name:?}: {value:?}");
    }
    let method = with(&|event| event["requestContext"]["http"]["method"] = "G T".into());
    assert!(matches!(method, Malformed::Path(_)));
}

#[test]
fn an_event_that_is_no_request_is_said_to_be_none() {
    let schedule = json!({
        "version": "0", "id": "1", "detail-type": "Scheduled Event", "source": "aws.events",
        "time": "2026-11-30T00:00:00Z", "region": "eu-central-1", "resources": [], "detail": {},
    });
    for (event, part) in [
        (schedule, "this event of `aws.events` is none"),
        (json!({}), "this event is none"),
        (json!({ "Records": [{ "eventSource": "aws:sqs" }] }), "this event is none"),
        (json!({ "requestContext": {}, "httpMethod": "GET" }), "this event is none"),
        (json!({ "requestContext": { "http": { "method": "GET" } } }), "this event is none"),
    ] {
        let event: Event = serde_json::from_value(event).expect("an object");
        let message = event.into_incoming().expect_err("no request").to_string();
        assert!(message.contains(part), "{message}");
    }
    let error = serde_json::from_value::<Event>(json!("tick")).expect_err("no object").to_string();
    assert!(error.contains("an HTTP event of a Function URL"), "{error}");
}

proptest::proptest! {
    #[test]
    fn no_event_panics(path in "\\PC{0,30}|[/%?#a.]{0,20}", query in "\\PC{0,20}|[&=%#]{0,10}", body in "\\PC{0,20}") {
        for domain in [URL, API] {
            let mut event = v2(domain, &path, &query);
            event["body"] = body.clone().into();
            event["isBase64Encoded"] = true.into();
            let _request = parse(event).request;
        }
    }
}
