//! What the product promises, for every door: basins, streams, records, and the closed list of what may go
//! wrong, documented by what the caller must do.

pub mod basins;
pub mod records;
pub mod streams;

use crate::types::record::StreamPosition;

/// The handle that every door calls; clones share everything.
#[derive(Clone, Debug)]
pub struct Service {}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// What may go wrong. Every variant but the last two promises that the call had no side effect.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such basin.
    #[error("basin `{0}` does not exist")]
    BasinNotFound(String),
    /// There is no such stream.
    #[error("stream `{0}` does not exist")]
    StreamNotFound(String),
    /// The basin is on its way out; its name is free once that is done.
    #[error("basin `{0}` is being deleted")]
    BasinDeletionPending(String),
    /// The name is taken, and not by an earlier attempt of this call.
    #[error("{kind} `{name}` already exists")]
    AlreadyExists {
        /// `basin` or `stream`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Another change came first, again and again: try once more.
    #[error("`{0}` is being changed by others; try again")]
    TransactionConflict(String),
    /// The request can never succeed as it is.
    #[error("{0}")]
    Invalid(String),
    /// The batch names a fencing token that is not the current one.
    #[error("the stream's fencing token is `{current}`")]
    FencingTokenMismatch {
        /// The current token.
        current: String,
    },
    /// The batch expects a sequence number that is not the next one.
    #[error("the next sequence number is {next}")]
    SeqNumMismatch {
        /// The number that would have been assigned.
        next: u64,
    },
    /// The read starts at or beyond the tail and may not wait there.
    #[error("the read starts at or beyond the tail, {}", tail.seq_num)]
    BeyondTail {
        /// The tail.
        tail: StreamPosition,
    },
    /// Too much is queued for this stream in this process: slow down, then try again.
    #[error("{0}")]
    RateLimited(String),
    /// This process is shutting down: try another.
    #[error("the server is shutting down")]
    Draining,
    /// The object store did not do its part and nothing was written.
    #[error("{message}")]
    Storage {
        /// For people.
        message: String,
        /// What the layer below said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nobody can know whether the write happened: read back before trying again.
    #[error("{message}")]
    Indefinite {
        /// For people.
        message: String,
        /// What the layer below said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
