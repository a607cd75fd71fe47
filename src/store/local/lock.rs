//! Locks on keys that hold between threads and between processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::error::Failure;
use crate::types::time::Deadline;

/// How many locks share the keys between them; the lock file's name is the first byte of the key's hash.
const LOCKS: usize = 256;
/// A process that holds a lock this long is stopped, not slow.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Between two looks at a lock that another process holds. A write takes about as long.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// All the locks of a store.
#[derive(Debug)]
pub(super) struct Locks {
    folder: PathBuf,
    turns: Vec<Arc<Mutex<()>>>,
}

/// A lock between processes; released when dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

/// Another process did not let go.
#[derive(Debug, thiserror::Error)]
#[error("another process has held the lock `{}` for {} s; is it stopped?", path.display(), WAIT_MAX.as_secs())]
struct Stuck {
    path: PathBuf,
}

impl Locks {
    /// With the lock files in `folder`, which exists.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, turns: (0..LOCKS).map(|_| Arc::default()).collect() }
    }

    /// Waits until it is this task's turn among the tasks of this process. In order of arrival.
    pub(super) async fn turn(&self, key: &str) -> OwnedMutexGuard<()> {
        let turn = self.turns.get(usize::from(stripe(key))).expect("there is a turn for every byte");
        Arc::clone(turn).lock_owned().await
    }

    /// Takes the lock between processes. Blocks.
    pub(super) fn acquire(&self, key: &str) -> Result<Held, Failure> {
        let path = self.folder.join(format!("{:02x}", stripe(key)));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Failure::before("open", &path))?;
        let deadline = Deadline::after(WAIT_MAX);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Held { _file: file }),
                Err(TryLockError::WouldBlock) if deadline.has_passed() => {
                    return Err(Failure::Indefinite(Box::new(Stuck { path })));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL_INTERVAL),
                Err(TryLockError::Error(failed)) => return Err(Failure::before("lock", &path)(failed)),
            }
        }
    }
}

/// The same in every process and every version, or two of them would not exclude each other.
fn stripe(key: &str) -> u8 {
    blake3::hash(key.as_bytes()).as_bytes().first().copied().expect("a hash has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_key_never_moves() {
        assert_eq!(stripe("meta/store.json"), 0x24, "changing the hash breaks exclusion between versions");
    }
}
