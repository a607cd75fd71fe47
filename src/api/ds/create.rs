//! `PUT`: creates a stream, or finds it as it was asked for.

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::error::{Error, Result};
use super::respond::{Answer, location};
use super::target::{self, Target};
use super::{headers as h, names as n, place};
use crate::api::{Api, body};
use crate::service::durable::{Creation, Expected, ForkOf};
use crate::types::ledger::Then;
use crate::types::limits::ENTRY_BYTES_MAX;
use crate::types::stream::Provision;

/// `PUT` of a stream.
pub(super) async fn create(
    State(api): State<Api>,
    Target(target): Target,
    request: Request,
) -> Result<Response> {
    let (Parts { uri, headers, .. }, body) = request.into_parts();
    let mut creation = Creation {
        content_type: h::content_type(&headers)?,
        lifetime: h::lifetime(&headers)?,
        then: h::then(&headers),
        producer: h::producer(&headers)?,
        writer_seq: h::writer_seq(&headers)?,
        expected: expected(&headers),
        fork: fork(&headers)?,
        ..Creation::default()
    };
    creation.body = body::read(&headers, body, api.options.body_limits(ENTRY_BYTES_MAX)).await?;
    let created = api.service.create_durable(&target, &creation).await;
    let (status, provision) =
        created.map_err(|error| Error::from(error).for_producer(creation.producer.as_ref()))?;
    let code = if provision == Provision::Created { StatusCode::CREATED } else { StatusCode::OK };
    let answer = Answer::empty(code)
        .content_type(&status.content_type)
        .next(status.tail)
        .lifetime(&status)
        .with(header::ETAG, place::state_tag(&status.tag()))
        .with(header::LOCATION, location(&uri, &headers, api.options.scheme))
        .with_if(status.is_closed, n::CLOSED, "true");
    Ok(match &creation.producer {
        Some(producer) => answer
            .with(n::PRODUCER_EPOCH, producer.epoch.to_string())
            .with(n::PRODUCER_SEQ, producer.seq.to_string())
            .done(),
        None => answer.done(),
    })
}

fn expected(headers: &HeaderMap) -> Expected {
    match (h::if_match(headers).map(|tags| tags.states()), h::if_none_match(headers)) {
        (Some(None), _) => Expected::Something,
        (Some(Some(states)), _) => Expected::In(states),
        (None, Some(place::Tags::Any)) => Expected::Nothing,
        (None, _) => Expected::Anything,
    }
}

fn fork(headers: &HeaderMap) -> Result<Option<ForkOf>> {
    let (at, beyond) = (h::fork_offset(headers)?, h::fork_sub_offset(headers)?);
    let Some(source) = h::text(headers, &n::FORKED_FROM)? else {
        return match (at, beyond) {
            (None, None) => Ok(None),
            _ => Err(Error::bad(format!(
                "headers `{}` and `{}` need `{}`",
                n::FORK_OFFSET,
                n::FORK_SUB_OFFSET,
                n::FORKED_FROM
            ))),
        };
    };
    let beyond = beyond.unwrap_or(0);
    if beyond > 0 && at.is_none() {
        return Err(Error::bad(format!("header `{}` needs `{}`", n::FORK_SUB_OFFSET, n::FORK_OFFSET)));
    }
    Ok(Some(ForkOf { source: target::parse(source)?, at, beyond }))
}

/// Whether a request does no more than to close.
pub(super) fn only_closes(then: Then, body: &[u8]) -> bool {
    then == Then::Close && body.is_empty()
}
