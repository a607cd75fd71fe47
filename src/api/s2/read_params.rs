//! The query of a read, checked and turned into what the service takes.
//!
//! Pure. Wrong types are 400 as they are read; what contradicts itself is 422 once everything has been read.

use super::error::{Error, Result};
use super::wire::events::EventId;
use crate::api::uri::Query;
use crate::types::limits::{BATCH_METERED_BYTES_MAX, BATCH_RECORDS_MAX, UNARY_WAIT_SECS_MAX};
use crate::types::record::{BeyondTail, ReadLimits, ReadRequest, ReadStart};

/// The parameters of a read, each of its type.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadParams {
    seq_num: Option<u64>,
    timestamp: Option<u64>,
    tail_offset: Option<u64>,
    beyond_tail: BeyondTail,
    limits: ReadLimits,
    wait_secs: Option<u32>,
}

impl ReadParams {
    /// Reads the query.
    pub(super) fn parse(query: &Query) -> Result<Self> {
        Ok(Self {
            seq_num: query.u64("seq_num")?,
            timestamp: query.u64("timestamp")?,
            tail_offset: query.u64("tail_offset")?,
            beyond_tail: match query.bool("clamp")? {
                Some(true) => BeyondTail::Clamp,
                Some(false) | None => BeyondTail::Refuse,
            },
            limits: ReadLimits {
                count: query.u64("count")?,
                bytes: query.u64("bytes")?,
                until: query.u64("until")?,
            },
            wait_secs: query.u32("wait")?,
        })
    }

    /// A read that is answered once: bounded in records, bytes and time even where the client sets no bound.
    pub(super) fn unary(self) -> Result<ReadRequest> {
        let start = self.start()?;
        let ReadLimits { count, bytes, until } = self.limits;
        let capped = |asked: Option<u64>, max: u64| Some(asked.unwrap_or(max).min(max));
        Ok(ReadRequest {
            start,
            beyond_tail: self.beyond_tail,
            limits: ReadLimits {
                count: capped(count, BATCH_RECORDS_MAX as u64),
                bytes: capped(bytes, BATCH_METERED_BYTES_MAX),
                until,
            },
            wait_secs: self.wait_secs.map(|secs| secs.min(UNARY_WAIT_SECS_MAX)),
        })
    }

    /// A read over a session, gone on with after what earlier connections delivered.
    pub(super) fn session(self, resumed: Option<EventId>) -> Result<ReadRequest> {
        let start = self.start()?;
        let request = ReadRequest {
            start,
            beyond_tail: self.beyond_tail,
            limits: self.limits,
            wait_secs: self.wait_secs,
        };
        let Some(EventId { seq_num, count, bytes }) = resumed else { return Ok(request) };
        let left = |limit: Option<u64>, delivered: u64| limit.map(|limit| limit.saturating_sub(delivered));
        Ok(ReadRequest {
            // An id below 2^64 − 1 is checked where it is read.
            start: ReadStart::SeqNum(seq_num.saturating_add(1)),
            limits: ReadLimits {
                count: left(self.limits.count, count),
                bytes: left(self.limits.bytes, bytes),
                until: self.limits.until,
            },
            ..request
        })
    }

    fn start(&self) -> Result<ReadStart> {
        let start = match (self.seq_num, self.timestamp, self.tail_offset) {
            (Some(seq_num), None, None) => ReadStart::SeqNum(seq_num),
            (None, Some(timestamp), None) => ReadStart::Timestamp(timestamp),
            (None, None, offset) => ReadStart::TailOffset(offset.unwrap_or(0)),
            _ => {
                let why = "at most one of `seq_num`, `timestamp` and `tail_offset` may be given";
                return Err(Error::invalid(why));
            }
        };
        match (start, self.limits.until) {
            (ReadStart::Timestamp(timestamp), Some(until)) if timestamp >= until => {
                let why = format!("`timestamp` must be below `until`, got {timestamp} and {until}");
                Err(Error::invalid(why))
            }
            _ => Ok(start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(query: &str) -> ReadParams {
        ReadParams::parse(&Query::new(query)).expect(query)
    }

    #[test]
    fn a_unary_read_is_bounded_whatever_is_asked() {
        let request = params("").unary().unwrap();
        assert_eq!(request.start, ReadStart::TailOffset(0));
        assert_eq!(request.limits, ReadLimits { count: Some(1000), bytes: Some(1 << 20), until: None });
        assert!(!request.may_follow());
        let big = u64::MAX;
        let request =
            params(&format!("seq_num={big}&count={big}&bytes={big}&until={big}&wait=4294967295&clamp=true"))
                .unary()
                .unwrap();
        assert_eq!(request.start, ReadStart::SeqNum(big));
        assert_eq!(request.beyond_tail, BeyondTail::Clamp);
        assert_eq!(request.limits, ReadLimits { count: Some(1000), bytes: Some(1 << 20), until: Some(big) });
        assert_eq!(request.wait_secs, Some(60));
        let request = params("count=0&bytes=5&wait=0").unary().unwrap();
        assert_eq!(request.limits, ReadLimits { count: Some(0), bytes: Some(5), until: None });
    }

    #[test]
    fn a_session_has_no_caps_and_follows_unless_bounded() {
        let request = params("tail_offset=7").session(None).unwrap();
        assert_eq!(request.start, ReadStart::TailOffset(7));
        assert!(request.limits.is_unbounded() && request.may_follow());
        let request = params("count=5000&wait=4294967295").session(None).unwrap();
        assert_eq!((request.limits.count, request.wait_secs), (Some(5000), Some(u32::MAX)));
        for (query, may_follow) in
            [("wait=0", true), ("count=1", false), ("count=1&wait=0", false), ("until=1&wait=1", true)]
        {
            assert_eq!(params(query).session(None).unwrap().may_follow(), may_follow, "{query}");
        }
    }

    #[test]
    fn a_resumed_session_starts_after_the_id_with_what_is_left() {
        let id = |seq_num, count, bytes| Some(EventId { seq_num, count, bytes });
        let request = params("timestamp=1&count=10&bytes=100&until=9&clamp=true&wait=3")
            .session(id(41, 4, 30))
            .unwrap();
        assert_eq!(request.start, ReadStart::SeqNum(42));
        assert_eq!(request.limits, ReadLimits { count: Some(6), bytes: Some(70), until: Some(9) });
        assert_eq!((request.beyond_tail, request.wait_secs), (BeyondTail::Clamp, Some(3)));
        let request = params("count=10").session(id(0, 11, 0)).unwrap();
        assert!(request.limits.is_zero());
        let request = params("").session(id(u64::MAX - 1, 1, 1)).unwrap();
        assert_eq!(request.start, ReadStart::SeqNum(u64::MAX));
        assert!(request.limits.is_unbounded());
    }

    #[test]
    fn contradictions_are_invalid() {
        for (query, part) in [
            ("seq_num=1&timestamp=1", "at most one"),
            ("seq_num=1&tail_offset=0", "at most one"),
            ("timestamp=0&tail_offset=0", "at most one"),
            ("timestamp=5&until=5", "`timestamp` must be below `until`"),
            ("timestamp=6&until=5", "`timestamp` must be below `until`"),
        ] {
            for error in [params(query).unary().unwrap_err(), params(query).session(None).unwrap_err()] {
                assert_eq!(error.status(), 422, "{query}");
                assert!(String::from_utf8(error.body()).unwrap().contains(part), "{query}");
            }
        }
        assert!(params("timestamp=5&until=6").unary().is_ok());
        assert!(params("seq_num=5&until=5").unary().is_ok());
    }
}
