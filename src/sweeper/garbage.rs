//! Objects that nothing names: found by listing, judged by one version of a manifest, removed behind a fence.
//!
//! An object that no manifest names may belong to a writer that is merely frozen. So: LIST first, then load the
//! manifest, choose what it cannot reach and what is past the grace period, advance the collection epoch on exactly
//! that version, and only then remove. An upload that began under an earlier epoch is made again, never committed.

use std::collections::HashSet;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

use super::report::Report;
use super::rewrite::{AT_ONCE, Dropped, load_page};
use super::{Error, Result};
use crate::storage::index::{Ref, Target};
use crate::storage::key::{self, CatalogEntry, DataClass, Incarnation, ObjectId};
use crate::storage::ledger::Ledger;
use crate::storage::manifest::Manifest;
use crate::store::{ListQuery, Listed, Store};
use crate::types::name::StreamName;

/// How long an object may be without a manifest that names it.
pub(super) const GRACE_MS: u64 = 60 * 60 * 1_000;
/// Keys asked for in one request.
const LIST_KEYS: usize = 1_000;

/// Every chunk and page of a life, whoever names it. `now` is what the key holds now.
pub(super) async fn list_life(store: &dyn Store, now: &Manifest, life: Incarnation) -> Result<Vec<Listed>> {
    let hash = &now.hash;
    // What never got as far as the manifest lies in the class of its configuration.
    let own = if now.head.is_live() { now.data_class().bit() } else { 0 };
    let classes = DataClass::ALL.into_iter().filter(|class| (now.classes_used | own) & class.bit() != 0);
    let mut prefixes: Vec<_> = classes.map(|class| key::chunks(class, hash, life)).collect();
    // Pages are made of chunks that were named.
    if now.classes_used != 0 {
        prefixes.push(key::pages(hash, life));
    }
    let mut listed = Vec::new();
    for prefix in prefixes {
        listed.append(&mut list_all(store, prefix).await?);
    }
    Ok(listed)
}

async fn list_all(store: &dyn Store, prefix: String) -> Result<Vec<Listed>> {
    let mut all: Vec<Listed> = Vec::new();
    loop {
        let start_after = all.last().map(|listed| listed.key.clone());
        let query = ListQuery { prefix: prefix.clone(), start_after, limit: LIST_KEYS };
        let mut page = store.list(query).await?;
        let is_last = page.len() < LIST_KEYS;
        all.append(&mut page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Those of the listed objects that this version of the manifest cannot reach and that are past the grace period.
pub(super) async fn orphans(
    store: &dyn Store,
    manifest: &Manifest,
    listed: &[Listed],
    now_ms: u64,
) -> Result<Vec<Dropped>> {
    let old = |listed: &&Listed| listed.last_modified_ms.saturating_add(GRACE_MS) < now_ms;
    // Without a candidate the index need not be read.
    if !listed.iter().any(|listed| old(&listed)) {
        return Ok(Vec::new());
    }
    let mut reached = HashSet::new();
    let ledger = manifest.log.ledger.as_deref();
    reached.extend(ledger.into_iter().flat_map(Ledger::objects).map(|object| object.id));
    for refs in &manifest.levels {
        reach(store, manifest, refs, &mut reached).await?;
    }
    let unreached = listed
        .iter()
        .filter(old)
        .filter(|listed| key::object_id(&listed.key).is_some_and(|id| !reached.contains(&id)));
    Ok(unreached.map(|listed| Dropped { key: listed.key.clone(), bytes: listed.size }).collect())
}

fn reach<'a>(
    store: &'a dyn Store,
    manifest: &'a Manifest,
    refs: &'a [Ref],
    reached: &'a mut HashSet<ObjectId>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for r in refs {
            reached.insert(r.id);
            if let Target::Page { .. } = r.target {
                let page = load_page(store, &manifest.hash, manifest.head.incarnation, r).await?;
                reach(store, manifest, &page.refs, reached).await?;
            }
        }
        Ok(())
    })
}

/// Removes objects that nothing can name any more.
pub(super) async fn remove(store: &dyn Store, objects: &[Dropped], report: &mut Report) -> Result<()> {
    let keys: Vec<_> = objects.iter().map(|object| object.key.clone()).collect();
    let removals = futures::stream::iter(keys).map(|key| async move { store.delete(&key).await });
    removals.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    count(objects, report);
    Ok(())
}

/// Notes objects as removed.
pub(super) fn count(objects: &[Dropped], report: &mut Report) {
    report.objects_removed += objects.len() as u64;
    report.bytes_removed += objects.iter().map(|object| object.bytes).sum::<u64>();
}

/// The catalog entries of one life of a name: one, if its creation or its deletion died half-way.
pub(super) async fn entries(
    store: &dyn Store,
    basin: Incarnation,
    name: &StreamName,
    life: Incarnation,
) -> Result<Vec<CatalogEntry>> {
    let listed = list_all(store, key::catalog_name(basin, name)).await?;
    let entries = listed.iter().filter_map(|listed| key::parse_catalog_entry(basin, &listed.key));
    Ok(entries.filter(|entry| entry.incarnation == life).collect())
}

impl From<crate::store::Error> for Error {
    fn from(error: crate::store::Error) -> Self {
        Self::Storage(crate::storage::Error::Store(error))
    }
}
