//! Whole answers of some length go out compressed to clients that take it: bytes that leave a region cost more than the
//! time this takes. Bodies that go on are never compressed.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body as _;

use super::compression::{Coding, accepted, deflate};
use super::ranges::essence;
use super::s2::error::{Code, Error};

/// Shorter ones are not worth it.
const BYTES_MIN: u64 = 1024;
/// Longer ones are compressed where nobody else waits.
const BYTES_BETWEEN_OTHERS: usize = 64 * 1024;
/// What is compressed already.
const COMPRESSED: [&str; 6] =
    ["image/", "audio/", "video/", "application/zip", "application/gzip", "application/zstd"];

/// Compresses an answer that is worth it, if the client takes it.
pub(super) async fn encode(request: Request, next: Next) -> Response {
    let coding = accepted(request.headers());
    let response = next.run(request).await;
    if !is_worth_it(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let Some(coding) = coding else { return Response::from_parts(parts, body) };
    match compress(coding, body).await {
        Ok(body) => {
            describe(&mut parts.headers, coding);
            Response::from_parts(parts, body)
        }
        Err(why) => {
            tracing::error!(%why, "an answer could not be compressed");
            Error::new(Code::Other, "the server failed on this request; its log tells more").into_response()
        }
    }
}

fn is_worth_it(response: &Response) -> bool {
    let headers = response.headers();
    let kind = headers.get(header::CONTENT_TYPE).map(|value| essence(value.as_bytes())).unwrap_or_default();
    response.status() == StatusCode::OK
        && response.body().size_hint().exact().is_some_and(|bytes| bytes >= BYTES_MIN)
        && !headers.contains_key(header::CONTENT_ENCODING)
        && !COMPRESSED.iter().any(|compressed| kind.starts_with(compressed))
}

async fn compress(coding: Coding, body: Body) -> Result<Body, axum::BoxError> {
    let plain = to_bytes(body, usize::MAX).await?;
    let compressed = if plain.len() > BYTES_BETWEEN_OTHERS {
        tokio::task::spawn_blocking(move || deflate(coding, &plain)).await?
    } else {
        deflate(coding, &plain)
    };
    Ok(Body::from(compressed))
}

/// Says what was done. A tag is weak from now on: it names the same messages, not the same bytes.
fn describe(headers: &mut HeaderMap, coding: Coding) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.as_str()));
    headers.remove(header::CONTENT_LENGTH);
    let tag = headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
    let weak = tag.filter(|tag| tag.starts_with('"')).map(|tag| format!("W/{tag}"));
    if let Some(weak) = weak.and_then(|weak| HeaderValue::try_from(weak).ok()) {
        headers.insert(header::ETAG, weak);
    }
}
