//! Encoded words (RFC 2047), including those that senders split within a character.

use std::borrow::Cow;

use base64::{
    Engine as _, alphabet,
    engine::{
        DecodePaddingMode, GeneralPurpose,
        general_purpose::{GeneralPurposeConfig, STANDARD},
    },
};
use memchr::{memchr, memmem};

use super::{charset, transfer};

/// Maximum length of a charset name.
const CHARSET_BYTES_MAX: usize = 60;

/// Lenient base64, as some senders omit the padding or set the unused last bits.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A run of encoded words in one charset with only blanks between them, or the text between two runs.
enum Piece<'a> {
    Plain(&'a [u8]),
    Words {
        charset: &'a [u8],
        /// Joined bytes of all words: a character may begin in one and end in the next.
        bytes: Vec<u8>,
        count: usize,
    },
}

/// Decodes the encoded words of a value; the rest is decoded as UTF-8, or as the most common charset of
/// programs that do not declare one.
pub(super) fn decoded(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for piece in pieces(value) {
        match piece {
            Piece::Plain(plain) => text.push_str(&charset::decoded(None, plain)),
            Piece::Words { charset, bytes, .. } => {
                text.push_str(&charset::decoded(Some(&String::from_utf8_lossy(charset)), &bytes));
            }
        }
    }
    text
}

/// Returns the value with each run of words in one charset joined into a single word, for a parser that
/// decodes word by word.
pub(super) fn joined(value: &[u8]) -> Cow<'_, [u8]> {
    let pieces = pieces(value);
    if !pieces.iter().any(|piece| matches!(piece, Piece::Words { count: 2.., .. })) {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    for piece in pieces {
        match piece {
            Piece::Plain(plain) => out.extend_from_slice(plain),
            Piece::Words { charset, bytes, .. } => {
                for part in [b"=?", charset, b"?B?", STANDARD.encode(&bytes).as_bytes(), b"?="] {
                    out.extend_from_slice(part);
                }
            }
        }
    }
    Cow::Owned(out)
}

fn pieces(value: &[u8]) -> Vec<Piece<'_>> {
    let end = memmem::Finder::new("?=");
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    // `begin` is the first byte that is in no piece yet; `end_at` avoids a second search for the same end of
    // a word.
    let (mut begin, mut end_at) = (0, 0);
    for at in memmem::find_iter(value, "=?") {
        if at < begin {
            continue;
        }
        let Some((charset, coding, text)) =
            opening(&value[at..]).map(|(charset, coding, text)| (charset, coding, at + text))
        else {
            continue;
        };
        if end_at < text {
            match end.find(&value[text..]) {
                Some(found) => end_at = text + found,
                None => break,
            }
        }
        let encoded = &value[text..end_at];
        let Some(bytes) = word(coding, encoded) else { continue };
        let between = &value[begin..at];
        let after = end_at + 2;
        let is_apart = !between.trim_ascii().is_empty() || pieces.is_empty();
        match pieces.last_mut() {
            // Blanks between two encoded words are not part of the text.
            Some(Piece::Words { charset: own, bytes: all, count })
                if !is_apart && own.eq_ignore_ascii_case(charset) =>
            {
                all.extend_from_slice(&bytes);
                *count += 1;
            }
            last => {
                let follows_word = matches!(last, Some(Piece::Words { .. })) && !is_apart;
                if !follows_word && !between.is_empty() {
                    pieces.push(Piece::Plain(between));
                }
                pieces.push(Piece::Words { charset, bytes, count: 1 });
            }
        }
        begin = after;
    }
    if begin < value.len() {
        pieces.push(Piece::Plain(&value[begin..]));
    }
    pieces
}

/// Parses the beginning of an encoded word and returns the charset without a language (RFC 2231, 5), the
/// encoding, and the offset of the text.
fn opening(word: &[u8]) -> Option<(&[u8], u8, usize)> {
    let name = word.get(2..)?;
    let end = name.iter().take(CHARSET_BYTES_MAX).position(|byte| *byte == b'?')?;
    let charset = &name[..end];
    if end == 0 || charset.iter().any(u8::is_ascii_whitespace) || name.get(end + 2) != Some(&b'?') {
        return None;
    }
    let charset = charset.split(|byte| *byte == b'*').next()?;
    Some((charset, name[end + 1].to_ascii_lowercase(), 2 + end + 3))
}

/// Decodes the text of a word.
fn word(coding: u8, text: &[u8]) -> Option<Vec<u8>> {
    match coding {
        b'q' => {
            let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'_' { b' ' } else { *byte }).collect();
            Some(escapes(&spaced))
        }
        // Base64 contains no question mark. The check comes first: in a thousand unclosed words, each would
        // otherwise copy all the following ones.
        b'b' if memchr(b'?', text).is_none() => {
            let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            LENIENT.decode(text).ok()
        }
        _ => None,
    }
}

/// Decodes the hexadecimal escapes (`=E9`) of an encoded word, which has no line breaks.
fn escapes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr(b'=', rest) {
        out.extend_from_slice(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match after.get(..2).and_then(|two| Some(transfer::hex(two[0])? << 4 | transfer::hex(two[1])?))
        {
            Some(byte) => {
                out.push(byte);
                &after[2..]
            }
            None => {
                out.push(b'=');
                after
            }
        };
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_decoded_together() {
        for (value, text) in [
            (&b"=?utf-8?q?caf=C3?= =?utf-8?q?=A9?="[..], "café"),
            (b"=?utf-8?B?4oI=?=\r\n =?UTF-8?b?rA==?= x", "€ x"),
            (b"=?utf-8?B?4oI?= =?utf-8?q?=AC_a?=", "€ a"),
            (b"a =?utf-8?q?b?= c =?utf-8?q?d?= =?iso-8859-1?q?=E9?=", "a b c dé"),
            (b"=?utf-8?q?a=ZZ_=3D?=", "a=ZZ ="),
            (b"=?utf-8*de?q?=C3=BC?=", "ü"),
            (b"=?utf-8?x?a?= =?utf-8?b?***?=", "=?utf-8?x?a?= =?utf-8?b?***?="),
            (b"=?utf-8?q?no end", "=?utf-8?q?no end"),
            (b"=?", "=?"),
            (b"caf\xe9", "café"),
            (b"=?utf-8?q??=", ""),
        ] {
            assert_eq!(decoded(value), text, "{}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn a_run_becomes_one_word() {
        assert_eq!(&*joined(b"=?utf-8?q?=C3?= =?utf-8?q?=A9?= <a@b>"), b"=?utf-8?B?w6k=?= <a@b>");
        assert!(matches!(joined(b"=?utf-8?q?a?= <a@b>"), Cow::Borrowed(_)));
    }
}
