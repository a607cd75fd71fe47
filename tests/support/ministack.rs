//! MiniStack: an S3-compatible server, from its pinned Python package, in memory, on loopback.

use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::process::{Process, request, wait_for};
use super::tools;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running MiniStack with one empty bucket; killed when dropped.
#[derive(Debug)]
pub struct MiniStack {
    process: Process,
    /// `127.0.0.1:port`.
    pub address: String,
    /// The bucket.
    pub bucket: String,
}

impl MiniStack {
    /// Installs it if needed, starts it and creates the bucket.
    pub fn start(bucket: &str) -> Self {
        let python = tools::ministack();
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let folder = tools::folder();
        let mut command = Command::new(python.join("bin").join("ministack"));
        command
            .current_dir(&folder)
            .env("BIND_HOST", "127.0.0.1")
            .env("MINISTACK_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("SERVICES", "s3")
            .env("LOG_LEVEL", "WARNING")
            .env("S3_DATA_DIR", folder.join("ministack-s3"))
            .env("STATE_DIR", folder.join("ministack-state"))
            .env_remove("S3_PERSIST")
            .env_remove("PERSIST_STATE");
        let mut process = Process::start("ministack", &mut command);
        wait_for(&mut process, &address, "/_localstack/health", START_TIMEOUT);
        let created = request(&address, "PUT", &format!("/{bucket}"));
        assert_eq!(created, Some(200), "cannot create the bucket {bucket}; log:\n{}", process.stderr.text());
        Self { process, address, bucket: bucket.to_owned() }
    }

    /// The one that other tests of this binary use as well; killed when the last of them ends.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<MiniStack>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Self::start("leat"));
            *shared = Arc::downgrade(&started);
            started
        })
    }

    /// The store URL of a prefix in the bucket.
    pub fn store(&self, prefix: &str) -> String {
        format!("s3://{}/{prefix}", self.bucket)
    }

    /// What a server needs in its environment to reach the bucket.
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.stderr.text()
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}
