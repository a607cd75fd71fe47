//! The Durable Streams door: what the public suite does not ask for. Buckets and names, conditions, sizes, headers,
//! live reads over several servers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::support::server::ServerOptions;
use crate::world::{Answer, Call, Event, WITHIN, World, unique};

const CLOSED: &str = "stream-closed";
const NEXT: &str = "stream-next-offset";

/// The shared server and a bucket of the test's own.
async fn bucket() -> (World, String) {
    let (world, name) = (World::bare(), unique("bucket"));
    world.root("PUT", &format!("/ds/{name}")).send().await.is(201);
    (world, format!("/ds/{name}"))
}

impl World {
    async fn make(&self, path: &str) -> Answer {
        self.root("PUT", path).header("content-type", "text/plain").send().await.is(201)
    }

    fn add(&self, path: &str, body: &str) -> Call {
        self.root("POST", path).header("content-type", "text/plain").body(body.to_owned())
    }
}

fn by(call: Call, epoch: u64, seq: u64) -> Call {
    call.header("producer-id", "p")
        .header("producer-epoch", &epoch.to_string())
        .header("producer-seq", &seq.to_string())
}

#[tokio::test]
async fn buckets_are_made_listed_and_deleted_while_they_are_empty() {
    let (world, bucket) = bucket().await;
    world.root("PUT", &bucket).send().await.refused(409, "bucket_exists", "already exists");
    for path in ["/ds/abc", "/ds/UPPER", "/ds/a.b.c"] {
        world.root("PUT", path).send().await.refused(400, "bad_request", "bucket name");
    }
    let absent = format!("/ds/{}", unique("absent"));
    for (method, path) in [("GET", &absent), ("DELETE", &absent), ("GET", &format!("{absent}/streams"))] {
        world.root(method, path).send().await.refused(404, "not_found", "does not exist");
    }
    let put = world.root("PUT", &format!("{absent}/s")).header("content-type", "text/plain");
    put.send().await.refused(404, "not_found", "bucket");

    for name in ["b", "a%201", "%C3%A9"] {
        world.make(&format!("{bucket}/{name}")).await;
    }
    world.add(&format!("{bucket}/b"), "x").header(CLOSED, "true").send().await.is(204);
    let info = world.root("GET", &bucket).send().await.is(200).json();
    assert_eq!((&info["bucket_id"], &info["streams"]), (&json!(&bucket[4..]), &json!(3)));
    let page = world.root("GET", &format!("{bucket}/streams?limit=2")).send().await.is(200).json();
    assert_eq!(page["streams"][0]["stream_id"], "a 1");
    assert_eq!(page["streams"][1]["stream_id"], "b");
    assert_eq!((&page["has_more"], &page["next_cursor"]), (&json!(true), &json!("b")));
    let b = &page["streams"][1];
    assert_eq!((&b["status"], &b["tail_offset"]), (&json!("closed"), &json!(1)));
    assert_eq!((&b["content_type"], &b["next_offset"]), (&json!("text/plain"), &json!("0000000000000001")));
    let page = world.root("GET", &format!("{bucket}/streams?after=b")).send().await.is(200).json();
    assert_eq!((page["stream_count"].as_u64(), &page["has_more"]), (Some(1), &json!(false)));
    for bad in ["limit=0", "limit=1001", "limit=x"] {
        world.root("GET", &format!("{bucket}/streams?{bad}")).send().await.refused(
            400,
            "bad_request",
            "limit",
        );
    }

    world.root("DELETE", &bucket).send().await.refused(409, "bucket_not_empty", "holds streams");
    for name in ["b", "a%201", "%C3%A9"] {
        world.root("DELETE", &format!("{bucket}/{name}")).send().await.is(204);
    }
    world.root("DELETE", &bucket).send().await.is(204);
    world.root("GET", &bucket).send().await.refused(404, "not_found", "does not exist");
    world.root("PUT", &bucket).send().await.is(201);
}

#[tokio::test]
async fn names_are_held_to_their_rules_in_a_bucket_and_free_elsewhere() {
    let (world, bucket) = bucket().await;
    let long = "x".repeat(122 - bucket.len() + 4);
    for bad in ["a%2Fb", "a..b", "streams", "a%00b", "a%zz", &long] {
        let answer = world.root("PUT", &format!("{bucket}/{bad}")).header("content-type", "a/b").send().await;
        assert!(matches!(answer.status, 400 | 405), "{bad}: {} {}", answer.status, answer.text());
    }
    let base = unique("names");
    for good in ["a/../b", "a//b", "x/streams", ".updates", &"x".repeat(400)] {
        let path = format!("/v1/stream/{base}/{}", crate::world::encode(good));
        world.make(&path).await;
        world.add(&path, "x").send().await.is(204);
        assert_eq!(world.root("GET", &path).send().await.is(200).text(), "x", "{good}");
    }
    // One stream under both mounts.
    world.make(&format!("/v1/stream{}/shared", &bucket[3..])).await;
    world.add(&format!("{bucket}/shared"), "both").send().await.is(204);
    let seen = world.root("GET", &format!("/v1/stream{}/shared", &bucket[3..])).send().await.is(200);
    assert_eq!(seen.text(), "both");
    let reserved = world.root("GET", "/v1/stream/__ds/jwks.json").send().await;
    reserved.refused(501, "not_implemented", "subscriptions");
}

#[tokio::test]
async fn the_streams_of_basins_and_of_buckets_are_apart() {
    let world = World::new().await;
    let bucket = format!("/ds/{}", world.basin);
    world.root("PUT", &bucket).send().await.is(201);
    world.stream("same").await;
    world.append_bodies("same", &["of a basin"]).await;
    world.root("GET", &format!("{bucket}/same")).send().await.refused(404, "not_found", "same");
    world.make(&format!("{bucket}/same")).await;
    world.add(&format!("{bucket}/same"), "of a bucket").send().await.is(204);
    world.root("DELETE", &format!("{bucket}/same")).send().await.is(204);
    assert_eq!(world.read("same", "seq_num=0").await.bodies(), ["of a basin"]);
    assert_eq!(world.root("GET", &bucket).send().await.is(200).json()["streams"], 0);
}

#[tokio::test]
async fn an_entity_tag_names_one_state_of_one_life() {
    let (world, bucket) = bucket().await;
    let path = format!("{bucket}/s");
    world.root("PUT", &path).header("if-match", "*").send().await.refused(412, "other_state", "if-match");
    let created = world.root("PUT", &path).header("content-type", "text/plain").header("if-none-match", "*");
    let created = created.send().await.is(201);
    let first = created.header("etag");
    assert_eq!(created.header("location"), format!("{}{path}", world.url));
    let head = world.root("HEAD", &path).send().await.is(200);
    assert_eq!((head.header("etag"), head.header("cache-control")), (first.clone(), "no-store".to_owned()));
    world.root("HEAD", &path).header("if-none-match", &first).send().await.is(304);

    let appended = world.add(&path, "a").header("if-match", &first).send().await.is(204);
    let second = appended.header("etag");
    assert_ne!(first, second);
    world.add(&path, "b").header("if-match", &first).send().await.refused(412, "other_state", "state");
    world.add(&path, "b").header("if-match", &format!("{first}, {second}")).send().await.is(204);
    world.root("HEAD", &path).header("if-none-match", &first).send().await.is(200);
    world
        .root("PUT", &path)
        .header("content-type", "text/plain")
        .header("if-none-match", "*")
        .send()
        .await
        .is(412);

    // Closing is another state of the same place.
    let open = world.root("HEAD", &path).send().await.header("etag");
    let closed =
        world.root("POST", &path).header(CLOSED, "true").header("if-match", &open).send().await.is(204);
    assert_ne!(closed.header("etag"), open);
    assert_eq!(closed.header(NEXT), "0000000000000002");

    // And so is another life.
    world.root("DELETE", &path).send().await.is(204);
    world.make(&path).await;
    world.add(&path, "a").header("if-match", &first).send().await.refused(412, "other_state", "state");
    assert_eq!(world.root("GET", &path).send().await.is(200).text(), "");
}

#[tokio::test]
async fn a_producer_is_told_where_it_stands() {
    let (world, bucket) = bucket().await;
    let path = format!("{bucket}/s");
    world.make(&path).await;
    for seq in 0..8 {
        by(world.add(&path, "x"), 1, seq).send().await.is(200);
    }
    let repeat = by(world.add(&path, "x"), 1, 7).send().await.is(204);
    assert_eq!((repeat.header("producer-seq"), repeat.header(NEXT)), ("7".into(), "0000000000000008".into()));
    let gap = by(world.add(&path, "x"), 1, 9).send().await;
    assert_eq!(
        (gap.header("producer-expected-seq"), gap.header("producer-received-seq")),
        ("8".into(), "9".into())
    );
    gap.refused(409, "gap", "next append is 8, got 9");
    let stale = by(world.add(&path, "x"), 0, 0).send().await;
    assert_eq!(stale.header("producer-epoch"), "1");
    stale.refused(403, "stale_epoch", "epoch is 1");
    by(world.add(&path, "x"), 2, 1).send().await.refused(400, "bad_epoch", "must begin with");
    // Any other conflict is told so that no client waits for what is not missing.
    let other = by(world.root("POST", &path).header("content-type", "a/b").body("x"), 1, 8).send().await;
    assert_eq!(
        (other.header("producer-expected-seq"), other.header("producer-received-seq")),
        ("8".into(), "8".into())
    );
    other.refused(409, "content_type", "text/plain");
    by(world.root("POST", &path).header(CLOSED, "true"), 1, 8).send().await.is(204);
    let closed = by(world.add(&path, "x"), 1, 9).send().await;
    assert_eq!((closed.header(CLOSED), closed.header("producer-expected-seq")), ("true".into(), "9".into()));
    closed.refused(409, "closed", "closed");
}

#[tokio::test]
async fn an_append_holds_four_mebibytes_and_no_more() {
    let (world, bucket) = bucket().await;
    let path = format!("{bucket}/s");
    world.make(&path).await;
    let most = "x".repeat(4 * 1024 * 1024);
    world.add(&path, &most).send().await.is(204);
    world.add(&path, &(most.clone() + "x")).send().await.refused(413, "too_large", "4194304");
    world.add(&path, "y").send().await.is(204);
    // A message is answered whole, however large; the next answer begins after it.
    let first = world.root("GET", &path).send().await.is(200);
    assert_eq!((first.body.len(), first.header("stream-up-to-date")), (most.len(), String::new()));
    assert!(first.header("cache-control").starts_with("public"), "{}", first.header("cache-control"));
    let next = world.root("GET", &format!("{path}?offset={}", first.header(NEXT))).send().await.is(200);
    assert_eq!((next.text(), next.header("stream-up-to-date")), ("y".into(), "true".into()));
    assert_eq!(next.header("cache-control"), "no-cache");
}

#[tokio::test]
async fn a_read_may_ask_for_less_and_never_for_what_is_not_there() {
    let (world, bucket) = bucket().await;
    let path = format!("{bucket}/s");
    world.make(&path).await;
    for body in ["aaaa", "bbbb", "cccc"] {
        world.add(&path, body).send().await.is(204);
    }
    for (query, text, next) in [
        ("max-bytes=1", "aaaa", 1),
        ("max-bytes=30&offset=-1", "aaaabbbb", 2),
        ("max_bytes=1&offset=0000000000000001", "bbbb", 2),
        ("max-bytes=100", "aaaabbbbcccc", 3),
    ] {
        let answer = world.root("GET", &format!("{path}?{query}")).send().await.is(200);
        assert_eq!(
            (answer.text(), answer.header(NEXT)),
            (text.to_owned(), format!("{next:016x}")),
            "{query}"
        );
    }
    // What reached the tail once is another answer once it does not: a cache would call it up to date for ever.
    let last = format!("{path}?offset=0000000000000002&max-bytes=1");
    let known = world.root("GET", &last).send().await.is(200);
    assert_eq!(known.header("stream-up-to-date"), "true");
    let again = || world.root("GET", &last).header("if-none-match", &known.header("etag")).send();
    again().await.is(304);
    world.add(&path, "dddd").send().await.is(204);
    let answer = again().await.is(200);
    assert_eq!((answer.text(), answer.header("stream-up-to-date")), ("cccc".to_owned(), String::new()));
    let beyond = world.root("GET", &format!("{path}?offset=0000000000000005")).send().await;
    beyond.refused(400, "beyond_tail", "0000000000000004");
    for bad in ["offset=4", "offset=0x1", "live=yes", "live=sse", "live=long-poll", "offset=now&offset=now"] {
        world.root("GET", &format!("{path}?{bad}")).send().await.is(400);
    }
}

#[tokio::test]
async fn every_answer_may_be_read_by_any_page() {
    let (world, bucket) = bucket().await;
    world.make(&format!("{bucket}/s")).await;
    for (method, path, status) in [
        ("GET", format!("{bucket}/s"), 200),
        ("GET", format!("{bucket}/absent"), 404),
        ("PATCH", format!("{bucket}/s"), 405),
        ("GET", "/ds/x".to_owned(), 400),
        ("POST", format!("{bucket}/s"), 400),
        ("GET", "/v1/stream/absent".to_owned(), 404),
        ("GET", "/v1/stream".to_owned(), 404),
        ("GET", "/ds".to_owned(), 404),
    ] {
        let answer =
            world.root(method, &path).header("origin", "https://page.example").send().await.is(status);
        let case = format!("{method} {path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{case}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "cross-origin", "{case}");
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{case}");
        let exposed = answer.header("access-control-expose-headers");
        for name in [NEXT, "stream-cursor", "producer-expected-seq", "etag", "location", "retry-after"] {
            assert!(exposed.contains(name), "{case}: {exposed}");
        }
    }
    let asked = "authorization, producer-id, stream-forked-from, if-match, last-event-id";
    let preflight = world
        .root("OPTIONS", &format!("{bucket}/s"))
        .header("origin", "https://page.example")
        .header("access-control-request-method", "PUT")
        .header("access-control-request-headers", asked);
    let preflight = preflight.send().await.is(200);
    assert_eq!(preflight.header("access-control-allow-headers"), asked);
    assert_eq!(preflight.header("cross-origin-resource-policy"), "cross-origin");
}

#[tokio::test]
async fn events_go_on_where_a_browser_lost_its_connection() {
    let (world, bucket) = bucket().await;
    let path = format!("{bucket}/s");
    world.make(&path).await;
    world.add(&path, "a").send().await.is(204);
    let mut events = world.root("GET", &format!("{path}?offset=-1&live=sse")).events().await;
    let data = events.next().await.expect("what is there");
    assert_eq!((data.name.as_str(), data.data.as_str()), ("data", "a"));
    let control = events.next().await.expect("where it goes on");
    assert_eq!((control.name.as_str(), control.id.as_str()), ("control", "0000000000000001"));
    // Whoever has seen the one has seen the other.
    assert_eq!(data.id, control.id);
    assert_eq!(
        (&control.json()["upToDate"], control.json()["streamCursor"].is_string()),
        (&json!(true), true)
    );
    drop(events);
    world.add(&path, "b").send().await.is(204);
    // The address is the first one again.
    let again = world.root("GET", &format!("{path}?offset=-1&live=sse")).header("last-event-id", &control.id);
    let mut events = again.events().await;
    assert_eq!(events.next().await.expect("what is new").data, "b");
    events.next().await.expect("where it goes on");
    // What is no id of ours does not begin anew.
    for id in ["abc", "18446744073709551615"] {
        let unknown = world.root("GET", &format!("{path}?offset=-1&live=sse")).header("last-event-id", id);
        unknown.send().await.refused(400, "bad_request", "last-event-id");
    }
    world.add(&path, " c").header(CLOSED, "true").send().await.is(204);
    let rest = events.rest().await;
    assert_eq!(rest[0].data, " c");
    let end = rest.last().expect("the end").json();
    assert_eq!((&end["streamClosed"], end.get("streamCursor")), (&json!(true), None));
    assert_eq!(rest.len(), 2, "{rest:?}");
}

#[tokio::test]
async fn events_are_told_once_that_a_stream_is_closed() {
    let (world, bucket) = bucket().await;
    let path = format!("{bucket}/s");
    world.make(&path).await;
    world.add(&path, "a").send().await.is(204);
    let read = format!("{path}?offset=-1&live=sse");
    let mut open = world.root("GET", &read).events().await;
    open.next().await.expect("what is there");
    let before = open.next().await.expect("where it goes on").id;
    drop(open);
    world.root("POST", &path).header(CLOSED, "true").send().await.is(204);
    // Who has seen all messages has not seen that there are no more.
    let mut told = world.root("GET", &read).header("last-event-id", &before).events().await.rest().await;
    assert_eq!(told.len(), 1, "{told:?}");
    let end = told.pop().expect("the end");
    assert_eq!((end.name.as_str(), &end.json()["streamClosed"]), ("control", &json!(true)));
    assert_ne!(end.id, before);
    // A browser takes a 204 for the end of it.
    let again = world.root("GET", &read).header("last-event-id", &end.id).send().await.is(204);
    assert_eq!((again.header(NEXT), again.header(CLOSED)), (before.clone(), "true".to_owned()));
    // Who asks for the same without having been there is told.
    let anew = world.root("GET", &format!("{path}?offset={before}&live=sse")).events().await.rest().await;
    assert_eq!(anew.len(), 1, "{anew:?}");
}

#[tokio::test]
async fn followers_on_another_server_see_every_message_once_and_the_last_before_the_end() {
    const MESSAGES: usize = 200;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers = [(); 2].map(|()| ServerOptions::on_folder(folder.path()).start());
    let [writer, reader] = servers.each_ref().map(|server| World::on(server, "unused"));
    let path = "/v1/stream/followed";
    let put = writer.root("PUT", path).header("content-type", "application/json");
    put.send().await.is(201);
    let follow = async |delay: u64| {
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let (mut seen, mut offset) = (Vec::new(), "-1".to_owned());
        loop {
            let url = format!("{path}?offset={offset}&live=sse");
            let mut events = reader.root("GET", &url).events().await;
            let mut last = String::new();
            while let Some(Event { name, data, .. }) = events.next_within(WITHIN).await {
                match name.as_str() {
                    "data" => {
                        let batch: Vec<u64> = serde_json::from_str(&data).expect("numbers");
                        assert!(!batch.is_empty());
                        seen.extend(batch);
                    }
                    "control" => {
                        let control: BTreeMap<String, serde_json::Value> =
                            serde_json::from_str(&data).expect("JSON");
                        control["streamNextOffset"].as_str().expect("text").clone_into(&mut offset);
                        if control.contains_key("streamClosed") {
                            return seen;
                        }
                    }
                    _ => {}
                }
                last = name;
            }
            assert_ne!(last, "data", "a window ends with a control");
        }
    };
    let write = async {
        for n in 0..MESSAGES {
            let call =
                writer.root("POST", path).header("content-type", "application/json").body(n.to_string());
            let call = if n + 1 == MESSAGES { call.header(CLOSED, "true") } else { call };
            call.send().await.is(204);
        }
    };
    let followers = (0..20).map(|n| follow(n * 40));
    let ((), all) = tokio::join!(write, futures::future::join_all(followers));
    for seen in all {
        assert_eq!(seen, (0..MESSAGES as u64).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_snapshot_and_what_follows_it_come_in_one_answer() {
    let (world, bucket) = bucket().await;
    let path = format!("{bucket}/s");
    world.make(&path).await;
    for body in ["a", "b", "c"] {
        world.add(&path, body).send().await.is(204);
    }
    let bootstrap = format!("{path}/bootstrap");
    let empty = world.root("GET", &bootstrap).send().await.is(200);
    assert_eq!(empty.header("stream-snapshot-offset"), "-1");
    let boundary = "leat-part-0000000000000000";
    assert_eq!(empty.header("content-type"), format!("multipart/mixed; boundary={boundary}"));
    let part = |content_type: &str, body: &str| {
        format!("--{boundary}\r\ncontent-type: {content_type}\r\n\r\n{body}\r\n")
    };
    let expected =
        part("application/octet-stream", "") + &["a", "b", "c"].map(|b| part("text/plain", b)).concat();
    assert_eq!(empty.text(), format!("{expected}--{boundary}--\r\n"));
    world.root("GET", &format!("{path}/snapshot")).send().await.refused(404, "not_found", "no snapshot");

    let at = |at: u64| format!("{path}/snapshot/{at:016x}");
    let put = |n: u64| world.root("PUT", &at(n)).header("content-type", "application/json").body("{\"n\":2}");
    put(9).send().await.refused(409, "beyond_tail", "0000000000000003");
    world.root("PUT", &format!("{path}/snapshot/2")).body("x").send().await.refused(
        400,
        "bad_request",
        "offset",
    );
    let stands = put(2).send().await.is(204);
    assert_eq!(
        (stands.header(NEXT), stands.header("stream-snapshot-offset")),
        ("0000000000000003".into(), "0000000000000002".into())
    );
    put(1).send().await.refused(409, "older_snapshot", "0000000000000002");
    // A fork begins there, without it: what there is comes in one answer too.
    let fork = format!("{bucket}/fork");
    world.root("PUT", &fork).header("stream-forked-from", &path).send().await.is(201);
    let of_fork = world.root("GET", &format!("{fork}/bootstrap")).send().await.is(200);
    let expected = part("application/octet-stream", "") + &part("text/plain", "c");
    assert_eq!(of_fork.text(), format!("{expected}--{boundary}--\r\n"));
    assert_eq!(of_fork.header("stream-snapshot-offset"), "-1");
    for gone in ["", "?offset=-1", "?offset=0000000000000001", "?offset=-1&live=sse"] {
        world.root("GET", &format!("{path}{gone}")).send().await.refused(410, "trimmed", "0000000000000002");
    }
    let kept = world.root("GET", &format!("{path}?offset=0000000000000002")).send().await.is(200);
    assert_eq!(kept.text(), "c");
    let head = world.root("HEAD", &path).send().await.is(200);
    assert_eq!(head.header("stream-snapshot-offset"), "0000000000000002");
    // The way there is a redirect, which this client follows.
    let found = world.root("GET", &format!("{path}/snapshot")).send().await.is(200);
    assert_eq!((found.text(), found.header("content-type")), ("{\"n\":2}".into(), "application/json".into()));
    world.root("GET", &at(1)).send().await.refused(404, "not_found", "no snapshot");
    world.root("DELETE", &at(2)).send().await.refused(409, "current_snapshot", "newer");
    world.root("DELETE", &at(1)).send().await.refused(404, "not_found", "no snapshot");
    let whole = world.root("GET", &bootstrap).send().await.is(200);
    let expected = part("application/json", "{\"n\":2}") + &part("text/plain", "c");
    assert_eq!(whole.text(), format!("{expected}--{boundary}--\r\n"));
    assert_eq!(
        (whole.header(NEXT), whole.header("stream-up-to-date")),
        ("0000000000000003".into(), "true".into())
    );
    world.root("GET", &format!("{bootstrap}?live=sse")).send().await.refused(400, "bad_request", "live");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_over_two_servers_of_which_one_is_killed_write_everything_once() {
    const MESSAGES: u64 = 60;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let patient = ServerOptions::on_folder(folder.path()).flag("--append-timeout-ms", "30000");
    let (mut dying, staying) = (patient.start(), patient.start());
    let [first, second] = [&dying, &staying].map(|server| World::on(server, "unused"));
    let path = "/v1/stream/produced";
    first.root("PUT", path).header("content-type", "application/json").send().await.is(201);
    // Everyone sends everything; whoever loses a server goes on with the other.
    let produce = async |producer: &str, worlds: [&World; 2]| {
        let mut seq = 0;
        let mut at = 0;
        while seq < MESSAGES {
            let call = worlds[at].root("POST", path).header("content-type", "application/json");
            let call = call.header("producer-id", producer).header("producer-epoch", "0");
            let body = json!([[producer, seq], [producer, seq, "more"]]).to_string();
            match call.header("producer-seq", &seq.to_string()).body(body).try_send().await {
                Ok(answer) if answer.status == 200 || answer.status == 204 => {
                    seq = answer.header("producer-seq").parse::<u64>().expect("a number") + 1;
                }
                Ok(answer) if matches!(answer.status, 429 | 500 | 503) => {}
                Ok(answer) => panic!("{} {}", answer.status, answer.text()),
                Err(_) => at = 1 - at,
            }
        }
    };
    let kill = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        tokio::task::block_in_place(|| dying.kill_9());
    };
    let (f, s) = (&first, &second);
    tokio::join!(
        produce("p", [f, s]),
        produce("p", [s, f]),
        produce("q", [f, s]),
        produce("q", [s, f]),
        kill
    );
    let mut all: Vec<serde_json::Value> = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let page = second.root("GET", &format!("{path}?offset={offset}")).send().await.is(200);
        all.extend(serde_json::from_slice::<Vec<_>>(&page.body).expect("JSON"));
        offset = page.header(NEXT);
        if page.header("stream-up-to-date") == "true" {
            break;
        }
    }
    for producer in ["p", "q"] {
        let own: Vec<_> = all.iter().filter(|message| message[0] == producer).cloned().collect();
        let expected: Vec<_> =
            (0..MESSAGES).flat_map(|seq| [json!([producer, seq]), json!([producer, seq, "more"])]).collect();
        assert_eq!(own, expected);
    }
    // No append was torn by another.
    assert!(all.chunks(2).all(|pair| pair[0][1] == pair[1][1] && pair[0][0] == pair[1][0]));
}
