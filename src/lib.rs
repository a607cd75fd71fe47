//! Leat: a serverless, durable stream store on an object-store bucket.
//!
//! Modules in layer order, top to bottom; imports go strictly down (`tests/tidy.rs` holds this).
//! Reading order: `types/record.rs` → `storage/manifest.rs` → `engine/admission.rs` →
//! `engine/committer.rs` → `service/records.rs` → `api/s2/records.rs`.

pub mod api;
pub mod config;
pub mod engine;
pub mod lambda;
pub mod secret;
pub mod serve;
pub mod service;
pub mod storage;
pub mod store;
pub mod telemetry;
pub mod types;
