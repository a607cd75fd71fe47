//! A read session as a body that goes on: server-sent events, or frames of the s2s protocol.
//!
//! The body never just stops before the read is finished: a client takes its end (for events, `[DONE]`) for a
//! finished read. Anything else is an `error` event or a terminal frame, after which it comes back and resumes.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::watch;
use tracing::{Instrument, Span};

use super::error::Error;
use super::wire::Format;
use super::wire::events::{EventId, EventWriter};
use super::{frame, proto, respond};
use crate::api::compression::Coding;
use crate::api::{Api, drained, panicked};
use crate::service;
use crate::service::records::{ReadEvent, ReadSession};
use crate::types::record::{ReadBatch, StreamPosition};
use crate::types::time::Clock;

type Events = Pin<Box<dyn Stream<Item = service::Result<ReadEvent>> + Send>>;

/// The answer to a read as server-sent events.
pub(super) fn events(api: &Api, session: ReadSession, format: Format, resumed: Option<EventId>) -> Response {
    let writer = Writer::Events(EventWriter::new(format, resumed));
    respond::stream("text/event-stream", body(api, session, writer))
}

/// The answer to a read over a session, with its frames compressed or not.
pub(super) fn frames(api: &Api, session: ReadSession, coding: Option<Coding>) -> Response {
    respond::stream(respond::SESSION, body(api, session, Writer::Frames(coding)))
}

fn body(api: &Api, session: ReadSession, writer: Writer) -> Body {
    let events =
        stream::unfold(
            session,
            |mut session| async move { session.next().await.map(|event| (event, session)) },
        );
    let frames = Frames {
        events: events.boxed(),
        writer,
        draining: api.options.draining.clone(),
        clock: api.options.clock.clone(),
        span: Span::current(),
        phase: Phase::Running,
    };
    Body::from_stream(frames.into_stream())
}

/// How the body is written.
enum Writer {
    Events(EventWriter),
    Frames(Option<Coding>),
}

impl Writer {
    fn batch(&mut self, batch: ReadBatch) -> Bytes {
        match self {
            Self::Events(events) => events.batch(&batch),
            Self::Frames(coding) => frame::encode_with(*coding, |out| proto::encode_batch_into(batch, out)),
        }
    }

    fn heartbeat(&self, now_ms: u64, tail: StreamPosition) -> Bytes {
        match self {
            Self::Events(_) => EventWriter::ping(now_ms, tail),
            Self::Frames(_) => {
                let empty = ReadBatch { records: Vec::new(), tail: Some(tail) };
                frame::encode_with(None, |out| proto::encode_batch_into(empty, out))
            }
        }
    }

    fn error(&self, error: &Error) -> Bytes {
        match self {
            Self::Events(_) => EventWriter::error(error),
            Self::Frames(_) => frame::encode_terminal(error),
        }
    }

    /// What says that the read is finished, beside the end of the body.
    fn done(&self) -> Option<Bytes> {
        match self {
            Self::Events(_) => Some(EventWriter::done()),
            Self::Frames(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ended,
}

/// The frames of the answer's body, one event each.
struct Frames {
    events: Events,
    writer: Writer,
    draining: watch::Receiver<bool>,
    clock: Clock,
    span: Span,
    phase: Phase,
}

impl Frames {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
        stream::unfold(self, |mut frames| async move {
            let span = frames.span.clone();
            let frame = frames.next().instrument(span).await?;
            Some((Ok(frame), frames))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        if self.phase == Phase::Ended {
            return None;
        }
        // Draining first: a reader that is far behind always has a next event.
        let next = tokio::select! {
            biased;
            () = drained(&mut self.draining) => return Some(self.fail(&Error::draining())),
            next = AssertUnwindSafe(self.events.next()).catch_unwind() => next,
        };
        Some(match next {
            Ok(Some(Ok(ReadEvent::Batch(batch)))) => self.writer.batch(batch),
            Ok(Some(Ok(ReadEvent::Heartbeat(tail)))) => self.writer.heartbeat(self.clock.now_ms(), tail),
            Ok(Some(Err(error))) => self.fail(&error.into()),
            Ok(None) => {
                self.phase = Phase::Ended;
                return self.writer.done();
            }
            Err(payload) => self.fail(&panicked(&*payload)),
        })
    }

    fn fail(&mut self, error: &Error) -> Bytes {
        self.phase = Phase::Ended;
        self.writer.error(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::record::SequencedRecord;

    fn running(events: Events) -> (watch::Sender<bool>, Frames) {
        let (sender, draining) = watch::channel(false);
        let frames = Frames {
            events,
            writer: Writer::Events(EventWriter::new(Format::Raw, None)),
            draining,
            clock: Clock::manual(99),
            span: Span::none(),
            phase: Phase::Running,
        };
        (sender, frames)
    }

    fn batch(seq_num: u64) -> service::Result<ReadEvent> {
        let record = SequencedRecord { seq_num, timestamp: 1, headers: vec![], body: "x".into() };
        Ok(ReadEvent::Batch(ReadBatch { records: vec![record], tail: None }))
    }

    async fn text(frames: Frames) -> String {
        let all: Vec<_> = frames.into_stream().map(|frame| frame.unwrap()).collect().await;
        String::from_utf8(all.concat()).unwrap()
    }

    #[tokio::test]
    async fn a_finished_read_ends_with_the_done_mark() {
        let tail = StreamPosition { seq_num: 2, timestamp: 1 };
        let events = stream::iter([batch(0), batch(1), Ok(ReadEvent::Heartbeat(tail))]);
        let (_sender, frames) = running(events.boxed());
        assert_eq!(
            text(frames).await,
            concat!(
                "event: batch\nid: 0,1,9\n",
                "data: {\"records\":[{\"seq_num\":0,\"timestamp\":1,\"body\":\"x\"}]}\n\n",
                "event: batch\nid: 1,2,18\n",
                "data: {\"records\":[{\"seq_num\":1,\"timestamp\":1,\"body\":\"x\"}]}\n\n",
                "event: ping\ndata: {\"timestamp\":99,\"tail\":{\"seq_num\":2,\"timestamp\":1}}\n\n",
                "data: [DONE]\n\n"
            )
        );
    }

    #[tokio::test]
    async fn a_failed_read_ends_with_an_error_and_without_the_done_mark() {
        let events = stream::iter([batch(0), Err(service::Error::StreamNotFound("s".into())), batch(1)]);
        let (_sender, frames) = running(events.boxed());
        let text = text(frames).await;
        assert!(
            text.ends_with("event: error\ndata: {\"code\":\"stream_not_found\",\"message\":\"stream `s` does not exist\"}\n\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_panic_ends_the_read_with_an_error() {
        let (_sender, frames) = running(stream::iter([()]).map(|()| panic!("a defect")).boxed());
        let text = text(frames).await;
        assert!(text.starts_with("event: error\ndata: {\"code\":\"other\""), "{text}");
        assert!(!text.contains("a defect"), "{text}");
    }

    #[tokio::test]
    async fn draining_ends_idle_and_busy_reads_with_an_error() {
        for events in [stream::pending().boxed(), stream::repeat(()).map(|()| batch(0)).boxed()] {
            let (sender, frames) = running(events);
            sender.send(true).unwrap();
            let text = text(frames).await;
            assert!(text.starts_with("event: error\ndata: {\"code\":\"server_draining\""), "{text}");
        }
    }

    #[tokio::test]
    async fn a_lost_drain_signal_is_not_draining() {
        let (sender, frames) = running(stream::iter([batch(0)]).boxed());
        drop(sender);
        assert!(text(frames).await.ends_with("data: [DONE]\n\n"));
    }
}
