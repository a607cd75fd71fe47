//! Who may call: everybody, or whoever has the root token.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, header};
use subtle::ConstantTimeEq;

use super::Api;
use super::s2::error::{Code, Error};

/// Shortest and longest root token, in bytes.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=4_096;

/// Who may call.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// Whoever reaches this process.
    #[default]
    Open,
    /// Whoever has the root token.
    Token(RootToken),
}

/// The bearer token that opens everything. It is compared in constant time and never shown.
#[derive(Clone)]
pub struct RootToken(Arc<[u8]>);

/// Why a text is no root token. Says nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a root token must be {} to {} visible ASCII characters without spaces", TOKEN_BYTES.start(), TOKEN_BYTES.end())]
pub struct InvalidToken;

impl RootToken {
    /// Checks that the text can be sent in a header, and is not trivially guessed.
    pub fn new(text: &str) -> Result<Self, InvalidToken> {
        let is_legal = TOKEN_BYTES.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if is_legal { Ok(Self(text.as_bytes().into())) } else { Err(InvalidToken) }
    }

    fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

impl fmt::Debug for RootToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootToken")
    }
}

/// Refuses a request without the token. Health checks and preflights carry none.
pub(super) async fn authenticate(State(api): State<Api>, request: Request, next: Next) -> Response {
    if let Auth::Token(token) = &api.options.auth
        && !is_free(&request)
        && let Err(why) = check(token, request.headers())
    {
        let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
        return (challenge, Error::new(Code::Authn, why)).into_response();
    }
    next.run(request).await
}

fn is_free(request: &Request) -> bool {
    request.method() == Method::OPTIONS || matches!(request.uri().path(), "/health" | "/ping")
}

fn check(token: &RootToken, headers: &HeaderMap) -> Result<(), &'static str> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Err("header `authorization` is missing; it must be `Bearer` and the token");
    };
    let bytes = value.as_bytes();
    let given = match bytes.split_first_chunk::<7>() {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"bearer ") => given,
        _ => return Err("header `authorization` must be `Bearer` and the token"),
    };
    if token.is(given.trim_ascii()) { Ok(()) } else { Err("this token is not known") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_token_is_long_enough_and_can_be_sent() {
        for good in ["0123456789abcdef", "s3cr3t/+=-._~very-long", &"x".repeat(4_096)] {
            assert!(RootToken::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "short",
            "0123456789abcde",
            "0123456789 abcdef",
            "0123456789abcdef\n",
            "0123456789abcdéf",
            &"x".repeat(4_097),
        ] {
            assert_eq!(RootToken::new(bad).err(), Some(InvalidToken), "{bad}");
        }
    }

    #[test]
    fn only_the_whole_token_opens() {
        let token = RootToken::new("0123456789abcdef").unwrap();
        let outcome = |value: &[u8]| {
            let headers =
                HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_bytes(value).unwrap())]);
            check(&token, &headers)
        };
        for good in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef", "BEARER  0123456789abcdef "] {
            assert_eq!(outcome(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeg",
            "Bearer 0123456789abcdef0",
            "Bearer 0123456789ABCDEF",
            "Bearer é",
        ] {
            assert!(outcome(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(check(&token, &HeaderMap::new()).is_err());
        assert!(!format!("{token:?}").contains("0123"));
    }
}
