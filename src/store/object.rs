//! Any `object_store` backend as a [`Store`]: used for S3 and for memory.
//!
//! Two handles to the same objects: one that retries by itself, for what may be repeated, and one that sends
//! exactly once, for `create` and `replace`, where only the caller can tell its own write from another's.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, ObjectStore, PutMode, PutOptions, UpdateVersion,
};

use super::dated::AnsweredMs;
use super::listing::Listing;
use super::verdict::{is_missing_bucket, status, translate};
use super::{
    ETag, Error, Fetched, ListQuery, Listed, Object, Operation, Result, Store, check_key, check_prefix,
};
use crate::types::time::Clock;

/// An object without an e-tag cannot be replaced safely.
#[derive(Debug, thiserror::Error)]
#[error("{place} answered without an e-tag")]
struct NoETag {
    place: String,
}

/// What an [`ObjectBackend`] is made of.
pub(super) struct Parts {
    /// The bucket's name for people, as in "bucket `logs`".
    pub(super) place: String,
    /// Retries by itself.
    pub(super) patient: Arc<dyn ObjectStore>,
    /// Sends once.
    pub(super) once: Arc<dyn ObjectStore>,
    /// Lists page by page.
    pub(super) pages: Arc<dyn PaginatedListStore>,
    /// In which order.
    pub(super) order: ListOrder,
    /// Whose clock it has.
    pub(super) dates: Dates,
}

/// Whose clock a backend has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dates {
    /// Its own: each answer carries its date.
    OfAnswers,
    /// That of the machine we run on.
    OfThisMachine,
}

/// In which order a backend lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListOrder {
    /// In byte order, until an answer shows otherwise.
    Bytes,
    /// In none.
    Unordered,
}

/// A backend of the `object_store` library.
#[derive(Debug)]
pub(super) struct ObjectBackend {
    place: String,
    patient: Arc<dyn ObjectStore>,
    once: Arc<dyn ObjectStore>,
    listing: Listing,
    dates: Dates,
}

impl ObjectBackend {
    /// Puts the parts together.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { place, patient, once, pages, order, dates } = parts;
        let listing = match order {
            ListOrder::Bytes => Listing::ordered(pages),
            ListOrder::Unordered => Listing::unordered(pages),
        };
        Self { place, patient, once, listing, dates }
    }

    fn failed(&self, operation: Operation, key: &str, error: object_store::Error) -> Error {
        translate(&self.place, operation, key, error)
    }

    /// One GET. `None` if the key is absent.
    async fn request(
        &self,
        operation: Operation,
        key: &str,
        options: GetOptions,
    ) -> Result<Option<GetResult>> {
        match self.patient.get_opts(&path(operation, key)?, options).await {
            Ok(result) => Ok(Some(result)),
            Err(error @ object_store::Error::NotFound { .. }) if !is_missing_bucket(&error) => Ok(None),
            Err(error) => Err(self.failed(operation, key, error)),
        }
    }

    async fn read(&self, key: &str, result: GetResult) -> Result<Object> {
        let last_modified_ms = u64::try_from(result.meta.last_modified.timestamp_millis()).unwrap_or(0);
        let answered_ms = match self.dates {
            Dates::OfAnswers => result.extensions.get::<AnsweredMs>().map(|answered| answered.0),
            Dates::OfThisMachine => Some(Clock::system().local_ms()),
        };
        let Some(etag) = result.meta.e_tag.clone() else {
            let source = Box::new(NoETag { place: self.place.clone() });
            return Err(Error::Refused { operation: Operation::Get, key: key.to_owned(), source });
        };
        let bytes = result.bytes().await.map_err(|error| self.failed(Operation::Get, key, error))?;
        Ok(Object { bytes, etag: ETag::new(etag), last_modified_ms, answered_ms })
    }

    async fn write(&self, operation: Operation, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let path = path(operation, key)?;
        let handle = if matches!(mode, PutMode::Overwrite) { &self.patient } else { &self.once };
        let written = handle
            .put_opts(&path, bytes.into(), PutOptions::from(mode))
            .await
            .map_err(|error| self.failed(operation, key, error))?;
        written.e_tag.map(ETag::new).ok_or_else(|| {
            // Written, but as what? Only a GET can tell.
            let source = Box::new(NoETag { place: self.place.clone() });
            Error::Indefinite { operation, key: key.to_owned(), source }
        })
    }

    /// The part of an object that a store gave whole, or would not give a part of.
    async fn cut_from_whole(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let operation = Operation::GetRange;
        let Some(result) = self.request(operation, key, GetOptions::default()).await? else {
            return Ok(None);
        };
        let bytes = result.bytes().await.map_err(|error| self.failed(operation, key, error))?;
        let clip = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let (start, end) = (clip(range.start), clip(range.end));
        Ok(Some(bytes.slice(start..end.max(start))))
    }
}

#[async_trait]
impl Store for ObjectBackend {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        match self.request(Operation::Get, key, GetOptions::default()).await? {
            Some(result) => self.read(key, result).await.map(Some),
            None => Ok(None),
        }
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
        let options = GetOptions { if_none_match: Some(etag.as_str().to_owned()), ..GetOptions::default() };
        match self.patient.get_opts(&path(Operation::Get, key)?, options).await {
            Ok(result) => {
                let object = self.read(key, result).await?;
                // A store that ignores the condition sends the object again.
                Ok(if object.etag == *etag { Fetched::Unchanged } else { Fetched::Changed(object) })
            }
            Err(object_store::Error::NotModified { .. }) => Ok(Fetched::Unchanged),
            Err(error @ object_store::Error::NotFound { .. }) if !is_missing_bucket(&error) => {
                Ok(Fetched::Absent)
            }
            Err(error) => Err(self.failed(Operation::Get, key, error)),
        }
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let operation = Operation::GetRange;
        if range.is_empty() {
            let options = GetOptions { head: true, ..GetOptions::default() };
            return Ok(self.request(operation, key, options).await?.map(|_| Bytes::new()));
        }
        let part = match range.end {
            u64::MAX => GetRange::Offset(range.start),
            _ => GetRange::Bounded(range.clone()),
        };
        let options = GetOptions { range: Some(part), ..GetOptions::default() };
        let error = match self.patient.get_opts(&path(operation, key)?, options).await {
            Ok(result) => match result.bytes().await {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) => error,
            },
            Err(error @ object_store::Error::NotFound { .. }) if !is_missing_bucket(&error) => {
                return Ok(None);
            }
            Err(error) => error,
        };
        match range_quirk(&error) {
            Some(RangeQuirk::BeyondEnd) => Ok(Some(Bytes::new())),
            Some(RangeQuirk::SentWhole) => self.cut_from_whole(key, range).await,
            None => Err(self.failed(operation, key, error)),
        }
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.write(Operation::Put, key, bytes, PutMode::Overwrite).await
    }

    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        self.write(Operation::Create, key, bytes, PutMode::Create).await
    }

    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
        let version = UpdateVersion { e_tag: Some(etag.as_str().to_owned()), version: None };
        self.write(Operation::Replace, key, bytes, PutMode::Update(version)).await
    }

    async fn copy(&self, from: &str, to: &str) -> Result<bool> {
        let (source, target) = (path(Operation::Copy, from)?, path(Operation::Copy, to)?);
        match self.patient.copy_opts(&source, &target, CopyOptions::default()).await {
            Ok(()) => Ok(true),
            Err(error @ object_store::Error::NotFound { .. }) if !is_missing_bucket(&error) => Ok(false),
            Err(error) => Err(self.failed(Operation::Copy, to, error)),
        }
    }

    async fn delete(&self, key: &str) -> Result<()> {
        use object_store::ObjectStoreExt as _;
        match self.patient.delete(&path(Operation::Delete, key)?).await {
            Ok(()) => Ok(()),
            Err(error @ object_store::Error::NotFound { .. }) if !is_missing_bucket(&error) => Ok(()),
            Err(error) => Err(self.failed(Operation::Delete, key, error)),
        }
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        check_prefix(&query.prefix)?;
        let listed = self.listing.page(&query).await;
        listed.map_err(|error| self.failed(Operation::List, &query.prefix, error))
    }
}

/// Answers to a ranged GET that are no failures.
enum RangeQuirk {
    /// The range begins at or after the end of the object.
    BeyondEnd,
    /// The store ignored the range, as HTTP allows (some do so for empty objects).
    SentWhole,
}

fn range_quirk(error: &object_store::Error) -> Option<RangeQuirk> {
    // The memory backend has no other error for a GET of an object that is there.
    if status(error) == Some(416) || matches!(error, object_store::Error::Generic { store: "InMemory", .. }) {
        return Some(RangeQuirk::BeyondEnd);
    }
    error.to_string().contains("non-partial response").then_some(RangeQuirk::SentWhole)
}

/// The library's form of a key. It would encode characters that our keys never have, so none may change.
fn path(operation: Operation, key: &str) -> Result<Path> {
    check_key(operation, key)?;
    Path::parse(key).map_err(|source| {
        let source = Box::new(source);
        Error::Refused { operation, key: key.to_owned(), source }
    })
}
