//! Limits on what is read and shown of a mail, and the cut of a text at such a limit.

/// Bytes of a mail that are parsed; the source view still shows all of a larger mail. This is less than half
/// of `http-bytes-max`, the share of one client.
pub const PARSED_BYTES_MAX: usize = 28 * 1024 * 1024;
/// Maximum number of bytes at the beginning of a text that are shown.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of fields of the head that are shown.
pub const HEADERS_MAX: usize = 1000;
/// Maximum number of attachments that are listed and can be fetched.
pub const ATTACHMENTS_MAX: usize = 1000;
/// Maximum number of bodies of one mail that are shown one after the other.
pub(super) const BODIES_MAX: usize = 100;

/// Returns the beginning of a text, at most `bytes_max` bytes, without splitting a character.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
