//! The manifest: the whole of a stream but its chunks and pages, and the one place where it changes (*pure*).
//!
//! ```text
//! manifest := frame( protobuf ManifestProto )              field 1 is the register head
//! ```
//! Field 20 is the ledger of a Durable Streams stream, and 21–39 are kept for more of it; 40–49 are kept for inbox
//! outcomes, 50–59 for a second bucket.

use bytes::Bytes;
use prost::Message;

use super::config::ConfigProto;
use super::frame::{self, Damaged, Kind};
use super::head::{Head, HeadProto, State};
use super::identity::{Identity, IdentityProto};
use super::index::{Ref, decode_refs, encode_refs};
use super::key::{CatalogEntry, DataClass, Incarnation, StreamHash};
use super::ledger::{Ledger, LedgerProto};
use super::tail::Tail;
use super::upkeep::{PendingCopy, Upkeep, UpkeepProto};
use crate::types::config::{RetentionPolicy, StorageClass, StreamConfig};
use crate::types::limits::{
    COPIED_BYTES_MIN, INDEX_LEVELS_MAX, INLINE_BYTES_MAX_EXPRESS, INLINE_BYTES_MAX_STANDARD,
    LEDGER_BYTES_MAX, LEDGER_PRODUCERS_BYTES_MAX, MANIFEST_FIXED_BYTES_MAX, MANIFEST_REFS_MAX, PAGE_REFS_MAX,
};
use crate::types::name::StreamName;
use crate::types::record::{FencingToken, StreamPosition};

/// What an append is judged against and changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// The next sequence number to assign.
    pub next_seq_num: u64,
    /// Timestamp of the last record.
    pub last_timestamp: u64,
    /// Arrival of the last commit of records.
    pub last_arrival_ms: u64,
    /// Records below this are gone.
    pub trim_point: u64,
    /// What a batch that names a token must name.
    pub fencing_token: FencingToken,
    /// What the stream keeps beside its records, if it is of a kind that does.
    pub ledger: Option<Box<Ledger>>,
}

/// The sizes that shape manifests; tests shrink them.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Inline tail of a `standard` stream.
    pub inline_bytes_standard: usize,
    /// Inline tail of an `express` stream.
    pub inline_bytes_express: usize,
    /// Refs per level in a manifest.
    pub refs_max: usize,
    /// Refs per page.
    pub page_refs_max: usize,
    /// Producers in a ledger, as bytes.
    pub producer_bytes_max: usize,
    /// The smallest chunk that is worth a copy within the store.
    pub copied_bytes_min: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Shape {
    /// What Leat is run with.
    pub const DEFAULT: Self = Self {
        inline_bytes_standard: INLINE_BYTES_MAX_STANDARD,
        inline_bytes_express: INLINE_BYTES_MAX_EXPRESS,
        refs_max: MANIFEST_REFS_MAX,
        page_refs_max: PAGE_REFS_MAX,
        producer_bytes_max: LEDGER_PRODUCERS_BYTES_MAX,
        copied_bytes_min: COPIED_BYTES_MIN,
    };

    /// The inline tail's limit for a storage class.
    #[must_use]
    pub fn inline_bytes_max(&self, class: StorageClass) -> usize {
        match class {
            StorageClass::Standard => self.inline_bytes_standard,
            StorageClass::Express => self.inline_bytes_express,
        }
    }
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Version, life, state, ring. `Live` or `Tombstone`.
    pub head: Head,
    /// Hash of the identity.
    pub hash: StreamHash,
    /// Whose it is; a tombstone keeps only the hash.
    pub identity: Option<Identity>,
    /// Milliseconds since the Unix epoch; the same as in the catalog.
    pub created_at_ms: u64,
    /// What the creation asked for, if it named a request token.
    pub creation_digest: Option<[u8; 16]>,
    /// Resolved at creation.
    pub config: StreamConfig,
    /// What appends change.
    pub log: LogState,
    /// The newest records.
    pub tail: Tail,
    /// Refs by level; level 0 names chunks and is the newest.
    pub levels: Vec<Vec<Ref>>,
    /// Survives tombstones: advanced whenever a batch of the inbox is combined.
    pub inbox_epoch: u64,
    /// Survives tombstones: an upload begun under an older one must be made again.
    pub collection_epoch: u64,
    /// Bits of every data class ever used.
    pub classes_used: u32,
    /// The due marker the stream stands under.
    pub due: String,
    /// What the sweeper has done, and has still to do.
    pub upkeep: Upkeep,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ManifestProto {
    #[prost(message, optional, tag = "1")]
    head: Option<HeadProto>,
    #[prost(bytes = "bytes", tag = "2")]
    hash: Bytes,
    #[prost(message, optional, tag = "3")]
    identity: Option<IdentityProto>,
    #[prost(uint64, tag = "4")]
    created_at_ms: u64,
    #[prost(bytes = "bytes", tag = "5")]
    creation_digest: Bytes,
    #[prost(message, optional, tag = "6")]
    config: Option<ConfigProto>,
    #[prost(uint64, tag = "7")]
    next_seq_num: u64,
    #[prost(uint64, tag = "8")]
    last_timestamp: u64,
    #[prost(uint64, tag = "9")]
    last_arrival_ms: u64,
    #[prost(uint64, tag = "10")]
    trim_point: u64,
    #[prost(string, tag = "11")]
    fencing_token: String,
    #[prost(bytes = "bytes", repeated, tag = "12")]
    levels: Vec<Bytes>,
    #[prost(uint64, tag = "13")]
    inbox_epoch: u64,
    #[prost(uint64, tag = "14")]
    collection_epoch: u64,
    #[prost(uint32, tag = "15")]
    classes_used: u32,
    #[prost(string, tag = "16")]
    due: String,
    #[prost(bytes = "bytes", tag = "17")]
    tail: Bytes,
    #[prost(message, optional, tag = "18")]
    upkeep: Option<UpkeepProto>,
    #[prost(message, optional, tag = "20")]
    ledger: Option<LedgerProto>,
}

impl Manifest {
    /// Sequence number of the inline tail's first record.
    #[must_use]
    pub fn tail_base(&self) -> u64 {
        self.log.next_seq_num - self.tail.count()
    }

    /// Sequence number of the oldest record that some object or the tail still holds.
    #[must_use]
    pub fn first_held(&self) -> u64 {
        self.levels.iter().rev().flatten().next().map_or_else(|| self.tail_base(), |r| r.base_seq)
    }

    /// Position of the next record.
    #[must_use]
    pub fn tail_position(&self) -> StreamPosition {
        StreamPosition { seq_num: self.log.next_seq_num, timestamp: self.log.last_timestamp }
    }

    /// The data class that chunks go to now.
    #[must_use]
    pub fn data_class(&self) -> DataClass {
        data_class(&self.config)
    }

    /// This stream's catalog entry, under its name.
    #[must_use]
    pub fn catalog_entry(&self, name: &StreamName) -> CatalogEntry {
        CatalogEntry {
            name: name.clone(),
            created_at_ms: self.created_at_ms,
            incarnation: self.head.incarnation,
        }
    }

    /// A manifest without content under this head; what belongs to the key goes on from `base`.
    #[must_use]
    pub fn empty(hash: StreamHash, head: Head, base: Option<&Self>, created_at_ms: u64, due: String) -> Self {
        Self {
            head,
            hash,
            identity: None,
            created_at_ms,
            creation_digest: None,
            config: StreamConfig::default(),
            log: LogState::default(),
            tail: Tail::default(),
            levels: Vec::new(),
            inbox_epoch: base.map_or(0, |base| base.inbox_epoch),
            collection_epoch: base.map_or(0, |base| base.collection_epoch),
            classes_used: base.map_or(0, |base| base.classes_used),
            due,
            upkeep: Upkeep::default(),
        }
    }

    /// The same stream under another configuration, visited by `due` if that is given.
    #[must_use]
    pub fn reconfigured(&self, config: StreamConfig, due: Option<String>, now_ms: u64) -> Self {
        let (was, is) = (self.data_class(), data_class(&config));
        let copy = (is > was).then(|| PendingCopy {
            from: self.first_held(),
            to: self.log.next_seq_num,
            since_ms: self.upkeep.copy.map_or(now_ms, |copy| copy.since_ms),
        });
        Self {
            head: self.head.next(self.head.incarnation, State::Live),
            config,
            // Uploads in flight go again, to the new class.
            collection_epoch: self.collection_epoch + u64::from(is != was),
            classes_used: self.classes_used | was.bit(),
            due: due.unwrap_or_else(|| self.due.clone()),
            upkeep: Upkeep {
                copy: copy.filter(|copy| copy.from < copy.to).or(self.upkeep.copy),
                ..self.upkeep
            },
            ..self.clone()
        }
    }

    /// What remains of a stream after its end: the state of its key.
    #[must_use]
    pub fn tombstone(&self, due: String) -> Self {
        let head = self.head.next(self.head.incarnation, State::Tombstone);
        // An upload that never got as far as the manifest lies in the class of its configuration.
        let classes_used = self.classes_used | self.data_class().bit();
        Self { classes_used, ..Self::empty(self.hash, head, Some(self), self.created_at_ms, due) }
    }

    /// The head of a new life over nothing, or over the tombstone of an earlier one.
    #[must_use]
    pub fn head_of_life(base: Option<&Self>, incarnation: Incarnation, state: State) -> Head {
        base.map_or_else(|| Head::first(incarnation, state), |dead| dead.head.next(incarnation, state))
    }

    /// The stored shape.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let encode_level = |refs: &Vec<Ref>| {
            let mut out = bytes::BytesMut::with_capacity(16 + refs.len() * 48);
            encode_refs(refs, &mut out);
            out.freeze()
        };
        let proto = ManifestProto {
            head: Some(self.head.to_proto()),
            hash: Bytes::copy_from_slice(self.hash.as_bytes()),
            identity: self.identity.as_ref().map(IdentityProto::from),
            created_at_ms: self.created_at_ms,
            creation_digest: frame::optional(self.creation_digest),
            config: self.head.is_live().then(|| ConfigProto::from(&self.config)),
            next_seq_num: self.log.next_seq_num,
            last_timestamp: self.log.last_timestamp,
            last_arrival_ms: self.log.last_arrival_ms,
            trim_point: self.log.trim_point,
            fencing_token: self.log.fencing_token.as_str().to_owned(),
            levels: self.levels.iter().map(encode_level).collect(),
            inbox_epoch: self.inbox_epoch,
            collection_epoch: self.collection_epoch,
            classes_used: self.classes_used,
            due: self.due.clone(),
            tail: self.tail.encode(),
            upkeep: (self.upkeep != Upkeep::default()).then(|| self.upkeep.into()),
            ledger: self.log.ledger.as_deref().map(LedgerProto::from),
        };
        frame::seal(Kind::Manifest, &proto.encode_to_vec())
    }

    /// Reads the stored shape and checks whose it is.
    pub fn decode(bytes: &Bytes, identity: &Identity) -> Result<Self, Damaged> {
        let manifest = Self::decode_any(bytes)?;
        if manifest.hash != identity.hash() || manifest.identity.as_ref().is_some_and(|own| own != identity) {
            return Err(Damaged::new("manifest", "belongs to another stream"));
        }
        Ok(manifest)
    }

    fn decode_any(bytes: &Bytes) -> Result<Self, Damaged> {
        let damaged = |why: &str| Damaged::new("manifest", why);
        let opened = frame::open(Kind::Manifest, "manifest", bytes)?;
        let proto =
            ManifestProto::decode(opened.payload).map_err(|e| Damaged::new("manifest", e.to_string()))?;
        let head = Head::from_proto(proto.head.as_ref(), opened.min_writer)?;
        let decode_level = |bytes: &Bytes| {
            let mut rest = bytes.clone();
            decode_refs(&mut rest)
        };
        let manifest = Self {
            hash: StreamHash::from_slice(&proto.hash).ok_or_else(|| damaged("hash"))?,
            identity: proto.identity.as_ref().map(Identity::try_from).transpose()?,
            created_at_ms: proto.created_at_ms,
            creation_digest: <[u8; 16]>::try_from(&*proto.creation_digest).ok(),
            config: proto.config.map(StreamConfig::try_from).transpose()?.unwrap_or_default(),
            log: LogState {
                next_seq_num: proto.next_seq_num,
                last_timestamp: proto.last_timestamp,
                last_arrival_ms: proto.last_arrival_ms,
                trim_point: proto.trim_point,
                fencing_token: FencingToken::new(proto.fencing_token)
                    .map_err(|e| Damaged::new("manifest", e.to_string()))?,
                ledger: proto.ledger.map(Ledger::try_from).transpose()?.map(Box::new),
            },
            tail: Tail::decode(proto.tail)?,
            levels: proto.levels.iter().map(decode_level).collect::<Result<_, _>>()?,
            inbox_epoch: proto.inbox_epoch,
            collection_epoch: proto.collection_epoch,
            classes_used: proto.classes_used,
            due: proto.due,
            upkeep: proto.upkeep.map(Upkeep::from).unwrap_or_default(),
            head,
        };
        manifest.check_held().map_err(|why| Damaged::new("manifest", why))?;
        if manifest.head.is_live() && manifest.identity.is_none() {
            return Err(damaged("a live stream without a name"));
        }
        Ok(manifest)
    }

    /// I-2: what the manifest holds is contiguous and ends at the next sequence number.
    fn check_held(&self) -> Result<(), String> {
        if self.tail.count() > self.log.next_seq_num {
            return Err("more inline records than were ever appended".to_owned());
        }
        let mut expected = self.first_held();
        for r in self.levels.iter().rev().flatten() {
            if r.base_seq != expected {
                return Err(format!("a gap before record {}", r.base_seq));
            }
            expected = r.end_seq();
        }
        if expected != self.tail_base() {
            return Err("a gap before the inline tail".to_owned());
        }
        if self.first_held() > self.log.trim_point {
            return Err("records are missing that were not trimmed".to_owned());
        }
        Ok(())
    }

    /// Checks that `new` may follow `self` on one key; called before every commit (I-1 … I-4, I-14).
    pub fn check_transition(&self, new: &Self, shape: &Shape) -> Result<(), String> {
        new.head.check_follows(&self.head)?;
        if new.hash != self.hash {
            return Err("another stream".to_owned());
        }
        if new.inbox_epoch < self.inbox_epoch || new.collection_epoch < self.collection_epoch {
            return Err("an epoch goes back".to_owned());
        }
        if new.classes_used & self.classes_used != self.classes_used {
            return Err("a data class is forgotten".to_owned());
        }
        if !new.head.is_live() {
            return Ok(());
        }
        if new.head.incarnation != self.head.incarnation {
            return new.check_creation();
        }
        // The sweeper has judged what it found under its marker.
        let is_judged_anew = new.config.retention_policy != self.config.retention_policy
            || new.config.delete_on_empty_min_age_secs != self.config.delete_on_empty_min_age_secs
            || new.collection_epoch != self.collection_epoch;
        if is_judged_anew && new.due == self.due {
            return Err("what is kept changes under the same due marker".to_owned());
        }
        let (was, is) = (&self.log, &new.log);
        if is.next_seq_num < was.next_seq_num
            || is.last_timestamp < was.last_timestamp
            || is.last_arrival_ms < was.last_arrival_ms
            || is.trim_point < was.trim_point
            || is.trim_point > is.next_seq_num
        {
            return Err(format!("the log goes back: {was:?} to {is:?}"));
        }
        Ledger::check_transition(was.ledger.as_deref(), is.ledger.as_deref())?;
        if new.identity != self.identity || new.created_at_ms != self.created_at_ms {
            return Err("a stream changes its identity".to_owned());
        }
        new.check_held()?;
        new.check_size(shape)
    }

    /// I-5: a creating commit names no object, because no collection fence protects one yet.
    pub fn check_creation(&self) -> Result<(), String> {
        let beside = self.log.ledger.as_deref().and_then(|ledger| ledger.objects().next());
        if beside.is_some() || self.levels.iter().any(|refs| !refs.is_empty()) {
            return Err("a creating commit names an object".to_owned());
        }
        if self.due.is_empty() {
            return Err("a stream without a due marker".to_owned());
        }
        self.check_held()
    }

    /// I-6: a manifest is bounded whatever the stream's length.
    fn check_size(&self, shape: &Shape) -> Result<(), String> {
        if self.levels.len() > INDEX_LEVELS_MAX || self.levels.iter().any(|refs| refs.len() > shape.refs_max)
        {
            return Err("too many refs".to_owned());
        }
        let bytes = self.tail.bytes();
        if bytes > shape.inline_bytes_standard.max(shape.inline_bytes_express) {
            return Err(format!("an inline tail of {bytes} bytes"));
        }
        debug_assert!(
            self.encode().len()
                <= shape.inline_bytes_standard
                    + MANIFEST_FIXED_BYTES_MAX
                    + self.log.ledger.as_ref().map_or(0, |_| LEDGER_BYTES_MAX),
            "I-6: {} bytes",
            self.encode().len()
        );
        Ok(())
    }
}

/// The data class that chunks of a stream with this configuration go to.
#[must_use]
pub fn data_class(config: &StreamConfig) -> DataClass {
    match config.retention_policy {
        RetentionPolicy::Age(secs) => DataClass::for_age_secs(Some(secs)),
        RetentionPolicy::Infinite => DataClass::for_age_secs(None),
    }
}
