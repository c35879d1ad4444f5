//! Fuzz checks of storing, sharing and reuse (`policy`), and of the heads built for them (`response_head`).

use std::collections::BTreeSet;

use wire::http1::{
    fields::{DELTA_SECONDS_MAX, EntityTag},
    head::{HEADERS_MAX, Headers, RequestHead, ResponseHead},
    known::KnownHeader,
};

use super::{cut::Cut, with_request, with_response};
use crate::{
    config::{ClientRule, Coding, Compress, CookieRule},
    error_page,
    head::response_head::{
        BLANK, CodedHead, For, LeftOut, StoredMeta, append_not_modified, append_origin_head, append_partial,
        stored_values,
    },
    policy::{
        Audience, Freshness, PassReason, Recv, RequestFacts, ResponseFacts, Reuse, Storable, StoreRules,
        Times, Validators, Verdict,
        accept::AcceptedCodings,
        codable,
        conditional::{RANGES_MAX, several_ranges},
        decodable,
        directives::{RequestDirectives, ResponseDirectives, Seconds},
        evaluate,
        freshness::Dates,
        invalidate, judge_reuse, may_share, recv, storable,
        vary::{VARY_NAMES_MAX, Vary, VaryFault, secondary_key},
    },
};

/// Time at which the response arrived.
const NOW_S: u64 = 4_000_000_000;

/// Checks the policy for one exchange. The input is a cookie rule, a default freshness, the age at a second
/// request, the length of the body (0: unknown), then the head of a request and that of its answer.
pub fn cache_policy(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let cookies = [CookieRule::Strict, CookieRule::Safe, CookieRule::Rfc][usize::from(cut.u8() % 3)];
    let default_ttl_s = u32::from(cut.u8());
    let rules = StoreRules {
        cookies,
        removes_set_cookie: false,
        default_ttl_s,
        grace_s: default_ttl_s / 2,
        stale_if_error_s: default_ttl_s,
    };
    let (later_s, body_bytes) = (cut.u16(), u64::from(cut.u16()));
    let body_bytes = (body_bytes > 0).then_some(body_bytes);
    let text = cut.0;
    with_request(text, |request, rest| {
        let facts = RequestFacts::of(request, false, ClientRule::Obey);
        assert_eq!(facts.directives, twin_request(&request.headers));
        check_recv(&facts);
        let _ = error_page::render(
            error_page::Fault::OnlyIfCached,
            "id",
            request.known(KnownHeader::Accept),
            None,
        );
        with_response(rest, |response| {
            check_response(response);
            let judged = storable(&facts, &ResponseFacts::of(response, true), &rules, times());
            check_rules(&facts, response, &rules, judged);
            check_heads(response, judged, body_bytes);
            check_codings(&request.headers, response, body_bytes);
            check_vary(&text[..text.len() - rest.len()], request, response);
            if let Storable::Yes(freshness) = judged {
                check_reuse(request, &facts, response, &freshness, later_s, body_bytes);
            }
        });
    });
}

/// Checks that a client gets only codings that it accepts, and that the head of an encoded or decoded variant
/// is valid and has another entity tag.
fn check_codings(headers: &Headers<'_, '_>, response: &ResponseHead<'_, '_>, body_bytes: Option<u64>) {
    let accepted = AcceptedCodings::of(headers);
    let best = accepted.best(&Coding::MADE);
    assert!(best.is_none_or(|coding| accepted.accepts(coding)));
    let is_codable = codable(response, body_bytes, &Compress::default()).is_ok();
    let is_decodable = decodable(response, body_bytes, &Compress::default()).is_ok();
    assert!(!(is_codable && is_decodable));
    let made = if is_decodable { Some(Coding::Decoded) } else { best.filter(|_| is_codable) };
    let Some(coding) = made else { return };
    let mut stored = Vec::new();
    let outline = append_origin_head(&mut stored, response, For::Store, LeftOut::default(), NOW_S);
    let etag = outline.etag.unwrap_or(0..0);
    let meta = StoredMeta { etag_at: etag.start, etag_bytes: etag.len() as u16, ..BLANK };
    let mut coded = Vec::new();
    let earlier = CodedHead::new(coding, &meta).append(&stored, &mut coded);
    let meta = meta.with_tag(coding.tag_suffix(), earlier);
    let tag = meta.etag_of(&coded).map(|value| EntityTag::parse(value).expect("a tag"));
    assert!(tag.is_none_or(|tag| tag.opaque.ends_with(coding.tag_suffix().as_bytes())));
    let said: Vec<_> = stored_values(&coded, "content-encoding").collect();
    let want = (coding != Coding::Decoded).then(|| coding.token().as_bytes());
    assert!(said.into_iter().eq(want));
}

fn times() -> Times {
    Times { request_s: NOW_S, response_s: NOW_S }
}

/// Splits a list into its elements as the RFC defines them: a comma within quotes is not a separator.
fn elements(value: &[u8]) -> Vec<String> {
    let mut elements = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for byte in value {
        let letter = char::from(*byte);
        if letter == ',' && !quoted {
            elements.push(String::new());
            continue;
        }
        if escaped {
            escaped = false;
        } else if letter == '"' {
            quoted = !quoted;
        } else {
            escaped = letter == '\\' && quoted;
        }
        elements.last_mut().expect("one at least").push(letter);
    }
    let blank = [' ', '\t'];
    elements.iter().map(|element| element.trim_matches(blank).to_owned()).filter(|e| !e.is_empty()).collect()
}

/// Returns the directives of a field: the name in lower case, and the value without its quotes.
fn twin_directives(headers: &Headers<'_, '_>, name: &str) -> Vec<(String, Option<String>)> {
    let lines = headers.headers(name).flat_map(elements);
    lines
        .map(|element| match element.split_once('=') {
            None => (element.to_ascii_lowercase(), None),
            Some((name, value)) => {
                let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
                (name.trim_matches([' ', '\t']).to_ascii_lowercase(), Some(bare.to_owned()))
            }
        })
        .collect()
}

fn seconds(value: Option<&String>) -> Option<u32> {
    let digits = value.filter(|value| !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()))?;
    Some(digits.parse::<u32>().unwrap_or(u32::MAX).min(DELTA_SECONDS_MAX))
}

fn twin_request(headers: &Headers<'_, '_>) -> RequestDirectives {
    let said = twin_directives(headers, "cache-control");
    let has = |name: &str| said.iter().any(|(known, _)| known == name);
    let all = |name: &'static str| {
        said.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_ref())
    };
    let pragma = headers.header("cache-control").is_none()
        && twin_directives(headers, "pragma").iter().any(|(name, _)| name == "no-cache");
    RequestDirectives {
        no_store: has("no-store"),
        no_cache: has("no-cache") || pragma,
        only_if_cached: has("only-if-cached"),
        max_age_s: all("max-age").map(|value| seconds(value).unwrap_or(0)).min(),
        min_fresh_s: all("min-fresh").map(|value| seconds(value).unwrap_or(DELTA_SECONDS_MAX)).max(),
        max_stale_s: all("max-stale")
            .map(|value| value.map_or(DELTA_SECONDS_MAX, |value| seconds(Some(value)).unwrap_or(0)))
            .min(),
    }
}

fn twin_response(headers: &Headers<'_, '_>) -> ResponseDirectives {
    let said = twin_directives(headers, "cache-control");
    let has = |name: &str| said.iter().any(|(known, _)| known == name);
    let number = |name: &str| {
        let all: BTreeSet<Option<u32>> = said
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| seconds(value.as_ref()))
            .collect();
        match (all.len(), all.first()) {
            (0, _) => Seconds::Absent,
            (1, Some(Some(s))) => Seconds::Of(*s),
            _ => Seconds::Invalid,
        }
    };
    let names = |value: &Option<String>| {
        let bytes: Vec<u8> = value.iter().flat_map(|text| text.chars()).map(|c| c as u8).collect();
        elements(&bytes)
    };
    let bare = |name: &str| said.iter().any(|(known, value)| known == name && names(value).is_empty());
    let omit = said.iter().filter(|(known, _)| known == "private" || known == "no-cache");
    let omit = omit.flat_map(|(_, value)| names(value));
    ResponseDirectives {
        no_store: has("no-store"),
        no_cache: bare("no-cache"),
        private: bare("private"),
        public: has("public"),
        must_revalidate: has("must-revalidate"),
        proxy_revalidate: has("proxy-revalidate"),
        must_understand: has("must-understand"),
        max_age: number("max-age"),
        s_maxage: number("s-maxage"),
        stale_while_revalidate: number("stale-while-revalidate"),
        stale_if_error: number("stale-if-error"),
        omit: omit
            .map(|name| {
                let bytes: Vec<u8> = name.chars().map(|c| c as u8).collect();
                String::from_utf8_lossy(&bytes).to_ascii_lowercase().into()
            })
            .collect(),
    }
}

fn check_recv(facts: &RequestFacts) {
    let says = &facts.directives;
    match recv(facts) {
        Recv::Lookup { must_fetch, only_if_cached } => {
            assert!(facts.method.is_get_or_head() && !says.no_store && !facts.origin_precondition);
            assert!(!(must_fetch && only_if_cached) && only_if_cached == says.only_if_cached);
            assert_eq!(must_fetch, says.no_cache || says.max_age_s == Some(0));
        }
        Recv::Pass(reason) => {
            assert!(PassReason::ALL.contains(&reason));
            assert!(!says.only_if_cached || reason == PassReason::Method);
        }
        Recv::Purge | Recv::Synth(_) => {}
    }
}

fn check_response(response: &ResponseHead<'_, '_>) {
    let headers = &response.headers;
    assert_eq!(ResponseDirectives::of_cache_control(headers), twin_response(headers));
    if headers.has(KnownHeader::CdnCacheControl) {
        let _ = ResponseDirectives::of_cdn_cache_control(headers);
    }
    for reference in invalidate::references(headers) {
        assert!(headers.iter().any(|(_, value)| value == reference));
    }
    let spec = Vary::of(headers);
    let members: Vec<String> = headers.headers("vary").flat_map(elements).collect();
    let is_token = |name: &String| {
        name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte))
    };
    let names: BTreeSet<String> = members.iter().map(|name| name.to_ascii_lowercase()).collect();
    let joined = names.iter().cloned().collect::<Vec<_>>().join(",");
    let want = if members.iter().any(|name| name == "*") {
        Err(VaryFault::Any)
    } else if !members.iter().all(is_token) {
        Err(VaryFault::Malformed)
    } else if names.len() > VARY_NAMES_MAX || joined.len() > crate::policy::vary::VARY_SPEC_BYTES_MAX {
        Err(VaryFault::TooLarge)
    } else {
        Ok(joined)
    };
    assert_eq!(spec.map(|vary| String::from_utf8(vary.spec().to_vec()).expect("tokens")), want);
}

/// Calls `look` with the answer and one more line.
fn with_line<T>(
    response: &ResponseHead<'_, '_>,
    line: &str,
    look: impl FnOnce(&ResponseHead<'_, '_>) -> T,
) -> Option<T> {
    let mut text = format!("HTTP/1.1 {} \r\n", response.status).into_bytes();
    for (name, value) in response.headers.iter() {
        text.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    text.extend_from_slice(line.as_bytes());
    text.extend_from_slice(b"\r\n");
    with_response(&text, look)
}

/// Checks that a forbidding directive forbids storing, whatever other directives there are, and that only
/// storable answers are stored.
fn check_rules(facts: &RequestFacts, response: &ResponseHead<'_, '_>, rules: &StoreRules, judged: Storable) {
    let answer = ResponseFacts::of(response, true);
    let loose = StoreRules { cookies: CookieRule::Rfc, ..*rules };
    let judge =
        |head: &ResponseHead<'_, '_>| storable(facts, &ResponseFacts::of(head, true), &loose, times());
    let mut forbidding = vec!["Vary: *\r\n", "CDN-Cache-Control: private\r\n"];
    // An answer that can be validated is stored although it is never fresh.
    let mut stale = vec!["CDN-Cache-Control: max-age=0\r\n"];
    if answer.targeted {
        forbidding.truncate(1);
        stale.clear();
    } else {
        forbidding.push("Cache-Control: private\r\n");
        stale.push("Cache-Control: s-maxage=0, s-maxage=1\r\n");
    }
    if !response.headers.has(KnownHeader::Age) {
        stale.push("Age: 2147483648\r\n");
    }
    let says_stale =
        answer.directives.stale_while_revalidate.said().or(answer.directives.stale_if_error.said()).is_some();
    if !answer.has_validator && !says_stale && rules.grace_s == 0 {
        forbidding.append(&mut stale);
    }
    for line in forbidding {
        // A field that cannot be parsed cannot be parsed with one more line either, so the line has no
        // effect.
        let unread = line.starts_with("CDN") && response.headers.has(KnownHeader::CdnCacheControl);
        if let Some(with) = with_line(response, line, judge).filter(|_| !unread) {
            assert!(matches!(with, Storable::No(_)), "stored with {line}");
        }
    }
    let Storable::Yes(freshness) = judged else { return };
    assert!(
        matches!(storable(facts, &answer, &loose, times()), Storable::Yes(_)),
        "a rule of ours allowed it"
    );
    let says = &answer.directives;
    let is_fresh = freshness.initial_age_s < freshness.lifetime_s;
    assert!(
        is_fresh
            || freshness.has_validator
            || freshness.stale_while_revalidate_s.max(freshness.stale_if_error_s) > 0
    );
    assert!(
        !says.no_cache || freshness.lifetime_s == 0 && freshness.must_revalidate && freshness.has_validator
    );
    let never_stale = says.must_revalidate || says.proxy_revalidate || says.no_cache;
    assert!(!never_stale || freshness.stale_while_revalidate_s.max(freshness.stale_if_error_s) == 0);
    assert!(freshness.kept_until_s(NOW_S, 0) >= freshness.stale_at_s(NOW_S));
    assert!(freshness.lifetime_s <= DELTA_SECONDS_MAX);
    assert!(!says.private && !facts.directives.no_store && answer.vary.is_ok());
    assert!(!says.no_store || says.must_understand);
    assert!((200..=999).contains(&answer.status) && answer.status != 206 && answer.status != 304);
    let shared = says.public || says.must_revalidate || says.s_maxage != Seconds::Absent;
    assert!(!facts.authorization || shared);
    if rules.cookies != CookieRule::Rfc {
        assert!(!answer.sets_cookie || rules.removes_set_cookie);
        assert!(!facts.cookie || freshness.for_cookies);
    }
    assert_eq!(freshness.stale_at_s(NOW_S) - freshness.born_s(NOW_S), u64::from(freshness.lifetime_s));
}

/// Returns the field names of a head, in lower case.
fn names(head: &[u8]) -> Vec<String> {
    let lines = head.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            String::from_utf8_lossy(name).to_ascii_lowercase()
        })
        .collect()
}

/// Checks that a built head is valid, has no hop-by-hop fields and no `Content-Length`, and is the same when
/// built again.
fn check_heads(response: &ResponseHead<'_, '_>, judged: Storable, body_bytes: Option<u64>) {
    let omit = ResponseFacts::of(response, true).directives.omit;
    for purpose in [For::Store, For::Forward] {
        let mut made = Vec::new();
        let outline =
            append_origin_head(&mut made, response, purpose, LeftOut { omit: &omit, tags: &[] }, NOW_S);
        assert_eq!(outline.head_bytes as usize, made.len());
        let names = names(&made);
        for gone in ["connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length"] {
            assert!(!names.iter().any(|name| name == gone), "{gone} is for one hop");
        }
        assert!(names.iter().any(|name| name == "date"));
        if purpose == For::Store {
            let mut never = vec!["age", "proxy-authenticate"];
            // A `Date` that the origin reserves for one visitor is replaced by ours.
            never.extend(omit.iter().map(|name| &**name).filter(|name| *name != "date"));
            for gone in never {
                assert!(!names.iter().any(|name| name == gone), "{gone} is not stored");
            }
            let (mut unmodified, mut part) = (Vec::new(), Vec::new());
            append_not_modified(&mut unmodified, &made);
            append_partial(&mut part, &made);
            let body_only = |name: &str| {
                let known = ["content-type", "content-encoding", "content-language", "content-range"];
                known.contains(&name)
                    || ["content-md5", "content-disposition", "accept-ranges", "trailer"].contains(&name)
            };
            let kept: Vec<String> = names.iter().filter(|name| !body_only(name)).cloned().collect();
            let ranged = names.iter().filter(|name| *name != "content-range").cloned().collect();
            assert_eq!((self::names(&unmodified), self::names(&part)), (kept, ranged));
        }
        if let (Storable::Yes(freshness), For::Store) = (judged, purpose) {
            let meta = StoredMeta::of_response(
                response,
                &Dates::of(&response.headers),
                &outline,
                &freshness,
                times(),
                body_bytes,
            );
            assert!(meta.fits());
            assert_eq!(StoredMeta::unpack(&meta.pack()), Some(meta));
            assert_eq!(meta.age_s(NOW_S), u64::from(freshness.initial_age_s));
            if let (Some(at), Some(etag)) = (&outline.etag, meta.validators(&made).etag) {
                assert!(etag.opaque.len() <= at.len());
            }
        }
        // An added date may be one field too many.
        if names.len() > HEADERS_MAX {
            continue;
        }
        let text = [&made[..], b"\r\n"].concat();
        let again = with_response(&text, |head| {
            assert_eq!(head.status, response.status);
            let etag = head.known(KnownHeader::Etag).filter(|_| !head.headers.is_repeated(KnownHeader::Etag));
            assert_eq!(outline.etag.clone().map(|at| &made[at.start as usize..at.end as usize]), etag);
            let mut again = Vec::new();
            append_origin_head(&mut again, head, purpose, LeftOut { omit: &omit, tags: &[] }, NOW_S);
            again
        });
        assert_eq!(again, Some(made));
    }
}

/// Checks which requests may reuse a stored response.
fn check_reuse(
    request: &RequestHead<'_, '_>,
    facts: &RequestFacts,
    response: &ResponseHead<'_, '_>,
    freshness: &Freshness,
    later_s: u16,
    body_bytes: Option<u64>,
) {
    let mut made = Vec::new();
    let outline = append_origin_head(&mut made, response, For::Store, LeftOut::default(), NOW_S);
    let meta = StoredMeta::of_response(
        response,
        &Dates::of(&response.headers),
        &outline,
        freshness,
        times(),
        body_bytes,
    );
    let stored = meta.stored(NOW_S + u64::from(later_s));
    let says = &facts.directives;
    let age_s = u64::from(freshness.initial_age_s) + u64::from(later_s);
    let left_s = u64::from(freshness.lifetime_s).checked_sub(age_s).filter(|left_s| *left_s > 0);
    let allowed = !says.no_cache && says.max_age_s.is_none_or(|max| max > 0 && age_s <= max.into());
    match judge_reuse(stored, says) {
        Reuse::Fresh { ttl_s } => {
            assert!(allowed && left_s == Some(ttl_s.into()));
            assert!(says.min_fresh_s.is_none_or(|min| min <= ttl_s));
        }
        Reuse::StaleAccepted { stale_s } => {
            assert!(allowed && left_s.is_none() && !freshness.must_revalidate);
            assert!(says.max_stale_s.is_some_and(|max| stale_s <= max.into()) && says.min_fresh_s.is_none());
        }
        Reuse::StaleWhileRevalidate { stale_s } => {
            assert!(allowed && left_s.is_none() && stale_s < freshness.stale_while_revalidate_s.into());
        }
        Reuse::StaleIfError { stale_s } => {
            assert!(allowed && left_s.is_none() && stale_s < freshness.stale_if_error_s.into());
        }
        Reuse::No(_) => {
            let fresh = allowed && left_s.is_some_and(|left| left >= says.min_fresh_s.unwrap_or(0).into());
            assert!(!fresh, "it was fresh, and wanted");
        }
    }
    assert!(may_share(Audience::of(freshness.for_cookies), false, CookieRule::Safe));
    let is_get = request.method == "GET";
    let validators = meta.validators(&made);
    let verdict = evaluate(&request.headers, is_get, response.status, &validators, body_bytes);
    check_verdict(verdict, request, response.status, &validators, body_bytes);
}

fn check_verdict(
    verdict: Verdict,
    request: &RequestHead<'_, '_>,
    status: u16,
    validators: &Validators<'_>,
    body_bytes: Option<u64>,
) {
    let has = |name: &str| request.header(name).is_some();
    let range = || request.method == "GET" && status == 200 && has("range") && body_bytes.is_some();
    match verdict {
        Verdict::Whole => {}
        Verdict::NotModified => {
            assert!((200..300).contains(&status) && (has("if-none-match") || has("if-modified-since")));
            let any = request.headers("if-none-match").any(|value| value == b"*");
            assert!(!has("if-none-match") || any || validators.etag.is_some());
        }
        Verdict::Partial { first, last, complete } => {
            assert!(range() && first <= last && last < complete && Some(complete) == body_bytes);
        }
        Verdict::Several { complete } => {
            assert!(range() && Some(complete) == body_bytes);
            let parts = several_ranges(&request.headers, complete);
            assert!((2..=RANGES_MAX).contains(&parts.len()) && parts.iter().all(|part| !part.is_empty()));
            assert!(parts.windows(2).all(|pair| pair[0].end < pair[1].start));
            assert!(parts.iter().all(|part| part.end <= complete));
        }
        Verdict::Unsatisfiable { complete } => assert!(range() && Some(complete) == body_bytes),
    }
}

/// Checks that the variant selected by a request does not depend on the spelling of its fields, or on the
/// order of fields with different names.
fn check_vary(head: &[u8], request: &RequestHead<'_, '_>, response: &ResponseHead<'_, '_>) {
    let Ok(vary) = Vary::of(&response.headers) else { return };
    let key = |request: &RequestHead<'_, '_>| {
        let mut key = Vec::new();
        secondary_key(vary.spec(), &request.headers, &mut key);
        key
    };
    let whole = key(request);
    let parts = vary.spec().split(|byte| *byte == b',').filter(|name| !name.is_empty()).count();
    assert_eq!(whole.is_empty(), parts == 0);
    assert!(whole.iter().filter(|byte| **byte == b'\n').count() <= parts);
    let line_end = head.windows(2).position(|pair| pair == b"\r\n").map_or(0, |at| at + 2);
    let skipped = if line_end == 2 { 2 } else { 0 };
    let line_end =
        head[skipped..].windows(2).position(|pair| pair == b"\r\n").map_or(0, |at| skipped + at + 2);
    let mut headers: Vec<(String, &[u8])> =
        request.headers.iter().map(|(name, value)| (name.to_ascii_uppercase(), value)).collect();
    headers.sort_by(|one, other| other.0.cmp(&one.0));
    let mut text = head[skipped..line_end].to_vec();
    for (name, value) in headers {
        text.extend_from_slice(&[name.as_bytes(), b":\t", value, b" \r\n"].concat());
    }
    text.extend_from_slice(b"\r\n");
    let other = with_request(&text, |request, _| key(request));
    assert_eq!(other.as_ref(), Some(&whole), "{}", text.escape_ascii());
}
