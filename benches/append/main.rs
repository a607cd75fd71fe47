//! What an append costs beside a raw conditional PUT, and how much fits through one stream.
//!
//! `cargo bench --bench append`, or `-- --help`. Runs through the service, without HTTP, on a local folder with
//! fsync and on a store that answers every request 30 ms late. The absolute figures are those of the machine and
//! its disk; the ratio is the product's.

#![allow(clippy::print_stdout, reason = "its output is the table")]

mod report;
mod slow;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use leat::engine;
use leat::service::records::{ReadEvent, StreamRef};
use leat::service::{Options, Service};
use leat::store::{ETag, Metered, S3Options, Store, StoreUrl, memory, open};
use leat::types::config::{BasinConfig, StreamConfigLayer};
use leat::types::name::{BasinName, StreamName};
use leat::types::record::{AppendInput, BeyondTail, ReadLimits, ReadRequest, ReadStart, Record};
use leat::types::time::{Clock, Deadline, monotonic};

use report::{Flow, Latencies, Load, Memory, Report, cpu_time};
use slow::Slow;

/// Size of a raw PUT, and of a record.
const RECORD_BYTES: usize = 1_024;
/// About the mean size of the manifest of a stream of small appends.
const MANIFEST_BYTES: usize = 14 * 1_024;
/// Appends before anything is measured: enough for the tail to have rolled and the ring to be full.
const WARM_UP_APPENDS: usize = 160;
/// Measured appends at most, each between a small and a large raw PUT.
const SINGLES_MAX: usize = 2_000;
/// Concurrent clients and records per batch of each throughput measurement.
const LOADS: [(usize, usize); 4] = [(1, 1), (16, 1), (256, 1), (16, 64)];
/// Batches of one throughput measurement at most.
const BATCHES_MAX: u64 = 100_000;

/// A stalling disk is to be measured, not to end the run.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(about = "Measures appends and reads beside raw conditional PUTs")]
struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Only this store; `memory` is the engine alone
    #[arg(long, value_parser = ["file", "slow", "memory"])]
    store: Option<String>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Where the folder is made, on the disk to measure [default: the system's temporary folder]
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let is_json = args.json;
    // On a worker, as a server's handlers are, not on the thread that waits for the runtime.
    let reports = runtime.block_on(runtime.spawn(run(args))).expect("measurements that end");
    if is_json {
        println!("{}", serde_json::Value::Array(reports.iter().map(Report::json).collect()));
    } else {
        reports.iter().for_each(|report| println!("{}", report.table()));
    }
}

async fn run(args: Args) -> Vec<Report> {
    let is_only = |name| args.store.as_deref() == Some(name);
    let wanted = |name| args.store.is_none() || is_only(name);
    let time = Duration::from_secs(args.seconds);
    let mut reports = Vec::new();
    // The folder first: the other store keeps its objects in the memory that is reported.
    if wanted("file") {
        let folder = match &args.folder {
            Some(parent) => tempfile::tempdir_in(parent),
            None => tempfile::tempdir(),
        }
        .expect("a temporary folder");
        let url: StoreUrl =
            format!("file://{}", folder.path().display()).parse().expect("a folder is a store");
        let store = open(&url, &S3Options::default()).expect("a new folder opens");
        reports.push(measure("file:// with fsync", store, time).await);
    }
    if wanted("slow") {
        reports.push(measure("memory, each request 30 ms late", Arc::new(Slow(memory())), time).await);
    }
    if is_only("memory") {
        reports.push(measure("memory", memory(), time).await);
    }
    reports
}

/// A process over the store.
#[derive(Clone)]
struct Process {
    store: Metered,
    service: Service,
}

impl Process {
    fn over(store: Arc<dyn Store>) -> Self {
        let store = Metered::new(store);
        let engine = engine::Options { write_timeout: WRITE_TIMEOUT, ..engine::Options::default() };
        let options = Options { engine, ..Options::default() };
        let service = Service::new(Arc::new(store.clone()), Clock::system(), options);
        Self { store, service }
    }
}

async fn measure(name: &'static str, store: Arc<dyn Store>, time: Duration) -> Report {
    let process = Process::over(store.clone());
    let basin = BasinConfig { create_stream_on_append: true, ..BasinConfig::default() };
    process.service.ensure_basin(&target("").basin, basin).await.expect("a basin");
    let (raw, raw_large, append) = measure_single(&process, time).await;
    let mut loads = Vec::new();
    for (clients, batch_records) in LOADS {
        loads.push(measure_load(&process, clients, batch_records, time).await);
    }
    // By processes that know nothing yet.
    let mut reads = Vec::new();
    for (name, (clients, batch_records)) in
        [("read, small chunks", LOADS[1]), ("read, large chunks", LOADS[3])]
    {
        let process = Process::over(store.clone());
        reads.push((name, measure_read(&process, &load_name(clients, batch_records)).await));
    }
    Report { store: name, raw, raw_large, append, loads, reads, memory: Memory::now() }
}

/// Raw conditional PUTs, small and large, and appends in turns, so that all see the same machine.
async fn measure_single(process: &Process, time: Duration) -> (Latencies, Latencies, Latencies) {
    let (stream, content) = (target("single"), body());
    for _ in 0..WARM_UP_APPENDS {
        process.service.append(&stream, batch(&content, 1)).await.expect("appended");
    }
    let large = Bytes::from(content.repeat(MANIFEST_BYTES / RECORD_BYTES));
    let mut small_put = RawPut::new(process, "bench/small", content.clone()).await;
    let mut large_put = RawPut::new(process, "bench/large", large).await;
    let mut append = Latencies::default();
    let deadline = Deadline::after(time * 3);
    while append.0.len() < SINGLES_MAX && !deadline.has_passed() {
        small_put.replace(process).await;
        let input = batch(&content, 1);
        let started = monotonic();
        process.service.append(&stream, input).await.expect("appended");
        append.0.push(started.elapsed());
        large_put.replace(process).await;
    }
    (small_put.latencies, large_put.latencies, append)
}

/// An object that is replaced again and again.
struct RawPut {
    key: &'static str,
    content: Bytes,
    etag: ETag,
    latencies: Latencies,
}

impl RawPut {
    async fn new(process: &Process, key: &'static str, content: Bytes) -> Self {
        let etag = process.store.create(key, content.clone()).await.expect("created");
        Self { key, content, etag, latencies: Latencies::default() }
    }

    async fn replace(&mut self, process: &Process) {
        let started = monotonic();
        let replaced = process.store.replace(self.key, self.content.clone(), &self.etag).await;
        self.latencies.0.push(started.elapsed());
        self.etag = replaced.expect("replaced");
    }
}

/// Clients that append to one stream, each its next batch when the last is acknowledged.
async fn measure_load(process: &Process, clients: usize, batch_records: usize, time: Duration) -> Load {
    let (stream, content) = (target(&load_name(clients, batch_records)), body());
    process.service.append(&stream, batch(&content, 1)).await.expect("created");
    let (before, cpu, started) = (process.store.counts(), cpu_time(), monotonic());
    let deadline = Deadline::after(time);
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (process, stream, content) = (process.clone(), stream.clone(), content.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let batches_max = BATCHES_MAX / clients as u64;
                while (latencies.len() as u64) < batches_max && !deadline.has_passed() {
                    let input = batch(&content, batch_records);
                    let started = monotonic();
                    process.service.append(&stream, input).await.expect("appended");
                    latencies.push(started.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Latencies::default();
    for task in tasks {
        latencies.0.extend(task.await.expect("a client that ends"));
    }
    let records = latencies.0.len() * batch_records;
    let flow = Flow { records, took: started.elapsed(), cpu: cpu_time().saturating_sub(cpu) };
    Load { clients, batch_records, flow, latencies, requests: process.store.counts() - before }
}

/// One client that reads a stream from its beginning to its tail.
async fn measure_read(process: &Process, stream: &str) -> Flow {
    let request = ReadRequest {
        start: ReadStart::SeqNum(0),
        beyond_tail: BeyondTail::Refuse,
        limits: ReadLimits::default(),
        wait_secs: Some(0),
    };
    let (cpu, started) = (cpu_time(), monotonic());
    let mut session = process.service.read_session(&target(stream), request).await.expect("readable");
    let mut records = 0;
    while let Some(event) = session.next().await {
        if let ReadEvent::Batch(batch) = event.expect("readable") {
            records += batch.records.len();
        }
    }
    Flow { records, took: started.elapsed(), cpu: cpu_time().saturating_sub(cpu) }
}

fn load_name(clients: usize, batch_records: usize) -> String {
    format!("load-{clients}-{batch_records}")
}

fn target(stream: &str) -> StreamRef {
    StreamRef {
        basin: BasinName::try_from("bench-basin").expect("legal"),
        name: StreamName::try_from(if stream.is_empty() { "none" } else { stream }).expect("legal"),
        config: StreamConfigLayer::default(),
    }
}

fn body() -> Bytes {
    (0..RECORD_BYTES).map(|i| (i * 31 % 251).to_le_bytes()[0]).collect()
}

fn batch(body: &Bytes, records: usize) -> AppendInput {
    let record = Record { body: body.clone(), ..Record::default() };
    AppendInput::new(vec![record; records], None, None).expect("within the limits")
}
