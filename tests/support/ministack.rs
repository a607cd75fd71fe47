//! MiniStack: an S3-compatible server, from its pinned Python package, in memory, on loopback.

use std::ops::Deref;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use super::emulator::{Emulator, free_port, shared};
use super::tools;

/// A running MiniStack with one empty bucket; killed when dropped.
#[derive(Debug)]
pub struct MiniStack {
    emulator: Emulator,
    _scratch: tempfile::TempDir,
}

impl MiniStack {
    /// Installs it if needed, starts it and creates the bucket.
    pub fn start(bucket: &str) -> Self {
        Self::start_with(bucket, "s3")
    }

    /// The same with more of its services, by their names with commas between.
    pub fn start_with(bucket: &str, services: &str) -> Self {
        let python = tools::ministack();
        let port = free_port();
        let folder = tools::folder();
        // Where it unpacks the code of functions, and leaves it.
        let scratch = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(python.join("bin").join("ministack"));
        command
            .current_dir(&folder)
            .env("BIND_HOST", "127.0.0.1")
            .env("MINISTACK_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("SERVICES", services)
            .env("LOG_LEVEL", "WARNING")
            .env("S3_DATA_DIR", folder.join("ministack-s3"))
            .env("TMPDIR", scratch.path())
            .env("STATE_DIR", folder.join("ministack-state"))
            // A function would inherit it instead of its own.
            .env_remove("AWS_ENDPOINT_URL")
            .env_remove("S3_PERSIST")
            .env_remove("PERSIST_STATE");
        let emulator = Emulator::start("ministack", &mut command, format!("127.0.0.1:{port}"), bucket);
        Self { emulator, _scratch: scratch }
    }

    /// The one that other tests of this binary use as well; killed when the last of them ends.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<MiniStack>> = Mutex::new(Weak::new());
        shared(&SHARED, || Self::start("leat"))
    }
}

impl Deref for MiniStack {
    type Target = Emulator;

    fn deref(&self) -> &Emulator {
        &self.emulator
    }
}
