//! Fingerprints that identify nearly equal mails of one campaign.
//!
//! The fingerprint is MinHash (Broder 1997) over runs of three words in the first bytes of the body: the
//! minimum of each of four hash functions. Two mails that share a fraction *s* of their runs agree in each
//! band with probability *s*. Tokens that are not plain words (codes, addresses, dates, numbers in the
//! markup) are left out, because they differ between mails of one campaign. Fingerprints only feed the rate
//! limits: no mail is ever replaced by a similar one.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of hash functions, one for each band of the fingerprint.
const BANDS: usize = 4;
/// A mail belongs to a campaign if at least this many of its bands exceed their rate.
pub(super) const BANDS_ALIKE: usize = 3;
/// Number of bytes at the beginning of the body that are fingerprinted.
const BODY_BYTES_MAX: usize = 4096;
/// Minimum number of three-word runs for a meaningful fingerprint.
const RUNS_MIN: usize = 8;
/// Lengths of the words that enter the fingerprint; shorter and longer tokens are skipped.
const WORD_LETTERS: std::ops::RangeInclusive<usize> = 2..=WORD_LETTERS_MAX;
const WORD_LETTERS_MAX: usize = 20;

/// Returns the fingerprint of a mail's body, one hash per band, or `None` if the body has too little text.
pub(super) fn fingerprint(mail: &[u8], seed: u64) -> Option<[u64; BANDS]> {
    let body = memchr::memmem::find(mail, b"\r\n\r\n").map_or(mail, |end| &mail[end + 4..]);
    let body = &body[..body.len().min(BODY_BYTES_MAX)];
    let words = body
        .split(|byte| !(byte.is_ascii_alphanumeric() || *byte >= 0x80))
        .filter(|word| WORD_LETTERS.contains(&word.len()) && !word.iter().any(u8::is_ascii_digit));
    let mut least = [u64::MAX; BANDS];
    let (mut before, mut runs) = ([0u64; 2], 0);
    for word in words {
        // The lower-case copy is on the stack: allocating every word took a tenth of the time per mail.
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
    // The rotation differs between bands, so that equal minima in two bands map to different slots.
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
    fn personalized_mails_of_a_campaign_are_alike() {
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
