//! Basins: list, create, ensure, get and change their configuration, delete.

use super::{Result, Service};
use crate::types::config::{BasinConfig, BasinConfigPatch};
use crate::types::name::{BasinName, BasinNamePart, RequestToken};
use crate::types::stream::{BasinInfo, ListRequest, Page, Provision};

impl Service {
    /// One page of basins, those being deleted among them.
    pub async fn list_basins(&self, _request: ListRequest<BasinNamePart>) -> Result<Page<BasinInfo>> {
        todo!()
    }

    /// Creates a basin that must not exist; a repeat of the same call (same token, same config) is a `Noop`.
    pub async fn create_basin(
        &self,
        _name: &BasinName,
        _config: BasinConfig,
        _token: Option<&RequestToken>,
    ) -> Result<(BasinInfo, Provision)> {
        todo!()
    }

    /// Creates a basin, or gives the one there exactly this configuration.
    pub async fn ensure_basin(
        &self,
        _name: &BasinName,
        _config: BasinConfig,
    ) -> Result<(BasinInfo, Provision)> {
        todo!()
    }

    /// The configuration of a live basin.
    pub async fn basin_config(&self, _name: &BasinName) -> Result<BasinConfig> {
        todo!()
    }

    /// Changes the configuration of a live basin and returns the new one.
    pub async fn reconfigure_basin(
        &self,
        _name: &BasinName,
        _patch: BasinConfigPatch,
    ) -> Result<BasinConfig> {
        todo!()
    }

    /// Accepts the deletion of a basin and everything in it, and works at it; a repeat works on.
    pub async fn delete_basin(&self, _name: &BasinName) -> Result<()> {
        todo!()
    }
}
