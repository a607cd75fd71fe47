//! The table service error → status, code, headers; and every error this door makes itself (*pure*).
//!
//! Source: Durable Streams protocol. Clients decide by the status. A producer takes every 409 for a gap in its own
//! order and sends again what it thinks is missing, for ever; unless it is told that what it sent is what was
//! expected.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::names as n;
use super::place;
use crate::api::body::BodyError;
use crate::api::s2::respond::json_bytes;
use crate::api::uri::BadQuery;
use crate::service;
use crate::service::durable;
use crate::types::ledger::{Producer, Refusal, Refused};

/// The result of a handler.
pub(super) type Result<T> = std::result::Result<T, Error>;

/// An answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Error {
    status: StatusCode,
    code: &'static str,
    message: String,
    headers: Vec<(HeaderName, String)>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    message: &'a str,
}

impl Error {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), headers: Vec::new() }
    }

    /// A request that says something that cannot be.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(super) fn not_found(message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    fn conflict(code: &'static str, message: String) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    fn with(mut self, name: HeaderName, value: impl std::fmt::Display) -> Self {
        self.headers.push((name, format!("{value}")));
        self
    }

    /// The answer to an append of a producer.
    pub(super) fn for_producer(self, producer: Option<&Producer>) -> Self {
        let is_told = self.headers.iter().any(|(name, _)| *name == n::PRODUCER_EXPECTED_SEQ);
        match producer {
            Some(producer) if self.status == StatusCode::CONFLICT && !is_told => {
                self.with(n::PRODUCER_EXPECTED_SEQ, producer.seq).with(n::PRODUCER_RECEIVED_SEQ, producer.seq)
            }
            _ => self,
        }
    }

    fn refused(message: String, Refused { why, tail, is_closed, .. }: Refused) -> Self {
        let error = match why {
            Refusal::StaleEpoch { epoch } => {
                Self::new(StatusCode::FORBIDDEN, "stale_epoch", message).with(n::PRODUCER_EPOCH, epoch)
            }
            Refusal::EpochBegins { .. } => Self::new(StatusCode::BAD_REQUEST, "bad_epoch", message),
            Refusal::Malformed(_) => Self::bad(message),
            Refusal::Gap { expected, received } => Self::conflict("gap", message)
                .with(n::PRODUCER_EXPECTED_SEQ, expected)
                .with(n::PRODUCER_RECEIVED_SEQ, received),
            Refusal::OtherType { .. } => Self::conflict("content_type", message),
            Refusal::WriterSeqNotAbove { .. } => Self::conflict("stream_seq", message),
            Refusal::TooManyProducers => Self::conflict("too_many_producers", message),
            Refusal::Closed | Refusal::AlreadyClosed => {
                Self::conflict("closed", message).with(n::NEXT_OFFSET, place::offset(tail))
            }
            Refusal::Unusable(_) => Self::not_found(message),
            Refusal::Duplicate { .. } => Self::conflict("duplicate", message),
            Refusal::OtherState => Self::new(StatusCode::PRECONDITION_FAILED, "other_state", message),
        };
        if is_closed { error.with(n::CLOSED, "true") } else { error }
    }

    fn from_service(message: String, error: service::Error) -> Self {
        use service::Error as E;
        match error {
            E::BasinNotFound(_) | E::StreamNotFound(_) => Self::not_found(message),
            E::RateLimited(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).with(header::RETRY_AFTER, 1)
            }
            E::TransactionConflict(_) | E::BasinDeletionPending(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).with(header::RETRY_AFTER, 1)
            }
            E::Draining => Self::draining(),
            E::AlreadyExists { .. } => Self::conflict("already_exists", message),
            E::Invalid(_) | E::BeyondTail { .. } => Self::bad(message),
            E::FencingTokenMismatch { .. } | E::SeqNumMismatch { .. } => {
                Self::new(StatusCode::PRECONDITION_FAILED, "other_state", message)
            }
            E::Storage { source, .. } | E::Indefinite { source, .. } => {
                tracing::error!(message, error = &*source as &dyn std::error::Error, "the store failed");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "storage", message)
            }
        }
    }

    /// This process is shutting down.
    pub(super) fn draining() -> Self {
        let message = service::Error::Draining.to_string();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message).with(header::RETRY_AFTER, 1)
    }
}

impl From<durable::Error> for Error {
    fn from(error: durable::Error) -> Self {
        use durable::Error as E;
        let message = error.to_string();
        match error {
            E::BucketNotFound(_) | E::StreamNotFound(_) => Self::not_found(message),
            E::BucketExists(_) => Self::conflict("bucket_exists", message),
            E::BucketNotEmpty(_) => Self::conflict("bucket_not_empty", message),
            E::Retired(_) => Self::new(StatusCode::GONE, "deleted", message),
            E::Trimmed { .. } => Self::new(StatusCode::GONE, "trimmed", message),
            E::Taken { .. } => Self::conflict("taken", message),
            E::SourceRetired(_) => Self::conflict("source_deleted", message),
            E::OtherTypeThanSource(_) => Self::conflict("content_type", message),
            E::TooManyForks(_) => Self::conflict("too_many_forks", message),
            E::OlderSnapshot { .. } => Self::conflict("older_snapshot", message),
            E::SnapshotBeyondTail { .. } => Self::conflict("beyond_tail", message),
            E::BeyondTail { .. } => Self::new(StatusCode::BAD_REQUEST, "beyond_tail", message),
            E::OtherState => Self::new(StatusCode::PRECONDITION_FAILED, "other_state", message),
            E::Refused(refused) => Self::refused(message, refused),
            E::TooLarge(_) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message),
            E::Invalid(_) => Self::bad(message),
            E::Other(error) => Self::from_service(message, error),
        }
    }
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        let message = error.to_string();
        match error {
            BodyError::TooLarge(_) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message),
            BodyError::TimedOut => Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message),
            BodyError::Truncated(_) | BodyError::UnknownEncoding(_) | BodyError::Corrupt { .. } => {
                Self::bad(message)
            }
        }
    }
}

impl From<BadQuery> for Error {
    fn from(error: BadQuery) -> Self {
        Self::bad(error.to_string())
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let Self { status, code, message, headers } = self;
        let body = crate::api::s2::respond::to_json(&ErrorBody { code, message: &message });
        let mut response = json_bytes(status, body);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(why: Refusal, is_closed: bool) -> Error {
        durable::Error::Refused(Refused { why, life: [0; 16], tail: 42, is_closed }).into()
    }

    fn header<'a>(error: &'a Error, name: &HeaderName) -> Option<&'a str> {
        error.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn a_refusal_has_its_status_and_its_headers() {
        let gap = refused(Refusal::Gap { expected: 3, received: 5 }, false);
        assert_eq!(gap.status, 409);
        assert_eq!(header(&gap, &n::PRODUCER_EXPECTED_SEQ), Some("3"));
        assert_eq!(header(&gap, &n::PRODUCER_RECEIVED_SEQ), Some("5"));
        let stale = refused(Refusal::StaleEpoch { epoch: 7 }, false);
        assert_eq!((stale.status.as_u16(), header(&stale, &n::PRODUCER_EPOCH)), (403, Some("7")));
        let closed = refused(Refusal::Closed, true);
        assert_eq!((closed.status.as_u16(), header(&closed, &n::CLOSED)), (409, Some("true")));
        assert_eq!(header(&closed, &n::NEXT_OFFSET), Some("000000000000002a"));
        for (why, status) in [
            (Refusal::EpochBegins { seq: 1 }, 400),
            (Refusal::Malformed("no".to_owned()), 400),
            (Refusal::OtherType { current: "a/b".to_owned() }, 409),
            (Refusal::WriterSeqNotAbove { last: "b".to_owned() }, 409),
            (Refusal::OtherState, 412),
        ] {
            assert_eq!(refused(why.clone(), false).status, status, "{why:?}");
        }
    }

    #[test]
    fn a_producer_is_told_that_a_conflict_is_no_gap() {
        let producer = Producer::new("p", 0, 9).expect("legal");
        let told = refused(Refusal::Closed, true).for_producer(Some(&producer));
        assert_eq!(header(&told, &n::PRODUCER_EXPECTED_SEQ), Some("9"));
        assert_eq!(header(&told, &n::PRODUCER_RECEIVED_SEQ), Some("9"));
        let gap = refused(Refusal::Gap { expected: 3, received: 9 }, false).for_producer(Some(&producer));
        assert_eq!(header(&gap, &n::PRODUCER_EXPECTED_SEQ), Some("3"));
        assert_eq!(
            header(&refused(Refusal::Closed, true).for_producer(None), &n::PRODUCER_EXPECTED_SEQ),
            None
        );
    }
}
