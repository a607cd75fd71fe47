//! What idle sessions cost: `just soak` prints it. Not part of an ordinary run.

use std::time::Duration;

use serde_json::json;

use crate::session::{Session, input};
use crate::support::server::{Server, ServerOptions};
use crate::world::{World, http_2, unique};

const SESSIONS: usize = 1_000;
/// Sessions that share a connection.
const PER_CONNECTION: usize = 10;
/// What a session may cost, its part of a connection and of a stream included.
const BYTES_PER_SESSION_MAX: u64 = 32 * 1024;

/// Resident memory of a server.
fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).expect("a Linux system");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[tokio::test]
#[ignore = "takes a while and measures: run `just soak`"]
#[allow(clippy::print_stdout, reason = "prints what it measures")]
async fn soak_a_thousand_idle_sessions() {
    let server = ServerOptions::on("memory:").start();
    let world = World::on(&server, &unique("soak")).over_2();
    world.create_basin(json!({"create_stream_on_append": true, "create_stream_on_read": true})).await;
    // What the first of anything costs is not the price of a session.
    let mut first = world.append_session("warm").await;
    first.append(&input("x"));
    assert_eq!(first.ack().await, 0..1);
    assert_eq!(world.read_session("warm", "seq_num=0").await.records().await.records.len(), 1);
    let before = resident_bytes(&server);

    let mut open: Vec<(World, Vec<Session>)> = Vec::new();
    for n in 0..SESSIONS / PER_CONNECTION {
        let connection = world.over(http_2());
        let mut sessions = Vec::new();
        for m in 0..PER_CONNECTION / 2 {
            let stream = format!("s{n}-{m}");
            let mut append = connection.append_session(&stream).await;
            append.append(&input("x"));
            assert_eq!(append.ack().await, 0..1);
            let mut read = connection.read_session(&stream, "seq_num=0").await;
            assert_eq!(read.records().await.records.len(), 1);
            sessions.extend([append, read]);
        }
        open.push((connection, sessions));
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    let after = resident_bytes(&server);
    let each = after.saturating_sub(before) / SESSIONS as u64;
    println!(
        "{SESSIONS} idle sessions on {} streams: {} KiB resident before, {} KiB after, {each} bytes each",
        SESSIONS / 2,
        before / 1024,
        after / 1024,
    );
    assert!(each <= BYTES_PER_SESSION_MAX, "{each} bytes for a session");
    // They are idle, not dead.
    for (_, sessions) in &mut open {
        let [append, read, ..] = &mut sessions[..] else { panic!("two sessions") };
        append.append(&input("y"));
        assert_eq!(append.ack().await, 1..2);
        assert_eq!(read.records().await.records[0].seq_num, 1);
    }
}
