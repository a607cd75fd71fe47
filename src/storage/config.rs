//! Stream configurations as manifests and basin records store them (*pure*).

use super::frame::Damaged;
use crate::types::config::{
    RetentionPolicy, StorageClass, StreamConfig, StreamConfigLayer, Timestamping, TimestampingMode,
};

/// A resolved configuration.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ConfigProto {
    #[prost(uint32, tag = "1")]
    storage_class: u32,
    /// 0 is infinite.
    #[prost(uint64, tag = "2")]
    retention_age_secs: u64,
    #[prost(uint32, tag = "3")]
    timestamping_mode: u32,
    #[prost(bool, tag = "4")]
    timestamping_uncapped: bool,
    #[prost(uint64, tag = "5")]
    delete_on_empty_min_age_secs: u64,
}

/// A layer of a configuration.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LayerProto {
    #[prost(uint32, optional, tag = "1")]
    storage_class: Option<u32>,
    /// 0 is infinite.
    #[prost(uint64, optional, tag = "2")]
    retention_age_secs: Option<u64>,
    #[prost(uint32, optional, tag = "3")]
    timestamping_mode: Option<u32>,
    #[prost(bool, optional, tag = "4")]
    timestamping_uncapped: Option<bool>,
    #[prost(uint64, optional, tag = "5")]
    delete_on_empty_min_age_secs: Option<u64>,
}

fn class_number(class: StorageClass) -> u32 {
    match class {
        StorageClass::Standard => 1,
        StorageClass::Express => 2,
    }
}

fn class_from_number(number: u32) -> Result<StorageClass, Damaged> {
    match number {
        1 => Ok(StorageClass::Standard),
        2 => Ok(StorageClass::Express),
        _ => Err(Damaged::new("stream configuration", format!("unknown storage class {number}"))),
    }
}

fn mode_number(mode: TimestampingMode) -> u32 {
    match mode {
        TimestampingMode::ClientPrefer => 1,
        TimestampingMode::ClientRequire => 2,
        TimestampingMode::Arrival => 3,
    }
}

fn mode_from_number(number: u32) -> Result<TimestampingMode, Damaged> {
    match number {
        1 => Ok(TimestampingMode::ClientPrefer),
        2 => Ok(TimestampingMode::ClientRequire),
        3 => Ok(TimestampingMode::Arrival),
        _ => Err(Damaged::new("stream configuration", format!("unknown timestamping mode {number}"))),
    }
}

fn age_secs(policy: RetentionPolicy) -> u64 {
    match policy {
        RetentionPolicy::Age(secs) => secs,
        RetentionPolicy::Infinite => 0,
    }
}

fn policy_of_secs(secs: u64) -> RetentionPolicy {
    match secs {
        0 => RetentionPolicy::Infinite,
        secs => RetentionPolicy::Age(secs),
    }
}

impl From<&StreamConfig> for ConfigProto {
    fn from(config: &StreamConfig) -> Self {
        let StreamConfig { storage_class, retention_policy, timestamping, delete_on_empty_min_age_secs } =
            *config;
        let Timestamping { mode, uncapped } = timestamping;
        Self {
            storage_class: class_number(storage_class),
            retention_age_secs: age_secs(retention_policy),
            timestamping_mode: mode_number(mode),
            timestamping_uncapped: uncapped,
            delete_on_empty_min_age_secs,
        }
    }
}

impl TryFrom<ConfigProto> for StreamConfig {
    type Error = Damaged;

    fn try_from(proto: ConfigProto) -> Result<Self, Damaged> {
        Ok(Self {
            storage_class: class_from_number(proto.storage_class)?,
            retention_policy: policy_of_secs(proto.retention_age_secs),
            timestamping: Timestamping {
                mode: mode_from_number(proto.timestamping_mode)?,
                uncapped: proto.timestamping_uncapped,
            },
            delete_on_empty_min_age_secs: proto.delete_on_empty_min_age_secs,
        })
    }
}

impl From<&StreamConfigLayer> for LayerProto {
    fn from(layer: &StreamConfigLayer) -> Self {
        let StreamConfigLayer {
            storage_class,
            retention_policy,
            timestamping_mode,
            timestamping_uncapped,
            delete_on_empty_min_age_secs,
        } = *layer;
        Self {
            storage_class: storage_class.map(class_number),
            retention_age_secs: retention_policy.map(age_secs),
            timestamping_mode: timestamping_mode.map(mode_number),
            timestamping_uncapped,
            delete_on_empty_min_age_secs,
        }
    }
}

impl TryFrom<LayerProto> for StreamConfigLayer {
    type Error = Damaged;

    fn try_from(proto: LayerProto) -> Result<Self, Damaged> {
        Ok(Self {
            storage_class: proto.storage_class.map(class_from_number).transpose()?,
            retention_policy: proto.retention_age_secs.map(policy_of_secs),
            timestamping_mode: proto.timestamping_mode.map(mode_from_number).transpose()?,
            timestamping_uncapped: proto.timestamping_uncapped,
            delete_on_empty_min_age_secs: proto.delete_on_empty_min_age_secs,
        })
    }
}
