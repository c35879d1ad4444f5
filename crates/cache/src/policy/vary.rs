//! Selecting header fields of a response, and the part of the cache key that they form (RFC 9111 §4.1, RFC
//! 9110 §12.5.5).
//!
//! ```text
//!  Vary: Accept-Encoding, accept-LANGUAGE     Vary (spec):       accept-encoding,accept-language
//!  Accept-Encoding: gzip ,br                  secondary key:     "=br, gzip\n" "-"
//! ```
//!
//! The spec is stored at the address; the key is made from the spec and each request. The key is unambiguous:
//! a value cannot hold LF; `+` or `-` tells an empty value from an absent one (§4.1: an absent header matches
//! only an absent one); and `=` marks a value in its normal form ([`accept`](super::accept)).

use smallvec::SmallVec;
use wire::http1::{
    fields::{is_token, list},
    head::Headers,
    known::KnownHeader,
};

/// Maximum number of header names in one `Vary`; a response with more is not stored
/// ([`VaryFault::TooLarge`]).
pub const VARY_NAMES_MAX: usize = 16;
/// Maximum length of a spec in bytes; a response with a longer one is not stored.
pub const VARY_SPEC_BYTES_MAX: usize = 512;

/// Names in `Vary` in lower case, sorted, without duplicates, separated by commas. Empty if the response does
/// not vary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vary {
    /// Names in the form that [`spec`](Self::spec) documents.
    spec: SmallVec<[u8; 64]>,
}

/// Reason why a response's variants cannot be distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VaryFault {
    /// `*` occurs: the variants depend on things that a cache cannot see.
    Any,
    /// More than [`VARY_NAMES_MAX`] names or [`VARY_SPEC_BYTES_MAX`] bytes.
    TooLarge,
    /// A member is not a token.
    Malformed,
}

impl Vary {
    /// Parses all `Vary` fields of a response.
    ///
    /// # Errors
    /// Returns a [`VaryFault`] if the response matches no other request (RFC 9111 §4.1), so that it is not
    /// worth storing. If several apply, `Any` comes first, then `Malformed`.
    pub fn of(headers: &Headers<'_, '_>) -> Result<Self, VaryFault> {
        if !headers.has(KnownHeader::Vary) {
            return Ok(Self::default());
        }
        let members = || headers.known_all(KnownHeader::Vary).flat_map(list);
        if members().any(|member| member == b"*") {
            return Err(VaryFault::Any);
        }
        if !members().all(is_token) {
            return Err(VaryFault::Malformed);
        }
        let mut names: SmallVec<[SmallVec<[u8; 24]>; VARY_NAMES_MAX]> = SmallVec::new();
        for member in members() {
            let mut name = SmallVec::from_slice(member);
            name.make_ascii_lowercase();
            if let Err(at) = names.binary_search(&name) {
                if names.len() == VARY_NAMES_MAX {
                    return Err(VaryFault::TooLarge);
                }
                names.insert(at, name);
            }
        }
        let mut spec = SmallVec::new();
        for name in &names {
            if !spec.is_empty() {
                spec.push(b',');
            }
            spec.extend_from_slice(name);
        }
        if spec.len() > VARY_SPEC_BYTES_MAX {
            return Err(VaryFault::TooLarge);
        }
        Ok(Self { spec })
    }

    /// Returns the names in lower case, sorted, without duplicates, joined by `,`; at most
    /// [`VARY_SPEC_BYTES_MAX`] bytes.
    pub fn spec(&self) -> &[u8] {
        &self.spec
    }

    /// Returns whether `Vary` names this header (in lower case).
    pub fn names(&self, name: &str) -> bool {
        self.spec.split(|&b| b == b',').any(|named| named == name.as_bytes())
    }

    /// Returns whether the response is the same for every request to its address.
    pub fn is_empty(&self) -> bool {
        self.spec.is_empty()
    }
}

/// Appends the secondary key of a request under a spec; nothing for an empty spec. Allocates only if `out`
/// has too little room (at most the size of the request's head, and two bytes for each name).
///
/// Values are compared as §4.1 allows: lines with the same name are combined, and white space around the
/// commas between list members does not count; in fields whose members ignore case, nor does case. Fields
/// that are not lists are compared byte by byte. A field that is not sent to the origin counts as absent, and
/// a field that we write counts with the value that we send.
pub fn secondary_key(spec: &[u8], fields: &(impl SelectingFields + ?Sized), out: &mut Vec<u8>) {
    if spec.is_empty() {
        return;
    }
    for name in spec.split(|&b| b == b',') {
        // A spec is tokens joined by commas; other bytes (a damaged record) name no header.
        let name = std::str::from_utf8(name).unwrap_or_default();
        let known = KnownHeader::of(name.as_bytes()).filter(|_| is_token(name.as_bytes()));
        if known.is_some_and(|known| fields.append_meaning(known, name, out)) {
            out.push(b'\n');
            continue;
        }
        let mut values = Values::begin(shape(name), out);
        fields.append_values(known, name, &mut values);
        values.end();
    }
}

/// Request fields by which an origin may select a variant: the fields sent to it, except hop-by-hop fields.
pub trait SelectingFields {
    /// Appends `=` and the normal form of a field ([`accept`](super::accept)), if the field has one;
    /// otherwise appends nothing and returns `false`. `name` is in lower case.
    fn append_meaning(&self, known: KnownHeader, name: &str, out: &mut Vec<u8>) -> bool;

    /// Passes the values of a field's lines to `values`, in order.
    fn append_values(&self, known: Option<KnownHeader>, name: &str, values: &mut Values<'_>);
}

/// Way to compare a header's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A list, compared by its members.
    List,
    /// A list, compared by its members and ignoring case.
    CaselessList,
    /// Compared byte by byte: not a list, or a list whose members may hold bare commas.
    Opaque,
}

fn shape(name: &str) -> Shape {
    match name {
        // RFC 9110 §12.5.1, §12.5.2, §12.5.4, §8.4.1: media types, charsets, language tags and codings ignore
        // case. Accept is not among them, because the values of media type parameters may be case-sensitive.
        "accept-charset" | "accept-encoding" | "accept-language" => Shape::CaselessList,
        // Values compared byte by byte: products and comments (§10.1.5), credentials (§11.6.2), cookies (RFC
        // 6265 §4.2), references and dates.
        "user-agent"
        | "cookie"
        | "authorization"
        | "proxy-authorization"
        | "referer"
        | "from"
        | "host"
        | "origin"
        | "if-modified-since"
        | "if-unmodified-since"
        | "date" => Shape::Opaque,
        _ => Shape::List,
    }
}

/// Writer of one field's values into a key.
#[derive(Debug)]
pub struct Values<'o> {
    shape: Shape,
    out: &'o mut Vec<u8>,
    start: usize,
    is_present: bool,
    is_first: bool,
}

impl<'o> Values<'o> {
    fn begin(shape: Shape, out: &'o mut Vec<u8>) -> Self {
        Self { shape, start: out.len(), out, is_present: false, is_first: true }
    }

    /// Adds the value of a line.
    pub fn take(&mut self, value: &[u8]) {
        self.begin_value();
        if self.shape == Shape::Opaque {
            self.append(value);
        } else {
            list(value).for_each(|member| self.append(member));
        }
    }

    /// Adds the value of a line that `write` appends; `write` returns `false` if there is no such line.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let before = (self.out.len(), self.is_present, self.is_first);
        self.begin_value();
        self.separate();
        if !write(self.out) {
            let (length, is_present, is_first) = before;
            self.out.truncate(length);
            (self.is_present, self.is_first) = (is_present, is_first);
        }
    }

    fn begin_value(&mut self) {
        if !std::mem::replace(&mut self.is_present, true) {
            self.out.push(b'+');
        }
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
    }

    fn append(&mut self, part: &[u8]) {
        self.separate();
        self.out.extend_from_slice(part);
    }

    fn end(self) {
        if !self.is_present {
            return self.out.push(b'-');
        }
        if self.shape == Shape::CaselessList {
            self.out[self.start..].make_ascii_lowercase();
        }
        self.out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::test_heads::{with_request, with_response};

    fn vary(headers: &str) -> Result<String, VaryFault> {
        with_response("200 OK", headers, |head| {
            Vary::of(&head.headers).map(|vary| String::from_utf8(vary.spec().to_vec()).unwrap())
        })
    }

    fn key(spec: &str, headers: &str) -> String {
        with_request("GET /", headers, |head| {
            let mut out = Vec::new();
            secondary_key(spec.as_bytes(), &head.headers, &mut out);
            String::from_utf8(out).unwrap()
        })
    }

    #[test]
    fn specs_are_normal() {
        assert_eq!(vary(""), Ok(String::new()));
        assert_eq!(vary("Vary:"), Ok(String::new()));
        assert_eq!(vary("Vary: Foo"), Ok("foo".into()));
        assert_eq!(vary("Vary: b, A ,,B\nVary: c"), Ok("a,b,c".into()));
        for any in ["*", "*, *", ", *", "*, Foo", "Foo, *", "\nVary: *", "a b, *"] {
            assert_eq!(vary(&format!("Vary: {any}")), Err(VaryFault::Any), "{any}");
        }
        assert_eq!(vary("Vary: Accept Encoding"), Err(VaryFault::Malformed));
        assert_eq!(vary("Vary: \"a\""), Err(VaryFault::Malformed));
    }

    #[test]
    fn specs_are_bounded() {
        let names = |n: usize| (0..n).map(|i| format!("x-{i:02}")).collect::<Vec<_>>().join(", ");
        assert!(vary(&format!("Vary: {}", names(VARY_NAMES_MAX))).is_ok());
        assert_eq!(vary(&format!("Vary: {}", names(VARY_NAMES_MAX + 1))), Err(VaryFault::TooLarge));
        let twice = format!("{n}, {n}", n = names(VARY_NAMES_MAX));
        assert!(vary(&format!("Vary: {twice}")).is_ok(), "the same names again are not more names");
        assert!(vary(&format!("Vary: {}", "a".repeat(VARY_SPEC_BYTES_MAX))).is_ok());
        assert_eq!(vary(&format!("Vary: {}", "a".repeat(VARY_SPEC_BYTES_MAX + 1))), Err(VaryFault::TooLarge));
    }

    #[test]
    fn keys_tell_apart_what_differs_and_nothing_else() {
        let same = [
            ("foo", "Foo: 1,2", "Foo:  1,  2 "),
            ("foo", "Foo: 1, 2", "Foo: 1\nFOO: 2"),
            ("foo", "Foo: 1", "Foo: 1,\nFoo:\nFoo: ,"),
            ("foo", "Foo: 1", "Foo:\nFoo: 1"),
            ("foo", "Foo:", "Foo:\nFoo: ,"),
            ("accept-encoding", "Accept-Encoding: GZIP, br", "Accept-Encoding: gzip,br"),
            (
                "accept-encoding",
                "Accept-Encoding: gzip;q=0.7, br, deflate",
                "Accept-Encoding: br\nAccept-Encoding: gzip",
            ),
            ("accept-language", "Accept-Language: de-DE", "Accept-Language: de-de"),
            ("accept-language", "Accept-Language: en, de", "Accept-Language: de, en"),
            ("accept-language", "Accept-Language: x y", "Accept-Language: X Y"),
            ("foo", "Bar: 1", "Bar: 2"),
            ("a,b", "A: 1\nB: 2", "B: 2\nC: 0\nA: 1"),
        ];
        for (spec, one, other) in same {
            assert_eq!(key(spec, one), key(spec, other), "{spec}: {one} / {other}");
        }
        let different = [
            ("foo", "Foo: 1", "Foo: 2"),
            ("foo", "Foo: 1", ""),
            ("foo", "Foo:", ""),
            ("foo", "Foo: 1, 2", "Foo: 2, 1"),
            ("foo", "Foo: a", "Foo: A"),
            ("foo", "Foo: \"a, b\"", "Foo: \"a,b\""),
            ("a,b", "A: 1", "B: 1"),
            ("a,b", "A: -", ""),
            ("user-agent", "User-Agent: x (a, b)", "User-Agent: x (a,b)"),
            ("cookie", "Cookie: a=1, 2", "Cookie: a=1,2"),
            ("accept-language", "Accept-Language: en, de", "Accept-Language: en, de;q=0.9"),
            ("accept-encoding", "Accept-Encoding: identity", ""),
        ];
        for (spec, one, other) in different {
            assert_ne!(key(spec, one), key(spec, other), "{spec}: {one} / {other}");
        }
        assert_eq!(key("", "A: 1"), "");
        assert_eq!(key("accept-encoding,accept-language", "Accept-Encoding: gzip ,br"), "=br, gzip\n-");
    }

    /// The slow twin: for each name in the spec the members of all its lines in order, or `None` if it has no
    /// line.
    fn twin(spec: &str, lines: &[(String, String)]) -> Vec<Option<Vec<String>>> {
        spec.split(',')
            .map(|name| {
                let values: Vec<&String> =
                    lines.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v).collect();
                if values.is_empty() {
                    return None;
                }
                let members = values.iter().flat_map(|value| value.split(','));
                Some(members.map(|m| m.trim().to_owned()).filter(|m| !m.is_empty()).collect())
            })
            .collect()
    }

    fn lines() -> impl Strategy<Value = Vec<(String, String)>> {
        proptest::collection::vec(("[ab]|[AB]|c", "[1-2, +-]{0,5}"), 0..5)
    }

    proptest! {
        /// Two requests have the same key exactly if the twin finds the same selecting headers.
        #[test]
        fn keys_are_equal_exactly_if_the_values_are(one in lines(), other in lines(), spec in "a|b|a,b|a,b,c") {
            let text = |lines: &[(String, String)]| {
                lines.iter().map(|(n, v)| format!("{n}: {v}\n")).collect::<String>()
            };
            let equal = twin(&spec, &one) == twin(&spec, &other);
            prop_assert_eq!(key(&spec, &text(&one)) == key(&spec, &text(&other)), equal);
        }

        #[test]
        fn specs_match_a_sorted_set(names in proptest::collection::vec("[a-dA-D]{1,2}", 0..12)) {
            let set: BTreeSet<String> = names.iter().map(|n| n.to_ascii_lowercase()).collect();
            let want = set.into_iter().collect::<Vec<_>>().join(",");
            prop_assert_eq!(vary(&format!("Vary: {}", names.join(" , "))), Ok(want));
        }

        #[test]
        fn no_allocation_where_there_is_room(lines in lines()) {
            let text: String = lines.iter().map(|(n, v)| format!("{n}: {v}\n")).collect();
            with_request("GET /", &text, |head| {
                let mut out = Vec::with_capacity(512);
                let before = (out.as_ptr(), out.capacity());
                secondary_key(b"a,b,c", &head.headers, &mut out);
                assert_eq!((out.as_ptr(), out.capacity()), before);
            });
        }
    }
}
