//! Answers as the fronts take them: whole, in JSON, or a head that goes ahead of a body that is streamed.
//!
//! Pure. A header has one value: fronts drop the others of an array, or fail on it. What is about a connection is
//! the front's own. An answer without a content type is given one, because the front would say it is JSON.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::event::Front;

/// The type of an answer that names none.
const UNTYPED: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Headers that are the front's own, beside those of [`header`].
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Room of an answer, as JSON: of Lambda, and of a load balancer.
const BYTES_MAX: usize = 6 * 1024 * 1024;
const BALANCER_BYTES_MAX: usize = 1024 * 1024;
/// What a byte of a text may become as JSON.
const ESCAPED_BYTES_MAX: usize = 6;

/// An answer that goes out whole.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    status_code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_description: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    multi_value_headers: BTreeMap<String, [String; 1]>,
    is_base64_encoded: bool,
    body: String,
}

/// It does not fit into the front, neither as text nor as base64.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) bytes: usize,
    pub(super) bytes_max: usize,
}

/// How much an answer of this front may hold that goes out whole.
pub(super) fn bytes_max(front: Front) -> usize {
    match front {
        Front::Balancer { .. } => BALANCER_BYTES_MAX,
        Front::FunctionUrl | Front::HttpApi | Front::RestApi => BYTES_MAX,
    }
}

/// The headers that go to the front, each once.
pub(super) fn headers(headers: &HeaderMap) -> HeaderMap {
    let mut folded = HeaderMap::new();
    for name in headers.keys().filter(|name| !is_of_the_front(name)) {
        let values: Vec<&str> =
            headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        if let (false, Ok(value)) = (values.is_empty(), HeaderValue::from_str(&values.join(", "))) {
            folded.insert(name, value);
        }
    }
    folded.entry(header::CONTENT_TYPE).or_insert(UNTYPED);
    folded
}

fn is_of_the_front(name: &HeaderName) -> bool {
    [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::PROXY_AUTHENTICATE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        KEEP_ALIVE,
    ]
    .contains(name)
}

/// Whether a body may be empty although it is streamed: where some are lost, with their status.
pub(super) fn may_be_empty(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The whole answer.
pub(super) fn whole(front: Front, parts: &Parts, body: &[u8]) -> Result<Answer, TooLong> {
    let headers = headers(&parts.headers);
    let text = std::str::from_utf8(body).ok().filter(|_| body.is_empty() || is_text(&headers));
    let mut answer = empty(front, parts.status, &headers);
    let head = serde_json::to_vec(&answer).map_or(0, |json| json.len());
    let bytes_max = bytes_max(front);
    let base64_bytes = head + body.len().div_ceil(3) * 4;
    match text {
        Some(text) if fits(text, bytes_max.saturating_sub(head)) => text.clone_into(&mut answer.body),
        // Escapes may make a text larger than base64 is.
        _ if base64_bytes <= bytes_max => {
            answer.is_base64_encoded = true;
            answer.body = BASE64_STANDARD.encode(body);
        }
        _ => return Err(TooLong { bytes: base64_bytes, bytes_max }),
    }
    Ok(answer)
}

/// Whether a text has this many bytes at most as JSON.
fn fits(text: &str, bytes_max: usize) -> bool {
    let escaped = || serde_json::to_string(text).map_or(usize::MAX, |json| json.len());
    text.len() * ESCAPED_BYTES_MAX <= bytes_max || escaped() <= bytes_max
}

fn empty(front: Front, status: StatusCode, headers: &HeaderMap) -> Answer {
    let pairs =
        headers.iter().filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
    let mut answer = Answer {
        status_code: status.as_u16(),
        status_description: None,
        headers: BTreeMap::new(),
        multi_value_headers: BTreeMap::new(),
        is_base64_encoded: false,
        body: String::new(),
    };
    if let Front::Balancer { .. } = front {
        answer.status_description = Some(status.to_string());
    }
    match front {
        Front::Balancer { multi_value_headers: true } => {
            answer.multi_value_headers = pairs.map(|(name, value)| (name, [value])).collect();
        }
        _ => answer.headers = pairs.collect(),
    }
    answer
}

/// Whether the body is text by its type, and not compressed.
fn is_text(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = kind.starts_with("text/") || kind == "application/json" || kind.ends_with("+json");
    is_text && !headers.contains_key(header::CONTENT_ENCODING)
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn parts(status: u16, headers: &[(&str, &str)]) -> Parts {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap().into_parts().0
    }

    fn json(front: Front, parts: &Parts, body: &[u8]) -> serde_json::Value {
        serde_json::to_value(whole(front, parts, body).unwrap()).unwrap()
    }

    #[test]
    fn headers_are_folded_and_those_of_a_connection_left_out() {
        let parts = parts(
            200,
            &[
                ("vary", "origin"),
                ("vary", "accept"),
                ("connection", "close"),
                ("transfer-encoding", "chunked"),
                ("content-length", "3"),
                ("content-type", "text/plain"),
            ],
        );
        let answer = json(Front::FunctionUrl, &parts, b"abc");
        let expected = serde_json::json!({
            "statusCode": 200,
            "headers": { "vary": "origin, accept", "content-type": "text/plain" },
            "isBase64Encoded": false,
            "body": "abc",
        });
        assert_eq!(answer, expected);
    }

    #[test]
    fn text_stays_text_and_all_else_is_base64() {
        let table: [(&str, &[u8], bool); 7] = [
            ("application/json", "{\"é\":1}".as_bytes(), false),
            ("application/problem+json; charset=utf-8", b"{}", false),
            ("text/event-stream", b"data: x\n\n", false),
            ("text/plain", b"\xff\xfe", true),
            ("application/protobuf", b"plain", true),
            ("s2s/proto", &[0, 0, 1], true),
            ("", b"", false),
        ];
        for (kind, body, is_base64) in table {
            let headers: &[(&str, &str)] = if kind.is_empty() { &[] } else { &[("content-type", kind)] };
            let answer = json(Front::HttpApi, &parts(200, headers), body);
            assert_eq!(answer["isBase64Encoded"], is_base64, "{kind}");
            let sent = answer["body"].as_str().unwrap();
            let sent =
                if is_base64 { BASE64_STANDARD.decode(sent).unwrap() } else { sent.as_bytes().to_vec() };
            assert_eq!(sent, body, "{kind}");
        }
        let compressed = parts(200, &[("content-type", "text/plain"), ("content-encoding", "gzip")]);
        assert_eq!(json(Front::RestApi, &compressed, b"x")["isBase64Encoded"], true);
    }

    #[test]
    fn an_answer_without_a_type_is_not_said_to_be_json() {
        let answer = json(Front::FunctionUrl, &parts(202, &[("content-length", "0")]), b"");
        assert_eq!(answer["headers"], serde_json::json!({ "content-type": "application/octet-stream" }));
        assert_eq!((&answer["body"], &answer["isBase64Encoded"]), (&"".into(), &false.into()));
    }

    #[test]
    fn a_load_balancer_gets_what_its_target_group_wants() {
        for multi_value_headers in [false, true] {
            let answer = json(Front::Balancer { multi_value_headers }, &parts(404, &[]), b"");
            assert_eq!(answer["statusDescription"], "404 Not Found");
            assert_eq!(answer.get("headers").is_none(), multi_value_headers);
            assert_eq!(answer.get("multiValueHeaders").is_some(), multi_value_headers);
        }
    }

    #[test]
    fn an_answer_is_as_long_as_its_front_takes_and_no_longer() {
        let text = parts(200, &[("content-type", "application/json")]);
        let bytes = parts(200, &[("content-type", "application/protobuf")]);
        for (front, bytes_max) in [
            (Front::FunctionUrl, BYTES_MAX),
            (Front::Balancer { multi_value_headers: false }, BALANCER_BYTES_MAX),
        ] {
            for len in [bytes_max / 8, bytes_max / 2, bytes_max * 3 / 4 - 1_000] {
                for (parts, body) in [
                    (&text, vec![b'a'; len]),
                    (&text, vec![b'"'; len]),
                    (&text, vec![1; len]),
                    (&bytes, vec![0xff; len]),
                ] {
                    let sent = serde_json::to_vec(&whole(front, parts, &body).unwrap()).unwrap();
                    assert!(sent.len() <= bytes_max, "{len}");
                }
            }
            assert!(whole(front, &text, &vec![b'a'; bytes_max - 1_000]).is_ok());
            for (parts, body) in [(&text, vec![b'"'; bytes_max]), (&bytes, vec![0; bytes_max * 3 / 4])] {
                let TooLong { bytes, bytes_max: told } = whole(front, parts, &body).unwrap_err();
                assert!(bytes > told && told == bytes_max, "{bytes}");
            }
        }
    }
}
