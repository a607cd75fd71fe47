//! Records of a stream: append, read, follow, check the tail; and how a call finds its stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::Service;
use super::error::{Error, Result, of_stream};
use super::streams::identity;
use crate::engine::{self, Follow, Session, Snapshot, Stream};
use crate::storage::key::{Incarnation, random_below};
use crate::storage::meta::BasinRecord;
use crate::telemetry::count_cache;
use crate::types::config::StreamConfigLayer;
use crate::types::limits::BATCH_METERED_BYTES_MAX;
use crate::types::name::{BasinName, StreamName};
use crate::types::record::{AppendAck, AppendInput, ReadBatch, ReadLimits, ReadRequest, StreamPosition};
use crate::types::time::Deadline;

/// How often a call starts over because a basin or stream was deleted and made again under it.
const RESTARTS_MAX: usize = 16;
/// Batches that a session may have fetched before they are asked for.
const AHEAD_BATCHES_MAX: u64 = 8;
/// Bounds of the silence between heartbeats.
const HEARTBEAT_MS: std::ops::Range<u64> = 5_000..15_000;

/// Which stream, and how to create it if its basin says so.
#[derive(Clone, Debug)]
pub struct StreamRef {
    /// The basin.
    pub basin: BasinName,
    /// The stream.
    pub name: StreamName,
    /// The configuration for an auto-created stream.
    pub config: StreamConfigLayer,
}

/// Whose flag of a basin lets a call create its stream.
#[derive(Clone, Copy)]
enum CreateOn {
    Append,
    Read,
    Never,
}

impl CreateOn {
    fn allows(self, basin: &BasinRecord) -> bool {
        match self {
            Self::Append => basin.config.create_stream_on_append,
            Self::Read => basin.config.create_stream_on_read,
            Self::Never => false,
        }
    }
}

/// What a read session yields.
#[derive(Debug)]
pub enum ReadEvent {
    /// Records, at least one.
    Batch(ReadBatch),
    /// The session has caught up, or has been idle for 5–15 s.
    Heartbeat(StreamPosition),
}

/// A read that may go on for ever. It ends after its limits, its idle wait, or an error.
#[derive(Debug)]
pub struct ReadSession {
    stream: Arc<Stream>,
    /// The newest version known to the session; always of the same life.
    snapshot: Arc<Snapshot>,
    next_seq_num: u64,
    limits: ReadLimits,
    /// Metered bytes of one batch, unless its first record alone is larger.
    batch_bytes_max: u64,
    /// Batches asked for beyond the one that is waited for: none at first, twice as many each time, because a
    /// client that came so far is likely to read on.
    ahead_batches: u64,
    /// Longest idle gap; `None` is for ever.
    wait: Option<Duration>,
    follow: Option<Follow>,
    /// When the idle gap ends, once it has begun.
    idle_until: Option<Deadline>,
    /// When a sign of life is due, if nothing else is yielded before.
    heartbeat_at: Deadline,
    is_done: bool,
}

impl ReadSession {
    /// The same in smaller batches: each stops before this many metered bytes, unless its first record alone is
    /// larger.
    #[must_use]
    pub fn in_batches_of(self, metered_bytes_max: u64) -> Self {
        Self { batch_bytes_max: metered_bytes_max.min(BATCH_METERED_BYTES_MAX), ..self }
    }

    /// The next event; `None` is the clean end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<ReadEvent>> {
        while !self.is_done {
            match self.step().await {
                Ok(Some(event)) => {
                    self.heartbeat_at = Self::heartbeat_deadline();
                    return Some(Ok(event));
                }
                Ok(None) => {}
                Err(error) => {
                    self.is_done = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// The first batch, waited for if the session may; empty if it ends before. Dropping the future loses nothing.
    pub async fn first_batch(&mut self) -> Result<ReadBatch> {
        loop {
            match self.next().await {
                Some(Ok(ReadEvent::Batch(batch))) => return Ok(batch),
                Some(Ok(ReadEvent::Heartbeat(_))) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(ReadBatch::default()),
            }
        }
    }

    async fn step(&mut self) -> Result<Option<ReadEvent>> {
        let tail = self.snapshot.doc.tail_position();
        if self.limits.is_zero() {
            self.is_done = true;
            return Ok(None);
        }
        if self.next_seq_num < tail.seq_num {
            return self.step_read(tail).await;
        }
        if self.wait == Some(Duration::ZERO) {
            self.is_done = true;
            return Ok(None);
        }
        if self.follow.is_none() {
            self.follow = Some(self.stream.follow());
            self.idle_until.get_or_insert(self.idle_deadline());
            return Ok(Some(ReadEvent::Heartbeat(tail)));
        }
        self.step_wait(tail).await
    }

    async fn step_read(&mut self, tail: StreamPosition) -> Result<Option<ReadEvent>> {
        let read =
            self.stream.read_batch(&self.snapshot, self.next_seq_num, self.limits, self.batch_bytes_max);
        let ahead = self.stream.fetch_ahead(&self.snapshot, self.next_seq_num, self.ahead_batches);
        let (read, ()) = futures::join!(read, ahead);
        let batch = read.map_err(|e| self.of_stream(e))?;
        if self.limits.is_unbounded() {
            self.ahead_batches = (self.ahead_batches * 2).clamp(1, AHEAD_BATCHES_MAX);
        }
        self.next_seq_num = batch.next_seq_num;
        self.limits = self.limits.after(&batch.records);
        self.is_done = batch.is_last;
        if batch.records.is_empty() {
            return Ok(None);
        }
        self.idle_until = Some(self.idle_deadline());
        let tail = (self.next_seq_num >= tail.seq_num).then_some(tail);
        Ok(Some(ReadEvent::Batch(ReadBatch { records: batch.records, tail })))
    }

    /// Waits for news, for the end of the idle gap, or for the time to say that the session lives.
    async fn step_wait(&mut self, tail: StreamPosition) -> Result<Option<ReadEvent>> {
        let version = self.snapshot.doc.head.version;
        let idle = self.idle_until.map_or(Duration::MAX, |deadline| deadline.remaining());
        let idle = if self.wait.is_some() { idle } else { Duration::MAX };
        let silence = self.heartbeat_at.remaining();
        let Some(follow) = &mut self.follow else { return Ok(None) };
        match tokio::time::timeout(silence.min(idle), follow.after(version)).await {
            Ok(news) => {
                let is_same_life = news.doc.head.incarnation == self.snapshot.doc.head.incarnation;
                if !is_same_life || !news.doc.head.is_live() {
                    return Err(self.of_stream(engine::Error::NoStream));
                }
                self.snapshot = news;
                Ok(None)
            }
            Err(_) if idle <= silence => {
                self.is_done = true;
                Ok(None)
            }
            Err(_) => Ok(Some(ReadEvent::Heartbeat(tail))),
        }
    }

    fn heartbeat_deadline() -> Deadline {
        let silence = HEARTBEAT_MS.start + random_below(HEARTBEAT_MS.end - HEARTBEAT_MS.start);
        Deadline::after(Duration::from_millis(silence))
    }

    fn idle_deadline(&self) -> Deadline {
        Deadline::after(self.wait.unwrap_or(Duration::from_secs(u64::from(u32::MAX))))
    }

    fn of_stream(&self, error: engine::Error) -> Error {
        of_stream(self.stream.identity.name.as_str(), error)
    }
}

/// A session of pipelined appends to one stream: committed in order, none after the first that fails.
#[derive(Clone, Debug)]
pub struct AppendSession {
    stream: Arc<Stream>,
    session: Arc<Session>,
}

impl AppendSession {
    /// Takes a batch at once; the future yields its outcome. The budget is given back with the memory that the
    /// batch takes, whether the future is polled or not.
    pub fn append(
        &self,
        input: AppendInput,
        budget: Option<OwnedSemaphorePermit>,
    ) -> impl Future<Output = Result<AppendAck>> + Send + 'static {
        let submitted = self.stream.submit(Arc::new(input), Some(self.session.clone()), budget);
        let stream = self.stream.clone();
        async move {
            let outcome = match submitted {
                Ok(submitted) => submitted.outcome().await,
                Err(error) => Err(error),
            };
            outcome.map_err(|error| of_stream(stream.identity.name.as_str(), error))
        }
    }

    /// Nobody waits for the rest: what is not on its way to the store any more is not accepted.
    pub fn abandon(&self) {
        self.session.end();
    }
}

impl Service {
    /// Opens a session of appends; the stream is there, or is created if its basin says so.
    pub async fn append_session(&self, target: &StreamRef) -> Result<AppendSession> {
        let open = |stream: Arc<Stream>| async move {
            let life = stream.refresh_live().await?.doc.head.incarnation;
            Ok(AppendSession { stream, session: Session::begin(life) })
        };
        self.with_stream(target, CreateOn::Append, open).await
    }

    /// The position of the next record; linearizable.
    pub async fn check_tail(&self, target: &StreamRef) -> Result<StreamPosition> {
        let found =
            self.with_stream(target, CreateOn::Read, |s| async move { s.refresh_live().await }).await?;
        Ok(found.doc.tail_position())
    }

    /// Commits a batch whole, or not at all.
    pub async fn append(&self, target: &StreamRef, input: AppendInput) -> Result<AppendAck> {
        let input = Arc::new(input);
        let append = |stream: Arc<Stream>| {
            let input = input.clone();
            async move { stream.append(input).await }
        };
        self.with_stream(target, CreateOn::Append, append).await
    }

    /// One batch of at most 1,000 records and 1 MiB metered; waits at the tail if the request may.
    pub async fn read(&self, target: &StreamRef, request: ReadRequest) -> Result<ReadBatch> {
        self.read_session(target, request).await?.first_batch().await
    }

    /// Opens a session: errors of the start come at once, the records from [`ReadSession::next`].
    pub async fn read_session(&self, target: &StreamRef, request: ReadRequest) -> Result<ReadSession> {
        let open = |stream: Arc<Stream>| async move {
            let snapshot = stream.refresh_live().await?;
            // A read of nothing is answered even where nothing is written yet.
            let start = match request.limits.is_zero() {
                true => snapshot.doc.log.next_seq_num,
                false => stream.resolve_start(&snapshot, &request).await?,
            };
            Ok((stream, snapshot, start))
        };
        let (stream, snapshot, next_seq_num) = self.with_stream(target, CreateOn::Read, open).await?;
        let wait = match request.wait_secs {
            Some(secs) => Some(Duration::from_secs(secs.into())),
            None if request.limits.is_unbounded() => None,
            None => Some(Duration::ZERO),
        };
        Ok(ReadSession {
            stream,
            snapshot,
            next_seq_num,
            limits: request.limits,
            batch_bytes_max: BATCH_METERED_BYTES_MAX,
            ahead_batches: 0,
            wait,
            follow: None,
            idle_until: None,
            heartbeat_at: ReadSession::heartbeat_deadline(),
            is_done: false,
        })
    }

    /// Runs a call that never creates its stream.
    pub(super) async fn with_live_stream<T, F>(
        &self,
        basin: &BasinName,
        name: &StreamName,
        call: impl Fn(Arc<Stream>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = engine::Result<T>>,
    {
        let config = StreamConfigLayer::default();
        let target = StreamRef { basin: basin.clone(), name: name.clone(), config };
        self.with_stream(&target, CreateOn::Never, call).await
    }

    /// Runs a call on a stream, under the basin's life as this process knows it. That there is no stream is an
    /// answer only after the basin record was read since the call arrived (I-9).
    async fn with_stream<T, F>(
        &self,
        target: &StreamRef,
        create_on: CreateOn,
        call: impl Fn(Arc<Stream>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = engine::Result<T>>,
    {
        let StreamRef { basin, name, config } = target;
        let cached = self.basins.get(basin);
        count_cache("basin", cached.is_some());
        let mut fetched = match cached {
            Some(_) => None,
            None => Some(self.fetch_basin(basin).await?),
        };
        let mut incarnation: Incarnation = match (&fetched, cached) {
            (Some(record), _) => record.head.incarnation,
            (None, Some(cached)) => cached,
            (None, None) => return Err(Error::BasinNotFound(basin.to_string())),
        };
        for _ in 0..RESTARTS_MAX {
            match call(self.engine.stream(&identity(incarnation, name))).await {
                Err(engine::Error::NoStream) => {}
                outcome => return outcome.map_err(|e| of_stream(name.as_str(), e)),
            }
            let record = match fetched.take() {
                Some(record) => record,
                None => self.fetch_basin(basin).await?,
            };
            if record.head.incarnation != incarnation {
                incarnation = record.head.incarnation;
                fetched = Some(record);
                continue;
            }
            if !create_on.allows(&record) {
                return Err(Error::StreamNotFound(name.to_string()));
            }
            self.provision(basin, name, *config, None).await?;
        }
        Err(Error::TransactionConflict(name.to_string()))
    }
}
