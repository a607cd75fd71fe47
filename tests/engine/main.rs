//! The engine and the service over a store in memory: promises under faults, races and crashes, and the number
//! of requests they cost.

#[path = "../support/faulty.rs"]
mod faulty;

mod counts;
mod deletion;
mod faults;
mod index;
mod listing;
mod reads;
mod world;
