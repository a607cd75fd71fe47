//! From the body of an append to messages (*pure*): one for all of it, or one for every value of JSON.

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::types::ledger::ContentType;
use crate::types::record::{Header, Record, SequencedRecord};

/// Header of a message that others of the same append follow.
const MORE: &[u8] = b"+";

/// Whether more messages of the same append follow this one.
pub(super) fn has_more(message: &SequencedRecord) -> bool {
    message.headers.iter().any(|header| header.name == MORE)
}

/// The messages in a body, or what is wrong with it.
///
/// JSON is flattened by one level: an array is as many messages as it has elements. Their text is kept as it is,
/// so that large numbers and repeated names survive.
pub(super) fn messages(content_type: &ContentType, body: &Bytes) -> Result<Vec<Record>, String> {
    if body.is_empty() {
        return Ok(Vec::new());
    }
    if !content_type.is_json() {
        return Ok(vec![message(body.clone())]);
    }
    std::str::from_utf8(body).map_err(|e| format!("the body must be JSON: {e}"))?;
    serde_json::from_slice::<IgnoredAny>(body).map_err(|e| format!("the body must be JSON: {e}"))?;
    let start = body.iter().position(|byte| !is_space(*byte)).unwrap_or(0);
    if body.get(start) != Some(&b'[') {
        return Ok(vec![message(trimmed(body, start, body.len()))]);
    }
    let mut found = Vec::new();
    let (mut depth, mut is_text, mut is_escaped) = (0usize, false, false);
    let mut from = start + 1;
    for (at, byte) in body.iter().enumerate().skip(start + 1) {
        match (byte, is_text) {
            (_, true) if is_escaped => is_escaped = false,
            (b'\\', true) => is_escaped = true,
            (b'"', _) => is_text = !is_text,
            (_, true) => {}
            (b'[' | b'{', false) => depth += 1,
            (b']', false) if depth == 0 => {
                let last = trimmed(body, from, at);
                if !last.is_empty() {
                    found.push(message(last));
                }
                break;
            }
            (b']' | b'}', false) => depth -= 1,
            (b',', false) if depth == 0 => {
                found.push(message(trimmed(body, from, at)));
                from = at + 1;
            }
            _ => {}
        }
    }
    let last = found.len().saturating_sub(1);
    for message in found.iter_mut().take(last) {
        message.headers = vec![Header { name: Bytes::from_static(MORE), value: Bytes::new() }];
    }
    Ok(found)
}

fn message(body: Bytes) -> Record {
    Record { body, ..Record::default() }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// A part of the body without the space around it, sharing its memory.
fn trimmed(body: &Bytes, from: usize, to: usize) -> Bytes {
    let part = body.get(from..to).unwrap_or_default();
    let lead = part.iter().take_while(|byte| is_space(**byte)).count();
    let trail = part.iter().skip(lead).rev().take_while(|byte| is_space(**byte)).count();
    body.slice(from + lead..to - trail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> Result<Vec<String>, String> {
        let content_type = ContentType::new("application/json").expect("legal");
        let records = messages(&content_type, &Bytes::copy_from_slice(text.as_bytes()))?;
        Ok(records.iter().map(|r| String::from_utf8(r.body.to_vec()).expect("text")).collect())
    }

    #[test]
    fn json_is_flattened_by_one_level_and_kept_as_it_is() {
        let table: [(&str, &[&str]); 9] = [
            ("1", &["1"]),
            (" {\"a\" : 1} \n", &["{\"a\" : 1}"]),
            ("[]", &[]),
            (" [ ] ", &[]),
            ("[1, 2 ,3]", &["1", "2", "3"]),
            ("[[1,2],[3,4]]", &["[1,2]", "[3,4]"]),
            (r#"["a,]", "\"],", {"b":"}"}]"#, &[r#""a,]""#, r#""\"],""#, r#"{"b":"}"}"#]),
            ("[12345678901234567890123,1.0]", &["12345678901234567890123", "1.0"]),
            ("\"\"", &["\"\""]),
        ];
        for (text, expected) in table {
            assert_eq!(
                json(text).as_deref(),
                Ok(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
        for bad in [" ", "{", "[1,]", "[1 2]", "1 2", "nope", "[1]]", "\"\u{1}\""] {
            assert!(json(bad).is_err(), "{bad}");
        }
        let invalid = Bytes::from_static(b"\"\xff\"");
        assert!(messages(&ContentType::new("application/json").expect("legal"), &invalid).is_err());
    }

    #[test]
    fn all_but_the_last_of_an_append_say_that_more_follows() {
        let content_type = ContentType::new("application/json").expect("legal");
        let more = |text: &'static str| -> Vec<bool> {
            let records = messages(&content_type, &Bytes::from_static(text.as_bytes())).expect("valid");
            records.into_iter().map(|r| !r.headers.is_empty()).collect()
        };
        assert_eq!(more("[1,2,3]"), [true, true, false]);
        assert_eq!(more("[1]"), [false]);
        assert_eq!(more("1"), [false]);
    }

    #[test]
    fn other_types_are_one_message() {
        let body = Bytes::from_static(b"[1,2]\r\n");
        let records = messages(&ContentType::octets(), &body).expect("anything goes");
        assert_eq!(records, [message(body)]);
        assert_eq!(messages(&ContentType::octets(), &Bytes::new()), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn an_array_is_as_many_messages_as_elements(
            texts in prop::collection::vec("[ -~é\\n]{0,8}", 0..6), nested: bool,
        ) {
            let elements: Vec<serde_json::Value> = texts
                .into_iter()
                .map(|t| if nested { serde_json::json!([{ "k": t }]) } else { serde_json::json!(t) })
                .collect();
            let found = json(&serde_json::to_string_pretty(&elements).expect("json")).expect("valid");
            let parsed: Vec<serde_json::Value> =
                found.iter().map(|t| serde_json::from_str(t).expect("each is whole")).collect();
            prop_assert_eq!(parsed, elements);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = messages(&ContentType::new("application/json").expect("legal"), &bytes.into());
        }
    }
}
