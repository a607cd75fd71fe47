//! `GET`: what is there, and what is still to come.

use axum::extract::State;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::error::{Error, Result};
use super::place::Reach;
use super::respond::{Answer, body};
use super::target::Target;
use super::wait::wait;
use super::{headers as h, names as n, place, sse};
use crate::api::terms::Terms;
use crate::api::uri::{Query, echo};
use crate::api::{Api, Auth};
use crate::service::durable::{ReadFrom, Reader, Status};
use crate::types::record::SequencedRecord;

/// What an answer holds at most, unless one message alone is larger.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// How a read goes on at the end of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Live {
    No,
    LongPoll,
    Events,
}

/// What a query asks for.
#[derive(Clone, Debug)]
struct Params {
    from: ReadFrom,
    live: Live,
    cursor: Option<String>,
    bytes_max: u64,
    /// Whether the client has been told that the stream ends where it asks to go on.
    has_seen_end: bool,
}

impl Params {
    fn parse(query: &Query, headers: &HeaderMap) -> Result<Self> {
        let live = match query.text("live")?.as_deref() {
            None => Live::No,
            Some("long-poll") => Live::LongPoll,
            Some("sse") => Live::Events,
            Some(other) => {
                let why =
                    format!("query parameter `live` must be `long-poll` or `sse`, got `{}`", echo(other));
                return Err(Error::bad(why));
            }
        };
        let offset = query.text("offset")?;
        // A browser that lost its connection says what it has seen, and asks as it did at first.
        let seen = if live == Live::Events { h::last_event(headers)? } else { None };
        let from = match (seen, offset.as_deref()) {
            (Some((seen, _)), _) => ReadFrom::At(seen),
            (None, None) if live == Live::No => ReadFrom::Start,
            (None, None) => {
                return Err(Error::bad("query parameter `offset` is missing, which `live` needs"));
            }
            (None, Some("-1")) => ReadFrom::Start,
            (None, Some("now")) => ReadFrom::Tail,
            (None, Some(text)) => ReadFrom::At(place::parse(text).ok_or_else(|| {
                let why = "must be `-1`, `now`, or an offset that this server gave";
                Error::bad(format!("query parameter `offset` {why}, got `{}`", echo(text)))
            })?),
        };
        let cursor = query.text("cursor")?;
        let bytes_max = query.u64("max-bytes")?.or(query.u64("max_bytes")?);
        let bytes_max = bytes_max.unwrap_or(ANSWER_BYTES_MAX).clamp(1, ANSWER_BYTES_MAX);
        let has_seen_end = seen.is_some_and(|(_, is_end)| is_end);
        Ok(Self { from, live, cursor, bytes_max, has_seen_end })
    }
}

/// `GET` of a stream.
pub(super) async fn read(
    State(api): State<Api>,
    Target(target): Target,
    Parts { uri, headers, extensions, .. }: Parts,
) -> Result<Response> {
    let terms = Terms::of(&extensions);
    let mut params = Params::parse(&Query::new(uri.query().unwrap_or_default()), &headers)?;
    if let Some(room) = terms.and_then(|terms| terms.body_bytes_max()) {
        // It may go out as base64.
        params.bytes_max = params.bytes_max.min(room as u64 / 4 * 3);
    }
    let reader = api.service.durable_reader(&target, params.from).await?;
    match params.live {
        Live::No => catch_up(&api, reader, &params, &headers).await,
        Live::LongPoll => long_poll((&api, terms), reader, &params).await,
        Live::Events if params.has_seen_end && is_at_end(&reader)? => Ok(at_end(&reader)),
        Live::Events => {
            let cursor = place::cursor(api.options.clock.local_ms(), params.cursor.as_deref());
            sse::events((&api, terms), reader, params.bytes_max, cursor)
        }
    }
}

fn is_at_end(reader: &Reader) -> Result<bool> {
    Ok(reader.is_at_tail() && reader.status()?.is_closed)
}

/// What keeps a browser from asking again and again for what has ended.
fn at_end(reader: &Reader) -> Response {
    Answer::empty(StatusCode::NO_CONTENT)
        .next(reader.next())
        .with(n::UP_TO_DATE, "true")
        .with(n::CLOSED, "true")
        .with(header::CACHE_CONTROL, "no-store")
        .done()
}

/// What an answer says beside its messages.
fn described(status: &Status, reader: &Reader, messages: &[SequencedRecord]) -> Answer {
    let is_at_tail = reader.is_at_tail();
    Answer::of(&status.content_type, body(&status.content_type, messages))
        .next(reader.next())
        .with_if(is_at_tail, n::UP_TO_DATE, "true")
        .with_if(is_at_tail && status.is_closed, n::CLOSED, "true")
}

/// Names the messages that were read from a place on.
fn tag(status: &Status, reader: &Reader, from: u64) -> String {
    let reach = match (reader.is_at_tail(), status.is_closed) {
        (false, _) => Reach::Part,
        (true, false) => Reach::Tail,
        (true, true) => Reach::End,
    };
    place::range_tag(&status.life, (from, reader.next()), reach)
}

async fn catch_up(api: &Api, mut reader: Reader, params: &Params, headers: &HeaderMap) -> Result<Response> {
    let from = reader.next();
    let messages = reader.messages(params.bytes_max).await?;
    let status = reader.status()?;
    if params.from == ReadFrom::Tail {
        // The next one may be elsewhere.
        return Ok(described(&status, &reader, &messages).with(header::CACHE_CONTROL, "no-store").done());
    }
    let is_at_tail = reader.is_at_tail();
    let tag = tag(&status, &reader, from);
    let caching = match (is_at_tail, &api.options.auth) {
        // More may be there at any moment.
        (true, _) => "no-cache",
        (false, Auth::Open) => "public, max-age=60, stale-while-revalidate=300",
        (false, Auth::Token(_)) => "private, max-age=60, stale-while-revalidate=300",
    };
    let answer = if h::if_none_match(headers).is_some_and(|tags| tags.has(&tag)) {
        Answer::empty(StatusCode::NOT_MODIFIED)
            .next(reader.next())
            .with_if(is_at_tail, n::UP_TO_DATE, "true")
            .with_if(is_at_tail && status.is_closed, n::CLOSED, "true")
    } else {
        described(&status, &reader, &messages)
    };
    Ok(answer.with(header::ETAG, tag).with(header::CACHE_CONTROL, caching).done())
}

async fn long_poll(
    (api, terms): (&Api, Option<Terms>),
    mut reader: Reader,
    params: &Params,
) -> Result<Response> {
    let from = reader.next();
    if reader.is_at_tail() {
        wait((api, terms), &mut reader, api.options.long_poll).await?;
    }
    let messages = reader.messages(params.bytes_max).await?;
    let status = reader.status()?;
    let cursor = place::cursor(api.options.clock.local_ms(), params.cursor.as_deref()).to_string();
    if messages.is_empty() {
        return Ok(Answer::empty(StatusCode::NO_CONTENT)
            .next(reader.next())
            .with(n::UP_TO_DATE, "true")
            .with(n::CURSOR, cursor)
            .with(header::CACHE_CONTROL, "no-store")
            .with_if(status.is_closed, n::CLOSED, "true")
            .done());
    }
    Ok(described(&status, &reader, &messages)
        .with(header::ETAG, tag(&status, &reader, from))
        .with(header::CACHE_CONTROL, "no-cache")
        .with(n::CURSOR, cursor)
        .done())
}
