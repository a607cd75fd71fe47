//! Deletion: at once, unless forks live; then the stream is kept in mind until the last of them is gone.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use super::error::{Error, Result, of_engine};
use super::{DurableRef, RESTARTS_MAX, identity, ledger, unusable, with_ledger};
use crate::engine::{self, Snapshot, Stream, Updated};
use crate::service::{self, Service};
use crate::storage::identity::Identity;
use crate::storage::key::CatalogEntry;
use crate::storage::ledger::{Kin, Ledger, Stage};
use crate::storage::manifest::Manifest;
use crate::types::ledger::Unusable;

/// Forks looked at at the same time.
const LOOKED_AT_ONCE: usize = 16;

impl Service {
    /// Deletes a stream.
    pub async fn delete_durable(&self, target: &DurableRef) -> Result<()> {
        let name = &target.name;
        let open = |stream: Arc<Stream>| async move {
            let found = stream.refresh_live().await?;
            Ok((stream, found))
        };
        for _ in 0..RESTARTS_MAX {
            let (stream, found) = match self.on_durable(target, open).await {
                Err(error @ Error::StreamNotFound(_)) => {
                    self.drop_name(target).await?;
                    return Err(error);
                }
                outcome => outcome?,
            };
            let judged = ledger(&found.doc)?;
            match judged.check_usable(self.now_ms()) {
                Ok(()) => {}
                Err(why @ (Unusable::Retired | Unusable::Unfinished)) => return Err(unusable(name, why)),
                Err(Unusable::Expired) if self.end_durable(&stream, &found).await? => {
                    return Err(Error::StreamNotFound(name.to_string()));
                }
                // It was used just before its end.
                Err(Unusable::Expired) => continue,
            }
            // A fork that was begun meanwhile has marked it since.
            let is_unmarked = |ledger: &Ledger| ledger.forks.iter().all(|fork| judged.forks.contains(fork));
            if self.retire(&stream, &found).await? || self.end_if(&stream, &found, is_unmarked).await? {
                return Ok(());
            }
        }
        Err(service::Error::TransactionConflict(name.to_string()).into())
    }

    /// Takes a name out of the listing whose stream has ended, for a deletion that died between its two steps.
    async fn drop_name(&self, target: &DurableRef) -> Result<()> {
        let Some(life) = self.buckets.get(&target.bucket) else { return Ok(()) };
        let stream = self.engine.stream(&identity(life, &target.name));
        match stream.known().filter(|known| !known.doc.head.is_live()) {
            Some(dead) => Ok(self.delete_catalog_entry(&stream, &dead.doc).await?),
            None => Ok(()),
        }
    }

    /// Keeps a stream in mind although it is deleted, if forks of it live; whether they do.
    async fn retire(&self, stream: &Stream, found: &Snapshot) -> Result<bool> {
        let marked = &ledger(&found.doc)?.forks;
        let dead = self.dead_forks(marked).await?;
        if dead.len() == marked.len() {
            return Ok(false);
        }
        let retired = |manifest: &Manifest| {
            let ledger = manifest.log.ledger.as_deref()?;
            let forks: Vec<_> = ledger.forks.iter().filter(|fork| !dead.contains(fork)).cloned().collect();
            let is_wanted = manifest.head.incarnation == found.doc.head.incarnation
                && !forks.is_empty()
                && (ledger.stage != Stage::Retired || ledger.forks != forks);
            is_wanted
                .then(|| with_ledger(manifest, Ledger { stage: Stage::Retired, forks, ..ledger.clone() }))
        };
        match stream.update(retired).await {
            Ok(Updated::Changed(_)) => Ok(true),
            Ok(Updated::Unchanged(found)) => {
                let ledger = ledger(&found.doc)?;
                Ok(ledger.stage == Stage::Retired && !ledger.forks.is_empty())
            }
            // Others have ended it meanwhile.
            Err(engine::Error::NoStream) => Ok(false),
            Err(error) => Err(of_engine(&stream.identity.name, error)),
        }
    }

    /// Ends a stream that nobody can use any more, for whoever sweeps: its lifetime is over for so long, its making
    /// was abandoned, or it was deleted and the forks that it was kept in mind for are gone. Whether it ended.
    pub async fn settle_durable(&self, identity: &Identity, slack_ms: u64) -> Result<bool> {
        let stream = self.engine.stream(identity);
        let found = stream.refresh().await.map_err(|e| of_engine(&identity.name, e))?;
        let Some(found) = found.filter(|found| found.doc.head.is_live()) else { return Ok(false) };
        let ledger = ledger(&found.doc)?;
        let long_ago_ms = self.now_ms().saturating_sub(slack_ms);
        let is_over = match ledger.stage {
            Stage::Filling => ledger.last_used_ms < long_ago_ms,
            Stage::Ready => ledger.has_expired(long_ago_ms),
            Stage::Retired => !self.retire(&stream, &found).await?,
        };
        Ok(is_over && self.end_durable(&stream, &found).await?)
    }

    /// Those of some forks that do not live: a mark may be left of one that never came to be, or be left behind by one
    /// that ended.
    pub(super) async fn dead_forks(&self, marked: &[Kin]) -> Result<Vec<Kin>> {
        let looks: Vec<_> = marked.iter().map(|fork| self.is_alive(fork)).collect();
        let alive: Vec<bool> = futures::stream::iter(looks).buffered(LOOKED_AT_ONCE).try_collect().await?;
        let dead = marked.iter().zip(alive).filter(|(_, is_alive)| !is_alive);
        Ok(dead.map(|(fork, _)| fork.clone()).collect())
    }

    /// Whether a fork lives; one whose lifetime is over ends with that. One that is marked and not there may be on its
    /// way: a tombstone in its place sees to it that it cannot come any more.
    async fn is_alive(&self, fork: &Kin) -> Result<bool> {
        let stream = self.engine.stream(&identity(fork.bucket, &fork.name));
        let deadline = self.deadline();
        loop {
            let found = stream.refresh().await.map_err(|e| of_engine(&fork.name, e))?;
            let is_its_own = |found: &Snapshot| found.doc.head.incarnation == fork.life;
            match &found {
                Some(found) if found.doc.head.is_live() => {
                    let is_over = ledger(&found.doc)?.check_usable(self.now_ms()) == Err(Unusable::Expired);
                    return Ok(is_its_own(found) && !(is_over && self.end_durable(&stream, found).await?));
                }
                Some(found) if is_its_own(found) => return Ok(false),
                Some(_) | None => {}
            }
            if deadline.has_passed() {
                return Err(service::Error::TransactionConflict(fork.name.to_string()).into());
            }
            let created_at_ms = self.now_ms();
            let entry = CatalogEntry { name: fork.name.clone(), created_at_ms, incarnation: fork.life };
            if self.fence(&stream, found.as_deref(), &entry, deadline).await? {
                return Ok(false);
            }
        }
    }

    /// Ends a life of a stream that was found to be over, unless it was used since; whether it ended.
    pub(super) async fn end_durable(&self, stream: &Stream, found: &Snapshot) -> Result<bool> {
        let judged = ledger(&found.doc)?;
        let is_as_judged =
            |ledger: &Ledger| ledger.stage == judged.stage && ledger.last_used_ms == judged.last_used_ms;
        self.end_if(stream, found, is_as_judged).await
    }

    /// Ends a life of a stream if it is still to end, and takes it from the listing and from the mind of what it was
    /// forked from; whether it ended.
    async fn end_if(
        &self,
        stream: &Stream,
        found: &Snapshot,
        is_over: impl Fn(&Ledger) -> bool,
    ) -> Result<bool> {
        let life = found.doc.head.incarnation;
        let is_over = |manifest: &Manifest| manifest.log.ledger.as_deref().is_some_and(&is_over);
        match self.bury_if(stream, found, is_over).await? {
            Some(tombstone) => self.delete_catalog_entry(stream, &tombstone).await?,
            None => {
                let known = stream.known();
                if known.is_some_and(|known| known.doc.head.is_live() && known.doc.head.incarnation == life) {
                    return Ok(false);
                }
            }
        }
        if let Some(origin) = ledger(&found.doc)?.origin.clone() {
            let own = Kin { bucket: stream.identity.basin, name: stream.identity.name.clone(), life };
            self.unmark_fork(&origin, &own).await?;
        }
        Ok(true)
    }
}
