//! What the front of a function demands of a request: when its answer must be over, and what it may hold.
//!
//! A request carries its [`Terms`] as an extension; one that came over a socket of our own carries none. Every
//! wait listens to them, and whatever does not is answered for in time: a function that runs into its deadline
//! would be cut off without an answer.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::Extensions;
use http::request::Parts;

use crate::types::limits::LIST_PAGE_NAMES_MAX;
use crate::types::time::Deadline;

/// Longest sleep between two looks at a deadline: its wall clock may get ahead of timers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Room that an answer leaves for its head, and for what a thousand records have beside their metered bytes.
const OVERHEAD_BYTES_MAX: usize = 256 * 1024;
/// A metered byte as JSON within JSON: `\u0001` with its backslash escaped is 7 bytes.
const JSON_BYTES_PER_METERED_BYTE: usize = 8;
/// A metered byte of a header with a one-byte name, as base64 of protobuf.
const PROTO_BYTES_PER_METERED_BYTE: usize = 4;
/// The same for a name of a listing, with all that is said about it.
const BYTES_PER_NAME: usize = 4_096;

/// The terms of one request.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// When waits end themselves, with what they have or with an end that clients resume from.
    pub ends: Deadline,
    /// When a handler that still has no answer is answered for.
    pub last_call: Deadline,
    /// How much an answer may hold that goes out whole; `None` if answers go out as they are made.
    pub whole_bytes_max: Option<usize>,
    /// Whether the process goes on after the answer.
    pub runs_on: bool,
}

impl Terms {
    /// The terms of a request, if it has any.
    pub(super) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }

    /// Metered bytes of a batch that fits as JSON whatever it holds, unless one record alone does not.
    pub(super) fn json_batch_bytes_max(&self) -> Option<u64> {
        Some((self.body_bytes_max()? / JSON_BYTES_PER_METERED_BYTE) as u64)
    }

    /// The same as protobuf.
    pub(super) fn proto_batch_bytes_max(&self) -> Option<u64> {
        Some((self.body_bytes_max()? / PROTO_BYTES_PER_METERED_BYTE) as u64)
    }

    /// Names of a listing that fit whatever they are.
    pub(super) fn names_max(&self) -> usize {
        let fitting = self.body_bytes_max().map(|bytes| bytes / BYTES_PER_NAME);
        fitting.unwrap_or(LIST_PAGE_NAMES_MAX).clamp(1, LIST_PAGE_NAMES_MAX)
    }

    /// What the body of an answer may hold.
    pub(super) fn body_bytes_max(&self) -> Option<usize> {
        Some(self.whole_bytes_max?.saturating_sub(OVERHEAD_BYTES_MAX))
    }
}

/// The terms of a request, if it has any.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfFront(pub(super) Option<Terms>);

impl<S: Sync> FromRequestParts<S> for OfFront {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self(Terms::of(&parts.extensions)))
    }
}

/// Completes once the deadline has passed, by either clock.
pub async fn passed(deadline: Deadline) {
    loop {
        let left = deadline.remaining();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK_INTERVAL)).await;
    }
}

/// Completes when waits must end; never without terms.
pub(super) async fn ended(terms: Option<Terms>) {
    match terms {
        Some(terms) => passed(terms.ends).await,
        None => std::future::pending().await,
    }
}

/// What these bytes take as a string of JSON, without its quotes; exact for UTF-8.
pub(super) fn escaped_bytes(text: &[u8]) -> usize {
    let escapes = text.iter().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..=0x1f => 5,
        _ => 0,
    });
    text.len() + escapes.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(whole_bytes_max: Option<usize>) -> Terms {
        let never = Deadline::after(Duration::from_secs(60));
        Terms { ends: never, last_call: never, whole_bytes_max, runs_on: false }
    }

    #[test]
    fn limits_of_a_batch_and_a_listing_follow_from_the_room() {
        let of = |room| {
            let terms = terms(room);
            (terms.json_batch_bytes_max(), terms.proto_batch_bytes_max(), terms.names_max())
        };
        assert_eq!(of(None), (None, None, 1_000));
        assert_eq!(of(Some(6 << 20)), (Some(753_664), Some(1_507_328), 1_000));
        assert_eq!(of(Some(1 << 20)), (Some(98_304), Some(196_608), 192));
    }

    #[test]
    fn escaped_bytes_are_what_json_takes() {
        let every = (0..=0x10_ffff).step_by(97).chain(0..256).filter_map(char::from_u32);
        let text: String = every.collect();
        assert_eq!(escaped_bytes(text.as_bytes()) + 2, serde_json::to_string(&text).unwrap().len());
    }

    #[tokio::test]
    async fn a_deadline_that_has_passed_ends_a_wait_at_once() {
        passed(Deadline::after(Duration::ZERO)).await;
        let soon = Deadline::after(Duration::from_millis(20));
        passed(soon).await;
        assert!(soon.has_passed());
    }
}
