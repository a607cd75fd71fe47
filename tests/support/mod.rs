//! What the test binaries share: tools from the package registries, S3-compatible servers, what stands
//! before them, and the built server as a child process.
//!
//! Each test binary links this whole module and uses a part of it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock and read their own environment")]
#![allow(clippy::print_stderr, clippy::indexing_slicing, reason = "a test may fail loudly")]

pub mod careless;
pub mod emulator;
pub mod fault_proxy;
pub mod localstack;
pub mod ministack;
pub mod process;
pub mod refusing;
pub mod relay;
pub mod server;
pub mod tools;
