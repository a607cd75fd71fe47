//! The built binary as a process: flags, start-up, protocols on its port, and its end.

#[path = "support/mod.rs"]
mod support;

use std::process::{Command, Output};
use std::time::Duration;

use support::careless::{self, Ignores};
use support::process::Process;
use support::server::{Server, ServerOptions};

const WITHIN: Duration = Duration::from_secs(20);

fn leat(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leat"));
    command.args(args).envs(variables.iter().copied()).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A client that speaks only the given version.
fn client(http2: bool) -> reqwest::Client {
    leat::serve::install_crypto();
    let builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
    let builder = if http2 { builder.http2_prior_knowledge() } else { builder.http1_only() };
    builder.build().expect("a client")
}

async fn version(client: &reqwest::Client, server: &Server) -> reqwest::Version {
    let response = client.get(format!("{}/health", server.url)).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    response.version()
}

#[test]
fn help_and_version_are_answers_not_errors() {
    let help = leat(&["--help"], &[]);
    assert_eq!(help.status.code(), Some(0));
    for word in ["LEAT_STORE", "LEAT_LISTEN", "127.0.0.1:4437", "Examples:", "AWS_ENDPOINT_URL"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
    let version = leat(&["--version"], &[]);
    assert_eq!(version.status.code(), Some(0));
    assert_eq!(stdout(&version), format!("leat {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_values_from_flags_and_variables_are_named_together() {
    let output = leat(&["--store", "gs://x"], &[("LEAT_LISTEN", "nowhere"), ("LEAT_LOG_FORMAT", "xml")]);
    assert_eq!(output.status.code(), Some(2));
    for word in ["--store", "s3://bucket[/prefix]", "LEAT_LISTEN", "LEAT_LOG_FORMAT", "`text` or `json`"] {
        assert!(stderr(&output).contains(word), "{word} in {}", stderr(&output));
    }
}

#[test]
fn an_unknown_flag_is_a_usage_error() {
    let output = leat(&["--stroe", "memory:"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--stroe"));
}

#[test]
fn a_port_in_use_ends_the_start_with_one_line() {
    let server = ServerOptions::on("memory:").start();
    let output = leat(&["--store", "memory:", "--listen", &server.address], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("cannot listen on {}", server.address)), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

#[test]
fn missing_tls_files_end_the_start_with_their_name() {
    let output =
        leat(&["--store", "memory:", "--tls-cert", "no-such.pem", "--tls-key", "no-such-key.pem"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no-such.pem"), "{}", stderr(&output));
}

/// T20: with such a store, two writers would both be told that they had won.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_ignores_conditions_is_refused_by_name() {
    for (ignores, header) in [(Ignores::IfNoneMatch, "If-None-Match"), (Ignores::IfMatch, "If-Match")] {
        let address = careless::start(ignores).await;
        let endpoint = format!("http://{address}");
        let refused = tokio::task::spawn_blocking(move || {
            let variables = [
                ("AWS_ENDPOINT_URL", endpoint.as_str()),
                ("AWS_ACCESS_KEY_ID", "a"),
                ("AWS_SECRET_ACCESS_KEY", "b"),
            ];
            leat(&["--store", "s3://bucket", "--listen", "127.0.0.1:0"], &variables)
        });
        let output = refused.await.expect("no panic");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(header), "{header} in {}", stderr(&output));
    }
}

#[test]
fn start_up_tells_where_it_listens_what_it_stores_in_who_may_call_and_what_to_try() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).start();
    let [listens, stores, open, curl] = &server.banner;
    assert!(listens.ends_with(&server.url), "{listens}");
    assert!(stores.contains(&format!("file://{}", folder.path().display())), "{stores}");
    assert!(open.starts_with("open to "), "{open}");
    assert!(curl.starts_with("try: curl ") && curl.contains(&server.url), "{curl}");
}

#[test]
fn without_a_token_no_address_but_loopback_is_served() {
    let refused = leat(&["--store", "memory:", "--listen", "0.0.0.0:0"], &[]);
    assert_eq!(refused.status.code(), Some(2));
    for word in ["LEAT_ROOT_TOKEN", "--auth none"] {
        assert!(stderr(&refused).contains(word), "{word} in {}", stderr(&refused));
    }
    let function = leat(&[], &[("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1"), ("LEAT_STORE", "memory:")]);
    assert_eq!(function.status.code(), Some(2), "{}", stderr(&function));
    assert!(stderr(&function).contains("LEAT_ROOT_TOKEN"), "{}", stderr(&function));
}

#[tokio::test]
async fn a_token_guards_everything_but_health_and_is_never_logged() {
    const TOKEN: &str = "hush-0123456789abcdef";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("the folder can be written");
    let by_variable = ServerOptions::on("memory:")
        .variables(&[("LEAT_ROOT_TOKEN".to_owned(), TOKEN.to_owned())])
        .flag("--log", "trace")
        .start();
    let by_file = ServerOptions::on("memory:").flag("--root-token-file", &file.to_string_lossy()).start();
    for server in [&by_variable, &by_file] {
        assert!(server.banner[2].contains("root token"), "{:?}", server.banner);
        let client = client(false);
        let status = async |path: &str, token: Option<&str>| {
            let mut request = client.get(format!("{}{path}", server.url));
            if let Some(token) = token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            request.send().await.expect("an answer").status().as_u16()
        };
        for path in ["/health", "/ping"] {
            assert_eq!(status(path, None).await, 200, "{path}");
        }
        for path in ["/v1/basins", "/v1/locations", "/metrics"] {
            assert_eq!(status(path, None).await, 401, "{path}");
            assert_eq!(status(path, Some("hush-0123456789abcdeg")).await, 401, "{path}");
            assert_eq!(status(path, Some(TOKEN)).await, 200, "{path}");
        }
        assert_eq!(status("/nothing", None).await, 401, "what exists is nobody's business");
        assert!(!server.log().contains(TOKEN));
    }
}

#[test]
fn a_token_that_cannot_be_had_ends_the_start() {
    let missing = leat(&["--store", "memory:", "--root-token-file", "/nowhere/token"], &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("/nowhere/token"), "{}", stderr(&missing));
}

#[tokio::test]
async fn http_1_and_http_2_without_tls_share_the_port() {
    let server = ServerOptions::on("memory:").start();
    assert_eq!(version(&client(false), &server).await, reqwest::Version::HTTP_11);
    assert_eq!(version(&client(true), &server).await, reqwest::Version::HTTP_2);
}

#[tokio::test]
async fn tls_offers_both_versions() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("the folder can be written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("the folder can be written");
    let server = ServerOptions::on("memory:")
        .flag("--tls-cert", &cert.to_string_lossy())
        .flag("--tls-key", &key.to_string_lossy())
        .start();
    assert!(server.url.starts_with("https://"), "{}", server.url);
    assert_eq!(version(&client(false), &server).await, reqwest::Version::HTTP_11);
    let either = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
    let either = either.build().expect("a client");
    assert_eq!(version(&either, &server).await, reqwest::Version::HTTP_2);
}

#[test]
fn sigterm_ends_an_idle_server_at_once_and_in_order() {
    let mut server = ServerOptions::on("memory:").start();
    // One that was opened ahead of need and has sent nothing: it must not hold up the end.
    let idle = std::net::TcpStream::connect(&server.address).expect("it accepts");
    std::thread::sleep(Duration::from_millis(100));
    server.sigterm();
    assert_eq!(server.wait(Duration::from_secs(5)).code(), Some(0), "{}", server.log());
    assert!(server.log().contains("draining"), "{}", server.log());
    drop(idle);
}

#[test]
fn ctrl_c_ends_it_too() {
    let mut server = ServerOptions::on("memory:").start();
    server.signal("INT");
    assert_eq!(server.wait(Duration::from_secs(5)).code(), Some(0), "{}", server.log());
}

#[test]
fn the_log_is_json_when_asked() {
    let mut server = ServerOptions::on("memory:").flag("--log-format", "json").start();
    server.sigterm();
    server.wait(WITHIN);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("draining")).unwrap_or_else(|| panic!("{log}"));
    let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(event["message"], "draining");
    assert_eq!(event["level"], "INFO");
}

#[test]
fn a_child_that_cannot_start_fails_its_test_at_once() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leat"));
    let mut process = Process::start("leat", command.arg("--bogus"));
    assert_eq!(process.wait(WITHIN).code(), Some(2));
    assert!(process.stderr.text().contains("--bogus"));
}
