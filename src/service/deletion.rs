//! Deletion of a basin: everything in it ends, then it does.
//!
//! Marker, deleting, then until nothing is listed: a tombstone for every entry, also where no manifest exists
//! yet (I-10); then the basin's own tombstone. It may be stopped at any point and goes on with the next DELETE,
//! here or in another process; several at once do no harm.

use futures::{StreamExt, TryStreamExt};

use super::Service;
use super::basins::Change;
use super::error::{Error, Result, of_stream};
use super::streams::identity;
use crate::engine::{Snapshot, Stream};
use crate::storage::documents::{load_basin, put_due};
use crate::storage::head::State;
use crate::storage::key::{self, CatalogEntry, Incarnation};
use crate::storage::manifest::Manifest;
use crate::storage::meta::{BasinRecord, DueMarker};
use crate::storage::register::Outcome;
use crate::types::limits::LIST_PAGE_NAMES_MAX;
use crate::types::name::{BasinName, StreamNamePart};
use crate::types::stream::ListRequest;
use crate::types::time::Deadline;

/// When a life of a basin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Before anybody asked.
    Before,
    /// Just now.
    Now,
    /// It is alive.
    NotYet,
}

impl Ended {
    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_over(self) -> bool {
        self != Self::NotYet
    }

    /// Whether it ended just now.
    #[must_use]
    pub fn was_completed(self) -> bool {
        self == Self::Now
    }
}

/// Streams ended at the same time.
const ENDED_AT_ONCE: usize = 16;

impl Service {
    /// Accepts the deletion of a basin and everything in it, and works at it; a repeat works on.
    pub async fn delete_basin(&self, name: &BasinName) -> Result<()> {
        let incarnation = self.begin_deletion(name).await?;
        let (service, name) = (self.clone(), name.clone());
        self.tasks.spawn(async move { service.work_at_deletion(&name, incarnation).await });
        Ok(())
    }

    /// The same where nothing may run after the answer: it is worked at until the deadline.
    pub async fn delete_basin_within(&self, name: &BasinName, deadline: Deadline) -> Result<()> {
        let incarnation = self.begin_deletion(name).await?;
        let work = self.work_at_deletion(name, incarnation);
        if tokio::time::timeout(deadline.remaining(), work).await.is_err() {
            tracing::info!(basin = %name, "the deletion of a basin is left for its next DELETE");
        }
        Ok(())
    }

    /// From here on the basin is being deleted, whoever works at it.
    async fn begin_deletion(&self, name: &BasinName) -> Result<Incarnation> {
        let found = load_basin(self.store(), name).await?;
        let state = found.as_ref().map(|f| (f.doc.head.state, f.doc.head.incarnation));
        let incarnation = match state {
            None | Some((State::Tombstone | State::Redirect, _)) => {
                return Err(Error::BasinNotFound(name.to_string()));
            }
            Some((State::Deleting, incarnation)) => incarnation,
            Some((State::Live, incarnation)) => {
                let due = key::due_basin(self.now_ms(), incarnation);
                let marker = DueMarker::Basin { name: name.clone(), incarnation };
                put_due(self.store(), self.engine.clock(), &due, &marker).await?;
                self.accept_deletion(name, incarnation).await?;
                incarnation
            }
        };
        self.basins.remove(name);
        Ok(incarnation)
    }

    async fn work_at_deletion(&self, name: &BasinName, incarnation: Incarnation) {
        if let Err(error) = self.finish_deletion(name, incarnation).await {
            tracing::warn!(%error, basin = %name, "the deletion of a basin stopped; a repeat goes on");
        }
    }

    /// Goes on with the deletion of a life of a basin, if that was accepted.
    pub async fn continue_deletion(&self, name: &BasinName, incarnation: Incarnation) -> Result<Ended> {
        match load_basin(self.store(), name).await? {
            Some(found) if found.doc.head.incarnation != incarnation => Ok(Ended::Before),
            Some(found) if found.doc.head.state == State::Tombstone => Ok(Ended::Before),
            Some(found) if found.doc.head.state == State::Deleting => {
                self.finish_deletion(name, incarnation).await?;
                Ok(Ended::Now)
            }
            // The marker comes first: its deletion may be about to be accepted.
            _ => Ok(Ended::NotYet),
        }
    }

    async fn accept_deletion(&self, name: &BasinName, incarnation: Incarnation) -> Result<()> {
        let now_ms = self.now_ms();
        self.change_basin(name, |current| match current {
            Some(basin) if basin.head.incarnation == incarnation && basin.head.state == State::Live => {
                let deleting = basin.next(State::Deleting);
                Ok(Change::Write(Box::new(BasinRecord { deleted_at_ms: Some(now_ms), ..deleting })))
            }
            // Someone else accepted it meanwhile, or even finished.
            Some(_) => Ok(Change::Keep),
            None => Err(Error::BasinNotFound(name.to_string())),
        })
        .await?;
        Ok(())
    }

    /// Ends every stream of a basin that is being deleted, then the basin.
    async fn finish_deletion(&self, name: &BasinName, incarnation: Incarnation) -> Result<()> {
        let mut first = None;
        loop {
            let everything = ListRequest {
                prefix: StreamNamePart::parse("", "prefix").map_err(|e| Error::Invalid(e.to_string()))?,
                start_after: StreamNamePart::parse("", "start_after")
                    .map_err(|e| Error::Invalid(e.to_string()))?,
                limit: LIST_PAGE_NAMES_MAX,
            };
            // Every page begins anew: what was ended is not listed any more.
            let page = self.list_catalog(incarnation, &everything).await?;
            if page.items.is_empty() {
                break;
            }
            // An entry that comes back would keep this going for ever.
            if first.as_ref() == page.items.first() {
                return Err(Error::TransactionConflict(name.to_string()));
            }
            first = page.items.first().cloned();
            let ends: Vec<_> =
                page.items.into_iter().map(|entry| self.end_stream(incarnation, entry)).collect();
            futures::stream::iter(ends).buffer_unordered(ENDED_AT_ONCE).try_collect::<()>().await?;
        }
        self.change_basin(name, |current| match current {
            Some(basin) if basin.head.incarnation == incarnation && basin.head.state == State::Deleting => {
                Ok(Change::Write(Box::new(basin.next(State::Tombstone))))
            }
            Some(_) => Ok(Change::Keep),
            None => Err(Error::BasinNotFound(name.to_string())),
        })
        .await?;
        Ok(())
    }

    /// Ends the stream of an entry, whether its creation has got as far as a manifest or not.
    ///
    /// A creation that is on its way holds either "nothing is there" or the tombstone of an earlier life: both
    /// must change before the entry goes, or it could still land (I-10).
    async fn end_stream(&self, basin: Incarnation, entry: CatalogEntry) -> Result<()> {
        let stream = self.engine.stream(&identity(basin, &entry.name));
        let of_stream = |error| of_stream(entry.name.as_str(), error);
        let deadline = self.deadline();
        loop {
            if deadline.has_passed() {
                return Err(Error::TransactionConflict(entry.name.to_string()));
            }
            let found = stream.refresh().await.map_err(of_stream)?;
            match &found {
                Some(found) if found.doc.head.is_live() => {
                    if let Some(tombstone) = self.bury(&stream, found).await? {
                        self.delete_catalog_entry(&stream, &tombstone).await?;
                    }
                    continue;
                }
                Some(dead) if dead.doc.head.incarnation == entry.incarnation => break,
                Some(_) | None => {}
            }
            if self.fence(&stream, found.as_deref(), &entry, deadline).await? {
                break;
            }
        }
        Ok(self.store().delete(&key::catalog_entry(basin, &entry)).await?)
    }

    /// Puts a tombstone where nothing ever was, or over that of an earlier life, so that a creation that is still on its
    /// way can never land; false if others came first.
    pub(super) async fn fence(
        &self,
        stream: &Stream,
        base: Option<&Snapshot>,
        entry: &CatalogEntry,
        deadline: Deadline,
    ) -> Result<bool> {
        let due = self.put_stream_due(&stream.identity, entry.incarnation, self.now_ms()).await?;
        let dead = base.map(|base| &base.doc);
        let head = Manifest::head_of_life(dead, entry.incarnation, State::Tombstone);
        let fence = Manifest::empty(stream.identity.hash(), head, dead, entry.created_at_ms, due);
        Ok(matches!(stream.commit(base, &fence, deadline).await?, Outcome::Committed(_)))
    }

    /// The life of a basin, alive or being deleted.
    pub(super) async fn fetch_basin_life(&self, name: &BasinName) -> Result<Incarnation> {
        match load_basin(self.store(), name).await? {
            Some(found) if found.doc.head.state != State::Tombstone => Ok(found.doc.head.incarnation),
            _ => Err(Error::BasinNotFound(name.to_string())),
        }
    }
}
