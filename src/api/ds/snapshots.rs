//! Snapshots of a stream, and the bootstrap: the snapshot and what follows it, in one answer.

use std::collections::HashSet;

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{StatusCode, header};

use super::error::{Error, Result};
use super::respond::Answer;
use super::target::OfStream;
use super::{headers as h, names as n, place};
use crate::api::terms::Terms;
use crate::api::uri::Query;
use crate::api::{Api, body};
use crate::service::durable::{Reader, StreamSnapshot};
use crate::types::ledger::ContentType;
use crate::types::limits::ENTRY_BYTES_MAX;

/// Messages of a bootstrap at most, beside the snapshot.
const BOOTSTRAP_BYTES_MAX: u64 = 1024 * 1024;
/// Offset of a snapshot that is not there.
const NONE: &str = "-1";
/// What boundaries begin with; 16 hexadecimal digits follow.
const BOUNDARY: &[u8] = b"leat-part-";

fn none_there() -> Error {
    Error::not_found("the stream has no snapshot there".to_owned())
}

/// `PUT …/snapshot/{offset}`
pub(super) async fn put(
    State(api): State<Api>,
    OfStream(target, at): OfStream,
    request: Request,
) -> Result<Response> {
    let (Parts { headers, .. }, body) = request.into_parts();
    let content_type = h::content_type(&headers)?.unwrap_or_else(ContentType::octets);
    let at = at.ok_or_else(none_there)?;
    let bytes = body::read(&headers, body, api.options.body_limits(ENTRY_BYTES_MAX)).await?;
    let tail = api.service.put_snapshot(&target, &StreamSnapshot { at, content_type, bytes }).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT).next(tail).with(n::SNAPSHOT_OFFSET, place::offset(at)).done())
}

/// `GET …/snapshot`: where it is.
pub(super) async fn latest(
    State(api): State<Api>,
    OfStream(target, _): OfStream,
    Parts { uri, .. }: Parts,
) -> Result<Response> {
    let at = api.service.snapshot_at(&target).await?.ok_or_else(none_there)?;
    Ok(Answer::empty(StatusCode::TEMPORARY_REDIRECT)
        .with(header::LOCATION, format!("{}/{}", uri.path(), place::offset(at)))
        .with(header::CACHE_CONTROL, "no-store")
        .done())
}

/// `GET …/snapshot/{offset}`
pub(super) async fn get(State(api): State<Api>, OfStream(target, at): OfStream) -> Result<Response> {
    let (snapshot, reader) = api.service.snapshot(&target).await?;
    let snapshot = snapshot.filter(|snapshot| Some(snapshot.at) == at).ok_or_else(none_there)?;
    Ok(Answer::of(&snapshot.content_type, snapshot.bytes)
        .next(snapshot.at)
        .with(n::SNAPSHOT_OFFSET, place::offset(snapshot.at))
        .with_if(reader.is_at_tail(), n::UP_TO_DATE, "true")
        .with(header::CACHE_CONTROL, "no-cache")
        .done())
}

/// `DELETE …/snapshot/{offset}`: the one that counts stays, and older ones are gone already.
pub(super) async fn delete(State(api): State<Api>, OfStream(target, at): OfStream) -> Result<Response> {
    if at.is_some() && api.service.snapshot_at(&target).await? == at {
        let why = "the snapshot stands for the beginning of the stream, and stays until a newer one does";
        return Err(Error::new(StatusCode::CONFLICT, "current_snapshot", why));
    }
    Err(none_there())
}

/// `GET …/bootstrap`
pub(super) async fn bootstrap(
    State(api): State<Api>,
    OfStream(target, _): OfStream,
    Parts { uri, extensions, .. }: Parts,
) -> Result<Response> {
    if Query::new(uri.query().unwrap_or_default()).text("live")?.is_some() {
        return Err(Error::bad("a bootstrap is one answer: read on with `live` from `stream-next-offset`"));
    }
    let (snapshot, mut reader) = api.service.snapshot(&target).await?;
    let room = Terms::of(&extensions).and_then(|terms| terms.body_bytes_max());
    let parts = parts(snapshot.as_ref(), &mut reader, room).await?;
    let status = reader.status()?;
    let is_at_tail = reader.is_at_tail();
    let at = snapshot.map_or_else(|| NONE.to_owned(), |snapshot| place::offset(snapshot.at));
    let content_type = ContentType::new(&format!("multipart/mixed; boundary={}", parts.boundary));
    let content_type = content_type.map_err(|e| Error::bad(e.to_string()))?;
    Ok(Answer::of(&content_type, parts.out.freeze())
        .next(reader.next())
        .with(n::SNAPSHOT_OFFSET, at)
        .with_if(is_at_tail, n::UP_TO_DATE, "true")
        .with_if(is_at_tail && status.is_closed, n::CLOSED, "true")
        .with(header::CACHE_CONTROL, "no-store")
        .done())
}

/// A body of several parts.
struct Multipart {
    boundary: String,
    out: BytesMut,
}

impl Multipart {
    fn part(&mut self, content_type: &str, bytes: &[u8]) {
        self.out.put_slice(format!("--{}\r\ncontent-type: {content_type}\r\n\r\n", self.boundary).as_bytes());
        self.out.put_slice(bytes);
        self.out.put_slice(b"\r\n");
    }
}

/// The snapshot, or an empty part, and then one part for each message.
async fn parts(
    snapshot: Option<&StreamSnapshot>,
    reader: &mut Reader,
    room: Option<usize>,
) -> Result<Multipart> {
    let empty = (ContentType::octets(), Bytes::new());
    let (content_type, first) = snapshot.map_or(empty, |s| (s.content_type.clone(), s.bytes.clone()));
    let left = room.map_or(u64::MAX, |room| (room as u64 / 4 * 3).saturating_sub(first.len() as u64));
    let messages = reader.messages(BOOTSTRAP_BYTES_MAX.min(left).max(1)).await?;
    let of_messages = reader.status()?.content_type;
    let all = std::iter::once(&first).chain(messages.iter().map(|message| &message.body));
    let mut parts = Multipart { boundary: boundary(all), out: BytesMut::new() };
    parts.part(content_type.as_str(), &first);
    for message in &messages {
        parts.part(of_messages.as_str(), &message.body);
    }
    parts.out.put_slice(format!("--{}--\r\n", parts.boundary).as_bytes());
    Ok(parts)
}

/// A boundary that no part holds: the first number that none of them has behind the same word. The parts are looked
/// through once, whatever their writers put there.
fn boundary<'a>(parts: impl Iterator<Item = &'a Bytes>) -> String {
    let number = |at: &[u8]| {
        let digits = std::str::from_utf8(at.strip_prefix(BOUNDARY)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let held: HashSet<u64> =
        parts.flat_map(|part| part.windows(BOUNDARY.len() + 16)).filter_map(number).collect();
    let free = (0..).find(|count| !held.contains(count)).unwrap_or_default();
    format!("{}{free:016x}", String::from_utf8_lossy(BOUNDARY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_holds_the_boundary() {
        let first = Bytes::from_static(b"a leat-part-0000000000000000 b");
        assert_eq!(boundary([&first].into_iter()), "leat-part-0000000000000001");
        let cut = Bytes::from_static(b"leat-part-00000000000000");
        assert_eq!(boundary([&cut, &cut].into_iter()), "leat-part-0000000000000000");
    }

    #[test]
    fn a_boundary_is_found_whatever_the_parts_hold() {
        let held: String = (0..40_000).rev().map(|count| format!("leat-part-{count:016x}")).collect();
        assert_eq!(boundary([&Bytes::from(held)].into_iter()), "leat-part-0000000000009c40");
    }
}
