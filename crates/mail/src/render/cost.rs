//! What HTML costs to take apart, counted before it is done.
//!
//! The parser's rules (HTML, 13.2) bound nothing, and what is built to hurt needs few bytes:
//! - each attribute of a tag is compared with all before it: one tag with 60,000 took 11 s;
//! - most tags walk the stack of open elements, however deep it is;
//! - formatting elements that were left open are made again in each block that follows, attributes and all (13.2.4.3):
//!   10,000 of them before 10,000 paragraphs, in 200 KB, are a hundred million elements;
//! - what may not stand in a table is put before it, where its place is looked for among all that stands there.
//!
//! ```text
//!  source ─▶ attributes, by the tokenizer's rules ─▶ the parser, on a tree that counts as it grows ─▶ written anew
//!                       │ too many                                │ too many, too deep, too long
//!                       └───────────────────┬─────────────────────┘
//!                                         HtmlLimit: the text is shown instead
//! ```
//! The tree is in `render::tree`; here are the bounds, and what is counted before the parser sees anything.

use super::until::{StepLimit, StepLimitReached};

/// HTML with more tags is not shown as such.
pub const TAGS_MAX: usize = 20_000;
/// Attributes of one tag. Layouts have up to thirty.
pub const TAG_ATTRIBUTES_MAX: usize = 256;
/// Attributes of all elements that the parser makes.
pub const ATTRIBUTES_MAX: usize = 200_000;
/// Elements that the parser makes: those of the tags, and those that it makes again.
pub const ELEMENTS_MAX: usize = 50_000;
/// Elements within elements; browsers flatten what is deeper (Blink's `kMaximumHTMLParserDOMTreeDepth`).
pub const DEPTH_MAX: usize = 512;
/// Looks at open elements and at children that are moved. A newsletter of 50 KB with 2,000 elements takes 20,000.
pub const LOOKS_MAX: usize = 5_000_000;
/// So many bytes go to the parser between two looks at what they cost.
const PIECE_BYTES: usize = 1024;
/// Bytes that are gone through for attributes, as a multiple of the source's. More than once each is only gone through
/// what looks like a tag within a tag.
const SCANNED_TIMES_MAX: usize = 8;

/// A bound that HTML is beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HtmlLimit {
    /// [`TAGS_MAX`]
    #[error("it has more than {TAGS_MAX} tags")]
    Tags,
    /// [`TAG_ATTRIBUTES_MAX`], or tags within tags.
    #[error("a tag of it has more than {TAG_ATTRIBUTES_MAX} attributes")]
    TagAttributes,
    /// [`ATTRIBUTES_MAX`]
    #[error("its elements have more than {ATTRIBUTES_MAX} attributes")]
    Attributes,
    /// [`ELEMENTS_MAX`]
    #[error("it makes more than {ELEMENTS_MAX} elements")]
    Elements,
    /// [`DEPTH_MAX`]
    #[error("its elements are nested more than {DEPTH_MAX} deep")]
    Depth,
    /// [`LOOKS_MAX`]
    #[error("its elements are nested so that they take too long to sort out")]
    Looks,
    /// Whoever asked for it has said that the time is up.
    #[error("it takes too long to be made safe")]
    Time,
}

/// Whether the parser may see it: what a tree cannot count while it grows.
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

/// A text in pieces of about `PIECE_BYTES`, between characters.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Where a tokenizer is within a tag (HTML, 13.2.5.8 and 13.2.5.32 to 40).
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagState {
    TagName,
    /// Before a name: an attribute's, or none.
    Between,
    Name,
    AfterName,
    BeforeValue,
    Quoted(u8),
    Unquoted,
}

/// No tag has too many attributes. What is a tag is not known here (a comment, a style and a value may have in them what
/// looks like one), so each place where one may begin is looked at: those where one does are among them.
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

/// The attributes of the tag whose name begins here, at most one too many, and how far it was read.
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
        /// Values are leapt over: what is in them counts for nothing, wherever they end.
        #[test]
        fn a_tag_has_the_attributes_that_it_was_made_of(values in proptest::collection::vec("[a<>=/ \t]{0,6}", 0..6), rest in "[a\"'>= ]{0,9}") {
            let mut tag = "td".to_owned();
            for (n, value) in values.iter().enumerate() {
                let (quote, other) = if n % 2 == 0 { ('"', '\'') } else { ('\'', '"') };
                tag.push_str(&format!(" x{n} = {quote}{value}{other}{quote}"));
            }
            let end = tag.len();
            tag.push('>');
            tag.push_str(&rest);
            prop_assert_eq!(attributes_of(tag.as_bytes()), (values.len(), end));
            // The last value is not closed: it goes to the end.
            if !values.is_empty() {
                let open = &tag.as_bytes()[..end - 1];
                prop_assert_eq!(attributes_of(open), (values.len(), open.len()));
            }
        }
    }
}
