//! `HEAD` and `DELETE` of a stream.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};

use super::error::Result;
use super::respond::Answer;
use super::target::Target;
use super::{headers as h, names as n, place};
use crate::api::Api;

/// `HEAD`: what the stream is; not a use of it.
pub(super) async fn status(
    State(api): State<Api>,
    Target(target): Target,
    headers: HeaderMap,
) -> Result<Response> {
    let status = api.service.durable_status(&target).await?;
    let tag = place::state_tag(&status.tag());
    let is_known = h::if_none_match(&headers).is_some_and(|tags| tags.has(&tag));
    let code = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let answer = Answer::empty(code);
    let answer = match status.snapshot_at {
        Some(at) => answer.with(n::SNAPSHOT_OFFSET, place::offset(at)),
        None => answer,
    };
    Ok(answer
        .content_type(&status.content_type)
        .next(status.tail)
        .lifetime(&status)
        .with(header::ETAG, tag)
        .with(header::CACHE_CONTROL, "no-store")
        .with_if(status.is_closed, n::CLOSED, "true")
        .done())
}

/// `DELETE`
pub(super) async fn delete(State(api): State<Api>, Target(target): Target) -> Result<Response> {
    api.service.delete_durable(&target).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT).done())
}
