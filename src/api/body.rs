//! Request bodies: collected whole, bounded in size and time, decompressed.
//!
//! A handler sees a body only once it is complete, so a request cut short by its client stores nothing.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;

use super::compression::{self, Coding, InflateError};
use super::uri::echo;

/// What is read and thrown away beyond the limit, so that an ordinary client, which sends its whole body
/// before it looks for an answer, sees the refusal rather than a reset connection.
pub(super) const DISCARDED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Why a body could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    /// It holds more bytes than this, as sent or decompressed.
    #[error("the body must be at most {0} bytes long, as sent and after decompression")]
    TooLarge(usize),
    /// It came too slowly.
    #[error("the body did not arrive in time")]
    TimedOut,
    /// The client went away.
    #[error("the body ended early: {0}")]
    Truncated(String),
    /// `content-encoding` names something else than one of the codings known here.
    #[error("header `content-encoding` must be `gzip`, `zstd` or `identity`, got `{0}`")]
    UnknownEncoding(String),
    /// It is not what its `content-encoding` says.
    #[error("the body is not valid {coding}: {why}")]
    Corrupt {
        /// `gzip` or `zstd`.
        coding: &'static str,
        /// What the decoder says.
        why: String,
    },
}

/// How slowly a body may come, and how long it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// Longest gap between two pieces.
    pub(super) idle: Duration,
    /// Longest time in all.
    pub(super) total: Duration,
    /// As sent, and decompressed.
    pub(super) bytes: usize,
}

/// Collects a body and decompresses it.
pub(super) async fn read(headers: &HeaderMap, body: Body, limits: BodyLimits) -> Result<Bytes, BodyError> {
    let coding = coding(headers)?;
    let sent = tokio::time::timeout(limits.total, collect(body, limits))
        .await
        .map_err(|_elapsed| BodyError::TimedOut)??;
    let Some(coding) = coding.filter(|_| !sent.is_empty()) else { return Ok(sent) };
    compression::inflate(coding, &sent, limits.bytes).map_err(|error| match error {
        InflateError::TooLarge(bytes_max) => BodyError::TooLarge(bytes_max),
        InflateError::Corrupt { coding, why } => BodyError::Corrupt { coding, why },
    })
}

fn coding(headers: &HeaderMap) -> Result<Option<Coding>, BodyError> {
    let mut found = None;
    for (index, value) in headers.get_all(header::CONTENT_ENCODING).iter().enumerate() {
        let text = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
        let known = match text.as_str() {
            "" | "identity" => Some(None),
            "gzip" | "x-gzip" => Some(Some(Coding::Gzip)),
            "zstd" => Some(Some(Coding::Zstd)),
            _ => None,
        };
        found = known
            .filter(|_coding| index == 0)
            .ok_or_else(|| BodyError::UnknownEncoding(echo(&text).into_owned()))?;
    }
    Ok(found)
}

async fn collect(mut body: Body, limits: BodyLimits) -> Result<Bytes, BodyError> {
    let BodyLimits { idle, bytes: bytes_max, .. } = limits;
    let mut collected = BytesMut::new();
    let mut seen = 0_usize;
    loop {
        let next = tokio::time::timeout(idle, body.frame()).await.map_err(|_elapsed| BodyError::TimedOut)?;
        let Some(frame) = next else { break };
        let frame = frame.map_err(|e| BodyError::Truncated(e.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen <= bytes_max {
            collected.extend_from_slice(&data);
        } else if seen > bytes_max + DISCARDED_BYTES_MAX {
            break;
        }
    }
    if seen > bytes_max { Err(BodyError::TooLarge(bytes_max)) } else { Ok(collected.freeze()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use futures::{StreamExt, stream};

    use super::*;
    use crate::types::limits::REQUEST_BODY_BYTES_MAX;

    const LIMITS: BodyLimits = BodyLimits {
        idle: Duration::from_secs(10),
        total: Duration::from_secs(60),
        bytes: REQUEST_BODY_BYTES_MAX,
    };

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(plain: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(plain, 19).unwrap()
    }

    async fn read_as(coding: &str, sent: Vec<u8>) -> Result<Bytes, BodyError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, coding.parse().unwrap());
        read(&headers, Body::from(sent), LIMITS).await
    }

    #[tokio::test]
    async fn bodies_are_decompressed_up_to_the_limit_and_not_beyond() {
        for len in [1, 1000, REQUEST_BODY_BYTES_MAX] {
            let plain = vec![7; len];
            assert_eq!(read_as("gzip", gzip(&plain)).await.unwrap(), plain);
            assert_eq!(read_as("ZSTD", zstd(&plain)).await.unwrap(), plain);
            assert_eq!(read_as("identity", plain.clone()).await.unwrap(), plain);
        }
        for len in [REQUEST_BODY_BYTES_MAX + 1, 64 * 1024 * 1024] {
            let plain = vec![7; len];
            assert_eq!(read_as("gzip", gzip(&plain)).await, Err(BodyError::TooLarge(REQUEST_BODY_BYTES_MAX)));
            assert_eq!(read_as("zstd", zstd(&plain)).await, Err(BodyError::TooLarge(REQUEST_BODY_BYTES_MAX)));
            assert_eq!(read_as("identity", plain).await, Err(BodyError::TooLarge(REQUEST_BODY_BYTES_MAX)));
        }
    }

    #[tokio::test]
    async fn a_corrupt_or_truncated_compressed_body_is_refused() {
        let plain = b"{\"records\":[]}".repeat(100);
        for (coding, sent) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
            for cut in 1..sent.len() {
                let got = read_as(coding, sent[..cut].to_vec()).await;
                assert!(matches!(got, Err(BodyError::Corrupt { .. })), "{coding} {cut}: {got:?}");
            }
            let got = read_as(coding, plain.clone()).await;
            assert!(matches!(got, Err(BodyError::Corrupt { .. })), "{got:?}");
        }
    }

    #[tokio::test]
    async fn a_zstd_frame_with_a_huge_window_is_refused_before_it_is_allocated() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&[7; 1000]).unwrap();
        let got = read_as("zstd", encoder.finish().unwrap()).await;
        assert!(matches!(got, Err(BodyError::Corrupt { .. })), "{got:?}");
    }

    #[tokio::test]
    async fn an_unknown_or_repeated_coding_is_refused_and_an_empty_body_has_none() {
        for bad in ["br", "gzip, zstd", "deflate"] {
            assert!(matches!(read_as(bad, vec![1]).await, Err(BodyError::UnknownEncoding(_))), "{bad}");
        }
        assert_eq!(read_as("gzip", vec![]).await, Ok(Bytes::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_times_out_by_gap_and_in_all() {
        let stalled = stream::iter([Ok::<_, std::io::Error>("a")]).chain(stream::pending());
        let got = read(&HeaderMap::new(), Body::from_stream(stalled), LIMITS).await;
        assert_eq!(got, Err(BodyError::TimedOut));
        let drip = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            Ok::<_, std::io::Error>("")
        });
        let got = read(&HeaderMap::new(), Body::from_stream(drip), LIMITS).await;
        assert_eq!(got, Err(BodyError::TimedOut));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_not_taken_for_a_whole_one() {
        let broken = stream::iter([Ok("{}"), Err(std::io::Error::other("reset"))]);
        let got = read(&HeaderMap::new(), Body::from_stream(broken), LIMITS).await;
        assert!(matches!(got, Err(BodyError::Truncated(_))), "{got:?}");
    }
}
