//! A proxy before a bucket that misbehaves on demand, as a network and a bucket do: lost answers, late writes,
//! refusals. It counts what it did, so that a test can tell that its fault took place.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is done, its answer lost with the connection.
    DropAfterApply,
    /// The request is done and answered with this status.
    AnswerAfterApply(u16),
    /// Nothing is done, and this is the answer.
    Answer(u16),
    /// The request is passed on this much later, also if nobody waits for it any more.
    Delay(Duration),
    /// Nothing is done and nothing is answered.
    Swallow,
    /// The request is done and nothing is answered.
    ApplyAndSwallow,
    /// The request waits for [`FaultProxy::release`].
    Hold,
}

#[derive(Debug)]
struct Rule {
    method: Method,
    part: String,
    /// One in so many.
    every: usize,
    passed: usize,
    times: usize,
    fault: Fault,
}

#[derive(Debug)]
struct State {
    rules: Vec<Rule>,
    seen: Vec<(Method, String)>,
    met: Vec<Fault>,
    released: watch::Sender<bool>,
}

/// The proxy. Runs as long as the runtime that started it.
#[derive(Clone, Debug)]
pub struct FaultProxy {
    /// `127.0.0.1:port`.
    pub address: String,
    backend: String,
    state: Arc<Mutex<State>>,
}

type Answer = Result<Response<Full<Bytes>>, io::Error>;

impl FaultProxy {
    /// Listens on a free port of loopback, before the server at this `host:port`.
    pub async fn before(backend: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let released = watch::Sender::new(true);
        let state = State { rules: Vec::new(), seen: Vec::new(), met: Vec::new(), released };
        let proxy = Self { address, backend: backend.to_owned(), state: Arc::new(Mutex::new(state)) };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().serve(client));
            }
        });
        proxy
    }

    /// The next `times` requests of this method, on paths that hold `part`, meet the fault.
    pub fn inject(&self, method: &str, part: &str, times: usize, fault: Fault) {
        self.add(method, part, (1, times), fault);
    }

    /// One in `every` such requests meets the fault, until [`FaultProxy::heal`].
    pub fn inject_every(&self, every: usize, method: &str, part: &str, fault: Fault) {
        self.add(method, part, (every, usize::MAX), fault);
    }

    fn add(&self, method: &str, part: &str, (every, times): (usize, usize), fault: Fault) {
        let method = method.parse().expect("a method");
        let mut state = self.state();
        if fault == Fault::Hold {
            state.released.send_replace(false);
        }
        state.rules.push(Rule { method, part: part.to_owned(), every, passed: 0, times, fault });
    }

    /// Ends all faults; what is held stays held.
    pub fn heal(&self) {
        self.state().rules.clear();
    }

    /// Ends all faults and lets go what is held.
    pub fn release(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.released.send_replace(true);
    }

    /// Faults that took place so far.
    pub fn met(&self) -> usize {
        self.state().met.len()
    }

    /// Such requests so far, whatever became of them.
    pub fn seen(&self, method: &str, part: &str) -> usize {
        let seen = &self.state().seen;
        seen.iter().filter(|(m, path)| m.as_str() == method && path.contains(part)).count()
    }

    /// Completes once so many faults took place.
    pub async fn has_met(&self, times: usize) {
        let waited = async {
            while self.met() < times {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), waited).await;
        assert!(waited.is_ok(), "{} of {times} faults took place", self.met());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self, client: TcpStream) {
        drop(client.set_nodelay(true));
        // One connection to the bucket for one of the server, as without the proxy.
        let backend = Arc::new(tokio::sync::Mutex::new(None));
        let service = service_fn(move |request| {
            let (proxy, backend) = (self.clone(), backend.clone());
            // On its own task: what is on its way to a bucket gets there, even if the sender is gone.
            let answered = tokio::spawn(proxy.answer(request, backend));
            async move { answered.await.map_err(io::Error::other)? }
        });
        // An error of the service cuts the connection, which is what a lost answer looks like.
        drop(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service).await,
        );
    }

    async fn answer(self, request: Request<Incoming>, backend: Backend) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let request = Request::from_parts(head, Full::new(body));
        let lost = || io::Error::other("the answer is lost");
        match self.meets(&request) {
            None => {}
            Some(Fault::Delay(by)) => tokio::time::sleep(by).await,
            Some(Fault::Hold) => {
                let mut released = self.state().released.subscribe();
                drop(released.wait_for(|released| *released).await);
            }
            Some(Fault::Answer(status)) => return Ok(refusal(status)),
            Some(Fault::Swallow) => return std::future::pending().await,
            Some(fault @ (Fault::DropAfterApply | Fault::AnswerAfterApply(_) | Fault::ApplyAndSwallow)) => {
                let applied = self.forward(request, &backend).await?.status();
                self.applied(fault, applied);
                return match fault {
                    Fault::AnswerAfterApply(status) => Ok(refusal(status)),
                    Fault::DropAfterApply => Err(lost()),
                    _ => std::future::pending().await,
                };
            }
        }
        self.forward(request, &backend).await
    }

    /// The fault that this request meets, if any.
    fn meets(&self, request: &Request<Full<Bytes>>) -> Option<Fault> {
        let path = request.uri().path().to_owned();
        let mut state = self.state();
        let State { rules, seen, met, .. } = &mut *state;
        let fault = rules.iter_mut().find_map(|rule| {
            if rule.times == 0 || rule.method != *request.method() || !path.contains(&rule.part) {
                return None;
            }
            rule.passed += 1;
            if !rule.passed.is_multiple_of(rule.every) {
                return None;
            }
            rule.times -= 1;
            Some(rule.fault)
        });
        // What is to be applied counts once it was.
        if let Some(fault) = fault.filter(|fault| !fault.applies()) {
            met.push(fault);
        }
        seen.push((request.method().clone(), path));
        fault
    }

    fn applied(&self, fault: Fault, status: StatusCode) {
        // A write that the bucket turned down is no lost success.
        if status.is_success() {
            self.state().met.push(fault);
        }
    }

    async fn forward(&self, request: Request<Full<Bytes>>, backend: &Backend) -> Answer {
        let mut kept = backend.lock().await;
        let mut sender = match kept.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await?,
        };
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let (mut head, body) = answer.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        *kept = Some(sender);
        strip(&mut head.headers);
        Ok(Response::from_parts(head, Full::new(body)))
    }

    async fn connect(&self) -> io::Result<Sender> {
        let stream = TcpStream::connect(&self.backend).await?;
        stream.set_nodelay(true)?;
        let connection = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connection.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;
type Backend = Arc<tokio::sync::Mutex<Option<Sender>>>;

impl Fault {
    /// Whether the request is done, and only its answer is not what it was.
    fn applies(self) -> bool {
        matches!(self, Self::DropAfterApply | Self::AnswerAfterApply(_) | Self::ApplyAndSwallow)
    }
}

/// Headers that speak of the connection behind and not of the one before.
fn strip(headers: &mut HeaderMap) {
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        headers.remove(name);
    }
}

/// An error as S3 words it.
fn refusal(status: u16) -> Response<Full<Bytes>> {
    let code = match status {
        409 => "ConditionalRequestConflict",
        503 => "SlowDown",
        _ => "InternalError",
    };
    let body =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>injected</Message></Error>");
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/xml"));
    answer
}
