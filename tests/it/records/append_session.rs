//! Append sessions: frames in, acks out, and every way they end.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use serde_json::json;

use crate::session::{self, GZIP, Session, TERMINAL, ZSTD, frame, frame_of, input, input_at};
use crate::support::server::ServerOptions;
use crate::world::{WITHIN, World, records, unique};

/// A stream without records, over HTTP/2.
async fn empty() -> World {
    let world = World::new().await.over_2();
    world.stream("s").await;
    world
}

async fn bodies(world: &World) -> Vec<String> {
    match world.tail("s").await {
        0 => Vec::new(),
        _ => world.read("s", "seq_num=0").await.is(200).bodies(),
    }
}

#[tokio::test]
async fn a_session_is_answered_before_its_first_input_and_acks_come_in_order() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    assert!(session.response.headers().contains_key("x-request-id"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut three = input("c");
    three.records = vec![three.records[0].clone(); 3];
    for input in [&input("a"), &input("b"), &three] {
        session.append(input);
    }
    assert_eq!([session.ack().await, session.ack().await, session.ack().await], [0..1, 1..2, 2..5]);
    session.append(&input("d"));
    assert_eq!(session.ack().await, 5..6);
    session.half_close();
    assert_eq!(session.next().await, None);
    assert_eq!(bodies(&world).await, ["a", "b", "c", "c", "c", "d"]);
}

#[tokio::test]
async fn a_half_close_at_once_is_a_clean_end_and_one_with_inputs_before_it_is_acknowledged() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    session.half_close();
    assert_eq!(session.next().await, None);
    let mut session = world.append_session("s").await;
    for n in 0..100 {
        session.append(&input(n.to_string()));
    }
    session.half_close();
    let acked: Vec<_> = session.rest().await.iter().map(|frame| frame.acked().start).collect();
    assert_eq!(acked, (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_wrong_at_the_start_is_an_ordinary_answer() {
    let world = World::new().await.over_2();
    session::refused(world.append_call("none")).await.refused(404, "stream_not_found", "none");
    let nobody = World::bare().over_2();
    session::refused(nobody.append_call("s")).await.refused(404, "basin_not_found", &nobody.basin);
    let call = world.append_call("s").header("s2-encryption-key", &"k".repeat(45));
    session::refused(call).await.refused(400, "bad_header", "s2-encryption-key");
}

#[tokio::test]
async fn a_session_creates_its_stream_where_the_basin_says_so() {
    let world = World::with(json!({"create_stream_on_append": true})).await.over_2();
    let config = r#"{"retention_policy":{"age":77}}"#;
    let mut session =
        session::append_session(world.append_call("new").header("s2-stream-config", config)).await;
    session.append(&input("x"));
    assert_eq!(session.ack().await, 0..1);
    let config = world.get("/streams/new").send().await.is(200).json();
    assert_eq!(config["retention_policy"], json!({"age": 77}));
}

#[tokio::test]
async fn over_http_1_a_session_is_refused_because_acks_come_meanwhile() {
    let world = World::new().await;
    world.stream("s").await;
    let body = frame_of(&input("x"));
    let answer = world.append_call("s").body(body).send().await;
    answer.refused(501, "not_implemented", "HTTP/2");
    assert_eq!(world.tail("s").await, 0);
}

#[tokio::test]
async fn a_failed_condition_ends_the_session_with_the_json_of_a_single_append() {
    let world = empty().await;
    world.append_bodies("s", &["first"]).await;
    let mut fenced = input("x");
    fenced.fencing_token = Some("mine".to_owned());
    for (wrong, body) in [
        (input_at(9, "x"), json!({"seq_num_mismatch": 2})),
        (input_at(0, "x"), json!({"seq_num_mismatch": 3})),
        (fenced, json!({"fencing_token_mismatch": ""})),
    ] {
        let tail = world.tail("s").await;
        let mut session = world.append_session("s").await;
        for input in [&input("good"), &wrong, &input("late"), &input("later")] {
            session.append(input);
        }
        Session::ends_with(&session.rest().await, tail, 1, 412, &body);
        assert_eq!(world.tail("s").await, tail + 1);
    }
    assert_eq!(bodies(&world).await, ["first", "good", "good", "good"]);
}

#[tokio::test]
async fn conditions_hold_on_what_is_in_flight_before_them() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    for n in 0..50 {
        session.append(&input_at(n, n.to_string()));
    }
    for n in 0..50 {
        assert_eq!(session.ack().await, n..n + 1);
    }
    for n in 50..100 {
        session.append(&input_at(if n == 75 { 74 } else { n }, n.to_string()));
    }
    Session::ends_with(&session.rest().await, 50, 25, 412, &json!({"seq_num_mismatch": 75}));
    assert_eq!(bodies(&world).await, (0..75).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn none_of_the_large_inputs_after_a_failed_one_lands() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    let large = |n: u8| Bytes::from(vec![b'0' + n; 300_000]);
    for n in 0..10 {
        session.append(&match n {
            4 => input_at(77, large(n)),
            n => input(large(n)),
        });
    }
    Session::ends_with(&session.rest().await, 0, 4, 412, &json!({"seq_num_mismatch": 4}));
    // Nothing arrives later either.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.tail("s").await, 4);
    let mut next = world.append_session("s").await;
    next.append(&input_at(4, "after"));
    assert_eq!(next.ack().await, 4..5);
}

#[tokio::test]
async fn an_input_that_no_batch_may_be_ends_the_session_after_what_came_before() {
    let world = empty().await;
    let record = input("x").records[0].clone();
    let mut too_many = input("x");
    too_many.records = vec![record; 1_001];
    let mut long_token = input("x");
    long_token.fencing_token = Some("t".repeat(37));
    let mut none = input("x");
    none.records.clear();
    let cut = input("x").encode_to_vec();
    let cases = [
        (frame_of(&too_many), 422, "invalid"),
        (frame_of(&input(vec![0; 1024 * 1024])), 422, "invalid"),
        (frame_of(&long_token), 422, "invalid"),
        (frame_of(&none), 422, "invalid"),
        (frame(0, &cut[..cut.len() - 1]), 400, "bad_proto"),
        (frame(0, b"{}"), 400, "bad_proto"),
        (frame(TERMINAL, &[1, 144, b'{', b'}']), 400, "bad_frame"),
        (frame(0b0110_0000, &cut), 400, "bad_frame"),
        (frame(1, &cut), 400, "bad_frame"),
        (frame(ZSTD, b"not zstd"), 400, "bad_frame"),
        (frame(GZIP, b"not gzip"), 400, "bad_frame"),
        (Bytes::from_static(&[0, 0, 0, 0]), 400, "bad_frame"),
        (Bytes::from_static(&[0x20, 0, 1, 0]), 400, "bad_frame"),
    ];
    for (n, (bad, status, code)) in (0..).step_by(2).zip(cases) {
        let mut session = world.append_session("s").await;
        session.append(&input("one"));
        session.append(&input("two"));
        session.push(bad);
        session.append(&input("late"));
        Session::ends_with(&session.rest().await, n, 2, status, &json!(code));
        assert_eq!(world.tail("s").await, n + 2, "{code}");
    }
}

#[tokio::test]
async fn a_body_that_ends_inside_a_frame_is_a_bad_frame() {
    let world = empty().await;
    let whole = frame_of(&input("x"));
    for cut in [1, 3, 4, whole.len() - 1] {
        let mut session = world.append_session("s").await;
        session.push(whole.slice(..cut));
        session.half_close();
        Session::ends_with(&session.rest().await, 0, 0, 400, &json!("bad_frame"));
    }
    assert_eq!(world.tail("s").await, 0);
}

#[tokio::test]
async fn a_frame_may_be_split_at_every_byte_and_frames_may_be_joined() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    let bytes = frame_of(&input("split"));
    for cut in 0..=bytes.len() {
        session.push(bytes.slice(..cut));
        tokio::time::sleep(Duration::from_millis(2)).await;
        session.push(bytes.slice(cut..));
        assert_eq!(session.ack().await.start, cut as u64);
    }
    for byte in &bytes {
        session.push(vec![*byte]);
    }
    let mut next = bytes.len() as u64 + 1;
    assert_eq!(session.ack().await.start, next);
    session.push([&bytes[..], &bytes, &bytes[..5]].concat());
    session.push(bytes.slice(5..));
    for _ in 0..3 {
        next += 1;
        assert_eq!(session.ack().await.start, next);
    }
}

#[tokio::test]
async fn compressed_inputs_are_taken_in_any_mix_and_what_expands_too_far_is_not() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    let zstd = |plain: &[u8]| frame(ZSTD, &zstd::encode_all(plain, 3).unwrap());
    let gzip = |plain: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, plain).unwrap();
        frame(GZIP, &encoder.finish().unwrap())
    };
    let message = |n: u64| input(n.to_string().repeat(2_000)).encode_to_vec();
    session.push(zstd(&message(0)));
    session.push(gzip(&message(1)));
    session.push(frame(0, &message(2)));
    session.push(zstd(&message(3)));
    for n in 0..4 {
        assert_eq!(session.ack().await, n..n + 1);
    }
    assert_eq!(bodies(&world).await, (0..4).map(|n: u64| n.to_string().repeat(2_000)).collect::<Vec<_>>());
    for bomb in [zstd(&vec![0; 2 * 1024 * 1024]), gzip(&vec![0; 2 * 1024 * 1024]), zstd(&vec![0; 1 << 28])] {
        assert!(bomb.len() < 50_000);
        let mut session = world.append_session("s").await;
        session.push(bomb);
        let frames = session.rest().await;
        Session::ends_with(&frames, 0, 0, 400, &json!("bad_frame"));
        let (_, body) = frames[0].terminal();
        assert!(body["message"].as_str().unwrap().contains("2097151 bytes"), "{body}");
    }
    assert_eq!(world.tail("s").await, 4);
}

#[tokio::test]
async fn the_largest_batch_is_taken() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    session.append(&input(vec![b'x'; 1024 * 1024 - 8]));
    assert_eq!(session.ack().await, 0..1);
}

#[tokio::test]
async fn large_inputs_are_pipelined_and_kept_whole() {
    let world = empty().await;
    let body = |n: usize| -> Vec<u8> { (0..900 * 1024).map(|i| ((i * 31 + n * 7) % 251) as u8).collect() };
    let mut session = world.append_session("s").await;
    for n in 0..20 {
        session.append(&input_at(n as u64, body(n)));
    }
    session.half_close();
    let acks = session.rest().await;
    assert_eq!(acks.iter().map(|a| a.acked().start).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    let mut read = world.read_session("s", "seq_num=0&count=20").await;
    for n in 0..20 {
        let batch = read.records().await;
        assert_eq!(batch.records.len(), 1);
        assert_eq!(batch.records[0].seq_num, n as u64);
        assert!(batch.records[0].body == body(n), "record {n}");
    }
    assert_eq!(read.next().await, None);
}

/// Committed manifests so far.
async fn commits(world: &World) -> u64 {
    let text = world.root("GET", "/metrics").send().await.is(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(r#"leat_commits_total{outcome="committed"} "#));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn pipelined_inputs_share_commits() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ServerOptions::on_folder(folder.path()).start();
    let world = World::on(&server, &unique("shared")).over_2();
    world.create_basin(json!({})).await;
    world.stream("s").await;
    let before = commits(&world).await;
    let mut session = world.append_session("s").await;
    for n in 0..500 {
        session.append(&input_at(n, n.to_string()));
    }
    for n in 0..500 {
        assert_eq!(session.ack().await, n..n + 1);
    }
    let commits = commits(&world).await - before;
    assert!((1..=50).contains(&commits), "{commits} commits for 500 inputs");
}

#[tokio::test]
async fn sessions_and_single_appends_to_one_stream_take_turns() {
    const INPUTS: u64 = 100;
    let world = empty().await;
    let sessions = ["a", "b"].map(|name| {
        let world = world.over_2();
        tokio::spawn(async move {
            let mut session = world.append_session("s").await;
            let mut acked = Vec::new();
            for n in 0..INPUTS {
                session.append(&input(format!("{name}{n}")));
                if n % 10 == 9 {
                    for _ in 0..10 {
                        acked.push(session.ack().await.start);
                    }
                }
            }
            (name, acked)
        })
    });
    let mut landed = Vec::new();
    for n in 0..30 {
        let body = format!("u{n}");
        let ack = world.append_bodies("s", &[&body]).await;
        landed.push((ack["start"]["seq_num"].as_u64().unwrap(), body));
    }
    for session in sessions {
        let (name, acked) = session.await.unwrap();
        assert!(acked.is_sorted());
        landed.extend(acked.into_iter().zip((0..).map(|n| format!("{name}{n}"))));
    }
    landed.sort();
    assert_eq!(landed.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (0..2 * INPUTS + 30).collect::<Vec<_>>());
    let expected: Vec<_> = landed.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies(&world).await, expected);
}

#[tokio::test]
async fn a_client_that_goes_leaves_a_prefix_of_its_inputs_and_the_stream_goes_on() {
    for case in ["mid-append", "mid-frame", "mid-ack", "connection"] {
        let world = empty().await;
        let own = world.over_2();
        let mut session = own.append_session("s").await;
        for n in 0..200 {
            session.append(&input(n.to_string()));
        }
        let mut acked = 0;
        match case {
            "mid-frame" => {
                session.push(frame_of(&input("half")).slice(..6));
                acked = session.ack().await.end;
                session.reset();
            }
            "mid-ack" => {
                for _ in 0..7 {
                    acked = session.ack().await.end;
                }
            }
            "connection" => {
                acked = session.ack().await.end;
                drop(own);
            }
            _ => {}
        }
        drop(session);
        let mut tail = None;
        // What is on its way lands soon or never.
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = world.tail("s").await;
            if tail.replace(now) == Some(now) {
                break;
            }
        }
        let landed = bodies(&world).await;
        assert!(landed.len() as u64 >= acked, "{case}: {acked} acknowledged, {} there", landed.len());
        assert_eq!(landed, (0..landed.len()).map(|n| n.to_string()).collect::<Vec<_>>(), "{case}");
        let mut again = world.append_session("s").await;
        again.append(&input_at(landed.len() as u64, "again"));
        assert_eq!(again.ack().await.start, landed.len() as u64, "{case}");
    }
}

#[tokio::test]
async fn clients_that_read_no_acks_hold_back_only_themselves() {
    let server = ServerOptions::on("memory:").start();
    let world = World::on(&server, &unique("deaf")).over_2();
    world.create_basin(json!({})).await;
    // So small a window that the acks of a few inputs fill it.
    let narrow = || {
        let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
        client.http2_initial_stream_window_size(1_024).build().unwrap()
    };
    let body = Bytes::from(vec![b'x'; 100_000]);
    let mut deaf = Vec::new();
    for n in 0..10 {
        let stream = format!("s{n}");
        world.stream(&stream).await;
        let session = world.over(narrow()).append_session(&stream).await;
        for _ in 0..150 {
            session.append(&input(body.clone()));
        }
        deaf.push(session);
    }
    // More is on its way than the process's budget holds; a session that is read still gets its part of it.
    world.stream("read").await;
    let mut session = world.append_session("read").await;
    for n in 0..20 {
        session.append(&input(body.clone()));
        assert_eq!(session.ack().await.start, n);
    }
    for (n, session) in deaf.iter_mut().enumerate() {
        for expected in 0..150 {
            assert_eq!(session.ack().await.start, expected, "session {n}");
        }
    }
}

#[tokio::test]
async fn an_idle_session_outlives_every_patience_of_a_single_request() {
    let server = ServerOptions::on("memory:").start();
    let world = World::on(&server, &unique("idle")).over_2();
    world.create_basin(json!({})).await;
    world.stream("s").await;
    let mut session = world.append_session("s").await;
    session.append(&input("before"));
    assert_eq!(session.ack().await, 0..1);
    // Longer than the 15 s that a single body may pause, in the middle of a frame.
    let bytes = frame_of(&input("after"));
    session.push(bytes.slice(..5));
    tokio::time::sleep(Duration::from_secs(17)).await;
    session.push(bytes.slice(5..));
    assert_eq!(session.ack().await, 1..2);
}

#[tokio::test]
async fn a_draining_server_acknowledges_what_it_took_and_sends_the_session_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = ServerOptions::on_folder(folder.path()).start();
    let world = World::on(&server, &unique("drain")).over_2();
    world.create_basin(json!({})).await;
    for stream in ["s", "idle"] {
        world.stream(stream).await;
    }
    let mut idle = world.append_session("idle").await;
    let mut busy = world.append_session("s").await;
    for n in 0..2_000 {
        busy.append(&input_at(n, n.to_string()));
    }
    assert_eq!(busy.ack().await, 0..1);
    server.sigterm();
    Session::ends_with(&idle.rest().await, 0, 0, 503, &json!("server_draining"));
    let frames = busy.rest().await;
    let acks = frames.len() as u64 - 1;
    Session::ends_with(&frames, 1, acks, 503, &json!("server_draining"));
    // Not here: the client must go on to answer while the server says goodbye.
    let ended =
        tokio::task::spawn_blocking(move || (server.wait(WITHIN).code(), server.log())).await.unwrap();
    assert_eq!(ended.0, Some(0), "{}", ended.1);
    let server = ServerOptions::on_folder(folder.path()).start();
    let tail = World::on(&server, &world.basin).tail("s").await;
    assert_eq!(tail, 1 + acks, "all that was taken is acknowledged, and nothing else is there");
}

#[tokio::test]
async fn a_stream_deleted_under_a_session_ends_it() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    session.append(&input("x"));
    assert_eq!(session.ack().await, 0..1);
    world.delete("/streams/s").send().await.is(202);
    session.append(&input("y"));
    Session::ends_with(&session.rest().await, 0, 0, 404, &json!("stream_not_found"));
    assert_eq!(world.get(&records("s")).send().await.status, 404);
}

#[tokio::test]
async fn a_session_does_not_go_on_in_another_life_of_its_stream() {
    let world = empty().await;
    let mut session = world.append_session("s").await;
    session.append(&input("x"));
    assert_eq!(session.ack().await, 0..1);
    world.delete("/streams/s").send().await.is(202);
    world.stream("s").await;
    for _ in 0..3 {
        session.append(&input("y"));
    }
    Session::ends_with(&session.rest().await, 0, 0, 404, &json!("stream_not_found"));
    assert_eq!(world.tail("s").await, 0);
    let mut session = world.append_session("s").await;
    session.append(&input("z"));
    assert_eq!(session.ack().await, 0..1);
}
