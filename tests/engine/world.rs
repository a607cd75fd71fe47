//! A bucket in memory, processes over it, and shorthands.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leat::engine;
use leat::service::records::StreamRef;
use leat::service::{Error, Options, Service};
use leat::storage::manifest::Shape;
use leat::store::{Metered, Store, memory};
use leat::sweeper::{self, Report, Sweeper};
use leat::types::config::{BasinConfig, StorageClass, StreamConfigLayer};
use leat::types::name::{BasinName, StreamName};
use leat::types::record::{
    AppendAck, AppendInput, BeyondTail, ReadLimits, ReadRequest, ReadStart, Record, SequencedRecord,
};
use leat::types::time::Clock;

use crate::faulty::Faulty;
use crate::timed::Timed;

/// Small, so that a few appends roll tails and make an index, a few producers spill, and chunks are copied.
pub(crate) const SMALL: Shape = Shape {
    inline_bytes_standard: 1_024,
    inline_bytes_express: 512,
    refs_max: 4,
    page_refs_max: 4,
    producer_bytes_max: 60,
    copied_bytes_min: 1_024,
};

/// A bucket and what several processes over it share.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) options: engine::Options,
}

/// One process: its own service, its own counted and faulty way to the bucket.
pub(crate) struct Process {
    pub(crate) service: Service,
    pub(crate) faults: Faulty,
    pub(crate) meter: Arc<Metered>,
    clock: Clock,
    shape: Shape,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { store: memory(), clock: Clock::system(), options: engine::Options::default() }
    }

    /// A world whose time the test moves.
    pub(crate) fn timed() -> Self {
        // Some time in 2026.
        let clock = Clock::manual(1_790_000_000_000);
        Self { store: Timed::by(&clock), clock, options: engine::Options::default() }
    }

    /// A process that has done nothing yet.
    pub(crate) fn process(&self) -> Process {
        let faults = Faulty::over(self.store.clone());
        let meter = Arc::new(Metered::new(Arc::new(faults.clone())));
        let options = Options { default_storage_class: StorageClass::Standard, engine: self.options.clone() };
        let service = Service::new(meter.clone(), self.clock.clone(), options);
        Process { service, faults, meter, clock: self.clock.clone(), shape: self.options.shape }
    }

    /// A process with the basin created, and auto-creation on.
    pub(crate) async fn process_with_basin(&self) -> Process {
        let process = self.process();
        let config = BasinConfig {
            create_stream_on_append: true,
            create_stream_on_read: true,
            ..BasinConfig::default()
        };
        process.service.ensure_basin(&basin(), config).await.expect("created");
        process
    }
}

impl Process {
    /// One pass of this process's sweeper.
    pub(crate) async fn sweep(&self) -> Result<Report, sweeper::Error> {
        self.sweep_as(sweeper::Options { collect_every_ms: 0, ..sweeper::Options::default() }).await
    }

    pub(crate) async fn sweep_as(&self, options: sweeper::Options) -> Result<Report, sweeper::Error> {
        let options = sweeper::Options { shape: self.shape, ..options };
        Sweeper::new(self.meter.clone(), self.service.clone(), self.clock.clone(), options).pass(None).await
    }

    pub(crate) async fn append(&self, stream: &str, bodies: &[&str]) -> Result<AppendAck, Error> {
        self.append_input(stream, batch(bodies.iter().map(|b| record(b.as_bytes())).collect())).await
    }

    pub(crate) async fn append_input(&self, stream: &str, input: AppendInput) -> Result<AppendAck, Error> {
        self.service.append(&target(stream), input).await
    }

    pub(crate) async fn tail(&self, stream: &str) -> Result<u64, Error> {
        self.service.check_tail(&target(stream)).await.map(|tail| tail.seq_num)
    }

    /// Everything from `from` on, batch by batch.
    pub(crate) async fn read_all(&self, stream: &str, from: u64) -> Result<Vec<SequencedRecord>, Error> {
        let mut all = Vec::new();
        let mut next = from;
        loop {
            match self.service.read(&target(stream), from_seq(next)).await {
                Ok(batch) if batch.records.is_empty() => return Ok(all),
                Ok(batch) => {
                    next = batch.records.last().map_or(next, |r| r.seq_num + 1);
                    all.extend(batch.records);
                }
                Err(Error::BeyondTail { .. }) => return Ok(all),
                Err(error) => return Err(error),
            }
        }
    }

    /// The bodies of all records.
    pub(crate) async fn bodies(&self, stream: &str) -> Vec<String> {
        let all = self.read_all(stream, 0).await.expect("readable");
        for (expected, r) in (all.first().map_or(0, |r| r.seq_num)..).zip(&all) {
            assert_eq!(r.seq_num, expected, "dense");
        }
        all.iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect()
    }
}

pub(crate) fn basin() -> BasinName {
    BasinName::try_from("test-basin").expect("legal")
}

pub(crate) fn name(stream: &str) -> StreamName {
    StreamName::try_from(stream).expect("legal")
}

pub(crate) fn target(stream: &str) -> StreamRef {
    StreamRef { basin: basin(), name: name(stream), config: StreamConfigLayer::default() }
}

pub(crate) fn record(body: &[u8]) -> Record {
    Record { body: Bytes::copy_from_slice(body), ..Record::default() }
}

pub(crate) fn batch(records: Vec<Record>) -> AppendInput {
    AppendInput::new(records, None, None).expect("legal")
}

pub(crate) fn from_seq(seq_num: u64) -> ReadRequest {
    ReadRequest {
        start: ReadStart::SeqNum(seq_num),
        beyond_tail: BeyondTail::Refuse,
        limits: ReadLimits { count: Some(1_000), bytes: Some(1024 * 1024), until: None },
        wait_secs: None,
    }
}

/// Engine options with short timeouts.
pub(crate) fn impatient() -> engine::Options {
    engine::Options { write_timeout: Duration::from_millis(900), ..engine::Options::default() }
}

impl Process {
    /// Every object under a prefix.
    pub(crate) async fn service_list(&self, prefix: &str) -> Vec<leat::store::Listed> {
        let query = leat::store::ListQuery { prefix: prefix.to_owned(), start_after: None, limit: 100_000 };
        self.faults.list(query).await.expect("listed")
    }
}
