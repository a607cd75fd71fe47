//! What happens in a history: operations, faults and deaths, by rounds.

use leat::store::Operation;
use proptest::prelude::*;

use super::{BUCKETS, CLIENTS, LATEST, SLOTS, STRICT};
use crate::faulty::Fault;
use crate::random::{Injected, fault};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expect {
    Anything,
    /// The state as it was at the beginning of the round.
    Now,
    /// The state some messages ago.
    Past(u64),
    /// A state of this life that is over or still to come, or the present one in another life.
    Neither,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Post {
        slot: usize,
        sizes: Vec<usize>,
        closes: bool,
        writer: Option<Writer>,
        expect: Expect,
        waits: Waits,
    },
    Produce {
        slot: usize,
        client: usize,
        sizes: Vec<usize>,
        elsewhere: usize,
        closes: bool,
        waits: Waits,
    },
    /// The client begins a new epoch; an old one of it goes on.
    Bump {
        slot: usize,
        client: usize,
    },
    Zombie {
        slot: usize,
        client: usize,
    },
    Close {
        slot: usize,
    },
    Look {
        slot: usize,
    },
    Read {
        slot: usize,
        bytes: u64,
    },
    /// Reads from the end on what comes in so many milliseconds.
    Follow {
        slot: usize,
        ms: u64,
    },
    /// So many messages before the end.
    Snapshot {
        slot: usize,
        back: u64,
    },
    Create {
        slot: usize,
        size: Option<usize>,
        closes: bool,
        idle: bool,
        maker: Maker,
    },
    Fork {
        slot: usize,
        source: usize,
        back: Option<u64>,
        beyond: u64,
        size: Option<usize>,
        idle: bool,
    },
    Delete {
        slot: usize,
    },
    MakeBucket {
        bucket: usize,
    },
    DropBucket {
        bucket: usize,
    },
    Sweep,
    /// So many minutes pass while the others are at work.
    Tick {
        minutes: u64,
    },
    /// So many minutes pass, once the others of the round are done.
    Later {
        minutes: u64,
    },
}

/// What comes with the first content of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Maker {
    Nobody,
    Writer,
    /// A producer, which sends it once more, as an append.
    Producer,
}

/// Whether a client waits for the answer to its first sending.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waits {
    Always,
    /// It does, and the answer is lost.
    InVain,
    /// Not for long: it goes away, or its request is cut off.
    Shortly(u32),
}

/// Marks of a writer: above the last one it has sent, or that one again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writer {
    Fresh,
    Stale,
}

/// A process that dies after so many requests.
#[derive(Clone, Debug)]
pub(super) struct Death {
    pub(super) by: usize,
    pub(super) skip: usize,
    pub(super) fault: Fault,
}

/// Operations at once, each by one process.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) ops: Vec<(usize, Op)>,
    pub(super) faults: Vec<Injected>,
    pub(super) death: Option<Death>,
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0usize..150, 2 => 400usize..1_200, 1 => 2_000usize..5_000]
}

fn slot() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0), 2 => Just(1), 2 => Just(2), 1 => Just(3), 2 => Just(4)]
}

fn seldom() -> impl Strategy<Value = bool> {
    prop_oneof![9 => Just(false), 1 => Just(true)]
}

fn waits() -> impl Strategy<Value = Waits> {
    prop_oneof![
        4 => Just(Waits::Always),
        2 => Just(Waits::InVain),
        1 => (0u32..30).prop_map(Waits::Shortly),
    ]
}

fn writes() -> impl Strategy<Value = Op> {
    let sizes = || prop::collection::vec(size(), 1..4);
    let writer = prop_oneof![3 => Just(None), 2 => Just(Some(Writer::Fresh)), 1 => Just(Some(Writer::Stale))];
    let expect = prop_oneof![
        4 => Just(Expect::Anything),
        2 => Just(Expect::Now),
        1 => (1u64..4).prop_map(Expect::Past),
        1 => Just(Expect::Neither),
    ];
    let post = (slot(), sizes(), seldom(), writer, expect, waits()).prop_map(
        |(slot, sizes, closes, writer, expect, waits)| Op::Post {
            slot,
            sizes,
            closes,
            writer,
            expect,
            waits,
        },
    );
    let produce = (slot(), 0..CLIENTS, sizes(), 0usize..3, seldom(), waits()).prop_map(
        |(slot, client, sizes, elsewhere, closes, waits)| Op::Produce {
            slot,
            client,
            sizes,
            elsewhere,
            closes,
            waits,
        },
    );
    prop_oneof![
        8 => post,
        8 => produce,
        1 => (slot(), 0..CLIENTS).prop_map(|(slot, client)| Op::Bump { slot, client }),
        3 => (slot(), 0..CLIENTS).prop_map(|(slot, client)| Op::Zombie { slot, client }),
        1 => slot().prop_map(|slot| Op::Close { slot }),
        2 => (slot(), 0u64..4).prop_map(|(slot, back)| Op::Snapshot { slot, back }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let maker = prop_oneof![2 => Just(Maker::Nobody), 1 => Just(Maker::Writer), 1 => Just(Maker::Producer)];
    let create = (slot(), prop::option::of(size()), seldom(), any::<bool>(), maker)
        .prop_map(|(slot, size, closes, idle, maker)| Op::Create { slot, size, closes, idle, maker });
    // Of the same type.
    let pair = prop_oneof![
        3 => Just((0usize, 2usize)),
        2 => Just((0, 4)),
        2 => Just((2, 4)),
        1 => Just((4, 0)),
        1 => Just((2, 0)),
        2 => Just((1, 3)),
        1 => Just((3, 1)),
    ];
    let fork = (pair, prop::option::of(0u64..6), 0u64..2, prop::option::of(size()), seldom()).prop_map(
        |((source, slot), back, beyond, size, idle)| {
            let beyond = if slot % 2 == 0 { beyond } else { 0 };
            Op::Fork { slot, source, back, beyond, size, idle }
        },
    );
    prop_oneof![
        24 => writes(),
        2 => slot().prop_map(|slot| Op::Look { slot }),
        3 => (slot(), 100u64..4_000).prop_map(|(slot, bytes)| Op::Read { slot, bytes }),
        1 => (slot(), 1u64..20).prop_map(|(slot, ms)| Op::Follow { slot, ms }),
        6 => create,
        4 => fork,
        3 => slot().prop_map(|slot| Op::Delete { slot }),
        1 => (0..BUCKETS.len()).prop_map(|bucket| Op::MakeBucket { bucket }),
        2 => (0..BUCKETS.len()).prop_map(|bucket| Op::DropBucket { bucket }),
        3 => Just(Op::Sweep),
        1 => (1u64..30).prop_map(|minutes| Op::Tick { minutes }),
        1 => later(),
    ]
}

/// Within a lifetime, as a rule.
fn later() -> impl Strategy<Value = Op> {
    prop_oneof![3 => 1u64..45, 1 => 45u64..300].prop_map(|minutes| Op::Later { minutes })
}

/// Who deletes a bucket that has just become empty, and who creates a stream in it.
fn contest() -> impl Strategy<Value = Vec<Vec<(usize, Op)>>> {
    let contender = prop_oneof![
        3 => Just(Op::DropBucket { bucket: 1 }),
        3 => (3usize..SLOTS, prop::option::of(size()), any::<bool>()).prop_map(|(slot, size, idle)| {
            Op::Create { slot, size, closes: false, idle, maker: Maker::Nobody }
        }),
        1 => Just(Op::MakeBucket { bucket: 1 }),
        1 => Just(Op::Sweep),
    ];
    let contest = prop::collection::vec((0usize..3, contender), 2..7);
    (contest, contest_begins()).prop_map(|(contest, begins)| vec![begins, contest])
}

/// Who sees a stream that is only being made, or ends what it is made of.
fn birth() -> impl Strategy<Value = Vec<Vec<(usize, Op)>>> {
    let size = || prop_oneof![1 => Just(None), 2 => (1_500usize..6_000).prop_map(Some)];
    let pair = prop_oneof![Just((0usize, 2usize)), Just((1, 3)), Just((0, 4))];
    (pair, any::<bool>(), size(), any::<bool>()).prop_flat_map(move |((source, slot), forks, size, idle)| {
        let make = match forks {
            true => Op::Fork { slot, source, back: None, beyond: 0, size, idle },
            false => Op::Create { slot, size, closes: false, idle, maker: Maker::Nobody },
        };
        let other = prop_oneof![
            2 => Just(make.clone()),
            2 => Just(Op::Look { slot }),
            3 => Just(Op::Read { slot, bytes: 1_000 }),
            2 => Just(Op::Delete { slot: source }),
            1 => Just(Op::Delete { slot }),
            1 => Just(Op::Sweep),
            1 => (1u64..30).prop_map(|minutes| Op::Tick { minutes }),
        ];
        prop::collection::vec((0usize..3, other), 2..7).prop_map(move |mut others| {
            let before = vec![
                (0, Op::Delete { slot }),
                (
                    1,
                    Op::Create { slot: source, size: Some(3_000), closes: false, idle, maker: Maker::Nobody },
                ),
            ];
            others.push((0, make.clone()));
            vec![before, others]
        })
    })
}

fn contest_begins() -> impl Strategy<Value = Vec<(usize, Op)>> {
    let empties = STRICT.map(|slot| (0, Op::Delete { slot }));
    Just(empties.into_iter().chain([(1, Op::MakeBucket { bucket: 1 })]).collect())
}

fn places() -> impl Strategy<Value = (Operation, &'static str)> {
    prop_oneof![
        6 => Just((Operation::Replace, "manifest/")),
        2 => Just((Operation::Create, "manifest/")),
        2 => Just((Operation::Get, "manifest/")),
        2 => Just((Operation::Put, "data/")),
        2 => Just((Operation::Copy, "data/")),
        1 => Just((Operation::Put, "index/")),
        1 => Just((Operation::Get, "buckets/")),
        1 => Just((Operation::Replace, "buckets/")),
        1 => Just((Operation::Create, "buckets/")),
        1 => Just((Operation::Put, "catalog/")),
        1 => Just((Operation::Delete, "catalog/")),
        1 => Just((Operation::Put, "due/")),
        1 => Just((Operation::Delete, "due/")),
        1 => Just((Operation::List, "")),
        1 => Just((Operation::Delete, "data/")),
        1 => Just((Operation::Get, "data/")),
    ]
}

pub(super) fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let ops = prop::collection::vec((0usize..3, op()), 1..8).prop_map(|ops| vec![ops]);
    let ops = prop_oneof![7 => ops.boxed(), 1 => contest().boxed(), 2 => birth().boxed()];
    // Some rounds without, so that answers can be foretold.
    let faults = prop_oneof![
        1 => Just(Vec::new()),
        2 => prop::collection::vec(fault(LATEST, places()), 0..5),
    ];
    let dies = prop_oneof![Just(Fault::Hang), Just(Fault::DropAfterApply), Just(Fault::Unavailable)];
    let death = (0usize..3, 0usize..12, dies).prop_map(|(by, skip, fault)| Death { by, skip, fault });
    let death = prop_oneof![4 => Just(None), 1 => death.prop_map(Some)];
    let pause = prop_oneof![5 => Just(None), 2 => later().prop_map(Some)];
    let rounds = (ops, faults, death, pause).prop_map(|(mut ops, faults, death, pause)| {
        let mut last = ops.pop().unwrap_or_default();
        last.extend(pause.map(|pause| (0, pause)));
        let before = ops.into_iter().map(|ops| Round { ops, faults: Vec::new(), death: None });
        before.chain([Round { ops: last, faults, death }]).collect::<Vec<_>>()
    });
    prop::collection::vec(rounds, 3..11).prop_map(|rounds| rounds.concat())
}
