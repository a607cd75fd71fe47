//! Requests through the whole router, as far as they get without a service.

use axum::body::Body;
use futures::stream;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;
use crate::service::Options;
use crate::types::limits::REQUEST_BODY_BYTES_MAX;

const RECORDS: &str = "/v1/streams/a/records";

fn service() -> Service {
    Service::new(crate::store::memory(), Clock::system(), Options::default())
}

/// An answer, collected.
struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

impl Answer {
    /// The code of an error, which must be JSON with a code, a message and its type.
    fn code(&self) -> String {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/json", "{}", self.body);
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert!(!body["message"].as_str().unwrap().is_empty());
        body["code"].as_str().unwrap().to_owned()
    }
}

async fn send_to(options: ApiOptions, request: Request) -> Answer {
    let response = router(service(), options).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    assert!(parts.headers.contains_key("x-request-id"));
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Sends a request; `headers` are `name: value` lines over a good basin, where none is named.
async fn send(method: &str, uri: &str, headers: &[&str], body: impl Into<Body>) -> Answer {
    let mut request = http::Request::builder().method(method).uri(uri);
    if !headers.iter().any(|line| line.starts_with("s2-basin")) {
        request = request.header("s2-basin", "orders-eu");
    }
    for line in headers {
        let (name, value) = line.split_once(':').unwrap();
        request = request.header(name, value.trim());
    }
    send_to(ApiOptions::default(), request.body(body.into()).unwrap()).await
}

async fn refused(method: &str, uri: &str, headers: &[&str], body: &str) -> (u16, String) {
    let answer = send(method, uri, headers, body.to_owned()).await;
    (answer.status, answer.code())
}

#[tokio::test]
async fn health_and_ping_answer_ok() {
    for path in ["/health", "/ping"] {
        let answer = send("GET", path, &[], "").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "OK"));
    }
    assert_eq!(refused("GET", "/metrics", &[], "").await, (404, "not_found".into()));
}

#[tokio::test]
async fn requests_are_counted_by_route_and_not_by_path() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let options = ApiOptions { metrics: Some(recorder.handle()), ..Default::default() };
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    for uri in ["/v1/streams/secret%2Fname/records?seq_num=x", "/nowhere/else", "/metrics"] {
        let request = http::Request::builder().uri(uri).header("s2-basin", "orders-eu");
        send_to(options.clone(), request.body(Body::empty()).unwrap()).await;
    }
    let shown = send_to(options, Request::get("/metrics").body(Body::empty()).unwrap()).await;
    assert_eq!(shown.headers[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        r#"leat_http_requests_total{route="/v1/streams/{stream}/records",method="GET",code="400"} 1"#,
        r#"leat_http_requests_total{route="none",method="GET",code="404"} 1"#,
        r#"leat_http_requests_total{route="/metrics",method="GET",code="200"} 1"#,
        r#"leat_http_request_duration_seconds_count{route="/metrics",method="GET",code="200"} 1"#,
    ] {
        assert!(shown.body.contains(line), "{line} in {}", shown.body);
    }
    assert!(!shown.body.contains("secret"));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused_as_json() {
    for path in
        ["/", "/v1", "/v2/basins", "/v1/basins/", "/v1/streams/a/", "/v1/streams/a/b/records", "//v1/basins"]
    {
        assert_eq!(refused("GET", path, &[], "").await, (404, "not_found".into()), "{path}");
    }
    for (method, path) in
        [("POST", "/v1/streams/a"), ("DELETE", "/v1/basins"), ("BREW", "/health"), ("PUT", RECORDS)]
    {
        let answer = send(method, path, &[], "").await;
        assert_eq!((answer.status, answer.code().as_str()), (405, "method_not_allowed"), "{method} {path}");
        assert!(answer.headers.contains_key(header::ALLOW));
    }
    let head = send("HEAD", "/v1/nowhere", &[], "").await;
    assert_eq!((head.status, head.body.as_str()), (404, ""));
}

#[tokio::test]
async fn what_comes_later_says_so() {
    for (method, path) in [
        ("GET", "/v1/access-tokens"),
        ("POST", "/v1/access-tokens"),
        ("DELETE", "/v1/access-tokens/id"),
        ("GET", "/v1/metrics?set=active-basins"),
        ("GET", "/v1/metrics/orders-eu"),
        ("GET", "/v1/metrics/orders-eu/a%2Fb"),
    ] {
        assert_eq!(refused(method, path, &[], "").await, (501, "not_implemented".into()), "{path}");
    }
}

#[tokio::test]
async fn an_append_session_over_http_1_says_what_it_needs() {
    let answer = send("POST", RECORDS, &["content-type: s2s/proto"], "").await;
    assert_eq!((answer.status, answer.code().as_str()), (501, "not_implemented"));
    assert!(answer.body.contains("HTTP/2"), "{}", answer.body);
}

#[tokio::test]
async fn a_missing_or_bad_header_is_refused() {
    for (method, uri) in [
        ("GET", "/v1/streams"),
        ("POST", "/v1/streams"),
        ("GET", "/v1/streams/a"),
        ("PUT", "/v1/streams/a"),
        ("PATCH", "/v1/streams/a"),
        ("DELETE", "/v1/streams/a"),
        ("GET", RECORDS),
        ("POST", RECORDS),
        ("GET", "/v1/streams/a/records/tail"),
    ] {
        let without = http::Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        let answer = send_to(ApiOptions::default(), without).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "bad_header"), "{method} {uri}");
        let answer = refused(method, uri, &["s2-basin: No"], "").await;
        assert_eq!(answer, (400, "bad_header".into()), "{method} {uri}");
    }
    let long_key = format!("s2-encryption-key: {}", "k".repeat(45));
    for header in [
        "s2-stream-config: {",
        r#"s2-stream-config: {"retention_policy":{"age":0}}"#,
        "s2-format: hex",
        "s2-encryption-key:",
        &long_key,
    ] {
        for method in ["GET", "POST"] {
            let got = refused(method, RECORDS, &[header, "content-type: application/json"], "{}").await;
            assert_eq!(got, (400, "bad_header".into()), "{method} {header}");
        }
    }
    for uri in ["/v1/basins", "/v1/streams"] {
        let token = format!("s2-request-token: {}", "t".repeat(37));
        assert_eq!(refused("POST", uri, &[&token], "").await, (400, "bad_header".into()));
    }
    let events = "accept: text/event-stream";
    for id in ["18446744073709551615", "18446744073709551615,0,0", "-1", "abc", "5,18446744073709551615,1"] {
        let got = refused("GET", RECORDS, &[events, &format!("last-event-id: {id}")], "").await;
        assert_eq!(got, (400, "bad_header".into()), "{id}");
    }
}

#[tokio::test]
async fn a_name_that_breaks_its_rules_is_refused_however_it_is_encoded() {
    for name in
        [".", "..", "%2e", "%2E%2e", ".%2e", "a%00b", "%ff", "%C3", "%", "%zz", "a%2", &"%C3%BC".repeat(257)]
    {
        for (method, uri) in [
            ("GET", format!("/v1/streams/{name}")),
            ("DELETE", format!("/v1/streams/{name}")),
            ("GET", format!("/v1/streams/{name}/records?seq_num=0")),
            ("GET", format!("/v1/streams/{name}/records/tail")),
        ] {
            assert_eq!(refused(method, &uri, &[], "").await, (400, "bad_path".into()), "{uri}");
        }
    }
    for name in ["short", "Orders-eu", "orders%2Feu", "orders-eu-", "%2e%2e"] {
        let uri = format!("/v1/basins/{name}");
        assert_eq!(refused("GET", &uri, &[], "").await, (400, "bad_path".into()), "{uri}");
    }
}

#[tokio::test]
async fn a_bad_query_is_refused() {
    for uri in [
        "/v1/basins?limit=abc",
        "/v1/basins?prefix=Big",
        "/v1/basins?start_after=-a",
        "/v1/streams?limit=-1",
        "/v1/streams?limit=18446744073709551616",
        "/v1/streams?prefix=%00",
        "/v1/streams?prefix=a&prefix=b",
        "/v1/streams/a/records?clamp=1",
        "/v1/streams/a/records?seq_num=18446744073709551616",
        "/v1/streams/a/records?count=1.5",
        "/v1/streams/a/records?bytes=",
        "/v1/streams/a/records?wait=4294967296",
        "/v1/streams/a/records?until=x&seq_num=1&timestamp=1",
    ] {
        assert_eq!(refused("GET", uri, &[], "").await, (400, "bad_query".into()), "{uri}");
    }
    for query in
        ["seq_num=0&timestamp=0", "timestamp=5&until=5", "seq_num=1&tail_offset=18446744073709551615"]
    {
        let uri = format!("{RECORDS}?{query}");
        for accept in
            ["accept: application/json", "accept: application/protobuf", "accept: text/event-stream"]
        {
            assert_eq!(refused("GET", &uri, &[accept], "").await, (422, "invalid".into()), "{query}");
        }
    }
}

#[tokio::test]
async fn a_bad_json_body_is_refused() {
    let json = "content-type: application/json";
    for (method, uri, body, status, code) in [
        ("POST", "/v1/basins", "", 400, "bad_json"),
        ("POST", "/v1/basins", "[]", 400, "bad_json"),
        ("POST", "/v1/basins", r#"{"basin":"no"}"#, 400, "bad_json"),
        ("POST", "/v1/basins", r#"{"basin":"orders-eu","location":"x"}"#, 422, "invalid"),
        ("PUT", "/v1/basins/orders-eu", "null", 400, "bad_json"),
        ("PUT", "/v1/basins/orders-eu", r#"{"config":{"stream_cipher":"aegis-256"}}"#, 422, "invalid"),
        ("PATCH", "/v1/basins/orders-eu", "", 400, "bad_json"),
        ("PATCH", "/v1/basins/orders-eu", r#"{"create_stream_on_read":null}"#, 400, "bad_json"),
        ("POST", "/v1/streams", r#"{"stream":".."}"#, 400, "bad_json"),
        ("PUT", "/v1/streams/a", r#"{"retention_policy":{"age":0}}"#, 422, "invalid"),
        ("PUT", "/v1/streams/a", "{", 400, "bad_json"),
        ("PATCH", "/v1/streams/a", r#"{"storage_class":"turbo"}"#, 422, "invalid"),
        ("POST", RECORDS, "", 400, "bad_json"),
        ("POST", RECORDS, r#"{"records":[]}"#, 422, "invalid"),
    ] {
        assert_eq!(refused(method, uri, &[json], body).await, (status, code.into()), "{method} {uri} {body}");
    }
    for (method, uri) in [("POST", "/v1/basins"), ("PATCH", "/v1/streams/a"), ("POST", RECORDS)] {
        assert_eq!(refused(method, uri, &[], "{}").await, (400, "bad_json".into()), "{method} {uri}");
        let text = ["content-type: text/plain"];
        assert_eq!(refused(method, uri, &text, "{}").await, (400, "bad_json".into()), "{method} {uri}");
    }
    let form = ["content-type: application/x-www-form-urlencoded"];
    assert_eq!(refused("PUT", "/v1/streams/a", &form, "{}").await, (400, "bad_json".into()));
    let base64 = [json, "s2-format: base64"];
    assert_eq!(
        refused("POST", RECORDS, &base64, r#"{"records":[{"body":"?"}]}"#).await,
        (422, "invalid".into())
    );
}

#[tokio::test]
async fn a_bad_protobuf_or_compressed_body_is_refused() {
    let proto = "content-type: application/x-protobuf";
    assert_eq!(refused("POST", RECORDS, &[proto], "{}").await, (400, "bad_proto".into()));
    assert_eq!(refused("POST", RECORDS, &[proto], "").await, (422, "invalid".into()));
    let json = "content-type: application/json";
    for coding in ["content-encoding: gzip", "content-encoding: zstd"] {
        assert_eq!(refused("POST", RECORDS, &[proto, coding], "{}").await, (400, "bad_proto".into()));
        assert_eq!(refused("POST", RECORDS, &[json, coding], "{}").await, (400, "bad_json".into()));
    }
    let brotli = [json, "content-encoding: br"];
    assert_eq!(refused("POST", RECORDS, &brotli, "{}").await, (400, "bad_header".into()));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_by_naming_it() {
    let json = "content-type: application/json";
    let answer = send("POST", RECORDS, &[json], vec![b' '; REQUEST_BODY_BYTES_MAX + 1]).await;
    assert_eq!((answer.status, answer.code().as_str()), (422, "invalid"));
    assert!(answer.body.contains("2097152"), "{}", answer.body);
    let bomb = zstd::stream::encode_all(&*vec![b' '; 64 << 20], 3).unwrap();
    let answer = send("POST", RECORDS, &[json, "content-encoding: zstd"], bomb).await;
    assert_eq!((answer.status, answer.code().as_str()), (422, "invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_ends_in_a_timeout() {
    let body = Body::from_stream(stream::pending::<Result<&[u8], std::io::Error>>());
    let answer = send("POST", RECORDS, &["content-type: application/json"], body).await;
    assert_eq!((answer.status, answer.code().as_str()), (408, "request_timeout"));
}

#[tokio::test]
async fn a_draining_server_refuses_new_work_and_says_so_to_its_health_check() {
    let (sender, draining) = watch::channel(false);
    let options = ApiOptions { draining, ..Default::default() };
    sender.send(true).unwrap();
    let get = |uri: &str| Request::get(uri).body(Body::empty()).unwrap();
    for uri in ["/v1/basins", RECORDS, "/v1/nowhere"] {
        let answer = send_to(options.clone(), get(uri)).await;
        assert_eq!((answer.status, answer.code().as_str()), (503, "server_draining"));
    }
    assert_eq!(send_to(options.clone(), get("/health")).await.status, 503);
    assert_eq!(send_to(options, get("/ping")).await.status, 200);
}

#[tokio::test]
async fn browsers_may_call_and_see_what_they_need() {
    let preflight = [
        "origin: https://app.example",
        "access-control-request-method: PATCH",
        "access-control-request-headers: authorization, s2-basin",
    ];
    let answer = send("OPTIONS", "/v1/streams/a", &preflight, "").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["access-control-allow-origin"], "*");
    assert_eq!(answer.headers["access-control-allow-methods"], "*");
    assert_eq!(answer.headers["access-control-allow-headers"], "authorization, s2-basin");
    let answer = send("GET", "/v1/streams/a?x", &["origin: https://app.example", "s2-basin: no"], "").await;
    assert_eq!(answer.headers["access-control-allow-origin"], "*");
    let exposed = answer.headers["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.starts_with("s2-provision-result,x-request-id,retry-after-ms,stream-"), "{exposed}");
}

#[tokio::test]
async fn a_clients_request_id_comes_back() {
    let answer = send("GET", "/health", &["x-request-id: my-id-1"], "").await;
    assert_eq!(answer.headers["x-request-id"], "my-id-1");
}

#[tokio::test]
async fn a_panic_is_an_answer_that_carries_what_every_other_does() {
    async fn defect() {
        panic!("a secret")
    }
    let api = Api::new(service(), ApiOptions::default());
    let router = layered(Router::new().route("/ds/{bucket}", get(defect)), api);
    let response = router.oneshot(Request::get("/ds/abcd").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 500);
    for name in ["x-request-id", "x-content-type-options", "access-control-allow-origin"] {
        assert!(response.headers().contains_key(name), "{name}");
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(body.starts_with(r#"{"code":"other""#) && !body.contains("secret"), "{body}");
}

/// The body of an append session's answer; the client sends this many inputs of about 400 bytes of memory each.
async fn append_session(app: &Router, inputs: usize) -> Body {
    let mut frame = vec![0, 0, 55, 0, 0x0a, 52, 0x1a, 50];
    frame.extend([b'x'; 50]);
    let frames = stream::iter(vec![frame; inputs].into_iter().map(Ok::<_, std::io::Error>));
    let request = Request::post(RECORDS).version(http::Version::HTTP_2).header("s2-basin", "orders-eu");
    let request = request.header("content-type", "s2s/proto").body(Body::from_stream(frames)).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    response.into_body()
}

async fn app_with_session_budget(session_bytes_max: usize) -> Router {
    let service = service();
    let config = crate::types::config::BasinConfig { create_stream_on_append: true, ..Default::default() };
    service.ensure_basin(&"orders-eu".try_into().unwrap(), config).await.unwrap();
    router(service, ApiOptions { session_bytes_max, ..Default::default() })
}

/// How many acks come before the end, if it comes in time.
async fn acks(body: Body) -> usize {
    let body = tokio::time::timeout(Duration::from_secs(10), body.collect()).await.unwrap();
    let body = body.unwrap().to_bytes();
    let (mut rest, mut acks) = (&body[..], 0);
    while let [0, 0, length, 0, after @ ..] = rest {
        rest = &after[usize::from(*length) - 1..];
        acks += 1;
    }
    assert!(rest.is_empty(), "{rest:?}");
    acks
}

#[tokio::test]
async fn a_session_whose_acks_nobody_reads_gives_its_budget_back() {
    use futures::FutureExt;
    let app = app_with_session_budget(1_600).await;
    let mut deaf = append_session(&app, 4).await;
    assert!(deaf.frame().now_or_never().is_none(), "its inputs are taken, and nothing is acknowledged yet");
    assert_eq!(acks(append_session(&app, 20).await).await, 20);
    assert_eq!(acks(deaf).await, 4);
}

#[tokio::test]
async fn an_input_larger_than_the_whole_budget_waits_for_all_of_it() {
    let app = app_with_session_budget(100).await;
    let (one, two) = tokio::join!(append_session(&app, 5), append_session(&app, 5));
    assert_eq!(tokio::join!(acks(one), acks(two)), (5, 5));
}

#[tokio::test]
async fn without_the_token_only_health_and_preflights_are_answered() {
    let options = || ApiOptions {
        auth: Auth::Token(RootToken::new("0123456789abcdef").unwrap()),
        ..ApiOptions::default()
    };
    let ask = async |method: &str, path: &str, token: Option<&str>| {
        let mut request = http::Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        send_to(options(), request.body(Body::empty()).unwrap()).await
    };
    for path in ["/health", "/ping"] {
        assert_eq!(ask("GET", path, None).await.status, 200, "{path}");
    }
    let preflight = http::Request::builder()
        .method("OPTIONS")
        .uri("/v1/basins")
        .header(header::ORIGIN, "https://example.com")
        .header(header::ACCESS_CONTROL_REQUEST_METHOD, "GET")
        .body(Body::empty())
        .unwrap();
    assert_eq!(send_to(options(), preflight).await.status, 200);
    for (method, path) in [
        ("GET", "/v1/basins"),
        ("POST", RECORDS),
        ("GET", "/metrics"),
        ("GET", "/nothing"),
        ("GET", "/health/"),
    ] {
        for token in [None, Some("Bearer fedcba9876543210"), Some("Basic 0123456789abcdef")] {
            let answer = ask(method, path, token).await;
            assert_eq!((answer.status, answer.code().as_str()), (401, "authn"), "{method} {path}");
            assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Bearer");
        }
        assert_ne!(ask(method, path, Some("Bearer 0123456789abcdef")).await.status, 401, "{method} {path}");
    }
}

#[tokio::test]
async fn a_whole_answer_is_compressed_for_clients_that_take_it() {
    const LONG: usize = 100_000;
    async fn messages(axum::extract::Path(bytes): axum::extract::Path<usize>) -> Response {
        let tag = [(header::CONTENT_TYPE, "text/plain"), (header::ETAG, "\"tag\"")];
        (tag, "a".repeat(bytes)).into_response()
    }
    async fn events() -> Response {
        let pieces = stream::iter([Ok::<_, std::io::Error>("data: x\n\n".repeat(LONG))]);
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(pieces)).into_response()
    }
    let ask = async |path: &str, accept: Option<&str>| {
        let api = Api::new(service(), ApiOptions::default());
        let routes = Router::new().route("/messages/{bytes}", get(messages)).route("/events", get(events));
        let mut request = http::Request::builder().uri(path);
        if let Some(accept) = accept {
            request = request.header("accept-encoding", accept);
        }
        let response = layered(routes, api).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.headers, body.collect().await.unwrap().to_bytes())
    };
    for (accept, coding) in
        [("gzip, deflate", compression::Coding::Gzip), ("gzip, zstd;q=0.1", compression::Coding::Zstd)]
    {
        for bytes in [2_000, LONG] {
            let (headers, body) = ask(&format!("/messages/{bytes}"), Some(accept)).await;
            assert_eq!(headers[header::CONTENT_ENCODING], coding.as_str());
            assert_eq!(headers[header::ETAG], "W/\"tag\"");
            assert_eq!(headers[header::CONTENT_LENGTH], body.len().to_string());
            assert!(body.len() < 1_000, "{}", body.len());
            assert!(headers.get_all(header::VARY).iter().any(|vary| vary == "accept-encoding"));
            assert_eq!(compression::inflate(coding, &body, LONG).unwrap(), "a".repeat(bytes));
        }
    }
    for accept in [None, Some("identity"), Some("br"), Some("gzip;q=0")] {
        let (headers, body) = ask(&format!("/messages/{LONG}"), accept).await;
        assert_eq!((body.len(), headers.get(header::CONTENT_ENCODING)), (LONG, None), "{accept:?}");
        assert_eq!(headers[header::ETAG], "\"tag\"");
        assert!(headers.get_all(header::VARY).iter().any(|vary| vary == "accept-encoding"), "{accept:?}");
    }
    for path in ["/messages/1000", "/events"] {
        let (headers, _) = ask(path, Some("gzip")).await;
        assert!(!headers.contains_key(header::CONTENT_ENCODING), "{path}");
    }
}
