//! The function: the same router behind AWS Lambda, for Function URLs, API Gateway and load balancers.
//!
//! What is different from a server: a request has a deadline that cuts it off, nothing runs once an answer is over
//! (the environment is frozen, its sockets rot), and an answer either goes out whole, in a JSON of limited size, or
//! as a body that is streamed. Only bodies that go on are streamed as they are made; any other is whole before its
//! head goes out, so nothing that fails half-way looks like a complete answer.

mod answer;
mod event;
mod sweep;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::response::Response;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use http::response::Parts;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use lambda_http::lambda_runtime::{
    self, Diagnostic, FunctionResponse, LambdaEvent, MetadataPrelude, StreamResponse, service_fn,
};
use tokio::sync::Notify;
use tower::ServiceExt;

use self::answer::{Answer, TooLong};
use self::event::{Event, Front, Incoming, Malformed};
pub use self::sweep::run_sweeps;
use crate::api::{self, Live, Refused, Terms, passed};
use crate::config::Responses;
use crate::service::Service;
use crate::types::time::{Clock, Deadline};

/// What is kept of the time for the end of an answer, at most; of a short time, this part of it.
const MARGIN_MAX: Duration = Duration::from_secs(1);
const MARGIN_PART: u32 = 10;
/// No function runs longer. Emulators name a deadline long past, or none.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// The same for an answer that goes out whole: API Gateway gives up after 29 or 30 s.
const WHOLE_TIME_MAX: Duration = Duration::from_secs(26);

/// What is streamed; it never yields an error, which the runtime would write into the body.
type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, Infallible>> + Send>>;

type Handled = FunctionResponse<Answer, Chunks>;

/// Why a function ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runtime API cannot be reached any more.
    #[error("the Lambda runtime API failed")]
    RuntimeApi(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A body broke off. Only the end of the process makes that visible to the client.
    #[error("an answer broke off while it was streamed")]
    BrokenAnswer,
}

/// How a function answers.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How fronts that can do either take answers.
    pub responses: Responses,
    /// Requests that this environment is handed at a time. With more than one it is never frozen.
    pub requests_at_once: u32,
}

/// Answers events for as long as there are any.
pub async fn run(app: Router, service: Service, clock: Clock, options: Options) -> Result<(), Error> {
    let broken = Arc::new(Notify::new());
    let function = Function { app, service, clock, options, broken: broken.clone() };
    let handler = service_fn(move |event: LambdaEvent<Event>| {
        let function = function.clone();
        async move { function.handle(event).await }
    });
    tokio::select! {
        ended = lambda_runtime::run_concurrent(handler) => ended.map_err(Error::RuntimeApi),
        () = broken.notified() => Err(Error::BrokenAnswer),
    }
}

/// What is left of an invocation's time, in the order of its ends.
#[derive(Clone, Copy, Debug)]
struct Time {
    /// Waits end.
    ends: Deadline,
    /// Handlers are answered for.
    last_call: Deadline,
    /// What still runs is left alone.
    settled: Deadline,
}

impl Time {
    fn until(deadline_ms: u64, now_ms: u64, time_max: Duration) -> Self {
        let left = match deadline_ms.saturating_sub(now_ms) {
            0 => time_max,
            left_ms => Duration::from_millis(left_ms).min(time_max),
        };
        let margin = (left / MARGIN_PART).min(MARGIN_MAX);
        Self {
            ends: Deadline::after(left - margin),
            last_call: Deadline::after(left - margin / 2),
            settled: Deadline::after(left - margin / 4),
        }
    }
}

#[derive(Clone)]
struct Function {
    app: Router,
    service: Service,
    clock: Clock,
    options: Options,
    /// Told when the process must end.
    broken: Arc<Notify>,
}

impl Function {
    async fn handle(self, event: LambdaEvent<Event>) -> Result<Handled, Diagnostic> {
        let LambdaEvent { payload, context } = event;
        let Incoming { front, headers, request } = payload.into_incoming().map_err(|error| Diagnostic {
            error_type: "NotHttp".to_owned(),
            error_message: error.to_string(),
        })?;
        let can_stream = matches!(front, Front::FunctionUrl | Front::RestApi);
        let streams = can_stream && self.options.responses == Responses::Stream;
        let time_max = if streams { TIME_MAX } else { WHOLE_TIME_MAX };
        let time = Time::until(context.deadline, self.clock.local_ms(), time_max);
        let terms = Terms {
            ends: time.ends,
            last_call: time.last_call,
            whole_bytes_max: (!streams).then(|| answer::bytes_max(front)),
            runs_on: self.runs_on(),
        };
        let request = with_terms(request, headers, terms);
        let is_head = request.method() == Method::HEAD;
        let response = match self.app.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = response.into_parts();
        if streams && parts.extensions.get::<Live>().is_some() {
            return Ok(streamed(&parts, self.live(body, time)));
        }
        let whole = body.collect().await.map_err(|error| Diagnostic {
            error_type: "BrokenAnswer".to_owned(),
            error_message: format!("the answer broke off: {error}"),
        })?;
        self.settle(time).await;
        let bytes = whole.to_bytes();
        if !streams {
            return Ok(FunctionResponse::BufferedResponse(fitting(front, &parts, &bytes).await));
        }
        // Some ways lose the status and the headers of an empty body that is streamed.
        let is_lost = bytes.is_empty() && !is_head && !answer::may_be_empty(parts.status);
        let bytes = if is_lost { Bytes::from_static(b"\n") } else { bytes };
        Ok(streamed(&parts, stream::iter([Ok(bytes)]).boxed()))
    }

    fn runs_on(&self) -> bool {
        self.options.requests_at_once > 1
    }

    /// Waits until nothing of this environment runs any more, which is about to be frozen.
    async fn settle(&self, time: Time) {
        if self.runs_on() {
            return;
        }
        tokio::select! {
            () = self.service.settle() => {}
            () = passed(time.settled) => tracing::warn!("something was still at work when the time was over"),
        }
    }

    /// A body that goes on, up to its own end, after which nothing runs. Should it break off against all
    /// expectations, it has no end: the client must not take what it has for the whole.
    fn live(self, body: Body, time: Time) -> Chunks {
        let body = body.into_data_stream();
        stream::unfold((self, Some(body)), move |(function, body)| async move {
            let mut body: BodyDataStream = body?;
            match AssertUnwindSafe(body.next()).catch_unwind().await {
                Ok(Some(Ok(chunk))) => Some((Ok(chunk), (function, Some(body)))),
                Ok(None) => {
                    // It holds what polls the tail.
                    drop(body);
                    function.settle(time).await;
                    None
                }
                Ok(Some(Err(_))) | Err(_) => {
                    function.broken.notify_one();
                    std::future::pending().await
                }
            }
        })
        .boxed()
    }
}

/// The request as the router takes it. One that cannot be understood passes the same checks before it is refused.
fn with_terms(request: Result<Request<Bytes>, Malformed>, headers: HeaderMap, terms: Terms) -> Request<Body> {
    let mut request = request.map_or_else(
        |malformed| {
            let mut request = Request::new(Body::empty());
            *request.headers_mut() = headers;
            request.extensions_mut().insert(match malformed {
                Malformed::Path(why) => Refused::Path(why),
                Malformed::Query(why) => Refused::Query(why),
                Malformed::Header(why) => Refused::Header(why),
                Malformed::Body(why) => Refused::Body(why),
            });
            request
        },
        |request| request.map(Body::from),
    );
    request.extensions_mut().insert(terms);
    request
}

/// The answer, or what is said instead of one that is too long.
async fn fitting(front: Front, parts: &Parts, body: &[u8]) -> Answer {
    match answer::whole(front, parts, body) {
        Ok(answer) => answer,
        Err(TooLong { bytes, bytes_max }) => {
            let refusal: Response = api::too_long(bytes, bytes_max);
            let (mut refused, body) = refusal.into_parts();
            for (name, value) in &parts.headers {
                refused.headers.entry(name).or_insert_with(|| value.clone());
            }
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            answer::whole(front, &refused, &body).expect("a refusal is short")
        }
    }
}

fn streamed(parts: &Parts, stream: Chunks) -> Handled {
    let metadata_prelude = MetadataPrelude {
        status_code: parts.status,
        headers: answer::headers(&parts.headers),
        cookies: Vec::new(),
    };
    FunctionResponse::StreamingResponse(StreamResponse { metadata_prelude, stream })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_kept_for_the_end_and_a_deadline_in_the_past_is_none() {
        let secs = |deadline: Deadline| deadline.remaining().as_secs_f64();
        let close = |deadline, expected: f64| {
            let left = secs(deadline);
            assert!((expected - 0.5..=expected).contains(&left), "{left} is not {expected}");
        };
        let now_ms = 1_796_000_000_000;
        let time = Time::until(now_ms + 60_000, now_ms, TIME_MAX);
        close(time.ends, 59.0);
        close(time.last_call, 59.5);
        close(time.settled, 59.75);
        close(Time::until(now_ms + 5_000, now_ms, TIME_MAX).ends, 4.5);
        close(Time::until(now_ms + 60_000, now_ms, WHOLE_TIME_MAX).ends, 25.0);
        for past in [0, 600_000, now_ms] {
            close(Time::until(past, now_ms, TIME_MAX).ends, 899.0);
        }
    }

    fn function() -> Function {
        let clock = Clock::system();
        let service = Service::new(crate::store::memory(), clock.clone(), crate::service::Options::default());
        let app = api::router(service.clone(), api::ApiOptions::default());
        let options = Options { responses: Responses::Stream, requests_at_once: 1 };
        Function { app, service, clock, options, broken: Arc::new(Notify::new()) }
    }

    async fn live(
        pieces: impl Stream<Item = Result<&'static str, std::io::Error>> + Send + 'static,
    ) -> (String, bool) {
        let function = function();
        let broken = function.broken.clone();
        let time = Time::until(0, 1, TIME_MAX);
        let mut chunks = function.live(Body::from_stream(pieces), time);
        let mut got = String::new();
        loop {
            tokio::select! {
                () = broken.notified() => return (got, false),
                chunk = chunks.next() => match chunk {
                    Some(Ok(chunk)) => got.push_str(std::str::from_utf8(&chunk).unwrap()),
                    None => return (got, true),
                }
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_never_ends_like_a_whole_one() {
        assert_eq!(live(stream::iter([Ok("a"), Ok("b")])).await, ("ab".to_owned(), true));
        let failed = stream::iter([Ok("a"), Err(std::io::Error::other("lost")), Ok("b")]);
        assert_eq!(live(failed).await, ("a".to_owned(), false));
        let panicked = stream::iter([0, 1]).map(|n| if n == 0 { Ok("a") } else { panic!("a defect") });
        assert_eq!(live(panicked).await, ("a".to_owned(), false));
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_refused_in_the_shape_of_the_api() {
        let response: Response = http::Response::builder()
            .header("content-type", "application/protobuf")
            .header("x-request-id", "r-1")
            .body(Body::empty())
            .unwrap();
        let (parts, _) = response.into_parts();
        let answer = fitting(Front::HttpApi, &parts, &vec![0; 6 << 20]).await;
        let answer = serde_json::to_value(answer).unwrap();
        assert_eq!(answer["statusCode"], 422);
        assert_eq!(answer["headers"]["x-request-id"], "r-1");
        assert_eq!(answer["headers"]["content-type"], "application/json");
        let body: serde_json::Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
        assert_eq!(body["code"], "invalid");
        assert!(body["message"].as_str().unwrap().contains("6291456"), "{body}");
    }
}
