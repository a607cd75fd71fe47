//! Streams that begin and end while several processes know them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bucket::{Bucket, CHUNKS, MANIFESTS, Process, read_all, start, start_with};
use crate::support::fault_proxy::Fault;
use crate::world::{Answer, records};

/// What clients send again at once without a risk: nothing happened.
fn is_retryable(answer: &Answer) -> bool {
    let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
    (answer.status == 409 && code == "transaction_conflict")
        || (answer.status == 429 && code == "rate_limited")
}

pub async fn a_recreated_stream_is_new_to_a_process_that_knew_the_old_one(bucket: Bucket) {
    let processes = start([bucket.straight(), bucket.straight()]).await;
    let [a, b] = &processes;
    a.stream("s").await;
    for n in 0..10 {
        processes[n % 2].append_bodies("s", &[&format!("old {n}")]).await;
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
    for process in [a, b] {
        assert_eq!(read_all(process, "s").await, ["x"]);
    }
    let rest = follower.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.name.as_str(), &last.json()["code"]), ("error", &json!("stream_not_found")), "{rest:?}");
    assert!(rest.iter().all(|event| event.name != "batch"), "{rest:?}");
    let resumed = b.get(&records("s")).header("last-event-id", &last_id);
    assert_eq!(resumed.try_events().await.unwrap().expect_err("refused").status, 416);
}

pub async fn a_late_put_of_a_former_life_stays_out_of_the_next(bucket: Bucket) {
    let proxy = bucket.proxy().await;
    let [a, b] = start([bucket.through(&proxy), bucket.straight()]).await;
    // Held for a moment, and for so long that it is sent a second time.
    for (round, held_ms) in [0, 0, 1_500, 1_500].into_iter().enumerate() {
        let stream = format!("s{round}");
        // An append that names its place belongs to the life that it was made for.
        let place = (round % 2 == 0).then_some(1);
        a.stream(&stream).await;
        // The last committer writes without a look before.
        a.append_bodies(&stream, &["old"]).await;
        let before = proxy.met();
        proxy.inject("PUT", MANIFESTS, usize::MAX, Fault::Hold);
        let (world, name) = (a.world.clone(), stream.clone());
        let input = json!({"records": [{"body": "late"}], "match_seq_num": place});
        let late = tokio::spawn(async move { world.append(&name, input).await });
        proxy.has_met(before + 1).await;
        b.delete(&format!("/streams/{stream}")).send().await.is(202);
        // The same name, the same configuration, as empty as the former one was.
        b.stream(&stream).await;
        tokio::time::sleep(Duration::from_millis(held_ms)).await;
        proxy.release();
        let late = late.await.expect("answered");
        let case = format!("round {round}: {} {}", late.status, late.text());
        let expected: &[&str] = match late.status {
            // The PUT that was held is refused for certain, so the append was free to join the next life.
            200 if place.is_none() => &["late"],
            412 if place.is_some() => &[],
            404 | 500 => &[],
            _ => panic!("{case}"),
        };
        for process in [&a, &b] {
            assert_eq!(read_all(process, &stream).await, expected, "{case}");
        }
        assert_eq!(b.append_bodies(&stream, &["new"]).await["start"]["seq_num"], expected.len(), "{case}");
    }
}

pub async fn racing_first_appends_never_miss_the_stream(bucket: Bucket) {
    const STREAMS: usize = 5;
    const APPENDS: usize = 32;
    let config = json!({"create_stream_on_append": true});
    let processes = start_with(config, [(); 4].map(|()| bucket.straight())).await;
    for name in (0..STREAMS).map(|n| format!("stream {n}")) {
        let appends = (0..APPENDS).map(|n| {
            let (world, name) = (processes[n % 4].world.clone(), name.clone());
            async move {
                let first = world.append(&name, json!({"records": [{}]})).await;
                if first.status != 200 {
                    assert!(is_retryable(&first), "{} {}", first.status, first.text());
                    world.append(&name, json!({"records": [{}]})).await.is(200);
                }
            }
        });
        futures::future::join_all(appends).await;
        for process in &processes {
            assert_eq!(process.tail(&name).await, APPENDS as u64);
        }
    }
    let listed = processes[3].get("/streams").send().await.json();
    assert_eq!(listed["streams"].as_array().unwrap().len(), STREAMS, "{listed}");
}

/// Appends until told to stop; the statuses of the answers, in order.
async fn append_until(process: &Process, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<Vec<u16>> {
    let world = process.world.clone();
    tokio::spawn(async move {
        let mut statuses = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            let started = Instant::now();
            let answer = world.append("s", json!({"records": [{"body": "x"}]})).await;
            assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
            match answer.status {
                200 | 404 => {}
                // Where the commit was sent twice nobody can know, and it says so.
                500 => assert!(answer.text().contains("may or may not be"), "{}", answer.text()),
                _ => assert!(is_retryable(&answer), "{} {}", answer.status, answer.text()),
            }
            statuses.push(answer.status);
        }
        statuses
    })
}

pub async fn appends_beside_a_slow_deletion_land_or_are_refused_and_never_hang(bucket: Bucket) {
    let proxy = bucket.proxy().await;
    let processes = start([bucket.through(&proxy), bucket.straight()]).await;
    let [slow, other] = &processes;
    for _ in 0..3 {
        slow.stream("s").await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut appenders = Vec::new();
        for n in 0..6 {
            appenders.push(append_until(&processes[n % 2], stop.clone()).await);
        }
        while other.tail("s").await < 20 {}
        let before = proxy.met();
        // Its tombstone races with the appends of both, and loses some of those races.
        proxy.inject("PUT", MANIFESTS, 6, Fault::Delay(Duration::from_millis(150)));
        slow.delete("/streams/s").send().await.is(202);
        assert!(proxy.met() > before, "the deletion was slow");
        proxy.heal();
        let after = other.append("s", json!({"records": [{}]})).await;
        after.refused(404, "stream_not_found", "`s`");
        stop.store(true, Ordering::SeqCst);
        let mut landed = 0;
        for appender in appenders {
            let statuses = appender.await.unwrap();
            landed += statuses.iter().filter(|s| **s == 200).count();
            // Once gone it stays gone: nothing lands after the first 404.
            let gone = statuses.iter().position(|s| *s == 404).unwrap_or(statuses.len());
            assert!(statuses[gone..].iter().all(|s| *s != 200), "{statuses:?}");
        }
        assert!(landed >= 20, "{landed}");
        for process in &processes {
            assert_eq!(process.get("/streams").send().await.json()["streams"], json!([]));
        }
        other.stream("s").await;
        assert_eq!(slow.tail("s").await, 0);
        other.delete("/streams/s").send().await.is(202);
    }
}

pub async fn a_fork_is_copied_by_the_bucket_and_outlives_its_source(bucket: Bucket) {
    let proxy = bucket.proxy().await;
    let [a, b] = start([bucket.through(&proxy), bucket.straight()]).await;
    let source = "/v1/stream/forks/source";
    let text = ("content-type", "text/plain");
    b.root("PUT", source).header(text.0, text.1).send().await.is(201);
    let parts: Vec<String> = ('a'..='e').map(|letter| letter.to_string().repeat(400_000)).collect();
    for part in &parts {
        b.root("POST", source).header(text.0, text.1).body(part.clone()).send().await.is(204);
    }
    // Copies whose answers are lost are made again.
    proxy.inject("PUT", CHUNKS, 2, Fault::DropAfterApply);
    let fork =
        |name: &str| a.root("PUT", &format!("/v1/stream/forks/{name}")).header("stream-forked-from", source);
    fork("all").send().await.is(201);
    assert_eq!((proxy.met(), proxy.seen("PUT", CHUNKS)), (2, parts.len() + 2));
    fork("half").header("stream-fork-offset", "0000000000000003").send().await.is(201);
    b.root("DELETE", source).send().await.is(204);
    for (name, expected) in [("all", parts.concat()), ("half", parts[..3].concat())] {
        for process in [&a, &b] {
            let mut all = String::new();
            let mut offset = "-1".to_owned();
            loop {
                let path = format!("/v1/stream/forks/{name}?offset={offset}");
                let read = process.root("GET", &path).send().await.is(200);
                all.push_str(&read.text());
                offset = read.header("stream-next-offset");
                if read.header("stream-up-to-date") == "true" {
                    break;
                }
            }
            assert!(all == expected, "{name}: {} bytes", all.len());
        }
    }
}
