//! Error type for rejected filter expressions: the offset of the invalid byte, what was found there and what
//! was expected.

/// Number of characters of the expression that an error message shows before the invalid byte; `SHOWN_AFTER`
/// is the number shown from that byte on.
const SHOWN_BEFORE: usize = 60;
const SHOWN_AFTER: usize = 30;

/// Error for an expression that was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: found {found}, expected {expected}")]
pub struct Fault {
    /// Offset of the invalid byte, or the expression's length if something is missing at its end.
    pub at: usize,
    /// Description of the text found at that offset.
    pub found: String,
    /// Description of what would have been valid at that offset.
    pub expected: String,
}

impl Fault {
    pub(super) fn new(at: usize, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { at, found: found.into(), expected: expected.into() }
    }

    /// Renders the error as two lines: an excerpt of the expression, and below the invalid byte a caret with
    /// the message.
    ///
    /// `expression` must be the expression that was rejected.
    pub fn marked(&self, expression: &[u8]) -> String {
        let (before, after) = expression.split_at(self.at.min(expression.len()));
        let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
        let left_out = before.chars().count().saturating_sub(SHOWN_BEFORE);
        let mut shown: String = if left_out > 0 { "…" } else { "" }.to_owned();
        shown.extend(before.chars().skip(left_out).map(visible));
        let indent = " ".repeat(shown.chars().count());
        shown.extend(after.chars().take(SHOWN_AFTER).map(visible));
        if after.chars().nth(SHOWN_AFTER).is_some() {
            shown.push('…');
        }
        format!("{shown}\n{indent}^ found {}, expected {}", self.found, self.expected)
    }
}

/// Replaces white space with a space and control characters with U+FFFD, so that the output stays on one line
/// and cannot disturb a terminal.
pub(super) fn visible(character: char) -> char {
    if character.is_whitespace() {
        ' '
    } else if character.is_control() {
        '\u{fffd}'
    } else {
        character
    }
}
