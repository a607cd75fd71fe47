//! Opening a store: it keeps its word, its clock is known, and it has an id.

use std::time::Duration;

use super::documents::Versioned;
use super::frame::WRITER;
use super::key::{self, Incarnation};
use super::meta::{ProbeRecord, StoreRecord};
use crate::store::{self, PROBE_VERSION, ProbeError, Store, probe};
use crate::types::time::{Clock, Deadline};

/// For a slow store to answer the probe's dozens of requests.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts to write the record while others write it, or while it is unclear whether it was written.
const RECORD_ATTEMPTS_MAX: usize = 5;

/// What is enough to believe that a store keeps its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A probe, now.
    Probe,
    /// A probe of the same version and place at any time: one GET instead of dozens of requests.
    Record,
}

/// A store that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its record.
    pub record: StoreRecord,
    /// What it rests on.
    pub trust: Trust,
    /// Whether the record was written just now.
    pub is_news: bool,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It does not keep its word, or nobody could find out.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Its record cannot be read or written.
    #[error(transparent)]
    Record(#[from] super::Error),
}

/// Opens the store, measures its clock and records what was found out. `place` is [`store::StoreUrl::place`].
pub async fn open(store: &dyn Store, place: &str, trust: Trust, clock: &Clock) -> Result<Opened, OpenError> {
    if trust == Trust::Record
        && let Some(record) = trusted(store, place, clock).await?
    {
        return Ok(Opened { record, trust, is_news: false });
    }
    let probed = probe(store, &key::random_hex(), Deadline::after(PROBE_TIMEOUT)).await?;
    clock.observe_store_ms(probed.store_ms);
    let passed =
        ProbeRecord { version: PROBE_VERSION, place: place.to_owned(), passed_at_ms: clock.now_ms() };
    let (record, is_news) = record(store, passed).await?;
    Ok(Opened { record, trust: Trust::Probe, is_news })
}

/// The record, if it speaks for this place; the same answer tells the time.
async fn trusted(store: &dyn Store, place: &str, clock: &Clock) -> Result<Option<StoreRecord>, super::Error> {
    let Some(object) = store.get(key::STORE).await.map_err(super::Error::Store)? else { return Ok(None) };
    let record = decode(&object)?;
    let passed = record.probe.as_ref().is_some_and(|probe| probe.is_of(PROBE_VERSION, place));
    // A probe also measures the clock; who skips it needs another answer to that.
    let Some(answered_ms) = object.answered_ms.filter(|_| passed) else { return Ok(None) };
    clock.observe_store_ms(answered_ms);
    Ok(Some(record))
}

/// Makes the record say so, and the store one of ours if it is new. Whether that changed anything.
async fn record(store: &dyn Store, passed: ProbeRecord) -> Result<(StoreRecord, bool), super::Error> {
    let mut last = None;
    for _ in 0..RECORD_ATTEMPTS_MAX {
        let base = load(store).await?;
        let written = match &base {
            None => {
                let next = StoreRecord::new(Incarnation::fresh(), passed.passed_at_ms, Some(passed.clone()));
                store.create(key::STORE, next.encode()).await.map(|_| next)
            }
            Some(base) if base.doc.probe.as_ref().is_some_and(|p| p.is_of(passed.version, &passed.place)) => {
                return Ok((base.doc.clone(), false));
            }
            // It may hold what we would drop.
            Some(base) if base.doc.min_writer > WRITER => return Ok((base.doc.clone(), false)),
            Some(base) => {
                let next = StoreRecord { probe: Some(passed.clone()), ..base.doc.clone() };
                store.replace(key::STORE, next.encode(), &base.etag).await.map(|_| next)
            }
        };
        match (written, base) {
            (Ok(next), _) => return Ok((next, true)),
            // Another process was faster, or our own write landed and its answer was lost: look again.
            (Err(error @ (store::Error::Conflict { .. } | store::Error::Indefinite { .. })), _) => {
                last = Some(error);
            }
            // The store is as good without: it is probed again the next time.
            (Err(error), Some(base)) => {
                tracing::warn!(%error, "the result of the probe could not be recorded");
                return Ok((base.doc, false));
            }
            (Err(error), None) => return Err(super::Error::Store(error)),
        }
    }
    Err(super::Error::Store(last.expect("an attempt that does not return leaves an error")))
}

async fn load(store: &dyn Store) -> Result<Option<Versioned<StoreRecord>>, super::Error> {
    let Some(object) = store.get(key::STORE).await.map_err(super::Error::Store)? else { return Ok(None) };
    Ok(Some(Versioned { doc: decode(&object)?, etag: object.etag }))
}

fn decode(object: &store::Object) -> Result<StoreRecord, super::Error> {
    StoreRecord::decode(&object.bytes).map_err(|error| super::Error::damaged(key::STORE, error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::{Counts, Metered, memory};

    const HERE: &str = "http://here";

    async fn opened(store: &Metered, place: &str, trust: Trust) -> (Opened, Counts) {
        let before = store.counts();
        let opened = open(store, place, trust, &Clock::system()).await.unwrap();
        (opened, store.counts() - before)
    }

    #[tokio::test]
    async fn a_probe_is_recorded_once_and_then_one_read_replaces_it() {
        let store = Metered::new(memory());
        let (first, counts) = opened(&store, HERE, Trust::Record).await;
        assert_eq!((first.trust, first.is_news), (Trust::Probe, true), "nobody knows the store yet");
        assert!(counts.total() > 20, "{counts:?}");
        let (again, counts) = opened(&store, HERE, Trust::Record).await;
        assert_eq!((again.trust, again.is_news, &again.record), (Trust::Record, false, &first.record));
        assert_eq!(counts, Counts { get: 1, ..Counts::default() });
        let (probed, counts) = opened(&store, HERE, Trust::Probe).await;
        assert_eq!((probed.trust, probed.is_news, &probed.record), (Trust::Probe, false, &first.record));
        assert!(counts.total() > 20, "{counts:?}");
    }

    #[tokio::test]
    async fn another_place_or_another_probe_is_probed_and_recorded_under_the_same_id() {
        let store = Metered::new(memory());
        let (first, _) = opened(&store, HERE, Trust::Record).await;
        let (moved, _) = opened(&store, "http://there", Trust::Record).await;
        assert_eq!((moved.trust, moved.is_news), (Trust::Probe, true));
        assert_eq!(
            (moved.record.id, moved.record.created_at_ms),
            (first.record.id, first.record.created_at_ms)
        );
        let older = ProbeRecord { version: 0, place: HERE.to_owned(), passed_at_ms: 1 };
        let older = StoreRecord { probe: Some(older), ..first.record.clone() };
        store.put(key::STORE, older.encode()).await.unwrap();
        let (renewed, _) = opened(&store, HERE, Trust::Record).await;
        assert_eq!(
            (renewed.trust, renewed.is_news, renewed.record.id),
            (Trust::Probe, true, first.record.id)
        );
    }

    #[tokio::test]
    async fn a_record_without_a_probe_keeps_its_id() {
        let store = Metered::new(memory());
        let old = StoreRecord::new(Incarnation::fresh(), 5, None);
        store.create(key::STORE, old.encode()).await.unwrap();
        let (opened, _) = opened(&store, HERE, Trust::Record).await;
        assert_eq!((opened.record.id, opened.record.created_at_ms, opened.is_news), (old.id, 5, true));
    }

    #[tokio::test]
    async fn processes_that_open_at_once_agree_on_the_id() {
        let store: Arc<dyn Store> = memory();
        let clock = Clock::system();
        let all = futures::future::join_all((0..8).map(|_| open(&*store, HERE, Trust::Probe, &clock))).await;
        let ids: Vec<_> = all.into_iter().map(|opened| opened.unwrap().record.id).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }

    #[tokio::test]
    async fn the_read_of_the_record_measures_the_clock() {
        let store = Metered::new(memory());
        opened(&store, HERE, Trust::Record).await;
        let slow = Clock::manual(1_000_000);
        open(&store, HERE, Trust::Record, &slow).await.unwrap();
        assert!(slow.now_ms().abs_diff(Clock::system().local_ms()) < 5_000, "{}", slow.now_ms());
    }

    #[tokio::test]
    async fn a_damaged_record_is_reported() {
        let store = memory();
        store.put(key::STORE, "no record".into()).await.unwrap();
        for trust in [Trust::Probe, Trust::Record] {
            let error = open(&*store, HERE, trust, &Clock::system()).await.unwrap_err();
            assert!(error.to_string().contains("`meta/store` cannot be read"), "{error}");
        }
    }
}
