//! What a function does to its bucket: nothing after an answer, few commits for many appends, and the same as
//! everybody else on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::events::{Call, Via};
use crate::proxy::Proxy;
use crate::runtime::Runtime;
use crate::support::ministack::MiniStack;
use crate::support::relay::Relay;
use crate::support::server::ServerOptions;
use crate::world::{BASIN, Environment, append, call, create_basin, follow, read, records, reply, send};

/// A timeout that some calls do not keep to by themselves.
const SHORT: Duration = Duration::from_secs(3);

/// A function on MiniStack, with what lies between.
struct World {
    runtime: Runtime,
    environment: Environment,
    proxy: Proxy,
    relay: Relay,
    ministack: Arc<MiniStack>,
    store: String,
    variables: Vec<(String, String)>,
}

fn start(runtime: &Runtime, store: &str, variables: &[(String, String)]) -> Environment {
    let variables: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    Environment::start(runtime, store, &variables)
}

impl World {
    async fn new(prefix: &str, more: &[(&str, &str)]) -> Self {
        let ministack = tokio::task::spawn_blocking(MiniStack::shared).await.unwrap();
        let proxy = Proxy::before(&ministack.address).await;
        let relay = Relay::before(&proxy.address);
        let mut variables = ministack.variables();
        variables.retain(|(name, _)| name != "AWS_ENDPOINT_URL");
        variables.push(("AWS_ENDPOINT_URL".to_owned(), relay.url.clone()));
        variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let runtime = Runtime::start().await;
        let store = ministack.store(prefix);
        let environment = start(&runtime, &store, &variables);
        create_basin(&runtime).await;
        Self { runtime, environment, proxy, relay, ministack, store, variables }
    }

    /// Another environment takes its place.
    fn restart(&mut self) {
        self.environment.kill_9();
        self.environment = start(&self.runtime, &self.store, &self.variables);
    }

    async fn call(&self, via: Via, call: &Call) -> crate::world::Reply {
        send(&self.runtime, via, call).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_start_asks_the_store_once_and_the_first_read_twice() {
    let mut world = World::new("cold", &[]).await;
    world.call(Via::Url, &append("s", "x")).await.is(200);
    let before = world.proxy.log().len();
    let started = Instant::now();
    world.restart();
    world.call(Via::Url, &Call::new("GET", "/health")).await.is(200);
    eprintln!("from its start to its first answer: {:?}", started.elapsed());
    let log = world.proxy.log();
    assert_eq!(log.len() - before, 1, "{:?}", &log[before..]);
    assert!(log[before].1.ends_with("/meta/store"), "{:?}", log[before]);
    // The basin and the manifest.
    world.call(Via::Url, &read("s", "seq_num=0")).await.is(200);
    let log = world.proxy.log();
    assert_eq!(log.len() - before, 3, "{:?}", &log[before..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_asked_of_the_store_after_an_answer() {
    for responses in ["stream", "buffer"] {
        let world = World::new(&format!("quiet-{responses}"), &[("LEAT_RESPONSES", responses)]).await;
        // Tails that are rolled ahead, chunks, polls of the tail, the end of a basin.
        // A chunk takes longer than the commit that it is uploaded beside.
        world.proxy.delay("/data/", Duration::from_millis(300));
        let filler = "x".repeat(9_000);
        let mut calls: Vec<Call> = (0..8).map(|_| append("s", &filler)).collect();
        calls.push(append("s", &"y".repeat(200_000)));
        calls.push(follow("s", "seq_num=0&count=9&wait=1"));
        calls.push(follow("s", "seq_num=9&wait=1"));
        calls.push(read("s", "seq_num=9&wait=1"));
        calls.push(call("DELETE", "/streams/s"));
        for n in 0..5 {
            calls.push(append(&format!("s-{n}"), "x"));
        }
        calls.push(Call::new("DELETE", &format!("/v1/basins/{BASIN}")));
        for call in calls {
            let reply = world.call(Via::Url, &call).await;
            let answered = world.proxy.log().len();
            let what = format!("{} {}", call.method, call.path);
            assert!(reply.head.status < 300, "{what}: {}", reply.text());
            // A look at the tail that was given up is gone once the proxy has noticed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(world.proxy.open(), 0, "{what}: {:?}", world.proxy.log().last());
            tokio::time::sleep(Duration::from_millis(300)).await;
            let log = world.proxy.log();
            assert_eq!(log.len(), answered, "{what}: {:?}", &log[answered..]);
        }
        let gone = world.call(Via::Url, &Call::new("GET", &format!("/v1/basins/{BASIN}"))).await;
        gone.refused(404, "basin_not_found", BASIN);
        let again = json!({ "basin": BASIN });
        world.call(Via::Url, &Call::new("POST", "/v1/basins").json(&again)).await.is(201);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_takes_too_long_goes_on_with_the_next_delete() {
    let world = World::new("deletion", &[]).await;
    for n in 0..48 {
        world.call(Via::Url, &append(&format!("s-{n}"), "x")).await.is(200);
    }
    world.proxy.delay("", Duration::from_millis(150));
    let delete = Call::new("DELETE", &format!("/v1/basins/{BASIN}"));
    let mut deletes = 0;
    loop {
        let asked = Instant::now();
        let answer = reply(world.runtime.invoke(&delete.event(Via::Url), SHORT), Via::Url).await;
        let answered = world.proxy.log().len();
        assert!(asked.elapsed() < SHORT, "{:?}", asked.elapsed());
        if answer.head.status == 404 {
            break;
        }
        answer.is(202);
        deletes += 1;
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(world.proxy.log().len(), answered, "nothing goes on by itself");
    }
    assert!((2..20).contains(&deletes), "{deletes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_environment_that_takes_several_requests_commits_them_together() {
    let world = World::new("group", &[("AWS_LAMBDA_MAX_CONCURRENCY", "16")]).await;
    world.call(Via::Url, &append("s", "first")).await.is(200);
    world.proxy.delay("", Duration::from_millis(100));
    let before = world.proxy.commits();
    let appends = (0..32).map(|n| {
        let runtime = world.runtime.clone();
        async move { send(&runtime, Via::Url, &append("s", &n.to_string())).await.is(200).json() }
    });
    let acks = futures::future::join_all(appends).await;
    let commits = world.proxy.commits() - before;
    assert!(commits <= 10, "{commits} commits for 32 appends");
    let mut ends: Vec<u64> = acks.iter().map(|ack| ack["end"]["seq_num"].as_u64().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, (2..=33).collect::<Vec<_>>());
}

/// Sockets that died without a word: nothing sent over them arrives, and nothing says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_that_went_silent_while_it_was_frozen_cost_time_and_no_records() {
    let mut world = World::new("silent", &[]).await;
    let mut expected = vec!["first".to_owned()];
    world.call(Via::Url, &append("s", "first")).await.is(200);
    // One that need not probe the store: a probe leaves many connections.
    world.restart();
    for round in 0..2 {
        // Known in this environment, so that an append begins with its write.
        world.call(Via::Url, &read("s", "seq_num=0")).await.is(200);
        world.environment.signal("STOP");
        world.relay.swallow();
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.environment.signal("CONT");
        let body = format!("{round}");
        let input = json!({ "match_seq_num": expected.len(), "records": [{ "body": body }] });
        let append = call("POST", &records("s")).json(&input);
        // Whoever is told that nobody knows sends it again: it is refused if it had landed.
        let mut outcomes = Vec::new();
        while !matches!(outcomes.last(), Some(200 | 412)) {
            let asked = Instant::now();
            outcomes.push(world.call(Via::Url, &append).await.head.status);
            assert!(asked.elapsed() < Duration::from_secs(6), "{outcomes:?}: {:?}", asked.elapsed());
            assert!(outcomes.len() < 6, "{outcomes:?}");
        }
        eprintln!("round {round}: {outcomes:?}");
        expected.push(body);
        assert_eq!(world.call(Via::Url, &read("s", "seq_num=0")).await.is(200).bodies(), expected);
    }
}

/// While it is frozen its sockets rot: the first write after that meets a dead one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_environment_loses_and_doubles_nothing() {
    let world = World::new("frozen", &[]).await;
    let mut expected = Vec::new();
    for round in 0..3 {
        for n in 0..2 {
            let body = format!("{round}-{n}");
            let ack = world.call(Via::Url, &append("s", &body)).await.is(200).json();
            expected.push(body);
            assert_eq!(ack["end"]["seq_num"], expected.len());
        }
        world.environment.signal("STOP");
        world.relay.cut();
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.environment.signal("CONT");
    }
    assert_eq!(world.call(Via::Url, &read("s", "seq_num=0")).await.is(200).bodies(), expected);
    // The same while a request is on its way: sent, and its answer lost.
    world.proxy.delay("", Duration::from_millis(500));
    let on_its_way = world.runtime.invoke(&append("s", "on its way").event(Via::Url), crate::world::TIMEOUT);
    tokio::time::sleep(Duration::from_millis(250)).await;
    world.environment.signal("STOP");
    world.relay.cut();
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.environment.signal("CONT");
    let status = reply(on_its_way, Via::Url).await.head.status;
    world.proxy.delay("", Duration::ZERO);
    let bodies = world.call(Via::Url, &read("s", "seq_num=0")).await.is(200).bodies();
    let landed = bodies.iter().filter(|body| *body == "on its way").count();
    assert!(if status == 200 { landed == 1 } else { status >= 500 && landed <= 1 }, "{status}: {bodies:?}");
    assert_eq!(bodies[..expected.len()], expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_and_a_function_see_each_others_appends_at_once() {
    let world = World::new("both", &[]).await;
    let options = ServerOptions::on(&world.ministack.store("both")).variables(&world.ministack.variables());
    let server = tokio::task::spawn_blocking(move || options.start()).await.unwrap();
    leat::serve::install_crypto();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/v1{}", server.url, records("s"));
    for n in 0..10_usize {
        let ack = world.call(Via::Url, &append("s", "function")).await.is(200).json();
        assert_eq!(ack["start"]["seq_num"], 2 * n);
        let body = json!({ "match_seq_num": 2 * n + 1, "records": [{ "body": "server" }] });
        let sent = client.post(&url).header("s2-basin", BASIN).json(&body).send().await.unwrap();
        assert_eq!(sent.status(), 200, "the server has seen the function's append");
        let tail =
            world.call(Via::Rest, &call("GET", &format!("{}/tail", records("s")))).await.is(200).json();
        assert_eq!(tail["tail"]["seq_num"], 2 * n + 2, "the function has seen the server's append");
        let got = client.get(format!("{url}?seq_num=0")).header("s2-basin", BASIN).send().await.unwrap();
        let got: serde_json::Value = got.json().await.unwrap();
        assert_eq!(got["records"].as_array().unwrap().len(), 2 * n + 2);
    }
}
