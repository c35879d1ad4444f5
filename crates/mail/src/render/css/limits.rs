//! Limits on a mail's CSS, and the name of the one that was reached.

/// Bytes of a mail's style sheets that are read.
pub(crate) const CSS_BYTES_MAX: usize = 256 * 1024;
/// Rules of a mail's style sheets, those within others too.
pub(crate) const CSS_RULES_MAX: usize = 5_000;
/// Selectors of one rule.
pub(crate) const CSS_SELECTORS_MAX: usize = 256;
/// Declarations of a mail's style sheets.
pub(crate) const CSS_DECLARATIONS_MAX: usize = 20_000;
/// Blocks, brackets and functions within each other.
pub(crate) const CSS_DEPTH_MAX: u8 = 32;

/// `style` attributes that are remembered, and bytes of the longest of them.
pub(super) const WRITTEN_MAX: usize = 64;
pub(super) const WRITTEN_BYTES_MAX: usize = 512;

/// A bound that style sheets are beyond; what is beyond it is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CssLimit {
    /// [`CSS_BYTES_MAX`]
    #[error("its style sheets have more than {CSS_BYTES_MAX} bytes")]
    Bytes,
    /// [`CSS_RULES_MAX`]
    #[error("its style sheets have more than {CSS_RULES_MAX} rules")]
    Rules,
    /// [`CSS_SELECTORS_MAX`]
    #[error("a rule of its style sheets has more than {CSS_SELECTORS_MAX} selectors")]
    Selectors,
    /// [`CSS_DECLARATIONS_MAX`]
    #[error("its style sheets have more than {CSS_DECLARATIONS_MAX} declarations")]
    Declarations,
    /// [`CSS_DEPTH_MAX`]
    #[error("its style sheets are nested more than {CSS_DEPTH_MAX} deep")]
    Depth,
}
