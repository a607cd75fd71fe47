//! Reads: some messages from a place on, and waiting for more.

use std::sync::Arc;
use std::time::Duration;

use super::error::{Error, Result, of_engine};
use super::{DurableRef, Status, ledger};
use crate::engine::{Follow, Snapshot, Stream};
use crate::service::Service;
use crate::types::ledger::Lifetime;
use crate::types::limits::BATCH_METERED_BYTES_MAX;
use crate::types::record::{ReadLimits, SequencedRecord};
use crate::types::time::Deadline;

/// Bounds of the time after which a reader that waits looks at the stream's lifetime.
const LIFETIME_LOOK_MS: std::ops::RangeInclusive<u64> = 250..=10_000;

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the first message.
    Start,
    /// At the end.
    Tail,
    /// At this message.
    At(u64),
}

/// A reader at some place of one life of a stream.
#[derive(Debug)]
pub struct Reader {
    service: Service,
    stream: Arc<Stream>,
    /// The newest version known to the reader.
    snapshot: Arc<Snapshot>,
    next: u64,
    follow: Option<Follow>,
}

impl Service {
    /// Opens a stream at a place; a use of it.
    pub async fn durable_reader(&self, target: &DurableRef, from: ReadFrom) -> Result<Reader> {
        let open = |stream: Arc<Stream>| async move {
            let snapshot = stream.refresh_live().await?;
            Ok((stream, snapshot))
        };
        let (stream, snapshot) = self.on_durable(target, open).await?;
        self.usable(&target.name, &snapshot)?;
        let (start, tail) = (snapshot.doc.log.trim_point, snapshot.doc.log.next_seq_num);
        let next = match from {
            ReadFrom::Start => 0,
            ReadFrom::Tail => tail,
            ReadFrom::At(next) => next,
        };
        if next > tail {
            return Err(Error::BeyondTail { tail });
        }
        // What is left of the beginning is no beginning.
        if next < start {
            return Err(Error::Trimmed { start });
        }
        Ok(self.reader(stream, snapshot, next).await)
    }

    /// A reader at a place of a version of a stream; a use of it.
    pub(super) async fn reader(&self, stream: Arc<Stream>, found: Arc<Snapshot>, next: u64) -> Reader {
        let snapshot = self.renew(&stream, found).await;
        Reader { service: self.clone(), stream, snapshot, next, follow: None }
    }
}

impl Reader {
    /// What the stream is, as far as the reader knows.
    pub fn status(&self) -> Result<Status> {
        Ok(Status::of(&self.snapshot.doc, ledger(&self.snapshot.doc)?))
    }

    /// The next message.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether no more messages are known.
    #[must_use]
    pub fn is_at_tail(&self) -> bool {
        self.next >= self.snapshot.doc.log.next_seq_num
    }

    /// The messages from here on, up to so many bytes, but at least one if there is any.
    pub async fn messages(&mut self, bytes_max: u64) -> Result<Vec<SequencedRecord>> {
        let mut messages = Vec::new();
        let mut left = bytes_max;
        // A snapshot may stand for them by now; then they are not passed over in silence.
        let start = self.snapshot.doc.log.trim_point;
        if self.next < start {
            return Err(Error::Trimmed { start });
        }
        while !self.is_at_tail() && (left > 0 || messages.is_empty()) {
            let batch_max = left.min(BATCH_METERED_BYTES_MAX);
            let read = self.stream.read_batch(&self.snapshot, self.next, ReadLimits::default(), batch_max);
            let batch = read.await.map_err(|e| of_engine(&self.stream.identity.name, e))?;
            let first = batch.records.first().map_or(batch.next_seq_num, |first| first.seq_num);
            if first != self.next || batch.records.is_empty() {
                return Err(Error::Trimmed { start: first });
            }
            let metered: u64 = batch.records.iter().map(SequencedRecord::metered_bytes).sum();
            if !messages.is_empty() && metered > left {
                break;
            }
            left = left.saturating_sub(metered);
            self.next = batch.next_seq_num;
            messages.extend(batch.records);
        }
        Ok(messages)
    }

    /// Waits for more messages or for the end; whether there is any of it. Dropping the future loses nothing.
    pub async fn wait(&mut self, longest: Duration) -> Result<bool> {
        let until = Deadline::after(longest);
        let follow = self.follow.get_or_insert_with(|| self.stream.follow());
        loop {
            let doc = &self.snapshot.doc;
            let ledger = self.service.usable(&self.stream.identity.name, &self.snapshot)?;
            if self.next < doc.log.next_seq_num || ledger.is_closed {
                return Ok(true);
            }
            let left = until.remaining();
            if left.is_zero() {
                return Ok(false);
            }
            let look_ms = match ledger.lifetime {
                Lifetime::Idle(secs) => secs.saturating_mul(1_000) / 3,
                Lifetime::Until(_) => *LIFETIME_LOOK_MS.start(),
                Lifetime::Endless => u64::MAX,
            };
            let look_ms = look_ms.clamp(*LIFETIME_LOOK_MS.start(), *LIFETIME_LOOK_MS.end());
            let look = left.min(Duration::from_millis(look_ms));
            match tokio::time::timeout(look, follow.after(doc.head.version)).await {
                Ok(news) => {
                    let is_same_life = news.doc.head.incarnation == doc.head.incarnation;
                    if !is_same_life || !news.doc.head.is_live() {
                        return Err(Error::StreamNotFound(self.stream.identity.name.to_string()));
                    }
                    self.snapshot = news;
                }
                Err(_) => self.snapshot = self.service.renew(&self.stream, self.snapshot.clone()).await,
            }
        }
    }
}
