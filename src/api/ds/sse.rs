//! A read as server-sent events.
//!
//! ```text
//! id: <offset>                 id: <offset, and whether it is the end>
//! event: data                  event: control
//! data:<messages>              data:{"streamNextOffset": …, "streamCursor": …, "upToDate": …, "streamClosed": …}
//! ```
//! Every `data` is followed by its `control`. Both have an id, which browsers come back with: one whose connection
//! breaks between the two has seen the `data`. A window ends in time with one more `control`, whose cursor is above the
//! one before: clients come back with it.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{Stream, stream};
use http::HeaderValue;
use serde::Serialize;
use tracing::{Instrument, Span};

use super::error::Result;
use super::respond::body;
use super::wait::wait;
use super::{names as n, place};
use crate::api::Api;
use crate::api::s2::respond;
use crate::api::terms::Terms;
use crate::service::durable::Reader;
use crate::types::ledger::ContentType;
use crate::types::record::SequencedRecord;
use crate::types::time::Deadline;

/// How long a connection is kept before its client is to come back.
const WINDOW: Duration = Duration::from_secs(50);
/// The same where the answer goes out whole; clients take less than a second for a broken way.
const WHOLE_WINDOW: Duration = Duration::from_millis(1_200);
/// Silence after which a sign of life is due.
const SILENCE: Duration = Duration::from_secs(10);
/// How often what an event holds fits into an answer that goes out whole: it grows on its way.
const WHOLE_SHARE: usize = 8;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_cursor: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    up_to_date: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    First,
    Running,
    Ended,
}

/// A window of events.
struct Window {
    api: Api,
    terms: Option<Terms>,
    reader: Reader,
    content_type: ContentType,
    bytes_max: u64,
    cursor: u64,
    until: Deadline,
    /// Bytes that may still be sent, where the answer goes out whole.
    room: Option<usize>,
    phase: Phase,
    span: Span,
}

/// The answer to a live read as events.
pub(super) fn events(
    (api, terms): (&Api, Option<Terms>),
    reader: Reader,
    bytes_max: u64,
    cursor: u64,
) -> Result<Response> {
    let content_type = reader.status()?.content_type;
    let room = terms.and_then(|terms| terms.body_bytes_max());
    let window = Window {
        api: api.clone(),
        terms,
        reader,
        bytes_max: room.map_or(bytes_max, |room| bytes_max.min((room / WHOLE_SHARE) as u64)),
        cursor,
        until: Deadline::after(if room.is_some() { WHOLE_WINDOW } else { WINDOW }),
        room: room.map(|room| room / 2),
        phase: Phase::First,
        span: Span::current(),
        content_type: content_type.clone(),
    };
    let mut response = respond::stream("text/event-stream", Body::from_stream(window.into_stream()));
    if !is_plain(&content_type) {
        response.headers_mut().insert(n::SSE_ENCODING, HeaderValue::from_static("base64"));
    }
    Ok(response)
}

/// Whether messages go out as they are.
fn is_plain(content_type: &ContentType) -> bool {
    content_type.is_json() || content_type.is_text()
}

impl Window {
    fn into_stream(self) -> impl Stream<Item = std::result::Result<Bytes, std::convert::Infallible>> + Send {
        stream::unfold(self, |mut window| async move {
            let span = window.span.clone();
            let frame = window.next().instrument(span).await?;
            Some((Ok(frame), window))
        })
    }

    /// The next frame. A failure ends the body: the client comes back and is told then.
    async fn next(&mut self) -> Option<Bytes> {
        if self.phase == Phase::Ended {
            return None;
        }
        match self.step().await {
            Ok(frame) => Some(frame),
            Err(error) => {
                tracing::info!(?error, "a live read ended early");
                None
            }
        }
    }

    async fn step(&mut self) -> Result<Bytes> {
        let is_first = self.phase == Phase::First;
        self.phase = Phase::Running;
        if self.reader.is_at_tail() && !is_first {
            let left = self.until.remaining();
            let has_news = wait((&self.api, self.terms), &mut self.reader, left.min(SILENCE)).await?;
            if !has_news && self.is_over() {
                return self.last();
            }
            if !has_news {
                return Ok(Bytes::from_static(b": still here\n\n"));
            }
        }
        if !is_first && self.is_over() && self.reader.is_at_tail() {
            return self.last();
        }
        let messages = self.reader.messages(self.bytes_max).await?;
        let mut frame = String::new();
        if !messages.is_empty() {
            write_id(&mut frame, &place::event(self.reader.next(), false));
            write_data(&mut frame, &self.content_type, &messages);
        }
        self.room = self.room.map(|room| room.saturating_sub(frame.len()));
        let is_full = self.room.is_some_and(|room| room < 2 * frame.len());
        if (self.is_over() || is_full) && !self.reader.is_at_tail() {
            self.phase = Phase::Ended;
            self.cursor += 1;
        }
        self.write_control(&mut frame)?;
        Ok(frame.into())
    }

    fn is_over(&self) -> bool {
        let is_drained = *self.api.options.draining.borrow();
        self.until.has_passed() || is_drained || self.terms.is_some_and(|terms| terms.ends.has_passed())
    }

    /// The end of the window.
    fn last(&mut self) -> Result<Bytes> {
        self.phase = Phase::Ended;
        self.cursor = place::cursor(self.api.options.clock.local_ms(), Some(&self.cursor.to_string()));
        let mut frame = String::new();
        self.write_control(&mut frame)?;
        Ok(frame.into())
    }

    fn write_control(&mut self, frame: &mut String) -> Result<()> {
        let is_at_tail = self.reader.is_at_tail();
        let is_end = is_at_tail && self.reader.status()?.is_closed;
        if is_end {
            self.phase = Phase::Ended;
        }
        write_id(frame, &place::event(self.reader.next(), is_end));
        let control = Control {
            stream_next_offset: place::offset(self.reader.next()),
            stream_cursor: (!is_end).then(|| self.cursor.to_string()),
            up_to_date: is_at_tail,
            stream_closed: is_end,
        };
        let data = String::from_utf8_lossy(&respond::to_json(&control)).into_owned();
        frame.push_str(&format!("event: control\ndata:{data}\n\n"));
        Ok(())
    }
}

/// What a browser sends as `Last-Event-ID` once it has seen the event.
fn write_id(frame: &mut String, id: &str) {
    frame.push_str(&format!("id: {id}\n"));
}

/// Messages as one event. Text loses the difference between line ends, which is the format's own.
fn write_data(frame: &mut String, content_type: &ContentType, messages: &[SequencedRecord]) {
    let bytes = body(content_type, messages);
    frame.push_str("event: data\n");
    if !is_plain(content_type) {
        frame.push_str("data:");
        STANDARD.encode_string(&bytes, frame);
        frame.push_str("\n\n");
        return;
    }
    let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    for line in text.split(['\n', '\r']) {
        // One space after the colon is not part of the data.
        frame.push_str(if line.starts_with(' ') { "data: " } else { "data:" });
        frame.push_str(line);
        frame.push('\n');
    }
    frame.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(content_type: &str, bodies: &[&'static [u8]]) -> String {
        let messages: Vec<_> = bodies
            .iter()
            .map(|body| SequencedRecord {
                seq_num: 0,
                timestamp: 0,
                headers: vec![],
                body: Bytes::from_static(body),
            })
            .collect();
        let mut frame = String::new();
        write_data(&mut frame, &ContentType::new(content_type).expect("legal"), &messages);
        frame
    }

    #[test]
    fn an_event_holds_its_messages_and_nothing_can_break_out_of_it() {
        assert_eq!(written("text/plain", &[b"a", b"b"]), "event: data\ndata:ab\n\n");
        assert_eq!(
            written("text/plain", &[b"a\r\nb\rc\n\nevent: x\n d"]),
            "event: data\ndata:a\ndata:b\ndata:c\ndata:\ndata:event: x\ndata:  d\n\n"
        );
        assert_eq!(
            written("application/json", &[b"1", b"{\"a\":\n2}"]),
            "event: data\ndata:[1,{\"a\":\ndata:2}]\n\n"
        );
        assert_eq!(written("application/octet-stream", &[&[0xff], b"ab"]), "event: data\ndata:/2Fi\n\n");
    }
}
