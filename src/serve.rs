//! The server: one port for HTTP/1.1 and HTTP/2, cleartext or TLS, and its orderly end.
//!
//! Cleartext HTTP/2 is by prior knowledge, under TLS both are offered by ALPN. The loop is our own because the
//! order of the end matters: first new work is refused (`drain`), then no connection is accepted, then what is
//! in flight finishes, up to a deadline.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// Connections served at once; more wait in the system's backlog.
const CONNECTIONS_MAX: usize = 10_000;
/// Time for the first byte and for the TLS handshake.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the head of an HTTP/1.1 request; also how long an idle connection is kept. Longer than the 60 s
/// after which common clients and proxies let go, so that they, not we, close first.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Longest request head, in bytes: a 512-byte name may be 1,536 bytes of path.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// Request streams on one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 1_000;
/// What a client may send ahead on one HTTP/2 stream, in bytes: a whole unary body.
const H2_STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// The same on one connection.
const H2_CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// How often a silent HTTP/2 connection is pinged, and how long the answer may take.
const H2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Pause after a failed accept, doubled up to the second value while it goes on failing.
const ACCEPT_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// As configured.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The certificate or the key is missing, unreadable, or they do not fit.
    #[error("cannot use the TLS files: {what}")]
    Tls {
        /// Which file, or both.
        what: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The process cannot listen for signals.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

/// A certificate and its key, ready to serve with.
#[derive(Clone)]
pub struct TlsConfig(TlsAcceptor);

impl std::fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsConfig")
    }
}

impl TlsConfig {
    /// Loads a chain and its key, both in PEM.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, Error> {
        let failed = |path: &Path, source| Error::Tls { what: path.display().to_string(), source };
        let chain = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|source| failed(cert, source.into()))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|source| failed(key, source.into()))?;
        Self::new(chain, key).map_err(|source| failed(cert, source.into()))
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Makes ring the crypto of every TLS client in this process. Harmless if done twice.
pub fn install_crypto() {
    // The error only says that another call came first.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// Binds the address, `host:port`.
pub async fn listen(address: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address: address.to_owned(), source })
}

/// One message per SIGTERM or Ctrl-C.
pub fn signals() -> Result<mpsc::Receiver<()>, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if sender.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// How a server ends.
#[derive(Debug)]
pub struct Ending {
    /// Each message asks to stop: the first drains, the second ends at once.
    pub stop: mpsc::Receiver<()>,
    /// Set to true before anything else; the router refuses new work from then on.
    pub drain: watch::Sender<bool>,
    /// Time for what is in flight.
    pub drain_timeout: Duration,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything in flight has been answered.
    Drained,
    /// The time was up with this many connections open.
    TimedOut(usize),
    /// Asked twice, with this many connections open.
    Interrupted(usize),
}

/// Serves until asked to stop.
pub async fn run(listener: TcpListener, app: Router, tls: Option<TlsConfig>, mut ending: Ending) -> Ended {
    let connections = GracefulShutdown::new();
    let server = Server {
        http: http(),
        app,
        tls,
        drained: ending.drain.subscribe(),
        places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
    };
    tokio::select! {
        () = accept(&listener, &server, &connections) => {}
        _ = ending.stop.recv() => {}
    }
    ending.drain.send_replace(true);
    drop(listener);
    tracing::info!(connections = connections.count(), "draining");

    // Counts itself out, so that the number below is that of the connections still open.
    let open = Arc::clone(&server.places);
    let still_open = move || CONNECTIONS_MAX.saturating_sub(open.available_permits());
    let asked_again = async {
        if ending.stop.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = connections.shutdown() => Ended::Drained,
        () = tokio::time::sleep(ending.drain_timeout) => Ended::TimedOut(still_open()),
        () = asked_again => Ended::Interrupted(still_open()),
    }
}

/// What every connection needs.
struct Server {
    http: Builder<TokioExecutor>,
    app: Router,
    tls: Option<TlsConfig>,
    drained: watch::Receiver<bool>,
    places: Arc<Semaphore>,
}

/// The protocol limits.
fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX as usize)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_concurrent_streams(H2_STREAMS_MAX)
        .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(H2_PING_INTERVAL)
        .keep_alive_timeout(H2_PING_INTERVAL);
    builder
}

/// Accepts for ever; pauses while the system cannot give us connections.
async fn accept(listener: &TcpListener, server: &Server, connections: &GracefulShutdown) {
    let mut pause = ACCEPT_PAUSES.0;
    loop {
        let Ok(place) = Arc::clone(&server.places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                pause = ACCEPT_PAUSES.0;
                // Made here, not in the task: a shutdown between the two must still see this connection.
                let connection = Connection {
                    http: server.http.clone(),
                    app: server.app.clone(),
                    drained: server.drained.clone(),
                    watcher: connections.watcher(),
                };
                let tls = server.tls.clone();
                tokio::spawn(async move {
                    connection.serve(stream, tls).await;
                    drop(place);
                });
            }
            // The client gave up before we came to it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSES.1);
            }
        }
    }
}

/// One connection.
struct Connection {
    http: Builder<TokioExecutor>,
    app: Router,
    drained: watch::Receiver<bool>,
    watcher: Watcher,
}

impl Connection {
    async fn serve(mut self, stream: TcpStream, tls: Option<TlsConfig>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot send small packets at once");
        }
        match tls {
            None => {
                // Clients open connections ahead of need: one that has sent nothing must not hold up the end.
                let opened = self.open(async { stream.readable().await }).await;
                if opened.is_some() {
                    self.serve_http(stream).await;
                }
            }
            Some(TlsConfig(acceptor)) => {
                if let Some(stream) = self.open(acceptor.accept(stream)).await {
                    self.serve_http(stream).await;
                }
            }
        }
    }

    /// The opening's outcome, unless it fails, takes too long, or the server ends first.
    async fn open<T>(&mut self, opening: impl Future<Output = io::Result<T>>) -> Option<T> {
        tokio::select! {
            _ = self.drained.wait_for(|drained| *drained) => None,
            opened = tokio::time::timeout(OPEN_TIMEOUT, opening) => match opened {
                Ok(Ok(opened)) => Some(opened),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a connection did not open");
                    None
                }
                Err(_) => None,
            },
        }
    }

    async fn serve_http(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = TowerToHyperService::new(self.app);
        let connection = self.http.serve_connection(TokioIo::new(stream), service).into_owned();
        if let Err(error) = self.watcher.watch(connection).await {
            tracing::debug!(error, "a connection ended early");
        }
    }
}

/// What tells a newcomer what runs, where the data is, who may call, and what to try.
#[must_use]
pub fn banner(address: SocketAddr, tls: bool, store: &str, open: bool) -> String {
    let (scheme, insecure) = if tls { ("https", "-k ") } else { ("http", "") };
    let mut near = address;
    if address.ip().is_unspecified() {
        near.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        });
    }
    let (access, token) = if open {
        ("open to whoever reaches this address", "")
    } else {
        ("asks for the root token", " -H \"authorization: Bearer $LEAT_ROOT_TOKEN\"")
    };
    format!(
        "leat {version} listens on {scheme}://{address}\n\
         stores in {store}\n\
         {access}\n\
         try: curl {insecure}{scheme}://{near}/v1/basins{token} -H 'content-type: application/json' -d '{{\"basin\":\"demo-basin\"}}'\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::extract::State;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

    /// A server whose one route announces itself, then answers when told to.
    struct Fixture {
        address: SocketAddr,
        stop: mpsc::Sender<()>,
        drained: watch::Receiver<bool>,
        entered: Arc<Notify>,
        answer: Arc<Notify>,
        server: JoinHandle<Ended>,
    }

    async fn start(drain_timeout: Duration) -> Fixture {
        let listener = listen("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = mpsc::channel(2);
        let (drain, drained) = watch::channel(false);
        let (entered, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let app =
            Router::new().route("/", get(handler)).with_state((Arc::clone(&entered), Arc::clone(&answer)));
        let ending = Ending { stop: stopped, drain, drain_timeout };
        let server = tokio::spawn(run(listener, app, None, ending));
        Fixture { address, stop, drained, entered, answer, server }
    }

    async fn handler(State((entered, answer)): State<(Arc<Notify>, Arc<Notify>)>) -> &'static str {
        entered.notify_one();
        answer.notified().await;
        "done"
    }

    impl Fixture {
        /// Sends a request and returns once the handler has it.
        async fn request(&self) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.expect("it accepts");
            stream.write_all(REQUEST).await.expect("it reads");
            self.entered.notified().await;
            stream
        }

        async fn stop(&self) {
            self.stop.send(()).await.expect("the server runs");
        }
    }

    #[tokio::test]
    async fn what_is_in_flight_finishes_after_new_work_is_refused() {
        let mut fixture = start(Duration::from_secs(60)).await;
        let mut stream = fixture.request().await;
        fixture.stop().await;
        fixture.drained.wait_for(|drained| *drained).await.expect("the server holds the sender");
        assert!(!fixture.server.is_finished());
        // The listener goes right after the flag; then nobody answers at this address.
        while TcpStream::connect(fixture.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        fixture.answer.notify_one();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
        assert_eq!(fixture.server.await.expect("no panic"), Ended::Drained);
    }

    #[tokio::test]
    async fn draining_ends_at_its_deadline() {
        let fixture = start(Duration::from_millis(50)).await;
        let _stream = fixture.request().await;
        fixture.stop().await;
        assert_eq!(fixture.server.await.expect("no panic"), Ended::TimedOut(1));
    }

    #[tokio::test]
    async fn a_second_request_to_stop_ends_at_once() {
        let fixture = start(Duration::from_secs(600)).await;
        let _stream = fixture.request().await;
        fixture.stop().await;
        fixture.stop().await;
        assert_eq!(fixture.server.await.expect("no panic"), Ended::Interrupted(1));
    }

    #[tokio::test]
    async fn a_connection_that_has_sent_nothing_does_not_hold_up_the_end() {
        let fixture = start(Duration::from_secs(600)).await;
        let _idle = TcpStream::connect(fixture.address).await.expect("it accepts");
        let _busy = fixture.request().await;
        fixture.answer.notify_one();
        fixture.stop().await;
        assert_eq!(fixture.server.await.expect("no panic"), Ended::Drained);
    }

    #[test]
    fn the_banner_names_an_address_that_can_be_reached() {
        let any = "0.0.0.0:4437".parse().expect("an address");
        let text = banner(any, true, "memory:", true);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].ends_with("listens on https://0.0.0.0:4437"));
        assert_eq!(lines[1], "stores in memory:");
        assert!(lines[2].starts_with("open to "), "{}", lines[2]);
        assert!(lines[3].starts_with("try: curl -k https://127.0.0.1:4437/v1/basins "), "{}", lines[3]);
        let guarded = banner(any, false, "memory:", false);
        assert!(guarded.contains("root token") && guarded.contains("Bearer $LEAT_ROOT_TOKEN"), "{guarded}");
    }
}
