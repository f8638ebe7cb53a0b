//! The token that senders must present.

use std::fmt;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

use crate::answer::Refused;
use crate::counts::Refusal;

/// A secret that each request must carry as `Authorization: Bearer TOKEN`. It is never shown.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Returns a token. `None` if it is empty, or has characters that a header cannot carry: other
    /// than visible ones of ASCII.
    pub fn new(text: &str) -> Option<Self> {
        let is_usable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_usable.then(|| Token(text.as_bytes().into()))
    }

    fn is_in(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(AUTHORIZATION).map(|value| value.as_bytes()) else { return false };
        // RFC 9110, section 11.1: the scheme is case-insensitive.
        let Some((scheme, given)) = value.split_at_checked(b"Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && same(given.trim_ascii(), &self.0)
    }
}

/// Compares in a time that depends only on the lengths.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Refuses a request without the token, if there is one.
pub(crate) fn check(token: Option<&Token>, headers: &HeaderMap) -> Result<(), Refused> {
    match token {
        Some(token) if !token.is_in(headers) => {
            let message = "this receiver asks for a token: send the header `authorization: Bearer TOKEN` \
                           (OTEL_EXPORTER_OTLP_HEADERS)";
            Err(Refused::new(Refusal::Token, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn only_the_token_is_accepted() {
        let token = Token::new("s3cret").unwrap();
        let is_in = |value: &'static str| {
            token.is_in(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]))
        };
        for value in ["Bearer s3cret", "bearer s3cret", "Bearer  s3cret"] {
            assert!(is_in(value), "{value}");
        }
        for value in
            ["Bearer s3cre", "Bearer s3cretx", "Bearer S3cret", "Basic s3cret", "s3cret", "Bearer", ""]
        {
            assert!(!is_in(value), "{value}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        assert_eq!(format!("{token:?}"), "Token(..)");
        for text in ["", "a b", "a\n", "\u{e9}"] {
            assert!(Token::new(text).is_none(), "{text:?}");
        }
    }
}
