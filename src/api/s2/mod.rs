//! The S2 door: the route table in the order of the API, and its handlers.
//!
//! Handlers extract, convert, call, convert. A request is checked in this order: headers and path, query,
//! what the parameters say together, body, and only then the service is called.

mod access_tokens;
mod append_session;
mod basins;
#[cfg(test)]
mod crosscheck;
pub(super) mod error;
mod extract;
mod frame;
mod headers;
mod live;
mod locations;
mod metrics;
mod position;
mod proto;
mod read_params;
mod records;
pub(super) mod respond;
mod streams;
mod wire;

use axum::Router;
use axum::routing::{delete, get};

use super::Api;

/// Every route of the S2 API.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/v1/basins", get(basins::list).post(basins::create))
        .route(
            "/v1/basins/{basin}",
            get(basins::config).put(basins::ensure).patch(basins::reconfigure).delete(basins::delete),
        )
        .route("/v1/access-tokens", get(access_tokens::unavailable).post(access_tokens::unavailable))
        .route("/v1/access-tokens/{id}", delete(access_tokens::unavailable))
        .route("/v1/locations", get(locations::list))
        .route("/v1/locations/default", get(locations::default).put(locations::set_default))
        .route("/v1/metrics", get(metrics::unavailable))
        .route("/v1/metrics/{basin}", get(metrics::unavailable))
        .route("/v1/metrics/{basin}/{stream}", get(metrics::unavailable))
        .route("/v1/streams", get(streams::list).post(streams::create))
        .route(
            "/v1/streams/{stream}",
            get(streams::config).put(streams::ensure).patch(streams::reconfigure).delete(streams::delete),
        )
        .route("/v1/streams/{stream}/records/tail", get(records::check_tail))
        .route("/v1/streams/{stream}/records", get(records::read).post(records::append))
}
