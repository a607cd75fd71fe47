//! The batches of one stream that wait for a commit, and what its writer remembers between commits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use super::upload::{PageRoll, TailRoll, Uploading};
use super::{Error, Result};
use crate::types::limits::CHUNK_BYTES_MAX;
use crate::types::record::{AppendAck, AppendInput};
use crate::types::time::Deadline;

/// A batch that waits for its outcome.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) input: Arc<AppendInput>,
    pub(super) encoded_bytes_max: usize,
    pub(super) deadline: Deadline,
    pub(super) reply: oneshot::Sender<Result<AppendAck>>,
}

impl Pending {
    /// Tells the caller, if it is still there.
    pub(super) fn answer(self, outcome: Result<AppendAck>) {
        let _ = self.reply.send(outcome);
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
