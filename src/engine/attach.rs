//! Objects beside the records of a stream, that its ledger names: uploaded first, then committed, under the same
//! fence as every chunk (I-8).

use bytes::Bytes;

use super::stream::{Stream, Updated};
use super::upload::{Begun, chunk_target, put_chunk};
use super::{Error, Result};
use crate::storage::chunk::ChunkWriter;
use crate::storage::index::Ref;
use crate::storage::manifest::Manifest;

/// How often an upload is made again because a collection, or another class, came between.
const UPLOADS_MAX: usize = 3;

impl Stream {
    /// Uploads an object and changes the stream so that it names it. `change` returns `None` if the stream must stay
    /// as it is; what was uploaded is then garbage.
    pub async fn attach(
        &self,
        bytes: &Bytes,
        mut change: impl FnMut(&Manifest, Ref) -> Option<Manifest>,
    ) -> Result<Updated> {
        for _ in 0..UPLOADS_MAX {
            let base = self.refresh_live().await?;
            let clock = &self.shared.clock;
            let begun = Begun::under(&base.doc, clock.now_ms());
            let attached = self.upload(begun, bytes).await?;
            let mut is_late = false;
            let updated = self.update(|manifest| {
                is_late = !begun.may_enter(manifest, clock.now_ms());
                let mut next = if is_late { None } else { change(manifest, attached) }?;
                next.classes_used |= begun.class.bit();
                Some(next)
            });
            let updated = updated.await?;
            if !is_late {
                return Ok(updated);
            }
        }
        Err(Error::Overloaded("the stream is being rewritten faster than an object can be added to it"))
    }

    /// What an attached object holds.
    pub async fn attached(&self, manifest: &Manifest, attached: Ref) -> Result<Bytes> {
        let records = self.read_ref(manifest, attached).await?;
        let only = records.into_iter().next();
        only.map(|record| record.body).ok_or_else(|| Error::broken("an attached object", "it is empty"))
    }

    pub(super) async fn upload(&self, begun: Begun, bytes: &Bytes) -> Result<Ref> {
        let now_ms = self.shared.clock.now_ms();
        let mut writer = ChunkWriter::new(begun.incarnation);
        writer.begin_commit(now_ms);
        writer.push(0, &[], bytes);
        let encoded = writer.finish();
        let put = put_chunk(&self.shared, &self.hash, begun, &encoded);
        let id = tokio::time::timeout(self.shared.options.write_timeout, put)
            .await
            .unwrap_or(Err(Error::Overloaded("the store did not take an upload in time")))?;
        Ok(Ref {
            id,
            target: chunk_target(begun.class, &encoded),
            base_seq: 0,
            count: 1,
            timestamp_floor: 0,
            last_timestamp: 0,
            first_arrival_ms: now_ms,
            last_arrival_ms: now_ms,
            metered_bytes: bytes.len() as u64,
        })
    }
}
