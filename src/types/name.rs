//! Names, validated once at the border: a value of these types is legal everywhere below.

use std::fmt;
use std::sync::Arc;

use super::limits::{
    BASIN_NAME_BYTES_MAX, BASIN_NAME_BYTES_MIN, BUCKET_NAME_BYTES_MAX, BUCKET_NAME_BYTES_MIN,
    REQUEST_TOKEN_BYTES_MAX, STREAM_NAME_BYTES_MAX,
};

/// Why a name was refused: the sentence names the kind of name, the rule and the offending length or byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(pub String);

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

text_type! {
    /// A basin: 8–48 bytes of `a-z 0-9 -`, beginning and ending with a letter or digit.
    BasinName
}
text_type! {
    /// The beginning of a basin name, or a place in the order of basin names: 0–48 bytes.
    BasinNamePart
}
text_type! {
    /// A bucket of Durable Streams: 4–64 bytes of `a-z 0-9 _ -`.
    BucketName
}
text_type! {
    /// A stream: 1–512 bytes of UTF-8 without NUL, not `.` or `..`. Names are compared byte by byte.
    StreamName
}
text_type! {
    /// The beginning of a stream name, or a place in the order of stream names: 0–512 bytes.
    StreamNamePart
}
text_type! {
    /// `s2-request-token`: what makes a repeated create of one call recognisable; 1–36 bytes.
    RequestToken
}

/// Where streams lie: what makes their names unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceName {
    /// In a basin.
    Basin(BasinName),
    /// In a bucket of Durable Streams.
    Bucket(BucketName),
}

impl PlaceName {
    /// What it is, for people.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Basin(_) => "basin",
            Self::Bucket(_) => "bucket",
        }
    }

    /// The name alone; a basin and a bucket may share it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Basin(name) => name.as_str(),
            Self::Bucket(name) => name.as_str(),
        }
    }
}

impl fmt::Display for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind(), self.as_str())
    }
}

impl TryFrom<&str> for BasinName {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        if !(BASIN_NAME_BYTES_MIN..=BASIN_NAME_BYTES_MAX).contains(&text.len()) {
            return Err(InvalidName(format!(
                "basin name must be {BASIN_NAME_BYTES_MIN} to {BASIN_NAME_BYTES_MAX} bytes long, got {}",
                text.len()
            )));
        }
        check_basin_bytes(text, "basin name")?;
        if text.ends_with('-') {
            return Err(InvalidName("basin name must end with a lowercase letter or a digit".to_owned()));
        }
        Ok(Self(text.into()))
    }
}

impl BasinNamePart {
    /// Checks `text`, naming it `field` in the refusal.
    pub fn parse(text: &str, field: &str) -> Result<Self, InvalidName> {
        if text.len() > BASIN_NAME_BYTES_MAX {
            return Err(InvalidName(format!(
                "`{field}` must be at most {BASIN_NAME_BYTES_MAX} bytes long, got {}",
                text.len()
            )));
        }
        if !text.is_empty() {
            check_basin_bytes(text, &format!("`{field}`"))?;
        }
        Ok(Self(text.into()))
    }
}

fn check_basin_bytes(text: &str, field: &str) -> Result<(), InvalidName> {
    if let Some(bad) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
        return Err(InvalidName(format!(
            "{field} may hold only lowercase letters, digits and hyphens, got {bad:?}"
        )));
    }
    if text.starts_with('-') {
        return Err(InvalidName(format!("{field} must begin with a lowercase letter or a digit")));
    }
    Ok(())
}

impl TryFrom<&str> for BucketName {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        if !(BUCKET_NAME_BYTES_MIN..=BUCKET_NAME_BYTES_MAX).contains(&text.len()) {
            return Err(InvalidName(format!(
                "bucket name must be {BUCKET_NAME_BYTES_MIN} to {BUCKET_NAME_BYTES_MAX} bytes long, got {}",
                text.len()
            )));
        }
        if let Some(bad) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '_' | '-')) {
            return Err(InvalidName(format!(
                "bucket name may hold only lowercase letters, digits, `_` and `-`, got {bad:?}"
            )));
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<&str> for StreamName {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() || text.len() > STREAM_NAME_BYTES_MAX {
            return Err(InvalidName(format!(
                "stream name must be 1 to {STREAM_NAME_BYTES_MAX} bytes long, got {}",
                text.len()
            )));
        }
        if text == "." || text == ".." {
            return Err(InvalidName(format!("stream name must not be {text:?}")));
        }
        check_no_nul(text, "stream name")?;
        Ok(Self(text.into()))
    }
}

impl StreamNamePart {
    /// Checks `text`, naming it `field` in the refusal.
    pub fn parse(text: &str, field: &str) -> Result<Self, InvalidName> {
        if text.len() > STREAM_NAME_BYTES_MAX {
            return Err(InvalidName(format!(
                "`{field}` must be at most {STREAM_NAME_BYTES_MAX} bytes long, got {}",
                text.len()
            )));
        }
        check_no_nul(text, &format!("`{field}`"))?;
        Ok(Self(text.into()))
    }
}

fn check_no_nul(text: &str, field: &str) -> Result<(), InvalidName> {
    if text.contains('\0') {
        return Err(InvalidName(format!("{field} must not hold a NUL byte")));
    }
    Ok(())
}

impl TryFrom<&str> for RequestToken {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() || text.len() > REQUEST_TOKEN_BYTES_MAX {
            return Err(InvalidName(format!(
                "request token must be 1 to {REQUEST_TOKEN_BYTES_MAX} bytes long, got {}",
                text.len()
            )));
        }
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basin_names_follow_their_rules() {
        for good in ["abcdefgh", "0-0-0-0-0", &"a".repeat(48)] {
            assert!(BasinName::try_from(good).is_ok(), "{good}");
        }
        for bad in
            ["", "abcdefg", &"a".repeat(49), "-abcdefgh", "abcdefgh-", "abcdefgH", "abc_defgh", "äbcdefgh"]
        {
            assert!(BasinName::try_from(bad).is_err(), "{bad}");
        }
        assert!(BasinNamePart::parse("", "prefix").is_ok());
        assert!(BasinNamePart::parse("a-", "prefix").is_ok());
        assert!(BasinNamePart::parse("-a", "prefix").is_err());
    }

    #[test]
    fn bucket_names_follow_their_rules() {
        for good in ["abcd", "_default", "a-b_9", &"a".repeat(64)] {
            assert!(BucketName::try_from(good).is_ok(), "{good}");
        }
        for bad in ["", "abc", &"a".repeat(65), "Abcd", "ab.d", "ab/d", "äbcd"] {
            assert!(BucketName::try_from(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stream_names_are_any_utf8_but_nul_and_dots() {
        for good in ["a", "a/../b", "a//b", "a/", "...", " ", "é", "e\u{301}", "😀", &"ü".repeat(256)] {
            assert!(StreamName::try_from(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a\0b", &"ü".repeat(257)] {
            assert!(StreamName::try_from(bad).is_err(), "{bad}");
        }
    }
}
