//! Records, batches, positions, and what appends and reads ask for and get.
//!
//! Source: S2 API, records. `metered bytes = 8 + 2·headers + Σ(name + value) + body`.

use bytes::Bytes;

use super::ledger::{Entry, Life};
use super::limits::{
    BATCH_METERED_BYTES_MAX, BATCH_RECORDS_MAX, ENTRY_BYTES_MAX, ENTRY_RECORDS_MAX, FENCING_TOKEN_BYTES_MAX,
    RECORD_METERED_BYTES_MAX,
};

/// One header of a record; names may repeat, order is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Empty only in a command record.
    pub name: Bytes,
    /// Any bytes.
    pub value: Bytes,
}

/// A record as an append brings it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The client's timestamp.
    pub timestamp: Option<u64>,
    /// In order.
    pub headers: Vec<Header>,
    /// Any bytes.
    pub body: Bytes,
}

/// A record as a read returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencedRecord {
    /// Its place in the stream, from 0 without gaps.
    pub seq_num: u64,
    /// Never below that of the record before it.
    pub timestamp: u64,
    /// In order.
    pub headers: Vec<Header>,
    /// Any bytes.
    pub body: Bytes,
}

/// Metered bytes of a record.
#[must_use]
pub fn metered_bytes(headers: &[Header], body: &Bytes) -> u64 {
    let of_headers: usize = headers.iter().map(|h| 2 + h.name.len() + h.value.len()).sum();
    (8 + of_headers + body.len()) as u64
}

impl SequencedRecord {
    /// Metered bytes of this record.
    #[must_use]
    pub fn metered_bytes(&self) -> u64 {
        metered_bytes(&self.headers, &self.body)
    }
}

/// Why a batch was refused before it reached a stream; the sentence names record, field, value and limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidBatch(pub String);

/// A fencing token: 0–36 bytes of UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FencingToken(String);

impl FencingToken {
    /// Checks the length.
    pub fn new(text: String) -> Result<Self, InvalidBatch> {
        if text.len() > FENCING_TOKEN_BYTES_MAX {
            return Err(InvalidBatch(format!(
                "fencing token must be at most {FENCING_TOKEN_BYTES_MAX} bytes long, got {}",
                text.len()
            )));
        }
        Ok(Self(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a command record asks of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Later batches that name a token must name this one.
    Fence(FencingToken),
    /// Records below this sequence number may go.
    Trim(u64),
}

impl Record {
    /// Metered bytes of this record.
    #[must_use]
    pub fn metered_bytes(&self) -> u64 {
        metered_bytes(&self.headers, &self.body)
    }

    /// Reads a command record: exactly one header, whose name is empty. `Ok(None)` is an ordinary record.
    pub fn command(&self) -> Result<Option<Command>, InvalidBatch> {
        if self.headers.iter().all(|h| !h.name.is_empty()) {
            return Ok(None);
        }
        let [header] = self.headers.as_slice() else {
            return Err(InvalidBatch(
                "a header with an empty name makes a command record, which has exactly one header".to_owned(),
            ));
        };
        match &*header.value {
            b"fence" => {
                let token = std::str::from_utf8(&self.body)
                    .map_err(|e| InvalidBatch(format!("fence command: the token must be UTF-8: {e}")))?;
                Ok(Some(Command::Fence(FencingToken::new(token.to_owned())?)))
            }
            b"trim" => {
                let seq_num = <[u8; 8]>::try_from(&*self.body).map_err(|_size| {
                    InvalidBatch(format!(
                        "trim command: the body must be a sequence number of 8 bytes, big-endian, got {} bytes",
                        self.body.len()
                    ))
                })?;
                Ok(Some(Command::Trim(u64::from_be_bytes(seq_num))))
            }
            other => Err(InvalidBatch(format!(
                "unknown command {:?}; known commands are `fence` and `trim`",
                String::from_utf8_lossy(other)
            ))),
        }
    }
}

/// Checks how many records a batch holds; a reader of a wire format asks before it unpacks them all.
pub fn check_record_count(count: usize) -> Result<(), InvalidBatch> {
    if (1..=BATCH_RECORDS_MAX).contains(&count) {
        return Ok(());
    }
    Err(InvalidBatch(format!("a batch must hold 1 to {BATCH_RECORDS_MAX} records, got {count}")))
}

/// A checked batch with its conditions: it is committed whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendInput {
    records: Vec<Record>,
    metered_bytes: u64,
    /// The sequence number that the first record must get.
    pub match_seq_num: Option<u64>,
    /// The token that must be the stream's current one.
    pub fencing_token: Option<FencingToken>,
    /// What it demands of the stream's ledger, and changes there.
    pub entry: Option<Box<Entry>>,
}

impl AppendInput {
    /// Checks number and size of the records and every command record.
    pub fn new(
        records: Vec<Record>,
        match_seq_num: Option<u64>,
        fencing_token: Option<FencingToken>,
    ) -> Result<Self, InvalidBatch> {
        check_record_count(records.len())?;
        let mut metered_bytes = 0;
        for (index, record) in records.iter().enumerate() {
            let metered = record.metered_bytes();
            if metered > RECORD_METERED_BYTES_MAX {
                return Err(InvalidBatch(format!(
                    "record {index} must be at most {RECORD_METERED_BYTES_MAX} metered bytes, got {metered}"
                )));
            }
            record.command().map_err(|InvalidBatch(why)| InvalidBatch(format!("record {index}: {why}")))?;
            metered_bytes += metered;
        }
        if metered_bytes > BATCH_METERED_BYTES_MAX {
            return Err(InvalidBatch(format!(
                "a batch must be at most {BATCH_METERED_BYTES_MAX} metered bytes, got {metered_bytes}"
            )));
        }
        Ok(Self { records, metered_bytes, match_seq_num, fencing_token, entry: None })
    }

    /// An entry into a stream with a ledger, which may be without records; held to limits of its own.
    pub fn with_entry(records: Vec<Record>, entry: Entry) -> Result<Self, InvalidBatch> {
        if records.len() > ENTRY_RECORDS_MAX {
            return Err(InvalidBatch(format!(
                "an append must hold at most {ENTRY_RECORDS_MAX} messages, got {}",
                records.len()
            )));
        }
        let bytes: usize = records.iter().map(|record| record.body.len()).sum();
        if bytes > ENTRY_BYTES_MAX {
            return Err(InvalidBatch(format!(
                "an append must hold at most {ENTRY_BYTES_MAX} bytes, got {bytes}"
            )));
        }
        let metered_bytes = records.iter().map(Record::metered_bytes).sum();
        let entry = Some(Box::new(entry));
        Ok(Self { records, metered_bytes, match_seq_num: None, fencing_token: None, entry })
    }

    /// The records: 1 to 1,000, or as many as an entry may have.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Metered bytes of the batch.
    #[must_use]
    pub fn metered_bytes(&self) -> u64 {
        self.metered_bytes
    }
}

/// A place in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamPosition {
    /// Sequence number of the record at this place, or the next to assign.
    pub seq_num: u64,
    /// Timestamp of the record at this place; at the tail, of the last record.
    pub timestamp: u64,
}

/// Where a committed batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendAck {
    /// The first record.
    pub start: StreamPosition,
    /// One past the last record, with the last record's timestamp.
    pub end: StreamPosition,
    /// The stream's tail as the batch was committed, at or after `end`.
    pub tail: StreamPosition,
    /// The life of the stream.
    pub life: Life,
}

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// At this sequence number.
    SeqNum(u64),
    /// At the first retained record with this timestamp or a later one.
    Timestamp(u64),
    /// This many records before the tail, floored at 0.
    TailOffset(u64),
}

/// What to do when the start lies beyond the tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeyondTail {
    /// Refuse, naming the tail.
    #[default]
    Refuse,
    /// Begin at the tail.
    Clamp,
}

/// How much a read returns at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// Records.
    pub count: Option<u64>,
    /// Metered bytes.
    pub bytes: Option<u64>,
    /// Exclusive upper bound of timestamps.
    pub until: Option<u64>,
}

impl ReadLimits {
    /// Whether a read may return nothing at all.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.count == Some(0) || self.bytes == Some(0)
    }

    /// Whether nothing bounds the read.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.count.is_none() && self.bytes.is_none() && self.until.is_none()
    }

    /// What is left after `batch`.
    #[must_use]
    pub fn after(self, batch: &[SequencedRecord]) -> Self {
        let metered: u64 = batch.iter().map(SequencedRecord::metered_bytes).sum();
        Self {
            count: self.count.map(|n| n.saturating_sub(batch.len() as u64)),
            bytes: self.bytes.map(|n| n.saturating_sub(metered)),
            until: self.until,
        }
    }
}

/// A read as a door hands it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Where to begin.
    pub start: ReadStart,
    /// When the start lies beyond the tail.
    pub beyond_tail: BeyondTail,
    /// How much to return.
    pub limits: ReadLimits,
    /// Longest idle gap in seconds while following; `None` is for ever if nothing bounds the read, else 0.
    pub wait_secs: Option<u32>,
}

impl ReadRequest {
    /// Whether the read may begin at the tail: it waits there, or it has no bound to reach and ends in order.
    #[must_use]
    pub fn may_follow(&self) -> bool {
        self.limits.is_unbounded() || self.wait_secs.is_some_and(|secs| secs > 0)
    }
}

/// Some consecutive records, 1 to 1,000 and at most 1 MiB metered, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadBatch {
    /// In order of sequence number; trimmed and expired ones are skipped.
    pub records: Vec<SequencedRecord>,
    /// The tail, when the batch reaches it or there is nothing to return.
    pub tail: Option<StreamPosition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(value: &'static [u8], body: &'static [u8]) -> Record {
        let header = Header { name: Bytes::new(), value: Bytes::from_static(value) };
        Record { timestamp: None, headers: vec![header], body: Bytes::from_static(body) }
    }

    #[test]
    fn command_records_are_told_from_ordinary_ones() {
        assert_eq!(Record::default().command(), Ok(None));
        assert_eq!(command(b"trim", &[0, 0, 0, 0, 0, 0, 1, 0]).command(), Ok(Some(Command::Trim(256))));
        let fence = Command::Fence(FencingToken::new("t".to_owned()).expect("short"));
        assert_eq!(command(b"fence", b"t").command(), Ok(Some(fence)));
        for bad in [command(b"trim", b"short"), command(b"seal", b""), command(b"fence", &[0xff])] {
            assert!(bad.command().is_err(), "{bad:?}");
        }
        let mut beside = command(b"fence", b"");
        beside.headers.push(Header { name: Bytes::from_static(b"a"), value: Bytes::new() });
        assert!(beside.command().is_err());
    }

    #[test]
    fn a_batch_is_held_to_its_limits() {
        let record = |len: usize| Record { body: Bytes::from(vec![0; len]), ..Record::default() };
        let input = |records| AppendInput::new(records, None, None);
        assert!(input(vec![]).is_err());
        assert!(input(vec![record(0); 1_000]).is_ok());
        assert!(input(vec![record(0); 1_001]).is_err());
        assert!(input(vec![record(1024 * 1024 - 8)]).is_ok());
        assert!(input(vec![record(1024 * 1024 - 7)]).is_err());
        assert!(input(vec![record(1024 * 512), record(1024 * 512)]).is_err());
        assert!(FencingToken::new("x".repeat(36)).is_ok());
        assert!(FencingToken::new("x".repeat(37)).is_err());
    }
}
