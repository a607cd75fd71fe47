//! Whose a manifest is (*pure*).

use bytes::Bytes;

use super::frame::Damaged;
use super::key::{Incarnation, StreamHash, StreamKind};
use crate::types::name::StreamName;

/// Whose manifest it is; verified on every load.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Which door's namespace.
    pub kind: StreamKind,
    /// The life of the basin it lies in.
    pub basin: Incarnation,
    /// The stream's name.
    pub name: StreamName,
}

impl Identity {
    /// The hash that names the manifest.
    #[must_use]
    pub fn hash(&self) -> StreamHash {
        StreamHash::new(self.kind, self.basin, self.name.as_str())
    }
}

/// The stored shape.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct IdentityProto {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(bytes = "bytes", tag = "2")]
    basin: Bytes,
    #[prost(string, tag = "3")]
    name: String,
}

impl From<&Identity> for IdentityProto {
    fn from(identity: &Identity) -> Self {
        let Identity { kind, basin, name } = identity;
        Self {
            kind: *kind as u32,
            basin: Bytes::copy_from_slice(basin.as_bytes()),
            name: name.as_str().to_owned(),
        }
    }
}

impl TryFrom<&IdentityProto> for Identity {
    type Error = Damaged;

    fn try_from(proto: &IdentityProto) -> Result<Self, Damaged> {
        let damaged = |why: &str| Damaged::new("manifest identity", why);
        let kind = StreamKind::from_number(proto.kind).ok_or_else(|| damaged("unknown kind"))?;
        Ok(Self {
            kind,
            basin: Incarnation::from_slice(&proto.basin).ok_or_else(|| damaged("basin"))?,
            name: StreamName::try_from(proto.name.as_str()).map_err(|e| damaged(&e.to_string()))?,
        })
    }
}
