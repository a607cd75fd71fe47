//! Random histories: some processes, random operations and sweeps at once, random faults; every answer must be
//! true, and in the end nothing is left in the store that the stream does not name.
//!
//! `LEAT_HISTORY_CASES` sets the number of histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leat::engine;
use leat::service::Error;
use leat::store::Operation;
use leat::types::config::{Patch, RetentionPolicy, StorageClass, StreamConfigLayer, StreamConfigPatch};
use leat::types::record::{AppendAck, AppendInput, FencingToken, Header, Record};
use leat::types::time::Clock;
use proptest::prelude::*;

use crate::random::{Injected, cases, fault, in_time, mark, unmark};
use crate::sweeps::assert_tidy;
use crate::world::{Process, SMALL, World, basin, batch, from_seq, name, record, target};

/// No late write of a fault arrives later than this.
const LATEST: Duration = Duration::from_millis(60);

/// What a batch expects of the next sequence number.
#[derive(Clone, Copy, Debug)]
enum Expect {
    Anything,
    /// The tail as the test knows it, and so much more.
    Tail(u64),
}

#[derive(Clone, Debug)]
enum Op {
    Append {
        sizes: Vec<usize>,
        expect: Expect,
        timestamp: Option<u64>,
        fenced: bool,
    },
    Trim {
        to: u64,
    },
    Fence {
        token: u8,
    },
    Reconfigure {
        express: bool,
        infinite: bool,
    },
    Tail,
    Read,
    Recreate,
    Sweep,
    /// So many minutes pass, once the others of the round are done.
    Later {
        minutes: u64,
    },
}

/// Operations at once, each by one process, after these faults were set up.
type Round = (Vec<(usize, Op)>, Vec<Injected>);

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => 0usize..200, 2 => 400usize..1_200, 1 => 2_000usize..5_000];
    let expect = prop_oneof![3 => Just(Expect::Anything), 2 => (0u64..3).prop_map(Expect::Tail)];
    let append = (prop::collection::vec(size, 1..4), expect, prop::option::of(0u64..5_000), any::<bool>())
        .prop_map(|(sizes, expect, timestamp, fenced)| Op::Append { sizes, expect, timestamp, fenced });
    prop_oneof![
        14 => append,
        1 => (0u64..40).prop_map(|to| Op::Trim { to }),
        1 => (0u8..3).prop_map(|token| Op::Fence { token }),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(express, infinite)| Op::Reconfigure { express, infinite }),
        2 => Just(Op::Tail),
        2 => Just(Op::Read),
        1 => Just(Op::Recreate),
        3 => Just(Op::Sweep),
        2 => (1u64..400).prop_map(|minutes| Op::Later { minutes }),
    ]
}

fn places() -> impl Strategy<Value = (Operation, &'static str)> {
    prop_oneof![
        5 => Just((Operation::Replace, "manifest/")),
        1 => Just((Operation::Create, "manifest/")),
        2 => Just((Operation::Get, "manifest/")),
        2 => Just((Operation::Put, "data/")),
        1 => Just((Operation::Put, "index/")),
        1 => Just((Operation::Get, "basins/")),
        1 => Just((Operation::Put, "catalog/")),
        1 => Just((Operation::Delete, "catalog/")),
        1 => Just((Operation::Put, "due/")),
        1 => Just((Operation::Delete, "due/")),
        1 => Just((Operation::List, "")),
        1 => Just((Operation::Delete, "data/")),
        1 => Just((Operation::Delete, "index/")),
        1 => Just((Operation::Get, "data/")),
    ]
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let round = (
        prop::collection::vec((0usize..3, op()), 1..7),
        prop::collection::vec(fault(LATEST, places()), 0..5),
    );
    prop::collection::vec(round, 2..9)
}

/// What became of a batch.
#[derive(Clone, Debug)]
enum Fate {
    Acked(AppendAck),
    /// It is there at most once.
    Unknown,
    /// It is nowhere.
    Refused(String),
    /// It was acknowledged beside a deletion: in a life that may be over.
    AckedInDoubt(AppendAck),
}

/// What the test knows for certain.
#[derive(Default)]
struct Known {
    next_batch: u64,
    fates: BTreeMap<u64, (Fate, usize)>,
    /// No look that begins now may show less.
    tail_at_least: u64,
    /// Sequence numbers below may be gone.
    trimmed_at_most: u64,
    /// Whether a deletion is under way.
    in_doubt: bool,
}

struct History {
    clock: Clock,
    processes: Vec<Process>,
    known: Mutex<Known>,
}

impl History {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("no panic")
    }

    fn saw_tail(&self, tail: u64, at_least: u64) {
        let mut known = self.known();
        if !known.in_doubt {
            assert!(tail >= at_least, "a tail of {tail} after one of {at_least} was known");
            known.tail_at_least = known.tail_at_least.max(tail);
        }
    }

    async fn run(&self, by: usize, op: Op) {
        let process = &self.processes[by];
        let at_least = self.known().tail_at_least;
        match op {
            Op::Append { sizes, expect, timestamp, fenced } => {
                let expect = match expect {
                    Expect::Anything => None,
                    Expect::Tail(more) => Some(at_least + more),
                };
                let token = fenced.then(|| FencingToken::new(String::new()).expect("short"));
                self.append(process, sizes, timestamp, (expect, token)).await;
            }
            Op::Trim { to } => {
                self.known().trimmed_at_most = self.known_trim().max(to);
                let body = to.to_be_bytes().to_vec();
                self.command(process, "trim", body).await;
            }
            Op::Fence { token } => self.command(process, "fence", vec![b'a'; token.into()]).await,
            Op::Reconfigure { express, infinite } => {
                let patch = StreamConfigPatch {
                    storage_class: Patch::Set(if express {
                        StorageClass::Express
                    } else {
                        StorageClass::Standard
                    }),
                    // Longer than any history.
                    retention_policy: Patch::Set(if infinite {
                        RetentionPolicy::Infinite
                    } else {
                        RetentionPolicy::Age(28 * 86_400)
                    }),
                    ..StreamConfigPatch::default()
                };
                let _ = in_time(process.service.reconfigure_stream(&basin(), &name("s"), patch)).await;
            }
            Op::Tail => {
                if let Some(Ok(tail)) = in_time(process.tail("s")).await {
                    self.saw_tail(tail, at_least);
                }
            }
            Op::Read => {
                let read = in_time(process.service.read(&target("s"), from_seq(0))).await;
                if let Some(Ok(batch)) = read {
                    assert!(batch.records.is_sorted_by(|a, b| a.seq_num + 1 == b.seq_num), "a gap");
                    // Nothing may be left of a trimmed stream; else all of it fits into one answer.
                    if let Some(last) = batch.records.last() {
                        self.saw_tail(last.seq_num + 1, at_least);
                    }
                }
            }
            Op::Recreate => self.recreate(process).await,
            Op::Sweep => {
                let _ = in_time(process.sweep()).await;
            }
            Op::Later { minutes } => self.clock.advance_ms(minutes * 60_000),
        }
    }

    fn known_trim(&self) -> u64 {
        self.known().trimmed_at_most
    }

    async fn command(&self, process: &Process, command: &'static str, body: Vec<u8>) {
        let header = Header { name: "".into(), value: command.into() };
        let at_least = self.known().tail_at_least;
        let number = self.begin();
        let command = Record { timestamp: None, headers: vec![header], body: body.into() };
        // The batch is recognised by the record beside the command.
        let input = batch(vec![marked(number, 0, 0, None), command]);
        self.settle(number, 2, in_time(process.append_input("s", input)).await, (None, at_least));
    }

    fn begin(&self) -> u64 {
        let mut known = self.known();
        known.next_batch += 1;
        known.next_batch
    }

    async fn append(
        &self,
        process: &Process,
        sizes: Vec<usize>,
        timestamp: Option<u64>,
        (expect, token): (Option<u64>, Option<FencingToken>),
    ) {
        let number = self.begin();
        let at_least = self.known().tail_at_least;
        let records = sizes.iter().enumerate().map(|(i, size)| marked(number, i, *size, timestamp)).collect();
        let input = AppendInput::new(records, expect, token).expect("legal");
        let outcome = in_time(process.append_input("s", input)).await;
        self.settle(number, sizes.len(), outcome, (expect, at_least));
    }

    /// Notes what became of a batch, and checks what the answer says of the moment.
    fn settle(
        &self,
        number: u64,
        records: usize,
        outcome: Option<Result<AppendAck, Error>>,
        (expect, at_least): (Option<u64>, u64),
    ) {
        let in_doubt = self.known().in_doubt;
        let fate = match outcome {
            Some(Ok(ack)) => {
                assert_eq!(ack.end.seq_num - ack.start.seq_num, records as u64);
                assert!(expect.is_none_or(|expect| expect == ack.start.seq_num), "{expect:?}: {ack:?}");
                if in_doubt { Fate::AckedInDoubt(ack) } else { Fate::Acked(ack) }
            }
            None | Some(Err(Error::Indefinite { .. })) => Fate::Unknown,
            Some(Err(error)) => {
                if let Error::SeqNumMismatch { next } = error {
                    assert_ne!(Some(next), expect);
                    assert!(in_doubt || next >= at_least, "refused by an old state: {next} < {at_least}");
                }
                Fate::Refused(error.to_string())
            }
        };
        if let Fate::Acked(ack) = &fate {
            assert!(ack.start.seq_num >= at_least, "a number given twice: {ack:?}");
            self.saw_tail(ack.tail.seq_num, at_least);
        }
        assert!(self.known().fates.insert(number, (fate, records)).is_none());
    }

    /// Ends the stream's life and begins another, whatever the faults.
    async fn recreate(&self, process: &Process) {
        if let Some(Err(Error::Indefinite { .. }) | Ok(())) | None =
            in_time(process.service.delete_stream(&basin(), &name("s"))).await
        {
            let config = long_lived();
            let _ = in_time(process.service.create_stream(&basin(), &name("s"), config, None)).await;
        }
    }

    async fn round(&self, (ops, faults): Round) {
        faults.into_iter().for_each(|fault| fault.into(&self.processes));
        let recreates = ops.iter().any(|(_, op)| matches!(op, Op::Recreate));
        if recreates {
            let mut known = self.known();
            known.in_doubt = true;
            known.tail_at_least = 0;
        }
        // Time passes between the rounds: deadlines go by the machine's clock, and nothing is sent hours after it began.
        let (later, ops): (Vec<_>, Vec<_>) =
            ops.into_iter().partition(|(_, op)| matches!(op, Op::Later { .. }));
        futures::future::join_all(ops.into_iter().map(|(by, op)| self.run(by, op))).await;
        futures::future::join_all(later.into_iter().map(|(by, op)| self.run(by, op))).await;
        for process in &self.processes {
            process.faults.heal();
        }
        if recreates {
            // Acknowledged before or beside it: gone with its life, or in the one that is there.
            tokio::time::sleep(LATEST * 2).await;
            let mut known = self.known();
            known.in_doubt = false;
            for (fate, _) in known.fates.values_mut() {
                if let Fate::Acked(ack) = fate {
                    *fate = Fate::AckedInDoubt(*ack);
                }
            }
        }
    }

    /// Reads everything by a process that knows nothing, and holds every answer against it.
    async fn check(&self, cold: &Process) {
        let all = cold.read_all("s", 0).await.expect("every record is readable");
        let tail = cold.tail("s").await.expect("there");
        let first = all.first().map_or(tail, |r| r.seq_num);
        let known = self.known();
        assert!(first <= known.trimmed_at_most, "records up to {first} are gone");
        assert_eq!(all.last().map_or(first, |r| r.seq_num + 1), tail, "a tail without its records");
        assert!(tail >= known.tail_at_least, "a tail of {tail}, once {}", known.tail_at_least);
        assert!(all.is_sorted_by_key(|r| r.timestamp), "timestamps decrease");
        assert!(all.is_sorted_by(|a, b| a.seq_num + 1 == b.seq_num), "a gap");
        let mut places: BTreeMap<u64, BTreeMap<usize, u64>> = BTreeMap::new();
        for r in &all {
            if let Some((number, i)) = unmark(r.body.as_ref()) {
                let twice = places.entry(number).or_default().insert(i, r.seq_num);
                assert!(twice.is_none(), "record {i} of batch {number} is there twice");
            }
        }
        for (number, (fate, records)) in &known.fates {
            let found = places.remove(number);
            let start = found.as_ref().map(|found| {
                let (i, seq) = found.iter().next().expect("not empty");
                seq.wrapping_sub(*i as u64)
            });
            match (fate, start) {
                (Fate::Acked(ack), None) => assert!(ack.start.seq_num < first, "{number} is lost: {ack:?}"),
                (Fate::Acked(ack) | Fate::AckedInDoubt(ack), Some(start)) => {
                    assert_eq!(start, ack.start.seq_num, "batch {number} is not where it was said to be");
                    let stamp = all.iter().find(|r| r.seq_num == start).map(|r| r.timestamp);
                    assert!(stamp.is_none_or(|stamp| stamp == ack.start.timestamp), "{number}: {stamp:?}");
                }
                (Fate::Refused(why), Some(start)) => panic!("{number} is at {start}, though refused: {why}"),
                (Fate::Unknown, _) | (_, None) => {}
            }
            let marked = found.unwrap_or_default();
            let seqs: BTreeSet<u64> = marked.values().copied().collect();
            let is_whole = start.is_none_or(|start| {
                marked.iter().all(|(i, seq)| start + *i as u64 == *seq)
                    && (seqs.len() == *records || start < first || *records == 2 && seqs.len() == 1)
            });
            assert!(is_whole, "batch {number} is torn: {marked:?}");
        }
        assert!(places.is_empty(), "records that nobody wrote: {places:?}");
    }
}

/// A record that says which it is.
fn marked(number: u64, i: usize, size: usize, timestamp: Option<u64>) -> Record {
    Record { timestamp, ..record(&mark(number, i, size)) }
}

async fn run(rounds: Vec<Round>) {
    let options = engine::Options {
        shape: SMALL,
        write_timeout: Duration::from_millis(700),
        ..engine::Options::default()
    };
    let world = World { options, ..World::timed() };
    let processes = vec![world.process_with_basin().await, world.process(), world.process()];
    let clock = world.clock.clone();
    let history = Arc::new(History { clock, processes, known: Mutex::default() });
    let service = &history.processes[0].service;
    service.create_stream(&basin(), &name("s"), long_lived(), None).await.expect("created");
    for round in rounds {
        history.round(round).await;
    }
    // What was sent and not answered may still land.
    tokio::time::sleep(LATEST * 2).await;
    history.check(&world.process()).await;
    for process in &history.processes {
        let ack = in_time(process.append("s", &["after"])).await.expect("no writer is stuck");
        ack.expect("the stream goes on");
    }
    // Some days later nothing is left but what the stream names.
    for _ in 0..4 {
        world.clock.advance_ms(26 * 3_600_000);
        let report = history.processes[0].sweep().await.expect("swept");
        assert_eq!((report.failures, report.more_is_due), (0, false), "{report}");
    }
    assert_tidy(&world).await;
    history.check(&world.process()).await;
}

fn long_lived() -> StreamConfigLayer {
    StreamConfigLayer { retention_policy: Some(RetentionPolicy::Age(28 * 86_400)), ..Default::default() }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(16),
        max_shrink_iters: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn every_answer_of_a_random_history_is_true(rounds in rounds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run(rounds));
    }
}
