//! The server that the modules share, and a client that keeps tests short.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::support::server::{Server, ServerOptions};

/// What no answer here takes.
pub const WITHIN: Duration = Duration::from_secs(20);

/// The shared server, and a shell that kills it when this process is gone, however it went: statics are never
/// dropped.
struct Shared {
    url: String,
    address: String,
    _server: Mutex<Server>,
    _guard: Mutex<Child>,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let server = ServerOptions::on("memory:").start();
        let mut guard = Command::new("sh");
        guard.args(["-c", "cat >/dev/null; kill -9 \"$1\"", "guard", &server.id().to_string()]);
        let guard = guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Shared {
            url: server.url.clone(),
            address: server.address.clone(),
            _server: Mutex::new(server),
            _guard: Mutex::new(guard.expect("a shell")),
        }
    })
}

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}-{:05}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An HTTP/1.1 client.
pub fn http_1() -> reqwest::Client {
    leat::serve::install_crypto();
    reqwest::Client::builder().no_proxy().http1_only().build().expect("a client")
}

/// An HTTP/2 client that does not ask first.
pub fn http_2() -> reqwest::Client {
    leat::serve::install_crypto();
    reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().expect("a client")
}

/// Percent-encodes all but letters and digits.
pub fn encode(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// The path of a stream's records.
pub fn records(stream: &str) -> String {
    format!("/streams/{}/records", encode(stream))
}

/// A client with a basin on some server.
#[derive(Clone, Debug)]
pub struct World {
    client: reqwest::Client,
    /// `http://host:port`.
    pub url: String,
    /// `host:port`.
    pub address: String,
    /// Sent as `s2-basin`.
    pub basin: String,
}

impl World {
    /// A new basin without a configuration on the shared server.
    pub async fn new() -> Self {
        Self::with(json!({})).await
    }

    /// A new basin on the shared server.
    pub async fn with(config: Value) -> Self {
        let world = Self::bare();
        world.create_basin(config).await;
        world
    }

    /// The shared server and a basin name that nobody has created.
    pub fn bare() -> Self {
        let Shared { url, address, .. } = shared();
        Self { client: http_1(), url: url.clone(), address: address.clone(), basin: unique("basin") }
    }

    /// A basin of this name, not created, on a server of the test's own.
    pub fn on(server: &Server, basin: &str) -> Self {
        Self::at(&server.url, basin)
    }

    /// The same on whatever answers below this URL.
    pub fn at(url: &str, basin: &str) -> Self {
        let address = url.split('/').nth(2).unwrap_or_default().to_owned();
        Self { client: http_1(), url: url.to_owned(), address, basin: basin.to_owned() }
    }

    /// The same over another client.
    pub fn over(&self, client: reqwest::Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// Creates the basin.
    pub async fn create_basin(&self, config: Value) {
        let body = json!({"basin": self.basin, "config": config});
        self.post("/basins").json(&body).send().await.is(201);
    }

    /// A call below `/v1`.
    pub fn call(&self, method: &str, path: &str) -> Call {
        let method = method.parse().expect("a method");
        let builder = self.client.request(method, format!("{}/v1{path}", self.url));
        Call(builder.header("s2-basin", &self.basin))
    }

    /// The same without `s2-basin`, at the root.
    pub fn root(&self, method: &str, path: &str) -> Call {
        let method = method.parse().expect("a method");
        Call(self.client.request(method, format!("{}{path}", self.url)))
    }

    /// `GET`.
    pub fn get(&self, path: &str) -> Call {
        self.call("GET", path)
    }

    /// `POST`.
    pub fn post(&self, path: &str) -> Call {
        self.call("POST", path)
    }

    /// `PUT`.
    pub fn put(&self, path: &str) -> Call {
        self.call("PUT", path)
    }

    /// `PATCH`.
    pub fn patch(&self, path: &str) -> Call {
        self.call("PATCH", path)
    }

    /// `DELETE`.
    pub fn delete(&self, path: &str) -> Call {
        self.call("DELETE", path)
    }

    /// Creates a stream.
    pub async fn stream(&self, name: &str) {
        self.stream_with(name, json!({})).await;
    }

    /// Creates a stream with a configuration.
    pub async fn stream_with(&self, name: &str, config: Value) {
        let body = json!({"stream": name, "config": config});
        self.post("/streams").json(&body).send().await.is(201);
    }

    /// Appends whatever JSON this is.
    pub async fn append(&self, stream: &str, input: Value) -> Answer {
        self.post(&records(stream)).json(&input).send().await
    }

    /// Appends a record per body and returns the acknowledgement.
    pub async fn append_bodies(&self, stream: &str, bodies: &[&str]) -> Value {
        let records: Vec<_> = bodies.iter().map(|body| json!({"body": body})).collect();
        self.append(stream, json!({"records": records})).await.is(200).json()
    }

    /// One read.
    pub async fn read(&self, stream: &str, query: &str) -> Answer {
        self.get(&format!("{}?{query}", records(stream))).send().await
    }

    /// The tail's sequence number.
    pub async fn tail(&self, stream: &str) -> u64 {
        let answer = self.get(&format!("{}/tail", records(stream))).send().await.is(200);
        answer.json()["tail"]["seq_num"].as_u64().expect("a number")
    }

    /// A read over SSE.
    pub async fn follow(&self, stream: &str, query: &str) -> Events {
        self.get(&format!("{}?{query}", records(stream))).events().await
    }
}

/// A request.
#[derive(Debug)]
pub struct Call(reqwest::RequestBuilder);

impl Call {
    /// Adds a header.
    pub fn header(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value))
    }

    /// A JSON body and its type.
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// A body without a type.
    pub fn body(self, body: impl Into<reqwest::Body>) -> Self {
        Self(self.0.body(body))
    }

    /// Sends it and collects the answer.
    pub async fn send(self) -> Answer {
        self.try_send().await.expect("an answer")
    }

    /// The same, where the server may go away.
    pub async fn try_send(self) -> reqwest::Result<Answer> {
        let response = self.0.timeout(Duration::from_secs(90)).send().await?;
        Ok(Answer {
            status: response.status().as_u16(),
            version: response.version(),
            headers: response.headers().clone(),
            body: response.bytes().await?,
        })
    }

    /// Sends it; the body of the answer is yet to come.
    pub async fn open(self) -> reqwest::Result<reqwest::Response> {
        self.0.send().await
    }

    /// Sends it and reads the answer as server-sent events.
    pub async fn events(self) -> Events {
        let events = self.try_events().await.expect("an answer");
        events.unwrap_or_else(|answer| panic!("{} {}", answer.status, answer.text()))
    }

    /// The same, where the answer may be an error.
    pub async fn try_events(self) -> reqwest::Result<Result<Events, Answer>> {
        let response = self.0.header("accept", "text/event-stream").send().await?;
        let (status, version) = (response.status().as_u16(), response.version());
        let headers = response.headers().clone();
        if status != 200 {
            return Ok(Err(Answer { status, version, headers, body: response.bytes().await? }));
        }
        Ok(Ok(Events { headers, response, buffer: Vec::new() }))
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its protocol.
    pub version: http::Version,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
}

impl Answer {
    /// Asserts the status.
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Asserts an error: status, code, and a part of its message.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str, part: &str) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/json");
        let body = self.json();
        assert_eq!(body["code"], code, "{body}");
        let message = body["message"].as_str().expect("a message");
        assert!(message.contains(part), "no {part:?} in {message:?}");
        self
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// A header, empty if absent.
    pub fn header(&self, name: &str) -> String {
        self.headers.get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default()
    }

    /// Sequence numbers of the records in a batch.
    #[track_caller]
    pub fn seq_nums(&self) -> Vec<u64> {
        assert_eq!(self.status, 200, "{}", self.text());
        seq_nums(&self.json())
    }

    /// Bodies of the records in a batch.
    #[track_caller]
    pub fn bodies(&self) -> Vec<String> {
        assert_eq!(self.status, 200, "{}", self.text());
        bodies(&self.json())
    }
}

/// Sequence numbers of the records in a batch.
pub fn seq_nums(batch: &Value) -> Vec<u64> {
    let records = batch["records"].as_array().expect("records");
    records.iter().map(|record| record["seq_num"].as_u64().expect("a number")).collect()
}

/// Bodies of the records in a batch.
pub fn bodies(batch: &Value) -> Vec<String> {
    let records = batch["records"].as_array().expect("records");
    records.iter().map(|record| record["body"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Events of an answer.
#[derive(Debug)]
pub struct Events {
    /// Headers of the answer.
    pub headers: HeaderMap,
    response: reqwest::Response,
    buffer: Vec<u8>,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Empty for the mark of the end.
    pub name: String,
    /// Empty if it has none.
    pub id: String,
    /// The data lines, joined.
    pub data: String,
}

impl Event {
    /// The data as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl Events {
    /// The next event; `None` once the body ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.next_within(WITHIN).await
    }

    /// The same with another patience.
    pub async fn next_within(&mut self, within: Duration) -> Option<Event> {
        match tokio::time::timeout(within, self.try_next()).await {
            Ok(event) => event.expect("the connection holds"),
            Err(_) => panic!("no event within {within:?}"),
        }
    }

    /// The same, where the server may go away.
    pub async fn try_next(&mut self) -> reqwest::Result<Option<Event>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.buffer.split_off(end + 2);
                let text = String::from_utf8(std::mem::replace(&mut self.buffer, rest)).expect("UTF-8");
                return Ok(Some(parse_event(&text)));
            }
            match self.response.chunk().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => {
                    assert!(self.buffer.is_empty(), "half an event: {:?}", self.buffer);
                    return Ok(None);
                }
            }
        }
    }

    /// The next event that is no ping.
    pub async fn next_but_pings(&mut self) -> Option<Event> {
        loop {
            match self.next().await {
                Some(event) if event.name == "ping" => {}
                other => return other,
            }
        }
    }

    /// All that is left, to the end of the body.
    pub async fn rest(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

fn parse_event(text: &str) -> Event {
    let mut event = Event::default();
    // An event stream knows three ends of line; ours must use one only.
    assert!(!text.contains('\r'), "{text:?}");
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (field, value) = line.split_once(':').unwrap_or_else(|| panic!("a line {line:?}"));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            // A comment.
            "" => {}
            "event" => value.clone_into(&mut event.name),
            "id" => value.clone_into(&mut event.id),
            "data" if event.data.is_empty() => value.clone_into(&mut event.data),
            "data" => write!(event.data, "\n{value}").expect("text"),
            other => panic!("a field {other:?}"),
        }
    }
    event
}

/// Sends bytes over a plain socket and returns all that comes back until the server closes.
pub fn raw(address: &str, request: &[u8]) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(WITHIN)).expect("a timeout");
    stream.write_all(request).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of a raw answer.
pub fn raw_status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}
