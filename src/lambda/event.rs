//! Events of the four fronts, and the request that each stands for.
//!
//! Pure. Paths and queries are taken raw, so that a name leads to the same stream whatever the front: nothing is
//! normalised, resolved or decoded but by the router itself. Where each front keeps what:
//!
//! | front | path | query | in the path |
//! |---|---|---|---|
//! | Function URL | `rawPath` | `rawQueryString` | as sent |
//! | HTTP API (payload 2.0) | `rawPath`, with its stage unless that is `$default` | `rawQueryString` | decoded once |
//! | HTTP API (payload 1.0) | `path`, the same | maps of decoded pairs | decoded once |
//! | REST API | `path`, without its stage | maps of decoded pairs | as sent |
//! | load balancer | `path` | maps of pairs as sent | as sent |
//!
//! A path that was decoded cannot be told from another where the name in it held a `/`, `?`, `#` or `%`. Where that
//! shows it is refused; that it does not always show is why such names need another front.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

/// What is encoded in a segment of a path that arrived decoded: all but what is legal in one.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'+').remove(b':');

/// What the paths of the API begin with.
const API: &str = "/v1/";
/// Where names of any form stand in a path.
const STREAMS: &str = "/v1/streams/";

/// An event, as far as it matters here. Everything may be missing: other services send other things.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[serde(expecting = "an HTTP event of a Function URL, an API Gateway or a load balancer")]
pub(super) struct Event {
    version: Option<String>,
    raw_path: Option<String>,
    raw_query_string: Option<String>,
    cookies: Option<Vec<String>>,
    path: Option<String>,
    http_method: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    multi_value_headers: Option<BTreeMap<String, Vec<String>>>,
    query_string_parameters: Option<BTreeMap<String, Option<String>>>,
    multi_value_query_string_parameters: Option<BTreeMap<String, Vec<String>>>,
    request_context: Option<Context>,
    body: Option<String>,
    is_base64_encoded: Option<bool>,
    /// Of events of other kinds; see [`NotHttp`].
    source: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Context {
    domain_name: Option<String>,
    stage: Option<String>,
    http: Option<Http>,
    elb: Option<Balancer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Http {
    method: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Balancer {}

/// What an event came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// A Function URL, or an emulator of one.
    FunctionUrl,
    /// An HTTP API of API Gateway.
    HttpApi,
    /// A REST API of API Gateway.
    RestApi,
    /// An application load balancer.
    Balancer {
        /// Whether its target group is set up for headers with several values, in both directions.
        multi_value_headers: bool,
    },
}

/// A request and what it came through.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) front: Front,
    /// The headers, as far as they can be understood: they tell who asks, whatever else is wrong.
    pub(super) headers: HeaderMap,
    pub(super) request: Result<Request<Bytes>, Malformed>,
}

/// What of a request cannot be understood, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// The path, or the method.
    Path(String),
    Query(String),
    Header(String),
    Body(String),
}

/// An event that stands for no request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this function answers HTTP requests of a Function URL, an API Gateway or a load balancer; this event{} is none",
    of(.source_name)
)]
pub(super) struct NotHttp {
    source_name: Option<String>,
}

fn of(source: &Option<String>) -> String {
    source.as_ref().map(|source| format!(" of `{source}`")).unwrap_or_default()
}

impl Event {
    /// The request that this event stands for.
    pub(super) fn into_incoming(self) -> Result<Incoming, NotHttp> {
        let Some((front, method)) = self.front() else { return Err(NotHttp { source_name: self.source }) };
        let headers = self.headers();
        let known = headers.as_ref().cloned().unwrap_or_default();
        let request = headers.and_then(|headers| self.into_request(front, &method, headers));
        Ok(Incoming { front, headers: known, request })
    }

    fn front(&self) -> Option<(Front, String)> {
        let context = self.request_context.as_ref()?;
        if let Some(http) = &context.http {
            let front = match context.domain_name.as_deref() {
                Some(domain) if !is_function_url(domain) => Front::HttpApi,
                _ => Front::FunctionUrl,
            };
            self.raw_path.as_ref()?;
            return Some((front, http.method.clone()?));
        }
        self.path.as_ref()?;
        let front = if context.elb.is_some() {
            Front::Balancer { multi_value_headers: self.multi_value_headers.is_some() }
        } else if self.version.as_deref() == Some("1.0") {
            Front::HttpApi
        } else {
            Front::RestApi
        };
        Some((front, self.http_method.clone()?))
    }

    fn into_request(
        self,
        front: Front,
        method: &str,
        headers: HeaderMap,
    ) -> Result<Request<Bytes>, Malformed> {
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_invalid| Malformed::Path(format!("`{method}` is no method")))?;
        let uri = uri(&self.path(front)?, &self.query(front))?;
        let body = match (self.body, self.is_base64_encoded) {
            (Some(text), Some(true)) => BASE64_STANDARD
                .decode(text)
                .map_err(|e| Malformed::Body(format!("the front sent a body as base64 that is none: {e}")))?,
            (text, _) => text.unwrap_or_default().into_bytes(),
        };
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// The path as the client sent it, as far as that can be told.
    fn path(&self, front: Front) -> Result<String, Malformed> {
        let path = self.raw_path.as_ref().or(self.path.as_ref()).map(String::as_str).unwrap_or_default();
        let stage = self.request_context.as_ref().and_then(|context| context.stage.as_deref());
        match front {
            Front::FunctionUrl | Front::Balancer { .. } => Ok(path.to_owned()),
            Front::RestApi => Ok(without_stage(path, stage).to_owned()),
            Front::HttpApi => encode_again(without_stage(path, stage)),
        }
    }

    fn query(&self, front: Front) -> String {
        if let Some(raw) = &self.raw_query_string {
            return raw.clone();
        }
        let single = self.query_string_parameters.iter().flatten();
        let single = single.map(|(name, value)| (name.as_str(), value.as_deref().unwrap_or_default()));
        let several = self.multi_value_query_string_parameters.iter().flatten();
        let mut several =
            several.flat_map(|(name, values)| values.iter().map(move |v| (name.as_str(), v.as_str())));
        // Where there are both, the one with all values is a superset.
        let first = several.next();
        let pairs: Vec<(&str, &str)> = match first {
            Some(first) => std::iter::once(first).chain(several).collect(),
            None => single.collect(),
        };
        let written: Vec<String> = match front {
            Front::Balancer { .. } => pairs.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            _ => pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect(),
        };
        written.join("&")
    }

    fn headers(&self) -> Result<HeaderMap, Malformed> {
        let mut headers = HeaderMap::new();
        let several = self.multi_value_headers.iter().flatten();
        let several = several.flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        for (name, value) in several {
            append(&mut headers, name, value)?;
        }
        if headers.is_empty() {
            for (name, value) in self.headers.iter().flatten() {
                append(&mut headers, name, value)?;
            }
        }
        if let Some(cookies) = self.cookies.as_ref().filter(|cookies| !cookies.is_empty()) {
            headers.remove(header::COOKIE);
            append(&mut headers, "cookie", &cookies.join("; "))?;
        }
        // They are about the bytes between the client and the front.
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRANSFER_ENCODING);
        Ok(headers)
    }
}

fn append(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Malformed> {
    let illegal = || Malformed::Header(format!("header `{}` is not legal", name.escape_debug()));
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_invalid| illegal())?;
    headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_invalid| illegal())?, value);
    Ok(())
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Emulators run on this machine and have no domain of their own.
fn is_function_url(domain: &str) -> bool {
    let host = domain.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let host = host.map_or(domain, |(host, _)| host);
    domain.contains(".lambda-url.") || matches!(host, "localhost" | "127.0.0.1" | "[::1]" | "0.0.0.0")
}

/// The path behind the name of its stage, if that is there. No path of the API is one behind a stage as well.
fn without_stage<'a>(path: &'a str, stage: Option<&str>) -> &'a str {
    let rest = stage.and_then(|stage| path.strip_prefix('/')?.strip_prefix(stage));
    match rest {
        Some(rest) if rest.starts_with(API) || (rest.starts_with('/') && !path.starts_with(API)) => rest,
        _ => path,
    }
}

/// Encodes a path that arrived decoded, if it can be told what it was.
fn encode_again(path: &str) -> Result<String, Malformed> {
    let of_name = path.strip_prefix(STREAMS).map(|rest| rest.split('/').collect::<Vec<_>>());
    let has_one_name = match of_name.as_deref() {
        None => true,
        Some([name] | [name, "records"] | [name, "records", "tail"]) => !name.is_empty(),
        Some(_) => false,
    };
    if path.contains(['?', '#', '%', char::REPLACEMENT_CHARACTER]) || !has_one_name {
        return Err(Malformed::Path(
            "an HTTP API hands paths over decoded, so it is not known which stream is meant by one whose name \
             holds `/`, `?`, `#` or `%`: use another way in for it, such as a Function URL"
                .to_owned(),
        ));
    }
    let encoded = path.split('/').map(|segment| utf8_percent_encode(segment, SEGMENT).to_string());
    Ok(encoded.collect::<Vec<_>>().join("/"))
}

fn uri(path: &str, query: &str) -> Result<Uri, Malformed> {
    let illegal = |why: &str| format!("it cannot be part of a URI: {why}");
    let parse = |text: &str| PathAndQuery::try_from(text).map_err(|e| e.to_string());
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return Err(Malformed::Path(illegal("a path begins with `/` and holds no `?` or `#`")));
    }
    let bare = parse(path).map_err(|why| Malformed::Path(illegal(&why)))?;
    if query.contains('#') {
        return Err(Malformed::Query(illegal("a query holds no `#`")));
    }
    let whole = match query {
        "" => bare,
        query => parse(&format!("{path}?{query}")).map_err(|why| Malformed::Query(illegal(&why)))?,
    };
    Ok(Uri::from(whole))
}

#[cfg(test)]
mod tests;
