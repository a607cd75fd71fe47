//! May this entry get in, by the stream's ledger, and what does the ledger hold after it (*pure*).
//!
//! What got in before is told first, so that whoever repeats an append whose answer was lost learns that and nothing
//! else. Then: closed, type, content, the producer's order, the writer's mark, the expected state.

use crate::storage::key::Incarnation;
use crate::storage::ledger::{Ledger, Stage};
use crate::types::ledger::{Entry, Filling, Producer, Refusal, Then, Unusable};

/// What an entry meets beside the ledger, and whether it comes with records.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    /// The stream's life, if it is known.
    pub(super) life: Option<Incarnation>,
    /// The next sequence number.
    pub(super) tail: u64,
    /// Whether the entry has any.
    pub(super) has_records: bool,
}

/// The ledger after this entry, or why it does not get in.
pub(super) fn judge(
    ledger: &Ledger,
    State { life, tail, has_records }: State,
    entry: &Entry,
    now_ms: u64,
) -> Result<Ledger, Refusal> {
    match (ledger.check_usable(now_ms), entry.filling) {
        (Ok(()), Filling::No) | (Err(Unusable::Unfinished), Filling::More | Filling::Last) => {}
        (Err(why), _) => return Err(Refusal::Unusable(why)),
        // Somebody else has finished what was taken for abandoned.
        (Ok(()), Filling::More | Filling::Last) => return Err(Refusal::OtherState),
    }
    let producer = entry.producer.as_ref();
    if let Some(producer) = producer {
        check_repeat(ledger, producer)?;
    }
    if ledger.is_closed {
        let asks_no_more = !has_records && entry.malformed.is_none() && entry.then == Then::Close;
        let is_repeat = asks_no_more && producer.is_none();
        return Err(if is_repeat { Refusal::AlreadyClosed } else { Refusal::Closed });
    }
    if let Some(content_type) = &entry.content_type
        && !content_type.matches(&ledger.content_type)
    {
        return Err(Refusal::OtherType { current: ledger.content_type.as_str().to_owned() });
    }
    if let Some(why) = &entry.malformed {
        return Err(Refusal::Malformed(why.clone()));
    }
    if let Some(producer) = producer {
        check_order(ledger, producer)?;
    }
    if let (Some(seq), Some(last)) = (&entry.writer_seq, &ledger.writer_seq)
        && seq <= last
    {
        let last = String::from_utf8_lossy(last.as_bytes()).into_owned();
        return Err(Refusal::WriterSeqNotAbove { last });
    }
    if entry.expected.as_ref().is_some_and(|tags| !ledger.is_in(life, tail, tags)) {
        return Err(Refusal::OtherState);
    }
    after(ledger, entry, now_ms)
}

/// Tells what got in before, and whom a higher epoch shuts out.
fn check_repeat(ledger: &Ledger, producer: &Producer) -> Result<(), Refusal> {
    match ledger.producers.get(producer.id()).map(|known| &known.last) {
        Some(last) if producer.epoch < last.epoch => Err(Refusal::StaleEpoch { epoch: last.epoch }),
        Some(last) if producer.epoch == last.epoch && producer.seq <= last.seq => {
            Err(Refusal::Duplicate { epoch: last.epoch, seq: last.seq })
        }
        Some(_) | None => Ok(()),
    }
}

fn check_order(ledger: &Ledger, producer: &Producer) -> Result<(), Refusal> {
    let received = producer.seq;
    match ledger.producers.get(producer.id()).map(|known| &known.last) {
        Some(last) if producer.epoch > last.epoch && received > 0 => {
            Err(Refusal::EpochBegins { seq: received })
        }
        Some(last) if producer.epoch == last.epoch && received > last.seq + 1 => {
            Err(Refusal::Gap { expected: last.seq + 1, received })
        }
        None if received > 0 => Err(Refusal::Gap { expected: 0, received }),
        Some(_) | None => Ok(()),
    }
}

fn after(ledger: &Ledger, entry: &Entry, now_ms: u64) -> Result<Ledger, Refusal> {
    let mut next = ledger.clone();
    next.last_used_ms = next.last_used_ms.max(now_ms);
    if let Some(producer) = &entry.producer
        && !next.producers.remember(producer, now_ms)
    {
        return Err(Refusal::TooManyProducers);
    }
    if let Some(seq) = &entry.writer_seq {
        next.writer_seq = Some(seq.clone());
    }
    if entry.then == Then::Close {
        next.is_closed = true;
        next.closed_by.clone_from(&entry.producer);
    }
    if entry.filling == Filling::Last {
        next.stage = Stage::Ready;
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ledger::{ContentType, Lifetime, StateTag, WriterSeq};

    const NOW: u64 = 1_000;
    const AT: State = State { life: None, tail: 7, has_records: true };
    const EMPTY: State = State { has_records: false, ..AT };

    fn ledger() -> Ledger {
        Ledger::new(ContentType::new("text/plain").expect("legal"), Lifetime::Endless, 0)
    }

    fn by(id: &str, epoch: u64, seq: u64) -> Entry {
        Entry { producer: Some(Producer::new(id, epoch, seq).expect("legal")), ..Entry::default() }
    }

    fn append(ledger: &Ledger, entry: &Entry) -> Result<Ledger, Refusal> {
        judge(ledger, AT, entry, NOW)
    }

    #[test]
    fn a_producer_goes_through_its_states() {
        let start = ledger();
        assert_eq!(append(&start, &by("a", 4, 1)).err(), Some(Refusal::Gap { expected: 0, received: 1 }));
        let one = append(&start, &by("a", 4, 0)).expect("the first of any epoch");
        let two = append(&one, &by("a", 4, 1)).expect("the next");
        let refused = |entry| append(&two, &entry).err();
        assert_eq!(refused(by("a", 4, 0)), Some(Refusal::Duplicate { epoch: 4, seq: 1 }));
        assert_eq!(refused(by("a", 4, 1)), Some(Refusal::Duplicate { epoch: 4, seq: 1 }));
        assert_eq!(refused(by("a", 4, 3)), Some(Refusal::Gap { expected: 2, received: 3 }));
        assert_eq!(refused(by("a", 3, 9)), Some(Refusal::StaleEpoch { epoch: 4 }));
        assert_eq!(refused(by("a", 5, 1)), Some(Refusal::EpochBegins { seq: 1 }));
        let newer = append(&two, &by("a", 5, 0)).expect("a new epoch");
        assert_eq!(append(&newer, &by("a", 4, 2)).err(), Some(Refusal::StaleEpoch { epoch: 5 }));
        assert!(append(&two, &by("b", 0, 0)).is_ok());
    }

    #[test]
    fn a_repeat_is_told_before_anything_else_is_judged() {
        let closing = Entry { then: Then::Close, ..by("a", 0, 0) };
        let closed = append(&ledger(), &closing).expect("open");
        let repeat = Entry {
            content_type: Some(ContentType::octets()),
            malformed: Some("no".to_owned()),
            expected: Some(vec![]),
            ..closing
        };
        assert_eq!(append(&closed, &repeat).err(), Some(Refusal::Duplicate { epoch: 0, seq: 0 }));
        assert_eq!(append(&closed, &by("a", 0, 1)).err(), Some(Refusal::Closed));
    }

    #[test]
    fn a_closed_stream_takes_nothing_but_another_close() {
        let close = Entry { then: Then::Close, ..Entry::default() };
        let closed = judge(&ledger(), EMPTY, &close, NOW).expect("open");
        assert!(closed.is_closed);
        assert_eq!(judge(&closed, EMPTY, &close, NOW), Err(Refusal::AlreadyClosed));
        assert_eq!(append(&closed, &close), Err(Refusal::Closed));
        assert_eq!(append(&closed, &Entry::default()), Err(Refusal::Closed));
        let late = Entry { then: Then::Close, ..by("a", 0, 0) };
        assert_eq!(judge(&closed, EMPTY, &late, NOW), Err(Refusal::Closed));
    }

    #[test]
    fn what_is_refused_is_judged_in_order() {
        let seq = |text: &str| Some(WriterSeq::new(text.as_bytes()).expect("legal"));
        let before = Ledger { writer_seq: seq("b"), ..ledger() };
        let mut entry = Entry {
            content_type: Some(ContentType::octets()),
            malformed: Some("not so".to_owned()),
            writer_seq: seq("b"),
            expected: Some(vec![StateTag { life: String::new(), tail: 6, is_closed: false }]),
            ..by("a", 0, 1)
        };
        assert!(matches!(append(&before, &entry), Err(Refusal::OtherType { .. })));
        entry.content_type = Some(ContentType::new("TEXT/plain; charset=utf-8").expect("legal"));
        assert!(matches!(append(&before, &entry), Err(Refusal::Malformed(_))));
        entry.malformed = None;
        assert!(matches!(append(&before, &entry), Err(Refusal::Gap { .. })));
        entry.producer = by("a", 0, 0).producer;
        assert_eq!(append(&before, &entry), Err(Refusal::WriterSeqNotAbove { last: "b".to_owned() }));
        entry.writer_seq = seq("ba");
        assert_eq!(append(&before, &entry), Err(Refusal::OtherState));
        entry.expected = Some(vec![StateTag { life: String::new(), tail: 7, is_closed: false }]);
        let after = append(&before, &entry).expect("all is well");
        assert_eq!((after.writer_seq, after.last_used_ms), (seq("ba"), NOW));
        assert_eq!(after.producers.newest.len(), 1);
    }

    #[test]
    fn a_state_is_expected_of_one_life() {
        let (life, other) = (Incarnation::fresh(), Incarnation::fresh());
        let state = State { life: Some(life), ..AT };
        let tag = |life: Incarnation, tail| StateTag { life: life.to_string(), tail, is_closed: false };
        let expecting = |tags: &[StateTag]| Entry { expected: Some(tags.to_vec()), ..Entry::default() };
        assert!(judge(&ledger(), state, &expecting(&[tag(other, 7), tag(life, 7)]), NOW).is_ok());
        let refused = judge(&ledger(), state, &expecting(&[tag(other, 7), tag(life, 6)]), NOW);
        assert_eq!(refused, Err(Refusal::OtherState));
    }

    #[test]
    fn a_stream_that_cannot_be_used_takes_nothing() {
        let unusable = |ledger: Ledger, entry: &Entry| match append(&ledger, entry) {
            Err(Refusal::Unusable(why)) => Some(why),
            _ => None,
        };
        let entry = Entry::default();
        let expired = Ledger { lifetime: Lifetime::Until(NOW), ..ledger() };
        assert_eq!(unusable(expired, &entry), Some(Unusable::Expired));
        assert_eq!(unusable(Ledger { stage: Stage::Retired, ..ledger() }, &entry), Some(Unusable::Retired));
        let filling = Ledger { stage: Stage::Filling, ..ledger() };
        assert_eq!(unusable(filling.clone(), &entry), Some(Unusable::Unfinished));
        let last = Entry { filling: Filling::Last, ..Entry::default() };
        assert_eq!(append(&filling, &last).map(|ledger| ledger.stage), Ok(Stage::Ready));
        assert_eq!(append(&ledger(), &last), Err(Refusal::OtherState));
    }
}
