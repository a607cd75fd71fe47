//! Listing: pages of names in byte order, with no request per stream.

use super::Service;
use super::error::Result;
use crate::storage::key::{self, CatalogEntry, Incarnation};
use crate::store::ListQuery;
use crate::types::limits::LIST_PAGE_NAMES_MAX;
use crate::types::name::StreamNamePart;
use crate::types::stream::{ListRequest, Page};

impl Service {
    /// One page of catalog entries. Of several entries of a name the newest counts: a creation that lost its
    /// race, or died, may have left others.
    pub(super) async fn list_catalog(
        &self,
        basin: Incarnation,
        request: &ListRequest<StreamNamePart>,
    ) -> Result<Page<CatalogEntry>> {
        let ListRequest { prefix, start_after, limit } = request;
        let mut after =
            (!start_after.as_str().is_empty()).then(|| key::catalog_after(basin, start_after.as_str()));
        let mut items: Vec<CatalogEntry> = Vec::new();
        loop {
            let query = ListQuery {
                prefix: key::catalog_prefix(basin, prefix),
                start_after: after.clone(),
                limit: LIST_PAGE_NAMES_MAX,
            };
            let listed = self.store().list(query).await?;
            let is_last = listed.len() < LIST_PAGE_NAMES_MAX;
            after = listed.last().map(|l| l.key.clone());
            for entry in listed.iter().filter_map(|l| key::parse_catalog_entry(basin, &l.key)) {
                if !entry.name.as_str().starts_with(prefix.as_str()) {
                    continue;
                }
                let is_full = items.len() == *limit;
                match items.last_mut().filter(|last| last.name == entry.name) {
                    Some(last) if last.created_at_ms <= entry.created_at_ms => *last = entry,
                    Some(_) => {}
                    None if is_full => return Ok(Page { items, has_more: true }),
                    None => items.push(entry),
                }
            }
            if is_last {
                return Ok(Page { items, has_more: false });
            }
        }
    }
}
