//! Tags of an answer: words by which an origin purges all answers that show the same thing.
//!
//! ```text
//!  Surrogate-Key: product-7 list    ──of──▶  hashes, sorted, each once  ──section──▶  extra bytes of the record
//!  X-Magento-Tags: cat_p_7,cat_p                                        ◀──stored──
//! ```
//! A tag is stored as a hash, seeded by the store (`docs/formats/store.md`, *Extra*). A purge compares
//! numbers, and the memory of an object does not depend on the length of its tags. Clients do not get the tag
//! fields: [`append_origin_head`](crate::head::response_head::append_origin_head) removes them.

use engine::{store::Hash, sys::span::Span};

/// Maximum number of tags of one answer. An answer with more is not stored, because not all of its tags could
/// purge it.
pub(crate) const TAGS_MAX: usize = 1024;
/// Maximum total length of an answer's tag fields in bytes; an answer with longer ones is not stored.
pub(crate) const TAGS_BYTES_MAX: usize = 32 * 1024;

/// Default names of the tag fields: those used by Fastly and Varnish's plug-ins, vmod_xkey, Cloudflare,
/// Drupal, FOSHttpCache and Magento.
pub(crate) const TAG_FIELDS: [&str; 6] =
    ["Surrogate-Key", "xkey", "Cache-Tag", "Cache-Tags", "X-Cache-Tags", "X-Magento-Tags"];

/// Number of the section with the tags' hashes in an object's extra bytes.
const SECTION: u32 = 1;
/// Number of the section with the text of the tags, as written in a field. The section is stored if there are
/// peers, because peers hash with another seed.
const WORDS_SECTION: u32 = 2;
/// Number of the section with the time at which the request for a short-lived answer was sent.
const FETCHED_SECTION: u32 = 3;
const SECTION_HEADER_BYTES: usize = 8;
const WORD: usize = size_of::<u64>();

/// Error: the answer has more tags than [`TAGS_MAX`], or longer tag fields than [`TAGS_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// Splits a field's value into tags.
pub(crate) fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|word| !word.is_empty())
}

/// Returns whether a field of this name carries tags.
pub(crate) fn is_field(fields: &[Box<str>], name: &[u8]) -> bool {
    fields.iter().any(|field| field.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the hashes of the tags in these fields, sorted and without duplicates; `None` if there is no tag
/// field.
pub(crate) fn of<'h>(
    headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    fields: &[Box<str>],
    hash: impl Fn(&[u8]) -> Hash,
) -> Result<Option<Vec<u64>>, TooMany> {
    let (mut tags, mut bytes, mut is_tagged) = (Vec::new(), 0, false);
    for (_, value) in headers.filter(|(name, _)| is_field(fields, name)) {
        is_tagged = true;
        bytes += value.len();
        if bytes > TAGS_BYTES_MAX {
            return Err(TooMany);
        }
        tags.extend(words(value).map(|tag| hash(tag).word()));
    }
    tags.sort_unstable();
    tags.dedup();
    if tags.len() > TAGS_MAX {
        return Err(TooMany);
    }
    Ok(is_tagged.then_some(tags))
}

/// Returns the tags in these fields as words, separated by spaces.
pub(crate) fn text<'h>(headers: impl Iterator<Item = (&'h [u8], &'h [u8])>, fields: &[Box<str>]) -> Vec<u8> {
    let mut text = Vec::new();
    for (_, value) in headers.filter(|(name, _)| is_field(fields, name)) {
        for word in words(value) {
            text.extend_from_slice(word);
            text.push(b' ');
        }
    }
    text.pop();
    text
}

/// Encodes the extra bytes of an object with these tags, with their text and the time at which its request
/// was sent, if given.
pub(crate) fn extra(tags: &[u64], words: &[u8], fetched_ms: Option<u64>) -> Vec<u8> {
    let mut extra = section(tags);
    if let Some(fetched_ms) = fetched_ms {
        append_header(&mut extra, FETCHED_SECTION, WORD);
        extra.extend_from_slice(&fetched_ms.to_le_bytes());
    }
    if !words.is_empty() {
        append_header(&mut extra, WORDS_SECTION, words.len());
        extra.extend_from_slice(words);
        extra.resize(extra.len().next_multiple_of(WORD), 0);
    }
    extra
}

/// Returns the time at which the request for an object was sent, in milliseconds since 1970; `None` if it was
/// not stored.
pub(crate) fn fetched_ms(extra: Span<'_>) -> Result<Option<u64>, TagsError> {
    let fetched = section_of(extra, FETCHED_SECTION)?;
    if fetched.is_empty() {
        return Ok(None);
    }
    if fetched.len() != WORD {
        return Err(TagsError);
    }
    Ok(Some(word(fetched, 0)))
}

/// Returns the text of an object's tags; `None` if the object has tags whose text was not stored.
pub(crate) fn stored_words(extra: Span<'_>) -> Result<Option<Vec<u8>>, TagsError> {
    let words = section_of(extra, WORDS_SECTION)?;
    if words.is_empty() {
        return Ok(section_of(extra, SECTION)?.is_empty().then(Vec::new));
    }
    let mut text = Vec::with_capacity(words.len());
    words.copy_to(&mut text);
    Ok(Some(text))
}

fn append_header(extra: &mut Vec<u8>, section: u32, bytes: usize) {
    extra.extend_from_slice(&section.to_le_bytes());
    extra.extend_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
}

/// Reads a word of a section.
fn word(section: Span<'_>, number: usize) -> u64 {
    let mut word = [0; WORD];
    section.slice(number * WORD..(number + 1) * WORD).copy_to_slice(&mut word);
    u64::from_le_bytes(word)
}

/// Encodes the section with these tags' hashes; empty without tags.
pub(crate) fn section(tags: &[u64]) -> Vec<u8> {
    if tags.is_empty() {
        return Vec::new();
    }
    let mut extra = Vec::with_capacity(SECTION_HEADER_BYTES + tags.len() * WORD);
    append_header(&mut extra, SECTION, tags.len() * WORD);
    extra.extend(tags.iter().flat_map(|tag| tag.to_le_bytes()));
    extra
}

/// Error: the extra bytes are not a valid sequence of sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TagsError;

/// Returns the tags' hashes in an object's extra bytes. Unknown sections are skipped.
pub(crate) fn stored(extra: Span<'_>) -> Result<impl ExactSizeIterator<Item = u64> + '_, TagsError> {
    let tags = section_of(extra, SECTION)?;
    if tags.len() % WORD != 0 {
        return Err(TagsError);
    }
    Ok((0..tags.len() / WORD).map(move |number| word(tags, number)))
}

fn section_of(extra: Span<'_>, wanted: u32) -> Result<Span<'_>, TagsError> {
    let mut rest = extra;
    while !rest.is_empty() {
        if rest.len() < SECTION_HEADER_BYTES {
            return Err(TagsError);
        }
        let number = |at: usize| {
            let mut word = [0; 4];
            rest.slice(at..at + 4).copy_to_slice(&mut word);
            u32::from_le_bytes(word)
        };
        let bytes = usize::try_from(number(4)).map_err(|_| TagsError)?;
        let end =
            SECTION_HEADER_BYTES.checked_add(bytes).filter(|end| *end <= rest.len()).ok_or(TagsError)?;
        if number(0) == wanted {
            return Ok(rest.slice(SECTION_HEADER_BYTES..end));
        }
        rest = rest.slice(end.next_multiple_of(WORD).min(rest.len())..rest.len());
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn fields() -> Vec<Box<str>> {
        TAG_FIELDS.map(Into::into).to_vec()
    }

    fn hash(tag: &[u8]) -> Hash {
        Hash::seeded(tag, 7)
    }

    #[test]
    fn tag_words_are_stored_for_peers() {
        let headers = [(&b"Surrogate-Key"[..], &b"a  b,c"[..]), (b"X", b"y"), (b"xkey", b"d")];
        let words = text(headers.into_iter(), &fields());
        assert_eq!(words, b"a b c d");
        let tags = hashes(&["a", "b", "c", "d"]);
        with_span(&extra(&tags, &words, Some(77)), |span| {
            assert_eq!(fetched_ms(span), Ok(Some(77)));
            assert!(stored(span).expect("sections").eq(tags.iter().copied()));
            assert_eq!(stored_words(span), Ok(Some(words.clone())));
        });
        with_span(&extra(&tags, b"", None), |span| {
            assert_eq!((stored_words(span), fetched_ms(span)), (Ok(None), Ok(None)));
        });
        with_span(b"", |span| assert_eq!(stored_words(span), Ok(Some(Vec::new()))));
    }

    fn hashes(tags: &[&str]) -> Vec<u64> {
        let mut hashes: Vec<u64> = tags.iter().map(|tag| hash(tag.as_bytes()).word()).collect();
        hashes.sort_unstable();
        hashes
    }

    fn read(head: &str) -> Result<Option<Vec<u64>>, TooMany> {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        of(lines.map(|(name, value)| (name.as_bytes(), value.trim().as_bytes())), &fields(), hash)
    }

    /// Calls `with` on a span of these bytes, as the store would present them.
    fn with_span<R>(extra: &[u8], with: impl FnOnce(Span<'_>) -> R) -> R {
        let words: Vec<AtomicU64> = (0..extra.len().div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect();
        let span = Span::new(&words, 0..extra.len());
        span.write_from(extra);
        with(span)
    }

    fn stored_in(extra: &[u8]) -> Result<Vec<u64>, TagsError> {
        with_span(extra, |span| stored(span).map(Iterator::collect))
    }

    #[test]
    fn tags_are_words_of_any_such_field() {
        assert_eq!(read("X: a"), Ok(None));
        assert_eq!(read("Surrogate-Key:"), Ok(Some(Vec::new())));
        for head in [
            "Surrogate-Key: a b\nXKEY: c",
            "X-Magento-Tags: b,a , c",
            "Cache-Tag: a,,b\nCache-Tag: c a",
            "x-cache-tags: c\nCache-Tags: a\tb",
        ] {
            assert_eq!(read(head), Ok(Some(hashes(&["a", "b", "c"]))), "{head}");
        }
        // Tags are case-sensitive.
        assert_eq!(read("xkey: A"), Ok(Some(hashes(&["A"]))));
    }

    #[test]
    fn what_has_too_many_is_not_kept() {
        let list = |count: usize| (0..count).map(|tag| tag.to_string()).collect::<Vec<_>>().join(" ");
        let of = |list: &str| read(&format!("xkey: {list}"));
        assert_eq!(of(&list(TAGS_MAX)).map(|tags| tags.map(|tags| tags.len())), Ok(Some(TAGS_MAX)));
        assert_eq!(of(&list(TAGS_MAX + 1)), Err(TooMany));
        assert!(of(&"a ".repeat(TAGS_BYTES_MAX / 2 - 1)).is_ok(), "the same one counts once");
        assert_eq!(read(&format!("xkey: {}\nCache-Tag: aa", "a".repeat(TAGS_BYTES_MAX - 1))), Err(TooMany));
    }

    #[test]
    fn tags_are_stored_and_found() {
        for tags in [&[][..], &[1], &[1, 2, u64::MAX]] {
            assert_eq!(stored_in(&section(tags)).as_deref(), Ok(tags));
        }
        // An unknown section, with its padding, comes first.
        let other = [&[2, 0, 0, 0, 3, 0, 0, 0][..], b"abc\0\0\0\0\0", &section(&[5, 6])].concat();
        assert_eq!(stored_in(&other), Ok(vec![5, 6]));
        assert_eq!(stored_in(&other[..11]), Ok(Vec::new()), "padding that is not there is nobody's loss");
        // Extra bytes cut anywhere else are invalid.
        for cut in [1, 7, 8, 10, 17, 20, 24, 31] {
            assert_eq!(stored_in(&other[..cut]), Err(TagsError), "{cut}");
        }
        assert_eq!(stored_in(&[1, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4]), Err(TagsError), "half a tag");
        assert_eq!(stored_in(&[1, 0, 0, 0, 255, 255, 255, 255]), Err(TagsError));
    }
}
