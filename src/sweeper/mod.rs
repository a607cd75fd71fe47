//! The sweeper: removes what is dead, merges what is small, and finds what nothing names.
//!
//! It visits what its work list (`due/`) says is due, not what exists. Every live stream stands under one marker,
//! named by its manifest; a visit puts the next marker before the commit that names it, and removes the old one
//! after that. So a pass may be cut off anywhere, run twice at once, or come late: what it has not done stays due.
//!
//! | file | what |
//! |---|---|
//! | `plan.rs` | *pure*: what a visit finds to do, and when the next one is due |
//! | `visit.rs` | one visit: commits and their order |
//! | `rewrite.rs` | chunks and pages written anew |
//! | `garbage.rs` | orphans and the remains of ended lives |

mod garbage;
mod plan;
mod report;
mod rewrite;
mod visit;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

pub use report::Report;

use self::garbage::GRACE_MS;
use self::visit::Due;
use crate::service::Service;
use crate::storage::documents::{Versioned, commit_manifest};
use crate::storage::identity::Identity;
use crate::storage::key;
use crate::storage::manifest::{Manifest, Shape};
use crate::storage::meta::DueMarker;
use crate::storage::register::{Outcome, PutLatency};
use crate::storage::{self};
use crate::store::{ListQuery, Listed, Store};
use crate::telemetry::{SWEEP_FAILURES, SWEEP_LAG, SWEEP_OBJECTS_REMOVED};
use crate::types::error::describe;
use crate::types::name::BasinName;
use crate::types::time::{Clock, Deadline, monotonic};

/// Markers asked for in one request.
const LIST_KEYS: usize = 1_000;
/// Visits at the same time.
const VISITS_AT_ONCE: usize = 8;
/// Clocks that disagree by more than this are not trusted with deciding what is old.
const OFFSET_MS_MAX: u64 = 60_000;
/// Time for one commit of a manifest.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a pass, or a visit, did not do its work. Nothing that is alive is lost by it, and it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine's clock and the store's are too far apart.
    #[error(
        "this machine's clock and the store's are {} s apart; nothing is removed by age until they agree within {} s",
        offset_ms.unsigned_abs() / 1_000, OFFSET_MS_MAX / 1_000
    )]
    ClocksDisagree {
        /// Store time minus local time.
        offset_ms: i64,
    },
    /// The store does not say what time it is.
    #[error("the store's clock cannot be read: what was just written is not there")]
    NoClock,
    /// The stream changed under the visit, again and again.
    #[error("stream `{0}` changed too often during the visit")]
    Busy(String),
    /// A manifest names an object that is not there.
    #[error("`{0}` is named by a manifest and is not there")]
    Missing(String),
    /// A defect: nothing was changed.
    #[error("the sweeper is wrong about a stream: {0}")]
    Invariant(String),
    /// The store or the commit protocol failed.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// A stream with a ledger could not be ended.
    #[error("the end of stream `{name}` could not be completed")]
    Ledger {
        /// Which.
        name: String,
        /// Why.
        #[source]
        source: crate::service::durable::Error,
    },
    /// The deletion of a basin could not be completed.
    #[error("the deletion of basin `{basin}` stopped")]
    Basin {
        /// Which.
        basin: BasinName,
        /// Why.
        #[source]
        source: crate::service::Error,
    },
}

/// The result of a step of a pass.
pub type Result<T> = std::result::Result<T, Error>;

/// What an operator may set.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Look and tell, and change nothing.
    pub dry_run: bool,
    /// Visits in one pass; what is left is due in the next.
    pub visits_max: usize,
    /// How often orphans are looked for in a stream, in milliseconds.
    pub collect_every_ms: u64,
    /// The sizes that shape manifests; those of the engine.
    pub shape: Shape,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dry_run: false,
            visits_max: 10_000,
            collect_every_ms: 7 * 24 * 60 * 60 * 1_000,
            shape: Shape::default(),
        }
    }
}

/// The sweeper of a store.
#[derive(Debug)]
pub struct Sweeper {
    store: Arc<dyn Store>,
    /// Completes deletions of basins.
    service: Service,
    clock: Clock,
    latency: PutLatency,
    options: Options,
}

impl Sweeper {
    /// A sweeper over this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, service: Service, clock: Clock, options: Options) -> Self {
        Self { store, service, clock, latency: PutLatency::default(), options }
    }

    /// Visits what is due, at most as much as one pass may, and begins no visit after the deadline. A visit that
    /// fails is told and tried again by the next pass; an error is one that stops all of them.
    pub async fn pass(&self, deadline: Option<Deadline>) -> Result<Report> {
        let started = monotonic();
        let now_ms = self.read_clock().await?;
        let (markers, more_is_due) = self.due(now_ms).await?;
        let oldest_ms = markers.first().and_then(|marker| key::due_at_ms(&marker.key));
        let mut report = Report {
            dry_run: self.options.dry_run,
            markers: markers.len() as u64,
            lag_seconds: oldest_ms.map_or(0, |due_ms| now_ms.saturating_sub(due_ms) / 1_000),
            more_is_due,
            ..Report::default()
        };
        let time_is_up = async {
            match deadline {
                Some(deadline) => tokio::time::sleep(deadline.remaining()).await,
                None => std::future::pending().await,
            }
        };
        let in_time = futures::stream::iter(markers).take_until(Box::pin(time_is_up));
        let visits = in_time.map(|marker| async move {
            let mut part = Report::default();
            if let Err(error) = self.follow(&marker, &mut part).await {
                part.failures += 1;
                tracing::error!(marker = %marker.key, error = %describe(&error), "a visit failed");
            }
            part
        });
        let mut visits = std::pin::pin!(visits.buffer_unordered(VISITS_AT_ONCE));
        let mut followed = 0;
        while let Some(part) = visits.next().await {
            report.add(&part);
            followed += 1;
        }
        report.more_is_due |= followed < report.markers;
        report.took(monotonic().saturating_duration_since(started));
        metrics::gauge!(SWEEP_LAG).set(report.lag_seconds as f64);
        metrics::counter!(SWEEP_OBJECTS_REMOVED).increment(report.objects_removed);
        metrics::counter!(SWEEP_FAILURES).increment(report.failures);
        Ok(report)
    }

    /// Makes a pass now and then, for ever. Several servers spread over the interval, and one that comes second
    /// finds nothing due.
    pub async fn run(&self, interval: Duration) {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        loop {
            let pause_ms = interval_ms / 2 + key::random_below(interval_ms);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            match self.pass(None).await {
                Ok(report) => report.log(),
                Err(error) => tracing::error!(error = %describe(&error), "the store could not be swept"),
            }
        }
    }

    /// Learns the store's time, and refuses to go by a clock that is far from it.
    async fn read_clock(&self) -> Result<u64> {
        self.store.put(key::CLOCK, bytes::Bytes::new()).await?;
        let object = self.store.get(key::CLOCK).await?.ok_or(Error::NoClock)?;
        self.clock.observe_store_ms(object.last_modified_ms);
        let offset_ms = self.clock.offset_ms();
        if offset_ms.unsigned_abs() > OFFSET_MS_MAX {
            return Err(Error::ClocksDisagree { offset_ms });
        }
        Ok(self.clock.now_ms())
    }

    /// The markers that are due, oldest first, and whether there are more than one pass visits.
    async fn due(&self, now_ms: u64) -> Result<(Vec<Listed>, bool)> {
        let mut due: Vec<Listed> = Vec::new();
        loop {
            let start_after = due.last().map(|listed| listed.key.clone());
            let query = ListQuery { prefix: key::DUE.to_owned(), start_after, limit: LIST_KEYS };
            let page = self.store.list(query).await?;
            let is_last = page.len() < LIST_KEYS;
            let before = due.len();
            let listed = page.len();
            due.extend(
                page.into_iter().take_while(|l| key::due_at_ms(&l.key).is_some_and(|at| at <= now_ms)),
            );
            if due.len() > self.options.visits_max {
                due.truncate(self.options.visits_max);
                return Ok((due, true));
            }
            if is_last || due.len() - before < listed {
                return Ok((due, false));
            }
        }
    }

    /// Does what a marker asks for.
    async fn follow(&self, listed: &Listed, report: &mut Report) -> Result<()> {
        // Another sweeper may have been faster.
        let Some(object) = self.store.get(&listed.key).await? else { return Ok(()) };
        let marker = DueMarker::decode(&object.bytes).map_err(|e| storage::Error::damaged(&listed.key, e))?;
        match marker {
            DueMarker::Stream { kind, basin, name, incarnation, is_last } => {
                let due = Due {
                    key: listed.key.clone(),
                    written_ms: listed.last_modified_ms,
                    identity: Identity { kind, basin, name },
                    life: incarnation,
                    is_last,
                    standing: listed.key.clone(),
                };
                self.visit(&due, report).await
            }
            DueMarker::Basin { name, incarnation } => {
                if self.options.dry_run {
                    report.basins_deleted += 1;
                    return Ok(());
                }
                let ended = self.service.continue_deletion(&name, incarnation).await;
                let ended = ended.map_err(|source| Error::Basin { basin: name, source })?;
                let is_old = listed.last_modified_ms.saturating_add(GRACE_MS) < self.clock.now_ms();
                if ended.is_over() || is_old {
                    self.store.delete(&listed.key).await?;
                }
                report.basins_deleted += u64::from(ended.was_completed());
                Ok(())
            }
        }
    }

    async fn swap(
        &self,
        identity: &Identity,
        base: Option<&Versioned<Manifest>>,
        next: &Manifest,
    ) -> Result<Outcome> {
        let parts = (identity, &self.options.shape, &self.latency);
        let deadline = Deadline::after(COMMIT_TIMEOUT);
        Ok(commit_manifest(&*self.store, parts, base, next, deadline).await?)
    }
}
