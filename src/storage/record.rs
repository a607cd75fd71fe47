//! Runs: records as they lie in an inline tail and in the blocks of a chunk (*pure*).
//!
//! ```text
//! run    := record*
//! record := timestamp-delta  header-count  (name-length name value-length value)*  body-length body
//! ```
//! Numbers are protobuf varints. The first delta counts from 0, every other from the record before, so a run
//! can be read on its own. Reading copies no body: every slice shares the run's buffer.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint};

use super::frame::Damaged;
use crate::types::record::{Header, Record};

/// A record with its assigned timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StampedRecord {
    /// Never below that of the record before it.
    pub timestamp: u64,
    /// In order.
    pub headers: Vec<Header>,
    /// Any bytes.
    pub body: Bytes,
}

/// Writes a run.
#[derive(Debug, Default)]
pub struct RunWriter {
    out: BytesMut,
    last_timestamp: u64,
    count: u64,
}

impl RunWriter {
    /// Adds a record; its timestamp must not be below the one before.
    pub fn push(&mut self, timestamp: u64, headers: &[Header], body: &Bytes) {
        debug_assert!(timestamp >= self.last_timestamp, "timestamps never decrease");
        encode_varint(timestamp - self.last_timestamp, &mut self.out);
        encode_varint(headers.len() as u64, &mut self.out);
        for header in headers {
            put_bytes(&mut self.out, &header.name);
            put_bytes(&mut self.out, &header.value);
        }
        put_bytes(&mut self.out, body);
        self.last_timestamp = timestamp;
        self.count += 1;
    }

    /// Encoded bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Records so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The run.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
}

/// An upper bound of a record's encoded size in a run.
#[must_use]
pub fn encoded_bytes_max(record: &Record) -> usize {
    let of_headers: usize = record.headers.iter().map(|h| 6 + h.name.len() + h.value.len()).sum();
    10 + 2 + of_headers + 4 + record.body.len()
}

fn put_bytes(out: &mut BytesMut, bytes: &Bytes) {
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

/// Reads a run of exactly `count` records.
pub fn decode_run(run: &Bytes, count: u64) -> Result<Vec<StampedRecord>, Damaged> {
    let mut rest = run.clone();
    let mut records = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(run.len()));
    let mut last_timestamp = 0u64;
    for _ in 0..count {
        let timestamp = last_timestamp
            .checked_add(get_varint(&mut rest)?)
            .ok_or_else(|| Damaged::new("run", "timestamp overflow"))?;
        let header_count = get_varint(&mut rest)?;
        if header_count > rest.remaining() as u64 {
            return Err(Damaged::new("run", "more headers than bytes"));
        }
        let mut headers = Vec::with_capacity(usize::try_from(header_count).unwrap_or(0));
        for _ in 0..header_count {
            headers.push(Header { name: get_bytes(&mut rest)?, value: get_bytes(&mut rest)? });
        }
        records.push(StampedRecord { timestamp, headers, body: get_bytes(&mut rest)? });
        last_timestamp = timestamp;
    }
    if rest.has_remaining() {
        return Err(Damaged::new("run", format!("{} bytes after {count} records", rest.remaining())));
    }
    Ok(records)
}

/// Reads one varint.
pub(super) fn get_varint(rest: &mut Bytes) -> Result<u64, Damaged> {
    decode_varint(rest).map_err(|e| Damaged::new("number", e.to_string()))
}

fn get_bytes(rest: &mut Bytes) -> Result<Bytes, Damaged> {
    let length = usize::try_from(get_varint(rest)?).unwrap_or(usize::MAX);
    if length > rest.remaining() {
        return Err(Damaged::new("run", "a length beyond its end"));
    }
    Ok(rest.split_to(length))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any record list with non-decreasing timestamps.
    pub(crate) fn stamped_records(max: usize) -> impl Strategy<Value = Vec<StampedRecord>> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        let header = (bytes(), bytes()).prop_map(|(name, value)| Header { name, value });
        let record = (any::<u64>(), prop::collection::vec(header, 0..3), bytes())
            .prop_map(|(timestamp, headers, body)| StampedRecord { timestamp, headers, body });
        prop::collection::vec(record, 1..max).prop_map(|mut records| {
            let mut last = 0;
            for record in &mut records {
                last = record.timestamp.max(last);
                record.timestamp = last;
            }
            records
        })
    }

    /// Encodes records as one run.
    pub(crate) fn run_of(records: &[StampedRecord]) -> Bytes {
        let mut writer = RunWriter::default();
        for r in records {
            writer.push(r.timestamp, &r.headers, &r.body);
        }
        writer.finish()
    }

    proptest! {
        #[test]
        fn a_run_round_trips(records in stamped_records(20)) {
            let run = run_of(&records);
            prop_assert_eq!(decode_run(&run, records.len() as u64).expect("whole"), records);
        }

        #[test]
        fn a_cut_run_is_refused(records in stamped_records(6), cut in any::<prop::sample::Index>()) {
            let run = run_of(&records);
            let cut = cut.index(run.len());
            prop_assert!(decode_run(&run.slice(..cut), records.len() as u64).is_err());
            prop_assert!(decode_run(&run, records.len() as u64 - 1).is_err());
            prop_assert!(decode_run(&run, records.len() as u64 + 1).is_err());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), count in any::<u64>()) {
            let _ = decode_run(&Bytes::from(bytes), count);
        }
    }
}
