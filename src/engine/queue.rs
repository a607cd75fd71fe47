//! The batches of one stream that wait for a commit, and what its writer remembers between commits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use super::admission::{Candidate, Rejection, SessionId};
use super::upload::{PageRoll, TailRoll, Uploading};
use super::{Error, Result};
use crate::storage::key::Incarnation;
use crate::types::limits::CHUNK_BYTES_MAX;
use crate::types::record::{AppendAck, AppendInput};
use crate::types::time::Deadline;

/// A session: its batches are committed in order, and none after the first that fails.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    /// The life of the stream it began in.
    life: Incarnation,
    /// No more batches are taken. Those taken before may still be committed.
    is_closed: AtomicBool,
    /// None of its batches is accepted any more, whether it waits or is yet to come.
    has_ended: AtomicBool,
}

impl Session {
    /// A session on this life of a stream, in which nothing has failed.
    #[must_use]
    pub fn begin(life: Incarnation) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = SessionId(NEXT.fetch_add(1, Ordering::Relaxed));
        Arc::new(Self { id, life, is_closed: AtomicBool::new(false), has_ended: AtomicBool::new(false) })
    }

    /// From now on, none of its batches is accepted. One whose commit is on its way may still land.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.close();
    }

    /// From now on, no more batches are taken, because one was not: the ones before it are not affected.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    fn refusal(&self, life: Incarnation) -> Option<Rejection> {
        match (self.has_ended.load(Ordering::Acquire), self.life == life) {
            (true, _) => Some(Rejection::SessionEnded),
            (false, false) => Some(Rejection::StreamRecreated),
            (false, true) => None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// A batch that waits for its outcome.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) input: Arc<AppendInput>,
    pub(super) encoded_bytes_max: usize,
    pub(super) deadline: Deadline,
    pub(super) session: Option<Arc<Session>>,
    /// What it holds of a budget for as long as it is in memory.
    pub(super) _budget: Option<OwnedSemaphorePermit>,
    /// Taken when it is answered.
    pub(super) reply: Option<oneshot::Sender<Result<AppendAck>>>,
}

/// A batch that is dropped without an answer has failed like any other: the later ones of its session must not
/// be accepted.
impl Drop for Pending {
    fn drop(&mut self) {
        if let (Some(session), Some(_)) = (&self.session, &self.reply) {
            session.end();
        }
    }
}

impl Pending {
    /// What is to be judged on a state of this life of the stream.
    pub(super) fn candidate(&self, life: Incarnation) -> Candidate<'_> {
        let session = self.session.as_ref();
        let refusal = session.and_then(|session| session.refusal(life));
        let refusal = refusal.or_else(|| self.is_for_another(life).then_some(Rejection::OtherLife));
        Candidate {
            input: &self.input,
            session: session.map(|session| session.id),
            refusal,
            life: Some(life),
        }
    }

    /// Whether the batch is an entry that is meant for states of other lives only.
    fn is_for_another(&self, life: Incarnation) -> bool {
        let expected = self.input.entry.as_ref().and_then(|entry| entry.expected.as_ref());
        expected.is_some_and(|tags| tags.iter().all(|tag| tag.life != life.to_string()))
    }

    /// Tells the caller, if it is still there. A failure ends the batch's session.
    pub(super) fn answer(mut self, outcome: Result<AppendAck>) {
        if let (Some(session), Err(_)) = (&self.session, &outcome) {
            session.end();
        }
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(outcome);
        }
    }
}

/// The batches of one stream that wait for a commit.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the driver when a batch arrives.
    pub(super) arrived: Notify,
}

/// What a queue holds.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Oldest first.
    pub(super) batches: VecDeque<Pending>,
    /// Upper bound of their encoded size.
    pub(super) bytes: usize,
    /// What the writer of this stream remembers, while no driver has it.
    pub(super) writer: Option<Writer>,
    /// Whether a driver is at work.
    pub(super) is_driven: bool,
}

/// What the writer of a stream remembers from one commit to the next.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// A chunk of the inline tail, to be swapped in by a later commit.
    pub(super) tail_roll: Option<Uploading<TailRoll>>,
    /// An index page, to be swapped in by a later commit.
    pub(super) page_roll: Option<Uploading<PageRoll>>,
    /// When this process last saw that another one had committed.
    pub(super) foreign_commit: Option<Instant>,
}

impl Queue {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the oldest batches, up to what one chunk holds, but at least one if there is any. Those whose time
    /// is over are answered instead: nothing of them was sent.
    pub(super) fn take(&self) -> Vec<Pending> {
        let mut state = self.state();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(batch) = state.batches.pop_front() {
            if batch.deadline.has_passed() {
                state.bytes -= batch.encoded_bytes_max;
                batch.answer(Err(Error::Overloaded("the append waited too long for those before it")));
                continue;
            }
            if !taken.is_empty() && bytes + batch.encoded_bytes_max > CHUNK_BYTES_MAX {
                state.batches.push_front(batch);
                break;
            }
            bytes += batch.encoded_bytes_max;
            taken.push(batch);
        }
        state.bytes -= bytes;
        taken
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.state().bytes
    }

    pub(super) fn len(&self) -> usize {
        self.state().batches.len()
    }

    /// Completes when a batch has arrived since the last call.
    pub(super) async fn arrival(&self) {
        self.arrived.notified().await;
    }
}
