//! A store whose clock is the test's.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use leat::store::{ETag, Fetched, ListQuery, Listed, Object, Result, Store, memory};
use leat::types::time::Clock;

/// Memory, with the times of a clock.
#[derive(Debug)]
pub(crate) struct Timed {
    inner: Arc<dyn Store>,
    clock: Clock,
    written: Mutex<HashMap<String, u64>>,
}

impl Timed {
    pub(crate) fn by(clock: &Clock) -> Arc<dyn Store> {
        Arc::new(Self { inner: memory(), clock: clock.clone(), written: Mutex::default() })
    }

    fn note(&self, key: &str) {
        self.written.lock().expect("no panic").insert(key.to_owned(), self.clock.local_ms());
    }

    fn written_ms(&self, key: &str) -> u64 {
        self.written.lock().expect("no panic").get(key).copied().unwrap_or_default()
    }
}

#[async_trait]
impl Store for Timed {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        let found = self.inner.get(key).await?;
        Ok(found.map(|object| Object { last_modified_ms: self.written_ms(key), ..object }))
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
        self.inner.get_if_changed(key, etag).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        self.inner.get_range(key, range).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.note(key);
        self.inner.put(key, bytes).await
    }

    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.inner.create(key, bytes).await.inspect(|_| self.note(key))
    }

    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
        self.inner.replace(key, bytes, etag).await.inspect(|_| self.note(key))
    }

    async fn copy(&self, from: &str, to: &str) -> Result<bool> {
        self.note(to);
        self.inner.copy(from, to).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).await
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        let listed = self.inner.list(query).await?;
        let timed = |listed: Listed| Listed { last_modified_ms: self.written_ms(&listed.key), ..listed };
        Ok(listed.into_iter().map(timed).collect())
    }
}
