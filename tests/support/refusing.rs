//! An S3 server that refuses some calls, in front of one that does not; it notes who signed the others.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

/// Longest body it passes on.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A call to refuse, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of this method.
    pub method: &'static str,
    /// With this text in path and query.
    pub about: &'static str,
    /// The status.
    pub status: u16,
    /// The code in the answer.
    pub code: &'static str,
}

/// What a running one holds.
#[derive(Clone, Debug)]
pub struct Refusing {
    /// `http://127.0.0.1:port`.
    pub url: String,
    backend: String,
    refusals: Vec<Refusal>,
    signers: Arc<Mutex<Vec<String>>>,
    client: reqwest::Client,
}

impl Refusing {
    /// Starts it in front of the server at this `host:port`, for as long as the runtime lives.
    pub async fn before(backend: &str, refusals: &[Refusal]) -> Self {
        leat::serve::install_crypto();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let refusing = Self {
            url: format!("http://{}", listener.local_addr().expect("bound")),
            backend: backend.to_owned(),
            refusals: refusals.to_vec(),
            signers: Arc::default(),
            client: reqwest::Client::builder().no_proxy().build().expect("a client"),
        };
        let app = Router::new().fallback(answer).with_state(refusing.clone());
        let app = app.layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX));
        tokio::spawn(async move { axum::serve(listener, app).await });
        refusing
    }

    /// The key ids that requests were signed with, each once.
    pub fn signers(&self) -> Vec<String> {
        let mut signers = self.signers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        signers.sort();
        signers.dedup();
        signers
    }

    fn note(&self, headers: &HeaderMap) {
        let signed = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let signer = signed.split("Credential=").nth(1).and_then(|rest| rest.split('/').next());
        let mut signers = self.signers.lock().unwrap_or_else(PoisonError::into_inner);
        signers.push(signer.unwrap_or("nobody").to_owned());
    }
}

async fn answer(
    State(refusing): State<Refusing>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    refusing.note(&headers);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let refused =
        refusing.refusals.iter().find(|one| one.method == method.as_str() && target.contains(one.about));
    if let Some(Refusal { status, code, .. }) = refused {
        let status = StatusCode::from_u16(*status).expect("a status");
        let body = format!("<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>");
        return (status, body).into_response();
    }
    let url = format!("http://{}{target}", refusing.backend);
    let asked = refusing.client.request(method, url).headers(headers).body(body).send().await;
    let Ok(answer) = asked else { return StatusCode::BAD_GATEWAY.into_response() };
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    // The framing is of the next hop.
    headers.remove("transfer-encoding");
    (status, headers, answer.bytes().await.unwrap_or_default()).into_response()
}
