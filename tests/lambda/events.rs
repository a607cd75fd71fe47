//! What each front makes of a request, as recorded on AWS.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// A front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A Function URL.
    Url,
    /// An HTTP API, payload 2.0.
    Http,
    /// A REST API.
    Rest,
    /// An application load balancer.
    Balancer,
}

/// All of them.
pub const FRONTS: [Via; 4] = [Via::Url, Via::Http, Via::Rest, Via::Balancer];

/// What a client sends.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: &'static str,
    /// As on the wire.
    pub path: String,
    /// The same.
    pub query: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Call {
    /// A call without a body.
    pub fn new(method: &'static str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Self { method, path: path.to_owned(), query: query.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", serde_json::to_vec(body).unwrap())
    }

    /// Any body.
    #[must_use]
    pub fn body(mut self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", kind)
    }

    /// The event that the front makes of it.
    pub fn event(&self, via: Via) -> Value {
        let kind =
            self.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value.as_str());
        let is_text = kind.is_some_and(|kind| kind.starts_with("text/") || kind == "application/json");
        let text = String::from_utf8(self.body.clone()).ok().filter(|_| is_text);
        let is_base64 = !self.body.is_empty() && text.is_none();
        let body = text.unwrap_or_else(|| BASE64_STANDARD.encode(&self.body));
        let headers: Map<String, Value> =
            self.headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let many: Map<String, Value> =
            self.headers.iter().map(|(name, value)| (name.clone(), json!([value]))).collect();
        match via {
            Via::Url => {
                self.v2("leat.lambda-url.eu-central-1.on.aws", &self.path, (headers, body, is_base64))
            }
            Via::Http => {
                let decoded = percent_decode_str(&self.path).decode_utf8_lossy().into_owned();
                // As AWS does: it is cut at a `?` of the name.
                let path = decoded.split('?').next().unwrap_or_default().to_owned();
                self.v2("leat.execute-api.eu-central-1.amazonaws.com", &path, (headers, body, is_base64))
            }
            Via::Rest => json!({
                "resource": "/{proxy+}",
                "path": self.path,
                "httpMethod": self.method,
                "headers": headers,
                "multiValueHeaders": many,
                "queryStringParameters": self.query_map(true, false),
                "multiValueQueryStringParameters": self.query_map(true, true),
                "pathParameters": { "proxy": self.path.trim_start_matches('/') },
                "stageVariables": null,
                "requestContext": {
                    "resourcePath": "/{proxy+}", "httpMethod": self.method, "path": format!("/prod{}", self.path),
                    "accountId": "1", "protocol": "HTTP/1.1", "stage": "prod", "requestId": "r", "apiId": "leat",
                    "domainName": "leat.execute-api.eu-central-1.amazonaws.com",
                    "identity": { "sourceIp": "192.0.2.1", "userAgent": "test" },
                },
                "body": if self.body.is_empty() { Value::Null } else { body.into() },
                "isBase64Encoded": is_base64,
            }),
            Via::Balancer => json!({
                "requestContext": { "elb": { "targetGroupArn": "arn:aws:elasticloadbalancing:r:1:targetgroup/l/1" } },
                "httpMethod": self.method,
                "path": self.path,
                "queryStringParameters": self.query_map(false, false),
                "headers": headers,
                "body": body,
                "isBase64Encoded": is_base64,
            }),
        }
    }

    fn v2(
        &self,
        domain: &str,
        path: &str,
        (headers, body, is_base64): (Map<String, Value>, String, bool),
    ) -> Value {
        let mut event = json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": self.query,
            "headers": headers,
            "requestContext": {
                "accountId": "anonymous", "apiId": "leat", "domainName": domain, "domainPrefix": "leat",
                "http": {
                    "method": self.method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
                    "userAgent": "test",
                },
                "requestId": "r", "routeKey": "$default", "stage": "$default",
                "time": "30/Nov/2026:00:00:00 +0000", "timeEpoch": 1_796_000_000_000_u64,
            },
            "isBase64Encoded": is_base64,
        });
        if !self.body.is_empty() {
            event["body"] = body.into();
        }
        event
    }

    fn query_map(&self, decoded: bool, many: bool) -> Value {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        let mut map = Map::new();
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let read = |text: &str| match decoded {
                true => percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned(),
                false => text.to_owned(),
            };
            let value = read(value);
            map.insert(read(name), if many { json!([value]) } else { value.into() });
        }
        if map.is_empty() && decoded { Value::Null } else { map.into() }
    }
}
