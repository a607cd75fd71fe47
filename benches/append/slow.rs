//! A store in memory that is as far away as a bucket.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leat::store::{ETag, Fetched, ListQuery, Listed, Object, Result, Store};

/// Added to every request of the slow store.
const DELAY: Duration = Duration::from_millis(30);

/// A store that takes its time.
#[derive(Debug)]
pub(crate) struct Slow(pub(crate) Arc<dyn Store>);

impl Slow {
    async fn after<T>(&self, request: impl Future<Output = T>) -> T {
        tokio::time::sleep(DELAY).await;
        request.await
    }
}

#[async_trait]
impl Store for Slow {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.after(self.0.get(key)).await
    }
    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
        self.after(self.0.get_if_changed(key, etag)).await
    }
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        self.after(self.0.get_range(key, range)).await
    }
    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.after(self.0.put(key, bytes)).await
    }
    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.after(self.0.create(key, bytes)).await
    }
    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
        self.after(self.0.replace(key, bytes, etag)).await
    }
    async fn copy(&self, from: &str, to: &str) -> Result<bool> {
        self.after(self.0.copy(from, to)).await
    }
    async fn delete(&self, key: &str) -> Result<()> {
        self.after(self.0.delete(key)).await
    }
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.after(self.0.list(query)).await
    }
}
