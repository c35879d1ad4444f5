//! Limits on a mail's CSS, and the enum that names the limit reached.

/// Maximum number of bytes of a mail's style sheets that are read.
pub(crate) const CSS_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of rules in a mail's style sheets, nested ones included.
pub(crate) const CSS_RULES_MAX: usize = 5_000;
/// Maximum number of selectors of one rule.
pub(crate) const CSS_SELECTORS_MAX: usize = 256;
/// Maximum number of declarations in a mail's style sheets.
pub(crate) const CSS_DECLARATIONS_MAX: usize = 20_000;
/// Deepest nesting of blocks, brackets and functions.
pub(crate) const CSS_DEPTH_MAX: u8 = 32;

/// Maximum number of `style` attributes in the cache, and maximum length of a cached attribute.
pub(super) const WRITTEN_MAX: usize = 64;
pub(super) const WRITTEN_BYTES_MAX: usize = 512;

/// A limit that style sheets exceed; everything beyond it is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CssLimit {
    /// More than [`CSS_BYTES_MAX`] bytes.
    #[error("the style sheets have more than {CSS_BYTES_MAX} bytes")]
    Bytes,
    /// More than [`CSS_RULES_MAX`] rules.
    #[error("the style sheets have more than {CSS_RULES_MAX} rules")]
    Rules,
    /// More than [`CSS_SELECTORS_MAX`] selectors of a rule.
    #[error("a style rule has more than {CSS_SELECTORS_MAX} selectors")]
    Selectors,
    /// More than [`CSS_DECLARATIONS_MAX`] declarations.
    #[error("the style sheets have more than {CSS_DECLARATIONS_MAX} declarations")]
    Declarations,
    /// Nesting deeper than [`CSS_DEPTH_MAX`].
    #[error("the style sheets are nested more than {CSS_DEPTH_MAX} deep")]
    Depth,
}
