//! What a certificate authority asks for before it gives a certificate for a name (ACME), while it may ask.
//!
//! ```text
//!   who obtains certificates ─ open_path, open_name ─▶ [ tokens · names ] ◀─ answer, resolve ─ who serves
//!                              ChallengeGuard's drop closes
//! ```
//! - *http-01* (RFC 8555 §8.3): `GET /.well-known/acme-challenge/TOKEN`, answered with a text.
//! - *tls-alpn-01* (RFC 8737): a handshake for the protocol [`PROTOCOL`], answered with a certificate made for it.
//!
//! *Who reads it:* a request whose path begins as above, and a handshake that asks for nothing but that protocol; and
//! both only while something is open, which is a word that nobody writes most of the time. *Bound:* [`OPEN_MAX`].

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

/// The protocol by ALPN under which an authority looks at a name (RFC 8737 §3).
pub const PROTOCOL: &[u8] = b"acme-tls/1";
/// Where an authority looks (RFC 8555 §8.3); the token follows.
pub const PATH: &str = "/.well-known/acme-challenge/";
/// Challenges that are open at once: one for each name of a certificate, of which public authorities take a hundred.
pub const OPEN_MAX: usize = 128;

/// The challenges that are open.
#[derive(Debug, Default)]
pub struct Challenges {
    /// How many.
    open: AtomicUsize,
    table: RwLock<Vec<Challenge>>,
}

#[derive(Debug)]
enum Challenge {
    /// Of a token, its answer.
    Path(Box<str>, Arc<str>),
    /// Of a name, its certificate.
    Name(Box<str>, Arc<CertifiedKey>),
}

/// Why a challenge cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ChallengeError {
    /// There are [`OPEN_MAX`] open.
    #[error("{OPEN_MAX} challenges are open already")]
    TooMany,
    /// The key cannot be used.
    #[error("{0}")]
    Key(rustls::Error),
}

/// A challenge that is open until this is dropped.
#[derive(Debug)]
pub struct ChallengeGuard {
    of: Arc<Challenges>,
    token: Box<str>,
}

impl Challenges {
    /// Answers a token with this text from now on.
    ///
    /// # Errors
    /// [`ChallengeError::TooMany`]
    pub fn open_path(self: &Arc<Self>, token: &str, answer: &str) -> Result<ChallengeGuard, ChallengeError> {
        self.open(token, Challenge::Path(token.into(), answer.into()))
    }

    /// Shows this certificate to an authority that looks at a name. An address is looked at by its name in the reverse
    /// tree (RFC 8738 §6). It is no certificate for anybody else: of its critical extension rustls knows nothing, and would
    /// not take it as one.
    ///
    /// # Errors
    /// [`ChallengeError`]
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

    /// Whether an authority may ask for anything now.
    #[inline]
    #[must_use]
    pub fn is_any_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// What a request for this path is answered with, if it is a challenge's.
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

/// Equal if they are one.
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

/// Whether a client asks for nothing but to look at a name (RFC 8737 §3).
#[must_use]
pub fn is_asked_by(hello: &ClientHello<'_>) -> bool {
    let Some(mut protocols) = hello.alpn() else { return false };
    protocols.next() == Some(PROTOCOL) && protocols.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a36_challenges_are_answered_while_they_are_open_and_no_longer() {
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
