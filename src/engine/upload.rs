//! Immutable objects on their way into a manifest: chunks of batches, rolled tails, index pages.
//!
//! An upload is made for one manifest state and may be named by a later one only if that state is part of its
//! history and no collection could have taken the object for an orphan (I-8). Only a clean success counts as
//! uploaded.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{Error, Result, Shared};
use crate::storage::chunk::{ChunkWriter, Encoded};
use crate::storage::index::{Page, Ref, Target};
use crate::storage::key::{self, CommitId, DataClass, Incarnation, ObjectId, StreamHash};
use crate::storage::manifest::Manifest;
use crate::storage::record::decode_run;
use crate::storage::{self};
use crate::types::limits::UPLOAD_AGE_MS_MAX;

/// A task that uploads; what it yields was confirmed by the store.
pub(super) type Uploading<T> = JoinHandle<Result<T>>;

/// The result of an upload; a panic in it is an upload that failed.
pub(super) fn joined<T>(result: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    result.unwrap_or_else(|error| {
        Err(Error::broken("an upload", format!("it ended without a result: {error}")))
    })
}

/// Starts an upload that ends in time: a store that never answers must not stop the writer of a stream.
fn start<T: Send + 'static>(
    shared: &Shared,
    upload: impl Future<Output = Result<T>> + Send + 'static,
) -> Uploading<T> {
    let upload = tokio::time::timeout(shared.options.write_timeout, upload);
    shared.tasks.spawn(async move {
        upload.await.unwrap_or(Err(Error::Overloaded("the store did not take an upload in time")))
    })
}

/// The state under which an upload began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) incarnation: Incarnation,
    collection_epoch: u64,
    pub(super) class: DataClass,
    at_ms: u64,
}

impl Begun {
    pub(super) fn under(manifest: &Manifest, now_ms: u64) -> Self {
        Self {
            incarnation: manifest.head.incarnation,
            collection_epoch: manifest.collection_epoch,
            class: manifest.data_class(),
            at_ms: now_ms,
        }
    }

    /// Whether an object whose upload began so may be named by a successor of this manifest (I-8).
    pub(super) fn may_enter(&self, manifest: &Manifest, now_ms: u64) -> bool {
        let now = Self::under(manifest, self.at_ms);
        *self == now && now_ms.saturating_sub(self.at_ms) <= UPLOAD_AGE_MS_MAX
    }
}

/// A chunk made of the oldest commits of an inline tail.
#[derive(Clone, Debug)]
pub(super) struct TailRoll {
    begun: Begun,
    /// The commit whose tail it was made from: it must be history.
    made_from: CommitId,
    commits: usize,
    chunk: Ref,
}

impl TailRoll {
    /// Starts to upload the whole tail of a manifest. `made_from` is the commit that has all of it, which may
    /// still be on its way.
    pub(super) fn start(
        shared: &Arc<Shared>,
        manifest: &Manifest,
        made_from: CommitId,
        now_ms: u64,
    ) -> Uploading<Self> {
        let (own, hash, begun) = (shared.clone(), manifest.hash, Begun::under(manifest, now_ms));
        let (tail, base_seq) = (manifest.tail.clone(), manifest.tail_base());
        start(shared, async move {
            let mut writer = ChunkWriter::new(begun.incarnation);
            let mut floor = None;
            for commit in &tail.0 {
                writer.begin_commit(commit.arrival_ms);
                let records = decode_run(&commit.run, commit.count)
                    .map_err(|e| storage::Error::damaged(key::manifest(&hash), e))?;
                for r in records {
                    floor.get_or_insert(r.timestamp);
                    writer.push(r.timestamp, &r.headers, &r.body);
                }
            }
            let (first, last) = (tail.0.first(), tail.0.last());
            let (Some(first), Some(last)) = (first, last) else {
                return Err(Error::broken("inline tail", "an empty one has nothing to roll"));
            };
            let encoded = writer.finish();
            let id = put_chunk(&own, &hash, begun, &encoded).await?;
            let chunk = Ref {
                id,
                target: chunk_target(begun.class, &encoded),
                base_seq,
                count: encoded.count,
                timestamp_floor: floor.unwrap_or_default(),
                last_timestamp: last.last_timestamp,
                first_arrival_ms: first.arrival_ms,
                last_arrival_ms: last.arrival_ms,
                metered_bytes: tail.0.iter().map(|c| c.metered_bytes).sum(),
            };
            Ok(Self { begun, made_from, commits: tail.0.len(), chunk })
        })
    }

    /// Whether it may replace the oldest commits of this manifest's tail.
    pub(super) fn may_enter(&self, manifest: &Manifest, now_ms: u64) -> bool {
        self.begun.may_enter(manifest, now_ms)
            && manifest.head.remembers(self.made_from)
            && manifest.tail_base() == self.chunk.base_seq
            && manifest.tail.0.len() >= self.commits
    }

    /// Swaps the commits for the chunk.
    pub(super) fn enter(&self, manifest: &mut Manifest) {
        manifest.tail.0.drain(..self.commits);
        push_ref(manifest, 0, self.chunk);
        manifest.classes_used |= self.begun.class.bit();
    }
}

/// Consecutive records of a chunk, as they are to be committed.
pub(super) struct Piece<'a> {
    /// The first, counted within the chunk.
    pub(super) first: usize,
    /// Their final timestamps.
    pub(super) timestamps: &'a [u64],
    /// Metered bytes of all of them.
    pub(super) metered_bytes: u64,
}

/// A chunk made of batches that are on their way.
#[derive(Clone, Debug)]
pub(super) struct BatchChunk {
    begun: Begun,
    id: ObjectId,
    target: Target,
    /// As they were stamped, without knowing what comes before.
    timestamps: Vec<u64>,
    arrival_ms: u64,
}

impl BatchChunk {
    /// Starts to upload a chunk that `fill` writes; `timestamps` are those of the records in it.
    pub(super) fn start(
        shared: &Arc<Shared>,
        hash: StreamHash,
        begun: Begun,
        encoded: Encoded,
        stamps: (Vec<u64>, u64),
    ) -> Uploading<Self> {
        let own = shared.clone();
        let (timestamps, arrival_ms) = stamps;
        start(shared, async move {
            let id = put_chunk(&own, &hash, begun, &encoded).await?;
            Ok(Self { begun, id, target: chunk_target(begun.class, &encoded), timestamps, arrival_ms })
        })
    }

    /// A ref to a piece of the chunk, or `None` if the chunk does not hold it so: then it must be uploaded again.
    pub(super) fn reference(
        &self,
        manifest: &Manifest,
        now_ms: u64,
        Piece { first, timestamps, metered_bytes }: Piece<'_>,
    ) -> Option<Ref> {
        let Target::Chunk { class, footer_at, bytes, .. } = self.target else { return None };
        let floor = manifest.log.last_timestamp;
        let held = self.timestamps.get(first..first + timestamps.len())?;
        let is_same = held.iter().zip(timestamps).all(|(held, wanted)| (*held).max(floor) == *wanted);
        if !is_same || !self.begun.may_enter(manifest, now_ms) {
            return None;
        }
        let arrival_ms = self.arrival_ms.max(manifest.log.last_arrival_ms);
        Some(Ref {
            id: self.id,
            target: Target::Chunk { class, first: first as u64, footer_at, bytes, writer: None },
            base_seq: manifest.log.next_seq_num,
            count: timestamps.len() as u64,
            timestamp_floor: floor,
            last_timestamp: *timestamps.last()?,
            first_arrival_ms: arrival_ms,
            last_arrival_ms: arrival_ms,
            metered_bytes,
        })
    }
}

/// A page made of the oldest refs of a level.
#[derive(Clone, Debug)]
pub(super) struct PageRoll {
    begun: Begun,
    level: usize,
    moved: Vec<Ref>,
    /// The page that it takes the place of, holding that one's refs as well.
    replaced: Option<Ref>,
    page: Ref,
}

impl PageRoll {
    /// Starts to upload a page with the oldest refs of a level: the newest page above with these refs added,
    /// or a new one if that is full.
    pub(super) fn start(
        shared: &Arc<Shared>,
        manifest: &Manifest,
        level: usize,
        now_ms: u64,
    ) -> Option<Uploading<Self>> {
        let shape = shared.options.shape;
        let refs = manifest.levels.get(level)?;
        let above = manifest.levels.get(level + 1).and_then(|refs| refs.last()).copied();
        let room = |page: &Ref| match page.target {
            Target::Page { refs, .. } => shape.page_refs_max.saturating_sub(refs as usize),
            Target::Chunk { .. } => 0,
        };
        let replaced = above.filter(|page| room(page) > 0);
        let wanted = move_count(shape.refs_max).min(replaced.as_ref().map_or(shape.page_refs_max, room));
        let moved: Vec<Ref> = refs.iter().take(wanted).copied().collect();
        if moved.is_empty() {
            return None;
        }
        let (own, hash, begun) = (shared.clone(), manifest.hash, Begun::under(manifest, now_ms));
        Some(start(shared, async move {
            let mut refs = match &replaced {
                Some(page) => load_page(&own, &hash, begun.incarnation, page).await?.refs.clone(),
                None => Vec::new(),
            };
            refs.extend_from_slice(&moved);
            let level_number = u8::try_from(level).unwrap_or(u8::MAX);
            let page = Page { incarnation: begun.incarnation, level: level_number, refs };
            let id = ObjectId::fresh();
            let key = key::page(&hash, begun.incarnation, id);
            own.store.put(&key, page.encode()).await.map_err(storage::Error::Store)?;
            let r = Ref::over(id, level_number, &page.refs)
                .ok_or_else(|| Error::broken("index page", "an empty one"))?;
            own.objects.keep_page(id, Arc::new(page));
            Ok(Self { begun, level, moved, replaced, page: r })
        }))
    }

    pub(super) fn level(&self) -> usize {
        self.level
    }

    /// Whether it may replace the oldest refs of its level in this manifest.
    pub(super) fn may_enter(&self, manifest: &Manifest, now_ms: u64) -> bool {
        let refs = manifest.levels.get(self.level);
        let above = manifest.levels.get(self.level + 1).and_then(|refs| refs.last());
        let takes_its_place = match &self.replaced {
            Some(page) => above == Some(page),
            None => true,
        };
        self.begun.may_enter(manifest, now_ms)
            && takes_its_place
            && refs.is_some_and(|refs| refs.starts_with(&self.moved))
    }

    /// Swaps the refs for the page.
    pub(super) fn enter(&self, manifest: &mut Manifest) {
        if let Some(refs) = manifest.levels.get_mut(self.level) {
            refs.drain(..self.moved.len());
        }
        if self.replaced.is_some()
            && let Some(above) = manifest.levels.get_mut(self.level + 1)
        {
            above.pop();
        }
        push_ref(manifest, self.level + 1, self.page);
    }

    /// How many refs the level above has more of once it entered.
    pub(super) fn adds_above(&self) -> usize {
        usize::from(self.replaced.is_none())
    }
}

/// How many refs of a level move into a page at once; a level of this many starts to move.
pub(super) fn move_count(refs_max: usize) -> usize {
    (refs_max * 3 / 4).max(1)
}

fn push_ref(manifest: &mut Manifest, level: usize, r: Ref) {
    while manifest.levels.len() <= level {
        manifest.levels.push(Vec::new());
    }
    if let Some(refs) = manifest.levels.get_mut(level) {
        refs.push(r);
    }
}

/// Names a chunk of batches in a manifest, after all that is there.
pub(super) fn enter_chunk(manifest: &mut Manifest, r: Ref) {
    push_ref(manifest, 0, r);
    if let Target::Chunk { class, .. } = r.target {
        manifest.classes_used |= class.bit();
    }
}

pub(super) fn chunk_target(class: DataClass, encoded: &Encoded) -> Target {
    let bytes = encoded.bytes.len() as u64;
    Target::Chunk { class, first: 0, footer_at: encoded.footer_at, bytes, writer: None }
}

pub(super) async fn put_chunk(
    shared: &Shared,
    hash: &StreamHash,
    begun: Begun,
    encoded: &Encoded,
) -> Result<ObjectId> {
    let id = ObjectId::fresh();
    let key = key::chunk(begun.class, hash, begun.incarnation, id);
    shared.store.put(&key, encoded.bytes.clone()).await.map_err(not_committed)?;
    Ok(id)
}

/// An object that nothing names yet has no effect, whether its PUT landed or not.
fn not_committed(error: crate::store::Error) -> Error {
    Error::Storage(Arc::new(storage::Error::Store(error)))
}

/// A page, from memory or from the store.
pub(super) async fn load_page(
    shared: &Shared,
    hash: &StreamHash,
    incarnation: Incarnation,
    page: &Ref,
) -> Result<Arc<Page>> {
    if let Some(page) = shared.objects.page(page.id) {
        return Ok(page);
    }
    let key = key::page(hash, incarnation, page.id);
    let found = shared.store.get(&key).await.map_err(not_committed)?;
    let Some(object) = found else { return Err(Error::Missing(page.id)) };
    let loaded = Page::decode(&object.bytes, incarnation).map_err(|e| storage::Error::damaged(key, e))?;
    let loaded = Arc::new(loaded);
    shared.objects.keep_page(page.id, loaded.clone());
    Ok(loaded)
}
