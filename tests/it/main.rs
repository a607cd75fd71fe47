//! Requests over real HTTP against the built binary, one module per part of the API.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a test may fail loudly, waits on the real clock, and may be one long table"
)]

#[path = "../support/mod.rs"]
mod support;

mod basins;
mod bodies;
mod durable;
mod errors;
mod lifecycle;
mod listing;
mod names;
mod observability;
mod processes;
mod records;
mod session;
mod soak;
mod streams;
mod upkeep;
mod world;
