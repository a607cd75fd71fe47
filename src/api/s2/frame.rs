//! Frames of the s2s protocol, which carries sessions (pure).
//!
//! ```text
//! +-----------------+--------+---------------------------------------------+
//! | length: 3 B, BE | flag   | payload                                     |
//! +-----------------+--------+---------------------------------------------+
//!   length counts flag and payload; 1 to 2 MiB
//! flag: bit 7 terminal | bits 6-5 compression (0 none, 1 zstd, 2 gzip) | bit 4 reconnect advised | bits 3-0 zero
//! regular payload:  a protobuf message, maybe compressed
//! terminal payload: HTTP status (2 B, BE), then the JSON body of an error
//! ```
//! Source: S2 API, s2s framing. A clean end has no terminal frame; an error has exactly one, the last.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::{Code, Error, Result};
use crate::api::compression::{self, Coding};

/// What a frame's length may say at most: flag and payload.
const FRAME_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What a payload may be at most, as sent and decompressed.
const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - 1;
/// Smaller payloads are not worth compressing.
const COMPRESSED_BYTES_MIN: usize = 1024;

const LENGTH_BYTES: usize = 3;
const TERMINAL: u8 = 0b1000_0000;
const COMPRESSION: u8 = 0b0110_0000;
const ZSTD: u8 = 0b0010_0000;
const GZIP: u8 = 0b0100_0000;
const RECONNECT: u8 = 0b0001_0000;

/// A frame with a message, compressed if that is asked for and worth it.
pub(super) fn encode(message: &[u8], coding: Option<Coding>) -> Bytes {
    encode_with(coding, |out| out.put_slice(message))
}

/// The same for a message that is written in place, so that what it holds is copied once.
pub(super) fn encode_with(coding: Option<Coding>, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    out.put_bytes(0, LENGTH_BYTES + 1);
    write(&mut out);
    let message = out.get(LENGTH_BYTES + 1..).unwrap_or_default();
    let compressed = coding
        .filter(|_| message.len() >= COMPRESSED_BYTES_MIN)
        .map(|coding| (coding, compression::deflate(coding, message)))
        .filter(|(_, compressed)| compressed.len() < message.len());
    match &compressed {
        Some((Coding::Zstd, payload)) => frame(ZSTD, &[payload]),
        Some((Coding::Gzip, payload)) => frame(GZIP, &[payload]),
        None => {
            let length = (out.len() - LENGTH_BYTES) as u64;
            let mut head = out.as_mut();
            head.put_uint(length, LENGTH_BYTES);
            out.freeze()
        }
    }
}

/// The last frame of a session that failed.
pub(super) fn encode_terminal(error: &Error) -> Bytes {
    frame(TERMINAL, &[&error.status().as_u16().to_be_bytes(), &error.body()])
}

fn frame(flag: u8, payload: &[&[u8]]) -> Bytes {
    let length = 1 + payload.iter().map(|part| part.len()).sum::<usize>();
    let mut out = BytesMut::with_capacity(LENGTH_BYTES + length);
    out.put_uint(length as u64, LENGTH_BYTES);
    out.put_u8(flag);
    for part in payload {
        out.put_slice(part);
    }
    out.freeze()
}

/// Takes frames out of a body that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    pending: BytesMut,
}

impl Decoder {
    /// Adds a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
    }

    /// The next message, decompressed; `None` until more has arrived.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(length) = self.pending.get(..LENGTH_BYTES).map(|mut bytes| bytes.get_uint(LENGTH_BYTES))
        else {
            return Ok(None);
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(bad_frame(format!("a frame's length must be 1 to {FRAME_BYTES_MAX}, got {length}")));
        }
        // What is wrong with the flag is said before the payload has come.
        if let Some(flag) = self.pending.get(LENGTH_BYTES) {
            check_flag(*flag)?;
        }
        if self.pending.len() < LENGTH_BYTES + length {
            self.pending.reserve(LENGTH_BYTES + length - self.pending.len());
            return Ok(None);
        }
        let mut frame = self.pending.split_to(LENGTH_BYTES + length).freeze();
        frame.advance(LENGTH_BYTES);
        let coding = match frame.get_u8() & COMPRESSION {
            ZSTD => Coding::Zstd,
            GZIP => Coding::Gzip,
            _ => return Ok(Some(frame)),
        };
        let message = compression::inflate(coding, &frame, PAYLOAD_BYTES_MAX);
        message.map(Some).map_err(|e| bad_frame(e.to_string()))
    }

    /// Whether the body may end here: not in the middle of a frame.
    pub(super) fn is_between_frames(&self) -> bool {
        self.pending.is_empty()
    }
}

fn check_flag(flag: u8) -> Result<()> {
    if flag & TERMINAL != 0 {
        return Err(bad_frame("a client must not send a terminal frame".to_owned()));
    }
    if flag & COMPRESSION == COMPRESSION || flag & !(COMPRESSION | RECONNECT) != 0 {
        return Err(bad_frame(format!("a frame's flag {flag:#010b} has bits that mean nothing")));
    }
    Ok(())
}

fn bad_frame(why: String) -> Error {
    Error::new(Code::BadFrame, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(bytes: &[u8], piece: usize) -> Result<Vec<Bytes>> {
        let mut decoder = Decoder::default();
        let mut messages = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.push(piece);
            while let Some(message) = decoder.next()? {
                messages.push(message);
            }
        }
        assert!(decoder.is_between_frames());
        Ok(messages)
    }

    #[test]
    fn the_worked_frame_of_the_contract_is_written_and_read() {
        let bytes = [0x00, 0x00, 0x07, 0x00, 0x0a, 0x04, 0x1a, 0x02, 0x68, 0x69];
        assert_eq!(encode(&bytes[4..], Some(Coding::Zstd)), bytes[..]);
        assert_eq!(decode_all(&bytes, 100).unwrap(), [&bytes[4..]]);
    }

    #[test]
    fn frames_split_at_every_byte_are_read() {
        let messages: Vec<Vec<u8>> = vec![vec![], b"a".to_vec(), vec![7; 5_000], (0..=255).collect()];
        for coding in [None, Some(Coding::Zstd), Some(Coding::Gzip)] {
            let bytes: Vec<u8> = messages.iter().flat_map(|m| encode(m, coding)).collect();
            for piece in [1, 2, 3, 5, 4_096, bytes.len()] {
                assert_eq!(decode_all(&bytes, piece).unwrap(), messages, "{coding:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn limits_hold_as_sent_and_decompressed() {
        let largest = vec![0; PAYLOAD_BYTES_MAX];
        for coding in [None, Some(Coding::Zstd), Some(Coding::Gzip)] {
            assert_eq!(decode_all(&encode(&largest, coding), 1 << 20).unwrap(), [&largest[..]]);
            let larger = encode(&vec![0; PAYLOAD_BYTES_MAX + 1], coding);
            assert_eq!(decode_all(&larger, 1 << 20).unwrap_err().status(), 400, "{coding:?}");
        }
        for bad in [
            &[0, 0, 0, 0][..],
            &[0xff, 0xff, 0xff, 0],
            &[0, 0, 1, TERMINAL],
            &[0, 0, 1, COMPRESSION],
            &[0, 0, 1, 1],
        ] {
            assert!(decode_all(bad, 10).is_err(), "{bad:?}");
        }
        assert!(decode_all(&[0, 0, 3, ZSTD, 1, 2], 10).is_err(), "not zstd");
    }

    #[test]
    fn a_terminal_frame_carries_status_and_body() {
        let bytes = encode_terminal(&Error::draining());
        assert_eq!(bytes[3], TERMINAL);
        assert_eq!(u16::from_be_bytes([bytes[4], bytes[5]]), 503);
        assert_eq!(bytes[6..], Error::draining().body());
    }
}
