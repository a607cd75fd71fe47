//! Basins: list, create, ensure, get and change their configuration, delete.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::error::Result;
use super::extract::{self, BasinInPath, Json, OptionalJson, Query, Token};
use super::wire::config::{BasinConfig, BasinReconfiguration};
use super::wire::resources::{BasinInfo, CreateBasin, EnsureBasin, ListBasins};
use super::{locations, respond};
use crate::api::Api;
use crate::api::terms::{OfFront, Terms};

/// `GET /v1/basins`
pub(super) async fn list(State(api): State<Api>, Query(query): Query) -> Result<Response> {
    let page = api.service.list_basins(extract::basin_list(&query)?).await?;
    Ok(respond::json(StatusCode::OK, &ListBasins::new(page, &api.options.location)))
}

/// `POST /v1/basins`: 201 also for a repeat of the same call.
pub(super) async fn create(
    State(api): State<Api>,
    Token(token): Token,
    Json(body): Json<CreateBasin>,
) -> Result<Response> {
    body.location().map_or(Ok(()), |location| locations::check(&api, location))?;
    let (name, config) = body.try_into()?;
    let (info, result) = api.service.create_basin(&name, config, token.as_ref()).await?;
    Ok(respond::provisioned(StatusCode::CREATED, result, &BasinInfo::new(info, &api.options.location)))
}

/// `GET /v1/basins/{basin}`
pub(super) async fn config(State(api): State<Api>, BasinInPath(name): BasinInPath) -> Result<Response> {
    let config = api.service.basin_config(&name).await?;
    Ok(respond::json(StatusCode::OK, &BasinConfig::from(config)))
}

/// `PUT /v1/basins/{basin}`
pub(super) async fn ensure(
    State(api): State<Api>,
    BasinInPath(name): BasinInPath,
    OptionalJson(body): OptionalJson<EnsureBasin>,
) -> Result<Response> {
    body.location().map_or(Ok(()), |location| locations::check(&api, location))?;
    let (info, result) = api.service.ensure_basin(&name, body.try_into()?).await?;
    Ok(respond::provisioned(
        respond::ensure_status(result),
        result,
        &BasinInfo::new(info, &api.options.location),
    ))
}

/// `PATCH /v1/basins/{basin}`
pub(super) async fn reconfigure(
    State(api): State<Api>,
    BasinInPath(name): BasinInPath,
    Json(body): Json<BasinReconfiguration>,
) -> Result<Response> {
    let config = api.service.reconfigure_basin(&name, body.try_into()?).await?;
    Ok(respond::json(StatusCode::OK, &BasinConfig::from(config)))
}

/// `DELETE /v1/basins/{basin}`
pub(super) async fn delete(
    State(api): State<Api>,
    OfFront(terms): OfFront,
    BasinInPath(name): BasinInPath,
) -> Result<Response> {
    match terms {
        Some(Terms { ends, runs_on: false, .. }) => api.service.delete_basin_within(&name, ends).await?,
        _ => api.service.delete_basin(&name).await?,
    }
    Ok(respond::accepted())
}
