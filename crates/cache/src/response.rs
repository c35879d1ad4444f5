//! An origin's answer: what is kept of its head, whether and under which key it is stored.

use engine::{cores::clock, store::Hash};
use wire::http1::{
    framing::Framing,
    head::{HEAD_BYTES_CAP, HeadLimits, HeaderSlots, Progress, ResponseHead, parse_response},
    known::KnownHeader,
};

use crate::{
    config::CookieRule,
    core::{Core, store_s},
    counters::Counter,
    key,
    policy::{self, Freshness, RequestFacts, ResponseFacts, Storable, StoreRules, Times, Why},
    request::Request,
    response_head::{Flags, HeadOutline, ORIGIN_MS_MAX, Purpose, StoredMeta, append_origin_head},
};

/// A response on its way to the clients that asked for it.
pub(crate) struct Response {
    /// Status line and fields, as they are kept; without the empty line.
    pub(crate) head: Vec<u8>,
    /// What is known of it.
    pub(crate) meta: StoredMeta,
    /// Bytes of the body, where the origin said so.
    pub(crate) length: Option<u64>,
    /// It is the answer to a fetch, and not to a pass.
    fetched: bool,
    /// It is stored, or on its way into the store.
    pub(crate) stored: bool,
    /// Why policy does not let the answer to a fetch be stored.
    pub(crate) not_stored: Option<Why>,
    /// `Age` stands in the head, if the origin sent one; else it is counted each time the head is sent.
    has_age: bool,
    /// Where it varies: the names of the headers, and the key of the variant that it is.
    variant: Option<Variant>,
}

struct Variant {
    spec: Vec<u8>,
    generation: u64,
    key: Vec<u8>,
}

impl Response {
    /// Whether it came through a fetch for the store (and not through a pass): then conditions and ranges of the client
    /// were kept from the origin, and are ours to apply.
    pub(crate) fn is_shared(&self) -> bool {
        self.fetched
    }

    /// Its age where it must be stated (RFC 9111 §5.1): of what the store keeps, not of what is only passed on.
    pub(crate) fn age_s(&self, now_s: u64) -> Option<u64> {
        (!self.has_age).then(|| self.meta.age_s(now_s))
    }

    /// Whether this response also answers a request that joined the fetch before the response came: it may be another
    /// variant, or not be meant for visitors with cookies.
    pub(crate) fn fits(&self, request: &Request, cookies: CookieRule) -> bool {
        let has_cookie = request.with(|head| head.headers.has(KnownHeader::Cookie));
        if !policy::may_share(!self.meta.flags.has(Flags::NOT_EXPLICIT), has_cookie, cookies) {
            return false;
        }
        let Some(variant) = &self.variant else { return true };
        let mut key = request.primary().to_vec();
        request.with(|head| key::append_variant(&mut key, variant.generation, &variant.spec, &head.headers));
        key == variant.key
    }
}

/// Under which key and until when an answer is stored.
pub(crate) struct Keep {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) expires_s: u32,
}

/// An answer and what becomes of it.
pub(crate) struct Judged {
    pub(crate) response: Response,
    /// For the client that is fetched for, where it differs: with the fields that nobody else may have
    /// (`private="…"`, `no-cache="…"`; RFC 9111 §5.2.2.4, §5.2.2.7).
    pub(crate) own: Option<Response>,
    /// `None`: it is not stored.
    pub(crate) keep: Option<Keep>,
}

/// Looks at a head that was parsed before.
pub(crate) fn with_head<R>(head: &[u8], look: impl FnOnce(&ResponseHead<'_, '_>) -> R) -> R {
    let mut slots = HeaderSlots::new();
    let limits = HeadLimits { line_bytes_max: HEAD_BYTES_CAP, head_bytes_max: HEAD_BYTES_CAP };
    match parse_response(head, &mut slots, &limits) {
        Ok(Progress::Complete((head, _))) => look(&head),
        other => unreachable!("a head that was parsed before does not parse: {:?}", other.is_ok()),
    }
}

fn length_of(framing: Framing) -> Option<u64> {
    match framing {
        Framing::None => Some(0),
        Framing::Length(bytes) => Some(bytes),
        Framing::Chunked | Framing::UntilClose => None,
    }
}

/// The times of the exchange, for a response whose head has just arrived.
fn times(requested_ms: u64) -> Times {
    Times { request_s: requested_ms / 1000, response_s: clock::unix_s() }
}

/// *backend_response*: decides whether the answer to a fetch is stored, and makes what is kept of its head.
pub(crate) fn judge(
    core: &Core,
    request: &Request,
    head: &[u8],
    framing: Framing,
    requested_ms: u64,
) -> Judged {
    let times = times(requested_ms);
    let length = length_of(framing);
    with_head(head, |head| {
        // The fetch is a GET, whatever asked for it.
        let asked = request.with(|asked| RequestFacts {
            method: policy::request::Method::Get,
            ..RequestFacts::of(asked, false)
        });
        let facts = ResponseFacts::of(head);
        let rules = StoreRules {
            cookies: core.config.cookies,
            default_ttl_s: store_s(core.config.default_ttl.as_secs()),
        };
        match policy::storable(&asked, &facts, &rules, times) {
            Storable::Yes(freshness) => {
                let mut judged = keep(core, request, head, &facts, &freshness, times, length);
                let origin_ms = clock::unix_ms().saturating_sub(requested_ms);
                judged.response.meta.origin_ms =
                    u32::try_from(origin_ms).map_or(ORIGIN_MS_MAX, |ms| ms.min(ORIGIN_MS_MAX));
                if freshness.omits_fields && judged.keep.is_some() {
                    judged.own = Some(kept(head, &[], &freshness, times, length));
                }
                judged
            }
            Storable::No(why) => {
                core.count(Counter::Uncacheable);
                let response = Response { fetched: true, ..forwarded(head, times, length, Some(why)) };
                Judged { response, own: None, keep: None }
            }
        }
    })
}

/// The answer to a request that was passed.
pub(crate) fn passed(head: &[u8], framing: Framing, requested_ms: u64) -> Response {
    with_head(head, |head| forwarded(head, times(requested_ms), length_of(framing), None))
}

fn forwarded(
    head: &ResponseHead<'_, '_>,
    times: Times,
    length: Option<u64>,
    not_stored: Option<Why>,
) -> Response {
    let mut bytes = Vec::with_capacity(1024);
    let outline = append_origin_head(&mut bytes, head, Purpose::Forward, &[], times.response_s);
    let meta = StoredMeta::of_response(head, &outline, &NO_FRESHNESS, times, length);
    Response {
        head: bytes,
        meta,
        length,
        fetched: false,
        stored: false,
        not_stored,
        has_age: true,
        variant: None,
    }
}

/// An answer that is kept, with its head as the store has it but for the fields in `omit`.
fn kept(
    head: &ResponseHead<'_, '_>,
    omit: &[Box<str>],
    freshness: &Freshness,
    times: Times,
    length: Option<u64>,
) -> Response {
    let mut bytes = Vec::with_capacity(1024);
    let outline: HeadOutline = append_origin_head(&mut bytes, head, Purpose::Store, omit, times.response_s);
    let meta = StoredMeta::of_response(head, &outline, freshness, times, length);
    Response {
        head: bytes,
        meta,
        length,
        fetched: true,
        stored: true,
        not_stored: None,
        has_age: false,
        variant: None,
    }
}

/// The metadata of a response that is not stored. Nothing reads it.
const NO_FRESHNESS: Freshness = Freshness {
    lifetime_s: 0,
    initial_age_s: 0,
    source: policy::Source::DefaultTtl,
    must_revalidate: true,
    omits_fields: false,
};

fn keep(
    core: &Core,
    request: &Request,
    head: &ResponseHead<'_, '_>,
    facts: &ResponseFacts,
    freshness: &Freshness,
    times: Times,
    length: Option<u64>,
) -> Judged {
    let response = kept(head, &facts.directives.omit, freshness, times, length);
    let expires_s = store_s(freshness.stale_at_s(times.response_s));
    let primary = core.store.hash(request.primary());
    let spec = facts.vary.as_ref().map(policy::vary::Vary::spec).unwrap_or_default();
    let mut key = request.primary().to_vec();
    let (hash, variant) = if spec.is_empty() {
        (primary, None)
    } else {
        let spec_meta = StoredMeta::of_vary_spec(store_s(spec.len() as u64), freshness, times);
        match core.keep_spec(primary, request.primary(), spec, spec_meta, expires_s) {
            Ok(generation) => {
                request.with(|asked| key::append_variant(&mut key, generation, spec, &asked.headers));
                let hash = key::hash_of_variant(primary, core.store.hash(&key));
                (hash, Some(Variant { spec: spec.to_vec(), generation, key: key.clone() }))
            }
            Err(refused) => {
                core.count(Counter::of_refusal(refused));
                let response = Response { fetched: true, ..forwarded(head, times, length, None) };
                return Judged { response, own: None, keep: None };
            }
        }
    };
    let response = Response { variant, ..response };
    Judged { response, own: None, keep: Some(Keep { hash, key, expires_s }) }
}
