//! What a process knows of one stream, and the ways to learn more or to change it.
//!
//! The newest known version travels in a watch channel: readers, writer and follower share it, and it only
//! moves forward.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::queue::Queue;
use super::{Error, Result, Shared};
use crate::storage::documents::{Found, Versioned, commit_manifest, load_manifest};
use crate::storage::identity::Identity;
use crate::storage::key::StreamHash;
use crate::storage::manifest::Manifest;
use crate::storage::register::{Outcome, jittered};
use crate::storage::{self};
use crate::telemetry::{COMMITS, count_cache};
use crate::types::time::{Deadline, monotonic};

/// A version of a manifest, live or tombstone.
pub type Snapshot = Versioned<Manifest>;

/// A stream as this process knows it; it may or may not exist.
#[derive(Debug)]
pub struct Stream {
    pub(super) shared: Arc<Shared>,
    /// Whose it is.
    pub identity: Identity,
    pub(super) hash: StreamHash,
    newest: watch::Sender<Option<Arc<Snapshot>>>,
    /// Orders calls and the requests that may answer them: see [`Stream::refresh`].
    tickets: AtomicU64,
    /// Ticket of the newest request whose answer is in `newest`.
    answered: AtomicU64,
    refreshing: tokio::sync::Mutex<()>,
    pub(super) queue: Queue,
    pub(super) poller: Poller,
}

/// The poller of a stream, if anyone follows it.
#[derive(Debug, Default)]
pub(super) struct Poller(pub(super) Mutex<Weak<Poll>>);

/// A task that looks at the tail for as long as this is held.
#[derive(Debug)]
pub(super) struct Poll(pub(super) JoinHandle<()>);

impl Drop for Poll {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a change of a stream came to.
#[derive(Debug)]
pub enum Updated {
    /// The stream was as wanted already.
    Unchanged(Arc<Snapshot>),
    /// The change is committed; the manifest as it was written.
    Changed(Box<Manifest>),
}

impl Stream {
    pub(super) fn new(shared: Arc<Shared>, identity: Identity, hash: StreamHash) -> Self {
        Self {
            shared,
            identity,
            hash,
            newest: watch::Sender::new(None),
            tickets: AtomicU64::new(1),
            answered: AtomicU64::new(0),
            refreshing: tokio::sync::Mutex::new(()),
            queue: Queue::default(),
            poller: Poller::default(),
        }
    }

    /// The newest version this process has seen. It may be old, or nothing.
    #[must_use]
    pub fn known(&self) -> Option<Arc<Snapshot>> {
        self.newest.borrow().clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.newest.subscribe()
    }

    /// Takes note of a version; older ones than the newest known are ignored.
    pub(super) fn observe(&self, snapshot: Arc<Snapshot>) {
        self.newest.send_if_modified(|newest| {
            let is_newer =
                newest.as_ref().is_none_or(|known| known.doc.head.version < snapshot.doc.head.version);
            if is_newer {
                *newest = Some(snapshot);
            }
            is_newer
        });
    }

    /// The current version, by an answer to a request sent after this call (I-7), or `None`.
    ///
    /// Joining a GET that is already in flight would not be linearizable: it may have been answered before an
    /// append that was acknowledged before this call. So callers that meet a GET in flight share the next one.
    ///
    /// Nobody waits here for ever, for the store or for those who wait for it.
    pub async fn refresh(&self) -> Result<Option<Arc<Snapshot>>> {
        let look = tokio::time::timeout(self.shared.options.write_timeout, self.look());
        look.await.unwrap_or(Err(Error::Overloaded("the store did not answer in time")))
    }

    async fn look(&self) -> Result<Option<Arc<Snapshot>>> {
        let arrived = self.tickets.fetch_add(1, Ordering::SeqCst);
        let _one_at_a_time = self.refreshing.lock().await;
        if self.answered.load(Ordering::SeqCst) > arrived {
            return Ok(self.known());
        }
        let sent = self.ticket();
        let known = self.known();
        let found =
            load_manifest(&*self.shared.store, &self.identity, known.as_ref().map(|k| &k.etag)).await?;
        count_cache("manifest", matches!(found, Found::Unchanged));
        let current = match found {
            Found::Unchanged => known,
            Found::Changed(snapshot) => {
                self.observe(Arc::from(snapshot));
                self.known()
            }
            Found::Absent => None,
        };
        self.answered.fetch_max(sent, Ordering::SeqCst);
        Ok(current)
    }

    /// The current version of a live stream, by an answer to a request sent after this call.
    pub async fn refresh_live(&self) -> Result<Arc<Snapshot>> {
        self.refresh().await?.filter(|s| s.doc.head.is_live()).ok_or(Error::NoStream)
    }

    fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::SeqCst)
    }

    /// Commits `next` over the version it was made from, and takes note of it.
    pub async fn commit(
        &self,
        base: Option<&Snapshot>,
        next: &Manifest,
        deadline: Deadline,
    ) -> std::result::Result<Outcome, storage::Error> {
        let (sent, started) = (self.ticket(), monotonic());
        let shared = &self.shared;
        let parts = (&self.identity, &shared.options.shape, &shared.latency);
        let outcome = commit_manifest(&*shared.store, parts, base, next, deadline).await;
        let label = match &outcome {
            Ok(Outcome::Committed(_)) => "committed",
            Ok(Outcome::Conflict) => "conflict",
            Err(error) if error.is_indefinite() => "indefinite",
            Err(_) => "failed",
        };
        metrics::counter!(COMMITS, "outcome" => label).increment(1);
        match &outcome {
            Ok(Outcome::Committed(Some(etag))) => {
                self.shared.latency.observe(started);
                self.observe(Arc::new(Versioned { doc: next.clone(), etag: etag.clone() }));
                // Only a commit that was sent after a call may answer it: one sent before may have landed
                // before another process's append that was acknowledged before the call.
                self.answered.fetch_max(sent, Ordering::SeqCst);
            }
            // It landed, and others have committed since: learn the current version for those who wait.
            Ok(Outcome::Committed(None)) => {
                if let Err(error) = self.refresh().await {
                    tracing::debug!(%error, "a commit landed, but the version after it is not known yet");
                }
            }
            Ok(Outcome::Conflict) | Err(_) => {}
        }
        outcome
    }

    /// Changes a live stream beside its writer: loads, asks `change`, commits; again while others come first.
    ///
    /// `change` returns `None` if the stream is as wanted.
    pub async fn update(&self, mut change: impl FnMut(&Manifest) -> Option<Manifest>) -> Result<Updated> {
        let deadline = Deadline::after(self.shared.options.write_timeout);
        let mut attempt = 0;
        loop {
            let base = self.refresh_live().await?;
            let Some(next) = change(&base.doc) else { return Ok(Updated::Unchanged(base)) };
            match self.commit(Some(&base), &next, deadline).await? {
                Outcome::Committed(_) => return Ok(Updated::Changed(Box::new(next))),
                Outcome::Conflict if deadline.has_passed() => {
                    return Err(Error::Overloaded("other writers always came first"));
                }
                Outcome::Conflict => {
                    attempt += 1;
                    tokio::time::sleep(jittered(attempt, self.shared.latency.estimate())).await;
                }
            }
        }
    }
}
