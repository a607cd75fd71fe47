//! Events of a read over SSE, and the id a client resumes by.
//!
//! Pure.
//!
//! ```text
//! event: batch                 event: ping                             event: error        data: [DONE]
//! id: <seq>,<count>,<bytes>    data: {"timestamp": ms, "tail": P}      data: <error>
//! data: <batch>
//! ```
//!
//! JSON escapes line ends, so data is always one line.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;

use super::super::error::Error;
use super::records::ReadBatch;
use super::{Format, StreamPosition};
use crate::api::s2::respond;
use crate::api::uri::decimal;
use crate::types::record;

/// `last-event-id`: the last record delivered, and how much was delivered over all connections so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    /// Sequence number of the last record.
    pub(crate) seq_num: u64,
    /// Records.
    pub(crate) count: u64,
    /// Metered bytes.
    pub(crate) bytes: u64,
}

impl EventId {
    /// Reads the header. Each number is below 2^64 − 1, for one more must be a number too: what follows
    /// the last record must never wrap to 0.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split(',').map(decimal);
        let mut next = || numbers.next().flatten().filter(|number| *number < u64::MAX);
        let (seq_num, count, bytes) = (next()?, next()?, next()?);
        numbers.next().is_none().then_some(Self { seq_num, count, bytes })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.seq_num, self.count, self.bytes)
    }
}

#[derive(Serialize)]
struct PingData {
    timestamp: u64,
    tail: StreamPosition,
}

/// Writes events and counts what they deliver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventWriter {
    format: Format,
    count: u64,
    bytes: u64,
}

impl EventWriter {
    /// Goes on from where the last connection ended.
    pub(crate) fn new(format: Format, resumed: Option<EventId>) -> Self {
        let (count, bytes) = resumed.map_or((0, 0), |id| (id.count, id.bytes));
        Self { format, count, bytes }
    }

    /// Some records.
    pub(crate) fn batch(&mut self, batch: &record::ReadBatch) -> Bytes {
        let metered: u64 = batch.records.iter().map(record::SequencedRecord::metered_bytes).sum();
        self.count = self.count.saturating_add(batch.records.len() as u64);
        self.bytes = self.bytes.saturating_add(metered);
        let id = batch.records.last().map(|last| EventId {
            seq_num: last.seq_num,
            count: self.count,
            bytes: self.bytes,
        });
        let data = respond::to_json(&ReadBatch { format: self.format, batch });
        event(Some("batch"), id, &data)
    }

    /// A sign of life.
    pub(crate) fn ping(now_ms: u64, tail: record::StreamPosition) -> Bytes {
        let data = respond::to_json(&PingData { timestamp: now_ms, tail: tail.into() });
        event(Some("ping"), None, &data)
    }

    /// The end that is not the end of the read: the client comes back.
    pub(crate) fn error(error: &Error) -> Bytes {
        event(Some("error"), None, &error.body())
    }

    /// The end of the read.
    pub(crate) fn done() -> Bytes {
        event(None, None, b"[DONE]")
    }
}

fn event(name: Option<&str>, id: Option<EventId>, data: &[u8]) -> Bytes {
    let mut head = String::new();
    if let Some(name) = name {
        head.push_str("event: ");
        head.push_str(name);
        head.push('\n');
    }
    if let Some(id) = id {
        head.push_str(&format!("id: {id}\n"));
    }
    head.push_str("data: ");
    [head.as_bytes(), data, b"\n\n"].concat().into()
}

#[cfg(test)]
mod tests {
    use super::super::super::error::Code;
    use super::*;

    fn record(seq_num: u64, body: &'static str) -> record::SequencedRecord {
        record::SequencedRecord { seq_num, timestamp: 5, headers: vec![], body: body.into() }
    }

    #[test]
    fn an_event_id_is_three_numbers_below_the_largest() {
        let id = EventId { seq_num: 5, count: 2, bytes: 30 };
        assert_eq!(EventId::parse("5,2,30"), Some(id));
        assert_eq!(EventId::parse(&id.to_string()), Some(id));
        assert_eq!(EventId::parse("18446744073709551614,0,0").unwrap().seq_num, u64::MAX - 1);
        for bad in [
            "",
            "5",
            "5,2",
            "5,2,30,1",
            "5,2,30,",
            "-1",
            "-1,0,0",
            "abc",
            "+5,2,30",
            "5, 2,30",
            "18446744073709551615",
            "18446744073709551615,0,0",
            "18446744073709551616,0,0",
            "5,18446744073709551615,1",
            "5,1,18446744073709551615",
        ] {
            assert_eq!(EventId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_batch_event_counts_over_connections() {
        let mut writer = EventWriter::new(Format::Raw, Some(EventId { seq_num: 6, count: 4, bytes: 100 }));
        let batch = record::ReadBatch { records: vec![record(7, "a\r\n\nb"), record(9, "")], tail: None };
        assert_eq!(
            writer.batch(&batch),
            concat!(
                "event: batch\nid: 9,6,121\n",
                r#"data: {"records":[{"seq_num":7,"timestamp":5,"body":"a\r\n\nb"},{"seq_num":9,"timestamp":5}]}"#,
                "\n\n"
            )
        );
        let batch = record::ReadBatch { records: vec![record(10, "x")], tail: None };
        assert!(writer.batch(&batch).starts_with(b"event: batch\nid: 10,7,130\n"));
        let mut full =
            EventWriter::new(Format::Raw, Some(EventId { seq_num: 0, count: u64::MAX, bytes: u64::MAX }));
        assert!(full.batch(&batch).starts_with(b"event: batch\nid: 10,18446744073709551615,"));
    }

    #[test]
    fn pings_errors_and_the_end_have_no_id() {
        let tail = record::StreamPosition { seq_num: 3, timestamp: 4 };
        assert_eq!(
            EventWriter::ping(99, tail),
            "event: ping\ndata: {\"timestamp\":99,\"tail\":{\"seq_num\":3,\"timestamp\":4}}\n\n"
        );
        assert_eq!(
            EventWriter::error(&Error::new(Code::Other, "line\nbreak")),
            "event: error\ndata: {\"code\":\"other\",\"message\":\"line\\nbreak\"}\n\n"
        );
        assert_eq!(EventWriter::done(), "data: [DONE]\n\n");
    }
}
