//! LocalStack: its S3 alone, from its pinned Python packages, in memory, on loopback, without Docker.

use std::ops::Deref;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use super::emulator::{Emulator, free_port, shared};
use super::tools;

/// A running LocalStack with one empty bucket; killed when dropped.
#[derive(Debug)]
pub struct LocalStack {
    emulator: Emulator,
    _data: tempfile::TempDir,
}

impl LocalStack {
    /// Installs it if needed, starts it and creates the bucket.
    pub fn start(bucket: &str) -> Self {
        let python = tools::localstack();
        let data = tempfile::tempdir().expect("a temporary folder");
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(python.join("bin").join("python"));
        command
            .args(["-m", "localstack.runtime.main"])
            // It must not find a folder that is called like one of its modules.
            .current_dir(&python)
            .env("GATEWAY_LISTEN", &address)
            .env("FILESYSTEM_ROOT", data.path())
            .env("LOCALSTACK_VOLUME_DIR", data.path())
            .env("XDG_CACHE_HOME", data.path().join("cache"))
            .env("SERVICES", "s3")
            .env("STRICT_SERVICE_LOADING", "1")
            .env("EAGER_SERVICE_LOADING", "1")
            // No usage reports, no certificate from the network, no name server.
            .env("DISABLE_EVENTS", "1")
            .env("SKIP_SSL_CERT_DOWNLOAD", "1")
            .env("DNS_ADDRESS", "0")
            .env("LS_LOG", "warning");
        let emulator = Emulator::start("localstack", &mut command, address, bucket);
        Self { emulator, _data: data }
    }

    /// The one that other tests of this binary use as well; killed when the last of them ends.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<LocalStack>> = Mutex::new(Weak::new());
        shared(&SHARED, || Self::start("leat"))
    }
}

impl Deref for LocalStack {
    type Target = Emulator;

    fn deref(&self) -> &Emulator {
        &self.emulator
    }
}
