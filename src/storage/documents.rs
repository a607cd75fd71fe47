//! Typed loads and commits of the small documents.

use bytes::Bytes;

use super::Error;
use super::bucket::BucketRecord;
use super::head::Head;
use super::identity::Identity;
use super::key;
use super::manifest::{Manifest, Shape};
use super::meta::{BasinRecord, DueMarker};
use super::register::{Base, Outcome, PutLatency, Swap};
use crate::store::{self, ETag, Fetched, Store};
use crate::types::name::{BasinName, BucketName};
use crate::types::time::{Clock, Deadline, monotonic};

/// A document and the version it was read as.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    /// The document.
    pub doc: T,
    /// As the store sent it.
    pub etag: ETag,
}

/// What a look at a manifest found.
#[derive(Debug)]
pub enum Found {
    /// The version known already.
    Unchanged,
    /// Another version.
    Changed(Box<Versioned<Manifest>>),
    /// Nothing was ever there.
    Absent,
}

/// Loads a manifest, or learns that it is still the `known` version: one request.
pub async fn load_manifest(
    store: &dyn Store,
    identity: &Identity,
    known: Option<&ETag>,
) -> Result<Found, Error> {
    let key = key::manifest(&identity.hash());
    let fetched = match known {
        Some(etag) => store.get_if_changed(&key, etag).await.map_err(Error::Store)?,
        None => match store.get(&key).await.map_err(Error::Store)? {
            Some(object) => Fetched::Changed(object),
            None => Fetched::Absent,
        },
    };
    match fetched {
        Fetched::Unchanged => Ok(Found::Unchanged),
        Fetched::Absent => Ok(Found::Absent),
        Fetched::Changed(object) => {
            let doc = Manifest::decode(&object.bytes, identity).map_err(|e| Error::damaged(key, e))?;
            Ok(Found::Changed(Box::new(Versioned { doc, etag: object.etag })))
        }
    }
}

/// Loads a basin record, whatever its state.
pub async fn load_basin(
    store: &dyn Store,
    name: &BasinName,
) -> Result<Option<Versioned<BasinRecord>>, Error> {
    let key = key::basin(name);
    let Some(object) = store.get(&key).await.map_err(Error::Store)? else { return Ok(None) };
    let doc = BasinRecord::decode(&object.bytes, name).map_err(|e| Error::damaged(key, e))?;
    Ok(Some(Versioned { doc, etag: object.etag }))
}

/// Commits a basin record over the version it was made from.
pub async fn commit_basin(
    store: &dyn Store,
    latency: &PutLatency,
    base: Option<&Versioned<BasinRecord>>,
    next: &BasinRecord,
    deadline: Deadline,
) -> Result<Outcome, Error> {
    let key = key::basin(&next.name);
    if let Some(base) = base {
        base.doc.check_transition(next).map_err(|why| Error::Invariant { key: key.clone(), why })?;
    }
    let read_head = |bytes: &Bytes| BasinRecord::decode(bytes, &next.name).map(|record| record.head);
    Swap {
        store,
        key: &key,
        base: &base_of(base.map(|b| (&b.doc.head, &b.etag))),
        head: &next.head,
        bytes: next.encode(),
        read_head: &read_head,
        hedge_after: latency.hedge_after(),
        deadline,
    }
    .run()
    .await
}

/// Loads a bucket record, whatever its state.
pub async fn load_bucket(
    store: &dyn Store,
    name: &BucketName,
) -> Result<Option<Versioned<BucketRecord>>, Error> {
    let key = key::bucket(name);
    let Some(object) = store.get(&key).await.map_err(Error::Store)? else { return Ok(None) };
    let doc = BucketRecord::decode(&object.bytes, name).map_err(|e| Error::damaged(key, e))?;
    Ok(Some(Versioned { doc, etag: object.etag }))
}

/// Commits a bucket record over the version it was made from.
pub async fn commit_bucket(
    store: &dyn Store,
    latency: &PutLatency,
    base: Option<&Versioned<BucketRecord>>,
    next: &BucketRecord,
    deadline: Deadline,
) -> Result<Outcome, Error> {
    let key = key::bucket(&next.name);
    if let Some(base) = base {
        base.doc.check_transition(next).map_err(|why| Error::Invariant { key: key.clone(), why })?;
    }
    let read_head = |bytes: &Bytes| BucketRecord::decode(bytes, &next.name).map(|record| record.head);
    Swap {
        store,
        key: &key,
        base: &base_of(base.map(|b| (&b.doc.head, &b.etag))),
        head: &next.head,
        bytes: next.encode(),
        read_head: &read_head,
        hedge_after: latency.hedge_after(),
        deadline,
    }
    .run()
    .await
}

/// Commits a manifest over the version it was made from, having checked that it may follow.
pub async fn commit_manifest(
    store: &dyn Store,
    (identity, shape, latency): (&Identity, &Shape, &PutLatency),
    base: Option<&Versioned<Manifest>>,
    next: &Manifest,
    deadline: Deadline,
) -> Result<Outcome, Error> {
    let key = key::manifest(&next.hash);
    let checked = match base {
        Some(base) => base.doc.check_transition(next, shape),
        None => next.check_creation(),
    };
    checked.map_err(|why| Error::Invariant { key: key.clone(), why })?;
    let read_head = |bytes: &Bytes| Manifest::decode(bytes, identity).map(|manifest| manifest.head);
    Swap {
        store,
        key: &key,
        base: &base_of(base.map(|b| (&b.doc.head, &b.etag))),
        head: &next.head,
        bytes: next.encode(),
        read_head: &read_head,
        hedge_after: latency.hedge_after(),
        deadline,
    }
    .run()
    .await
}

/// What a swap replaces, from the version that was read.
#[must_use]
fn base_of(read: Option<(&Head, &ETag)>) -> Base {
    read.map_or(Base::Absent, |(head, etag)| Base::At { etag: etag.clone(), head: head.clone() })
}

/// Puts a due marker, and measures the store's clock by it.
pub async fn put_due(
    store: &dyn Store,
    clock: &Clock,
    key: &str,
    marker: &DueMarker,
) -> Result<(), store::Error> {
    store.put(key, marker.encode()).await?;
    let sent = monotonic();
    if let Some(object) = store.get(key).await? {
        // A slow answer makes for a poor measurement.
        if monotonic().saturating_duration_since(sent).as_secs() < 1 {
            clock.observe_store_ms(object.last_modified_ms);
        }
    }
    Ok(())
}
