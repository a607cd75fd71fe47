//! `leat inspect`: what lies in a store, for people and for programs; and whether all of it is sound.
//!
//! It reads and never writes. What it shows of a stream is one version of its manifest, with everything under it.

mod ledger;
mod show;
mod verify;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

pub use ledger::{KinView, LedgerView, OriginView, PageView, ProducerView, SnapshotView};
pub use show::{LevelView, PlaceLine, PlaceView, RefView, StoreView, StreamView};
pub use verify::Finding;

use crate::storage::documents::{Found, load_basin, load_bucket, load_manifest};
use crate::storage::head::{Head, State};
use crate::storage::identity::Identity;
use crate::storage::key::{self, CatalogEntry, Incarnation, StreamKind};
use crate::storage::manifest::Manifest;
use crate::storage::meta::StoreRecord;
use crate::storage::{self};
use crate::store::{ListQuery, Store};
use crate::types::name::{BasinName, BucketName, PlaceName, StreamName};

/// Keys asked for in one request.
const LIST_KEYS: usize = 1_000;

/// Why something cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such basin or bucket.
    #[error("there is no {0}")]
    NoPlace(PlaceName),
    /// No such stream.
    #[error("there is no stream `{stream}` in {place}")]
    NoStream {
        /// Where it was looked for.
        place: PlaceName,
        /// What was looked for.
        stream: StreamName,
    },
    /// The folder or the bucket holds no store of Leat's.
    #[error("nothing of Leat's is here: there is no `{}`", key::STORE)]
    NoStore,
    /// The store failed, or what it holds cannot be read.
    #[error(transparent)]
    Storage(#[from] storage::Error),
}

impl From<crate::store::Error> for Error {
    fn from(error: crate::store::Error) -> Self {
        Self::Storage(storage::Error::Store(error))
    }
}

/// The result of a look.
pub type Result<T> = std::result::Result<T, Error>;

/// What was found.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum View {
    /// The store, its basins and its buckets.
    Store(StoreView),
    /// A basin or a bucket, and its streams.
    Place(PlaceView),
    /// A stream.
    Stream(Box<StreamView>),
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(store) => store.fmt(f),
            Self::Place(place) => place.fmt(f),
            Self::Stream(stream) => stream.fmt(f),
        }
    }
}

/// A store that is looked at.
#[derive(Debug)]
pub struct Inspector {
    store: Arc<dyn Store>,
    now_ms: u64,
}

impl Inspector {
    /// Looks at a store, at this time by its clock.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, now_ms: u64) -> Self {
        Self { store, now_ms }
    }

    /// Shows the store, a basin or a bucket, or a stream.
    pub async fn view(&self, place: Option<&PlaceName>, stream: Option<&StreamName>) -> Result<View> {
        Ok(match (place, stream) {
            (None, _) => View::Store(self.view_store().await?),
            (Some(place), None) => View::Place(self.view_place(place).await?),
            (Some(place), Some(stream)) => {
                let manifest = self.stream(place, stream).await?;
                View::Stream(Box::new(StreamView::of(stream, &manifest, self.now_ms)))
            }
        })
    }

    async fn view_store(&self) -> Result<StoreView> {
        let object = self.store.get(key::STORE).await?.ok_or(Error::NoStore)?;
        let record =
            StoreRecord::decode(&object.bytes).map_err(|e| storage::Error::damaged(key::STORE, e))?;
        let (mut basins, mut buckets) = (Vec::new(), Vec::new());
        for name in self.basin_names().await? {
            basins.extend(self.load(&PlaceName::Basin(name)).await?.map(|(_, line)| line));
        }
        for name in self.bucket_names().await? {
            buckets.extend(self.load(&PlaceName::Bucket(name)).await?.map(|(_, line)| line));
        }
        Ok(StoreView::of(&record, basins, buckets))
    }

    async fn view_place(&self, name: &PlaceName) -> Result<PlaceView> {
        let (head, place) = self.place(name).await?;
        let mut streams = Vec::new();
        for entry in self.entries(head.incarnation).await? {
            let identity = identity(name, head.incarnation, &entry.name);
            if let Some(manifest) = self.manifest_of(&identity).await? {
                let view = StreamView::of(&entry.name, &manifest, self.now_ms);
                streams.push(StreamView { refs: Vec::new(), ..view });
            }
        }
        Ok(PlaceView { kind: name.kind(), place, streams })
    }

    /// The record of a basin or a bucket, whatever its state.
    async fn load(&self, name: &PlaceName) -> Result<Option<(Head, PlaceLine)>> {
        let found = match name {
            PlaceName::Basin(name) => {
                let found = load_basin(&*self.store, name).await?;
                found.map(|found| (found.doc.head, found.doc.created_at_ms))
            }
            PlaceName::Bucket(name) => {
                let found = load_bucket(&*self.store, name).await?;
                found.map(|found| (found.doc.head, found.doc.created_at_ms))
            }
        };
        Ok(found.map(|(head, created_at_ms)| {
            let line = PlaceLine::of(name, head.state, created_at_ms);
            (head, line)
        }))
    }

    async fn place(&self, name: &PlaceName) -> Result<(Head, PlaceLine)> {
        let found = self.load(name).await?.filter(|(head, _)| head.state != State::Tombstone);
        found.ok_or_else(|| Error::NoPlace(name.clone()))
    }

    async fn stream(&self, place: &PlaceName, stream: &StreamName) -> Result<Manifest> {
        let life = self.place(place).await?.0.incarnation;
        let found = self.manifest_of(&identity(place, life, stream)).await?;
        let found = found.filter(|manifest| manifest.head.is_live());
        found.ok_or_else(|| Error::NoStream { place: place.clone(), stream: stream.clone() })
    }

    async fn manifest_of(&self, identity: &Identity) -> Result<Option<Manifest>> {
        match load_manifest(&*self.store, identity, None).await? {
            Found::Changed(found) => Ok(Some(found.doc)),
            Found::Absent | Found::Unchanged => Ok(None),
        }
    }

    async fn basin_names(&self) -> Result<Vec<BasinName>> {
        let keys = self.keys(key::BASINS.to_owned()).await?;
        let names = keys.iter().filter_map(|key| key.strip_prefix(key::BASINS));
        Ok(names.filter_map(|name| BasinName::try_from(name).ok()).collect())
    }

    async fn bucket_names(&self) -> Result<Vec<BucketName>> {
        let keys = self.keys(key::BUCKETS.to_owned()).await?;
        let names = keys.iter().filter_map(|key| key.strip_prefix(key::BUCKETS));
        Ok(names.filter_map(|name| BucketName::try_from(name).ok()).collect())
    }

    async fn entries(&self, basin: Incarnation) -> Result<Vec<CatalogEntry>> {
        let keys = self.keys(key::catalog(basin)).await?;
        Ok(keys.iter().filter_map(|key| key::parse_catalog_entry(basin, key)).collect())
    }

    async fn keys(&self, prefix: String) -> Result<Vec<String>> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let query =
                ListQuery { prefix: prefix.clone(), start_after: keys.last().cloned(), limit: LIST_KEYS };
            let page = self.store.list(query).await?;
            let is_last = page.len() < LIST_KEYS;
            keys.extend(page.into_iter().map(|listed| listed.key));
            if is_last {
                return Ok(keys);
            }
        }
    }
}

fn identity(place: &PlaceName, life: Incarnation, stream: &StreamName) -> Identity {
    let kind = match place {
        PlaceName::Basin(_) => StreamKind::S2,
        PlaceName::Bucket(_) => StreamKind::Durable,
    };
    Identity { kind, basin: life, name: stream.clone() }
}
