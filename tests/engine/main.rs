//! The engine and the service over a store in memory: promises under faults, races and crashes, and the number
//! of requests they cost.

#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may stop where it stands"
)]

#[path = "../support/faulty.rs"]
mod faulty;

mod counts;
mod deletion;
mod faults;
mod fixtures;
mod index;
mod listing;
mod reads;
mod sessions;
mod versions;
mod world;
