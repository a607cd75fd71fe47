//! Objects in the memory of this process: for tests and for trying out. Nothing survives it.

use async_trait::async_trait;
use futures::TryStreamExt as _;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Extensions, ListResult, ObjectMeta, ObjectStore};
use std::sync::Arc;

use super::Store;
use super::object::{Dates, ListOrder, ObjectBackend, Parts};

/// A new, empty store.
#[must_use]
pub fn memory() -> Arc<dyn Store> {
    let objects = Arc::new(InMemory::new());
    Arc::new(ObjectBackend::new(Parts {
        place: "the memory store".to_owned(),
        patient: objects.clone(),
        once: objects.clone(),
        pages: Arc::new(Pages { objects }),
        order: ListOrder::Bytes,
        dates: Dates::OfThisMachine,
    }))
}

/// Listing by page, which the library's memory store lacks: one page holds everything.
struct Pages {
    objects: Arc<InMemory>,
}

#[async_trait]
impl PaginatedListStore for Pages {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> object_store::Result<PaginatedListResult> {
        let prefix = prefix.unwrap_or_default();
        let folder = prefix.rsplit_once('/').map(|(folder, _)| Path::parse(folder)).transpose()?;
        let after = options.offset.unwrap_or_default();
        let objects: Vec<ObjectMeta> = self.objects.list(folder.as_ref()).try_collect().await?;
        let wanted = |meta: &ObjectMeta| {
            let key = meta.location.as_ref();
            key.starts_with(prefix) && key > after.as_str()
        };
        let objects = objects.into_iter().filter(wanted).collect();
        let result = ListResult { common_prefixes: Vec::new(), objects, extensions: Extensions::new() };
        Ok(PaginatedListResult { result, page_token: None })
    }
}
