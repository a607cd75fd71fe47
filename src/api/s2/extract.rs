//! What handlers take from a request: names, tokens, queries, JSON bodies, each refused by its own code.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::{Code, Error, Result};
use super::{headers, wire};
use crate::api::uri::{self, BadQuery};
use crate::api::{Api, body};
use crate::types::limits::{LIST_PAGE_NAMES_MAX, REQUEST_BODY_BYTES_MAX};
use crate::types::name::{BasinName, BasinNamePart, InvalidName, RequestToken, StreamName, StreamNamePart};
use crate::types::stream::ListRequest;

/// Which segment of a path holds the name: `/v1/basins/{basin}`, `/v1/streams/{stream}/records`.
const NAME_SEGMENT: usize = 2;

/// The basin named by `s2-basin`.
pub(super) struct BasinHeader(pub(super) BasinName);

/// The basin named in the path.
pub(super) struct BasinInPath(pub(super) BasinName);

/// The stream named in the path.
pub(super) struct StreamInPath(pub(super) StreamName);

/// `s2-request-token`.
pub(super) struct Token(pub(super) Option<RequestToken>);

/// The query, not yet read.
pub(super) struct Query(pub(super) uri::Query);

/// A JSON body.
pub(super) struct Json<T>(pub(super) T);

/// A JSON body that may be left out.
pub(super) struct OptionalJson<T>(pub(super) T);

impl FromRequestParts<Api> for BasinHeader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self> {
        headers::basin(&parts.headers).map(Self)
    }
}

/// The name in a raw path; the framework's own extractor would decode what must be refused.
fn name_in_path<T>(parts: &Parts) -> Result<T>
where
    T: for<'a> TryFrom<&'a str, Error = InvalidName>,
{
    let bad = |why: String| Error::new(Code::BadPath, why);
    let name = uri::path_segment(parts.uri.path(), NAME_SEGMENT)
        .map_err(|why| bad(format!("the name in the path cannot be decoded: {why}")))?;
    T::try_from(name.as_str()).map_err(|InvalidName(why)| bad(why))
}

impl FromRequestParts<Api> for BasinInPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self> {
        name_in_path(parts).map(Self)
    }
}

impl FromRequestParts<Api> for StreamInPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self> {
        name_in_path(parts).map(Self)
    }
}

impl FromRequestParts<Api> for Token {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self> {
        headers::request_token(&parts.headers).map(Self)
    }
}

impl FromRequestParts<Api> for Query {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self> {
        Ok(Self(uri::Query::new(parts.uri.query().unwrap_or_default())))
    }
}

impl From<BadQuery> for Error {
    fn from(error: BadQuery) -> Self {
        Self::new(Code::BadQuery, error.to_string())
    }
}

/// Collects a body; `malformed` is the code for one that is not what its encoding says.
pub(super) async fn body_bytes(api: &Api, headers: &HeaderMap, body: Body, malformed: Code) -> Result<Bytes> {
    let limits = api.options.body_limits(REQUEST_BODY_BYTES_MAX);
    body::read(headers, body, limits).await.map_err(|e| Error::from_body(&e, malformed))
}

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, api: &Api) -> Result<Self> {
        let (parts, body) = request.into_parts();
        headers::check_json_content_type(&parts.headers)?;
        wire::parse(&body_bytes(api, &parts.headers, body, Code::BadJson).await?).map(Self)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<Api> for OptionalJson<T> {
    type Rejection = Error;

    async fn from_request(request: Request, api: &Api) -> Result<Self> {
        let (parts, body) = request.into_parts();
        // Without a content type there is no body, by contract: nothing is read.
        if !headers::has_content_type(&parts.headers) {
            return Ok(Self(T::default()));
        }
        let json = body_bytes(api, &parts.headers, body, Code::BadJson).await?;
        if json.is_empty() {
            return Ok(Self(T::default()));
        }
        headers::check_json_content_type(&parts.headers)?;
        wire::parse(&json).map(Self)
    }
}

/// A name part in a query, empty by default.
fn name_part<N>(
    query: &uri::Query,
    name: &'static str,
    parse: fn(&str, &str) -> std::result::Result<N, InvalidName>,
) -> Result<N> {
    let text = query.text(name)?.unwrap_or_default();
    parse(&text, name).map_err(|InvalidName(why)| Error::new(Code::BadQuery, why))
}

fn list_request<N>(
    query: &uri::Query,
    parse: fn(&str, &str) -> std::result::Result<N, InvalidName>,
) -> Result<ListRequest<N>> {
    let asked = query.u64("limit")?.and_then(|limit| usize::try_from(limit).ok());
    Ok(ListRequest {
        prefix: name_part(query, "prefix", parse)?,
        start_after: name_part(query, "start_after", parse)?,
        limit: asked.filter(|limit| (1..=LIST_PAGE_NAMES_MAX).contains(limit)).unwrap_or(LIST_PAGE_NAMES_MAX),
    })
}

/// What part of the basins to list.
pub(super) fn basin_list(query: &uri::Query) -> Result<ListRequest<BasinNamePart>> {
    list_request(query, BasinNamePart::parse)
}

/// What part of a basin's streams to list.
pub(super) fn stream_list(query: &uri::Query) -> Result<ListRequest<StreamNamePart>> {
    list_request(query, StreamNamePart::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_outside_of_1_to_1000_is_1000() {
        for (query, limit) in [
            ("", 1000),
            ("limit=0", 1000),
            ("limit=1", 1),
            ("limit=1000", 1000),
            ("limit=1001", 1000),
            ("limit=18446744073709551615", 1000),
        ] {
            assert_eq!(stream_list(&uri::Query::new(query)).unwrap().limit, limit, "{query}");
        }
    }

    #[test]
    fn a_listing_is_asked_for_by_name_parts() {
        let request = stream_list(&uri::Query::new("prefix=a%2F&start_after=a%2Fb+c&other=1")).unwrap();
        assert_eq!((request.prefix.as_str(), request.start_after.as_str()), ("a/", "a/b c"));
        for (query, part) in [
            ("prefix=A", "`prefix`"),
            ("start_after=-a", "`start_after`"),
            ("prefix=%ff", "`prefix`"),
            ("limit=x", "`limit`"),
            ("limit=-1", "`limit`"),
        ] {
            let Err(Error::Coded(Code::BadQuery, why)) = basin_list(&uri::Query::new(query)) else {
                panic!("{query}")
            };
            assert!(why.contains(part), "{query}: {why}");
        }
        assert!(stream_list(&uri::Query::new("prefix=%00")).is_err());
    }
}
