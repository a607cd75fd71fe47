//! Random histories of Durable Streams: some processes, random operations, sweeps and deaths at once, random faults.
//! Every answer must be true, after every round a process that knows nothing finds what must be there, and in the
//! end nothing is left in the store that no stream names.
//!
//! `LEAT_HISTORY_CASES` sets the number of histories.

mod births;
mod calls;
mod check;
mod model;
mod ops;
mod producers;
mod rounds;

use std::sync::Mutex;
use std::time::Duration;

use leat::engine;
use leat::service::durable::{Buckets, DurableRef};
use leat::types::ledger::{ContentType, Lifetime};
use leat::types::name::BucketName;
use proptest::prelude::*;

use crate::random::cases;
use crate::sweeps::{assert_tidy, manifests};
use crate::world::{Process, SMALL, World, name};

use self::model::Model;
use self::ops::{Expect, Maker, Op, Round, Waits, rounds};
use self::producers::Client;
use self::rounds::{Turn, Under};

/// No late write of a fault arrives later than this.
const LATEST: Duration = Duration::from_millis(20);
/// How long a process that dies is waited for.
const DYING: Duration = Duration::from_millis(80);
/// Names: the even ones hold JSON, the odd ones text. The last two lie in a bucket that no creation makes.
const SLOTS: usize = 5;
const STRICT: [usize; 2] = [3, 4];
const BUCKETS: [&str; 2] = ["made", "strict"];
/// Clients of a name, each with its own producer id.
const CLIENTS: usize = 3;
const IDLE_SECS: u64 = 3_600;

fn bucket(bucket: usize) -> BucketName {
    BucketName::try_from(BUCKETS[bucket]).expect("legal")
}

fn bucket_of(slot: usize) -> usize {
    usize::from(STRICT.contains(&slot))
}

fn at(slot: usize) -> DurableRef {
    let buckets = if STRICT.contains(&slot) { Buckets::MustExist } else { Buckets::AreMade };
    DurableRef { bucket: bucket(bucket_of(slot)), name: name(&format!("s/{slot}")), buckets }
}

fn content_type(slot: usize) -> ContentType {
    ContentType::new(if slot.is_multiple_of(2) { "application/json" } else { "text/plain" }).expect("legal")
}

fn lifetime(idle: bool) -> Lifetime {
    if idle { Lifetime::Idle(IDLE_SECS) } else { Lifetime::Endless }
}

struct History {
    world: World,
    processes: Vec<Process>,
    /// Nothing has gone wrong and nothing has ended by itself so far.
    is_clean: bool,
    /// Of the order in which processes get their turn.
    seed: u64,
    model: Mutex<Model>,
    /// By name, the next mark of its writer.
    writers: Mutex<[u64; SLOTS]>,
    /// By name and client; one that is at work is not there.
    clients: Mutex<Vec<Vec<Option<Client>>>>,
    /// What lies under every name and bucket at the beginning of the round.
    under: Under,
    turn: Turn,
}

impl History {
    /// A process that has done nothing yet.
    fn process(&mut self) -> Process {
        let process = self.world.process();
        self.seed = self.seed.rotate_left(11).wrapping_add(0x9e37_79b9_7f4a_7c15);
        process.faults.interleave(self.seed);
        process
    }

    fn model(&self) -> std::sync::MutexGuard<'_, Model> {
        self.model.lock().expect("no panic")
    }
}

async fn run((rounds, seed): (Vec<Round>, u64)) {
    let options = engine::Options {
        shape: SMALL,
        write_timeout: Duration::from_millis(700),
        ..engine::Options::default()
    };
    let world = World { options, ..World::timed() };
    let clients = (0..SLOTS).map(|_| (0..CLIENTS).map(|_| Some(Client::default())).collect()).collect();
    let mut history = History {
        world,
        processes: Vec::new(),
        is_clean: true,
        seed,
        model: Mutex::default(),
        writers: Mutex::default(),
        clients: Mutex::new(clients),
        under: Under::default(),
        turn: Turn::default(),
    };
    for _ in 0..3 {
        let process = history.process();
        history.processes.push(process);
    }
    let make = |slot| (0, Op::Create { slot, size: None, closes: false, idle: false, maker: Maker::Nobody });
    let first = vec![make(0), make(1), (1, Op::MakeBucket { bucket: 1 })];
    history.round(Round { ops: first, faults: Vec::new(), death: None }).await;
    for round in rounds {
        history.round(round).await;
    }
    history.end().await;
}

impl History {
    /// Every stream goes on, and some days later nothing is left but what the streams name.
    async fn end(&mut self) {
        for slot in 0..SLOTS {
            let post = |by| {
                let (sizes, expect, waits) = (vec![1], Expect::Anything, Waits::Always);
                (by, Op::Post { slot, sizes, closes: false, writer: None, expect, waits })
            };
            for by in 0..3 {
                // Alone and without faults, it is foretold.
                self.round(Round { ops: vec![post(by)], faults: Vec::new(), death: None }).await;
            }
        }
        // A stream that was kept in mind for a fork goes after it, and so on upward.
        for _ in 0..8 {
            self.world.clock.advance_ms(26 * 3_600_000);
            let report = self.processes[0].sweep().await.expect("swept");
            assert_eq!((report.failures, report.more_is_due), (0, false), "{report}");
        }
        self.look().await;
        assert_tidy(&self.world).await;
        self.check_kinship(&manifests(&self.world).await);
        self.check_counts().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(12),
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn every_answer_of_a_random_history_of_durable_streams_is_true(history in (rounds(), any::<u64>())) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run(history));
    }
}
