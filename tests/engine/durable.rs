//! Durable Streams: one append is one commit, whatever dies or races; lifetimes, forks, buckets; and what they cost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leat::service::durable::{
    Buckets, Creation, DurableRef, Error, Expected, ForkOf, Outcome, Post, Posted, ReadFrom, StreamSnapshot,
};
use leat::store::Operation;
use leat::types::ledger::{ContentType, Lifetime, Producer, Refusal, Then};
use leat::types::name::BucketName;
use leat::types::stream::{ListRequest, Provision};

use crate::faulty::Fault;
use crate::world::{Process, World, impatient, name};

pub(crate) fn at(stream: &str) -> DurableRef {
    let bucket = BucketName::try_from("bucket").expect("legal");
    DurableRef { bucket, name: name(stream), buckets: Buckets::AreMade }
}

pub(crate) fn text() -> ContentType {
    ContentType::new("text/plain").expect("legal")
}

pub(crate) fn new(body: &str) -> Creation {
    Creation {
        content_type: Some(text()),
        body: Bytes::copy_from_slice(body.as_bytes()),
        ..Creation::default()
    }
}

fn lasting(lifetime: Lifetime) -> Creation {
    Creation { lifetime: Some(lifetime), ..new("") }
}

pub(crate) fn fork_of(source: &str, at_seq: Option<u64>) -> Creation {
    Creation { fork: Some(ForkOf { source: at(source), at: at_seq, beyond: 0 }), ..Creation::default() }
}

fn by(id: &str, seq: u64) -> Option<Producer> {
    Some(Producer::new(id, 0, seq).expect("legal"))
}

pub(crate) fn post(body: &[u8]) -> Post {
    Post { content_type: Some(text()), body: Bytes::copy_from_slice(body), ..Post::default() }
}

impl Process {
    pub(crate) async fn create(&self, stream: &str, creation: &Creation) -> Result<Provision, Error> {
        Ok(self.service.create_durable(&at(stream), creation).await?.1)
    }

    async fn post(&self, stream: &str, post: Post) -> Result<Posted, Error> {
        self.service.post(&at(stream), post).await
    }

    pub(crate) async fn text(&self, stream: &str) -> Result<String, Error> {
        self.text_from(stream, ReadFrom::Start).await
    }

    pub(crate) async fn text_from(&self, stream: &str, from: ReadFrom) -> Result<String, Error> {
        let mut reader = self.service.durable_reader(&at(stream), from).await?;
        let mut all = Vec::new();
        while !reader.is_at_tail() {
            for message in reader.messages(1024 * 1024).await? {
                all.extend_from_slice(&message.body);
            }
        }
        Ok(String::from_utf8(all).expect("text"))
    }
}

pub(crate) fn is_gone(outcome: &Result<impl Sized, Error>) -> bool {
    matches!(outcome, Err(Error::StreamNotFound(_)))
}

#[tokio::test]
async fn a_warm_append_with_everything_is_one_conditional_put() {
    let process = World::new().process();
    process.create("s", &new("a")).await.expect("created");
    process.post("s", Post { producer: by("p", 0), ..post(b"b") }).await.expect("appended");
    let before = process.faults.log().len();
    let closing = Post { producer: by("p", 1), then: Then::Close, ..post(b"c") };
    let posted = process.post("s", closing.clone()).await.expect("appended");
    let log = process.faults.log().split_off(before);
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].0 == Operation::Replace && log[0].1.starts_with("manifest/"), "{log:?}");
    assert!(posted.tag.is_closed && posted.tag.tail == 3 && posted.outcome == Outcome::Appended);
    // All of it is there: another process sees the text, the end, and the producer.
    let other = World { store: Arc::new(process.faults.clone()), ..World::new() }.process();
    assert_eq!(other.text("s").await.expect("readable"), "abc");
    let again = other.post("s", closing).await.expect("a repeat");
    assert_eq!(again.outcome, Outcome::Duplicate { epoch: 0, seq: 1 });
    let late = other.post("s", post(b"d")).await;
    assert!(matches!(&late, Err(Error::Refused(r)) if r.why == Refusal::Closed && r.is_closed), "{late:?}");
}

/// Runs a call in a process that dies at its request after `skip` others; whether it came to its end before.
async fn dies_in<T>(process: &Process, skip: usize, fault: Fault, call: impl Future<Output = T>) -> bool {
    process.faults.die_after(skip, fault);
    tokio::time::timeout(Duration::from_millis(30), call).await.is_ok()
}

#[tokio::test]
async fn a_crash_at_any_request_of_an_append_and_the_repeat_leave_one_copy() {
    // Attempts that were cut off: a cold append asks for bucket and manifest, and writes one object or two.
    let mut longest = 0;
    for fault in [Fault::Hang, Fault::DropAfterApply, Fault::Unavailable] {
        for large in [false, true] {
            for skip in 0..8 {
                let world = World { options: impatient(), ..World::new() };
                let (dying, next) = (world.process(), world.process());
                dying.create("s", &new("a")).await.expect("created");
                dying.post("s", Post { producer: by("p", 0), ..post(b"b") }).await.expect("appended");
                let body = vec![b'c'; if large { 100_000 } else { 1 }];
                let closing = Post { producer: by("p", 1), then: Then::Close, ..post(&body) };
                // It has forgotten everything, so there is more for it to ask.
                let dying = world.process();
                let ended = dies_in(&dying, skip, fault, dying.post("s", closing.clone())).await;
                longest += usize::from(!ended);
                let repeat = next.post("s", closing).await;
                let case = format!("{fault:?} after {skip}, large: {large}: {repeat:?}");
                let repeat = repeat.expect(&case);
                assert!(repeat.tag.is_closed && repeat.tag.tail == 3, "{case}");
                let expected = format!("ab{}", String::from_utf8_lossy(&body));
                assert_eq!(next.text("s").await.expect("readable"), expected, "{case}");
            }
        }
    }
    assert!(longest >= 2 * (3 + 4), "only {longest} were cut off");
}

#[tokio::test]
async fn a_crash_at_any_request_of_a_creation_or_a_fork_and_the_repeat_leave_one_stream() {
    let mut cut_off = 0;
    // In the creating commit, appended, copied by the store.
    let sizes = [1, 100_000, 300_000];
    for (size, skip) in (0..48).flat_map(|skip| sizes.map(|size| (size, skip))) {
        // Abandoned parts make room after twice this.
        let mut options = impatient();
        options.write_timeout = Duration::from_millis(150);
        let world = World { options, ..World::new() };
        let (dying, next) = (world.process(), world.process());
        dying.create("source", &new("a")).await.expect("created");
        let body = vec![b'b'; size];
        dying.post("source", post(&body)).await.expect("appended");
        let fault = if skip % 2 == 0 { Fault::Hang } else { Fault::DropAfterApply };
        let creation = fork_of("source", None);
        cut_off += usize::from(!dies_in(&dying, skip / 2, fault, dying.create("fork", &creation)).await);
        let mut made = next.create("fork", &fork_of("source", None)).await;
        for _ in 0..10 {
            if made.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            made = next.create("fork", &fork_of("source", None)).await;
        }
        made.unwrap_or_else(|error| panic!("{size} bytes, {skip}: {error}"));
        assert_eq!(next.text("fork").await.expect("there").len(), body.len() + 1, "{skip}");
        // No mark of an attempt that died keeps the source in mind for ever.
        next.service.delete_durable(&at("fork")).await.expect("deleted");
        next.service.delete_durable(&at("source")).await.expect("deleted");
        assert!(is_gone(&next.text("source").await), "{size} bytes, {skip}");
    }
    assert!(cut_off >= 50, "only {cut_off} were cut off");
}

#[tokio::test]
async fn a_producer_over_two_processes_gets_every_append_in_once_and_in_order() {
    let world = World::new();
    let (a, b) = (world.process(), world.process());
    a.create("s", &new("")).await.expect("created");
    let produce = async |process: &Process| {
        let mut seq = 0;
        while seq < 40 {
            let body = format!("{seq},");
            match process.post("s", Post { producer: by("p", seq), ..post(body.as_bytes()) }).await {
                Ok(Posted { outcome: Outcome::Duplicate { seq: last, .. }, .. }) => seq = last + 1,
                Ok(_) => seq += 1,
                Err(Error::Other(leat::service::Error::RateLimited(_))) => {}
                Err(error) => panic!("{seq}: {error}"),
            }
        }
    };
    tokio::join!(produce(&a), produce(&b), produce(&a), produce(&b));
    let expected: String = (0..40).map(|seq| format!("{seq},")).collect();
    assert_eq!(a.text("s").await.expect("readable"), expected);
    assert_eq!(b.text("s").await.expect("readable"), expected);
}

#[tokio::test]
async fn an_expected_state_has_one_winner_over_two_processes() {
    let world = World::new();
    let (a, b) = (world.process(), world.process());
    a.create("s", &new("")).await.expect("created");
    let tag = a.service.durable_status(&at("s")).await.expect("there").tag();
    let on_tag = |body: &[u8]| Post { expected: Some(vec![tag.clone()]), ..post(body) };
    let (one, two) = tokio::join!(a.post("s", on_tag(b"a")), b.post("s", on_tag(b"b")));
    let lost = |outcome: &Result<Posted, Error>| matches!(outcome, Err(Error::OtherState));
    assert!(one.is_ok() != two.is_ok() && (lost(&one) || lost(&two)), "{one:?} {two:?}");
    assert_eq!(a.service.durable_status(&at("s")).await.expect("there").tail, 1);
    // A state of an earlier life is none of this one.
    let won = one.or(two).expect("one of them").tag;
    a.service.delete_durable(&at("s")).await.expect("deleted");
    a.create("s", &new("x")).await.expect("created again");
    let stale = b.post("s", Post { expected: Some(vec![won]), ..post(b"c") }).await;
    assert!(matches!(stale, Err(Error::OtherState)), "{stale:?}");
}

#[tokio::test]
async fn a_state_of_another_life_is_not_meant_because_this_life_is_named_too() {
    let process = World::new().process();
    process.create("s", &new("a")).await.expect("created");
    process.post("s", post(b"b")).await.expect("appended");
    let former = process.service.durable_status(&at("s")).await.expect("there").tag();
    process.service.delete_durable(&at("s")).await.expect("deleted");
    process.create("s", &new("a")).await.expect("created again");
    let begun = process.service.durable_status(&at("s")).await.expect("there").tag();
    process.post("s", post(b"b")).await.expect("appended");
    // One is of this life and over, the other is like the present one and of another life.
    let on = |tags: Vec<_>| Post { expected: Some(tags), ..post(b"c") };
    let refused = process.post("s", on(vec![begun.clone(), former.clone()])).await;
    assert!(matches!(refused, Err(Error::OtherState)), "{refused:?}");
    let now = process.service.durable_status(&at("s")).await.expect("there").tag();
    assert_eq!(process.post("s", on(vec![former, begun, now])).await.expect("appended").tag.tail, 3);
}

#[tokio::test]
async fn the_state_after_an_append_is_of_the_life_it_was_made_in() {
    let world = World::new();
    let (a, b) = (world.process(), world.process());
    a.create("s", &new("")).await.expect("created");
    let first = a.service.durable_status(&at("s")).await.expect("there").life;
    a.faults.inject(Operation::Replace, "manifest/", 1, Fault::AnswerLate(Duration::from_millis(300)));
    let (posted, next) = tokio::join!(a.post("s", post(b"x")), async {
        a.faults.seen(1, Operation::Replace, "manifest/").await;
        b.service.delete_durable(&at("s")).await.expect("deleted");
        b.create("s", &new("y")).await.expect("created again");
        a.service.durable_status(&at("s")).await.expect("there").life
    });
    let posted = posted.expect("appended");
    assert_eq!((posted.tag.life.as_str(), posted.tag.tail), (first.as_str(), 1));
    assert_ne!(next, first);
}

#[tokio::test]
async fn the_state_after_a_creation_is_of_the_life_it_has_made() {
    let world = World::new();
    let (a, b) = (world.process(), world.process());
    // The last of a first content that does not fit into the creating commit.
    a.faults.inject(Operation::Replace, "manifest/", 1, Fault::AnswerLate(Duration::from_millis(300)));
    let (target, large) = (at("s"), new(&"x".repeat(100_000)));
    let (made, (first, next)) = tokio::join!(a.service.create_durable(&target, &large), async {
        a.faults.seen(1, Operation::Replace, "manifest/").await;
        let first = b.service.durable_status(&at("s")).await.expect("there").life;
        b.service.delete_durable(&at("s")).await.expect("deleted");
        b.create("s", &new("y")).await.expect("created again");
        (first, a.service.durable_status(&at("s")).await.expect("there").life)
    });
    let (status, provision) = made.expect("created");
    assert_eq!((status.life.as_str(), status.tail, provision), (first.as_str(), 1, Provision::Created));
    assert_ne!(next, first);
}

#[tokio::test]
async fn a_use_is_recorded_at_most_once_in_a_quarter_of_the_lifetime() {
    let world = World::timed();
    let process = world.process();
    process.create("s", &lasting(Lifetime::Idle(100))).await.expect("created");
    let commits = || process.faults.count(Operation::Replace, "manifest/");
    let before = commits();
    for second in 1..=100 {
        world.clock.advance_ms(1_000);
        process.text("s").await.unwrap_or_else(|error| panic!("{second}: {error}"));
        process.service.durable_status(&at("s")).await.expect("a look is no use");
    }
    assert_eq!(commits() - before, 4);
    // The last use counts in full, recorded or not, and at most a quarter more.
    world.clock.advance_ms(100_000);
    process.service.durable_status(&at("s")).await.expect("there");
    world.clock.advance_ms(5_000);
    assert!(is_gone(&process.text("s").await));
    assert!(is_gone(&process.post("s", post(b"x")).await));
    assert!(is_gone(&process.service.durable_status(&at("s")).await));
    assert_eq!(process.create("s", &new("anew")).await.expect("created"), Provision::Created);
    assert_eq!(process.text("s").await.expect("there"), "anew");
}

#[tokio::test]
async fn the_sweeper_ends_what_nobody_can_use_any_more_and_leaves_no_object() {
    let world = World::timed();
    let process = world.process();
    process.create("source", &new("a")).await.expect("created");
    process.create("s", &lasting(Lifetime::Idle(100))).await.expect("created");
    process
        .create("fork", &Creation { lifetime: Some(Lifetime::Idle(100)), ..fork_of("source", None) })
        .await
        .expect("forked");
    process.post("s", post(&[b'x'; 100_000])).await.expect("appended");
    process.service.delete_durable(&at("source")).await.expect("kept in mind for its fork");
    assert!(matches!(process.text("source").await, Err(Error::Retired(_))));
    let manifests = async || {
        let all = process.service_list("data/").await.len();
        let names = process.service_list("catalog/").await.len();
        (all, names)
    };
    assert_eq!(manifests().await, (1, 3));
    // Visits are due on their own; whatever is over goes with one of them.
    for _ in 0..4 {
        world.clock.advance_ms(26 * 60 * 60 * 1_000);
        process.sweep().await.expect("swept");
    }
    assert_eq!(manifests().await, (0, 0));
    assert!(is_gone(&process.text("source").await));
    assert!(is_gone(&process.text("s").await));
}

#[tokio::test]
async fn a_fork_is_whole_whatever_becomes_of_its_source() {
    let world = World::timed();
    let process = world.process();
    let parts: Vec<String> = (0..5).map(|n| n.to_string().repeat(40_000)).collect();
    process.create("source", &new("")).await.expect("created");
    for part in &parts {
        process.post("source", post(part.as_bytes())).await.expect("appended");
    }
    process.create("half", &fork_of("source", Some(3))).await.expect("forked");
    process
        .create("all", &Creation { body: Bytes::from_static(b"!"), ..fork_of("source", None) })
        .await
        .expect("forked");
    process.create("of-fork", &fork_of("half", None)).await.expect("forked");
    process.post("source", post(b"later")).await.expect("appended");
    process.service.delete_durable(&at("source")).await.expect("deleted");
    process.service.delete_durable(&at("half")).await.expect("deleted");
    for _ in 0..3 {
        world.clock.advance_ms(26 * 60 * 60 * 1_000);
        process.sweep().await.expect("swept");
    }
    assert_eq!(process.text("all").await.expect("there"), format!("{}!", parts.concat()));
    assert_eq!(process.text("of-fork").await.expect("there"), parts[..3].concat());
    let first = parts[0].clone() + "x";
    process.create("late", &fork_of("all", Some(1))).await.expect("forked");
    process.post("late", post(b"x")).await.expect("appended");
    assert_eq!(process.text("late").await.expect("there"), first);
}

#[tokio::test]
async fn nobody_sees_a_fork_before_it_is_whole() {
    let world = World::new();
    let (process, other) = (world.process(), world.process());
    process.create("source", &new("")).await.expect("created");
    for _ in 0..4 {
        process.post("source", post(&[b'x'; 600_000])).await.expect("appended");
    }
    process.faults.hold(Operation::Copy, "data/");
    let waiting = async {
        process.faults.seen(1, Operation::Copy, "data/").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(is_gone(&other.text("fork").await));
        assert!(is_gone(&other.post("fork", post(b"x")).await));
        process.faults.release();
    };
    let creation = fork_of("source", None);
    let (made, ()) = tokio::join!(process.create("fork", &creation), waiting);
    assert_eq!(made.expect("forked"), Provision::Created);
    assert_eq!(other.text("fork").await.expect("there").len(), 2_400_000);
}

#[tokio::test]
async fn a_bucket_is_deleted_only_while_it_is_empty() {
    let world = World::new();
    let (a, b) = (world.process(), world.process());
    let bucket = at("x").bucket;
    let strict = |stream: &str| DurableRef { buckets: Buckets::MustExist, ..at(stream) };
    let create = |process: &Process, stream: &'static str| {
        let service = process.service.clone();
        let target = strict(stream);
        async move { service.create_durable(&target, &new("x")).await }
    };
    assert!(matches!(create(&a, "s").await, Err(Error::BucketNotFound(_))));
    a.service.create_bucket(&bucket).await.expect("created");
    assert!(matches!(a.service.create_bucket(&bucket).await, Err(Error::BucketExists(_))));
    create(&a, "s").await.expect("created");
    assert!(matches!(b.service.delete_bucket(&bucket).await, Err(Error::BucketNotEmpty(_))));
    a.service.delete_durable(&at("s")).await.expect("deleted");
    // A creation that races with the deletion either makes it fail or finds no bucket.
    for _ in 0..20 {
        let (made, deleted) = tokio::join!(create(&a, "s"), b.service.delete_bucket(&bucket));
        match (&made, &deleted) {
            (Ok(_), Err(Error::BucketNotEmpty(_))) => {
                assert_eq!(b.text("s").await.expect("there"), "x");
                a.service.delete_durable(&at("s")).await.expect("deleted");
            }
            (Err(_), Ok(())) => {
                assert!(
                    is_gone(&b.text("s").await) || matches!(b.text("s").await, Err(Error::BucketNotFound(_)))
                );
                a.service.create_bucket(&bucket).await.expect("created again");
            }
            // The entry of a creation that gave up stood in the way.
            (Err(_), Err(Error::BucketNotEmpty(_))) => {}
            _ => panic!("{made:?} {deleted:?}"),
        }
    }
}

#[tokio::test]
async fn a_bucket_lists_its_streams_in_order_and_by_pages() {
    let process = World::new().process();
    for stream in ["b", "a/2", "a/1", "c"] {
        process.create(stream, &new("xy")).await.expect("created");
    }
    process.post("c", Post { then: Then::Close, ..Post::default() }).await.expect("closed");
    let bucket = at("x").bucket;
    let page = async |prefix: &str, after: &str, limit| {
        let part = |text: &str| leat::types::name::StreamNamePart::parse(text, "part").expect("legal");
        let request = ListRequest { prefix: part(prefix), start_after: part(after), limit };
        let listed = process.service.list_durable(&bucket, request).await.expect("listed");
        let names: Vec<_> = listed.items.iter().map(|item| item.name.to_string()).collect();
        (names, listed.next_after.map(|name| name.to_string()))
    };
    assert_eq!(page("", "", 10).await, (vec!["a/1".into(), "a/2".into(), "b".into(), "c".into()], None));
    assert_eq!(page("a/", "", 1).await, (vec!["a/1".into()], Some("a/1".into())));
    assert_eq!(page("a/", "a/1", 1).await, (vec!["a/2".into()], None));
    let all = ListRequest {
        prefix: leat::types::name::StreamNamePart::parse("c", "prefix").expect("legal"),
        start_after: leat::types::name::StreamNamePart::parse("", "after").expect("legal"),
        limit: 1,
    };
    let listed = process.service.list_durable(&bucket, all).await.expect("listed");
    assert!(listed.items[0].status.is_closed && listed.items[0].status.tail == 1);
    assert_eq!(process.service.bucket(&bucket).await.expect("there").streams, 4);
}

#[tokio::test]
async fn conditions_of_a_creation_are_kept() {
    let process = World::new().process();
    let expecting = |expected| Creation { expected, ..new("") };
    let something = process.create("s", &expecting(Expected::Something)).await;
    assert!(matches!(something, Err(Error::OtherState)), "{something:?}");
    assert_eq!(process.create("s", &expecting(Expected::Nothing)).await.expect("new"), Provision::Created);
    let nothing = process.create("s", &expecting(Expected::Nothing)).await;
    assert!(matches!(nothing, Err(Error::OtherState)), "{nothing:?}");
    let tag = process.service.durable_status(&at("s")).await.expect("there").tag();
    let now = Expected::In(vec![tag]);
    assert_eq!(process.create("s", &expecting(now.clone())).await.expect("same"), Provision::Noop);
    process.post("s", post(b"x")).await.expect("appended");
    assert!(matches!(process.create("s", &expecting(now)).await, Err(Error::OtherState)));
    let other = Creation { content_type: Some(ContentType::octets()), ..Creation::default() };
    assert!(matches!(process.create("s", &other).await, Err(Error::Taken { .. })));
}

#[tokio::test]
async fn one_append_of_four_mebibytes_is_atomic_and_more_is_refused() {
    let world = World::new();
    let process = world.process();
    process.create("s", &new("")).await.expect("created");
    let most = vec![b'x'; 4 * 1024 * 1024];
    let posted = process.post("s", post(&most)).await.expect("appended");
    assert_eq!(posted.tag.tail, 1);
    process.post("s", post(b"y")).await.expect("appended");
    let text = world.process().text("s").await.expect("readable");
    assert_eq!((text.len(), text.ends_with("xy")), (most.len() + 1, true));
    let more = process.post("s", post(&[most, vec![b'x']].concat())).await;
    assert!(matches!(more, Err(Error::TooLarge(_))), "{more:?}");
    // Many small messages of JSON are one append as well.
    let json = ContentType::new("application/json").expect("legal");
    let creation = Creation { content_type: Some(json.clone()), ..Creation::default() };
    process.create("j", &creation).await.expect("created");
    let of = |count: usize| {
        let body = format!("[{}]", vec!["1"; count].join(","));
        Post { content_type: Some(json.clone()), body: body.into(), ..Post::default() }
    };
    assert_eq!(process.post("j", of(20_000)).await.expect("appended").tag.tail, 20_000);
    assert!(matches!(process.post("j", of(100_001)).await, Err(Error::TooLarge(_))));
    assert_eq!(process.text("j").await.expect("readable").len(), 20_000);
}

#[tokio::test]
async fn a_snapshot_stands_for_the_beginning_and_outlives_every_sweep() {
    let world = World::timed();
    let process = world.process();
    process.create("s", &new("")).await.expect("created");
    for n in 0..6 {
        process.post("s", post(&[b'0' + n; 50_000])).await.expect("appended");
    }
    let snapshot = |at, body: &'static [u8]| StreamSnapshot {
        at,
        content_type: ContentType::new("a/b").expect("legal"),
        bytes: Bytes::from_static(body),
    };
    let put = async |snapshot| process.service.put_snapshot(&at("s"), &snapshot).await;
    assert!(matches!(put(snapshot(7, b"x")).await, Err(Error::SnapshotBeyondTail { tail: 6 })));
    assert_eq!(put(snapshot(2, b"two")).await.expect("stands"), 6);
    assert!(matches!(process.text("s").await, Err(Error::Trimmed { start: 2 })));
    assert!(matches!(put(snapshot(1, b"x")).await, Err(Error::OlderSnapshot { current: 2 })));
    assert_eq!(put(snapshot(4, b"four")).await.expect("stands"), 6);
    for _ in 0..3 {
        world.clock.advance_ms(26 * 60 * 60 * 1_000);
        process.sweep().await.expect("swept");
    }
    // Two messages and one snapshot are left.
    assert_eq!(process.service_list("data/").await.len(), 3);
    let other = world.process();
    let (found, mut reader) = other.service.snapshot(&at("s")).await.expect("readable");
    assert_eq!(found, Some(snapshot(4, b"four")));
    let rest: Vec<_> =
        reader.messages(1024 * 1024).await.expect("readable").into_iter().map(|m| m.seq_num).collect();
    assert_eq!(rest, [4, 5]);
    assert_eq!(process.post("s", post(b"x")).await.expect("appended").tag.tail, 7);
    process.create("fork", &fork_of("s", None)).await.expect("forked");
    let mut fork = process.service.durable_reader(&at("fork"), ReadFrom::At(4)).await.expect("there");
    assert_eq!(fork.messages(1024 * 1024).await.expect("readable").len(), 3);
}

#[tokio::test]
async fn a_snapshot_whose_upload_was_collected_meanwhile_is_uploaded_again() {
    let world = World::timed();
    let (process, other) = (world.process(), world.process());
    process.create("s", &new("a")).await.expect("created");
    let snapshot = StreamSnapshot { at: 1, content_type: text(), bytes: Bytes::from_static(b"one") };
    // Between the upload and the commit, two hours pass and a sweeper takes the object for an orphan.
    process.faults.hold(Operation::Replace, "manifest/");
    let sweep = async {
        process.faults.seen(1, Operation::Replace, "manifest/").await;
        world.clock.advance_ms(26 * 60 * 60 * 1_000);
        other.sweep().await.expect("swept");
        process.faults.release();
    };
    let target = at("s");
    let (put, ()) = tokio::join!(process.service.put_snapshot(&target, &snapshot), sweep);
    put.expect("stands");
    let (found, _) = other.service.snapshot(&at("s")).await.expect("readable");
    assert_eq!(found, Some(snapshot));
}

#[tokio::test]
async fn a_deletion_that_died_half_way_is_finished_by_the_next() {
    let process = World::new().process();
    process.create("s", &new("a")).await.expect("created");
    process.faults.inject(Operation::Delete, "catalog/", 1, Fault::Unavailable);
    let first = process.service.delete_durable(&at("s")).await;
    assert!(matches!(first, Err(Error::Other(leat::service::Error::Indefinite { .. }))), "{first:?}");
    assert!(is_gone(&process.text("s").await));
    assert_eq!(process.service_list("catalog/").await.len(), 1);
    assert!(is_gone(&process.service.delete_durable(&at("s")).await));
    assert_eq!(process.service_list("catalog/").await.len(), 0);
}

#[tokio::test]
async fn a_fork_takes_a_part_of_one_append_and_never_of_the_next() {
    let process = World::new().process();
    let json = ContentType::new("application/json").expect("legal");
    let creation = Creation { content_type: Some(json.clone()), ..Creation::default() };
    process.create("s", &creation).await.expect("created");
    let append = |body: &'static [u8]| Post {
        content_type: Some(json.clone()),
        body: Bytes::from_static(body),
        ..Post::default()
    };
    for body in [&b"[1,2,3]"[..], b"4", b"[5,6]"] {
        process.post("s", append(body)).await.expect("appended");
    }
    let part = |source: &str, from, beyond| Creation {
        fork: Some(ForkOf { source: at(source), at: Some(from), beyond }),
        ..Creation::default()
    };
    for (from, beyond) in [(0, 4), (1, 3), (3, 2), (4, 3)] {
        let refused = process.create("f", &part("s", from, beyond)).await;
        assert!(
            matches!(refused, Err(Error::Invalid(_) | Error::BeyondTail { .. })),
            "{from}+{beyond}: {refused:?}"
        );
    }
    for (name, from, beyond, expected) in
        [("a", 0, 3, "123"), ("b", 1, 1, "12"), ("c", 3, 1, "1234"), ("d", 4, 2, "123456")]
    {
        process.create(name, &part("s", from, beyond)).await.expect("forked");
        assert_eq!(process.text(name).await.expect("there"), expected);
    }
    // In a fork, what was cut ends where it was cut.
    process.post("b", append(b"[7,8]")).await.expect("appended");
    assert!(matches!(process.create("f", &part("b", 1, 2)).await, Err(Error::Invalid(_))));
    process.create("f", &part("b", 2, 1)).await.expect("forked");
    assert_eq!(process.text("f").await.expect("there"), "127");
}

#[tokio::test]
async fn a_reader_that_a_snapshot_has_overtaken_is_told() {
    let process = World::new().process();
    process.create("s", &new("a")).await.expect("created");
    let mut reader = process.service.durable_reader(&at("s"), ReadFrom::Tail).await.expect("there");
    for body in [b"b", b"c", b"d"] {
        process.post("s", post(body)).await.expect("appended");
    }
    let snapshot = StreamSnapshot { at: 3, content_type: text(), bytes: Bytes::from_static(b"abc") };
    process.service.put_snapshot(&at("s"), &snapshot).await.expect("stands");
    assert!(reader.wait(Duration::from_secs(5)).await.expect("news"));
    let read = reader.messages(1_000).await;
    assert!(matches!(read, Err(Error::Trimmed { start: 3 })), "{read:?}");
}

#[tokio::test]
async fn a_snapshot_that_is_replaced_as_it_is_read_leads_to_the_newer_one() {
    let world = World::timed();
    let (process, other) = (world.process(), world.process());
    other.create("s", &new("a")).await.expect("created");
    for body in ["b", "c"] {
        other.post("s", post(body.as_bytes())).await.expect("appended");
    }
    let put = async |at_seq, body: &'static [u8]| {
        let bytes = Bytes::from_static(body);
        let snapshot = StreamSnapshot { at: at_seq, content_type: text(), bytes };
        other.service.put_snapshot(&at("s"), &snapshot).await.expect("stands");
        snapshot
    };
    put(1, b"one").await;
    process.faults.hold(Operation::GetRange, "data/");
    let replaced = async {
        process.faults.seen(1, Operation::GetRange, "data/").await;
        let newer = put(2, b"two").await;
        for _ in 0..3 {
            world.clock.advance_ms(2 * 24 * 60 * 60 * 1_000);
            other.sweep().await.expect("swept");
        }
        process.faults.release();
        newer
    };
    let target = at("s");
    let (found, newer) = tokio::join!(process.service.snapshot(&target), replaced);
    let (snapshot, mut reader) = found.expect("one of them");
    assert_eq!(snapshot, Some(newer));
    let rest = reader.messages(1_000).await.expect("what follows");
    assert_eq!(rest.iter().map(|message| &*message.body).collect::<Vec<_>>(), [b"c"]);
}
