//! Durable Streams: streams with a type, an end, a lifetime and producers, in buckets of their own.
//!
//! They share nothing with basins but the engine: their names are hashed as another kind. What such a stream keeps
//! beside its records is its ledger, which is committed with them.

mod append;
mod buckets;
mod create;
mod creation;
mod error;
mod forks;
mod messages;
mod read;
mod remove;
mod snapshots;

use std::sync::Arc;

pub use append::{Outcome, Post, Posted};
pub use buckets::{BucketInfo, Listed, Listing};
pub use creation::{Creation, Expected, ForkOf};
pub use error::{Error, Result};
pub use read::{ReadFrom, Reader};
pub use snapshots::StreamSnapshot;

use super::Service;
use crate::engine::{self, Snapshot, Stream, Updated};
use crate::storage::head::State;
use crate::storage::identity::Identity;
use crate::storage::key::{Incarnation, StreamKind};
use crate::storage::ledger::Ledger;
use crate::storage::manifest::Manifest;
use crate::types::ledger::{ContentType, Lifetime, StateTag, Unusable};
use crate::types::name::{BucketName, StreamName};

/// How often a call starts over because its bucket was deleted and made again under it.
const RESTARTS_MAX: usize = 16;

/// What happens to a stream whose bucket is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// It is refused.
    MustExist,
    /// Its creation makes the bucket.
    AreMade,
}

/// Which stream.
#[derive(Clone, Debug)]
pub struct DurableRef {
    /// The bucket.
    pub bucket: BucketName,
    /// The stream.
    pub name: StreamName,
    /// Whether the bucket is made with its first stream.
    pub buckets: Buckets,
}

/// What a stream is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The stream's life, in hexadecimal digits.
    pub life: String,
    /// The first message that is kept.
    pub start: u64,
    /// The next message.
    pub tail: u64,
    /// Whether nothing follows any more.
    pub is_closed: bool,
    /// The first message that its snapshot does not stand for, if it has one.
    pub snapshot_at: Option<u64>,
    /// Of every message.
    pub content_type: ContentType,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Of the last write, or of the creation; milliseconds since the Unix epoch.
    pub last_write_at_ms: u64,
}

impl Status {
    fn of(manifest: &Manifest, ledger: &Ledger) -> Self {
        Self {
            life: manifest.head.incarnation.to_string(),
            start: manifest.log.trim_point,
            tail: manifest.log.next_seq_num,
            is_closed: ledger.is_closed,
            snapshot_at: ledger.stand_in.as_ref().map(|stand_in| stand_in.at),
            content_type: ledger.content_type.clone(),
            lifetime: ledger.lifetime,
            created_at_ms: manifest.created_at_ms,
            last_write_at_ms: manifest.log.last_arrival_ms.max(manifest.created_at_ms),
        }
    }

    /// What names this state.
    #[must_use]
    pub fn tag(&self) -> StateTag {
        StateTag { life: self.life.clone(), tail: self.tail, is_closed: self.is_closed }
    }
}

/// Whose stream it is.
fn identity(bucket: Incarnation, name: &StreamName) -> Identity {
    Identity { kind: StreamKind::Durable, basin: bucket, name: name.clone() }
}

/// The ledger of a live stream of this kind.
fn ledger(manifest: &Manifest) -> Result<&Ledger> {
    let name = || manifest.identity.as_ref().map(|own| own.name.to_string()).unwrap_or_default();
    manifest.log.ledger.as_deref().ok_or_else(|| Error::StreamNotFound(name()))
}

/// That a stream cannot be used, as its callers see it.
fn unusable(name: &StreamName, why: Unusable) -> Error {
    match why {
        Unusable::Unfinished | Unusable::Expired => Error::StreamNotFound(name.to_string()),
        Unusable::Retired => Error::Retired(name.to_string()),
    }
}

/// A change of a stream's ledger and of nothing else.
fn with_ledger(manifest: &Manifest, ledger: Ledger) -> Manifest {
    let mut next =
        Manifest { head: manifest.head.next(manifest.head.incarnation, State::Live), ..manifest.clone() };
    next.log.ledger = Some(Box::new(ledger));
    next
}

impl Service {
    /// What a stream is now; not a use of it.
    pub async fn durable_status(&self, target: &DurableRef) -> Result<Status> {
        let found = self.on_durable(target, |stream| async move { stream.refresh_live().await }).await?;
        let ledger = self.usable(&target.name, &found)?;
        Ok(Status::of(&found.doc, ledger))
    }

    /// The ledger of a stream that can be used.
    fn usable<'a>(&self, name: &StreamName, found: &'a Snapshot) -> Result<&'a Ledger> {
        let ledger = ledger(&found.doc)?;
        ledger.check_usable(self.now_ms()).map_err(|why| unusable(name, why))?;
        Ok(ledger)
    }

    /// Whoever makes a stream and is silent for longer has died.
    fn abandoned_ms(&self) -> u64 {
        u64::try_from(2 * self.engine.options().write_timeout.as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs a call on a stream, under the bucket's life as this process knows it. That there is no stream is an
    /// answer only after the bucket record was read since the call arrived (I-9).
    async fn on_durable<T, F>(&self, target: &DurableRef, call: impl Fn(Arc<Stream>) -> F) -> Result<T>
    where
        F: Future<Output = engine::Result<T>>,
    {
        let DurableRef { bucket, name, .. } = target;
        let cached = self.buckets.get(bucket);
        let mut is_current = cached.is_none();
        let mut life = match cached {
            Some(life) => life,
            None => self.fetch_bucket(bucket).await?,
        };
        for _ in 0..RESTARTS_MAX {
            match call(self.engine.stream(&identity(life, name))).await {
                Err(engine::Error::NoStream) if is_current => break,
                Err(engine::Error::NoStream) => {
                    let current = self.fetch_bucket(bucket).await?;
                    if current == life {
                        break;
                    }
                    (life, is_current) = (current, true);
                }
                outcome => return outcome.map_err(|e| error::of_engine(name, e)),
            }
        }
        Err(Error::StreamNotFound(name.to_string()))
    }

    /// Records a use of a stream, if that is due: at most once in a quarter of its lifetime. A use that cannot be
    /// recorded is a use nevertheless. Yields the newest version known of the same life.
    async fn renew(&self, stream: &Stream, found: Arc<Snapshot>) -> Arc<Snapshot> {
        let now_ms = self.now_ms();
        let life = found.doc.head.incarnation;
        let renewed = |manifest: &Manifest| {
            let ledger = manifest.log.ledger.as_deref()?;
            let is_usable = manifest.head.incarnation == life && ledger.check_usable(now_ms).is_ok();
            let next = if is_usable { ledger.renewed(now_ms) } else { None };
            next.map(|ledger| with_ledger(manifest, ledger))
        };
        if renewed(&found.doc).is_none() {
            return found;
        }
        let newer = match stream.update(renewed).await {
            Ok(Updated::Unchanged(newer)) => Some(newer),
            Ok(Updated::Changed(_)) => stream.known(),
            Err(error) => {
                tracing::warn!(%error, stream = %stream.identity.name, "the use of a stream was not recorded");
                None
            }
        };
        // Whoever reads goes on in the life where it began, or learns that it is over.
        newer.filter(|newer| newer.doc.head.incarnation == life && newer.doc.head.is_live()).unwrap_or(found)
    }
}
