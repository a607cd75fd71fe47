//! A read session as a body that goes on: server-sent events, or frames of the s2s protocol.
//!
//! The body never just stops before the read is finished: a client takes its end (for events, `[DONE]`) for a
//! finished read. Anything else is an `error` event or a terminal frame, after which it comes back and resumes.
//! Behind a front that takes an answer only whole, it ends so at its first pause after records.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

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
use crate::api::terms::{Terms, ended, escaped_bytes};
use crate::api::{Api, drained, panicked};
use crate::service;
use crate::service::records::{ReadEvent, ReadSession};
use crate::types::record::{ReadBatch, StreamPosition};
use crate::types::time::Clock;

/// A pause after records that ends an answer which goes out whole.
const PAUSE: Duration = Duration::from_millis(50);

type Events = Pin<Box<dyn Stream<Item = service::Result<ReadEvent>> + Send>>;

/// The answer to a read as server-sent events.
pub(super) fn events(
    (api, terms): (&Api, Option<Terms>),
    session: ReadSession,
    format: Format,
    resumed: Option<EventId>,
) -> Response {
    let writer = Writer::Events(EventWriter::new(format, resumed));
    respond::stream("text/event-stream", body((api, terms), session, writer))
}

/// The answer to a read over a session, with its frames compressed or not.
pub(super) fn frames(
    (api, terms): (&Api, Option<Terms>),
    session: ReadSession,
    coding: Option<Coding>,
) -> Response {
    respond::stream(respond::SESSION, body((api, terms), session, Writer::Frames(coding)))
}

fn body((api, terms): (&Api, Option<Terms>), session: ReadSession, writer: Writer) -> Body {
    let batch_bytes_max = terms.and_then(|terms| match &writer {
        Writer::Events(_) => terms.json_batch_bytes_max(),
        Writer::Frames(_) => terms.proto_batch_bytes_max(),
    });
    let session = match batch_bytes_max {
        Some(bytes_max) => session.in_batches_of(bytes_max),
        None => session,
    };
    let events =
        stream::unfold(
            session,
            |mut session| async move { session.next().await.map(|event| (event, session)) },
        );
    let frames = Frames {
        events: events.boxed(),
        writer,
        draining: api.options.draining.clone(),
        terms,
        room: terms.and_then(|terms| terms.body_bytes_max()).map(Room::new),
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

    /// What a frame takes of an answer that goes out whole, as text or as base64.
    fn whole_bytes(&self, frame: &[u8]) -> usize {
        match self {
            Self::Events(_) => escaped_bytes(frame),
            Self::Frames(_) => (frame.len() + 2) * 4 / 3,
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

/// What is left of an answer that goes out whole.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes_max: usize,
    bytes: usize,
    /// Whether there is anything in it that is worth an answer.
    has_records: bool,
}

impl Room {
    fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, has_records: false }
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
    terms: Option<Terms>,
    room: Option<Room>,
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
        let next = AssertUnwindSafe(self.next_frame()).catch_unwind().await;
        next.unwrap_or_else(|payload| Some(self.fail(&panicked(&*payload))))
    }

    async fn next_frame(&mut self) -> Option<Bytes> {
        let has_records = self.room.is_some_and(|room| room.has_records);
        // Ends first: a reader that is far behind always has a next event.
        let next = tokio::select! {
            biased;
            () = drained(&mut self.draining) => return Some(self.fail(&Error::draining())),
            () = ended(self.terms) => return Some(self.fail(&Error::ending())),
            next = self.events.next() => next,
            () = tokio::time::sleep(PAUSE), if has_records => return Some(self.fail(&Error::ending())),
        };
        let (frame, is_batch) = match next {
            Some(Ok(ReadEvent::Batch(batch))) => (self.writer.batch(batch), true),
            Some(Ok(ReadEvent::Heartbeat(tail))) => (self.writer.heartbeat(self.clock.now_ms(), tail), false),
            Some(Err(error)) => return Some(self.fail(&error.into())),
            None => {
                self.phase = Phase::Ended;
                return self.writer.done();
            }
        };
        Some(self.fit(frame, is_batch))
    }

    /// The frame, or the end of the body if there is no room for it.
    fn fit(&mut self, frame: Bytes, is_batch: bool) -> Bytes {
        let Some(mut room) = self.room else { return frame };
        room.bytes += self.writer.whole_bytes(&frame);
        if room.bytes <= room.bytes_max {
            room.has_records |= is_batch;
            self.room = Some(room);
            return frame;
        }
        match room.has_records {
            true => self.fail(&Error::ending()),
            // It would not fit into an answer of its own either.
            false => self.fail(&Error::too_long(room.bytes, room.bytes_max)),
        }
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
    use crate::types::time::Deadline;

    fn running(events: Events) -> (watch::Sender<bool>, Frames) {
        let (sender, draining) = watch::channel(false);
        let frames = Frames {
            events,
            writer: Writer::Events(EventWriter::new(Format::Raw, None)),
            draining,
            terms: None,
            room: None,
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
    async fn the_end_of_an_answer_is_not_the_end_of_the_read() {
        for events in [stream::pending().boxed(), stream::repeat(()).map(|()| batch(0)).boxed()] {
            let (_sender, mut frames) = running(events);
            let soon = Deadline::after(Duration::from_millis(20));
            frames.terms = Some(Terms { ends: soon, last_call: soon, whole_bytes_max: None, runs_on: false });
            let text = text(frames).await;
            assert!(text.contains("event: error\ndata: {\"code\":\"server_draining\""), "{text}");
            assert!(!text.contains("DONE"), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_answer_ends_at_the_first_pause_after_records() {
        let tail = StreamPosition { seq_num: 2, timestamp: 1 };
        let later = stream::once(async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            batch(0)
        });
        let events = stream::iter([Ok(ReadEvent::Heartbeat(tail))]).chain(later).chain(stream::pending());
        let (_sender, mut frames) = running(events.boxed());
        frames.room = Some(Room::new(1_000));
        let text = text(frames).await;
        let order: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert_eq!(order, ["ping", "batch", "error"]);
        assert!(text.contains("server_draining"), "{text}");
    }

    #[tokio::test]
    async fn a_whole_answer_is_full_before_it_is_too_long() {
        let (_sender, mut frames) = running(stream::iter((0..10).map(batch)).boxed());
        frames.room = Some(Room::new(400));
        let all = text(frames).await;
        let (records, end) = all.split_once("event: error").expect("an end");
        assert!(escaped_bytes(records.as_bytes()) <= 400, "{all}");
        assert!(records.contains("\"seq_num\":3") && end.contains("server_draining"), "{all}");
        let (_sender, mut frames) = running(stream::iter([batch(0)]).boxed());
        frames.room = Some(Room::new(20));
        let all = text(frames).await;
        assert!(all.starts_with("event: error\ndata: {\"code\":\"invalid\""), "{all}");
    }

    #[tokio::test]
    async fn a_lost_drain_signal_is_not_draining() {
        let (sender, frames) = running(stream::iter([batch(0)]).boxed());
        drop(sender);
        assert!(text(frames).await.ends_with("data: [DONE]\n\n"));
    }
}
