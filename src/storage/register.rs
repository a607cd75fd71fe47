//! The commit protocol: one compare-and-swap of a register, and what its outcome was.
//!
//! The store's answer to a conditional PUT may be lost, late or a 5xx, and the PUT may still land after that.
//! Library retries are off for these PUTs; this file owns them. The rules are those of the model: see
//! ARCHITECTURE.md, "Deciding what happened".

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::Error;
use super::frame::{Damaged, WRITER};
use super::head::Head;
use super::key::random_below;
use crate::store::{self, ETag, Object, Store};
use crate::types::time::{Deadline, monotonic};

/// Copies of one PUT that may be without an answer at the same time.
const SENDS_AT_ONCE_MAX: usize = 3;

/// What the new version replaces.
#[derive(Clone, Debug)]
pub enum Base {
    /// Nothing was ever there.
    Absent,
    /// This version.
    At {
        /// As the store sent it.
        etag: ETag,
        /// Its head.
        head: Head,
    },
}

/// One compare-and-swap.
pub struct Swap<'a> {
    /// Where.
    pub store: &'a dyn Store,
    /// Which register.
    pub key: &'a str,
    /// What it replaces.
    pub base: &'a Base,
    /// The new version's head, as in `bytes`.
    pub head: &'a Head,
    /// The new version.
    pub bytes: Bytes,
    /// Reads the head of whatever the register holds.
    pub read_head: &'a (dyn Fn(&Bytes) -> Result<Head, Damaged> + Sync),
    /// How long before a hanging PUT is sent a second time.
    pub hedge_after: Duration,
    /// When the outcome is given up as unknown.
    pub deadline: Deadline,
}

/// How a compare-and-swap ended.
#[derive(Debug)]
pub enum Outcome {
    /// It landed. The version's e-tag, unless another version has replaced it since.
    Committed(Option<ETag>),
    /// Another change came first: nothing of ours landed, and never will.
    Conflict,
}

/// What a look at the register said about a swap whose answer is not clear.
enum Resolved {
    Landed(Option<ETag>),
    MayLand,
    Lost,
    Unknown(&'static str),
}

impl Swap<'_> {
    /// Sends it and decides what happened. [`Error::Indefinite`] if that cannot be known.
    pub async fn run(self) -> Result<Outcome, Error> {
        if let Base::At { head, .. } = self.base
            && head.min_writer > WRITER
        {
            return Err(Error::NewerFormat { key: self.key.to_owned(), min_writer: head.min_writer });
        }
        // A process that was frozen may wake up here, long after its caller has gone.
        if self.deadline.has_passed() {
            return Err(Error::Expired { key: self.key.to_owned() });
        }
        let mut sends = FuturesUnordered::new();
        sends.push(self.send());
        let mut resends = 0u32;
        let mut last_error = None;
        loop {
            let answer = self.next_answer(&mut sends).await;
            let only_send = resends == 0;
            match answer {
                Some(Ok(etag)) => return Ok(Outcome::Committed(Some(etag))),
                // Definite only as the answer to the first and only send: a 412 after a re-send may be our own doing.
                Some(Err(store::Error::Conflict { .. })) if only_send => return Ok(Outcome::Conflict),
                Some(Err(error @ store::Error::Refused { .. })) if only_send => {
                    return Err(Error::Store(error));
                }
                Some(Err(error)) => last_error = Some(error),
                None => {}
            }
            if self.deadline.has_passed() {
                return Err(self.indefinite("no clear answer before the deadline", last_error));
            }
            match self.resolve().await {
                Ok(Resolved::Landed(etag)) => return Ok(Outcome::Committed(etag)),
                Ok(Resolved::Lost) => return Ok(Outcome::Conflict),
                Ok(Resolved::Unknown(why)) => return Err(self.indefinite(why, last_error)),
                Ok(Resolved::MayLand) => {
                    // The same bytes under the same id: however many copies land, they are one commit.
                    resends += 1;
                    if resends > 1 {
                        self.back_off(resends).await;
                    }
                    if self.deadline.has_passed() {
                        return Err(self.indefinite("no clear answer before the deadline", last_error));
                    }
                    if sends.len() < SENDS_AT_ONCE_MAX {
                        sends.push(self.send());
                    }
                }
                Err(error) => {
                    last_error = Some(error);
                    resends += 1;
                    self.back_off(resends).await;
                }
            }
        }
    }

    fn send(&self) -> BoxFuture<'_, store::Result<ETag>> {
        match self.base {
            Base::Absent => Box::pin(self.store.create(self.key, self.bytes.clone())),
            Base::At { etag, .. } => Box::pin(self.store.replace(self.key, self.bytes.clone(), etag)),
        }
    }

    /// The next answer of any send; `None` when it is time to look or to send again.
    async fn next_answer(
        &self,
        sends: &mut FuturesUnordered<BoxFuture<'_, store::Result<ETag>>>,
    ) -> Option<store::Result<ETag>> {
        let patience = self.hedge_after.min(self.deadline.remaining());
        if sends.is_empty() {
            return None;
        }
        tokio::time::timeout(patience, sends.next()).await.ok().flatten()
    }

    /// Looks at the register and applies the rules.
    async fn resolve(&self) -> Result<Resolved, store::Error> {
        let remaining = self.deadline.remaining();
        let Ok(found) = tokio::time::timeout(remaining, self.store.get(self.key)).await else {
            return Ok(Resolved::Unknown("the register could not be read before the deadline"));
        };
        let Some(Object { bytes, etag, .. }) = found? else {
            return Ok(match self.base {
                Base::Absent => Resolved::MayLand,
                Base::At { .. } => Resolved::Unknown("the register is gone"),
            });
        };
        let Ok(head) = (self.read_head)(&bytes) else {
            return Ok(Resolved::Unknown("the register cannot be read"));
        };
        Ok(self.judge(etag, &head))
    }

    fn judge(&self, etag: ETag, head: &Head) -> Resolved {
        let id = self.head.commit_id();
        if head.remembers(id) {
            return Resolved::Landed((head.commit_id() == id).then_some(etag));
        }
        match self.base {
            // Creation: whatever is there now, our `If-None-Match: *` can never land again, and if the ring
            // reaches back to the beginning it never did.
            Base::Absent if head.reaches_back_to(0) => Resolved::Lost,
            Base::Absent => Resolved::Unknown("too many commits since"),
            Base::At { etag: base, .. } if etag == *base => Resolved::MayLand,
            Base::At { head: base, .. } if !head.reaches_back_to(base.version) => {
                Resolved::Unknown("too many commits since")
            }
            // A new life over a tombstone that another creation won: a lost race, as above.
            Base::At { head: base, .. } if !base.is_live() => Resolved::Lost,
            Base::At { head: base, .. } if head.incarnation != base.incarnation || !head.is_live() => {
                Resolved::Unknown("deleted since")
            }
            Base::At { .. } => Resolved::Lost,
        }
    }

    async fn back_off(&self, attempt: u32) {
        let delay = jittered(attempt, Duration::from_millis(20)).min(self.deadline.remaining());
        tokio::time::sleep(delay).await;
    }

    fn indefinite(&self, why: &'static str, source: Option<store::Error>) -> Error {
        Error::Indefinite { key: self.key.to_owned(), why, source: source.map(Box::new) }
    }
}

/// A delay with full jitter: up to `unit` · 2^attempt, at most 1 s.
#[must_use]
pub fn jittered(attempt: u32, unit: Duration) -> Duration {
    let unit_ms = u64::try_from(unit.as_millis()).unwrap_or(u64::MAX).max(1);
    let cap_ms = unit_ms.saturating_mul(1 << attempt.min(10)).min(1_000);
    Duration::from_millis(1 + random_below(cap_ms))
}

/// How long a conditional PUT takes here, as a running estimate of the median.
#[derive(Debug)]
pub struct PutLatency(std::sync::atomic::AtomicU64);

impl Default for PutLatency {
    fn default() -> Self {
        Self(std::sync::atomic::AtomicU64::new(50_000))
    }
}

impl PutLatency {
    /// The estimate.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        Duration::from_micros(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// Takes a measured duration: the estimate moves towards it by a tenth of itself.
    pub fn observe(&self, since: std::time::Instant) {
        use std::sync::atomic::Ordering::Relaxed;
        let took =
            u64::try_from(monotonic().saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX);
        let now = self.0.load(Relaxed);
        let step = (now / 10).max(10);
        self.0.store(
            if took > now { now.saturating_add(step) } else { now.saturating_sub(step).max(took) },
            Relaxed,
        );
    }

    /// When a hanging PUT is sent again: three medians, never under a quarter of a second.
    #[must_use]
    pub fn hedge_after(&self) -> Duration {
        (self.estimate() * 3).clamp(Duration::from_millis(250), Duration::from_secs(3))
    }
}
