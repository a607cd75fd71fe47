//! Index lists and chunks, written anew: what is dead is left out, small chunks are merged, chunks in a class that
//! is too short are copied. Everything goes to fresh ids; nothing is changed or removed here.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

use super::plan::{Bounds, Edit, merges, needs_copy};
use super::{Error, Result};
use crate::storage::chunk::{ChunkWriter, Footer, decode_block, open_block};
use crate::storage::frame::Damaged;
use crate::storage::index::{Page, Ref, Target};
use crate::storage::key::{self, DataClass, Incarnation, ObjectId, StreamHash};
use crate::storage::manifest::Manifest;
use crate::storage::{self};
use crate::store::{Listed, Store};

/// Objects fetched or removed at the same time.
pub(super) const AT_ONCE: usize = 16;
/// Bytes of chunks that one visit reads to write them anew.
const REWRITTEN_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Objects that one visit removes because their records are dead.
const DROPPED_MAX: usize = 20_000;

/// Writes the index of one version of a manifest anew, as far as that is worth it.
pub(super) struct Rewriter<'a> {
    store: &'a dyn Store,
    hash: StreamHash,
    life: Incarnation,
    class: DataClass,
    bounds: Bounds,
    /// What is merged before this already.
    compacted_to: u64,
    /// What is to be copied: from, to.
    copies: (u64, u64),
    /// Nothing is written; what would be dropped and rewritten is only counted.
    is_dry: bool,
    pub(super) done: Done,
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Changes of the manifest.
    pub(super) edits: Vec<Edit>,
    /// Keys and sizes that nothing names any more once the edits are committed.
    pub(super) dropped: Vec<Dropped>,
    /// Small chunks that went into larger ones.
    pub(super) merged: usize,
    /// Chunks that went to a longer class.
    pub(super) copied: usize,
    /// Everything before this is merged as far as it is worth it.
    pub(super) compacted_to: Option<u64>,
    /// Everything before this lies in the right class.
    pub(super) copied_to: Option<u64>,
    /// Stopped at a bound.
    pub(super) is_unfinished: bool,
    rewritten_bytes: u64,
}

/// An object that goes.
#[derive(Clone, Debug)]
pub(super) struct Dropped {
    pub(super) key: String,
    /// Of a page, this is not known.
    pub(super) bytes: u64,
}

impl From<Listed> for Dropped {
    fn from(listed: Listed) -> Self {
        Self { key: listed.key, bytes: listed.size }
    }
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(store: &'a dyn Store, manifest: &Manifest, bounds: Bounds, is_dry: bool) -> Self {
        let copy = manifest.upkeep.copy;
        Self {
            store,
            hash: manifest.hash,
            life: manifest.head.incarnation,
            class: manifest.data_class(),
            bounds,
            compacted_to: manifest.upkeep.compacted_to,
            copies: copy.map_or((0, 0), |copy| (copy.from, copy.to)),
            is_dry,
            done: Done::default(),
        }
    }

    /// Goes through the whole index, oldest first.
    pub(super) async fn run(&mut self, manifest: &Manifest) -> Result<()> {
        for (level, refs) in manifest.levels.iter().enumerate().rev() {
            // What is newer must not go before what is older.
            if self.done.is_unfinished {
                return Ok(());
            }
            self.list(level, refs).await?;
        }
        // What rides in the tail goes to the right class when it is rolled.
        if !self.done.is_unfinished {
            self.done.copied_to = Some(manifest.log.next_seq_num);
        }
        Ok(())
    }

    /// Turns one list of a manifest into edits.
    async fn list(&mut self, level: usize, refs: &[Ref]) -> Result<()> {
        let mut rest = refs;
        let dead = refs.iter().take_while(|r| self.bounds.is_dead(r)).count();
        if let Some((dead, alive)) = refs.split_at_checked(dead).filter(|(dead, _)| !dead.is_empty()) {
            let mut dropped = 0;
            for r in dead {
                if self.done.dropped.len() >= DROPPED_MAX {
                    self.done.is_unfinished = true;
                    break;
                }
                self.drop_ref(*r).await?;
                dropped += 1;
            }
            self.edit(level, refs.get(..dropped).unwrap_or_default(), Vec::new());
            rest = alive;
        }
        if level > 0 {
            for r in rest {
                if let Some(page) = self.page(*r).await? {
                    self.edit(level, &[*r], vec![page]);
                }
            }
        } else {
            let (replaced, _) = self.chunks(rest).await?;
            for (old, new) in replaced {
                self.edit(0, &old, vec![new]);
            }
        }
        Ok(())
    }

    fn edit(&mut self, level: usize, old: &[Ref], new: Vec<Ref>) {
        if !old.is_empty() {
            self.done.edits.push(Edit { level, old: old.to_vec(), new });
        }
    }

    /// Whether there is anything to do in a page, as far as that can be told without it.
    fn wants(&self, r: &Ref) -> bool {
        let (from, to) = self.copies;
        self.bounds.cuts(r) || r.end_seq() > self.compacted_to || (r.end_seq() > from && r.base_seq < to)
    }

    /// Writes a page anew, if anything in it changes.
    fn page<'b>(&'b mut self, r: Ref) -> BoxFuture<'b, Result<Option<Ref>>> {
        Box::pin(async move {
            if self.done.is_unfinished || !self.wants(&r) {
                return Ok(None);
            }
            let page = self.load_page(&r).await?;
            let dead = page.refs.iter().take_while(|r| self.bounds.is_dead(r)).count();
            let (dead, alive) = page.refs.split_at(dead);
            let mut refs = Vec::with_capacity(alive.len());
            let mut is_changed = !dead.is_empty();
            for r in dead {
                self.drop_ref(*r).await?;
            }
            if page.level > 0 {
                for r in alive {
                    let new = self.page(*r).await?;
                    is_changed |= new.is_some();
                    refs.push(new.unwrap_or(*r));
                }
            } else {
                let (replaced, new) = self.chunks(alive).await?;
                is_changed |= !replaced.is_empty();
                refs = new;
            }
            if !is_changed {
                return Ok(None);
            }
            self.done.dropped.push(Dropped { key: self.page_key(r.id), bytes: 0 });
            let id = ObjectId::fresh();
            let level = page.level;
            let page = Page { incarnation: self.life, level, refs };
            if !self.is_dry {
                self.store.put(&self.page_key(id), page.encode()).await?;
            }
            let new = Ref::over(id, level, &page.refs);
            new.map(Some).ok_or_else(|| Error::Invariant("a page that is alive holds nothing".to_owned()))
        })
    }

    /// Copies and merges chunks; yields what was replaced by what, and the whole list as it is then.
    async fn chunks(&mut self, refs: &[Ref]) -> Result<(Vec<(Vec<Ref>, Ref)>, Vec<Ref>)> {
        let open = refs.partition_point(|r| r.end_seq() <= self.compacted_to);
        let (settled, rest) = refs.split_at(open);
        let (runs, looked_at) = merges(rest);
        let mut replaced = Vec::new();
        let mut all = Vec::with_capacity(refs.len());
        let mut at = 0;
        let mut take_single = settled.to_vec();
        let end = rest.len()..rest.len();
        for run in runs.into_iter().chain(std::iter::once(end)) {
            take_single.extend_from_slice(rest.get(at..run.start).unwrap_or_default());
            for r in take_single.drain(..) {
                let new = self.copy(r).await?;
                if let Some(new) = new {
                    replaced.push((vec![r], new));
                }
                all.push(new.unwrap_or(r));
            }
            at = run.end;
            let Some(group) = rest.get(run).filter(|group| !group.is_empty()) else { continue };
            if self.may_rewrite(group) {
                let new = self.merge(group).await?;
                replaced.push((group.to_vec(), new));
                all.push(new);
            } else {
                all.extend_from_slice(group);
            }
        }
        if !self.done.is_unfinished {
            let next = rest.get(looked_at).map(|r| r.base_seq);
            let end = next.or_else(|| refs.last().map(Ref::end_seq));
            self.done.compacted_to = self.done.compacted_to.max(end);
        }
        Ok((replaced, all))
    }

    /// Whether the bytes of these chunks may still be read in this visit.
    fn may_rewrite(&mut self, refs: &[Ref]) -> bool {
        if self.done.rewritten_bytes >= REWRITTEN_BYTES_MAX {
            self.done.is_unfinished = true;
        }
        if self.done.is_unfinished {
            return false;
        }
        self.done.rewritten_bytes += refs.iter().map(size).sum::<u64>();
        true
    }

    /// Copies a chunk to the class it belongs to, if it lies in a shorter one.
    async fn copy(&mut self, r: Ref) -> Result<Option<Ref>> {
        let Target::Chunk { first, footer_at, bytes, writer, .. } = r.target else { return Ok(None) };
        if !needs_copy(&r, self.class) || !self.may_rewrite(&[r]) {
            return Ok(None);
        }
        let id = ObjectId::fresh();
        if !self.is_dry {
            let object = self.load_chunk(&r).await?;
            self.store.put(&self.chunk_key(self.class, id), object).await?;
        }
        self.done.copied += 1;
        self.drop_chunk(&r);
        let target = Target::Chunk { class: self.class, first, footer_at, bytes, writer };
        Ok(Some(Ref { id, target, ..r }))
    }

    /// Makes one chunk of several. Every record keeps its number, its timestamp and its arrival.
    async fn merge(&mut self, refs: &[Ref]) -> Result<Ref> {
        let (Some(oldest), Some(newest)) = (refs.first(), refs.last()) else {
            return Err(Error::Invariant("nothing to merge".to_owned()));
        };
        let id = ObjectId::fresh();
        let mut target = oldest.target;
        if !self.is_dry {
            let mut writer = Merger { writer: ChunkWriter::new(self.life), arrival_ms: None };
            let loads: Vec<_> = refs.iter().map(|r| self.load_chunk(r)).collect();
            let mut objects = futures::stream::iter(loads).buffered(AT_ONCE);
            for r in refs {
                let object = objects.try_next().await?;
                let object = object.ok_or_else(|| Error::Invariant("a chunk was not loaded".to_owned()))?;
                writer.add(r, &object, self.life).map_err(|source| self.damaged(r, source))?;
            }
            drop(objects);
            let encoded = writer.writer.finish();
            target = Target::Chunk {
                class: self.class,
                first: 0,
                footer_at: encoded.footer_at,
                bytes: encoded.bytes.len() as u64,
                writer: None,
            };
            self.store.put(&self.chunk_key(self.class, id), encoded.bytes).await?;
        }
        self.done.merged += refs.len();
        for r in refs {
            self.drop_chunk(r);
        }
        Ok(Ref {
            id,
            target,
            count: newest.end_seq() - oldest.base_seq,
            last_timestamp: newest.last_timestamp,
            last_arrival_ms: newest.last_arrival_ms,
            metered_bytes: refs.iter().map(|r| r.metered_bytes).sum(),
            ..*oldest
        })
    }

    /// Notes everything under a ref as dropped.
    fn drop_ref<'b>(&'b mut self, r: Ref) -> BoxFuture<'b, Result<()>> {
        Box::pin(async move {
            if let Target::Page { .. } = r.target {
                let page = self.load_page(&r).await?;
                for r in &page.refs {
                    self.drop_ref(*r).await?;
                }
                self.done.dropped.push(Dropped { key: self.page_key(r.id), bytes: 0 });
            } else {
                self.drop_chunk(&r);
            }
            Ok(())
        })
    }

    fn drop_chunk(&mut self, r: &Ref) {
        if let Target::Chunk { class, bytes, .. } = r.target {
            self.done.dropped.push(Dropped { key: self.chunk_key(class, r.id), bytes });
        }
    }

    fn chunk_key(&self, class: DataClass, id: ObjectId) -> String {
        key::chunk(class, &self.hash, self.life, id)
    }

    fn page_key(&self, id: ObjectId) -> String {
        key::page(&self.hash, self.life, id)
    }

    async fn load_page(&self, r: &Ref) -> Result<Arc<Page>> {
        load_page(self.store, &self.hash, self.life, r).await
    }

    async fn load_chunk(&self, r: &Ref) -> Result<bytes::Bytes> {
        let Target::Chunk { class, .. } = r.target else {
            return Err(Error::Invariant("a page where a chunk should be".to_owned()));
        };
        let key = self.chunk_key(class, r.id);
        let object = self.store.get(&key).await?;
        Ok(object.ok_or(Error::Missing(key))?.bytes)
    }

    fn damaged(&self, r: &Ref, source: Damaged) -> Error {
        Error::Storage(storage::Error::damaged(r.id.to_string(), source))
    }
}

fn size(r: &Ref) -> u64 {
    match r.target {
        Target::Chunk { bytes, .. } => bytes,
        Target::Page { .. } => 0,
    }
}

/// Loads a page.
pub(super) async fn load_page(
    store: &dyn Store,
    hash: &StreamHash,
    life: Incarnation,
    r: &Ref,
) -> Result<Arc<Page>> {
    let key = key::page(hash, life, r.id);
    let object = store.get(&key).await?.ok_or_else(|| Error::Missing(key.clone()))?;
    let page = Page::decode(&object.bytes, life).map_err(|e| storage::Error::damaged(key, e))?;
    Ok(Arc::new(page))
}

/// Writes the records of several chunks into one.
struct Merger {
    writer: ChunkWriter,
    /// Of the last record.
    arrival_ms: Option<u64>,
}

impl Merger {
    fn add(&mut self, r: &Ref, object: &bytes::Bytes, life: Incarnation) -> std::result::Result<(), Damaged> {
        let Target::Chunk { first, footer_at, .. } = r.target else { return Ok(()) };
        let cut_off = || Damaged::new("chunk", "shorter than its ref says");
        let part = |from: u64, to: u64| {
            let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
            (from <= to && to <= object.len()).then(|| object.slice(from..to))
        };
        let footer = part(footer_at, object.len() as u64).ok_or_else(cut_off)?;
        let footer = Footer::decode(&footer, r.target.written_by(life))?;
        let wanted = first..first + r.count;
        let mut added = 0;
        for (_, block) in footer.blocks_of(wanted.clone()) {
            let bytes = part(block.range().start, block.range().end).ok_or_else(cut_off)?;
            for (place, record) in (block.first..).zip(decode_block(&open_block(&bytes)?, block)?) {
                if !wanted.contains(&place) {
                    continue;
                }
                let arrival_ms = footer.arrival_ms(place).max(r.first_arrival_ms);
                if self.arrival_ms != Some(arrival_ms) {
                    self.writer.begin_commit(arrival_ms);
                    self.arrival_ms = Some(arrival_ms);
                }
                self.writer.push(record.timestamp.max(r.timestamp_floor), &record.headers, &record.body);
                added += 1;
            }
        }
        if added == r.count { Ok(()) } else { Err(Damaged::new("chunk", "fewer records than its ref says")) }
    }
}
