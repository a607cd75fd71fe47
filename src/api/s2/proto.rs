//! Protobuf messages of package `s2.v1` (proto3), written out by hand; field numbers are the contract.
//!
//! Pure. Presence matters for the optional fields: `match_seq_num = 0` and `fencing_token = ""` are meant.

use bytes::{Bytes, BytesMut};
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message};

use super::error::{Code, Error, Result};
use crate::types::record;

#[derive(Clone, Copy, PartialEq, Message)]
struct StreamPosition {
    #[prost(uint64, tag = "1")]
    seq_num: u64,
    #[prost(uint64, tag = "2")]
    timestamp: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct AppendRecord {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<Header>,
    #[prost(bytes = "bytes", tag = "3")]
    body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct AppendInput {
    #[prost(message, repeated, tag = "1")]
    records: Vec<AppendRecord>,
    #[prost(uint64, optional, tag = "2")]
    match_seq_num: Option<u64>,
    #[prost(string, optional, tag = "3")]
    fencing_token: Option<String>,
}

/// Clients refuse an ack that lacks one of the three, so all are always sent, zeros too.
#[derive(Clone, Copy, PartialEq, Message)]
struct AppendAck {
    #[prost(message, optional, tag = "1")]
    start: Option<StreamPosition>,
    #[prost(message, optional, tag = "2")]
    end: Option<StreamPosition>,
    #[prost(message, optional, tag = "3")]
    tail: Option<StreamPosition>,
}

#[derive(Clone, PartialEq, Message)]
struct SequencedRecord {
    #[prost(uint64, tag = "1")]
    seq_num: u64,
    #[prost(uint64, tag = "2")]
    timestamp: u64,
    #[prost(message, repeated, tag = "3")]
    headers: Vec<Header>,
    #[prost(bytes = "bytes", tag = "4")]
    body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct ReadBatch {
    #[prost(message, repeated, tag = "1")]
    records: Vec<SequencedRecord>,
    #[prost(message, optional, tag = "2")]
    tail: Option<StreamPosition>,
}

/// Field number of the records in an [`AppendInput`].
const RECORDS_TAG: u32 = 1;

/// Reads the body of an append.
pub(super) fn decode_append(body: Bytes) -> Result<record::AppendInput> {
    let malformed = |e| Error::new(Code::BadProto, format!("AppendInput: {e}"));
    let count = count_records(&body).map_err(malformed)?;
    record::check_record_count(count).map_err(|record::InvalidBatch(why)| Error::invalid(why))?;
    AppendInput::decode(body).map_err(malformed)?.try_into()
}

/// Counts the records of an [`AppendInput`] without unpacking them: 2 MiB of empty ones would fill a hundred MiB.
fn count_records(mut input: &[u8]) -> std::result::Result<usize, DecodeError> {
    let mut count = 0;
    while !input.is_empty() {
        let (tag, wire_type) = decode_key(&mut input)?;
        count += usize::from(tag == RECORDS_TAG);
        skip_field(wire_type, tag, &mut input, DecodeContext::default())?;
    }
    Ok(count)
}

/// Writes the answer to an append.
pub(super) fn encode_ack(ack: record::AppendAck) -> Vec<u8> {
    AppendAck::from(ack).encode_to_vec()
}

/// Writes the answer to a read.
pub(super) fn encode_batch(batch: record::ReadBatch) -> Vec<u8> {
    ReadBatch::from(batch).encode_to_vec()
}

/// Writes the answer to a read behind what is there.
pub(super) fn encode_batch_into(batch: record::ReadBatch, out: &mut BytesMut) {
    let batch = ReadBatch::from(batch);
    out.reserve(batch.encoded_len());
    batch.encode_raw(out);
}

impl TryFrom<AppendInput> for record::AppendInput {
    type Error = Error;

    fn try_from(AppendInput { records, match_seq_num, fencing_token }: AppendInput) -> Result<Self> {
        let invalid = |record::InvalidBatch(why)| Error::invalid(why);
        let fencing_token = fencing_token.map(record::FencingToken::new).transpose().map_err(invalid)?;
        let records = records.into_iter().map(Into::into).collect();
        Self::new(records, match_seq_num, fencing_token).map_err(invalid)
    }
}

impl From<AppendRecord> for record::Record {
    fn from(AppendRecord { timestamp, headers, body }: AppendRecord) -> Self {
        Self { timestamp, headers: headers.into_iter().map(Into::into).collect(), body }
    }
}

impl From<Header> for record::Header {
    fn from(Header { name, value }: Header) -> Self {
        Self { name, value }
    }
}

impl From<record::Header> for Header {
    fn from(record::Header { name, value }: record::Header) -> Self {
        Self { name, value }
    }
}

impl From<record::StreamPosition> for StreamPosition {
    fn from(record::StreamPosition { seq_num, timestamp }: record::StreamPosition) -> Self {
        Self { seq_num, timestamp }
    }
}

impl From<record::AppendAck> for AppendAck {
    fn from(record::AppendAck { start, end, tail, .. }: record::AppendAck) -> Self {
        Self { start: Some(start.into()), end: Some(end.into()), tail: Some(tail.into()) }
    }
}

impl From<record::SequencedRecord> for SequencedRecord {
    fn from(record: record::SequencedRecord) -> Self {
        let record::SequencedRecord { seq_num, timestamp, headers, body } = record;
        Self { seq_num, timestamp, headers: headers.into_iter().map(Into::into).collect(), body }
    }
}

impl From<record::ReadBatch> for ReadBatch {
    fn from(record::ReadBatch { records, tail }: record::ReadBatch) -> Self {
        Self { records: records.into_iter().map(Into::into).collect(), tail: tail.map(Into::into) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &'static [u8]) -> Result<record::AppendInput> {
        decode_append(Bytes::from_static(bytes))
    }

    #[test]
    fn the_worked_bytes_of_the_contract_decode() {
        let input = decode(&[0x0a, 0x04, 0x1a, 0x02, 0x68, 0x69]).unwrap();
        assert_eq!(input.records()[0].body, "hi");
        assert_eq!(input.metered_bytes(), 10);
        assert_eq!((input.match_seq_num, input.fencing_token), (None, None));
    }

    #[test]
    fn zero_and_empty_conditions_are_told_from_absent_ones() {
        let input = decode(&[0x0a, 0x00, 0x10, 0x00, 0x1a, 0x00]).unwrap();
        assert_eq!(input.match_seq_num, Some(0));
        assert_eq!(input.fencing_token.unwrap().as_str(), "");
    }

    #[test]
    fn an_append_round_trips() {
        let header = Header { name: Bytes::from_static(b"k"), value: Bytes::from_static(&[0xff, 0]) };
        let record =
            AppendRecord { timestamp: Some(u64::MAX), headers: vec![header], body: Bytes::from_static(b"b") };
        let sent = AppendInput {
            records: vec![record.clone(), AppendRecord::default()],
            match_seq_num: Some(u64::MAX),
            fencing_token: Some("t".repeat(36)),
        };
        let got = decode_append(sent.encode_to_vec().into()).unwrap();
        assert_eq!(got.records(), [record.into(), record::Record::default()]);
        assert_eq!(got.match_seq_num, Some(u64::MAX));
        assert_eq!(got.fencing_token.unwrap().as_str().len(), 36);
    }

    #[test]
    fn an_append_with_a_wrong_part_is_refused_by_the_right_code() {
        let long_token = AppendInput {
            records: vec![AppendRecord::default()],
            fencing_token: Some("t".repeat(37)),
            ..Default::default()
        };
        assert_eq!(decode_append(long_token.encode_to_vec().into()).unwrap_err().status(), 422);
        assert_eq!(decode(&[]).unwrap_err().status(), 422);
        assert_eq!(decode_append(Bytes::from([0x0a, 0x00].repeat(1_001))).unwrap_err().status(), 422);
        // A cut message, a wrong wire type, a token that is not UTF-8, a number that does not end.
        for bad in [
            &[0x0a, 0x04, 0x1a, 0x02, 0x68][..],
            &[0x0a],
            &[0x08, 0x01],
            &[0x0a, 0x00, 0x1a, 0x01, 0xff],
            &[0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            b"{\"records\":[{}]}",
        ] {
            let error = decode(bad).unwrap_err();
            assert!(matches!(error, Error::Coded(Code::BadProto, _)), "{bad:?}: {error:?}");
        }
    }

    #[test]
    fn an_ack_names_all_its_positions_even_zeros() {
        let zero = record::StreamPosition::default();
        let end = record::StreamPosition { seq_num: 1, timestamp: 0 };
        let ack = encode_ack(record::AppendAck { start: zero, end, tail: zero, life: [0; 16] });
        assert_eq!(ack, [0x0a, 0x00, 0x12, 0x02, 0x08, 0x01, 0x1a, 0x00]);
    }

    #[test]
    fn a_batch_is_written_with_and_without_a_tail() {
        assert_eq!(encode_batch(record::ReadBatch::default()), [0_u8; 0]);
        let record = record::SequencedRecord {
            seq_num: 1,
            timestamp: 2,
            headers: vec![],
            body: Bytes::from_static(b"hi"),
        };
        let batch =
            record::ReadBatch { records: vec![record], tail: Some(record::StreamPosition::default()) };
        assert_eq!(
            encode_batch(batch),
            [0x0a, 0x08, 0x08, 0x01, 0x10, 0x02, 0x22, 0x02, 0x68, 0x69, 0x12, 0x00]
        );
    }

    proptest::proptest! {
        #[test]
        fn any_record_survives_protobuf(timestamp: Option<u64>, name in ".{1,9}", value: Vec<u8>, body: Vec<u8>) {
            let header = Header { name: name.into(), value: value.into() };
            let record = AppendRecord { timestamp, headers: vec![header], body: body.into() };
            let sent = AppendInput { records: vec![record.clone()], ..Default::default() };
            let got = decode_append(sent.encode_to_vec().into()).unwrap();
            proptest::prop_assert_eq!(got.records(), [record::Record::from(record)]);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _read = decode_append(bytes.into());
        }
    }
}
