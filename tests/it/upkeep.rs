//! `leat sweep` and `leat inspect`, beside a server on the same folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::server::{Server, ServerOptions};
use crate::world::{WITHIN, World};

fn leat(folder: &Path, args: &[&str]) -> Output {
    let store = format!("file://{}", folder.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_leat"));
    command.args(args).args(["--store", &store, "--log", "warn"]).output().expect("the binary runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn report(folder: &Path, args: &[&str]) -> Value {
    let output = leat(folder, args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)))
}

/// The files below a folder of the store.
fn files(folder: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.join(part)];
    while let Some(next) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for entry in entries {
            let path = entry.expect("readable").path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found
}

async fn filled(server: &Server) -> World {
    let world = World::on(server, "demo-basin");
    world.create_basin(json!({})).await;
    for stream in ["orders/42", "other"] {
        world.stream(stream).await;
        for n in 0..60 {
            let body = format!("{n}{}", "x".repeat(900));
            world.append_bodies(stream, &[&body]).await;
        }
    }
    world
}

#[tokio::test]
async fn a_look_shows_the_store_a_basin_and_a_stream() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).start();
    let _world = filled(&server).await;
    let shown = text(&leat(folder.path(), &["inspect"]));
    assert!(shown.contains("demo-basin") && shown.contains("probed 20"), "{shown}");
    let shown = text(&leat(folder.path(), &["inspect", "demo-basin"]));
    assert!(shown.contains("\"orders/42\"") && shown.contains("\"other\""), "{shown}");
    let shown = text(&leat(folder.path(), &["inspect", "demo-basin", "orders/42"]));
    assert!(shown.contains("0 to 60") && shown.contains("32d "), "{shown}");
    let chunks = shown.lines().filter(|line| line.starts_with("chunk ")).count();
    assert_eq!(chunks * 2, files(folder.path(), "data").len(), "{shown}");
    let stream = report(folder.path(), &["inspect", "demo-basin", "orders/42", "--format", "json"]);
    let (level, inline) = (&stream["levels"][0], &stream["inline_records"]);
    assert_eq!(level["records"].as_u64().unwrap() + inline.as_u64().unwrap(), 60, "{stream}");
    assert_eq!(level["refs"].as_u64().unwrap() as usize * 2, files(folder.path(), "data").len());
    for (args, part) in
        [(&["inspect", "gone-basin"][..], "gone-basin"), (&["inspect", "demo-basin", "nothing"], "nothing")]
    {
        let refused = leat(folder.path(), args);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused).contains(part), "{}", text(&refused));
    }
    let empty = tempfile::tempdir().expect("a temporary folder");
    assert!(text(&leat(empty.path(), &["inspect"])).contains("nothing of Leat's is here"));
}

#[tokio::test]
async fn a_look_shows_buckets_and_what_their_streams_keep() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).start();
    let world = World::on(&server, "unused");
    let none = text(&leat(folder.path(), &["inspect"]));
    assert!(!none.contains("bucket"), "{none}");
    let path = "/v1/stream/chats/42";
    let create = world.root("PUT", path).header("content-type", "text/plain").header("stream-ttl", "3600");
    create.send().await.is(201);
    for seq in 0..2 {
        let call = world.root("POST", path).header("content-type", "text/plain").body("hello");
        let call = call.header("producer-id", "phone").header("producer-epoch", "3");
        call.header("producer-seq", &seq.to_string())
            .header("stream-seq", &format!("m{seq}"))
            .send()
            .await
            .is(200);
    }
    let snapshot = world.root("PUT", "/ds/chats/42/snapshot/0000000000000001").body("so far");
    snapshot.header("content-type", "a/b").send().await.is(204);
    let fork = world.root("PUT", "/ds/chats/fork").header("stream-forked-from", "/v1/stream/chats/42");
    fork.header("stream-closed", "true").send().await.is(201);
    let store = text(&leat(folder.path(), &["inspect"]));
    assert!(store.lines().any(|line| line.starts_with("chats ") && line.contains("live")), "{store}");
    let shown = text(&leat(folder.path(), &["inspect", "--bucket", "chats"]));
    let line =
        |name: &str| shown.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{shown}"));
    assert!(shown.starts_with("bucket chats, live since 20"), "{shown}");
    assert!(line("\"42\"").contains("ready") && line("\"42\"").contains("idle 3600"), "{shown}");
    assert!(line("\"fork\"").contains("closed"), "{shown}");
    let shown = text(&leat(folder.path(), &["inspect", "--bucket", "chats", "42"]));
    for part in [
        "text/plain",
        "1 to 2",
        "\"phone\" epoch 3 seq 1",
        "\"m1\"",
        "at 1, 6 bytes of a/b",
        "\"fork\", life",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let fork = report(folder.path(), &["inspect", "--bucket", "chats", "fork", "--format", "json"]);
    let ledger = &fork["ledger"];
    assert_eq!(
        (&ledger["is_closed"], &ledger["forked_from"]["stream"]),
        (&json!(true), &json!("42")),
        "{fork}"
    );
    assert_eq!((&ledger["forked_from"]["at"], &ledger["snapshot"]), (&json!(2), &Value::Null), "{fork}");
    // Deleted, the source is kept for its fork.
    world.root("DELETE", path).send().await.is(204);
    let bucket = report(folder.path(), &["inspect", "--bucket", "chats", "--format", "json"]);
    assert_eq!(
        (&bucket["kind"], &bucket["streams"][0]["ledger"]["stage"]),
        (&json!("bucket"), &json!("retired"))
    );
    let sound = leat(folder.path(), &["inspect", "--bucket", "chats", "--verify"]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound));
    assert!(text(&sound).contains("read 2 streams"), "{}", text(&sound));
    // A bucket is no basin.
    for args in [&["inspect", "--bucket", "gone"][..], &["inspect", "--bucket", "chats", "nothing"]] {
        let refused = leat(folder.path(), args);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused).contains("bucket `"), "{}", text(&refused));
    }
    assert_eq!(leat(folder.path(), &["inspect", "chats"]).status.code(), Some(2));
}

#[tokio::test]
async fn a_damaged_and_a_lost_chunk_are_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).start();
    let _world = filled(&server).await;
    let sound = leat(folder.path(), &["inspect", "--verify"]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound));
    assert!(text(&sound).contains("2 streams") && text(&sound).contains("120 records: 0 problems"));
    let chunks = files(folder.path(), "data");
    let mut bytes = std::fs::read(&chunks[0]).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&chunks[0], bytes).expect("written");
    std::fs::remove_file(&chunks[1]).expect("removed");
    let damaged = report(folder.path(), &["inspect", "--verify", "--format", "json"]);
    let findings: Vec<_> =
        damaged["findings"].as_array().unwrap().iter().map(|f| f["what"].as_str().unwrap()).collect();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings.iter().any(|what| what.contains("checksum")), "{findings:?}");
    assert!(findings.iter().any(|what| what.contains("not there")), "{findings:?}");
    assert_eq!(leat(folder.path(), &["inspect", "--verify"]).status.code(), Some(1));
}

#[tokio::test]
async fn the_streams_of_buckets_are_verified_as_well() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).start();
    let world = World::on(&server, "unused");
    let path = "/v1/stream/chats/42";
    world.root("PUT", path).header("content-type", "text/plain").send().await.is(201);
    for _ in 0..2 {
        let call = world.root("POST", path).header("content-type", "text/plain");
        call.body("x".repeat(100_000)).send().await.is(204);
    }
    let snapshot = "/ds/chats/42/snapshot/0000000000000001";
    world.root("PUT", snapshot).body("so far").send().await.is(204);
    let sound = leat(folder.path(), &["inspect", "--verify"]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound));
    // Both messages lie there until a sweep, and the snapshot counts as one more.
    assert!(
        text(&sound).contains("read 1 streams, 3 chunks and pages, 3 records: 0 problems"),
        "{}",
        text(&sound)
    );
    for chunk in files(folder.path(), "data") {
        std::fs::remove_file(chunk).expect("removed");
    }
    let damaged = report(folder.path(), &["inspect", "--verify", "--format", "json"]);
    let findings = damaged["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 3, "{damaged}");
    assert!(findings.iter().all(|f| f["bucket"] == "chats" && f["stream"] == "42"), "{damaged}");
    assert!(text(&leat(folder.path(), &["inspect", "--verify"])).contains("bucket chats stream \"42\""));
}

#[tokio::test]
async fn a_sweep_gives_back_the_space_of_a_deleted_stream() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).flag("--sweep-interval-ms", "0").start();
    let world = filled(&server).await;
    let before = files(folder.path(), "data").len();
    world.delete("/streams/other").send().await.is(202);
    let told = report(folder.path(), &["sweep", "--dry-run", "--format", "json"]);
    assert_eq!((told["dry_run"].clone(), told["lives_cleared"].clone()), (json!(true), json!(1)), "{told}");
    assert_eq!(files(folder.path(), "data").len(), before);
    let output = leat(folder.path(), &["sweep"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("1 ended lives"), "{}", text(&output));
    assert_eq!(files(folder.path(), "data").len(), before / 2);
    assert_eq!(world.tail("orders/42").await, 60);
    let verified = leat(folder.path(), &["inspect", "--verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
}

#[tokio::test]
async fn a_server_sweeps_by_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).flag("--sweep-interval-ms", "1000").start();
    let world = filled(&server).await;
    for stream in ["other", "orders%2F42"] {
        world.delete(&format!("/streams/{stream}")).send().await.is(202);
    }
    let until = std::time::Instant::now() + WITHIN;
    loop {
        let metrics = world.root("GET", "/metrics").send().await.is(200).text();
        let counts = metrics.contains("leat_sweep_objects_removed_total");
        if counts && files(folder.path(), "data").is_empty() && server.log().contains("swept") {
            break;
        }
        assert!(std::time::Instant::now() < until, "nothing was removed: {}", server.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
