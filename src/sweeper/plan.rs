//! What a visit finds to do, from a manifest and the time (*pure*).
//!
//! Times are store time. Nothing here is taken as dead before a minute beyond its age, so that no clock within the
//! tolerated disagreement makes a reader miss a record.

use std::ops::Range;

use crate::storage::index::{Ref, Target};
use crate::storage::key::DataClass;
use crate::storage::ledger::Stage;
use crate::storage::manifest::Manifest;
use crate::storage::upkeep::{PendingCopy, Upkeep};
use crate::types::config::RetentionPolicy;
use crate::types::limits::CHUNK_BYTES_MAX;

/// A record is never removed before its age and this.
pub(super) const SLACK_MS: u64 = 60_000;
/// Chunks below this are worth merging.
const SMALL_CHUNK_BYTES: u64 = CHUNK_BYTES_MAX as u64 / 4;
/// Small chunks are merged once this many of them stand together, or once they fill a chunk half.
const MERGED_CHUNKS_MIN: usize = 32;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// A visit is never wanted sooner than this after another that left nothing undone.
const VISIT_MS_MIN: u64 = 10 * MINUTE_MS;
/// A stream is visited at least this often.
const VISIT_MS_MAX: u64 = 30 * DAY_MS;
/// A stream whose copies have waited so long is reported.
const COPY_IS_LATE_MS: u64 = DAY_MS;

/// What is dead by number or by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Records below this are gone.
    seq_num: u64,
    /// Records that arrived before this are past their age.
    arrival_ms: u64,
}

impl Bounds {
    /// Of a stream at this time.
    pub(super) fn of(manifest: &Manifest, now_ms: u64) -> Self {
        let arrival_ms = match manifest.config.retention_policy {
            RetentionPolicy::Infinite => 0,
            RetentionPolicy::Age(secs) => {
                now_ms.saturating_sub(secs.saturating_mul(1_000).saturating_add(SLACK_MS))
            }
        };
        Self { seq_num: manifest.log.trim_point, arrival_ms }
    }

    /// Whether nothing of a ref is alive.
    pub(super) fn is_dead(&self, r: &Ref) -> bool {
        self.are_dead(r.end_seq(), r.last_arrival_ms)
    }

    /// Whether a ref may hold dead records beside live ones.
    pub(super) fn cuts(&self, r: &Ref) -> bool {
        !self.is_dead(r) && (r.base_seq < self.seq_num || r.first_arrival_ms < self.arrival_ms)
    }

    fn are_dead(&self, end_seq: u64, last_arrival_ms: u64) -> bool {
        end_seq <= self.seq_num || last_arrival_ms < self.arrival_ms
    }
}

/// Removes the commits at the front of the inline tail that are dead, once no ref is left before them, and raises
/// the trim point to what is still held.
pub(super) fn drop_dead_commits(manifest: &mut Manifest, bounds: Bounds) {
    if manifest.levels.iter().all(Vec::is_empty) {
        let mut end_seq = manifest.tail_base();
        let dead = manifest.tail.0.iter().take_while(|commit| {
            end_seq += commit.count;
            bounds.are_dead(end_seq, commit.arrival_ms)
        });
        let dead = dead.count();
        manifest.tail.0.drain(..dead);
    }
    manifest.log.trim_point = manifest.log.trim_point.max(manifest.first_held());
}

/// Whether no record is alive.
pub(super) fn is_empty(manifest: &Manifest, bounds: Bounds) -> bool {
    let last = &manifest.log;
    last.next_seq_num == 0 || bounds.are_dead(last.next_seq_num, last.last_arrival_ms)
}

/// Whether the stream deletes itself now: it is empty, and nothing was written for as long as it is to wait.
pub(super) fn deletes_itself(manifest: &Manifest, now_ms: u64) -> bool {
    let wait_ms = manifest.config.delete_on_empty_min_age_secs.saturating_mul(1_000);
    let since_ms = last_write_ms(manifest);
    wait_ms > 0
        && is_empty(manifest, Bounds::of(manifest, now_ms))
        && now_ms > since_ms.saturating_add(wait_ms).saturating_add(SLACK_MS)
}

/// Whether a stream with a ledger may have to end: it cannot be used any more, or not yet.
pub(super) fn may_end(manifest: &Manifest, now_ms: u64) -> bool {
    let long_ago_ms = now_ms.saturating_sub(SLACK_MS);
    manifest.log.ledger.as_ref().is_some_and(|ledger| ledger.check_usable(long_ago_ms).is_err())
}

fn last_write_ms(manifest: &Manifest) -> u64 {
    manifest.log.last_arrival_ms.max(manifest.created_at_ms)
}

/// Runs of neighbouring small chunks that are to become one each, and how many refs from the front need not be
/// looked at again.
pub(super) fn merges(refs: &[Ref]) -> (Vec<Range<usize>>, usize) {
    let mut runs = Vec::new();
    let mut settled = 0;
    let (mut from, mut bytes) = (0, 0);
    for (at, r) in refs.iter().enumerate() {
        let size = match r.target {
            Target::Chunk { bytes, .. } => bytes,
            Target::Page { .. } => u64::MAX,
        };
        let is_small = size < SMALL_CHUNK_BYTES;
        if !is_small || bytes + size > CHUNK_BYTES_MAX as u64 {
            // Whatever stands before this can grow no more.
            if at - from > 1 && is_worth_it(at - from, bytes) {
                runs.push(from..at);
            }
            (from, bytes) = (at, 0);
            settled = at;
        }
        if is_small {
            bytes += size;
        } else {
            from = at + 1;
            settled = at + 1;
        }
    }
    // The newest ones wait until they are enough.
    if refs.len() - from > 1 && is_worth_it(refs.len() - from, bytes) {
        runs.push(from..refs.len());
        if bytes >= CHUNK_BYTES_MAX as u64 / 2 {
            settled = refs.len();
        }
    }
    (runs, settled)
}

fn is_worth_it(chunks: usize, bytes: u64) -> bool {
    chunks >= MERGED_CHUNKS_MIN || bytes >= CHUNK_BYTES_MAX as u64 / 2
}

/// Whether a chunk lies in a class that ends too soon.
pub(super) fn needs_copy(r: &Ref, wanted: DataClass) -> bool {
    matches!(r.target, Target::Chunk { class, .. } if class < wanted)
}

/// Consecutive refs of one level that are to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    /// Which level.
    pub(super) level: usize,
    /// What must stand there.
    pub(super) old: Vec<Ref>,
    /// What comes in its place.
    pub(super) new: Vec<Ref>,
}

impl Edit {
    /// Makes the change, if what it replaces is there: appends add at the end, and what they move is not touched.
    pub(super) fn apply(&self, manifest: &mut Manifest) -> bool {
        let Some(refs) = manifest.levels.get_mut(self.level) else { return false };
        let Some(first) = self.old.first() else { return false };
        let at = refs.partition_point(|r| r.base_seq < first.base_seq);
        let end = at + self.old.len();
        if refs.get(at..end) != Some(&self.old[..]) {
            return false;
        }
        refs.splice(at..end, self.new.iter().copied());
        for r in &self.new {
            if let Target::Chunk { class, .. } = r.target {
                manifest.classes_used |= class.bit();
            }
        }
        true
    }
}

/// What a visit has got done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Everything before this is merged as far as it is worth it.
    pub(super) compacted_to: Option<u64>,
    /// Everything before this lies in the right class.
    pub(super) copied_to: Option<u64>,
    /// When orphans were looked for.
    pub(super) collected_ms: Option<u64>,
    /// More is to be done at once than one visit may.
    pub(super) is_unfinished: bool,
}

impl Progress {
    /// Takes note of it.
    pub(super) fn note(&self, upkeep: Upkeep) -> Upkeep {
        let copy = upkeep.copy.and_then(|copy| {
            let from = copy.from.max(self.copied_to.unwrap_or(0));
            (from < copy.to).then_some(PendingCopy { from, ..copy })
        });
        Upkeep {
            compacted_to: upkeep.compacted_to.max(self.compacted_to.unwrap_or(0)),
            collected_ms: upkeep.collected_ms.max(self.collected_ms.unwrap_or(0)),
            copy,
        }
    }
}

/// When the stream wants its next visit.
pub(super) fn next_visit_ms(manifest: &Manifest, now_ms: u64, is_unfinished: bool) -> u64 {
    if is_unfinished || manifest.upkeep.copy.is_some() {
        return now_ms;
    }
    let config = &manifest.config;
    // The longer nothing happens, the longer nothing needs to be looked at.
    let idle_ms = now_ms.saturating_sub(last_write_ms(manifest));
    let mut wait_ms = idle_ms.clamp(DAY_MS, VISIT_MS_MAX);
    if let RetentionPolicy::Age(secs) = config.retention_policy
        && !is_empty(manifest, Bounds::of(manifest, now_ms))
    {
        let oldest_ms = manifest.levels.iter().rev().flatten().next().map(|r| r.last_arrival_ms);
        let oldest_ms = oldest_ms.or_else(|| manifest.tail.0.first().map(|c| c.arrival_ms)).unwrap_or(now_ms);
        let age_ms = secs.saturating_mul(1_000);
        let ends_ms = oldest_ms.saturating_add(age_ms).saturating_add(SLACK_MS);
        // What goes is gathered for an eighth of its age: a steady stream is not visited for every chunk.
        wait_ms = wait_ms.min(ends_ms.saturating_sub(now_ms).max(age_ms / 8));
    }
    if config.delete_on_empty_min_age_secs > 0 {
        let after_ms = config.delete_on_empty_min_age_secs.saturating_mul(1_000).saturating_add(SLACK_MS);
        let ends_ms = last_write_ms(manifest).saturating_add(after_ms);
        // A stream that is not empty may be by then: a trim does not ask for a visit.
        wait_ms = wait_ms.min(ends_ms.saturating_sub(now_ms).clamp(HOUR_MS.min(after_ms), DAY_MS));
    }
    let ledger = manifest.log.ledger.as_deref();
    if let Some(ends_ms) = ledger.and_then(|ledger| ledger.lifetime.ends_ms(ledger.last_used_ms)) {
        wait_ms = wait_ms.min(ends_ms.saturating_add(SLACK_MS).saturating_sub(now_ms));
    }
    if ledger.is_some_and(|ledger| ledger.stage != Stage::Ready) {
        wait_ms = wait_ms.min(DAY_MS);
    }
    now_ms.saturating_add(wait_ms.max(VISIT_MS_MIN))
}

/// For how long copies have waited, if that is long enough to be told.
pub(super) fn late_copies_ms(manifest: &Manifest, now_ms: u64) -> Option<u64> {
    let waited_ms = now_ms.saturating_sub(manifest.upkeep.copy?.since_ms);
    (waited_ms >= COPY_IS_LATE_MS).then_some(waited_ms)
}
