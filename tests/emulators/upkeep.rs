//! What the sweeper and a fork cost on an S3-compatible server: measurements, run by `just measure-store`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, stream};
use leat::service::durable::{Buckets, Creation, DurableRef, ForkOf, Post, ReadFrom};
use leat::service::records::StreamRef;
use leat::service::{Options, Service};
use leat::storage::key;
use leat::store::{ListQuery, Metered, S3Options, Store, open};
use leat::sweeper::{self, Report, Sweeper};
use leat::types::config::{
    BasinConfig, Patch, RetentionPolicy, StorageClass, StreamConfigLayer, StreamConfigPatch,
};
use leat::types::ledger::ContentType;
use leat::types::name::{BasinName, BucketName, StreamName};
use leat::types::record::{AppendInput, BeyondTail, ReadLimits, ReadRequest, ReadStart, Record};
use leat::types::time::Clock;

use crate::support::ministack::MiniStack;

const MIB: usize = 1024 * 1024;

struct Place {
    store: Arc<Metered>,
    service: Service,
    clock: Clock,
    basin: BasinName,
    _server: MiniStack,
}

async fn place(bucket: &'static str) -> Place {
    let server = tokio::task::spawn_blocking(move || MiniStack::start(bucket)).await.unwrap();
    let options = S3Options::at(&format!("http://{}", server.address), "test", "test");
    let url = server.store("upkeep");
    let store = Arc::new(Metered::new(open(&url.parse().unwrap(), &options).unwrap()));
    let (clock, basin) = (Clock::system(), BasinName::try_from("sweep-basin").unwrap());
    let service = Service::new(store.clone(), clock.clone(), Options::default());
    service.create_basin(&basin, BasinConfig::default(), None).await.unwrap();
    Place { store, service, clock, basin, _server: server }
}

impl Place {
    fn target(&self, stream: &str) -> StreamRef {
        let name = StreamName::try_from(stream).unwrap();
        StreamRef { basin: self.basin.clone(), name, config: StreamConfigLayer::default() }
    }

    async fn sweep(&self) -> Report {
        let options = sweeper::Options::default();
        let sweeper = Sweeper::new(self.store.clone(), self.service.clone(), self.clock.clone(), options);
        let report = sweeper.pass(None).await.unwrap();
        assert_eq!(report.failures, 0, "{report}");
        report
    }

    async fn count(&self, prefix: &str) -> usize {
        let query = ListQuery { prefix: prefix.to_owned(), start_after: None, limit: 100_000 };
        self.store.list(query).await.unwrap().len()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_a_sweep_of_many_streams_of_which_few_are_due() {
    const STREAMS: usize = 10_000;
    const DUE: usize = 100;
    let place = place("sweep-many").await;
    let create = |n: usize| {
        let (service, basin) = (place.service.clone(), place.basin.clone());
        async move {
            let name = StreamName::try_from(format!("s{n}").as_str()).unwrap();
            let config =
                StreamConfigLayer { storage_class: Some(StorageClass::Standard), ..Default::default() };
            service.create_stream(&basin, &name, config, None).await.unwrap();
            let input = AppendInput::new(
                vec![Record { body: Bytes::from_static(b"a record"), ..Record::default() }],
                None,
                None,
            );
            let target = StreamRef { basin, name, config: StreamConfigLayer::default() };
            service.append(&target, input.unwrap()).await.unwrap();
        }
    };
    stream::iter(0..STREAMS).map(create).buffer_unordered(32).collect::<Vec<()>>().await;
    // A changed retention asks for a visit now; a deletion as well.
    for n in 0..DUE {
        let name = StreamName::try_from(format!("s{n}").as_str()).unwrap();
        if n % 2 == 0 {
            let patch = StreamConfigPatch {
                retention_policy: Patch::Set(RetentionPolicy::Age(86_400)),
                ..StreamConfigPatch::default()
            };
            place.service.reconfigure_stream(&place.basin, &name, patch).await.unwrap();
        } else {
            place.service.delete_stream(&place.basin, &name).await.unwrap();
        }
    }
    let before = place.store.counts();
    let started = Instant::now();
    let report = place.sweep().await;
    let (took, after) = (started.elapsed(), place.store.counts());
    assert_eq!(report.streams_visited + report.lives_cleared, DUE as u64, "{report}");
    let requests = after.total() - before.total();
    println!(
        "{STREAMS} streams, {DUE} due: {requests} requests ({:.1} a visit), {took:?}; {after:?} after {before:?}",
        requests as f64 / DUE as f64
    );
    let before = place.store.counts().total();
    assert_eq!(place.sweep().await.markers, 0);
    println!("nothing due: {} requests", place.store.counts().total() - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_the_compaction_of_a_stream_of_small_chunks() {
    let place = place("sweep-compact").await;
    let (name, target) = (StreamName::try_from("small").unwrap(), place.target("small"));
    let config = StreamConfigLayer {
        retention_policy: Some(RetentionPolicy::Age(30 * 86_400)),
        ..StreamConfigLayer::default()
    };
    place.service.create_stream(&place.basin, &name, config, None).await.unwrap();
    let body: Bytes = (0..63 * 1024u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let total = 1024 * MIB;
    for _ in 0..total / body.len() {
        let record = Record { body: body.clone(), ..Record::default() };
        place.service.append(&target, AppendInput::new(vec![record], None, None).unwrap()).await.unwrap();
    }
    let read = async |label: &str| {
        // A process that knows nothing.
        let service = Service::new(place.store.clone(), place.clock.clone(), Options::default());
        let (before, started) = (place.store.counts().total(), Instant::now());
        let request = ReadRequest {
            start: ReadStart::SeqNum(0),
            beyond_tail: BeyondTail::Refuse,
            limits: ReadLimits { bytes: Some(total as u64), ..ReadLimits::default() },
            wait_secs: None,
        };
        let mut session = service.read_session(&target, request).await.unwrap();
        let mut bytes = 0;
        while let Some(event) = session.next().await {
            if let leat::service::records::ReadEvent::Batch(batch) = event.unwrap() {
                bytes += batch.records.iter().map(|r| r.body.len()).sum::<usize>();
            }
            if bytes >= total / body.len() * body.len() {
                break;
            }
        }
        let (took, requests) = (started.elapsed(), place.store.counts().total() - before);
        println!(
            "{label}: {} objects, catch-up {:.0} MiB/s, {requests} requests for {} MiB",
            place.count("data/").await + place.count("index/").await,
            bytes as f64 / MIB as f64 / took.as_secs_f64(),
            bytes / MIB,
        );
    };
    read("before").await;
    // A changed retention within the class asks for a visit now.
    let patch = StreamConfigPatch {
        retention_policy: Patch::Set(RetentionPolicy::Age(29 * 86_400)),
        ..StreamConfigPatch::default()
    };
    place.service.reconfigure_stream(&place.basin, &name, patch).await.unwrap();
    let (before, started) = (place.store.counts(), Instant::now());
    let mut passes = 0;
    loop {
        let report = place.sweep().await;
        if report.markers == 0 {
            break;
        }
        passes += 1;
        println!(
            "pass {passes}: {} chunks merged, {} objects removed",
            report.chunks_merged, report.objects_removed
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!(
        "compaction: {passes} passes, {:?}, {:?} after {before:?}",
        started.elapsed(),
        place.store.counts()
    );
    read("after").await;
    assert!(place.count(&key::class(key::DataClass::Days32)).await < 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_a_fork_of_a_long_stream() {
    const APPENDS: usize = 128;
    let place = place("fork").await;
    let at = |name: &str| DurableRef {
        bucket: BucketName::try_from("bucket").unwrap(),
        name: StreamName::try_from(name).unwrap(),
        buckets: Buckets::AreMade,
    };
    place.service.create_durable(&at("source"), &Creation::default()).await.unwrap();
    let body: Bytes = (0..4 * 1024 * 1024u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..APPENDS {
        let content_type = Some(ContentType::octets());
        place
            .service
            .post(&at("source"), Post { content_type, body: body.clone(), ..Post::default() })
            .await
            .unwrap();
    }
    // A process that knows nothing.
    let service = Service::new(place.store.clone(), place.clock.clone(), Options::default());
    let (before, started) = (place.store.counts(), Instant::now());
    let fork = ForkOf { source: at("source"), at: None, beyond: 0 };
    service.create_durable(&at("fork"), &Creation { fork: Some(fork), ..Creation::default() }).await.unwrap();
    let (took, asked) = (started.elapsed(), place.store.counts() - before);
    println!(
        "fork of {} MiB in {APPENDS} chunks: {took:?}, {} requests, {asked:?}",
        4 * APPENDS,
        asked.total()
    );
    let (before, started) = (place.store.counts(), Instant::now());
    let mut reader = service.durable_reader(&at("fork"), ReadFrom::Start).await.unwrap();
    let mut bytes = 0;
    while !reader.is_at_tail() {
        bytes +=
            reader.messages(u64::MAX).await.unwrap().iter().map(|message| message.body.len()).sum::<usize>();
    }
    assert_eq!(bytes, APPENDS * body.len());
    let requests = (place.store.counts() - before).total();
    println!("reading it through the process, without writing: {:?}, {requests} requests", started.elapsed());
}
