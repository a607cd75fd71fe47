//! The public suite of Durable Streams, whole and counted, under both mounts; and one scenario for every client.

use std::process::Command;

use serde_json::Value;

use crate::script::{Place, Replacing};
use crate::support::server::ServerOptions;
use crate::support::tools;

/// Cases of the suite without its optional subscriptions.
const CASES: usize = 332;
/// The subscriptions.
const LEFT_OUT: usize = 6;
/// Cases that are known to fail, by their full names.
const KNOWN_GAPS: [&str; 0] = [];
/// How long a long-poll waits here, so that the suite need not.
const LONG_POLL_MS: &str = "2000";
/// Steps of the clients' scenarios: a step that is lost must not go unnoticed.
const CLIENT_STEPS: usize = 22;
const PYTHON_STEPS: usize = 12;

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn run_suite(bucket: Option<&str>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).flag("--long-poll-ms", LONG_POLL_MS).start();
    let results = folder.path().join("results.json");
    let home = tools::durable_streams();
    let mut vitest: Command = tools::node();
    vitest
        .current_dir(&home)
        .arg(home.join("node_modules").join("vitest").join("vitest.mjs"))
        .args(["run", "conformance.test.mjs", "--reporter=json"])
        .arg(format!("--outputFile.json={}", results.display()))
        .env("LEAT_URL", &server.url)
        .env("LEAT_LONG_POLL_MS", LONG_POLL_MS);
    if let Some(bucket) = bucket {
        vitest.env("LEAT_BUCKET", bucket);
    }
    let output = vitest.output().expect("node can be run");
    let bytes = std::fs::read(&results).unwrap_or_else(|_| {
        panic!("no results:\n{}", String::from_utf8_lossy(&output.stderr));
    });
    let results: Value = serde_json::from_slice(&bytes).expect("the reporter writes JSON");
    let cases: Vec<_> =
        list(&results, "testResults").flat_map(|file| list(file, "assertionResults")).collect();
    let names = |status: &str| -> Vec<&str> {
        cases
            .iter()
            .filter(|case| text(case, "status") == status)
            .map(|case| text(case, "fullName"))
            .collect()
    };
    assert_eq!(
        names("failed"),
        KNOWN_GAPS,
        "{:?}",
        cases.iter().find(|case| text(case, "status") == "failed")
    );
    assert_eq!(names("passed").len(), CASES - KNOWN_GAPS.len());
    assert_eq!(cases.len(), CASES + LEFT_OUT);
}

#[test]
fn durable_streams_pass_the_public_suite_under_any_path() {
    run_suite(None);
}

#[test]
fn durable_streams_pass_the_public_suite_in_a_bucket() {
    run_suite(Some("suite"));
}

#[test]
fn durable_streams_clients_work() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut script = tools::node();
    script.current_dir(tools::durable_streams()).arg("clients.mjs");
    Place::start(&ServerOptions::on_folder(folder.path()), Replacing::Never).run(script, CLIENT_STEPS);
}

#[test]
fn durable_streams_python_client_works() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = ServerOptions::on_folder(folder.path()).flag("--long-poll-ms", LONG_POLL_MS);
    Place::start(&options, Replacing::Never).run(tools::python_durable_streams(), PYTHON_STEPS);
}
