//! Credentials files (`.creds`): a user's JWT and the seed of its key, each between lines of dashes.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;

/// Iterates over the lines between BEGIN and END markers, in order: the JWT, then the seed.
pub fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    text.lines().map(str::trim).filter(move |line| {
        let is_dashes = line.starts_with("---");
        if is_dashes {
            is_inside = line.contains("BEGIN");
        }
        is_inside && !is_dashes && !line.is_empty()
    })
}

/// Returns a JWT's expiry time (RFC 7519 §4.1.4), if it has one. An unreadable JWT gives `None`: the server
/// refuses it, and its error does not say why.
#[must_use]
pub fn expires(jwt: &str) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Claims {
        exp: Option<u64>,
    }
    let claims = URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(claims.exp.filter(|exp| *exp > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_jwt_and_a_seed() {
        let text = "words\n-----BEGIN NATS USER JWT-----\n a.b.c \n------END NATS USER JWT------\n\nA warning.\n\
                    -----BEGIN USER NKEY SEED-----\nSUX\n------END USER NKEY SEED------\nSUY\n";
        assert_eq!(parts(text).collect::<Vec<_>>(), ["a.b.c", "SUX"]);
        assert_eq!(parts("SUX\n").count(), 0);
    }

    #[test]
    fn a_jwt_says_until_when() {
        let jwt = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(expires(&jwt(r#"{"exp": 2000000000, "sub": "U"}"#)), Some(at(2_000_000_000)));
        for none in
            [jwt("{}"), jwt(r#"{"exp": 0}"#), jwt("?"), "e30".to_owned(), "e30.!.x".to_owned(), String::new()]
        {
            assert_eq!(expires(&none), None, "{none}");
        }
        assert_eq!(expires(&jwt(&format!(r#"{{"exp": {}}}"#, u64::MAX))), None);
    }
}
