//! Streams of a basin: list, create, ensure, get and change their configuration, delete.
//!
//! Creation: due marker, catalog entry, the basin once more, manifest. The marker comes first so that a sweeper
//! finds what a dying creation leaves; the basin is read again after the entry is there, so that a basin that is
//! being deleted either sees the entry or is seen (I-10).

use std::sync::Arc;

use super::Service;
use super::error::{Error, Result, of_stream};
use crate::engine::{Snapshot, Stream, Updated};
use crate::storage::documents::put_due;
use crate::storage::head::State;
use crate::storage::identity::Identity;
use crate::storage::key::{self, CatalogEntry, Incarnation, StreamKind, creation_digest};
use crate::storage::manifest::Manifest;
use crate::storage::meta::{BasinRecord, DueMarker};
use crate::storage::register::{Outcome, jittered};
use crate::types::config::{RetentionPolicy, StreamConfig, StreamConfigLayer, StreamConfigPatch};
use crate::types::name::{BasinName, RequestToken, StreamName, StreamNamePart};
use crate::types::stream::{ListRequest, Page, Provision, StreamInfo};

/// A new stream is visited when something of it may have to go, but not before ten minutes and within a day.
const FIRST_VISIT_MS: std::ops::RangeInclusive<u64> = 600_000..=86_400_000;

/// What a creation finds.
enum Place {
    /// A live stream.
    Taken(Arc<Snapshot>),
    /// Nothing, or the tombstone of an earlier life.
    Free(Option<Arc<Snapshot>>),
}

impl Service {
    /// One page of streams.
    pub async fn list_streams(
        &self,
        basin: &BasinName,
        request: ListRequest<StreamNamePart>,
    ) -> Result<Page<StreamInfo>> {
        let incarnation = match self.fetch_basin(basin).await {
            Ok(basin) => basin.head.incarnation,
            // A basin that is being deleted still lists what is left of it.
            Err(Error::BasinDeletionPending(_)) => self.fetch_basin_life(basin).await?,
            Err(error) => return Err(error),
        };
        let Page { items, has_more } = self.list_catalog(incarnation, &request).await?;
        let items = items
            .into_iter()
            .map(|entry| StreamInfo { name: entry.name, created_at_ms: entry.created_at_ms })
            .collect();
        Ok(Page { items, has_more })
    }

    /// Creates a stream that must not exist; a repeat of the same call (same token, same config) is a `Noop`.
    pub async fn create_stream(
        &self,
        basin: &BasinName,
        name: &StreamName,
        config: StreamConfigLayer,
        token: Option<&RequestToken>,
    ) -> Result<(StreamInfo, Provision)> {
        let digest = token.map(|token| creation_digest(token.as_str(), &format!("{config:?}")));
        let (found, provision) = self.provision(basin, name, config, digest).await?;
        if provision == Provision::Noop && (digest.is_none() || found.creation_digest != digest) {
            return Err(Error::AlreadyExists { kind: "stream", name: name.to_string() });
        }
        Ok((info(name, &found), provision))
    }

    /// Creates a stream, or gives the one there this configuration (resolved over the basin default).
    pub async fn ensure_stream(
        &self,
        basin: &BasinName,
        name: &StreamName,
        config: StreamConfigLayer,
    ) -> Result<(StreamInfo, Provision)> {
        let deadline = self.deadline();
        loop {
            let (found, provision) = self.provision(basin, name, config, None).await?;
            if provision == Provision::Created {
                return Ok((info(name, &found), provision));
            }
            let default = self.fetch_basin(basin).await?.config.default_stream_config;
            let resolved = config.merge(default).resolve(self.default_storage_class);
            match self.set_config(basin, name, |_| resolved).await {
                Ok((manifest, provision)) => return Ok((info(name, &manifest), provision)),
                Err(Error::StreamNotFound(_)) if deadline.has_passed() => {
                    return Err(Error::TransactionConflict(name.to_string()));
                }
                // It was deleted between the two steps: create it after all.
                Err(Error::StreamNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The resolved configuration of a stream.
    pub async fn stream_config(&self, basin: &BasinName, name: &StreamName) -> Result<StreamConfig> {
        let found = self.with_live_stream(basin, name, |s| async move { s.refresh_live().await }).await?;
        Ok(found.doc.config)
    }

    /// Changes the configuration of a stream and returns the new one.
    ///
    /// A cleared leaf is resolved again, over the basin default as it is now.
    pub async fn reconfigure_stream(
        &self,
        basin: &BasinName,
        name: &StreamName,
        patch: StreamConfigPatch,
    ) -> Result<StreamConfig> {
        let default = self.fetch_basin(basin).await?.config.default_stream_config;
        let storage_class = self.default_storage_class;
        let apply = |current: StreamConfig| patch.apply(current.into()).merge(default).resolve(storage_class);
        Ok(self.set_config(basin, name, apply).await?.0.config)
    }

    /// Deletes a stream: once this returns it is absent, not listed, and its name is free.
    pub async fn delete_stream(&self, basin: &BasinName, name: &StreamName) -> Result<()> {
        let stream = self.engine.stream(&identity(self.fetch_basin(basin).await?.head.incarnation, name));
        let tombstone = match stream.refresh().await.map_err(|e| of_stream(name.as_str(), e))? {
            Some(found) if found.doc.head.is_live() => self.bury(&stream, &found).await?,
            // The entry goes again, for a deletion that died between its two steps.
            Some(dead) => {
                self.delete_catalog_entry(&stream, &dead.doc).await?;
                return Err(Error::StreamNotFound(name.to_string()));
            }
            None => return Err(Error::StreamNotFound(name.to_string())),
        };
        match tombstone {
            Some(tombstone) => self.delete_catalog_entry(&stream, &tombstone).await,
            None => Err(Error::StreamNotFound(name.to_string())),
        }
    }

    /// Ends a live stream: due marker, then tombstone. `None` if someone else did.
    pub(super) async fn bury(&self, stream: &Stream, found: &Snapshot) -> Result<Option<Manifest>> {
        self.bury_if(stream, found, |_| true).await
    }

    /// The same, if what the stream is by then is still to end. `None` if not, or if someone else did.
    pub(super) async fn bury_if(
        &self,
        stream: &Stream,
        found: &Snapshot,
        is_over: impl Fn(&Manifest) -> bool,
    ) -> Result<Option<Manifest>> {
        let incarnation = found.doc.head.incarnation;
        let due = self.put_stream_due(&stream.identity, incarnation, self.now_ms()).await?;
        let mut replaced = String::new();
        let end = |manifest: &Manifest| {
            replaced.clone_from(&manifest.due);
            let ends = manifest.head.incarnation == incarnation && is_over(manifest);
            ends.then(|| manifest.tombstone(due.clone()))
        };
        match stream.update(end).await {
            Ok(Updated::Changed(tombstone)) => {
                self.drop_due(&replaced).await;
                Ok(Some(*tombstone))
            }
            Ok(Updated::Unchanged(_)) | Err(crate::engine::Error::NoStream) => Ok(None),
            Err(error) => Err(of_stream(stream.identity.name.as_str(), error)),
        }
    }

    /// Takes the name of an ended life out of the listing. The stream has ended by then, so a failure is no
    /// "nothing was written".
    pub(super) async fn delete_catalog_entry(&self, stream: &Stream, dead: &Manifest) -> Result<()> {
        let Identity { basin, name, .. } = &stream.identity;
        let entry = key::catalog_entry(*basin, &dead.catalog_entry(name));
        self.store().delete(&entry).await.map_err(|source| Error::Indefinite {
            message: format!("stream `{name}` is deleted, but may still be listed: delete it once more"),
            source: Arc::new(source),
        })
    }

    /// Makes sure that a stream exists: yields its manifest and whether it was created or there.
    pub(super) async fn provision(
        &self,
        basin: &BasinName,
        name: &StreamName,
        config: StreamConfigLayer,
        digest: Option<[u8; 16]>,
    ) -> Result<(Manifest, Provision)> {
        let deadline = self.deadline();
        let mut attempt = 0;
        loop {
            let record = self.fetch_basin(basin).await?;
            let stream = self.engine.stream(&identity(record.head.incarnation, name));
            let place = match stream.refresh().await.map_err(|e| of_stream(name.as_str(), e))? {
                Some(found) if found.doc.head.is_live() => Place::Taken(found),
                found => Place::Free(found),
            };
            let base = match place {
                Place::Taken(found) => return Ok((found.doc.clone(), Provision::Noop)),
                Place::Free(base) => base,
            };
            if let Some(created) =
                self.try_create(&record, &stream, base.as_deref(), (config, digest)).await?
            {
                return Ok((created, Provision::Created));
            }
            // Somebody else created it, or the basin changed: look again, and never answer 404 for it.
            if deadline.has_passed() {
                return Err(Error::TransactionConflict(name.to_string()));
            }
            attempt += 1;
            tokio::time::sleep(jittered(attempt, self.engine.latency().estimate())).await;
        }
    }

    /// One attempt to create a stream; `None` if the race was lost.
    async fn try_create(
        &self,
        basin: &BasinRecord,
        stream: &Arc<Stream>,
        base: Option<&Snapshot>,
        (config, creation_digest): (StreamConfigLayer, Option<[u8; 16]>),
    ) -> Result<Option<Manifest>> {
        let identity = &stream.identity;
        let resolved = config.merge(basin.config.default_stream_config).resolve(self.default_storage_class);
        let incarnation = Incarnation::fresh();
        let visit_ms = key::due_not_before(self.now_ms() + first_visit_ms(&resolved));
        let due = self.put_stream_due(identity, incarnation, visit_ms).await?;
        let entry = CatalogEntry { name: identity.name.clone(), created_at_ms: self.now_ms(), incarnation };
        let entry_key = key::catalog_entry(identity.basin, &entry);
        let outcome = async {
            self.store().put(&entry_key, bytes::Bytes::new()).await?;
            if self.fetch_basin(&basin.name).await?.head.incarnation != identity.basin {
                return Ok(None);
            }
            let manifest = new_manifest(identity, base, &entry, (resolved, creation_digest, due));
            let committed = stream.commit(base, &manifest, self.deadline()).await?;
            Ok(matches!(committed, Outcome::Committed(_)).then_some(manifest))
        }
        .await;
        match &outcome {
            // The stream is there, or may be: its entry must stay.
            Ok(Some(_)) | Err(Error::Indefinite { .. }) => {}
            Ok(None) | Err(_) => self.drop_entry(&entry_key).await,
        }
        outcome
    }

    /// Removes the entry of a creation that lost; should that fail, a sweeper finds it by the due marker.
    pub(super) async fn drop_entry(&self, key: &str) {
        if let Err(error) = self.store().delete(key).await {
            tracing::warn!(%error, "the catalog entry of a lost creation is left to the sweeper");
        }
    }

    /// Removes a marker in whose place another stands; should that fail, a sweeper finds that out.
    async fn drop_due(&self, key: &str) {
        if let Err(error) = self.store().delete(key).await {
            tracing::warn!(%error, "a due marker that was replaced is left to the sweeper");
        }
    }

    async fn set_config(
        &self,
        basin: &BasinName,
        name: &StreamName,
        apply: impl Fn(StreamConfig) -> StreamConfig,
    ) -> Result<(Manifest, Provision)> {
        let found = self.with_live_stream(basin, name, |s| async move { s.refresh_live().await }).await?;
        let Some(identity) = found.doc.identity.clone() else {
            return Err(Error::StreamNotFound(name.to_string()));
        };
        let stream = self.engine.stream(&identity);
        let mut due: Option<(Incarnation, String)> = None;
        let deadline = self.deadline();
        loop {
            // What is kept, and for how long, is judged anew by a visit now. The marker comes before the commit
            // that names it.
            let mut lacks_due = false;
            let mut replaced = String::new();
            let change = |manifest: &Manifest| {
                let config = apply(manifest.config);
                let wants_visit = config.retention_policy != manifest.config.retention_policy
                    || config.delete_on_empty_min_age_secs != manifest.config.delete_on_empty_min_age_secs;
                // A marker of an earlier life would leave this one unvisited.
                let due = due.as_ref().filter(|(life, _)| *life == manifest.head.incarnation);
                lacks_due = wants_visit && due.is_none();
                if config == manifest.config || lacks_due {
                    return None;
                }
                let due = due.filter(|_| wants_visit).map(|(_, due)| due.clone());
                replaced.clone_from(&manifest.due);
                Some(manifest.reconfigured(config, due, self.now_ms()))
            };
            match stream.update(change).await.map_err(|e| of_stream(name.as_str(), e))? {
                Updated::Changed(manifest) => {
                    if manifest.due != replaced {
                        self.drop_due(&replaced).await;
                    }
                    return Ok((*manifest, Provision::Updated));
                }
                Updated::Unchanged(_) if lacks_due && deadline.has_passed() => {
                    return Err(Error::TransactionConflict(name.to_string()));
                }
                Updated::Unchanged(found) if lacks_due => {
                    let life = found.doc.head.incarnation;
                    due = Some((life, self.put_stream_due(&identity, life, self.now_ms()).await?));
                }
                Updated::Unchanged(found) => return Ok((found.doc.clone(), Provision::Noop)),
            }
        }
    }

    /// Has a life of a stream visited at this time; returns the marker's key.
    pub(super) async fn put_stream_due(
        &self,
        identity: &Identity,
        incarnation: Incarnation,
        at_ms: u64,
    ) -> Result<String> {
        let Identity { kind, basin, name } = identity.clone();
        let due = key::due_stream(at_ms, &identity.hash(), incarnation);
        let marker = DueMarker::Stream { kind, basin, name, incarnation, is_last: false };
        put_due(self.store(), self.engine.clock(), &due, &marker).await?;
        Ok(due)
    }
}

/// Whose stream it is.
pub(super) fn identity(basin: Incarnation, name: &StreamName) -> Identity {
    Identity { kind: StreamKind::S2, basin, name: name.clone() }
}

fn first_visit_ms(config: &StreamConfig) -> u64 {
    let age_secs = match config.retention_policy {
        RetentionPolicy::Age(secs) => secs,
        RetentionPolicy::Infinite => u64::MAX,
    };
    let empty_secs = match config.delete_on_empty_min_age_secs {
        0 => u64::MAX,
        secs => secs,
    };
    age_secs.min(empty_secs).saturating_mul(1_000).clamp(*FIRST_VISIT_MS.start(), *FIRST_VISIT_MS.end())
}

/// The manifest of a new life, over nothing or over a tombstone; what belongs to the key goes on.
fn new_manifest(
    identity: &Identity,
    base: Option<&Snapshot>,
    entry: &CatalogEntry,
    (config, creation_digest, due): (StreamConfig, Option<[u8; 16]>, String),
) -> Manifest {
    let base = base.map(|b| &b.doc);
    let head = Manifest::head_of_life(base, entry.incarnation, State::Live);
    Manifest {
        identity: Some(identity.clone()),
        creation_digest,
        config,
        ..Manifest::empty(identity.hash(), head, base, entry.created_at_ms, due)
    }
}

fn info(name: &StreamName, manifest: &Manifest) -> StreamInfo {
    StreamInfo { name: name.clone(), created_at_ms: manifest.created_at_ms }
}
