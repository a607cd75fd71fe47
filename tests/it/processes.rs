//! Several server processes on one folder: races, deletions, kill -9, draining.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::server::{Server, ServerOptions};
use crate::world::{Answer, WITHIN, World, bodies, raw_status, records, seq_nums};

/// A server that is patient: what is tested here is who wins, not how fast a busy machine writes.
fn patient(folder: &Path) -> ServerOptions {
    ServerOptions::on_folder(folder).flag("--append-timeout-ms", "30000")
}

/// Servers on one folder, started side by side.
fn servers(folder: &Path, count: usize) -> Vec<Server> {
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..count).map(|_| scope.spawn(|| patient(folder).start())).collect();
        starts.into_iter().map(|start| start.join().expect("it starts")).collect()
    })
}

fn worlds(servers: &[Server], basin: &str) -> Vec<World> {
    servers.iter().map(|server| World::on(server, basin)).collect()
}

/// All records of a stream: sequence numbers and bodies.
async fn read_all(world: &World, stream: &str) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    let tail = world.tail(stream).await;
    while (all.len() as u64) < tail {
        let page = world.read(stream, &format!("seq_num={}", all.len())).await.is(200).json();
        all.extend(seq_nums(&page).into_iter().zip(bodies(&page)));
    }
    for (index, (seq_num, _)) in all.iter().enumerate() {
        assert_eq!(*seq_num, index as u64, "dense");
    }
    all
}

/// What clients send again at once without a risk: nothing happened.
fn is_retryable(answer: &Answer) -> bool {
    let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
    (answer.status == 409 && code == "transaction_conflict")
        || (answer.status == 429 && code == "rate_limited")
}

#[tokio::test]
async fn parallel_appends_through_four_processes_are_dense_and_disjoint() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = servers(folder.path(), 4);
    let worlds = worlds(&servers, "four-writers");
    worlds[0].create_basin(json!({})).await;
    worlds[0].stream("s").await;
    let appends = (0..50).map(|n: usize| {
        let world = worlds[n % 4].clone();
        async move { (n, world.append_bodies("s", &[&n.to_string()]).await) }
    });
    let mut acked = BTreeMap::new();
    for (n, ack) in futures::future::join_all(appends).await {
        assert_eq!(ack["end"]["seq_num"].as_u64().unwrap(), ack["start"]["seq_num"].as_u64().unwrap() + 1);
        acked.insert(ack["start"]["seq_num"].as_u64().unwrap(), n.to_string());
    }
    assert_eq!(acked.keys().copied().collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
    for world in &worlds {
        assert_eq!(world.tail("s").await, 50);
        assert_eq!(read_all(world, "s").await, acked.clone().into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn an_expected_number_has_one_winner_over_four_processes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = servers(folder.path(), 4);
    let worlds = worlds(&servers, "one-winner");
    worlds[0].create_basin(json!({})).await;
    worlds[0].stream("s").await;
    for round in 0..10_u64 {
        let appends = (0..8).map(|n: usize| {
            worlds[n % 4].append("s", json!({"records": [{"body": n.to_string()}], "match_seq_num": round}))
        });
        let answers = futures::future::join_all(appends).await;
        let all: Vec<_> = answers.iter().map(|a| (a.status, a.text())).collect();
        assert_eq!(answers.iter().filter(|a| a.status == 200).count(), 1, "round {round}: {all:?}");
        for answer in answers.iter().filter(|a| a.status != 200) {
            assert_eq!((answer.status, answer.json()), (412, json!({"seq_num_mismatch": round + 1})));
        }
    }
}

#[tokio::test]
async fn a_recreated_stream_is_new_to_a_process_that_knew_the_old_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = servers(folder.path(), 2);
    let worlds = worlds(&servers, "two-warm");
    let [a, b] = worlds.as_slice() else { unreachable!() };
    a.create_basin(json!({})).await;
    a.stream("s").await;
    for n in 0..10 {
        let world = if n % 2 == 0 { a } else { b };
        world.append_bodies("s", &[&format!("old {n}")]).await;
    }
    let mut follower = b.follow("s", "seq_num=0").await;
    let mut last_id = String::new();
    while !last_id.starts_with("9,") {
        last_id = follower.next_but_pings().await.unwrap().id;
    }
    a.delete("/streams/s").send().await.is(202);
    a.stream("s").await;
    let ack = b.append_bodies("s", &["x"]).await;
    assert_eq!((&ack["start"]["seq_num"], &ack["tail"]["seq_num"]), (&json!(0), &json!(1)));
    for world in [a, b] {
        assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["x"]);
        assert_eq!(world.tail("s").await, 1);
    }
    let rest = follower.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.name.as_str(), &last.json()["code"]), ("error", &json!("stream_not_found")), "{rest:?}");
    assert!(rest.iter().all(|event| event.name != "batch"), "{rest:?}");
    // An id past the new tail is refused, not wrapped and not waited for.
    let resumed = b.get(&records("s")).header("last-event-id", &last_id);
    assert_eq!(resumed.try_events().await.unwrap().expect_err("refused").status, 416);
    // The same the other way round, with everything warm.
    b.delete("/streams/s").send().await.is(202);
    for world in [a, b] {
        world.append("s", json!({"records": [{}]})).await.refused(404, "stream_not_found", "`s`");
    }
    b.stream("s").await;
    assert_eq!(a.append_bodies("s", &["y"]).await["start"]["seq_num"], 0);
}

#[tokio::test]
async fn a_recreated_basin_is_new_to_a_process_that_knew_the_old_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = servers(folder.path(), 2);
    let worlds = worlds(&servers, "basin-again");
    let [a, b] = worlds.as_slice() else { unreachable!() };
    for life in 0..3 {
        a.create_basin(json!({"create_stream_on_append": true})).await;
        assert_eq!(b.append_bodies("s", &["b"]).await["start"]["seq_num"], 0, "life {life}");
        assert_eq!(a.append_bodies("s", &["a"]).await["start"]["seq_num"], 1);
        b.delete("/basins/basin-again").send().await.is(202);
        crate::lifecycle::gone(a).await;
        for world in [a, b] {
            world.append("s", json!({"records": [{}]})).await.refused(404, "basin_not_found", "basin-again");
            world.read("s", "seq_num=0").await.refused(404, "basin_not_found", "basin-again");
        }
    }
}

#[tokio::test]
async fn racing_first_appends_over_four_processes_never_miss_the_stream() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = servers(folder.path(), 4);
    let worlds = worlds(&servers, "first-appends");
    worlds[0].create_basin(json!({"create_stream_on_append": true})).await;
    for name in (0..20).map(|n| format!("stream {n}")) {
        let appends = (0..32_usize).map(|n| {
            let (world, name) = (worlds[n % 4].clone(), name.clone());
            async move {
                let first = world.append(&name, json!({"records": [{}]})).await;
                if first.status == 200 {
                    return;
                }
                assert!(is_retryable(&first), "{} {}", first.status, first.text());
                world.append(&name, json!({"records": [{}]})).await.is(200);
            }
        });
        futures::future::join_all(appends).await;
        for world in &worlds {
            assert_eq!(world.tail(&name).await, 32);
        }
    }
    let listed = worlds[3].get("/streams").send().await.json();
    assert_eq!(listed["streams"].as_array().unwrap().len(), 20, "{listed}");
}

#[tokio::test]
async fn appends_beside_a_deletion_land_or_are_refused_and_never_hang() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = servers(folder.path(), 2);
    let worlds = worlds(&servers, "races-delete");
    worlds[0].create_basin(json!({})).await;
    for round in 0..5_usize {
        worlds[0].stream("s").await;
        let stop = Arc::new(AtomicBool::new(false));
        let appenders: Vec<_> = (0..8_usize)
            .map(|n| {
                let (world, stop) = (worlds[n % 2].clone(), stop.clone());
                tokio::spawn(async move {
                    let mut statuses = Vec::new();
                    while !stop.load(Ordering::SeqCst) {
                        let started = Instant::now();
                        let answer = world.append("s", json!({"records": [{"body": "x"}]})).await;
                        assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
                        match answer.status {
                            200 | 404 => {}
                            // On a disk so slow that the commit was sent twice nobody can know, and it says so.
                            500 => assert!(answer.text().contains("may or may not be"), "{}", answer.text()),
                            _ => assert!(is_retryable(&answer), "{} {}", answer.status, answer.text()),
                        }
                        statuses.push(answer.status);
                    }
                    statuses
                })
            })
            .collect();
        while worlds[1].tail("s").await < 20 {}
        worlds[round % 2].delete("/streams/s").send().await.is(202);
        let after = worlds[(round + 1) % 2].append("s", json!({"records": [{}]})).await;
        after.refused(404, "stream_not_found", "`s`");
        stop.store(true, Ordering::SeqCst);
        for appender in appenders {
            let statuses = appender.await.unwrap();
            // Once gone it stays gone: nothing lands after the first 404.
            let gone = statuses.iter().position(|s| *s == 404).unwrap_or(statuses.len());
            assert!(statuses[gone..].iter().all(|s| *s != 200), "{statuses:?}");
        }
        for world in &worlds {
            assert_eq!(world.get("/streams").send().await.json()["streams"], json!([]));
        }
        worlds[round % 2].stream("s").await;
        assert_eq!(worlds[(round + 1) % 2].tail("s").await, 0);
        worlds[0].delete("/streams/s").send().await.is(202);
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_twenty_kills_and_a_follower_sees_no_gap() {
    const KILLS: usize = 22;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let survivor = patient(folder.path()).start();
    let reader = World::on(&survivor, "killed-writers");
    reader.create_basin(json!({})).await;
    reader.stream("s").await;
    let seen = Arc::new(Mutex::new(Vec::<(u64, String)>::new()));
    let follower = {
        let (reader, seen) = (reader.clone(), seen.clone());
        tokio::spawn(async move {
            let mut events = reader.follow("s", "seq_num=0").await;
            loop {
                let event = events.next_but_pings().await.expect("it goes on");
                assert_eq!(event.name, "batch", "{event:?}");
                let batch = event.json();
                let mut seen = seen.lock().unwrap();
                for (seq_num, body) in seq_nums(&batch).into_iter().zip(bodies(&batch)) {
                    assert_eq!(seq_num, seen.len() as u64, "a gap");
                    seen.push((seq_num, body));
                }
            }
        })
    };
    let mut acked: Vec<(u64, String)> = Vec::new();
    let mut spare = patient(folder.path()).start();
    for kill in 0..KILLS {
        let mut server = spare;
        let world = World::on(&server, "killed-writers");
        let enough = Arc::new(tokio::sync::Semaphore::new(0));
        let appenders: Vec<_> = (0..6)
            .map(|n| {
                let (world, enough) = (world.clone(), enough.clone());
                tokio::spawn(async move {
                    let mut acked = Vec::new();
                    for m in 0.. {
                        // Some are large enough to go into chunks of their own.
                        let size = if m % 3 == 2 { 40_000 } else { 10 };
                        let body = format!("{kill}-{n}-{m}-{}", "x".repeat(size));
                        let input = json!({"records": [{"body": body}]});
                        let call = world.post(&records("s")).json(&input).try_send().await;
                        let Ok(answer) = call else { break };
                        let ack = answer.is(200).json();
                        acked.push((ack["start"]["seq_num"].as_u64().unwrap(), body));
                        enough.add_permits(1);
                    }
                    acked
                })
            })
            .collect();
        // The next one starts while this one works, so that the kill comes at any moment of its work.
        let options = patient(folder.path());
        spare = tokio::task::spawn_blocking(move || options.start()).await.unwrap();
        drop(enough.acquire_many(12 + kill as u32 % 7).await.unwrap());
        tokio::time::sleep(Duration::from_millis(kill as u64 * 13 % 29)).await;
        server.kill_9();
        for appender in appenders {
            acked.extend(appender.await.unwrap());
        }
    }
    assert!(acked.len() >= 12 * KILLS, "{}", acked.len());
    let all = read_all(&reader, "s").await;
    for (seq_num, body) in &acked {
        assert!(all[*seq_num as usize].1 == *body, "record {seq_num} is not the one acknowledged");
    }
    let mut bodies: Vec<_> = all.iter().map(|(_, body)| body).collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), all.len(), "no record is there twice");
    let until = Instant::now() + WITHIN;
    while seen.lock().unwrap().len() < all.len() {
        assert!(Instant::now() < until && !follower.is_finished(), "the follower is behind");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(*seen.lock().unwrap() == all, "the follower saw what is there");
    follower.abort();
    let cold = World::on(&spare, "killed-writers");
    assert!(read_all(&cold, "s").await == all, "a process that never saw the stream reads the same");
}

#[tokio::test]
async fn a_deletion_cut_by_kills_is_finished_by_one_more_delete() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = patient(folder.path()).start();
    let world = World::on(&server, "cut-deletion");
    world.create_basin(json!({})).await;
    let names: Vec<_> = (0..120).map(|n| format!("s{n}")).collect();
    for some in names.chunks(40) {
        futures::future::join_all(some.iter().map(|name| world.stream(name))).await;
    }
    let mut left = names.len();
    for kill in 0..3 {
        let world = World::on(&server, "cut-deletion");
        assert_eq!(world.delete("/basins/cut-deletion").send().await.status, 202, "kill {kill}");
        // Some of the work is done, some is not.
        let until = Instant::now() + WITHIN;
        loop {
            let now = world.get("/streams").send().await;
            let now = if now.status == 200 { now.json()["streams"].as_array().unwrap().len() } else { 0 };
            if now < left {
                left = now;
                break;
            }
            assert!(Instant::now() < until, "the deletion makes progress");
        }
        server.kill_9();
        server = patient(folder.path()).start();
        if left == 0 {
            break;
        }
    }
    let world = World::on(&server, "cut-deletion");
    let last = world.delete("/basins/cut-deletion").send().await;
    assert!(matches!(last.status, 202 | 404), "{}", last.text());
    crate::lifecycle::gone(&world).await;
    world.create_basin(json!({})).await;
    assert_eq!(world.get("/streams").send().await.json()["streams"], json!([]));
}

#[tokio::test]
async fn the_tour_of_the_readme_survives_pulling_the_plug() {
    const README: &str = include_str!("../../README.md");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = patient(folder.path()).start();
    let world = World::on(&server, "demo-basin");
    // What is sent here is what stands there.
    let send = async |path: &str, body: &str| {
        assert!(README.contains(body), "the README lacks {body}");
        world.post(path).header("content-type", "application/json").body(body.to_owned()).send().await
    };
    send("/basins", r#"{"basin":"demo-basin"}"#).await.is(201);
    send("/streams", r#"{"stream":"order-42"}"#).await.is(201);
    let first = r#"{"match_seq_num":0,"records":[{"body":"created"},{"body":"paid"}]}"#;
    let ack = send("/streams/order-42/records", first).await.is(200).json();
    let shown: Value = {
        let line = README.lines().find(|line| line.starts_with(r#"{"start""#)).expect("an acknowledgement");
        serde_json::from_str(line).expect("JSON")
    };
    for (place, field) in [("start", "seq_num"), ("end", "seq_num"), ("tail", "seq_num")] {
        assert_eq!(ack[place][field], shown[place][field]);
    }
    assert_eq!(
        ack.as_object().unwrap().keys().collect::<Vec<_>>(),
        shown.as_object().unwrap().keys().collect::<Vec<_>>()
    );
    let refused = send("/streams/order-42/records", first).await.is(412);
    assert!(README.contains(&format!("\n{}\n", refused.text())), "{}", refused.text());
    assert_eq!(world.read("order-42", "seq_num=0").await.bodies(), ["created", "paid"]);
    let mut events = world.follow("order-42", "seq_num=0").await;
    assert_eq!(bodies(&events.next().await.unwrap().json()), ["created", "paid"]);
    send("/streams/order-42/records", r#"{"match_seq_num":2,"records":[{"body":"shipped"}]}"#).await.is(200);
    assert_eq!(bodies(&events.next_but_pings().await.unwrap().json()), ["shipped"]);
    let before = world.read("order-42", "seq_num=0").await.json();
    server.kill_9();
    assert!(matches!(events.try_next().await, Err(_) | Ok(None)));
    let server = patient(folder.path()).start();
    let world = World::on(&server, "demo-basin");
    assert_eq!(world.read("order-42", "seq_num=0").await.json(), before);
    assert_eq!(world.append_bodies("order-42", &["delivered"]).await["start"]["seq_num"], 3);
}

#[tokio::test]
async fn a_draining_server_finishes_what_it_has_and_sends_the_rest_away() {
    let mut server = ServerOptions::on("memory:").start();
    let world = World::on(&server, "drains-off");
    world.create_basin(json!({})).await;
    world.stream("s").await;
    world.append_bodies("s", &["x"]).await;
    let two = world.over(crate::world::http_2());
    let mut events = world.follow("s", "seq_num=0").await;
    let mut events_two = two.follow("s", "seq_num=0").await;
    for events in [&mut events, &mut events_two] {
        assert_eq!(events.next().await.unwrap().name, "batch");
        assert_eq!(events.next().await.unwrap().name, "ping");
    }
    let long_polls: Vec<_> = [&world, &two]
        .map(|world| {
            let world = world.clone();
            tokio::spawn(async move { world.read("s", "seq_num=1&wait=60").await })
        })
        .into_iter()
        .collect();
    // One append whose head is through and whose body is not, and one request whose head is half there.
    let open = |text: String| {
        let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let body = r#"{"records":[{"body":"in flight"}]}"#;
    let mut append = open(format!(
        "POST /v1/streams/s/records HTTP/1.1\r\nhost: x\r\ns2-basin: drains-off\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{}",
        body.len(),
        &body[..5]
    ));
    let mut half = open("GET /v1/basins HTTP/1.1\r\nhost: x\r\n".to_owned());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(long_polls.iter().all(|poll| !poll.is_finished()));

    let started = Instant::now();
    server.sigterm();
    for events in [&mut events, &mut events_two] {
        let rest = events.rest().await;
        let last = rest.last().unwrap();
        assert_eq!(
            (last.name.as_str(), &last.json()["code"]),
            ("error", &json!("server_draining")),
            "{rest:?}"
        );
        assert!(rest.iter().all(|event| event.data != "[DONE]"));
    }
    for poll in long_polls {
        let answer = poll.await.unwrap().refused(503, "server_draining", "shutting down");
        assert!(answer.header("retry-after-ms").parse::<u64>().unwrap() > 0);
    }
    append.write_all(&body.as_bytes()[5..]).unwrap();
    let mut answer = String::new();
    append.read_to_string(&mut answer).unwrap();
    assert_eq!(raw_status(&answer), 200, "{answer}");
    half.write_all(b"\r\n").unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert_eq!(raw_status(&answer), 503, "{answer}");
    assert!(answer.contains("server_draining") && answer.contains("retry-after-ms"), "{answer}");
    assert_eq!(server.wait(WITHIN).code(), Some(0), "{}", server.log());
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}
