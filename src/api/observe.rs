//! What is known about every request: its id, one log line, its metrics; and the net under its handler.

use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tracing::Instrument;

use super::{Api, panicked};
use crate::telemetry::{HTTP_REQUEST_DURATION, HTTP_REQUESTS};
use crate::types::time::monotonic;

/// The header that names a request, in requests and answers.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// The route of a request that has none.
const NO_ROUTE: &str = "none";

/// Gives requests their ids: a counter, hashed by keys that differ from process to process.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    keys: RandomState,
    next: AtomicU64,
}

impl RequestIds {
    /// The client's id where it is sane, else a new one.
    fn choose(&self, headers: &HeaderMap) -> HeaderValue {
        let given = headers.get(REQUEST_ID).filter(|value| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&value.len())
                && value.as_bytes().iter().all(u8::is_ascii_graphic)
        });
        given.cloned().unwrap_or_else(|| self.generate())
    }

    fn generate(&self) -> HeaderValue {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}", self.keys.hash_one(count));
        HeaderValue::try_from(id).expect("hexadecimal digits are legal in a header")
    }
}

/// Answers for a handler that panics. Inside of what every answer carries, so that this one does too.
pub(super) async fn catch(request: Request, next: Next) -> Response {
    let outcome = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    outcome.unwrap_or_else(|payload| panicked(&*payload).into_response())
}

/// Runs a request inside its span, and counts and logs its answer.
pub(super) async fn observe(
    State(api): State<Api>,
    matched: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let started = monotonic();
    let id = api.request_ids.choose(request.headers());
    let method = method_label(request.method());
    let route = matched.as_ref().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", request_id = id.to_str().unwrap_or_default());

    let mut response = next.run(request).instrument(span.clone()).await;
    response.headers_mut().insert(REQUEST_ID, id);

    let elapsed = started.elapsed();
    let code = response.status().as_u16();
    span.in_scope(|| {
        tracing::info!(method, route, code, duration_ms = milliseconds(elapsed), "answered");
    });
    let labels = [("route", route), ("method", method.to_owned()), ("code", code.to_string())];
    metrics::counter!(HTTP_REQUESTS, &labels).increment(1);
    metrics::histogram!(HTTP_REQUEST_DURATION, &labels).record(elapsed);
    response
}

/// For people: to the microsecond.
fn milliseconds(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 1e6).round() / 1e3
}

/// The method as a label; methods are free text, labels must not be.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_request_id_is_kept_and_another_is_replaced() {
        let ids = RequestIds::default();
        let choose = |given: &[u8]| {
            let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_bytes(given).unwrap())]);
            ids.choose(&headers)
        };
        for good in ["a", "3f2a-7", &"x".repeat(64)] {
            assert_eq!(choose(good.as_bytes()), good);
        }
        for bad in ["", "a b", "a\tb", "é", &"x".repeat(65)] {
            assert_eq!(choose(bad.as_bytes()).len(), 16, "{bad}");
        }
        assert_ne!(ids.generate(), ids.generate());
    }

    #[test]
    fn durations_are_logged_to_the_microsecond() {
        for (nanos, expected) in [(0, "0"), (1_499, "0.001"), (1_234_567, "1.235"), (90_000_000_000, "90000")]
        {
            assert_eq!(milliseconds(Duration::from_nanos(nanos)).to_string(), expected);
        }
    }
}
