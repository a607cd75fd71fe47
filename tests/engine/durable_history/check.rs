//! What a stream holds, as a process finds it that knows nothing, against what is known.

use std::collections::{BTreeMap, BTreeSet};

use leat::service::durable::Status;

use super::model::{Append, Life, Mark, Model};

/// One append in a stream: its number, the offset of its first message that is kept, the places of its messages.
type Run = (u64, u64, Vec<usize>);

impl Model {
    /// Checks a stream that was read from its beginning to its end.
    pub(super) fn check(&mut self, slot: usize, status: &Status, read: &[(u64, Mark)]) {
        let Status { life, start, tail, is_closed, .. } = status;
        assert!(self.may_begin_at(slot, *start), "what lies before {start} is gone");
        let expected: Vec<_> = (*start..*tail).collect();
        let offsets: Vec<_> = read.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, expected, "a stream from {start} to {tail}");
        for (offset, mark) in read {
            self.saw(slot, life, *offset, *mark);
        }
        self.check_inherited(life, read);
        let own_from = self.lives[life].origin.as_ref().map_or(0, |(_, end)| *end);
        let own: Vec<_> = read.iter().copied().filter(|(offset, _)| *offset >= own_from).collect();
        let runs = runs(&own);
        // Of the first one, the beginning may be gone.
        let is_cut = *start > own_from;
        self.check_runs(slot, life, &runs, is_cut);
        self.check_producers(&runs, is_cut);
        self.check_writer(&runs);
        self.check_placed(slot, life, &runs, (*start, own_from));
        let known = &self.lives[life];
        let (least, whole) = (known.least_tail.unwrap_or(u64::MAX), own_from + known.made_with);
        assert!(least >= whole, "{least} messages were seen of a stream that was made with {whole}");
        assert!(*tail >= known.tail_at_least, "a tail of {tail}, once {}", known.tail_at_least);
        assert!(status.snapshot_at.unwrap_or(0) >= known.snapshot_at_least, "a snapshot is lost: {status:?}");
        assert!(*start == 0 || status.snapshot_at.is_none_or(|at| at == *start), "{status:?}");
        if let Some((number, ..)) = runs.iter().rev().skip(1).find(|(number, ..)| self.appends[number].closes)
        {
            panic!("something follows append {number}, which closed the stream");
        }
        if let Some((number, ..)) = runs.last() {
            assert!(!self.appends[number].closes || *is_closed, "append {number} closed the stream");
        }
        assert!(*is_closed || known.closed_at.is_none(), "a closed stream is open");
        if *is_closed {
            self.closed(slot, life, *tail);
        }
    }

    /// A fork holds what its source held there, whatever has become of that.
    fn check_inherited(&mut self, life: &Life, read: &[(u64, Mark)]) {
        let Some((source, end)) = self.lives[life].origin.clone() else { return };
        let source_slot = self.lives.get(&source).map(|known| known.slot);
        for (offset, mark) in read.iter().filter(|(offset, _)| *offset < end) {
            match source_slot {
                Some(slot) => self.saw(slot, &source, *offset, *mark),
                None => assert!(self.appends.contains_key(&mark.0), "a message that nobody wrote: {mark:?}"),
            }
        }
    }

    /// Every append is whole, there once, and was not refused.
    fn check_runs(&self, slot: usize, life: &Life, runs: &[Run], is_cut: bool) {
        let mut seen = BTreeSet::new();
        for (at, (number, offset, places)) in runs.iter().enumerate() {
            let append =
                self.appends.get(number).unwrap_or_else(|| panic!("{number}: nobody wrote it, at {offset}"));
            assert!(seen.insert(*number), "append {number} is there twice: {append:?}");
            let first = places[0];
            assert!(first == 0 || at == 0 && is_cut, "append {number} lacks its beginning: {places:?}");
            let whole: Vec<_> = (first..append.count).collect();
            assert_eq!(*places, whole, "append {number} is torn: {append:?}");
            assert_eq!(append.slot, slot, "append {number} was meant for another stream");
            let may_be = append.placed.contains_key(life) || append.is_unclear || append.in_flight > 0;
            assert!(may_be, "append {number} is at {offset}, though refused: {append:?}");
        }
    }

    /// The appends of a producer lie in the order of their epochs and numbers, without gaps.
    fn check_producers(&self, runs: &[Run], is_cut: bool) {
        let mut last: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (number, offset, _) in runs {
            let Some((id, epoch, seq)) = self.appends[number].producer else { continue };
            match last.insert(id, (epoch, seq)) {
                Some((before, of)) if before == epoch => {
                    assert_eq!(seq, of + 1, "producer {id} in epoch {epoch}, at {offset}");
                }
                Some((before, _)) => {
                    assert!(before < epoch && seq == 0, "producer {id}: {epoch}/{seq} after epoch {before}");
                }
                None => assert!(is_cut || seq == 0, "producer {id} begins with {epoch}/{seq}"),
            }
        }
    }

    fn check_writer(&self, runs: &[Run]) {
        let marks = runs.iter().filter_map(|(number, ..)| self.appends[number].writer_seq);
        let marks: Vec<_> = marks.collect();
        assert!(marks.is_sorted_by(|a, b| a < b), "marks of the writer do not rise: {marks:?}");
    }

    /// What an answer said to be there is there, where it said so.
    fn check_placed(&self, slot: usize, life: &Life, runs: &[Run], (start, own_from): (u64, u64)) {
        let there: BTreeMap<u64, u64> =
            runs.iter().map(|(number, offset, places)| (*number, offset - places[0] as u64)).collect();
        let of_slot = |(_, append): &(&u64, &Append)| append.slot == slot && append.count > 0;
        for (number, append) in self.appends.iter().filter(of_slot) {
            match (append.placed.get(life), there.get(number)) {
                (Some(Some(said)), Some(at)) => assert_eq!(said, at, "append {number}: {append:?}"),
                (Some(Some(said)), None) => {
                    assert!(said + append.count as u64 <= start, "append {number} is lost: {append:?}");
                }
                (Some(None), None) => {
                    assert!(start > own_from, "append {number} is lost: {append:?}");
                }
                (Some(None) | None, _) => {}
            }
        }
    }
}

/// Neighbouring messages of one append.
fn runs(read: &[(u64, Mark)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (offset, (number, i)) in read {
        match runs.last_mut() {
            Some((last, _, places)) if last == number && places.last().is_some_and(|p| p + 1 == *i) => {
                places.push(*i);
            }
            _ => runs.push((*number, *offset, vec![*i])),
        }
    }
    runs
}
