//! Raw paths and queries: split first, decode after, so that `%2F` stays inside the name that holds it.
//!
//! Pure. axum's own extractors decode leniently (a broken `%` stays, a repeated parameter wins or fails
//! by position); here every oddity is refused by name, and one path has one meaning on every transport.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

/// How much of an offending value a message repeats, in characters.
const ECHO_CHARS_MAX: usize = 64;

/// Why a query was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("query parameter `{name}` {why}")]
pub(super) struct BadQuery {
    name: &'static str,
    why: String,
}

/// Decodes one segment of a raw path: in `/v1/basins/x`, segment 2 is `x`. A missing one is empty.
pub(super) fn path_segment(path: &str, index: usize) -> Result<String, String> {
    let raw = path.strip_prefix('/').unwrap_or(path).split('/').nth(index).unwrap_or_default();
    percent_decode(raw).map(Cow::into_owned)
}

/// Decodes `%xx`; a `%` without two hexadecimal digits, and bytes that are not UTF-8, are refused.
pub(super) fn percent_decode(text: &str) -> Result<Cow<'_, str>, String> {
    for (at, _percent) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit)) {
            return Err(format!("`%` at byte {at} must be followed by two hexadecimal digits"));
        }
    }
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .map_err(|e| format!("the decoded bytes must be UTF-8: {e}"))
}

/// The beginning of `value`, for a message.
pub(super) fn echo(value: &str) -> Cow<'_, str> {
    match value.char_indices().nth(ECHO_CHARS_MAX) {
        None => Cow::Borrowed(value),
        Some((end, _char)) => Cow::Owned(format!("{}…", value.get(..end).unwrap_or_default())),
    }
}

/// The query of a request, undecoded; unknown parameters are ignored.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(String);

impl Query {
    /// Takes the part after `?`.
    pub(super) fn new(raw: &str) -> Self {
        Self(raw.to_owned())
    }

    /// The decoded text of a parameter. In a query, unlike in a path, `+` is a space.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, BadQuery> {
        let mut found = None;
        for pair in self.0.split('&') {
            let (raw_key, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
            // A key that cannot be decoded is none of ours.
            if percent_decode(&raw_key.replace('+', " ")).as_deref() != Ok(name) {
                continue;
            }
            let value = percent_decode(&raw_value.replace('+', " "))
                .map(Cow::into_owned)
                .map_err(|why| BadQuery { name, why: format!("cannot be decoded: {why}") })?;
            if found.replace(value).is_some() {
                return Err(BadQuery { name, why: "must be given at most once".to_owned() });
            }
        }
        Ok(found)
    }

    /// A parameter from 0 to 2^64 − 1.
    pub(super) fn u64(&self, name: &'static str) -> Result<Option<u64>, BadQuery> {
        self.integer(name, u64::MAX)
    }

    /// A parameter from 0 to 2^32 − 1.
    pub(super) fn u32(&self, name: &'static str) -> Result<Option<u32>, BadQuery> {
        self.integer(name, u32::MAX)
    }

    /// A parameter that is `true` or `false`.
    pub(super) fn bool(&self, name: &'static str) -> Result<Option<bool>, BadQuery> {
        match self.text(name)?.as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => {
                let why = format!("must be `true` or `false`, got `{}`", echo(other));
                Err(BadQuery { name, why })
            }
        }
    }

    fn integer<T: FromStr + Display + Copy>(
        &self,
        name: &'static str,
        max: T,
    ) -> Result<Option<T>, BadQuery> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match decimal(&text) {
            Some(value) => Ok(Some(value)),
            None => {
                let why = format!("must be an integer from 0 to {max}, got `{}`", echo(&text));
                Err(BadQuery { name, why })
            }
        }
    }
}

/// Reads decimal digits only: `FromStr` alone would also take a leading `+`.
pub(super) fn decimal<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_it_is_decoded() {
        let table = [
            ("/v1/streams/a%2Fb", "a/b"),
            ("/v1/streams/a%252Fb", "a%2Fb"),
            ("/v1/streams/a%20b", "a b"),
            ("/v1/streams/a+b", "a+b"),
            ("/v1/streams/a%25b", "a%b"),
            ("/v1/streams/a%3Fb/records", "a?b"),
            ("/v1/streams/a%23b", "a#b"),
            ("/v1/streams/%C3%A9", "é"),
            ("/v1/streams/e%CC%81", "e\u{301}"),
            ("/v1/streams/%f0%9f%98%80", "😀"),
            ("/v1/streams/%2e%2e", ".."),
            ("/v1/streams/..", ".."),
            ("/v1/streams/a%2F..%2Fb/records/tail", "a/../b"),
            ("/v1/streams/a%2F%2Fb", "a//b"),
            ("/v1/streams/a%2F", "a/"),
            ("/v1/streams/é", "é"),
        ];
        for (path, name) in table {
            assert_eq!(path_segment(path, 2).as_deref(), Ok(name), "{path}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_decoded_is_refused() {
        for bad in ["%", "%2", "%zz", "a%2", "%ff", "%C3", "%e9", "100%", "%%20", "%+1"] {
            assert!(path_segment(&format!("/v1/streams/{bad}"), 2).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_query_is_read_by_name() {
        let query = Query::new("prefix=a%2Fb+c&limit=18446744073709551615&clamp=true&&x&%zz=1&wait=007");
        assert_eq!(query.text("prefix"), Ok(Some("a/b c".to_owned())));
        assert_eq!(query.u64("limit"), Ok(Some(u64::MAX)));
        assert_eq!(query.bool("clamp"), Ok(Some(true)));
        assert_eq!(query.u32("wait"), Ok(Some(7)));
        assert_eq!(query.text("x"), Ok(Some(String::new())));
        assert_eq!(query.u64("count"), Ok(None));
    }

    #[test]
    fn a_query_of_a_wrong_type_is_refused_by_name_and_value() {
        for bad in ["abc", "", "-1", "%2B1", "+1", "1.0", "18446744073709551616", "0x1", "%ff", "%"] {
            let query = Query::new(&format!("limit={bad}"));
            let message = query.u64("limit").expect_err(bad).to_string();
            assert!(message.contains("`limit`"), "{message}");
        }
        for bad in ["1", "True", "", "yes"] {
            assert!(Query::new(&format!("clamp={bad}")).bool("clamp").is_err(), "{bad}");
        }
        assert!(Query::new("wait=4294967296").u32("wait").is_err());
        assert!(Query::new("limit=1&limit=1").u64("limit").is_err());
        assert!(Query::new("limit=1&l%69mit=1").u64("limit").is_err());
        assert_eq!(Query::new("other=1&other=2").u64("limit"), Ok(None));
    }

    proptest::proptest! {
        #[test]
        fn any_name_survives_its_encoding(name in "\\PC{1,40}|[%/.+?# ]{1,8}") {
            let encoded = percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC);
            let path = format!("/v1/streams/{encoded}/records");
            proptest::prop_assert_eq!(path_segment(&path, 2), Ok(name.clone()));
            let query = Query::new(&format!("prefix={encoded}"));
            proptest::prop_assert_eq!(query.text("prefix"), Ok(Some(name)));
        }

        #[test]
        fn no_path_and_no_query_panics(text in "[%0-9a-fé/&=+]{0,40}") {
            let _decoded = path_segment(&text, 2);
            let _value = Query::new(&text).u64("a");
        }
    }

    #[test]
    fn an_echo_is_short_and_whole_characters() {
        assert_eq!(echo("abc"), "abc");
        assert_eq!(echo(&"ü".repeat(100)), format!("{}…", "ü".repeat(64)));
    }
}
