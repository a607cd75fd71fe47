//! The engine and the service over a store in memory: promises under faults, races and crashes, and the number
//! of requests they cost.

#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test may fail loudly")]
#![allow(clippy::disallowed_methods, reason = "tests measure the real clock and read their environment")]

#[path = "../support/faulty.rs"]
mod faulty;

mod buckets;
mod counts;
mod deletion;
mod durable;
mod durable_history;
mod endings;
mod faults;
mod fixtures;
mod fork_trees;
mod forks;
mod history;
mod index;
mod listing;
mod producers;
mod random;
mod reads;
mod sessions;
mod sweeps;
mod timed;
mod uploads;
mod versions;
mod world;
