//! An invocation ends itself before it is cut off (T16).

use std::time::{Duration, Instant};

use crate::events::{FRONTS, Via};
use crate::proxy::Proxy;
use crate::runtime::Runtime;
use crate::support::ministack::MiniStack;
use crate::world::{Environment, World, append, create_basin, follow, read, reply, send};

const SHORT: Duration = Duration::from_secs(3);
/// Long enough that the last tenths of it are no matter of luck.
const LONGER: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_read_ends_before_the_deadline_with_a_way_on() {
    let world = World::with_basin(&[]).await;
    world.call(Via::Url, append("live", "zero")).await.is(200);
    for via in FRONTS {
        let asked = Instant::now();
        // At the tail there is nothing to answer with, so it waits as long as it may.
        let following = world.runtime.invoke(&follow("live", "tail_offset=0").event(via), SHORT);
        let events = reply(following, via).await.is(200).text();
        let took = asked.elapsed();
        assert!((2_000..3_000).contains(&took.as_millis()), "{via:?}: {took:?}");
        assert!(events.contains("event: error\ndata: {\"code\":\"server_draining\""), "{events}");
        assert!(!events.contains("DONE"), "{events}");
    }
    assert_eq!(world.runtime.gone(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_waits_is_answered_before_the_deadline_with_what_there_is() {
    let world = World::with_basin(&[]).await;
    world.call(Via::Url, append("s", "zero")).await.is(200);
    for via in FRONTS {
        let asked = Instant::now();
        let waiting = world.runtime.invoke(&read("s", "seq_num=1&wait=60").event(via), SHORT);
        let got = reply(waiting, via).await.is(200);
        assert_eq!(got.bodies(), Vec::<String>::new());
        let took = asked.elapsed();
        assert!((2_000..3_000).contains(&took.as_millis()), "{via:?}: {took:?}");
        // A wait that is shorter than the time ends by itself.
        let asked = Instant::now();
        let waiting = world.runtime.invoke(&read("s", "seq_num=1&wait=1").event(via), SHORT);
        reply(waiting, via).await.is(200);
        assert!((800..2_600).contains(&asked.elapsed().as_millis()), "{via:?}: {:?}", asked.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_in_the_past_is_none() {
    let world = World::with_basin(&[]).await;
    world.call(Via::Url, append("s", "zero")).await.is(200);
    // As `cargo lambda watch` says.
    for deadline_ms in [600_000, 0] {
        let event = read("s", "seq_num=1&wait=1").event(Via::Url);
        let asked = Instant::now();
        let waiting = world.runtime.invoke_until(&event, deadline_ms, Duration::from_secs(10));
        reply(waiting, Via::Url).await.is(200);
        assert!(asked.elapsed() >= Duration::from_millis(900), "it waited: {:?}", asked.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_answer_is_answered_for() {
    let ministack = tokio::task::spawn_blocking(MiniStack::shared).await.unwrap();
    let proxy = Proxy::before(&ministack.address).await;
    let endpoint = format!("http://{}", proxy.address);
    let mut variables: Vec<(String, String)> = ministack.variables();
    variables.retain(|(name, _)| name != "AWS_ENDPOINT_URL");
    variables.push(("AWS_ENDPOINT_URL".to_owned(), endpoint));
    // Or the engine would give up first.
    variables.push(("LEAT_APPEND_TIMEOUT_MS".to_owned(), "60000".to_owned()));
    let variables: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let runtime = Runtime::start().await;
    let _environment = Environment::start(&runtime, &ministack.store("held"), &variables);
    create_basin(&runtime).await;
    send(&runtime, Via::Url, &append("s", "zero")).await.is(200);
    for via in [Via::Url, Via::Http] {
        proxy.hold(true);
        for call in [append("s", "maybe"), read("s", "seq_num=0")] {
            let asked = Instant::now();
            let held = runtime.invoke(&call.event(via), LONGER);
            reply(held, via).await.refused(500, "storage", "may or may not");
            let took = asked.elapsed();
            assert!(took > LONGER / 2, "{via:?}: {took:?}");
        }
        proxy.hold(false);
        // What became of it is what a read finds; then it goes on as ever.
        let before = send(&runtime, via, &read("s", "seq_num=0")).await.is(200).bodies();
        let ack = send(&runtime, via, &append("s", "after")).await.is(200).json();
        let after = send(&runtime, via, &read("s", "seq_num=0")).await.is(200).bodies();
        assert_eq!(ack["end"]["seq_num"], after.len());
        assert!(after.starts_with(&before) && after.ends_with(&["after".to_owned()]), "{after:?}");
        assert!(after.iter().filter(|body| *body == "maybe").count() <= 4, "{after:?}");
    }
    assert_eq!(runtime.gone(), 0);
}
