//! Trailers: the fields after a request's content (RFC 9113 §8.1, RFC 9110 §6.5).

use super::{FieldSection, RequestRule, check_field, render::append_line, text};
use crate::http1::trailers::is_forbidden;

/// Valid trailers.
#[derive(Debug, Clone, Copy)]
pub struct Trailers<'s> {
    section: &'s FieldSection,
}

/// Validates trailers.
///
/// # Errors
/// Returns the first rule that they break.
pub fn read_trailers(section: &FieldSection) -> Result<Trailers<'_>, RequestRule> {
    for (name, value) in section.iter() {
        if name.first() == Some(&b':') {
            return Err(RequestRule::PseudoInTrailers);
        }
        check_field(name, value)?;
    }
    Ok(Trailers { section })
}

impl<'s> Trailers<'s> {
    /// Iterates over the fields in order.
    pub fn fields(&self) -> impl Iterator<Item = (&'s [u8], &'s [u8])> + Clone + use<'s> {
        self.section.iter()
    }

    /// Appends the trailers that may be forwarded (RFC 9110 §6.5.1), as whole HTTP/1 lines. Returns the
    /// number of trailers dropped.
    pub fn render(&self, out: &mut Vec<u8>) -> usize {
        let mut dropped = 0;
        for (name, value) in self.fields() {
            if is_forbidden(text(name)) {
                dropped += 1;
            } else {
                append_line(out, name, value);
            }
        }
        dropped
    }
}
