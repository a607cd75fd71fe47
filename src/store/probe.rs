//! The start-up probe: does the store keep the promises everything else rests on?
//!
//! A store that ignores a condition looks healthy until two writers meet; so two writers meet here first.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::timeout;

use super::{ETag, Error, ListQuery, Operation, Store};
use crate::types::time::Deadline;

/// What the keys of probes begin with.
pub const PROBE_PREFIX: &str = "meta/probe/";

/// Which tests a store has passed: one more whenever the probe asks for more than before.
pub const PROBE_VERSION: u32 = 1;

/// Races for one version.
const ROUNDS: usize = 5;
/// Writers in each race.
const WRITERS: usize = 8;
/// Before asking again after no clear answer; doubled up to the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Enough for stores that take one write per second and key.
const PAUSE_MAX: Duration = Duration::from_millis(1_500);
/// For removing the object of a probe that failed or ran out of time.
const CLEANUP_MAX: Duration = Duration::from_secs(2);

/// A store that keeps its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The store's clock a moment ago, in milliseconds since the Unix epoch; see `Clock::observe_store_ms`.
    pub store_ms: u64,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A create of an existing key passed.
    #[error(
        "the store ignores If-None-Match: creating `{key}` a second time succeeded, so writers would overwrite each other"
    )]
    IgnoresIfNoneMatch {
        /// The probe's object.
        key: String,
    },
    /// A replace of an outdated version passed.
    #[error(
        "the store ignores If-Match: replacing an outdated version of `{key}` succeeded, so appends would be lost"
    )]
    IgnoresIfMatch {
        /// The probe's object.
        key: String,
    },
    /// A condition that held was not met.
    #[error(
        "the store does not honour If-Match: {operation} of `{key}` was turned down although its condition held"
    )]
    RejectsTrueCondition {
        /// What was asked.
        operation: Operation,
        /// The probe's object.
        key: String,
    },
    /// The check and the write are not one step.
    #[error(
        "the store lets several writers win: {winners} of {WRITERS} concurrent replaces of one version of `{key}` succeeded, so appends would be lost"
    )]
    SeveralWinners {
        /// How many.
        winners: usize,
        /// The probe's object.
        key: String,
    },
    /// A read did not show the write that was acknowledged before it.
    #[error(
        "the store does not show what was just written to `{key}`: reads after writes are not consistent"
    )]
    StaleRead {
        /// The probe's object.
        key: String,
    },
    /// A listing did not show the write that was acknowledged before it.
    #[error(
        "the store does not list `{key}`, which was just written: listings after writes are not consistent"
    )]
    StaleList {
        /// The probe's object.
        key: String,
    },
    /// The store turned a request down.
    #[error("the store cannot be used: {error}: {}", source_text(error))]
    Refused {
        /// What it said.
        error: Error,
    },
    /// Time ran out.
    #[error("the store did not answer in time; last problem: {}", last.as_ref().map_or_else(|| "none, it was only slow".to_owned(), |error| format!("{error}: {}", source_text(error))))]
    Unreachable {
        /// The last failure, if there was any.
        last: Option<Error>,
    },
}

fn source_text(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| "no details".to_owned(), ToString::to_string)
}

/// Puts the store to the test with an object under `meta/probe/<id>`, which is removed at the end.
///
/// `id` is unique to this call. Ends at the deadline, whatever the store does.
pub async fn probe(store: &dyn Store, id: &str, deadline: Deadline) -> Result<Probed, ProbeError> {
    let probe = Probe { store, key: format!("{PROBE_PREFIX}{id}"), deadline };
    let outcome = probe.run().await;
    // On the way out too: a failed probe leaves no more behind than it must.
    let removed = timeout(CLEANUP_MAX, store.delete(&probe.key)).await;
    if !matches!(removed, Ok(Ok(()))) {
        tracing::warn!(key = probe.key, "the probe's object could not be removed");
    }
    outcome
}

struct Probe<'a> {
    store: &'a dyn Store,
    key: String,
    deadline: Deadline,
}

/// What a conditional write came to, once that is known.
enum Settled {
    Written(ETag),
    Conflict,
}

impl Probe<'_> {
    async fn run(&self) -> Result<Probed, ProbeError> {
        let first = self.write("first", None).await?;
        if let Settled::Written(_) = self.settle("second", None).await? {
            return Err(ProbeError::IgnoresIfNoneMatch { key: self.key.clone() });
        }
        let mut current = self.write("third", Some(&first)).await?;
        if let Settled::Written(_) = self.settle("fourth", Some(&first)).await? {
            return Err(ProbeError::IgnoresIfMatch { key: self.key.clone() });
        }
        for round in 0..ROUNDS {
            current = self.race(round, &current).await?;
        }
        self.check_listed().await?;
        // Written last, so that the clock is read a moment before the caller learns of it.
        self.write("clock", Some(&current)).await?;
        let object = self.read("clock").await?;
        Ok(Probed { store_ms: object.last_modified_ms })
    }

    /// A write whose condition holds.
    async fn write(&self, content: &str, etag: Option<&ETag>) -> Result<ETag, ProbeError> {
        match self.settle(content, etag).await? {
            Settled::Written(etag) => {
                self.read(content).await?;
                Ok(etag)
            }
            Settled::Conflict => {
                let operation = if etag.is_some() { Operation::Replace } else { Operation::Create };
                Err(ProbeError::RejectsTrueCondition { operation, key: self.key.clone() })
            }
        }
    }

    /// Sends a conditional write until it is clear what came of it.
    async fn settle(&self, content: &str, etag: Option<&ETag>) -> Result<Settled, ProbeError> {
        let mut patience = Patience::new(self.deadline);
        loop {
            let bytes = Bytes::copy_from_slice(content.as_bytes());
            let answer = match etag {
                None => self.in_time(self.store.create(&self.key, bytes)).await,
                Some(etag) => self.in_time(self.store.replace(&self.key, bytes, etag)).await,
            };
            match answer.ok_or(ProbeError::Unreachable { last: patience.last.take() })? {
                Ok(etag) => return Ok(Settled::Written(etag)),
                Err(Error::Conflict { .. }) if patience.rounds == 0 => return Ok(Settled::Conflict),
                // An earlier attempt of ours may be what stands in the way.
                Err(Error::Conflict { .. }) => {
                    let found = self.get().await?.filter(|object| object.bytes == content.as_bytes());
                    return Ok(found.map_or(Settled::Conflict, |object| Settled::Written(object.etag)));
                }
                Err(error) => patience.wait_after(error).await?,
            }
        }
    }

    /// Lets all writers replace the same version at once; returns the version after.
    async fn race(&self, round: usize, current: &ETag) -> Result<ETag, ProbeError> {
        let mut patience = Patience::new(self.deadline);
        loop {
            let writers = (0..WRITERS).map(|writer| {
                let bytes = Bytes::from(format!("round {round}, writer {writer}"));
                self.store.replace(&self.key, bytes, current)
            });
            let answers = self.in_time(join_all(writers)).await;
            let answers = answers.ok_or(ProbeError::Unreachable { last: patience.last.take() })?;
            let winners = answers.iter().filter(|answer| answer.is_ok()).count();
            if winners > 1 {
                return Err(ProbeError::SeveralWinners { winners, key: self.key.clone() });
            }
            let winner = answers.iter().position(Result::is_ok);
            let unclear = answers.into_iter().filter_map(Result::err).find(|error| !is_conflict(error));
            let found = self.get().await?.ok_or_else(|| self.stale_read())?;
            if let Some(winner) = winner {
                let written = format!("round {round}, writer {winner}");
                // Another one's content in its place won as well, and said so to nobody.
                let key = self.key.clone();
                return if found.bytes == written.as_bytes() {
                    Ok(found.etag)
                } else {
                    Err(ProbeError::SeveralWinners { winners: 2, key })
                };
            }
            match unclear {
                // The one without an answer won.
                Some(Error::Indefinite { .. }) if found.etag != *current => return Ok(found.etag),
                Some(error) => patience.wait_after(error).await?,
                None => {
                    let (operation, key) = (Operation::Replace, self.key.clone());
                    return Err(ProbeError::RejectsTrueCondition { operation, key });
                }
            }
        }
    }

    async fn check_listed(&self) -> Result<(), ProbeError> {
        let query = || ListQuery { prefix: self.key.clone(), start_after: None, limit: 1 };
        let mut patience = Patience::new(self.deadline);
        loop {
            let answer = self.in_time(self.store.list(query())).await;
            match answer.ok_or(ProbeError::Unreachable { last: patience.last.take() })? {
                Ok(listed) if listed.iter().any(|listed| listed.key == self.key) => return Ok(()),
                Ok(_) => return Err(ProbeError::StaleList { key: self.key.clone() }),
                Err(error) => patience.wait_after(error).await?,
            }
        }
    }

    /// The object, which must hold `content`.
    async fn read(&self, content: &str) -> Result<super::Object, ProbeError> {
        let found = self.get().await?.filter(|object| object.bytes == content.as_bytes());
        found.ok_or_else(|| self.stale_read())
    }

    async fn get(&self) -> Result<Option<super::Object>, ProbeError> {
        let mut patience = Patience::new(self.deadline);
        loop {
            let answer = self.in_time(self.store.get(&self.key)).await;
            match answer.ok_or(ProbeError::Unreachable { last: patience.last.take() })? {
                Ok(found) => return Ok(found),
                Err(error) => patience.wait_after(error).await?,
            }
        }
    }

    async fn in_time<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        timeout(self.deadline.remaining(), request).await.ok()
    }

    fn stale_read(&self) -> ProbeError {
        ProbeError::StaleRead { key: self.key.clone() }
    }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. })
}

/// Waiting longer and longer between attempts, until the deadline.
struct Patience {
    deadline: Deadline,
    pause: Duration,
    rounds: usize,
    last: Option<Error>,
}

impl Patience {
    fn new(deadline: Deadline) -> Self {
        Self { deadline, pause: PAUSE_MIN, rounds: 0, last: None }
    }

    /// Waits after an answer that may be another one next time; gives up on any other.
    async fn wait_after(&mut self, error: Error) -> Result<(), ProbeError> {
        if matches!(error, Error::Refused { .. }) {
            return Err(ProbeError::Refused { error });
        }
        if self.deadline.remaining() <= self.pause {
            return Err(ProbeError::Unreachable { last: Some(error) });
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.rounds += 1;
        self.last = Some(error);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::super::{Fetched, Listed, Object, Result, memory};
    use super::*;

    /// How a double breaks its word.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Flaw {
        None,
        IgnoresIfNoneMatch,
        IgnoresIfMatch,
        ChecksThenWrites,
        NeverMatches,
        HidesFromLists,
        Hangs,
        Refuses,
        /// The first attempts of each write are lost, before or after they took place.
        LosesAnswers,
    }

    #[derive(Debug)]
    struct Double {
        inner: Arc<dyn Store>,
        flaw: Flaw,
        calls: AtomicUsize,
    }

    impl Double {
        fn new(flaw: Flaw) -> Self {
            Self { inner: memory(), flaw, calls: AtomicUsize::new(0) }
        }

        async fn answer(&self, operation: Operation, key: &str, written: Result<ETag>) -> Result<ETag> {
            let key = key.to_owned();
            if self.flaw == Flaw::LosesAnswers && self.calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(3)
            {
                return Err(Error::Indefinite { operation, key, source: "lost".into() });
            }
            written
        }
    }

    #[async_trait]
    impl Store for Double {
        async fn get(&self, key: &str) -> Result<Option<Object>> {
            self.inner.get(key).await
        }

        async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
            self.inner.get_if_changed(key, etag).await
        }

        async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
            self.inner.get_range(key, range).await
        }

        async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
            self.inner.put(key, bytes).await
        }

        async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
            match self.flaw {
                Flaw::IgnoresIfNoneMatch => self.inner.put(key, bytes).await,
                Flaw::Hangs => std::future::pending().await,
                Flaw::Refuses => {
                    let (operation, key) = (Operation::Create, key.to_owned());
                    Err(Error::Refused { operation, key, source: "the secret key is wrong".into() })
                }
                _ => {
                    let written = self.inner.create(key, bytes).await;
                    self.answer(Operation::Create, key, written).await
                }
            }
        }

        async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
            let conflict = Err(Error::Conflict { operation: Operation::Replace, key: key.to_owned() });
            match self.flaw {
                Flaw::IgnoresIfMatch => self.inner.put(key, bytes).await,
                Flaw::NeverMatches => conflict,
                Flaw::ChecksThenWrites => {
                    let there = self.inner.get(key).await?;
                    if there.is_none_or(|object| object.etag != *etag) {
                        return conflict;
                    }
                    tokio::task::yield_now().await;
                    self.inner.put(key, bytes).await
                }
                _ => {
                    let written = self.inner.replace(key, bytes, etag).await;
                    self.answer(Operation::Replace, key, written).await
                }
            }
        }

        async fn copy(&self, from: &str, to: &str) -> Result<bool> {
            self.inner.copy(from, to).await
        }

        async fn delete(&self, key: &str) -> Result<()> {
            self.inner.delete(key).await
        }

        async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
            if self.flaw == Flaw::HidesFromLists { Ok(Vec::new()) } else { self.inner.list(query).await }
        }
    }

    async fn outcome(flaw: Flaw) -> std::result::Result<Probed, ProbeError> {
        let double = Double::new(flaw);
        let outcome = probe(&double, "test", Deadline::after(Duration::from_secs(5))).await;
        assert!(double.get("meta/probe/test").await.unwrap().is_none(), "nothing is left behind");
        outcome
    }

    #[tokio::test]
    async fn a_store_that_keeps_its_word_passes_and_tells_the_time() {
        let now_ms = crate::types::time::Clock::system().local_ms();
        let probed = outcome(Flaw::None).await.unwrap();
        assert!(probed.store_ms.abs_diff(now_ms) < 5_000);
    }

    #[tokio::test]
    async fn a_store_that_loses_answers_passes_in_the_end() {
        outcome(Flaw::LosesAnswers).await.unwrap();
    }

    #[tokio::test]
    async fn a_store_that_ignores_if_none_match_is_refused() {
        let error = outcome(Flaw::IgnoresIfNoneMatch).await.unwrap_err();
        assert!(matches!(error, ProbeError::IgnoresIfNoneMatch { .. }), "{error}");
        assert!(error.to_string().contains("ignores If-None-Match"));
    }

    #[tokio::test]
    async fn a_store_that_ignores_if_match_is_refused() {
        let error = outcome(Flaw::IgnoresIfMatch).await.unwrap_err();
        assert!(matches!(error, ProbeError::IgnoresIfMatch { .. }), "{error}");
        assert!(error.to_string().contains("ignores If-Match"));
    }

    #[tokio::test]
    async fn a_store_that_lets_several_writers_win_is_refused() {
        let error = outcome(Flaw::ChecksThenWrites).await.unwrap_err();
        assert!(matches!(error, ProbeError::SeveralWinners { winners, .. } if winners > 1), "{error}");
    }

    #[tokio::test]
    async fn a_store_whose_if_match_never_holds_is_refused() {
        let error = outcome(Flaw::NeverMatches).await.unwrap_err();
        assert!(matches!(error, ProbeError::RejectsTrueCondition { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_store_that_lists_late_is_refused() {
        let error = outcome(Flaw::HidesFromLists).await.unwrap_err();
        assert!(matches!(error, ProbeError::StaleList { .. }), "{error}");
    }

    #[tokio::test]
    async fn what_the_store_refuses_is_told_at_once() {
        let error = outcome(Flaw::Refuses).await.unwrap_err();
        assert!(error.to_string().contains("the secret key is wrong"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_never_answers_ends_the_probe_at_the_deadline() {
        let error = outcome(Flaw::Hangs).await.unwrap_err();
        assert!(matches!(error, ProbeError::Unreachable { .. }), "{error}");
    }
}
