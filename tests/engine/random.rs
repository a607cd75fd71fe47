//! What random histories share: faults, and how long anybody waits.

use std::time::Duration;

use leat::store::Operation;
use proptest::prelude::*;

use crate::faulty::Fault;
use crate::world::Process;

/// Longest wait for an answer; only faults without an answer need it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Requests of one process that meet a fault.
#[derive(Clone, Debug)]
pub(crate) struct Injected {
    pub(crate) by: usize,
    operation: Operation,
    prefix: &'static str,
    skip: usize,
    times: usize,
    fault: Fault,
}

impl Injected {
    pub(crate) fn into(self, processes: &[Process]) {
        let Self { by, operation, prefix, skip, times, fault } = self;
        processes[by].faults.inject_after((skip, times), operation, prefix, fault);
    }
}

/// A fault at one of these places. No late write arrives later than `latest`.
pub(crate) fn fault(
    latest: Duration,
    places: impl Strategy<Value = (Operation, &'static str)>,
) -> impl Strategy<Value = Injected> {
    let ms = (1u64..latest.as_millis() as u64).prop_map(Duration::from_millis);
    let fault = prop_oneof![
        3 => Just(Fault::DropAfterApply),
        3 => Just(Fault::Unavailable),
        2 => ms.clone().prop_map(Fault::ApplyLate),
        2 => ms.clone().prop_map(Fault::Delay),
        2 => ms.prop_map(Fault::AnswerLate),
    ];
    // A 409 that hides no write, and a request without an answer, only where they occur.
    let special = prop_oneof![3 => Just(Fault::Conflict), 1 => Just(Fault::Hang)]
        .prop_map(|fault| ((Operation::Replace, "manifest/"), fault));
    let any = prop_oneof![6 => (places, fault), 1 => special];
    (0usize..3, any, 0usize..3, 1usize..3).prop_map(|(by, ((operation, prefix), fault), skip, times)| {
        Injected { by, operation, prefix, skip, times, fault }
    })
}

pub(crate) async fn in_time<T>(call: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, call).await.ok()
}

/// Number of histories; `LEAT_HISTORY_CASES` sets it.
pub(crate) fn cases(default: u32) -> u32 {
    let set = std::env::var("LEAT_HISTORY_CASES").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What goes before a body says which record it is: number of its batch, and place in it.
pub(crate) fn mark(number: u64, i: usize, size: usize) -> Vec<u8> {
    let mut body = format!("{number}/{i};").into_bytes();
    body.resize(body.len() + size, b'.');
    body
}

pub(crate) fn unmark(body: &[u8]) -> Option<(u64, usize)> {
    let text = std::str::from_utf8(body).ok()?;
    let (number, i) = text.split_once(';')?.0.split_once('/')?;
    Some((number.parse().ok()?, i.parse().ok()?))
}
