//! Rounds: operations at once, then a look by a process that knows nothing, and what must have come of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use leat::service::durable::{Creation, Error, ReadFrom, Status};
use leat::storage::documents::{Found, load_bucket, load_manifest};
use leat::storage::identity::Identity;
use leat::storage::key::StreamKind;
use leat::storage::ledger::{Ledger, Stage};
use leat::storage::manifest::Manifest;
use leat::types::stream::Provision;

use super::calls::{is_absent, read_on};
use super::model::{Life, There};
use super::ops::{Death, Op, Round};
use super::{BUCKETS, History, LATEST, SLOTS, at, bucket, bucket_of};
use crate::random::PATIENCE;
use crate::world::Process;

/// What lies under every name and bucket.
#[derive(Debug)]
pub(super) struct Under {
    pub(super) slots: Vec<There>,
    buckets: Vec<bool>,
}

impl Default for Under {
    fn default() -> Self {
        Self { slots: vec![There::Nothing; SLOTS], buckets: vec![false; BUCKETS.len()] }
    }
}

/// What happens in a round, and what of it was acknowledged.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) dying: Option<usize>,
    pub(super) is_faultless: bool,
    /// Whether time passes while the operations are at work.
    ticks: bool,
    creates: [usize; SLOTS],
    deletes: [usize; SLOTS],
    touches: [usize; SLOTS],
    makes: [usize; BUCKETS.len()],
    drops: [usize; BUCKETS.len()],
    acks: Mutex<Acks>,
}

#[derive(Debug, Default)]
struct Acks {
    created: [BTreeSet<Life>; SLOTS],
    found: [BTreeSet<Life>; SLOTS],
    deleted: [bool; SLOTS],
    made: [bool; BUCKETS.len()],
    dropped: [bool; BUCKETS.len()],
    /// By fork: the source's name, and the place that was asked for.
    forks: BTreeMap<Life, (usize, Option<u64>)>,
}

impl Turn {
    fn of(ops: &[(usize, Op)], is_faultless: bool, death: Option<&Death>) -> Self {
        let mut turn = Self {
            dying: death.map(|death| death.by),
            is_faultless: is_faultless && death.is_none(),
            ..Self::default()
        };
        for (_, op) in ops {
            match *op {
                Op::Create { slot, .. } => turn.creates[slot] += 1,
                Op::Fork { slot, source, .. } => {
                    turn.creates[slot] += 1;
                    turn.touches[source] += 1;
                }
                Op::Delete { slot } => turn.deletes[slot] += 1,
                Op::MakeBucket { bucket } => turn.makes[bucket] += 1,
                Op::DropBucket { bucket } => turn.drops[bucket] += 1,
                Op::Post { slot, .. }
                | Op::Produce { slot, .. }
                | Op::Bump { slot, .. }
                | Op::Zombie { slot, .. }
                | Op::Close { slot }
                | Op::Snapshot { slot, .. }
                | Op::Look { slot }
                | Op::Read { slot, .. }
                | Op::Follow { slot, .. } => turn.touches[slot] += 1,
                Op::Tick { .. } => turn.ticks = true,
                Op::Sweep | Op::Later { .. } => {}
            }
        }
        turn
    }

    fn acks(&self) -> std::sync::MutexGuard<'_, Acks> {
        self.acks.lock().expect("no panic")
    }

    /// Whether nobody makes or ends the stream.
    pub(super) fn is_calm(&self, slot: usize) -> bool {
        self.creates[slot] + self.deletes[slot] == 0
    }

    /// Whether one operation, which is about nothing else, meets no fault.
    pub(super) fn is_alone(&self, slot: usize) -> bool {
        self.is_calm(slot) && self.touches[slot] == 1 && self.is_faultless && !self.ticks
    }

    /// An answer came from this life.
    pub(super) fn is_life(&self, slot: usize, under: &Under, life: &Life) {
        if let (true, Some(known)) = (self.is_calm(slot), under.slots[slot].life()) {
            assert_eq!(life, known, "another life of {slot}");
        }
    }

    pub(super) fn created(
        &self,
        slot: usize,
        under: &Under,
        creation: &Creation,
        outcome: &Result<(Status, Provision), Error>,
    ) {
        let is_only = self.creates[slot] == 1 && self.deletes[slot] == 0 && !self.ticks;
        let n = bucket_of(slot);
        match outcome {
            Ok((status, Provision::Created)) => {
                let is_there = is_only && under.slots[slot].life().is_some();
                assert!(!is_there, "{slot} was there, and was created: {status:?}");
                self.acks().created[slot].insert(status.life.clone());
                if let Some(fork) = &creation.fork {
                    let source = (0..SLOTS).find(|source| at(*source).name == fork.source.name);
                    let of = (source.expect("a name"), fork.at);
                    self.acks().forks.insert(status.life.clone(), of);
                }
            }
            Ok((status, _)) => {
                assert!(!is_only || !under.slots[slot].is_nothing(), "{slot} was not there: {status:?}");
                self.acks().found[slot].insert(status.life.clone());
            }
            Err(Error::BucketNotFound(_)) if creation.fork.is_none() => {
                assert!(!under.buckets[n] || self.drops[n] > 0, "bucket {n} is there");
            }
            Err(Error::Taken { .. }) => {
                assert!(!is_only || !under.slots[slot].is_nothing(), "{slot} was not there: {outcome:?}");
            }
            Err(_) => {}
        }
    }

    pub(super) fn deleted(&self, slot: usize, under: &Under, outcome: &Result<(), Error>) {
        let is_only = self.creates[slot] == 0 && self.deletes[slot] == 1 && !self.ticks;
        if is_only && is_absent(outcome) {
            assert!(under.slots[slot].life().is_none(), "{slot} is there: {outcome:?}");
        }
        if outcome.is_ok() {
            assert!(!is_only || under.slots[slot].life().is_some(), "{slot} was not there");
            self.acks().deleted[slot] = true;
        }
    }

    pub(super) fn made(&self, n: usize, under: &Under, outcome: &Result<(), Error>) {
        if outcome.is_ok() {
            assert!(!under.buckets[n] || self.drops[n] > 0, "bucket {n} was there, and was created");
            self.acks().made[n] = true;
        }
    }

    pub(super) fn dropped(&self, n: usize, outcome: &Result<(), Error>) {
        self.acks().dropped[n] |= outcome.is_ok();
    }

    fn creates_in(&self, n: usize) -> usize {
        (0..SLOTS).filter(|slot| bucket_of(*slot) == n).map(|slot| self.creates[slot]).sum()
    }
}

impl There {
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Stream(status) => Some(status),
            Self::Nothing | Self::Retired(_) => None,
        }
    }
}

impl History {
    pub(super) async fn round(&mut self, Round { ops, faults, death }: Round) {
        self.turn = Turn::of(&ops, faults.is_empty(), death.as_ref());
        faults.into_iter().for_each(|fault| fault.into(&self.processes));
        if let Some(Death { by, skip, fault }) = &death {
            self.processes[*by].faults.die_after(*skip, *fault);
        }
        let (later, ops): (Vec<_>, Vec<_>) =
            ops.into_iter().partition(|(_, op)| matches!(op, Op::Later { .. }));
        let this = &*self;
        // They begin one after the other, some before and some after others end.
        let late = |i: usize| self.seed.rotate_left(7 * i as u32) % 48;
        let ops = ops.into_iter().enumerate().map(|(i, (by, op))| async move {
            for _ in 0..late(i) {
                tokio::task::yield_now().await;
            }
            this.run(by, op).await;
        });
        futures::future::join_all(ops).await;
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17);
        self.processes.iter().for_each(|process| process.faults.heal());
        if let Some(Death { by, .. }) = death {
            self.processes[by] = self.process();
        }
        if !self.turn.is_faultless {
            // What was sent and not answered may still land.
            tokio::time::sleep(LATEST * 2).await;
        }
        // Deadlines go by the machine's clock, and nothing is sent hours after it began.
        self.settle().await;
        let this = &*self;
        futures::future::join_all(later.into_iter().map(|(by, op)| this.run(by, op))).await;
        self.look().await;
    }

    /// Waits until nothing goes on in any process, but for what hangs.
    async fn settle(&self) {
        let all = self.processes.iter().map(|process| process.service.settle());
        let _ = tokio::time::timeout(PATIENCE, futures::future::join_all(all)).await;
    }

    /// Finds what is there, holds it against what was acknowledged, and reads all of it.
    pub(super) async fn look(&mut self) {
        let cold = self.world.process();
        let mut slots = Vec::new();
        for slot in 0..SLOTS {
            slots.push(self.find(&cold, slot).await);
        }
        let mut buckets = Vec::new();
        for n in 0..BUCKETS.len() {
            buckets.push(match cold.service.bucket(&bucket(n)).await {
                Ok(_) => true,
                Err(Error::BucketNotFound(_)) => false,
                Err(error) => panic!("{error}"),
            });
        }
        let under = std::mem::replace(&mut self.under, Under { slots, buckets });
        (0..SLOTS).for_each(|slot| self.check_slot(slot, &under));
        (0..SLOTS).for_each(|slot| self.check_mark(slot, &under));
        (0..BUCKETS.len()).for_each(|n| self.check_bucket(n, &under));
        for slot in 0..SLOTS {
            if let Some(status) = self.under.slots[slot].status() {
                self.check_content(&cold, slot, &status.clone()).await;
            }
        }
        self.is_clean &= self.turn.is_faultless && !self.model().has_any_expired(self.world.clock.now_ms());
        if self.is_clean {
            self.check_counts().await;
        }
        self.turn = Turn::default();
    }

    async fn find(&self, cold: &Process, slot: usize) -> There {
        match cold.service.durable_status(&at(slot)).await {
            Err(Error::StreamNotFound(_) | Error::BucketNotFound(_)) => There::Nothing,
            Err(Error::Retired(_)) => {
                let (life, ledger) = self.ledger(slot).await;
                self.model().marks.insert(life.clone(), marks(&ledger));
                There::Retired(life)
            }
            Ok(status) => {
                let (life, ledger) = self.ledger(slot).await;
                let mut model = self.model();
                model.marks.insert(life, marks(&ledger));
                model.lives_for(slot, &status, 0);
                if let Some(origin) = &ledger.origin {
                    let beyond = if ledger.content_type.is_json() { origin.beyond } else { 0 };
                    let source = origin.source.life.to_string();
                    self.check_fork(&status.life, (&source, origin.at));
                    model.fork_found(slot, &status.life, (source, origin.at + beyond));
                }
                There::Stream(Box::new(status))
            }
            Err(error) => panic!("{slot}: {error}"),
        }
    }

    /// A fork that was just made begins with what was asked for, or with all that was acknowledged.
    fn check_fork(&self, life: &Life, (source, from): (&Life, u64)) {
        let acks = self.turn.acks();
        let Some((slot, asked)) = acks.forks.get(life) else { return };
        match (asked, self.under.slots[*slot].status()) {
            (Some(asked), _) => assert_eq!(from, *asked),
            (None, Some(status)) if status.life == *source => {
                assert!(from >= status.tail, "a fork of {from} messages, and {} were there", status.tail);
            }
            (None, _) => {}
        }
    }

    /// The life that lies under a name, and what it keeps.
    async fn ledger(&self, slot: usize) -> (Life, Ledger) {
        let target = at(slot);
        let found = load_bucket(&*self.world.store, &target.bucket).await.expect("readable").expect("there");
        let (kind, basin) = (StreamKind::Durable, found.doc.head.incarnation);
        let identity = Identity { kind, basin, name: target.name };
        let found = load_manifest(&*self.world.store, &identity, None).await.expect("readable");
        let Found::Changed(found) = found else { panic!("{slot} is not there") };
        let ledger = found.doc.log.ledger.expect("a ledger");
        (found.doc.head.incarnation.to_string(), *ledger)
    }

    /// What has become of a stream follows from what was there and from what was acknowledged.
    fn check_slot(&self, slot: usize, under: &Under) {
        let (model, acks) = (self.model(), self.turn.acks());
        let now_ms = self.world.clock.now_ms();
        let (was, is) = (&under.slots[slot], &self.under.slots[slot]);
        let turn = || format!("{slot}: {was:?} became {is:?} by {:?}", self.turn);
        let (creates, deletes) = (self.turn.creates[slot], self.turn.deletes[slot]);
        if let Some(life) = is.life() {
            assert!(!model.must_have_expired(life, now_ms), "it should have expired: {}", turn());
        }
        if let Some(life) = was.life() {
            let ends = deletes > 0 || model.may_have_expired(life, now_ms);
            assert!(ends || is.life() == Some(life), "it is gone: {}", turn());
            let is_deleted = acks.deleted[slot] && creates == 0;
            assert!(!is_deleted || is.life() != Some(life), "it was deleted: {}", turn());
        }
        if creates == 0 && was.life().is_none() {
            assert!(is.is_nothing() || is == was, "nobody made it: {}", turn());
        }
        if deletes == 0 && !acks.created[slot].is_empty() {
            let made = acks.created[slot].union(&acks.found[slot]);
            let mut made = made.filter(|life| !model.may_have_expired(life, now_ms)).peekable();
            let is_there = made.peek().is_none() || made.any(|life| is.life() == Some(life));
            assert!(is_there, "a creation is lost: {}", turn());
            let count = acks.created[slot].len();
            let has_expired = acks.created[slot].iter().any(|life| model.may_have_expired(life, now_ms));
            assert!(count == 1 || has_expired, "made {count} times: {}", turn());
        }
        let deleted = match was {
            There::Stream(status) if acks.deleted[slot] && creates == 0 => &status.life,
            There::Retired(life) => life,
            There::Stream(_) | There::Nothing => return,
        };
        // While a fork lives, what it was made of is kept in mind.
        let lives = |fork: usize| {
            let life = under.slots[fork].life().filter(|life| self.under.slots[fork].life() == Some(life));
            life.is_some_and(|life| {
                let origin = model.lives[life].origin.as_ref();
                origin.is_some_and(|(source, _)| source == deleted) && !model.may_have_expired(life, now_ms)
            })
        };
        if (0..SLOTS).any(lives) {
            assert_eq!(*is, There::Retired(deleted.clone()), "forks of it live: {}", turn());
        }
    }

    /// A source that is there has a mark of every fork that is there, and of none that was deleted in peace.
    fn check_mark(&self, slot: usize, under: &Under) {
        let model = self.model();
        let marks = |fork: &Life| {
            let (source, _) = model.lives[fork].origin.as_ref()?;
            let is_there = self.under.slots.iter().any(|there| match there {
                There::Stream(status) => status.life == *source,
                There::Retired(life) => life == source,
                There::Nothing => false,
            });
            model.marks.get(source).filter(|_| is_there)
        };
        if let Some(fork) = self.under.slots[slot].life()
            && let Some((source, _)) = &model.lives[fork].origin
        {
            // What has expired is gone with or without forks.
            let is_over = model.may_have_expired(source, self.world.clock.now_ms());
            assert!(is_over || marks(fork).is_some(), "{slot} is a fork, and its source {source} is gone");
            assert!(marks(fork).is_none_or(|marks| marks.contains(fork)), "{slot} is a fork without a mark");
        }
        let is_deleted = self.turn.is_faultless && self.turn.acks().deleted[slot];
        let was =
            under.slots[slot].life().filter(|life| is_deleted && self.under.slots[slot].life() != Some(life));
        // A fork that has forks itself is kept in mind, and so is its mark.
        let was = was.filter(|_| self.under.slots[slot].is_nothing());
        if let Some((fork, marks)) = was.and_then(|fork| Some((fork, marks(fork)?))) {
            assert!(!marks.contains(fork), "{slot} was a fork and is still marked");
        }
    }

    /// A bucket ends only if somebody asked for it, and only while it is empty.
    fn check_bucket(&self, n: usize, under: &Under) {
        let acks = self.turn.acks();
        let (was, is) = (under.buckets[n], self.under.buckets[n]);
        let (makes, drops, creates) = (self.turn.makes[n], self.turn.drops[n], self.turn.creates_in(n));
        assert!(!was || is || drops > 0, "bucket {n} is gone");
        assert!(was || !is || makes + creates > 0, "nobody made bucket {n}");
        assert!(!acks.made[n] || is || drops > 0, "bucket {n} was made and is gone");
        assert!(!acks.dropped[n] || !is || makes + creates > 0, "bucket {n} was deleted and is there");
        let mut of_it = (0..SLOTS).filter(|slot| bucket_of(*slot) == n);
        let is_held = of_it.any(|slot| {
            let was = under.slots[slot].life();
            was.is_some() && self.turn.deletes[slot] == 0 && was == self.under.slots[slot].life()
        });
        assert!(!acks.dropped[n] || !is_held, "bucket {n} was deleted with a stream in it");
    }

    async fn check_content(&self, cold: &Process, slot: usize, status: &Status) {
        let service = &cold.service;
        let mut reader = match service.durable_reader(&at(slot), ReadFrom::Start).await {
            Err(Error::Trimmed { start }) => service.durable_reader(&at(slot), ReadFrom::At(start)).await,
            opened => opened,
        }
        .expect("readable");
        let read = read_on(&mut reader, 3_000).await.expect("every message is readable");
        if let Some(at_seq) = status.snapshot_at {
            let (snapshot, _) = service.snapshot(&at(slot)).await.expect("readable");
            let snapshot = snapshot.expect("there");
            let expected = (at_seq, format!("{slot}@{at_seq}").into_bytes());
            assert_eq!((snapshot.at, snapshot.bytes.to_vec()), expected);
        }
        let mut model = self.model();
        model.check(slot, status, &read);
        model.used(slot, Some(&status.life), self.world.clock.now_ms());
    }

    /// What is kept in mind has forks that live, and every mark is of one.
    pub(super) fn check_kinship(&self, manifests: &[Manifest]) {
        let lives: BTreeSet<_> = manifests.iter().map(|manifest| manifest.head.incarnation).collect();
        for manifest in manifests {
            let ledger = manifest.log.ledger.as_deref().expect("a ledger");
            let has_forks = ledger.forks.iter().any(|fork| lives.contains(&fork.life));
            let name = manifest.identity.as_ref().map(|own| own.name.to_string());
            assert!(ledger.stage == Stage::Ready || has_forks, "{name:?} is kept for nobody: {ledger:?}");
        }
    }

    /// A bucket counts what is there.
    pub(super) async fn check_counts(&self) {
        let cold = self.world.process();
        for n in (0..BUCKETS.len()).filter(|n| self.under.buckets[*n]) {
            let of_it = (0..SLOTS).filter(|slot| bucket_of(*slot) == n);
            let streams = of_it.filter(|slot| !self.under.slots[*slot].is_nothing()).count() as u64;
            assert_eq!(cold.service.bucket(&bucket(n)).await.expect("there").streams, streams);
        }
    }
}

/// The lives of the forks that a stream has a mark of.
fn marks(ledger: &Ledger) -> BTreeSet<Life> {
    ledger.forks.iter().map(|fork| fork.life.to_string()).collect()
}
