//! Immutable objects kept in memory, bounded by bytes.

use std::sync::Arc;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::storage::chunk::Footer;
use crate::storage::index::Page;
use crate::storage::key::ObjectId;
use crate::telemetry::count_cache;

/// Index pages, chunk footers and chunk blocks by object id: ids are never used twice, so nothing goes stale.
#[derive(Debug)]
pub(super) struct ObjectCache(Cache<(ObjectId, u32), Part, ByBytes>);

#[derive(Clone, Debug)]
enum Part {
    Page(Arc<Page>),
    Footer(Arc<Footer>),
    Block(Bytes),
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<(ObjectId, u32), Part> for ByBytes {
    fn weight(&self, _key: &(ObjectId, u32), part: &Part) -> u64 {
        let bytes = match part {
            Part::Page(page) => page.refs.len() * 112,
            Part::Footer(footer) => footer.blocks.len() * 48 + footer.commits.len() * 16,
            Part::Block(run) => run.len(),
        };
        bytes as u64 + 128
    }
}

/// Cache part of a page or a footer; blocks count from 0.
const WHOLE: u32 = u32::MAX;

impl ObjectCache {
    pub(super) fn new(bytes_max: u64) -> Self {
        let items = usize::try_from(bytes_max / (16 * 1024)).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(items.max(64), bytes_max, ByBytes))
    }

    pub(super) fn page(&self, id: ObjectId) -> Option<Arc<Page>> {
        let found = match self.0.get(&(id, WHOLE)) {
            Some(Part::Page(page)) => Some(page),
            _ => None,
        };
        count_cache("page", found.is_some());
        found
    }

    pub(super) fn keep_page(&self, id: ObjectId, page: Arc<Page>) {
        self.0.insert((id, WHOLE), Part::Page(page));
    }

    pub(super) fn footer(&self, id: ObjectId) -> Option<Arc<Footer>> {
        match self.0.get(&(id, WHOLE)) {
            Some(Part::Footer(footer)) => Some(footer),
            _ => None,
        }
    }

    pub(super) fn keep_footer(&self, id: ObjectId, footer: Arc<Footer>) {
        self.0.insert((id, WHOLE), Part::Footer(footer));
    }

    pub(super) fn block(&self, id: ObjectId, block: usize) -> Option<Bytes> {
        let found = match self.0.get(&(id, u32::try_from(block).ok()?)) {
            Some(Part::Block(run)) => Some(run),
            _ => None,
        };
        count_cache("chunk", found.is_some());
        found
    }

    pub(super) fn keep_block(&self, id: ObjectId, block: usize, run: Bytes) {
        if let Ok(block) = u32::try_from(block) {
            self.0.insert((id, block), Part::Block(run));
        }
    }
}
