//! Request bodies: compressed, too large, broken, refused before they are read.

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::support::server::ServerOptions;
use crate::world::{WITHIN, World, raw, raw_status, records};

const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(plain, 3).unwrap()
}

/// An append that is `len` bytes of JSON long: what is not a record is white space.
fn padded(len: usize) -> Vec<u8> {
    let mut body = br#"{"records":[{"body":"padded"}]"#.to_vec();
    body.resize(len - 1, b' ');
    body.push(b'}');
    body
}

#[tokio::test]
async fn compressed_bodies_are_read() {
    let world = World::new().await;
    let basin = json!({"basin": format!("{}-two", world.basin)}).to_string();
    let create = world.post("/basins").header("content-type", "application/json");
    create.header("content-encoding", "zstd").body(zstd(basin.as_bytes())).send().await.is(201);
    world.stream("s").await;
    let input = br#"{"records":[{"body":"small"}]}"#;
    for (coding, body) in
        [("gzip", gzip(input)), ("x-gzip", gzip(input)), ("zstd", zstd(input)), ("identity", input.to_vec())]
    {
        let call = world.post(&records("s")).header("content-type", "application/json");
        call.header("content-encoding", coding).body(body).send().await.is(200);
    }
    // In several members and frames, as a stream of writes leaves them.
    let halves = [&input[..9], &input[9..]];
    for (coding, body) in [("gzip", halves.map(gzip).concat()), ("zstd", halves.map(zstd).concat())] {
        let call = world.post(&records("s")).header("content-type", "application/json");
        call.header("content-encoding", coding).body(body).send().await.is(200);
    }
    let proto = world.post(&records("s")).header("content-type", "application/protobuf");
    proto.header("content-encoding", "gzip").body(gzip(b"\x0a\x07\x1a\x05small")).send().await.is(200);
    assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["small"; 7]);
}

#[tokio::test]
async fn a_body_is_at_most_2_mib_as_sent_and_unpacked() {
    let world = World::new().await;
    world.stream("s").await;
    let post = || world.post(&records("s")).header("content-type", "application/json");
    post().body(padded(BODY_BYTES_MAX)).send().await.is(200);
    post().header("content-encoding", "gzip").body(gzip(&padded(BODY_BYTES_MAX))).send().await.is(200);
    let over = padded(BODY_BYTES_MAX + 1);
    post().body(over.clone()).send().await.refused(422, "invalid", "2097152");
    post().body(vec![b' '; 8 << 20]).send().await.refused(422, "invalid", "2097152");
    for (coding, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        post()
            .header("content-encoding", coding)
            .body(pack(&over))
            .send()
            .await
            .refused(422, "invalid", "2097152");
        let bomb = pack(&vec![b' '; 256 << 20]);
        assert!(bomb.len() < 1 << 20);
        post().header("content-encoding", coding).body(bomb).send().await.refused(422, "invalid", "2097152");
    }
    assert_eq!(world.tail("s").await, 2);
}

#[tokio::test]
async fn a_body_that_is_not_what_it_claims_is_refused() {
    let world = World::new().await;
    world.stream("s").await;
    let whole = gzip(&padded(100));
    let post = || world.post(&records("s")).header("content-type", "application/json");
    post()
        .header("content-encoding", "gzip")
        .body(whole[..whole.len() - 3].to_vec())
        .send()
        .await
        .refused(400, "bad_json", "gzip");
    post()
        .header("content-encoding", "zstd")
        .body(whole.clone())
        .send()
        .await
        .refused(400, "bad_json", "zstd");
    post().header("content-encoding", "br").body(whole.clone()).send().await.refused(
        400,
        "bad_header",
        "content-encoding",
    );
    post().header("content-encoding", "gzip, gzip").body(whole.clone()).send().await.refused(
        400,
        "bad_header",
        "content-encoding",
    );
    let proto = world.post(&records("s")).header("content-type", "application/protobuf");
    proto.header("content-encoding", "gzip").body("no").send().await.refused(400, "bad_proto", "gzip");
    assert_eq!(world.tail("s").await, 0);
}

#[tokio::test]
async fn odd_json_is_refused_by_its_place() {
    let world = World::new().await;
    world.stream("s").await;
    let post = |body: &str| {
        world.post(&records("s")).header("content-type", "application/json").body(body.to_owned())
    };
    for (body, part) in [
        ("", "body"),
        ("[]", "an object"),
        ("null", "an object"),
        ("\"\"", "an object"),
        ("{", "EOF"),
        ("{}", "`records`"),
        (r#"{"records":[{}]}x"#, "trailing"),
        (r#"{"records":null}"#, "records"),
        (r#"{"records":[null]}"#, "records[0]"),
        (r#"{"records":[{},{"headers":null}]}"#, "records[1].headers"),
        (r#"{"records":[{"headers":[["a"]]}]}"#, "records[0].headers[0]"),
        (r#"{"records":[{"headers":{"a":"b"}}]}"#, "records[0].headers"),
        (r#"{"records":[{"body":null}]}"#, "records[0].body"),
        (r#"{"records":[{"body":5}]}"#, "records[0].body"),
        (r#"{"records":[{"timestamp":-1}]}"#, "records[0].timestamp"),
        (r#"{"records":[{"timestamp":18446744073709551616}]}"#, "records[0].timestamp"),
        (r#"{"records":[{"timestamp":1.5}]}"#, "records[0].timestamp"),
        (r#"{"records":[{}],"match_seq_num":-1}"#, "match_seq_num"),
        (r#"{"records":[{}],"match_seq_num":"0"}"#, "match_seq_num"),
        (r#"{"records":[{}],"fencing_token":1}"#, "fencing_token"),
        (r#"{"records":[{}],"records":[{}]}"#, "records"),
        ("{\"records\":[{\"body\":\"\u{0}\"}]}", "records[0].body"),
        (r#"{"records":[{"body":"\ud800"}]}"#, "records[0].body"),
    ] {
        post(body).send().await.refused(400, "bad_json", part);
    }
    let not_utf8 = world.post(&records("s")).header("content-type", "application/json");
    not_utf8.body(b"{\"records\":[{\"body\":\"\xff\"}]}".to_vec()).send().await.refused(
        400,
        "bad_json",
        "records[0].body",
    );
    // Nesting without end: refused where a field is read, passed over where none is.
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    post(&format!(r#"{{"records":{nested}}}"#)).send().await.refused(400, "bad_json", "records[0]");
    post(&format!(r#"{{"x":{nested}}}"#)).send().await.refused(400, "bad_json", "`records`");
    for bad in ["aGk", "a-_=", "aGl=", "=", "a b="] {
        let call = world.post(&records("s")).header("s2-format", "base64");
        call.json(&json!({"records": [{"body": bad}]})).send().await.refused(
            422,
            "invalid",
            "record 0: the body is not base64",
        );
    }
    let call = world.post(&records("s")).header("s2-format", "base64");
    call.json(&json!({"records": [{"headers": [["?", ""]]}]})).send().await.refused(422, "invalid", "header");
    assert_eq!(world.tail("s").await, 0);
    // What is not known is not minded, and escapes are text.
    post(r#"{"records":[{"body":"\u00e9\ud83d\ude00\u0000","more":[{}]}],"match_seq_num":null,"fencing_token":null,"x":{}}"#).send().await.is(200);
    assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["é😀\0"]);
}

#[tokio::test]
async fn a_body_without_its_type_is_refused() {
    let world = World::new().await;
    world.stream("s").await;
    for (method, path) in
        [("POST", "/basins"), ("POST", "/streams"), ("PATCH", "/streams/s"), ("POST", "/streams/s/records")]
    {
        world.call(method, path).body("{}").send().await.refused(400, "bad_json", "content-type");
        let text = world.call(method, path).header("content-type", "text/plain").body("{}");
        text.send().await.refused(400, "bad_json", "`text/plain`");
    }
    let other = world.post("/streams").header("content-type", "application/vnd.x+json; charset=utf-8");
    other.body(r#"{"stream":"t"}"#).send().await.is(201);
    // The body of an ensure may be left out, but not be something else.
    world.put("/streams/u").send().await.is(201);
    world.put("/streams/v").header("content-type", "text/plain").send().await.is(201);
    world.put("/streams/w").header("content-type", "text/plain").body("{}").send().await.refused(
        400,
        "bad_json",
        "content-type",
    );
}

/// A POST of a large body that is refused by its head, over a network that takes its time: a client that writes
/// all before it reads must see why.
fn large(world: &World, path: &str, headers: &str) -> String {
    let mut stream = std::net::TcpStream::connect(&world.address).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {BODY_BYTES_MAX}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let quarter = vec![b'x'; BODY_BYTES_MAX / 4];
    for _ in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        stream.write_all(&quarter).expect("the server takes it all");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, not a reset");
    answer
}

#[tokio::test]
async fn a_refusal_before_the_body_reaches_a_client_that_sends_it_all() {
    let world = World::new().await;
    world.stream("s").await;
    let basin = format!("s2-basin: {}\r\n", world.basin);
    let json = "content-type: application/json\r\n";
    for (path, headers, status) in [
        ("/v1/streams/s/records", json.to_owned(), 400),
        ("/v1/streams/s/records", basin.clone(), 400),
        ("/v1/streams/s/records", format!("{basin}{json}s2-format: x\r\n"), 400),
        ("/v1/streams/s/records", format!("{basin}{json}content-encoding: br\r\n"), 400),
        ("/v1/streams/s/records", format!("{basin}content-type: s2s/proto\r\n"), 501),
        ("/v1/streams/%ff/records", format!("{basin}{json}"), 400),
        ("/v1/nowhere", json.to_owned(), 404),
        ("/v1/streams/s", format!("{basin}{json}"), 405),
        ("/health", String::new(), 405),
        ("/v1/streams/s/records", format!("{basin}{json}"), 400),
    ] {
        let answer = large(&world, path, &headers);
        assert_eq!(raw_status(&answer), status, "{path} {headers}: {answer}");
        assert!(answer.contains("\"message\""), "{answer}");
    }
}

#[tokio::test]
async fn an_early_refusal_ends_only_its_own_stream_of_http_2() {
    let two = World::new().await.over(crate::world::http_2());
    for _ in 0..20 {
        let call = two.post("/nowhere").body(vec![b'x'; BODY_BYTES_MAX]);
        call.send().await.refused(404, "not_found", "path");
        let call = two.post(&records("s")).header("s2-format", "x").json(&json!({"records": [{}]}));
        call.send().await.refused(400, "bad_header", "s2-format");
    }
    let many = (0..20).map(|_| two.post("/nowhere").body(vec![b'x'; BODY_BYTES_MAX]).send());
    for answer in futures::future::join_all(many).await {
        answer.refused(404, "not_found", "path");
    }
}

#[tokio::test]
async fn a_refusal_of_a_large_body_arrives_over_http_2() {
    let two = World::new().await.over(crate::world::http_2());
    two.stream("s").await;
    let large = vec![b' '; 40 * 1024 * 1024];
    for path in ["/v1/stream/large/s", "/ds/large/s"] {
        let call = two.root("PUT", path).header("content-type", "text/plain").body(large.clone());
        call.send().await.refused(413, "too_large", "4194304");
    }
    let call = two.post(&records("s")).header("content-type", "application/json").body(large.clone());
    call.send().await.refused(422, "invalid", "2097152");
    two.post("/nowhere").body(large).send().await.refused(404, "not_found", "path");
    two.get(&format!("{}/tail", records("s"))).send().await.is(200);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let world = World::new().await;
    let head = format!(
        "POST /v1/streams HTTP/1.1\r\nhost: x\r\ns2-basin: {}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 10\r\n\r\n{{",
        world.basin
    );
    let answer = raw(&world.address, head.as_bytes());
    assert_eq!(raw_status(&answer), 408, "{answer}");
    assert!(answer.contains("\"request_timeout\""), "{answer}");
}

#[tokio::test]
async fn a_connection_is_good_for_more_after_an_early_refusal() {
    let world = World::new().await;
    for coding in ["content-length: 300000", "transfer-encoding: chunked"] {
        let mut request = format!("POST /v1/nowhere HTTP/1.1\r\nhost: x\r\n{coding}\r\n\r\n").into_bytes();
        if coding.starts_with("transfer") {
            request.extend(b"3\r\nabc\r\n".repeat(1000));
            request.extend(b"0\r\n\r\n");
        } else {
            request.extend([b'x'; 300_000]);
        }
        request.extend(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = raw(&world.address, &request);
        assert_eq!(raw_status(&answer), 404, "{answer}");
        assert!(answer.ends_with("OK") && answer.contains("HTTP/1.1 200 OK"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_is_refused_without_its_body() {
    let world = World::new().await;
    let started = std::time::Instant::now();
    let head = |basin: &str| {
        format!(
            "POST /v1/streams/s/records HTTP/1.1\r\nhost: x\r\ns2-basin: {basin}\r\nconnection: close\r\n\
             content-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 2000000\r\n\r\n"
        )
    };
    let answer = raw(&world.address, head("No").as_bytes());
    assert_eq!(raw_status(&answer), 400, "{answer}");
    assert!(started.elapsed() < WITHIN / 4, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_request_cut_short_stores_nothing() {
    let world = World::new().await;
    world.stream("s").await;
    let body = r#"{"records":[{"body":"x"}]}"#;
    for sent in [0, 1, body.len() - 1] {
        let mut stream = std::net::TcpStream::connect(&world.address).unwrap();
        let head = format!(
            "POST /v1/streams/s/records HTTP/1.1\r\nhost: x\r\ns2-basin: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            world.basin,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body.as_bytes()[..sent]).unwrap();
    }
    // One more on each connection's heels: what came before it is through.
    world.append_bodies("s", &["whole"]).await;
    assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["whole"]);
}

#[tokio::test]
async fn what_is_not_http_is_not_answered_with_a_crash() {
    let world = World::new().await;
    for junk in [
        &b"\0\0\0\0\0\0\0\0\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/basins HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/basins HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"POST /v1/basins HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let answer = raw(&world.address, junk);
        let is_fine = answer.is_empty() || matches!(raw_status(&answer), 400 | 499);
        assert!(is_fine, "{junk:?}: {answer}");
    }
    // A head without an end is closed on, and one that is too long is refused.
    let long = format!("GET /v1/basins HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "x".repeat(100_000));
    let answer = raw(&world.address, long.as_bytes());
    assert!(answer.is_empty() || raw_status(&answer) == 431, "{answer}");
    world.root("GET", "/health").send().await.is(200);
}

/// Resident memory of a process, in MiB, and its peak.
fn memory(id: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

#[tokio::test]
async fn bodies_of_countless_tiny_parts_are_refused_without_unpacking_them_all() {
    let server = ServerOptions::on("memory:").start();
    let world = World::on(&server, "tiny-parts");
    world.create_basin(json!({})).await;
    world.stream("s").await;
    let (before, _) = memory(server.id());
    let repeated = |head: &str, part: &str, tail: &str| {
        let count = (BODY_BYTES_MAX - head.len() - tail.len()) / part.len() - 1;
        let mut body = head.to_owned();
        body.extend(std::iter::repeat_n(part, count));
        // A list ends without a comma.
        body.truncate(body.len() - usize::from(part.ends_with(',')));
        body + tail
    };
    let headers_proto = {
        let headers = b"\x12\x00".repeat(BODY_BYTES_MAX / 2 - 8);
        let mut body = vec![0x0a];
        prost::encoding::encode_varint(headers.len() as u64, &mut body);
        body.extend(headers);
        body
    };
    let (json, proto) = ("application/json", "application/protobuf");
    // Records beyond the limit cost nothing; a legal batch of tiny headers takes as much as these.
    let cases = [
        (json, repeated(r#"{"records":["#, "{},", "]}").into_bytes(), 64),
        (proto, b"\x0a\x00".repeat(BODY_BYTES_MAX / 2), 64),
        (json, repeated(r#"{"records":[{"headers":["#, r#"["",""],"#, "]}]}").into_bytes(), 256),
        (proto, headers_proto, 256),
    ];
    for (kind, body, more_mib_max) in &cases {
        let calls = (0..2).map(|_| {
            let call = world.post(&records("s")).header("content-type", kind);
            call.header("content-encoding", "zstd").body(zstd(body)).send()
        });
        for answer in futures::future::join_all(calls).await {
            let body: Value = answer.is(422).json();
            assert_eq!(body["code"], "invalid");
        }
        let (now, peak) = memory(server.id());
        println!("{kind}, {} bytes: {before} MiB before, {now} MiB after, at most {peak} MiB", body.len());
        assert!(peak < before + more_mib_max, "from {before} MiB to {peak} MiB");
    }
    assert_eq!(world.tail("s").await, 0);
}
