//! Snapshots: what an application makes of the beginning of a stream, and what then stands for it. The messages
//! before it are gone with the commit that names it.

use std::sync::Arc;

use bytes::Bytes;

use super::error::{Error, Result, of_engine};
use super::{DurableRef, Reader, ledger, unusable};
use crate::engine::{self, Stream, Updated};
use crate::service::Service;
use crate::storage::head::State;
use crate::storage::ledger::{Ledger, StandIn};
use crate::storage::manifest::{LogState, Manifest};
use crate::types::ledger::ContentType;
use crate::types::limits::ENTRY_BYTES_MAX;

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSnapshot {
    /// The first message that it does not stand for.
    pub at: u64,
    /// Of the bytes.
    pub content_type: ContentType,
    /// Whatever the application made.
    pub bytes: Bytes,
}

impl Service {
    /// Has a snapshot stand for the messages before it; returns the end of the stream.
    pub async fn put_snapshot(&self, target: &DurableRef, snapshot: &StreamSnapshot) -> Result<u64> {
        let StreamSnapshot { at, content_type, bytes } = snapshot;
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "a snapshot must be at most {ENTRY_BYTES_MAX} bytes long, got {}",
                bytes.len()
            )));
        }
        let name = &target.name;
        let (stream, found) = self.opened(target).await?;
        let (at, now_ms, life) = (*at, self.now_ms(), found.doc.head.incarnation);
        check(&found.doc, at)?;
        let mut why = None;
        let changed = stream.attach(bytes, |manifest, object| {
            why = match usable_ledger(manifest, now_ms) {
                Some(_) if manifest.head.incarnation == life => check(manifest, at).err(),
                _ => Some(Error::StreamNotFound(name.to_string())),
            };
            if why.is_some() {
                return None;
            }
            let was = manifest.log.ledger.as_deref()?.clone();
            let stand_in = Some(StandIn { at, content_type: content_type.clone(), object });
            let ledger = Ledger { stand_in, last_used_ms: was.last_used_ms.max(now_ms), ..was };
            Some(Manifest {
                head: manifest.head.next(life, State::Live),
                log: LogState { trim_point: at, ledger: Some(Box::new(ledger)), ..manifest.log.clone() },
                ..manifest.clone()
            })
        });
        match changed.await.map_err(|e| of_engine(name, e))? {
            Updated::Changed(manifest) => Ok(manifest.log.next_seq_num),
            Updated::Unchanged(_) => Err(why.unwrap_or_else(|| Error::StreamNotFound(name.to_string()))),
        }
    }

    /// Where the snapshot of a stream stands, if it has one.
    pub async fn snapshot_at(&self, target: &DurableRef) -> Result<Option<u64>> {
        let (_, found) = self.opened(target).await?;
        Ok(ledger(&found.doc)?.stand_in.as_ref().map(|stand_in| stand_in.at))
    }

    /// The snapshot of a stream, if it has one, and a reader of what follows it, or of everything that is kept: a fork
    /// begins where the snapshot of its source ended. Both are of one version; a use of the stream.
    pub async fn snapshot(&self, target: &DurableRef) -> Result<(Option<StreamSnapshot>, Reader)> {
        let mut missing = None;
        loop {
            let (stream, found) = self.opened(target).await?;
            let snapshot = match ledger(&found.doc)?.stand_in.clone() {
                None => None,
                Some(StandIn { at, content_type, object }) => {
                    match stream.attached(&found.doc, object).await {
                        Ok(bytes) => Some(StreamSnapshot { at, content_type, bytes }),
                        // A newer one has taken its place, and the sweeper was there since.
                        Err(engine::Error::Missing(id)) if missing != Some(id) => {
                            missing = Some(id);
                            continue;
                        }
                        Err(error) => return Err(of_engine(&target.name, error)),
                    }
                }
            };
            let next = found.doc.log.trim_point;
            return Ok((snapshot, self.reader(stream, found, next).await));
        }
    }

    /// A stream that can be used, by a request sent now.
    async fn opened(&self, target: &DurableRef) -> Result<(Arc<Stream>, Arc<engine::Snapshot>)> {
        let open = |stream: Arc<Stream>| async move {
            let found = stream.refresh_live().await?;
            Ok((stream, found))
        };
        let (stream, found) = self.on_durable(target, open).await?;
        ledger(&found.doc)?.check_usable(self.now_ms()).map_err(|why| unusable(&target.name, why))?;
        Ok((stream, found))
    }
}

fn usable_ledger(manifest: &Manifest, now_ms: u64) -> Option<&Ledger> {
    manifest.log.ledger.as_deref().filter(|ledger| ledger.check_usable(now_ms).is_ok())
}

/// Whether a snapshot may stand there: at a message that is kept, and not before the one there is.
fn check(manifest: &Manifest, at: u64) -> Result<()> {
    let current = ledger(manifest)?.stand_in.as_ref().map(|stand_in| stand_in.at);
    if let Some(current) = current.filter(|current| at < *current) {
        return Err(Error::OlderSnapshot { current });
    }
    if at < manifest.log.trim_point {
        return Err(Error::Trimmed { start: manifest.log.trim_point });
    }
    if at > manifest.log.next_seq_num {
        return Err(Error::SnapshotBeyondTail { tail: manifest.log.next_seq_num });
    }
    Ok(())
}
