//! Texts as they are compared in a search: without case, accents and other forms of the same letters.
//!
//! Compatibility decomposition (Unicode UAX 15, NFKD) takes letters and their marks apart and full-width letters,
//! ligatures and long s to their plain forms; the marks of Latin, Greek and Cyrillic are then left out, and letters that
//! have no decomposition are written as people without that key write them (`ß` as `ss`). Both sides of a comparison are
//! folded, so `strasse` finds `Straße`, `cafe` finds `Café`, and the other way round.

use unicode_normalization::UnicodeNormalization;

/// A text folded.
#[must_use]
pub fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut folded = String::with_capacity(text.len());
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
            // At the end of a word.
            'ς' => folded.push('σ'),
            letter => folded.push(letter),
        }
    }
    folded
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
        /// What is folded is folded, whatever it was, and what is searched for in it may be folded before or after.
        #[test]
        fn folding_twice_is_folding_once(text in any::<String>()) {
            let once = fold(&text);
            prop_assert_eq!(fold(&once), once);
        }
    }
}
