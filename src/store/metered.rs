//! Counts requests by operation and outcome: for the metrics, and as plain numbers for tests and benchmarks.

use std::ops::{Range, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

use super::{ETag, Error, Fetched, ListQuery, Listed, Object, Operation, Result, Store};
use crate::telemetry;
use crate::types::time::monotonic;

/// Requests begun, by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whole objects asked for, also conditionally.
    pub get: u64,
    /// Parts of objects asked for.
    pub get_range: u64,
    /// Unconditional writes.
    pub put: u64,
    /// Writes if absent.
    pub create: u64,
    /// Writes if unchanged.
    pub replace: u64,
    /// Copies within the store.
    pub copy: u64,
    /// Removals.
    pub delete: u64,
    /// Pages of keys.
    pub list: u64,
}

impl Counts {
    /// Requests of every kind.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { get, get_range, put, create, replace, copy, delete, list } = *self;
        get + get_range + put + create + replace + copy + delete + list
    }
}

impl Sub for Counts {
    type Output = Self;

    /// What was added since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            get: self.get.saturating_sub(earlier.get),
            get_range: self.get_range.saturating_sub(earlier.get_range),
            put: self.put.saturating_sub(earlier.put),
            create: self.create.saturating_sub(earlier.create),
            replace: self.replace.saturating_sub(earlier.replace),
            copy: self.copy.saturating_sub(earlier.copy),
            delete: self.delete.saturating_sub(earlier.delete),
            list: self.list.saturating_sub(earlier.list),
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    get: AtomicU64,
    get_range: AtomicU64,
    put: AtomicU64,
    create: AtomicU64,
    replace: AtomicU64,
    copy: AtomicU64,
    delete: AtomicU64,
    list: AtomicU64,
}

impl Counters {
    fn of(&self, operation: Operation) -> &AtomicU64 {
        match operation {
            Operation::Get => &self.get,
            Operation::GetRange => &self.get_range,
            Operation::Put => &self.put,
            Operation::Create => &self.create,
            Operation::Replace => &self.replace,
            Operation::Copy => &self.copy,
            Operation::Delete => &self.delete,
            Operation::List => &self.list,
        }
    }
}

/// A store that counts what is asked of another.
///
/// Calls are counted, not the retries a backend makes by itself. Clones share their numbers.
#[derive(Clone, Debug)]
pub struct Metered {
    inner: Arc<dyn Store>,
    counters: Arc<Counters>,
}

impl Metered {
    /// Counts from zero.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// The requests begun so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |operation| self.counters.of(operation).load(Ordering::Relaxed);
        Counts {
            get: count(Operation::Get),
            get_range: count(Operation::GetRange),
            put: count(Operation::Put),
            create: count(Operation::Create),
            replace: count(Operation::Replace),
            copy: count(Operation::Copy),
            delete: count(Operation::Delete),
            list: count(Operation::List),
        }
    }

    fn begin(&self, operation: Operation) -> Request {
        self.counters.of(operation).fetch_add(1, Ordering::Relaxed);
        Request { operation, begun: monotonic(), outcome: "indefinite" }
    }
}

/// A request on its way; recorded when dropped, so that one whose caller went away counts too.
struct Request {
    operation: Operation,
    begun: Instant,
    outcome: &'static str,
}

impl Request {
    fn end<T>(mut self, result: Result<T>, outcome: impl FnOnce(&T) -> &'static str) -> Result<T> {
        self.outcome = match &result {
            Ok(value) => outcome(value),
            Err(Error::Conflict { .. }) => "conflict",
            Err(Error::Refused { .. }) => "refused",
            Err(Error::Indefinite { .. }) => "indefinite",
        };
        result
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let operation = self.operation.as_str();
        metrics::counter!(telemetry::STORE_REQUESTS, "operation" => operation, "outcome" => self.outcome)
            .increment(1);
        metrics::histogram!(telemetry::STORE_REQUEST_DURATION, "operation" => operation)
            .record(self.begun.elapsed().as_secs_f64());
    }
}

fn ok<T>(_: &T) -> &'static str {
    "ok"
}

fn ok_or_absent<T>(found: &Option<T>) -> &'static str {
    if found.is_some() { "ok" } else { "absent" }
}

#[async_trait]
impl Store for Metered {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        let request = self.begin(Operation::Get);
        request.end(self.inner.get(key).await, ok_or_absent)
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
        let request = self.begin(Operation::Get);
        request.end(self.inner.get_if_changed(key, etag).await, |fetched| match fetched {
            Fetched::Unchanged => "unchanged",
            Fetched::Changed(_) => "ok",
            Fetched::Absent => "absent",
        })
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let request = self.begin(Operation::GetRange);
        request.end(self.inner.get_range(key, range).await, ok_or_absent)
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        let request = self.begin(Operation::Put);
        request.end(self.inner.put(key, bytes).await, ok)
    }

    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        let request = self.begin(Operation::Create);
        request.end(self.inner.create(key, bytes).await, ok)
    }

    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
        let request = self.begin(Operation::Replace);
        request.end(self.inner.replace(key, bytes, etag).await, ok)
    }

    async fn copy(&self, from: &str, to: &str) -> Result<bool> {
        let request = self.begin(Operation::Copy);
        request.end(self.inner.copy(from, to).await, |is_there| if *is_there { "ok" } else { "absent" })
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let request = self.begin(Operation::Delete);
        request.end(self.inner.delete(key).await, ok)
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        let request = self.begin(Operation::List);
        request.end(self.inner.list(query).await, ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory;

    #[tokio::test]
    async fn requests_are_counted_by_operation_whatever_comes_of_them() {
        let store = Metered::new(memory());
        let etag = store.create("a", Bytes::from_static(b"1")).await.unwrap();
        let before = store.counts();
        assert!(store.create("a", Bytes::from_static(b"2")).await.is_err());
        assert!(store.get("b").await.unwrap().is_none());
        assert!(matches!(store.get_if_changed("a", &etag).await.unwrap(), Fetched::Unchanged));
        let since = store.clone().counts() - before;
        assert_eq!(since, Counts { create: 1, get: 2, ..Counts::default() });
        assert_eq!(since.total(), 3);
    }
}
