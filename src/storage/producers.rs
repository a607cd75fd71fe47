//! What is remembered of the producers of a stream (*pure*).
//!
//! Those heard of last stand in the ledger. Where they become too many, all but the newest go to one immutable page
//! beside the stream's chunks, which the ledger names; it is looked at when a producer is not in the ledger. A producer
//! that was silent for a week is forgotten when the page is written.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;

use super::frame::Damaged;
use super::index::Ref;
use crate::types::ledger::Producer;
use crate::types::limits::{PRODUCER_AGE_MS_MIN, PRODUCERS_BYTES_MAX};

/// What is remembered of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its last append.
    pub last: Producer,
    /// When that was.
    pub at_ms: u64,
}

impl Known {
    fn bytes(&self) -> usize {
        self.last.id().len() + 24
    }
}

/// Names the page of a stream's producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerPage {
    /// Where it lies.
    pub object: Ref,
    /// When the one that was silent for longest was heard of.
    pub oldest_ms: u64,
}

/// The producers of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    /// The one heard of last comes last.
    pub newest: Vec<Known>,
    /// Where the others are. What it says of one of the newest is old.
    pub page: Option<ProducerPage>,
}

impl Producers {
    /// What is remembered of one of the newest.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Known> {
        self.newest.iter().find(|known| known.last.id() == id)
    }

    /// Remembers the last append of a producer; false if there is no room for one more.
    #[must_use]
    pub fn remember(&mut self, producer: &Producer, at_ms: u64) -> bool {
        let new = Known { last: producer.clone(), at_ms };
        let count = self.newest.len();
        self.newest.retain(|known| known.last.id() != producer.id());
        let is_known = self.newest.len() < count;
        let has_room = is_known || self.bytes() + new.bytes() <= PRODUCERS_BYTES_MAX || self.forgets(at_ms);
        if has_room {
            self.newest.push(new);
        }
        has_room
    }

    /// Puts what the page says of a producer among the newest.
    pub fn recall(&mut self, known: Known) {
        if self.get(known.last.id()).is_none() {
            self.newest.insert(0, known);
        }
    }

    /// Whether there are more in the ledger than may stay there.
    #[must_use]
    pub fn overflow(&self, bytes_max: usize) -> bool {
        bytes(&self.newest) > bytes_max
    }

    /// Leaves the newest in the ledger, half of what may stay there, and yields what the page is to hold from now on:
    /// the others, and those of the page there is.
    pub fn spill(&mut self, page: Vec<Known>, bytes_max: usize, now_ms: u64) -> Vec<Known> {
        let mut room = bytes_max / 2;
        let stay = self.newest.iter().rev().take_while(|known| {
            let fits = known.bytes() <= room;
            room = room.saturating_sub(known.bytes());
            fits
        });
        let go = self.newest.len() - stay.count();
        let older: Vec<_> = self.newest.drain(..go).collect();
        let mut all: HashMap<String, Known> = HashMap::new();
        for known in page.into_iter().chain(older) {
            all.insert(known.last.id().to_owned(), known);
        }
        let mut others: Vec<_> = all.into_values().filter(|known| !is_silent(known.at_ms, now_ms)).collect();
        others.retain(|known| self.get(known.last.id()).is_none());
        others.sort_unstable_by(|a, b| a.last.id().cmp(b.last.id()));
        others
    }

    fn bytes(&self) -> usize {
        let page =
            self.page.map_or(0, |page| usize::try_from(page.object.metered_bytes).unwrap_or(usize::MAX));
        bytes(&self.newest).saturating_add(page)
    }

    /// Whether the next page will hold fewer.
    fn forgets(&self, now_ms: u64) -> bool {
        let oldest = self.newest.first().map(|known| known.at_ms).into_iter();
        oldest.chain(self.page.map(|page| page.oldest_ms)).any(|at_ms| is_silent(at_ms, now_ms))
    }
}

fn bytes(producers: &[Known]) -> usize {
    producers.iter().map(Known::bytes).sum()
}

fn is_silent(at_ms: u64, now_ms: u64) -> bool {
    at_ms.saturating_add(PRODUCER_AGE_MS_MIN) <= now_ms
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProducerProto {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(uint64, tag = "3")]
    seq: u64,
    #[prost(uint64, tag = "4")]
    at_ms: u64,
}

impl ProducerProto {
    pub(super) fn of(producer: &Producer, at_ms: u64) -> Self {
        Self { id: producer.id().to_owned(), epoch: producer.epoch, seq: producer.seq, at_ms }
    }

    pub(super) fn known(&self) -> Result<Known, Damaged> {
        let last = Producer::new(&self.id, self.epoch, self.seq);
        let last = last.map_err(|e| Damaged::new("producer", e.to_string()))?;
        Ok(Known { last, at_ms: self.at_ms })
    }
}

impl From<&Known> for ProducerProto {
    fn from(known: &Known) -> Self {
        Self::of(&known.last, known.at_ms)
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProducersProto {
    #[prost(message, repeated, tag = "1")]
    producers: Vec<ProducerProto>,
}

/// What a page holds, as it is stored.
#[must_use]
pub fn encode(producers: &[Known]) -> Bytes {
    ProducersProto { producers: producers.iter().map(ProducerProto::from).collect() }.encode_to_vec().into()
}

/// Reads what a page holds.
pub fn decode(bytes: Bytes) -> Result<Vec<Known>, Damaged> {
    let page = ProducersProto::decode(bytes).map_err(|e| Damaged::new("producers", e.to_string()))?;
    page.producers.iter().map(ProducerProto::known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::index::Target;
    use crate::storage::key::{DataClass, ObjectId};

    const MAX: usize = 12 * 1024;

    fn producer(n: u64, seq: u64) -> Producer {
        Producer::new(&format!("producer-{n:027}"), 0, seq).expect("legal")
    }

    fn page(others: &[Known]) -> ProducerPage {
        let bytes = encode(others).len() as u64;
        let object = Ref {
            id: ObjectId::fresh(),
            target: Target::Chunk { class: DataClass::Infinite, first: 0, footer_at: 0, bytes, writer: None },
            base_seq: 0,
            count: 1,
            timestamp_floor: 0,
            last_timestamp: 0,
            first_arrival_ms: 0,
            last_arrival_ms: 0,
            metered_bytes: bytes,
        };
        ProducerPage { object, oldest_ms: others.iter().map(|known| known.at_ms).min().expect("not empty") }
    }

    #[test]
    fn a_page_round_trips_and_damage_is_told() {
        let all: Vec<_> = (0..9).map(|n| Known { last: producer(n, n), at_ms: 7 * n }).collect();
        assert_eq!(decode(encode(&all)).expect("whole"), all);
        assert!(decode(Bytes::from_static(&[10, 9, 1])).is_err());
        assert!(decode(encode(&[])).expect("whole").is_empty());
    }

    #[test]
    fn the_newest_stay_and_nobody_is_forgotten_for_a_week() {
        let mut producers = Producers::default();
        let mut others = Vec::new();
        for n in 0..2_000 {
            assert!(producers.remember(&producer(n, 0), n));
            if producers.overflow(MAX) {
                others = producers.spill(others, MAX, n);
                producers.page = Some(page(&others));
                assert!(!producers.overflow(MAX) && producers.newest.len() > 90);
            }
        }
        assert_eq!(others.len() + producers.newest.len(), 2_000);
        assert_eq!(producers.newest.last().map(|known| &known.last), Some(&producer(1_999, 0)));
        // One that comes back is the ledger's again, and its older trace gives way.
        let back = others.iter().find(|known| known.last == producer(3, 0)).cloned().expect("in the page");
        producers.recall(back);
        assert!(producers.remember(&producer(3, 1), 2_000));
        let mut all = producers.spill(others, MAX, 2_000);
        all.extend(producers.newest.clone());
        assert_eq!(all.len(), 2_000);
        assert!(all.contains(&Known { last: producer(3, 1), at_ms: 2_000 }));
        // Whoever was silent for a week is not.
        let mut later = Producers { newest: all, page: None };
        let others = later.spill(Vec::new(), MAX, PRODUCER_AGE_MS_MIN + 1_000);
        assert_eq!(others.len() + later.newest.len(), 2_000 - 1_000);
    }

    #[test]
    fn one_more_is_refused_only_while_none_can_be_forgotten() {
        let known = |n| Known { last: producer(n, 0), at_ms: n };
        let others: Vec<_> = (0..24_000).map(known).collect();
        let mut full = Producers { newest: Vec::new(), page: Some(page(&others)) };
        let mut n = 24_000;
        while full.remember(&producer(n, 0), n) {
            n += 1;
        }
        assert!((24_001..24_500).contains(&n), "{n}");
        // Those it knows go on.
        full.recall(known(7));
        assert!(full.remember(&producer(7, 1), n));
        assert!(!full.remember(&producer(n, 0), PRODUCER_AGE_MS_MIN - 1));
        assert!(full.remember(&producer(n, 0), PRODUCER_AGE_MS_MIN));
    }
}
