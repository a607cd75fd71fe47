//! Configurations in JSON: as given, as shown, and as patched (absent, null and a value are three things).
//!
//! Pure. What is shown always has all its keys, null where unset.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};

use super::super::error::{Error, Result};
use super::Object;
use crate::api::uri::echo;
use crate::types::config::{self, Patch};

/// A stream's configuration, given or shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamConfig {
    storage_class: Option<Cow<'static, str>>,
    retention_policy: Option<RetentionPolicy>,
    timestamping: Option<Object<Timestamping>>,
    delete_on_empty: Option<Object<DeleteOnEmpty>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RetentionPolicy {
    /// Seconds.
    Age(u64),
    Infinite(Object<Infinite>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Infinite {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TimestampingMode {
    ClientPrefer,
    ClientRequire,
    Arrival,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Timestamping {
    mode: Option<TimestampingMode>,
    uncapped: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct DeleteOnEmpty {
    #[serde(default)]
    min_age_secs: u64,
}

/// A basin's configuration, given or shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BasinConfig {
    default_stream_config: Option<Object<StreamConfig>>,
    stream_cipher: Option<StreamCipher>,
    #[serde(default)]
    create_stream_on_append: bool,
    #[serde(default)]
    create_stream_on_read: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum StreamCipher {
    #[serde(rename = "aegis-256")]
    Aegis256,
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
}

/// A patch of a stream's configuration.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct StreamReconfiguration {
    #[serde(default, deserialize_with = "patch")]
    storage_class: Patch<String>,
    #[serde(default, deserialize_with = "patch")]
    retention_policy: Patch<RetentionPolicy>,
    #[serde(default, deserialize_with = "patch")]
    timestamping: Patch<Object<TimestampingReconfiguration>>,
    #[serde(default, deserialize_with = "patch")]
    delete_on_empty: Patch<Object<DeleteOnEmptyReconfiguration>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct TimestampingReconfiguration {
    #[serde(default, deserialize_with = "patch")]
    mode: Patch<TimestampingMode>,
    #[serde(default, deserialize_with = "patch")]
    uncapped: Patch<bool>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct DeleteOnEmptyReconfiguration {
    #[serde(default, deserialize_with = "patch")]
    min_age_secs: Patch<u64>,
}

/// A patch of a basin's configuration. The two switches cannot be null.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct BasinReconfiguration {
    #[serde(default, deserialize_with = "patch")]
    default_stream_config: Patch<Object<StreamReconfiguration>>,
    #[serde(default, deserialize_with = "patch")]
    stream_cipher: Patch<StreamCipher>,
    #[serde(default, deserialize_with = "value")]
    create_stream_on_append: Option<bool>,
    #[serde(default, deserialize_with = "value")]
    create_stream_on_read: Option<bool>,
}

/// A key that is there: null clears, a value sets. An absent key is the default, [`Patch::Keep`].
fn patch<'de, D, T>(deserializer: D) -> std::result::Result<Patch<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(|given| given.map_or(Patch::Clear, Patch::Set))
}

/// A key that is there must have a value.
fn value<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<bool>, D::Error> {
    bool::deserialize(deserializer).map(Some)
}

fn try_map<T, U>(patch: Patch<T>, convert: impl FnOnce(T) -> Result<U>) -> Result<Patch<U>> {
    Ok(match patch {
        Patch::Keep => Patch::Keep,
        Patch::Clear => Patch::Clear,
        Patch::Set(value) => Patch::Set(convert(value)?),
    })
}

fn storage_class(name: &str) -> Result<config::StorageClass> {
    config::StorageClass::parse(name).ok_or_else(|| {
        Error::invalid(format!("`storage_class` must be `standard` or `express`, got `{}`", echo(name)))
    })
}

fn refuse_cipher(cipher: StreamCipher) -> Result<()> {
    let name = match cipher {
        StreamCipher::Aegis256 => "aegis-256",
        StreamCipher::Aes256Gcm => "aes-256-gcm",
    };
    Err(Error::invalid(format!(
        "`stream_cipher` must be absent or null, got `{name}`: encryption is not available yet"
    )))
}

impl TryFrom<RetentionPolicy> for config::RetentionPolicy {
    type Error = Error;

    fn try_from(policy: RetentionPolicy) -> Result<Self> {
        match policy {
            RetentionPolicy::Age(0) => {
                Err(Error::invalid("`retention_policy.age` must be at least 1 second, got 0"))
            }
            RetentionPolicy::Age(secs) => Ok(Self::Age(secs)),
            RetentionPolicy::Infinite(Object(Infinite {})) => Ok(Self::Infinite),
        }
    }
}

impl From<config::RetentionPolicy> for RetentionPolicy {
    fn from(policy: config::RetentionPolicy) -> Self {
        match policy {
            config::RetentionPolicy::Age(secs) => Self::Age(secs),
            config::RetentionPolicy::Infinite => Self::Infinite(Object(Infinite {})),
        }
    }
}

impl From<TimestampingMode> for config::TimestampingMode {
    fn from(mode: TimestampingMode) -> Self {
        match mode {
            TimestampingMode::ClientPrefer => Self::ClientPrefer,
            TimestampingMode::ClientRequire => Self::ClientRequire,
            TimestampingMode::Arrival => Self::Arrival,
        }
    }
}

impl From<config::TimestampingMode> for TimestampingMode {
    fn from(mode: config::TimestampingMode) -> Self {
        match mode {
            config::TimestampingMode::ClientPrefer => Self::ClientPrefer,
            config::TimestampingMode::ClientRequire => Self::ClientRequire,
            config::TimestampingMode::Arrival => Self::Arrival,
        }
    }
}

impl TryFrom<StreamConfig> for config::StreamConfigLayer {
    type Error = Error;

    fn try_from(given: StreamConfig) -> Result<Self> {
        let StreamConfig { storage_class: class, retention_policy, timestamping, delete_on_empty } = given;
        let Object(Timestamping { mode, uncapped }) = timestamping.unwrap_or_default();
        Ok(Self {
            storage_class: class.as_deref().map(storage_class).transpose()?,
            retention_policy: retention_policy.map(TryInto::try_into).transpose()?,
            timestamping_mode: mode.map(Into::into),
            timestamping_uncapped: uncapped,
            delete_on_empty_min_age_secs: delete_on_empty.map(|Object(given)| given.min_age_secs),
        })
    }
}

impl From<config::StreamConfigLayer> for StreamConfig {
    fn from(layer: config::StreamConfigLayer) -> Self {
        let config::StreamConfigLayer {
            storage_class,
            retention_policy,
            timestamping_mode,
            timestamping_uncapped,
            delete_on_empty_min_age_secs,
        } = layer;
        let timestamping =
            Timestamping { mode: timestamping_mode.map(Into::into), uncapped: timestamping_uncapped };
        Self {
            storage_class: storage_class.map(|class| Cow::Borrowed(class.as_str())),
            retention_policy: retention_policy.map(Into::into),
            timestamping: (timestamping != Timestamping::default()).then_some(Object(timestamping)),
            delete_on_empty: delete_on_empty_min_age_secs
                .map(|min_age_secs| Object(DeleteOnEmpty { min_age_secs })),
        }
    }
}

impl From<config::StreamConfig> for StreamConfig {
    fn from(resolved: config::StreamConfig) -> Self {
        config::StreamConfigLayer::from(resolved).into()
    }
}

impl TryFrom<BasinConfig> for config::BasinConfig {
    type Error = Error;

    fn try_from(given: BasinConfig) -> Result<Self> {
        let BasinConfig {
            default_stream_config,
            stream_cipher,
            create_stream_on_append,
            create_stream_on_read,
        } = given;
        stream_cipher.map_or(Ok(()), refuse_cipher)?;
        let Object(default_stream_config) = default_stream_config.unwrap_or_default();
        Ok(Self {
            default_stream_config: default_stream_config.try_into()?,
            create_stream_on_append,
            create_stream_on_read,
        })
    }
}

impl From<config::BasinConfig> for BasinConfig {
    fn from(config: config::BasinConfig) -> Self {
        let config::BasinConfig { default_stream_config, create_stream_on_append, create_stream_on_read } =
            config;
        let nothing_set = default_stream_config == config::StreamConfigLayer::default();
        Self {
            default_stream_config: (!nothing_set).then(|| Object(default_stream_config.into())),
            stream_cipher: None,
            create_stream_on_append,
            create_stream_on_read,
        }
    }
}

impl TryFrom<StreamReconfiguration> for config::StreamConfigPatch {
    type Error = Error;

    fn try_from(given: StreamReconfiguration) -> Result<Self> {
        let StreamReconfiguration { storage_class: class, retention_policy, timestamping, delete_on_empty } =
            given;
        let TimestampingReconfiguration { mode, uncapped } = match timestamping {
            Patch::Keep => TimestampingReconfiguration { mode: Patch::Keep, uncapped: Patch::Keep },
            Patch::Clear => TimestampingReconfiguration { mode: Patch::Clear, uncapped: Patch::Clear },
            Patch::Set(Object(given)) => given,
        };
        Ok(Self {
            storage_class: try_map(class, |name| storage_class(&name))?,
            retention_policy: try_map(retention_policy, TryInto::try_into)?,
            timestamping_mode: try_map(mode, |mode| Ok(mode.into()))?,
            timestamping_uncapped: uncapped,
            delete_on_empty_min_age_secs: match delete_on_empty {
                Patch::Keep => Patch::Keep,
                Patch::Clear => Patch::Clear,
                Patch::Set(Object(DeleteOnEmptyReconfiguration { min_age_secs })) => min_age_secs,
            },
        })
    }
}

impl TryFrom<BasinReconfiguration> for config::BasinConfigPatch {
    type Error = Error;

    fn try_from(given: BasinReconfiguration) -> Result<Self> {
        let BasinReconfiguration {
            default_stream_config,
            stream_cipher,
            create_stream_on_append,
            create_stream_on_read,
        } = given;
        try_map(stream_cipher, refuse_cipher)?;
        Ok(Self {
            default_stream_config: match default_stream_config {
                Patch::Keep => config::StreamConfigPatch::default(),
                Patch::Clear => config::StreamConfigPatch::CLEAR,
                Patch::Set(Object(given)) => given.try_into()?,
            },
            create_stream_on_append,
            create_stream_on_read,
        })
    }
}

#[cfg(test)]
mod tests;
