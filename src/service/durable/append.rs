//! Appends: one commit of the messages, the end, the producer and the writer's mark, or of nothing.

use std::sync::Arc;

use bytes::Bytes;

use super::DurableRef;
use super::error::{Error, Result, of_engine};
use super::messages::messages;
use crate::engine::{self, Rejection};
use crate::service::Service;
use crate::storage::key::Incarnation;
use crate::types::ledger::{ContentType, Entry, Life, Producer, Refusal, Refused, StateTag, Then, WriterSeq};
use crate::types::record::{AppendInput, InvalidBatch};

/// An append as a door hands it down.
#[derive(Clone, Debug, Default)]
pub struct Post {
    /// Of the body; `None` without one.
    pub content_type: Option<ContentType>,
    /// Empty to do no more than to close the stream.
    pub body: Bytes,
    /// Its place among those of its producer.
    pub producer: Option<Producer>,
    /// The writer's own mark of progress.
    pub writer_seq: Option<WriterSeq>,
    /// What comes after it.
    pub then: Then,
    /// The states it is meant for; any if `None`.
    pub expected: Option<Vec<StateTag>>,
}

/// What an append came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the stream.
    Appended,
    /// It was before: the producer's last append.
    Duplicate {
        /// The producer's epoch.
        epoch: u64,
        /// Which append.
        seq: u64,
    },
    /// The stream was closed already.
    AlreadyClosed,
}

/// An append that is in the stream, and the state after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Whether it just got in.
    pub outcome: Outcome,
    /// Names the state.
    pub tag: StateTag,
}

impl Service {
    /// Appends and closes, whole or not at all.
    pub async fn post(&self, target: &DurableRef, post: Post) -> Result<Posted> {
        let Post { content_type, body, producer, writer_seq, then, expected } = post;
        let parsed = match &content_type {
            Some(content_type) => messages(content_type, &body),
            None => Ok(Vec::new()),
        };
        let (records, malformed) = match parsed {
            Ok(records) if records.is_empty() && !body.is_empty() => {
                (records, Some("an append must hold at least one message, got an empty array".to_owned()))
            }
            Ok(records) => (records, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let is_closing = then == Then::Close;
        let entry =
            Entry { content_type, malformed, producer, writer_seq, then, expected, ..Entry::default() };
        let input = AppendInput::with_entry(records, entry);
        let input = Arc::new(input.map_err(|InvalidBatch(why)| Error::TooLarge(why))?);
        let call = |stream: Arc<engine::Stream>| {
            let input = input.clone();
            async move {
                match stream.append(input).await {
                    Ok(ack) => Ok(Ok(ack)),
                    Err(engine::Error::Rejected(Rejection::Refused(refused))) => Ok(Err(refused)),
                    Err(error) => Err(error),
                }
            }
        };
        let tag = |life: Life, tail, is_closed| StateTag {
            life: Incarnation::from(life).to_string(),
            tail,
            is_closed,
        };
        match self.on_durable(target, call).await? {
            Ok(ack) => {
                Ok(Posted { outcome: Outcome::Appended, tag: tag(ack.life, ack.end.seq_num, is_closing) })
            }
            Err(Refused { why: Refusal::Duplicate { epoch, seq }, life, tail, is_closed }) => {
                Ok(Posted { outcome: Outcome::Duplicate { epoch, seq }, tag: tag(life, tail, is_closed) })
            }
            Err(Refused { why: Refusal::AlreadyClosed, life, tail, is_closed }) => {
                Ok(Posted { outcome: Outcome::AlreadyClosed, tag: tag(life, tail, is_closed) })
            }
            Err(refused) => {
                Err(of_engine(&target.name, engine::Error::Rejected(Rejection::Refused(refused))))
            }
        }
    }
}
