//! The frame around every small stored document (*pure*).
//!
//! ```text
//! 0      4     5        6           7         8         12
//! ┌──────┬─────┬────────┬───────────┬─────────┬─────────┬─────────┐
//! │"LEAT"│kind │ format │min_writer │ 0       │ CRC32C  │ payload │
//! └──────┴─────┴────────┴───────────┴─────────┴─────────┴─────────┘
//! ```
//! The CRC (little endian) covers the first 8 bytes and the payload. A process whose [`WRITER`] is below
//! `min_writer` reads the document but never writes it, because it would drop fields it does not know.

use bytes::{BufMut, Bytes, BytesMut};

/// The newest format this process writes, and the newest it reads.
pub const FORMAT: u8 = 1;
/// What this process is as a writer. 2 since manifests hold what the sweeper has done and has still to do; 3 since
/// ledgers name a page of producers. Manifests with a ledger lie under keys that no process without ledgers
/// ever asks for.
pub const WRITER: u8 = 3;

const MAGIC: &[u8; 4] = b"LEAT";
const HEADER_BYTES: usize = 12;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stream's manifest.
    Manifest = b'M' as isize,
    /// A basin record.
    Basin = b'B' as isize,
    /// A bucket record.
    Bucket = b'K' as isize,
    /// An index page.
    Page = b'I' as isize,
    /// The store's own record.
    Store = b'S' as isize,
    /// A due marker.
    Due = b'D' as isize,
}

/// A stored document that cannot be what it should be. It is reported, never guessed at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged {what}: {why}")]
pub struct Damaged {
    /// What was being read.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl Damaged {
    /// Names what was being read and what is wrong.
    pub fn new(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }
}

/// A digest as protobuf holds it: no bytes for none.
pub(super) fn optional(digest: Option<[u8; 16]>) -> Bytes {
    digest.map_or_else(Bytes::new, |digest| Bytes::copy_from_slice(&digest))
}

/// An opened frame.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Who may write it.
    pub min_writer: u8,
    /// The document.
    pub payload: Bytes,
}

/// Frames a payload.
#[must_use]
pub fn seal(kind: Kind, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_BYTES + payload.len());
    out.put_slice(MAGIC);
    out.put_u8(kind as u8);
    out.put_u8(FORMAT);
    out.put_u8(WRITER);
    out.put_u8(0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out), payload);
    out.put_u32_le(crc);
    out.put_slice(payload);
    out.freeze()
}

/// Opens a frame, checking all of it.
pub fn open(kind: Kind, what: &'static str, bytes: &Bytes) -> Result<Opened, Damaged> {
    let damaged = |why: &str| Damaged::new(what, why);
    let header = bytes.get(..8).ok_or_else(|| damaged("too short for a frame"))?;
    let stored = bytes.get(8..HEADER_BYTES).ok_or_else(|| damaged("too short for a frame"))?;
    let [m0, m1, m2, m3, is_kind, format, min_writer, _] = <[u8; 8]>::try_from(header).expect("8 bytes");
    if [m0, m1, m2, m3] != *MAGIC {
        return Err(damaged("not a Leat document"));
    }
    let payload = bytes.slice(HEADER_BYTES..);
    let crc = crc32c::crc32c_append(crc32c::crc32c(header), &payload);
    if crc.to_le_bytes() != *stored {
        return Err(damaged("checksum mismatch"));
    }
    if is_kind != kind as u8 {
        return Err(Damaged::new(what, format!("expected kind {:?}, found {:?}", kind, is_kind as char)));
    }
    if format > FORMAT {
        return Err(Damaged::new(
            what,
            format!("format {format} is newer than this version reads ({FORMAT}): update Leat"),
        ));
    }
    Ok(Opened { min_writer, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_round_trips_and_any_damage_is_seen() {
        let sealed = seal(Kind::Basin, b"payload");
        assert_eq!(&*open(Kind::Basin, "basin", &sealed).expect("whole").payload, b"payload");
        assert!(open(Kind::Manifest, "manifest", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut bytes = sealed.to_vec();
            bytes[at] ^= 0x10;
            assert!(open(Kind::Basin, "basin", &bytes.into()).is_err(), "flipped byte {at}");
            assert!(open(Kind::Basin, "basin", &sealed.slice(..at)).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut bytes = seal(Kind::Store, b"").to_vec();
        bytes[5] = FORMAT + 1;
        let crc = crc32c::crc32c(&bytes[..8]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        let err = open(Kind::Store, "store", &bytes.into()).expect_err("newer");
        assert!(err.to_string().contains("update Leat"), "{err}");
    }
}
