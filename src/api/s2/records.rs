//! Records of a stream: append and read, once or over a session, and check the tail.

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, StatusCode, Version};

use super::error::{Code, Error, Result};
use super::extract::{BasinHeader, Query, StreamInPath, body_bytes};
use super::headers::{self, AnswerKind, BodyKind};
use super::read_params::ReadParams;
use super::wire::TailResponse;
use super::wire::records::{AppendAck, ReadBatch, append_input};
use super::{append_session, live, proto, respond};
use crate::api::terms::{Terms, ended};
use crate::api::{Api, compression, drained};
use crate::service::records::StreamRef;
use crate::types::config::StreamConfigLayer;
use crate::types::name::{BasinName, StreamName};
use crate::types::record::{self, ReadRequest};

/// `GET /v1/streams/{stream}/records/tail`
pub(super) async fn check_tail(
    State(api): State<Api>,
    BasinHeader(basin): BasinHeader,
    StreamInPath(name): StreamInPath,
) -> Result<Response> {
    let stream = StreamRef { basin, name, config: StreamConfigLayer::default() };
    let tail = api.service.check_tail(&stream).await?;
    Ok(respond::json(StatusCode::OK, &TailResponse { tail: tail.into() }))
}

/// `POST /v1/streams/{stream}/records`
pub(super) async fn append(
    State(api): State<Api>,
    BasinHeader(basin): BasinHeader,
    StreamInPath(name): StreamInPath,
    request: Request,
) -> Result<Response> {
    let (Parts { version, headers, extensions, .. }, body) = request.into_parts();
    let stream = stream_ref(basin, name, &headers)?;
    let input = match headers::body_kind(&headers) {
        BodyKind::Session if Terms::of(&extensions).is_some() => return Err(needs_a_server()),
        BodyKind::Session if version < Version::HTTP_2 => return Err(needs_full_duplex()),
        BodyKind::Session => {
            let session = api.service.append_session(&stream).await?;
            return Ok(append_session::respond(&api, session, body, compression::accepted(&headers)));
        }
        BodyKind::Proto => proto::decode_append(body_bytes(&api, &headers, body, Code::BadProto).await?)?,
        BodyKind::Json => {
            let format = headers::format(&headers)?;
            headers::check_json_content_type(&headers)?;
            append_input(&body_bytes(&api, &headers, body, Code::BadJson).await?, format)?
        }
    };
    let ack = api.service.append(&stream, input).await?;
    Ok(match headers::answer_kind(&headers) {
        AnswerKind::Proto => respond::proto(proto::encode_ack(ack)),
        AnswerKind::Json | AnswerKind::Events => respond::json(StatusCode::OK, &AppendAck::from(ack)),
    })
}

/// `GET /v1/streams/{stream}/records`
pub(super) async fn read(
    State(api): State<Api>,
    BasinHeader(basin): BasinHeader,
    StreamInPath(name): StreamInPath,
    Query(query): Query,
    Parts { headers, extensions, .. }: Parts,
) -> Result<Response> {
    let terms = Terms::of(&extensions);
    let stream = stream_ref(basin, name, &headers)?;
    let params = ReadParams::parse(&query)?;
    if headers::body_kind(&headers) == BodyKind::Session {
        let session = api.service.read_session(&stream, params.session(None)?).await?;
        return Ok(live::frames((&api, terms), session, compression::accepted(&headers)));
    }
    match headers::answer_kind(&headers) {
        AnswerKind::Events => {
            let format = headers::format(&headers)?;
            let resumed = headers::last_event_id(&headers)?;
            let session = api.service.read_session(&stream, params.session(resumed)?).await?;
            Ok(live::events((&api, terms), session, format, resumed))
        }
        AnswerKind::Proto => {
            let bytes_max = terms.and_then(|terms| terms.proto_batch_bytes_max());
            let batch = read_once((&api, terms), &stream, params.unary()?, bytes_max).await?;
            Ok(respond::proto(proto::encode_batch(batch)))
        }
        AnswerKind::Json => {
            let format = headers::format(&headers)?;
            let bytes_max = terms.and_then(|terms| terms.json_batch_bytes_max());
            let batch = read_once((&api, terms), &stream, params.unary()?, bytes_max).await?;
            Ok(respond::json(StatusCode::OK, &ReadBatch { format, batch: &batch }))
        }
    }
}

/// A read that is answered once; one that waits for records is sent elsewhere when the server drains, and ends
/// early where the front demands it.
async fn read_once(
    (api, terms): (&Api, Option<Terms>),
    stream: &StreamRef,
    request: ReadRequest,
    batch_bytes_max: Option<u64>,
) -> Result<record::ReadBatch> {
    let may_wait = request.wait_secs.is_some_and(|secs| secs > 0);
    let mut session = api.service.read_session(stream, request).await?;
    if let Some(bytes_max) = batch_bytes_max {
        session = session.in_batches_of(bytes_max);
    }
    if !may_wait {
        return Ok(session.first_batch().await?);
    }
    let mut draining = api.options.draining.clone();
    tokio::select! {
        biased;
        batch = session.first_batch() => Ok(batch?),
        () = drained(&mut draining) => Err(Error::draining()),
        () = ended(terms) => Ok(record::ReadBatch::default()),
    }
}

fn stream_ref(basin: BasinName, name: StreamName, headers: &HeaderMap) -> Result<StreamRef> {
    headers::check_encryption_key(headers)?;
    Ok(StreamRef { basin, name, config: headers::stream_config(headers)? })
}

fn needs_a_server() -> Error {
    Error::new(
        Code::NotImplemented,
        "an append session cannot be served by a function, which is handed a request only once all of it has \
         come: use single appends, or `leat serve` on the same bucket",
    )
}

fn needs_full_duplex() -> Error {
    Error::new(
        Code::NotImplemented,
        "an append session needs HTTP/2 from end to end, because acks come while the request is still being \
         sent: connect with HTTP/2, or use single appends",
    )
}
