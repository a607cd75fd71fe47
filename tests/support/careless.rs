//! An S3 server that does not keep its word: it takes every PUT, whatever its conditions say.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Which conditions it ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignores {
    /// `If-None-Match: *`.
    IfNoneMatch,
    /// `If-Match`.
    IfMatch,
}

#[derive(Clone, Debug)]
struct Careless {
    ignores: Ignores,
    objects: Arc<Mutex<HashMap<String, (u64, Bytes)>>>,
}

/// Starts it on a free port of loopback for as long as the runtime lives; returns `host:port`.
pub async fn start(ignores: Ignores) -> String {
    let state = Careless { ignores, objects: Arc::default() };
    let app = Router::new().route("/{*key}", get(read).put(write).delete(remove)).with_state(state);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

async fn write(
    State(careless): State<Careless>,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut objects = careless.objects.lock().unwrap_or_else(PoisonError::into_inner);
    let version = objects.get(&key).map(|(version, _)| *version);
    let honours = |ignored| careless.ignores != ignored;
    let creates = headers.contains_key("if-none-match") && honours(Ignores::IfNoneMatch);
    let wanted = headers.get("if-match").filter(|_| honours(Ignores::IfMatch));
    let is_stale = wanted.is_some_and(|wanted| version.map(etag).is_none_or(|etag| wanted != etag.as_str()));
    if (creates && version.is_some()) || is_stale {
        return StatusCode::PRECONDITION_FAILED.into_response();
    }
    let next = version.unwrap_or(0) + 1;
    objects.insert(key, (next, body));
    [("etag", etag(next))].into_response()
}

async fn read(State(careless): State<Careless>, Path(key): Path<String>) -> Response {
    let objects = careless.objects.lock().unwrap_or_else(PoisonError::into_inner);
    match objects.get(&key) {
        Some((version, body)) => {
            let modified = "Mon, 30 Nov 2026 12:00:00 GMT".to_owned();
            ([("etag", etag(*version)), ("last-modified", modified)], body.clone()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn remove(State(careless): State<Careless>, Path(key): Path<String>) -> StatusCode {
    careless.objects.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    StatusCode::NO_CONTENT
}
