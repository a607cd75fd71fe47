//! From admitted batches to a committed manifest: where the records go, what rolls, what happened.
//!
//! Records are always `[refs][inline tail]`. Small batches ride in the tail; a larger cycle goes into one chunk.
//! At half its limit the tail is uploaded beside a normal commit and swapped for its chunk by a later one, so an
//! append waits for a second serial PUT only if it is large itself. Index pages likewise.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{Admission, Admitted, admit, stamp};
use super::group::{Accepted, Group};
use super::queue::Writer;
use super::stream::{Snapshot, Stream};
use super::upload::{Begun, PageRoll, TailRoll, enter_chunk, joined, move_count};
use super::{Error, Result, Shared};
use crate::storage::head::State;
use crate::storage::index::Ref;
use crate::storage::manifest::Manifest;
use crate::storage::register::{Outcome, jittered};
use crate::telemetry::{COMMIT_BATCHES, COMMIT_RECORDS};
use crate::types::record::AppendAck;
use crate::types::time::{Deadline, monotonic};

/// After another process committed, how long a writer looks before it leaps.
const FOREIGN_IS_RECENT: Duration = Duration::from_secs(1);

impl Writer {
    /// Commits a group and answers its callers. Yields the next group if its upload began meanwhile.
    pub(super) async fn commit_group(&mut self, stream: &Arc<Stream>, mut group: Group) -> Option<Group> {
        let mut next_group = None;
        let outcome = self.try_commit(stream, &mut group, &mut next_group).await;
        if let Err(Error::Indefinite { .. }) = &outcome {
            // Whatever is there now is news.
            self.foreign_commit = Some(monotonic());
        }
        group.answer(outcome);
        next_group
    }

    async fn try_commit(
        &mut self,
        stream: &Arc<Stream>,
        group: &mut Group,
        next_group: &mut Option<Group>,
    ) -> Result<Vec<Result<AppendAck>>> {
        let deadline = group.deadline();
        let (mut base, mut is_current) = in_time(deadline, self.base(stream)).await?;
        let (mut attempt, mut missing) = (0, None);
        loop {
            let (admission, next) = match in_time(deadline, self.advance(stream, &base, group)).await {
                // A refusal is given only against a manifest known to be current.
                Ok((_, None)) if !is_current => {
                    (base, is_current) = (in_time(deadline, stream.refresh_live()).await?, true);
                    continue;
                }
                // What it names may be gone once there is a newer one.
                Err(Error::Missing(id)) if missing != Some(id) => {
                    missing = Some(id);
                    (base, is_current) = (in_time(deadline, stream.refresh_live()).await?, true);
                    continue;
                }
                Ok((admission, None)) => return Ok(outcomes(admission, None)),
                Ok((admission, Some(next))) => (admission, next),
                Err(error) => return Err(error),
            };
            self.roll_ahead(stream, &next);
            let commit = stream.commit(Some(&base), &next, deadline);
            match self.overlap(stream, commit, &next, next_group).await? {
                Outcome::Committed(_) => {
                    metrics::histogram!(COMMIT_BATCHES).record(group.len() as f64);
                    let records = next.log.next_seq_num - base.doc.log.next_seq_num;
                    metrics::histogram!(COMMIT_RECORDS).record(records as f64);
                    // The commit proves that its base was current, so the refusals beside it stand.
                    return Ok(outcomes(admission, Some(&next)));
                }
                Outcome::Conflict => {
                    self.foreign_commit = Some(monotonic());
                    attempt += 1;
                    if deadline.has_passed() {
                        // Every PUT of ours is proven lost: nothing was written, and nothing can be any more.
                        return Err(Error::Overloaded("other writers of the stream always came first"));
                    }
                    tokio::time::sleep(jittered(attempt, stream.shared.latency.estimate())).await;
                    (base, is_current) = (in_time(deadline, stream.refresh_live()).await?, true);
                }
            }
        }
    }

    /// The manifest to build on: the known one, unless it cannot be or is likely to be old.
    async fn base(&self, stream: &Stream) -> Result<(Arc<Snapshot>, bool)> {
        let is_contended = self
            .foreign_commit
            .is_some_and(|at| monotonic().saturating_duration_since(at) < FOREIGN_IS_RECENT);
        match stream.known().filter(|known| known.doc.head.is_live() && !is_contended) {
            Some(known) => Ok((known, false)),
            None => Ok((stream.refresh_live().await?, true)),
        }
    }

    /// Judges a group by this manifest, and makes the next one if any of its batches gets in.
    async fn advance(
        &mut self,
        stream: &Arc<Stream>,
        base: &Snapshot,
        group: &mut Group,
    ) -> Result<(Admission, Option<Manifest>)> {
        let log = stream.recall(&base.doc, group.entries()).await?;
        let candidates = group.batches.iter().map(|batch| batch.candidate(base.doc.head.incarnation));
        let admission = admit(&log, base.doc.config.timestamping, candidates, group.arrival_ms);
        if !admission.accepts_any() {
            return Ok((admission, None));
        }
        let next = self.assemble(stream, base, &admission, group).await?;
        Ok((admission, Some(next)))
    }

    /// The next manifest, with every object it names uploaded and confirmed.
    async fn assemble(
        &mut self,
        stream: &Arc<Stream>,
        base: &Snapshot,
        admission: &Admission,
        group: &mut Group,
    ) -> Result<Manifest> {
        let now_ms = stream.shared.clock.now_ms();
        let base = &base.doc;
        let mut next = Manifest { head: base.head.next(base.head.incarnation, State::Live), ..base.clone() };
        self.enter_finished(stream, &mut next, now_ms).await?;
        let inline_max = stream.shared.options.shape.inline_bytes_max(base.config.storage_class);
        let accepted = Accepted::of(admission, group);
        let inline = (accepted.encoded_bytes_max <= 2 * inline_max)
            .then(|| accepted.inline(group, admission))
            .filter(|commit| commit.bytes_max() <= inline_max);
        match inline {
            // Entries may be without records.
            Some(commit) if commit.count == 0 => {}
            Some(commit) => {
                if next.tail.bytes() + commit.bytes_max() > inline_max {
                    self.roll_tail(stream, base, &mut next, now_ms).await?;
                }
                next.tail.0.push(commit);
            }
            None => {
                let chunk = self.upload_beside_tail(stream, base, &mut next, (&accepted, group)).await?;
                self.make_room(&stream.shared, &mut next, 0, 1).await?;
                enter_chunk(&mut next, chunk);
            }
        }
        next.log = admission.log.clone();
        stream.spill(base, &mut next).await?;
        Ok(next)
    }

    /// Rolls the tail, if there is one, and uploads the accepted batches as one chunk, at the same time.
    async fn upload_beside_tail(
        &mut self,
        stream: &Arc<Stream>,
        base: &Manifest,
        next: &mut Manifest,
        (accepted, group): (&Accepted<'_>, &mut Group),
    ) -> Result<Ref> {
        let now_ms = stream.shared.clock.now_ms();
        if !next.tail.0.is_empty() && self.tail_roll.is_none() {
            self.tail_roll = Some(TailRoll::start(&stream.shared, next, base.head.commit_id(), now_ms));
        }
        let chunk = match group.chunk_ref(base, accepted, now_ms).await? {
            Some(chunk) => chunk,
            None => {
                let mut stamps = vec![None; group.len()];
                for (index, admitted) in &accepted.batches {
                    if let Some(stamp) = stamps.get_mut(*index) {
                        *stamp = Some(admitted.timestamps.as_slice());
                    }
                }
                group.start_chunk(
                    (&stream.shared, stream.hash),
                    Begun::under(base, now_ms),
                    stamps.into_iter(),
                );
                let uploaded = group.chunk_ref(base, accepted, now_ms).await?;
                uploaded.ok_or_else(|| Error::broken("chunk", "it does not hold what was just uploaded"))?
            }
        };
        if !next.tail.0.is_empty() {
            self.roll_tail(stream, base, next, now_ms).await?;
        }
        Ok(chunk)
    }

    /// Swaps the whole tail for a chunk, waiting for the upload.
    async fn roll_tail(
        &mut self,
        stream: &Arc<Stream>,
        base: &Manifest,
        next: &mut Manifest,
        now_ms: u64,
    ) -> Result<()> {
        // An upload that was begun ahead may hold only a part of the tail, or may not fit any more.
        for _ in 0..4 {
            if next.tail.0.is_empty() {
                break;
            }
            let uploading = self
                .tail_roll
                .take()
                .unwrap_or_else(|| TailRoll::start(&stream.shared, next, base.head.commit_id(), now_ms));
            let roll = joined(uploading.await)?;
            if roll.may_enter(next, now_ms) {
                self.make_room(&stream.shared, next, 0, 1).await?;
                roll.enter(next);
            }
        }
        Ok(())
    }

    /// Lets uploads that are done enter.
    async fn enter_finished(&mut self, stream: &Arc<Stream>, next: &mut Manifest, now_ms: u64) -> Result<()> {
        if let Some(uploading) = self.page_roll.take_if(|u| u.is_finished()) {
            match joined(uploading.await) {
                Ok(roll) => self.enter_page(&stream.shared, next, &roll, now_ms).await?,
                Err(error) => tracing::warn!(%error, "an index page was not uploaded; it is made again"),
            }
        }
        if let Some(uploading) = self.tail_roll.take_if(|u| u.is_finished()) {
            match joined(uploading.await) {
                Ok(roll) if roll.may_enter(next, now_ms) => {
                    self.make_room(&stream.shared, next, 0, 1).await?;
                    roll.enter(next);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "a rolled tail was not uploaded; it is made again"),
            }
        }
        Ok(())
    }

    async fn enter_page(
        &mut self,
        shared: &Arc<Shared>,
        next: &mut Manifest,
        roll: &PageRoll,
        now_ms: u64,
    ) -> Result<()> {
        if roll.may_enter(next, now_ms) {
            Box::pin(self.make_room(shared, next, roll.level() + 1, roll.adds_above())).await?;
            // Making room above may have moved the page that this one replaces.
            if roll.may_enter(next, now_ms) {
                roll.enter(next);
            }
        }
        Ok(())
    }

    /// Moves the oldest refs of a level into a page until `adding` more fit.
    pub(super) async fn make_room(
        &mut self,
        shared: &Arc<Shared>,
        next: &mut Manifest,
        level: usize,
        adding: usize,
    ) -> Result<()> {
        let refs_max = shared.options.shape.refs_max;
        let now_ms = shared.clock.now_ms();
        // Each round moves at least one ref, but for rounds spent on a page that was begun ahead in vain.
        for _ in 0..=2 * refs_max {
            if next.levels.get(level).map_or(0, Vec::len) + adding <= refs_max {
                break;
            }
            let uploading = match self.page_roll.take() {
                Some(ahead) => ahead,
                None => match PageRoll::start(shared, next, level, now_ms) {
                    Some(uploading) => uploading,
                    None => break,
                },
            };
            let roll = joined(uploading.await)?;
            self.enter_page(shared, next, &roll, now_ms).await?;
        }
        Ok(())
    }

    /// Begins the uploads that a later commit will swap in.
    fn roll_ahead(&mut self, stream: &Arc<Stream>, next: &Manifest) {
        let shape = stream.shared.options.shape;
        let now_ms = stream.shared.clock.now_ms();
        let inline_max = shape.inline_bytes_max(next.config.storage_class);
        if self.tail_roll.is_none() && next.tail.bytes() >= inline_max / 2 {
            self.tail_roll = Some(TailRoll::start(&stream.shared, next, next.head.commit_id(), now_ms));
        }
        if self.page_roll.is_none() {
            let full = next.levels.iter().position(|refs| refs.len() >= move_count(shape.refs_max));
            self.page_roll = full.and_then(|level| PageRoll::start(&stream.shared, next, level, now_ms));
        }
    }

    /// Waits for a commit; meanwhile, batches that cannot ride inline are taken and their upload begins.
    async fn overlap<T>(
        &mut self,
        stream: &Arc<Stream>,
        commit: impl Future<Output = T>,
        next: &Manifest,
        next_group: &mut Option<Group>,
    ) -> T {
        let shape = stream.shared.options.shape;
        let inline_max = shape.inline_bytes_max(next.config.storage_class);
        let mut commit = std::pin::pin!(commit);
        loop {
            if next_group.is_none() && stream.queue.bytes() > 2 * inline_max {
                *next_group = self.prepare(stream, next);
            }
            tokio::select! {
                biased;
                outcome = &mut commit => return outcome,
                () = stream.queue.arrival(), if next_group.is_none() => {}
            }
        }
    }

    /// Takes what is queued and starts to upload it, as it would follow `next`.
    fn prepare(&mut self, stream: &Arc<Stream>, next: &Manifest) -> Option<Group> {
        let now_ms = stream.shared.clock.now_ms();
        let batches = stream.queue.take();
        if batches.is_empty() {
            return None;
        }
        let mut group = Group::new(batches, now_ms);
        let mut last = 0;
        let mut stamps = Vec::with_capacity(group.len());
        for batch in &group.batches {
            let stamped = stamp(last, next.config.timestamping, &batch.input, now_ms).ok();
            last = stamped.as_ref().and_then(|s| s.last().copied()).unwrap_or(last);
            stamps.push(stamped);
        }
        group.start_chunk(
            (&stream.shared, stream.hash),
            Begun::under(next, now_ms),
            stamps.iter().map(Option::as_deref),
        );
        if self.tail_roll.is_none() && !next.tail.0.is_empty() {
            self.tail_roll = Some(TailRoll::start(&stream.shared, next, next.head.commit_id(), now_ms));
        }
        Some(group)
    }
}

/// Runs a step before the commit's PUT: should it take too long, nothing was committed, and nothing will be.
async fn in_time<T>(deadline: Deadline, step: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(deadline.remaining(), step)
        .await
        .unwrap_or(Err(Error::Overloaded("the store was too slow for the append to be sent in time")))
}

/// The callers' outcomes; `committed` is the manifest that has the accepted ones.
fn outcomes(admission: Admission, committed: Option<&Manifest>) -> Vec<Result<AppendAck>> {
    let outcome = |verdict: std::result::Result<Admitted, _>| match (verdict, committed) {
        (Ok(Admitted { start, end, .. }), Some(manifest)) => {
            let life = manifest.head.incarnation.into();
            Ok(AppendAck { start, end, tail: manifest.tail_position(), life })
        }
        (Ok(_), None) => Err(Error::Indefinite { why: "accepted, but not committed", source: None }),
        (Err(rejection), _) => Err(Error::Rejected(rejection)),
    };
    admission.verdicts.into_iter().map(outcome).collect()
}
