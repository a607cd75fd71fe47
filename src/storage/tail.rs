//! The inline tail: the newest records of a stream, inside its manifest (*pure*).
//!
//! ```text
//! tail   := commit*                                        oldest first, until the end of the field
//! commit := arrival-delta  last-timestamp-delta  count  metered-bytes  run-length  run
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

use super::frame::Damaged;
use super::record::get_varint;

/// The records of one commit, as they ride in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineCommit {
    /// When they arrived.
    pub arrival_ms: u64,
    /// Timestamp of the last record.
    pub last_timestamp: u64,
    /// Records, at least 1.
    pub count: u64,
    /// Metered bytes of the records.
    pub metered_bytes: u64,
    /// The records.
    pub run: Bytes,
}

impl InlineCommit {
    /// What it takes in a tail at most, whatever comes before it.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        // Either delta takes at least one byte and at most ten.
        self.bytes_after(self.arrival_ms, self.last_timestamp) + 2 * 9
    }

    /// What it takes in a tail after a commit with this arrival and last timestamp.
    fn bytes_after(&self, arrival_ms: u64, timestamp: u64) -> usize {
        let run = self.run.len();
        encoded_len_varint(self.arrival_ms.wrapping_sub(arrival_ms))
            + encoded_len_varint(self.last_timestamp.wrapping_sub(timestamp))
            + encoded_len_varint(self.count)
            + encoded_len_varint(self.metered_bytes)
            + encoded_len_varint(run as u64)
            + run
    }
}

/// The inline tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail(pub Vec<InlineCommit>);

impl Tail {
    /// Records in it.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|c| c.count).sum()
    }

    /// What it takes in the manifest.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let (mut arrival, mut timestamp, mut bytes) = (0, 0, 0);
        for commit in &self.0 {
            bytes += commit.bytes_after(arrival, timestamp);
            (arrival, timestamp) = (commit.arrival_ms, commit.last_timestamp);
        }
        bytes
    }

    /// The stored shape.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.bytes());
        let (mut arrival, mut timestamp) = (0u64, 0u64);
        for commit in &self.0 {
            // Deltas wrap, so that any order of values survives the round trip.
            encode_varint(commit.arrival_ms.wrapping_sub(arrival), &mut out);
            encode_varint(commit.last_timestamp.wrapping_sub(timestamp), &mut out);
            encode_varint(commit.count, &mut out);
            encode_varint(commit.metered_bytes, &mut out);
            encode_varint(commit.run.len() as u64, &mut out);
            out.put_slice(&commit.run);
            (arrival, timestamp) = (commit.arrival_ms, commit.last_timestamp);
        }
        out.freeze()
    }

    /// Reads the stored shape.
    pub fn decode(mut rest: Bytes) -> Result<Self, Damaged> {
        let mut commits = Vec::new();
        let (mut arrival, mut timestamp) = (0u64, 0u64);
        while rest.has_remaining() {
            arrival = arrival.wrapping_add(get_varint(&mut rest)?);
            timestamp = timestamp.wrapping_add(get_varint(&mut rest)?);
            let (count, metered_bytes) = (get_varint(&mut rest)?, get_varint(&mut rest)?);
            let length = usize::try_from(get_varint(&mut rest)?).unwrap_or(usize::MAX);
            if count == 0 || length > rest.remaining() {
                return Err(Damaged::new("inline tail", "a commit that cannot be"));
            }
            let run = rest.split_to(length);
            commits.push(InlineCommit {
                arrival_ms: arrival,
                last_timestamp: timestamp,
                count,
                metered_bytes,
                run,
            });
        }
        Ok(Self(commits))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tail_round_trips(list in prop::collection::vec(
            (any::<u64>(), any::<u64>(), 1u64..100, any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6)) {
            let tail = Tail(list.into_iter().map(|(arrival_ms, last_timestamp, count, metered_bytes, run)|
                InlineCommit { arrival_ms, last_timestamp, count, metered_bytes, run: run.into() }).collect());
            prop_assert_eq!(tail.bytes(), tail.encode().len());
            for commit in &tail.0 {
                prop_assert!(commit.bytes_max() >= Tail(vec![commit.clone()]).bytes());
            }
            prop_assert_eq!(Tail::decode(tail.encode()).expect("whole"), tail);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Tail::decode(bytes.into());
        }
    }
}
