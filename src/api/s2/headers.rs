//! Request headers of this door: what they may hold, and what they choose.
//!
//! Pure. A known header that is repeated is refused: picking one of two basins would be a guess.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::error::{Code, Error, Result};
use super::wire::config::StreamConfig;
use super::wire::events::EventId;
use super::wire::{self, Format};
use crate::api::ranges::{essence, taken};
use crate::api::uri::echo;
use crate::types::config::StreamConfigLayer;
use crate::types::name::{BasinName, InvalidName, RequestToken};

const BASIN: HeaderName = HeaderName::from_static("s2-basin");
const REQUEST_TOKEN: HeaderName = HeaderName::from_static("s2-request-token");
const FORMAT: HeaderName = HeaderName::from_static("s2-format");
const STREAM_CONFIG: HeaderName = HeaderName::from_static("s2-stream-config");
const ENCRYPTION_KEY: HeaderName = HeaderName::from_static("s2-encryption-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Longest encryption key, in characters: base64 of 32 bytes.
const ENCRYPTION_KEY_CHARS_MAX: usize = 44;

/// What kind of body a request to the records of a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// JSON, or anything else: then the JSON reader refuses it.
    Json,
    /// One protobuf message.
    Proto,
    /// Frames of a session.
    Session,
}

/// What kind of answer a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// One JSON body.
    Json,
    /// One protobuf message.
    Proto,
    /// Server-sent events.
    Events,
}

fn bad(name: &HeaderName, why: impl std::fmt::Display) -> Error {
    Error::new(Code::BadHeader, format!("header `{name}` {why}"))
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(bad(name, "must be given at most once"));
    }
    Ok(first)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>> {
    single(headers, name)?
        .map(|value| value.to_str().map_err(|_opaque| bad(name, "must be printable ASCII")))
        .transpose()
        .map(|text| text.map(str::trim))
}

/// `s2-basin`, which every call below a basin needs.
pub(super) fn basin(headers: &HeaderMap) -> Result<BasinName> {
    let name = text(headers, &BASIN)?.ok_or_else(|| bad(&BASIN, "is missing: it names the basin"))?;
    BasinName::try_from(name).map_err(|InvalidName(why)| bad(&BASIN, format!("is refused: {why}")))
}

/// `s2-request-token`.
pub(super) fn request_token(headers: &HeaderMap) -> Result<Option<RequestToken>> {
    text(headers, &REQUEST_TOKEN)?
        .map(RequestToken::try_from)
        .transpose()
        .map_err(|InvalidName(why)| bad(&REQUEST_TOKEN, format!("is refused: {why}")))
}

/// `s2-format`.
pub(super) fn format(headers: &HeaderMap) -> Result<Format> {
    let Some(text) = text(headers, &FORMAT)? else { return Ok(Format::default()) };
    Format::parse(text)
        .ok_or_else(|| bad(&FORMAT, format!("must be `raw` or `base64`, got `{}`", echo(text))))
}

/// `s2-stream-config`: the configuration of a stream that the call creates, checked even where none is.
pub(super) fn stream_config(headers: &HeaderMap) -> Result<StreamConfigLayer> {
    let Some(value) = single(headers, &STREAM_CONFIG)? else { return Ok(StreamConfigLayer::default()) };
    wire::parse::<StreamConfig>(value.as_bytes()).and_then(TryInto::try_into).map_err(|error| match error {
        Error::Coded(_, why) => bad(&STREAM_CONFIG, format!("is refused: {why}")),
        other => other,
    })
}

/// `s2-encryption-key`: checked for its length, otherwise unused, and never repeated in a message or a log.
pub(super) fn check_encryption_key(headers: &HeaderMap) -> Result<()> {
    match text(headers, &ENCRYPTION_KEY)?.map(str::len) {
        None | Some(1..=ENCRYPTION_KEY_CHARS_MAX) => Ok(()),
        Some(len) => Err(bad(
            &ENCRYPTION_KEY,
            format!("must be 1 to {ENCRYPTION_KEY_CHARS_MAX} characters long, got {len}"),
        )),
    }
}

/// `last-event-id`.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<EventId>> {
    let Some(text) = text(headers, &LAST_EVENT_ID)? else { return Ok(None) };
    EventId::parse(text).map(Some).ok_or_else(|| {
        let why = "must be `<seq_num>,<count>,<bytes>`, each from 0 to 18446744073709551614, got";
        bad(&LAST_EVENT_ID, format!("{why} `{}`", echo(text)))
    })
}

fn content_type(headers: &HeaderMap) -> Option<String> {
    headers.get(header::CONTENT_TYPE).map(|value| essence(value.as_bytes()))
}

fn is_proto(mime: &str) -> bool {
    matches!(mime, "application/protobuf" | "application/x-protobuf")
}

/// The kind of body, by `content-type`; on a read it is what chooses a session.
pub(super) fn body_kind(headers: &HeaderMap) -> BodyKind {
    match content_type(headers).as_deref() {
        Some("s2s/proto") => BodyKind::Session,
        Some(mime) if is_proto(mime) => BodyKind::Proto,
        _ => BodyKind::Json,
    }
}

/// Whether a body is declared to be something at all.
pub(super) fn has_content_type(headers: &HeaderMap) -> bool {
    headers.contains_key(header::CONTENT_TYPE)
}

/// A JSON body must be declared as JSON.
pub(super) fn check_json_content_type(headers: &HeaderMap) -> Result<()> {
    let mime = content_type(headers).unwrap_or_default();
    let subtype = mime.strip_prefix("application/").unwrap_or_default();
    if subtype == "json" || subtype.ends_with("+json") {
        return Ok(());
    }
    let got = if mime.is_empty() { "none".to_owned() } else { format!("`{}`", echo(&mime)) };
    Err(Error::new(
        Code::BadJson,
        format!("a JSON body needs the header `content-type: application/json`, got {got}"),
    ))
}

/// The kind of answer: the first usable type in `accept`, else JSON.
pub(super) fn answer_kind(headers: &HeaderMap) -> AnswerKind {
    for taken in taken(headers, &header::ACCEPT) {
        match taken.as_str() {
            "text/event-stream" => return AnswerKind::Events,
            "application/json" => return AnswerKind::Json,
            mime if is_proto(mime) => return AnswerKind::Proto,
            _ => {}
        }
    }
    AnswerKind::Json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::config::RetentionPolicy;

    fn of(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_bytes(value.as_bytes()).unwrap())])
    }

    fn is_bad_header<T: std::fmt::Debug>(result: Result<T>, part: &str) {
        let Err(Error::Coded(Code::BadHeader, message)) = result else { panic!("{part}: {result:?}") };
        assert!(message.contains(part), "{part}: {message}");
    }

    #[test]
    fn the_basin_is_named_once_and_well() {
        assert_eq!(basin(&of(BASIN, " orders-eu ")).unwrap().as_str(), "orders-eu");
        is_bad_header(basin(&HeaderMap::new()), "`s2-basin` is missing");
        for bad in ["", "short", "Orders-eu", "orders-eü"] {
            is_bad_header(basin(&of(BASIN, bad)), "s2-basin");
        }
        let mut twice = of(BASIN, "orders-eu");
        twice.append(BASIN, HeaderValue::from_static("orders-us"));
        is_bad_header(basin(&twice), "at most once");
    }

    #[test]
    fn tokens_formats_and_keys_are_checked() {
        assert_eq!(request_token(&HeaderMap::new()), Ok(None));
        assert!(request_token(&of(REQUEST_TOKEN, &"t".repeat(36))).unwrap().is_some());
        for bad in ["", &"t".repeat(37)] {
            is_bad_header(request_token(&of(REQUEST_TOKEN, bad)), "s2-request-token");
        }
        for (text, expected) in [
            ("raw", Format::Raw),
            ("json", Format::Raw),
            ("base64", Format::Base64),
            ("json-binsafe", Format::Base64),
        ] {
            assert_eq!(format(&of(FORMAT, text)), Ok(expected));
        }
        for bad in ["", "RAW", "hex"] {
            is_bad_header(format(&of(FORMAT, bad)), "s2-format");
        }
        for good in ["x", " x ", &"k".repeat(44)] {
            assert_eq!(check_encryption_key(&of(ENCRYPTION_KEY, good)), Ok(()));
        }
        for bad in ["", "  ", &"k".repeat(45)] {
            is_bad_header(check_encryption_key(&of(ENCRYPTION_KEY, bad)), "1 to 44");
        }
        let Err(Error::Coded(_, message)) = check_encryption_key(&of(ENCRYPTION_KEY, &"secret".repeat(9)))
        else {
            panic!("accepted")
        };
        assert!(!message.contains("secret"), "{message}");
    }

    #[test]
    fn the_stream_config_is_json_however_it_is_spaced() {
        assert_eq!(stream_config(&HeaderMap::new()), Ok(StreamConfigLayer::default()));
        let spaced = stream_config(&of(STREAM_CONFIG, r#"{ "retention_policy": {"age": 5} }"#)).unwrap();
        assert_eq!(spaced.retention_policy, Some(RetentionPolicy::Age(5)));
        for bad in ["", "{", "[]", r#"{"retention_policy":{"age":0}}"#, r#"{"storage_class":"é"}"#] {
            is_bad_header(stream_config(&of(STREAM_CONFIG, bad)), "s2-stream-config");
        }
    }

    #[test]
    fn the_resume_id_never_wraps() {
        assert_eq!(last_event_id(&HeaderMap::new()), Ok(None));
        assert_eq!(last_event_id(&of(LAST_EVENT_ID, "5,1,9")).unwrap().unwrap().seq_num, 5);
        for bad in ["18446744073709551615", "18446744073709551615,0,0", "-1", "abc", ""] {
            is_bad_header(last_event_id(&of(LAST_EVENT_ID, bad)), "last-event-id");
        }
    }

    #[test]
    fn content_types_choose_the_body_and_accept_the_answer() {
        for (mime, kind) in [
            ("s2s/proto", BodyKind::Session),
            ("application/protobuf", BodyKind::Proto),
            ("Application/X-Protobuf; x=y", BodyKind::Proto),
            ("application/json", BodyKind::Json),
            ("text/plain", BodyKind::Json),
        ] {
            assert_eq!(body_kind(&of(header::CONTENT_TYPE, mime)), kind, "{mime}");
        }
        for (accept, kind) in [
            ("", AnswerKind::Json),
            ("*/*", AnswerKind::Json),
            ("text/event-stream", AnswerKind::Events),
            ("text/html, text/event-stream;q=0.9, application/protobuf", AnswerKind::Events),
            ("application/x-protobuf", AnswerKind::Proto),
            ("application/json, application/protobuf", AnswerKind::Json),
            ("text/event-stream; q=0.0, application/protobuf;q=0.1", AnswerKind::Proto),
        ] {
            assert_eq!(answer_kind(&of(header::ACCEPT, accept)), kind, "{accept}");
        }
        for good in ["application/json", "application/json; charset=utf-8", "application/problem+json"] {
            assert_eq!(check_json_content_type(&of(header::CONTENT_TYPE, good)), Ok(()), "{good}");
        }
        for bad in ["", "text/plain", "text/json", "application/x-www-form-urlencoded", "json"] {
            let error = check_json_content_type(&of(header::CONTENT_TYPE, bad)).expect_err(bad);
            assert!(matches!(error, Error::Coded(Code::BadJson, _)));
        }
    }
}
