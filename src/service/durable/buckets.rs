//! Buckets: create, look at, list, delete.
//!
//! Only an empty bucket is deleted: it is marked, listed, and then ended, or comes back. What ends is exactly the
//! version that was marked before the list was made. A creation reads the bucket again after its catalog entry is
//! there (I-10) and brings a marked one back to life, so that one of the two sees the other, and a deletion that died
//! stands in nobody's way.

use futures::{StreamExt, TryStreamExt};

use super::error::{Error, Result};
use super::{Status, identity, ledger};
use crate::service::{self, Service};
use crate::storage::bucket::BucketRecord;
use crate::storage::documents::{commit_bucket, load_bucket};
use crate::storage::head::{Head, State};
use crate::storage::key::{self, CatalogEntry, Incarnation};
use crate::storage::ledger::Stage;
use crate::storage::register::{Outcome, jittered};
use crate::types::limits::LIST_PAGE_NAMES_MAX;
use crate::types::name::{BucketName, StreamName, StreamNamePart};
use crate::types::stream::{ListRequest, Page};

/// Streams looked at the same time by a listing.
const LISTED_AT_ONCE: usize = 16;

/// What is told of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// Streams in it.
    pub streams: u64,
}

/// A stream in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its name.
    pub name: StreamName,
    /// What it is.
    pub status: Status,
}

/// One page of streams, in byte order of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// At most the limit asked for.
    pub items: Vec<Listing>,
    /// Whether more names follow.
    pub has_more: bool,
    /// The name that the next page begins after.
    pub next_after: Option<StreamName>,
}

fn everything(after: &str) -> Result<ListRequest<StreamNamePart>> {
    let part = |text: &str| StreamNamePart::parse(text, "after").map_err(|e| Error::Invalid(e.to_string()));
    Ok(ListRequest { prefix: part("")?, start_after: part(after)?, limit: LIST_PAGE_NAMES_MAX })
}

impl Service {
    /// Creates a bucket that must not exist.
    pub async fn create_bucket(&self, name: &BucketName) -> Result<()> {
        self.change_bucket(name, |current| match current.map(|bucket| bucket.head.state) {
            None | Some(State::Tombstone | State::Redirect) => Ok(Some(self.new_bucket(name, current))),
            Some(State::Live | State::Deleting) => Err(Error::BucketExists(name.to_string())),
        })
        .await?;
        Ok(())
    }

    /// The life of a bucket, made now if it is not there.
    pub(super) async fn ensure_bucket(&self, name: &BucketName) -> Result<Incarnation> {
        let record = self
            .change_bucket(name, |current| match current.map(|bucket| bucket.head.state) {
                None | Some(State::Tombstone | State::Redirect) => Ok(Some(self.new_bucket(name, current))),
                Some(State::Live | State::Deleting) => Ok(None),
            })
            .await?;
        record.map(|bucket| bucket.head.incarnation).ok_or_else(|| Error::BucketNotFound(name.to_string()))
    }

    /// Deletes an empty bucket.
    pub async fn delete_bucket(&self, name: &BucketName) -> Result<()> {
        let deadline = self.deadline();
        let life = self.fetch_bucket(name).await?;
        self.buckets.remove(name);
        let mut attempt = 0;
        loop {
            self.check_empty(name, life).await?;
            let marked = self.set_bucket(name, life, State::Deleting).await?;
            match self.check_empty(name, life).await {
                Ok(()) if self.move_on(&marked, State::Tombstone).await? => return Ok(()),
                // Somebody brought it back to life, and may be gone again.
                Ok(()) => {}
                Err(error) => {
                    self.move_on(&marked, State::Live).await?;
                    return Err(error);
                }
            }
            if deadline.has_passed() {
                return Err(service::Error::TransactionConflict(name.to_string()).into());
            }
            attempt += 1;
            tokio::time::sleep(jittered(attempt, self.engine.latency().estimate())).await;
        }
    }

    /// Whether nothing is in a bucket. What has ended, and only waits for a sweeper, is taken out of it here.
    async fn check_empty(&self, name: &BucketName, life: Incarnation) -> Result<()> {
        let deadline = self.deadline();
        loop {
            let entries = self.list_catalog(life, &everything("")?).await?.items;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                if deadline.has_passed() || !self.has_ended(life, &entry).await? {
                    return Err(Error::BucketNotEmpty(name.to_string()));
                }
            }
        }
    }

    /// Whether the stream of an entry has ended; then the entry is gone too, unless others came first. One whose stream
    /// is not there is that of a creation on its way, or of one that died: a tombstone in its place, once it can only
    /// have died, sees to it that it was so.
    async fn has_ended(&self, bucket: Incarnation, entry: &CatalogEntry) -> Result<bool> {
        let stream = self.engine.stream(&identity(bucket, &entry.name));
        let found = stream.refresh().await.map_err(|e| super::error::of_engine(&entry.name, e))?;
        match &found {
            Some(found) if found.doc.head.is_live() => {
                let is_filling = ledger(&found.doc)?.stage == Stage::Filling;
                let slack_ms = if is_filling { self.abandoned_ms() } else { 0 };
                return self.settle_durable(&stream.identity, slack_ms).await;
            }
            Some(dead) if dead.doc.head.incarnation == entry.incarnation => {}
            Some(_) | None => {
                if self.now_ms().saturating_sub(entry.created_at_ms) <= self.abandoned_ms() {
                    return Ok(false);
                }
                if !self.fence(&stream, found.as_deref(), entry, self.deadline()).await? {
                    return Ok(true);
                }
            }
        }
        self.store().delete(&key::catalog_entry(bucket, entry)).await?;
        Ok(true)
    }

    /// What is told of a bucket.
    pub async fn bucket(&self, name: &BucketName) -> Result<BucketInfo> {
        let life = self.fetch_bucket(name).await?;
        let mut streams = 0;
        let mut after = String::new();
        loop {
            let page = self.list_catalog(life, &everything(&after)?).await?;
            streams += page.items.len() as u64;
            match page.items.last() {
                Some(last) if page.has_more => last.name.as_str().clone_into(&mut after),
                _ => return Ok(BucketInfo { streams }),
            }
        }
    }

    /// One page of streams, each looked at. One that ended meanwhile is left out.
    pub async fn list_durable(
        &self,
        name: &BucketName,
        request: ListRequest<StreamNamePart>,
    ) -> Result<Listed> {
        let life = self.fetch_bucket(name).await?;
        let Page { items, has_more } = self.list_catalog(life, &request).await?;
        let last = items.last().map(|entry| entry.name.clone());
        let looks: Vec<_> = items.into_iter().map(|entry| self.look(life, entry)).collect();
        let looked: Vec<_> = futures::stream::iter(looks).buffered(LISTED_AT_ONCE).try_collect().await?;
        let items = looked.into_iter().flatten().collect();
        Ok(Listed { items, has_more, next_after: last.filter(|_| has_more) })
    }

    async fn look(&self, bucket: Incarnation, entry: CatalogEntry) -> Result<Option<Listing>> {
        let stream = self.engine.stream(&identity(bucket, &entry.name));
        let found = stream.refresh().await.map_err(|e| super::error::of_engine(&entry.name, e))?;
        let Some(found) = found.filter(|found| found.doc.head.is_live()) else { return Ok(None) };
        let ledger = ledger(&found.doc)?;
        if ledger.check_usable(self.now_ms()).is_err() {
            return Ok(None);
        }
        Ok(Some(Listing { name: entry.name, status: Status::of(&found.doc, ledger) }))
    }

    /// The life of a bucket, by a request sent now; it is kept for later calls.
    pub(super) async fn fetch_bucket(&self, name: &BucketName) -> Result<Incarnation> {
        let loaded = load_bucket(self.store(), name).await?;
        match loaded.filter(|found| matches!(found.doc.head.state, State::Live | State::Deleting)) {
            Some(found) => {
                self.buckets.insert(name.clone(), found.doc.head.incarnation);
                Ok(found.doc.head.incarnation)
            }
            None => {
                self.buckets.remove(name);
                Err(Error::BucketNotFound(name.to_string()))
            }
        }
    }

    /// Whether this life of a bucket takes new streams, by a request sent now. One that is marked comes back to life:
    /// whoever marked it does not end it any more, and whoever marks it from now on finds the caller's entry.
    pub(super) async fn takes_streams(&self, name: &BucketName, life: Incarnation) -> Result<bool> {
        match self.set_bucket(name, life, State::Live).await {
            Ok(_) => Ok(true),
            Err(Error::BucketNotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn new_bucket(&self, name: &BucketName, current: Option<&BucketRecord>) -> BucketRecord {
        let life = Incarnation::fresh();
        let head = match current {
            None => Head::first(life, State::Live),
            Some(dead) => dead.head.next(life, State::Live),
        };
        BucketRecord { head, name: name.clone(), created_at_ms: self.now_ms() }
    }

    /// Has a life of a bucket that has not ended be in this state; returns the record as it stands then.
    async fn set_bucket(&self, name: &BucketName, life: Incarnation, state: State) -> Result<BucketRecord> {
        let gone = || Error::BucketNotFound(name.to_string());
        let changed = self.change_bucket(name, |current| match current {
            Some(bucket) if bucket.head.incarnation == life && bucket.head.state != State::Tombstone => {
                Ok((bucket.head.state != state).then(|| bucket.next(state)))
            }
            _ => Err(gone()),
        });
        changed.await?.ok_or_else(gone)
    }

    /// Moves exactly this version of a bucket on; whether that is what followed it.
    async fn move_on(&self, marked: &BucketRecord, state: State) -> Result<bool> {
        let next = marked.next(state);
        let changed = self.change_bucket(&marked.name, |current| {
            Ok(current.is_some_and(|bucket| bucket == marked).then(|| next.clone()))
        });
        Ok(changed.await?.is_some_and(|bucket| bucket == next))
    }

    /// Loads a bucket record, asks `change`, commits; again while others come first. Returns the record as it
    /// stands then.
    async fn change_bucket(
        &self,
        name: &BucketName,
        change: impl Fn(Option<&BucketRecord>) -> Result<Option<BucketRecord>>,
    ) -> Result<Option<BucketRecord>> {
        let deadline = self.deadline();
        let mut attempt = 0;
        loop {
            let base = load_bucket(self.store(), name).await?;
            let Some(next) = change(base.as_ref().map(|base| &base.doc))? else {
                return Ok(base.map(|base| base.doc));
            };
            let latency = self.engine.latency();
            match commit_bucket(self.store(), latency, base.as_ref(), &next, deadline).await? {
                Outcome::Committed(_) => return Ok(Some(next)),
                Outcome::Conflict if deadline.has_passed() => {
                    return Err(service::Error::TransactionConflict(name.to_string()).into());
                }
                Outcome::Conflict => {
                    attempt += 1;
                    tokio::time::sleep(jittered(attempt, latency.estimate())).await;
                }
            }
        }
    }
}
