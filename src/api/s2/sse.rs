//! A read session as server-sent events.
//!
//! The stream never just stops: its end is `[DONE]`, which a client takes for a finished read, or an
//! `error` event, after which it comes back and resumes.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use http::{HeaderName, HeaderValue, header};
use tokio::sync::watch;
use tracing::{Instrument, Span};

use super::error::Error;
use super::wire::Format;
use super::wire::events::{EventId, EventWriter};
use crate::api::{Api, drained, panicked};
use crate::service;
use crate::service::records::{ReadEvent, ReadSession};
use crate::types::time::Clock;

type Events = Pin<Box<dyn Stream<Item = service::Result<ReadEvent>> + Send>>;

/// The answer to a read over SSE.
pub(super) fn respond(api: &Api, session: ReadSession, format: Format, resumed: Option<EventId>) -> Response {
    let events =
        stream::unfold(
            session,
            |mut session| async move { session.next().await.map(|event| (event, session)) },
        );
    let frames = Frames {
        events: events.boxed(),
        writer: EventWriter::new(format, resumed),
        draining: api.options.draining.clone(),
        clock: api.options.clock.clone(),
        span: Span::current(),
        phase: Phase::Running,
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(frames.into_stream())).into_response()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ended,
}

/// The frames of the answer's body, one event each.
struct Frames {
    events: Events,
    writer: EventWriter,
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
            Ok(Some(Ok(ReadEvent::Batch(batch)))) => self.writer.batch(&batch),
            Ok(Some(Ok(ReadEvent::Heartbeat(tail)))) => EventWriter::ping(self.clock.now_ms(), tail),
            Ok(Some(Err(error))) => self.fail(&error.into()),
            Ok(None) => {
                self.phase = Phase::Ended;
                EventWriter::done()
            }
            Err(payload) => self.fail(&panicked(&*payload)),
        })
    }

    fn fail(&mut self, error: &Error) -> Bytes {
        self.phase = Phase::Ended;
        EventWriter::error(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::record::{ReadBatch, SequencedRecord, StreamPosition};

    fn frames(events: Events) -> (watch::Sender<bool>, Frames) {
        let (sender, draining) = watch::channel(false);
        let frames = Frames {
            events,
            writer: EventWriter::new(Format::Raw, None),
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
        let (_sender, frames) = frames(events.boxed());
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
        let (_sender, frames) = frames(events.boxed());
        let text = text(frames).await;
        assert!(
            text.ends_with("event: error\ndata: {\"code\":\"stream_not_found\",\"message\":\"stream `s` does not exist\"}\n\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_panic_ends_the_read_with_an_error() {
        let (_sender, frames) = frames(stream::iter([()]).map(|()| panic!("a defect")).boxed());
        let text = text(frames).await;
        assert!(text.starts_with("event: error\ndata: {\"code\":\"other\""), "{text}");
        assert!(!text.contains("a defect"), "{text}");
    }

    #[tokio::test]
    async fn draining_ends_idle_and_busy_reads_with_an_error() {
        for events in [stream::pending().boxed(), stream::repeat(()).map(|()| batch(0)).boxed()] {
            let (sender, frames) = frames(events);
            sender.send(true).unwrap();
            let text = text(frames).await;
            assert!(text.starts_with("event: error\ndata: {\"code\":\"server_draining\""), "{text}");
        }
    }

    #[tokio::test]
    async fn a_lost_drain_signal_is_not_draining() {
        let (sender, frames) = frames(stream::iter([batch(0)]).boxed());
        drop(sender);
        assert!(text(frames).await.ends_with("data: [DONE]\n\n"));
    }
}
