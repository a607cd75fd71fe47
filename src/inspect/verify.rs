//! Whether what a store holds is sound: everything is there, whole, dense and in order.

use std::fmt;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use serde::Serialize;

use super::{Inspector, Result, identity};
use crate::storage::chunk::{Footer, decode_block, open_block};
use crate::storage::head::State;
use crate::storage::index::{Page, Ref, Target};
use crate::storage::key::{self, Incarnation};
use crate::storage::ledger::Ledger;
use crate::storage::manifest::Manifest;
use crate::storage::record::decode_run;
use crate::store::Store;
use crate::types::error::describe;
use crate::types::name::{PlaceName, StreamName};

/// Chunks read at the same time.
const AT_ONCE: usize = 16;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// In which basin, if in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basin: Option<String>,
    /// In which bucket of Durable Streams, if in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// In which stream, if in one.
    pub stream: Option<String>,
    /// What.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.bucket.is_some() { "bucket" } else { "basin" };
        let place = self.bucket.as_ref().or(self.basin.as_ref()).map_or("", String::as_str);
        match &self.stream {
            Some(stream) => write!(f, "{kind} {place} stream {stream:?}: {}", self.what),
            None => write!(f, "{kind} {place}: {}", self.what),
        }
    }
}

impl Finding {
    fn of(place: &PlaceName, stream: Option<String>, what: String) -> Self {
        let (basin, bucket) = match place {
            PlaceName::Basin(name) => (Some(name.to_string()), None),
            PlaceName::Bucket(name) => (None, Some(name.to_string())),
        };
        Self { basin, bucket, stream, what }
    }
}

/// What was read, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Streams read.
    pub streams: u64,
    /// Chunks and pages read.
    pub objects: u64,
    /// Records decoded.
    pub records: u64,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        writeln!(
            f,
            "read {} streams, {} chunks and pages, {} records: {} problems",
            self.streams,
            self.objects,
            self.records,
            self.findings.len()
        )
    }
}

impl Inspector {
    /// Reads everything of the store, a basin or a bucket, or a stream, and tells what is wrong.
    pub async fn verify(&self, place: Option<&PlaceName>, stream: Option<&StreamName>) -> Result<Verified> {
        let mut verified = Verified::default();
        match (place, stream) {
            (Some(place), Some(stream)) => {
                let life = self.place(place).await?.0.incarnation;
                self.verify_stream((place, life), stream, &mut verified).await;
            }
            (Some(place), None) => self.verify_place(place, &mut verified).await?,
            (None, _) => {
                for basin in self.basin_names().await? {
                    self.verify_place(&PlaceName::Basin(basin), &mut verified).await?;
                }
                for bucket in self.bucket_names().await? {
                    self.verify_place(&PlaceName::Bucket(bucket), &mut verified).await?;
                }
            }
        }
        Ok(verified)
    }

    async fn verify_place(&self, place: &PlaceName, verified: &mut Verified) -> Result<()> {
        let head = match self.load(place).await {
            Ok(found) => found.map(|(head, _)| head),
            Err(error) => {
                verified.findings.push(Finding::of(place, None, describe(&error)));
                return Ok(());
            }
        };
        // A bucket that somebody looks at to delete it is as it was.
        let holds = |state| match place {
            PlaceName::Basin(_) => state == State::Live,
            PlaceName::Bucket(_) => matches!(state, State::Live | State::Deleting),
        };
        let Some(head) = head.filter(|head| holds(head.state)) else { return Ok(()) };
        let mut last = None;
        for entry in self.entries(head.incarnation).await? {
            // A creation that died may have left a second entry of a name.
            if last.as_ref() != Some(&entry.name) {
                self.verify_stream((place, head.incarnation), &entry.name, verified).await;
            }
            last = Some(entry.name);
        }
        Ok(())
    }

    async fn verify_stream(
        &self,
        (place, life): (&PlaceName, Incarnation),
        name: &StreamName,
        verified: &mut Verified,
    ) {
        verified.streams += 1;
        let mut walk =
            Walk { store: &*self.store, chunks: Vec::new(), objects: 0, records: 0, wrong: Vec::new() };
        let identity = identity(place, life, name);
        match self.manifest_of(&identity).await {
            Ok(Some(manifest)) if manifest.head.is_live() => walk.stream(&manifest).await,
            Ok(_) => {
                walk.wrong.push("it is listed, but it does not exist: the sweeper will unlist it".to_owned());
            }
            Err(error) => walk.wrong.push(describe(&error)),
        }
        verified.objects += walk.objects;
        verified.records += walk.records;
        let finding = |what| Finding::of(place, Some(name.to_string()), what);
        let findings = walk.wrong.into_iter().map(finding);
        verified.findings.extend(findings);
    }
}

/// A walk over everything under one version of a manifest.
struct Walk<'a> {
    store: &'a dyn Store,
    chunks: Vec<Ref>,
    objects: u64,
    records: u64,
    wrong: Vec<String>,
}

/// What a chunk holds of a ref.
struct Held {
    records: u64,
    last_timestamp: u64,
}

impl Walk<'_> {
    async fn stream(&mut self, manifest: &Manifest) {
        for refs in manifest.levels.iter().rev() {
            self.collect(manifest, refs).await;
        }
        self.check_order(manifest);
        self.chunks.extend(manifest.log.ledger.as_deref().into_iter().flat_map(Ledger::objects));
        let chunks = std::mem::take(&mut self.chunks);
        self.objects += chunks.len() as u64;
        let store = self.store;
        let read = stream::iter(chunks).map(|r| async move { (r, read_chunk(store, manifest, &r).await) });
        let mut read = std::pin::pin!(read.buffered(AT_ONCE));
        while let Some((r, held)) = read.next().await {
            match held {
                Ok(Held { records, last_timestamp }) => {
                    self.records += records;
                    if last_timestamp != r.last_timestamp {
                        let at = r.base_seq;
                        self.wrong
                            .push(format!("the chunk at {at} does not end with the timestamp of its ref"));
                    }
                }
                Err(what) => self.wrong.push(what),
            }
        }
        self.check_tail(manifest);
        if let Ok(None) = self.store.get(&manifest.due).await {
            self.wrong.push(format!("its due marker `{}` is not there: it is never swept", manifest.due));
        }
    }

    /// Gathers the chunk refs under some refs.
    fn collect<'b>(&'b mut self, manifest: &'b Manifest, refs: &'b [Ref]) -> BoxFuture<'b, ()> {
        Box::pin(async move {
            for r in refs {
                if let Target::Chunk { .. } = r.target {
                    self.chunks.push(*r);
                    continue;
                }
                match read_page(self.store, manifest, r).await {
                    Ok(page) => {
                        self.objects += 1;
                        let (first, last) = (page.refs.first(), page.refs.last());
                        let spans = first.map(|r| r.base_seq) == Some(r.base_seq)
                            && last.map(Ref::end_seq) == Some(r.end_seq());
                        if !spans {
                            self.wrong.push(format!("the page at {} is not what its ref says", r.base_seq));
                        }
                        self.collect(manifest, &page.refs).await;
                    }
                    Err(what) => self.wrong.push(what),
                }
            }
        })
    }

    /// Numbers are dense, timestamps and arrivals do not decrease.
    fn check_order(&mut self, manifest: &Manifest) {
        let mut expected = self.chunks.first().map_or_else(|| manifest.tail_base(), |r| r.base_seq);
        let (mut timestamp, mut arrival_ms) = (0, 0);
        for r in &self.chunks {
            let at = r.base_seq;
            if at != expected {
                self.wrong.push(format!("records {expected} to {at} are named by nothing"));
            }
            if r.last_timestamp < timestamp || r.first_arrival_ms < arrival_ms {
                self.wrong.push(format!("times go back at record {at}"));
            }
            (expected, timestamp, arrival_ms) = (r.end_seq(), r.last_timestamp, r.last_arrival_ms);
        }
        if expected != manifest.tail_base() {
            self.wrong.push(format!("records {expected} to {} are named by nothing", manifest.tail_base()));
        }
    }

    fn check_tail(&mut self, manifest: &Manifest) {
        let mut at = manifest.tail_base();
        for commit in &manifest.tail.0 {
            match decode_run(&commit.run, commit.count) {
                Ok(records) => {
                    self.records += records.len() as u64;
                    if !records.is_sorted_by_key(|r| r.timestamp) {
                        self.wrong.push(format!("timestamps go back after record {at}"));
                    }
                }
                Err(error) => self.wrong.push(format!("the inline records from {at} on: {error}")),
            }
            at += commit.count;
        }
    }
}

async fn read_page(store: &dyn Store, manifest: &Manifest, r: &Ref) -> std::result::Result<Page, String> {
    let key = key::page(&manifest.hash, manifest.head.incarnation, r.id);
    match store.get(&key).await {
        Ok(Some(object)) => {
            Page::decode(&object.bytes, manifest.head.incarnation).map_err(|e| format!("`{key}`: {e}"))
        }
        Ok(None) => Err(format!("`{key}` is named and not there")),
        Err(error) => Err(describe(&error)),
    }
}

/// Reads a chunk whole, and every record that a ref means.
async fn read_chunk(store: &dyn Store, manifest: &Manifest, r: &Ref) -> std::result::Result<Held, String> {
    let Target::Chunk { class, first, footer_at, bytes, .. } = r.target else {
        return Err(format!("a page where a chunk should be, at {}", r.base_seq));
    };
    let key = key::chunk(class, &manifest.hash, manifest.head.incarnation, r.id);
    let object = match store.get(&key).await {
        Ok(Some(object)) => object.bytes,
        Ok(None) => return Err(format!("`{key}` is named and not there")),
        Err(error) => return Err(describe(&error)),
    };
    let damaged = |why: &dyn fmt::Display| format!("`{key}`: {why}");
    if object.len() as u64 != bytes {
        return Err(damaged(&"not as long as its ref says"));
    }
    let part = |from: u64, to: u64| {
        let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        (from <= to && to <= object.len()).then(|| object.slice(from..to))
    };
    let footer = part(footer_at, bytes).ok_or_else(|| damaged(&"no footer"))?;
    let footer = Footer::decode(&footer, r.target.written_by(manifest.head.incarnation));
    let footer = footer.map_err(|e| damaged(&e))?;
    let wanted = first..first + r.count;
    let (mut records, mut last_timestamp) = (0, r.timestamp_floor);
    for (_, block) in footer.blocks_of(wanted.clone()) {
        let sealed =
            part(block.range().start, block.range().end).ok_or_else(|| damaged(&"a block is cut off"))?;
        let run = open_block(&sealed).map_err(|e| damaged(&e))?;
        for (place, record) in (block.first..).zip(decode_block(&run, block).map_err(|e| damaged(&e))?) {
            if wanted.contains(&place) {
                let timestamp = record.timestamp.max(r.timestamp_floor);
                if timestamp < last_timestamp {
                    return Err(damaged(&"timestamps go back"));
                }
                (records, last_timestamp) = (records + 1, timestamp);
            }
        }
    }
    if records == r.count {
        Ok(Held { records, last_timestamp })
    } else {
        Err(damaged(&"fewer records than its ref says"))
    }
}
