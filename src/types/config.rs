//! Configurations in three shapes: resolved, optional layer, patch; joined by `merge` and `apply`.
//!
//! A stream's configuration is resolved once, at creation: request, else basin default, else built-in. It is
//! then frozen but for reconfiguration. Source: S2 API, configuration.

/// Built-in retention: 7 days.
pub const RETENTION_AGE_SECS_DEFAULT: u64 = 604_800;

/// Selects flush and poll intervals of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StorageClass {
    /// Cheap: commits gather for up to 20 ms.
    #[default]
    Standard,
    /// Fast: commits gather for up to 2 ms.
    Express,
}

impl StorageClass {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Express => "express",
        }
    }

    /// Reads the name on the wire.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "standard" => Some(Self::Standard),
            "express" => Some(Self::Express),
            _ => None,
        }
    }
}

/// How long a record is kept, counted from its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetentionPolicy {
    /// Seconds, above 0.
    Age(u64),
    /// Until trimmed.
    Infinite,
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        Self::Age(RETENTION_AGE_SECS_DEFAULT)
    }
}

/// Where a record's timestamp comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampingMode {
    /// The client's, else the arrival.
    #[default]
    ClientPrefer,
    /// The client's; a record without one is refused.
    ClientRequire,
    /// The arrival.
    Arrival,
}

/// The resolved timestamping of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamping {
    /// Where timestamps come from.
    pub mode: TimestampingMode,
    /// Whether a client timestamp may lie after the arrival.
    pub uncapped: bool,
}

/// A resolved stream configuration: every field has a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamConfig {
    /// Flush and poll intervals.
    pub storage_class: StorageClass,
    /// Age at which records are dropped.
    pub retention_policy: RetentionPolicy,
    /// Where timestamps come from.
    pub timestamping: Timestamping,
    /// Seconds after its last write at which an empty stream is deleted; 0 is never.
    pub delete_on_empty_min_age_secs: u64,
}

/// A layer of a stream configuration: `None` asks the layer below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamConfigLayer {
    /// See [`StreamConfig::storage_class`].
    pub storage_class: Option<StorageClass>,
    /// See [`StreamConfig::retention_policy`].
    pub retention_policy: Option<RetentionPolicy>,
    /// See [`Timestamping::mode`].
    pub timestamping_mode: Option<TimestampingMode>,
    /// See [`Timestamping::uncapped`].
    pub timestamping_uncapped: Option<bool>,
    /// See [`StreamConfig::delete_on_empty_min_age_secs`].
    pub delete_on_empty_min_age_secs: Option<u64>,
}

impl StreamConfigLayer {
    /// Fills what this layer leaves open from `below`.
    #[must_use]
    pub fn merge(self, below: Self) -> Self {
        Self {
            storage_class: self.storage_class.or(below.storage_class),
            retention_policy: self.retention_policy.or(below.retention_policy),
            timestamping_mode: self.timestamping_mode.or(below.timestamping_mode),
            timestamping_uncapped: self.timestamping_uncapped.or(below.timestamping_uncapped),
            delete_on_empty_min_age_secs: self
                .delete_on_empty_min_age_secs
                .or(below.delete_on_empty_min_age_secs),
        }
    }

    /// Fills what is still open with the built-in values; `storage_class` is the server's choice.
    #[must_use]
    pub fn resolve(self, storage_class: StorageClass) -> StreamConfig {
        StreamConfig {
            storage_class: self.storage_class.unwrap_or(storage_class),
            retention_policy: self.retention_policy.unwrap_or_default(),
            timestamping: Timestamping {
                mode: self.timestamping_mode.unwrap_or_default(),
                uncapped: self.timestamping_uncapped.unwrap_or_default(),
            },
            delete_on_empty_min_age_secs: self.delete_on_empty_min_age_secs.unwrap_or_default(),
        }
    }
}

impl From<StreamConfig> for StreamConfigLayer {
    fn from(config: StreamConfig) -> Self {
        Self {
            storage_class: Some(config.storage_class),
            retention_policy: Some(config.retention_policy),
            timestamping_mode: Some(config.timestamping.mode),
            timestamping_uncapped: Some(config.timestamping.uncapped),
            delete_on_empty_min_age_secs: Some(config.delete_on_empty_min_age_secs),
        }
    }
}

/// What a patch does to one leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patch<T> {
    /// Absent in the patch: unchanged.
    #[default]
    Keep,
    /// `null` in the patch: back to unset.
    Clear,
    /// A new value.
    Set(T),
}

impl<T> Patch<T> {
    /// Applies the patch to an optional leaf.
    #[must_use]
    pub fn apply(self, current: Option<T>) -> Option<T> {
        match self {
            Self::Keep => current,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// A patch of a stream configuration, leaf by leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamConfigPatch {
    /// See [`StreamConfig::storage_class`].
    pub storage_class: Patch<StorageClass>,
    /// See [`StreamConfig::retention_policy`].
    pub retention_policy: Patch<RetentionPolicy>,
    /// See [`Timestamping::mode`].
    pub timestamping_mode: Patch<TimestampingMode>,
    /// See [`Timestamping::uncapped`].
    pub timestamping_uncapped: Patch<bool>,
    /// See [`StreamConfig::delete_on_empty_min_age_secs`].
    pub delete_on_empty_min_age_secs: Patch<u64>,
}

impl StreamConfigPatch {
    /// A patch that clears every leaf.
    pub const CLEAR: Self = Self {
        storage_class: Patch::Clear,
        retention_policy: Patch::Clear,
        timestamping_mode: Patch::Clear,
        timestamping_uncapped: Patch::Clear,
        delete_on_empty_min_age_secs: Patch::Clear,
    };

    /// Applies the patch to a layer. On a stream, merge the result with the basin default and resolve it again.
    #[must_use]
    pub fn apply(self, current: StreamConfigLayer) -> StreamConfigLayer {
        StreamConfigLayer {
            storage_class: self.storage_class.apply(current.storage_class),
            retention_policy: self.retention_policy.apply(current.retention_policy),
            timestamping_mode: self.timestamping_mode.apply(current.timestamping_mode),
            timestamping_uncapped: self.timestamping_uncapped.apply(current.timestamping_uncapped),
            delete_on_empty_min_age_secs: self
                .delete_on_empty_min_age_secs
                .apply(current.delete_on_empty_min_age_secs),
        }
    }
}

/// A basin configuration; `default_stream_config` is kept as partial as it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BasinConfig {
    /// The layer below the request's when a stream is created.
    pub default_stream_config: StreamConfigLayer,
    /// Whether an append creates the stream it names.
    pub create_stream_on_append: bool,
    /// Whether a read or check-tail creates the stream it names.
    pub create_stream_on_read: bool,
}

/// A patch of a basin configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BasinConfigPatch {
    /// Merged recursively.
    pub default_stream_config: StreamConfigPatch,
    /// `None` leaves it as it is.
    pub create_stream_on_append: Option<bool>,
    /// `None` leaves it as it is.
    pub create_stream_on_read: Option<bool>,
}

impl BasinConfigPatch {
    /// Applies the patch.
    #[must_use]
    pub fn apply(self, current: BasinConfig) -> BasinConfig {
        BasinConfig {
            default_stream_config: self.default_stream_config.apply(current.default_stream_config),
            create_stream_on_append: self.create_stream_on_append.unwrap_or(current.create_stream_on_append),
            create_stream_on_read: self.create_stream_on_read.unwrap_or(current.create_stream_on_read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_config_resolves_request_then_basin_then_built_in() {
        let request = StreamConfigLayer { timestamping_uncapped: Some(true), ..Default::default() };
        let basin = StreamConfigLayer {
            timestamping_uncapped: Some(false),
            retention_policy: Some(RetentionPolicy::Infinite),
            ..Default::default()
        };
        let resolved = request.merge(basin).resolve(StorageClass::Express);
        assert!(resolved.timestamping.uncapped);
        assert_eq!(resolved.retention_policy, RetentionPolicy::Infinite);
        assert_eq!(resolved.storage_class, StorageClass::Express);
        assert_eq!(resolved.timestamping.mode, TimestampingMode::ClientPrefer);
    }

    #[test]
    fn a_cleared_leaf_falls_back_to_the_layer_below() {
        let stream = StreamConfig { retention_policy: RetentionPolicy::Age(5), ..Default::default() };
        let patch = StreamConfigPatch { retention_policy: Patch::Clear, ..Default::default() };
        let basin =
            StreamConfigLayer { retention_policy: Some(RetentionPolicy::Age(9)), ..Default::default() };
        let resolved = patch.apply(stream.into()).merge(basin).resolve(StorageClass::Standard);
        assert_eq!(resolved.retention_policy, RetentionPolicy::Age(9));
    }
}
