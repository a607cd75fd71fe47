//! Appends: acknowledgements, conditions, commands, timestamps, limits, protobuf.

use bytes::Bytes;
use prost::Message;
use serde_json::{Value, json};

use crate::world::{Answer, World, records};

#[derive(Clone, PartialEq, Message)]
struct Position {
    #[prost(uint64, tag = "1")]
    seq_num: u64,
    #[prost(uint64, tag = "2")]
    timestamp: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<Header>,
    #[prost(bytes = "bytes", tag = "3")]
    body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Input {
    #[prost(message, repeated, tag = "1")]
    records: Vec<Record>,
    #[prost(uint64, optional, tag = "2")]
    match_seq_num: Option<u64>,
    #[prost(string, optional, tag = "3")]
    fencing_token: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Ack {
    #[prost(message, optional, tag = "1")]
    start: Option<Position>,
    #[prost(message, optional, tag = "2")]
    end: Option<Position>,
    #[prost(message, optional, tag = "3")]
    tail: Option<Position>,
}

#[derive(Clone, PartialEq, Message)]
struct Sequenced {
    #[prost(uint64, tag = "1")]
    seq_num: u64,
    #[prost(uint64, tag = "2")]
    timestamp: u64,
    #[prost(message, repeated, tag = "3")]
    headers: Vec<Header>,
    #[prost(bytes = "bytes", tag = "4")]
    body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Batch {
    #[prost(message, repeated, tag = "1")]
    records: Vec<Sequenced>,
    #[prost(message, optional, tag = "2")]
    tail: Option<Position>,
}

async fn append_proto(world: &World, stream: &str, input: &Input) -> Answer {
    let call = world.post(&records(stream)).header("content-type", "application/protobuf");
    call.header("accept", "application/protobuf").body(input.encode_to_vec()).send().await
}

/// Appends in base64, which says any bytes.
async fn append_base64(world: &World, stream: &str, input: Value) -> Answer {
    world.post(&records(stream)).header("s2-format", "base64").json(&input).send().await
}

fn command(name: &'static str, body: impl Into<Bytes>) -> Record {
    let header = Header { name: Bytes::new(), value: Bytes::from_static(name.as_bytes()) };
    Record { timestamp: None, headers: vec![header], body: body.into() }
}

fn plain(body: &'static str) -> Record {
    Record { body: Bytes::from_static(body.as_bytes()), ..Record::default() }
}

/// What a refused condition answers, whole.
#[track_caller]
fn failed(answer: &Answer, body: Value) {
    assert_eq!((answer.status, answer.json()), (412, body));
    assert_eq!(answer.header("content-type"), "application/json");
}

#[tokio::test]
async fn an_acknowledgement_names_first_next_and_tail() {
    let world = World::new().await;
    world.stream("s").await;
    let ack = world.append_bodies("s", &["a", "b", "c"]).await;
    assert_eq!((&ack["start"]["seq_num"], &ack["end"]["seq_num"]), (&json!(0), &json!(3)));
    assert_eq!(ack["tail"], ack["end"]);
    let more = world.append_bodies("s", &["d"]).await;
    assert_eq!((&more["start"]["seq_num"], &more["end"]["seq_num"]), (&json!(3), &json!(4)));
    assert!(more["start"]["timestamp"].as_u64() >= ack["end"]["timestamp"].as_u64());
    let tail = world.get(&format!("{}/tail", records("s"))).send().await.is(200).json();
    assert_eq!(tail, json!({"tail": more["tail"]}));
    assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_hundred_concurrent_appends_are_dense_and_disjoint() {
    let world = World::new().await;
    world.stream("s").await;
    let appends = (0..100).map(|n| {
        let world = world.clone();
        async move { (n, world.append_bodies("s", &[&n.to_string(), "second"]).await) }
    });
    let mut ranges = Vec::new();
    for (n, ack) in futures::future::join_all(appends).await {
        let (start, end) =
            (ack["start"]["seq_num"].as_u64().unwrap(), ack["end"]["seq_num"].as_u64().unwrap());
        assert_eq!(end - start, 2);
        assert!(ack["tail"]["seq_num"].as_u64().unwrap() >= end);
        ranges.push((start, n));
    }
    ranges.sort_unstable();
    let starts: Vec<_> = ranges.iter().map(|(start, _)| *start).collect();
    assert_eq!(starts, (0..200).step_by(2).collect::<Vec<_>>());
    let bodies = world.read("s", "seq_num=0").await.bodies();
    for (start, n) in ranges {
        assert_eq!(bodies[start as usize], n.to_string());
        assert_eq!(bodies[start as usize + 1], "second");
    }
}

#[tokio::test]
async fn an_append_at_the_expected_number_wins_once() {
    let world = World::new().await;
    world.stream("s").await;
    let appends = (0..16).map(|_| world.append("s", json!({"records": [{}], "match_seq_num": 0})));
    let answers = futures::future::join_all(appends).await;
    assert_eq!(answers.iter().filter(|a| a.status == 200).count(), 1);
    for answer in answers.iter().filter(|a| a.status != 200) {
        failed(answer, json!({"seq_num_mismatch": 1}));
    }
    assert_eq!(world.tail("s").await, 1);
}

#[tokio::test]
async fn conditions_are_checked_in_order_and_answer_what_is_true_now() {
    let world = World::new().await;
    world.stream("s").await;
    let try_with = async |number: Value, token: Value| {
        world.append("s", json!({"records": [{}], "match_seq_num": number, "fencing_token": token})).await
    };
    failed(&try_with(json!(1), Value::Null).await, json!({"seq_num_mismatch": 0}));
    failed(&try_with(json!(u64::MAX), Value::Null).await, json!({"seq_num_mismatch": 0}));
    failed(&try_with(Value::Null, json!("mine")).await, json!({"fencing_token_mismatch": ""}));
    failed(&try_with(json!(9), json!("mine")).await, json!({"fencing_token_mismatch": ""}));
    try_with(json!(0), json!("")).await.is(200);
    world.append("s", json!({"records": [{"headers": [["", "fence"]], "body": "größe"}]})).await.is(200);
    failed(&try_with(json!(9), json!("")).await, json!({"fencing_token_mismatch": "größe"}));
    failed(&try_with(json!(9), json!("größe")).await, json!({"seq_num_mismatch": 2}));
    try_with(json!(2), json!("größe")).await.is(200);
    // A token that is left out is not checked.
    try_with(json!(3), Value::Null).await.is(200);
    assert_eq!(world.tail("s").await, 4);
}

#[tokio::test]
async fn a_condition_fails_in_json_whatever_the_client_speaks() {
    let world = World::new().await;
    world.stream("s").await;
    let input = Input { records: vec![plain("x")], match_seq_num: Some(7), fencing_token: None };
    failed(&append_proto(&world, "s", &input).await, json!({"seq_num_mismatch": 0}));
    let input = Input { fencing_token: Some("t".into()), ..input };
    failed(&append_proto(&world, "s", &input).await, json!({"fencing_token_mismatch": ""}));
}

#[tokio::test]
async fn a_fence_holds_for_the_batches_after_its_own_and_an_empty_one_clears_it() {
    let world = World::new().await;
    world.stream("s").await;
    let input = Input {
        records: vec![command("fence", "one"), plain("in the same batch")],
        fencing_token: Some(String::new()),
        match_seq_num: Some(0),
    };
    append_proto(&world, "s", &input).await.is(200);
    let plain = json!({"records": [{}], "fencing_token": ""});
    failed(&world.append("s", plain.clone()).await, json!({"fencing_token_mismatch": "one"}));
    // 36 bytes are the longest token there may be; 37 are refused by different codes, by contract.
    let longest = "x".repeat(36);
    append_base64(&world, "s", json!({"records": [{"headers": [["", "ZmVuY2U="]], "body": "eHh4"}]}))
        .await
        .is(200);
    let fence = Input { records: vec![command("fence", longest.clone())], ..Input::default() };
    append_proto(&world, "s", &fence).await.is(200);
    world.append("s", json!({"records": [{}], "fencing_token": longest})).await.is(200);
    let too_long = "x".repeat(37);
    let named = json!({"records": [{}], "fencing_token": too_long});
    world.append("s", named).await.refused(400, "bad_json", "fencing");
    let named = Input {
        records: vec![Record::default()],
        fencing_token: Some(too_long.clone()),
        match_seq_num: None,
    };
    append_proto(&world, "s", &named).await.refused(422, "invalid", "fencing token");
    let fence = Input { records: vec![command("fence", too_long)], ..Input::default() };
    append_proto(&world, "s", &fence).await.refused(422, "invalid", "record 0");
    let clear = Input { records: vec![command("fence", "")], ..Input::default() };
    append_proto(&world, "s", &clear).await.is(200);
    world.append("s", plain).await.is(200);
}

#[tokio::test]
async fn a_trim_drops_what_is_before_it_and_never_goes_back() {
    let world = World::new().await;
    world.stream("s").await;
    world.append_bodies("s", &["0", "1", "2", "3"]).await;
    let trim = async |to: u64| {
        let input = Input { records: vec![command("trim", to.to_be_bytes().to_vec())], ..Input::default() };
        append_proto(&world, "s", &input).await.is(200);
    };
    trim(2).await; // record 4
    assert_eq!(world.read("s", "seq_num=0").await.seq_nums(), [2, 3, 4]);
    trim(0).await; // record 5
    assert_eq!(world.read("s", "seq_num=1").await.seq_nums(), [2, 3, 4, 5]);
    // In base64, and beyond its own record: up to and with itself.
    let far =
        json!({"records": [{"headers": [["", "dHJpbQ=="]], "body": "//////////8="}, {"body": "bGFzdA=="}]});
    append_base64(&world, "s", far).await.is(200); // records 6 and 7
    assert_eq!(world.read("s", "seq_num=0").await.seq_nums(), [7]);
    assert_eq!(world.read("s", "tail_offset=100").await.bodies(), ["last"]);
    trim(9).await; // record 8
    assert_eq!(world.read("s", "seq_num=0").await.json(), json!({"records": []}));
    assert_eq!(world.tail("s").await, 9);
    // Numbers go on after everything is gone.
    assert_eq!(world.append_bodies("s", &["next"]).await["start"]["seq_num"], 9);
    assert_eq!(world.read("s", "seq_num=0").await.seq_nums(), [9]);
}

#[tokio::test]
async fn commands_are_delivered_like_any_record() {
    let world = World::new().await;
    world.stream("s").await;
    let fence = json!({"records": [{"headers": [["", "fence"]], "body": "t"}]});
    world.append("s", fence).await.is(200);
    let record = &world.read("s", "seq_num=0").await.is(200).json()["records"][0];
    assert_eq!((&record["headers"], &record["body"]), (&json!([["", "fence"]]), &json!("t")));
}

#[tokio::test]
async fn a_malformed_command_is_refused_and_nothing_is_stored() {
    let world = World::new().await;
    world.stream("s").await;
    for (record, part) in [
        (json!({"headers": [["", "seal"]]}), "unknown command"),
        (json!({"headers": [["", ""]]}), "unknown command"),
        (json!({"headers": [["", "fence"], ["a", "b"]]}), "exactly one header"),
        (json!({"headers": [["a", "b"], ["", "fence"]]}), "exactly one header"),
        (json!({"headers": [["", "trim"]], "body": "1234567"}), "8 bytes"),
        (json!({"headers": [["", "trim"]], "body": "123456789"}), "8 bytes"),
        (json!({"headers": [["", "trim"]]}), "8 bytes"),
    ] {
        let answer = world.append("s", json!({"records": [{"body": "before"}, record]})).await;
        answer.refused(422, "invalid", part).refused(422, "invalid", "record 1");
    }
    let not_utf8 = Input { records: vec![command("fence", vec![0xff])], ..Input::default() };
    append_proto(&world, "s", &not_utf8).await.refused(422, "invalid", "UTF-8");
    assert_eq!(world.tail("s").await, 0);
}

#[tokio::test]
async fn protobuf_goes_in_and_comes_out_byte_for_byte() {
    let world = World::new().await;
    world.stream("s").await;
    // The worked example of the format: one record, body `hi`.
    let answer = world
        .post(&records("s"))
        .header("content-type", "application/x-protobuf")
        .header("accept", "application/x-protobuf, */*")
        .body(vec![0x0a, 0x04, 0x1a, 0x02, 0x68, 0x69])
        .send()
        .await
        .is(200);
    assert_eq!(answer.header("content-type"), "application/protobuf");
    let ack = Ack::decode(answer.body).unwrap();
    assert_eq!(ack.start.unwrap().seq_num, 0);
    assert_eq!((ack.end.unwrap().seq_num, ack.tail.unwrap().seq_num), (1, 1));

    let headers = vec![
        Header { name: vec![0xff].into(), value: vec![0, 10, 13].into() },
        Header { name: vec![0xff].into(), value: Bytes::new() },
    ];
    let record = Record { timestamp: Some(0), headers: headers.clone(), body: vec![0, 255, 128].into() };
    append_proto(&world, "s", &Input { records: vec![record], ..Input::default() }).await.is(200);
    let read = world.get(&format!("{}?seq_num=0", records("s"))).header("accept", "application/protobuf");
    let answer = read.send().await.is(200);
    assert_eq!(answer.header("content-type"), "application/protobuf");
    let batch = Batch::decode(answer.body).unwrap();
    assert_eq!(batch.records[0].body, "hi");
    assert_eq!(batch.records[1].headers, headers);
    assert_eq!(batch.records[1].body, vec![0, 255, 128]);
    // The same over JSON: exact in base64, lossy in raw.
    let read = world.get(&format!("{}?seq_num=1", records("s"))).header("s2-format", "base64");
    let record = &read.send().await.is(200).json()["records"][0];
    assert_eq!(
        (&record["headers"], &record["body"]),
        (&json!([["/w==", "AAoN"], ["/w==", ""]]), &json!("AP+A"))
    );
    let record = &world.read("s", "seq_num=1").await.is(200).json()["records"][0];
    assert_eq!(record["body"], "\0\u{fffd}\u{fffd}");
}

#[tokio::test]
async fn an_answer_is_of_the_kind_that_was_asked_for() {
    let world = World::new().await;
    world.stream("s").await;
    let input = Input { records: vec![plain("x")], ..Input::default() }.encode_to_vec();
    let proto = world.post(&records("s")).header("content-type", "application/protobuf").body(input);
    let answer = proto.send().await.is(200);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.json()["end"]["seq_num"], 1);
    let json =
        world.post(&records("s")).header("accept", "application/protobuf").json(&json!({"records": [{}]}));
    let answer = json.send().await.is(200);
    assert_eq!(Ack::decode(answer.body).unwrap().end.unwrap().seq_num, 2);
}

#[tokio::test]
async fn broken_protobuf_is_refused() {
    let world = World::new().await;
    world.stream("s").await;
    for body in
        [vec![0x0a, 0x7f], vec![0xff; 20], b"{\"records\":[]}".to_vec(), vec![0x0a, 0x04, 0x1a, 0x05, 1, 2]]
    {
        let call = world.post(&records("s")).header("content-type", "application/protobuf").body(body);
        call.send().await.refused(400, "bad_proto", "");
    }
    let empty = world.post(&records("s")).header("content-type", "application/protobuf");
    empty.send().await.refused(422, "invalid", "1 to 1000 records");
    assert_eq!(world.tail("s").await, 0);
}

#[tokio::test]
async fn timestamps_follow_the_mode_of_the_stream() {
    let world = World::new().await;
    let stamps = async |stream: &str, given: Value| -> Vec<u64> {
        let records: Vec<_> = given.as_array().unwrap().iter().map(|t| json!({"timestamp": t})).collect();
        let start = world.append(stream, json!({"records": records})).await.is(200).json();
        let batch =
            world.read(stream, &format!("seq_num={}", start["start"]["seq_num"])).await.is(200).json();
        let stamps: Vec<_> =
            batch["records"].as_array().unwrap().iter().map(|r| r["timestamp"].as_u64().unwrap()).collect();
        assert_eq!(start["start"]["timestamp"], stamps[0]);
        assert_eq!(start["end"]["timestamp"], *stamps.last().unwrap());
        stamps
    };
    let now =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let is_now = |stamp: u64| assert!(stamp.abs_diff(now()) < 60_000, "{stamp}");

    world.stream("prefer").await;
    let got = stamps("prefer", json!([5, null, 7, u64::MAX])).await;
    assert_eq!(got[0], 5);
    is_now(got[1]);
    assert_eq!((got[2], got[3]), (got[1], got[1]), "never back, never ahead of the arrival");

    world.stream_with("uncapped", json!({"timestamping": {"uncapped": true}})).await;
    let got = stamps("uncapped", json!([1, u64::MAX, null])).await;
    assert_eq!(got, [1, u64::MAX, u64::MAX]);
    assert_eq!(stamps("uncapped", json!([3])).await, [u64::MAX]);
    assert_eq!(world.read("uncapped", &format!("timestamp={}", u64::MAX)).await.seq_nums(), [1, 2, 3]);

    world.stream_with("arrival", json!({"timestamping": {"mode": "arrival"}})).await;
    for stamp in stamps("arrival", json!([1, null, u64::MAX])).await {
        is_now(stamp);
    }

    world.stream_with("require", json!({"timestamping": {"mode": "client-require"}})).await;
    assert_eq!(stamps("require", json!([7, 5, 9])).await, [7, 7, 9]);
    let lacking = json!({"records": [{"timestamp": 1}, {}]});
    world.append("require", lacking).await.refused(422, "invalid", "record 1 has no `timestamp`");
    let fence = json!({"records": [{"headers": [["", "fence"]]}]});
    world.append("require", fence).await.refused(422, "invalid", "record 0 has no `timestamp`");
    assert_eq!(world.tail("require").await, 3);
}

#[tokio::test]
async fn a_batch_is_at_most_a_thousand_records_and_a_metered_mebibyte() {
    let world = World::new().await;
    world.stream("s").await;
    let many = |n: usize| json!({"records": vec![json!({}); n]});
    world.append("s", many(0)).await.refused(422, "invalid", "1 to 1000 records, got 0");
    world.append("s", many(1001)).await.refused(422, "invalid", "1 to 1000 records, got 1001");
    world.append("s", many(1000)).await.is(200);
    let sized = |n: usize| json!({"records": [{"body": "x".repeat(n)}]});
    world.append("s", sized((1 << 20) - 7)).await.refused(422, "invalid", "1048577");
    world.append("s", sized((1 << 20) - 8)).await.is(200);
    // Two records that are legal by themselves, and one byte too many together.
    let two = |n: usize| json!({"records": [{"body": "x".repeat(1 << 19)}, {"headers": [["k", "v"]], "body": "x".repeat(n)}]});
    let rest = (1 << 20) - (1 << 19) - 8 - 8 - 4;
    world.append("s", two(rest + 1)).await.refused(422, "invalid", "1048577");
    world.append("s", two(rest)).await.is(200);
    assert_eq!(world.tail("s").await, 1003);
    let read = world.read("s", "seq_num=1000&count=1").await.is(200).json();
    assert_eq!(read["records"][0]["body"].as_str().unwrap().len(), (1 << 20) - 8);
    // What was written in one batch is read in one.
    assert_eq!(world.read("s", "seq_num=0").await.seq_nums().len(), 1000);
    assert_eq!(world.read("s", "seq_num=1001").await.seq_nums(), [1001, 1002]);
}

#[tokio::test]
async fn many_tiny_headers_are_kept_in_order() {
    let world = World::new().await;
    world.stream("s").await;
    let headers: Vec<_> = (0..20_000).map(|n| json!([format!("{n}"), ""])).collect();
    world.append("s", json!({"records": [{"headers": headers}]})).await.is(200);
    assert_eq!(world.read("s", "seq_num=0").await.json()["records"][0]["headers"], Value::Array(headers));
}

#[tokio::test]
async fn both_versions_of_http_append_and_read() {
    let world = World::new().await;
    world.stream("s").await;
    let two = world.over(crate::world::http_2());
    let answer = two.append("s", json!({"records": [{"body": "over 2"}]})).await.is(200);
    assert_eq!(answer.version, http::Version::HTTP_2);
    let answer = world.append("s", json!({"records": [{"body": "over 1"}]})).await.is(200);
    assert_eq!(answer.version, http::Version::HTTP_11);
    for world in [&world, &two] {
        assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["over 2", "over 1"]);
    }
    let appends = (0..100).map(|_| two.append("s", json!({"records": [{}]})));
    for answer in futures::future::join_all(appends).await {
        answer.is(200);
    }
    assert_eq!(two.tail("s").await, 102);
}
