//! Buckets, and the listing of their streams.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use serde::Serialize;

use super::error::{Error, Result};
use super::place;
use super::respond::Answer;
use super::target::Bucket;
use crate::api::Api;
use crate::api::s2::respond::{json_bytes, to_json};
use crate::api::terms::Terms;
use crate::api::uri::Query;
use crate::types::limits::LIST_PAGE_NAMES_MAX;
use crate::types::name::{InvalidName, StreamNamePart};
use crate::types::stream::ListRequest;

#[derive(Serialize)]
struct InfoBody<'a> {
    bucket_id: &'a str,
    streams: u64,
}

#[derive(Serialize)]
struct ListBody<'a> {
    bucket_id: &'a str,
    prefix: &'a str,
    stream_count: usize,
    streams: Vec<StreamBody>,
    next_cursor: Option<String>,
    has_more: bool,
}

#[derive(Serialize)]
struct StreamBody {
    stream_id: String,
    status: &'static str,
    content_type: String,
    /// In messages.
    tail_offset: u64,
    /// The same as an offset to read from.
    next_offset: String,
    created_at_ms: u64,
    last_write_at_ms: u64,
}

/// `PUT /ds/{bucket}`
pub(super) async fn create(State(api): State<Api>, Bucket(bucket): Bucket) -> Result<Response> {
    api.service.create_bucket(&bucket).await?;
    let body = to_json(&InfoBody { bucket_id: bucket.as_str(), streams: 0 });
    Ok(json_bytes(StatusCode::CREATED, body))
}

/// `GET /ds/{bucket}`
pub(super) async fn info(State(api): State<Api>, Bucket(bucket): Bucket) -> Result<Response> {
    let info = api.service.bucket(&bucket).await?;
    let body = to_json(&InfoBody { bucket_id: bucket.as_str(), streams: info.streams });
    Ok(json_bytes(StatusCode::OK, body))
}

/// `DELETE /ds/{bucket}`
pub(super) async fn delete(State(api): State<Api>, Bucket(bucket): Bucket) -> Result<Response> {
    api.service.delete_bucket(&bucket).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT).done())
}

/// `GET /ds/{bucket}/streams`
pub(super) async fn list(
    State(api): State<Api>,
    Bucket(bucket): Bucket,
    Parts { uri, extensions, .. }: Parts,
) -> Result<Response> {
    let query = Query::new(uri.query().unwrap_or_default());
    let part = |name: &'static str, text: Option<String>| {
        StreamNamePart::parse(&text.unwrap_or_default(), name).map_err(|InvalidName(why)| Error::bad(why))
    };
    let asked = query.u64("limit")?.unwrap_or(LIST_PAGE_NAMES_MAX as u64);
    let limit = usize::try_from(asked).ok().filter(|limit| (1..=LIST_PAGE_NAMES_MAX).contains(limit));
    let limit = limit.ok_or_else(|| {
        Error::bad(format!("query parameter `limit` must be from 1 to {LIST_PAGE_NAMES_MAX}, got {asked}"))
    })?;
    let limit = limit.min(Terms::of(&extensions).map_or(limit, |terms| terms.names_max()));
    let request = ListRequest {
        prefix: part("prefix", query.text("prefix")?)?,
        start_after: part("after", query.text("after")?)?,
        limit,
    };
    let prefix = request.prefix.clone();
    let page = api.service.list_durable(&bucket, request).await?;
    let streams: Vec<_> = page
        .items
        .into_iter()
        .map(|item| StreamBody {
            stream_id: item.name.to_string(),
            status: if item.status.is_closed { "closed" } else { "open" },
            content_type: item.status.content_type.as_str().to_owned(),
            tail_offset: item.status.tail,
            next_offset: place::offset(item.status.tail),
            created_at_ms: item.status.created_at_ms,
            last_write_at_ms: item.status.last_write_at_ms,
        })
        .collect();
    let body = ListBody {
        bucket_id: bucket.as_str(),
        prefix: prefix.as_str(),
        stream_count: streams.len(),
        next_cursor: page.next_after.filter(|_| page.has_more).map(|name| name.to_string()),
        streams,
        has_more: page.has_more,
    };
    Ok(json_bytes(StatusCode::OK, to_json(&body)))
}
