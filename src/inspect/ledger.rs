//! What is shown of a stream's ledger (*pure*).

use std::fmt;

use serde::Serialize;

use crate::storage::ledger::{Kin, Ledger, Stage};
use crate::types::ledger::Lifetime;
use crate::types::time::rfc3339;

/// What a Durable stream keeps beside its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerView {
    /// Of every message.
    pub content_type: String,
    /// `filling` until its first content is whole, then `ready`; `retired` once it is deleted while forks live.
    pub stage: &'static str,
    /// Whether nothing follows any more.
    pub is_closed: bool,
    /// `endless`, `idle` and seconds, or `until` and a time.
    pub lifetime: String,
    /// When it ends if it is not used any more, if it ends at all.
    pub ends_at: Option<String>,
    /// The last mark of a writer, as far as it is text.
    pub writer_seq: Option<String>,
    /// Its producers, the one heard of last at the end, but for those in the page.
    pub producers: Vec<ProducerView>,
    /// The page of producers that were not heard of for longer, if there is one.
    pub producer_page: Option<PageView>,
    /// What it was forked from.
    pub forked_from: Option<OriginView>,
    /// Forks of it that live, or may.
    pub forks: Vec<KinView>,
    /// What stands for its beginning.
    pub snapshot: Option<SnapshotView>,
}

/// A producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProducerView {
    /// Who.
    pub id: String,
    /// Lower ones are shut out.
    pub epoch: u64,
    /// Its last append.
    pub seq: u64,
    /// How long ago that was.
    pub age_secs: u64,
}

/// A page of producers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageView {
    /// The object.
    pub id: String,
    /// What it holds.
    pub bytes: u64,
    /// How long ago the one that was silent for longest was heard of.
    pub oldest_age_secs: u64,
}

/// A stream in some bucket, in one of its lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KinView {
    /// The life of its bucket.
    pub bucket: String,
    /// Its name.
    pub stream: String,
    /// Its life.
    pub incarnation: String,
}

/// Where a fork begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OriginView {
    /// The source.
    #[serde(flatten)]
    pub source: KinView,
    /// The first sequence number that is not the source's.
    pub at: u64,
    /// How much of what follows there was taken too: bytes of one message, or messages of JSON.
    pub beyond: u64,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotView {
    /// The first sequence number that it does not stand for.
    pub at: u64,
    /// Of its bytes.
    pub content_type: String,
    /// Their number.
    pub bytes: u64,
    /// The object.
    pub id: String,
}

impl LedgerView {
    pub(super) fn of(ledger: &Ledger, now_ms: u64) -> Self {
        let producers = ledger.producers.newest.iter().map(|known| ProducerView {
            id: known.last.id().to_owned(),
            epoch: known.last.epoch,
            seq: known.last.seq,
            age_secs: now_ms.saturating_sub(known.at_ms) / 1_000,
        });
        let forked_from = ledger.origin.as_ref().map(|origin| OriginView {
            source: KinView::of(&origin.source),
            at: origin.at,
            beyond: origin.beyond,
        });
        let snapshot = ledger.stand_in.as_ref().map(|stand_in| SnapshotView {
            at: stand_in.at,
            content_type: stand_in.content_type.as_str().to_owned(),
            bytes: stand_in.object.metered_bytes,
            id: stand_in.object.id.to_string(),
        });
        let writer_seq = ledger.writer_seq.as_ref();
        Self {
            content_type: ledger.content_type.as_str().to_owned(),
            stage: match ledger.stage {
                Stage::Filling => "filling",
                Stage::Ready => "ready",
                Stage::Retired => "retired",
            },
            is_closed: ledger.is_closed,
            lifetime: match ledger.lifetime {
                Lifetime::Endless => "endless".to_owned(),
                Lifetime::Idle(secs) => format!("idle {secs}"),
                Lifetime::Until(ms) => format!("until {}", rfc3339(ms)),
            },
            ends_at: ledger.lifetime.ends_ms(ledger.last_used_ms).map(rfc3339),
            writer_seq: writer_seq.map(|seq| String::from_utf8_lossy(seq.as_bytes()).into_owned()),
            producers: producers.collect(),
            producer_page: ledger.producers.page.map(|page| PageView {
                id: page.object.id.to_string(),
                bytes: page.object.metered_bytes,
                oldest_age_secs: now_ms.saturating_sub(page.oldest_ms) / 1_000,
            }),
            forked_from,
            forks: ledger.forks.iter().map(KinView::of).collect(),
            snapshot,
        }
    }

    /// What is said of the stream in one word, where many are shown.
    pub(super) fn state(&self) -> &'static str {
        match self.is_closed && self.stage == "ready" {
            true => "closed",
            false => self.stage,
        }
    }
}

impl KinView {
    fn of(kin: &Kin) -> Self {
        let Kin { bucket, name, life } = kin;
        Self { bucket: bucket.to_string(), stream: name.to_string(), incarnation: life.to_string() }
    }
}

impl fmt::Display for KinView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, stream, incarnation } = self;
        write!(f, "{stream:?}, life {incarnation}, in bucket life {bucket}")
    }
}

impl fmt::Display for LedgerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, value: &dyn fmt::Display| writeln!(f, "  {what:<18}{value}");
        line("content type", &self.content_type)?;
        line("stage", &self.stage)?;
        line("closed", &if self.is_closed { "yes" } else { "no" })?;
        line("lifetime", &self.lifetime)?;
        if let Some(ends_at) = &self.ends_at {
            line("ends", ends_at)?;
        }
        if let Some(seq) = &self.writer_seq {
            line("writer's mark", &format_args!("{seq:?}"))?;
        }
        if let Some(SnapshotView { at, content_type, bytes, id }) = &self.snapshot {
            line("snapshot", &format_args!("at {at}, {bytes} bytes of {content_type}, {id}"))?;
        }
        if let Some(OriginView { source, at, beyond }) = &self.forked_from {
            line("forked from", &format_args!("{source}, at {at} and {beyond} beyond"))?;
        }
        for fork in &self.forks {
            line("fork", fork)?;
        }
        if let Some(PageView { id, bytes, oldest_age_secs }) = &self.producer_page {
            line("more producers", &format_args!("{bytes} bytes, the oldest {oldest_age_secs} s ago, {id}"))?;
        }
        for ProducerView { id, epoch, seq, age_secs } in &self.producers {
            line("producer", &format_args!("{id:?} epoch {epoch} seq {seq}, {age_secs} s ago"))?;
        }
        Ok(())
    }
}
