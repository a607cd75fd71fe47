//! The closed list of what may go wrong.

use std::sync::Arc;

use crate::engine::{self, Rejection};
use crate::storage;
use crate::types::record::StreamPosition;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// What lies under an [`Error`].
pub type Source = Arc<dyn std::error::Error + Send + Sync>;

/// What may go wrong. Every variant but [`Error::Indefinite`] promises that nothing was written.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// Too much is queued for this stream in this process, or others always came first: slow down, try again.
    #[error("{0}")]
    RateLimited(String),
    /// This process is shutting down: try another.
    #[error("the server is shutting down")]
    Draining,
    /// The object store did not do its part and nothing was committed.
    #[error("{message}")]
    Storage {
        /// For people.
        message: String,
        /// What the layer below said.
        #[source]
        source: Source,
    },
    /// Nobody can know whether the write happened: read back before trying again.
    #[error("{message}")]
    Indefinite {
        /// For people.
        message: String,
        /// What the layer below said.
        #[source]
        source: Source,
    },
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        Self::from(Arc::new(error))
    }
}

impl From<Arc<storage::Error>> for Error {
    fn from(error: Arc<storage::Error>) -> Self {
        let is_indefinite = error.is_indefinite();
        let source: Source = error;
        if is_indefinite {
            let message =
                "it is unknown whether the change happened; read it back before trying again".to_owned();
            return Self::Indefinite { message, source };
        }
        Self::Storage { message: chain(&*source), source }
    }
}

impl From<crate::store::Error> for Error {
    fn from(error: crate::store::Error) -> Self {
        storage::Error::Store(error).into()
    }
}

/// An engine error about the stream of this name.
pub(super) fn of_stream(name: &str, error: engine::Error) -> Error {
    match error {
        // The other kinds of streams have doors, and answers, of their own.
        engine::Error::NoStream
        | engine::Error::Rejected(
            Rejection::StreamRecreated | Rejection::OtherKind | Rejection::OtherLife | Rejection::Refused(_),
        ) => Error::StreamNotFound(name.to_owned()),
        engine::Error::Rejected(Rejection::FencingTokenMismatch { current }) => {
            Error::FencingTokenMismatch { current }
        }
        engine::Error::Rejected(Rejection::SeqNumMismatch { next }) => Error::SeqNumMismatch { next },
        engine::Error::Rejected(Rejection::TimestampMissing { record }) => Error::Invalid(format!(
            "record {record} has no `timestamp`, which the stream's timestamping mode `client-require` demands"
        )),
        engine::Error::Rejected(Rejection::SessionEnded) => {
            Error::Invalid("an earlier batch of the session was not accepted".to_owned())
        }
        engine::Error::BeyondTail(tail) => Error::BeyondTail { tail },
        engine::Error::Overloaded(why) => Error::RateLimited(why.to_owned()),
        engine::Error::Storage(source) => source.into(),
        error @ (engine::Error::Missing(_) | engine::Error::Indefinite { .. }) => {
            let message = match &error {
                engine::Error::Indefinite { why, .. } => {
                    format!("{why}: the batch may or may not be in the stream; read back before trying again")
                }
                _ => error.to_string(),
            };
            Error::Indefinite { message, source: Arc::new(error) }
        }
    }
}

/// An error and what lies under it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}
