//! The official TypeScript SDK against the function, by single requests and server-sent events.

use std::time::Duration;

use crate::door;
use crate::events::Via;
use crate::support::tools;
use crate::world::{Environment, World};

/// Steps of the script: a step that is lost must not go unnoticed.
const STEPS: &str = "35 steps passed";

/// Short, so that whoever follows is sent away and comes back.
const TIMEOUT: Duration = Duration::from_secs(6);

async fn run(responses: &str, via: Via) {
    let variables = [("LEAT_RESPONSES", responses)];
    let world = World::with(&variables).await;
    // A live read takes an environment for itself.
    let _more: Vec<_> =
        (0..3).map(|_| Environment::start(&world.runtime, &world.store(), &variables)).collect();
    let url = door::open(&world.runtime, via, TIMEOUT).await;
    let output = tokio::task::spawn_blocking(move || {
        let home = tools::typescript_sdk();
        let mut node = tools::node();
        node.current_dir(&home).args(["session.mjs", "fetch"]);
        node.env("S2_ACCESS_TOKEN", "test").env("S2_ACCOUNT_ENDPOINT", &url).env("S2_BASIN_ENDPOINT", &url);
        node.output().expect("node can be run")
    });
    let output = output.await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{via:?}, {responses}:\n{stdout}\n{stderr}");
    assert_eq!(stdout.lines().last(), Some(STEPS), "{via:?}, {responses}:\n{stdout}");
    assert_eq!(world.runtime.gone(), 0, "an answer came after its deadline");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_sdk_works_over_streamed_answers() {
    run("stream", Via::Url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_sdk_works_over_whole_answers() {
    run("buffer", Via::Rest).await;
    run("buffer", Via::Balancer).await;
}
