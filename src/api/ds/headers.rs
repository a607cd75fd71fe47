//! What requests of the Durable Streams API say with their headers (*pure*).

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::error::{Error, Result};
use super::names::{
    CLOSED, EXPIRES_AT, FORK_OFFSET, FORK_SUB_OFFSET, LAST_EVENT_ID, PRODUCER_EPOCH, PRODUCER_ID,
    PRODUCER_SEQ, TTL, WRITER_SEQ,
};
use super::place::{self, Tags};
use crate::api::uri::{decimal, echo};
use crate::types::ledger::{ContentType, InvalidEntry, Lifetime, Producer, Then, WriterSeq};
use crate::types::time::rfc3339_ms;

/// The largest integer that every JSON number keeps.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The value of a header that is given at most once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(Error::bad(format!("header `{name}` must be given at most once")));
    }
    Ok(value)
}

/// The text of a header that is given at most once.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>> {
    let Some(value) = only(headers, name)? else { return Ok(None) };
    let text =
        value.to_str().map_err(|_opaque| Error::bad(format!("header `{name}` must be visible ASCII")))?;
    Ok(Some(text.trim()))
}

fn invalid(name: &HeaderName, InvalidEntry(why): InvalidEntry) -> Error {
    Error::bad(format!("header `{name}`: {why}"))
}

fn integer(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>> {
    let Some(text) = text(headers, name)? else { return Ok(None) };
    match decimal::<u64>(text).filter(|number| *number <= INTEGER_MAX) {
        Some(number) => Ok(Some(number)),
        None => Err(Error::bad(format!(
            "header `{name}` must be an integer from 0 to {INTEGER_MAX}, got `{}`",
            echo(text)
        ))),
    }
}

/// The same without leading zeros.
fn plain_integer(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>> {
    let number = integer(headers, name)?;
    match text(headers, name)? {
        Some(text) if text.len() > 1 && text.starts_with('0') => {
            Err(Error::bad(format!("header `{name}` must be without leading zeros, got `{}`", echo(text))))
        }
        _ => Ok(number),
    }
}

/// `content-type`.
pub(super) fn content_type(headers: &HeaderMap) -> Result<Option<ContentType>> {
    let text = text(headers, &header::CONTENT_TYPE)?.filter(|text| !text.is_empty());
    text.map(ContentType::new).transpose().map_err(|InvalidEntry(why)| Error::bad(why))
}

/// `stream-closed`: any value but `true` is as good as none.
pub(super) fn then(headers: &HeaderMap) -> Then {
    let value = headers.get(CLOSED).map(|value| value.as_bytes().trim_ascii());
    if value.is_some_and(|value| value.eq_ignore_ascii_case(b"true")) { Then::Close } else { Then::Open }
}

/// `stream-ttl` or `stream-expires-at`.
pub(super) fn lifetime(headers: &HeaderMap) -> Result<Option<Lifetime>> {
    let idle = plain_integer(headers, &TTL)?;
    let until = match text(headers, &EXPIRES_AT)? {
        None => None,
        Some(text) => Some(rfc3339_ms(text).ok_or_else(|| {
            Error::bad(format!("header `{EXPIRES_AT}` must be a time of RFC 3339, got `{}`", echo(text)))
        })?),
    };
    match (idle, until) {
        (Some(_), Some(_)) => {
            Err(Error::bad(format!("headers `{TTL}` and `{EXPIRES_AT}` exclude each other: give one")))
        }
        (idle, until) => Ok(idle.map(Lifetime::Idle).or(until.map(Lifetime::Until))),
    }
}

/// `producer-id`, `producer-epoch` and `producer-seq`: all of them or none.
pub(super) fn producer(headers: &HeaderMap) -> Result<Option<Producer>> {
    let id = text(headers, &PRODUCER_ID)?;
    match (id, integer(headers, &PRODUCER_EPOCH)?, integer(headers, &PRODUCER_SEQ)?) {
        (None, None, None) => Ok(None),
        (Some(id), Some(epoch), Some(seq)) => {
            Producer::new(id, epoch, seq).map(Some).map_err(|e| invalid(&PRODUCER_ID, e))
        }
        _ => Err(Error::bad(format!(
            "headers `{PRODUCER_ID}`, `{PRODUCER_EPOCH}` and `{PRODUCER_SEQ}` belong together: give all or none"
        ))),
    }
}

/// `stream-seq`.
pub(super) fn writer_seq(headers: &HeaderMap) -> Result<Option<WriterSeq>> {
    let value = only(headers, &WRITER_SEQ)?.map(|value| WriterSeq::new(value.as_bytes()));
    value.transpose().map_err(|e| invalid(&WRITER_SEQ, e))
}

/// `if-match`.
pub(super) fn if_match(headers: &HeaderMap) -> Option<Tags> {
    tags(headers, &header::IF_MATCH)
}

/// `if-none-match`.
pub(super) fn if_none_match(headers: &HeaderMap) -> Option<Tags> {
    tags(headers, &header::IF_NONE_MATCH)
}

fn tags(headers: &HeaderMap, name: &HeaderName) -> Option<Tags> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    Some(Tags::parse(&values.join(",")))
}

/// `last-event-id`: where to read on, and whether it was the end. One that is not ours is refused: to begin anew would
/// repeat what the client has seen.
pub(super) fn last_event(headers: &HeaderMap) -> Result<Option<(u64, bool)>> {
    let Some(text) = text(headers, &LAST_EVENT_ID)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    match place::parse_event(text) {
        Some(seen) => Ok(Some(seen)),
        None => Err(Error::bad(format!(
            "header `{LAST_EVENT_ID}` must be the id of an event of this stream, got `{}`",
            echo(text)
        ))),
    }
}

/// `stream-fork-offset`.
pub(super) fn fork_offset(headers: &HeaderMap) -> Result<Option<u64>> {
    let Some(text) = text(headers, &FORK_OFFSET)? else { return Ok(None) };
    match place::parse(text) {
        Some(at) => Ok(Some(at)),
        None => Err(Error::bad(format!("header `{FORK_OFFSET}` must be an offset, got `{}`", echo(text)))),
    }
}

/// `stream-fork-sub-offset`.
pub(super) fn fork_sub_offset(headers: &HeaderMap) -> Result<Option<u64>> {
    plain_integer(headers, &FORK_SUB_OFFSET)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| ((*name).clone(), HeaderValue::from_str(value).expect("legal")))
            .collect()
    }

    #[test]
    fn a_lifetime_is_one_of_two_and_strict() {
        assert_eq!(lifetime(&of(&[])), Ok(None));
        assert_eq!(lifetime(&of(&[(&TTL, "0")])), Ok(Some(Lifetime::Idle(0))));
        assert_eq!(lifetime(&of(&[(&TTL, "3600")])), Ok(Some(Lifetime::Idle(3_600))));
        let at = [(&EXPIRES_AT, "1970-01-01T00:00:01.5Z")];
        assert_eq!(lifetime(&of(&at)), Ok(Some(Lifetime::Until(1_500))));
        for bad in ["00060", "+60", "60.5", "1e3", "abc", "-1", ""] {
            assert!(lifetime(&of(&[(&TTL, bad)])).is_err(), "{bad}");
        }
        for bad in ["", "soon", "2030-01-01", "2030-13-01T00:00:00Z"] {
            assert!(lifetime(&of(&[(&EXPIRES_AT, bad)])).is_err(), "{bad}");
        }
        assert!(lifetime(&of(&[(&TTL, "1"), at[0]])).is_err());
    }

    #[test]
    fn a_producer_is_all_of_its_headers_or_none() {
        let id = (&PRODUCER_ID, "p");
        let (epoch, seq) = ((&PRODUCER_EPOCH, "1"), (&PRODUCER_SEQ, "9007199254740991"));
        assert_eq!(producer(&of(&[])), Ok(None));
        let whole = Producer::new("p", 1, INTEGER_MAX).expect("legal");
        assert_eq!(producer(&of(&[id, epoch, seq])), Ok(Some(whole)));
        for part in [&[id][..], &[epoch], &[id, epoch], &[epoch, seq], &[(&PRODUCER_ID, ""), epoch, seq]] {
            assert!(producer(&of(part)).is_err(), "{part:?}");
        }
        for bad in ["-1", "1.0", "9007199254740992", "x", ""] {
            assert!(producer(&of(&[id, epoch, (&PRODUCER_SEQ, bad)])).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mark_is_given_once_and_an_event_is_one_of_ours() {
        let seq = (&WRITER_SEQ, "a");
        assert!(writer_seq(&of(&[seq])).expect("legal").is_some());
        let mut twice = of(&[seq]);
        twice.append(WRITER_SEQ, HeaderValue::from_static("b"));
        assert!(writer_seq(&twice).is_err());
        let seen = |id| last_event(&of(&[(&LAST_EVENT_ID, id)]));
        assert_eq!(seen("000000000000002a:c"), Ok(Some((42, true))));
        assert_eq!(seen(""), Ok(None));
        for bad in ["abc", "-1", "now", "18446744073709551615", "5,1,1", "000000000000002a:o"] {
            assert!(seen(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_true_closes() {
        for (value, expected) in
            [("true", Then::Close), ("TRUE", Then::Close), ("1", Then::Open), ("", Then::Open)]
        {
            assert_eq!(then(&of(&[(&CLOSED, value)])), expected, "{value}");
        }
    }
}
