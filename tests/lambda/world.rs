//! A function on a store, and calls through its fronts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events::{Call, Via};
use crate::runtime::{self, Head, Invocation, Piece, Runtime};
use crate::support::process::Process;

/// The function's timeout where a test needs none of its own.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The basin of most tests.
pub const BASIN: &str = "lambda-basin";

/// The environment of a function: the built binary, asking a runtime API for events.
pub struct Environment(Process);

impl Environment {
    /// Starts one on this store; nothing of the test's own `LEAT_*` and `AWS_*` is passed on.
    pub fn start(runtime: &Runtime, store: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leat"));
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("LEAT_") || name.starts_with("AWS_")) {
                command.env_remove(name);
            }
        }
        command
            .env("AWS_LAMBDA_RUNTIME_API", &runtime.address)
            .env("AWS_LAMBDA_FUNCTION_NAME", "leat")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512")
            .env("LEAT_STORE", store)
            .env("LEAT_AUTH", "none");
        for (name, value) in variables {
            match *value {
                "" => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        Self(Process::start("the function", &mut command))
    }

    /// `STOP` and `CONT` freeze and thaw it.
    pub fn signal(&self, signal: &str) {
        self.0.signal(signal);
    }

    /// Ends it as a crash would.
    pub fn kill_9(&mut self) {
        self.0.kill_9();
    }

    /// Waits for its end.
    pub fn wait(&mut self, within: Duration) -> std::process::ExitStatus {
        self.0.wait(within)
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.0.stderr.text()
    }
}

/// A function with one environment on a folder of its own.
pub struct World {
    pub runtime: Runtime,
    pub environment: Environment,
    folder: TempDir,
}

/// What a client gets.
#[derive(Debug)]
pub struct Reply {
    pub head: Head,
    pub body: Vec<u8>,
}

impl World {
    /// By default, answers of Function URLs and REST APIs are streamed. An empty variable is removed.
    pub async fn with(variables: &[(&str, &str)]) -> Self {
        let runtime = Runtime::start().await;
        let folder = tempfile::tempdir().unwrap();
        let environment = Environment::start(&runtime, &url(folder.path()), variables);
        Self { runtime, environment, folder }
    }

    /// The same with the basin, in which appends create streams.
    pub async fn with_basin(variables: &[(&str, &str)]) -> Self {
        let world = Self::with(variables).await;
        create_basin(&world.runtime).await;
        world
    }

    /// Its store.
    pub fn store(&self) -> String {
        url(self.folder.path())
    }

    /// A call, answered whole.
    pub async fn call(&self, via: Via, call: Call) -> Reply {
        send(&self.runtime, via, &call).await
    }
}

fn url(folder: &Path) -> String {
    format!("file://{}", folder.display())
}

/// Makes the basin of most tests.
pub async fn create_basin(runtime: &Runtime) {
    let config = json!({ "basin": BASIN, "config": { "create_stream_on_append": true } });
    send(runtime, Via::Url, &Call::new("POST", "/v1/basins").json(&config)).await.is(201);
}

/// A call in the basin.
pub fn call(method: &'static str, target: &str) -> Call {
    Call::new(method, &format!("/v1{target}")).header("s2-basin", BASIN)
}

/// The path of a stream's records.
pub fn records(stream: &str) -> String {
    format!("/streams/{}/records", encode(stream))
}

/// Percent-encodes all but letters and digits.
pub fn encode(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// An append of one record.
pub fn append(stream: &str, body: &str) -> Call {
    call("POST", &records(stream)).json(&json!({ "records": [{ "body": body }] }))
}

/// A read.
pub fn read(stream: &str, query: &str) -> Call {
    call("GET", &format!("{}?{query}", records(stream)))
}

/// The same as server-sent events.
pub fn follow(stream: &str, query: &str) -> Call {
    read(stream, query).header("accept", "text/event-stream")
}

/// A call, answered whole, within the usual time.
pub async fn send(runtime: &Runtime, via: Via, call: &Call) -> Reply {
    reply(runtime.invoke(&call.event(via), TIMEOUT), via).await
}

/// The answer, as the front hands it on.
pub async fn reply(mut invocation: Invocation, via: Via) -> Reply {
    match invocation.piece().await {
        Piece::Whole(json) => whole(&json, via),
        Piece::Chunk(first) => {
            let head = invocation.head_from(&first).await;
            let mut body = Vec::new();
            while let Some(chunk) = invocation.chunk().await.expect("a whole body") {
                body.extend_from_slice(&chunk);
            }
            Reply { head, body }
        }
        other => panic!("no answer but {other:?}"),
    }
}

fn whole(json: &[u8], via: Via) -> Reply {
    let answer: Value = serde_json::from_slice(json).expect("an answer is JSON");
    if via == Via::Balancer {
        assert!(json.len() <= 1024 * 1024, "{} bytes are too many for a load balancer", json.len());
    }
    let headers = runtime::headers(&answer["headers"]);
    let text = answer["body"].as_str().unwrap();
    let body = match answer["isBase64Encoded"].as_bool().unwrap() {
        true => BASE64_STANDARD.decode(text).unwrap(),
        false => text.as_bytes().to_vec(),
    };
    Reply { head: Head { status: answer["statusCode"].as_u64().unwrap() as u16, headers }, body }
}

impl Reply {
    /// Demands a status.
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.head.status, status, "{}", self.text());
        self
    }

    /// Demands an error.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str, part: &str) {
        let json = self.is(status).json();
        assert_eq!(json["code"], code, "{json}");
        assert!(json["message"].as_str().unwrap().contains(part), "{json}");
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The bodies of the records.
    #[track_caller]
    pub fn bodies(&self) -> Vec<String> {
        let json = self.json();
        let records = json["records"].as_array().unwrap();
        records.iter().map(|record| record["body"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The headers.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.head.headers
    }
}
