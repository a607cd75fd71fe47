//! `leat inspect`: what lies in a store, for people and for programs; and whether all of it is sound.
//!
//! It reads and never writes. What it shows of a stream is one version of its manifest, with everything under it.

mod show;
mod verify;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

pub use show::{BasinView, LevelView, RefView, StoreView, StreamView};
pub use verify::Finding;

use crate::storage::documents::{Found, load_basin, load_manifest};
use crate::storage::head::State;
use crate::storage::identity::Identity;
use crate::storage::key::{self, CatalogEntry, Incarnation, StreamKind};
use crate::storage::manifest::Manifest;
use crate::storage::meta::{BasinRecord, StoreRecord};
use crate::storage::{self};
use crate::store::{ListQuery, Store};
use crate::types::name::{BasinName, BucketName, StreamName};

/// Keys asked for in one request.
const LIST_KEYS: usize = 1_000;

/// Why something cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such basin.
    #[error("there is no basin `{0}`")]
    NoBasin(BasinName),
    /// No such stream.
    #[error("there is no stream `{stream}` in basin `{basin}`")]
    NoStream {
        /// Where it was looked for.
        basin: BasinName,
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
    /// The store and its basins.
    Store(StoreView),
    /// A basin and its streams.
    Basin(BasinView),
    /// A stream.
    Stream(Box<StreamView>),
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(store) => store.fmt(f),
            Self::Basin(basin) => basin.fmt(f),
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

    /// Shows the store, a basin or a stream.
    pub async fn view(&self, basin: Option<&BasinName>, stream: Option<&StreamName>) -> Result<View> {
        Ok(match (basin, stream) {
            (None, _) => View::Store(self.view_store().await?),
            (Some(basin), None) => View::Basin(self.view_basin(basin).await?),
            (Some(basin), Some(stream)) => {
                let (_, manifest) = self.stream(basin, stream).await?;
                View::Stream(Box::new(StreamView::of(stream, &manifest, self.now_ms)))
            }
        })
    }

    async fn view_store(&self) -> Result<StoreView> {
        let object = self.store.get(key::STORE).await?.ok_or(Error::NoStore)?;
        let record =
            StoreRecord::decode(&object.bytes).map_err(|e| storage::Error::damaged(key::STORE, e))?;
        let mut basins = Vec::new();
        for name in self.basin_names().await? {
            basins.extend(load_basin(&*self.store, &name).await?.map(|found| found.doc));
        }
        Ok(StoreView::of(&record, &basins))
    }

    async fn view_basin(&self, name: &BasinName) -> Result<BasinView> {
        let record = self.basin(name).await?;
        let mut streams = Vec::new();
        for entry in self.entries(record.head.incarnation).await? {
            if let Some(manifest) = self.manifest(record.head.incarnation, &entry.name).await? {
                let view = StreamView::of(&entry.name, &manifest, self.now_ms);
                streams.push(StreamView { refs: Vec::new(), ..view });
            }
        }
        Ok(BasinView::of(&record, streams))
    }

    async fn basin(&self, name: &BasinName) -> Result<BasinRecord> {
        match load_basin(&*self.store, name).await? {
            Some(found) if found.doc.head.state != State::Tombstone => Ok(found.doc),
            _ => Err(Error::NoBasin(name.clone())),
        }
    }

    async fn stream(&self, basin: &BasinName, stream: &StreamName) -> Result<(Identity, Manifest)> {
        let life = self.basin(basin).await?.head.incarnation;
        let found = self.manifest(life, stream).await?.filter(|manifest| manifest.head.is_live());
        let found = found.ok_or_else(|| Error::NoStream { basin: basin.clone(), stream: stream.clone() })?;
        Ok((identity(life, stream), found))
    }

    async fn manifest(&self, basin: Incarnation, stream: &StreamName) -> Result<Option<Manifest>> {
        self.manifest_of(&identity(basin, stream)).await
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

fn identity(basin: Incarnation, stream: &StreamName) -> Identity {
    Identity { kind: StreamKind::S2, basin, name: stream.clone() }
}
