//! Other people's clients against the built server: the official TypeScript SDK, on a local folder and on an
//! S3-compatible server.

#[path = "../support/mod.rs"]
mod support;

use support::ministack::MiniStack;
use support::server::{Server, ServerOptions};
use support::tools;

/// Steps of `ts/session.mjs`: a step that is lost must not go unnoticed.
const STEPS: usize = 35;

fn run_sessions(server: &Server) {
    for transport in ["fetch", "s2s"] {
        run_session(server, transport);
    }
}

fn run_session(server: &Server, transport: &str) {
    let home = tools::typescript_sdk();
    let mut node = tools::node();
    node.current_dir(&home)
        .args(["session.mjs", transport])
        .env("S2_ACCESS_TOKEN", "test")
        .env("S2_ACCOUNT_ENDPOINT", &server.url)
        .env("S2_BASIN_ENDPOINT", &server.url);
    let output = node.output().expect("node can be run");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{transport}: {stdout}\n{stderr}\n--- server log ---\n{}", server.log());
    let last = stdout.lines().last().unwrap_or_default();
    assert_eq!(last, format!("{STEPS} steps passed"), "{stdout}");
}

#[test]
fn the_typescript_sdk_works_on_a_local_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_sessions(&ServerOptions::on_folder(folder.path()).start());
}

#[test]
fn the_typescript_sdk_works_on_an_s3_compatible_server() {
    let ministack = MiniStack::start("leat-conformance");
    let options = ServerOptions::on(&ministack.store("sdk")).variables(&ministack.variables());
    run_sessions(&options.start());
}
