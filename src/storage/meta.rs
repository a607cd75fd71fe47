//! The small documents: basin records, due markers, the store's own record (*pure*).
//!
//! ```text
//! basin := frame( protobuf BasinProto )                    a register: field 1 is its head
//! due   := frame( protobuf DueProto )
//! store := frame( protobuf StoreProto )
//! ```

use bytes::Bytes;
use prost::Message;

use super::config::LayerProto;
use super::frame::{self, Damaged, Kind};
use super::head::{Head, HeadProto, State};
use super::key::{Incarnation, StreamKind};
use crate::types::config::{BasinConfig, StreamConfigLayer};
use crate::types::name::{BasinName, StreamName};

/// A basin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasinRecord {
    /// Version, life, state, ring. `Live`, `Deleting` or `Tombstone`.
    pub head: Head,
    /// Its name; verified on every load.
    pub name: BasinName,
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When its deletion was accepted.
    pub deleted_at_ms: Option<u64>,
    /// What the creation asked for, if it named a request token.
    pub creation_digest: Option<[u8; 16]>,
    /// As given.
    pub config: BasinConfig,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BasinProto {
    #[prost(message, optional, tag = "1")]
    head: Option<HeadProto>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint64, tag = "3")]
    created_at_ms: u64,
    #[prost(uint64, optional, tag = "4")]
    deleted_at_ms: Option<u64>,
    #[prost(bytes = "bytes", tag = "5")]
    creation_digest: Bytes,
    #[prost(message, optional, tag = "6")]
    default_stream_config: Option<LayerProto>,
    #[prost(bool, tag = "7")]
    create_stream_on_append: bool,
    #[prost(bool, tag = "8")]
    create_stream_on_read: bool,
}

impl BasinRecord {
    /// The same basin with another state, one version on.
    #[must_use]
    pub fn next(&self, state: State) -> Self {
        Self { head: self.head.next(self.head.incarnation, state), ..self.clone() }
    }

    /// The stored shape.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let proto = BasinProto {
            head: Some(self.head.to_proto()),
            name: self.name.as_str().to_owned(),
            created_at_ms: self.created_at_ms,
            deleted_at_ms: self.deleted_at_ms,
            creation_digest: frame::optional(self.creation_digest),
            default_stream_config: Some(LayerProto::from(&self.config.default_stream_config)),
            create_stream_on_append: self.config.create_stream_on_append,
            create_stream_on_read: self.config.create_stream_on_read,
        };
        frame::seal(Kind::Basin, &proto.encode_to_vec())
    }

    /// Reads the stored shape and checks whose it is.
    pub fn decode(bytes: &Bytes, name: &BasinName) -> Result<Self, Damaged> {
        let opened = frame::open(Kind::Basin, "basin record", bytes)?;
        let proto =
            BasinProto::decode(opened.payload).map_err(|e| Damaged::new("basin record", e.to_string()))?;
        if proto.name != name.as_str() {
            return Err(Damaged::new("basin record", format!("belongs to {:?}", proto.name)));
        }
        Ok(Self {
            head: Head::from_proto(proto.head.as_ref(), opened.min_writer)?,
            name: name.clone(),
            created_at_ms: proto.created_at_ms,
            deleted_at_ms: proto.deleted_at_ms,
            creation_digest: <[u8; 16]>::try_from(&*proto.creation_digest).ok(),
            config: BasinConfig {
                default_stream_config: proto
                    .default_stream_config
                    .map(StreamConfigLayer::try_from)
                    .transpose()?
                    .unwrap_or_default(),
                create_stream_on_append: proto.create_stream_on_append,
                create_stream_on_read: proto.create_stream_on_read,
            },
        })
    }

    /// Checks that `new` may follow `self` on one key.
    pub fn check_transition(&self, new: &Self) -> Result<(), String> {
        new.head.check_follows(&self.head)?;
        let comes_back = self.head.state == State::Deleting && new.head.state == State::Live;
        if comes_back || new.name != self.name {
            return Err(format!("{:?} after {:?}", new.head.state, self.head.state));
        }
        Ok(())
    }
}

/// What a due marker asks to be visited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DueMarker {
    /// A stream's life.
    Stream {
        /// Which door's namespace.
        kind: StreamKind,
        /// The life of the basin it lies in.
        basin: Incarnation,
        /// Its name.
        name: StreamName,
        /// Its life.
        incarnation: Incarnation,
    },
    /// A basin being deleted.
    Basin {
        /// Its name.
        name: BasinName,
        /// Its life.
        incarnation: Incarnation,
    },
}

#[derive(Clone, PartialEq, prost::Message)]
struct DueProto {
    /// 0 is a basin, else the stream's kind.
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(bytes = "bytes", tag = "2")]
    basin: Bytes,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(bytes = "bytes", tag = "4")]
    incarnation: Bytes,
}

impl DueMarker {
    /// The stored shape.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let bytes = |incarnation: &Incarnation| Bytes::copy_from_slice(incarnation.as_bytes());
        let proto = match self {
            Self::Stream { kind, basin, name, incarnation } => DueProto {
                kind: *kind as u32,
                basin: bytes(basin),
                name: name.as_str().to_owned(),
                incarnation: bytes(incarnation),
            },
            Self::Basin { name, incarnation } => DueProto {
                kind: 0,
                basin: Bytes::new(),
                name: name.as_str().to_owned(),
                incarnation: bytes(incarnation),
            },
        };
        frame::seal(Kind::Due, &proto.encode_to_vec())
    }

    /// Reads the stored shape.
    pub fn decode(bytes: &Bytes) -> Result<Self, Damaged> {
        let damaged = |why: &str| Damaged::new("due marker", why);
        let payload = frame::open(Kind::Due, "due marker", bytes)?.payload;
        let proto = DueProto::decode(payload).map_err(|e| damaged(&e.to_string()))?;
        let incarnation =
            Incarnation::from_slice(&proto.incarnation).ok_or_else(|| damaged("incarnation"))?;
        if proto.kind == 0 {
            let name = BasinName::try_from(proto.name.as_str()).map_err(|e| damaged(&e.to_string()))?;
            return Ok(Self::Basin { name, incarnation });
        }
        let kind = StreamKind::from_number(proto.kind).ok_or_else(|| damaged("unknown kind"))?;
        Ok(Self::Stream {
            kind,
            basin: Incarnation::from_slice(&proto.basin).ok_or_else(|| damaged("basin"))?,
            name: StreamName::try_from(proto.name.as_str()).map_err(|e| damaged(&e.to_string()))?,
            incarnation,
        })
    }
}

/// The store's own record: its id, for ever, and the last probe that told something new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRecord {
    /// The oldest writer that may change it.
    pub min_writer: u8,
    /// Tells one store from another.
    pub id: Incarnation,
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// What the store was found to keep, if somebody looked.
    pub probe: Option<ProbeRecord>,
}

/// That the store passed a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRecord {
    /// Which one.
    pub version: u32,
    /// Where its requests went.
    pub place: String,
    /// When, by the store's clock, in milliseconds since the Unix epoch.
    pub passed_at_ms: u64,
}

impl ProbeRecord {
    /// Whether this probe, of this place, was passed.
    #[must_use]
    pub fn is_of(&self, version: u32, place: &str) -> bool {
        self.version == version && self.place == place
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoreProto {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(uint64, tag = "2")]
    created_at_ms: u64,
    #[prost(message, optional, tag = "3")]
    probe: Option<ProbeProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ProbeProto {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(string, tag = "2")]
    place: String,
    #[prost(uint64, tag = "3")]
    passed_at_ms: u64,
}

impl StoreRecord {
    /// The record of a new store.
    #[must_use]
    pub fn new(id: Incarnation, created_at_ms: u64, probe: Option<ProbeRecord>) -> Self {
        Self { min_writer: 1, id, created_at_ms, probe }
    }

    /// The stored shape.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let probe = self.probe.as_ref().map(|probe| {
            let ProbeRecord { version, place, passed_at_ms } = probe.clone();
            ProbeProto { version, place, passed_at_ms }
        });
        let id = Bytes::copy_from_slice(self.id.as_bytes());
        let proto = StoreProto { id, created_at_ms: self.created_at_ms, probe };
        frame::seal(Kind::Store, &proto.encode_to_vec())
    }

    /// Reads the stored shape.
    pub fn decode(bytes: &Bytes) -> Result<Self, Damaged> {
        let opened = frame::open(Kind::Store, "store record", bytes)?;
        let proto =
            StoreProto::decode(opened.payload).map_err(|e| Damaged::new("store record", e.to_string()))?;
        let id = Incarnation::from_slice(&proto.id).ok_or_else(|| Damaged::new("store record", "id"))?;
        let probe = proto.probe.map(|probe| {
            let ProbeProto { version, place, passed_at_ms } = probe;
            ProbeRecord { version, place, passed_at_ms }
        });
        Ok(Self { min_writer: opened.min_writer, id, created_at_ms: proto.created_at_ms, probe })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::config::{RetentionPolicy, StorageClass, TimestampingMode};

    fn layer() -> impl Strategy<Value = StreamConfigLayer> {
        let class = prop::option::of(prop_oneof![Just(StorageClass::Standard), Just(StorageClass::Express)]);
        let age = prop::option::of(prop_oneof![
            Just(RetentionPolicy::Infinite),
            (1u64..).prop_map(RetentionPolicy::Age)
        ]);
        let mode = prop::option::of(prop_oneof![
            Just(TimestampingMode::ClientPrefer),
            Just(TimestampingMode::ClientRequire),
            Just(TimestampingMode::Arrival)
        ]);
        (class, age, mode, any::<Option<bool>>(), any::<Option<u64>>()).prop_map(|(c, r, m, u, d)| {
            StreamConfigLayer {
                storage_class: c,
                retention_policy: r,
                timestamping_mode: m,
                timestamping_uncapped: u,
                delete_on_empty_min_age_secs: d,
            }
        })
    }

    proptest! {
        #[test]
        fn a_basin_record_round_trips(layer in layer(), append: bool, read: bool, deleted: Option<u64>, digest: Option<[u8; 16]>) {
            let name = BasinName::try_from("some-basin").expect("legal");
            let record = BasinRecord {
                head: Head::first(Incarnation::fresh(), State::Live),
                name: name.clone(),
                created_at_ms: 5,
                deleted_at_ms: deleted,
                creation_digest: digest,
                config: BasinConfig {
                    default_stream_config: layer,
                    create_stream_on_append: append,
                    create_stream_on_read: read,
                },
            };
            prop_assert_eq!(&BasinRecord::decode(&record.encode(), &name).expect("whole"), &record);
            let other = BasinName::try_from("other-basin").expect("legal");
            prop_assert!(BasinRecord::decode(&record.encode(), &other).is_err());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for kind in [Kind::Basin, Kind::Due, Kind::Store] {
                let sealed = frame::seal(kind, &bytes);
                let _ = DueMarker::decode(&sealed);
                let _ = StoreRecord::decode(&sealed);
                let _ = BasinRecord::decode(&sealed, &BasinName::try_from("some-basin").expect("legal"));
            }
        }
    }

    #[test]
    fn due_markers_and_the_store_record_round_trip() {
        let life = Incarnation::fresh();
        let stream = DueMarker::Stream {
            kind: StreamKind::Durable,
            basin: Incarnation::fresh(),
            name: StreamName::try_from("é/x").expect("legal"),
            incarnation: life,
        };
        let basin =
            DueMarker::Basin { name: BasinName::try_from("some-basin").expect("legal"), incarnation: life };
        for marker in [stream, basin] {
            assert_eq!(DueMarker::decode(&marker.encode()), Ok(marker));
        }
        let probe = ProbeRecord { version: 7, place: "http://127.0.0.1:9".to_owned(), passed_at_ms: 8 };
        assert!(probe.is_of(7, "http://127.0.0.1:9"));
        assert!(!probe.is_of(6, "http://127.0.0.1:9") && !probe.is_of(7, "http://127.0.0.1:8"));
        for store in [StoreRecord::new(life, 9, None), StoreRecord::new(life, 9, Some(probe))] {
            assert_eq!(StoreRecord::decode(&store.encode()), Ok(store));
        }
    }
}
