//! Explanation of why a request is, or is not, answered from the store: the same steps as
//! [`hit`](crate::states::hit), with words instead of an answer.
//!
//! ```text
//!  admin ─ RequestOf ─▶ Message::Explain ─▶ the core that owns the key: site ▸ recv ▸ key ▸ variant ▸ store ▸ head ▸ purges
//!        ◀───────────── Explanation ◀─────                             ▸ freshness ▸ stale ▸ coding ▸ note ▸ now
//! ```
//! The explanation calls the same pure functions as a real request, so its outcome is the outcome of a real
//! request. No counter changes, and nothing is written, read from the file, or fetched. *Bounds:* those of a
//! request's head, and the admin server's limit on simultaneous requests.

mod arithmetic;
mod blocks;
mod codings;
mod stored_answer;

use std::net::{IpAddr, Ipv4Addr};

use engine::{
    cores::clock,
    store::{Hash, Object, Shard, Store},
};
use wire::http1::{
    forwarded,
    framing::{Framing, request_framing},
    head::{HeadLimits, RequestHead},
    known::KnownHeader,
    url::Scheme,
};

use crate::{
    admin::{
        explanation::{ExplainError, Explanation, OwnerExplanation, Question, RequestOf, Step},
        last_clients::LastClient,
        operator_port::Outside,
    },
    config::{CookieRule, SiteRules},
    core::{Core, CoreBusy, Message, store_s},
    head::{
        response_head::{Flags, StoredMeta},
        sent_fields::SentFields,
    },
    policy::{
        self, Recv, RequestFacts,
        directives::RequestDirectives,
        vary::{VARY_SPEC_BYTES_MAX, secondary_key},
    },
    request::{client_ip::Visitor, dependent::Dependent, key, lookup_key::LookupKey},
    site::{SiteId, SiteTable},
    states::pipe,
};

/// Fields of a stored head that affect how the stored answer may be used.
const TELLING: [&str; 7] =
    ["cache-control", "cdn-cache-control", "expires", "date", "last-modified", "etag", "vary"];

/// Asks the core that owns the key for an explanation. Runs on a thread that may block.
///
/// # Errors
/// [`ExplainError`] if the request is invalid or would be refused, or the core did not answer.
pub(crate) fn ask_from_outside(
    store: &Store,
    cores: usize,
    sites: &SiteTable,
    limits: &HeadLimits,
    request: &RequestOf,
    outside: &Outside,
) -> Result<Explanation, ExplainError> {
    let head = request.head(limits)?;
    let mut key = Vec::new();
    head.with(limits, |head| key::of_request(head, sites, &mut key))?;
    let owner = store.owner(store.hash(&key));
    let question = |reply| Message::Explain(Box::new(Question { head, limits: *limits, reply }));
    let explained = outside.ask(owner, question).map_err(|CoreBusy| ExplainError::NoAnswer)?;
    let OwnerExplanation { mut explanation, object } = explained;
    if let Some(hash) = object {
        // A core that does not answer is treated as if it had recorded no client for this object.
        let noted = |core| outside.ask(core, |reply| Message::LastClient { hash, reply }).ok().flatten();
        let asked = asked((0..cores).filter_map(noted).max_by_key(|asker| asker.at_s));
        // The outcome must remain the last step.
        explanation.steps.insert(explanation.steps.len().saturating_sub(1), asked);
    }
    Ok(explanation)
}

/// Describes the client that was last answered with the object.
fn asked(asker: Option<LastClient>) -> Step {
    let (decision, words) = match asker {
        Some(LastClient { at_s, address }) => {
            ("last", format!("last served to {address}, on {}", arithmetic::date(at_s)))
        }
        None => ("nobody", "not served from the store recently".to_owned()),
    };
    let mut step = Step { state: "asked", decision, words, section: "", figures: Vec::new() };
    if let Some(LastClient { at_s, address }) = asker {
        step.number("at_s", at_s).text("address", address.to_string());
    }
    step
}

/// Answers an explanation request. Runs on the owner's core.
pub(crate) fn answer(core: &Core, Question { head, limits, reply }: Question) {
    if let Ok(explanation) = head.with(&limits, |head| explain(core, head)) {
        // The receiver may have given up.
        let _ = reply.send(explanation);
    }
}

fn explain(core: &Core, head: &RequestHead<'_, '_>) -> OwnerExplanation {
    let has_body = !matches!(request_framing(head), Ok(Framing::None | Framing::Length(0)));
    let mut key = Vec::new();
    let site = key::of_request(head, &core.sites.table, &mut key);
    // An explanation has no client connection: if the site requires a client certificate, the explanation
    // assumes that the client has one.
    let is_known = core.sites.rules(site).client_certificates.as_ref().is_some_and(|asks| asks.is_required);
    let keyed = LookupKey { hash: core.storage.store.hash(&key), primary_bytes: key.len(), site, is_known };
    let facts = core.facts(head, has_body, keyed, &key);
    let now_s = clock::unix_s();
    let mut walk =
        Walk { core, head, site, facts, only_if_cached: false, now_s, object: None, steps: Vec::new() };
    walk.site();
    if walk.recv() {
        walk.visitor();
        walk.key(&key);
        walk.owner(&key);
        walk.lookup(key);
    }
    OwnerExplanation { explanation: Explanation { steps: walk.steps }, object: walk.object }
}

/// The stored answer to the request.
struct StoredObject<'a> {
    object: Object<'a>,
    meta: StoredMeta,
    hash: Hash,
    head: Vec<u8>,
}

/// A request on its way through the states, with the steps explained so far.
struct Walk<'a> {
    core: &'a Core,
    head: &'a RequestHead<'a, 'a>,
    site: SiteId,
    facts: RequestFacts,
    only_if_cached: bool,
    now_s: u64,
    steps: Vec<Step>,
    /// Hash of the object stored for the request, if it is in memory.
    object: Option<Hash>,
}

impl Walk<'_> {
    fn say(
        &mut self,
        state: &'static str,
        decision: &'static str,
        words: impl Into<String>,
        section: &'static str,
    ) -> &mut Step {
        self.steps.push(Step { state, decision, words: words.into(), section, figures: Vec::new() });
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// Names the request's site and, if the site has path rules, the rule that applies.
    fn site(&mut self) {
        let (table, site) = (&self.core.sites.table, self.site);
        let names = table.names(site);
        if !self.core.config.sites.is_empty() {
            let words = match (site == SiteId::DEFAULT, self.facts.ruled.is_misdirected) {
                (true, true) => "no site has this host, and there is no origin for other hosts".to_owned(),
                (true, false) => "no site has this host: the settings for all other hosts apply".to_owned(),
                (false, _) => format!("the site for {names}"),
            };
            let decision = if site == SiteId::DEFAULT { "default" } else { "named" };
            self.say("site", decision, words, "knob site").text("hosts", names);
        }
        if let Some((at, rule)) =
            self.facts.ruled.path.and_then(|at| Some((at, table.rules(site).paths.get(at)?)))
        {
            let words = format!("the rule for {} is the site's first that matches", rule.path);
            self.say("site", "path", words, "knob path").number("rule", at as u64 + 1);
        }
    }

    /// Explains the `recv` state and returns whether the request is looked up.
    fn recv(&mut self) -> bool {
        if self.core.sites.rules(self.site).https_only && key::scheme_of(self.head) == Scheme::Http {
            self.say(
                "recv",
                "synth",
                "the site is https only: http requests are redirected",
                "knob https-only",
            );
            self.say("now", "synth", "answered 301 or 308 without a lookup", "");
            return false;
        }
        if pipe::is_asked_for(self.head) {
            self.say("recv", "pipe", "the request asks for a WebSocket", "RFC 6455 §4.1");
            let words = format!("passed to the origin, {}; if it agrees, all bytes are piped", self.origin());
            self.say("now", "pipe", words, "");
            return false;
        }
        match policy::recv(&self.facts) {
            Recv::Lookup { must_fetch, only_if_cached } => {
                self.only_if_cached = only_if_cached;
                let (words, section) = match (must_fetch, only_if_cached) {
                    (true, _) => (
                        "looked up, but the request allows only an answer that the origin has validated",
                        "RFC 9111 §5.2.1.4",
                    ),
                    (false, true) => ("answered from the store, or with 504", "RFC 9111 §5.2.1.7"),
                    (false, false) => ("GET and HEAD may be answered from the store", "RFC 9111 §4"),
                };
                self.say("recv", "lookup", words, section);
                return true;
            }
            Recv::Pass(reason) => {
                self.say("recv", "pass", reason.words(), reason.section()).text("reason", reason.name());
                let origin = self.origin();
                let words = format!("passed to the origin, {origin}, without lookup or storage");
                self.say("now", "pass", words, "");
            }
            Recv::Purge => {
                self.say("recv", "purge", "the request is a purge", "");
                self.say("now", "purge", "allowed for the listed networks, otherwise 403", "knob purge-from");
            }
            Recv::Synth(fault) => {
                let words =
                    format!("answered {} without the origin: {}", fault.status(), fault.words().title);
                self.say("recv", "synth", fault.words().what.to_owned(), "");
                self.say("now", "synth", words, "").number("status", fault.status());
            }
        }
        false
    }

    /// Explains the request's credentials, cookies and cache directives, as far as later steps depend on
    /// them.
    fn visitor(&mut self) {
        if RequestDirectives::of(&self.head.headers) != self.facts.directives {
            let words = "the request's Cache-Control and Pragma are ignored";
            self.say("recv", "ignored", words, "knob client-cache-control");
        }
        if self.facts.certificate {
            let words = "the site requires a client certificate and names it to the origin: an answer is stored only \
                         if it says public or s-maxage, and a stored answer that does not say so is not served";
            self.say("recv", "certificate", words, "knob tls-client");
        }
        if self.facts.authorization {
            let words = "the request carries credentials: its answer is stored only if it says public, must-revalidate \
                         or s-maxage";
            self.say("recv", "credentials", words, "RFC 9111 §3.5");
        }
        if self.facts.ruled.is_without_cookies && self.head.headers.has(KnownHeader::Cookie) {
            let words =
                "none of the cookies is one of bypass-cookies: they are ignored, and not sent to the origin";
            self.say("recv", "cookies-ignored", words, "knob bypass-cookies");
        }
        if self.facts.ruled.is_alone {
            self.say(
                "recv",
                "alone",
                "the request does not wait for another request's fetch",
                "knob path, join",
            );
        }
        if self.facts.cookie {
            let (words, section) = match self.core.config.cookies {
                CookieRule::Safe => (
                    "the request carries a cookie: its answer is stored only if it states a freshness lifetime, and \
                     objects stored with a heuristic one are not served",
                    "knob cookies=safe",
                ),
                CookieRule::Strict => (
                    "the request carries a cookie: only answers that are explicitly public are stored for it and \
                     served to it",
                    "knob cookies=strict",
                ),
                CookieRule::Rfc => {
                    ("the request carries a cookie, which makes no difference", "knob cookies=rfc")
                }
            };
            self.say("recv", "cookie", words, section);
        }
    }

    fn key(&mut self, key: &[u8]) {
        let scheme = if key::scheme(key) == Scheme::Https { "https" } else { "http" };
        let authority = String::from_utf8_lossy(key::authority(key)).into_owned();
        let path = String::from_utf8_lossy(key::path(key)).into_owned();
        let (origin, core) = (self.origin(), self.core.index as u64);
        let words = format!("{scheme}://{authority}{path}, of the site whose origin is {origin}");
        let step = self.say("key", "primary", words, "RFC 9111 §4.1");
        step.text("scheme", scheme).text("authority", authority).text("path", &path).number("core", core);
        let rules = self.core.sites.rules(self.site);
        let mut asked_for = Vec::new();
        key::append_target(self.head, &SiteRules::default(), &mut asked_for);
        let asked_for = String::from_utf8_lossy(&asked_for);
        if asked_for != path {
            let words = format!("by the site's rules, parameters of {asked_for} are removed or sorted");
            self.say("key", "query", words, "knob ignore-query, sort-query");
        }
        if let Some(host) = &rules.host {
            self.say("key", "host", format!("the origin gets {host} as the Host"), "knob host");
        }
    }

    /// Names the peer that owns the key.
    fn owner(&mut self, key: &[u8]) {
        let Some(peers) = &self.core.origins.peers else { return };
        let Some(peer) = peers.owner(key) else { return };
        let (decision, words) = if *peer.name == peers.rules.name {
            ("own", "this accelerator owns the key: peers ask it before the origin".to_owned())
        } else {
            (
                "peer",
                format!("{} owns the key, and is asked before the origin, at {}", peer.name, peer.address),
            )
        };
        self.say("owner", decision, words, "").text("name", &*peer.name);
    }

    /// Looks up the address, and the request's variant if the address has variants.
    fn lookup(&mut self, mut key: Vec<u8>) {
        let core = self.core;
        // A shared borrow, not `shard_mut`: an explanation changes nothing.
        let shard = core.storage.shard.borrow();
        let address = core.storage.store.hash(&key);
        let primary_bytes = key.len();
        let mut hash = address;
        let found = |hash, key: &[u8]| {
            let object = shard.peek(hash, key)?;
            Some((object, StoredMeta::unpack(&object.meta())?))
        };
        let mut stored = found(hash, &key);
        if let Some((spec, meta)) = stored
            && meta.flags.has(Flags::VARY_SPEC)
        {
            hash = self.variant(&spec, &meta, address, &mut key);
            stored = found(hash, &key);
        }
        let primary = &key[..primary_bytes];
        match stored {
            Some((object, meta)) => {
                let mut head = Vec::new();
                object.head().copy_to(&mut head);
                self.object = Some(hash);
                let stored = StoredObject { object, meta, hash, head };
                let until_s = shard.on_file_until_s(hash, store_s(self.now_s));
                self.stored(&shard, &stored, until_s.is_some());
                self.use_of(&shard, &stored, address, primary);
            }
            None => self.not_in_memory(&shard, hash, primary),
        }
    }

    /// Extends `key` to the variant's key, as a hit does.
    fn variant(&mut self, spec: &Object<'_>, meta: &StoredMeta, address: Hash, key: &mut Vec<u8>) -> Hash {
        let mut names = vec![0; (meta.head_bytes as usize).min(VARY_SPEC_BYTES_MAX)];
        spec.head().slice(0..names.len()).copy_to_slice(&mut names);
        let fields = self.fields();
        let mut words = Vec::new();
        for name in names.split(|&b| b == b',') {
            let mut value = Vec::new();
            secondary_key(name, &fields, &mut value);
            let value = String::from_utf8_lossy(&value).into_owned();
            let name = String::from_utf8_lossy(name);
            words.push(match value.strip_prefix(['+', '=']) {
                Some(value) => format!("{name}: {}", value.trim_end()),
                None => format!("{name} is absent"),
            });
        }
        let words = format!("varies by the request's {}", words.join("; "));
        let generation = spec.sequence();
        self.say("variant", "vary", words, "RFC 9111 §4.1").number("generation", generation);
        let variant = Dependent::Variant { generation, names: &names, fields: &self.fields() };
        variant.place(address, key, |key| self.core.storage.store.hash(key))
    }

    /// Returns the fields that would be sent to the origin. An explanation has no client connection, so the
    /// visitor's address is the one named in the request, or this machine's.
    fn fields(&self) -> SentFields<'_> {
        let this_machine = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let named = forwarded::client(
            this_machine,
            self.head.headers("x-forwarded-for"),
            self.head.headers("forwarded"),
            |_| true,
        );
        let manner = self.core.manner(self.site);
        SentFields { head: self.head, visitor: Visitor::alone(named), manner }
    }

    fn not_in_memory(&mut self, shard: &Shard, hash: Hash, primary: &[u8]) {
        if let Some(until_s) = shard.on_file_until_s(hash, store_s(self.now_s)) {
            let until = arithmetic::date(u64::from(until_s));
            let words = format!("on the store's file only, kept until {until}");
            self.say("store", "file", words, "knob store").number("kept_until_s", until_s);
            let words = "read from the file, and then judged like an object in memory";
            self.say("now", "read", words, "");
            return;
        }
        let words = if shard.is_warming() {
            "not in memory; the store's file is still being read"
        } else {
            "nothing is stored under this key"
        };
        self.say("store", "nowhere", words, "");
        self.missed(shard, primary, None);
    }

    fn origin(&self) -> String {
        let config = &self.core.config;
        let origin = match self.site.index().checked_sub(1) {
            None => config.origin.as_ref(),
            Some(at) => config.sites.get(at).map(|site| &site.origin),
        };
        origin.map_or_else(|| "none".to_owned(), ToString::to_string)
    }
}

/// Joins the lines of a head with semicolons.
fn in_words(lines: &[u8]) -> String {
    String::from_utf8_lossy(lines).trim_end().replace("\r\n", "; ")
}

/// Returns a line of a stored head if it decides how the object may be used.
fn telling(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    let name = &line[..memchr::memchr(b':', line)?];
    let is_telling = TELLING.iter().any(|telling| name.eq_ignore_ascii_case(telling.as_bytes()));
    is_telling.then(|| String::from_utf8_lossy(line).into_owned())
}
