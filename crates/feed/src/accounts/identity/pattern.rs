//! Subjects and patterns in permission lists: whether a pattern covers a subject, covers another pattern, or
//! overlaps one.
//!
//! A subject consists of tokens between dots. In a pattern `*` matches one token, and `>` at the end matches
//! one or more. Each check reads both texts once, without allocating.

/// Returns whether `pattern` matches everything that `inner` matches. A subject without wildcards is a
/// pattern that matches only itself, so the function also tells whether a pattern matches a subject.
#[inline]
pub fn covers(pattern: &[u8], inner: &[u8]) -> bool {
    // Fast path: most patterns in a list already differ from the subject in the first byte.
    if let (Some(&first), Some(&other)) = (pattern.first(), inner.first())
        && first != other
        && first != b'*'
        && first != b'>'
    {
        return false;
    }
    covers_whole(pattern, inner)
}

fn covers_whole(pattern: &[u8], inner: &[u8]) -> bool {
    let (mut outer_tokens, mut inner_tokens) = (tokens(pattern), tokens(inner));
    loop {
        match (outer_tokens.next(), inner_tokens.next()) {
            (Some(b">"), Some(_)) | (None, None) => return true,
            (Some(b"*"), Some(token)) if token != b">" => {}
            (Some(one), Some(other)) if one == other && one != b">" => {}
            _ => return false,
        }
    }
}

/// Returns whether some subject matches both patterns.
pub fn overlaps(one: &[u8], other: &[u8]) -> bool {
    let (mut one_tokens, mut other_tokens) = (tokens(one), tokens(other));
    loop {
        match (one_tokens.next(), other_tokens.next()) {
            (Some(b">"), Some(_)) | (Some(_), Some(b">")) | (None, None) => return true,
            (Some(b"*"), Some(_)) | (Some(_), Some(b"*")) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

/// Returns whether a text is a valid pattern of a permission list: no empty token, no whitespace in a token,
/// and `>` only as the last token.
pub fn is_valid(pattern: &str) -> bool {
    let count = pattern.split('.').count();
    pattern.split('.').enumerate().all(|(i, token)| match token {
        "" => false,
        ">" => i + 1 == count,
        _ => !token.bytes().any(|byte| byte.is_ascii_whitespace()),
    })
}

fn tokens(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns every subject of up to four tokens over a small alphabet. These subjects tell any two
    /// different patterns of that size apart, provided that one letter occurs in no pattern.
    fn universe() -> Vec<String> {
        let letters = ["a", "b", "z"];
        let mut all: Vec<String> = letters.iter().map(|&letter| letter.to_owned()).collect();
        for _ in 0..3 {
            let longer: Vec<String> =
                all.iter().flat_map(|subject| letters.map(|letter| format!("{subject}.{letter}"))).collect();
            all.extend(longer);
            all.sort();
            all.dedup();
        }
        all
    }

    /// Matches a subject token by token, as the definition says.
    fn matches(pattern: &str, subject: &str) -> bool {
        let (pattern, subject): (Vec<&str>, Vec<&str>) =
            (pattern.split('.').collect(), subject.split('.').collect());
        match pattern.iter().position(|&token| token == ">") {
            Some(at) => {
                subject.len() > at && pattern[..at].iter().zip(&subject).all(|(p, s)| *p == "*" || p == s)
            }
            None => {
                pattern.len() == subject.len()
                    && pattern.iter().zip(&subject).all(|(p, s)| *p == "*" || p == s)
            }
        }
    }

    fn patterns() -> impl Strategy<Value = String> {
        let token = prop_oneof![Just("a"), Just("b"), Just("*")];
        (prop::collection::vec(token, 0..3), any::<bool>()).prop_map(|(mut tokens, full)| {
            if full || tokens.is_empty() {
                tokens.push(">");
            }
            tokens.join(".")
        })
    }

    proptest! {
        #[test]
        fn pattern_walks_agree_with_the_definition(one in patterns(), other in patterns()) {
            let all = universe();
            for subject in &all {
                prop_assert_eq!(covers(one.as_bytes(), subject.as_bytes()), matches(&one, subject), "{} {}", one, subject);
            }
            let inner: Vec<&String> = all.iter().filter(|subject| matches(&other, subject)).collect();
            prop_assert_eq!(
                covers(one.as_bytes(), other.as_bytes()),
                inner.iter().all(|subject| matches(&one, subject))
            );
            prop_assert_eq!(
                overlaps(one.as_bytes(), other.as_bytes()),
                inner.iter().any(|subject| matches(&one, subject))
            );
        }
    }

    #[test]
    fn what_may_stand_in_a_list() {
        for right in ["a", "a.b", "*", ">", "a.*.b", "a.>", "$SYS.>", "_INBOX.>", "a*.b", "é.ü"] {
            assert!(is_valid(right), "{right}");
        }
        for wrong in ["", ".", "a.", ".a", "a..b", ">.a", "a b", "a\t"] {
            assert!(!is_valid(wrong), "{wrong}");
        }
    }
}
