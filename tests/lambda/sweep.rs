//! The artifact as the sweeper's function: one pass for every event.

use std::time::Duration;

use serde_json::{Value, json};

use crate::events::Via;
use crate::runtime::{Piece, Runtime};
use crate::world::{Environment, World, append, call};

fn schedule() -> Value {
    json!({ "version": "0", "id": "e", "detail-type": "Scheduled Event", "source": "aws.scheduler" })
}

async fn sweep(runtime: &Runtime) -> Result<Value, Value> {
    match runtime.invoke(&schedule(), Duration::from_secs(20)).piece().await {
        Piece::Whole(report) => Ok(serde_json::from_slice(&report).unwrap()),
        Piece::Failed(error) => Err(serde_json::from_slice(&error).unwrap()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_is_a_pass() {
    let world = World::with_basin(&[]).await;
    for n in 0..20 {
        world.call(Via::Url, append("gone", &format!("{n}{}", "x".repeat(2_000)))).await.is(200);
    }
    world.call(Via::Url, append("kept", "x")).await.is(200);
    world.call(Via::Url, call("DELETE", "/streams/gone")).await.is(202);
    let runtime = Runtime::start().await;
    let sweeper = Environment::start(
        &runtime,
        &world.store(),
        &[("LEAT_ROLE", "sweep"), ("LEAT_AUTH", ""), ("LEAT_LOG_FORMAT", "json")],
    );
    let report = sweep(&runtime).await.unwrap();
    assert_eq!((&report["lives_cleared"], &report["failures"]), (&json!(1), &json!(0)), "{report}");
    assert!(report["objects_removed"].as_u64().unwrap() > 0, "{report}");
    let again = sweep(&runtime).await.unwrap();
    assert_eq!((&again["markers"], &again["objects_removed"]), (&json!(0), &json!(0)), "{again}");
    // The alarm is made of this field.
    let logged = sweeper.log();
    let line = logged.lines().find(|line| line.contains("\"swept\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert!(line["lag_seconds"].is_u64(), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_as_it_should_be_is_an_error_of_the_function() {
    let world = World::with_basin(&[]).await;
    world.call(Via::Url, append("s", "x")).await.is(200);
    world.call(Via::Url, call("DELETE", "/streams/s")).await.is(202);
    let markers = std::path::Path::new(world.store().trim_start_matches("file://")).join("due");
    let mut open = vec![markers];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let mut bytes = std::fs::read(&path).unwrap();
                    *bytes.last_mut().unwrap() ^= 1;
                    std::fs::write(&path, bytes).unwrap();
                }
            }
        }
    }
    let runtime = Runtime::start().await;
    let _sweeper = Environment::start(&runtime, &world.store(), &[("LEAT_ROLE", "sweep"), ("LEAT_AUTH", "")]);
    let error = sweep(&runtime).await.unwrap_err();
    assert_eq!(error["errorType"], "SweepIncomplete", "{error}");
    assert!(error["errorMessage"].as_str().unwrap().contains("1 visits failed"), "{error}");
}
