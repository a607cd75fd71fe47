//! The live tail: one poller per stream and process, shared by everyone who follows.
//!
//! The poller is a task that looks at the manifest with a conditional GET; it lives as long as anyone holds a
//! [`Follow`]. Commits of this process are seen at once, without a request.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::stream::{Poll, Snapshot, Stream};

/// Looks without news before an interval is stretched by half of itself.
const STRETCH_AFTER: u32 = 10;

/// News of one stream, for as long as this is held.
#[derive(Debug)]
pub struct Follow {
    _poll: Arc<Poll>,
    news: watch::Receiver<Option<Arc<Snapshot>>>,
}

impl Stream {
    /// Begins to follow.
    #[must_use]
    pub fn follow(self: &Arc<Self>) -> Follow {
        let mut poller = self.poller.0.lock().unwrap_or_else(PoisonError::into_inner);
        let poll = poller.upgrade().unwrap_or_else(|| {
            let poll = Arc::new(Poll(self.shared.tasks.spawn(poll(Arc::downgrade(self)))));
            *poller = Arc::downgrade(&poll);
            poll
        });
        Follow { _poll: poll, news: self.watch() }
    }
}

impl Follow {
    /// The first version after `version`. Dropping the future loses nothing.
    pub async fn after(&mut self, version: u64) -> Arc<Snapshot> {
        loop {
            if let Some(newest) = self.news.borrow_and_update().clone()
                && newest.doc.head.version > version
            {
                return newest;
            }
            if self.news.changed().await.is_err() {
                // The stream handle outlives its followers; should it not, there is never any news.
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn poll(stream: Weak<Stream>) {
    let mut quiet = 0;
    let mut last = 0;
    loop {
        let Some(stream) = stream.upgrade() else { return };
        let version = match stream.refresh().await {
            Ok(current) => current.as_ref().map_or(0, |s| s.doc.head.version),
            Err(error) => {
                tracing::warn!(%error, stream = %stream.identity.name, "the tail could not be looked at");
                last
            }
        };
        quiet = if version == last { quiet + 1 } else { 0 };
        last = version;
        let pause = pause(&stream, quiet);
        drop(stream);
        tokio::time::sleep(pause).await;
    }
}

/// The poll interval of the stream's class, stretched while nothing happens.
fn pause(stream: &Stream, quiet: u32) -> Duration {
    let options = &stream.shared.options;
    let class = stream.known().map(|s| s.doc.config.storage_class).unwrap_or_default();
    let base = options.poll(class);
    let stretch = 1.5f64.powi(i32::try_from(quiet / STRETCH_AFTER).unwrap_or(i32::MAX).min(32));
    base.mul_f64(stretch).min(options.poll_idle.max(base))
}
