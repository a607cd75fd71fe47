//! One visit of one life of a stream.

use super::garbage::{self, GRACE_MS};
use super::plan::{
    Bounds, Progress, SLACK_MS, deletes_itself, drop_dead_commits, late_copies_ms, may_end, next_visit_ms,
};
use super::report::Report;
use super::rewrite::{Done, Rewriter};
use super::{Error, Result, Sweeper};
use crate::storage::documents::{Found, Versioned, load_manifest};
use crate::storage::head::State;
use crate::storage::identity::Identity;
use crate::storage::key::{self, CatalogEntry, Incarnation};
use crate::storage::manifest::Manifest;
use crate::storage::meta::DueMarker;
use crate::storage::register::Outcome;
use crate::types::limits::UPLOAD_AGE_MS_MAX;

/// How often a visit begins anew because others have changed the stream meanwhile.
const ATTEMPTS_MAX: usize = 8;
/// The second visit of a life that is over comes this much later.
const LAST_VISIT_AFTER_MS: u64 = 25 * 60 * 60 * 1_000;

/// A marker that is due, and what it asks for.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) key: String,
    /// When it was written.
    pub(super) written_ms: u64,
    pub(super) identity: Identity,
    pub(super) life: Incarnation,
    pub(super) is_last: bool,
    /// The marker under which the stream stood when the visit judged it; this one, as a rule.
    pub(super) standing: String,
}

/// Whether what a visit has judged still holds: whoever changes what is kept, or ends uploads, has the stream stand
/// under another marker ([`Manifest::check_transition`]).
fn is_same(due: &Due, manifest: &Manifest) -> bool {
    manifest.head.is_live() && manifest.head.incarnation == due.life && manifest.due == due.standing
}

impl Sweeper {
    /// Visits what a marker names, and removes the marker once another stands or none is needed.
    pub(super) async fn visit(&self, due: &Due, report: &mut Report) -> Result<()> {
        let mut missing = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.try_visit(due, report).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Another sweeper may have been here; the manifest knows.
                Err(Error::Missing(key)) => missing = Some(key),
                Err(error) => return Err(error),
            }
        }
        Err(missing.map_or_else(|| Error::Busy(due.identity.name.to_string()), Error::Missing))
    }

    /// One attempt; false if others have changed the stream meanwhile.
    async fn try_visit(&self, due: &Due, report: &mut Report) -> Result<bool> {
        match self.load(&due.identity).await? {
            None => self.fence(due, report).await,
            Some(found) if found.doc.head.incarnation != due.life || !found.doc.head.is_live() => {
                self.clear(due, &found.doc, report).await?;
                Ok(true)
            }
            Some(found) => self.visit_live(due, found, report).await,
        }
    }

    async fn load(&self, identity: &Identity) -> Result<Option<Versioned<Manifest>>> {
        match load_manifest(&*self.store, identity, None).await? {
            Found::Changed(found) => Ok(Some(*found)),
            Found::Absent => Ok(None),
            Found::Unchanged => Err(Error::Invariant("unchanged, but from what?".to_owned())),
        }
    }

    async fn commit(
        &self,
        identity: &Identity,
        base: Option<&Versioned<Manifest>>,
        next: &Manifest,
    ) -> Result<bool> {
        Ok(matches!(self.swap(identity, base, next).await?, Outcome::Committed(_)))
    }

    /// Ends a creation that never got as far as a manifest: with a tombstone in its place it cannot land any more,
    /// and its name goes out of the listing.
    async fn fence(&self, due: &Due, report: &mut Report) -> Result<bool> {
        if self.options.dry_run {
            report.lives_cleared += 1;
            return Ok(true);
        }
        let entries = self.entries(due).await?;
        let created_at_ms = entries.first().map_or(due.written_ms, |entry| entry.created_at_ms);
        let next =
            self.put_due(&due.identity, due.life, self.clock.now_ms() + LAST_VISIT_AFTER_MS, true).await?;
        let head = Manifest::head_of_life(None, due.life, State::Tombstone);
        let fence = Manifest::empty(due.identity.hash(), head, None, created_at_ms, next.clone());
        if !self.commit(&due.identity, None, &fence).await? {
            self.store.delete(&next).await?;
            return Ok(false);
        }
        self.remove_entries(due, &entries).await?;
        self.store.delete(&due.key).await?;
        report.lives_cleared += 1;
        Ok(true)
    }

    /// Removes what a life has left that is over for good: the key holds its tombstone, or another life.
    async fn clear(&self, due: &Due, now: &Manifest, report: &mut Report) -> Result<()> {
        let listed = garbage::list_life(&*self.store, now, due.life).await?;
        let objects: Vec<_> = listed.into_iter().map(super::rewrite::Dropped::from).collect();
        report.lives_cleared += 1;
        if self.options.dry_run {
            garbage::count(&objects, report);
            return Ok(());
        }
        let entries = self.entries(due).await?;
        self.remove_entries(due, &entries).await?;
        garbage::remove(&*self.store, &objects, report).await?;
        if !due.is_last {
            // A PUT that was on its way when the life ended may land after this.
            let at_ms = self.clock.now_ms() + LAST_VISIT_AFTER_MS;
            self.put_due(&due.identity, due.life, at_ms, true).await?;
        }
        self.store.delete(&due.key).await?;
        Ok(())
    }

    async fn entries(&self, due: &Due) -> Result<Vec<CatalogEntry>> {
        garbage::entries(&*self.store, due.identity.basin, &due.identity.name, due.life).await
    }

    async fn remove_entries(&self, due: &Due, entries: &[CatalogEntry]) -> Result<()> {
        for entry in entries {
            self.store.delete(&key::catalog_entry(due.identity.basin, entry)).await?;
        }
        Ok(())
    }

    /// Visits a live stream; false if others have changed it meanwhile.
    async fn visit_live(&self, due: &Due, found: Versioned<Manifest>, report: &mut Report) -> Result<bool> {
        let now_ms = self.clock.now_ms();
        let due = &Due { standing: found.doc.due.clone(), ..due.clone() };
        if due.standing != due.key && self.is_standing(due).await? {
            return self.retire(due, now_ms).await;
        }
        if may_end(&found.doc, now_ms) && self.settle(due, report).await? {
            return Ok(true);
        }
        if deletes_itself(&found.doc, now_ms) {
            return self.bury(due, &found, report).await;
        }
        let mut part = Report::default();
        let is_done = self.tend(due, found, &mut part).await?;
        if is_done {
            part.streams_visited += 1;
            report.add(&part);
        }
        Ok(is_done)
    }

    /// Ends a stream with a ledger if nobody can use it any more; whether it did. What it leaves is another visit's.
    async fn settle(&self, due: &Due, report: &mut Report) -> Result<bool> {
        if self.options.dry_run {
            return Ok(false);
        }
        let settled = self.service.settle_durable(&due.identity, SLACK_MS).await;
        let name = due.identity.name.to_string();
        let has_ended = settled.map_err(|source| Error::Ledger { name, source })?;
        report.streams_deleted += u64::from(has_ended);
        Ok(has_ended)
    }

    /// Whether the marker that the stream names is there. One that is not was taken for replaced while the commit
    /// that names it was on its way: then this one stands in for it.
    async fn is_standing(&self, due: &Due) -> Result<bool> {
        Ok(self.store.get(&due.standing).await?.is_some())
    }

    /// Removes a marker that a live stream does not name: it was replaced, or the change that is to name it is on
    /// its way. Which of them, age tells; and since a life may end by a change that comes very late, a marker
    /// for the day after stands in for it.
    async fn retire(&self, due: &Due, now_ms: u64) -> Result<bool> {
        let is_replaced = due.written_ms.saturating_add(GRACE_MS) < now_ms;
        if is_replaced && !self.options.dry_run {
            if !due.is_last {
                self.put_due(&due.identity, due.life, now_ms + LAST_VISIT_AFTER_MS, true).await?;
            }
            self.store.delete(&due.key).await?;
        }
        Ok(true)
    }

    /// Deletes a stream that has been empty for long enough, if it still is as it was found.
    async fn bury(&self, due: &Due, found: &Versioned<Manifest>, report: &mut Report) -> Result<bool> {
        if self.options.dry_run {
            report.streams_deleted += 1;
            return Ok(true);
        }
        let next = self.put_due(&due.identity, due.life, self.clock.now_ms(), false).await?;
        let tombstone = found.doc.tombstone(next.clone());
        if !self.commit(&due.identity, Some(found), &tombstone).await? {
            self.store.delete(&next).await?;
            return Ok(false);
        }
        report.streams_deleted += 1;
        let entry = found.doc.catalog_entry(&due.identity.name);
        self.store.delete(&key::catalog_entry(due.identity.basin, &entry)).await?;
        self.store.delete(&due.key).await?;
        let dead = Due { key: next, ..due.clone() };
        self.clear(&dead, &tombstone, report).await?;
        Ok(true)
    }

    /// Removes what is dead, merges, copies, looks for orphans, and sets the next visit.
    async fn tend(&self, due: &Due, found: Versioned<Manifest>, report: &mut Report) -> Result<bool> {
        let began_ms = self.clock.now_ms();
        let base = &found.doc;
        let mut rewriter =
            Rewriter::new(&*self.store, base, Bounds::of(base, began_ms), self.options.dry_run);
        rewriter.run(base).await?;
        let done = rewriter.done;
        if late_copies_ms(base, began_ms).is_some() && (done.is_unfinished || self.options.dry_run) {
            tracing::error!(
                stream = %due.identity.name,
                "chunks have waited for more than a day to be copied to a longer data class; \
                 the store's lifecycle rules will remove them if this goes on"
            );
            report.copies_late += 1;
        }
        report.chunks_merged += done.merged as u64;
        report.chunks_copied += done.copied as u64;
        let collects = began_ms.saturating_sub(base.upkeep.collected_ms) >= self.options.collect_every_ms
            || base.upkeep.collected_ms == 0;
        if self.options.dry_run {
            garbage::count(&done.dropped, report);
            if collects {
                let listed = self.list(base).await?;
                let orphans = garbage::orphans(&*self.store, base, &listed, began_ms).await?;
                report.orphans_removed += orphans.len() as u64;
                garbage::count(&orphans, report);
            }
            return Ok(true);
        }
        let mut progress = Progress {
            compacted_to: done.compacted_to,
            copied_to: done.copied_to.filter(|_| base.upkeep.copy.is_some()),
            collected_ms: None,
            is_unfinished: done.is_unfinished,
        };
        let mut committed = None;
        if !done.edits.is_empty() {
            match self.commit_edits(due, found.clone(), (&done, progress), began_ms).await? {
                Some(version) => committed = Some(version),
                None => return Ok(false),
            }
            garbage::remove(&*self.store, &done.dropped, report).await?;
        }
        let mut orphans = Vec::new();
        if collects {
            let listed = self.list(base).await?;
            progress.collected_ms = Some(began_ms);
            // Chosen by a version loaded after the LIST, and removed only if exactly that one is replaced.
            let Some(current) = self.load(&due.identity).await? else { return Ok(false) };
            if current.doc.head.incarnation != due.life || !current.doc.head.is_live() {
                return Ok(false);
            }
            orphans = garbage::orphans(&*self.store, &current.doc, &listed, began_ms).await?;
            committed = Some(current);
        }
        let last = committed.unwrap_or(found);
        if !self.rearm(due, last, progress, !orphans.is_empty()).await? {
            return Ok(false);
        }
        report.orphans_removed += orphans.len() as u64;
        garbage::remove(&*self.store, &orphans, report).await?;
        self.store.delete(&due.key).await?;
        Ok(true)
    }

    async fn list(&self, manifest: &Manifest) -> Result<Vec<crate::store::Listed>> {
        garbage::list_life(&*self.store, manifest, manifest.head.incarnation).await
    }

    /// Commits what was written anew onto whatever the stream is by now, if all of it still fits.
    async fn commit_edits(
        &self,
        due: &Due,
        mut found: Versioned<Manifest>,
        (done, progress): (&Done, Progress),
        began_ms: u64,
    ) -> Result<Option<Versioned<Manifest>>> {
        for _ in 0..ATTEMPTS_MAX {
            let base = &found.doc;
            let now_ms = self.clock.now_ms();
            // An old upload may have been taken for an orphan.
            let is_valid = is_same(due, base) && now_ms.saturating_sub(began_ms) <= UPLOAD_AGE_MS_MAX;
            let mut next = Manifest {
                head: base.head.next(base.head.incarnation, State::Live),
                upkeep: progress.note(base.upkeep),
                ..base.clone()
            };
            if !is_valid || !done.edits.iter().all(|edit| edit.apply(&mut next)) {
                return Ok(None);
            }
            drop_dead_commits(&mut next, Bounds::of(base, began_ms));
            if let Outcome::Committed(etag) = self.swap(&due.identity, Some(&found), &next).await? {
                match etag {
                    Some(etag) => return Ok(Some(Versioned { doc: next, etag })),
                    None => return self.load(&due.identity).await,
                }
            }
            match self.load(&due.identity).await? {
                Some(newer) => found = newer,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Sets the next visit: the marker first, then the commit that names it. With `fences`, the commit also ends
    /// every upload that began before it, and must replace exactly the version given.
    async fn rearm(
        &self,
        due: &Due,
        mut last: Versioned<Manifest>,
        progress: Progress,
        fences: bool,
    ) -> Result<bool> {
        let now_ms = self.clock.now_ms();
        let at_ms = next_visit_ms(&last.doc, now_ms, progress.is_unfinished);
        // One that is wanted now is visited by the next pass.
        let at_ms = if at_ms > now_ms { key::due_not_before(at_ms) } else { at_ms };
        let next_due = self.put_due(&due.identity, due.life, at_ms, false).await?;
        for _ in 0..ATTEMPTS_MAX {
            let base = &last.doc;
            if !is_same(due, base) {
                break;
            }
            let mut next = Manifest {
                head: base.head.next(base.head.incarnation, State::Live),
                collection_epoch: base.collection_epoch + u64::from(fences),
                upkeep: progress.note(base.upkeep),
                due: next_due.clone(),
                ..base.clone()
            };
            drop_dead_commits(&mut next, Bounds::of(base, now_ms));
            if self.commit(&due.identity, Some(&last), &next).await? {
                return Ok(true);
            }
            match self.load(&due.identity).await? {
                Some(newer) if !fences => last = newer,
                _ => break,
            }
        }
        // Every attempt to name it is proven lost.
        self.store.delete(&next_due).await?;
        Ok(false)
    }

    /// Writes a marker.
    async fn put_due(
        &self,
        identity: &Identity,
        life: Incarnation,
        at_ms: u64,
        is_last: bool,
    ) -> Result<String> {
        let Identity { kind, basin, name } = identity.clone();
        let due = key::due_stream(at_ms, &identity.hash(), life);
        let marker = DueMarker::Stream { kind, basin, name, incarnation: life, is_last };
        self.store.put(&due, marker.encode()).await?;
        Ok(due)
    }
}
