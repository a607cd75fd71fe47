//! The table service error → code, status, body; and every error this door makes itself.
//!
//! Pure. Source: S2 API, errors. Clients trust the codes: one that promises "no side effects" is answered
//! only where that is certain. Bodies are JSON whatever the client asked for.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::position::{StreamPosition, TailResponse};
use super::respond;
use crate::api::body::BodyError;
use crate::service;

/// What clients are told to wait where nothing was done: a queue has moved on, or a proxy has learnt who drains.
const RETRY_AFTER_MS: HeaderValue = HeaderValue::from_static("200");

/// The result of a handler.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The code of an error: what client libraries decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// A header is missing or malformed.
    BadHeader,
    /// A name in the path breaks its rules.
    BadPath,
    /// A query parameter is malformed.
    BadQuery,
    /// The JSON body is malformed.
    BadJson,
    /// The protobuf body is malformed.
    BadProto,
    /// A frame of a session is malformed.
    BadFrame,
    /// No token, or none that is known here.
    Authn,
    /// No such basin.
    BasinNotFound,
    /// No such stream.
    StreamNotFound,
    /// No such path.
    NotFound,
    /// The path exists, but not with this method.
    MethodNotAllowed,
    /// The body came too slowly.
    RequestTimeout,
    /// The basin is on its way out.
    BasinDeletionPending,
    /// The name is taken.
    ResourceAlreadyExists,
    /// Another change came first.
    TransactionConflict,
    /// The request can never succeed as it is.
    Invalid,
    /// Too much is queued.
    RateLimited,
    /// The client went away before its body was complete.
    ClientHangup,
    /// A defect of the server.
    Other,
    /// The object store failed, or nobody knows what it did.
    Storage,
    /// Not part of this release.
    NotImplemented,
    /// This process is shutting down.
    ServerDraining,
}

impl Code {
    /// The code on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BadHeader => "bad_header",
            Self::BadPath => "bad_path",
            Self::BadQuery => "bad_query",
            Self::BadJson => "bad_json",
            Self::BadProto => "bad_proto",
            Self::BadFrame => "bad_frame",
            Self::Authn => "authn",
            Self::BasinNotFound => "basin_not_found",
            Self::StreamNotFound => "stream_not_found",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::BasinDeletionPending => "basin_deletion_pending",
            Self::ResourceAlreadyExists => "resource_already_exists",
            Self::TransactionConflict => "transaction_conflict",
            Self::Invalid => "invalid",
            Self::RateLimited => "rate_limited",
            Self::ClientHangup => "client_hangup",
            Self::Other => "other",
            Self::Storage => "storage",
            Self::NotImplemented => "not_implemented",
            Self::ServerDraining => "server_draining",
        }
    }

    /// The only status this code comes with: a client that sees another does not retry.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::BadHeader
            | Self::BadPath
            | Self::BadQuery
            | Self::BadJson
            | Self::BadProto
            | Self::BadFrame => StatusCode::BAD_REQUEST,
            Self::Authn => StatusCode::UNAUTHORIZED,
            Self::BasinNotFound | Self::StreamNotFound | Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BasinDeletionPending | Self::ResourceAlreadyExists | Self::TransactionConflict => {
                StatusCode::CONFLICT
            }
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::ClientHangup => StatusCode::from_u16(499).expect("499 lies in 100..1000"),
            Self::Other | Self::Storage => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::ServerDraining => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// `{"code", "message"}`.
    Coded(Code, String),
    /// 412: the current fencing token is another.
    FencingTokenMismatch(String),
    /// 412: the next sequence number is another.
    SeqNumMismatch(u64),
    /// 416: the read starts at or beyond this tail.
    BeyondTail(StreamPosition),
}

#[derive(Serialize)]
struct CodedBody<'a> {
    code: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ConditionBody<'a> {
    FencingTokenMismatch(&'a str),
    SeqNumMismatch(u64),
}

impl Error {
    /// An error with a code.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Coded(code, message.into())
    }

    /// A semantic breach.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    /// What every request gets once the server shuts down.
    pub(crate) fn draining() -> Self {
        service::Error::Draining.into()
    }

    /// The end of an answer that must be over: whoever reads on gets the rest.
    pub(crate) fn ending() -> Self {
        Self::new(Code::ServerDraining, "this answer must end here; read on after what it delivered")
    }

    /// The answer for a handler that has none when its time is over. `storage` promises nothing about side effects.
    pub(in crate::api) fn out_of_time() -> Self {
        let why = "there was no outcome before the function's time was over, so a change may or may not have \
                   happened; read it back before trying again";
        Self::new(Code::Storage, why)
    }

    /// An answer, or a record in it, that is too long for its front.
    pub(in crate::api) fn too_long(bytes: usize, bytes_max: usize) -> Self {
        Self::invalid(format!(
            "the answer takes {bytes} bytes, and this front takes at most {bytes_max}; read over a front that \
             streams, or with `accept: application/protobuf`"
        ))
    }

    /// A body that could not be had; `malformed` is the code for a body that is not what it claims to be.
    pub(in crate::api) fn from_body(error: &BodyError, malformed: Code) -> Self {
        let code = match error {
            BodyError::TooLarge(_) => Code::Invalid,
            BodyError::TimedOut => Code::RequestTimeout,
            BodyError::Truncated(_) => Code::ClientHangup,
            BodyError::UnknownEncoding(_) => Code::BadHeader,
            BodyError::Corrupt { .. } => malformed,
        };
        Self::new(code, error.to_string())
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Coded(code, _) => code.status(),
            Self::FencingTokenMismatch(_) | Self::SeqNumMismatch(_) => StatusCode::PRECONDITION_FAILED,
            Self::BeyondTail(_) => StatusCode::RANGE_NOT_SATISFIABLE,
        }
    }

    /// The JSON body of the answer, also sent where a stream ends in an error.
    pub(crate) fn body(&self) -> Vec<u8> {
        match self {
            Self::Coded(code, message) => respond::to_json(&CodedBody { code: code.as_str(), message }),
            Self::FencingTokenMismatch(current) => {
                respond::to_json(&ConditionBody::FencingTokenMismatch(current))
            }
            Self::SeqNumMismatch(next) => respond::to_json(&ConditionBody::SeqNumMismatch(*next)),
            Self::BeyondTail(tail) => respond::to_json(&TailResponse { tail: *tail }),
        }
    }
}

impl From<service::Error> for Error {
    fn from(error: service::Error) -> Self {
        use service::Error as E;
        let message = error.to_string();
        match error {
            E::BasinNotFound(_) => Self::new(Code::BasinNotFound, message),
            E::StreamNotFound(_) => Self::new(Code::StreamNotFound, message),
            E::BasinDeletionPending(_) => Self::new(Code::BasinDeletionPending, message),
            E::AlreadyExists { .. } => Self::new(Code::ResourceAlreadyExists, message),
            E::TransactionConflict(_) => Self::new(Code::TransactionConflict, message),
            E::Invalid(_) => Self::new(Code::Invalid, message),
            E::FencingTokenMismatch { current } => Self::FencingTokenMismatch(current),
            E::SeqNumMismatch { next } => Self::SeqNumMismatch(next),
            E::BeyondTail { tail } => Self::BeyondTail(tail.into()),
            E::RateLimited(_) => Self::new(Code::RateLimited, message),
            E::Draining => Self::new(Code::ServerDraining, message),
            // `storage` promises nothing about side effects, so it is true of both.
            E::Storage { source, .. } | E::Indefinite { source, .. } => {
                tracing::error!(message, error = &*source as &dyn std::error::Error, "the store failed");
                Self::new(Code::Storage, message)
            }
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = respond::json_bytes(self.status(), self.body());
        if let Self::Coded(Code::RateLimited | Code::ServerDraining, _) = self {
            response.headers_mut().insert(respond::RETRY_AFTER_MS, RETRY_AFTER_MS);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::record;

    #[test]
    fn every_code_has_its_name_and_status() {
        let table = [
            (Code::BadHeader, "bad_header", 400),
            (Code::BadPath, "bad_path", 400),
            (Code::BadQuery, "bad_query", 400),
            (Code::BadJson, "bad_json", 400),
            (Code::BadProto, "bad_proto", 400),
            (Code::BasinNotFound, "basin_not_found", 404),
            (Code::StreamNotFound, "stream_not_found", 404),
            (Code::NotFound, "not_found", 404),
            (Code::MethodNotAllowed, "method_not_allowed", 405),
            (Code::RequestTimeout, "request_timeout", 408),
            (Code::BasinDeletionPending, "basin_deletion_pending", 409),
            (Code::ResourceAlreadyExists, "resource_already_exists", 409),
            (Code::TransactionConflict, "transaction_conflict", 409),
            (Code::Invalid, "invalid", 422),
            (Code::RateLimited, "rate_limited", 429),
            (Code::ClientHangup, "client_hangup", 499),
            (Code::Other, "other", 500),
            (Code::Storage, "storage", 500),
            (Code::NotImplemented, "not_implemented", 501),
            (Code::ServerDraining, "server_draining", 503),
        ];
        for (code, name, status) in table {
            let error = Error::new(code, "why \"so\"");
            assert_eq!(error.status().as_u16(), status, "{name}");
            let body = String::from_utf8(error.body()).unwrap();
            assert_eq!(body, format!(r#"{{"code":"{name}","message":"why \"so\""}}"#));
        }
    }

    #[test]
    fn only_refusals_that_will_pass_say_when_to_come_back() {
        for (code, expected) in
            [(Code::RateLimited, true), (Code::ServerDraining, true), (Code::Storage, false)]
        {
            let response = Error::new(code, "why").into_response();
            assert_eq!(response.headers().contains_key("retry-after-ms"), expected, "{code:?}");
        }
    }

    #[test]
    fn every_service_error_has_its_answer() {
        use service::Error as E;
        let source = || -> service::Source { std::sync::Arc::new(std::io::Error::other("lost")) };
        let tail = record::StreamPosition { seq_num: 3, timestamp: u64::MAX };
        let table = [
            (E::BasinNotFound("b".into()), 404, r#""code":"basin_not_found""#),
            (E::StreamNotFound("s".into()), 404, r#""code":"stream_not_found""#),
            (E::BasinDeletionPending("b".into()), 409, r#""code":"basin_deletion_pending""#),
            (
                E::AlreadyExists { kind: "stream", name: "s".into() },
                409,
                r#""code":"resource_already_exists","message":"stream `s` already exists""#,
            ),
            (E::TransactionConflict("b".into()), 409, r#""code":"transaction_conflict""#),
            (E::Invalid("why".into()), 422, r#"{"code":"invalid","message":"why"}"#),
            (E::FencingTokenMismatch { current: "t".into() }, 412, r#"{"fencing_token_mismatch":"t"}"#),
            (E::SeqNumMismatch { next: u64::MAX }, 412, r#"{"seq_num_mismatch":18446744073709551615}"#),
            (E::BeyondTail { tail }, 416, r#"{"tail":{"seq_num":3,"timestamp":18446744073709551615}}"#),
            (E::RateLimited("slow".into()), 429, r#""code":"rate_limited""#),
            (E::Draining, 503, r#""code":"server_draining""#),
            (E::Storage { message: "m".into(), source: source() }, 500, r#""code":"storage""#),
            (E::Indefinite { message: "m".into(), source: source() }, 500, r#""code":"storage""#),
        ];
        for (error, status, part) in table {
            let answer = Error::from(error);
            assert_eq!(answer.status().as_u16(), status, "{part}");
            let body = String::from_utf8(answer.body()).unwrap();
            assert!(body.contains(part), "{body}");
        }
    }
}
