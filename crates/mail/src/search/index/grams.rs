//! Trigrams of a folded text: sequences of three bytes. A text that contains a word has all grams of the
//! word.
//!
//! Grams with a blank or a control character are left out, because texts are joined with these. Grams that
//! nearly every mail has (from names of fields and months, and the most common English ones) are left out,
//! too: they do not distinguish mails and would fill a third of the index. Queries leave out the same grams,
//! so that nothing is missed.

/// Length of a gram.
const GRAM_BYTES: usize = 3;
/// Number of possible grams.
const GRAMS: usize = 1 << 24;
/// Maximum number of grams that are looked up for a query.
const ASKED_MAX: usize = 16;
/// Folded text that nearly every mail has. Changing it requires a new version of the segments.
const COMMON: &str = "received: from localhost with esmtp esmtps smtp lmtp http id by for unknown ([127.0.0.1]) ([::1]) \
     date: mon, tue, wed, thu, fri, sat, sun, jan feb mar apr may jun jul aug sep oct nov dec 2025 2026 2027 2028 2029 \
     00:00 +0000 +0100 +0200 gmt utc from: to: cc: subject: message-id: reply-to: return-path: mime-version: 1.0 \
     content-type: text/plain; text/html; multipart/alternative; multipart/mixed; charset=utf-8 charset=\"utf-8\" \
     boundary=\" content-transfer-encoding: quoted-printable base64 7bit 8bit content-disposition: inline attachment; \
     filename=\" list-unsubscribe: https:// http:// www. .com .org .net .example dkim-signature: x-mailer: \
     the and ing ion tio ent ati for her ter hat tha ere ate his con res ver all ons nce men ith ted ers pro thi wit are \
     ess not ive was ect rea com eve per int est sta cti ica ist ear ain one our iti rat nter ment tion that with have \
     this from they will your which would there their what about when make like time just know take into could them than";

fn of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.windows(GRAM_BYTES).filter(|window| window.iter().all(|byte| *byte > b' ')).map(number)
}

fn number(window: &[u8]) -> u32 {
    window.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Extracts the grams of a text.
pub(super) struct Finder {
    /// Bitmap of grams that are common, or were found in the current text.
    seen: Box<[u64]>,
    found: Vec<u32>,
}

impl Finder {
    pub(super) fn new() -> Self {
        let mut finder = Self { seen: vec![0; GRAMS / 64].into(), found: Vec::new() };
        for gram in of(COMMON.as_bytes()) {
            finder.is_new(gram);
        }
        finder
    }

    fn is_new(&mut self, gram: u32) -> bool {
        let (word, bit) = (&mut self.seen[gram as usize / 64], 1 << (gram % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Returns each gram of a folded text once, without the common ones.
    pub(super) fn grams(&mut self, text: &str) -> &[u32] {
        for gram in std::mem::take(&mut self.found) {
            self.seen[gram as usize / 64] &= !(1 << (gram % 64));
        }
        let mut found = Vec::new();
        for gram in of(text.as_bytes()) {
            if self.is_new(gram) {
                found.push(gram);
            }
        }
        self.found = found;
        &self.found
    }
}

/// Returns the grams that a text with all of these folded words must have; empty if the words have only
/// common grams.
pub(super) fn query_grams<'a>(words: impl Iterator<Item = &'a str>) -> Vec<u32> {
    let common: std::collections::HashSet<u32> = of(COMMON.as_bytes()).collect();
    let mut asked: Vec<u32> = words.flat_map(|word| of(word.as_bytes())).collect();
    asked.sort_unstable();
    asked.dedup();
    asked.retain(|gram| !common.contains(gram));
    // If there are many grams, only some that are far apart are used, as neighbours often occur together.
    let step = asked.len().div_ceil(ASKED_MAX).max(1);
    asked.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blanks_and_what_all_mails_have_say_nothing() {
        let mut finder = Finder::new();
        assert!(finder.grams("content-type: ab \n ab").is_empty());
        let xyz = number(b"xyz");
        assert_eq!(finder.grams("xyzxyz"), [xyz, number(b"yzx"), number(b"zxy")]);
        assert_eq!(finder.grams("xyz"), [xyz], "what was found before is forgotten");
        assert!(query_grams(["received", "xy", "a b"].into_iter()).is_empty());
        let long: String = (0..200).map(|n| char::from_u32(0x4e00 + n).unwrap()).collect();
        assert!((2..=ASKED_MAX).contains(&query_grams(std::iter::once(&*long)).len()));
    }

    proptest! {
        #[test]
        fn text_grams_include_all_query_grams(text in "\\PC{0,60}", from in 0usize..60, len in 1usize..20) {
            let text = crate::search::fold(&text);
            let word: String = text.chars().skip(from).take(len).collect();
            let mut finder = Finder::new();
            let grams = finder.grams(&text);
            for gram in query_grams(std::iter::once(&*word)) {
                prop_assert!(grams.contains(&gram));
            }
        }
    }
}
