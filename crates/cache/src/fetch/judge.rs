//! *backend_response*: decides whether and under which key an origin's answer is stored, and which fields of
//! its head are kept.

use engine::{cores::clock, store::Hash};
use wire::http1::{fields::append_field, framing::Framing, head::ResponseHead, known::KnownHeader};

use crate::{
    config::{CookieRule, SiteRules},
    core::{Core, store_s},
    counters::Counter,
    fetch::{
        hit_for_miss,
        query_shares::QueryAdmission,
        response::{Response, ResponseRole, Variant},
    },
    head::{
        response_head::{Flags, For, LeftOut, ORIGIN_MS_MAX, StoredMeta, append_origin_head, stored_values},
        sent_fields::SentFields,
    },
    origin::AnswerHead,
    policy::{
        self, Freshness, RequestFacts, ResponseFacts, Storable, StoreRules, Times, Why, freshness::Dates,
        request::Method, vary::Vary,
    },
    request::{Request, dependent::Dependent, key, query},
    site::SiteId,
    tags::{self, TooMany},
};

/// Key and lifetime with which an answer is stored.
pub(crate) struct StorePlan {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) expires_s: u32,
    /// True if later requests find the answer. Otherwise only the waiting requests read it, and it is then
    /// dropped.
    pub(crate) is_kept: bool,
    /// True if the request had a cookie and the answer is shared because of its max-age alone, without an
    /// explicit statement that all clients may get it.
    pub(crate) is_shared_by_age: bool,
}

/// An answer, and whether and how it is stored.
pub(crate) struct Judgement {
    pub(crate) response: Response,
    /// Response for the client of the fetch, if it differs: it includes the fields that no other client may
    /// get (`private="…"`, `no-cache="…"`; RFC 9111 §5.2.2.4, §5.2.2.7).
    pub(crate) own: Option<Response>,
    /// Plan for the store; `None` if the answer is not stored.
    pub(crate) storing: Option<StorePlan>,
}

/// Head of an origin's answer, with its dates, the times of the exchange and the content's length.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedHead<'a> {
    pub(crate) head: &'a ResponseHead<'a, 'a>,
    /// Times that the head states.
    pub(crate) dates: Dates,
    /// Times of the exchange.
    pub(crate) times: Times,
    /// Bytes of the content, if the origin stated the length.
    pub(crate) length: Option<u64>,
}

fn length_of(framing: Framing) -> Option<u64> {
    match framing {
        Framing::None => Some(0),
        Framing::Length(bytes) => Some(bytes),
        Framing::Chunked | Framing::UntilClose => None,
    }
}

/// Returns the length of the content that GET would get, from the head of an answer to HEAD, if stated (RFC
/// 9110 §8.6).
fn length_told(head: &ResponseHead<'_, '_>) -> Option<u64> {
    std::str::from_utf8(head.known(KnownHeader::ContentLength)?).ok()?.parse().ok()
}

/// Returns the times of the exchange, for a response whose head has just arrived.
pub(crate) fn times(requested_ms: u64) -> Times {
    Times { request_s: requested_ms / 1000, response_s: clock::unix_s() }
}

/// Returns the request's facts for a fetch, whose method is always GET.
pub(crate) fn asked(core: &Core, request: &Request) -> RequestFacts {
    RequestFacts { method: Method::Get, ..core.facts_of(request) }
}

/// Returns the storage rules of a site.
fn rules(core: &Core, site: SiteId) -> StoreRules {
    let SiteRules { removes_set_cookie, default_ttl, grace, stale_if_error, .. } = core.sites.rules(site);
    StoreRules {
        cookies: core.config.cookies,
        removes_set_cookie: *removes_set_cookie,
        default_ttl_s: store_s(default_ttl.as_secs()),
        grace_s: store_s(grace.as_secs()),
        stale_if_error_s: store_s(stale_if_error.as_secs()),
    }
}

/// *backend_response*: decides whether the answer to a fetch is stored, and builds the head to keep. `bans`
/// is the number of the latest purge that was known when the fetch began.
pub(crate) fn judge(core: &Core, request: &Request, answer: &AnswerHead, bans: u64) -> Judgement {
    let times = times(answer.requested_ms);
    let length = length_of(answer.framing);
    let head = &answer.head.head();
    let asked = asked(core, request);
    let facts = ResponseFacts::of(head, core.config.cdn_cache_control);
    let received = ReceivedHead { head, dates: facts.dates, times, length };
    let storable = storable(core, request.site, &asked, head, &facts, times);
    if head.status == 200 {
        let is_without = match &storable {
            Ok((freshness, _)) => freshness.source == policy::Source::DefaultTtl && freshness.lifetime_s == 0,
            Err(why) => *why == Why::NoFreshness,
        };
        note_freshness(core, request, is_without);
        let is_by_cookie = matches!(storable, Err(Why::Cookie));
        let headers = &request.head().headers;
        hit_for_miss::count_page(core, request.site, request.primary(), headers, is_by_cookie);
    }
    let at_once = || freshness_on_arrival(core, request, &asked, &facts, times);
    match storable {
        Ok((mut freshness, tags)) => {
            if answer.peer.is_some() {
                freshness = of_peer(freshness);
            }
            let mut judged = keep(core, request, received, &asked, &facts, &freshness);
            let origin_ms = clock::unix_ms().saturating_sub(answer.requested_ms);
            judged.response.meta.origin_ms =
                u32::try_from(origin_ms).map_or(ORIGIN_MS_MAX, |ms| ms.min(ORIGIN_MS_MAX));
            judged.response.meta.bans = bans;
            judged.response.tags = tags.unwrap_or_default();
            judged.response.tag_words = tag_words(core, head);
            judged.response.fetched_ms = fetched_ms(&judged.response.meta, &judged.response.tags, answer);
            judged.response.may_be_late = at_once().is_some();
            if freshness.omits_fields && judged.storing.is_some() {
                let omit = omitted(core, request.site, &[]);
                judged.own = Some(stored_response(core, received, &omit, &freshness));
            }
            judged
        }
        Err(why) => {
            core.count(Counter::Uncacheable);
            // A hit-for-miss note about an answer that had expired on arrival is only for `explain`: requests
            // wait for the next answer.
            if hit_for_miss::is_lasting(why, head.status) || why == Why::Expired && head.status < 400 {
                let sent = request.head();
                let manner = core.manner(request.site);
                let fields = SentFields { head: &sent, visitor: request.visitor, manner };
                let varies = facts.vary.as_ref().ok().map(|vary| (vary.spec(), &fields));
                hit_for_miss::leave(
                    core,
                    request.primary(),
                    &asked,
                    why.name(),
                    times.response_s,
                    bans,
                    varies,
                );
            }
            let standing = ResponseRole::NotStorable(Some(why));
            let late = (why == Why::Expired).then(at_once).flatten();
            let tags =
                || tags::of(head.headers.raw(), &core.config.tags, |tag| core.storage.store.hash(tag)).ok();
            if let Some((freshness, tags)) = late.and_then(|freshness| Some((freshness, tags()?))) {
                let mut response = with_freshness(core, received, standing, &freshness);
                response.meta.bans = bans;
                response.tags = tags.unwrap_or_default();
                response.fetched_ms = fetched_ms(&response.meta, &response.tags, answer);
                response.may_be_late = true;
                response.variant =
                    facts.vary.as_ref().ok().map(Vary::spec).filter(|spec| !spec.is_empty()).map(|spec| {
                        // No object is stored under this key: it is only compared with the keys of the
                        // waiting requests.
                        let mut key = request.primary().to_vec();
                        let sent = request.head();
                        let manner = core.manner(request.site);
                        let fields = SentFields { head: &sent, visitor: request.visitor, manner };
                        Dependent::Variant { generation: 0, names: spec, fields: &fields }.extend(&mut key);
                        Variant { spec: spec.to_vec(), generation: 0, key }
                    });
                let own = forwarded_response(core, received, standing);
                let own = with_sticky_cookie(core, request, answer, own);
                let (hash, key) = (request.hash, request.key.clone());
                let expires_s = store_s(times.response_s);
                let storing = StorePlan { hash, key, expires_s, is_kept: false, is_shared_by_age: false };
                return Judgement { response, own: Some(own), storing: Some(storing) };
            }
            let response = forwarded_response(core, received, standing);
            let response = with_sticky_cookie(core, request, answer, response);
            Judgement { response, own: None, storing: None }
        }
    }
}

/// Returns the fields that are not kept with an answer: those that the answer itself names (`said`), and
/// `Set-Cookie` if the site's rules remove it.
pub(crate) fn omitted(core: &Core, site: SiteId, said: &[Box<str>]) -> Vec<Box<str>> {
    let by_rule = core.sites.rules(site).removes_set_cookie.then(|| Box::from("set-cookie"));
    said.iter().cloned().chain(by_rule).collect()
}

/// Returns the freshness of a response that had expired on arrival, for the requests that waited for it. They
/// get it as if it had arrived immediately, if it would have been fresh then, no credentials are involved,
/// and the response does not require validation. With `--cookies rfc` the letter of RFC 9111 §4.2.3 applies,
/// by which the origin's response time counts as age.
fn freshness_on_arrival(
    core: &Core,
    request: &Request,
    asked: &RequestFacts,
    facts: &ResponseFacts,
    times: Times,
) -> Option<Freshness> {
    let said = &facts.directives;
    let insists = said.no_cache || said.must_revalidate || said.proxy_revalidate;
    let is_by_the_letter = core.config.cookies == CookieRule::Rfc;
    if insists || is_by_the_letter || asked.authorization || names_certificate(core, facts) {
        return None;
    }
    let at_once = Times { response_s: times.request_s, ..times };
    match policy::storable(asked, facts, &rules(core, request.site), at_once) {
        Storable::Yes(freshness) if freshness.ttl_s() > 0 => {
            let initial_age_s = policy::freshness::initial_age_s(&facts.dates, times);
            Some(Freshness { initial_age_s: u32::try_from(initial_age_s).unwrap_or(u32::MAX), ..freshness })
        }
        Storable::Yes(_) | Storable::No(_) => None,
    }
}

/// Bytes that are assumed for an answer of unknown length.
const UNKNOWN_BYTES: u64 = 64 << 10;

/// Returns whether an answer may be stored although its path has many queries ([`query_shares`](crate::fetch::query_shares)).
fn has_room_for_query(
    core: &Core,
    request: &Request,
    response: &Response,
    hash: Hash,
    key: &[u8],
    now_s: u64,
) -> bool {
    let bytes = (response.head.len() as u64).saturating_add(response.length.unwrap_or(UNKNOWN_BYTES));
    let primary = request.primary();
    let Some(path_bytes) = memchr::memchr(b'?', primary) else {
        core.storage.queries.note_other_bytes(bytes);
        return true;
    };
    // A large object reserves room as its slices arrive. An object that is already stored needs no new room.
    let is_large = response.length.is_some_and(|length| length > core.storage.store.object_bytes_max());
    if is_large || core.shard_mut().lookup_owned(hash, key).is_some() {
        return true;
    }
    let path = core.storage.store.hash(&primary[..path_bytes]);
    let all_bytes = match core.config.store {
        Some(_) => core.config.store_bytes,
        None => core.config.memory_bytes,
    };
    let capacity = all_bytes / core.storage.store.cores() as u64;
    match core.storage.queries.admit(path, hash, bytes, capacity, now_s) {
        QueryAdmission::Stored => true,
        QueryAdmission::OverShare { percent, is_to_be_said } => {
            if is_to_be_said {
                tracing::warn!(
                    path = %String::from_utf8_lossy(&primary[..path_bytes]).replace('\0', ""),
                    "URLs that differ only in their query fill {percent} % of the store: others are now stored only \
                     when requested a second time; use ignore-query to drop parameters that do not affect the response"
                );
            }
            false
        }
    }
}

/// Returns the freshness of an answer that a peer sent. A lifetime set by an operator counts from the arrival
/// at the peer, and does not start again here. At least one second of it remains, so that the waiting
/// requests get the answer.
pub(crate) fn of_peer(freshness: Freshness) -> Freshness {
    if !freshness.source.is_operators() {
        return freshness;
    }
    let ttl_s = freshness.lifetime_s.saturating_sub(freshness.initial_age_s);
    Freshness { lifetime_s: ttl_s.max(freshness.initial_age_s.saturating_add(1)), ..freshness }
}

/// Counts whether a page states its freshness ([`Majority`](crate::admin::majority::Majority)).
fn note_freshness(core: &Core, request: &Request, is_without: bool) {
    if is_without {
        core.count(Counter::WithoutFreshness);
    }
    if core.sites.missing_freshness(request.site).count(core.index, is_without).is_some() {
        tracing::warn!(
            host = %String::from_utf8_lossy(key::authority(request.primary())),
            "most pages state no freshness lifetime, so they are not served from the store: let the origin send \
             Cache-Control: max-age=…, or set default-ttl to 10s or more (logged once per site)"
        );
    }
}

/// Decides whether an answer may be stored. Returns its freshness, and its purge tags if it has tag fields.
pub(crate) fn storable(
    core: &Core,
    site: SiteId,
    asked: &RequestFacts,
    head: &ResponseHead<'_, '_>,
    facts: &ResponseFacts,
    times: Times,
) -> Result<(Freshness, Option<Vec<u64>>), Why> {
    if names_certificate(core, facts) {
        return Err(Why::VaryCertificate);
    }
    match policy::storable(asked, facts, &rules(core, site), times) {
        Storable::Yes(freshness) => {
            match tags::of(head.headers.raw(), &core.config.tags, |tag| core.storage.store.hash(tag)) {
                Ok(tags) => Ok((freshness, tags)),
                Err(TooMany) => {
                    core.count(Counter::TagsTooMany);
                    Err(Why::TooManyTags)
                }
            }
        }
        Storable::No(why) => Err(why),
    }
}

/// Returns the time at which the request of a momentary answer with tags was sent, in milliseconds since 1970;
/// `None` for other answers.
pub(crate) fn fetched_ms(meta: &StoredMeta, tags: &[u64], answer: &AnswerHead) -> Option<u64> {
    if tags.is_empty() || !meta.is_momentary() {
        return None;
    }
    let is_of_cache = answer.peer.is_some() || answer.head.head().headers("age").next().is_some();
    // Another cache fetched it earlier; ages are rounded down.
    Some(if is_of_cache { meta.born_s.saturating_sub(1) * 1000 } else { answer.requested_ms })
}

/// Returns the text of an answer's tags, if there are peers that may need it.
pub(crate) fn tag_words(core: &Core, head: &ResponseHead<'_, '_>) -> Vec<u8> {
    if core.origins.peers.is_none() {
        return Vec::new();
    }
    tags::text(head.headers.raw(), &core.config.tags)
}

/// Returns whether an answer varies by a field that describes the client's certificate. The values that
/// clients themselves send in such fields are not part of any key.
fn names_certificate(core: &Core, facts: &ResponseFacts) -> bool {
    let ours = core.sites.table.certificate_fields();
    !ours.is_empty()
        && facts
            .vary
            .as_ref()
            .is_ok_and(|vary| ours.iter().any(|field| vary.names(&field.to_ascii_lowercase())))
}

/// Returns the answer to a POST as a storable answer to GET, and the time until which it is kept, if the
/// answer states that it is what GET would get from the same address, and for how long (RFC 9110 §9.3.3). An
/// answer with `Vary` is not stored this way. `bans` is the number of the latest purge that was known when
/// the request was sent.
pub(crate) fn as_get(
    core: &Core,
    request: &Request,
    answer: &AnswerHead,
    bans: u64,
) -> Option<(Response, u32)> {
    let head = &answer.head.head();
    if request.head().method != "POST" || !names_itself(core, request, head) {
        return None;
    }
    let times = times(answer.requested_ms);
    let facts = ResponseFacts::of(head, core.config.cdn_cache_control);
    let mut asked = asked(core, request);
    if asked.ruled.pass.is_some() {
        return None;
    }
    // A passed request was sent with its cookies, whatever the site's rules do with cookies.
    asked.cookie = request.head().headers.has(KnownHeader::Cookie);
    let (freshness, tags) = storable(core, request.site, &asked, head, &facts, times).ok()?;
    let is_plain = head.status == 200 && facts.vary.as_ref().is_ok_and(Vary::is_empty);
    let is_said = freshness.source.is_explicit() && freshness.ttl_s() > 0;
    // A cookie set by the answer to a POST makes the answer private to its client, even if the site removes
    // `Set-Cookie`.
    let is_for_one = facts.sets_cookie && core.config.cookies != CookieRule::Rfc;
    let length = length_of(answer.framing);
    let omit = omitted(core, request.site, &facts.directives.omit);
    let received = ReceivedHead { head, dates: facts.dates, times, length };
    let mut response = stored_response(core, received, &omit, &freshness);
    response.meta.bans = bans;
    response.tags = tags.unwrap_or_default();
    response.tag_words = tag_words(core, head);
    response.fetched_ms = fetched_ms(&response.meta, &response.tags, answer);
    let fits = is_plain && is_said && !is_for_one && response.meta.fits();
    fits.then(|| (response, kept_until_s(core, &freshness, times)))
}

/// Returns whether an answer's `Content-Location` says that its content is that of the requested address.
fn names_itself(core: &Core, request: &Request, answer: &ResponseHead<'_, '_>) -> bool {
    let head = request.head();
    let mut locations = answer.headers("content-location");
    let (Some(base), Some(location), None) = (key::base_of(&head), locations.next(), locations.next()) else {
        return false;
    };
    let mut named = key::host_of(request.primary()).to_vec();
    let host_bytes = named.len();
    if !policy::invalidate::same_origin_path(&base, location, &mut named) {
        return false;
    }
    query::apply(core.sites.rules(request.site), host_bytes, &mut named);
    named == request.primary()
}

/// Builds the response to a passed request.
pub(crate) fn passed_response(core: &Core, request: &Request, answer: &AnswerHead) -> Response {
    let head = &answer.head.head();
    let length = match request.head().method {
        "HEAD" => length_told(head),
        _ => length_of(answer.framing),
    };
    let times = times(answer.requested_ms);
    let received = ReceivedHead { head, dates: Dates::of(&head.headers), times, length };
    let response = forwarded_response(core, received, ResponseRole::Passed);
    with_sticky_cookie(core, request, answer, response)
}

/// Adds the site's stickiness cookie to an answer for one visitor, so that the visitor stays with the same
/// server.
fn with_sticky_cookie(
    core: &Core,
    request: &Request,
    answer: &AnswerHead,
    mut response: Response,
) -> Response {
    let group = core.sites.group(request.site);
    if let Some(cookie) = group.cookie(&request.head(), answer.member()) {
        append_field(&mut response.head, "Set-Cookie", cookie.as_bytes());
    }
    response
}

fn forwarded_response(core: &Core, received: ReceivedHead<'_>, standing: ResponseRole) -> Response {
    with_freshness(core, received, standing, &NO_FRESHNESS)
}

fn with_freshness(
    core: &Core,
    ReceivedHead { head, dates, times, length }: ReceivedHead<'_>,
    standing: ResponseRole,
    freshness: &Freshness,
) -> Response {
    let mut bytes = Vec::with_capacity(1024);
    let left_out = LeftOut { omit: &[], tags: &core.config.tags };
    let outline = append_origin_head(&mut bytes, head, For::Forward, left_out, times.response_s);
    let meta = StoredMeta::of_response(head, &dates, &outline, freshness, times, length);
    Response {
        head: bytes,
        meta,
        length,
        standing,
        tags: Vec::new(),
        tag_words: Vec::new(),
        fetched_ms: None,
        variant: None,
        may_be_late: false,
    }
}

/// Builds a response to be stored, with the head for the store without the fields in `omit`.
pub(crate) fn stored_response(
    core: &Core,
    ReceivedHead { head, dates, times, length }: ReceivedHead<'_>,
    omit: &[Box<str>],
    freshness: &Freshness,
) -> Response {
    let mut bytes = Vec::with_capacity(1024);
    let left_out = LeftOut { omit, tags: &core.config.tags };
    let outline = append_origin_head(&mut bytes, head, For::Store, left_out, times.response_s);
    let mut meta = StoredMeta::of_response(head, &dates, &outline, freshness, times, length);
    let compress = &core.config.compress;
    let is_codable = policy::codable(head, length, compress).is_ok();
    // The client of the fetch gets extra fields, so its answer is not decoded.
    let sent = policy::decodable(head, length, compress).ok().filter(|_| !freshness.omits_fields);
    if (is_codable || sent.is_some()) && has_room_for_suffix(&meta, &bytes) {
        let says_vary = Vary::of(&head.headers).is_ok_and(|vary| vary.names("accept-encoding"));
        let flag = if is_codable { Flags::MAY_BE_CODED } else { Flags::MAY_BE_DECODED };
        meta.flags = meta.flags.with(flag).with_if(says_vary, Flags::SAYS_VARY);
        meta.coding = sent.unwrap_or_default();
    }
    Response {
        head: bytes,
        meta,
        length,
        standing: ResponseRole::Stored,
        tags: Vec::new(),
        tag_words: Vec::new(),
        fetched_ms: None,
        variant: None,
        may_be_late: false,
    }
}

/// Returns whether the head has no entity tag, or one short enough for a suffix: a tag of 64 KiB is not
/// treated as a tag.
fn has_room_for_suffix(meta: &StoredMeta, head: &[u8]) -> bool {
    match meta.etag_bytes {
        0 => stored_values(head, "etag").next().is_none(),
        bytes => bytes < u16::MAX / 2,
    }
}

/// Freshness for the metadata of a response that is not stored. Nothing reads it.
const NO_FRESHNESS: Freshness = Freshness {
    lifetime_s: 0,
    initial_age_s: 0,
    source: policy::Source::DefaultTtl,
    must_revalidate: true,
    stale_while_revalidate_s: 0,
    stale_if_error_s: 0,
    has_validator: false,
    omits_fields: false,
    for_cookies: false,
    for_all: false,
    said_for_all: false,
};

/// Returns the time until which an answer is kept, as the store's 32-bit seconds.
pub(crate) fn kept_until_s(core: &Core, freshness: &Freshness, times: Times) -> u32 {
    store_s(freshness.kept_until_s(times.response_s, store_s(core.config.keep.as_secs())))
}

fn keep(
    core: &Core,
    request: &Request,
    received: ReceivedHead<'_>,
    asked: &RequestFacts,
    facts: &ResponseFacts,
    freshness: &Freshness,
) -> Judgement {
    let times = received.times;
    let omit = omitted(core, request.site, &facts.directives.omit);
    let response = stored_response(core, received, &omit, freshness);
    let expires_s = kept_until_s(core, freshness, times);
    let primary = core.storage.store.hash(request.primary());
    let spec = facts.vary.as_ref().map(Vary::spec).unwrap_or_default();
    let mut key = request.primary().to_vec();
    let (hash, variant) = if spec.is_empty() {
        (primary, None)
    } else {
        let spec_meta = StoredMeta::of_vary_spec(store_s(spec.len() as u64), freshness, times);
        match core.keep_spec(primary, request.primary(), spec, spec_meta, expires_s) {
            Ok(generation) => {
                let sent = request.head();
                let manner = core.manner(request.site);
                let fields = SentFields { head: &sent, visitor: request.visitor, manner };
                let variant = Dependent::Variant { generation, names: spec, fields: &fields };
                let hash = variant.place(primary, &mut key, |key| core.storage.store.hash(key));
                let is_new = core.shard_mut().lookup_owned(hash, &key).is_none();
                if is_new && !core.storage.variants.may_add(primary, hash, times.response_s) {
                    core.count(Counter::VariantsTooMany);
                    // No hit-for-miss note is left, because the stored variants can still be found.
                    let standing = ResponseRole::NotStorable(Some(Why::TooManyVariants));
                    let response = forwarded_response(core, received, standing);
                    return Judgement { response, own: None, storing: None };
                }
                (hash, Some(Variant { spec: spec.to_vec(), generation, key: key.clone() }))
            }
            Err(refused) => {
                core.count(Counter::of_refusal(refused));
                let response = forwarded_response(core, received, ResponseRole::NotStorable(None));
                return Judgement { response, own: None, storing: None };
            }
        }
    };
    if !has_room_for_query(core, request, &response, hash, &key, times.response_s) {
        core.count(Counter::QueriesTooMany);
        let standing = ResponseRole::NotStorable(Some(Why::TooManyQueries));
        let response = forwarded_response(core, received, standing);
        return Judgement { response, own: None, storing: None };
    }
    let response = Response { variant, ..response };
    core.purges.purge_log.ports.note(request.primary());
    let is_shared_by_age = core.config.cookies == CookieRule::Safe && !freshness.said_for_all && asked.cookie;
    let storing = StorePlan { hash, key, expires_s, is_kept: true, is_shared_by_age };
    Judgement { response, own: None, storing: Some(storing) }
}
