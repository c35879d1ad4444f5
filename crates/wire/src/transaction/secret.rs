//! Query parameters whose values must not appear in a log.

use memchr::memchr;

use super::{CUT, Shape, Tag, text};

/// Replacement for a secret value.
const HIDDEN: &[u8] = b"***";

/// Names of parameters whose values are secret, compared ignoring case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets(Box<[Box<str>]>);

impl Default for Secrets {
    /// Returns the usual names of tokens, keys and passwords.
    fn default() -> Self {
        Self::of([
            "access_token",
            "api_key",
            "apikey",
            "auth",
            "code",
            "id_token",
            "key",
            "pass",
            "passwd",
            "password",
            "pwd",
            "secret",
            "sig",
            "signature",
            "token",
            "x-amz-credential",
            "x-amz-security-token",
            "x-amz-signature",
        ])
    }
}

impl Secrets {
    /// Creates a set from names.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// Returns the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|secret| secret.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// Appends a URL, or its path and query, without the values of secret parameters.
#[inline]
pub fn url(tag: Tag, url: &[u8], secrets: &Secrets, out: &mut Vec<u8>) {
    match memchr(b'?', url) {
        Some(at) if !secrets.0.is_empty() => with_query(tag, url, at + 1, secrets, out),
        _ => text(tag, url, out),
    }
}

fn with_query(tag: Tag, url: &[u8], query_at: usize, secrets: &Secrets, out: &mut Vec<u8>) {
    let Shape::Text(bytes_max) = tag.shape() else { unreachable!("{} is no text", tag.name()) };
    let from = out.len();
    out.extend_from_slice(&[tag as u8 + 1, 0, 0]);
    let value_at = out.len();
    out.extend_from_slice(&url[..query_at]);
    for parameter in url[query_at..].split_inclusive(|byte| matches!(byte, b'&' | b';')) {
        if out.len() - value_at > bytes_max {
            break;
        }
        match memchr(b'=', parameter) {
            Some(at) if secrets.has(&parameter[..at]) => {
                out.extend_from_slice(&parameter[..=at]);
                out.extend_from_slice(HIDDEN);
                out.extend(parameter.last().filter(|last| matches!(last, b'&' | b';')));
            }
            _ => out.extend_from_slice(parameter),
        }
    }
    let bytes = out.len() - value_at;
    let cut = if bytes > bytes_max { CUT } else { 0 };
    out.truncate(value_at + bytes_max);
    let said = bytes.min(bytes_max) as u16 | cut;
    out[from + 1..from + 3].copy_from_slice(&said.to_le_bytes());
}
