//! Forks: copies of the beginning of a stream. They share nothing with their source, so either may be trimmed or
//! deleted at any time; the source keeps a mark of every fork that lives, for the answers it gives once it is
//! deleted itself. Large chunks are copied by the store; what follows them is read and written again.

use std::sync::Arc;

use super::creation::{Creation, ForkOf};
use super::error::{Error, Result, of_engine};
use super::messages::has_more;
use super::{DurableRef, identity, ledger, with_ledger};
use crate::engine::{Batch, Snapshot, Stream, Updated};
use crate::service::Service;
use crate::storage::ledger::{Kin, Ledger, Origin, Stage};
use crate::storage::manifest::Manifest;
use crate::types::ledger::{Entry, Unusable};
use crate::types::limits::BATCH_METERED_BYTES_MAX;
use crate::types::record::{ReadLimits, Record, SequencedRecord};

/// So many metered bytes of a copy are read before the fork is made, if there are no more in chunks: what may fit into
/// its creating commit.
const AHEAD_BYTES_MAX: u64 = 64 * 1024;

/// What a new stream begins with.
#[derive(Debug)]
pub(super) struct Content {
    /// Without what the first content changes.
    pub(super) ledger: Ledger,
    /// The number of the first record.
    pub(super) start: u64,
    /// What is copied, as far as it is read.
    pub(super) records: Vec<Record>,
    /// What is copied and not yet read.
    pub(super) rest: Option<Rest>,
    /// What is the stream's own.
    pub(super) own: Vec<Record>,
    /// What the first content demands and changes.
    pub(super) entry: Entry,
}

/// A copy on its way.
#[derive(Debug)]
pub(super) struct Rest {
    stream: Arc<Stream>,
    snapshot: Arc<Snapshot>,
    next: u64,
    end: u64,
    /// The beginning of one more record, taken last.
    part: Option<Record>,
}

impl Rest {
    /// Has the store copy large chunks into the stream that is being filled, and takes what it copied out of what was
    /// read ahead; whether the stream is still being filled.
    pub(super) async fn copy_chunks(&mut self, into: &Stream, ahead: &mut Vec<Record>) -> Result<bool> {
        let copied = into.copy_chunks(&self.stream, &self.snapshot, self.end).await;
        let Some(end) = copied.map_err(|e| of_engine(&self.stream.identity.name, e))? else {
            return Ok(false);
        };
        let begin = self.next - ahead.len() as u64;
        let copied = usize::try_from(end.saturating_sub(begin)).unwrap_or(usize::MAX);
        ahead.drain(..copied.min(ahead.len()));
        self.next = self.next.max(end);
        Ok(true)
    }

    /// Metered bytes in chunks that are copied whole, as far as the manifest itself tells.
    fn chunk_bytes(&self) -> u64 {
        let refs = self.snapshot.doc.levels.iter().flatten();
        refs.filter(|r| r.end_seq() <= self.end).map(|r| r.metered_bytes).sum()
    }

    /// The next records, or none.
    pub(super) async fn next(&mut self) -> Result<Vec<Record>> {
        if self.next >= self.end {
            return Ok(self.part.take().into_iter().collect());
        }
        let batch = read_from(&self.stream, &self.snapshot, self.next, self.end - self.next).await?;
        self.next = batch.next_seq_num;
        let end = self.end;
        // What follows the last one is of another append.
        let copy = |record: SequencedRecord| Record {
            timestamp: None,
            headers: if record.seq_num + 1 == end { Vec::new() } else { record.headers },
            body: record.body,
        };
        Ok(batch.records.into_iter().map(copy).collect())
    }

    fn is_over(&self) -> bool {
        self.next >= self.end && self.part.is_none()
    }
}

/// Up to so many records of a source, the first of them at this place. One that was trimmed since is not passed over.
async fn read_from(stream: &Stream, snapshot: &Arc<Snapshot>, from: u64, count: u64) -> Result<Batch> {
    let limits = ReadLimits { count: Some(count), ..ReadLimits::default() };
    let read = stream.read_batch(snapshot, from, limits, BATCH_METERED_BYTES_MAX).await;
    let batch = read.map_err(|e| of_engine(&stream.identity.name, e))?;
    match batch.records.first() {
        Some(first) if first.seq_num == from => Ok(batch),
        first => Err(Error::Trimmed { start: first.map_or(batch.next_seq_num, |first| first.seq_num) }),
    }
}

impl Service {
    /// What a fork begins with.
    pub(super) async fn fork_content(&self, fork: &ForkOf, creation: &Creation) -> Result<Content> {
        let ForkOf { source, at, beyond } = fork;
        let (stream, snapshot) = self.source(source).await?;
        let from = ledger(&snapshot.doc)?;
        if let Some(wanted) = &creation.content_type
            && !wanted.matches(&from.content_type)
        {
            return Err(Error::OtherTypeThanSource(from.content_type.as_str().to_owned()));
        }
        let (start, tail) = (snapshot.doc.log.trim_point, snapshot.doc.log.next_seq_num);
        let at = at.unwrap_or(tail);
        if at > tail || (*beyond > 0 && at == tail) {
            return Err(Error::BeyondTail { tail });
        }
        if at < start {
            return Err(Error::Trimmed { start });
        }
        let (end, part) = self.beyond(&stream, &snapshot, (at, *beyond)).await?;
        let mut rest = Rest { stream: stream.clone(), snapshot: snapshot.clone(), next: start, end, part };
        let mut records = Vec::new();
        let mut bytes = rest.chunk_bytes();
        while !rest.is_over() && bytes < AHEAD_BYTES_MAX {
            let more = rest.next().await?;
            bytes += more.iter().map(Record::metered_bytes).sum::<u64>();
            records.extend(more);
        }
        let content_type = creation.content_type.clone().unwrap_or_else(|| from.content_type.clone());
        let mut ledger = Ledger::new(content_type, creation.lifetime.unwrap_or(from.lifetime), self.now_ms());
        ledger.origin = Some(Origin {
            source: Kin {
                bucket: stream.identity.basin,
                name: source.name.clone(),
                life: snapshot.doc.head.incarnation,
            },
            at,
            beyond: *beyond,
        });
        let rest = (!rest.is_over()).then_some(rest);
        Ok(Content { ledger, start, records, rest, own: Vec::new(), entry: Entry::default() })
    }

    /// Where a copy ends that takes something beyond a place, and the beginning of the record that it cuts.
    async fn beyond(
        &self,
        stream: &Arc<Stream>,
        snapshot: &Arc<Snapshot>,
        (at, beyond): (u64, u64),
    ) -> Result<(u64, Option<Record>)> {
        let tail = snapshot.doc.log.next_seq_num;
        if beyond == 0 {
            return Ok((at, None));
        }
        if ledger(&snapshot.doc)?.content_type.is_json() {
            let end = at.saturating_add(beyond);
            if end > tail {
                return Err(Error::BeyondTail { tail });
            }
            self.check_same_append(stream, snapshot, (at, end)).await?;
            return Ok((end, None));
        }
        let batch = read_from(stream, snapshot, at, 1).await?;
        let body = batch.records.into_iter().next().map(|record| record.body).unwrap_or_default();
        match usize::try_from(beyond) {
            Ok(beyond) if beyond <= body.len() => {
                Ok((at, Some(Record { body: body.slice(..beyond), ..Record::default() })))
            }
            _ => Err(Error::Invalid(format!(
                "the message at the fork's offset is {} bytes long, and {beyond} are to be taken of it",
                body.len()
            ))),
        }
    }

    /// Whether what is taken beyond a place belongs to the append that lies there.
    async fn check_same_append(
        &self,
        stream: &Arc<Stream>,
        snapshot: &Arc<Snapshot>,
        (at, end): (u64, u64),
    ) -> Result<()> {
        let mut next = at;
        while next + 1 < end {
            let batch = read_from(stream, snapshot, next, end - 1 - next).await?;
            let last = batch.records.iter().find(|message| !has_more(message));
            if let Some(last) = last {
                return Err(Error::Invalid(format!(
                    "the append at the fork's offset has {} messages from there on, and {} are to be taken of it",
                    last.seq_num + 1 - at,
                    end - at
                )));
            }
            next = batch.next_seq_num;
        }
        Ok(())
    }

    /// The source of a fork, by a request sent now.
    async fn source(&self, source: &DurableRef) -> Result<(Arc<Stream>, Arc<Snapshot>)> {
        let open = |stream: Arc<Stream>| async move {
            let snapshot = stream.refresh_live().await?;
            Ok((stream, snapshot))
        };
        let (stream, snapshot) = self.on_durable(source, open).await?;
        match ledger(&snapshot.doc)?.check_usable(self.now_ms()) {
            Ok(()) => Ok((stream, snapshot)),
            Err(Unusable::Retired) => Err(Error::SourceRetired(source.name.to_string())),
            Err(Unusable::Unfinished | Unusable::Expired) => {
                Err(Error::StreamNotFound(source.name.to_string()))
            }
        }
    }

    /// Whether a fork was made from there. One that names no place was, wherever the source ended then.
    pub(super) async fn is_origin(&self, fork: &ForkOf, origin: &Origin) -> Result<bool> {
        let bucket = match self.fetch_bucket(&fork.source.bucket).await {
            Ok(bucket) => bucket,
            Err(Error::BucketNotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        Ok(origin.source.bucket == bucket
            && origin.source.name == fork.source.name
            && fork.at.is_none_or(|at| at == origin.at)
            && fork.beyond == origin.beyond)
    }

    /// Has the source keep a fork in mind, before the fork is there. Where there is no room for one more, marks go that
    /// nobody took away: of whoever died while forking, or while deleting a fork.
    pub(super) async fn mark_fork(&self, origin: &Origin, fork: &Kin) -> Result<()> {
        match self.try_mark(origin, fork).await {
            Err(Error::TooManyForks(_)) if self.forget_dead_forks(&origin.source).await? => {
                self.try_mark(origin, fork).await
            }
            outcome => outcome,
        }
    }

    /// Takes the marks of forks that do not live from a source; whether there were any.
    async fn forget_dead_forks(&self, source: &Kin) -> Result<bool> {
        let Kin { bucket, name, life } = source;
        let stream = self.engine.stream(&identity(*bucket, name));
        let found = stream.refresh_live().await.map_err(|e| of_engine(name, e))?;
        let dead = self.dead_forks(&ledger(&found.doc)?.forks).await?;
        let change = |manifest: &Manifest| {
            let mut ledger = manifest.log.ledger.as_deref()?.clone();
            let count = ledger.forks.len();
            ledger.forks.retain(|fork| !dead.contains(fork));
            let is_other = manifest.head.incarnation == *life && ledger.forks.len() < count;
            is_other.then(|| with_ledger(manifest, ledger))
        };
        stream.update(change).await.map_err(|e| of_engine(name, e))?;
        Ok(!dead.is_empty())
    }

    async fn try_mark(&self, origin: &Origin, fork: &Kin) -> Result<()> {
        let Kin { bucket, name, life } = &origin.source;
        let stream = self.engine.stream(&identity(*bucket, name));
        let now_ms = self.now_ms();
        let mut why = None;
        let change = |manifest: &Manifest| {
            let mut ledger = manifest.log.ledger.as_deref()?.clone();
            why = match ledger.check_usable(now_ms) {
                Ok(()) if manifest.head.incarnation == *life => None,
                Err(Unusable::Retired) => Some(Error::SourceRetired(name.to_string())),
                Ok(()) | Err(_) => Some(Error::StreamNotFound(name.to_string())),
            };
            if why.is_some() {
                return None;
            }
            if !ledger.mark_fork(fork.clone()) {
                why = Some(Error::TooManyForks(name.to_string()));
                return None;
            }
            Some(with_ledger(manifest, ledger))
        };
        match stream.update(change).await.map_err(|e| of_engine(name, e))? {
            Updated::Changed(_) => Ok(()),
            Updated::Unchanged(_) => Err(why.unwrap_or_else(|| Error::StreamNotFound(name.to_string()))),
        }
    }

    /// Has the source forget a fork; a source that was deleted goes with the last of them, and so on upward.
    pub(super) async fn unmark_fork(&self, origin: &Origin, fork: &Kin) -> Result<()> {
        let (mut origin, mut fork) = (origin.clone(), fork.clone());
        loop {
            let Kin { bucket, name, life } = origin.source;
            let stream = self.engine.stream(&identity(bucket, &name));
            let change = |manifest: &Manifest| {
                let mut ledger = manifest.log.ledger.as_deref()?.clone();
                let count = ledger.forks.len();
                ledger.forks.retain(|kin| *kin != fork);
                let is_marked = manifest.head.incarnation == life && ledger.forks.len() < count;
                is_marked.then(|| with_ledger(manifest, ledger))
            };
            match stream.update(change).await {
                Ok(_) => {}
                Err(crate::engine::Error::NoStream) => return Ok(()),
                Err(error) => return Err(of_engine(&name, error)),
            }
            let found = stream.known().filter(|found| {
                let of = found.doc.log.ledger.as_deref();
                let is_over = of.is_some_and(|of| of.stage == Stage::Retired && of.forks.is_empty());
                found.doc.head.is_live() && found.doc.head.incarnation == life && is_over
            });
            let Some(found) = found else { return Ok(()) };
            if let Some(tombstone) = self.bury(&stream, &found).await? {
                self.delete_catalog_entry(&stream, &tombstone).await?;
            }
            let Some(next) = found.doc.log.ledger.as_deref().and_then(|of| of.origin.clone()) else {
                return Ok(());
            };
            (origin, fork) = (next, Kin { bucket, name, life });
        }
    }
}
