//! The chunk: an immutable object that holds records (*pure*).
//!
//! ```text
//! chunk   := "LEATCHK1"  block*  footer  trailer
//! block   := run  CRC32C(4, little endian)                 about 64 KiB; a larger record has one of its own
//! footer  := incarnation(16)  block-count  (count length first-ts ts-span)*  commit-count  (count arrival-delta)*
//! trailer := footer-length(4)  CRC32C of the footer(4)  "LEATEND1"
//! ```
//! Records are counted from 0 within the chunk; sequence numbers come from the ref that names it. The footer
//! gives for every block its records, its place and its timestamps, and for every original commit its arrival.
//! A damaged block fails the read that needs it, never yields wrong bytes.

use std::ops::Range;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::encode_varint;

use super::frame::Damaged;
use super::key::Incarnation;
use super::record::{RunWriter, StampedRecord, decode_run, get_varint};
use crate::types::limits::BLOCK_BYTES_TARGET;
use crate::types::record::Header;

const HEAD: &[u8; 8] = b"LEATCHK1";
const END: &[u8; 8] = b"LEATEND1";
const CRC_BYTES: usize = 4;
const TRAILER_BYTES: usize = 16;

/// One block as the footer describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first record, counted within the chunk.
    pub first: u64,
    /// Records, at least 1.
    pub count: u64,
    /// Byte position in the object.
    pub at: u64,
    /// Bytes, checksum included.
    pub len: u64,
    /// Timestamp of the first record.
    pub first_timestamp: u64,
    /// Timestamp of the last record.
    pub last_timestamp: u64,
}

impl Block {
    /// Where it lies in the object.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + self.len
    }
}

/// A chunk's footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The life of the stream it belongs to.
    pub incarnation: Incarnation,
    /// In order.
    pub blocks: Vec<Block>,
    /// First record and arrival of every original commit, in order.
    pub commits: Vec<(u64, u64)>,
}

/// Writes a chunk.
#[derive(Debug)]
pub struct ChunkWriter {
    out: BytesMut,
    run: RunWriter,
    run_timestamps: (u64, u64),
    footer: Footer,
    count: u64,
}

/// A finished chunk.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The object's content.
    pub bytes: Bytes,
    /// Byte position of the footer.
    pub footer_at: u64,
    /// Records.
    pub count: u64,
}

impl ChunkWriter {
    /// An empty chunk of this life.
    #[must_use]
    pub fn new(incarnation: Incarnation) -> Self {
        let mut out = BytesMut::new();
        out.put_slice(HEAD);
        let footer = Footer { incarnation, blocks: Vec::new(), commits: Vec::new() };
        Self { out, run: RunWriter::default(), run_timestamps: (0, 0), footer, count: 0 }
    }

    /// Begins a commit: the records that follow arrived at this time, which must not be before the last.
    pub fn begin_commit(&mut self, arrival_ms: u64) {
        self.footer.commits.push((self.count, arrival_ms));
    }

    /// Adds a record; its timestamp must not be below the one before.
    pub fn push(&mut self, timestamp: u64, headers: &[Header], body: &Bytes) {
        if self.run.is_empty() {
            self.run_timestamps.0 = timestamp;
        }
        self.run.push(timestamp, headers, body);
        self.run_timestamps.1 = timestamp;
        self.count += 1;
        if self.run.len() >= BLOCK_BYTES_TARGET {
            self.close_block();
        }
    }

    fn close_block(&mut self) {
        if self.run.is_empty() {
            return;
        }
        let run = std::mem::take(&mut self.run);
        let (count, at) = (run.count(), self.out.len() as u64);
        let run = run.finish();
        self.out.put_slice(&run);
        self.out.put_u32_le(crc32c::crc32c(&run));
        self.footer.blocks.push(Block {
            first: self.count - count,
            count,
            at,
            len: (run.len() + CRC_BYTES) as u64,
            first_timestamp: self.run_timestamps.0,
            last_timestamp: self.run_timestamps.1,
        });
    }

    /// Closes the chunk.
    #[must_use]
    pub fn finish(mut self) -> Encoded {
        self.close_block();
        let footer_at = self.out.len();
        self.footer.encode(&mut self.out);
        let footer = self.out.get(footer_at..).expect("the footer was just written");
        let (len, crc) = (footer.len(), crc32c::crc32c(footer));
        self.out.put_u32_le(u32::try_from(len).expect("a footer is far below 4 GiB"));
        self.out.put_u32_le(crc);
        self.out.put_slice(END);
        Encoded { bytes: self.out.freeze(), footer_at: footer_at as u64, count: self.count }
    }
}

impl Footer {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(self.incarnation.as_bytes());
        encode_varint(self.blocks.len() as u64, out);
        let mut timestamp = 0u64;
        for block in &self.blocks {
            encode_varint(block.count, out);
            encode_varint(block.len, out);
            encode_varint(block.first_timestamp - timestamp, out);
            encode_varint(block.last_timestamp - block.first_timestamp, out);
            timestamp = block.last_timestamp;
        }
        encode_varint(self.commits.len() as u64, out);
        let (mut first, mut arrival) = (0u64, 0u64);
        for (commit_first, commit_arrival) in &self.commits {
            encode_varint(commit_first - first, out);
            encode_varint(commit_arrival.saturating_sub(arrival), out);
            (first, arrival) = (*commit_first, arrival.max(*commit_arrival));
        }
    }

    /// Reads the end of a chunk, from its footer's position on.
    pub fn decode(bytes: &Bytes, incarnation: Incarnation) -> Result<Self, Damaged> {
        let damaged = |why: &str| Damaged::new("chunk footer", why);
        let len = bytes.len().checked_sub(TRAILER_BYTES).ok_or_else(|| damaged("cut off"))?;
        let mut rest = bytes.slice(..len);
        let mut trailer = bytes.slice(len..);
        if trailer.get_u32_le() as usize != len {
            return Err(damaged("not where its ref says"));
        }
        if trailer.get_u32_le() != crc32c::crc32c(&rest) || *trailer != *END {
            return Err(damaged("checksum mismatch"));
        }
        if rest.remaining() < Incarnation::BYTES
            || Incarnation::from_slice(&rest.split_to(Incarnation::BYTES)) != Some(incarnation)
        {
            return Err(damaged("belongs to another stream"));
        }
        let blocks = Self::decode_blocks(&mut rest)?;
        let mut commits = Vec::new();
        let (mut first, mut arrival) = (0u64, 0u64);
        for _ in 0..get_varint(&mut rest)? {
            first = first.checked_add(get_varint(&mut rest)?).ok_or_else(|| damaged("overflow"))?;
            arrival = arrival.checked_add(get_varint(&mut rest)?).ok_or_else(|| damaged("overflow"))?;
            commits.push((first, arrival));
        }
        if rest.has_remaining() {
            return Err(damaged("bytes after the commits"));
        }
        Ok(Self { incarnation, blocks, commits })
    }

    fn decode_blocks(rest: &mut Bytes) -> Result<Vec<Block>, Damaged> {
        let damaged = |why: &str| Damaged::new("chunk footer", why);
        let mut blocks = Vec::new();
        let (mut first, mut at, mut timestamp) = (0u64, HEAD.len() as u64, 0u64);
        for _ in 0..get_varint(rest)? {
            let (count, len) = (get_varint(rest)?, get_varint(rest)?);
            let first_timestamp = timestamp.checked_add(get_varint(rest)?);
            let first_timestamp = first_timestamp.ok_or_else(|| damaged("timestamp overflow"))?;
            let last_timestamp = first_timestamp.checked_add(get_varint(rest)?);
            let last_timestamp = last_timestamp.ok_or_else(|| damaged("timestamp overflow"))?;
            blocks.push(Block { first, count, at, len, first_timestamp, last_timestamp });
            first = first.checked_add(count).ok_or_else(|| damaged("count overflow"))?;
            at = at.checked_add(len).ok_or_else(|| damaged("position overflow"))?;
            timestamp = last_timestamp;
        }
        Ok(blocks)
    }

    /// The blocks that hold any of these records, counted within the chunk.
    pub fn blocks_of(&self, records: Range<u64>) -> impl Iterator<Item = (usize, &Block)> {
        let from = self.blocks.partition_point(move |b| b.first + b.count <= records.start);
        self.blocks.iter().enumerate().skip(from).take_while(move |(_, b)| b.first < records.end)
    }

    /// Arrival of a record, counted within the chunk.
    #[must_use]
    pub fn arrival_ms(&self, record: u64) -> u64 {
        let after = self.commits.partition_point(|(first, _)| *first <= record);
        after.checked_sub(1).and_then(|at| self.commits.get(at)).map_or(0, |(_, arrival)| *arrival)
    }

    /// The first record whose arrival is at or after this; one past the last if none.
    #[must_use]
    pub fn first_arrived_at(&self, arrival_ms: u64) -> u64 {
        let at = self.commits.partition_point(|(_, arrival)| *arrival < arrival_ms);
        self.commits.get(at).map_or_else(|| self.count(), |(first, _)| *first)
    }

    /// Records of the whole chunk.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.blocks.last().map_or(0, |b| b.first + b.count)
    }
}

/// Checks a block's bytes and takes the checksum off.
pub fn open_block(bytes: &Bytes) -> Result<Bytes, Damaged> {
    let len = bytes.len().checked_sub(CRC_BYTES).ok_or_else(|| Damaged::new("chunk block", "cut off"))?;
    let run = bytes.slice(..len);
    if bytes.slice(len..).get_u32_le() != crc32c::crc32c(&run) {
        return Err(Damaged::new("chunk block", "checksum mismatch"));
    }
    Ok(run)
}

/// Reads the records of an opened block.
pub fn decode_block(run: &Bytes, block: &Block) -> Result<Vec<StampedRecord>, Damaged> {
    decode_run(run, block.count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::tests::stamped_records;
    use super::*;

    fn encode(commits: &[(u64, Vec<StampedRecord>)], incarnation: Incarnation) -> Encoded {
        let mut writer = ChunkWriter::new(incarnation);
        for (arrival, records) in commits {
            writer.begin_commit(*arrival);
            for r in records {
                writer.push(r.timestamp, &r.headers, &r.body);
            }
        }
        writer.finish()
    }

    fn read_all(encoded: &Encoded, incarnation: Incarnation) -> Result<Vec<StampedRecord>, Damaged> {
        let at = usize::try_from(encoded.footer_at).expect("small");
        let footer = Footer::decode(&encoded.bytes.slice(at..), incarnation)?;
        let mut all = Vec::new();
        for (_, block) in footer.blocks_of(0..footer.count()) {
            let range = usize::try_from(block.at).expect("small")
                ..usize::try_from(block.at + block.len).expect("small");
            all.extend(decode_block(&open_block(&encoded.bytes.slice(range))?, block)?);
        }
        Ok(all)
    }

    #[test]
    fn large_records_make_blocks_of_their_own() {
        let incarnation = Incarnation::fresh();
        let record = |n: u8| StampedRecord {
            timestamp: n.into(),
            headers: vec![],
            body: Bytes::from(vec![n; 50_000]),
        };
        let commits = vec![(5, (0..3).map(record).collect()), (9, (3..7).map(record).collect())];
        let encoded = encode(&commits, incarnation);
        assert_eq!(encoded.count, 7);
        let at = usize::try_from(encoded.footer_at).expect("small");
        let footer = Footer::decode(&encoded.bytes.slice(at..), incarnation).expect("whole");
        assert_eq!(footer.blocks.len(), 4);
        assert_eq!((footer.arrival_ms(2), footer.arrival_ms(3), footer.arrival_ms(6)), (5, 9, 9));
        assert_eq!(
            (footer.first_arrived_at(0), footer.first_arrived_at(6), footer.first_arrived_at(10)),
            (0, 3, 7)
        );
        assert_eq!(footer.blocks_of(1..2).map(|(i, _)| i).collect::<Vec<_>>(), [0]);
        assert_eq!(footer.blocks_of(1..3).map(|(i, _)| i).collect::<Vec<_>>(), [0, 1]);
        let all: Vec<_> = commits.into_iter().flat_map(|(_, r)| r).collect();
        assert_eq!(read_all(&encoded, incarnation).expect("whole"), all);
    }

    proptest! {
        #[test]
        fn a_chunk_round_trips_and_damage_never_yields_wrong_records(
            records in stamped_records(12), flip in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let incarnation = Incarnation::fresh();
            let encoded = encode(&[(3, records.clone())], incarnation);
            prop_assert_eq!(&read_all(&encoded, incarnation).expect("whole"), &records);
            prop_assert!(read_all(&encoded, Incarnation::fresh()).is_err());
            let mut bytes = encoded.bytes.to_vec();
            let at = flip.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let damaged = Encoded { bytes: bytes.into(), ..encoded };
            // The head is the only part no read depends on.
            match read_all(&damaged, incarnation) {
                Ok(read) => { prop_assert!(at < HEAD.len()); prop_assert_eq!(read, records); }
                Err(_) => prop_assert!(at >= HEAD.len()),
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from(bytes);
            let _ = Footer::decode(&bytes, Incarnation::fresh());
            let _ = open_block(&bytes);
        }
    }
}
