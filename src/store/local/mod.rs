//! A folder on this machine as a store, shared by any number of processes.
//!
//! ```text
//! <root>/meta/store.json      an object: its key is its path
//! <root>/.leat/lock/00 … ff   locks, each for the keys whose hash begins with that byte
//! <root>/.leat/tmp/…          files being written
//!
//! file:  ┌──────────────────┬─────────┐
//!        │ version, 16 bytes│ content │
//!        └──────────────────┴─────────┘
//! ```
//!
//! - The **version** is random and new in every write, its hex form is the e-tag: no e-tag ever comes back, and
//!   a conditional GET reads 16 bytes.
//! - **Writes** take the key's lock, look at the version that is there, write a new file beside the keys, fsync
//!   it, rename it over the old one and fsync the folder, in that order. A file is never changed in place, so
//!   readers need no lock: they see the old object or the new one. A process killed in between leaves the old
//!   object and a temporary file, which a later start removes; its lock dies with it.
//! - **Every write** takes the lock, also the unconditional ones: a put or delete between another's look and its
//!   rename would be lost unseen.
//! - A reader may see an object in the milliseconds before its folder is synced. A loss of power just then takes
//!   back what it saw, but nothing that was acknowledged to a writer.

mod error;
mod file;
mod lock;
mod walk;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{ETag, Error, Fetched, ListQuery, Listed, Object, Operation, Result, Store};
use crate::types::time::Clock;
use error::Failure;
pub use error::LocalError;
use file::Version;
use lock::Locks;

/// The folder beside the keys; no key begins with it.
const OWN_FOLDER: &str = ".leat";
/// A temporary file older than this belongs to a dead process.
const TEMPORARY_AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// Attempts to place a file while another process removes the emptied folder under it.
const PLACE_ATTEMPTS_MAX: usize = 16;

/// A folder as a store.
#[derive(Clone, Debug)]
pub struct LocalStore {
    root: Arc<Root>,
}

/// The paths and locks of one store; shared with the threads that do the work.
#[derive(Debug)]
struct Root {
    folder: PathBuf,
    temporary: PathBuf,
    locks: Locks,
}

/// What must be there for a write to happen.
#[derive(Clone, Copy, Debug)]
enum Expect {
    Anything,
    Absent,
    Is(Version),
}

impl LocalStore {
    /// Opens the folder, making it if needed, and removes what dead processes left in it.
    pub fn open(folder: &Path) -> std::result::Result<Self, LocalError> {
        let parent_of_new = folder.parent().filter(|_| !folder.exists());
        let own = folder.join(OWN_FOLDER);
        let (temporary, lock) = (own.join("tmp"), own.join("lock"));
        for path in [&temporary, &lock] {
            std::fs::create_dir_all(path).map_err(|source| LocalError::new("create", path, source))?;
        }
        for path in [Some(own.as_path()), Some(folder), parent_of_new].into_iter().flatten() {
            file::sync_folder(path).map_err(|source| LocalError::new("sync", path, source))?;
        }
        remove_old_files(&temporary).map_err(|source| LocalError::new("clean", &temporary, source))?;
        let root = Root { folder: folder.to_owned(), temporary, locks: Locks::new(lock) };
        Ok(Self { root: Arc::new(root) })
    }

    /// Runs one operation on a thread that may block.
    async fn run<T, F>(&self, operation: Operation, key: &str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Root, &str) -> std::result::Result<T, Failure> + Send + 'static,
    {
        let root = Arc::clone(&self.root);
        let owned = key.to_owned();
        let outcome = tokio::task::spawn_blocking(move || work(&root, &owned)).await;
        let failure = match outcome {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(failure)) => failure,
            // The runtime is shutting down, or the closure panicked: either way nobody knows how far it came.
            Err(lost) => Failure::Indefinite(Box::new(lost)),
        };
        Err(failure.on(operation, key))
    }

    /// Runs one write under the key's lock.
    async fn run_locked<T, F>(&self, operation: Operation, key: &str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Root, &str) -> std::result::Result<T, Failure> + Send + 'static,
    {
        check(operation, key)?;
        // Writers of this process queue here, so that at most one thread per lock waits for other processes.
        let turn = self.root.locks.turn(key).await;
        self.run(operation, key, move |root, key| {
            // Held by the work itself: if the caller goes away, the work still ends in order.
            let _turn = turn;
            let _lock = root.locks.acquire(key)?;
            work(root, key)
        })
        .await
    }

    async fn write(&self, operation: Operation, key: &str, bytes: Bytes, expect: Expect) -> Result<ETag> {
        self.run_locked(operation, key, move |root, key| root.write(key, &bytes, expect)).await
    }
}

impl Root {
    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    fn write(&self, key: &str, bytes: &[u8], expect: Expect) -> std::result::Result<ETag, Failure> {
        let path = self.path(key);
        let found = match expect {
            Expect::Anything => None,
            Expect::Absent | Expect::Is(_) => file::version(&path).map_err(Failure::before("read", &path))?,
        };
        match (expect, found) {
            (Expect::Anything, _) | (Expect::Absent, None) => {}
            (Expect::Is(expected), Some(found)) if expected == found => {}
            (Expect::Absent | Expect::Is(_), _) => return Err(Failure::Conflict),
        }
        let version = Version::fresh();
        let temporary = self.temporary.join(version.hex());
        let placed = file::write(&temporary, version, bytes)
            .map_err(Failure::before("write", &temporary))
            .and_then(|()| self.place(&temporary, &path));
        if let Err(failure) = placed {
            // Best effort: whatever stays is removed at a later start.
            let _ = std::fs::remove_file(&temporary);
            return Err(failure);
        }
        sync_parent(&path)?;
        Ok(version.etag())
    }

    /// Renames a finished file to its key, making the folders on the way.
    fn place(&self, temporary: &Path, path: &Path) -> std::result::Result<(), Failure> {
        let parent = path.parent().unwrap_or(&self.folder);
        let mut attempt = 0;
        loop {
            attempt += 1;
            // A rename fails more cheaply than a look, and nearly all folders are there already.
            match std::fs::rename(temporary, path) {
                Ok(()) => return Ok(()),
                // Also when a delete elsewhere removed the emptied folder between our making and our use of it.
                Err(gone) if gone.kind() == io::ErrorKind::NotFound && attempt < PLACE_ATTEMPTS_MAX => {
                    file::make_folders(&self.folder, parent).map_err(Failure::before("create", parent))?;
                }
                Err(failed) => return Err(Failure::before("write", path)(failed)),
            }
        }
    }

    fn delete(&self, key: &str) -> std::result::Result<(), Failure> {
        let path = self.path(key);
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(absent) if file::means_absent(&absent) => return Ok(()),
            Err(failed) => return Err(Failure::before("remove", &path)(failed)),
        }
        sync_parent(&path)?;
        // Emptied folders go too, or listings would walk them for ever. Removing a folder that is not empty
        // fails, and a write that loses its folder to us makes it again.
        let mut parent = path.parent();
        while let Some(folder) = parent.filter(|folder| *folder != self.folder) {
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
            parent = folder.parent();
        }
        Ok(())
    }
}

/// The folder of locks and temporary files is not for objects.
#[derive(Debug, thiserror::Error)]
#[error("keys of a local folder cannot begin with `{OWN_FOLDER}`")]
struct OwnFolder;

fn check(operation: Operation, key: &str) -> Result<()> {
    super::check_key(operation, key)?;
    if key.split('/').next() == Some(OWN_FOLDER) {
        return Err(Error::Refused { operation, key: key.to_owned(), source: Box::new(OwnFolder) });
    }
    Ok(())
}

/// From here on the change is visible: a failure leaves it unknown whether it lasts.
fn sync_parent(path: &Path) -> std::result::Result<(), Failure> {
    let Some(parent) = path.parent() else { return Ok(()) };
    match file::sync_folder(parent) {
        Ok(()) => Ok(()),
        // Emptied and removed by a later delete, which did the syncing.
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(failed) => Err(Failure::after("sync", parent)(failed)),
    }
}

fn remove_old_files(folder: &Path) -> io::Result<()> {
    let now_ms = Clock::system().local_ms();
    let age_ms_max = u64::try_from(TEMPORARY_AGE_MAX.as_millis()).unwrap_or(u64::MAX);
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Another process may be cleaning at the same time: what is gone is gone.
        let Ok(metadata) = entry.metadata() else { continue };
        if file::modified_ms(&metadata).saturating_add(age_ms_max) < now_ms {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[async_trait]
impl Store for LocalStore {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        check(Operation::Get, key)?;
        let read = |root: &Root, key: &str| {
            let path = root.path(key);
            file::read(&path).map_err(Failure::before("read", &path))
        };
        self.run(Operation::Get, key, read).await
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
        check(Operation::Get, key)?;
        let known = Version::parse(etag);
        let read = move |root: &Root, key: &str| {
            let path = root.path(key);
            file::read_if_changed(&path, known).map_err(Failure::before("read", &path))
        };
        self.run(Operation::Get, key, read).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        check(Operation::GetRange, key)?;
        let read = move |root: &Root, key: &str| {
            let path = root.path(key);
            file::read_range(&path, range).map_err(Failure::before("read", &path))
        };
        self.run(Operation::GetRange, key, read).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.write(Operation::Put, key, bytes, Expect::Anything).await
    }

    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.write(Operation::Create, key, bytes, Expect::Absent).await
    }

    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
        let operation = Operation::Replace;
        let Some(version) = Version::parse(etag) else {
            // Not an e-tag of ours, so of no version that is or will be here.
            check(operation, key)?;
            return Err(Error::Conflict { operation, key: key.to_owned() });
        };
        self.write(operation, key, bytes, Expect::Is(version)).await
    }

    async fn copy(&self, from: &str, to: &str) -> Result<bool> {
        check(Operation::Copy, from)?;
        let from = from.to_owned();
        let copy = move |root: &Root, to: &str| {
            let path = root.path(&from);
            match file::read(&path).map_err(Failure::before("read", &path))? {
                Some(object) => root.write(to, &object.bytes, Expect::Anything).map(|_| true),
                None => Ok(false),
            }
        };
        self.run_locked(Operation::Copy, to, copy).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.run_locked(Operation::Delete, key, Root::delete).await
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        super::check_prefix(&query.prefix)?;
        let prefix = query.prefix.clone();
        let list = move |root: &Root, _: &str| walk::page(&root.folder, &query);
        self.run(Operation::List, &prefix, list).await
    }
}
