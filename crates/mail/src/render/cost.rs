//! Limits on the cost of parsing HTML, checked before and during parsing.
//!
//! The parsing rules (HTML, 13.2) have no limits, and a few bytes of hostile HTML can be expensive:
//! - each attribute of a tag is compared with all previous ones: a tag with 60,000 attributes took 11 s;
//! - most tags walk the stack of open elements, whose depth is unlimited;
//! - unclosed formatting elements are reconstructed in each following block, attributes included (13.2.4.3):
//!   10,000 of them before 10,000 paragraphs, in 200 KB, are a hundred million elements;
//! - content that is not allowed in a table is inserted before the table, and finding the position walks over
//!   everything already inserted there.
//!
//! ```text
//!  source ─▶ attributes, by the tokenizer's rules ─▶ the parser, on a tree that counts as it grows ─▶ rewritten
//!                       │ too many                                │ too many, too deep, too long
//!                       └───────────────────┬─────────────────────┘
//!                                         HtmlLimit: the text is shown instead
//! ```
//! The tree is in `render::tree`; this module defines the limits and makes the checks before parsing.

use super::until::{StepLimit, StepLimitReached};

/// Maximum number of tags; HTML with more is shown as text.
pub const TAGS_MAX: usize = 20_000;
/// Maximum number of attributes of one tag. Real layouts have up to thirty.
pub const TAG_ATTRIBUTES_MAX: usize = 256;
/// Maximum number of attributes of all elements that the parser creates.
pub const ATTRIBUTES_MAX: usize = 200_000;
/// Maximum number of elements that the parser creates, reconstructed ones included.
pub const ELEMENTS_MAX: usize = 50_000;
/// Deepest nesting of elements; browsers flatten deeper ones (Blink's `kMaximumHTMLParserDOMTreeDepth`).
pub const DEPTH_MAX: usize = 512;
/// Maximum number of visits to open elements and moved children. A newsletter of 50 KB with 2,000 elements
/// takes 20,000.
pub const LOOKS_MAX: usize = 5_000_000;
/// Number of bytes given to the parser between two checks of the cost.
const PIECE_BYTES: usize = 1024;
/// Maximum number of bytes scanned for attributes, as a multiple of the source's size. Only text that looks
/// like a tag within a tag is scanned more than once.
const SCANNED_TIMES_MAX: usize = 8;

/// A limit that HTML exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HtmlLimit {
    /// More than [`TAGS_MAX`] tags.
    #[error("the HTML has more than {TAGS_MAX} tags")]
    Tags,
    /// More than [`TAG_ATTRIBUTES_MAX`] attributes in a tag, or too many tags within tags.
    #[error("a tag has more than {TAG_ATTRIBUTES_MAX} attributes")]
    TagAttributes,
    /// More than [`ATTRIBUTES_MAX`] attributes.
    #[error("the elements have more than {ATTRIBUTES_MAX} attributes")]
    Attributes,
    /// More than [`ELEMENTS_MAX`] elements.
    #[error("the HTML has more than {ELEMENTS_MAX} elements")]
    Elements,
    /// Elements nested deeper than [`DEPTH_MAX`].
    #[error("the elements are nested more than {DEPTH_MAX} deep")]
    Depth,
    /// More than [`LOOKS_MAX`] visits to elements.
    #[error("misnested elements take too long to repair")]
    Looks,
    /// The caller's step limit was reached.
    #[error("sanitizing the HTML takes too long")]
    Time,
}

/// Checks, before parsing, the limits that cannot be counted while the tree grows.
pub(super) fn check(source: &str, until: &StepLimit) -> Result<(), HtmlLimit> {
    until.pay(source.len())?;
    if memchr::memchr_iter(b'<', source.as_bytes()).count() > TAGS_MAX {
        return Err(HtmlLimit::Tags);
    }
    check_attributes(source.as_bytes(), until)
}

impl From<StepLimitReached> for HtmlLimit {
    fn from(StepLimitReached: StepLimitReached) -> Self {
        Self::Time
    }
}

/// Splits a text into pieces of about `PIECE_BYTES`, at character boundaries.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// State of the tokenizer within a tag (HTML, 13.2.5.8 and 13.2.5.32 to 40).
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagState {
    TagName,
    /// Before an attribute's name, or the end of the tag.
    Between,
    Name,
    AfterName,
    BeforeValue,
    Quoted(u8),
    Unquoted,
}

/// Checks that no tag has too many attributes. Without parsing it is unknown which `<` begins a tag
/// (comments, styles and values may contain text that looks like one), so every candidate is checked, which
/// includes all real tags.
fn check_attributes(html: &[u8], until: &StepLimit) -> Result<(), HtmlLimit> {
    let mut scannable = html.len().saturating_mul(SCANNED_TIMES_MAX);
    for bracket in memchr::memchr_iter(b'<', html) {
        let after = &html[bracket + 1..];
        let name = after.strip_prefix(b"/").unwrap_or(after);
        if !name.first().is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let (attributes, scanned) = attributes_of(name);
        until.pay(scanned)?;
        scannable = scannable.saturating_sub(scanned);
        if attributes > TAG_ATTRIBUTES_MAX || scannable == 0 {
            return Err(HtmlLimit::TagAttributes);
        }
    }
    Ok(())
}

/// Counts the attributes of a tag, given the source from the tag's name on, and returns the count and the
/// offset at which reading ended. Stops as soon as the count exceeds [`TAG_ATTRIBUTES_MAX`].
fn attributes_of(tag: &[u8]) -> (usize, usize) {
    let mut within = TagState::TagName;
    let mut attributes = 0;
    let mut at = 0;
    while let Some(&byte) = tag.get(at) {
        let blank = matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ');
        let here = at;
        at += 1;
        within = match within {
            TagState::Quoted(quote) => {
                let Some(end) = memchr::memchr(quote, &tag[here..]) else { break };
                at = here + end + 1;
                TagState::Between
            }
            _ if byte == b'>' => return (attributes, here),
            TagState::BeforeValue if blank => continue,
            TagState::BeforeValue if matches!(byte, b'"' | b'\'') => TagState::Quoted(byte),
            TagState::BeforeValue | TagState::Unquoted if !blank => TagState::Unquoted,
            TagState::Name | TagState::AfterName if byte == b'=' => TagState::BeforeValue,
            TagState::TagName | TagState::Name if !blank && byte != b'/' => continue,
            TagState::Name if blank => TagState::AfterName,
            TagState::AfterName if blank => continue,
            _ if blank || byte == b'/' => TagState::Between,
            _ => {
                attributes += 1;
                if attributes > TAG_ATTRIBUTES_MAX {
                    return (attributes, here);
                }
                TagState::Name
            }
        };
    }
    (attributes, tag.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Attribute values are skipped: tag characters within a value never count as attributes.
        #[test]
        fn attributes_of_a_tag_are_counted_exactly(values in proptest::collection::vec("[a<>=/ \t]{0,6}", 0..6), rest in "[a\"'>= ]{0,9}") {
            let mut tag = "td".to_owned();
            for (n, value) in values.iter().enumerate() {
                let (quote, other) = if n % 2 == 0 { ('"', '\'') } else { ('\'', '"') };
                tag.push_str(&format!(" x{n} = {quote}{value}{other}{quote}"));
            }
            let end = tag.len();
            tag.push('>');
            tag.push_str(&rest);
            prop_assert_eq!(attributes_of(tag.as_bytes()), (values.len(), end));
            // An unclosed last value extends to the end of the input.
            if !values.is_empty() {
                let open = &tag.as_bytes()[..end - 1];
                prop_assert_eq!(attributes_of(open), (values.len(), open.len()));
            }
        }
    }
}
