//! Batches that are committed together, and the chunk they may share.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{Admission, Admitted};
use super::queue::Pending;
use super::upload::{BatchChunk, Begun, Piece, Uploading, joined};
use super::{Result, Shared};
use crate::storage::chunk::ChunkWriter;
use crate::storage::index::Ref;
use crate::storage::key::StreamHash;
use crate::storage::manifest::Manifest;
use crate::storage::record::RunWriter;
use crate::storage::tail::InlineCommit;
use crate::types::ledger::Entry;
use crate::types::record::AppendAck;
use crate::types::time::Deadline;

/// Batches that are committed together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) batches: Vec<Pending>,
    /// When they were taken, in store time: their arrival.
    pub(super) arrival_ms: u64,
    chunk: Option<GroupChunk>,
}

/// The chunk of a group, or of some of its batches.
#[derive(Debug)]
struct GroupChunk {
    state: ChunkState,
    /// For every batch its first record in the chunk, if it is there.
    firsts: Vec<Option<usize>>,
}

#[derive(Debug)]
enum ChunkState {
    Uploading(Uploading<BatchChunk>),
    Uploaded(BatchChunk),
}

impl Group {
    pub(super) fn new(batches: Vec<Pending>, arrival_ms: u64) -> Self {
        Self { batches, arrival_ms, chunk: None }
    }

    /// Batches in it.
    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    /// What is demanded beside the records.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.batches.iter().filter_map(|batch| batch.input.entry.as_deref())
    }

    /// When the last of its callers gives up.
    pub(super) fn deadline(&self) -> Deadline {
        let none = Deadline::after(Duration::ZERO);
        self.batches.iter().fold(none, |latest, batch| latest.max(batch.deadline))
    }

    /// Tells every caller its outcome.
    pub(super) fn answer(self, outcome: Result<Vec<Result<AppendAck>>>) {
        match outcome {
            Ok(outcomes) => {
                for (batch, outcome) in self.batches.into_iter().zip(outcomes) {
                    batch.answer(outcome);
                }
            }
            Err(error) => {
                for batch in self.batches {
                    batch.answer(Err(error.clone()));
                }
            }
        }
    }

    /// Starts to upload these batches with timestamps that assume nothing before them.
    pub(super) fn start_chunk<'a>(
        &mut self,
        (shared, hash): (&Arc<Shared>, StreamHash),
        begun: Begun,
        stamps: impl Iterator<Item = Option<&'a [u64]>>,
    ) {
        let mut writer = ChunkWriter::new(begun.incarnation);
        writer.begin_commit(self.arrival_ms);
        let mut all = Vec::new();
        let mut firsts = Vec::with_capacity(self.batches.len());
        for (batch, stamps) in self.batches.iter().zip(stamps) {
            firsts.push(stamps.is_some().then_some(all.len()));
            for (record, timestamp) in batch.input.records().iter().zip(stamps.unwrap_or_default()) {
                writer.push(*timestamp, &record.headers, &record.body);
                all.push(*timestamp);
            }
        }
        let stamps = (all, self.arrival_ms);
        let uploading = BatchChunk::start(shared, hash, begun, writer.finish(), stamps);
        self.chunk = Some(GroupChunk { state: ChunkState::Uploading(uploading), firsts });
    }

    /// A ref to the accepted batches in the chunk that was uploaded for this group, if they lie there in one
    /// piece and unchanged.
    pub(super) async fn chunk_ref(
        &mut self,
        base: &Manifest,
        accepted: &Accepted<'_>,
        now_ms: u64,
    ) -> Result<Option<Ref>> {
        let Some(mut chunk) = self.chunk.take() else { return Ok(None) };
        let uploaded = match chunk.state {
            ChunkState::Uploaded(uploaded) => uploaded,
            ChunkState::Uploading(uploading) => joined(uploading.await)?,
        };
        chunk.state = ChunkState::Uploaded(uploaded.clone());
        let mut first = None;
        let mut timestamps = Vec::new();
        for (index, admitted) in &accepted.batches {
            let Some(at) = chunk.firsts.get(*index).copied().flatten() else { return Ok(None) };
            if at != *first.get_or_insert(at) + timestamps.len() {
                return Ok(None);
            }
            timestamps.extend_from_slice(&admitted.timestamps);
        }
        self.chunk = Some(chunk);
        let first = first.unwrap_or_default();
        Ok(uploaded.reference(
            base,
            now_ms,
            Piece { first, timestamps: &timestamps, metered_bytes: accepted.metered_bytes },
        ))
    }
}

/// The accepted batches of a group.
pub(super) struct Accepted<'a> {
    /// With their place in the group.
    pub(super) batches: Vec<(usize, &'a Admitted)>,
    pub(super) metered_bytes: u64,
    pub(super) encoded_bytes_max: usize,
}

impl<'a> Accepted<'a> {
    pub(super) fn of(admission: &'a Admission, group: &Group) -> Self {
        let mut accepted = Self { batches: Vec::new(), metered_bytes: 0, encoded_bytes_max: 0 };
        for (index, (verdict, batch)) in admission.verdicts.iter().zip(&group.batches).enumerate() {
            if let Ok(admitted) = verdict {
                accepted.batches.push((index, admitted));
                accepted.metered_bytes += batch.input.metered_bytes();
                accepted.encoded_bytes_max += batch.encoded_bytes_max;
            }
        }
        accepted
    }

    /// The records as an inline commit.
    pub(super) fn inline(&self, group: &Group, admission: &Admission) -> InlineCommit {
        let mut run = RunWriter::default();
        for (index, admitted) in &self.batches {
            let Some(batch) = group.batches.get(*index) else { continue };
            for (record, timestamp) in batch.input.records().iter().zip(&admitted.timestamps) {
                run.push(*timestamp, &record.headers, &record.body);
            }
        }
        InlineCommit {
            arrival_ms: admission.log.last_arrival_ms,
            last_timestamp: admission.log.last_timestamp,
            count: run.count(),
            metered_bytes: self.metered_bytes,
            run: run.finish(),
        }
    }
}
