//! A way to the bucket that counts requests, and can be slow or stand still.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::sync::watch;

#[derive(Debug)]
struct Shared {
    backend: String,
    client: reqwest::Client,
    log: Mutex<Vec<(Method, String)>>,
    delay: Mutex<(&'static str, Duration)>,
    open: AtomicUsize,
    held: watch::Sender<bool>,
}

/// A running proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// `127.0.0.1:port`.
    pub address: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts it before a server, `host:port`, for as long as the test's runtime lives.
    pub async fn before(backend: &str) -> Self {
        leat::serve::install_crypto();
        let shared = Arc::new(Shared {
            backend: format!("http://{backend}"),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            log: Mutex::default(),
            delay: Mutex::default(),
            open: AtomicUsize::new(0),
            held: watch::Sender::new(false),
        });
        let app = Router::new().fallback(pass).with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, shared }
    }

    /// Every request takes this much longer whose target holds this part.
    pub fn delay(&self, part: &'static str, by: Duration) {
        *self.shared.delay.lock().unwrap_or_else(PoisonError::into_inner) = (part, by);
    }

    /// Requests that are on their way.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// No request goes on until it is let go.
    pub fn hold(&self, held: bool) {
        self.shared.held.send_replace(held);
    }

    /// Requests so far.
    pub fn log(&self) -> Vec<(Method, String)> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many PUTs of manifests there were so far.
    pub fn commits(&self) -> usize {
        self.log()
            .iter()
            .filter(|(method, path)| method == Method::PUT && path.contains("/manifest/"))
            .count()
    }
}

/// Counts a request for as long as it is on its way, whoever ends it.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn of(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let log = (parts.method.clone(), target.clone());
    shared.log.lock().unwrap_or_else(PoisonError::into_inner).push(log);
    let _open = Open::of(&shared.open);
    let (part, delay) = *shared.delay.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::time::sleep(if target.contains(part) { delay } else { Duration::ZERO }).await;
    drop(shared.held.subscribe().wait_for(|held| !held).await);
    let Ok(body) = body.collect().await else { return StatusCode::BAD_REQUEST.into_response() };
    let url = format!("{}{target}", shared.backend);
    let sent = shared.client.request(parts.method, url).headers(parts.headers).body(body.to_bytes()).send();
    let Ok(answer) = sent.await else { return StatusCode::BAD_GATEWAY.into_response() };
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    headers.remove("transfer-encoding");
    headers.remove("connection");
    let Ok(bytes) = answer.bytes().await else { return StatusCode::BAD_GATEWAY.into_response() };
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
