//! Time: the only wall clock, the only monotonic clock, and deadlines.
//!
//! Everything that asks "what time is it" holds a [`Clock`], so that tests can set it. Milliseconds since
//! the Unix epoch are plain `u64`s named `…_ms` or, for record timestamps, `timestamp` (the S2 API leaves
//! their unit to the client; milliseconds are its convention).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An offset below this is indistinguishable from the whole-second resolution of `Last-Modified`: it counts as 0.
pub const OFFSET_IGNORED_MS: i64 = 2_000;

/// Reads the time of the store: the local wall clock plus the measured offset between it and the store's.
///
/// Clones share their state.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    offset_ms: Arc<AtomicI64>,
}

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self { source: Source::System, offset_ms: Arc::default() }
    }

    /// A clock that stands still until [`Clock::advance_ms`] moves it.
    #[must_use]
    pub fn manual(start_ms: u64) -> Self {
        Self { source: Source::Manual(Arc::new(AtomicU64::new(start_ms))), offset_ms: Arc::default() }
    }

    /// Moves a manual clock forward; the system clock ignores it.
    pub fn advance_ms(&self, by_ms: u64) {
        if let Source::Manual(now) = &self.source {
            now.fetch_add(by_ms, Ordering::SeqCst);
        }
    }

    /// This machine's wall clock in milliseconds since the Unix epoch.
    #[must_use]
    pub fn local_ms(&self) -> u64 {
        match &self.source {
            Source::System => wall_ms(),
            Source::Manual(now) => now.load(Ordering::SeqCst),
        }
    }

    /// Store time in milliseconds since the Unix epoch: what arrivals, ages and due times are measured in.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.local_ms().saturating_add_signed(self.offset_ms.load(Ordering::Relaxed))
    }

    /// Takes a measured store time (`Last-Modified` of an object just written) as the new offset.
    ///
    /// Whole-second resolution makes an offset under 2 s indistinguishable from none.
    pub fn observe_store_ms(&self, store_ms: u64) {
        let measured = i64::try_from(i128::from(store_ms) - i128::from(self.local_ms())).unwrap_or(0);
        let offset = if measured.abs() < OFFSET_IGNORED_MS { 0 } else { measured };
        self.offset_ms.store(offset, Ordering::Relaxed);
    }

    /// Store time minus local time, in milliseconds.
    #[must_use]
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Relaxed)
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The monotonic clock, for durations only.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The moment after which an outcome is reported as unknown.
///
/// Holds both clocks: a frozen process may wake with a monotonic clock that stood still, so a deadline has
/// passed as soon as either clock says so.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    wall_ms: u64,
}

impl Deadline {
    /// `after` from now.
    #[must_use]
    pub fn after(after: Duration) -> Self {
        let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Self { at: monotonic() + after, wall_ms: wall_ms().saturating_add(millis) }
    }

    /// What is left, zero once either clock has passed it.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if wall_ms() >= self.wall_ms {
            return Duration::ZERO;
        }
        self.at.saturating_duration_since(monotonic())
    }

    /// Whether either clock has passed it.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// The later of two deadlines.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other.at > self.at { other } else { self }
    }
}

/// Formats milliseconds since the Unix epoch as RFC 3339 in UTC, as resource timestamps are shown.
#[must_use]
pub fn rfc3339(ms: u64) -> String {
    let nanos = i128::from(ms) * 1_000_000;
    time::OffsetDateTime::from_unix_timestamp_nanos(nanos)
        .ok()
        .and_then(|at| at.format(&time::format_description::well_known::Rfc3339).ok())
        .unwrap_or_else(|| "9999-12-31T23:59:59Z".to_owned())
}

/// Reads a time of RFC 3339, in milliseconds since the Unix epoch; one before that is 0.
#[must_use]
pub fn rfc3339_ms(text: &str) -> Option<u64> {
    let at = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()?;
    Some(u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0))
}

/// Reads the time of an HTTP header such as `Date`, in milliseconds since the Unix epoch.
#[must_use]
pub fn http_date_ms(text: &str) -> Option<u64> {
    let at = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc2822).ok()?;
    u64::try_from(at.unix_timestamp()).ok()?.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_under_two_seconds_counts_as_zero() {
        let clock = Clock::manual(1_000_000);
        clock.observe_store_ms(1_001_999);
        assert_eq!(clock.now_ms(), 1_000_000);
        clock.observe_store_ms(1_002_000);
        assert_eq!(clock.now_ms(), 1_002_000);
        clock.observe_store_ms(900_000);
        assert_eq!(clock.now_ms(), 900_000);
    }

    #[test]
    fn a_deadline_passes() {
        assert!(Deadline::after(Duration::ZERO).has_passed());
        assert!(!Deadline::after(Duration::from_secs(60)).has_passed());
    }

    #[test]
    fn http_dates_are_read() {
        assert_eq!(http_date_ms("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        for bad in ["", "soon", "Sun, 06 Nov 1994", "Mon, 01 Jan 0001 00:00:00 GMT"] {
            assert_eq!(http_date_ms(bad), None, "{bad}");
        }
    }

    #[test]
    fn resource_times_are_rfc3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59Z");
    }
}
