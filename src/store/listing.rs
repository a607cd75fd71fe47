//! Pages of keys in byte order, also from a store that lists in another order.
//!
//! General purpose buckets list in byte order and know `start-after`. Directory buckets do neither, and take
//! only prefixes that end at a `/`: there the whole folder is listed and the page picked from it. A store is
//! believed to be ordered until an answer shows otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::ObjectMeta;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};

use super::{ListQuery, Listed};

/// Keys asked for at least, however short the page: a shorter answer could not show that it is out of order.
const REQUEST_KEYS_MIN: usize = 100;
/// Keys asked for at most: what S3 gives.
const REQUEST_KEYS_MAX: usize = 1_000;
/// Requests behind one page at most: ten million keys in a folder of an unordered store.
const REQUESTS_MAX: usize = 10_000;

/// The listing side of a backend.
pub(super) struct Listing {
    pages: Arc<dyn PaginatedListStore>,
    ordered: AtomicBool,
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").field("ordered", &self.ordered).finish_non_exhaustive()
    }
}

impl Listing {
    /// Over a store that is believed to list in byte order.
    pub(super) fn ordered(pages: Arc<dyn PaginatedListStore>) -> Self {
        Self { pages, ordered: AtomicBool::new(true) }
    }

    /// Over a store that is known not to (S3 directory buckets).
    pub(super) fn unordered(pages: Arc<dyn PaginatedListStore>) -> Self {
        Self { pages, ordered: AtomicBool::new(false) }
    }

    /// One page.
    pub(super) async fn page(&self, query: &ListQuery) -> object_store::Result<Vec<Listed>> {
        if query.limit == 0 {
            return Ok(Vec::new());
        }
        if self.ordered.load(Ordering::Relaxed) {
            if let Some(listed) = self.page_in_order(query).await? {
                return Ok(listed);
            }
            tracing::info!("the store does not list in byte order: whole folders will be listed and sorted");
            self.ordered.store(false, Ordering::Relaxed);
        }
        self.page_from_whole_folder(query).await
    }

    /// `None` if the store turned out to list in another order.
    async fn page_in_order(&self, query: &ListQuery) -> object_store::Result<Option<Vec<Listed>>> {
        let mut listed: Vec<Listed> = Vec::new();
        let mut last: Option<String> = None;
        let mut token = None;
        for _ in 0..REQUESTS_MAX {
            let options = PaginatedListOptions {
                offset: query.start_after.clone(),
                max_keys: Some(query.limit.clamp(REQUEST_KEYS_MIN, REQUEST_KEYS_MAX)),
                page_token: token,
                ..PaginatedListOptions::default()
            };
            let answer = self.request(&query.prefix, options).await?;
            for meta in answer.result.objects {
                let key = meta.location.to_string();
                if last.as_ref().is_some_and(|last| *last >= key) {
                    return Ok(None);
                }
                if listed.len() < query.limit && query.admits(&key) {
                    listed.push(describe(key.clone(), &meta));
                }
                last = Some(key);
            }
            token = answer.page_token;
            if token.is_none() || listed.len() >= query.limit {
                return Ok(Some(listed));
            }
        }
        Err(too_long(&query.prefix))
    }

    async fn page_from_whole_folder(&self, query: &ListQuery) -> object_store::Result<Vec<Listed>> {
        let folder = query.prefix.rfind('/').and_then(|slash| query.prefix.get(..=slash)).unwrap_or("");
        let mut smallest = BTreeMap::new();
        let mut token = None;
        for _ in 0..REQUESTS_MAX {
            let options = PaginatedListOptions { page_token: token, ..PaginatedListOptions::default() };
            let answer = self.request(folder, options).await?;
            for meta in answer.result.objects {
                let key = meta.location.to_string();
                if query.admits(&key) {
                    smallest.insert(key.clone(), describe(key, &meta));
                }
                if smallest.len() > query.limit {
                    smallest.pop_last();
                }
            }
            token = answer.page_token;
            if token.is_none() {
                return Ok(smallest.into_values().collect());
            }
        }
        Err(too_long(folder))
    }

    async fn request(
        &self,
        prefix: &str,
        options: PaginatedListOptions,
    ) -> object_store::Result<PaginatedListResult> {
        let prefix = (!prefix.is_empty()).then_some(prefix);
        self.pages.list_paginated(prefix, options).await
    }
}

fn describe(key: String, meta: &ObjectMeta) -> Listed {
    let last_modified_ms = u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0);
    Listed { key, size: meta.size, last_modified_ms }
}

fn too_long(prefix: &str) -> object_store::Error {
    let source = format!("listing `{prefix}` took more than {REQUESTS_MAX} requests").into();
    object_store::Error::Generic { store: "listing", source }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use object_store::ListResult;
    use object_store::path::Path;

    use super::*;

    /// Lists like a directory bucket: in the order given, two keys at a time, no `start-after`.
    struct Unordered {
        keys: Vec<&'static str>,
        page_keys: usize,
        prefixes: Mutex<Vec<String>>,
    }

    #[async_trait::async_trait]
    impl PaginatedListStore for Unordered {
        async fn list_paginated(
            &self,
            prefix: Option<&str>,
            options: PaginatedListOptions,
        ) -> object_store::Result<PaginatedListResult> {
            let prefix = prefix.unwrap_or_default();
            self.prefixes.lock().unwrap().push(prefix.to_owned());
            let from: usize = options.page_token.map_or(0, |token| token.parse().unwrap());
            let keys: Vec<_> = self.keys.iter().filter(|key| key.starts_with(prefix)).collect();
            let until = keys.len().min(from + self.page_keys);
            let objects = keys[from..until].iter().map(|key| meta(key)).collect();
            let page_token = (until < keys.len()).then(|| until.to_string());
            let result =
                ListResult { common_prefixes: vec![], objects, extensions: object_store::Extensions::new() };
            Ok(PaginatedListResult { result, page_token })
        }
    }

    fn meta(key: &str) -> ObjectMeta {
        ObjectMeta {
            location: Path::parse(key).unwrap(),
            last_modified: std::time::UNIX_EPOCH.into(),
            size: 1,
            e_tag: None,
            version: None,
        }
    }

    fn keys(listed: Vec<Listed>) -> Vec<String> {
        listed.into_iter().map(|listed| listed.key).collect()
    }

    fn query(prefix: &str, start_after: Option<&str>, limit: usize) -> ListQuery {
        ListQuery { prefix: prefix.to_owned(), start_after: start_after.map(str::to_owned), limit }
    }

    #[tokio::test]
    async fn an_unordered_store_gives_the_right_pages_and_is_remembered() {
        let pages = Arc::new(Unordered {
            keys: vec!["a/c", "a/b2", "a/d", "b/a", "a/b1", "a/a"],
            page_keys: 2,
            prefixes: Mutex::default(),
        });
        let listing = Listing::ordered(pages.clone());
        let first = listing.page(&query("a/", None, 2)).await.unwrap();
        assert_eq!(keys(first), ["a/a", "a/b1"]);
        assert!(!listing.ordered.load(Ordering::Relaxed));
        let second = listing.page(&query("a/b", Some("a/b1"), 2)).await.unwrap();
        assert_eq!(keys(second), ["a/b2"]);
        assert_eq!(pages.prefixes.lock().unwrap().last().unwrap(), "a/", "only prefixes that end at a slash");
        assert_eq!(keys(listing.page(&query("", None, 100)).await.unwrap()).len(), 6);
    }

    #[tokio::test]
    async fn an_ordered_store_that_ignores_start_after_is_filtered() {
        let pages = Arc::new(Unordered {
            keys: vec!["a/a", "a/b", "a/c", "a/d", "a/e"],
            page_keys: 2,
            prefixes: Mutex::default(),
        });
        let listing = Listing::ordered(pages);
        let page = listing.page(&query("a/", Some("a/b"), 2)).await.unwrap();
        assert_eq!(keys(page), ["a/c", "a/d"]);
        assert!(listing.ordered.load(Ordering::Relaxed));
    }
}
