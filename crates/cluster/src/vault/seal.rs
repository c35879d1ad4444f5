//! Encryption of the values in the bucket: the cluster's operator sees that a value exists, but can neither
//! read nor forge it.
//!
//! ```text
//!   version 1 │ nonce 12 │ AES-256-GCM ( flag 1 · value ) and its tag 16          bound to its bucket and key
//! ```
//! The key is derived from the secret by HKDF (RFC 5869). *Not prevented:* restoring an older value of a key,
//! or removing a key; an attacker able to do that can stop the cluster as well.

use std::fmt;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, RandomizedNonceKey},
    hkdf::{HKDF_SHA256, Salt},
};

/// Format version, the first byte of a value.
const VERSION: u8 = 1;
const NONCE_BYTES: usize = 12;
/// Context string for deriving the key.
const PURPOSE: &[u8] = b"nighttrain cluster vault, version 1";

/// Secrets of all instances: the first one encrypts, and each of them decrypts, so that a secret can be
/// replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    /// Creates a set of secrets; the first one encrypts.
    #[must_use]
    pub fn new(first: Vec<u8>, others: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self([first].into_iter().chain(others).collect())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// A decrypted value, and whether its writer wants confirmations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlainValue {
    /// True if each instance that sees the value must confirm it.
    pub(super) is_confirmed: bool,
    pub(super) value: Vec<u8>,
}

/// Secret with which a value was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SealingSecret {
    /// The first secret, which is used to encrypt.
    ByFirst,
    /// Another secret, which is only used to decrypt.
    ByOther,
}

/// Encrypts and decrypts values.
pub(super) struct Sealer {
    keys: Vec<RandomizedNonceKey>,
    bucket: String,
}

/// Error from sealing or opening a value. Opening fails if the secret, key or bucket is not the one with
/// which the value was sealed, or if the value is not a sealed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SealError;

impl Sealer {
    pub(super) fn new(secrets: &Secrets, bucket: &str) -> Result<Self, SealError> {
        let key = |secret: &Vec<u8>| {
            let drawn = Salt::new(HKDF_SHA256, &[]).extract(secret);
            let mut key = [0; 32];
            let filled = drawn.expand(&[PURPOSE], &AES_256_GCM).and_then(|drawn| drawn.fill(&mut key));
            filled.and_then(|()| RandomizedNonceKey::new(&AES_256_GCM, &key)).map_err(|_| SealError)
        };
        Ok(Self { keys: secrets.0.iter().map(key).collect::<Result<_, _>>()?, bucket: bucket.to_owned() })
    }

    fn place(&self, key: &str) -> Aad<Vec<u8>> {
        Aad::from([self.bucket.as_bytes(), b"\0", key.as_bytes()].concat())
    }

    pub(super) fn seal(&self, key: &str, opened: &PlainValue) -> Result<Vec<u8>, SealError> {
        let mut content = Vec::with_capacity(opened.value.len() + 64);
        content.push(u8::from(opened.is_confirmed));
        content.extend_from_slice(&opened.value);
        let nonce =
            self.keys[0].seal_in_place_append_tag(self.place(key), &mut content).map_err(|_| SealError)?;
        Ok([&[VERSION][..], nonce.as_ref(), &content].concat())
    }

    pub(super) fn open(&self, key: &str, sealed: &[u8]) -> Result<(PlainValue, SealingSecret), SealError> {
        let (&[VERSION], rest) = sealed.split_first_chunk().ok_or(SealError)? else { return Err(SealError) };
        let (nonce, content) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError)?;
        self.keys
            .iter()
            .enumerate()
            .find_map(|(place, with)| {
                let mut content = content.to_vec();
                let opened = with.open_in_place(nonce.into(), self.place(key), &mut content).ok()?;
                let (mark, value) = opened.split_first()?;
                let opened = PlainValue { is_confirmed: *mark == 1, value: value.to_vec() };
                Some((opened, if place == 0 { SealingSecret::ByFirst } else { SealingSecret::ByOther }))
            })
            .ok_or(SealError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealer(secrets: &[&str], bucket: &str) -> Sealer {
        let mut all = secrets.iter().map(|secret| secret.as_bytes().to_vec());
        Sealer::new(&Secrets::new(all.next().expect("one"), all), bucket).expect("a sealer")
    }

    proptest! {
        #[test]
        fn a36_a_sealed_value_opens_only_unchanged_in_place(
            value in prop::collection::vec(any::<u8>(), 0..300), is_confirmed: bool, at: prop::sample::Index, bit in 0_u8..8,
        ) {
            let ours = sealer(&["secret"], "b");
            let opened = PlainValue { is_confirmed, value };
            let sealed = ours.seal("k", &opened).expect("sealed");
            prop_assert_eq!(ours.open("k", &sealed), Ok((opened.clone(), SealingSecret::ByFirst)));
            prop_assert_ne!(ours.seal("k", &opened).expect("sealed"), sealed.clone(), "each with a nonce of its own");
            for other in [ours.open("l", &sealed), sealer(&["secret"], "c").open("k", &sealed), sealer(&["Secret"], "b").open("k", &sealed)] {
                prop_assert_eq!(other, Err(SealError));
            }
            let mut damaged = sealed.clone();
            let at = at.index(damaged.len());
            damaged[at] ^= 1 << bit;
            prop_assert_eq!(ours.open("k", &damaged), Err(SealError));
            for end in 0..sealed.len() {
                prop_assert_eq!(ours.open("k", &sealed[..end]), Err(SealError));
            }
        }
    }

    #[test]
    fn a36_a_secret_is_changed_while_both_are_known() {
        let opened = PlainValue { is_confirmed: false, value: b"PRIVATE KEY".to_vec() };
        let before = sealer(&["old"], "b").seal("k", &opened).expect("sealed");
        let during = sealer(&["new", "old"], "b");
        assert_eq!(during.open("k", &before), Ok((opened.clone(), SealingSecret::ByOther)));
        let after = during.seal("k", &opened).expect("sealed");
        assert_eq!(sealer(&["new"], "b").open("k", &after), Ok((opened, SealingSecret::ByFirst)));
        assert_eq!(sealer(&["old"], "b").open("k", &after), Err(SealError));
        assert!(!after.windows(7).any(|window| window == b"PRIVATE"));
    }
}
