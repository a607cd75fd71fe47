//! A position in a stream, as JSON shows it (pure).

use serde::{Deserialize, Serialize};

use crate::types::record;

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamPosition {
    pub(crate) seq_num: u64,
    pub(crate) timestamp: u64,
}

impl From<record::StreamPosition> for StreamPosition {
    fn from(record::StreamPosition { seq_num, timestamp }: record::StreamPosition) -> Self {
        Self { seq_num, timestamp }
    }
}

/// The answer to a check-tail, and the body of a 416.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct TailResponse {
    pub(crate) tail: StreamPosition,
}
