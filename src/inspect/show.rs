//! What is shown of a store, a basin or a bucket, and a stream (*pure*).

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::ledger::LedgerView;
use crate::storage::head::State;
use crate::storage::index::{Ref, Target};
use crate::storage::key::DataClass;
use crate::storage::manifest::Manifest;
use crate::storage::meta::StoreRecord;
use crate::types::config::RetentionPolicy;
use crate::types::name::{PlaceName, StreamName};
use crate::types::time::rfc3339;

/// A store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreView {
    /// Tells it from others.
    pub id: String,
    /// When it was first opened.
    pub created_at: String,
    /// When it last showed that it keeps its word, and to which endpoint.
    pub probed: Option<String>,
    /// Basins, those being deleted and tombstones included.
    pub basins: Vec<PlaceLine>,
    /// Buckets of Durable Streams, likewise.
    pub buckets: Vec<PlaceLine>,
}

/// A basin or a bucket among others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlaceLine {
    /// Its name.
    pub name: String,
    /// `live`, `deleting` or `tombstone`.
    pub state: String,
    /// When it was created.
    pub created_at: String,
}

/// A basin or a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlaceView {
    /// `basin` or `bucket`.
    pub kind: &'static str,
    /// Its name, state and time of creation.
    #[serde(flatten)]
    pub place: PlaceLine,
    /// Its streams, in the order of their names.
    pub streams: Vec<StreamView>,
}

/// A stream, as one version of its manifest has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamView {
    /// Its name.
    pub name: String,
    /// `live` or `tombstone`.
    pub state: String,
    /// When it was created.
    pub created_at: String,
    /// Commits of its key so far, those of earlier lives included.
    pub version: u64,
    /// Its life.
    pub incarnation: String,
    /// `standard` or `express`.
    pub storage_class: String,
    /// Seconds, or `infinite`.
    pub retention: String,
    /// The next sequence number.
    pub next_seq_num: u64,
    /// Sequence numbers below are gone.
    pub trim_point: u64,
    /// Age of the last write in seconds, if there was one.
    pub last_write_age_secs: Option<u64>,
    /// What an append that names a token must name; empty for none.
    pub fencing_token: String,
    /// Records inside the manifest.
    pub inline_records: u64,
    /// What they take.
    pub inline_bytes: usize,
    /// What the manifest takes.
    pub manifest_bytes: usize,
    /// Refs by level, highest and oldest first.
    pub levels: Vec<LevelView>,
    /// The refs in the manifest, oldest first; left out where many streams are shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<RefView>,
    /// An upload that began under an earlier one is made again.
    pub collection_epoch: u64,
    /// Everything before this is compacted.
    pub compacted_to: u64,
    /// Records of this range still lie in a data class that is too short: from, to.
    pub copies_pending: Option<(u64, u64)>,
    /// The marker under which the sweeper visits it.
    pub due: String,
    /// What a Durable stream keeps beside its messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

/// One level of a stream's index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LevelView {
    /// 0 names chunks, n names pages of level n − 1.
    pub level: usize,
    /// Refs in the manifest.
    pub refs: usize,
    /// Sequence number of the first record under them.
    pub first_seq_num: u64,
    /// Records under them.
    pub records: u64,
    /// Metered bytes under them.
    pub metered_bytes: u64,
    /// Bytes of the chunks, by class; of level 0 only.
    pub chunk_bytes: BTreeMap<&'static str, u64>,
}

/// A chunk or a page that the manifest names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefView {
    /// `chunk`, or `page` and the level of the refs in it.
    pub kind: String,
    /// The object.
    pub id: String,
    /// The data class of a chunk.
    pub class: Option<&'static str>,
    /// Sequence number of the first record.
    pub first_seq_num: u64,
    /// Records.
    pub records: u64,
    /// Size of a chunk; the number of refs in a page.
    pub size: u64,
    /// How long ago its newest record arrived.
    pub age_secs: u64,
}

impl RefView {
    fn of(r: &Ref, now_ms: u64) -> Self {
        let (kind, class, size) = match r.target {
            Target::Chunk { class, bytes, .. } => ("chunk".to_owned(), Some(class.as_str()), bytes),
            Target::Page { level, refs } => (format!("page {level}"), None, u64::from(refs)),
        };
        Self {
            kind,
            id: r.id.to_string(),
            class,
            first_seq_num: r.base_seq,
            records: r.count,
            size,
            age_secs: now_ms.saturating_sub(r.last_arrival_ms) / 1_000,
        }
    }
}

impl StoreView {
    pub(super) fn of(record: &StoreRecord, basins: Vec<PlaceLine>, buckets: Vec<PlaceLine>) -> Self {
        let probed =
            record.probe.as_ref().map(|probe| format!("{} at {}", rfc3339(probe.passed_at_ms), probe.place));
        Self { id: record.id.to_string(), created_at: rfc3339(record.created_at_ms), probed, basins, buckets }
    }
}

impl PlaceLine {
    pub(super) fn of(name: &PlaceName, state: State, created_at_ms: u64) -> Self {
        Self { name: name.as_str().to_owned(), state: lower(state), created_at: rfc3339(created_at_ms) }
    }
}

impl StreamView {
    pub(super) fn of(name: &StreamName, manifest: &Manifest, now_ms: u64) -> Self {
        let log = &manifest.log;
        let is_written = log.next_seq_num > 0;
        Self {
            name: name.to_string(),
            state: lower(manifest.head.state),
            created_at: rfc3339(manifest.created_at_ms),
            version: manifest.head.version,
            incarnation: manifest.head.incarnation.to_string(),
            storage_class: lower(manifest.config.storage_class),
            retention: match manifest.config.retention_policy {
                RetentionPolicy::Age(secs) => secs.to_string(),
                RetentionPolicy::Infinite => "infinite".to_owned(),
            },
            next_seq_num: log.next_seq_num,
            trim_point: log.trim_point,
            last_write_age_secs: is_written.then(|| now_ms.saturating_sub(log.last_arrival_ms) / 1_000),
            fencing_token: log.fencing_token.as_str().to_owned(),
            inline_records: manifest.tail.count(),
            inline_bytes: manifest.tail.bytes(),
            manifest_bytes: manifest.encode().len(),
            levels: levels(manifest),
            refs: manifest.levels.iter().rev().flatten().map(|r| RefView::of(r, now_ms)).collect(),
            collection_epoch: manifest.collection_epoch,
            compacted_to: manifest.upkeep.compacted_to,
            copies_pending: manifest.upkeep.copy.map(|copy| (copy.from, copy.to)),
            due: manifest.due.clone(),
            ledger: log.ledger.as_deref().map(|ledger| LedgerView::of(ledger, now_ms)),
        }
    }
}

fn levels(manifest: &Manifest) -> Vec<LevelView> {
    let views = manifest.levels.iter().enumerate().rev().filter_map(|(level, refs)| {
        let first = refs.first()?;
        Some(LevelView {
            level,
            refs: refs.len(),
            first_seq_num: first.base_seq,
            records: refs.iter().map(|r| r.count).sum(),
            metered_bytes: refs.iter().map(|r| r.metered_bytes).sum(),
            chunk_bytes: chunk_bytes(refs),
        })
    });
    views.collect()
}

fn chunk_bytes(refs: &[Ref]) -> BTreeMap<&'static str, u64> {
    let of = |wanted: DataClass| {
        let sizes = refs.iter().filter_map(|r| match r.target {
            Target::Chunk { class, bytes, .. } if class == wanted => Some(bytes),
            Target::Chunk { .. } | Target::Page { .. } => None,
        });
        sizes.sum::<u64>()
    };
    let classes = DataClass::ALL.into_iter().map(|class| (class.as_str(), of(class)));
    classes.filter(|(_, bytes)| *bytes > 0).collect()
}

/// A name as people write it.
fn lower(value: impl fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

impl fmt::Display for StoreView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "store {} since {}", self.id, self.created_at)?;
        writeln!(f, "probed {}", self.probed.as_deref().unwrap_or("never, as far as its record says"))?;
        for (kind, places) in [("basin", &self.basins), ("bucket", &self.buckets)] {
            if kind == "bucket" && places.is_empty() {
                break;
            }
            writeln!(f, "\n{kind:<48}  {:<9}  created", "state")?;
            for PlaceLine { name, state, created_at } in places {
                writeln!(f, "{name:<48}  {state:<9}  {created_at}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for PlaceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlaceLine { name, state, created_at } = &self.place;
        writeln!(f, "{} {name}, {state} since {created_at}", self.kind)?;
        let is_bucket = self.kind == "bucket";
        let ledger = if is_bucket { format!("  {:<8}  {:<32}", "stage", "lifetime") } else { String::new() };
        writeln!(
            f,
            "\n{:>12}  {:>12}  {:>14}  {:>10}{ledger}  stream",
            "next", "trimmed to", "metered bytes", "idle s"
        )?;
        for stream in &self.streams {
            let metered: u64 = stream.levels.iter().map(|level| level.metered_bytes).sum();
            let idle = stream.last_write_age_secs.map_or_else(|| "-".to_owned(), |secs| secs.to_string());
            let name = &stream.name;
            let ledger = stream.ledger.as_ref().map_or_else(String::new, |ledger| {
                format!("  {:<8}  {:<32}", ledger.state(), ledger.lifetime)
            });
            writeln!(
                f,
                "{:>12}  {:>12}  {metered:>14}  {idle:>10}{ledger}  {name:?}",
                stream.next_seq_num, stream.trim_point
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for StreamView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "stream {:?}, {} since {}", self.name, self.state, self.created_at)?;
        let mut line = |what: &str, value: &dyn fmt::Display| writeln!(f, "  {what:<18}{value}");
        line("incarnation", &self.incarnation)?;
        line("version", &self.version)?;
        line("storage class", &self.storage_class)?;
        line("retention", &self.retention)?;
        line("records", &format_args!("{} to {}", self.trim_point, self.next_seq_num))?;
        if let Some(secs) = self.last_write_age_secs {
            line("last write", &format_args!("{secs} s ago"))?;
        }
        if !self.fencing_token.is_empty() {
            line("fencing token", &format_args!("{:?}", self.fencing_token))?;
        }
        line("manifest", &format_args!("{} bytes", self.manifest_bytes))?;
        line("inline", &format_args!("{} records, {} bytes", self.inline_records, self.inline_bytes))?;
        line("collection epoch", &self.collection_epoch)?;
        line("compacted to", &self.compacted_to)?;
        if let Some((from, to)) = self.copies_pending {
            line("copies pending", &format_args!("{from} to {to}"))?;
        }
        line("due", &self.due)?;
        if let Some(ledger) = &self.ledger {
            ledger.fmt(f)?;
        }
        writeln!(
            f,
            "\n{:>5}  {:>5}  {:>12}  {:>12}  {:>14}  chunk bytes",
            "level", "refs", "first", "records", "metered bytes"
        )?;
        for level in &self.levels {
            let LevelView { level, refs, first_seq_num, records, metered_bytes, chunk_bytes } = level;
            let chunks: Vec<_> =
                chunk_bytes.iter().map(|(class, bytes)| format!("{class} {bytes}")).collect();
            let chunks = chunks.join(", ");
            writeln!(
                f,
                "{level:>5}  {refs:>5}  {first_seq_num:>12}  {records:>12}  {metered_bytes:>14}  {chunks}"
            )?;
        }
        if !self.refs.is_empty() {
            let head = ["kind", "class", "first", "records", "size", "age s"];
            let [kind, class, first, records, size, age] = head;
            writeln!(f, "\n{kind:<7}  {class:<5}  {first:>12}  {records:>10}  {size:>10}  {age:>10}  id")?;
        }
        for r in &self.refs {
            let RefView { kind, id, class, first_seq_num, records, size, age_secs } = r;
            let class = class.unwrap_or("-");
            writeln!(
                f,
                "{kind:<7}  {class:<5}  {first_seq_num:>12}  {records:>10}  {size:>10}  {age_secs:>10}  {id}"
            )?;
        }
        Ok(())
    }
}
