//! Layout of an object from memory as a record of the file.

use super::image::{IMAGE_HEADER_BYTES, ImageHeader};
use crate::{
    log::RecordWriter,
    store::{object::Object, record::Lengths},
    sys::span::Span,
};

/// Returns the lengths of an object's parts in memory, with 0 for the body.
pub(super) fn lengths_of(object: &Object<'_>) -> Lengths {
    let [key, head, extra, tail] =
        [object.key(), object.head(), object.extra(), object.tail()].map(|part| part.len());
    Lengths { key, head, extra, rest: 0, tail }
}

pub(super) fn header_of(object: &Object<'_>) -> ImageHeader {
    ImageHeader {
        key_bytes: object.key().len() as u32,
        head_bytes: object.head().len() as u32,
        extra_bytes: object.extra().len() as u32,
        tail_bytes: object.tail().len() as u32,
        body_bytes: object.body_bytes(),
        in_parts: object.is_in_parts(),
        sequence: object.sequence(),
        expires_s: object.expires_s(),
        body_at: None,
        meta: object.meta(),
    }
}

/// Returns the payload bytes of a record for an object with these lengths.
pub(super) fn object_bytes(Lengths { key, head, extra, rest, tail }: Lengths) -> usize {
    IMAGE_HEADER_BYTES + key + head + extra + rest + tail
}

#[inline]
pub(super) fn put(filling: &mut RecordWriter, bytes: Span<'_>) {
    filling.span().slice(0..bytes.len()).write_from_span(bytes);
    filling.written(bytes.len());
}
