//! Processes that die between two requests of one append.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bucket::{Bucket, CHUNKS, MANIFESTS, join, read_all, start};
use crate::support::fault_proxy::Fault;
use crate::world::{WITHIN, bodies, records, seq_nums};

pub async fn a_kill_between_two_writes_shows_no_gap_and_loses_nothing(bucket: Bucket) {
    const KILLS: usize = 10;
    let [reader] = start([bucket.straight()]).await;
    reader.stream("s").await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let follower = {
        let (world, seen) = (reader.world.clone(), seen.clone());
        tokio::spawn(async move {
            let mut events = world.follow("s", "seq_num=0").await;
            loop {
                let event = events.next_but_pings().await.expect("it goes on");
                assert_eq!(event.name, "batch", "{event:?}");
                let batch = event.json();
                let mut seen = seen.lock().unwrap();
                for (seq_num, body) in seq_nums(&batch).into_iter().zip(bodies(&batch)) {
                    assert_eq!(seq_num, seen.len() as u64, "a gap");
                    seen.push(body);
                }
            }
        })
    };
    let mut expected = Vec::new();
    for kill in 0..KILLS {
        // After the chunk: before the manifest, or right after it.
        let fault = if kill % 2 == 0 { Fault::Swallow } else { Fault::ApplyAndSwallow };
        let proxy = bucket.proxy().await;
        let mut victim = join(bucket.through(&proxy)).await;
        let small = format!("acknowledged {kill}");
        victim.append_bodies("s", &[&small]).await;
        expected.push(small);
        proxy.inject("PUT", MANIFESTS, usize::MAX, fault);
        let large = format!("{kill} {}", "x".repeat(40_000));
        let world = victim.world.clone();
        let input = json!({"records": [{"body": large}]});
        let append =
            tokio::spawn(async move { world.post(&records("s")).json(&input).try_send().await.is_ok() });
        proxy.has_met(1).await;
        assert!(proxy.seen("PUT", CHUNKS) > 0, "the chunk went first");
        victim.server.kill_9();
        assert!(!append.await.expect("no panic"), "nobody answered");
        if fault == Fault::ApplyAndSwallow {
            expected.push(large);
        }
        assert!(read_all(&reader, "s").await == expected, "after kill {kill}");
    }
    let until = Instant::now() + WITHIN;
    while seen.lock().unwrap().len() < expected.len() {
        assert!(Instant::now() < until && !follower.is_finished(), "the follower is behind");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(*seen.lock().unwrap() == expected, "the follower saw what is there");
    follower.abort();
}
