//! Fingerprints by which nearly equal mails of one campaign are recognized.
//!
//! The fingerprint is MinHash (Broder 1997) over runs of three words of the body's first bytes: the least
//! value of each of four hash functions. Two mails that share a fraction *s* of their runs agree in each band
//! with probability *s*. Tokens that are not words of letters (codes, addresses, dates, numbers of the
//! markup) are left out, as they differ between mails of one campaign. Fingerprints are used for rates only:
//! no mail is ever replaced by a similar one.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of hash functions.
const BANDS: usize = 4;
/// Number of bands over their rate that make a mail part of a campaign.
pub(super) const BANDS_ALIKE: usize = 3;
/// Bytes of the body that are fingerprinted.
const BODY_BYTES_MAX: usize = 4096;
/// Fewest runs that make a meaningful fingerprint.
const RUNS_MIN: usize = 8;
/// Word lengths that count; shorter and longer tokens are left out.
const WORD_LETTERS: std::ops::RangeInclusive<usize> = 2..=WORD_LETTERS_MAX;
const WORD_LETTERS_MAX: usize = 20;

/// Returns the bands of a mail, or `None` if it has too little text.
pub(super) fn fingerprint(mail: &[u8], seed: u64) -> Option<[u64; BANDS]> {
    let body = memchr::memmem::find(mail, b"\r\n\r\n").map_or(mail, |end| &mail[end + 4..]);
    let body = &body[..body.len().min(BODY_BYTES_MAX)];
    let words = body
        .split(|byte| !(byte.is_ascii_alphanumeric() || *byte >= 0x80))
        .filter(|word| WORD_LETTERS.contains(&word.len()) && !word.iter().any(u8::is_ascii_digit));
    let mut least = [u64::MAX; BANDS];
    let (mut before, mut runs) = ([0u64; 2], 0);
    for word in words {
        // The copy is on the stack: an allocation for each word was a tenth of the cost of a mail.
        let mut lower = [0; WORD_LETTERS_MAX];
        let lower = &mut lower[..word.len()];
        lower.copy_from_slice(word);
        lower.make_ascii_lowercase();
        let word = xxh3_64_with_seed(lower, seed);
        let run = before[0].rotate_left(21) ^ before[1].rotate_left(42) ^ word;
        for (band, least) in least.iter_mut().enumerate() {
            *least = (*least).min(xxh3_64_with_seed(&run.to_le_bytes(), band as u64));
        }
        before = [before[1], word];
        runs += 1;
    }
    // Rotated, so that the same least value in another band gives another slot.
    (runs >= RUNS_MIN).then(|| std::array::from_fn(|band| least[band].rotate_left(16 * band as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(a: &str, b: &str) -> usize {
        let (a, b) = (fingerprint(a.as_bytes(), 1), fingerprint(b.as_bytes(), 1));
        a.into_iter().flatten().zip(b.into_iter().flatten()).filter(|(a, b)| a == b).count()
    }

    fn code(code: &str, name: &str) -> String {
        format!(
            "Subject: {code}\r\n\r\nDear {name}, your one-time code for the night train is {code}. It is valid for ten \
             minutes. Do not give it to anybody, not even to the conductor of the train. If you did not ask for it \
             then somebody else has tried to board with your ticket, and you should write to us at once."
        )
    }

    #[test]
    fn mails_that_differ_in_code_and_name_are_alike() {
        assert!(alike(&code("481 516", "Ann"), &code("234 200", "Benjamin")) >= BANDS_ALIKE);
    }

    #[test]
    fn other_texts_are_not() {
        let other = "Subject: x\r\n\r\nThe quick brown fox jumps over the lazy dog while five boxing wizards jump \
                     quickly and the bright vixens doze for the fowl quack";
        assert_eq!(alike(&code("1", "Ann"), other), 0);
    }

    #[test]
    fn too_little_text_says_nothing() {
        assert_eq!(fingerprint(b"Subject: x\r\n\r\nhello there", 1), None);
        assert_eq!(fingerprint(b"", 1), None);
    }
}
