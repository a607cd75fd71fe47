//! Records of a stream: append, read, follow, check the tail.

use super::{Result, Service};
use crate::types::config::StreamConfigLayer;
use crate::types::name::{BasinName, StreamName};
use crate::types::record::{AppendAck, AppendInput, ReadBatch, ReadRequest, StreamPosition};

/// Which stream, and how to create it if its basin says so.
#[derive(Clone, Debug)]
pub struct StreamRef {
    /// The basin.
    pub basin: BasinName,
    /// The stream.
    pub name: StreamName,
    /// The configuration for an auto-created stream.
    pub config: StreamConfigLayer,
}

/// What a read session yields.
#[derive(Debug)]
pub enum ReadEvent {
    /// Records, at least one.
    Batch(ReadBatch),
    /// The session has caught up, or has been idle for 5–15 s.
    Heartbeat(StreamPosition),
}

/// A read that may go on for ever. It ends after its limits, its idle wait, or an error.
#[derive(Debug)]
pub struct ReadSession {}

impl ReadSession {
    /// The next event; `None` is the clean end. Dropping the future between events loses nothing.
    pub async fn next(&mut self) -> Option<Result<ReadEvent>> {
        todo!()
    }
}

impl Service {
    /// The position of the next record; linearizable.
    pub async fn check_tail(&self, _stream: &StreamRef) -> Result<StreamPosition> {
        todo!()
    }

    /// Commits a batch whole, or not at all.
    pub async fn append(&self, _stream: &StreamRef, _input: AppendInput) -> Result<AppendAck> {
        todo!()
    }

    /// One batch of at most 1,000 records and 1 MiB metered; waits at the tail if the request may.
    pub async fn read(&self, _stream: &StreamRef, _request: ReadRequest) -> Result<ReadBatch> {
        todo!()
    }

    /// Opens a session: errors of the start come at once, the records from [`ReadSession::next`].
    pub async fn read_session(&self, _stream: &StreamRef, _request: ReadRequest) -> Result<ReadSession> {
        todo!()
    }
}
