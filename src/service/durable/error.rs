//! The closed list of what may go wrong with Durable Streams.

use crate::engine::{self, Rejection};
use crate::service;
use crate::service::error::of_stream;
use crate::types::ledger::{Refusal, Refused};
use crate::types::limits::LEDGER_FORKS_BYTES_MAX;
use crate::types::name::StreamName;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// What may go wrong. Unless it is [`Error::Other`], nothing was written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such bucket.
    #[error("bucket `{0}` does not exist")]
    BucketNotFound(String),
    /// The name is taken.
    #[error("bucket `{0}` already exists")]
    BucketExists(String),
    /// Only an empty bucket can be deleted.
    #[error("bucket `{0}` holds streams: delete them first")]
    BucketNotEmpty(String),
    /// There is no such stream.
    #[error("stream `{0}` does not exist")]
    StreamNotFound(String),
    /// The stream was deleted, and is kept in mind because forks of it live.
    #[error("stream `{0}` is deleted")]
    Retired(String),
    /// The name is taken by a stream that is something else than was asked for.
    #[error("stream `{name}` already exists, {how}")]
    Taken {
        /// The stream.
        name: String,
        /// What differs.
        how: &'static str,
    },
    /// The source of a fork was deleted.
    #[error("stream `{0}` is deleted and cannot be forked")]
    SourceRetired(String),
    /// The source of a fork is of another type.
    #[error("a fork has the type of its source, `{0}`")]
    OtherTypeThanSource(String),
    /// The source has as many forks as it can.
    #[error(
        "stream `{0}` has too many forks: their marks may take {LEDGER_FORKS_BYTES_MAX} bytes, 48 and its name each"
    )]
    TooManyForks(String),
    /// What was asked for is not kept any more.
    #[error("messages before offset {start:016x} are gone")]
    Trimmed {
        /// The first that is kept.
        start: u64,
    },
    /// The stream has a newer snapshot.
    #[error("the stream has a snapshot at offset {current:016x}, which is newer")]
    OlderSnapshot {
        /// Where it stands.
        current: u64,
    },
    /// A snapshot cannot stand for what is still to come.
    #[error("a snapshot cannot lie beyond the end of the stream, {tail:016x}")]
    SnapshotBeyondTail {
        /// The end.
        tail: u64,
    },
    /// The place lies beyond the end of the stream.
    #[error("the offset lies beyond the end of the stream, {tail:016x}")]
    BeyondTail {
        /// The end.
        tail: u64,
    },
    /// The stream is not in the state that was expected.
    #[error("the stream is in another state than `if-match` or `if-none-match` expects")]
    OtherState,
    /// The ledger does not let it in.
    #[error("{}", describe(.0))]
    Refused(Refused),
    /// It is more than one append may hold.
    #[error("{0}")]
    TooLarge(String),
    /// The request can never succeed as it is.
    #[error("{0}")]
    Invalid(String),
    /// What may go wrong with every stream.
    #[error(transparent)]
    Other(service::Error),
}

impl Error {
    /// Whether something may have been written, or may be yet.
    pub(super) fn is_indefinite(&self) -> bool {
        matches!(self, Self::Other(service::Error::Indefinite { .. }))
    }
}

impl From<service::Error> for Error {
    fn from(error: service::Error) -> Self {
        Self::Other(error)
    }
}

impl From<crate::storage::Error> for Error {
    fn from(error: crate::storage::Error) -> Self {
        Self::Other(error.into())
    }
}

impl From<crate::store::Error> for Error {
    fn from(error: crate::store::Error) -> Self {
        Self::Other(error.into())
    }
}

/// An engine error about the stream of this name.
pub(super) fn of_engine(name: &StreamName, error: engine::Error) -> Error {
    match error {
        engine::Error::NoStream => Error::StreamNotFound(name.to_string()),
        engine::Error::Rejected(Rejection::OtherLife) => Error::OtherState,
        engine::Error::Rejected(Rejection::Refused(refused)) => match refused.why {
            Refusal::Unusable(why) => super::unusable(name, why),
            Refusal::OtherState => Error::OtherState,
            _ => Error::Refused(refused),
        },
        error => Error::Other(of_stream(name.as_str(), error)),
    }
}

/// For people.
fn describe(refused: &Refused) -> String {
    match &refused.why {
        Refusal::Unusable(_) => "the stream cannot be used".to_owned(),
        Refusal::Duplicate { epoch, seq } => {
            format!("append {seq} of epoch {epoch} is in the stream already")
        }
        Refusal::AlreadyClosed | Refusal::Closed => "the stream is closed".to_owned(),
        Refusal::StaleEpoch { epoch } => format!("the producer's epoch is {epoch} by now"),
        Refusal::EpochBegins { seq } => {
            format!("a new epoch must begin with `producer-seq` 0, got {seq}")
        }
        Refusal::Gap { expected, received } => {
            format!("the producer's next append is {expected}, got {received}")
        }
        Refusal::OtherType { current } => format!("the stream's content type is `{current}`"),
        Refusal::Malformed(why) => why.clone(),
        Refusal::WriterSeqNotAbove { last } => {
            format!("`stream-seq` must be above the last one, `{last}`, byte by byte")
        }
        Refusal::OtherState => "the stream is in another state than was expected".to_owned(),
        Refusal::TooManyProducers => {
            "the stream remembers as many producers as it can; one that is silent for a week makes room"
                .to_owned()
        }
    }
}
