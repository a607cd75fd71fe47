//! `POST`: appends, closes, or both at once.

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, header};

use super::create::only_closes;
use super::error::{Error, Result};
use super::respond::Answer;
use super::target::Target;
use super::{headers as h, names as n, place};
use crate::api::{Api, body};
use crate::service::durable::{Outcome, Post};
use crate::types::ledger::Then;
use crate::types::limits::ENTRY_BYTES_MAX;

/// `POST` to a stream.
pub(super) async fn append(
    State(api): State<Api>,
    Target(target): Target,
    request: Request,
) -> Result<Response> {
    let (Parts { headers, .. }, body) = request.into_parts();
    let producer = h::producer(&headers)?;
    let then = h::then(&headers);
    let writer_seq = h::writer_seq(&headers)?;
    let expected = h::if_match(&headers).and_then(|tags| tags.states());
    let body = body::read(&headers, body, api.options.body_limits(ENTRY_BYTES_MAX)).await?;
    // Clients attach a default type to a body that is not there.
    let content_type = if body.is_empty() { None } else { h::content_type(&headers)? };
    if body.is_empty() && then == Then::Open {
        return Err(Error::bad(format!("the body must not be empty, unless `{}` is `true`", n::CLOSED)));
    }
    if !body.is_empty() && content_type.is_none() {
        return Err(Error::bad("header `content-type` is missing"));
    }
    let is_close = only_closes(then, &body);
    let post = Post { content_type, body, producer: producer.clone(), writer_seq, then, expected };
    let posted = api.service.post(&target, post).await;
    let posted = posted.map_err(|error| Error::from(error).for_producer(producer.as_ref()))?;
    let is_new = posted.outcome == Outcome::Appended;
    let code = match &producer {
        Some(_) if is_new && !is_close => StatusCode::OK,
        _ => StatusCode::NO_CONTENT,
    };
    let answer = Answer::empty(code)
        .next(posted.tag.tail)
        .with(header::ETAG, place::state_tag(&posted.tag))
        .with_if(posted.tag.is_closed, n::CLOSED, "true");
    // A repeat is told how far its producer has come.
    let heard = match (posted.outcome, producer) {
        (Outcome::Duplicate { epoch, seq }, Some(_)) => Some((epoch, seq)),
        (_, Some(producer)) => Some((producer.epoch, producer.seq)),
        (_, None) => None,
    };
    Ok(match heard {
        Some((epoch, seq)) => {
            answer.with(n::PRODUCER_EPOCH, epoch.to_string()).with(n::PRODUCER_SEQ, seq.to_string()).done()
        }
        None => answer.done(),
    })
}
