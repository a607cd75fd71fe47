//! The net under requests that a function's front handed over: what cannot be understood is refused, and a handler
//! that takes too long is answered for.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::s2::error::{Code, Error};
use super::terms::{Terms, passed};

/// An extension of a request that the front handed over in a way that cannot be understood; what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The path, or the method.
    Path(String),
    /// The query.
    Query(String),
    /// A header.
    Header(String),
    /// The body.
    Body(String),
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Path(why) => Self::new(Code::BadPath, why),
            Refused::Query(why) => Self::new(Code::BadQuery, why),
            Refused::Header(why) => Self::new(Code::BadHeader, why),
            Refused::Body(why) => Self::new(Code::BadJson, why),
        }
    }
}

/// Refuses what cannot be understood, and answers for a handler that takes too long.
pub(super) async fn keep(request: Request, next: Next) -> Response {
    if let Some(refused) = request.extensions().get::<Refused>() {
        return Error::from(refused.clone()).into_response();
    }
    let Some(Terms { last_call, .. }) = Terms::of(request.extensions()) else {
        return next.run(request).await;
    };
    tokio::select! {
        biased;
        response = next.run(request) => response,
        () = passed(last_call) => Error::out_of_time().into_response(),
    }
}

/// The answer instead of one that is too long for its front.
#[must_use]
pub fn too_long(bytes: usize, bytes_max: usize) -> Response {
    Error::too_long(bytes, bytes_max).into_response()
}
