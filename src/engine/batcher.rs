//! Group commit: batches of one stream queue while a commit is in flight, and leave together.
//!
//! A queue has at most one driver, which takes what is queued, has it committed, and ends when nothing is left. It
//! outlives its callers, because a batch that was queued may be committed although its client is gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::task::TaskTracker;

use super::admission::Rejection;
use super::group::Group;
use super::queue::{Pending, Session, Writer};
use super::stream::Stream;
use super::{Error, Result};
use crate::storage::record::encoded_bytes_max;
use crate::types::limits::WRITER_QUEUE_BYTES_MAX;
use crate::types::record::{AppendAck, AppendInput};
use crate::types::time::{Deadline, monotonic};

/// How long a caller waits beyond its deadline for what the driver knows.
const VERDICT_GRACE: Duration = Duration::from_millis(200);

/// A batch that was taken: its outcome comes.
#[derive(Debug)]
pub struct Submitted {
    outcome: oneshot::Receiver<Result<AppendAck>>,
    deadline: Deadline,
    session: Option<Arc<Session>>,
}

impl Submitted {
    /// The outcome of the batch.
    pub async fn outcome(self) -> Result<AppendAck> {
        // The driver keeps to the same deadline and knows more: it has a moment to say so.
        let Self { outcome, deadline, session } = self;
        let why = match tokio::time::timeout(deadline.remaining() + VERDICT_GRACE, outcome).await {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(_)) => "the writer ended without an answer",
            Err(_) => "no outcome before the deadline",
        };
        // The caller takes it for failed, so the later batches of its session must fail as well.
        if let Some(session) = session {
            session.end();
        }
        Err(Error::Indefinite { why, source: None })
    }
}

impl Stream {
    /// Commits a batch whole, or not at all.
    pub async fn append(self: &Arc<Self>, input: Arc<AppendInput>) -> Result<AppendAck> {
        let (submitted, driving) = self.enqueue(input, None, None)?;
        let mut outcome = std::pin::pin!(submitted.outcome());
        let Some(driving) = driving else { return outcome.await };
        tokio::select! {
            biased;
            () = driving => outcome.await,
            // The batches of others are still to be committed: that goes on as a task of its own.
            outcome = &mut outcome => outcome,
        }
    }

    /// Takes a batch to be committed whole, or not at all, after those submitted before it. The budget is given
    /// back once the batch is answered.
    pub fn submit(
        self: &Arc<Self>,
        input: Arc<AppendInput>,
        session: Option<Arc<Session>>,
        budget: Option<OwnedSemaphorePermit>,
    ) -> Result<Submitted> {
        // A driver that is dropped goes on as a task.
        self.enqueue(input, session, budget).map(|(submitted, _driving)| submitted)
    }

    /// Queues a batch; yields the queue's driver if it has none yet.
    fn enqueue(
        self: &Arc<Self>,
        input: Arc<AppendInput>,
        session: Option<Arc<Session>>,
        budget: Option<OwnedSemaphorePermit>,
    ) -> Result<(Submitted, Option<Driving>)> {
        if session.as_ref().is_some_and(|session| session.is_closed()) {
            return Err(Error::Rejected(Rejection::SessionEnded));
        }
        let deadline = Deadline::after(self.shared.options.write_timeout);
        let encoded_bytes_max = input.records().iter().map(encoded_bytes_max).sum();
        let (reply, outcome) = oneshot::channel();
        let mut state = self.queue.state();
        if state.bytes + encoded_bytes_max > WRITER_QUEUE_BYTES_MAX {
            if let Some(session) = session {
                session.close();
            }
            return Err(Error::Overloaded("too many appends of this stream are waiting in this process"));
        }
        state.bytes += encoded_bytes_max;
        state.batches.push_back(Pending {
            input,
            encoded_bytes_max,
            deadline,
            session: session.clone(),
            _budget: budget,
            reply: Some(reply),
        });
        let driving = (!state.is_driven).then(|| {
            state.is_driven = true;
            let writer = state.writer.take().unwrap_or_default();
            let drive = drive(Driver { stream: self.clone(), is_done: false }, writer);
            Driving { drive: Some(Box::pin(drive)), tasks: self.shared.tasks.clone() }
        });
        drop(state);
        self.queue.arrived.notify_one();
        Ok((Submitted { outcome, deadline, session }, driving))
    }
}

/// The driver of a queue, at first in the hands of the caller that found the queue idle: a lone append wakes no
/// other task. Should that caller go away, or have its outcome while others wait, the driver goes on as a task.
struct Driving {
    drive: Option<BoxFuture<'static, ()>>,
    tasks: TaskTracker,
}

impl Future for Driving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(drive) = &mut self.drive else { return Poll::Ready(()) };
        ready!(drive.as_mut().poll(context));
        self.drive = None;
        Poll::Ready(())
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        // A driver that panicked has given the queue back already.
        if let (Some(drive), Ok(runtime)) = (self.drive.take(), Handle::try_current())
            && !std::thread::panicking()
        {
            self.tasks.spawn_on(drive, &runtime);
        }
    }
}

/// Gives the queue back when the driver ends, also by a panic: then whoever waits learns that nobody will answer.
struct Driver {
    stream: Arc<Stream>,
    is_done: bool,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = self.stream.queue.state();
            state.is_driven = false;
            state.bytes = 0;
            state.batches.clear();
        }
    }
}

/// What the pace of the last commit says about the next.
#[derive(Debug, Default)]
struct Pace {
    batches: usize,
    took: Duration,
    ended: Option<Instant>,
}

async fn drive(mut driver: Driver, mut writer: Writer) {
    let stream = driver.stream.clone();
    let mut pace = Pace::default();
    let mut next: Option<Group> = None;
    loop {
        let group = match next.take() {
            Some(group) => group,
            None => {
                linger(&stream, &pace).await;
                let batches = stream.queue.take();
                if batches.is_empty() {
                    let mut state = stream.queue.state();
                    // A batch may have arrived since the queue was seen empty.
                    if state.batches.is_empty() {
                        state.is_driven = false;
                        state.writer = Some(writer);
                        driver.is_done = true;
                        return;
                    }
                    continue;
                }
                Group::new(batches, stream.shared.clock.now_ms())
            }
        };
        let (batches, started) = (group.len(), monotonic());
        next = writer.commit_group(&stream, group).await;
        let ended = monotonic();
        pace = Pace { batches, took: ended.saturating_duration_since(started), ended: Some(ended) };
    }
}

/// Waits for more batches, but only for those that the last commit's pace lets expect: a lone request never
/// waits, and no one waits longer than the flush interval or the last commit.
async fn linger(stream: &Stream, pace: &Pace) {
    let Some(ended) = pace.ended else { return };
    if pace.batches < 2 || stream.queue.len() >= pace.batches {
        return;
    }
    let class = stream.known().map(|s| s.doc.config.storage_class).unwrap_or_default();
    let patience = stream.shared.options.flush(class).min(pace.took);
    let deadline = ended + patience;
    while stream.queue.len() < pace.batches {
        let left = deadline.saturating_duration_since(monotonic());
        if left.is_zero() || tokio::time::timeout(left, stream.queue.arrival()).await.is_err() {
            return;
        }
    }
}
