//! Parsing of the head of an origin's answer, for both HTTP versions.

use std::cell::RefCell;

use wire::http1::{
    fields::{append_field, is_hop_by_hop_as, persists},
    framing::{Framing, RequestKind, announces_in_vain, response_framing},
    head::{HeadLimits, HeadRule, HeaderSlots, KeptResponse, Progress, ResponseHead, parse_response},
    known::KnownHeader,
};

use super::OriginError;
use crate::{config::Limits, error_page::Rule};

/// Result of parsing the beginning of an answer.
pub(super) enum HeadProgress {
    Final { head: KeptResponse, head_bytes: usize, framing: Framing, persists: bool },
    Interim { head_bytes: usize, told_on: Option<Vec<u8>> },
    Switched { head: KeptResponse, head_bytes: usize },
    NeedMore,
}

thread_local! {
    /// Slots for the head that is being parsed: 2.6 KiB that no answer has to clear.
    static SLOTS: RefCell<HeaderSlots> = const { RefCell::new(HeaderSlots::new()) };
}

/// Parses the beginning of an answer.
pub(super) fn final_head(
    bytes: &[u8],
    answered: RequestKind,
    limits: &Limits,
) -> Result<HeadProgress, OriginError> {
    SLOTS.with_borrow_mut(|slots| parse(bytes, slots, answered, limits))
}

fn parse(
    bytes: &[u8],
    slots: &mut HeaderSlots,
    answered: RequestKind,
    limits: &Limits,
) -> Result<HeadProgress, OriginError> {
    match parse_response(bytes, slots, &head_limits(limits)) {
        Ok(Progress::NeedMore) => Ok(HeadProgress::NeedMore),
        Ok(Progress::Complete((head, head_bytes))) if head.status == 101 => {
            Ok(HeadProgress::Switched { head: KeptResponse::new(&head, head_bytes), head_bytes })
        }
        Ok(Progress::Complete((head, head_bytes))) if head.is_interim() => {
            // The client already has a `100 Continue` from us.
            let told_on = (head.status != 100).then(|| interim(&head));
            Ok(HeadProgress::Interim { head_bytes, told_on })
        }
        Ok(Progress::Complete((head, head_bytes))) => {
            let framing = response_framing(&head, answered)
                .map_err(|error| OriginError::Invalid(Rule::Framing(error)))?;
            let persists = persists(head.version, &head.headers) && !announces_in_vain(&head);
            Ok(HeadProgress::Final {
                head: KeptResponse::new(&head, head_bytes),
                head_bytes,
                framing,
                persists,
            })
        }
        Err(error)
            if matches!(
                error.rule,
                HeadRule::LineTooLong | HeadRule::HeadersTooLarge | HeadRule::TooManyHeaders
            ) =>
        {
            Err(OriginError::HeadTooLarge(limits.response_head_bytes_max))
        }
        Err(error) => Err(OriginError::Invalid(Rule::Head(error.rule))),
    }
}

/// Writes the head of an interim response for forwarding: without hop-by-hop fields (RFC 9110 §7.6.1), and
/// without a length, which no interim response has.
pub(crate) fn interim(head: &ResponseHead<'_, '_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    for part in [
        b"HTTP/1.1 ",
        itoa::Buffer::new().format(head.status).as_bytes(),
        b" ",
        head.reason.as_bytes(),
        b"\r\n",
    ] {
        out.extend_from_slice(part);
    }
    for (known, name, value) in head.headers.classified() {
        if known != Some(KnownHeader::ContentLength)
            && !is_hop_by_hop_as(known, name.as_bytes(), &head.headers)
        {
            append_field(&mut out, name, value);
        }
    }
    out
}

pub(super) fn head_limits(limits: &Limits) -> HeadLimits {
    let head_bytes_max = limits.response_head_bytes_max;
    HeadLimits { line_bytes_max: head_bytes_max, head_bytes_max }
}
