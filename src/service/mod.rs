//! What the product promises, for every door: basins, streams, records, and the closed list of what may go
//! wrong, documented by what the caller must do.

pub mod basins;
mod catalog;
pub mod deletion;
pub mod durable;
mod error;
pub mod records;
pub mod streams;

use std::sync::Arc;

use quick_cache::sync::Cache;
use tokio_util::task::TaskTracker;

pub use error::{Error, Result, Source};

use crate::engine::{self, Engine};
use crate::storage::key::Incarnation;
use crate::store::Store;
use crate::types::config::StorageClass;
use crate::types::name::{BasinName, BucketName};
use crate::types::time::{Clock, Deadline};

/// Basins whose lives are kept in memory.
const BASINS_CACHED_MAX: usize = 4_096;

/// What an operator may set.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What an unset storage class means.
    pub default_storage_class: StorageClass,
    /// Intervals, timeouts and sizes of the engine.
    pub engine: engine::Options,
}

/// The handle that every door calls; clones share everything.
#[derive(Clone, Debug)]
pub struct Service {
    engine: Engine,
    default_storage_class: StorageClass,
    /// The lives of basins seen alive. A live manifest found under a cached life is valid, because the
    /// deletion of a basin ends all its streams; anything else is judged on the record itself (I-9).
    basins: Arc<Cache<BasinName, Incarnation>>,
    /// The same for buckets, of which only empty ones are deleted.
    buckets: Arc<Cache<BucketName, Incarnation>>,
    /// Work that goes on after its answer: deletions of basins.
    tasks: TaskTracker,
}

impl Service {
    /// A service over this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Clock, options: Options) -> Self {
        Self {
            engine: Engine::new(store, clock, options.engine),
            default_storage_class: options.default_storage_class,
            basins: Arc::new(Cache::new(BASINS_CACHED_MAX)),
            buckets: Arc::new(Cache::new(BASINS_CACHED_MAX)),
            tasks: TaskTracker::new(),
        }
    }

    /// Completes when work that goes on after its answer is done, or could not be done in time.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Completes when nothing goes on here but what somebody waits for: no deletion, no upload, no look at a
    /// tail, no commit of batches whose callers are gone.
    pub async fn settle(&self) {
        self.finish().await;
        self.engine.settle().await;
    }

    /// What an unset storage class means.
    #[must_use]
    pub fn default_storage_class(&self) -> StorageClass {
        self.default_storage_class
    }

    fn store(&self) -> &dyn Store {
        &**self.engine.store()
    }

    fn now_ms(&self) -> u64 {
        self.engine.clock().now_ms()
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.engine.options().write_timeout)
    }
}
