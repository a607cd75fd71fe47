//! Basins and streams in JSON: what creates them, and what shows them.
//!
//! Pure.

use serde::{Deserialize, Serialize};

use super::super::error::{Code, Error, Result};
use super::Object;
use super::config::{BasinConfig, StreamConfig};
use crate::types::name::{BasinName, InvalidName, StreamName};
use crate::types::time::rfc3339;
use crate::types::{config, stream};

/// The body of `POST /basins`.
#[derive(Debug, Deserialize)]
pub(crate) struct CreateBasin {
    basin: String,
    config: Option<Object<BasinConfig>>,
    location: Option<String>,
}

/// The optional body of `PUT /basins/{basin}`; a part left out is its default, not what is there.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct EnsureBasin {
    config: Option<Object<BasinConfig>>,
    location: Option<String>,
}

/// The body of `POST /streams`.
#[derive(Debug, Deserialize)]
pub(crate) struct CreateStream {
    stream: String,
    config: Option<Object<StreamConfig>>,
}

fn bad_name(field: &str, InvalidName(why): &InvalidName) -> Error {
    Error::new(Code::BadJson, format!("`{field}`: {why}"))
}

impl CreateBasin {
    /// Where the basin is to lie, if that is said.
    pub(crate) fn location(&self) -> Option<&str> {
        self.location.as_deref()
    }
}

impl EnsureBasin {
    /// Where the basin is to lie, if that is said.
    pub(crate) fn location(&self) -> Option<&str> {
        self.location.as_deref()
    }
}

impl TryFrom<CreateBasin> for (BasinName, config::BasinConfig) {
    type Error = Error;

    fn try_from(CreateBasin { basin, config, location: _ }: CreateBasin) -> Result<Self> {
        let name = BasinName::try_from(basin.as_str()).map_err(|e| bad_name("basin", &e))?;
        Ok((name, EnsureBasin { config, location: None }.try_into()?))
    }
}

impl TryFrom<EnsureBasin> for config::BasinConfig {
    type Error = Error;

    fn try_from(EnsureBasin { config, location: _ }: EnsureBasin) -> Result<Self> {
        let Object(config) = config.unwrap_or_default();
        config.try_into()
    }
}

impl TryFrom<CreateStream> for (StreamName, config::StreamConfigLayer) {
    type Error = Error;

    fn try_from(CreateStream { stream, config }: CreateStream) -> Result<Self> {
        let name = StreamName::try_from(stream.as_str()).map_err(|e| bad_name("stream", &e))?;
        let Object(config) = config.unwrap_or_default();
        Ok((name, config.try_into()?))
    }
}

/// A basin, shown.
#[derive(Debug, Serialize)]
pub(crate) struct BasinInfo {
    name: String,
    location: String,
    created_at: String,
    deleted_at: Option<String>,
    state: &'static str,
}

impl BasinInfo {
    /// Shows a basin that lies in this location, as all here do.
    pub(crate) fn new(info: stream::BasinInfo, location: &str) -> Self {
        let stream::BasinInfo { name, created_at_ms, deleted_at_ms } = info;
        Self {
            name: name.as_str().to_owned(),
            location: location.to_owned(),
            created_at: rfc3339(created_at_ms),
            deleted_at: deleted_at_ms.map(rfc3339),
            // Deprecated by `deleted_at`, but older clients need it.
            state: if deleted_at_ms.is_some() { "deleting" } else { "active" },
        }
    }
}

/// A stream, shown.
#[derive(Debug, Serialize)]
pub(crate) struct StreamInfo {
    name: String,
    created_at: String,
    deleted_at: Option<String>,
    cipher: Option<String>,
}

impl From<stream::StreamInfo> for StreamInfo {
    fn from(stream::StreamInfo { name, created_at_ms }: stream::StreamInfo) -> Self {
        Self {
            name: name.as_str().to_owned(),
            created_at: rfc3339(created_at_ms),
            // A deleted stream is absent at once, so none is ever shown on its way out.
            deleted_at: None,
            cipher: None,
        }
    }
}

/// A page of basins.
#[derive(Debug, Serialize)]
pub(crate) struct ListBasins {
    basins: Vec<BasinInfo>,
    has_more: bool,
}

impl ListBasins {
    /// Shows basins that lie in this location, as all here do.
    pub(crate) fn new(page: stream::Page<stream::BasinInfo>, location: &str) -> Self {
        let stream::Page { items, has_more } = page;
        Self { basins: items.into_iter().map(|info| BasinInfo::new(info, location)).collect(), has_more }
    }
}

/// A location, shown.
#[derive(Debug, Serialize)]
pub(crate) struct LocationInfo<'a> {
    name: &'a str,
    is_private: bool,
    storage_classes: [&'static str; 2],
    default_storage_class: &'static str,
}

impl<'a> LocationInfo<'a> {
    /// The one location there is.
    pub(crate) fn new(name: &'a str, default: config::StorageClass) -> Self {
        let storage_classes = [config::StorageClass::Standard, config::StorageClass::Express];
        Self {
            name,
            is_private: false,
            storage_classes: storage_classes.map(config::StorageClass::as_str),
            default_storage_class: default.as_str(),
        }
    }
}

/// A page of streams.
#[derive(Debug, Serialize)]
pub(crate) struct ListStreams {
    streams: Vec<StreamInfo>,
    has_more: bool,
}

impl From<stream::Page<stream::StreamInfo>> for ListStreams {
    fn from(stream::Page { items, has_more }: stream::Page<stream::StreamInfo>) -> Self {
        Self { streams: items.into_iter().map(Into::into).collect(), has_more }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn a_create_of_a_basin_is_read_and_checked() {
        let read = |json: &str| -> Result<(BasinName, config::BasinConfig)> {
            parse::<CreateBasin>(json.as_bytes())?.try_into()
        };
        let (name, config) = read(r#"{"basin":"orders-eu","config":null,"location":null}"#).unwrap();
        assert_eq!(name.as_str(), "orders-eu");
        assert_eq!(config, config::BasinConfig::default());
        for (json, status, part) in [
            ("{}", 400, "missing field `basin`"),
            (r#"{"basin":null}"#, 400, "`basin`"),
            (r#"{"basin":"short"}"#, 400, "`basin`: basin name must be 8 to 48"),
            (r#"{"basin":"orders-eu","config":[]}"#, 400, "`config`"),
            (r#"{"basin":"orders-eu","config":{"stream_cipher":"aegis-256"}}"#, 422, "encryption"),
        ] {
            let error = read(json).expect_err(json);
            assert_eq!(error.status(), status, "{json}");
            let message = String::from_utf8(error.body()).unwrap();
            assert!(message.contains(part), "{json}: {message}");
        }
    }

    #[test]
    fn a_create_of_a_stream_is_read_and_checked() {
        let read = |json: &str| -> Result<(StreamName, config::StreamConfigLayer)> {
            parse::<CreateStream>(json.as_bytes())?.try_into()
        };
        assert_eq!(read(r#"{"stream":"a/b 😀"}"#).unwrap().0.as_str(), "a/b 😀");
        for (json, status) in [
            (r#"{"stream":""}"#, 400),
            (r#"{"stream":".."}"#, 400),
            (r#"{"stream":"a\u0000b"}"#, 400),
            (r#"{"stream":"\ud800"}"#, 400),
            (r#"{"stream":"a","config":{"retention_policy":{"age":0}}}"#, 422),
        ] {
            assert_eq!(read(json).expect_err(json).status(), status, "{json}");
        }
    }

    #[test]
    fn basins_and_streams_are_shown_with_all_their_keys() {
        let basin = stream::BasinInfo {
            name: BasinName::try_from("orders-eu").unwrap(),
            created_at_ms: 0,
            deleted_at_ms: Some(1_000),
        };
        let page = stream::Page { items: vec![basin], has_more: true };
        assert_eq!(
            serde_json::to_string(&ListBasins::new(page, "here")).unwrap(),
            r#"{"basins":[{"name":"orders-eu","location":"here","created_at":"1970-01-01T00:00:00Z","deleted_at":"1970-01-01T00:00:01Z","state":"deleting"}],"has_more":true}"#
        );
        let stream = stream::StreamInfo { name: StreamName::try_from("a/b").unwrap(), created_at_ms: 0 };
        let page = stream::Page { items: vec![stream], has_more: false };
        assert_eq!(
            serde_json::to_string(&ListStreams::from(page)).unwrap(),
            r#"{"streams":[{"name":"a/b","created_at":"1970-01-01T00:00:00Z","deleted_at":null,"cipher":null}],"has_more":false}"#
        );
    }
}
