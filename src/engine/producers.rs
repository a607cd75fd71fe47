//! Producers that are not in the ledger: looked for before their entries are judged, and put into a page when they have
//! become too many. The page rides in the commit that makes it necessary, one PUT before it, once in some 150
//! producers.

use std::borrow::Cow;

use bytes::Bytes;

use super::stream::Stream;
use super::upload::Begun;
use super::{Error, Result};
use crate::storage::key;
use crate::storage::ledger::Ledger;
use crate::storage::manifest::{LogState, Manifest};
use crate::storage::producers::{self, Known, ProducerPage};
use crate::storage::{self};
use crate::types::ledger::{Entry, Producer};

impl Stream {
    /// The state that entries are judged on: with what the page says of their producers.
    pub(super) async fn recall<'a>(
        &self,
        base: &'a Manifest,
        entries: impl Iterator<Item = &Entry>,
    ) -> Result<Cow<'a, LogState>> {
        let known = Cow::Borrowed(&base.log);
        let Some(ledger) = base.log.ledger.as_deref() else { return Ok(known) };
        let ids = entries.filter_map(|entry| entry.producer.as_ref()).map(Producer::id);
        let missing: Vec<_> = ids.filter(|id| ledger.producers.get(id).is_none()).collect();
        if missing.is_empty() || ledger.producers.page.is_none() {
            return Ok(known);
        }
        let mut ledger = ledger.clone();
        for known in self.spilled(base, &ledger).await? {
            if missing.contains(&known.last.id()) {
                ledger.producers.recall(known);
            }
        }
        Ok(Cow::Owned(LogState { ledger: Some(Box::new(ledger)), ..base.log.clone() }))
    }

    /// Makes room in the ledger of the next manifest, if it needs some.
    pub(super) async fn spill(&self, base: &Manifest, next: &mut Manifest) -> Result<()> {
        let bytes_max = self.shared.options.shape.producer_bytes_max;
        let ledger = next.log.ledger.as_deref_mut();
        let Some(ledger) = ledger.filter(|ledger| ledger.producers.overflow(bytes_max)) else {
            return Ok(());
        };
        let now_ms = self.shared.clock.now_ms();
        let page = self.spilled(base, ledger).await?;
        let others = ledger.producers.spill(page, bytes_max, now_ms);
        let oldest_ms = others.iter().map(|known| known.at_ms).min();
        ledger.producers.page = match oldest_ms {
            None => None,
            Some(oldest_ms) => {
                let begun = Begun::under(base, now_ms);
                let object = self.upload(begun, &producers::encode(&others)).await?;
                next.classes_used |= begun.class.bit();
                Some(ProducerPage { object, oldest_ms })
            }
        };
        Ok(())
    }

    /// What the page of a ledger holds.
    async fn spilled(&self, manifest: &Manifest, ledger: &Ledger) -> Result<Vec<Known>> {
        let Some(page) = ledger.producers.page else { return Ok(Vec::new()) };
        let bytes: Bytes = self.attached(manifest, page.object).await?;
        producers::decode(bytes)
            .map_err(|why| Error::from(storage::Error::damaged(key::manifest(&manifest.hash), why)))
    }
}
