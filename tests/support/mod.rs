//! What the test binaries share: tools from the package registries, an S3-compatible server, and the built
//! server as a child process.
//!
//! Each test binary links this whole module and uses a part of it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

pub mod ministack;
pub mod process;
pub mod server;
pub mod tools;
