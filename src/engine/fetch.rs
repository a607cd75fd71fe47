//! Parts of one chunk, from memory or from the store.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::stream::Stream;
use super::{Error, Result};
use crate::storage::chunk::{Block, Footer, open_block};
use crate::storage::frame::Damaged;
use crate::storage::index::{Ref, Target};
use crate::storage::key::{self, Incarnation, ObjectId};
use crate::storage::manifest::Manifest;
use crate::storage::{self};
use crate::types::limits::{BATCH_METERED_BYTES_MAX, BATCH_RECORDS_MAX};

/// Chunks up to this size are fetched whole, in one request: a batch may want as much of a larger one.
const WHOLE_CHUNK_BYTES_MAX: u64 = BATCH_METERED_BYTES_MAX;
/// The blocks that hold the first records of a range at or above a timestamp, enough for a batch whatever of
/// the first block is skipped.
pub(super) fn wanted_blocks(footer: &Footer, records: Range<u64>, timestamp: u64) -> Vec<(usize, Block)> {
    let mut wanted: Vec<(usize, Block)> = Vec::new();
    for (index, block) in footer.blocks_of(records) {
        if block.last_timestamp < timestamp {
            continue;
        }
        wanted.push((index, *block));
        let rest = wanted.get(1..).unwrap_or_default();
        if rest.iter().map(|(_, b)| b.count).sum::<u64>() >= BATCH_RECORDS_MAX as u64
            || rest.iter().map(|(_, b)| b.len).sum::<u64>() >= BATCH_METERED_BYTES_MAX
        {
            break;
        }
    }
    wanted
}

/// Reads parts of one chunk.
pub(super) struct ChunkReader<'a> {
    stream: &'a Stream,
    /// Its key.
    pub(super) key: String,
    id: ObjectId,
    /// The ref's first record, counted within the chunk.
    pub(super) first: u64,
    footer_at: u64,
    bytes: u64,
    /// The life that the footer must name.
    writer: Incarnation,
}

impl<'a> ChunkReader<'a> {
    /// The way to the chunk that a ref names.
    pub(super) fn of(stream: &'a Stream, manifest: &Manifest, r: &Ref) -> Option<Self> {
        let Target::Chunk { class, first, footer_at, bytes, .. } = r.target else { return None };
        let writer = r.target.written_by(manifest.head.incarnation);
        let key = key::chunk(class, &stream.hash, manifest.head.incarnation, r.id);
        Some(Self { stream, key, id: r.id, first, footer_at, bytes, writer })
    }

    async fn get(&self, range: Range<u64>) -> Result<Bytes> {
        let found = self.stream.shared.store.get_range(&self.key, range.clone()).await;
        let bytes = found.map_err(storage::Error::Store)?.ok_or(Error::Missing(self.id))?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(self.damaged(Damaged::new("chunk", "shorter than its ref says")));
        }
        Ok(bytes)
    }

    fn damaged(&self, source: Damaged) -> Error {
        storage::Error::damaged(&self.key, source).into()
    }

    /// The footer; a small chunk is fetched whole for it.
    pub(super) async fn footer(&self) -> Result<Arc<Footer>> {
        let cache = &self.stream.shared.objects;
        if let Some(footer) = cache.footer(self.id) {
            return Ok(footer);
        }
        let is_small = self.bytes <= WHOLE_CHUNK_BYTES_MAX;
        let from = if is_small { 0 } else { self.footer_at };
        let object = self.get(from..self.bytes).await?;
        let at = usize::try_from(self.footer_at - from)
            .map_err(|_large| self.damaged(Damaged::new("chunk", "larger than this machine can address")))?;
        let footer = Footer::decode(&object.slice(at..), self.writer);
        let footer = Arc::new(footer.map_err(|e| self.damaged(e))?);
        if is_small {
            for (index, block) in footer.blocks.iter().enumerate() {
                cache.keep_block(self.id, index, self.open(&object, block, 0)?);
            }
        }
        cache.keep_footer(self.id, footer.clone());
        Ok(footer)
    }

    /// Consecutive blocks, from memory or by one request over those that are not there.
    pub(super) async fn blocks(&self, wanted: &[(usize, Block)]) -> Result<Vec<Bytes>> {
        let cache = &self.stream.shared.objects;
        let mut runs: Vec<Option<Bytes>> =
            wanted.iter().map(|(index, _)| cache.block(self.id, *index)).collect();
        let mut missing = wanted.iter().zip(&runs).filter(|(_, run)| run.is_none()).map(|((_, b), _)| b);
        if let Some(first) = missing.next() {
            let last = missing.last().unwrap_or(first);
            let from = first.at;
            let object = self.get(from..last.at + last.len).await?;
            for ((index, block), run) in wanted.iter().zip(&mut runs) {
                if run.is_none() {
                    let opened = self.open(&object, block, from)?;
                    cache.keep_block(self.id, *index, opened.clone());
                    *run = Some(opened);
                }
            }
        }
        Ok(runs.into_iter().flatten().collect())
    }

    /// One block out of a part of the object that begins at `from`.
    fn open(&self, object: &Bytes, block: &Block, from: u64) -> Result<Bytes> {
        let range = block.range();
        let start = usize::try_from(range.start - from).ok();
        let end = usize::try_from(range.end - from).ok().filter(|end| *end <= object.len());
        let (Some(start), Some(end)) = (start, end) else {
            return Err(self.damaged(Damaged::new("chunk", "a block beyond its end")));
        };
        open_block(&object.slice(start..end)).map_err(|e| self.damaged(e))
    }
}
