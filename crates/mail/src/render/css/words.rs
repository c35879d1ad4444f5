//! Characters and names of CSS that need no parser.

/// Removes blanks from the end of the text written since `begin`, except for an escaped one.
pub(super) fn trim(out: &mut String, begin: usize) {
    let mut end = begin + out[begin..].trim_end_matches(' ').len();
    if out[..end].ends_with('\\') && end < out.len() {
        end += 1;
    }
    out.truncate(end);
}

/// Returns whether a byte is harmless. Declarations of such bytes can contain colours, lengths and words, but
/// cannot fetch, as there are no brackets, escapes or comments. Most `style` attributes consist of such bytes
/// only.
pub(super) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b' ' | b'-' | b'_' | b':' | b';' | b',' | b'.' | b'#' | b'%' | b'!')
}

/// Returns whether a name is serialised as itself (CSSOM, 2.1): it is ASCII and begins with a letter, or with
/// a hyphen and a letter.
pub(in crate::render) fn is_simple(name: &str) -> bool {
    let letters = name.strip_prefix('-').unwrap_or(name).as_bytes();
    letters.first().is_some_and(u8::is_ascii_alphabetic)
        && letters.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
