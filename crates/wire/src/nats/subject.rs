//! Subjects: tokens separated by dots. A pattern may contain `*`, which matches one token, and `>` as its
//! last token, which matches one or more.

/// Splits a subject into tokens. An empty token (`a..b`) becomes an empty slice.
pub fn tokens(subject: &[u8]) -> impl Iterator<Item = &[u8]> {
    subject.split(|&byte| byte == b'.')
}

/// Returns whether a client may subscribe to the pattern: no token is empty, `>` is a whole token only at the
/// end, and there are no blanks. `foo*` and `>x` are ordinary tokens.
#[must_use]
pub fn is_valid_pattern(pattern: &[u8]) -> bool {
    let mut ended = false;
    for token in tokens(pattern) {
        if ended
            || token.is_empty()
            || token.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xc))
        {
            return false;
        }
        ended = token == b">";
    }
    true
}

/// Returns whether the subject is valid and has no wildcards.
#[must_use]
pub fn is_valid_literal(subject: &[u8]) -> bool {
    is_valid_pattern(subject) && !has_wildcard(subject)
}

/// Returns whether a token is `*` or `>`.
#[must_use]
pub fn has_wildcard(pattern: &[u8]) -> bool {
    memchr::memchr2(b'*', b'>', pattern).is_some()
        && tokens(pattern).any(|token| token == b"*" || token == b">")
}

/// Returns whether a message to `subject` goes to a subscriber of `pattern`. Neither is validated: a subject
/// with an empty token matches nothing, and `*` in it is an ordinary token. The comparison stops at the first
/// token that differs.
#[must_use]
pub fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    compare(pattern, subject, false)
}

/// Does the same as [`matches()`] for a subject that [`is_valid_literal`] has accepted: the tokens that `>`
/// covers are not checked again.
#[must_use]
pub fn matches_valid(pattern: &[u8], subject: &[u8]) -> bool {
    compare(pattern, subject, true)
}

fn compare(pattern: &[u8], subject: &[u8], is_valid: bool) -> bool {
    let (mut wanted, mut present) = (tokens(pattern), tokens(subject));
    loop {
        match (wanted.next(), present.next()) {
            (None, None) => return true,
            (Some(b">"), Some(have)) => {
                return is_valid || !have.is_empty() && present.all(|token| !token.is_empty());
            }
            (Some(want), Some(have)) if !have.is_empty() && (want == b"*" || want == have) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_are_valid() {
        for good in ["a", "a.b", "*", ">", "a.*.b", "a.>", "foo*", "a.>b", "\u{e9}.x"] {
            assert!(is_valid_pattern(good.as_bytes()), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", ">.a", "a.>.b", "a b", "a\tb"] {
            assert!(!is_valid_pattern(bad.as_bytes()), "{bad}");
        }
        assert!(is_valid_literal(b"foo*") && !is_valid_literal(b"foo.*") && !is_valid_literal(b">"));
    }

    #[test]
    fn which_match() {
        for (pattern, subject) in
            [("a.b", "a.b"), ("a.*", "a.b"), (">", "a"), (">", "a.b.c"), ("a.>", "a.b.c"), ("foo.*", "foo.*")]
        {
            assert!(matches(pattern.as_bytes(), subject.as_bytes()), "{pattern} {subject}");
            assert!(matches_valid(pattern.as_bytes(), subject.as_bytes()), "{pattern} {subject}");
        }
        for (pattern, subject) in [
            ("a.b", "a"),
            ("a", "a.b"),
            ("a.*", "a"),
            ("a.*", "a.b.c"),
            ("a.>", "a"),
            (">", "a..b"),
            (">", ".a"),
            ("a.>", "a.b."),
            ("a..b", "a..b"),
            ("a.*", "a."),
        ] {
            assert!(!matches(pattern.as_bytes(), subject.as_bytes()), "{pattern} {subject}");
        }
    }
}
