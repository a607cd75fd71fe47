//! The operations, and what each answer says for certain.

use std::time::Duration;

use bytes::Bytes;
use leat::service;
use leat::service::durable::{
    Creation, Error, ForkOf, Outcome, Post, Posted, ReadFrom, Reader, Status, StreamSnapshot,
};
use leat::types::ledger::{ContentType, Refusal, Refused, StateTag, Then, WriterSeq};

use super::model::{Append, Life, Mark};
use super::ops::{Expect, Maker, Op, Waits, Writer};
use super::{DYING, History, at, bucket, content_type, lifetime};
use crate::random::{PATIENCE, mark, unmark};

/// What one sending of an append came to.
#[derive(Clone, Debug)]
pub(super) enum Sent {
    In,
    Unclear,
    /// Nothing happened; it may be sent again.
    Busy,
    Refused(Refusal),
    /// Nothing happened, and there is no stream to send it to.
    Failed,
}

/// Completes when a client has waited for as long as it does.
async fn goes_away(waits: Waits) {
    let Waits::Shortly(polls) = waits else { return std::future::pending().await };
    for _ in 0..polls {
        tokio::task::yield_now().await;
    }
}

/// The body of an append: values of JSON, or one text.
pub(super) fn body(slot: usize, number: u64, sizes: &[usize]) -> Bytes {
    let text = |(i, size): (usize, &usize)| String::from_utf8(mark(number, i, *size)).expect("text");
    let texts: Vec<_> = sizes.iter().enumerate().map(text).collect();
    match content_type(slot).is_json() {
        true => format!("[{}]", texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(",")),
        false => texts.concat(),
    }
    .into()
}

pub(super) fn writer_mark(n: u64) -> WriterSeq {
    WriterSeq::new(format!("{n:06}").as_bytes()).expect("legal")
}

pub(super) fn mark_of(message: &[u8]) -> Mark {
    let text = message.strip_prefix(b"\"").unwrap_or(message);
    unmark(text).unwrap_or_else(|| panic!("nobody wrote {:?}", String::from_utf8_lossy(message)))
}

pub(super) fn is_unclear<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Other(service::Error::Indefinite { .. })))
}

pub(super) fn is_absent<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::StreamNotFound(_) | Error::BucketNotFound(_) | Error::Retired(_)))
}

impl History {
    pub(super) async fn run(&self, by: usize, op: Op) {
        match op {
            Op::Post { slot, sizes, closes, writer, expect, waits } => {
                self.post((by, waits), slot, (sizes, closes), (writer, expect)).await;
            }
            Op::Produce { slot, client, sizes, elsewhere, closes, waits } => {
                let sizes = if slot % 2 == 0 { sizes } else { sizes.into_iter().take(2).collect() };
                self.produce(([by, elsewhere], waits), (slot, client), (sizes, closes)).await;
            }
            Op::Bump { slot, client } => self.bump(slot, client),
            Op::Zombie { slot, client } => self.haunt(by, slot, client).await,
            Op::Close { slot } => {
                let number = self.model().begin(Append { closes: true, ..Append::to(slot, 0) });
                let post = Post { then: Then::Close, ..Post::default() };
                self.send((by, Waits::Always), number, post).await;
            }
            Op::Look { slot } => self.status(by, slot).await,
            Op::Read { slot, bytes } => {
                let _ = self.in_time(by, self.read(by, slot, bytes)).await;
            }
            Op::Follow { slot, ms } => {
                let _ = self.in_time(by, self.follow(by, slot, Duration::from_millis(ms))).await;
            }
            Op::Snapshot { slot, back } => self.snapshot(by, slot, back).await,
            Op::Create { slot, size, closes, idle, maker } => {
                let creation = Creation {
                    content_type: Some(content_type(slot)),
                    lifetime: Some(lifetime(idle)),
                    then: if closes { Then::Close } else { Then::Open },
                    ..Creation::default()
                };
                self.create(by, slot, (size, maker), creation).await;
            }
            Op::Fork { slot, source, back, beyond, size, idle } => {
                let tail = self.tail(source);
                let from = back.map(|back| tail.saturating_sub(back));
                let beyond = if from.is_some() { beyond } else { 0 };
                let fork = Some(ForkOf { source: at(source), at: from, beyond });
                let lifetime = Some(lifetime(idle));
                let creation = Creation { lifetime, fork, ..Creation::default() };
                self.create(by, slot, (size, Maker::Nobody), creation).await;
            }
            Op::Delete { slot } => {
                let service = &self.processes[by].service;
                if let Some(outcome) = self.in_time(by, service.delete_durable(&at(slot))).await {
                    self.turn.deleted(slot, &self.under, &outcome);
                }
            }
            Op::MakeBucket { .. }
            | Op::DropBucket { .. }
            | Op::Sweep
            | Op::Tick { .. }
            | Op::Later { .. } => {
                self.run_beside(by, op).await;
            }
        }
    }

    /// What is about no stream.
    async fn run_beside(&self, by: usize, op: Op) {
        let service = &self.processes[by].service;
        match op {
            Op::MakeBucket { bucket: n } => {
                if let Some(outcome) = self.in_time(by, service.create_bucket(&bucket(n))).await {
                    self.turn.made(n, &self.under, &outcome);
                }
            }
            Op::DropBucket { bucket: n } => {
                let name = bucket(n);
                if let Some(outcome) = self.in_time(by, service.delete_bucket(&name)).await {
                    self.turn.dropped(n, &outcome);
                }
            }
            Op::Sweep => {
                let _ = self.in_time(by, self.processes[by].sweep()).await;
            }
            Op::Tick { minutes } => {
                tokio::time::sleep(Duration::from_micros(minutes * 20)).await;
                self.world.clock.advance_ms(minutes * 60_000);
            }
            Op::Later { minutes } => self.world.clock.advance_ms(minutes * 60_000),
            op => unreachable!("{op:?} is about a stream"),
        }
    }

    async fn status(&self, by: usize, slot: usize) {
        let before = self.model().before();
        let service = &self.processes[by].service;
        if let Some(found) = self.in_time(by, service.durable_status(&at(slot))).await {
            self.expect_there(slot, &found);
            if let Ok(status) = found {
                self.model().saw_state(slot, &before, &status.tag());
            }
        }
    }

    pub(super) async fn in_time<T>(&self, by: usize, call: impl Future<Output = T>) -> Option<T> {
        let patience = if self.turn.dying == Some(by) { DYING } else { PATIENCE };
        tokio::time::timeout(patience, call).await.ok()
    }

    /// The end of a stream, as it was known last.
    fn tail(&self, slot: usize) -> u64 {
        let model = self.model();
        let life = self.under.slots[slot].life();
        life.and_then(|life| model.lives.get(life)).map_or(0, |known| known.tail_at_least)
    }

    /// That a stream is not there is no answer while it certainly is.
    fn expect_there<T: std::fmt::Debug>(&self, slot: usize, outcome: &Result<T, Error>) {
        let life = self.under.slots[slot].life().filter(|_| self.turn.is_calm(slot));
        let now_ms = self.world.clock.now_ms();
        let is_there = life.is_some_and(|life| !self.model().may_have_expired(life, now_ms));
        assert!(!is_there || !is_absent(outcome), "{slot} is there: {outcome:?}");
    }

    pub(super) fn next_mark(&self, slot: usize, writer: Writer) -> u64 {
        let last = &mut self.writers.lock().expect("no panic")[slot];
        *last += u64::from(matches!(writer, Writer::Fresh));
        *last
    }

    async fn post(
        &self,
        by: (usize, Waits),
        slot: usize,
        (sizes, closes): (Vec<usize>, bool),
        (writer, expect): (Option<Writer>, Expect),
    ) {
        let sizes = if slot.is_multiple_of(2) { sizes } else { sizes[..1].to_vec() };
        let writer_seq = writer.map(|writer| self.next_mark(slot, writer));
        let now = self.under.slots[slot].status().map(Status::tag);
        let expected = match (expect, now.clone()) {
            (Expect::Anything, _) | (_, None) => None,
            (Expect::Now, Some(now)) => Some(vec![now]),
            (Expect::Past(by), Some(now)) => {
                Some(vec![StateTag { tail: now.tail.saturating_sub(by), ..now }])
            }
            (Expect::Neither, Some(now)) => {
                let other = StateTag { life: "another".to_owned(), ..now };
                Some(vec![StateTag { tail: now.tail + 1, ..now }, other])
            }
        };
        let number = self.model().begin(Append { writer_seq, closes, ..Append::to(slot, sizes.len()) });
        let post = Post {
            content_type: Some(content_type(slot)),
            body: body(slot, number, &sizes),
            writer_seq: writer_seq.map(writer_mark),
            then: if closes { Then::Close } else { Then::Open },
            expected: expected.clone(),
            ..Post::default()
        };
        let sent = self.send(by, number, post).await;
        if let (Sent::In, Some(expected)) = (&sent, &expected) {
            let placed = &self.model().appends[&number].placed;
            let is_meant = |(life, start): (&Life, &Option<u64>)| {
                expected.iter().any(|tag| tag.life == *life && Some(tag.tail) == *start)
            };
            assert!(placed.iter().any(is_meant), "{expected:?}: {placed:?}");
        }
        // Alone, its outcome is certain.
        if self.turn.is_alone(slot)
            && let Some(now) = now
        {
            let is_wanted = expected.is_none_or(|expected| expected.contains(&now));
            match &sent {
                Sent::Unclear if matches!(by.1, Waits::Shortly(_)) => {}
                _ if now.is_closed => {
                    assert!(matches!(sent, Sent::Refused(Refusal::Closed)), "{now:?}: {sent:?}");
                }
                _ if writer_seq.is_some()
                    && matches!(sent, Sent::Refused(Refusal::WriterSeqNotAbove { .. })) => {}
                Sent::Refused(Refusal::OtherState) => assert!(!is_wanted, "{number}: {now:?}"),
                sent => assert!(is_wanted && matches!(sent, Sent::In), "{number}: {now:?}: {sent:?}"),
            }
        }
    }

    /// Sends an append once, and takes note of what the answer says.
    pub(super) async fn send(&self, (by, waits): (usize, Waits), number: u64, post: Post) -> Sent {
        let began_ms = self.world.clock.now_ms();
        let (before, slot, is_repeat) = {
            let mut model = self.model();
            let append = model.append(number);
            append.in_flight += 1;
            let slot = append.slot;
            let life = self.under.slots[slot].life().filter(|_| self.turn.is_calm(slot));
            let is_repeat =
                append.producer.is_some() && life.is_some_and(|life| append.placed.contains_key(life));
            model.used(slot, None, self.world.clock.now_ms());
            (model.before(), slot, is_repeat)
        };
        let service = &self.processes[by].service;
        let (target, gone) = (at(slot), goes_away(waits));
        let call = self.in_time(by, service.post(&target, post));
        let outcome = tokio::select! { biased; outcome = call => outcome, () = gone => None };
        let mut model = self.model();
        model.append(number).in_flight -= 1;
        model.used(slot, None, self.world.clock.now_ms());
        let Some(outcome) = outcome.filter(|outcome| !is_unclear(outcome)) else {
            model.append(number).is_unclear = true;
            return Sent::Unclear;
        };
        if let Ok(Posted { tag, .. }) = &outcome {
            self.turn.is_life(slot, &self.under, &tag.life);
            model.life(slot, &tag.life);
            model.used(slot, Some(&tag.life), began_ms);
        }
        model.used(slot, None, self.world.clock.now_ms());
        drop(model);
        self.expect_there(slot, &outcome);
        let mut model = self.model();
        match outcome {
            Ok(Posted { outcome: Outcome::Appended, tag }) => {
                model.acked(number, &before, &tag);
                Sent::In
            }
            Ok(Posted { outcome: Outcome::Duplicate { epoch, seq }, tag }) => {
                let (_, of, sent) = model.append(number).producer.expect("one with a producer");
                assert!(epoch == of && seq >= sent, "{epoch}/{seq} for {of}/{sent}");
                model.was_in_before(number, &before, &tag);
                Sent::In
            }
            Ok(Posted { outcome: Outcome::AlreadyClosed, tag }) => {
                assert!(tag.is_closed && model.append(number).count == 0);
                model.saw_state(slot, &before, &tag);
                Sent::In
            }
            Err(Error::Refused(Refused { why, tail, is_closed, .. })) => {
                if let (true, Some(life)) = (self.turn.is_calm(slot), self.under.slots[slot].life()) {
                    let tag = StateTag { life: life.clone(), tail, is_closed };
                    model.saw_state(slot, &before, &tag);
                }
                let may_be = !is_repeat || matches!(why, Refusal::StaleEpoch { .. });
                assert!(may_be, "append {number} is in, and its repeat was refused: {why:?}");
                Sent::Refused(why)
            }
            Err(Error::OtherState) => Sent::Refused(Refusal::OtherState),
            Err(Error::Other(_)) => Sent::Busy,
            Err(_) => Sent::Failed,
        }
    }

    async fn read(&self, by: usize, slot: usize, bytes: u64) {
        let before = self.model().before();
        let target = at(slot);
        let began_ms = self.world.clock.now_ms();
        let open = |from| self.processes[by].service.durable_reader(&target, from);
        let mut opened = open(ReadFrom::Start).await;
        if let Err(Error::Trimmed { start }) = opened {
            // A fork that is being made may begin where its source does.
            let may_be = !self.turn.is_calm(slot) || self.model().may_begin_at(slot, start);
            assert!(may_be, "what lies before {start} is gone");
            opened = open(ReadFrom::At(start)).await;
        }
        self.expect_there(slot, &opened);
        let Ok(mut reader) = opened else { return };
        let status = reader.status().expect("a ledger");
        self.turn.is_life(slot, &self.under, &status.life);
        {
            let mut model = self.model();
            model.saw_state(slot, &before, &status.tag());
            model.lives_for(slot, &status, 0);
            model.used(slot, None, self.world.clock.now_ms());
            // Under faults, a use may not have been recorded.
            if self.turn.is_faultless {
                model.used(slot, Some(&status.life), began_ms);
            }
        }
        if let Ok(read) = read_on(&mut reader, bytes).await {
            assert!(reader.next() >= status.tail, "a read ends at {} of {}", reader.next(), status.tail);
            let mut model = self.model();
            read.into_iter().for_each(|(offset, mark)| model.saw(slot, &status.life, offset, mark));
        }
    }

    /// What comes is what lies there in the end.
    async fn follow(&self, by: usize, slot: usize, longest: Duration) {
        let before = self.model().before();
        self.model().used(slot, None, self.world.clock.now_ms());
        let opened = self.processes[by].service.durable_reader(&at(slot), ReadFrom::Tail).await;
        self.expect_there(slot, &opened);
        self.model().used(slot, None, self.world.clock.now_ms());
        let Ok(mut reader) = opened else { return };
        self.model().saw_state(slot, &before, &reader.status().expect("a ledger").tag());
        let life = reader.status().expect("a ledger").life;
        while let Ok(true) = reader.wait(longest).await {
            let Ok(read) = read_on(&mut reader, 500).await else { return };
            let status = reader.status().expect("a ledger");
            assert_eq!(status.life, life, "a reader goes over to another life");
            let mut model = self.model();
            read.into_iter().for_each(|(offset, mark)| model.saw(slot, &life, offset, mark));
            model.saw_state(slot, &before, &status.tag());
            if status.is_closed {
                return;
            }
        }
    }

    async fn snapshot(&self, by: usize, slot: usize, back: u64) {
        let offset = self.tail(slot).saturating_sub(back);
        let now_ms = self.world.clock.now_ms();
        {
            let mut model = self.model();
            model.snapshot_tried(slot, offset);
            model.used(slot, None, now_ms);
        }
        let content_type = ContentType::new("x/snapshot").expect("legal");
        let bytes = format!("{slot}@{offset}").into();
        let snapshot = StreamSnapshot { at: offset, content_type, bytes };
        let put = self.in_time(by, self.processes[by].service.put_snapshot(&at(slot), &snapshot)).await;
        let Some(put) = put else { return };
        self.expect_there(slot, &put);
        if let (true, Ok(_), Some(life)) = (self.turn.is_calm(slot), put, self.under.slots[slot].life()) {
            let mut model = self.model();
            let known = model.life(slot, life);
            known.snapshot_at_least = known.snapshot_at_least.max(offset);
            model.used(slot, Some(life), now_ms);
        }
        self.model().used(slot, None, self.world.clock.now_ms());
    }
}

/// Everything to the end, some bytes at a time.
pub(super) async fn read_on(reader: &mut Reader, bytes: u64) -> Result<Vec<(u64, Mark)>, Error> {
    let mut all = Vec::new();
    while !reader.is_at_tail() {
        let mut next = reader.next();
        for message in reader.messages(bytes).await? {
            assert_eq!(message.seq_num, next, "a gap");
            all.push((next, mark_of(&message.body)));
            next += 1;
        }
        assert_eq!(reader.next(), next);
    }
    Ok(all)
}
