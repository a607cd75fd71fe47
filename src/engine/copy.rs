//! The beginning of one stream copied into another that is being filled, chunk by chunk, within the store.
//!
//! A copy has a key of its own under the life it is copied into, and names the life that wrote it in its footer and in
//! its ref: the streams share nothing afterwards. Every few chunks are committed together, under the fence of every
//! upload (I-8), which is also the sign of life of whoever fills the stream.

use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use super::queue::Writer;
use super::stream::{Snapshot, Stream};
use super::upload::{Begun, enter_chunk, move_count};
use super::{Error, Result};
use crate::storage::head::State;
use crate::storage::index::{Ref, Target};
use crate::storage::key::{self, ObjectId};
use crate::storage::ledger::Stage;
use crate::storage::manifest::Manifest;
use crate::storage::register::{Outcome, jittered};
use crate::storage::{self};
use crate::types::time::Deadline;

/// Copies on their way at the same time.
const AT_ONCE: usize = 16;
/// Bytes of the chunks that are committed together: a store that copies slowly must not leave the stream without a sign
/// of life for long.
const SLICE_BYTES: u64 = 128 * 1024 * 1024;

/// What became of some copies.
enum Copied {
    /// They are part of the stream.
    Entered,
    /// A collection came between: they have to be made again.
    Fenced,
    /// The stream is not being filled any more.
    Ended,
}

impl Stream {
    /// Copies whole chunks of a version of `source` that lie before `end`, up to the last one that is worth it, into
    /// this stream, which must be empty and being filled. Yields the end of what was copied, which is short of that if
    /// the source is trimmed meanwhile; `None` if others have ended the stream. The source may be changed or deleted
    /// while this goes on.
    pub async fn copy_chunks(
        &self,
        source: &Stream,
        snapshot: &Arc<Snapshot>,
        end: u64,
    ) -> Result<Option<u64>> {
        let mut snapshot = snapshot.clone();
        let life = snapshot.doc.head.incarnation;
        let mut next = snapshot.doc.log.trim_point;
        let mut missing = None;
        loop {
            let refs = source.copied_refs(&snapshot.doc, next..end).await?;
            let Some(slice) = self.slice(&refs) else { return Ok(Some(next)) };
            match self.copy_slice(source, &snapshot.doc, slice).await {
                Ok(Copied::Entered) => next = slice.last().map_or(next, Ref::end_seq),
                Ok(Copied::Fenced) => {}
                Ok(Copied::Ended) => return Ok(None),
                // The source was swept since; what is there now holds the same records.
                Err(Error::Missing(id)) if missing != Some(id) => {
                    missing = Some(id);
                    snapshot = source.refresh_live().await?;
                    if snapshot.doc.head.incarnation != life {
                        return Err(Error::NoStream);
                    }
                    if snapshot.doc.log.trim_point > next {
                        return Ok(Some(next));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The chunks to copy: each begins where the one before it ended, and the last is worth it.
    async fn copied_refs(&self, manifest: &Manifest, wanted: Range<u64>) -> Result<Vec<Ref>> {
        let mut refs = self.refs_from(manifest, wanted.start).await?;
        let whole = refs.iter().take_while(|r| r.end_seq() <= wanted.end).count();
        refs.truncate(whole);
        let bytes_min = self.shared.options.shape.copied_bytes_min;
        let worth = refs.iter().rposition(|r| size(r) >= bytes_min).map_or(0, |last| last + 1);
        refs.truncate(worth);
        if let Some(first) = refs.first_mut() {
            cut_front(first, wanted.start);
        }
        Ok(refs)
    }

    /// As many of them as are committed together.
    fn slice<'a>(&self, refs: &'a [Ref]) -> Option<&'a [Ref]> {
        let mut bytes = 0;
        let fits = refs.iter().take(move_count(self.shared.options.shape.refs_max)).take_while(|r| {
            let fits = bytes < SLICE_BYTES;
            bytes += size(r);
            fits
        });
        refs.get(..fits.count()).filter(|slice| !slice.is_empty())
    }

    /// Copies some chunks and commits them.
    async fn copy_slice(&self, source: &Stream, from: &Manifest, slice: &[Ref]) -> Result<Copied> {
        let Some(mut base) = self.refresh().await? else { return Ok(Copied::Ended) };
        let begun = Begun::under(&base.doc, self.shared.clock.now_ms());
        let copies: Vec<_> = slice.iter().map(|r| self.copy_chunk(source, from, *r, begun)).collect();
        let copies: Vec<Ref> = futures::stream::iter(copies).buffered(AT_ONCE).try_collect().await?;
        let deadline = Deadline::after(self.shared.options.write_timeout);
        let mut attempt = 0;
        loop {
            let now_ms = self.shared.clock.now_ms();
            let ledger = base.doc.log.ledger.as_deref();
            if ledger.is_none_or(|ledger| ledger.stage != Stage::Filling) {
                return Ok(Copied::Ended);
            }
            if !begun.may_enter(&base.doc, now_ms) {
                return Ok(Copied::Fenced);
            }
            let next = self.with_copies(&base.doc, &copies, now_ms).await?;
            match self.commit(Some(&base), &next, deadline).await? {
                Outcome::Committed(_) => return Ok(Copied::Entered),
                Outcome::Conflict if deadline.has_passed() => {
                    return Err(Error::Overloaded("other writers always came first"));
                }
                Outcome::Conflict => {
                    attempt += 1;
                    tokio::time::sleep(jittered(attempt, self.shared.latency.estimate())).await;
                    match self.refresh().await? {
                        Some(newer) => base = newer,
                        None => return Ok(Copied::Ended),
                    }
                }
            }
        }
    }

    async fn with_copies(&self, base: &Manifest, copies: &[Ref], now_ms: u64) -> Result<Manifest> {
        let mut next = Manifest { head: base.head.next(base.head.incarnation, State::Live), ..base.clone() };
        Writer::default().make_room(&self.shared, &mut next, 0, copies.len()).await?;
        for r in copies {
            enter_chunk(&mut next, *r);
            next.log.next_seq_num = r.end_seq();
            next.log.last_timestamp = r.last_timestamp;
            next.log.last_arrival_ms = r.last_arrival_ms;
        }
        if let Some(ledger) = &mut next.log.ledger {
            ledger.last_used_ms = ledger.last_used_ms.max(now_ms);
        }
        Ok(next)
    }

    async fn copy_chunk(&self, source: &Stream, from: &Manifest, r: Ref, begun: Begun) -> Result<Ref> {
        let Target::Chunk { class, first, footer_at, bytes, .. } = r.target else {
            return Err(Error::broken("index", "a page where a chunk should be"));
        };
        let id = ObjectId::fresh();
        let old = key::chunk(class, &source.hash, from.head.incarnation, r.id);
        let new = key::chunk(begun.class, &self.hash, begun.incarnation, id);
        let copy =
            tokio::time::timeout(self.shared.options.write_timeout, self.shared.store.copy(&old, &new));
        match copy.await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Err(Error::Missing(r.id)),
            Ok(Err(error)) => return Err(Error::Storage(Arc::new(storage::Error::Store(error)))),
            Err(_late) => return Err(Error::Overloaded("the store did not copy a chunk in time")),
        }
        let writer = Some(r.target.written_by(from.head.incarnation));
        Ok(Ref { id, target: Target::Chunk { class: begun.class, first, footer_at, bytes, writer }, ..r })
    }
}

/// Leaves out what lies before a record.
fn cut_front(r: &mut Ref, seq_num: u64) {
    let cut = seq_num.saturating_sub(r.base_seq).min(r.count - 1);
    if let Target::Chunk { first, .. } = &mut r.target {
        *first += cut;
    }
    // Nearly: how many bytes each record has, the ref does not know.
    r.metered_bytes -= r.metered_bytes / r.count * cut;
    r.base_seq += cut;
    r.count -= cut;
}

fn size(r: &Ref) -> u64 {
    match r.target {
        Target::Chunk { bytes, .. } => bytes,
        Target::Page { .. } => 0,
    }
}
