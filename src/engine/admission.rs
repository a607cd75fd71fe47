//! May these batches enter this stream, and with which numbers and timestamps (*pure*).
//!
//! Batches are judged in order, each on what the accepted ones before it leave behind. A batch is accepted
//! whole or not at all. Conditions are checked in the order fencing token, sequence number, timestamps.

use std::collections::HashSet;

use super::entry;
use crate::storage::key::Incarnation;
use crate::storage::ledger::Ledger;
use crate::storage::manifest::LogState;
use crate::types::config::{Timestamping, TimestampingMode};
use crate::types::ledger::{Life, Refused};
use crate::types::record::{AppendInput, Command, StreamPosition};

/// Where an accepted batch goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The first record.
    pub start: StreamPosition,
    /// One past the last record, with the last record's timestamp.
    pub end: StreamPosition,
    /// One for each record; they never decrease.
    pub timestamps: Vec<u64>,
}

/// Why a batch is refused. It stands only if the state it was judged on is the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The batch names another fencing token.
    FencingTokenMismatch {
        /// The stream's.
        current: String,
    },
    /// The batch expects another sequence number.
    SeqNumMismatch {
        /// The one it would have got.
        next: u64,
    },
    /// The stream requires client timestamps.
    TimestampMissing {
        /// Place of the record in the batch.
        record: usize,
    },
    /// An earlier batch of the same session was not accepted.
    SessionEnded,
    /// The session began in another life of the stream: it was deleted, and created again.
    StreamRecreated,
    /// The batch is an entry and the stream has no ledger, or the other way round.
    OtherKind,
    /// The entry is meant for another life of the stream.
    OtherLife,
    /// The entry does not get in by the stream's ledger, or got in before.
    Refused(Refused),
}

/// Whose pipelined batches belong together: after the first that fails, none of the later ones may be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

/// A batch to be judged.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// What is to be appended, and on what conditions.
    pub input: &'a AppendInput,
    /// The session it came through.
    pub session: Option<SessionId>,
    /// Why it is refused whatever it says, if it is.
    pub refusal: Option<Rejection>,
    /// The life that it is judged on; states of others, which it may expect too, are not meant.
    pub life: Option<Incarnation>,
}

impl<'a> From<&'a AppendInput> for Candidate<'a> {
    fn from(input: &'a AppendInput) -> Self {
        Self { input, session: None, refusal: None, life: None }
    }
}

/// What became of some batches.
#[derive(Clone, Debug)]
pub struct Admission {
    /// One for each batch.
    pub verdicts: Vec<Result<Admitted, Rejection>>,
    /// What the accepted ones leave behind.
    pub log: LogState,
}

impl Admission {
    /// Whether any batch was accepted.
    #[must_use]
    pub fn accepts_any(&self) -> bool {
        self.verdicts.iter().any(Result::is_ok)
    }
}

/// Judges batches. `now_ms` is their arrival; the stream's arrivals never go back, so it may be raised.
#[must_use]
pub fn admit<'a>(
    log: &LogState,
    timestamping: Timestamping,
    batches: impl IntoIterator<Item = impl Into<Candidate<'a>>>,
    now_ms: u64,
) -> Admission {
    let mut log = log.clone();
    let mut verdicts = Vec::new();
    let mut ended = HashSet::new();
    for batch in batches {
        let Candidate { input: batch, session, refusal, life } = batch.into();
        let has_ended = session.is_some_and(|session| ended.contains(&session));
        let verdict = match (refusal, has_ended) {
            (Some(refusal), _) => Err(refusal),
            (None, true) => Err(Rejection::SessionEnded),
            (None, false) => admit_one((&log, life), timestamping, batch, now_ms),
        };
        if verdict.is_err() {
            ended.extend(session);
        }
        let verdict = verdict.map(|(admitted, ledger)| {
            log.ledger = ledger;
            admitted
        });
        if let Ok(admitted) = &verdict {
            log.next_seq_num = admitted.end.seq_num;
            log.last_timestamp = admitted.end.timestamp;
            log.last_arrival_ms = log.last_arrival_ms.max(now_ms);
            obey_commands(&mut log, batch, admitted.start.seq_num);
        }
        verdicts.push(verdict);
    }
    Admission { verdicts, log }
}

fn admit_one(
    (log, life): (&LogState, Option<Incarnation>),
    timestamping: Timestamping,
    batch: &AppendInput,
    now_ms: u64,
) -> Result<(Admitted, Option<Box<Ledger>>), Rejection> {
    let ledger = match (&log.ledger, &batch.entry) {
        (None, None) => None,
        (Some(ledger), Some(entry)) => {
            let now_ms = now_ms.max(log.last_arrival_ms);
            let (tail, is_closed) = (log.next_seq_num, ledger.is_closed);
            let state = entry::State { life, tail, has_records: !batch.records().is_empty() };
            let judged = entry::judge(ledger, state, entry, now_ms).map_err(|why| {
                let life = life.map(Life::from).unwrap_or_default();
                Rejection::Refused(Refused { why, life, tail, is_closed })
            })?;
            Some(Box::new(judged))
        }
        _ => return Err(Rejection::OtherKind),
    };
    if let Some(token) = &batch.fencing_token
        && *token != log.fencing_token
    {
        return Err(Rejection::FencingTokenMismatch { current: log.fencing_token.as_str().to_owned() });
    }
    if let Some(expected) = batch.match_seq_num
        && expected != log.next_seq_num
    {
        return Err(Rejection::SeqNumMismatch { next: log.next_seq_num });
    }
    let timestamps = stamp(log.last_timestamp, timestamping, batch, now_ms)?;
    let first = timestamps.first().copied().unwrap_or(log.last_timestamp);
    let last = timestamps.last().copied().unwrap_or(log.last_timestamp);
    let end = log.next_seq_num + timestamps.len() as u64;
    let admitted = Admitted {
        start: StreamPosition { seq_num: log.next_seq_num, timestamp: first },
        end: StreamPosition { seq_num: end, timestamp: last },
        timestamps,
    };
    Ok((admitted, ledger))
}

/// Assigns timestamps: the client's or the arrival, capped by the arrival, never below the one before.
pub fn stamp(
    mut last: u64,
    timestamping: Timestamping,
    batch: &AppendInput,
    now_ms: u64,
) -> Result<Vec<u64>, Rejection> {
    let mut timestamps = Vec::with_capacity(batch.records().len());
    for (record, given) in batch.records().iter().map(|r| r.timestamp).enumerate() {
        let wanted = match (timestamping.mode, given) {
            (TimestampingMode::Arrival, _) | (TimestampingMode::ClientPrefer, None) => now_ms,
            (TimestampingMode::ClientPrefer | TimestampingMode::ClientRequire, Some(given)) => given,
            (TimestampingMode::ClientRequire, None) => return Err(Rejection::TimestampMissing { record }),
        };
        let capped = if timestamping.uncapped { wanted } else { wanted.min(now_ms) };
        last = last.max(capped);
        timestamps.push(last);
    }
    Ok(timestamps)
}

fn obey_commands(log: &mut LogState, batch: &AppendInput, start: u64) {
    for (seq_num, record) in (start..).zip(batch.records()) {
        match record.command() {
            Ok(Some(Command::Fence(token))) => log.fencing_token = token,
            // At most up to and including the command itself, and never backward.
            Ok(Some(Command::Trim(to))) => log.trim_point = log.trim_point.max(to.min(seq_num + 1)),
            Ok(None) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::types::record::{FencingToken, Header, Record};

    const NOW: u64 = 1_000;

    fn at(timestamp: Option<u64>) -> Record {
        Record { timestamp, ..Record::default() }
    }

    fn command(name: &'static str, body: &[u8]) -> Record {
        let header = Header { name: Bytes::new(), value: Bytes::from_static(name.as_bytes()) };
        Record { timestamp: None, headers: vec![header], body: Bytes::copy_from_slice(body) }
    }

    fn batch(records: Vec<Record>) -> AppendInput {
        AppendInput::new(records, None, None).expect("legal")
    }

    fn token(text: &str) -> FencingToken {
        FencingToken::new(text.to_owned()).expect("short")
    }

    fn stamps(mode: TimestampingMode, uncapped: bool, last: u64, given: &[Option<u64>]) -> Option<Vec<u64>> {
        let log = LogState { last_timestamp: last, ..LogState::default() };
        let input = batch(given.iter().map(|t| at(*t)).collect());
        let admission = admit(&log, Timestamping { mode, uncapped }, [&input], NOW);
        admission.verdicts.into_iter().next()?.ok().map(|a| a.timestamps)
    }

    #[test]
    fn timestamps_follow_their_mode() {
        use TimestampingMode::{Arrival, ClientPrefer, ClientRequire};
        let given = [Some(5), None, Some(7), Some(2_000)];
        assert_eq!(stamps(ClientPrefer, false, 0, &given), Some(vec![5, NOW, NOW, NOW]));
        assert_eq!(stamps(ClientPrefer, true, 0, &given), Some(vec![5, NOW, NOW, 2_000]));
        assert_eq!(stamps(Arrival, true, 0, &given), Some(vec![NOW; 4]));
        assert_eq!(stamps(ClientRequire, false, 0, &given), None);
        assert_eq!(stamps(ClientRequire, false, 6, &[Some(5), Some(9)]), Some(vec![6, 9]));
        assert_eq!(stamps(ClientPrefer, false, 5_000, &[None, Some(1)]), Some(vec![5_000, 5_000]));
        assert_eq!(stamps(ClientPrefer, true, 0, &[Some(u64::MAX), None]), Some(vec![u64::MAX, u64::MAX]));
    }

    #[test]
    fn the_fencing_token_is_checked_before_the_sequence_number() {
        let log = LogState { fencing_token: token("a"), next_seq_num: 3, ..LogState::default() };
        let judge = |seq, fence: Option<&str>| {
            let input = AppendInput::new(vec![at(None)], seq, fence.map(token)).expect("legal");
            admit(&log, Timestamping::default(), [&input], NOW).verdicts.remove(0).err()
        };
        let fenced = Some(Rejection::FencingTokenMismatch { current: "a".to_owned() });
        assert_eq!(judge(Some(9), Some("b")), fenced);
        assert_eq!(judge(None, Some("")), fenced);
        assert_eq!(judge(Some(9), Some("a")), Some(Rejection::SeqNumMismatch { next: 3 }));
        assert_eq!(judge(Some(3), Some("a")), None);
        assert_eq!(judge(None, None), None);
    }

    #[test]
    fn a_fence_holds_for_the_batches_after_its_own() {
        let fence =
            AppendInput::new(vec![command("fence", b"x"), at(None)], None, Some(token(""))).expect("legal");
        let stale = AppendInput::new(vec![at(None)], None, Some(token(""))).expect("legal");
        let admission = admit(&LogState::default(), Timestamping::default(), [&fence, &stale], NOW);
        assert!(admission.verdicts[0].is_ok());
        assert_eq!(admission.verdicts[1], Err(Rejection::FencingTokenMismatch { current: "x".to_owned() }));
        assert_eq!(admission.log.next_seq_num, 2);
    }

    #[test]
    fn after_a_refusal_nothing_more_of_its_session_is_accepted() {
        let at_zero = AppendInput::new(vec![at(None)], Some(0), None).expect("legal");
        let any = batch(vec![at(None)]);
        let of = |input, session| Candidate {
            input,
            session: Some(SessionId(session)),
            refusal: None,
            life: None,
        };
        let ended = Candidate { refusal: Some(Rejection::SessionEnded), ..of(&any, 3) };
        let candidates =
            [of(&any, 1), of(&at_zero, 1), of(&any, 1), of(&any, 2), Candidate::from(&any), ended];
        let admission = admit(&LogState::default(), Timestamping::default(), candidates, NOW);
        let refused: Vec<_> = admission.verdicts.iter().map(|v| v.clone().err()).collect();
        let mismatch = Some(Rejection::SeqNumMismatch { next: 1 });
        let ended = Some(Rejection::SessionEnded);
        assert_eq!(refused, [None, mismatch, ended.clone(), None, None, ended]);
        assert_eq!(admission.log.next_seq_num, 3);
    }

    #[test]
    fn a_trim_reaches_at_most_its_own_record_and_never_goes_back() {
        let trim = |to: u64| command("trim", &to.to_be_bytes());
        let log = LogState { next_seq_num: 10, trim_point: 4, ..LogState::default() };
        for (to, expected) in [(0, 4), (7, 7), (10, 10), (11, 11), (u64::MAX, 11)] {
            let input = batch(vec![trim(to)]);
            assert_eq!(admit(&log, Timestamping::default(), [&input], NOW).log.trim_point, expected, "{to}");
        }
    }

    proptest! {
        #[test]
        fn accepted_batches_are_dense_and_ordered(
            batches in prop::collection::vec(
                (prop::collection::vec(any::<Option<u64>>(), 1..5), prop::option::of(0u64..12)), 0..8),
            uncapped: bool, last in 0u64..2_000, now in 0u64..3_000,
        ) {
            let inputs: Vec<_> = batches.into_iter().map(|(given, seq)| {
                AppendInput::new(given.into_iter().map(at).collect(), seq, None).expect("legal")
            }).collect();
            let log = LogState { last_timestamp: last, last_arrival_ms: 1_500, ..LogState::default() };
            let timestamping = Timestamping { mode: TimestampingMode::ClientPrefer, uncapped };
            let admission = admit(&log, timestamping, &inputs, now);
            let (mut next, mut floor) = (0, last);
            for (input, verdict) in inputs.iter().zip(&admission.verdicts) {
                match verdict {
                    Ok(a) => {
                        prop_assert!(input.match_seq_num.is_none_or(|m| m == next));
                        prop_assert_eq!(a.start.seq_num, next);
                        next += input.records().len() as u64;
                        prop_assert_eq!(a.end.seq_num, next);
                        for t in &a.timestamps { prop_assert!(*t >= floor); floor = *t; }
                        prop_assert_eq!(a.end.timestamp, floor);
                    }
                    Err(rejection) => prop_assert_eq!(rejection, &Rejection::SeqNumMismatch { next }),
                }
            }
            prop_assert_eq!(admission.log.next_seq_num, next);
            prop_assert_eq!(admission.log.last_timestamp, floor);
            prop_assert!(admission.log.last_arrival_ms >= 1_500);
        }
    }
}
