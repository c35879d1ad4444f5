//! Parser for control lines: words between blanks, and sizes in digits.

/// Maximum number of digits of a size; nats-server refuses longer ones, leading zeros included.
pub(crate) const SIZE_DIGITS_MAX: usize = 9;

/// Splits a control line into words. Blanks are space and tab; a CR within the line is part of a word.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| is_blank(byte)).filter(|word| !word.is_empty())
}

#[inline]
pub(crate) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Parses a size: one to nine digits and nothing else.
#[inline]
pub(crate) fn size(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > SIZE_DIGITS_MAX {
        return None;
    }
    digits.iter().try_fold(0, |sum, &byte| byte.is_ascii_digit().then(|| sum * 10 + usize::from(byte - b'0')))
}

/// Splits a line into up to `N` words and returns their number; `Err` if there are more. Unused elements of
/// the array are empty slices.
#[inline]
pub(crate) fn split<const N: usize>(line: &[u8]) -> Result<([&[u8]; N], usize), ()> {
    let mut found: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    for word in words(line) {
        if count == N {
            return Err(());
        }
        found[count] = word;
        count += 1;
    }
    Ok((found, count))
}

/// Removes the line end: the LF and one CR before it.
#[inline]
pub(crate) fn without_end(line_with_lf: &[u8]) -> &[u8] {
    let line = &line_with_lf[..line_with_lf.len() - 1];
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns the part of `line` from the first byte of `first` to the last byte of `last`.
pub(crate) fn from_to<'a>(line: &'a [u8], first: &[u8], last: &[u8]) -> &'a [u8] {
    let at = |part: &[u8]| part.as_ptr().addr() - line.as_ptr().addr();
    &line[at(first)..at(last) + last.len()]
}

/// Returns whether single spaces separate the words of a line, and CR LF ends it.
pub(crate) fn is_canonical(line: &[u8], arguments: &[u8], words: usize) -> bool {
    let blanks = arguments.iter().filter(|&&byte| is_blank(byte)).count();
    let spaces = arguments.iter().filter(|&&byte| byte == b' ').count();
    blanks == words - 1
        && spaces == blanks
        && arguments.first() != Some(&b' ')
        && line.ends_with(b"\r\n")
        && !arguments.ends_with(b" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size(b"0"), Some(0));
        assert_eq!(size(b"0002"), Some(2));
        assert_eq!(size(b"999999999"), Some(999_999_999));
        for bad in ["", "-1", "+2", "1x", "0000000002", "99999999999999999999"] {
            assert_eq!(size(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn words_between_any_blanks() {
        let (found, count) = split::<3>(b" \t foo   rep\t2 ").expect("three words");
        assert_eq!((found, count), ([&b"foo"[..], b"rep", b"2"], 3));
        assert!(split::<2>(b"a b c").is_err());
    }
}
