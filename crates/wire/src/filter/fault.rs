//! What is wrong with an expression, and where.

/// Characters that are shown before the one that is wrong, and from it on.
const SHOWN_BEFORE: usize = 60;
const SHOWN_AFTER: usize = 30;

/// An expression that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: found {found}, expected {expected}")]
pub struct Fault {
    /// Offset of the byte that is wrong, or of the end where something is missing.
    pub at: usize,
    /// What stands there.
    pub found: String,
    /// What could stand there.
    pub expected: String,
}

impl Fault {
    pub(super) fn new(at: usize, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { at, found: found.into(), expected: expected.into() }
    }

    /// Two lines: the expression around the byte, and below that byte a caret with what is wrong.
    ///
    /// `expression` is the one that was refused.
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

/// A line stays a line, and a terminal as it is.
pub(super) fn visible(character: char) -> char {
    if character.is_whitespace() {
        ' '
    } else if character.is_control() {
        '\u{fffd}'
    } else {
        character
    }
}
