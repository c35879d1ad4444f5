//! Tokens of subjects, patterns and labels.

/// Maximum number of bytes of a label, unless its first token is longer.
pub(super) const LABEL_BYTES_MAX: usize = 256;

/// Returns the first token of a pattern, a label or a subject.
pub(super) fn first_token(of: &[u8]) -> &[u8] {
    memchr::memchr(b'.', of).map_or(of, |end| &of[..end])
}

/// Returns whether `token` is a label's first token.
#[inline]
pub(super) fn begins_with(label: &[u8], token: &[u8]) -> bool {
    label.starts_with(token) && ends_token(label, token.len())
}

/// Returns whether a token ends before this index.
#[inline]
fn ends_token(of: &[u8], at: usize) -> bool {
    of.get(at).is_none_or(|&byte| byte == b'.')
}

/// Returns the longest prefix of a pattern, in whole tokens, that fits into a new node's label.
pub(super) fn label_of(pattern: &[u8]) -> &[u8] {
    if pattern.len() <= LABEL_BYTES_MAX {
        return pattern;
    }
    let end = memchr::memrchr(b'.', &pattern[..=LABEL_BYTES_MAX]);
    end.map_or_else(|| first_token(pattern), |end| &pattern[..end])
}

/// Returns the length in bytes of the leading tokens that a label and a pattern have in common.
pub(super) fn common_tokens(label: &[u8], pattern: &[u8]) -> usize {
    let equal = label.iter().zip(pattern).take_while(|(one, other)| one == other).count();
    if ends_token(label, equal) && ends_token(pattern, equal) {
        return equal;
    }
    memchr::memrchr(b'.', &label[..equal]).unwrap_or(0)
}

/// Matches the tokens of a label against a subject, starting at an offset. Returns the offset after the
/// matched tokens, or `None` if they do not match, and the number of tokens that were compared.
pub(super) fn match_tokens(label: &[u8], subject: &[u8], mut offset: usize) -> (Option<usize>, usize) {
    let mut compared = 0;
    for token in wire::nats::subject::tokens(label) {
        compared += 1;
        let Some(rest) = subject.get(offset..) else { return (None, compared) };
        match token {
            b">" => return (Some(subject.len() + 1), compared),
            b"*" => offset += first_token(rest).len() + 1,
            _ if begins_with(rest, token) => offset += token.len() + 1,
            _ => return (None, compared),
        }
    }
    (Some(offset), compared)
}

/// Returns the number of tokens in a pattern or subject.
pub(crate) fn tokens_of(pattern: &[u8]) -> usize {
    1 + memchr::memchr_iter(b'.', pattern).count()
}

pub(super) fn has_empty_token(subject: &[u8]) -> bool {
    let mut before = b'.';
    for &byte in subject {
        if byte == b'.' && before == b'.' {
            return true;
        }
        before = byte;
    }
    before == b'.'
}
