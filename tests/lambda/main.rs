//! The built binary as a Lambda function: a runtime API of our own hands it the events of every front.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    clippy::disallowed_methods,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test may fail loudly, waits on the real clock, and may be one long table"
)]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod bucket;
mod calls;
mod deadlines;
mod door;
mod durable;
mod events;
mod lives;
mod names;
mod proxy;
mod runtime;
mod sdk;
mod sweep;
mod world;
