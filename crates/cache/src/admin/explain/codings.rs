//! Explanation of the content coding in which a stored object is sent, and why another coding is not used.

use engine::store::{Object, Shard};
use wire::http1::{
    head::{HeadLimits, HeaderSlots, Headers, Progress, parse_response},
    known::KnownHeader,
};

use crate::{
    coding::Coding,
    core::Core,
    encoding::encoded_variants::{self, VariantState},
    head::{found_object::FoundObject, response_head::Flags},
    policy::{LeftAlone, accept::AcceptedCodings, codable},
};

/// Returns why an object is not encoded; `None` if the current settings would encode it.
fn left_alone(core: &Core, object: &Object<'_>, head: &[u8]) -> Option<LeftAlone> {
    let head = [head, b"\r\n"].concat();
    let limits = HeadLimits { line_bytes_max: head.len(), head_bytes_max: head.len() };
    let mut slots = HeaderSlots::new();
    let Ok(Progress::Complete((head, _))) = parse_response(&head, &mut slots, &limits) else { return None };
    let bytes = (!object.is_in_parts()).then(|| object.body_bytes());
    codable(&head, bytes, &core.config.compress).err()
}

const NEGOTIATED: &str = "RFC 9110 §12.5.3";

/// Returns the decision about the content coding, its explanation, and the section of the rule behind it.
pub(super) fn of_hit(
    core: &Core,
    shard: &Shard,
    found: FoundObject<'_, '_>,
    stored_head: &[u8],
    headers: &Headers<'_, '_>,
) -> (&'static str, String, &'static str) {
    let FoundObject { object, meta, hash } = found;
    if !object.tail().is_empty() {
        return alone(LeftAlone::Trailers);
    }
    if encoded_variants::is_decodable(core, &object, meta) {
        return of_decodable(core, shard, found, headers);
    }
    if let Some(why) = left_alone(core, &object, stored_head) {
        return alone(why);
    }
    if !meta.flags.has(Flags::MAY_BE_CODED) || object.is_in_parts() {
        let words =
            "not compressed: compression was off when it was stored, or its body is on the file in parts";
        return ("left-alone", words.to_owned(), "knob compress");
    }
    if headers.has(KnownHeader::Range) {
        let words =
            "a range of the uncompressed content is sent, unless If-Range names another representation";
        return ("plain", words.to_owned(), "RFC 9110 §14.2");
    }
    if encoded_variants::says_no_transform(headers) {
        let words = "the client asks for no-transform: the origin's representation is sent";
        return (LeftAlone::NoTransform.name(), words.to_owned(), "RFC 9111 §5.2.1.6");
    }
    let Some(coding) = AcceptedCodings::of(headers).best(&core.config.compress.codings) else {
        let words = "the client accepts no coding that is made here, or prefers none";
        return ("not-accepted", words.to_owned(), NEGOTIATED);
    };
    let name = coding.token();
    match encoded_variants::peek(core, shard, &object, hash, coding) {
        VariantState::There(bytes) => {
            let words = format!("sent as {name}: {bytes} bytes instead of {}", object.body_bytes());
            ("coded", words, NEGOTIATED)
        }
        VariantState::NotToBeHad => {
            let words = format!("sent uncompressed: {name} would save less than a twentieth");
            ("does-not-shrink", words, "")
        }
        VariantState::NotThere => {
            let words = format!("sent uncompressed; a {name} variant is made for later requests");
            ("to-be-made", words, NEGOTIATED)
        }
    }
}

/// Explains the content coding for an object that the origin sent encoded and that may be decoded (see
/// [`of_hit`]).
fn of_decodable(
    core: &Core,
    shard: &Shard,
    FoundObject { object, meta, hash }: FoundObject<'_, '_>,
    headers: &Headers<'_, '_>,
) -> (&'static str, String, &'static str) {
    let name = meta.coding.token();
    if !encoded_variants::wants_decoded(headers, meta.coding) {
        let words = format!(
            "sent as {name}, as the origin sent it: the client accepts that, or no other representation exists"
        );
        return ("as-sent", words, NEGOTIATED);
    }
    match encoded_variants::peek(core, shard, &object, hash, Coding::Decoded) {
        VariantState::There(bytes) => {
            let words = format!(
                "sent without the origin's {name}, which the client does not accept: {bytes} bytes instead of {}",
                object.body_bytes()
            );
            ("decoded", words, NEGOTIATED)
        }
        VariantState::NotToBeHad => {
            let words = format!(
                "sent as {name}, which the client does not accept: its content is damaged, or too long once decoded"
            );
            ("not-to-be-decoded", words, "knob compress-bytes-max")
        }
        VariantState::NotThere => {
            let words = format!(
                "the client does not accept {name}: the object is decoded first, and the request waits"
            );
            ("to-be-decoded", words, NEGOTIATED)
        }
    }
}

fn alone(why: LeftAlone) -> (&'static str, String, &'static str) {
    (why.name(), format!("not compressed: {}", why.words()), why.section())
}
