//! A Lambda runtime API: hands events to whichever function asks next, and takes what it answers apart.
//!
//! As on AWS: a deadline per invocation, 410 for an answer that comes after it, at most 6 MB for an event and for an
//! answer that is not streamed, the prelude of a streamed one with a single value per header.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Largest event, and largest answer that is not streamed.
pub const BYTES_MAX: usize = 6 * 1024 * 1024;

/// A piece of what a function says about an invocation.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// All of an answer.
    Whole(Bytes),
    /// An answer that is refused for its length.
    TooLong(usize),
    /// The invocation failed.
    Failed(Bytes),
    /// A part of a streamed answer.
    Chunk(Bytes),
    /// The end of a streamed answer.
    End,
    /// The function went away in the middle.
    Cut,
    /// The time was over.
    TimedOut,
}

#[derive(Debug, Default)]
struct Shared {
    todo: Mutex<VecDeque<Event>>,
    arrived: Notify,
    waiting: Mutex<HashMap<String, mpsc::UnboundedSender<Piece>>>,
    /// Answers that came when nobody waited for them any more.
    gone: Mutex<usize>,
}

#[derive(Debug)]
struct Event {
    id: String,
    json: Bytes,
    deadline_ms: u64,
}

/// A running runtime API.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// `127.0.0.1:port`.
    pub address: String,
    shared: Arc<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runtime {
    /// Starts it for as long as the test's runtime lives.
    pub async fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let app = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .route("/2020-01-01/extension/register", post(register))
            .with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, shared }
    }

    /// Hands an event over, to be answered within this time.
    pub fn invoke(&self, event: &Value, within: Duration) -> Invocation {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        self.invoke_until(event, (now + within).as_millis() as u64, within)
    }

    /// The same with any deadline in what the function is told.
    pub fn invoke_until(&self, event: &Value, deadline_ms: u64, within: Duration) -> Invocation {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let id = format!("00000000-{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let json = Bytes::from(serde_json::to_vec(event).unwrap());
        assert!(json.len() <= BYTES_MAX, "the front refuses such an event");
        let (sender, pieces) = mpsc::unbounded_channel();
        lock(&self.shared.waiting).insert(id.clone(), sender);
        lock(&self.shared.todo).push_back(Event { id: id.clone(), json, deadline_ms });
        self.shared.arrived.notify_one();
        let until = Instant::now() + within;
        Invocation { id, shared: self.shared.clone(), pieces, until, rest: Bytes::new() }
    }

    /// How many answers came too late.
    pub fn gone(&self) -> usize {
        *lock(&self.shared.gone)
    }
}

async fn next(State(shared): State<Arc<Shared>>) -> Response {
    loop {
        let arrived = shared.arrived.notified();
        let event = lock(&shared.todo).pop_front();
        let Some(Event { id, json, deadline_ms }) = event else {
            arrived.await;
            continue;
        };
        if !lock(&shared.todo).is_empty() {
            shared.arrived.notify_one();
        }
        return [
            ("content-type", "application/json".to_owned()),
            ("lambda-runtime-aws-request-id", id),
            ("lambda-runtime-deadline-ms", deadline_ms.to_string()),
            ("lambda-runtime-trace-id", "Root=1-0;Sampled=0".to_owned()),
            ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:0:function:leat".to_owned()),
        ]
        .into_response()
        .map(|_empty| Body::from(json));
    }
}

fn taken(shared: &Shared, id: &str) -> Option<mpsc::UnboundedSender<Piece>> {
    let found = lock(&shared.waiting).remove(id);
    *lock(&shared.gone) += usize::from(found.is_none());
    found
}

async fn response(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> StatusCode {
    let Some(sender) = taken(&shared, &id) else { return StatusCode::GONE };
    if headers.get("lambda-runtime-function-response-mode").is_some_and(|mode| mode == "streaming") {
        if headers["content-type"] != "application/vnd.awslambda.http-integration-response" {
            drop(sender.send(Piece::Failed("a streamed answer of the wrong type".into())));
            return StatusCode::BAD_REQUEST;
        }
        let mut body = body.into_data_stream();
        while let Some(chunk) = body.next().await {
            let Ok(chunk) = chunk else {
                drop(sender.send(Piece::Cut));
                return StatusCode::BAD_REQUEST;
            };
            drop(sender.send(Piece::Chunk(chunk)));
        }
        drop(sender.send(Piece::End));
        return StatusCode::ACCEPTED;
    }
    let Ok(whole) = body.collect().await else {
        drop(sender.send(Piece::Cut));
        return StatusCode::BAD_REQUEST;
    };
    let whole = whole.to_bytes();
    if whole.len() > BYTES_MAX {
        drop(sender.send(Piece::TooLong(whole.len())));
        return StatusCode::PAYLOAD_TOO_LARGE;
    }
    drop(sender.send(Piece::Whole(whole)));
    StatusCode::ACCEPTED
}

async fn error(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> StatusCode {
    let Some(sender) = taken(&shared, &id) else { return StatusCode::GONE };
    drop(sender.send(Piece::Failed(body)));
    StatusCode::ACCEPTED
}

async fn register() -> Response {
    let known = r#"{"functionName":"leat","functionVersion":"1","handler":"bootstrap"}"#;
    ([("lambda-extension-identifier", "e-1")], known).into_response()
}

/// An event on its way, and its answer.
#[derive(Debug)]
pub struct Invocation {
    id: String,
    shared: Arc<Shared>,
    pieces: mpsc::UnboundedReceiver<Piece>,
    until: Instant,
    /// What has come of the body already.
    rest: Bytes,
}

/// Status and headers of an answer.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
}

impl Invocation {
    /// The next piece.
    pub async fn piece(&mut self) -> Piece {
        match tokio::time::timeout_at(self.until, self.pieces.recv()).await {
            Ok(Some(piece)) => piece,
            Ok(None) => Piece::Cut,
            Err(_) => {
                lock(&self.shared.waiting).remove(&self.id);
                Piece::TimedOut
            }
        }
    }

    /// The head of a streamed answer.
    pub async fn head(&mut self) -> Head {
        self.head_from(&[]).await
    }

    /// The same after its first part: the prelude, read as strictly as the front does.
    pub async fn head_from(&mut self, first: &[u8]) -> Head {
        let mut got = first.to_vec();
        let at = loop {
            if let Some(at) = got.windows(8).position(|eight| eight == [0; 8]) {
                break at;
            }
            match self.piece().await {
                Piece::Chunk(chunk) => got.extend_from_slice(&chunk),
                other => panic!("no prelude but {other:?}"),
            }
        };
        let prelude: Value = serde_json::from_slice(&got[..at]).expect("the prelude is JSON");
        self.rest = Bytes::copy_from_slice(&got[at + 8..]);
        Head { status: prelude["statusCode"].as_u64().unwrap() as u16, headers: headers(&prelude["headers"]) }
    }

    /// The next part of a streamed body; the error is any other end than the proper one.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Piece> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        match self.piece().await {
            Piece::Chunk(chunk) => Ok(Some(chunk)),
            Piece::End => Ok(None),
            other => Err(other),
        }
    }
}

/// Headers as a front takes them: one text each, in lower case.
pub fn headers(json: &Value) -> BTreeMap<String, String> {
    let headers = json.as_object().expect("headers are an object").iter();
    headers
        .map(|(name, value)| {
            assert_eq!(*name, name.to_lowercase());
            (name.clone(), value.as_str().unwrap_or_else(|| panic!("{name} is {value}")).to_owned())
        })
        .collect()
}
