//! Streams of a basin: list, create, ensure, get and change their configuration, delete.

use super::{Result, Service};
use crate::types::config::{StreamConfig, StreamConfigLayer, StreamConfigPatch};
use crate::types::name::{BasinName, RequestToken, StreamName, StreamNamePart};
use crate::types::stream::{ListRequest, Page, Provision, StreamInfo};

impl Service {
    /// One page of streams.
    pub async fn list_streams(
        &self,
        _basin: &BasinName,
        _request: ListRequest<StreamNamePart>,
    ) -> Result<Page<StreamInfo>> {
        todo!()
    }

    /// Creates a stream that must not exist; a repeat of the same call (same token, same config) is a `Noop`.
    pub async fn create_stream(
        &self,
        _basin: &BasinName,
        _name: &StreamName,
        _config: StreamConfigLayer,
        _token: Option<&RequestToken>,
    ) -> Result<(StreamInfo, Provision)> {
        todo!()
    }

    /// Creates a stream, or gives the one there this configuration (resolved over the basin default).
    pub async fn ensure_stream(
        &self,
        _basin: &BasinName,
        _name: &StreamName,
        _config: StreamConfigLayer,
    ) -> Result<(StreamInfo, Provision)> {
        todo!()
    }

    /// The resolved configuration of a stream.
    pub async fn stream_config(&self, _basin: &BasinName, _name: &StreamName) -> Result<StreamConfig> {
        todo!()
    }

    /// Changes the configuration of a stream and returns the new one.
    pub async fn reconfigure_stream(
        &self,
        _basin: &BasinName,
        _name: &StreamName,
        _patch: StreamConfigPatch,
    ) -> Result<StreamConfig> {
        todo!()
    }

    /// Deletes a stream: it is absent at once.
    pub async fn delete_stream(&self, _basin: &BasinName, _name: &StreamName) -> Result<()> {
        todo!()
    }
}
