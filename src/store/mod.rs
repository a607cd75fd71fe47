//! The store seam: bytes under keys, conditional writes, and nothing about streams.
//!
//! Every backend behaves alike (`tests/store_suite.rs` runs one suite over all of them); what a backend does
//! differently is put right in its file. Keys are `/`-separated text without `//`, `.`, `..` or `\`.

mod aws;
mod credentials;
mod dated;
mod listing;
mod local;
mod memory;
mod metered;
mod object;
mod open;
mod prefixed;
mod probe;
mod s3;
mod verdict;

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

pub use aws::sdk_config;
pub use credentials::explain_no_credentials;
pub use local::{LocalError, LocalStore};
pub use memory::memory;
pub use metered::{Counts, Metered};
pub use open::{OpenError, StoreUrl, UrlError, open};
pub use probe::{PROBE_PREFIX, PROBE_VERSION, ProbeError, Probed, probe};
pub use s3::{S3Error, S3Options};

/// Longest key, as S3 has it.
pub const KEY_BYTES_MAX: usize = 1_024;

/// A version of an object, exactly as the store sent it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag(String);

impl ETag {
    /// Keeps the text as received.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text as received.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An object as it was read.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its content.
    pub bytes: Bytes,
    /// Its version.
    pub etag: ETag,
    /// When it was written, by the store's clock, in milliseconds since the Unix epoch.
    pub last_modified_ms: u64,
    /// The store's clock when it answered, in milliseconds since the Unix epoch; `None` if the answer does not say.
    pub answered_ms: Option<u64>,
}

/// What a conditional GET found.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// The version asked about is the current one.
    Unchanged,
    /// Another version is.
    Changed(Object),
    /// Nothing is there.
    Absent,
}

/// One key of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The whole key.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// When it was written, by the store's clock, in milliseconds since the Unix epoch.
    pub last_modified_ms: u64,
}

/// What part of the keys to list.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Only keys that begin with this text (not necessarily at a `/`).
    pub prefix: String,
    /// Only keys after this one; need not exist.
    pub start_after: Option<String>,
    /// At most this many keys.
    pub limit: usize,
}

impl ListQuery {
    /// Whether a key is one the query asks for.
    fn admits(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) && self.start_after.as_ref().is_none_or(|after| key > after.as_str())
    }
}

/// Why an operation failed, by what the caller may conclude.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A condition was not met (412, 409, or 404 on a replace): this request changed nothing and never will.
    #[error("the condition of {operation} on `{key}` was not met")]
    Conflict {
        /// What was asked.
        operation: Operation,
        /// Of which key.
        key: String,
    },
    /// The store refused the request itself (bad credentials, no such bucket): this request changed nothing.
    #[error("the store refused {operation} on `{key}`")]
    Refused {
        /// What was asked.
        operation: Operation,
        /// Of which key.
        key: String,
        /// What the store said.
        #[source]
        source: Source,
    },
    /// No clear answer (lost, late, or a 5xx): a write may have happened, or may still happen.
    #[error("no clear answer from the store to {operation} on `{key}`")]
    Indefinite {
        /// What was asked.
        operation: Operation,
        /// Of which key.
        key: String,
        /// What is known.
        #[source]
        source: Source,
    },
}

/// What lies under an [`Error`].
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// The result of an operation of a store.
pub type Result<T> = std::result::Result<T, Error>;

/// What a request asks; its text is the `operation` label of the store metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Whole object, maybe if changed.
    Get,
    /// Part of an object.
    GetRange,
    /// Unconditional write of a fresh key.
    Put,
    /// Write if absent.
    Create,
    /// Write if unchanged.
    Replace,
    /// Copy within the store, to a fresh key.
    Copy,
    /// Removal.
    Delete,
    /// One page of keys.
    List,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::GetRange,
        Self::Put,
        Self::Create,
        Self::Replace,
        Self::Copy,
        Self::Delete,
        Self::List,
    ];

    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetRange => "get_range",
            Self::Put => "put",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Copy => "copy",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A key that not every backend can hold.
#[derive(Debug, thiserror::Error)]
#[error("keys are 1 to {KEY_BYTES_MAX} bytes of `A-Z a-z 0-9 ! . _ / -` with no empty, `.` or `..` part")]
struct BadKey;

/// Refuses keys that not every backend can hold, before anything is sent.
fn check_key(operation: Operation, key: &str) -> Result<()> {
    if is_key(key) {
        return Ok(());
    }
    Err(Error::Refused { operation, key: key.to_owned(), source: Box::new(BadKey) })
}

/// Refuses prefixes that no key can begin with.
fn check_prefix(prefix: &str) -> Result<()> {
    // The last part may still grow into a good one.
    let parts = prefix.rsplit_once('/').map_or("", |(parts, _)| parts);
    if has_legal_bytes(prefix) && (!prefix.contains('/') || has_legal_parts(parts)) {
        return Ok(());
    }
    Err(Error::Refused { operation: Operation::List, key: prefix.to_owned(), source: Box::new(BadKey) })
}

fn is_key(key: &str) -> bool {
    has_legal_bytes(key) && has_legal_parts(key)
}

fn has_legal_bytes(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!._/-".contains(&byte);
    text.len() <= KEY_BYTES_MAX && text.bytes().all(legal)
}

fn has_legal_parts(text: &str) -> bool {
    text.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// A bucket, or what behaves like one.
///
/// Reads and unconditional writes are retried by the backend where that helps, because they are idempotent;
/// `create` and `replace` are sent exactly once: whoever calls them owns the retry, since only they can tell
/// their own write from another's.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The object, or `None`.
    async fn get(&self, key: &str) -> Result<Option<Object>>;

    /// The object if its version is not `etag` (one request; a 304 carries no body).
    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched>;

    /// The bytes of `range`, clipped to the object's size, or `None` if there is no object.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>>;

    /// Writes without condition. Only for keys that are never used twice, and for markers.
    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag>;

    /// Writes if nothing is there (`If-None-Match: *`). Sent once.
    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag>;

    /// Writes if the version is `etag` (`If-Match`). Sent once.
    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag>;

    /// Copies an object, without its bytes passing through this process where the store can do that; false if it is
    /// not there. Only to keys that are never used twice.
    async fn copy(&self, from: &str, to: &str) -> Result<bool>;

    /// Removes the object; removing nothing is a success.
    async fn delete(&self, key: &str) -> Result<()>;

    /// One page of keys in byte order.
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>>;
}
