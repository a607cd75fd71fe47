//! What a handler leaves of a request's body.
//!
//! A refusal often comes before the body is read. Over HTTP/1.1 the server would then close a connection on
//! which data still arrives, which the system turns into a reset: a client that sends its whole body before it
//! looks for an answer would lose the answer. So the rest is read and thrown away first, within bounds. HTTP/2
//! can end one direction of a stream, and a client that asked with `expect` waits for the answer anyway.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures::{StreamExt, stream};
use http::{StatusCode, Version, header};

use super::body::DISCARDED_BYTES_MAX;

/// Longest gap between two pieces of what is thrown away: shorter than for a body that is wanted.
const GAP_MAX: Duration = Duration::from_secs(2);

/// Runs a request, then reads what is left of its body.
pub(super) async fn discard(request: Request, next: Next) -> Response {
    let is_safe = request.version() >= Version::HTTP_2
        || request.headers().contains_key(header::EXPECT)
        || request.body().is_end_stream();
    if is_safe {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    // Lent to the handler, which drops its end whenever it likes.
    let body = Arc::new(Mutex::new(body.into_data_stream()));
    let lent = body.clone();
    let lent = Body::from_stream(stream::poll_fn(move |context| lock(&lent).poll_next_unpin(context)));
    let response = next.run(Request::from_parts(parts, lent)).await;
    // One that has been waited for in vain is not waited for again.
    if response.status() != StatusCode::REQUEST_TIMEOUT {
        let left = std::mem::replace(&mut *lock(&body), Body::empty().into_data_stream());
        drain(left).await;
    }
    response
}

fn lock(body: &Mutex<BodyDataStream>) -> MutexGuard<'_, BodyDataStream> {
    body.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn drain(mut body: BodyDataStream) {
    let mut seen = 0;
    while !body.is_end_stream() && seen <= DISCARDED_BYTES_MAX {
        match tokio::time::timeout(GAP_MAX, body.next()).await {
            Ok(Some(Ok(data))) => seen += data.len(),
            Ok(Some(Err(_)) | None) | Err(_) => return,
        }
    }
}
