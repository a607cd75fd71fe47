//! Answers of the Durable Streams API (*pure*).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};

use super::names as n;
use super::place;
use crate::service::durable::Status;
use crate::types::ledger::{ContentType, Lifetime};
use crate::types::record::SequencedRecord;
use crate::types::time::rfc3339;

/// An answer that is being made.
pub(super) struct Answer(Response);

impl Answer {
    /// An answer without a body.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self((status, Body::empty()).into_response())
    }

    /// An answer with a body of the stream's type.
    pub(super) fn of(content_type: &ContentType, body: Bytes) -> Self {
        Self((StatusCode::OK, Body::from(body)).into_response()).content_type(content_type)
    }

    /// Sets a header; what cannot be sent is left out.
    pub(super) fn with(mut self, name: HeaderName, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.0.headers_mut().insert(name, value);
        }
        self
    }

    /// Sets a header if that is so.
    pub(super) fn with_if(self, is_so: bool, name: HeaderName, value: &str) -> Self {
        if is_so { self.with(name, value) } else { self }
    }

    /// `content-type`.
    pub(super) fn content_type(self, content_type: &ContentType) -> Self {
        self.with(header::CONTENT_TYPE, content_type.as_str())
    }

    /// Where the stream goes on.
    pub(super) fn next(self, next: u64) -> Self {
        self.with(n::NEXT_OFFSET, place::offset(next))
    }

    /// How long the stream lives.
    pub(super) fn lifetime(self, status: &Status) -> Self {
        match status.lifetime {
            Lifetime::Endless => self,
            Lifetime::Idle(secs) => self.with(n::TTL, secs.to_string()),
            Lifetime::Until(ms) => self.with(n::EXPIRES_AT, rfc3339(ms)),
        }
    }

    pub(super) fn done(self) -> Response {
        self.0
    }
}

/// The messages as one body.
pub(super) fn body(content_type: &ContentType, messages: &[SequencedRecord]) -> Bytes {
    if let ([only], false) = (messages, content_type.is_json()) {
        return only.body.clone();
    }
    let bytes: usize = messages.iter().map(|message| message.body.len() + 1).sum();
    let mut out = BytesMut::with_capacity(bytes + 2);
    let is_json = content_type.is_json();
    if is_json {
        out.put_u8(b'[');
    }
    for (index, message) in messages.iter().enumerate() {
        if is_json && index > 0 {
            out.put_u8(b',');
        }
        out.put_slice(&message.body);
    }
    if is_json {
        out.put_u8(b']');
    }
    out.freeze()
}

/// The address of what was asked for, as its client knows it.
pub(super) fn location(uri: &Uri, headers: &HeaderMap, scheme: &str) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // The first is the client's own, where several fronts have added theirs.
    let forwarded = text("x-forwarded-proto").and_then(|all| all.split(',').next()).map(str::trim);
    let forwarded = forwarded.filter(|scheme| matches!(*scheme, "http" | "https"));
    let scheme = forwarded.or(uri.scheme_str()).unwrap_or(scheme);
    let host = text("host").or(uri.authority().map(http::uri::Authority::as_str)).unwrap_or("localhost");
    format!("{scheme}://{host}{}", uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_what_the_first_front_was_asked_for() {
        let of = |forwarded: &'static str| {
            let headers = HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static("leat.example")),
                (HeaderName::from_static("x-forwarded-proto"), HeaderValue::from_static(forwarded)),
            ]);
            location(&Uri::from_static("/ds/abcd/a%20b?x"), &headers, "http")
        };
        for (forwarded, scheme) in
            [("https", "https"), ("https, http", "https"), ("", "http"), ("x y", "http")]
        {
            assert_eq!(of(forwarded), format!("{scheme}://leat.example/ds/abcd/a%20b"), "{forwarded}");
        }
    }
}
