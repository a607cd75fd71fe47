//! A prefix in the bucket of an emulator, and server processes on it, straight or through a fault proxy.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::emulator::{self, Emulator};
use crate::support::fault_proxy::FaultProxy;
use crate::support::localstack::LocalStack;
use crate::support::ministack::MiniStack;
use crate::support::server::{Server, ServerOptions};
use crate::world::{World, bodies, seq_nums};

/// The basin of every case.
pub const BASIN: &str = "test-basin";

/// Keys of the registers of streams.
pub const MANIFESTS: &str = "/manifest/";
/// Keys of chunks.
pub const CHUNKS: &str = "/data/";

/// Which emulator.
#[derive(Clone, Copy, Debug)]
pub enum On {
    MiniStack,
    LocalStack,
}

enum Held {
    MiniStack(Arc<MiniStack>),
    LocalStack(Arc<LocalStack>),
}

/// An empty prefix.
pub struct Bucket {
    held: Held,
    store: String,
}

impl Deref for Bucket {
    type Target = Emulator;

    fn deref(&self) -> &Emulator {
        match &self.held {
            Held::MiniStack(server) => server,
            Held::LocalStack(server) => server,
        }
    }
}

/// A server process and a client of it; the basin is there once somebody created it.
pub struct Process {
    pub server: Server,
    pub world: World,
}

impl Deref for Process {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Bucket {
    /// A prefix that nothing has used yet.
    pub async fn on(server: On) -> Self {
        static PREFIXES: AtomicUsize = AtomicUsize::new(0);
        let start = move || match server {
            On::MiniStack => Held::MiniStack(MiniStack::shared()),
            On::LocalStack => Held::LocalStack(LocalStack::shared()),
        };
        let held = tokio::task::spawn_blocking(start).await.expect("it starts");
        let mut bucket = Self { held, store: String::new() };
        bucket.store = bucket.deref().store(&format!("case-{}", PREFIXES.fetch_add(1, Ordering::SeqCst)));
        bucket
    }

    /// A fault proxy before it, without faults so far.
    pub async fn proxy(&self) -> FaultProxy {
        FaultProxy::before(&self.address).await
    }

    /// A server that speaks to the bucket itself. It is patient: most cases ask what happens, not how fast a busy
    /// machine is.
    pub fn straight(&self) -> ServerOptions {
        self.impatient(&self.address, "30000")
    }

    /// The same through a proxy.
    pub fn through(&self, proxy: &FaultProxy) -> ServerOptions {
        self.impatient(&proxy.address, "30000")
    }

    /// A server that gives appends so much time.
    pub fn impatient(&self, address: &str, append_timeout_ms: &str) -> ServerOptions {
        ServerOptions::on(&self.store)
            .variables(&emulator::variables(address))
            .flag("--append-timeout-ms", append_timeout_ms)
    }
}

/// Starts servers side by side; the basin exists when they answer.
pub async fn start<const N: usize>(options: [ServerOptions; N]) -> [Process; N] {
    start_with(json!({}), options).await
}

/// The same with a configuration of the basin.
pub async fn start_with<const N: usize>(
    basin: serde_json::Value,
    options: [ServerOptions; N],
) -> [Process; N] {
    let starting = options.map(|options| tokio::task::spawn_blocking(move || options.start()));
    let mut processes = Vec::new();
    for starting in starting {
        let server = starting.await.expect("it starts");
        let world = World::on(&server, BASIN);
        processes.push(Process { server, world });
    }
    processes[0].create_basin(basin).await;
    processes.try_into().unwrap_or_else(|_| unreachable!("as many as there were options"))
}

/// A process of its own on a basin that exists.
pub async fn join(options: ServerOptions) -> Process {
    let server = tokio::task::spawn_blocking(move || options.start()).await.expect("it starts");
    let world = World::on(&server, BASIN);
    Process { server, world }
}

/// The bodies of all records; the sequence numbers are dense.
pub async fn read_all(world: &World, stream: &str) -> Vec<String> {
    let mut all = Vec::new();
    let tail = world.tail(stream).await;
    while (all.len() as u64) < tail {
        let page = world.read(stream, &format!("seq_num={}", all.len())).await.is(200).json();
        for (seq_num, body) in seq_nums(&page).into_iter().zip(bodies(&page)) {
            assert_eq!(seq_num, all.len() as u64, "dense");
            all.push(body);
        }
    }
    all
}
