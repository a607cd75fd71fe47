//! The two compressions that clients use, bounded (pure).

use std::io::{Read, Write};

use bytes::Bytes;
use http::{HeaderMap, header};

use super::ranges::taken;

/// Largest window of a zstd frame, log2: the 8 MiB that RFC 9659 allows in HTTP.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Speed before size: a session is compressed as it goes.
const ZSTD_LEVEL: i32 = 1;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// Its name in `content-encoding` and `accept-encoding`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}

/// How an answer is compressed for a client: zstd if it takes that, else gzip.
pub(super) fn accepted(headers: &HeaderMap) -> Option<Coding> {
    let taken: Vec<_> = taken(headers, &header::ACCEPT_ENCODING).collect();
    [Coding::Zstd, Coding::Gzip].into_iter().find(|coding| taken.iter().any(|name| name == coding.as_str()))
}

/// Why bytes could not be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InflateError {
    /// They hold more than the limit.
    #[error("it holds more than {0} bytes after decompression")]
    TooLarge(usize),
    /// They are not what they should be.
    #[error("it is not valid {coding}: {why}")]
    Corrupt {
        /// `gzip` or `zstd`.
        coding: &'static str,
        /// What the decoder says.
        why: String,
    },
}

/// Decompresses up to one byte more than the limit: a bomb is told from a body without unpacking it.
pub(super) fn inflate(coding: Coding, sent: &[u8], bytes_max: usize) -> Result<Bytes, InflateError> {
    let corrupt = |e: std::io::Error| InflateError::Corrupt { coding: coding.as_str(), why: e.to_string() };
    let mut plain = Vec::new();
    let limit = bytes_max as u64 + 1;
    match coding {
        Coding::Gzip => flate2::read::MultiGzDecoder::new(sent).take(limit).read_to_end(&mut plain),
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(sent).map_err(corrupt)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(corrupt)?;
            decoder.take(limit).read_to_end(&mut plain)
        }
    }
    .map_err(corrupt)?;
    if plain.len() > bytes_max { Err(InflateError::TooLarge(bytes_max)) } else { Ok(plain.into()) }
}

/// Compresses.
pub(super) fn deflate(coding: Coding, plain: &[u8]) -> Vec<u8> {
    let compressed = match coding {
        Coding::Zstd => zstd::bulk::compress(plain, ZSTD_LEVEL),
        Coding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).and_then(|()| encoder.finish())
        }
    };
    compressed.expect("writing to memory does not fail")
}
