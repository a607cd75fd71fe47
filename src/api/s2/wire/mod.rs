//! JSON on the wire: bodies of requests and answers, and the events of a read over SSE.
//!
//! Pure. Wire types never travel below this door: `TryFrom` turns them into `types`, `From` back.

pub(super) mod config;
pub(super) mod events;
pub(super) mod records;
pub(super) mod resources;

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::error::{Code, Error, Result};
pub(crate) use super::position::{StreamPosition, TailResponse};

/// How bytes are written as JSON strings: `s2-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// UTF-8; bytes that are not come out as U+FFFD.
    #[default]
    Raw,
    /// Standard alphabet, padded.
    Base64,
}

impl Format {
    /// Reads the value of `s2-format`, its older names among them.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "raw" | "json" => Some(Self::Raw),
            "base64" | "json-binsafe" => Some(Self::Base64),
            _ => None,
        }
    }
}

/// A value that must be written as a JSON object: a derived struct alone would also take an array of its
/// fields, so that `[]` would pass for a configuration in which nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Reads a JSON object; a refusal names the path of the field.
pub(crate) fn parse<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let Object(value) = serde_path_to_error::deserialize(&mut deserializer).map_err(|e| {
        let path = e.path().to_string();
        let why = e.into_inner();
        let message = if path == "." { format!("body: {why}") } else { format!("`{path}`: {why}") };
        Error::new(Code::BadJson, message)
    })?;
    deserializer.end().map_err(|e| Error::new(Code::BadJson, format!("body: {e}")))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_is_an_object_and_a_refusal_names_the_field() {
        let good: StreamPosition = parse(br#" {"seq_num":1,"timestamp":2,"other":[{}]} "#).unwrap();
        assert_eq!(good, StreamPosition { seq_num: 1, timestamp: 2 });
        for bad in
            ["", "null", "[1,2]", "1", "\"\"", "{", "{}", r#"{"seq_num":1,"timestamp":2}{}"#, "\u{feff}{}"]
        {
            let error = parse::<StreamPosition>(bad.as_bytes()).expect_err(bad);
            assert_eq!(error.status(), 400, "{bad}");
        }
        let Error::Coded(Code::BadJson, message) =
            parse::<StreamPosition>(br#"{"seq_num":-1,"timestamp":2}"#).unwrap_err()
        else {
            panic!("not a bad_json")
        };
        assert!(message.starts_with("`seq_num`: "), "{message}");
        let deep = format!("{{\"x\":{}", "[".repeat(100_000));
        assert!(parse::<StreamPosition>(deep.as_bytes()).is_err());
    }
}
