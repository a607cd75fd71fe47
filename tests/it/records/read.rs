//! Single reads: starts, limits, waiting, and what is not there.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{Answer, World, bodies, records, seq_nums};

/// A stream with these timestamps.
async fn stamped(stamps: &[u64]) -> World {
    let world = World::new().await;
    world.stream("s").await;
    let records: Vec<_> = stamps.iter().map(|t| json!({"timestamp": t, "body": format!("at {t}")})).collect();
    world.append("s", json!({"records": records})).await.is(200);
    world
}

/// Asserts a 416, whose body is the tail and nothing else.
#[track_caller]
fn beyond(answer: &Answer, seq_num: u64, timestamp: u64) {
    let tail = json!({"tail": {"seq_num": seq_num, "timestamp": timestamp}});
    assert_eq!((answer.status, answer.json()), (416, tail));
    assert_eq!(answer.header("content-type"), "application/json");
}

#[tokio::test]
async fn an_empty_stream_has_nothing_to_read() {
    let world = World::new().await;
    world.stream("s").await;
    for query in [
        "",
        "seq_num=0",
        "timestamp=0",
        "tail_offset=0",
        "tail_offset=5",
        "seq_num=0&clamp=true",
        "seq_num=7&clamp=true",
    ] {
        beyond(&world.read("s", query).await, 0, 0);
    }
    assert_eq!(world.tail("s").await, 0);
}

#[tokio::test]
async fn a_read_starts_where_it_is_told() {
    let world = stamped(&[10, 20, 20, 30]).await;
    for (query, expected) in [
        ("seq_num=0", vec![0, 1, 2, 3]),
        ("seq_num=3", vec![3]),
        ("tail_offset=1", vec![3]),
        ("tail_offset=2", vec![2, 3]),
        ("tail_offset=4", vec![0, 1, 2, 3]),
        ("tail_offset=5", vec![0, 1, 2, 3]),
        ("tail_offset=18446744073709551615", vec![0, 1, 2, 3]),
        ("timestamp=0", vec![0, 1, 2, 3]),
        ("timestamp=10", vec![0, 1, 2, 3]),
        ("timestamp=11", vec![1, 2, 3]),
        ("timestamp=20", vec![1, 2, 3]),
        ("timestamp=21", vec![3]),
        ("timestamp=30", vec![3]),
        ("unknown=1&seq_num=2", vec![2, 3]),
    ] {
        assert_eq!(world.read("s", query).await.seq_nums(), expected, "{query}");
    }
}

#[tokio::test]
async fn a_read_at_or_beyond_the_tail_names_the_tail() {
    let world = stamped(&[10, 20]).await;
    for query in [
        "",
        "seq_num=2",
        "seq_num=3",
        "seq_num=18446744073709551615",
        "tail_offset=0",
        "timestamp=21",
        "timestamp=18446744073709551615",
        "clamp=true",
        "seq_num=3&clamp=true",
        "seq_num=18446744073709551615&clamp=true",
        "timestamp=21&clamp=true",
        "seq_num=2&count=1",
        "seq_num=2&wait=0",
        // Beyond the tail no waiting helps, unless it is clamped.
        "seq_num=3&wait=1",
        "timestamp=21&wait=1",
    ] {
        beyond(&world.read("s", query).await, 2, 20);
    }
}

#[tokio::test]
async fn limits_stop_a_read_before_the_record_that_breaks_them() {
    let world = stamped(&[10, 20, 20, 30]).await;
    // Each record is 8 metered bytes and `at 10`.
    for (query, expected) in [
        ("seq_num=0&count=1", vec![0]),
        ("seq_num=1&count=2", vec![1, 2]),
        ("seq_num=0&count=18446744073709551615", vec![0, 1, 2, 3]),
        ("seq_num=0&bytes=13", vec![0]),
        ("seq_num=0&bytes=25", vec![0]),
        ("seq_num=0&bytes=26", vec![0, 1]),
        ("seq_num=0&bytes=12", vec![]),
        ("seq_num=0&bytes=1", vec![]),
        ("seq_num=0&bytes=18446744073709551615", vec![0, 1, 2, 3]),
        ("seq_num=0&count=3&bytes=26", vec![0, 1]),
        ("seq_num=0&until=20", vec![0]),
        ("seq_num=0&until=21", vec![0, 1, 2]),
        ("seq_num=0&until=10", vec![]),
        ("seq_num=0&until=0", vec![]),
        ("seq_num=0&until=18446744073709551615", vec![0, 1, 2, 3]),
        ("timestamp=20&until=30", vec![1, 2]),
        ("timestamp=11&until=12", vec![]),
        // Nothing asked, nothing given, wherever it starts.
        ("seq_num=0&count=0", vec![]),
        ("seq_num=99&count=0", vec![]),
        ("seq_num=99&bytes=0", vec![]),
        ("bytes=0", vec![]),
    ] {
        let answer = world.read("s", query).await;
        assert_eq!(answer.seq_nums(), expected, "{query}");
        if expected.is_empty() {
            assert_eq!(answer.json(), json!({"records": []}), "{query}");
        }
    }
}

#[tokio::test]
async fn contradictions_are_refused_before_the_stream_is_looked_for() {
    let world = World::new().await;
    for (query, part) in [
        ("seq_num=0&timestamp=0", "at most one of"),
        ("seq_num=0&tail_offset=0", "at most one of"),
        ("timestamp=0&tail_offset=1&count=0", "at most one of"),
        ("timestamp=5&until=5", "`until`"),
        ("timestamp=6&until=5&count=0", "`until`"),
    ] {
        world.read("missing", query).await.refused(422, "invalid", part);
    }
    world.read("missing", "count=0").await.refused(404, "stream_not_found", "`missing`");
}

#[tokio::test]
async fn parameters_of_a_wrong_type_are_refused_by_name() {
    let world = World::new().await;
    for (query, name) in [
        ("seq_num=-1", "seq_num"),
        ("seq_num=18446744073709551616", "seq_num"),
        ("timestamp=1.0", "timestamp"),
        ("tail_offset=", "tail_offset"),
        ("clamp=1", "clamp"),
        ("clamp=TRUE", "clamp"),
        ("count=abc", "count"),
        ("bytes=0x10", "bytes"),
        ("until=%00", "until"),
        ("wait=4294967296", "wait"),
        ("wait=1&wait=2", "wait"),
    ] {
        world.read("s", query).await.refused(400, "bad_query", &format!("`{name}`"));
    }
}

#[tokio::test]
async fn what_is_trimmed_is_a_gap_and_not_an_error() {
    let world = stamped(&[10, 20, 30]).await;
    let trim = |to: u64| {
        let body: String = to.to_be_bytes().iter().map(|b| char::from(*b)).collect();
        json!({"records": [{"headers": [["", "trim"]], "body": body}]})
    };
    world.append("s", trim(2)).await.is(200);
    assert_eq!(world.read("s", "seq_num=0").await.seq_nums(), [2, 3]);
    assert_eq!(world.read("s", "seq_num=0&count=1").await.seq_nums(), [2]);
    assert_eq!(world.read("s", "timestamp=0").await.seq_nums(), [2, 3]);
    assert_eq!(world.read("s", "timestamp=15&until=31").await.seq_nums(), [2]);
    world.append("s", trim(5)).await.is(200);
    for query in ["seq_num=0", "seq_num=4", "tail_offset=5"] {
        assert_eq!(world.read("s", query).await.json(), json!({"records": []}), "{query}");
    }
    beyond_only_number(&world.read("s", "seq_num=5").await, 5);
}

#[track_caller]
fn beyond_only_number(answer: &Answer, seq_num: u64) {
    assert_eq!((answer.status, &answer.json()["tail"]["seq_num"]), (416, &json!(seq_num)));
}

#[tokio::test]
async fn a_large_stream_is_read_in_pages_of_a_thousand_and_a_mebibyte() {
    let world = World::new().await;
    world.stream("s").await;
    for _ in 0..3 {
        world.append("s", json!({"records": vec![json!({"body": "x"}); 700]})).await.is(200);
    }
    for _ in 0..3 {
        world.append("s", json!({"records": [{"body": "y".repeat(600_000)}]})).await.is(200);
    }
    let mut seen = Vec::new();
    let mut pages = Vec::new();
    while seen.len() < 2103 {
        let page = world.read("s", &format!("seq_num={}", seen.len())).await.seq_nums();
        assert!(!page.is_empty() && page.len() <= 1000);
        pages.push(page.len());
        seen.extend(page);
    }
    assert_eq!(seen, (0..2103).collect::<Vec<_>>());
    assert_eq!(world.read("s", "seq_num=2100").await.seq_nums(), [2100]);
    assert_eq!(world.read("s", "seq_num=100&count=5000").await.seq_nums().len(), 1000);
}

#[tokio::test]
async fn records_that_exist_are_returned_without_waiting() {
    let world = stamped(&[10, 20]).await;
    let started = Instant::now();
    assert_eq!(world.read("s", "seq_num=0&wait=30").await.seq_nums(), [0, 1]);
    assert_eq!(world.read("s", "seq_num=0&wait=30&count=1").await.seq_nums(), [0]);
    assert_eq!(world.read("s", "seq_num=0&wait=30&bytes=1").await.seq_nums(), [0; 0]);
    assert_eq!(world.read("s", "seq_num=0&wait=30&until=5").await.seq_nums(), [0; 0]);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_wait_on_an_idle_stream_ends_on_time_and_empty() {
    let world = stamped(&[10]).await;
    world.stream("empty").await;
    let waits =
        ["s?wait=2", "s?seq_num=1&wait=2", "s?seq_num=9&clamp=true&wait=2&count=5", "empty?seq_num=0&wait=2"]
            .map(|path| {
                let world = world.clone();
                async move {
                    let (stream, query) = path.split_once('?').unwrap();
                    let started = Instant::now();
                    let answer = world.read(stream, query).await.is(200);
                    assert_eq!(answer.json(), json!({"records": []}), "{path}");
                    let took = started.elapsed();
                    assert!(
                        took > Duration::from_secs(1) && took < Duration::from_secs(3),
                        "{path}: {took:?}"
                    );
                }
            });
    futures::future::join_all(waits).await;
}

#[tokio::test]
async fn a_waiting_read_gets_the_next_append_at_once() {
    let world = stamped(&[10]).await;
    let waiting = {
        let world = world.clone();
        tokio::spawn(async move { world.read("s", "seq_num=1&wait=30").await })
    };
    // It must be waiting, not be late: nothing tells but time.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    let started = Instant::now();
    world.append_bodies("s", &["a", "b"]).await;
    let batch = waiting.await.unwrap().is(200).json();
    assert_eq!((seq_nums(&batch), bodies(&batch)), (vec![1, 2], vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(batch["tail"]["seq_num"], 3);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_record_just_before_the_end_of_a_wait_arrives() {
    let world = stamped(&[10]).await;
    let waiting = {
        let world = world.clone();
        tokio::spawn(async move { world.read("s", "seq_num=1&wait=2").await })
    };
    tokio::time::sleep(Duration::from_millis(1_700)).await;
    world.append_bodies("s", &["late"]).await;
    assert_eq!(waiting.await.unwrap().bodies(), ["late"]);
}

#[tokio::test]
async fn a_wait_ends_with_its_stream() {
    let world = stamped(&[10]).await;
    let waiting = {
        let world = world.clone();
        tokio::spawn(async move { world.read("s", "seq_num=1&wait=30").await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.delete("/streams/s").send().await.is(202);
    waiting.await.unwrap().refused(404, "stream_not_found", "`s`");
}

#[tokio::test]
async fn a_record_without_headers_and_body_has_neither_field() {
    let world = World::new().await;
    world.stream("s").await;
    world
        .append("s", json!({"records": [{}, {"headers": [["a", ""], ["a", "b"]]}, {"body": ""}]}))
        .await
        .is(200);
    let batch = world.read("s", "seq_num=0").await.is(200).json();
    for (index, keys) in [
        (0, vec!["seq_num", "timestamp"]),
        (1, vec!["headers", "seq_num", "timestamp"]),
        (2, vec!["seq_num", "timestamp"]),
    ] {
        let record = batch["records"][index].as_object().unwrap();
        assert_eq!(record.keys().collect::<Vec<_>>(), keys);
    }
    assert_eq!(batch["records"][1]["headers"], json!([["a", ""], ["a", "b"]]));
}

#[tokio::test]
async fn a_head_request_answers_as_a_get_without_its_body() {
    let world = stamped(&[10]).await;
    for (path, status) in [
        (format!("{}?seq_num=0", records("s")), 200),
        (format!("{}?seq_num=9", records("s")), 416),
        (records("none"), 404),
        ("/streams/s".to_owned(), 200),
        ("/streams/none".to_owned(), 404),
        ("/nowhere".to_owned(), 404),
    ] {
        let answer = world.call("HEAD", &path).send().await;
        assert_eq!((answer.status, answer.body.len()), (status, 0), "{path}");
        let get = world.get(&path).send().await;
        assert_eq!(get.status, status, "{path}");
        assert_eq!(answer.header("content-length"), get.body.len().to_string(), "{path}");
    }
}

#[tokio::test]
async fn a_batch_that_reaches_the_tail_names_it() {
    let world = stamped(&[10, 20, 30]).await;
    let tail = json!({"seq_num": 3, "timestamp": 30});
    assert_eq!(world.read("s", "seq_num=1").await.json()["tail"], tail);
    assert_eq!(world.read("s", "seq_num=1&count=1").await.json().get("tail"), None);
    assert_eq!(world.read("s", "seq_num=1&bytes=1").await.json(), json!({"records": []}));
}
