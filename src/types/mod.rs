//! The vocabulary of every layer: names, configurations, records, positions, time, errors as people read them, and
//! every limit.
//!
//! Nothing here does I/O. `time` holds the only wall clock of the product.

pub mod config;
pub mod error;
pub mod ledger;
pub mod limits;
pub mod name;
pub mod record;
pub mod stream;
pub mod time;
