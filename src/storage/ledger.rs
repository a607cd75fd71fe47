//! The ledger of a stream: what it keeps beside its records, inside its manifest (*pure*).
//!
//! Bounded: producers there is no room for lie in a page beside it (`storage/producers.rs`); more forks than there is
//! room for are refused.

use bytes::{Bytes, BytesMut};

use super::frame::Damaged;
use super::index::{Ref, decode_refs, encode_refs};
use super::key::Incarnation;
use super::producers::{ProducerPage, ProducerProto, Producers};
use crate::types::ledger::{ContentType, Lifetime, Producer, StateTag, Unusable, WriterSeq};
use crate::types::limits::LEDGER_FORKS_BYTES_MAX;
use crate::types::name::StreamName;

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its first content is being written: it is not there yet.
    Filling = 1,
    /// It is there.
    Ready = 2,
    /// It was deleted, but forks of it live.
    Retired = 3,
}

/// A stream in some bucket, in one of its lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kin {
    /// The life of its bucket.
    pub bucket: Incarnation,
    /// Its name.
    pub name: StreamName,
    /// Its life.
    pub life: Incarnation,
}

/// What a stream was forked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The source.
    pub source: Kin,
    /// The first sequence number that is not the source's.
    pub at: u64,
    /// How much of what follows there was taken too: bytes of one record, or records.
    pub beyond: u64,
}

/// An object that stands for the beginning of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// The first sequence number that it does not stand for.
    pub at: u64,
    /// Of the object.
    pub content_type: ContentType,
    /// Where it lies.
    pub object: Ref,
}

/// What a stream keeps beside its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Of every record.
    pub content_type: ContentType,
    /// How far it is.
    pub stage: Stage,
    /// Nothing is appended any more.
    pub is_closed: bool,
    /// The append that closed it, if a producer did.
    pub closed_by: Option<Producer>,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Until when its uses are recorded; not before the last of them.
    pub last_used_ms: u64,
    /// The last mark of a writer.
    pub writer_seq: Option<WriterSeq>,
    /// What is remembered of its producers.
    pub producers: Producers,
    /// What it was forked from.
    pub origin: Option<Origin>,
    /// Forks of it that live, or may.
    pub forks: Vec<Kin>,
    /// What stands for its beginning.
    pub stand_in: Option<StandIn>,
}

impl Ledger {
    /// The ledger of a stream that begins now.
    #[must_use]
    pub fn new(content_type: ContentType, lifetime: Lifetime, now_ms: u64) -> Self {
        Self {
            content_type,
            stage: Stage::Ready,
            is_closed: false,
            closed_by: None,
            lifetime,
            last_used_ms: now_ms,
            writer_seq: None,
            producers: Producers::default(),
            origin: None,
            forks: Vec::new(),
            stand_in: None,
        }
    }

    /// Whether the stream can be used at this time.
    pub fn check_usable(&self, now_ms: u64) -> Result<(), Unusable> {
        match self.stage {
            Stage::Filling => Err(Unusable::Unfinished),
            Stage::Retired => Err(Unusable::Retired),
            Stage::Ready if self.has_expired(now_ms) => Err(Unusable::Expired),
            Stage::Ready => Ok(()),
        }
    }

    /// Whether its lifetime is over.
    #[must_use]
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.lifetime.ends_ms(self.last_used_ms).is_some_and(|ends_ms| ends_ms <= now_ms)
    }

    /// The ledger with a use now that changes nothing else, if that is not recorded yet. It is recorded together with
    /// the quarter of the lifetime that follows, so that uses cost one commit in a quarter, and none is cut short.
    #[must_use]
    pub fn renewed(&self, now_ms: u64) -> Option<Self> {
        let Lifetime::Idle(secs) = self.lifetime else { return None };
        let until_ms = now_ms.saturating_add(secs.saturating_mul(1_000) / 4);
        (now_ms > self.last_used_ms).then(|| Self { last_used_ms: until_ms, ..self.clone() })
    }

    /// The objects that it names.
    pub fn objects(&self) -> impl Iterator<Item = Ref> {
        let stand_in = self.stand_in.as_ref().map(|stand_in| stand_in.object);
        stand_in.into_iter().chain(self.producers.page.map(|page| page.object))
    }

    /// Marks a fork; false if there is no room for one more.
    #[must_use]
    pub fn mark_fork(&mut self, fork: Kin) -> bool {
        let bytes = |kin: &Kin| kin.name.as_str().len() + 48;
        if self.forks.iter().map(bytes).sum::<usize>() + bytes(&fork) > LEDGER_FORKS_BYTES_MAX {
            return false;
        }
        self.forks.push(fork);
        true
    }

    /// Whether one of the tags names this state.
    #[must_use]
    pub fn is_in(&self, life: Option<Incarnation>, tail: u64, tags: &[StateTag]) -> bool {
        let life = life.map(|life| life.to_string());
        let is_meant = |tag: &StateTag| life.as_ref().is_none_or(|life| tag.life == *life);
        tags.iter().any(|tag| is_meant(tag) && tag.tail == tail && tag.is_closed == self.is_closed)
    }

    /// Checks that one may follow the other in a life of a stream.
    pub fn check_transition(was: Option<&Self>, is: Option<&Self>) -> Result<(), String> {
        match (was, is) {
            (Some(was), Some(is)) => was.check_follows(is),
            (None, None) => Ok(()),
            _ => Err("a ledger comes or goes".to_owned()),
        }
    }

    fn check_follows(&self, new: &Self) -> Result<(), String> {
        if new.stage < self.stage {
            return Err("a stage goes back".to_owned());
        }
        if self.is_closed && !new.is_closed {
            return Err("a closed stream opens".to_owned());
        }
        if new.content_type != self.content_type || new.lifetime != self.lifetime || new.origin != self.origin
        {
            return Err("what a stream was created as changes".to_owned());
        }
        Ok(())
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LedgerProto {
    #[prost(string, tag = "1")]
    content_type: String,
    #[prost(uint32, tag = "2")]
    stage: u32,
    #[prost(bool, tag = "3")]
    is_closed: bool,
    #[prost(message, optional, tag = "4")]
    closed_by: Option<ProducerProto>,
    #[prost(uint64, optional, tag = "5")]
    idle_secs: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    until_ms: Option<u64>,
    #[prost(uint64, tag = "7")]
    last_used_ms: u64,
    #[prost(bytes = "bytes", tag = "8")]
    writer_seq: Bytes,
    #[prost(message, repeated, tag = "9")]
    producers: Vec<ProducerProto>,
    #[prost(message, optional, tag = "10")]
    origin: Option<KinProto>,
    #[prost(message, repeated, tag = "11")]
    forks: Vec<KinProto>,
    #[prost(message, optional, tag = "12")]
    stand_in: Option<StandInProto>,
    #[prost(message, optional, tag = "13")]
    producer_page: Option<ProducerPageProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StandInProto {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(string, tag = "2")]
    content_type: String,
    #[prost(bytes = "bytes", tag = "3")]
    object: Bytes,
}

impl StandInProto {
    fn of(stand_in: &StandIn) -> Self {
        let StandIn { at, content_type, object } = stand_in;
        Self { at: *at, content_type: content_type.as_str().to_owned(), object: encode_object(*object) }
    }

    fn stand_in(&self) -> Result<StandIn, Damaged> {
        Ok(StandIn {
            at: self.at,
            content_type: ContentType::new(&self.content_type).map_err(|e| damaged(&e.to_string()))?,
            object: decode_object(&self.object)?,
        })
    }
}

fn encode_object(object: Ref) -> Bytes {
    let mut out = BytesMut::new();
    encode_refs(&[object], &mut out);
    out.freeze()
}

fn decode_object(bytes: &Bytes) -> Result<Ref, Damaged> {
    let refs = decode_refs(&mut bytes.clone())?;
    refs.into_iter().next().ok_or_else(|| damaged("it names no object where one should be"))
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProducerPageProto {
    #[prost(bytes = "bytes", tag = "1")]
    object: Bytes,
    #[prost(uint64, tag = "2")]
    oldest_ms: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KinProto {
    #[prost(bytes = "bytes", tag = "1")]
    bucket: Bytes,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bytes = "bytes", tag = "3")]
    life: Bytes,
    /// Of an origin only.
    #[prost(uint64, tag = "4")]
    at: u64,
    #[prost(uint64, tag = "5")]
    beyond: u64,
}

impl KinProto {
    fn of(kin: &Kin, at: u64, beyond: u64) -> Self {
        let Kin { bucket, name, life } = kin;
        let bytes = |incarnation: &Incarnation| Bytes::copy_from_slice(incarnation.as_bytes());
        Self { bucket: bytes(bucket), name: name.as_str().to_owned(), life: bytes(life), at, beyond }
    }

    fn kin(&self) -> Result<Kin, Damaged> {
        Ok(Kin {
            bucket: Incarnation::from_slice(&self.bucket).ok_or_else(|| damaged("bucket"))?,
            name: StreamName::try_from(self.name.as_str()).map_err(|e| damaged(&e.to_string()))?,
            life: Incarnation::from_slice(&self.life).ok_or_else(|| damaged("life"))?,
        })
    }
}

fn damaged(why: &str) -> Damaged {
    Damaged::new("ledger", why)
}

impl From<&Ledger> for LedgerProto {
    fn from(ledger: &Ledger) -> Self {
        let Ledger {
            content_type,
            stage,
            is_closed,
            closed_by,
            lifetime,
            last_used_ms,
            writer_seq,
            producers,
            origin,
            forks,
            stand_in,
        } = ledger;
        let (idle_secs, until_ms) = match *lifetime {
            Lifetime::Endless => (None, None),
            Lifetime::Idle(secs) => (Some(secs), None),
            Lifetime::Until(ms) => (None, Some(ms)),
        };
        Self {
            content_type: content_type.as_str().to_owned(),
            stage: *stage as u32,
            is_closed: *is_closed,
            closed_by: closed_by.as_ref().map(|producer| ProducerProto::of(producer, 0)),
            idle_secs,
            until_ms,
            last_used_ms: *last_used_ms,
            writer_seq: writer_seq.as_ref().map(|seq| seq.as_bytes().clone()).unwrap_or_default(),
            producers: producers.newest.iter().map(ProducerProto::from).collect(),
            origin: origin.as_ref().map(|origin| KinProto::of(&origin.source, origin.at, origin.beyond)),
            forks: forks.iter().map(|fork| KinProto::of(fork, 0, 0)).collect(),
            stand_in: stand_in.as_ref().map(StandInProto::of),
            producer_page: producers.page.map(|page| ProducerPageProto {
                object: encode_object(page.object),
                oldest_ms: page.oldest_ms,
            }),
        }
    }
}

impl TryFrom<LedgerProto> for Ledger {
    type Error = Damaged;

    fn try_from(proto: LedgerProto) -> Result<Self, Damaged> {
        let stage = [Stage::Filling, Stage::Ready, Stage::Retired]
            .into_iter()
            .find(|stage| *stage as u32 == proto.stage)
            .ok_or_else(|| damaged("stage"))?;
        let lifetime = match (proto.idle_secs, proto.until_ms) {
            (None, None) => Lifetime::Endless,
            (Some(secs), None) => Lifetime::Idle(secs),
            (None, Some(ms)) => Lifetime::Until(ms),
            (Some(_), Some(_)) => return Err(damaged("two lifetimes")),
        };
        let page = |p: &ProducerPageProto| {
            Ok::<_, Damaged>(ProducerPage { object: decode_object(&p.object)?, oldest_ms: p.oldest_ms })
        };
        let origin = |p: &KinProto| Ok::<_, Damaged>(Origin { source: p.kin()?, at: p.at, beyond: p.beyond });
        let writer_seq = (!proto.writer_seq.is_empty()).then(|| WriterSeq::new(&proto.writer_seq));
        Ok(Self {
            content_type: ContentType::new(&proto.content_type).map_err(|e| damaged(&e.to_string()))?,
            stage,
            is_closed: proto.is_closed,
            closed_by: proto
                .closed_by
                .as_ref()
                .map(ProducerProto::known)
                .transpose()?
                .map(|known| known.last),
            lifetime,
            last_used_ms: proto.last_used_ms,
            writer_seq: writer_seq.transpose().map_err(|e| damaged(&e.to_string()))?,
            producers: Producers {
                newest: proto.producers.iter().map(ProducerProto::known).collect::<Result<_, _>>()?,
                page: proto.producer_page.as_ref().map(page).transpose()?,
            },
            origin: proto.origin.as_ref().map(origin).transpose()?,
            forks: proto.forks.iter().map(KinProto::kin).collect::<Result<_, _>>()?,
            stand_in: proto.stand_in.as_ref().map(StandInProto::stand_in).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn producer(id: &str, seq: u64) -> Producer {
        Producer::new(id, 0, seq).expect("legal")
    }

    fn kin(name: &str) -> Kin {
        let name = StreamName::try_from(name).expect("legal");
        Kin { bucket: Incarnation::fresh(), name, life: Incarnation::fresh() }
    }

    proptest! {
        #[test]
        fn a_ledger_round_trips(idle: Option<u64>, closed: bool, at: u64, seq in prop::option::of("[!-~]{1,20}")) {
            let lifetime = idle.map_or(Lifetime::Until(at), Lifetime::Idle);
            let mut ledger = Ledger::new(ContentType::octets(), lifetime, at);
            ledger.is_closed = closed;
            ledger.closed_by = closed.then(|| producer("p", at));
            ledger.writer_seq = seq.map(|s| WriterSeq::new(s.as_bytes()).expect("legal"));
            prop_assert!(ledger.producers.remember(&producer("a", at), 5));
            prop_assert!(ledger.mark_fork(kin("x")));
            ledger.origin = Some(Origin { source: kin("y"), at, beyond: 3 });
            prop_assert_eq!(Ledger::try_from(LedgerProto::from(&ledger)).expect("whole"), ledger);
        }
    }

    #[test]
    fn a_use_is_recorded_once_in_a_quarter_of_the_lifetime_and_never_cut_short() {
        let ledger = Ledger::new(ContentType::octets(), Lifetime::Idle(8), 1_000);
        assert!(!ledger.has_expired(8_999) && ledger.has_expired(9_000));
        assert_eq!(ledger.renewed(1_000), None);
        let renewed = ledger.renewed(2_000).expect("it was not recorded");
        assert_eq!(renewed.renewed(4_000), None);
        assert!(!renewed.has_expired(11_999) && renewed.has_expired(12_000));
        assert!(renewed.renewed(4_001).is_some());
        assert_eq!(Ledger::new(ContentType::octets(), Lifetime::Until(5), 0).renewed(4), None);
    }

    #[test]
    fn what_has_happened_to_a_stream_is_never_undone() {
        let open = Ledger::new(ContentType::octets(), Lifetime::Endless, 0);
        let closed = Ledger { is_closed: true, ..open.clone() };
        let retired = Ledger { stage: Stage::Retired, ..open.clone() };
        open.check_follows(&closed).expect("it may close");
        open.check_follows(&retired).expect("it may retire");
        assert!(closed.check_follows(&open).is_err());
        assert!(retired.check_follows(&open).is_err());
        let other = Ledger { lifetime: Lifetime::Idle(1), ..open.clone() };
        assert!(open.check_follows(&other).is_err());
    }
}
