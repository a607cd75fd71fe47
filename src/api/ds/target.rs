//! Which stream a path names.

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;

use super::error::{Error, Result};
use super::place;
use crate::api::Api;
use crate::api::uri::{echo, path_segment, percent_decode};
use crate::service::durable::{Buckets, DurableRef};
use crate::types::limits::BUCKET_STREAM_NAME_BYTES_MAX;
use crate::types::name::{BucketName, InvalidName, StreamName};

/// Where the streams of paths lie that name no bucket.
const DEFAULT_BUCKET: &str = "_default";
/// What the paths of the protocol's own services begin with.
const RESERVED: &str = "__ds";
/// The mount for clients that know no buckets.
const ANY_PATH: &str = "/v1/stream/";
/// The mount with buckets.
const BUCKETS: &str = "/ds/";

/// The stream named in the path.
pub(super) struct Target(pub(super) DurableRef);

/// The stream whose snapshots a path names, and the offset it ends with, if it does.
pub(super) struct OfStream(pub(super) DurableRef, pub(super) Option<u64>);

/// The bucket named in the path.
pub(super) struct Bucket(pub(super) BucketName);

impl FromRequestParts<Api> for Target {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self> {
        parse(parts.uri.path()).map(Self)
    }
}

impl FromRequestParts<Api> for OfStream {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self> {
        let path = parts.uri.path();
        let offset = path_segment(path, 4).map_err(Error::bad)?;
        let at = match offset.as_str() {
            "" => None,
            text => Some(place::parse(text).ok_or_else(|| {
                Error::bad(format!("a snapshot lies at an offset of the stream, got `{}`", echo(text)))
            })?),
        };
        Ok(Self(with_bucket(path)?, at))
    }
}

impl FromRequestParts<Api> for Bucket {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self> {
        let name = path_segment(parts.uri.path(), 1).map_err(Error::bad)?;
        bucket(&name).map(Self)
    }
}

fn bucket(name: &str) -> Result<BucketName> {
    BucketName::try_from(name).map_err(|InvalidName(why)| Error::bad(why))
}

fn stream(name: &str) -> Result<StreamName> {
    StreamName::try_from(name).map_err(|InvalidName(why)| Error::bad(why))
}

/// The stream that a raw path of this server names, under either mount.
pub(super) fn parse(path: &str) -> Result<DurableRef> {
    match (path.strip_prefix(ANY_PATH), path.strip_prefix(BUCKETS)) {
        (Some(rest), _) => any_path(&percent_decode(rest).map_err(Error::bad)?),
        (None, Some(rest)) if rest.split('/').count() == 2 => with_bucket(path),
        (None, Some(_)) => Err(Error::bad(format!("`{}` is not the path of a stream", echo(path)))),
        (None, None) => Err(Error::bad(format!("`{}` is not the path of a stream", echo(path)))),
    }
}

/// The first part is the bucket if it can be one; anything else lies, whole, in the default bucket.
fn any_path(path: &str) -> Result<DurableRef> {
    if path == RESERVED || path.starts_with(&format!("{RESERVED}/")) {
        let why = format!("paths under `{RESERVED}` are reserved, and subscriptions are not served");
        return Err(Error::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", why));
    }
    let split = path.split_once('/').filter(|(_, rest)| !rest.is_empty());
    let split = split.and_then(|(first, rest)| Some((BucketName::try_from(first).ok()?, rest)));
    let (bucket, name) = match split {
        Some((bucket, rest)) => (bucket, stream(rest)?),
        None => (bucket(DEFAULT_BUCKET)?, stream(path)?),
    };
    Ok(DurableRef { bucket, name, buckets: Buckets::AreMade })
}

fn with_bucket(path: &str) -> Result<DurableRef> {
    let bucket = bucket(&path_segment(path, 1).map_err(Error::bad)?)?;
    let name = path_segment(path, 2).map_err(Error::bad)?;
    if name.contains('/') || name.contains("..") || name == "streams" {
        return Err(Error::bad(format!(
            "stream name must not hold `/` or `..`, and must not be `streams`, got `{}`",
            echo(&name)
        )));
    }
    let bytes = bucket.as_str().len() + 1 + name.len();
    if bytes > BUCKET_STREAM_NAME_BYTES_MAX {
        return Err(Error::bad(format!(
            "bucket and stream name must be at most {BUCKET_STREAM_NAME_BYTES_MAX} bytes long together, got {bytes}"
        )));
    }
    Ok(DurableRef { bucket, name: stream(&name)?, buckets: Buckets::MustExist })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Option<(String, String)> {
        let DurableRef { bucket, name, .. } = parse(path).ok()?;
        Some((bucket.to_string(), name.to_string()))
    }

    #[test]
    fn a_path_names_one_stream() {
        let table = [
            ("/v1/stream/x", ("_default", "x")),
            ("/v1/stream/abcd/b/c", ("abcd", "b/c")),
            ("/v1/stream/abcd/b%2Fc", ("abcd", "b/c")),
            ("/v1/stream/yjs/a/docs/.updates", ("_default", "yjs/a/docs/.updates")),
            ("/v1/stream/abcd/", ("_default", "abcd/")),
            ("/v1/stream/streams/a%20b", ("streams", "a b")),
            ("/ds/abcd/x", ("abcd", "x")),
            ("/ds/_default/%C3%A9", ("_default", "é")),
        ];
        for (path, (bucket, name)) in table {
            assert_eq!(names(path), Some((bucket.to_owned(), name.to_owned())), "{path}");
        }
        let long = format!("/ds/abcd/{}", "x".repeat(118));
        for bad in [
            "/v1/stream/",
            "/v1/stream/a%00",
            "/v1/stream/%zz",
            "/v1/stream/__ds/jwks.json",
            "/ds/abc/x",
            "/ds/abcd/",
            "/ds/abcd/streams",
            "/ds/abcd/a%2Fb",
            "/ds/abcd/a..b",
            "/ds/abcd/a/b",
            "/elsewhere/x",
            &long,
        ] {
            assert_eq!(names(bad), None, "{bad}");
        }
    }
}
