//! Records in JSON: batches as appended and as read.
//!
//! Pure. Answers are written straight from the records, without a tree of values in between.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Deserialize, Serialize, Serializer};

use super::super::error::{Code, Error, Result};
use super::{Format, Object, StreamPosition, parse};
use crate::types::limits::BATCH_RECORDS_MAX;
use crate::types::record;

/// The body of an append.
#[derive(Debug, Deserialize)]
struct AppendInput<'a> {
    #[serde(borrow)]
    records: GivenRecords<'a>,
    match_seq_num: Option<u64>,
    fencing_token: Option<String>,
}

/// The records of an append. More than a batch may hold are counted and not kept: 2 MiB of `{},` would fill
/// a hundred times that.
#[derive(Debug)]
struct GivenRecords<'a> {
    kept: Vec<AppendRecord<'a>>,
    count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for GivenRecords<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct ListVisitor<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for ListVisitor<'a> {
            type Value = GivenRecords<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of records")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < BATCH_RECORDS_MAX {
                    let Some(Object(record)) = list.next_element()? else {
                        return Ok(GivenRecords { count: kept.len(), kept });
                    };
                    kept.push(record);
                }
                let mut count = kept.len();
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(GivenRecords { kept, count })
            }
        }

        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

#[derive(Debug, Deserialize)]
struct AppendRecord<'a> {
    timestamp: Option<u64>,
    #[serde(borrow, default)]
    headers: Vec<(Text<'a>, Text<'a>)>,
    #[serde(borrow, default)]
    body: Text<'a>,
}

/// Text that is borrowed from the body where it holds no escapes.
#[derive(Debug, Default, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    fn decode(self, format: Format) -> std::result::Result<Bytes, base64::DecodeError> {
        match (format, self.0) {
            (Format::Raw, Cow::Borrowed(text)) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            (Format::Raw, Cow::Owned(text)) => Ok(Bytes::from(text)),
            (Format::Base64, text) => STANDARD.decode(text.as_bytes()).map(Bytes::from),
        }
    }
}

impl AppendRecord<'_> {
    fn decode(self, format: Format, index: usize) -> Result<record::Record> {
        let Self { timestamp, headers, body } = self;
        let not_base64 = |field: &str, e: base64::DecodeError| {
            Error::invalid(format!("record {index}: the {field} is not base64: {e}"))
        };
        let headers = headers.into_iter().map(|(name, value)| {
            Ok(record::Header {
                name: name.decode(format).map_err(|e| not_base64("name of a header", e))?,
                value: value.decode(format).map_err(|e| not_base64("value of a header", e))?,
            })
        });
        Ok(record::Record {
            timestamp,
            headers: headers.collect::<Result<_>>()?,
            body: body.decode(format).map_err(|e| not_base64("body", e))?,
        })
    }
}

/// Reads the body of an append.
pub(crate) fn append_input(json: &[u8], format: Format) -> Result<record::AppendInput> {
    let AppendInput { records, match_seq_num, fencing_token } = parse(json)?;
    let fencing_token = fencing_token
        .map(record::FencingToken::new)
        .transpose()
        .map_err(|record::InvalidBatch(why)| Error::new(Code::BadJson, format!("`fencing_token`: {why}")))?;
    record::check_record_count(records.count).map_err(|record::InvalidBatch(why)| Error::invalid(why))?;
    let records = records
        .kept
        .into_iter()
        .enumerate()
        .map(|(index, record)| record.decode(format, index))
        .collect::<Result<_>>()?;
    record::AppendInput::new(records, match_seq_num, fencing_token)
        .map_err(|record::InvalidBatch(why)| Error::invalid(why))
}

/// The answer to an append.
#[derive(Debug, Serialize)]
pub(crate) struct AppendAck {
    start: StreamPosition,
    end: StreamPosition,
    tail: StreamPosition,
}

impl From<record::AppendAck> for AppendAck {
    fn from(record::AppendAck { start, end, tail, .. }: record::AppendAck) -> Self {
        Self { start: start.into(), end: end.into(), tail: tail.into() }
    }
}

/// The answer to a read, and the data of a batch event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBatch<'a> {
    /// How bytes are written.
    pub(crate) format: Format,
    /// What was read.
    pub(crate) batch: &'a record::ReadBatch,
}

impl Serialize for ReadBatch<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let record::ReadBatch { records, tail } = self.batch;
        let mut object = serializer.serialize_struct("ReadBatch", 2)?;
        object.serialize_field("records", &Records { format: self.format, records })?;
        if let Some(tail) = tail {
            object.serialize_field("tail", &StreamPosition::from(*tail))?;
        }
        object.end()
    }
}

struct Records<'a> {
    format: Format,
    records: &'a [record::SequencedRecord],
}

impl Serialize for Records<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let format = self.format;
        let mut array = serializer.serialize_seq(Some(self.records.len()))?;
        for record in self.records {
            array.serialize_element(&SequencedRecord { format, record })?;
        }
        array.end()
    }
}

struct SequencedRecord<'a> {
    format: Format,
    record: &'a record::SequencedRecord,
}

impl Serialize for SequencedRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let record::SequencedRecord { seq_num, timestamp, headers, body } = self.record;
        let mut object = serializer.serialize_struct("SequencedRecord", 4)?;
        object.serialize_field("seq_num", seq_num)?;
        object.serialize_field("timestamp", timestamp)?;
        if !headers.is_empty() {
            object.serialize_field("headers", &Headers { format: self.format, headers })?;
        }
        if !body.is_empty() {
            object.serialize_field("body", &Encoded { format: self.format, bytes: body })?;
        }
        object.end()
    }
}

struct Headers<'a> {
    format: Format,
    headers: &'a [record::Header],
}

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let format = self.format;
        let mut array = serializer.serialize_seq(Some(self.headers.len()))?;
        for record::Header { name, value } in self.headers {
            array.serialize_element(&(Encoded { format, bytes: name }, Encoded { format, bytes: value }))?;
        }
        array.end()
    }
}

struct Encoded<'a> {
    format: Format,
    bytes: &'a [u8],
}

impl Serialize for Encoded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.format {
            Format::Raw => serializer.serialize_str(&String::from_utf8_lossy(self.bytes)),
            Format::Base64 => serializer.collect_str(&Base64Display::new(self.bytes, &STANDARD)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_is_read_in_both_formats() {
        let raw = r#"{"records":[{"body":"h\u00e9 \"x\"","headers":[["k","v"],["k",""]],"timestamp":18446744073709551615},{}],
            "match_seq_num":0,"fencing_token":"","more":1}"#;
        let input = append_input(raw.as_bytes(), Format::Raw).unwrap();
        assert_eq!(input.match_seq_num, Some(0));
        assert_eq!(input.fencing_token.as_ref().unwrap().as_str(), "");
        assert_eq!(input.records()[0].body, "hé \"x\"");
        assert_eq!(input.records()[0].timestamp, Some(u64::MAX));
        assert_eq!(input.records()[0].headers[1].name, "k");
        assert_eq!(input.records()[1], record::Record::default());
        let base64 = r#"{"records":[{"headers":[["","dHJpbQ=="]],"body":"AAAAAAAAAP8="}],
            "match_seq_num":null,"fencing_token":null}"#;
        let input = append_input(base64.as_bytes(), Format::Base64).unwrap();
        assert_eq!(input.records()[0].command(), Ok(Some(record::Command::Trim(255))));
        assert_eq!((input.match_seq_num, input.fencing_token.as_ref()), (None, None));
    }

    #[test]
    fn an_append_with_a_wrong_part_is_refused_by_the_right_code() {
        let many = |n: usize| format!(r#"{{"records":[{}]}}"#, vec!["{}"; n].join(","));
        let sized = |n: usize| format!(r#"{{"records":[{{"body":"{}"}}]}}"#, "x".repeat(n));
        let token = |n: usize| format!(r#"{{"records":[{{}}],"fencing_token":"{}"}}"#, "x".repeat(n));
        for good in [many(1), many(1000), sized(1024 * 1024 - 8), token(36)] {
            assert!(append_input(good.as_bytes(), Format::Raw).is_ok());
        }
        for (json, status, part) in [
            (String::new(), 400, "body"),
            ("[]".into(), 400, "an object"),
            ("null".into(), 400, "an object"),
            ("{}".into(), 400, "missing field `records`"),
            (r#"{"records":null}"#.into(), 400, "`records`"),
            (r#"{"records":{}}"#.into(), 400, "`records`"),
            (r#"{"records":[[]]}"#.into(), 400, "`records[0]`"),
            (r#"{"records":[null]}"#.into(), 400, "`records[0]`"),
            (r#"{"records":[{"headers":null}]}"#.into(), 400, "`records[0].headers`"),
            (r#"{"records":[{"headers":[["a"]]}]}"#.into(), 400, "`records[0].headers[0]`"),
            (r#"{"records":[{"headers":[["a","b","c"]]}]}"#.into(), 400, "records[0].headers[0]"),
            (r#"{"records":[{},{"body":null}]}"#.into(), 400, "`records[1].body`"),
            (r#"{"records":[{"body":1}]}"#.into(), 400, "`records[0].body`"),
            (r#"{"records":[{"timestamp":-1}]}"#.into(), 400, "`records[0].timestamp`"),
            (r#"{"records":[{"timestamp":18446744073709551616}]}"#.into(), 400, "`records[0].timestamp`"),
            (r#"{"records":[{}],"match_seq_num":18446744073709551616}"#.into(), 400, "`match_seq_num`"),
            (r#"{"records":[{}],"match_seq_num":"0"}"#.into(), 400, "`match_seq_num`"),
            (token(37), 400, "`fencing_token`"),
            (many(0), 422, "1 to 1000 records"),
            (many(1001), 422, "1 to 1000 records"),
            (sized(1024 * 1024 - 7), 422, "metered bytes"),
            (r#"{"records":[{"headers":[["","x"],["a","b"]]}]}"#.into(), 422, "command"),
            (r#"{"records":[{"headers":[["","seal"]]}]}"#.into(), 422, "unknown command"),
        ] {
            let error = append_input(json.as_bytes(), Format::Raw).expect_err(part);
            assert_eq!(error.status(), status, "{part}");
            let message = String::from_utf8(error.body()).unwrap();
            assert!(message.contains(part), "{part}: {message}");
        }
        for bad in ["aGk", "a-_=", "aGk=\n", "=", "aGl="] {
            let json = serde_json::json!({"records": [{"body": bad}]}).to_string();
            assert_eq!(append_input(json.as_bytes(), Format::Base64).expect_err(bad).status(), 422, "{bad}");
        }
    }

    #[test]
    fn a_batch_is_written_without_its_empty_parts() {
        let header = record::Header { name: Bytes::from_static(b"k"), value: Bytes::from_static(&[0xff]) };
        let record = |seq_num, headers, body: &'static [u8]| record::SequencedRecord {
            seq_num,
            timestamp: 7,
            headers,
            body: Bytes::from_static(body),
        };
        let batch = record::ReadBatch {
            records: vec![
                record(0, vec![], b""),
                record(1, vec![header], b"x\r\n\r\nevent: control\ndata:{}"),
                record(u64::MAX, vec![], &[0xf0, 0x28, b'"']),
            ],
            tail: Some(record::StreamPosition { seq_num: 3, timestamp: 7 }),
        };
        let show = |format| serde_json::to_string(&ReadBatch { format, batch: &batch }).unwrap();
        assert_eq!(
            show(Format::Raw),
            concat!(
                r#"{"records":[{"seq_num":0,"timestamp":7},"#,
                r#"{"seq_num":1,"timestamp":7,"headers":[["k","�"]],"body":"x\r\n\r\nevent: control\ndata:{}"},"#,
                r#"{"seq_num":18446744073709551615,"timestamp":7,"body":"�(\""}],"#,
                r#""tail":{"seq_num":3,"timestamp":7}}"#
            )
        );
        assert_eq!(
            show(Format::Base64),
            concat!(
                r#"{"records":[{"seq_num":0,"timestamp":7},"#,
                r#"{"seq_num":1,"timestamp":7,"headers":[["aw==","/w=="]],"body":"eA0KDQpldmVudDogY29udHJvbApkYXRhOnt9"},"#,
                r#"{"seq_num":18446744073709551615,"timestamp":7,"body":"8Cgi"}],"#,
                r#""tail":{"seq_num":3,"timestamp":7}}"#
            )
        );
        let empty = record::ReadBatch::default();
        let shown = serde_json::to_string(&ReadBatch { format: Format::Raw, batch: &empty }).unwrap();
        assert_eq!(shown, r#"{"records":[]}"#);
    }

    proptest::proptest! {
        #[test]
        fn any_body_and_header_survives_base64_both_ways(body: Vec<u8>, name in ".{1,9}", value: Vec<u8>) {
            let json = serde_json::json!({
                "records": [{
                    "body": STANDARD.encode(&body),
                    "headers": [[STANDARD.encode(&name), STANDARD.encode(&value)]],
                }]
            });
            let input = append_input(json.to_string().as_bytes(), Format::Base64).unwrap();
            let record::Record { headers, body: got, .. } = input.records()[0].clone();
            proptest::prop_assert_eq!(&got, &body);
            let read = record::SequencedRecord { seq_num: 0, timestamp: 0, headers, body: got };
            let batch = record::ReadBatch { records: vec![read], tail: None };
            let shown = serde_json::to_value(ReadBatch { format: Format::Base64, batch: &batch }).unwrap();
            let expected = &json["records"][0];
            proptest::prop_assert_eq!(&shown["records"][0]["headers"], &expected["headers"]);
            if !body.is_empty() {
                proptest::prop_assert_eq!(&shown["records"][0]["body"], &expected["body"]);
            }
        }

        #[test]
        fn a_damaged_append_is_refused_or_read_but_never_panics(at in 0_usize..90, byte: u8, cut in 0_usize..90) {
            let whole = br#"{"records":[{"timestamp":12,"headers":[["a","b"]],"body":"x\u00e9"}],"fencing_token":"t"}"#;
            let mut damaged = whole.to_vec();
            if let Some(target) = damaged.get_mut(at) {
                *target = byte;
            }
            let _flipped = append_input(&damaged, Format::Raw);
            proptest::prop_assert!(append_input(whole.get(..cut.min(whole.len() - 1)).unwrap(), Format::Raw).is_err());
        }
    }
}
