//! The Durable Streams door: the route table, and what every answer of it carries.
//!
//! Two mounts of one set of handlers: `/ds/{bucket}/{stream}` holds names to their rules and wants its buckets made
//! first; `/v1/stream/{path}` takes any path, for clients that know no buckets. A request is checked in this order:
//! path, headers and query, body, and only then the service is called.

mod append;
mod buckets;
mod create;
mod error;
mod headers;
mod names;
mod place;
mod read;
mod respond;
mod snapshots;
mod sse;
mod streams;
mod target;
mod wait;

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{MethodRouter, get, put};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::Api;
use names as n;

/// Headers of answers that a browser's script may read.
pub(super) const EXPOSED: [HeaderName; 19] = [
    n::NEXT_OFFSET,
    n::CURSOR,
    n::UP_TO_DATE,
    n::CLOSED,
    n::TTL,
    n::EXPIRES_AT,
    n::PRODUCER_EPOCH,
    n::PRODUCER_SEQ,
    n::PRODUCER_EXPECTED_SEQ,
    n::PRODUCER_RECEIVED_SEQ,
    n::SSE_ENCODING,
    n::SNAPSHOT_OFFSET,
    header::ETAG,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CACHE_CONTROL,
    header::LOCATION,
    header::RETRY_AFTER,
    header::VARY,
];

/// Every route of the Durable Streams API.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/ds/{bucket}", put(buckets::create).get(buckets::info).delete(buckets::delete))
        .route("/ds/{bucket}/streams", get(buckets::list))
        .route("/ds/{bucket}/{stream}", stream())
        .route("/ds/{bucket}/{stream}/snapshot", get(snapshots::latest))
        .route(
            "/ds/{bucket}/{stream}/snapshot/{offset}",
            put(snapshots::put).get(snapshots::get).delete(snapshots::delete),
        )
        .route("/ds/{bucket}/{stream}/bootstrap", get(snapshots::bootstrap))
        .route("/v1/stream/{*path}", stream())
}

fn stream() -> MethodRouter<Api> {
    put(create::create).post(append::append).get(read::read).head(streams::status).delete(streams::delete)
}

/// Has every answer of this door, refusals of the layers within too, keep browsers from guessing its type and from
/// withholding it from the pages that asked; and say when to come back, if it asks to.
pub(super) async fn protect(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_own =
        |mount| path.strip_prefix(mount).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_own = is_own("/ds") || is_own("/v1/stream");
    let mut response = next.run(request).await;
    if is_own {
        let status = response.status();
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(n::RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        if status == StatusCode::SERVICE_UNAVAILABLE && !headers.contains_key(header::RETRY_AFTER) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
    }
    response
}
