//! Offsets, entity tags and cursors: how places in a stream, and its states, are written (*pure*).
//!
//! An offset is the number of the next message, as 16 hexadecimal digits: it sorts like the number, and has one form.
//! `0000000000000000_0000000000000000` is read as the first as well, because clients of other servers know it so.
//! An event is known by the offset behind it, and the event that tells the end of a stream by `:c` after that.

use crate::api::uri::decimal;
use crate::types::ledger::StateTag;

/// The first offset as other servers write it.
const ZERO: &str = "0000000000000000_0000000000000000";
/// What marks the end of a stream.
const END: &str = ":c";
/// When cursors began to count: 2024-10-09T00:00:00Z.
const CURSOR_EPOCH_MS: u64 = 1_728_432_000_000;
/// How long one cursor holds.
const CURSOR_MS: u64 = 20_000;
/// No cursor of ours gets as far as this: one that says so is none.
const CURSOR_MAX: u64 = 1 << 53;

/// Writes an offset.
pub(super) fn offset(next: u64) -> String {
    format!("{next:016x}")
}

/// Reads an offset.
pub(super) fn parse(text: &str) -> Option<u64> {
    if text == ZERO {
        return Some(0);
    }
    let is_legal = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_legal { u64::from_str_radix(text, 16).ok() } else { None }
}

/// Writes what an event is known by.
pub(super) fn event(next: u64, is_end: bool) -> String {
    format!("{}{}", offset(next), if is_end { END } else { "" })
}

/// Reads what the last event was known by, which a client has seen: where to read on, and whether it was the end.
pub(super) fn parse_event(text: &str) -> Option<(u64, bool)> {
    let (offset, is_end) = text.strip_suffix(END).map_or((text, false), |offset| (offset, true));
    Some((parse(offset)?, is_end))
}

/// The tag of a stream's state.
pub(super) fn state_tag(tag: &StateTag) -> String {
    let StateTag { life, tail, is_closed } = tag;
    format!("\"{life}:{tail:x}:{}\"", if *is_closed { 'c' } else { 'o' })
}

/// How far some messages reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// More follow.
    Part,
    /// No more are there yet.
    Tail,
    /// None will follow.
    End,
}

/// The tag of some messages, and of what is said about them: an answer that reached the tail is not the same once it
/// does not any more, or a cache would go on to call it up to date.
pub(super) fn range_tag(life: &str, (from, to): (u64, u64), reach: Reach) -> String {
    let reach = match reach {
        Reach::Part => "",
        Reach::Tail => ":t",
        Reach::End => END,
    };
    format!("\"{life}:{from:x}:{to:x}{reach}\"")
}

/// What a condition lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tags {
    /// `*`.
    Any,
    /// Tags, in their quotes.
    Listed(Vec<String>),
}

impl Tags {
    /// Reads the value of a condition. What is no tag matches nothing.
    pub(super) fn parse(text: &str) -> Self {
        if text.trim() == "*" {
            return Self::Any;
        }
        Self::Listed(text.split(',').map(|tag| tag.trim().to_owned()).collect())
    }

    /// Whether one of them is this, or is the same but weak.
    pub(super) fn has(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(tags) => tags.iter().any(|listed| listed.trim_start_matches("W/") == tag),
        }
    }

    /// The states they name.
    pub(super) fn states(&self) -> Option<Vec<StateTag>> {
        match self {
            Self::Any => None,
            Self::Listed(tags) => Some(tags.iter().filter_map(|tag| parse_state(tag)).collect()),
        }
    }
}

fn parse_state(text: &str) -> Option<StateTag> {
    let mut parts = text.strip_prefix('"')?.strip_suffix('"')?.split(':');
    let (life, tail, state) = (parts.next()?, parts.next()?, parts.next()?);
    let is_closed = match (state, parts.next()) {
        ("o", None) => false,
        ("c", None) => true,
        _ => return None,
    };
    Some(StateTag { life: life.to_owned(), tail: u64::from_str_radix(tail, 16).ok()?, is_closed })
}

/// The cursor of an answer at this time, above the one that the client has.
pub(super) fn cursor(now_ms: u64, known: Option<&str>) -> u64 {
    let current = now_ms.saturating_sub(CURSOR_EPOCH_MS) / CURSOR_MS;
    let known = known.and_then(decimal::<u64>).filter(|known| *known < CURSOR_MAX);
    known.map_or(current, |known| current.max(known + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_has_one_form() {
        assert_eq!(offset(42), "000000000000002a");
        for next in [0, 1, 42, u64::MAX] {
            assert_eq!(parse(&offset(next)), Some(next));
        }
        assert_eq!(parse(ZERO), Some(0));
        let bad = [
            "",
            "-1",
            "now",
            "2a",
            "000000000000002A",
            "9999999999999999_9999999999999999",
            "0000000000000 00",
        ];
        for bad in bad {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_event_tells_the_end_from_what_goes_on() {
        assert_eq!(event(42, true), "000000000000002a:c");
        for known in [(42, false), (0, true)] {
            assert_eq!(parse_event(&event(known.0, known.1)), Some(known));
        }
        for bad in ["", ":c", "000000000000002a:", "000000000000002a:o", "000000000000002a:c:c"] {
            assert_eq!(parse_event(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_state_survives_its_tag() {
        let state = StateTag { life: "ab12".to_owned(), tail: 42, is_closed: true };
        assert_eq!(state_tag(&state), "\"ab12:2a:c\"");
        let tags = Tags::parse(&format!("\"x\", {} , W/\"ab12:2b:o\"", state_tag(&state)));
        assert_eq!(tags.states(), Some(vec![state.clone()]));
        assert!(tags.has(&state_tag(&state)) && tags.has("\"ab12:2b:o\"") && !tags.has("\"y\""));
        assert_eq!(Tags::parse(" * ").states(), None);
        let tags = [Reach::Part, Reach::Tail, Reach::End].map(|reach| range_tag("ab", (1, 16), reach));
        assert_eq!(tags, ["\"ab:1:10\"", "\"ab:1:10:t\"", "\"ab:1:10:c\""]);
    }

    #[test]
    fn a_cursor_counts_intervals_and_never_repeats() {
        let at = CURSOR_EPOCH_MS + 5 * CURSOR_MS;
        assert_eq!(cursor(at, None), 5);
        assert_eq!(cursor(at, Some("4")), 5);
        assert_eq!(cursor(at, Some("5")), 6);
        assert_eq!(cursor(at, Some("9")), 10);
        assert_eq!(cursor(at, Some("x")), 5);
        assert_eq!(cursor(at, Some("9007199254740991")), 1 << 53);
        for none in
            ["9007199254740992", "18446744073709551614", "18446744073709551615", "18446744073709551616"]
        {
            assert_eq!(cursor(at, Some(none)), 5, "{none}");
        }
    }
}
