//! Locate, fetch, decode: records of one version of a manifest.
//!
//! A read is a traversal of the index with three lower bounds at once: sequence number, arrival (retention) and
//! timestamp. All three never decrease along a stream, so whatever ends below a bound is skipped unread.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

use super::fetch::{ChunkReader, wanted_blocks};
use super::stream::{Snapshot, Stream};
use super::upload::load_page;
use super::{Error, Result};
use crate::storage::chunk::decode_block;
use crate::storage::frame::Damaged;
use crate::storage::index::{Ref, Target};
use crate::storage::key::{self, StreamHash};
use crate::storage::manifest::Manifest;
use crate::storage::record::{StampedRecord, decode_run};
use crate::storage::{self};
use crate::types::config::RetentionPolicy;
use crate::types::limits::{BATCH_METERED_BYTES_MAX, BATCH_RECORDS_MAX};
use crate::types::record::{BeyondTail, ReadLimits, ReadRequest, ReadStart, SequencedRecord};

/// Objects fetched at the same time for one batch. Many are small ones: a batch bounds all of them together.
const FETCHES_MAX: usize = 32;
/// A record is never hidden before its age, whatever the clocks say within this.
const RETENTION_SLACK_MS: u64 = 5_000;
/// How often a read follows objects that a sweeper takes away before it gives up.
const RELOADS_MAX: usize = 16;

/// Some consecutive records and where to go on.
#[derive(Debug, Default)]
pub struct Batch {
    /// At most 1,000 and 1 MiB metered.
    pub records: Vec<SequencedRecord>,
    /// Where the next batch begins.
    pub next_seq_num: u64,
    /// Whether the limits of the read are reached.
    pub is_last: bool,
}

/// Where a read begins: the first record that is at or above all three. And how much one batch may hold.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    seq_num: u64,
    arrival_ms: u64,
    timestamp: u64,
    metered_bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { seq_num: 0, arrival_ms: 0, timestamp: 0, metered_bytes_max: BATCH_METERED_BYTES_MAX }
    }
}

impl Bounds {
    fn skips(&self, r: &Ref) -> bool {
        r.end_seq() <= self.seq_num
            || r.last_arrival_ms < self.arrival_ms
            || r.last_timestamp < self.timestamp
    }
}

impl Stream {
    /// The sequence number at which a read begins, or [`Error::BeyondTail`].
    pub async fn resolve_start(&self, snapshot: &Arc<Snapshot>, request: &ReadRequest) -> Result<u64> {
        let tail = snapshot.doc.tail_position();
        let is_beyond = match request.start {
            ReadStart::SeqNum(seq_num) => seq_num > tail.seq_num,
            ReadStart::Timestamp(timestamp) => timestamp > tail.timestamp,
            ReadStart::TailOffset(_) => false,
        };
        let start = match (is_beyond, request.beyond_tail, request.start) {
            (true, BeyondTail::Refuse, _) => return Err(Error::BeyondTail(tail)),
            (true, BeyondTail::Clamp, _) => tail.seq_num,
            (false, _, ReadStart::SeqNum(seq_num)) => seq_num,
            (false, _, ReadStart::TailOffset(offset)) => tail.seq_num.saturating_sub(offset),
            (false, _, ReadStart::Timestamp(timestamp)) => {
                let one = ReadLimits { count: Some(1), ..ReadLimits::default() };
                let found = self.read_from(snapshot, Bounds { timestamp, ..Bounds::default() }, one).await?;
                found.records.first().map_or(tail.seq_num, |r| r.seq_num)
            }
        };
        if start == tail.seq_num && !request.may_follow() {
            return Err(Error::BeyondTail(tail));
        }
        Ok(start)
    }

    /// The records from `from` on that this version of the manifest has, within the limits of a batch, which
    /// stops before `metered_bytes_max` unless its first record alone is larger.
    pub async fn read_batch(
        &self,
        snapshot: &Arc<Snapshot>,
        from: u64,
        limits: ReadLimits,
        metered_bytes_max: u64,
    ) -> Result<Batch> {
        let bounds = Bounds { seq_num: from, metered_bytes_max, ..Bounds::default() };
        self.read_from(snapshot, bounds, limits).await
    }

    /// Reads, and follows objects that a sweeper moved: a missing object means that the manifest is old, unless
    /// one fetched after that still names it.
    async fn read_from(&self, snapshot: &Arc<Snapshot>, bounds: Bounds, limits: ReadLimits) -> Result<Batch> {
        let mut snapshot = snapshot.clone();
        let mut missing = None;
        for _ in 0..RELOADS_MAX {
            match self.try_read(&snapshot.doc, bounds, limits).await {
                Err(Error::Missing(id)) if missing == Some(id) => {
                    let gone = Damaged::new("stream", "its manifest names this object, which is gone");
                    return Err(storage::Error::damaged(id.to_string(), gone).into());
                }
                Err(Error::Missing(id)) => {
                    missing = Some(id);
                    let incarnation = snapshot.doc.head.incarnation;
                    snapshot = self.refresh_live().await?;
                    if snapshot.doc.head.incarnation != incarnation {
                        return Err(Error::NoStream);
                    }
                }
                outcome => return outcome,
            }
        }
        Err(Error::Overloaded("the stream is being rewritten faster than it can be read"))
    }

    async fn try_read(&self, manifest: &Manifest, mut bounds: Bounds, limits: ReadLimits) -> Result<Batch> {
        bounds.seq_num = bounds.seq_num.max(manifest.log.trim_point);
        bounds.arrival_ms = bounds.arrival_ms.max(self.oldest_arrival_ms(manifest));
        let refs = self.locate(manifest, &bounds, 1).await?;
        let fetches: Vec<_> = refs.iter().map(|r| self.fetch(manifest, *r, bounds)).collect();
        let fetched: Vec<Fetched> =
            futures::stream::iter(fetches).buffered(FETCHES_MAX).try_collect().await?;
        let mut filler = Filler::new(bounds, limits);
        // The first ref that is not read to its end, or does not fit, ends the batch.
        let takes_all = fetched.into_iter().zip(&refs).all(|(fetched, r)| filler.fill(fetched, r));
        let reaches_tail = refs.last().is_none_or(|r| r.end_seq() == manifest.tail_base());
        if takes_all && reaches_tail {
            filler.fill_inline(&self.hash, manifest)?;
        }
        Ok(filler.batch)
    }

    /// Brings into memory what `batches` batches after the one from `from` on need, if that one has to wait for
    /// the store itself. What fails here is asked for again by whoever needs it.
    pub async fn fetch_ahead(&self, snapshot: &Snapshot, from: u64, batches: u64) {
        let manifest = &snapshot.doc;
        let bounds = Bounds { seq_num: from.max(manifest.log.trim_point), ..Bounds::default() };
        let Ok(waited_for) = self.locate(manifest, &bounds, 1).await else { return };
        if waited_for.iter().all(|r| self.shared.objects.footer(r.id).is_some()) {
            return;
        }
        let Ok(refs) = self.locate(manifest, &bounds, 1 + batches).await else { return };
        let ahead: Vec<_> =
            refs.iter().skip(waited_for.len()).filter_map(|r| ChunkReader::of(self, manifest, r)).collect();
        let fetches: Vec<_> = ahead.iter().map(|chunk| chunk.footer()).collect();
        futures::stream::iter(fetches).buffer_unordered(FETCHES_MAX).for_each(|_| async {}).await;
    }

    /// The records of one chunk that is not part of the history.
    pub(super) async fn read_ref(&self, manifest: &Manifest, r: Ref) -> Result<Vec<SequencedRecord>> {
        Ok(self.fetch(manifest, r, Bounds::default()).await?.records)
    }

    /// Arrivals before this are past the stream's retention.
    fn oldest_arrival_ms(&self, manifest: &Manifest) -> u64 {
        match manifest.config.retention_policy {
            RetentionPolicy::Infinite => 0,
            RetentionPolicy::Age(secs) => {
                let kept_ms = secs.saturating_mul(1_000).saturating_add(RETENTION_SLACK_MS);
                self.shared.clock.now_ms().saturating_sub(kept_ms)
            }
        }
    }

    /// The chunk refs that this many batches from `bounds` on may need.
    async fn locate(&self, manifest: &Manifest, bounds: &Bounds, batches: u64) -> Result<Vec<Ref>> {
        let mut found = Found { refs: Vec::new(), batches };
        for level in manifest.levels.iter().rev() {
            self.collect(manifest, level, bounds, &mut found).await?;
        }
        Ok(found.refs)
    }

    /// Every chunk ref from a record on.
    pub(super) async fn refs_from(&self, manifest: &Manifest, seq_num: u64) -> Result<Vec<Ref>> {
        self.locate(manifest, &Bounds { seq_num, ..Bounds::default() }, u32::MAX.into()).await
    }

    /// Adds the chunk refs under `refs` that are wanted from `bounds` on.
    fn collect<'a>(
        &'a self,
        manifest: &'a Manifest,
        refs: &'a [Ref],
        bounds: &'a Bounds,
        found: &'a mut Found,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let from = refs.partition_point(|r| bounds.skips(r));
            for r in refs.iter().skip(from) {
                if is_enough(&found.refs, found.batches) {
                    break;
                }
                match r.target {
                    Target::Chunk { .. } => found.refs.push(*r),
                    Target::Page { .. } => {
                        let page = load_page(&self.shared, &self.hash, manifest.head.incarnation, r).await?;
                        self.collect(manifest, &page.refs, bounds, found).await?;
                    }
                }
            }
            Ok(())
        })
    }

    /// The records of one chunk ref from `bounds` on, as many as a batch may need.
    async fn fetch(&self, manifest: &Manifest, r: Ref, bounds: Bounds) -> Result<Fetched> {
        let Some(chunk) = ChunkReader::of(self, manifest, &r) else {
            return Err(Error::broken("index", "a page where a chunk should be"));
        };
        let first = chunk.first;
        let footer = chunk.footer().await?;
        let end = first + r.count;
        let mut from = first + bounds.seq_num.saturating_sub(r.base_seq);
        if r.first_arrival_ms < bounds.arrival_ms {
            from = from.max(footer.first_arrived_at(bounds.arrival_ms).min(end));
        }
        // A stored timestamp below the floor reads as the floor.
        let timestamp = if bounds.timestamp > r.timestamp_floor { bounds.timestamp } else { 0 };
        let blocks = wanted_blocks(&footer, from..end, timestamp);
        let runs = chunk.blocks(&blocks).await?;
        let mut records = Vec::new();
        for ((_, block), run) in blocks.iter().zip(runs) {
            let decoded = decode_block(&run, block).map_err(|e| storage::Error::damaged(&chunk.key, e))?;
            for (place, record) in (block.first..).zip(decoded) {
                if (from..end).contains(&place) {
                    let timestamp = record.timestamp.max(r.timestamp_floor);
                    records.push(sequenced(r.base_seq + (place - first), timestamp, record));
                }
            }
        }
        let read_to = blocks.last().map_or(end, |(_, b)| (b.first + b.count).min(end));
        Ok(Fetched { records, end_seq: r.base_seq + (read_to - first) })
    }
}

/// What was read of one ref.
struct Fetched {
    records: Vec<SequencedRecord>,
    /// One past the last record looked at.
    end_seq: u64,
}

/// Chunk refs, oldest first, as many as some batches need.
struct Found {
    refs: Vec<Ref>,
    batches: u64,
}

/// Whether these refs hold so many full batches, whatever of the first is skipped.
fn is_enough(refs: &[Ref], batches: u64) -> bool {
    let rest = refs.get(1..).unwrap_or_default();
    rest.iter().map(|r| r.count).sum::<u64>() >= batches * BATCH_RECORDS_MAX as u64
        || rest.iter().map(|r| r.metered_bytes).sum::<u64>() >= batches * BATCH_METERED_BYTES_MAX
}

fn sequenced(seq_num: u64, timestamp: u64, record: StampedRecord) -> SequencedRecord {
    let StampedRecord { headers, body, .. } = record;
    SequencedRecord { seq_num, timestamp, headers, body }
}

/// Fills a batch up to the limits of the read and of a batch.
struct Filler {
    bounds: Bounds,
    limits: ReadLimits,
    metered_bytes: u64,
    batch: Batch,
}

impl Filler {
    fn new(bounds: Bounds, limits: ReadLimits) -> Self {
        let batch = Batch { next_seq_num: bounds.seq_num, ..Batch::default() };
        Self { bounds, limits, metered_bytes: 0, batch }
    }

    /// Takes the records of a ref; whether more may follow.
    fn fill(&mut self, fetched: Fetched, r: &Ref) -> bool {
        for record in fetched.records {
            if !self.push(record) {
                return false;
            }
        }
        self.batch.next_seq_num = self.batch.next_seq_num.max(fetched.end_seq);
        fetched.end_seq == r.end_seq()
    }

    /// Takes records of the inline tail.
    fn fill_inline(&mut self, hash: &StreamHash, manifest: &Manifest) -> Result<()> {
        let mut seq_num = manifest.tail_base();
        for commit in &manifest.tail.0 {
            let end = seq_num + commit.count;
            let is_skipped = end <= self.bounds.seq_num
                || commit.arrival_ms < self.bounds.arrival_ms
                || commit.last_timestamp < self.bounds.timestamp;
            if !is_skipped {
                let records = decode_run(&commit.run, commit.count)
                    .map_err(|e| storage::Error::damaged(key::manifest(hash), e))?;
                for (seq_num, record) in (seq_num..).zip(records) {
                    if !self.push(sequenced(seq_num, record.timestamp, record)) {
                        return Ok(());
                    }
                }
            }
            seq_num = end;
        }
        self.batch.next_seq_num = self.batch.next_seq_num.max(seq_num);
        Ok(())
    }

    /// Takes a record, skips it, or stops before it; whether more may follow.
    fn push(&mut self, record: SequencedRecord) -> bool {
        let after = record.seq_num + 1;
        if record.seq_num < self.bounds.seq_num || record.timestamp < self.bounds.timestamp {
            self.batch.next_seq_num = self.batch.next_seq_num.max(after);
            return true;
        }
        let metered = self.metered_bytes + record.metered_bytes();
        let count = self.batch.records.len() + 1;
        let ReadLimits { count: count_max, bytes, until } = self.limits;
        if until.is_some_and(|until| record.timestamp >= until)
            || bytes.is_some_and(|bytes| metered > bytes)
            || count_max.is_some_and(|max| count as u64 > max)
        {
            self.batch.is_last = true;
            return false;
        }
        // The first fits whatever its size: a record of an entry may be larger than a batch.
        let bytes_max = if count == 1 { u64::MAX } else { self.bounds.metered_bytes_max };
        if count > BATCH_RECORDS_MAX || metered > bytes_max {
            return false;
        }
        self.metered_bytes = metered;
        self.batch.records.push(record);
        self.batch.next_seq_num = after;
        self.batch.is_last = count_max == Some(count as u64) || bytes == Some(metered);
        !self.batch.is_last
    }
}
