//! What the sweeper has done with a stream, and has still to do (*pure*).

/// What the sweeper has done with a stream, and has still to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Small chunks before this were merged, or are not worth it.
    pub compacted_to: u64,
    /// When orphans were last looked for.
    pub collected_ms: u64,
    /// Chunks that lie in a class that is too short for the retention.
    pub copy: Option<PendingCopy>,
}

/// Chunks on their way to a longer data class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCopy {
    /// What comes before this has been copied.
    pub from: u64,
    /// What was committed from here on lies in the longer class already.
    pub to: u64,
    /// When the retention was made longer.
    pub since_ms: u64,
}

/// The stored shape.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct UpkeepProto {
    #[prost(uint64, tag = "1")]
    compacted_to: u64,
    #[prost(uint64, tag = "2")]
    collected_ms: u64,
    #[prost(uint64, tag = "3")]
    copy_from: u64,
    #[prost(uint64, tag = "4")]
    copy_to: u64,
    #[prost(uint64, tag = "5")]
    copy_since_ms: u64,
}

impl From<Upkeep> for UpkeepProto {
    fn from(upkeep: Upkeep) -> Self {
        let copy = upkeep.copy.unwrap_or(PendingCopy { from: 0, to: 0, since_ms: 0 });
        Self {
            compacted_to: upkeep.compacted_to,
            collected_ms: upkeep.collected_ms,
            copy_from: copy.from,
            copy_to: copy.to,
            copy_since_ms: copy.since_ms,
        }
    }
}

impl From<UpkeepProto> for Upkeep {
    fn from(proto: UpkeepProto) -> Self {
        let copy = PendingCopy { from: proto.copy_from, to: proto.copy_to, since_ms: proto.copy_since_ms };
        Self {
            compacted_to: proto.compacted_to,
            collected_ms: proto.collected_ms,
            copy: (copy.from < copy.to).then_some(copy),
        }
    }
}
