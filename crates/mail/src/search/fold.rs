//! Folds texts for search: removes case, accents and other variants of the same letters.
//!
//! Compatibility decomposition (Unicode UAX 15, NFKD) splits letters from their combining marks, and maps
//! full-width letters, ligatures and long s to their plain forms. The marks of Latin, Greek and Cyrillic are
//! then dropped, and letters without a decomposition are replaced by their usual spelling on other keyboards
//! (`ß` by `ss`). Both sides of a comparison are folded, so `strasse` finds `Straße`, `cafe` finds `Café`,
//! and vice versa.

use unicode_normalization::{UnicodeNormalization, char::canonical_combining_class};

use crate::render::{StepLimit, StepLimitReached};

/// Bytes folded at a time; the step limit is checked before each piece.
const PIECE_BYTES: usize = 4096;
/// Steps charged for a byte of non-ASCII text, which is decomposed and may grow to up to eleven bytes.
const STEPS_A_BYTE: usize = 16;

/// Returns the folded text.
#[must_use]
pub fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    push_folded(text, &mut folded);
    folded
}

/// Appends the folded text until `until` ends.
///
/// # Errors
/// [`StepLimitReached`] when `until` ends; `folded` then contains the text folded so far.
pub(super) fn fold_into(text: &str, folded: &mut String, until: &StepLimit) -> Result<(), StepLimitReached> {
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(piece_end(rest));
        until.pay(if piece.is_ascii() { piece.len() } else { STEPS_A_BYTE * piece.len() })?;
        push_folded(piece, folded);
        rest = after;
    }
    Ok(())
}

/// Returns the end of a piece. A piece ends before a character that does not combine with the previous one,
/// if there is one in the next [`PIECE_BYTES`]. A longer run of combining marks is split, which can only
/// change their order.
fn piece_end(text: &str) -> usize {
    let begin = text.floor_char_boundary(PIECE_BYTES);
    let mut next = text[begin..].char_indices();
    let parts = |letter: char| canonical_combining_class(letter) == 0;
    let within = next.by_ref().take_while(|(at, _)| *at < PIECE_BYTES).find(|(_, letter)| parts(*letter));
    match within {
        Some((at, _)) => begin + at,
        None => text.floor_char_boundary(2 * PIECE_BYTES),
    }
}

/// Appends the folded text.
pub(super) fn push_folded(text: &str, folded: &mut String) {
    if text.is_ascii() {
        let begin = folded.len();
        folded.push_str(text);
        folded[begin..].make_ascii_lowercase();
        return;
    }
    for letter in text.nfkd().flat_map(char::to_lowercase) {
        match letter {
            // Combining diacritical marks.
            '\u{300}'..='\u{36f}' => {}
            'ß' => folded.push_str("ss"),
            'æ' => folded.push_str("ae"),
            'œ' => folded.push_str("oe"),
            'þ' => folded.push_str("th"),
            'ø' => folded.push('o'),
            'đ' | 'ð' => folded.push('d'),
            'ł' => folded.push('l'),
            'ħ' => folded.push('h'),
            'ı' => folded.push('i'),
            // Sigma at the end of a word.
            'ς' => folded.push('σ'),
            letter => folded.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn case_and_accents_do_not_matter() {
        for (one, other) in [
            ("Straße", "STRASSE"),
            ("Café", "cafe\u{301}"),
            ("CAFE", "café"),
            ("İstanbul", "istanbul"),
            ("Łódź", "lodz"),
            ("ÆRØ", "aero"),
            ("ΟΔΥΣΣΕΥΣ", "Οδυσσεύς"),
            ("Ёлка", "елка"),
            ("Ｆｕｌｌ", "full"),
            ("ﬁne", "FINE"),
            ("ẞ", "ss"),
        ] {
            assert_eq!(fold(one), fold(other), "{one}");
        }
        assert_ne!(fold("が"), fold("か"), "another letter, not another accent");
        assert_eq!(fold("Plain-ASCII 7"), "plain-ascii 7");
    }

    proptest! {
        #[test]
        fn a_text_in_pieces_folds_as_one(letters in "[aßÅé\u{301}\u{323}\u{fdfa}が]{0,3}", times in 0usize..4_000) {
            let text = letters.repeat(times);
            let mut folded = String::new();
            fold_into(&text, &mut folded, &StepLimit::default()).unwrap();
            // A text of combining marks alone may be split between two of them, which may change their order.
            if letters.chars().any(|letter| canonical_combining_class(letter) == 0) {
                prop_assert_eq!(folded, fold(&text));
            }
        }

        /// Folding is idempotent: text and query may be folded before or after they are joined.
        #[test]
        fn folding_twice_is_folding_once(text in any::<String>()) {
            let once = fold(&text);
            prop_assert_eq!(fold(&once), once);
        }
    }
}
