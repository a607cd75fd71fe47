//! What a creation asks for.

use bytes::Bytes;

use super::DurableRef;
use crate::types::ledger::{ContentType, Lifetime, Producer, StateTag, Then, WriterSeq};

/// What a creation expects of what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Anything.
    #[default]
    Anything,
    /// Nothing.
    Nothing,
    /// The stream, in whatever state.
    Something,
    /// The stream in one of these states.
    In(Vec<StateTag>),
}

/// Where a fork begins.
#[derive(Clone, Debug)]
pub struct ForkOf {
    /// What is forked.
    pub source: DurableRef,
    /// The first message that is not taken; the end if `None`.
    pub at: Option<u64>,
    /// How much is taken beyond: messages of JSON, else bytes of one message.
    pub beyond: u64,
}

/// A creation as a door hands it down.
#[derive(Clone, Debug, Default)]
pub struct Creation {
    /// `application/octet-stream`, or the source's, if `None`.
    pub content_type: Option<ContentType>,
    /// Endless, or the source's, if `None`.
    pub lifetime: Option<Lifetime>,
    /// The first content.
    pub body: Bytes,
    /// Whether the stream is closed from the beginning.
    pub then: Then,
    /// The first content's place among those of its producer.
    pub producer: Option<Producer>,
    /// The writer's own mark of progress.
    pub writer_seq: Option<WriterSeq>,
    /// What must be there.
    pub expected: Expected,
    /// What the stream begins as a copy of.
    pub fork: Option<ForkOf>,
}
