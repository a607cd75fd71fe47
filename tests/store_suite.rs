//! One suite of behaviour, run over every backend of the store: memory, a local folder, S3.
//!
//! S3 is MiniStack and LocalStack, which the tests install and start. With `LEAT_SUITE_BUCKET`,
//! `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, the tests `given -- --ignored` run it over any
//! other bucket.
//! At the end of the file: what only a local folder has to stand, other processes and `kill -9`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may stop where it stands"
)]
#![allow(clippy::disallowed_methods, reason = "tests are configured by their environment")]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use leat::storage::opening::{self, Trust};
use leat::store::{
    ETag, Error, Fetched, ListQuery, LocalStore, Metered, Object, S3Options, Store, memory, open, probe,
};
use leat::types::time::{Clock, Deadline, monotonic};
use support::emulator::Emulator;
use support::localstack::LocalStack;
use support::ministack::MiniStack;

/// A store to test, and how much it can take.
struct Backend {
    store: Arc<dyn Store>,
    writers: usize,
    rounds: usize,
    keys: usize,
    _held: Held,
}

/// What must live as long as a store is tested.
#[allow(dead_code, reason = "held for its end")]
enum Held {
    Nothing,
    Folder(tempfile::TempDir),
    MiniStack(Arc<MiniStack>),
    LocalStack(Arc<LocalStack>),
}

impl std::ops::Deref for Backend {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self.store.as_ref()
    }
}

async fn memory_backend() -> Backend {
    Backend { store: memory(), writers: 64, rounds: 200, keys: 2_345, _held: Held::Nothing }
}

async fn local_backend() -> Backend {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::open(folder.path()).unwrap());
    Backend { store, writers: 32, rounds: 20, keys: 1_100, _held: Held::Folder(folder) }
}

async fn ministack_backend() -> Backend {
    let server = tokio::task::spawn_blocking(MiniStack::shared).await.unwrap();
    Backend { store: emulated(&server), writers: 16, rounds: 10, keys: 2_100, _held: Held::MiniStack(server) }
}

async fn localstack_backend() -> Backend {
    let server = tokio::task::spawn_blocking(LocalStack::shared).await.unwrap();
    Backend { store: emulated(&server), writers: 16, rounds: 5, keys: 1_100, _held: Held::LocalStack(server) }
}

/// The bucket that the environment names.
async fn given_backend() -> Backend {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let options = S3Options::at(
        &variable("AWS_ENDPOINT_URL"),
        &variable("AWS_ACCESS_KEY_ID"),
        &variable("AWS_SECRET_ACCESS_KEY"),
    );
    let url = format!("s3://{}/{}-{}", variable("LEAT_SUITE_BUCKET"), std::process::id(), fresh_prefix());
    let store = open(&url.parse().unwrap(), &options).unwrap();
    Backend { store, writers: 8, rounds: 5, keys: 1_100, _held: Held::Nothing }
}

fn emulated(emulator: &Emulator) -> Arc<dyn Store> {
    let options = S3Options::at(&format!("http://{}", emulator.address), "test", "test");
    open(&emulator.store(&fresh_prefix()).parse().unwrap(), &options).unwrap()
}

fn fresh_prefix() -> String {
    static PREFIXES: AtomicUsize = AtomicUsize::new(0);
    format!("suite-{}", PREFIXES.fetch_add(1, Ordering::SeqCst))
}

/// Runs each behaviour over each backend.
macro_rules! behaviours {
    ($($name:ident),+ $(,)?) => {
        behaviours!(memory from memory_backend []: $($name),+);
        behaviours!(local from local_backend []: $($name),+);
        behaviours!(ministack from ministack_backend []: $($name),+);
        behaviours!(localstack from localstack_backend []: $($name),+);
        behaviours!(given from given_backend [#[ignore = "needs a bucket in LEAT_SUITE_BUCKET"]]: $($name),+);
    };
    ($backend:ident from $make:ident $attributes:tt: $($name:ident),+) => {
        mod $backend {
            $(behaviours!(test $name on $make $attributes);)+
        }
    };
    (test $name:ident on $make:ident [$($attributes:tt)*]) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        $($attributes)*
        async fn $name() {
            super::$name(&super::$make().await).await;
        }
    };
}

behaviours!(
    what_is_written_is_read,
    an_absent_object_is_absent_everywhere,
    an_empty_object_is_an_object,
    a_large_object_comes_back_whole,
    a_conditional_get_tells_unchanged_changed_and_absent,
    ranges_are_clipped_to_the_object,
    create_passes_once,
    create_passes_again_after_a_delete,
    replace_passes_for_the_current_version_only,
    replace_of_a_missing_key_is_a_conflict,
    put_moves_the_version,
    the_same_bytes_written_again_are_read_again,
    a_copy_is_an_object_of_its_own,
    a_copy_of_nothing_is_nothing,
    deleting_twice_is_deleting_once,
    long_keys_are_carried,
    keys_that_not_every_store_can_hold_are_refused,
    writes_carry_the_time_of_the_store,
    a_read_of_something_old_tells_what_time_it_is_now,
    lists_are_in_byte_order_of_whole_keys,
    list_prefixes_need_not_end_at_a_slash,
    lists_begin_after_a_key_that_need_not_exist,
    paging_one_by_one_visits_each_key_once,
    paging_through_many_keys_visits_each_key_once,
    creates_and_deletes_between_pages_skip_no_other_key,
    a_deleted_folder_is_listed_no_more,
    exactly_one_concurrent_replace_wins,
    exactly_one_concurrent_create_wins,
    the_probe_passes,
    a_recorded_probe_is_replaced_by_one_read,
);

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn is_conflict<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Conflict { .. }))
}

fn is_refused<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Refused { .. }))
}

async fn content(store: &dyn Store, key: &str) -> Object {
    store.get(key).await.unwrap().unwrap()
}

async fn list(store: &dyn Store, prefix: &str, after: Option<&str>, limit: usize) -> Vec<String> {
    let query = ListQuery { prefix: prefix.to_owned(), start_after: after.map(str::to_owned), limit };
    store.list(query).await.unwrap().into_iter().map(|listed| listed.key).collect()
}

/// All keys under a prefix, by pages.
async fn pages(store: &dyn Store, prefix: &str, limit: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let page = list(store, prefix, all.last().map(String::as_str), limit).await;
        assert!(page.len() <= limit);
        let last = page.len() < limit;
        all.extend(page);
        if last {
            return all;
        }
    }
}

async fn put_all(store: &dyn Store, keys: &[String]) {
    for some in keys.chunks(32) {
        for outcome in join_all(some.iter().map(|key| store.put(key, bytes("x")))).await {
            outcome.unwrap();
        }
    }
}

async fn what_is_written_is_read(store: &Backend) {
    let etag = store.put("a/b", bytes("one")).await.unwrap();
    let object = content(&**store, "a/b").await;
    assert_eq!((object.bytes, object.etag), (bytes("one"), etag));
}

async fn an_absent_object_is_absent_everywhere(store: &Backend) {
    store.put("there/below", bytes("x")).await.unwrap();
    for key in ["nothing", "no/such/thing", "there", "there/below/too"] {
        assert!(store.get(key).await.unwrap().is_none(), "{key}");
        assert!(store.get_range(key, 0..10).await.unwrap().is_none(), "{key}");
        assert!(store.get_range(key, 3..3).await.unwrap().is_none(), "{key}");
        let etag = ETag::new("\"0123\"".to_owned());
        assert!(matches!(store.get_if_changed(key, &etag).await.unwrap(), Fetched::Absent), "{key}");
    }
}

async fn an_empty_object_is_an_object(store: &Backend) {
    let etag = store.create("empty", Bytes::new()).await.unwrap();
    let object = content(&**store, "empty").await;
    assert_eq!((object.bytes.len(), &object.etag), (0, &etag));
    assert!(matches!(store.get_if_changed("empty", &etag).await.unwrap(), Fetched::Unchanged));
    assert_eq!(store.get_range("empty", 0..10).await.unwrap().unwrap(), Bytes::new());
    let listed =
        store.list(ListQuery { prefix: "empty".to_owned(), start_after: None, limit: 1 }).await.unwrap();
    assert_eq!(listed[0].size, 0);
}

async fn a_large_object_comes_back_whole(store: &Backend) {
    let large: Bytes =
        (0..4 * 1024 * 1024_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    store.put("large", large.clone()).await.unwrap();
    assert_eq!(content(&**store, "large").await.bytes, large);
    let part = store.get_range("large", 1_000_000..3_000_000).await.unwrap().unwrap();
    assert_eq!(part, large.slice(1_000_000..3_000_000));
    let listed =
        store.list(ListQuery { prefix: "la".to_owned(), start_after: None, limit: 9 }).await.unwrap();
    assert_eq!(listed[0].size, 4 * 1024 * 1024);
}

async fn a_conditional_get_tells_unchanged_changed_and_absent(store: &Backend) {
    let first = store.create("k", bytes("one")).await.unwrap();
    assert!(matches!(store.get_if_changed("k", &first).await.unwrap(), Fetched::Unchanged));
    let second = store.replace("k", bytes("two"), &first).await.unwrap();
    match store.get_if_changed("k", &first).await.unwrap() {
        Fetched::Changed(object) => assert_eq!((object.bytes, object.etag), (bytes("two"), second.clone())),
        other => panic!("{other:?}"),
    }
    store.delete("k").await.unwrap();
    assert!(matches!(store.get_if_changed("k", &second).await.unwrap(), Fetched::Absent));
}

async fn ranges_are_clipped_to_the_object(store: &Backend) {
    store.put("digits", bytes("0123456789")).await.unwrap();
    let table = [
        (0..10, "0123456789"),
        (2..5, "234"),
        (9..10, "9"),
        (7..100, "789"),
        (0..u64::MAX, "0123456789"),
        (10..20, ""),
        (500..600, ""),
        (4..4, ""),
    ];
    for (range, expected) in table {
        let found = store.get_range("digits", range.clone()).await.unwrap().unwrap();
        assert_eq!(found, bytes(expected), "{range:?}");
    }
}

async fn create_passes_once(store: &Backend) {
    let etag = store.create("k", bytes("one")).await.unwrap();
    assert!(is_conflict(&store.create("k", bytes("two")).await));
    let object = content(&**store, "k").await;
    assert_eq!((object.bytes, object.etag), (bytes("one"), etag));
}

async fn create_passes_again_after_a_delete(store: &Backend) {
    store.create("k", bytes("one")).await.unwrap();
    store.delete("k").await.unwrap();
    store.create("k", bytes("two")).await.unwrap();
    assert_eq!(content(&**store, "k").await.bytes, bytes("two"));
}

async fn replace_passes_for_the_current_version_only(store: &Backend) {
    let first = store.create("k", bytes("one")).await.unwrap();
    let second = store.replace("k", bytes("two"), &first).await.unwrap();
    assert_ne!(first, second);
    assert!(is_conflict(&store.replace("k", bytes("three"), &first).await));
    let foreign = ETag::new("\"0123456789abcdef0123456789abcdef\"".to_owned());
    assert!(is_conflict(&store.replace("k", bytes("three"), &foreign).await));
    assert_eq!(content(&**store, "k").await.bytes, bytes("two"));
    store.replace("k", bytes("three"), &second).await.unwrap();
}

async fn replace_of_a_missing_key_is_a_conflict(store: &Backend) {
    let etag = store.create("k", bytes("one")).await.unwrap();
    assert!(is_conflict(&store.replace("other", bytes("x"), &etag).await));
    assert!(is_conflict(&store.replace("no/such/folder", bytes("x"), &etag).await));
    store.delete("k").await.unwrap();
    assert!(is_conflict(&store.replace("k", bytes("x"), &etag).await));
    assert!(list(&**store, "", None, 10).await.is_empty());
}

async fn put_moves_the_version(store: &Backend) {
    let first = store.create("k", bytes("one")).await.unwrap();
    let second = store.put("k", bytes("two")).await.unwrap();
    assert!(is_conflict(&store.replace("k", bytes("x"), &first).await));
    store.replace("k", bytes("three"), &second).await.unwrap();
}

async fn the_same_bytes_written_again_are_read_again(store: &Backend) {
    for _ in 0..3 {
        let etag = store.put("k", bytes("same")).await.unwrap();
        assert_eq!(content(&**store, "k").await.etag, etag);
    }
}

async fn a_copy_is_an_object_of_its_own(store: &Backend) {
    for (name, size) in [("small", 10), ("none", 0), ("large", 9 * 1024 * 1024)] {
        let (from, to) = (format!("a/{name}"), format!("b/c/{name}"));
        let whole: Bytes = (0..size).map(|n: u32| (n % 251) as u8).collect();
        store.put(&from, whole.clone()).await.unwrap();
        assert!(store.copy(&from, &to).await.unwrap(), "{name}");
        assert_eq!(store.put(&from, bytes("changed")).await.map(|_| ()).ok(), Some(()));
        assert!(content(&**store, &to).await.bytes == whole, "{name}");
        store.delete(&from).await.unwrap();
        let copy = content(&**store, &to).await;
        assert!(copy.bytes == whole, "{name}");
        // It has a version, and a time: that of the copy.
        let next = store.replace(&to, bytes("next"), &copy.etag).await.unwrap();
        assert_eq!(content(&**store, &to).await.etag, next);
        assert!(copy.last_modified_ms.abs_diff(Clock::system().local_ms()) < 60_000);
    }
    assert_eq!(list(&**store, "", None, 10).await, ["b/c/large", "b/c/none", "b/c/small"]);
}

async fn a_copy_of_nothing_is_nothing(store: &Backend) {
    assert!(!store.copy("never/was", "b").await.unwrap());
    assert!(store.get("b").await.unwrap().is_none());
    store.put("a", bytes("x")).await.unwrap();
    assert!(is_refused(&store.copy("a", "b//c").await));
    assert!(is_refused(&store.copy("../a", "b").await));
}

async fn deleting_twice_is_deleting_once(store: &Backend) {
    store.put("a/k", bytes("x")).await.unwrap();
    store.delete("a/k").await.unwrap();
    store.delete("a/k").await.unwrap();
    store.delete("never/was").await.unwrap();
    assert!(store.get("a/k").await.unwrap().is_none());
}

async fn long_keys_are_carried(store: &Backend) {
    // 900 bytes, so that a root prefix still fits into the 1,024 of S3.
    let key = vec!["k".repeat(199); 5].join("/").get(..900).unwrap().to_owned();
    let etag = store.create(&key, bytes("x")).await.unwrap();
    assert_eq!(content(&**store, &key).await.etag, etag);
    assert_eq!(list(&**store, &key[..850], None, 10).await, [key.as_str()]);
    store.replace(&key, bytes("y"), &etag).await.unwrap();
    store.delete(&key).await.unwrap();
}

async fn keys_that_not_every_store_can_hold_are_refused(store: &Backend) {
    let long = "k".repeat(1_025);
    for key in ["", "/a", "a/", "a//b", "a/./b", "../a", "a b", "a\\b", "ä", "a%20b", "a\0b", &long] {
        assert!(is_refused(&store.put(key, bytes("x")).await), "{key}");
        assert!(is_refused(&store.create(key, bytes("x")).await), "{key}");
        assert!(is_refused(&store.get(key).await), "{key}");
        assert!(is_refused(&store.get_range(key, 0..1).await), "{key}");
        assert!(is_refused(&store.delete(key).await), "{key}");
    }
    for prefix in ["../", "/", "a//b", "a b", "./a"] {
        let query = ListQuery { prefix: prefix.to_owned(), start_after: None, limit: 10 };
        assert!(is_refused(&store.list(query).await), "{prefix}");
    }
}

async fn writes_carry_the_time_of_the_store(store: &Backend) {
    store.put("k", bytes("x")).await.unwrap();
    let now_ms = Clock::system().local_ms();
    let read = content(&**store, "k").await.last_modified_ms;
    let listed = store.list(ListQuery { prefix: "k".to_owned(), start_after: None, limit: 1 }).await.unwrap();
    for written_ms in [read, listed[0].last_modified_ms] {
        assert!(written_ms.abs_diff(now_ms) < 10_000, "{written_ms} is not about {now_ms}");
    }
}

async fn a_read_of_something_old_tells_what_time_it_is_now(store: &Backend) {
    store.put("k", bytes("x")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let object = content(&**store, "k").await;
    let answered_ms = object.answered_ms.expect("every one of these stores says so");
    assert!(answered_ms.abs_diff(Clock::system().local_ms()) < 2_000);
    assert!(answered_ms - object.last_modified_ms > 1_000, "it is not the time of the write");
}

/// In byte order. `a` never stands beside `a/…`: a local folder cannot hold both.
const ORDERED: [&str; 14] = [
    "n/A/x", "n/a!/x", "n/a-b", "n/a-b!", "n/a-c/x", "n/a.b/x", "n/a/!1", "n/a/!2", "n/a/b/!1", "n/a0",
    "n/a_b/x", "n/aa/x", "n/b", "n/ba",
];

async fn put_ordered(store: &Backend) {
    let mut keys: Vec<String> = ORDERED.iter().map(|key| (*key).to_owned()).collect();
    keys.extend(["m/z", "n0", "o/a"].map(str::to_owned));
    keys.reverse();
    put_all(&**store, &keys).await;
}

async fn lists_are_in_byte_order_of_whole_keys(store: &Backend) {
    put_ordered(store).await;
    assert_eq!(list(&**store, "n/", None, 100).await, ORDERED);
    assert_eq!(list(&**store, "", None, 100).await.len(), ORDERED.len() + 3);
    assert_eq!(list(&**store, "n/", None, 3).await, ORDERED[..3]);
    assert!(list(&**store, "n/", None, 0).await.is_empty());
}

async fn list_prefixes_need_not_end_at_a_slash(store: &Backend) {
    put_ordered(store).await;
    for prefix in
        ["n", "n/", "n/a", "n/a-", "n/a-b", "n/a/", "n/a/!", "n/a/b", "n/b", "n/zz", "x/y/z", "n/b/x"]
    {
        let mut expected: Vec<&str> = ORDERED.iter().copied().filter(|key| key.starts_with(prefix)).collect();
        expected.extend(["n0"].iter().filter(|key| key.starts_with(prefix)));
        assert_eq!(list(&**store, prefix, None, 100).await, expected, "{prefix}");
    }
}

async fn lists_begin_after_a_key_that_need_not_exist(store: &Backend) {
    put_ordered(store).await;
    let afters = [
        "a", "n", "n/", "n/a", "n/a-", "n/a-b", "n/a-b0", "n/a-c", "n/a-c/x", "n/a/", "n/a/b/zz", "n/b", "z",
    ];
    for after in afters.into_iter().chain(ORDERED) {
        for prefix in ["n/", "n/a", "n/a/"] {
            let wanted = |key: &&str| key.starts_with(prefix) && *key > after;
            let expected: Vec<&str> = ORDERED.iter().copied().filter(wanted).collect();
            assert_eq!(list(&**store, prefix, Some(after), 100).await, expected, "{prefix} after {after}");
            let first = list(&**store, prefix, Some(after), 1).await;
            assert_eq!(first, expected[..expected.len().min(1)], "{prefix} after {after}, one");
        }
    }
}

async fn paging_one_by_one_visits_each_key_once(store: &Backend) {
    put_ordered(store).await;
    assert_eq!(pages(&**store, "n/", 1).await, ORDERED);
    assert_eq!(pages(&**store, "n/", ORDERED.len()).await, ORDERED);
}

async fn paging_through_many_keys_visits_each_key_once(store: &Backend) {
    let keys: BTreeSet<String> = (0..store.keys).map(|at| format!("many/{:02}/{at}", at % 7)).collect();
    let keys: Vec<String> = keys.into_iter().collect();
    put_all(&**store, &keys).await;
    for limit in [store.keys + 1, 1_000, 333] {
        assert!(pages(&**store, "many/", limit).await == keys, "by {limit}");
    }
}

async fn creates_and_deletes_between_pages_skip_no_other_key(store: &Backend) {
    let stable: Vec<String> = (0..20).map(|at| format!("p/{at:02}-s")).collect();
    put_all(&**store, &stable).await;
    let mut seen: Vec<String> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = list(&**store, "p/", after.as_deref(), 3).await;
        let Some(last) = page.last().cloned() else { break };
        store.put(&format!("p/{}-a", seen.len()), bytes("x")).await.unwrap();
        if !last.ends_with("-s") {
            store.delete(&last).await.unwrap();
        }
        seen.extend(page);
        after = Some(last);
        assert!(seen.len() < 100, "paging ends");
    }
    seen.retain(|key| key.ends_with("-s"));
    assert_eq!(seen, stable);
}

async fn a_deleted_folder_is_listed_no_more(store: &Backend) {
    for key in ["f/g/h/a", "f/g/h/b"] {
        store.put(key, bytes("x")).await.unwrap();
    }
    store.delete("f/g/h/a").await.unwrap();
    assert_eq!(list(&**store, "", None, 10).await, ["f/g/h/b"]);
    store.delete("f/g/h/b").await.unwrap();
    assert!(list(&**store, "", None, 10).await.is_empty());
    store.create("f/g/h/a", bytes("x")).await.unwrap();
}

async fn exactly_one_concurrent_replace_wins(backend: &Backend) {
    let mut current = backend.create("race", bytes("start")).await.unwrap();
    for round in 0..backend.rounds {
        let writers = (0..backend.writers).map(|writer| {
            let (store, etag) = (Arc::clone(&backend.store), current.clone());
            tokio::spawn(
                async move { store.replace("race", format!("{round} {writer}").into(), &etag).await },
            )
        });
        let answers: Vec<_> = join_all(writers).await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<usize> = (0..answers.len()).filter(|at| answers[*at].is_ok()).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        assert_eq!(answers.iter().filter(|answer| is_conflict(answer)).count(), backend.writers - 1);
        let object = content(&**backend, "race").await;
        assert_eq!(object.bytes, format!("{round} {}", winners[0]));
        current = object.etag;
        assert_eq!(answers[winners[0]].as_ref().unwrap(), &current);
    }
}

async fn exactly_one_concurrent_create_wins(backend: &Backend) {
    for round in 0..backend.rounds {
        let key = format!("first/{round}");
        let writers = (0..backend.writers).map(|writer| {
            let (store, key) = (Arc::clone(&backend.store), key.clone());
            tokio::spawn(async move { store.create(&key, writer.to_string().into()).await })
        });
        let answers: Vec<_> = join_all(writers).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "round {round}");
        assert_eq!(answers.iter().filter(|answer| is_conflict(answer)).count(), backend.writers - 1);
    }
}

async fn the_probe_passes(backend: &Backend) {
    let metered = Metered::new(Arc::clone(&backend.store));
    let begun = monotonic();
    let probed = probe(&metered, "suite", Deadline::after(Duration::from_secs(20))).await.unwrap();
    assert!(probed.store_ms.abs_diff(Clock::system().local_ms()) < 5_000);
    assert!(list(&**backend, "meta/", None, 10).await.is_empty());
    eprintln!("the probe took {:?} and {:?}", begun.elapsed(), metered.counts());
}

async fn a_recorded_probe_is_replaced_by_one_read(backend: &Backend) {
    let store = Metered::new(Arc::clone(&backend.store));
    let first = opening::open(&store, "here", Trust::Record, &Clock::system()).await.unwrap();
    assert_eq!((first.trust, first.is_news), (Trust::Probe, true));
    // Long enough for the record's own time to be none for a clock.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let (before, begun) = (store.counts(), monotonic());
    let wrong = Clock::manual(1_000_000);
    let second = opening::open(&store, "here", Trust::Record, &wrong).await.unwrap();
    assert_eq!((second.trust, second.is_news, second.record), (Trust::Record, false, first.record));
    let asked = store.counts() - before;
    assert_eq!((asked.get, asked.total()), (1, 1));
    assert!(wrong.now_ms().abs_diff(Clock::system().local_ms()) < 2_000, "the clock was measured");
    eprintln!("the record was read in {:?}", begun.elapsed());
}

#[tokio::test]
async fn an_unreachable_store_ends_the_probe_with_its_reason() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = S3Options::at(&format!("http://{closed}"), "test", "test");
    let store = open(&"s3://nowhere".parse().unwrap(), &options).unwrap();
    let begun = monotonic();
    let error = probe(store.as_ref(), "suite", Deadline::after(Duration::from_secs(2))).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(error.to_string().contains(&closed.to_string()), "{error}");
}

// Only a local folder: other handles, other processes, kill -9.

/// In the environment of a child: the folder to work on.
const CHILD_FOLDER: &str = "LEAT_TEST_CHILD_FOLDER";

/// Starts this binary again with one test to run, as another process on the same folder.
fn child(test: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--test-threads=1"])
        .env(CHILD_FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn child_folder() -> Option<LocalStore> {
    let folder = std::env::var_os(CHILD_FOLDER)?;
    Some(LocalStore::open(Path::new(&folder)).unwrap())
}

/// Adds one to the number at `key`, `times` times; returns how often another was faster.
async fn count_up(store: &dyn Store, key: &str, times: usize) -> usize {
    let (mut done, mut conflicts) = (0, 0);
    while done < times {
        let object = content(store, key).await;
        let number: usize = std::str::from_utf8(&object.bytes).unwrap().parse().unwrap();
        match store.replace(key, (number + 1).to_string().into(), &object.etag).await {
            Ok(_) => done += 1,
            Err(Error::Conflict { .. }) => conflicts += 1,
            Err(error) => panic!("{error}"),
        }
    }
    conflicts
}

async fn number(store: &dyn Store, key: &str) -> String {
    String::from_utf8(content(store, key).await.bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_on_one_folder_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let left = LocalStore::open(folder.path()).unwrap();
    let right = LocalStore::open(folder.path()).unwrap();
    left.create("n", bytes("0")).await.unwrap();
    let conflicts = tokio::join!(count_up(&left, "n", 200), count_up(&right, "n", 200));
    assert_eq!(number(&left, "n").await, "400");
    eprintln!("conflicts: {conflicts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_come_and_go_lose_no_write() {
    let folder = tempfile::tempdir().unwrap();
    let handles = [LocalStore::open(folder.path()).unwrap(), LocalStore::open(folder.path()).unwrap()];
    let writers = (0..16).map(|writer| {
        let store = handles[writer % 2].clone();
        tokio::spawn(async move {
            for turn in 0..40 {
                let key = format!("a/{}/c/{writer}", turn % 2);
                let etag = store.create(&key, bytes("x")).await.unwrap();
                assert_eq!(content(&store, &key).await.etag, etag);
                assert_eq!(list(&store, &key, None, 1).await, [key.as_str()]);
                store.delete(&key).await.unwrap();
            }
        })
    });
    for outcome in join_all(writers).await {
        outcome.unwrap();
    }
    assert!(!folder.path().join("a").exists(), "emptied folders are removed");
}

#[tokio::test]
async fn child_that_counts() {
    if let Some(store) = child_folder() {
        count_up(&store, "n", 50).await;
    }
}

#[tokio::test]
async fn several_processes_on_one_folder_lose_no_update() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    store.create("n", bytes("0")).await.unwrap();
    let children: Vec<Child> = (0..4).map(|_| child("child_that_counts", folder.path())).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(number(&store, "n").await, "200");
}

/// Content in which a torn write would show: one number, over and over.
fn pattern(number: u64) -> Bytes {
    format!("{number:015}\n").repeat(4_096).into()
}

fn pattern_number(object: &Object) -> u64 {
    let text = std::str::from_utf8(&object.bytes).unwrap();
    let number = text.lines().next().unwrap().parse().unwrap();
    assert_eq!(object.bytes, pattern(number), "a torn object");
    number
}

const KILLED_KEYS: u64 = 4;

#[tokio::test]
async fn child_that_writes_until_killed() {
    let Some(store) = child_folder() else { return };
    for turn in 0.. {
        let key = format!("killed/{}", turn % KILLED_KEYS);
        let object = content(&store, &key).await;
        let next = pattern(pattern_number(&object) + 1);
        store.replace(&key, next, &object.etag).await.unwrap();
        // Folders come and go under the killer too.
        store.put(&format!("fresh/{turn}/x"), bytes("x")).await.unwrap();
        store.delete(&format!("fresh/{turn}/x")).await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_leaves_old_or_new_objects_and_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let mut numbers = vec![0; usize::try_from(KILLED_KEYS).unwrap()];
    for at in 0..numbers.len() {
        store.create(&format!("killed/{at}"), pattern(0)).await.unwrap();
    }
    for round in 0..25_u64 {
        let before = content(&store, "killed/0").await.etag;
        let mut child = child("child_that_writes_until_killed", folder.path());
        let deadline = Deadline::after(Duration::from_secs(20));
        while content(&store, "killed/0").await.etag == before {
            assert!(!deadline.has_passed(), "the child writes");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(round * 1_700 % 23_000)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let store = LocalStore::open(folder.path()).unwrap();
        for (at, number) in numbers.iter_mut().enumerate() {
            let key = format!("killed/{at}");
            let object = content(&store, &key).await;
            let found = pattern_number(&object);
            assert!(found >= *number, "an object went back");
            *number = found + 1;
            store.replace(&key, pattern(*number), &object.etag).await.unwrap();
        }
    }
    let keys = pages(&store, "", 100).await;
    assert!(keys.iter().all(|key| key.starts_with("killed/") || key.starts_with("fresh/")), "{keys:?}");
}

#[tokio::test]
#[ignore = "measures"]
async fn latencies_of_a_local_folder() {
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let content = Bytes::from(vec![7; 16 * 1024]);
    let mut etag = store.create("m/k", content.clone()).await.unwrap();
    let mut times: Vec<(Duration, Duration, Duration)> = Vec::new();
    for at in 0..500 {
        let begun = monotonic();
        etag = store.replace("m/k", content.clone(), &etag).await.unwrap();
        let replaced = begun.elapsed();
        store.get_if_changed("m/k", &etag).await.unwrap();
        let looked = begun.elapsed() - replaced;
        store.put(&format!("data/{}/{at}", at % 64), content.clone()).await.unwrap();
        times.push((replaced, looked, begun.elapsed() - replaced - looked));
    }
    for (name, pick) in [("replace", 0), ("unchanged get", 1), ("put of a fresh key", 2)] {
        let mut some: Vec<Duration> = times.iter().map(|time| [time.0, time.1, time.2][pick]).collect();
        some.sort();
        eprintln!("{name}: p50 {:?}, p99 {:?}, max {:?}", some[250], some[495], some[499]);
    }
}

#[tokio::test]
async fn leftovers_of_dead_processes_are_removed_once_old() {
    let folder = tempfile::tempdir().unwrap();
    drop(LocalStore::open(folder.path()).unwrap());
    let temporary = folder.path().join(".leat/tmp");
    let (old, young) = (temporary.join("old"), temporary.join("young"));
    std::fs::write(&young, "x").unwrap();
    let file = std::fs::File::create(&old).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    assert!(!old.exists() && young.exists());
    assert!(list(&store, "", None, 10).await.is_empty());
    assert!(is_refused(&store.put(".leat/tmp/x", bytes("x")).await));
}

#[tokio::test]
async fn a_local_folder_says_what_is_wrong() {
    use std::error::Error as _;
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    store.put("file", bytes("x")).await.unwrap();
    store.put("folder/file", bytes("x")).await.unwrap();
    std::fs::write(folder.path().join("short"), "x").unwrap();
    let long = "k".repeat(256);
    let table =
        [("file/below", "is a file, not a folder"), ("folder", "is a folder"), (&long, "longer than")];
    for (key, expected) in table {
        let error = store.put(key, bytes("y")).await.unwrap_err();
        let said = error.source().unwrap().to_string();
        assert!(matches!(error, Error::Refused { .. }) && said.contains(expected), "{key}: {error}: {said}");
    }
    let error = store.get("short").await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("too short"), "{error}");
    let error = LocalStore::open(&folder.path().join("file")).unwrap_err();
    assert!(error.to_string().contains("not a folder") || error.to_string().contains("is a file"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path().join(".leat/tmp")).unwrap().count(), 0, "no leftovers");
}
