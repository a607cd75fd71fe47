//! Basins: list, create, ensure, get and change their configuration.

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

use super::Service;
use super::error::{Error, Result};
use crate::storage::documents::{Versioned, commit_basin, load_basin};
use crate::storage::head::{Head, State};
use crate::storage::key::{self, Incarnation, creation_digest};
use crate::storage::meta::BasinRecord;
use crate::storage::register::{Outcome, jittered};
use crate::store::ListQuery;
use crate::types::config::{BasinConfig, BasinConfigPatch};
use crate::types::limits::LIST_PAGE_NAMES_MAX;
use crate::types::name::{BasinName, BasinNamePart, RequestToken};
use crate::types::stream::{BasinInfo, ListRequest, Page, Provision};

/// Basin records read at the same time by a listing.
const LISTED_AT_ONCE: usize = 16;

/// What a change of a basin record wants.
pub(super) enum Change {
    /// Nothing: it is as wanted.
    Keep,
    /// This record.
    Write(Box<BasinRecord>),
}

impl Service {
    /// One page of basins, those being deleted among them.
    pub async fn list_basins(&self, request: ListRequest<BasinNamePart>) -> Result<Page<BasinInfo>> {
        let ListRequest { prefix, start_after, limit } = request;
        let mut after = (!start_after.as_str().is_empty()).then(|| format!("{}{start_after}", key::BASINS));
        let mut items = Vec::new();
        loop {
            // One more than asked for, so that a page of live basins tells at once whether more follow.
            let page_keys = (limit + 1).min(LIST_PAGE_NAMES_MAX);
            let query = ListQuery {
                prefix: format!("{}{prefix}", key::BASINS),
                start_after: after.clone(),
                limit: page_keys,
            };
            let listed = self.store().list(query).await?;
            let is_last = listed.len() < page_keys;
            after = listed.last().map(|l| l.key.clone());
            let loads: Vec<_> = listed.iter().filter_map(|l| self.load_listed(&l.key)).collect();
            let records: Vec<_> = futures::stream::iter(loads).buffered(LISTED_AT_ONCE).try_collect().await?;
            for record in records.into_iter().flatten().filter(|r| r.doc.head.state != State::Tombstone) {
                if items.len() == limit {
                    return Ok(Page { items, has_more: true });
                }
                items.push(info(&record.doc));
            }
            if is_last {
                return Ok(Page { items, has_more: false });
            }
        }
    }

    /// Loads the record under a listed key, if it is one.
    fn load_listed<'a>(&'a self, key: &str) -> Option<BoxFuture<'a, Result<Option<Versioned<BasinRecord>>>>> {
        let name = BasinName::try_from(key.strip_prefix(key::BASINS)?).ok()?;
        Some(Box::pin(async move { Ok(load_basin(self.store(), &name).await?) }))
    }

    /// Creates a basin that must not exist; a repeat of the same call (same token, same config) is a `Noop`.
    pub async fn create_basin(
        &self,
        name: &BasinName,
        config: BasinConfig,
        token: Option<&RequestToken>,
    ) -> Result<(BasinInfo, Provision)> {
        let digest = token.map(|token| creation_digest(token.as_str(), &format!("{config:?}")));
        let mut is_noop = false;
        let record = self
            .change_basin(name, |current| match current {
                Some(basin) if basin.head.state == State::Live => {
                    is_noop = digest.is_some() && basin.creation_digest == digest;
                    if is_noop {
                        return Ok(Change::Keep);
                    }
                    Err(Error::AlreadyExists { kind: "basin", name: name.to_string() })
                }
                current => self.new_basin(name, config, digest, current),
            })
            .await?;
        Ok((info(&record), if is_noop { Provision::Noop } else { Provision::Created }))
    }

    /// Creates a basin, or gives the one there exactly this configuration.
    pub async fn ensure_basin(
        &self,
        name: &BasinName,
        config: BasinConfig,
    ) -> Result<(BasinInfo, Provision)> {
        let mut provision = Provision::Created;
        let record = self
            .change_basin(name, |current| match current {
                Some(basin) if basin.head.state == State::Live && basin.config == config => {
                    provision = Provision::Noop;
                    Ok(Change::Keep)
                }
                Some(basin) if basin.head.state == State::Live => {
                    provision = Provision::Updated;
                    Ok(Change::Write(Box::new(BasinRecord { config, ..basin.next(State::Live) })))
                }
                current => {
                    provision = Provision::Created;
                    self.new_basin(name, config, None, current)
                }
            })
            .await?;
        Ok((info(&record), provision))
    }

    /// The configuration of a live basin.
    pub async fn basin_config(&self, name: &BasinName) -> Result<BasinConfig> {
        match self.fetch_basin(name).await {
            Ok(basin) => Ok(basin.config),
            Err(Error::BasinDeletionPending(name)) => Err(Error::BasinNotFound(name)),
            Err(error) => Err(error),
        }
    }

    /// Changes the configuration of a live basin and returns the new one.
    pub async fn reconfigure_basin(&self, name: &BasinName, patch: BasinConfigPatch) -> Result<BasinConfig> {
        let record = self
            .change_basin(name, |current| {
                let basin = alive(name, current)?;
                let config = patch.apply(basin.config);
                if config == basin.config {
                    return Ok(Change::Keep);
                }
                Ok(Change::Write(Box::new(BasinRecord { config, ..basin.next(State::Live) })))
            })
            .await?;
        Ok(record.config)
    }

    /// The record of a live basin, by a request sent now; its life is kept for later calls.
    pub(super) async fn fetch_basin(&self, name: &BasinName) -> Result<BasinRecord> {
        let loaded = load_basin(self.store(), name).await?;
        let found = alive(name, loaded.as_ref().map(|v| &v.doc)).cloned();
        match &found {
            Ok(basin) => self.basins.insert(name.clone(), basin.head.incarnation),
            Err(_) => {
                self.basins.remove(name);
            }
        }
        found
    }

    /// Loads a basin record, asks `change`, commits; again while others come first. Returns the record as it
    /// stands then.
    pub(super) async fn change_basin(
        &self,
        name: &BasinName,
        mut change: impl FnMut(Option<&BasinRecord>) -> Result<Change>,
    ) -> Result<BasinRecord> {
        let deadline = self.deadline();
        let mut attempt = 0;
        loop {
            let base = load_basin(self.store(), name).await?;
            let next = match (change(base.as_ref().map(|b| &b.doc))?, &base) {
                (Change::Write(next), _) => *next,
                (Change::Keep, Some(base)) => return Ok(base.doc.clone()),
                (Change::Keep, None) => return Err(Error::BasinNotFound(name.to_string())),
            };
            match self.commit_basin(base.as_ref(), &next, deadline).await? {
                Outcome::Committed(_) => return Ok(next),
                Outcome::Conflict if deadline.has_passed() => {
                    return Err(Error::TransactionConflict(name.to_string()));
                }
                Outcome::Conflict => {
                    attempt += 1;
                    tokio::time::sleep(jittered(attempt, self.engine.latency().estimate())).await;
                }
            }
        }
    }

    async fn commit_basin(
        &self,
        base: Option<&Versioned<BasinRecord>>,
        next: &BasinRecord,
        deadline: crate::types::time::Deadline,
    ) -> Result<Outcome> {
        Ok(commit_basin(self.store(), self.engine.latency(), base, next, deadline).await?)
    }

    /// A basin where nothing is, or over the tombstone of an earlier one.
    fn new_basin(
        &self,
        name: &BasinName,
        config: BasinConfig,
        creation_digest: Option<[u8; 16]>,
        current: Option<&BasinRecord>,
    ) -> Result<Change> {
        let incarnation = Incarnation::fresh();
        let head = match current {
            None => Head::first(incarnation, State::Live),
            Some(basin) if basin.head.state == State::Tombstone => basin.head.next(incarnation, State::Live),
            Some(_) => return Err(Error::BasinDeletionPending(name.to_string())),
        };
        Ok(Change::Write(Box::new(BasinRecord {
            head,
            name: name.clone(),
            created_at_ms: self.now_ms(),
            deleted_at_ms: None,
            creation_digest,
            config,
        })))
    }
}

/// The record, if the basin is alive.
pub(super) fn alive<'a>(name: &BasinName, record: Option<&'a BasinRecord>) -> Result<&'a BasinRecord> {
    match record {
        Some(basin) if basin.head.state == State::Live => Ok(basin),
        Some(basin) if basin.head.state == State::Deleting => {
            Err(Error::BasinDeletionPending(name.to_string()))
        }
        _ => Err(Error::BasinNotFound(name.to_string())),
    }
}

fn info(record: &BasinRecord) -> BasinInfo {
    BasinInfo {
        name: record.name.clone(),
        created_at_ms: record.created_at_ms,
        deleted_at_ms: record.deleted_at_ms,
    }
}
