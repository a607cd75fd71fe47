//! The head of every register: what the commit protocol needs to know about a document (*pure*).
//!
//! A register is a key that is changed by compare-and-swap only and, once written, is never absent again. Its
//! head belongs to the key, not to the life of what the document describes: version and ring go on through
//! tombstones and re-creation.

use bytes::Bytes;

use super::frame::{Damaged, WRITER};
use super::key::{CommitId, Incarnation};
use crate::types::limits::RING_COMMITS_MAX;

/// Whether the document describes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Live = 1,
    /// A basin that is being deleted, or a bucket that somebody looks at to delete it.
    Deleting = 2,
    /// Deleted: only the head still matters.
    Tombstone = 3,
    /// Reserved: the working manifest lies in a second bucket.
    Redirect = 4,
}

impl State {
    fn from_number(number: i32) -> Option<Self> {
        [Self::Live, Self::Deleting, Self::Tombstone, Self::Redirect]
            .into_iter()
            .find(|s| *s as i32 == number)
    }
}

/// Version, life, state and the ids of the last commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Commits of this key so far; the first is 1.
    pub version: u64,
    /// The life the document describes, or described.
    pub incarnation: Incarnation,
    /// Whether it is alive.
    pub state: State,
    /// A process whose format is below this reads the document but never writes it.
    pub min_writer: u8,
    /// Ids of the last commits, oldest first; the last is this version's own.
    ring: Vec<CommitId>,
}

/// The stored shape: field 1 of every register document.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeadProto {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(bytes = "bytes", tag = "2")]
    incarnation: Bytes,
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(bytes = "bytes", tag = "4")]
    ring: Bytes,
}

impl Head {
    /// The head of a first commit.
    #[must_use]
    pub fn first(incarnation: Incarnation, state: State) -> Self {
        Self { version: 1, incarnation, state, min_writer: WRITER, ring: vec![CommitId::fresh()] }
    }

    /// The head of the commit after this one, under a fresh id.
    #[must_use]
    pub fn next(&self, incarnation: Incarnation, state: State) -> Self {
        let skip = (self.ring.len() + 1).saturating_sub(RING_COMMITS_MAX);
        let ring = self.ring.iter().skip(skip).copied().chain([CommitId::fresh()]).collect();
        Self { version: self.version + 1, incarnation, state, min_writer: WRITER, ring }
    }

    /// The id of this version.
    #[must_use]
    pub fn commit_id(&self) -> CommitId {
        *self.ring.last().expect("a ring holds at least its own version's id")
    }

    /// Whether a commit is among the last ones.
    #[must_use]
    pub fn remembers(&self, id: CommitId) -> bool {
        self.ring.contains(&id)
    }

    /// Whether every commit after `version` is in the ring.
    #[must_use]
    pub fn reaches_back_to(&self, version: u64) -> bool {
        self.version.saturating_sub(self.ring.len() as u64) <= version
    }

    /// Whether the document describes something that is there.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Checks that `self` may follow `old` on one key.
    pub fn check_follows(&self, old: &Self) -> Result<(), String> {
        if self.version != old.version + 1 {
            return Err(format!("version {} after {}", self.version, old.version));
        }
        if !self.remembers(old.commit_id()) || old.remembers(self.commit_id()) {
            return Err("the ring does not go on".to_owned());
        }
        if self.incarnation != old.incarnation && old.state != State::Tombstone {
            return Err("a new life over one that has not ended".to_owned());
        }
        if self.incarnation == old.incarnation && old.state == State::Tombstone {
            return Err("a life that goes on after its end".to_owned());
        }
        Ok(())
    }

    /// The stored shape.
    #[must_use]
    pub fn to_proto(&self) -> HeadProto {
        HeadProto {
            version: self.version,
            incarnation: Bytes::copy_from_slice(self.incarnation.as_bytes()),
            state: self.state as i32,
            ring: self.ring.iter().flat_map(|id| id.as_bytes().iter().copied()).collect(),
        }
    }

    /// Reads the stored shape.
    pub fn from_proto(proto: Option<&HeadProto>, min_writer: u8) -> Result<Self, Damaged> {
        let damaged = |why: &str| Damaged::new("register head", why);
        let HeadProto { version, incarnation, state, ring } = proto.ok_or_else(|| damaged("missing"))?;
        let ring: Option<Vec<_>> = ring.chunks(CommitId::BYTES).map(CommitId::from_slice).collect();
        let ring = ring.filter(|r| !r.is_empty()).ok_or_else(|| damaged("ring"))?;
        Ok(Self {
            version: *version,
            incarnation: Incarnation::from_slice(incarnation).ok_or_else(|| damaged("incarnation"))?,
            state: State::from_number(*state).ok_or_else(|| damaged("state"))?,
            min_writer,
            ring,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_remembers_the_last_128_commits() {
        let life = Incarnation::fresh();
        let mut head = Head::first(life, State::Live);
        let first = head.commit_id();
        for _ in 0..127 {
            let next = head.next(life, State::Live);
            next.check_follows(&head).expect("legal");
            head = next;
        }
        assert!(head.remembers(first) && head.reaches_back_to(0));
        head = head.next(life, State::Live);
        assert!(!head.remembers(first) && !head.reaches_back_to(0) && head.reaches_back_to(1));
        assert_eq!(Head::from_proto(Some(&head.to_proto()), WRITER), Ok(head));
    }

    #[test]
    fn a_new_life_needs_a_tombstone_before_it() {
        let live = Head::first(Incarnation::fresh(), State::Live);
        assert!(live.next(Incarnation::fresh(), State::Live).check_follows(&live).is_err());
        let dead = live.next(live.incarnation, State::Tombstone);
        dead.check_follows(&live).expect("a life may end");
        assert!(dead.next(dead.incarnation, State::Live).check_follows(&dead).is_err());
        dead.next(Incarnation::fresh(), State::Live).check_follows(&dead).expect("a name may be used again");
    }
}
