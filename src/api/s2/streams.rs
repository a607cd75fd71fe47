//! Streams of a basin: list, create, ensure, get and change their configuration, delete.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::error::Result;
use super::extract::{self, BasinHeader, Json, OptionalJson, Query, StreamInPath, Token};
use super::respond;
use super::wire::config::{StreamConfig, StreamReconfiguration};
use super::wire::resources::{CreateStream, ListStreams, StreamInfo};
use crate::api::Api;
use crate::api::terms::OfFront;

/// `GET /v1/streams`
pub(super) async fn list(
    State(api): State<Api>,
    OfFront(terms): OfFront,
    BasinHeader(basin): BasinHeader,
    Query(query): Query,
) -> Result<Response> {
    let mut request = extract::stream_list(&query)?;
    request.limit = terms.map_or(request.limit, |terms| request.limit.min(terms.names_max()));
    let page = api.service.list_streams(&basin, request).await?;
    Ok(respond::json(StatusCode::OK, &ListStreams::from(page)))
}

/// `POST /v1/streams`: 201 also for a repeat of the same call.
pub(super) async fn create(
    State(api): State<Api>,
    BasinHeader(basin): BasinHeader,
    Token(token): Token,
    Json(body): Json<CreateStream>,
) -> Result<Response> {
    let (name, config) = body.try_into()?;
    let (info, result) = api.service.create_stream(&basin, &name, config, token.as_ref()).await?;
    Ok(respond::provisioned(StatusCode::CREATED, result, &StreamInfo::from(info)))
}

/// `GET /v1/streams/{stream}`
pub(super) async fn config(
    State(api): State<Api>,
    BasinHeader(basin): BasinHeader,
    StreamInPath(name): StreamInPath,
) -> Result<Response> {
    let config = api.service.stream_config(&basin, &name).await?;
    Ok(respond::json(StatusCode::OK, &StreamConfig::from(config)))
}

/// `PUT /v1/streams/{stream}`: unlike for basins the body is the configuration itself.
pub(super) async fn ensure(
    State(api): State<Api>,
    BasinHeader(basin): BasinHeader,
    StreamInPath(name): StreamInPath,
    OptionalJson(body): OptionalJson<StreamConfig>,
) -> Result<Response> {
    let (info, result) = api.service.ensure_stream(&basin, &name, body.try_into()?).await?;
    Ok(respond::provisioned(respond::ensure_status(result), result, &StreamInfo::from(info)))
}

/// `PATCH /v1/streams/{stream}`
pub(super) async fn reconfigure(
    State(api): State<Api>,
    BasinHeader(basin): BasinHeader,
    StreamInPath(name): StreamInPath,
    Json(body): Json<StreamReconfiguration>,
) -> Result<Response> {
    let config = api.service.reconfigure_stream(&basin, &name, body.try_into()?).await?;
    Ok(respond::json(StatusCode::OK, &StreamConfig::from(config)))
}

/// `DELETE /v1/streams/{stream}`
pub(super) async fn delete(
    State(api): State<Api>,
    BasinHeader(basin): BasinHeader,
    StreamInPath(name): StreamInPath,
) -> Result<Response> {
    api.service.delete_stream(&basin, &name).await?;
    Ok(respond::accepted())
}
