//! The deployed thing without AWS: the built binary as a function of MiniStack's Lambda, behind its Function URL, on
//! its S3, with the root token in its Secrets Manager. `template.yaml` sets up the same.
//!
//! MiniStack starts the binary as a process, one for each call at a time, and hands answers on once they are whole.
//! Unlike AWS it decodes the path, so names are plain here.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::ministack::MiniStack;
use crate::support::tools;
use crate::world::{Call, World, bodies, records};

const TOKEN: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL";
/// What a call may take, in seconds.
const TIMEOUT_SECS: u64 = 5;

/// Puts a file as `bootstrap` into an archive and prints it in base64.
const PACK: &str = "
import base64, io, sys, zipfile
packed = io.BytesIO()
with zipfile.ZipFile(packed, 'w', zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
    entry = zipfile.ZipInfo('bootstrap')
    entry.external_attr, entry.compress_type = 0o755 << 16, zipfile.ZIP_DEFLATED
    with open(sys.argv[1], 'rb') as file:
        archive.writestr(entry, file.read())
sys.stdout.write(base64.b64encode(packed.getvalue()).decode())
";

/// A function that exists, and a client of its URL.
struct Function {
    ministack: MiniStack,
    world: World,
}

impl Function {
    async fn deploy() -> Self {
        let started = || (MiniStack::start_with("leat", "s3,lambda,secretsmanager"), pack());
        let (ministack, code) = tokio::task::spawn_blocking(started).await.expect("it starts");
        let aws = Aws { client: crate::world::http_1(), url: format!("http://{}", ministack.address) };
        let secret =
            json!({"Name": "root-token", "SecretString": TOKEN, "ClientRequestToken": "0".repeat(32)});
        let secret = aws.call("/", Some("secretsmanager.CreateSecret"), &secret).await;
        let function = json!({
            "FunctionName": "leat",
            "Runtime": "provided.al2023",
            "Handler": "bootstrap",
            "Role": "arn:aws:iam::000000000000:role/leat",
            "Timeout": TIMEOUT_SECS,
            "MemorySize": 512,
            "Code": {"ZipFile": code},
            "Environment": {"Variables": {
                "LEAT_STORE": ministack.store("leat"),
                "LEAT_RESPONSES": "stream",
                "LEAT_ROOT_TOKEN_SECRET": secret["ARN"],
                "LEAT_LOCATION": "aws:us-east-1",
                "LEAT_LOG_FORMAT": "json",
                "AWS_ENDPOINT_URL": aws.url,
            }},
        });
        aws.call("/2015-03-31/functions", None, &function).await;
        let url = json!({"AuthType": "NONE", "InvokeMode": "RESPONSE_STREAM"});
        let url = aws.call("/2021-10-31/functions/leat/url", None, &url).await;
        let host = url["FunctionUrl"].as_str().expect("a URL").trim_start_matches("https://");
        let id = host.split('.').next().expect("a label");
        let world = World::at(&format!("{}/_aws/lambda-url/{id}", aws.url), "on-lambda");
        Self { ministack, world }
    }

    fn call(&self, method: &str, path: &str) -> Call {
        self.world.call(method, path).header("authorization", &format!("Bearer {TOKEN}"))
    }

    async fn append(&self, stream: &str, body: &str) -> Value {
        let input = json!({"records": [{"body": body}]});
        let answer = self.call("POST", &records(stream)).json(&input).send().await;
        assert_eq!(answer.status, 200, "{}\n{}", answer.text(), self.ministack.log());
        answer.json()
    }
}

/// MiniStack's own API; it asks for no signature.
struct Aws {
    client: reqwest::Client,
    url: String,
}

impl Aws {
    async fn call(&self, path: &str, target: Option<&str>, input: &Value) -> Value {
        let mut call = self.client.post(format!("{}{path}", self.url)).body(input.to_string());
        call = match target {
            Some(target) => {
                call.header("x-amz-target", target).header("content-type", "application/x-amz-json-1.1")
            }
            None => call.header("content-type", "application/json"),
        };
        let answer = call.send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("a body");
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

fn pack() -> String {
    let python = tools::ministack().join("bin").join("python");
    // What `sam build` made can be put to the same test.
    let binary = std::env::var_os("LEAT_FUNCTION_BINARY").unwrap_or(env!("CARGO_BIN_EXE_leat").into());
    let output = Command::new(python).args(["-c", PACK]).arg(binary).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("base64")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves_streams_behind_its_url() {
    let function = Function::deploy().await;
    // Nobody gets in without the token that lies in the secret.
    let refused = function.world.get("/basins").send().await;
    assert_eq!(refused.status, 401, "{}\n{}", refused.text(), function.ministack.log());

    let basin = json!({"basin": "on-lambda", "config": {"create_stream_on_append": true}});
    function.call("POST", "/basins").json(&basin).send().await.is(201);
    for n in 0..3 {
        assert_eq!(function.append("order-42", &format!("order {n}")).await["start"]["seq_num"], n);
    }
    let read = function.call("GET", &format!("{}?seq_num=0", records("order-42"))).send().await.is(200);
    assert_eq!(read.bodies(), ["order 0", "order 1", "order 2"]);
    let listed = function.call("GET", "/streams").send().await.is(200).json();
    assert_eq!(listed["streams"][0]["name"], "order-42");
    let stale = json!({"records": [{"body": "late"}], "match_seq_num": 1});
    let stale = function.call("POST", &records("order-42")).json(&stale).send().await.is(412);
    assert_eq!(stale.json(), json!({"seq_num_mismatch": 3}));

    // A read that is finished ends with its mark.
    let path = format!("{}?seq_num=0&count=3", records("order-42"));
    let mut events = function.call("GET", &path).events().await;
    let batch = events.next().await.unwrap();
    assert_eq!(bodies(&batch.json()), ["order 0", "order 1", "order 2"]);
    let rest = events.rest().await;
    assert_eq!(rest.last().unwrap().data, "[DONE]", "{rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_read_ends_before_its_time_is_over_and_is_resumed() {
    let function = Function::deploy().await;
    let basin = json!({"basin": "on-lambda", "config": {"create_stream_on_append": true}});
    function.call("POST", "/basins").json(&basin).send().await.is(201);
    function.append("s", "first").await;
    let started = Instant::now();
    let mut events = function.call("GET", &format!("{}?seq_num=0", records("s"))).events().await;
    let batch = events.next().await.unwrap();
    assert_eq!(bodies(&batch.json()), ["first"]);
    let rest = events.rest().await;
    let took = started.elapsed();
    let time = Duration::from_secs(TIMEOUT_SECS);
    assert!(took > time / 2 && took < time, "{took:?}");
    let last = rest.last().unwrap();
    assert_eq!(last.name, "error", "not as if it were finished: {rest:?}");
    assert_eq!(function.append("s", "second").await["start"]["seq_num"], 1);
    let path = format!("{}?seq_num=0&count=2", records("s"));
    let resumed = function.call("GET", &path).header("last-event-id", &batch.id).events().await.rest().await;
    assert_eq!(bodies(&resumed[0].json()), ["second"], "{resumed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_once_run_in_processes_of_their_own_and_appends_stay_dense() {
    const APPENDS: u64 = 24;
    let function = Function::deploy().await;
    let basin = json!({"basin": "on-lambda", "config": {"create_stream_on_append": true}});
    function.call("POST", "/basins").json(&basin).send().await.is(201);
    let appends = (0..APPENDS).map(|n| {
        let input = json!({"records": [{"body": n.to_string()}]});
        let call = function.call("POST", &records("s")).json(&input);
        async move { call.send().await.is(200).json()["start"]["seq_num"].as_u64() }
    });
    let acked: BTreeSet<_> = futures::future::join_all(appends).await.into_iter().flatten().collect();
    assert_eq!(acked, (0..APPENDS).collect());
    let read = function.call("GET", &format!("{}?seq_num=0", records("s"))).send().await;
    let mut read: Vec<u64> = read.bodies().iter().map(|body| body.parse().unwrap()).collect();
    read.sort_unstable();
    assert_eq!(read, (0..APPENDS).collect::<Vec<_>>());
}
