//! Locations: a store lies in one place, whose name the operator chooses.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};

use super::error::{Code, Error, Result};
use super::extract::body_bytes;
use super::wire::resources::LocationInfo;
use super::{headers, respond};
use crate::api::Api;

/// `GET /v1/locations`
pub(super) async fn list(State(api): State<Api>) -> Response {
    respond::json(StatusCode::OK, &[info(&api)])
}

/// `GET /v1/locations/default`
pub(super) async fn default(State(api): State<Api>) -> Response {
    respond::json(StatusCode::OK, &info(&api))
}

/// `PUT /v1/locations/default`: the one location is the default, so only its own name is taken.
pub(super) async fn set_default(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Response> {
    headers::check_json_content_type(&headers)?;
    let json = body_bytes(&api, &headers, body, Code::BadJson).await?;
    let name: String = serde_json::from_slice(&json).map_err(|e| {
        Error::new(Code::BadJson, format!("the body must be the name of a location as a JSON string: {e}"))
    })?;
    check(&api, &name)?;
    Ok(respond::json(StatusCode::OK, &info(&api)))
}

/// Refuses the name of another location.
pub(super) fn check(api: &Api, name: &str) -> Result<()> {
    let own = &api.options.location;
    if name == own {
        return Ok(());
    }
    Err(Error::invalid(format!("location must be `{own}`, the only one here, got `{name}`")))
}

fn info(api: &Api) -> LocationInfo<'_> {
    LocationInfo::new(&api.options.location, api.service.default_storage_class())
}
