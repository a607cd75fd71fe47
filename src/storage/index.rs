//! Refs to chunks and pages, and the index page (*pure*).
//!
//! A stream's history is `[level n refs] … [level 1 refs] [level 0 refs] [inline tail]`, oldest first. A level 0
//! ref names a chunk, a level k ref names a page of level k − 1 refs. A manifest keeps few refs per level; when
//! a level fills up, its oldest refs move into the newest page of the level above.
//!
//! ```text
//! list := count  base_seq  ref*                            a list is contiguous: a ref begins where the last ended
//! ref  := id(16)  kind  (first  footer_at  bytes | refs)  count  floor-delta  span  arrival-delta  arrival-span  metered
//! page := frame( incarnation(16)  level  list )
//! ```
//! `kind` is the data class of a chunk (three numbers follow), or 16 + level of a page (the number of its refs
//! follows).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::encode_varint;

use super::frame::{self, Damaged, Kind};
use super::key::{DataClass, Incarnation, ObjectId};
use super::record::get_varint;

const COPIED_KIND: u64 = 8;
const PAGE_KIND: u64 = 16;

/// What a ref names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A chunk, or a part of one.
    Chunk {
        /// Where it lies.
        class: DataClass,
        /// The first record meant, counted within the chunk.
        first: u64,
        /// Byte position of the footer.
        footer_at: u64,
        /// Size of the object.
        bytes: u64,
        /// The life that wrote it, if it was copied from another stream.
        writer: Option<Incarnation>,
    },
    /// A page whose refs are of this level.
    Page {
        /// Level of the refs in the page.
        level: u8,
        /// How many refs it holds.
        refs: u32,
    },
}

/// Names a contiguous range of records by the object that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ref {
    /// The object.
    pub id: ObjectId,
    /// What it is.
    pub target: Target,
    /// Sequence number of the first record.
    pub base_seq: u64,
    /// Records, at least 1.
    pub count: u64,
    /// Stored timestamps below this are read as this: the timestamp before the range when it was committed.
    pub timestamp_floor: u64,
    /// Timestamp of the last record.
    pub last_timestamp: u64,
    /// Arrival of the first record; stored arrivals below this are read as this.
    pub first_arrival_ms: u64,
    /// Arrival of the last record.
    pub last_arrival_ms: u64,
    /// Metered bytes of the records.
    pub metered_bytes: u64,
}

impl Target {
    /// The life that wrote the chunk, if `life` is the stream's own.
    #[must_use]
    pub fn written_by(&self, life: Incarnation) -> Incarnation {
        match self {
            Self::Chunk { writer: Some(writer), .. } => *writer,
            Self::Chunk { .. } | Self::Page { .. } => life,
        }
    }
}

impl Ref {
    /// One past the last sequence number.
    #[must_use]
    pub fn end_seq(&self) -> u64 {
        self.base_seq + self.count
    }

    /// One ref over consecutive refs, naming the page that holds them.
    #[must_use]
    pub fn over(id: ObjectId, level: u8, refs: &[Ref]) -> Option<Ref> {
        let (first, last) = (refs.first()?, refs.last()?);
        Some(Ref {
            id,
            target: Target::Page { level, refs: u32::try_from(refs.len()).ok()? },
            base_seq: first.base_seq,
            count: last.end_seq() - first.base_seq,
            timestamp_floor: first.timestamp_floor,
            last_timestamp: last.last_timestamp,
            first_arrival_ms: first.first_arrival_ms,
            last_arrival_ms: last.last_arrival_ms,
            metered_bytes: refs.iter().map(|r| r.metered_bytes).sum(),
        })
    }
}

/// Writes a list of consecutive refs.
pub fn encode_refs(refs: &[Ref], out: &mut BytesMut) {
    encode_varint(refs.len() as u64, out);
    let Some(first) = refs.first() else { return };
    encode_varint(first.base_seq, out);
    let (mut seq, mut timestamp, mut arrival) = (first.base_seq, 0, 0);
    for r in refs {
        debug_assert_eq!(r.base_seq, seq, "a list of refs is contiguous");
        out.put_slice(r.id.as_bytes());
        match r.target {
            Target::Chunk { class, first, footer_at, bytes, writer } => {
                encode_varint(class as u64 + writer.map_or(0, |_| COPIED_KIND), out);
                if let Some(writer) = writer {
                    out.put_slice(writer.as_bytes());
                }
                encode_varint(first, out);
                encode_varint(footer_at, out);
                encode_varint(bytes, out);
            }
            Target::Page { level, refs } => {
                encode_varint(PAGE_KIND + u64::from(level), out);
                encode_varint(u64::from(refs), out);
            }
        }
        encode_varint(r.count, out);
        // Deltas wrap, so that any order of values survives the round trip.
        encode_varint(r.timestamp_floor.wrapping_sub(timestamp), out);
        encode_varint(r.last_timestamp.wrapping_sub(r.timestamp_floor), out);
        encode_varint(r.first_arrival_ms.wrapping_sub(arrival), out);
        encode_varint(r.last_arrival_ms.wrapping_sub(r.first_arrival_ms), out);
        encode_varint(r.metered_bytes, out);
        (seq, timestamp, arrival) = (r.end_seq(), r.last_timestamp, r.last_arrival_ms);
    }
}

/// Reads a list of refs and leaves what follows it.
pub fn decode_refs(rest: &mut Bytes) -> Result<Vec<Ref>, Damaged> {
    let count = get_varint(rest)?;
    if count > rest.remaining() as u64 {
        return Err(Damaged::new("refs", "more refs than bytes"));
    }
    let mut refs = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    if count == 0 {
        return Ok(refs);
    }
    let (mut seq, mut timestamp, mut arrival) = (get_varint(rest)?, 0u64, 0u64);
    for _ in 0..count {
        let id = get_id(rest, ObjectId::from_slice)?;
        let target = decode_target(rest)?;
        let count = get_varint(rest)?;
        let timestamp_floor = timestamp.wrapping_add(get_varint(rest)?);
        let last_timestamp = timestamp_floor.wrapping_add(get_varint(rest)?);
        let first_arrival_ms = arrival.wrapping_add(get_varint(rest)?);
        let last_arrival_ms = first_arrival_ms.wrapping_add(get_varint(rest)?);
        let metered_bytes = get_varint(rest)?;
        if count == 0 {
            return Err(Damaged::new("refs", "an empty ref"));
        }
        let r = Ref {
            id,
            target,
            base_seq: seq,
            count,
            timestamp_floor,
            last_timestamp,
            first_arrival_ms,
            last_arrival_ms,
            metered_bytes,
        };
        seq = seq.checked_add(count).ok_or_else(|| Damaged::new("refs", "sequence number overflow"))?;
        (timestamp, arrival) = (last_timestamp, last_arrival_ms);
        refs.push(r);
    }
    Ok(refs)
}

/// Reads one of the ids, which are all of one length.
fn get_id<T>(rest: &mut Bytes, read: impl Fn(&[u8]) -> Option<T>) -> Result<T, Damaged> {
    let cut_off = || Damaged::new("refs", "cut off");
    if rest.remaining() < ObjectId::BYTES {
        return Err(cut_off());
    }
    read(&rest.split_to(ObjectId::BYTES)).ok_or_else(cut_off)
}

fn decode_target(rest: &mut Bytes) -> Result<Target, Damaged> {
    let kind = get_varint(rest)?;
    let copied = kind.checked_sub(COPIED_KIND).and_then(DataClass::from_number);
    if let Some(class) = copied.or_else(|| DataClass::from_number(kind)) {
        let writer = match copied {
            Some(_) => Some(get_id(rest, Incarnation::from_slice)?),
            None => None,
        };
        let (first, footer_at, bytes) = (get_varint(rest)?, get_varint(rest)?, get_varint(rest)?);
        if footer_at > bytes {
            return Err(Damaged::new("refs", "a footer beyond the object"));
        }
        return Ok(Target::Chunk { class, first, footer_at, bytes, writer });
    }
    let level = kind.checked_sub(PAGE_KIND).and_then(|level| u8::try_from(level).ok());
    let level = level.ok_or_else(|| Damaged::new("refs", format!("unknown kind {kind}")))?;
    let refs = u32::try_from(get_varint(rest)?).map_err(|e| Damaged::new("refs", e.to_string()))?;
    Ok(Target::Page { level, refs })
}

/// An immutable list of refs of one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The life of the stream it belongs to.
    pub incarnation: Incarnation,
    /// Level of its refs.
    pub level: u8,
    /// Consecutive.
    pub refs: Vec<Ref>,
}

impl Page {
    /// The object's content.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(32 + self.refs.len() * 48);
        out.put_slice(self.incarnation.as_bytes());
        out.put_u8(self.level);
        encode_refs(&self.refs, &mut out);
        frame::seal(Kind::Page, &out)
    }

    /// Reads the object's content and checks whose it is.
    pub fn decode(bytes: &Bytes, incarnation: Incarnation) -> Result<Self, Damaged> {
        let damaged = |why: &str| Damaged::new("index page", why);
        let mut rest = frame::open(Kind::Page, "index page", bytes)?.payload;
        if rest.remaining() < Incarnation::BYTES + 1 {
            return Err(damaged("cut off"));
        }
        if Incarnation::from_slice(&rest.split_to(Incarnation::BYTES)) != Some(incarnation) {
            return Err(damaged("belongs to another stream"));
        }
        let level = rest.get_u8();
        let refs = decode_refs(&mut rest)?;
        if rest.has_remaining() {
            return Err(damaged("bytes after the refs"));
        }
        Ok(Self { incarnation, level, refs })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any list of consecutive refs.
    pub(crate) fn refs() -> impl Strategy<Value = Vec<Ref>> {
        let one = (any::<[u8; 16]>(), 0u64..24, 1u64..5_000, any::<u64>(), any::<u64>(), any::<u64>());
        (0u64..1_000_000, prop::collection::vec(one, 0..8)).prop_map(|(mut seq, list)| {
            list.into_iter()
                .map(|(id, kind, count, a, b, c)| {
                    let target = match DataClass::from_number(kind) {
                        Some(class) => {
                            let writer = (c % 3 == 0).then(Incarnation::fresh);
                            Target::Chunk {
                                class,
                                first: a >> 32,
                                footer_at: b >> 40,
                                bytes: b >> 39,
                                writer,
                            }
                        }
                        None => Target::Page { level: (kind % 5) as u8, refs: (a >> 40) as u32 },
                    };
                    let base_seq = seq;
                    seq += count;
                    Ref {
                        id: ObjectId::from_slice(&id).expect("16 bytes"),
                        target,
                        base_seq,
                        count,
                        timestamp_floor: a,
                        last_timestamp: b,
                        first_arrival_ms: c,
                        last_arrival_ms: a ^ c,
                        metered_bytes: b,
                    }
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn refs_and_pages_round_trip(refs in refs(), level in 0u8..4) {
            let incarnation = Incarnation::fresh();
            let page = Page { incarnation, level, refs };
            let bytes = page.encode();
            prop_assert_eq!(Page::decode(&bytes, incarnation).expect("whole"), page);
            prop_assert!(Page::decode(&bytes, Incarnation::fresh()).is_err());
        }

        #[test]
        fn cut_or_random_refs_are_refused_without_panic(refs in refs(), cut in any::<prop::sample::Index>(),
                                                        noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = BytesMut::new();
            encode_refs(&refs, &mut out);
            let whole = out.freeze();
            let mut cut = whole.slice(..cut.index(whole.len()));
            prop_assert!(decode_refs(&mut cut).is_err());
            let _ = decode_refs(&mut Bytes::from(noise));
        }
    }
}
