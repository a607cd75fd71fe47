//! What an append costs beside a raw conditional PUT, and how much fits through one stream.
//!
//! `cargo bench --bench append`, or `-- --help`. Runs through the service, without HTTP, on a local folder with
//! fsync and on a store that answers every request 30 ms late. The absolute figures are those of the machine and
//! its disk; the ratio is the product's.

#![allow(clippy::print_stdout, reason = "its output is the table")]

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clap::Parser;
use leat::service::records::{ReadEvent, StreamRef};
use leat::service::{Options, Service};
use leat::store::{Counts, ETag, Fetched, ListQuery, Listed, Metered, Object, Result, Store, StoreUrl};
use leat::store::{S3Options, memory, open};
use leat::types::config::{BasinConfig, StreamConfigLayer};
use leat::types::name::{BasinName, StreamName};
use leat::types::record::{AppendInput, BeyondTail, ReadLimits, ReadRequest, ReadStart, Record};
use leat::types::time::{Clock, Deadline, monotonic};
use serde_json::json;

/// What an append of one small record may cost, in raw conditional PUTs.
const RATIO_AIM: f64 = 1.3;
/// Size of a raw PUT, and of a record.
const RECORD_BYTES: usize = 1_024;
/// Added to every request of the slow store.
const DELAY: Duration = Duration::from_millis(30);
/// Appends before anything is measured: enough for the tail to have rolled and the ring to be full.
const WARM_UP_APPENDS: usize = 160;
/// Measured appends at most, each beside a raw PUT.
const PAIRS_MAX: usize = 2_000;
/// Concurrent clients and records per batch of each throughput measurement.
const LOADS: [(usize, usize); 4] = [(1, 1), (16, 1), (256, 1), (16, 64)];
/// Batches of one throughput measurement at most.
const BATCHES_MAX: u64 = 100_000;

#[derive(Parser)]
#[command(about = "Measures appends and reads beside raw conditional PUTs")]
struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Only `file` or `slow`
    #[arg(long)]
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
    let reports = runtime.block_on(run(&args));
    if args.json {
        println!("{}", serde_json::Value::Array(reports.iter().map(Report::json).collect()));
    } else {
        reports.iter().for_each(|report| println!("{}", report.table()));
    }
}

async fn run(args: &Args) -> Vec<Report> {
    let wanted = |name| args.store.as_deref().is_none_or(|only| only == name);
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
    reports
}

/// A store that takes its time.
#[derive(Debug)]
struct Slow(Arc<dyn Store>);

impl Slow {
    async fn after<T>(&self, request: impl Future<Output = T>) -> T {
        tokio::time::sleep(DELAY).await;
        request.await
    }
}

#[async_trait]
impl Store for Slow {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.after(self.0.get(key)).await
    }
    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
        self.after(self.0.get_if_changed(key, etag)).await
    }
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        self.after(self.0.get_range(key, range)).await
    }
    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.after(self.0.put(key, bytes)).await
    }
    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.after(self.0.create(key, bytes)).await
    }
    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
        self.after(self.0.replace(key, bytes, etag)).await
    }
    async fn delete(&self, key: &str) -> Result<()> {
        self.after(self.0.delete(key)).await
    }
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.after(self.0.list(query)).await
    }
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
        let service = Service::new(Arc::new(store.clone()), Clock::system(), Options::default());
        Self { store, service }
    }
}

/// Everything measured on one store.
struct Report {
    store: &'static str,
    raw: Latencies,
    append: Latencies,
    loads: Vec<Load>,
    read: Flow,
    memory: Memory,
}

async fn measure(name: &'static str, store: Arc<dyn Store>, time: Duration) -> Report {
    let process = Process::over(store.clone());
    let basin = BasinConfig { create_stream_on_append: true, ..BasinConfig::default() };
    process.service.ensure_basin(&target("").basin, basin).await.expect("a basin");
    let (raw, append) = measure_pairs(&process, time).await;
    let mut loads = Vec::new();
    for (clients, batch_records) in LOADS {
        loads.push(measure_load(&process, clients, batch_records, time).await);
    }
    // By a process that knows nothing yet, of what the last load wrote.
    let (clients, batch_records) = LOADS[LOADS.len() - 1];
    let read = measure_read(&Process::over(store), &load_name(clients, batch_records)).await;
    Report { store: name, raw, append, loads, read, memory: Memory::now() }
}

/// Raw conditional PUTs and appends in turns, so that both see the same machine.
async fn measure_pairs(process: &Process, time: Duration) -> (Latencies, Latencies) {
    let (stream, content) = (target("single"), body());
    for _ in 0..WARM_UP_APPENDS {
        process.service.append(&stream, batch(&content, 1)).await.expect("appended");
    }
    let mut etag = process.store.create("bench/raw", content.clone()).await.expect("created");
    let (mut raw, mut append) = (Latencies::default(), Latencies::default());
    let deadline = Deadline::after(time * 2);
    while raw.0.len() < PAIRS_MAX && !deadline.has_passed() {
        let started = monotonic();
        etag = process.store.replace("bench/raw", content.clone(), &etag).await.expect("replaced");
        raw.0.push(started.elapsed());
        let input = batch(&content, 1);
        let started = monotonic();
        process.service.append(&stream, input).await.expect("appended");
        append.0.push(started.elapsed());
    }
    (raw, append)
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

/// How long calls took.
#[derive(Default)]
struct Latencies(Vec<Duration>);

impl Latencies {
    /// The `percent`-th percentile, in milliseconds.
    fn ms(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }

    fn json(&self) -> serde_json::Value {
        json!({ "calls": self.0.len(), "p50_ms": self.ms(50), "p99_ms": self.ms(99) })
    }
}

/// Records that went through, and what that took.
struct Flow {
    records: usize,
    took: Duration,
    /// Of all threads.
    cpu: Duration,
}

impl Flow {
    fn records_per_s(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64()
    }

    fn mib_per_s(&self) -> f64 {
        self.records_per_s() * RECORD_BYTES as f64 / 1_048_576.0
    }

    fn cpu_us_per_record(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.records as f64
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "records": self.records, "records_per_s": self.records_per_s(), "mib_per_s": self.mib_per_s(),
            "cpu_us_per_record": self.cpu_us_per_record(),
        })
    }
}

/// Clients that append to one stream.
struct Load {
    clients: usize,
    batch_records: usize,
    flow: Flow,
    latencies: Latencies,
    requests: Counts,
}

impl Load {
    fn requests_per_append(&self) -> f64 {
        self.requests.total() as f64 / self.latencies.0.len() as f64
    }

    fn batches_per_commit(&self) -> f64 {
        self.latencies.0.len() as f64 / self.requests.replace as f64
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "clients": self.clients, "batch_records": self.batch_records, "flow": self.flow.json(),
            "latency": self.latencies.json(), "requests_per_append": self.requests_per_append(),
            "batches_per_commit": self.batches_per_commit(),
        })
    }
}

/// Resident memory of this process in MiB; 0 where there is no `/proc`.
struct Memory {
    now: f64,
    peak: f64,
}

impl Memory {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or_default() / 1_024.0
        };
        Self { now: mib("VmRSS:"), peak: mib("VmHWM:") }
    }
}

/// Processor time of this process so far; 0 where there is no `/proc`.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time are fields 14 and 15, in hundredths of a second; the name before may hold anything.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

impl Report {
    fn ratio(&self) -> f64 {
        self.append.ms(50) / self.raw.ms(50)
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "store": self.store,
            "raw_put": self.raw.json(),
            "append": self.append.json(),
            "append_to_raw_p50": self.ratio(),
            "loads": self.loads.iter().map(Load::json).collect::<Vec<_>>(),
            "catch_up_read": self.read.json(),
            "resident_mib": self.memory.now,
            "resident_peak_mib": self.memory.peak,
        })
    }

    fn table(&self) -> String {
        let mut out = format!("{}\n", self.store);
        let mut line =
            |text: std::fmt::Arguments<'_>| writeln!(out, "  {text}").expect("text takes anything");
        let pair = |name, l: &Latencies| {
            format!("{name:<22}p50 {:>7.2} ms   p99 {:>7.2} ms   {} calls", l.ms(50), l.ms(99), l.0.len())
        };
        line(format_args!("{}", pair("raw PUT, 1 KiB", &self.raw)));
        line(format_args!("{}", pair("append, 1 KiB", &self.append)));
        line(format_args!(
            "{:<22}{:.2} at the median; the aim is {RATIO_AIM}",
            "append to raw PUT",
            self.ratio()
        ));
        line(format_args!(
            "{:<22}{:>9} {:>7} {:>8} {:>8} {:>13} {:>15} {:>10}",
            "append, clients",
            "records/s",
            "MiB/s",
            "p50 ms",
            "p99 ms",
            "batch/commit",
            "request/append",
            "µs CPU"
        ));
        for load in &self.loads {
            let name = format!("{:>5} of {} KiB", load.clients, load.batch_records);
            line(format_args!(
                "{name:<22}{:>9.0} {:>7.1} {:>8.2} {:>8.2} {:>13.1} {:>15.2} {:>10.1}",
                load.flow.records_per_s(),
                load.flow.mib_per_s(),
                load.latencies.ms(50),
                load.latencies.ms(99),
                load.batches_per_commit(),
                load.requests_per_append(),
                load.flow.cpu_us_per_record()
            ));
        }
        line(format_args!(
            "{:<22}{:>9.0} {:>7.1} {:>57.1}",
            "catch-up read",
            self.read.records_per_s(),
            self.read.mib_per_s(),
            self.read.cpu_us_per_record()
        ));
        let Memory { now, peak } = self.memory;
        line(format_args!("{:<22}{now:.0} MiB, at most {peak:.0} MiB", "resident memory"));
        out
    }
}
