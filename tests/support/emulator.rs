//! A running S3-compatible server with one bucket, whichever it is.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::ops::Deref;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::process::{Process, request, wait_for};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server with one empty bucket; killed when dropped.
#[derive(Debug)]
pub struct Emulator {
    process: Process,
    /// `127.0.0.1:port`.
    pub address: String,
    /// The bucket.
    pub bucket: String,
}

impl Emulator {
    /// Starts it, waits until it is healthy and creates the bucket.
    pub(super) fn start(name: &str, command: &mut Command, address: String, bucket: &str) -> Self {
        let mut process = Process::start(name, command);
        wait_for(&mut process, &address, "/_localstack/health", START_TIMEOUT);
        let created = request(&address, "PUT", &format!("/{bucket}"));
        assert_eq!(created, Some(200), "cannot create the bucket {bucket}; log:\n{}", process.stderr.text());
        Self { process, address, bucket: bucket.to_owned() }
    }

    /// The store URL of a prefix in the bucket.
    pub fn store(&self, prefix: &str) -> String {
        format!("s3://{}/{prefix}", self.bucket)
    }

    /// What a server needs in its environment to reach the bucket.
    pub fn variables(&self) -> Vec<(String, String)> {
        variables(&self.address)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.stderr.text()
    }
}

/// What a server needs in its environment to reach an emulator, or what stands before one, at this `host:port`.
pub fn variables(address: &str) -> Vec<(String, String)> {
    let endpoint = format!("http://{address}");
    [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// The one that other tests of this binary use as well; killed when the last of them ends.
pub(super) fn shared<E: Deref<Target = Emulator>>(
    shared: &Mutex<Weak<E>>,
    start: impl FnOnce() -> E,
) -> Arc<E> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(start());
        *shared = Arc::downgrade(&started);
        started
    })
}

/// A port that was free a moment ago, and that no other test of this binary was given.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return port;
        }
    }
}
