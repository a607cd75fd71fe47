//! Health, metrics, request ids, CORS, the log.

use serde_json::json;

use crate::support::server::ServerOptions;
use crate::world::{World, records, unique};

#[tokio::test]
async fn health_and_ping_are_ok() {
    let world = World::bare();
    for path in ["/health", "/ping"] {
        let answer = world.root("GET", path).send().await.is(200);
        assert_eq!(answer.text(), "OK");
        assert_eq!(world.root("HEAD", path).send().await.is(200).body.len(), 0);
    }
}

#[tokio::test]
async fn every_answer_has_a_request_id_and_a_sane_one_of_the_client_is_kept() {
    let world = World::new().await;
    let mut seen = std::collections::HashSet::new();
    for path in ["/health", "/v1/basins", "/v1/nowhere", "/v1/streams"] {
        let id = world.root("GET", path).send().await.header("x-request-id");
        assert_eq!(id.len(), 16, "{id}");
        assert!(seen.insert(id));
        let kept = world.root("GET", path).header("x-request-id", "trace-0af7:1").send().await;
        assert_eq!(kept.header("x-request-id"), "trace-0af7:1");
        let replaced = world.root("GET", path).header("x-request-id", &"x".repeat(65)).send().await;
        assert_eq!(replaced.header("x-request-id").len(), 16);
    }
}

#[tokio::test]
async fn metrics_count_requests_by_route_and_the_work_beneath() {
    let server = ServerOptions::on("memory:").start();
    let world = World::on(&server, "metrics-basin");
    world.create_basin(json!({})).await;
    world.stream("secret/name").await;
    for _ in 0..3 {
        world.append_bodies("secret/name", &["x", "y"]).await;
    }
    world.read("secret/name", "seq_num=0").await.is(200);
    world.read("secret/name", "seq_num=99").await.is(416);
    world.append("secret/name", json!({"records": [{}], "match_seq_num": 0})).await.is(412);
    world.root("GET", "/v1/secret").send().await.is(404);
    let answer = world.root("GET", "/metrics").send().await.is(200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text();
    for line in [
        r#"leat_http_requests_total{route="/v1/basins",method="POST",code="201"} 1"#,
        r#"leat_http_requests_total{route="/v1/streams",method="POST",code="201"} 1"#,
        r#"leat_http_requests_total{route="/v1/streams/{stream}/records",method="POST",code="200"} 3"#,
        r#"leat_http_requests_total{route="/v1/streams/{stream}/records",method="POST",code="412"} 1"#,
        r#"leat_http_requests_total{route="/v1/streams/{stream}/records",method="GET",code="416"} 1"#,
        r#"leat_http_requests_total{route="none",method="GET",code="404"} 1"#,
        r#"leat_http_request_duration_seconds_count{route="/v1/streams/{stream}/records",method="POST",code="200"} 3"#,
        r#"leat_commits_total{outcome="committed"}"#,
        "leat_commit_records_sum 6",
        "leat_commit_batches_count 3",
        r#"leat_store_requests_total{operation="#,
        r"leat_store_request_duration_seconds_bucket{",
        r#"leat_cache_requests_total{cache="manifest",result="hit"}"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("secret"), "names of clients are no labels");
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn browsers_may_call_from_anywhere_and_see_what_they_need() {
    let world = World::new().await;
    for (method, path) in
        [("PUT", "/v1/basins/some-basin"), ("POST", "/v1/streams/a%2Fb/records"), ("DELETE", "/v1/streams/s")]
    {
        let preflight = world
            .root("OPTIONS", path)
            .header("origin", "https://app.example")
            .header("access-control-request-method", method)
            .header("access-control-request-headers", "authorization, s2-basin, s2-format, last-event-id");
        let answer = preflight.send().await.is(200);
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert!(
            matches!(answer.header("access-control-allow-methods").as_str(), "*")
                || answer.header("access-control-allow-methods").contains(method)
        );
        let allowed = answer.header("access-control-allow-headers");
        for header in ["authorization", "s2-basin", "s2-format", "last-event-id"] {
            assert!(allowed.contains(header), "{allowed}");
        }
        assert!(answer.header("access-control-max-age").parse::<u64>().unwrap() > 0);
    }
    let answer = world.put("/streams/s").header("origin", "https://app.example").send().await.is(201);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert!(answer.header("access-control-expose-headers").contains("s2-provision-result"));
    // Errors too, or a browser hides them.
    let answer = world.get("/streams/none").header("origin", "https://app.example").send().await.is(404);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    let events = world.get(&records("s")).header("origin", "https://app.example").events().await;
    assert_eq!(events.headers["access-control-allow-origin"], "*");
}

#[tokio::test]
async fn the_log_names_requests_and_no_secrets() {
    let server = ServerOptions::on("memory:").start();
    let world = World::on(&server, &unique("logged"));
    world.create_basin(json!({})).await;
    world.stream("s").await;
    let append = world
        .post(&records("s"))
        .header("x-request-id", "find-me-17")
        .header("authorization", "Bearer very-secret-token")
        .header("s2-encryption-key", "very-secret-key")
        .json(&json!({"records": [{"body": "very-secret-body"}]}));
    append.send().await.is(200);
    for _ in 0..200 {
        if server.log().contains("find-me-17") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let log = server.log();
    let line = log.lines().find(|line| line.contains("find-me-17")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("/v1/streams/{stream}/records") && line.contains("200"), "{line}");
    assert!(!log.contains("very-secret"), "{log}");
}
