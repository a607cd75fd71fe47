//! S3 servers that ignore conditions, as their users know them: each is refused at start, by what it does wrong.

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::emulator::{free_port, variables};
use crate::support::process::Process;
use crate::support::server::ServerOptions;
use crate::support::tools;

/// Starts such a server on a folder that holds a bucket, and Leat on it; what Leat says before it gives up.
fn refusal(program: &str, arguments: impl FnOnce(&mut Command, &str, &str)) -> String {
    let data = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(data.path().join("bucket")).expect("a folder");
    let port = free_port().to_string();
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new(tools::careless().join("bin").join(program));
    arguments(&mut command, data.path().to_str().expect("text"), &port);
    let mut process = Process::start(program, &mut command);
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(&address).is_err() {
        let ended = process.ended();
        assert!(ended.is_none() && Instant::now() < until, "{program}: {ended:?} {}", process.stderr.text());
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = ServerOptions::on("s3://bucket/leat").variables(&variables(&address)).command().output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "it never listened");
    said
}

#[test]
fn nanio_ignores_if_none_match() {
    let said = refusal("nanio", |command, data, port| {
        command.args(["serve", "--host", "127.0.0.1", "--port", port, "--data-dir", data]);
        command.env("NANIO_ACCESS_KEY", "test").env("NANIO_SECRET_KEY", "test");
    });
    assert!(said.contains("the store ignores If-None-Match"), "{said}");
}

#[test]
fn localbucket_ignores_if_match() {
    let said = refusal("localbucket", |command, data, port| {
        command.args(["--host", "127.0.0.1", "--port", port, data]);
    });
    assert!(said.contains("the store ignores If-Match"), "{said}");
}
