//! An append session: batches in, acks out, both at once over one HTTP/2 exchange.
//!
//! Inputs are handed to the service as they arrive and are committed together with whatever else waits, so a
//! session moves as fast as the engine. What is in flight is bounded, per session and for the whole process:
//! beyond that the body is not read, and HTTP/2 flow control holds the client back. An input holds its part of the
//! process's budget until the engine has answered it, so a client that reads no acks holds back only itself.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt, Stream, StreamExt, stream};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::{Instrument, Span};

use super::error::{Code, Error};
use super::{frame, proto, respond};
use crate::api::compression::Coding;
use crate::api::{Api, drained, panicked};
use crate::service;
use crate::service::records::AppendSession;
use crate::types::record::{AppendAck, AppendInput, Header, Record};

/// Bytes of one session's inputs that may wait for their acks.
const SESSION_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Inputs of one session that may wait for their acks.
const SESSION_INPUTS_MAX: usize = 4_096;
/// Acks are sent together up to this many bytes, if they come together.
const ACKS_BYTES_TARGET: usize = 16 * 1024;
/// What an input takes of memory beside its records.
const INPUT_OVERHEAD_BYTES: usize = 256;

/// An ack on its way, with the bytes that its input holds of the session's budget.
type Ack = BoxFuture<'static, (service::Result<AppendAck>, usize)>;

/// An input that waits for the process's budget.
type Waiting = BoxFuture<'static, (AppendInput, Option<OwnedSemaphorePermit>)>;

/// The answer to a session: 200 at once, then one frame for each input.
pub(super) fn respond(api: &Api, session: AppendSession, body: Body, coding: Option<Coding>) -> Response {
    let exchange = Exchange {
        session,
        body,
        decoder: frame::Decoder::default(),
        ending: None,
        waiting: None,
        acks: FuturesOrdered::new(),
        bytes_in_flight: 0,
        budget: api.session_budget.clone(),
        budget_bytes_max: api.options.session_bytes_max,
        draining: api.options.draining.clone(),
        coding,
        span: Span::current(),
        is_over: false,
    };
    respond::stream(respond::SESSION, Body::from_stream(exchange.into_stream()))
}

/// How a session ends, once the acks of what came before are sent.
#[derive(Debug)]
enum Ending {
    /// The client has said all it had to say.
    Clean,
    /// With a terminal frame.
    Failed(Error),
}

struct Exchange {
    session: AppendSession,
    body: Body,
    decoder: frame::Decoder,
    /// Set once no more input is taken.
    ending: Option<Ending>,
    waiting: Option<Waiting>,
    acks: FuturesOrdered<Ack>,
    bytes_in_flight: usize,
    budget: Arc<Semaphore>,
    /// All of the budget; an input that is larger waits for all of it.
    budget_bytes_max: usize,
    draining: watch::Receiver<bool>,
    coding: Option<Coding>,
    span: Span,
    is_over: bool,
}

impl Exchange {
    fn into_stream(self) -> impl Stream<Item = std::result::Result<Bytes, std::convert::Infallible>> + Send {
        stream::unfold(self, |mut exchange| async move {
            let span = exchange.span.clone();
            let frame = exchange.next().instrument(span).await?;
            Some((Ok(frame), exchange))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let next = AssertUnwindSafe(self.next_frame()).catch_unwind().await;
        next.unwrap_or_else(|payload| Some(self.fail(&panicked(&*payload))))
    }

    /// The next ack or the terminal frame; meanwhile, input is taken as far as the budgets allow.
    async fn next_frame(&mut self) -> Option<Bytes> {
        loop {
            self.take_inputs();
            if self.acks.is_empty() && self.waiting.is_none() {
                match self.ending.take() {
                    Some(Ending::Clean) => {
                        self.is_over = true;
                        return None;
                    }
                    Some(Ending::Failed(error)) => return Some(self.fail(&error)),
                    None => {}
                }
            }
            let reads = self.ending.is_none() && self.may_take();
            tokio::select! {
                biased;
                // What was taken is still acknowledged; no more is taken.
                () = drained(&mut self.draining), if self.ending.is_none() => {
                    self.ending = Some(Ending::Failed(Error::draining()));
                }
                Some(first) = self.acks.next(), if !self.acks.is_empty() => return Some(self.acks_from(first)),
                (input, permit) = ready(&mut self.waiting), if self.waiting.is_some() => {
                    self.waiting = None;
                    self.submit(input, permit);
                }
                piece = self.body.frame(), if reads => self.take_piece(piece),
            }
        }
    }

    /// This ack and those that are there as well: a commit acknowledges many inputs at once.
    fn acks_from(&mut self, first: (service::Result<AppendAck>, usize)) -> Bytes {
        let mut out = BytesMut::new();
        let mut next = Some(first);
        while let Some((outcome, bytes)) = next {
            self.bytes_in_flight -= bytes;
            match outcome {
                Ok(ack) => out.put(frame::encode(&proto::encode_ack(ack), self.coding)),
                Err(error) => {
                    out.put(self.fail(&error.into()));
                    break;
                }
            }
            next = match out.len() < ACKS_BYTES_TARGET {
                true => self.acks.next().now_or_never().flatten(),
                false => None,
            };
        }
        out.freeze()
    }

    fn may_take(&self) -> bool {
        self.waiting.is_none()
            && self.bytes_in_flight < SESSION_BYTES_MAX
            && self.acks.len() < SESSION_INPUTS_MAX
    }

    fn take_piece(&mut self, piece: Option<std::result::Result<http_body::Frame<Bytes>, axum::Error>>) {
        match piece {
            Some(Ok(piece)) => {
                if let Ok(data) = piece.into_data() {
                    self.decoder.push(&data);
                }
            }
            // The client is gone; there is nobody to tell.
            Some(Err(error)) => {
                self.ending = Some(Ending::Failed(Error::new(Code::ClientHangup, error.to_string())));
            }
            None if self.decoder.is_between_frames() => self.ending = Some(Ending::Clean),
            None => {
                let error = Error::new(Code::BadFrame, "the body ends in the middle of a frame");
                self.ending = Some(Ending::Failed(error));
            }
        }
    }

    /// Submits what has arrived, as far as the budgets allow.
    fn take_inputs(&mut self) {
        while self.ending.is_none() && self.may_take() {
            match self.decoder.next().and_then(|message| message.map(proto::decode_append).transpose()) {
                Ok(Some(input)) => self.admit(input),
                Ok(None) => return,
                Err(error) => self.ending = Some(Ending::Failed(error)),
            }
        }
    }

    /// Submits an input, at once if the process's budget has room.
    fn admit(&mut self, input: AppendInput) {
        let bytes = u32::try_from(cost(&input).min(self.budget_bytes_max)).unwrap_or(u32::MAX);
        let acquire = self.budget.clone().acquire_many_owned(bytes);
        let mut waiting: Waiting = Box::pin(async move { (input, acquire.await.ok()) });
        match (&mut waiting).now_or_never() {
            Some((input, permit)) => self.submit(input, permit),
            None => self.waiting = Some(waiting),
        }
    }

    fn submit(&mut self, input: AppendInput, permit: Option<OwnedSemaphorePermit>) {
        let bytes = cost(&input);
        self.bytes_in_flight += bytes;
        let outcome = self.session.append(input, permit);
        self.acks.push_back(Box::pin(outcome.map(move |outcome| (outcome, bytes))));
    }

    fn fail(&mut self, error: &Error) -> Bytes {
        self.is_over = true;
        self.session.abandon();
        frame::encode_terminal(error)
    }
}

/// A client that is gone sends again what it has no ack for: the less of it lands twice, the better.
impl Drop for Exchange {
    fn drop(&mut self) {
        self.session.abandon();
    }
}

/// What an input takes of memory: small records and headers take more than their bytes.
fn cost(input: &AppendInput) -> usize {
    let of_records: usize =
        input.records().iter().map(|r| size_of::<Record>() + r.headers.len() * size_of::<Header>()).sum();
    let bytes = usize::try_from(input.metered_bytes()).unwrap_or(usize::MAX);
    bytes.saturating_add(of_records).saturating_add(INPUT_OVERHEAD_BYTES)
}

/// The input that waits, once it need not; never if none does.
async fn ready(waiting: &mut Option<Waiting>) -> (AppendInput, Option<OwnedSemaphorePermit>) {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}
