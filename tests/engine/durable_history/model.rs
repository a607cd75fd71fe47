//! What a history knows for certain of Durable Streams, and what it holds every answer against.
//!
//! Everything is known by the *life* of a stream, which every answer names: a name may have had many.

use std::collections::{BTreeMap, BTreeSet};

use leat::service::durable::Status;
use leat::types::ledger::{Lifetime, StateTag};

/// The life of a stream, as answers name it.
pub(super) type Life = String;
/// Which message: the number of its append, and its place in it.
pub(super) type Mark = (u64, usize);

/// An append, however often it was sent.
#[derive(Clone, Debug)]
pub(super) struct Append {
    /// To which name.
    pub(super) slot: usize,
    /// Its messages.
    pub(super) count: usize,
    /// Who, epoch and seq.
    pub(super) producer: Option<(usize, u64, u64)>,
    /// The writer's mark.
    pub(super) writer_seq: Option<u64>,
    pub(super) closes: bool,
    /// Where it certainly is, and from which offset on, if an answer told that.
    pub(super) placed: BTreeMap<Life, Option<u64>>,
    /// Whether it may be elsewhere too.
    pub(super) is_unclear: bool,
    /// Sent and not answered yet.
    pub(super) in_flight: usize,
}

/// What is certain of one life.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) slot: usize,
    /// By offset, as acknowledged or as read.
    pub(super) content: BTreeMap<u64, Mark>,
    /// No look that begins now may show less.
    pub(super) tail_at_least: u64,
    /// The lowest tail that anybody saw.
    pub(super) least_tail: Option<u64>,
    /// Messages that it was made with, beside those of its source.
    pub(super) made_with: u64,
    /// The tail it was closed at.
    pub(super) closed_at: Option<u64>,
    /// Where it comes from: a life, and the first offset that is its own.
    pub(super) origin: Option<(Life, u64)>,
    /// A snapshot was acknowledged there.
    pub(super) snapshot_at_least: u64,
    pub(super) lifetime: Lifetime,
    /// It was certainly used then; and it may have been then.
    pub(super) used_ms: (u64, u64),
}

/// What was known before a call, by life: the tail, and whether it was closed.
pub(super) type Before = BTreeMap<Life, (u64, bool)>;

/// What lies under a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum There {
    Nothing,
    Stream(Box<Status>),
    Retired(Life),
}

impl There {
    /// The life that can be used.
    pub(super) fn life(&self) -> Option<&Life> {
        match self {
            Self::Stream(status) => Some(&status.life),
            Self::Nothing | Self::Retired(_) => None,
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }
}

#[derive(Debug, Default)]
pub(super) struct Model {
    next_append: u64,
    pub(super) appends: BTreeMap<u64, Append>,
    pub(super) lives: BTreeMap<Life, Known>,
    /// The forks that a stream has marks of, as it was looked at last.
    pub(super) marks: BTreeMap<Life, BTreeSet<Life>>,
    /// By slot, the last time that somebody may have used or made a stream.
    touched_ms: BTreeMap<usize, u64>,
    /// By slot, where a snapshot may have been put.
    pub(super) snapshots: BTreeMap<usize, BTreeSet<u64>>,
    /// By slot, whether a close was ever sent.
    pub(super) closings: BTreeSet<usize>,
}

impl Model {
    pub(super) fn begin(&mut self, append: Append) -> u64 {
        self.next_append += 1;
        if append.closes {
            self.closings.insert(append.slot);
        }
        self.appends.insert(self.next_append, append);
        self.next_append
    }

    pub(super) fn before(&self) -> Before {
        let one =
            |(life, known): (&Life, &Known)| (life.clone(), (known.tail_at_least, known.closed_at.is_some()));
        self.lives.iter().map(one).collect()
    }

    pub(super) fn append(&mut self, number: u64) -> &mut Append {
        self.appends.get_mut(&number).expect("begun")
    }

    pub(super) fn life(&mut self, slot: usize, life: &Life) -> &mut Known {
        let known = self.lives.entry(life.clone()).or_insert_with(|| Known { slot, ..Known::default() });
        assert_eq!(known.slot, slot, "a life of two names");
        known
    }

    /// An append was acknowledged.
    pub(super) fn acked(&mut self, number: u64, before: &Before, tag: &StateTag) {
        let Append { slot, count, closes, .. } = *self.append(number);
        let start = tag.tail.checked_sub(count as u64).expect("a tail below its own messages");
        assert_eq!(tag.is_closed, closes, "append {number}");
        if let Some((tail, was_closed)) = before.get(&tag.life) {
            assert!(start >= *tail, "append {number} is at {start}, and {tail} was the tail before it began");
            assert!(!was_closed, "append {number} got into a closed stream");
        }
        let again = self.append(number).placed.insert(tag.life.clone(), Some(start));
        assert!(again.is_none(), "append {number} was accepted twice");
        for i in 0..count {
            self.saw(slot, &tag.life, start + i as u64, (number, i));
        }
        let known = self.life(slot, &tag.life);
        known.tail_at_least = known.tail_at_least.max(tag.tail);
        if closes {
            self.closed(slot, &tag.life, tag.tail);
        }
    }

    /// An answer said that an append had got in before.
    pub(super) fn was_in_before(&mut self, number: u64, before: &Before, tag: &StateTag) {
        let slot = self.append(number).slot;
        self.append(number).placed.entry(tag.life.clone()).or_insert(None);
        self.saw_state(slot, before, tag);
    }

    /// An answer told what a stream is.
    pub(super) fn saw_state(&mut self, slot: usize, before: &Before, tag: &StateTag) {
        if let Some((tail, was_closed)) = before.get(&tag.life) {
            assert!(tag.tail >= *tail, "a tail of {} after one of {tail} was known", tag.tail);
            assert!(tag.is_closed || !was_closed, "a closed stream is open");
        }
        let known = self.life(slot, &tag.life);
        known.least_tail = Some(known.least_tail.map_or(tag.tail, |least| least.min(tag.tail)));
        known.tail_at_least = known.tail_at_least.max(tag.tail);
        if tag.is_closed {
            self.closed(slot, &tag.life, tag.tail);
        }
    }

    pub(super) fn closed(&mut self, slot: usize, life: &Life, tail: u64) {
        assert!(self.closings.contains(&slot), "a stream is closed that nobody closed");
        let known = self.life(slot, life);
        assert_eq!(*known.closed_at.get_or_insert(tail), tail, "something follows a close");
        assert!(known.tail_at_least <= tail, "{} messages, closed after {tail}", known.tail_at_least);
    }

    /// A message lies there.
    pub(super) fn saw(&mut self, slot: usize, life: &Life, offset: u64, mark: Mark) {
        let there = *self.life(slot, life).content.entry(offset).or_insert(mark);
        assert_eq!(there, mark, "two messages at {offset} of {life}");
    }

    /// From whenever on, at most, a stream under this name may have lost its beginning.
    pub(super) fn may_begin_at(&self, slot: usize, start: u64) -> bool {
        start == 0 || self.snapshots.get(&slot).is_some_and(|tried| tried.contains(&start))
    }

    pub(super) fn snapshot_tried(&mut self, slot: usize, at: u64) {
        self.snapshots.entry(slot).or_default().insert(at);
    }

    /// A stream is a fork: it begins where its source does.
    pub(super) fn fork_found(&mut self, slot: usize, life: &Life, origin: (Life, u64)) {
        let of_source = self.lives.get(&origin.0).and_then(|source| self.snapshots.get(&source.slot));
        let of_source = of_source.cloned().unwrap_or_default();
        self.snapshots.entry(slot).or_default().extend(of_source);
        self.life(slot, life).origin = Some(origin);
    }

    /// A use of the name; `life` if it is certain that this one was used.
    pub(super) fn used(&mut self, slot: usize, life: Option<&Life>, now_ms: u64) {
        let touched_ms = self.touched_ms.entry(slot).or_default();
        *touched_ms = now_ms.max(*touched_ms);
        for (name, known) in self.lives.iter_mut().filter(|(_, known)| known.slot == slot) {
            known.used_ms.1 = known.used_ms.1.max(now_ms);
            if life == Some(name) {
                known.used_ms.0 = known.used_ms.0.max(now_ms);
            }
        }
    }

    /// A stream was found to live that long; it was certainly used, or made, no earlier than then.
    pub(super) fn lives_for(&mut self, slot: usize, status: &Status, since_ms: u64) {
        let touched_ms = self.touched_ms.get(&slot).copied().unwrap_or_default();
        let known = self.life(slot, &status.life);
        known.lifetime = status.lifetime;
        let (certain, maybe) = &mut known.used_ms;
        (*certain, *maybe) = ((*certain).max(since_ms), (*maybe).max(status.created_at_ms).max(touched_ms));
    }

    pub(super) fn may_have_expired(&self, life: &Life, now_ms: u64) -> bool {
        let known = self.lives.get(life);
        known.and_then(|k| k.lifetime.ends_ms(k.used_ms.0)).is_some_and(|ends_ms| ends_ms <= now_ms)
    }

    pub(super) fn has_any_expired(&self, now_ms: u64) -> bool {
        self.lives.keys().any(|life| self.may_have_expired(life, now_ms))
    }

    /// A use is recorded with a quarter of the lifetime after it, so a stream ends up to that much later.
    pub(super) fn must_have_expired(&self, life: &Life, now_ms: u64) -> bool {
        self.lives.get(life).is_some_and(|known| match known.lifetime {
            Lifetime::Idle(secs) => known.used_ms.1 + secs * 1_250 <= now_ms,
            Lifetime::Until(ms) => ms <= now_ms,
            Lifetime::Endless => false,
        })
    }
}

impl Append {
    /// An append of so many messages that nobody has sent yet.
    pub(super) fn to(slot: usize, count: usize) -> Self {
        Self {
            slot,
            count,
            producer: None,
            writer_seq: None,
            closes: false,
            placed: BTreeMap::new(),
            is_unclear: false,
            in_flight: 0,
        }
    }
}
