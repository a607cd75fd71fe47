//! HTTP in, HTTP out: the router of every door, health, metrics, CORS, draining.
//!
//! The same router is served over a socket and under Lambda. From the outside in, a request passes the
//! observer (`observe`: request id, span, log line, metrics), the discarding of unread bodies (`leftover`), what
//! every answer of Durable Streams carries (`ds::protect`), CORS, the net for panics (`observe::catch`), the
//! check of its token (`auth`), the drain gate, the net of a function (`front`, on the `terms` of its request),
//! compression (`encode`), and its handler.

mod auth;
mod body;
mod compression;
mod ds;
mod encode;
mod front;
mod leftover;
mod observe;
mod ranges;
mod s2;
mod terms;
mod uri;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{Method, StatusCode, header};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::{Semaphore, watch};
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

use crate::service::Service;
use crate::types::time::Clock;
pub use auth::{Auth, InvalidToken, RootToken};
use body::BodyLimits;
pub use front::{Refused, too_long};
use s2::error::{Code, Error};
pub use s2::respond::Live;
pub use terms::{Terms, passed};

/// How long a browser may remember that it may ask.
const CORS_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What the router is told beside the service.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// What `/metrics` shows; without it the path does not exist.
    pub metrics: Option<PrometheusHandle>,
    /// Once it holds `true`, everything under `/v1` is refused and sessions are sent elsewhere. A
    /// channel whose sender is gone never changes again.
    pub draining: watch::Receiver<bool>,
    /// What pings tell the time by.
    pub clock: Clock,
    /// Longest gap between two pieces of a request's body.
    pub body_idle_timeout: Duration,
    /// Longest time for a request's body in all.
    pub body_total_timeout: Duration,
    /// Bytes of inputs that all append sessions together may have in flight.
    pub session_bytes_max: usize,
    /// What the one location of this store is called.
    pub location: String,
    /// Who may call.
    pub auth: Auth,
    /// How requests come that do not say so themselves: `http` or `https`.
    pub scheme: &'static str,
    /// How long a long-poll of Durable Streams waits.
    pub long_poll: Duration,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            metrics: None,
            draining: watch::channel(false).1,
            clock: Clock::system(),
            body_idle_timeout: Duration::from_secs(15),
            body_total_timeout: Duration::from_secs(60),
            session_bytes_max: 64 * 1024 * 1024,
            location: "local".to_owned(),
            auth: Auth::Open,
            scheme: "http",
            long_poll: Duration::from_secs(20),
        }
    }
}

impl ApiOptions {
    fn body_limits(&self, bytes: usize) -> BodyLimits {
        BodyLimits { idle: self.body_idle_timeout, total: self.body_total_timeout, bytes }
    }
}

/// What every handler holds.
#[derive(Clone, Debug)]
struct Api {
    service: Service,
    options: Arc<ApiOptions>,
    request_ids: Arc<observe::RequestIds>,
    /// Bytes of inputs that all append sessions together may have in flight.
    session_budget: Arc<Semaphore>,
}

impl Api {
    fn new(service: Service, options: ApiOptions) -> Self {
        Self {
            service,
            session_budget: Arc::new(Semaphore::new(options.session_bytes_max)),
            options: Arc::new(options),
            request_ids: Arc::default(),
        }
    }
}

/// Every route of the product.
pub fn router(service: Service, options: ApiOptions) -> Router {
    let api = Api::new(service, options);
    let routes = s2::routes()
        .merge(ds::routes())
        .route("/health", get(health))
        .route("/ping", get(ping))
        .route("/metrics", get(metrics))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method);
    layered(routes, api)
}

/// Routes with everything that lies around them.
fn layered(routes: Router<Api>, api: Api) -> Router {
    routes
        .layer(from_fn(encode::encode))
        .layer(from_fn(front::keep))
        .layer(from_fn_with_state(api.clone(), drain_gate))
        .layer(from_fn_with_state(api.clone(), auth::authenticate))
        .layer(from_fn(observe::catch))
        .layer(cors())
        .layer(from_fn(ds::protect))
        .layer(from_fn(leftover::discard))
        .layer(from_fn_with_state(api.clone(), observe::observe))
        .with_state(api)
}

/// Browsers may call from anywhere: a bearer token is the only credential. Headers are mirrored because a
/// wildcard would leave out `authorization`.
fn cors() -> CorsLayer {
    let own = [s2::respond::PROVISION_RESULT, observe::REQUEST_ID, s2::respond::RETRY_AFTER_MS];
    let exposed: Vec<_> = own.into_iter().chain(ds::EXPOSED).collect();
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods(Any)
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed)
        .max_age(CORS_AGE_MAX)
}

/// Refuses what is under `/v1` once the server drains.
async fn drain_gate(State(api): State<Api>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if *api.options.draining.borrow() && (path.starts_with("/v1/") || path.starts_with("/ds/")) {
        return Error::draining().into_response();
    }
    next.run(request).await
}

/// Waits until the server drains.
async fn drained(draining: &mut watch::Receiver<bool>) {
    if draining.wait_for(|draining| *draining).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The answer to a request whose handler panicked; what it said is for the log only.
fn panicked(payload: &(dyn std::any::Any + Send)) -> Error {
    let why = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(why, "a handler panicked");
    Error::new(Code::Other, "the server failed on this request; its log tells more")
}

/// `GET /health`: whether this process takes requests.
async fn health(State(api): State<Api>) -> Response {
    if *api.options.draining.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining").into_response();
    }
    "OK".into_response()
}

/// `GET /ping`: whether this process runs.
async fn ping() -> &'static str {
    "OK"
}

/// `GET /metrics`, in Prometheus' text format.
async fn metrics(State(api): State<Api>) -> Result<Response, Error> {
    let handle = api
        .options
        .metrics
        .as_ref()
        .ok_or_else(|| Error::new(Code::NotFound, "this server records no metrics"))?;
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((content_type, handle.render()).into_response())
}

async fn no_such_path(request: Request) -> Error {
    Error::new(Code::NotFound, format!("there is no path `{}`", uri::echo(request.uri().path())))
}

async fn no_such_method(method: Method) -> Error {
    let why = format!("this path does not take the method `{}`", uri::echo(method.as_str()));
    Error::new(Code::MethodNotAllowed, why)
}

#[cfg(test)]
mod tests;
