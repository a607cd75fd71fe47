//! Answers: status, content type, body.

use axum::Extension;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::types::stream::Provision;

/// What a create or an ensure did; some clients fail without it.
pub(crate) const PROVISION_RESULT: HeaderName = HeaderName::from_static("s2-provision-result");

/// How long to wait before a refused request is sent again, in milliseconds.
pub(crate) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Writes JSON.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("wire types have text keys only and cannot fail to serialize")
}

/// A JSON answer.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    json_bytes(status, to_json(value))
}

/// A JSON answer, already written.
pub(crate) fn json_bytes(status: StatusCode, json: Vec<u8>) -> Response {
    with_type(status, "application/json", json)
}

/// A protobuf answer, already written.
pub(super) fn proto(message: Vec<u8>) -> Response {
    with_type(StatusCode::OK, "application/protobuf", message)
}

/// The content type of a session.
pub(super) const SESSION: &str = "s2s/proto";

/// An extension of an answer whose body goes on.
#[derive(Clone, Copy, Debug)]
pub struct Live;

/// An answer whose body goes on: nothing between here and the client may keep or change it.
pub(crate) fn stream(content_type: &'static str, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (Extension(Live), headers, body).into_response()
}

fn with_type(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response {
    let content_type = HeaderValue::from_static(content_type);
    (status, [(header::CONTENT_TYPE, content_type)], Bytes::from(body)).into_response()
}

/// The answer to a create or an ensure.
pub(super) fn provisioned<T: Serialize>(status: StatusCode, result: Provision, value: &T) -> Response {
    let mut response = json(status, value);
    response.headers_mut().insert(PROVISION_RESULT, HeaderValue::from_static(result.as_str()));
    response
}

/// The status of an ensure.
pub(super) fn ensure_status(result: Provision) -> StatusCode {
    match result {
        Provision::Created => StatusCode::CREATED,
        Provision::Updated | Provision::Noop => StatusCode::OK,
    }
}

/// An accepted deletion. Without a content type and with a length of 0, or clients try to read JSON.
pub(super) fn accepted() -> Response {
    (StatusCode::ACCEPTED, [(header::CONTENT_LENGTH, HeaderValue::from_static("0"))], Body::empty())
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_deletion_has_a_length_and_no_type() {
        let response = accepted();
        assert_eq!(response.status(), 202);
        assert_eq!(response.headers()[header::CONTENT_LENGTH], "0");
        assert!(!response.headers().contains_key(header::CONTENT_TYPE));
    }

    #[test]
    fn an_ensure_is_201_only_where_it_created() {
        assert_eq!(ensure_status(Provision::Created), 201);
        assert_eq!(ensure_status(Provision::Updated), 200);
        assert_eq!(ensure_status(Provision::Noop), 200);
        let response = provisioned(StatusCode::OK, Provision::Noop, &"x");
        assert_eq!(response.headers()[PROVISION_RESULT], "noop");
    }
}
