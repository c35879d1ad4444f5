//! The key under which an answer is stored: which host, which path and query; and which variant.
//!
//! `host [:port] NUL path ?query`, the host in lower case and without port 80 (RFC 9110 §4.2.3). A NUL can be in
//! neither part, so no two requests share a key by accident. A variant's key has a second NUL, the generation of the
//! list of headers that it varies by, and their values (RFC 9111 §4.1).

use engine::store::Hash;
use wire::http1::{
    head::{Headers, RequestHead},
    url::{Scheme, Target},
};

use crate::policy::{invalidate::Base, vary::secondary_key};

/// Port that a key leaves out.
const HTTP_PORT: u16 = 80;

/// Writes the key of a request into `key`.
#[inline]
pub(crate) fn of_request(head: &RequestHead<'_, '_>, key: &mut Vec<u8>) {
    key.clear();
    if let Some(authority) = head.authority() {
        authority.normalise_into(HTTP_PORT, key);
    }
    key.push(0);
    match Target::parse(head.method, head.target) {
        Some((_, target)) => append_path(target.path_and_query, key),
        None => key.extend_from_slice(head.target.as_bytes()),
    }
}

/// Writes the key of a URL (`http://host/path`) into `key`; false if it is none.
pub(crate) fn of_url(url: &str, key: &mut Vec<u8>) -> bool {
    key.clear();
    let Some((_, Target { authority: Some(authority), path_and_query, .. })) = Target::parse("GET", url)
    else {
        return false;
    };
    authority.normalise_into(HTTP_PORT, key);
    key.push(0);
    append_path(path_and_query, key);
    true
}

/// The part of a key that names the host, with the NUL that ends it.
pub(crate) fn host_of(key: &[u8]) -> &[u8] {
    &key[..memchr::memchr(0, key).map_or(0, |at| at + 1)]
}

/// What references in the answer to a request are relative to; `None` if it names no host or no path.
pub(crate) fn base_of<'a>(head: &RequestHead<'a, '_>) -> Option<Base<'a>> {
    let (_, target) = Target::parse(head.method, head.target)?;
    let path_and_query = target.path_and_query;
    path_and_query.starts_with('/').then_some(())?;
    Some(Base { scheme: Scheme::Http, authority: head.authority()?, path_and_query })
}

fn append_path(path_and_query: &str, key: &mut Vec<u8>) {
    // RFC 9110 §4.2.3: an empty path means `/`.
    if !path_and_query.starts_with('/') {
        key.push(b'/');
    }
    key.extend_from_slice(path_and_query.as_bytes());
}

/// Makes a primary key that of the variant for a request: `spec` names the headers, `generation` is the sequence number
/// of the record that holds the spec. A purge drops that record, and the next one has another number: what was stored
/// under the old one is not found any more.
pub(crate) fn append_variant(key: &mut Vec<u8>, generation: u64, spec: &[u8], headers: &Headers<'_, '_>) {
    key.push(0);
    key.extend_from_slice(&generation.to_le_bytes());
    secondary_key(spec, headers, key);
}

/// The hash of a variant's key (`own`): as good as any, but owned by the core that owns the primary key, which is the one
/// that writes both.
pub(crate) fn hash_of_variant(primary: Hash, own: Hash) -> Hash {
    // The store chooses the owner by the low half of a hash.
    const OWNER: u64 = 0xffff_ffff;
    Hash::from_word((own.word() & !OWNER) | (primary.word() & OWNER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        of_url(text, &mut key).then_some(key)
    }

    #[test]
    fn equivalent_urls_have_one_key() {
        assert_eq!(url("http://Example.org"), url("http://example.org:80/"));
        assert_ne!(url("http://example.org/a"), url("http://example.org/A"));
        assert_ne!(url("http://example.org:8080/"), url("http://example.org/"));
        assert_eq!(url("example.org/"), None);
        assert_eq!(url("/path"), None);
    }

    #[test]
    fn a_variant_is_owned_where_its_url_is() {
        let primary = url("http://a.example/x").expect("a URL");
        let hash = Hash::seeded(&primary, 7);
        for generation in 0..1000 {
            let mut key = primary.clone();
            key.push(0);
            key.extend_from_slice(&u64::to_le_bytes(generation));
            for cores in [1, 2, 3, 7, 64] {
                assert_eq!(hash_of_variant(hash, Hash::seeded(&key, 7)).owner(cores), hash.owner(cores));
            }
        }
    }
}
