//! A root prefix in front of every key, over any backend.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{ETag, Fetched, ListQuery, Listed, Object, Result, Store};

/// A store whose keys all live under one prefix of another.
///
/// Errors name the whole key, as it stands in the bucket.
#[derive(Debug)]
pub(super) struct Prefixed {
    inner: Arc<dyn Store>,
    /// Ends in `/`.
    prefix: String,
}

impl Prefixed {
    /// `prefix` is one that [`super::StoreUrl`] accepted, without a `/` at its end.
    pub(super) fn new(inner: Arc<dyn Store>, prefix: &str) -> Self {
        Self { inner, prefix: format!("{prefix}/") }
    }

    fn whole(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

#[async_trait]
impl Store for Prefixed {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.inner.get(&self.whole(key)).await
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
        self.inner.get_if_changed(&self.whole(key), etag).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        self.inner.get_range(&self.whole(key), range).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.inner.put(&self.whole(key), bytes).await
    }

    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.inner.create(&self.whole(key), bytes).await
    }

    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
        self.inner.replace(&self.whole(key), bytes, etag).await
    }

    async fn copy(&self, from: &str, to: &str) -> Result<bool> {
        self.inner.copy(&self.whole(from), &self.whole(to)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(&self.whole(key)).await
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        let ListQuery { prefix, start_after, limit } = query;
        let query = ListQuery {
            prefix: self.whole(&prefix),
            start_after: start_after.map(|key| self.whole(&key)),
            limit,
        };
        let mut listed = self.inner.list(query).await?;
        for one in &mut listed {
            one.key.drain(..self.prefix.len().min(one.key.len()));
        }
        Ok(listed)
    }
}
