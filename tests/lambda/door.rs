//! A front as clients see it: HTTP on one side, events on the other.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::stream;
use http_body_util::BodyExt;

use crate::events::{Call, Via};
use crate::runtime::{BYTES_MAX, Head, Invocation, Piece, Runtime};
use crate::world::{Reply, whole};

#[derive(Clone)]
struct Door {
    runtime: Runtime,
    via: Via,
    timeout: Duration,
}

/// Opens it for as long as the test's runtime lives; its URL.
pub async fn open(runtime: &Runtime, via: Via, timeout: Duration) -> String {
    let door = Door { runtime: runtime.clone(), via, timeout };
    let app = Router::new().fallback(pass).with_state(door);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn pass(State(Door { runtime, via, timeout }): State<Door>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let method = match parts.method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
    };
    let Ok(body) = body.collect().await else { return StatusCode::BAD_REQUEST.into_response() };
    let headers = parts.headers.iter();
    let call = Call {
        method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: headers
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect(),
        body: body.to_bytes().to_vec(),
    };
    let event = call.event(via);
    if event.to_string().len() > BYTES_MAX {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    let mut invocation = runtime.invoke(&event, timeout);
    match invocation.piece().await {
        Piece::Whole(json) => {
            let Reply { head, body } = whole(&json, via);
            answer(head, Body::from(body))
        }
        Piece::Chunk(first) => {
            let head = invocation.head_from(&first).await;
            answer(head, Body::from_stream(stream::unfold(Some(invocation), next)))
        }
        other => {
            eprintln!("{method} {}: {other:?}", call.path);
            (StatusCode::BAD_GATEWAY, r#"{"Message":"Internal Server Error"}"#).into_response()
        }
    }
}

async fn next(invocation: Option<Invocation>) -> Option<(std::io::Result<bytes::Bytes>, Option<Invocation>)> {
    let mut invocation = invocation?;
    match invocation.chunk().await {
        Ok(chunk) => Some((Ok(chunk?), Some(invocation))),
        Err(end) => Some((Err(std::io::Error::other(format!("{end:?}"))), None)),
    }
}

fn answer(head: Head, body: Body) -> Response {
    let mut response = Response::builder().status(head.status);
    for (name, value) in head.headers {
        response = response.header(name, value);
    }
    response.body(body).unwrap()
}
