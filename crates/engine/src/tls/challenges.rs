//! Open challenges of certificate authorities (ACME), by which they validate a name before they issue a
//! certificate.
//!
//! ```text
//!   ACME client ─ open_path, open_name ─▶ [ tokens · names ] ◀─ answer, resolve ─ servers
//!                 ChallengeGuard's drop closes
//! ```
//! - *http-01* (RFC 8555 §8.3): `GET /.well-known/acme-challenge/TOKEN`, answered with a text.
//! - *tls-alpn-01* (RFC 8737): a handshake for the protocol [`PROTOCOL`], answered with a certificate made for it.
//!
//! *Readers:* a request whose path begins as above, and a handshake that offers only that protocol; both only
//! while a challenge is open, which costs one load of a rarely written word. *Bound:* [`OPEN_MAX`].

#![expect(
    clippy::disallowed_types,
    reason = "what authorities ask for, a few times in two months; a hit reads a word"
)]

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicUsize, Ordering},
};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// ALPN protocol with which an authority validates a name (RFC 8737 §3).
pub const PROTOCOL: &[u8] = b"acme-tls/1";
/// Path prefix of HTTP challenges (RFC 8555 §8.3); the token follows.
pub const PATH: &str = "/.well-known/acme-challenge/";
/// Maximum number of challenges that are open at once: one for each name of a certificate. Public authorities
/// accept up to a hundred names per certificate.
pub const OPEN_MAX: usize = 128;

/// The open challenges of a process, shared by the ACME client and the servers.
#[derive(Debug, Default)]
pub struct Challenges {
    /// Number of open challenges.
    open: AtomicUsize,
    table: RwLock<Vec<Challenge>>,
}

#[derive(Debug)]
enum Challenge {
    /// HTTP challenge: a token and the text to answer with.
    Path(Box<str>, Arc<str>),
    /// TLS challenge: a server name and the certificate to answer with.
    Name(Box<str>, Arc<CertifiedKey>),
}

/// Reasons why a challenge cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ChallengeError {
    /// The maximum number of challenges ([`OPEN_MAX`]) is already open.
    #[error("too many open challenges: at most {OPEN_MAX}")]
    TooMany,
    /// The private key for the challenge's certificate cannot be used.
    #[error("{0}")]
    Key(rustls::Error),
}

/// Guard of a challenge: dropping it closes the challenge.
#[derive(Debug)]
pub struct ChallengeGuard {
    of: Arc<Challenges>,
    token: Box<str>,
}

impl Challenges {
    /// Opens an HTTP challenge: requests for this token are answered with this text from now on.
    ///
    /// # Errors
    /// [`ChallengeError::TooMany`] if [`OPEN_MAX`] challenges are open.
    pub fn open_path(self: &Arc<Self>, token: &str, answer: &str) -> Result<ChallengeGuard, ChallengeError> {
        self.open(token, Challenge::Path(token.into(), answer.into()))
    }

    /// Opens a TLS challenge: this certificate is presented to an authority that validates a name. An address
    /// is validated by its name in the reverse tree (RFC 8738 §6). The certificate serves only for this:
    /// rustls does not know its critical extension and would not accept it as a normal certificate.
    ///
    /// # Errors
    /// [`ChallengeError::Key`] if the key cannot be used; [`ChallengeError::TooMany`] if [`OPEN_MAX`]
    /// challenges are open.
    pub fn open_name(
        self: &Arc<Self>,
        name: &str,
        certificate: CertificateDer<'static>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<ChallengeGuard, ChallengeError> {
        let name = name.to_ascii_lowercase();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(key).map_err(ChallengeError::Key)?;
        let shown = Arc::new(CertifiedKey::new(vec![certificate], key));
        self.open(&name, Challenge::Name(name.as_str().into(), shown))
    }

    fn open(self: &Arc<Self>, token: &str, challenge: Challenge) -> Result<ChallengeGuard, ChallengeError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= OPEN_MAX {
            return Err(ChallengeError::TooMany);
        }
        table.push(challenge);
        self.open.store(table.len(), Ordering::Release);
        Ok(ChallengeGuard { of: Arc::clone(self), token: token.into() })
    }

    /// Returns whether any challenge is open.
    #[inline]
    #[must_use]
    pub fn is_any_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Returns the answer to a request for this path, if the path belongs to an open challenge.
    #[must_use]
    pub fn answer(&self, path: &str) -> Option<Arc<str>> {
        let token = path.strip_prefix(PATH)?;
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.iter().find_map(|challenge| match challenge {
            Challenge::Path(of, answer) if **of == *token => Some(Arc::clone(answer)),
            _ => None,
        })
    }

    fn shown(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.iter().find_map(|challenge| match challenge {
            Challenge::Name(of, shown) if name.eq_ignore_ascii_case(of) => Some(Arc::clone(shown)),
            _ => None,
        })
    }
}

impl Drop for ChallengeGuard {
    fn drop(&mut self) {
        let mut table = self.of.table.write().unwrap_or_else(PoisonError::into_inner);
        let is_it = |challenge: &Challenge| {
            let (Challenge::Path(of, _) | Challenge::Name(of, _)) = challenge;
            **of == *self.token
        };
        if let Some(place) = table.iter().position(is_it) {
            table.swap_remove(place);
        }
        self.of.open.store(table.len(), Ordering::Release);
    }
}

/// Two values are equal only if they are the same object.
impl PartialEq for Challenges {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Challenges {}

impl ResolvesServerCert for Challenges {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown(hello.server_name()?)
    }
}

/// Returns whether a client hello comes from an authority that validates a name (RFC 8737 §3).
#[must_use]
pub fn is_asked_by(hello: &ClientHello<'_>) -> bool {
    let Some(mut protocols) = hello.alpn() else { return false };
    protocols.next() == Some(PROTOCOL) && protocols.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a36_challenges_are_answered_only_while_open() {
        let challenges = Arc::new(Challenges::default());
        assert!(!challenges.is_any_open());
        let one = challenges.open_path("one", "one.thumb").expect("room");
        let two = challenges.open_path("two", "two.thumb").expect("room");
        let answer = |path: &str| challenges.answer(path).map(|answer| answer.to_string());
        assert_eq!(answer("/.well-known/acme-challenge/one").as_deref(), Some("one.thumb"));
        for other in
            ["", "/", "/one", PATH, "/.well-known/acme-challenge/on", "/.well-known/acme-challenge/one/"]
        {
            assert_eq!(answer(other), None, "{other}");
        }
        drop(one);
        assert_eq!(answer("/.well-known/acme-challenge/one"), None);
        assert!(challenges.is_any_open() && answer("/.well-known/acme-challenge/two").is_some());
        drop(two);
        assert!(!challenges.is_any_open());
    }

    #[test]
    fn a36_so_many_challenges_are_open_and_no_more() {
        let challenges = Arc::new(Challenges::default());
        let open = |n: usize| challenges.open_path(&n.to_string(), "");
        let mut opened: Vec<_> = (0..OPEN_MAX).map(|n| open(n).expect("room")).collect();
        assert!(open(OPEN_MAX).is_err());
        opened.pop();
        assert!(open(OPEN_MAX).is_ok());
    }
}
