//! The operator's secret token, and the tokens that a request brings.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use subtle::ConstantTimeEq;

/// Shortest token; a shorter one could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// A secret token. `Debug` does not show it, and it is never logged.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// The token is shorter than 16 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is too short: at least {TOKEN_BYTES_MIN} characters are needed")]
pub struct TokenTooShort;

impl Token {
    /// Creates a token from a secret.
    ///
    /// # Errors
    /// [`TokenTooShort`] if the secret has fewer than 16 bytes.
    pub fn new(secret: &str) -> Result<Self, TokenTooShort> {
        if secret.len() < TOKEN_BYTES_MIN { Err(TokenTooShort) } else { Ok(Self(secret.into())) }
    }

    /// Compares in constant time, so that the duration does not reveal where a guess differs; the length is
    /// not secret.
    pub(super) fn is(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.as_bytes()).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Returns all tokens in a request.
pub(super) fn given(headers: &HeaderMap, query: Option<&str>) -> Vec<String> {
    let mut given = Vec::new();
    if let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        match value.split_once(' ') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => {
                given.push(rest.trim().to_owned())
            }
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("basic") => {
                let decoded =
                    BASE64_STANDARD.decode(rest.trim()).ok().and_then(|b| String::from_utf8(b).ok());
                given
                    .extend(decoded.and_then(|d| d.split_once(':').map(|(_, password)| password.to_owned())));
            }
            _ => given.push(value.to_owned()),
        }
    }
    for pair in query.unwrap_or_default().split('&') {
        if let Some(value) = pair.strip_prefix("token=") {
            given.push(percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned());
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_comes_in_four_ways() {
        let secret = "0123456789abcdef";
        for (pairs, query) in [
            (&[("authorization", secret)][..], None),
            (&[("authorization", "Bearer 0123456789abcdef")], None),
            (&[("authorization", "Basic YW55b25lOjAxMjM0NTY3ODlhYmNkZWY=")], None),
            (&[], Some("x=1&token=0123456789abcdef")),
        ] {
            assert!(
                given(&headers(pairs), query).iter().any(|g| Token::new(secret).unwrap().is(g)),
                "{pairs:?}"
            );
        }
        assert!(Token::new("short").is_err());
        assert_eq!(format!("{:?}", Token::new(secret).unwrap()), "Token(…)");
    }
}
