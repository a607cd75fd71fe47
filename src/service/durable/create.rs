//! Creation: due marker, catalog entry, the bucket once more, manifest; then what does not fit into that commit.
//!
//! A small first content rides in the creating commit. A larger one is appended to a stream that is not there yet
//! (its ledger says so) and is there with the last of it. One that was abandoned makes room for the next attempt.

use std::sync::Arc;

use bytes::Bytes;

use super::creation::{Creation, Expected};
use super::error::{Error, Result, of_engine};
use super::forks::Content;
use super::messages::messages;
use super::{Buckets, DurableRef, Status, identity, ledger};
use crate::engine::{self, Rejection, Snapshot, Stream};
use crate::service::{self, Service};
use crate::storage::head::State;
use crate::storage::key::{self, CatalogEntry, Incarnation};
use crate::storage::ledger::{Kin, Ledger, Stage};
use crate::storage::manifest::{LogState, Manifest};
use crate::storage::record::{RunWriter, encoded_bytes_max};
use crate::storage::register::{Outcome, jittered};
use crate::storage::tail::InlineCommit;
use crate::types::config::{RetentionPolicy, StreamConfigLayer, TimestampingMode};
use crate::types::ledger::{
    ContentType, Entry, Filling, Life, Lifetime, Producer, Refusal, Refused, Then, Unusable,
};
use crate::types::limits::{ENTRY_BYTES_MAX, ENTRY_RECORDS_MAX};
use crate::types::record::{AppendAck, AppendInput, InvalidBatch, Record};
use crate::types::stream::Provision;

/// A new stream is visited when its lifetime may be over, but not before ten minutes and within a day.
const FIRST_VISIT_MS: std::ops::RangeInclusive<u64> = 600_000..=86_400_000;

/// What a creation finds.
enum Place {
    /// The stream as it was asked for.
    Taken(Status),
    /// Nothing, or the tombstone of an earlier life.
    Free(Option<Arc<Snapshot>>),
    /// Something that is on its way in or out.
    Busy,
}

impl Service {
    /// Creates a stream, or finds it as it was asked for.
    pub async fn create_durable(
        &self,
        target: &DurableRef,
        creation: &Creation,
    ) -> Result<(Status, Provision)> {
        let deadline = self.deadline();
        let mut attempt = 0;
        loop {
            let bucket = match (self.fetch_bucket(&target.bucket).await, target.buckets) {
                (Err(Error::BucketNotFound(_)), Buckets::AreMade) => {
                    self.ensure_bucket(&target.bucket).await?
                }
                (found, _) => found?,
            };
            let stream = self.engine.stream(&identity(bucket, &target.name));
            match self.place(&stream, creation).await? {
                Place::Taken(status) => return Ok((status, Provision::Noop)),
                Place::Free(base) => {
                    let content = self.content(creation).await?;
                    // Too large to be a part of every call that may come to this.
                    match Box::pin(self.begin(target, &stream, base.as_deref(), content)).await {
                        Ok(Some(status)) => return Ok((status, Provision::Created)),
                        // The race was lost; or the source of a fork was trimmed since, and is looked at anew.
                        Ok(None) | Err(Error::Trimmed { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Place::Busy => {}
            }
            if deadline.has_passed() {
                return Err(service::Error::TransactionConflict(target.name.to_string()).into());
            }
            attempt += 1;
            tokio::time::sleep(jittered(attempt, self.engine.latency().estimate())).await;
        }
    }

    async fn place(&self, stream: &Arc<Stream>, creation: &Creation) -> Result<Place> {
        let name = &stream.identity.name;
        let found = stream.refresh().await.map_err(|e| of_engine(name, e))?;
        let Some(live) = found.as_ref().filter(|found| found.doc.head.is_live()) else {
            return match creation.expected {
                Expected::Anything | Expected::Nothing => Ok(Place::Free(found)),
                Expected::Something | Expected::In(_) => Err(Error::OtherState),
            };
        };
        let ledger = ledger(&live.doc)?;
        let taken = |how| Error::Taken { name: name.to_string(), how };
        match ledger.check_usable(self.now_ms()) {
            Ok(()) => {}
            // The last of its forks may be gone, and whoever ended it too.
            Err(Unusable::Retired) if self.settle_durable(&stream.identity, 0).await? => {
                return Ok(Place::Busy);
            }
            Err(Unusable::Retired) => return Err(taken("was deleted, and has forks that live")),
            Err(Unusable::Unfinished) => {
                if self.now_ms().saturating_sub(ledger.last_used_ms) > self.abandoned_ms() {
                    self.end_durable(stream, live).await?;
                }
                return Ok(Place::Busy);
            }
            Err(Unusable::Expired) => {
                self.end_durable(stream, live).await?;
                return Ok(Place::Busy);
            }
        }
        let status = Status::of(&live.doc, ledger);
        let is_expected = match &creation.expected {
            Expected::Anything | Expected::Something => true,
            Expected::Nothing => false,
            Expected::In(tags) => tags.contains(&status.tag()),
        };
        if !is_expected {
            return Err(Error::OtherState);
        }
        if let Some(how) = self.difference(ledger, creation).await? {
            return Err(taken(how));
        }
        Ok(Place::Taken(status))
    }

    /// What of a stream that is there was asked for differently.
    async fn difference(&self, ledger: &Ledger, creation: &Creation) -> Result<Option<&'static str>> {
        let is_fork = creation.fork.is_some();
        let content_type = creation.content_type.clone().or((!is_fork).then(ContentType::octets));
        if content_type.is_some_and(|wanted| !wanted.matches(&ledger.content_type)) {
            return Ok(Some("with another content type"));
        }
        let lifetime = creation.lifetime.or((!is_fork).then_some(Lifetime::Endless));
        if lifetime.is_some_and(|wanted| wanted != ledger.lifetime) {
            return Ok(Some("with another lifetime"));
        }
        if (creation.then == Then::Close) != ledger.is_closed {
            return Ok(Some(if ledger.is_closed { "and is closed" } else { "and is not closed" }));
        }
        let same_origin = match (&creation.fork, &ledger.origin) {
            (None, None) => true,
            (Some(fork), Some(origin)) => self.is_origin(fork, origin).await?,
            _ => false,
        };
        Ok((!same_origin).then_some("forked from something else"))
    }

    /// What a new stream begins with.
    async fn content(&self, creation: &Creation) -> Result<Content> {
        let now_ms = self.now_ms();
        let mut content = match &creation.fork {
            Some(fork) => self.fork_content(fork, creation).await?,
            None => {
                let content_type = creation.content_type.clone().unwrap_or_else(ContentType::octets);
                let ledger = Ledger::new(content_type, creation.lifetime.unwrap_or_default(), now_ms);
                Content {
                    ledger,
                    start: 0,
                    records: Vec::new(),
                    rest: None,
                    own: Vec::new(),
                    entry: Entry::default(),
                }
            }
        };
        content.own = messages(&content.ledger.content_type, &creation.body).map_err(|why| {
            let why = Refusal::Malformed(why);
            Error::Refused(Refused { why, life: Life::default(), tail: 0, is_closed: false })
        })?;
        content.entry = Entry {
            producer: creation.producer.clone(),
            writer_seq: creation.writer_seq.clone(),
            then: creation.then,
            ..Entry::default()
        };
        // Judged as the first append that it is.
        if let Some(Producer { seq: received @ 1.., .. }) = creation.producer {
            let why = Refusal::Gap { expected: 0, received };
            return Err(Error::Refused(Refused { why, life: Life::default(), tail: 0, is_closed: false }));
        }
        Ok(content)
    }

    /// One attempt to create a stream; `None` if the race was lost.
    async fn begin(
        &self,
        target: &DurableRef,
        stream: &Arc<Stream>,
        base: Option<&Snapshot>,
        content: Content,
    ) -> Result<Option<Status>> {
        let identity = &stream.identity;
        let life = Incarnation::fresh();
        let visit_ms = content.ledger.lifetime.ends_ms(self.now_ms()).unwrap_or(u64::MAX);
        let after_ms =
            visit_ms.saturating_sub(self.now_ms()).clamp(*FIRST_VISIT_MS.start(), *FIRST_VISIT_MS.end());
        let visit_ms = key::due_not_before(self.now_ms() + after_ms);
        let due = self.put_stream_due(identity, life, visit_ms).await?;
        let entry =
            CatalogEntry { name: identity.name.clone(), created_at_ms: self.now_ms(), incarnation: life };
        let entry_key = key::catalog_entry(identity.basin, &entry);
        let origin = content.ledger.origin.clone();
        let own = Kin { bucket: identity.basin, name: identity.name.clone(), life };
        if let Some(origin) = &origin {
            self.mark_fork(origin, &own).await?;
        }
        let outcome = async {
            self.store().put(&entry_key, Bytes::new()).await?;
            if !self.takes_streams(&target.bucket, identity.basin).await? {
                return Ok(None);
            }
            let (manifest, rest) = self.first_manifest(stream, base, (&entry, due), content)?;
            match stream.commit(base, &manifest, self.deadline()).await? {
                Outcome::Committed(_) => {}
                Outcome::Conflict => return Ok(None),
            }
            let made = Status::of(&manifest, ledger(&manifest)?);
            let Some(rest) = rest else { return Ok(Some(made)) };
            let is_closed = rest.entry.then == Then::Close;
            let filled = self.fill(stream, rest).await;
            if matches!(&filled, Err(error) if !error.is_indefinite()) {
                self.abandon(stream, life).await;
            }
            // Whatever others have made of it since: this is what was created.
            let status = |ack: AppendAck| Status {
                tail: ack.end.seq_num,
                is_closed,
                last_write_at_ms: ack.end.timestamp.max(made.created_at_ms),
                ..made
            };
            filled.map(|ack| ack.map(status))
        }
        .await;
        match &outcome {
            // The stream is there, or may be: its entry must stay.
            Ok(Some(_)) => {}
            Err(error) if error.is_indefinite() => {}
            Ok(None) | Err(_) => {
                self.drop_entry(&entry_key).await;
                if let Some(origin) = &origin {
                    self.unmark_fork(origin, &own).await?;
                }
            }
        }
        outcome
    }

    /// The manifest of a new life, with the whole content or with none of it; then what is to be appended.
    fn first_manifest(
        &self,
        stream: &Stream,
        base: Option<&Snapshot>,
        (entry, due): (&CatalogEntry, String),
        content: Content,
    ) -> Result<(Manifest, Option<Content>)> {
        let base = base.map(|base| &base.doc);
        let head = Manifest::head_of_life(base, entry.incarnation, State::Live);
        let config = StreamConfigLayer {
            retention_policy: Some(RetentionPolicy::Infinite),
            timestamping_mode: Some(TimestampingMode::Arrival),
            ..StreamConfigLayer::default()
        };
        let mut manifest = Manifest {
            identity: Some(stream.identity.clone()),
            config: config.resolve(self.default_storage_class),
            ..Manifest::empty(stream.identity.hash(), head, base, entry.created_at_ms, due)
        };
        let mut first = content.ledger.clone();
        let inline_max = self.engine.options().shape.inline_bytes_max(manifest.config.storage_class);
        let whole = content.rest.is_none().then(|| self.inline(&content, inline_max)).flatten();
        let rest = match whole {
            Some(commit) => {
                finish(&mut first, &content.entry, self.now_ms())?;
                manifest.log.last_arrival_ms = commit.arrival_ms;
                manifest.log.last_timestamp = commit.last_timestamp;
                manifest.log.next_seq_num = commit.count;
                if commit.count > 0 {
                    manifest.tail.0.push(commit);
                }
                None
            }
            None => {
                first.stage = Stage::Filling;
                Some(content)
            }
        };
        let start = rest.as_ref().map_or(0, |rest| rest.start);
        manifest.log = LogState {
            next_seq_num: manifest.log.next_seq_num + start,
            trim_point: start,
            ledger: Some(Box::new(first)),
            ..manifest.log
        };
        Ok((manifest, rest))
    }

    /// All of the content as one commit, if it fits and begins at the beginning.
    fn inline(&self, content: &Content, inline_max: usize) -> Option<InlineCommit> {
        let records = || content.records.iter().chain(&content.own);
        if content.start > 0 || records().map(encoded_bytes_max).sum::<usize>() > 2 * inline_max {
            return None;
        }
        let now_ms = self.now_ms();
        let mut run = RunWriter::default();
        for record in records() {
            run.push(now_ms, &record.headers, &record.body);
        }
        let commit = InlineCommit {
            arrival_ms: now_ms,
            last_timestamp: now_ms,
            count: run.count(),
            metered_bytes: records().map(Record::metered_bytes).sum(),
            run: run.finish(),
        };
        (commit.bytes_max() <= inline_max).then_some(commit)
    }

    /// Appends the first content of a stream that is not there yet; yields what the last append came to, or `None` if
    /// the stream was taken for abandoned.
    async fn fill(&self, stream: &Arc<Stream>, content: Content) -> Result<Option<AppendAck>> {
        let Content { records: mut next, mut rest, own, entry, .. } = content;
        if let Some(rest) = &mut rest
            && !rest.copy_chunks(stream, &mut next).await?
        {
            return Ok(None);
        }
        loop {
            let more = match &mut rest {
                Some(rest) => rest.next().await?,
                None => Vec::new(),
            };
            if more.is_empty() {
                break;
            }
            let ready = std::mem::replace(&mut next, more);
            if !ready.is_empty() && self.fill_with(stream, ready, Entry::filling()).await?.is_none() {
                return Ok(None);
            }
        }
        // The last of the copy and the first of its own may be too much together.
        let bytes: usize = next.iter().chain(&own).map(|record| record.body.len()).sum();
        if (bytes > ENTRY_BYTES_MAX || next.len() + own.len() > ENTRY_RECORDS_MAX)
            && self.fill_with(stream, std::mem::take(&mut next), Entry::filling()).await?.is_none()
        {
            return Ok(None);
        }
        next.extend(own);
        self.fill_with(stream, next, Entry { filling: Filling::Last, ..entry }).await
    }

    /// Makes room at once for the next attempt to create what could not be filled. What fails here, time does.
    async fn abandon(&self, stream: &Stream, life: Incarnation) {
        let ended = async {
            let found = stream.refresh().await.map_err(|e| of_engine(&stream.identity.name, e))?;
            let is_own = |found: &Arc<Snapshot>| {
                let stage = found.doc.log.ledger.as_deref().map(|ledger| ledger.stage);
                found.doc.head.incarnation == life && stage == Some(Stage::Filling)
            };
            match found.filter(is_own) {
                Some(found) => self.end_durable(stream, &found).await,
                None => Ok(true),
            }
        };
        if let Err(error) = ended.await {
            tracing::warn!(%error, stream = %stream.identity.name, "a stream that was not completed stays for a while");
        }
    }

    /// One append of a first content; `None` if the stream is not being filled any more.
    async fn fill_with(
        &self,
        stream: &Arc<Stream>,
        records: Vec<Record>,
        entry: Entry,
    ) -> Result<Option<AppendAck>> {
        let input = AppendInput::with_entry(records, entry);
        let input = input.map_err(|InvalidBatch(why)| Error::TooLarge(why))?;
        match stream.append(Arc::new(input)).await {
            Ok(ack) => Ok(Some(ack)),
            Err(engine::Error::NoStream) => Ok(None),
            Err(engine::Error::Rejected(Rejection::Refused(Refused {
                why: Refusal::OtherState, ..
            }))) => Ok(None),
            Err(error) => Err(of_engine(&stream.identity.name, error)),
        }
    }
}

/// What the creating commit changes in the ledger, as a first append would.
fn finish(ledger: &mut Ledger, entry: &Entry, now_ms: u64) -> Result<()> {
    if let Some(producer) = &entry.producer
        && !ledger.producers.remember(producer, now_ms)
    {
        return Err(Error::Invalid("the producer cannot be remembered".to_owned()));
    }
    ledger.writer_seq.clone_from(&entry.writer_seq);
    if entry.then == Then::Close {
        ledger.is_closed = true;
        ledger.closed_by.clone_from(&entry.producer);
    }
    Ok(())
}
