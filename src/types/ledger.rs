//! What some streams keep beside their records (a type, an end, a lifetime, their writers), and what an append may
//! demand of it.

use bytes::Bytes;

use super::limits::{CONTENT_TYPE_BYTES_MAX, PRODUCER_ID_BYTES_MAX, WRITER_SEQ_BYTES_MAX};

/// Why a value was refused: the sentence names it and the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidEntry(pub String);

/// The content type of a stream, as it was first given; compared by its media type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContentType(String);

impl ContentType {
    /// What a stream has whose creation names none.
    #[must_use]
    pub fn octets() -> Self {
        Self("application/octet-stream".to_owned())
    }

    /// Checks that it is a media type that can be sent back in a header.
    pub fn new(text: &str) -> Result<Self, InvalidEntry> {
        let text = text.trim();
        if text.len() > CONTENT_TYPE_BYTES_MAX {
            return Err(InvalidEntry(format!(
                "`content-type` must be at most {CONTENT_TYPE_BYTES_MAX} bytes long, got {}",
                text.len()
            )));
        }
        let is_sendable = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
        let parts = text.split(';').next().unwrap_or_default().trim().split_once('/');
        if !is_sendable || parts.is_none_or(|(kind, of)| kind.is_empty() || of.is_empty()) {
            return Err(InvalidEntry(format!("`content-type` must be a media type, got {text:?}")));
        }
        Ok(Self(text.to_owned()))
    }

    /// The text, as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Type and subtype in lower case, without parameters.
    #[must_use]
    pub fn media_type(&self) -> String {
        self.0.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Whether both are the same media type.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.media_type() == other.media_type()
    }

    /// Whether messages are values of JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.media_type() == "application/json"
    }

    /// Whether messages are text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.media_type().starts_with("text/")
    }
}

/// How long a stream lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Until it is deleted.
    #[default]
    Endless,
    /// So many seconds beyond its last use.
    Idle(u64),
    /// Until this time, in milliseconds since the Unix epoch.
    Until(u64),
}

impl Lifetime {
    /// When it ends, if it was last used then; in milliseconds since the Unix epoch.
    #[must_use]
    pub fn ends_ms(self, last_used_ms: u64) -> Option<u64> {
        match self {
            Self::Endless => None,
            Self::Idle(secs) => Some(last_used_ms.saturating_add(secs.saturating_mul(1_000))),
            Self::Until(ms) => Some(ms),
        }
    }
}

/// The place of an append among those of its producer: the first of an epoch is 0, every other one more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    id: String,
    /// A higher one shuts the lower ones out.
    pub epoch: u64,
    /// Which append of the epoch.
    pub seq: u64,
}

impl Producer {
    /// Checks the length of the id.
    pub fn new(id: &str, epoch: u64, seq: u64) -> Result<Self, InvalidEntry> {
        if id.is_empty() || id.len() > PRODUCER_ID_BYTES_MAX {
            return Err(InvalidEntry(format!(
                "a producer id must be 1 to {PRODUCER_ID_BYTES_MAX} bytes long, got {}",
                id.len()
            )));
        }
        Ok(Self { id: id.to_owned(), epoch, seq })
    }

    /// Who it is.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// A writer's own mark of progress: compared byte by byte, each must be above the last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriterSeq(Bytes);

impl WriterSeq {
    /// Checks the length.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidEntry> {
        if bytes.is_empty() || bytes.len() > WRITER_SEQ_BYTES_MAX {
            return Err(InvalidEntry(format!(
                "a writer's sequence must be 1 to {WRITER_SEQ_BYTES_MAX} bytes long, got {}",
                bytes.len()
            )));
        }
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

/// One life of a stream, by its id.
pub type Life = [u8; 16];

/// Names one state of one life of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTag {
    /// The life, in hexadecimal digits.
    pub life: String,
    /// The next sequence number.
    pub tail: u64,
    /// Whether the stream is closed.
    pub is_closed: bool,
}

/// What comes after an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Others.
    #[default]
    Open,
    /// Nothing: the stream is closed with it.
    Close,
}

/// Whether an append is part of the making of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filling {
    /// It is not.
    #[default]
    No,
    /// More of the first content follows.
    More,
    /// The first content is complete: from now on the stream is there.
    Last,
}

/// What an append to a stream with a ledger demands and changes beside its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What the records are said to be; `None` if there are none.
    pub content_type: Option<ContentType>,
    /// Why the records cannot be taken, whatever the stream's state.
    pub malformed: Option<String>,
    /// Its place among those of its producer.
    pub producer: Option<Producer>,
    /// The writer's own mark of progress.
    pub writer_seq: Option<WriterSeq>,
    /// What comes after it.
    pub then: Then,
    /// The states it is meant for; any if `None`.
    pub expected: Option<Vec<StateTag>>,
    /// Whether it is part of the making of the stream.
    pub filling: Filling,
}

impl Entry {
    /// A part of a first content that is not the last.
    #[must_use]
    pub fn filling() -> Self {
        Self { filling: Filling::More, ..Self::default() }
    }
}

/// Why a stream with a ledger cannot be used, although it has not been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Its first content is still being written.
    Unfinished,
    /// Its lifetime is over.
    Expired,
    /// It was deleted while forks of it live.
    Retired,
}

/// Why an entry does not get in, or need not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The stream cannot be used.
    Unusable(Unusable),
    /// It got in before.
    Duplicate {
        /// The producer's epoch.
        epoch: u64,
        /// The producer's last append.
        seq: u64,
    },
    /// The stream is closed already, and no more was asked.
    AlreadyClosed,
    /// The stream is closed.
    Closed,
    /// The producer has a higher epoch by now.
    StaleEpoch {
        /// The current one.
        epoch: u64,
    },
    /// A new epoch must begin with append 0.
    EpochBegins {
        /// What it began with.
        seq: u64,
    },
    /// Earlier appends of the producer are missing.
    Gap {
        /// The one that would get in.
        expected: u64,
        /// The one that came.
        received: u64,
    },
    /// The stream is of another type.
    OtherType {
        /// The stream's.
        current: String,
    },
    /// The records cannot be taken.
    Malformed(String),
    /// The writer's mark is not above the last one.
    WriterSeqNotAbove {
        /// The last one, as far as it is text.
        last: String,
    },
    /// The stream is in another state than was expected.
    OtherState,
    /// The stream remembers as many producers as it can.
    TooManyProducers,
}

/// A refusal and the state it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub why: Refusal,
    /// The stream's life; nothing of it is known (zeros) where an entry is judged before there is one.
    pub life: Life,
    /// The next sequence number.
    pub tail: u64,
    /// Whether the stream is closed.
    pub is_closed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_are_kept_as_given_and_compared_by_media_type() {
        let json = ContentType::new("Application/JSON; charset=utf-8").expect("legal");
        assert_eq!(json.as_str(), "Application/JSON; charset=utf-8");
        assert!(json.is_json() && !json.is_text());
        assert!(json.matches(&ContentType::new("application/json").expect("legal")));
        assert!(!json.matches(&ContentType::octets()));
        for bad in
            ["", "json", "/", "a/", "/b", "a/b\u{e9}", "a/b\r\nx: y", &format!("a/{}", "b".repeat(300))]
        {
            assert!(ContentType::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lifetime_ends_by_its_kind() {
        assert_eq!(Lifetime::Endless.ends_ms(5), None);
        assert_eq!(Lifetime::Idle(2).ends_ms(5), Some(2_005));
        assert_eq!(Lifetime::Until(7).ends_ms(5), Some(7));
        assert_eq!(Lifetime::Idle(u64::MAX).ends_ms(5), Some(u64::MAX));
    }

    #[test]
    fn ids_and_marks_are_held_to_their_lengths() {
        assert!(Producer::new("", 0, 0).is_err());
        assert!(Producer::new(&"x".repeat(256), 0, 0).is_ok());
        assert!(Producer::new(&"x".repeat(257), 0, 0).is_err());
        assert!(WriterSeq::new(b"").is_err());
        assert!(WriterSeq::new(&[b'x'; 256]).is_ok());
        assert!(WriterSeq::new(b"10").expect("legal") < WriterSeq::new(b"2").expect("legal"));
    }
}
