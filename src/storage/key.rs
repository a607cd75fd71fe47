//! Every key of the store, every random id, every hash (*pure* but for the one source of randomness).
//!
//! | key | content |
//! |---|---|
//! | `meta/store` | format version, store id |
//! | `basins/<basin>` | basin record |
//! | `buckets/<bucket>` | bucket record of Durable Streams |
//! | `catalog/<basin incarnation>/<enc(name)>/!<created_at>-<incarnation>-<cipher>` | empty: the key says it all |
//! | `manifest/<H>/<hash>` | the stream |
//! | `data/<class>/<H>/<incarnation>/<id>` | chunk |
//! | `index/<H>/<incarnation>/<id>` | index page |
//! | `inbox/<H>/<incarnation>/<epoch>/<id>` | reserved: a batch waiting to be combined |
//! | `due/<slot>/<H>/<hash>-<incarnation>-<nonce>` | due marker of a stream |
//! | `due/<slot>/basin-<incarnation>-<nonce>` | due marker of a basin being deleted |
//! | `meta/clock` | written to learn the store's time |
//!
//! `H` is the first two hex digits of the hash. `enc` is base32hex in parts of 200 characters: it keeps byte
//! order, yields only `0-9 a-v`, fits a name of 512 bytes into 1,024-byte keys and into 255-byte path parts.
//! The leaf's `!` sorts below every encoded character, so a name may be the beginning of another.

use std::fmt;

use data_encoding::{BASE32HEX_NOPAD, HEXLOWER};

use crate::types::ledger::Life;
use crate::types::name::{BasinName, BucketName, StreamName, StreamNamePart};

/// Characters of one path part of an encoded name.
const PART_CHARS: usize = 200;

macro_rules! byte_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Bytes of an id.
            pub const BYTES: usize = $bytes;

            /// The raw bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            /// Reads raw bytes of the right length.
            #[must_use]
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            /// Reads the text form.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::from_slice(&HEXLOWER.decode(text.as_bytes()).ok()?)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&HEXLOWER.encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        byte_id! { $(#[$doc])* $name, $bytes }

        impl $name {
            /// A fresh random id.
            #[must_use]
            pub fn fresh() -> Self {
                Self(random())
            }
        }
    };
}

random_id! {
    /// Names one commit of a register; no two versions are ever byte-equal because each carries a fresh one.
    CommitId, 12
}
random_id! {
    /// One life of a basin or of a stream.
    Incarnation, 16
}
impl From<Life> for Incarnation {
    fn from(life: Life) -> Self {
        Self(life)
    }
}

impl From<Incarnation> for Life {
    fn from(life: Incarnation) -> Self {
        life.0
    }
}

random_id! {
    /// An immutable object; never used twice.
    ObjectId, 16
}
byte_id! {
    /// The hash that names a stream's manifest: 160 bits over the length-framed (kind, basin incarnation, name).
    StreamHash, 20
}

#[allow(clippy::disallowed_methods, reason = "the one source of randomness")]
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has a source of randomness");
    bytes
}

/// A random number below `bound` (which is above 0), for jitter.
#[must_use]
pub fn random_below(bound: u64) -> u64 {
    u64::from_le_bytes(random()) % bound.max(1)
}

/// Random text of 16 hex digits, for request ids.
#[must_use]
pub fn random_hex() -> String {
    HEXLOWER.encode(&random::<8>())
}

/// What a name means, so that doors never share a stream by accident. The number is part of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// A stream of an S2 basin.
    S2 = 1,
    /// A stream of a Durable Streams bucket.
    Durable = 2,
}

impl StreamKind {
    /// Reads the number that documents hold.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::S2, Self::Durable].into_iter().find(|kind| *kind as u32 == number)
    }
}

impl StreamHash {
    /// Hashes an identity.
    #[must_use]
    pub fn new(kind: StreamKind, basin: Incarnation, name: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[kind as u8]);
        hasher.update(basin.as_bytes());
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        let mut bytes = [0; 20];
        hasher.finalize_xof().fill(&mut bytes);
        Self(bytes)
    }

    fn partition(&self) -> String {
        HEXLOWER.encode(&self.0[..1])
    }
}

/// A digest of what a creation asked for, so that its repeat is recognised.
#[must_use]
pub fn creation_digest(token: &str, config: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(token.len() as u64).to_le_bytes());
    hasher.update(token.as_bytes());
    hasher.update(config.as_bytes());
    let mut digest = [0; 16];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

/// The lifecycle class a chunk lies under: the smallest that outlives its retention by two days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataClass {
    /// Expires after 4 days.
    Days4 = 0,
    /// Expires after 32 days.
    Days32 = 1,
    /// Expires after 400 days.
    Days400 = 2,
    /// Never expires.
    Infinite = 3,
}

impl DataClass {
    /// The smallest class of at least `age` + 2 days; no age is infinite.
    #[must_use]
    pub fn for_age_secs(age: Option<u64>) -> Self {
        const DAY: u64 = 24 * 60 * 60;
        match age {
            Some(age) if age <= 2 * DAY => Self::Days4,
            Some(age) if age <= 30 * DAY => Self::Days32,
            Some(age) if age <= 398 * DAY => Self::Days400,
            _ => Self::Infinite,
        }
    }

    /// Every class, shortest first.
    pub const ALL: [Self; 4] = [Self::Days4, Self::Days32, Self::Days400, Self::Infinite];

    /// How long an object lives under it, unless it is removed before.
    #[must_use]
    pub fn days(self) -> Option<u64> {
        match self {
            Self::Days4 => Some(4),
            Self::Days32 => Some(32),
            Self::Days400 => Some(400),
            Self::Infinite => None,
        }
    }

    /// Its bit in the set of classes a stream ever used.
    #[must_use]
    pub fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Reads the number a ref holds.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|c| *c as u64 == number)
    }

    /// Its name, in keys and in what is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Days4 => "4d",
            Self::Days32 => "32d",
            Self::Days400 => "400d",
            Self::Infinite => "inf",
        }
    }
}

/// The key of the store's own record.
pub const STORE: &str = "meta/store";
/// Where basin records lie.
pub const BASINS: &str = "basins/";

/// The key of a basin record.
#[must_use]
pub fn basin(name: &BasinName) -> String {
    format!("{BASINS}{name}")
}

/// Where bucket records lie.
pub const BUCKETS: &str = "buckets/";

/// The key of a bucket record.
#[must_use]
pub fn bucket(name: &BucketName) -> String {
    format!("{BUCKETS}{name}")
}

/// The key of a stream's manifest.
#[must_use]
pub fn manifest(hash: &StreamHash) -> String {
    format!("manifest/{}/{hash}", hash.partition())
}

/// The key of a chunk.
#[must_use]
pub fn chunk(class: DataClass, hash: &StreamHash, incarnation: Incarnation, id: ObjectId) -> String {
    format!("data/{}/{}/{incarnation}/{id}", class.as_str(), hash.partition())
}

/// The key of an index page.
#[must_use]
pub fn page(hash: &StreamHash, incarnation: Incarnation, id: ObjectId) -> String {
    format!("index/{}/{incarnation}/{id}", hash.partition())
}

/// Where due markers lie.
pub const DUE: &str = "due/";
/// The object that is written to learn the store's time.
pub const CLOCK: &str = "meta/clock";

/// Length of a slot of due markers: a marker is due once its slot has begun.
pub const DUE_SLOT_MS: u64 = 5 * 60 * 1_000;

/// A fresh key for the due marker of a stream.
#[must_use]
pub fn due_stream(at_ms: u64, hash: &StreamHash, incarnation: Incarnation) -> String {
    let nonce = HEXLOWER.encode(&random::<6>());
    format!("{DUE}{:010}/{}/{hash}-{incarnation}-{nonce}", at_ms / DUE_SLOT_MS, hash.partition())
}

/// A fresh key for the due marker of a basin being deleted.
#[must_use]
pub fn due_basin(at_ms: u64, incarnation: Incarnation) -> String {
    format!("{DUE}{:010}/basin-{incarnation}-{}", at_ms / DUE_SLOT_MS, HEXLOWER.encode(&random::<6>()))
}

/// When the slot of a due marker begins, or nothing if this is none.
#[must_use]
pub fn due_at_ms(key: &str) -> Option<u64> {
    let (slot, _) = key.strip_prefix(DUE)?.split_once('/')?;
    slot.parse::<u64>().ok()?.checked_mul(DUE_SLOT_MS)
}

/// The beginning of the first slot at or after this: a visit that must not come early.
#[must_use]
pub fn due_not_before(at_ms: u64) -> u64 {
    at_ms.saturating_add(DUE_SLOT_MS - 1)
}

/// Where the chunks of a class lie.
#[must_use]
pub fn class(class: DataClass) -> String {
    format!("data/{}/", class.as_str())
}

/// Where the chunks of a life lie, by class.
#[must_use]
pub fn chunks(class: DataClass, hash: &StreamHash, incarnation: Incarnation) -> String {
    format!("{}{}/{incarnation}/", self::class(class), hash.partition())
}

/// Where the index pages of a life lie.
#[must_use]
pub fn pages(hash: &StreamHash, incarnation: Incarnation) -> String {
    format!("index/{}/{incarnation}/", hash.partition())
}

/// The id that the key of a chunk or a page ends with.
#[must_use]
pub fn object_id(key: &str) -> Option<ObjectId> {
    ObjectId::parse(key.rsplit('/').next()?)
}

fn encode_name(name: &str) -> String {
    let text = BASE32HEX_NOPAD.encode(name.as_bytes()).to_ascii_lowercase();
    let mut encoded = String::with_capacity(text.len() + text.len() / PART_CHARS);
    for (index, c) in text.chars().enumerate() {
        if index > 0 && index % PART_CHARS == 0 {
            encoded.push('/');
        }
        encoded.push(c);
    }
    encoded
}

/// What a catalog entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// The stream.
    pub name: StreamName,
    /// Milliseconds since the Unix epoch; the same as in the manifest.
    pub created_at_ms: u64,
    /// The stream's life.
    pub incarnation: Incarnation,
}

/// Where the catalog of a basin lies.
#[must_use]
pub fn catalog(basin: Incarnation) -> String {
    format!("catalog/{basin}/")
}

/// The key prefix under which every name that begins with `prefix` lies, with some others beside.
#[must_use]
pub fn catalog_prefix(basin: Incarnation, prefix: &StreamNamePart) -> String {
    // The last character of an encoding carries bits of the next byte, which is not known yet.
    let mut text = encode_name(prefix.as_str());
    let whole_bits = !(prefix.as_str().len() * 8).is_multiple_of(5);
    if whole_bits {
        text.pop();
    }
    format!("{}{}", catalog(basin), text.trim_end_matches('/'))
}

/// A key that sorts after every entry of `name` and before every later name.
#[must_use]
pub fn catalog_after(basin: Incarnation, name: &str) -> String {
    format!("{}{}/!z", catalog(basin), encode_name(name))
}

/// Where the entries of one name lie.
#[must_use]
pub fn catalog_name(basin: Incarnation, name: &StreamName) -> String {
    format!("{}{}/!", catalog(basin), encode_name(name.as_str()))
}

/// The key of a catalog entry. The last part is reserved for the cipher of a stream; `0` is none.
#[must_use]
pub fn catalog_entry(basin: Incarnation, entry: &CatalogEntry) -> String {
    format!(
        "{}{}/!{:013}-{}-0",
        catalog(basin),
        encode_name(entry.name.as_str()),
        entry.created_at_ms,
        entry.incarnation
    )
}

/// Reads a catalog key, or says that it is none.
#[must_use]
pub fn parse_catalog_entry(basin: Incarnation, key: &str) -> Option<CatalogEntry> {
    let (encoded, leaf) = key.strip_prefix(&catalog(basin))?.rsplit_once("/!")?;
    let text = encoded.replace('/', "").to_ascii_uppercase();
    let name = String::from_utf8(BASE32HEX_NOPAD.decode(text.as_bytes()).ok()?).ok()?;
    let mut parts = leaf.split('-');
    Some(CatalogEntry {
        name: StreamName::try_from(name.as_str()).ok()?,
        created_at_ms: parts.next()?.parse().ok()?,
        incarnation: Incarnation::parse(parts.next()?)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str) -> (Incarnation, CatalogEntry) {
        let basin = Incarnation([7; 16]);
        let name = StreamName::try_from(name).expect("legal");
        (basin, CatalogEntry { name, created_at_ms: 1_700_000_000_000, incarnation: Incarnation([9; 16]) })
    }

    fn legal_name() -> impl Strategy<Value = String> {
        "[^\\x00]{1,40}|(a|b|/|\\.|ü|😀){1,130}"
            .prop_filter("legal", |s| StreamName::try_from(s.as_str()).is_ok())
    }

    #[test]
    fn the_longest_name_fits_into_a_key() {
        let (basin, entry) = entry(&"ü".repeat(256));
        let key = catalog_entry(basin, &entry);
        assert!(key.len() + crate::types::limits::ROOT_PREFIX_BYTES_MAX < 1_024, "{}", key.len());
        assert!(key.split('/').all(|part| part.len() <= 255 && !part.is_empty()));
        assert_eq!(parse_catalog_entry(basin, &key), Some(entry));
    }

    #[test]
    fn different_framings_of_the_same_text_hash_differently() {
        let (a, b) = (Incarnation([1; 16]), Incarnation([2; 16]));
        let hashes = [
            StreamHash::new(StreamKind::S2, a, "x"),
            StreamHash::new(StreamKind::S2, b, "x"),
            StreamHash::new(StreamKind::Durable, a, "x"),
            StreamHash::new(StreamKind::S2, a, "xx"),
        ];
        for (i, one) in hashes.iter().enumerate() {
            assert_eq!(hashes.iter().position(|other| other == one), Some(i));
        }
    }

    #[test]
    fn a_class_outlives_its_age_by_two_days() {
        let day = 86_400;
        assert_eq!(DataClass::for_age_secs(Some(2 * day)), DataClass::Days4);
        assert_eq!(DataClass::for_age_secs(Some(2 * day + 1)), DataClass::Days32);
        assert_eq!(DataClass::for_age_secs(Some(30 * day)), DataClass::Days32);
        assert_eq!(DataClass::for_age_secs(Some(398 * day)), DataClass::Days400);
        assert_eq!(DataClass::for_age_secs(Some(u64::MAX)), DataClass::Infinite);
        assert_eq!(DataClass::for_age_secs(None), DataClass::Infinite);
    }

    proptest! {
        #[test]
        fn catalog_keys_sort_like_names(a in legal_name(), b in legal_name()) {
            let ((basin, a), (_, b)) = (entry(&a), entry(&b));
            prop_assert_eq!(
                a.name.cmp(&b.name),
                catalog_entry(basin, &a).cmp(&catalog_entry(basin, &b))
            );
            prop_assert!(catalog_after(basin, a.name.as_str()) > catalog_entry(basin, &a));
            if a.name < b.name {
                prop_assert!(catalog_after(basin, a.name.as_str()) < catalog_entry(basin, &b));
            }
        }

        #[test]
        fn a_prefix_covers_every_name_it_begins(name in legal_name(), cut in 0usize..300) {
            let prefix: String = name.chars().take(cut).collect();
            let (basin, entry) = entry(&name);
            let prefix = StreamNamePart::parse(&prefix, "prefix").expect("shorter than a legal name");
            let key = catalog_entry(basin, &entry);
            prop_assert!(key.starts_with(&catalog_prefix(basin, &prefix)));
            prop_assert_eq!(parse_catalog_entry(basin, &key), Some(entry));
        }
    }
}
