//! The stream engine: group commit over a manifest, reads, the live tail.
//!
//! The engine knows preconditions and positions, not protocol names. It meets the rest of the world in
//! [`Engine::stream`]: a handle per stream, with what this process knows of it.

pub mod admission;
mod attach;
mod batcher;
mod cache;
mod committer;
mod copy;
mod entry;
mod fetch;
mod follower;
mod group;
mod producers;
mod queue;
mod reader;
mod stream;
mod upload;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio_util::task::TaskTracker;

pub use admission::Rejection;
pub use batcher::Submitted;
pub use follower::Follow;
pub use queue::Session;
pub use reader::Batch;
pub use stream::{Snapshot, Stream, Updated};

use crate::storage::identity::Identity;
use crate::storage::key::{ObjectId, StreamHash};
use crate::storage::manifest::Shape;
use crate::storage::register::PutLatency;
use crate::storage::{self};
use crate::store::Store;
use crate::types::config::StorageClass;
use crate::types::record::StreamPosition;
use crate::types::time::Clock;

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long commits of `standard` streams gather batches at most.
    pub flush_standard: Duration,
    /// How long commits of `express` streams gather batches at most.
    pub flush_express: Duration,
    /// How often the tail of a followed `standard` stream is looked at.
    pub poll_standard: Duration,
    /// How often the tail of a followed `express` stream is looked at.
    pub poll_express: Duration,
    /// How seldom an idle tail is looked at, whatever its class.
    pub poll_idle: Duration,
    /// When the outcome of a write is given up as unknown.
    pub write_timeout: Duration,
    /// Streams whose manifests are kept in memory.
    pub streams_cached_max: usize,
    /// Bytes of chunks and index pages kept in memory.
    pub cache_bytes_max: u64,
    /// Sizes that shape manifests.
    pub shape: Shape,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flush_standard: Duration::from_millis(20),
            flush_express: Duration::from_millis(2),
            poll_standard: Duration::from_millis(100),
            poll_express: Duration::from_millis(20),
            poll_idle: Duration::from_secs(1),
            write_timeout: Duration::from_millis(4_500),
            streams_cached_max: 2_048,
            cache_bytes_max: 64 * 1024 * 1024,
            shape: Shape::default(),
        }
    }
}

impl Options {
    fn flush(&self, class: StorageClass) -> Duration {
        match class {
            StorageClass::Standard => self.flush_standard,
            StorageClass::Express => self.flush_express,
        }
    }

    fn poll(&self, class: StorageClass) -> Duration {
        match class {
            StorageClass::Standard => self.poll_standard,
            StorageClass::Express => self.poll_express,
        }
    }
}

/// Why the engine did not do as asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such stream, or it ended, by an answer to a request sent after the call.
    #[error("no such stream")]
    NoStream,
    /// The batch's conditions are not met by the current state; nothing was written.
    #[error("the batch was refused")]
    Rejected(Rejection),
    /// The read starts at or beyond the tail and may not wait there.
    #[error("the read starts at or beyond the tail")]
    BeyondTail(StreamPosition),
    /// Too much is queued, or other writers always came first; nothing was written.
    #[error("{0}")]
    Overloaded(&'static str),
    /// An object that a manifest named is not there; the manifest may be old. Readers load it again.
    #[error("object {0} is gone")]
    Missing(ObjectId),
    /// The storage layer failed and nothing was committed.
    #[error(transparent)]
    Storage(Arc<storage::Error>),
    /// Nobody can know whether the batch was committed.
    #[error("{why}")]
    Indefinite {
        /// Why it cannot be known.
        why: &'static str,
        /// What the storage layer said.
        #[source]
        source: Option<Arc<storage::Error>>,
    },
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        if error.is_indefinite() {
            Self::Indefinite { why: "the outcome of the commit is unknown", source: Some(Arc::new(error)) }
        } else {
            Self::Storage(Arc::new(error))
        }
    }
}

impl Error {
    /// A state that the code rules out; reported like a storage failure, because nothing was committed.
    fn broken(what: &str, why: impl Into<String>) -> Self {
        storage::Error::Invariant { key: what.to_owned(), why: why.into() }.into()
    }
}

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// What all streams of a process share.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    clock: Clock,
    options: Options,
    latency: PutLatency,
    objects: cache::ObjectCache,
    /// What goes on by itself: uploads, pollers, and drivers that outlived their callers.
    tasks: TaskTracker,
}

/// The engine of one process over one store; clones share everything.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    /// Keeps the streams used last.
    recent: Arc<Cache<StreamHash, Arc<Stream>>>,
    /// Finds every stream that anyone still uses, so that a process never has two writers of one stream.
    all: Arc<Mutex<std::collections::HashMap<StreamHash, Weak<Stream>>>>,
}

impl Engine {
    /// An engine over this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Clock, options: Options) -> Self {
        let recent = Arc::new(Cache::new(options.streams_cached_max));
        let objects = cache::ObjectCache::new(options.cache_bytes_max);
        let (latency, tasks) = (PutLatency::default(), TaskTracker::new());
        let shared = Arc::new(Shared { store, clock, options, latency, objects, tasks });
        Self { shared, recent, all: Arc::default() }
    }

    /// The store beneath.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Store time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// How long conditional PUTs take here.
    #[must_use]
    pub fn latency(&self) -> &PutLatency {
        &self.shared.latency
    }

    /// What the operator set.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Completes when no upload, no poller and no driver of a queue is at work that nobody waits for.
    pub async fn settle(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// The handle of a stream, whether it exists or not. No request is made.
    #[must_use]
    pub fn stream(&self, identity: &Identity) -> Arc<Stream> {
        let hash = identity.hash();
        if let Some(stream) = self.recent.get(&hash) {
            return stream;
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = all.get(&hash).and_then(Weak::upgrade).unwrap_or_else(|| {
            // Every so often, forget the streams that nobody uses any more.
            if all.len() >= 2 * self.shared.options.streams_cached_max && all.len().is_power_of_two() {
                all.retain(|_, weak| weak.strong_count() > 0);
            }
            let stream = Arc::new(Stream::new(self.shared.clone(), identity.clone(), hash));
            all.insert(hash, Arc::downgrade(&stream));
            stream
        });
        self.recent.insert(hash, stream.clone());
        stream
    }
}
