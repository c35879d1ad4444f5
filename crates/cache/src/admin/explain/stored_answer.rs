//! The part of an explanation about a stored answer: which one is found, and whether it is a hit, stale or a miss.

use engine::{
    cores::clock,
    store::{Hash, Shard},
};
use wire::http1::head::{HeadLimits, HeaderSlots, Progress, parse_response};

use super::{StoredObject, Walk, in_words, telling};
use super::{arithmetic, blocks, codings};
use crate::{
    body::slice::{NO_RANGES, VERSIONS_DIFFER},
    core::store_s,
    fetch::{
        hit_for_miss::{self, NoteQuery},
        revalidate,
    },
    head::{
        found_object::FoundObject,
        response_head::{Flags, StoredMeta},
    },
    policy::{self, ResponseFacts, Reuse},
    purging::invalidations::{KeyHashes, Verdict},
    states::hit::CLOCK_BACK_S_MAX,
};

impl Walk<'_> {
    /// Describes the stored object: its size, its location, and the decisive lines of its head.
    pub(super) fn stored(
        &mut self,
        shard: &Shard,
        StoredObject { object, meta, hash, head }: &StoredObject<'_>,
        is_on_file: bool,
    ) {
        let bytes = meta.content_bytes(object).unwrap_or(0);
        let place = match (object.is_in_parts(), is_on_file) {
            _ if meta.flags.has(Flags::IN_BLOCKS) => (
                "blocks",
                blocks::in_words(self.core, shard, FoundObject { object: *object, meta, hash: *hash }),
            ),
            (true, _) => ("file-in-parts", "body on the file, in parts".to_owned()),
            (false, true) => ("memory-and-file", "in memory and on the file".to_owned()),
            (false, false) => ("memory", "in memory".to_owned()),
        };
        let tags = crate::tags::stored(object.extra()).map_or(0, |tags| tags.len()) as u64;
        let kept_until = arithmetic::date(u64::from(object.expires_s()));
        let words = format!(
            "status {}, {bytes} bytes, {}; {tags} tags; the origin took {} ms; kept until {kept_until}",
            meta.status, place.1, meta.origin_ms
        );
        let step = self.say("store", place.0, words, "");
        step.number("status", meta.status).number("body_bytes", bytes).number("tags", tags);
        step.number("origin_ms", meta.origin_ms).number("kept_until_s", object.expires_s());
        let lines: Vec<_> = head.split(|&b| b == b'\n').filter_map(telling).collect();
        self.say("head", "says", lines.join("; "), "").text("lines", lines.join("\n"));
    }

    /// Explains how purges, freshness and the request's directives affect the stored object.
    pub(super) fn use_of(&mut self, shard: &Shard, stored: &StoredObject<'_>, address: Hash, primary: &[u8]) {
        let (now_s, config) = (self.now_s, &*self.core.config);
        let mut meta = stored.meta;
        let hashes = KeyHashes { own: stored.hash, address };
        match self.core.purges.invalidations.judge(
            &stored.object,
            &mut meta,
            hashes,
            Some(&self.head.headers),
            now_s,
        ) {
            Verdict::Valid => self.say("purges", "valid", "no purge since it was stored matches", ""),
            Verdict::Outdated => {
                let text = "its content changed a moment ago: shown while it is renewed";
                self.say("purges", "changed", text, "")
            }
            Verdict::Soft(_) => {
                let since = arithmetic::date(meta.fresh_until_s());
                self.say("purges", "soft", format!("soft-purged: stale since {since} at the latest"), "")
            }
            Verdict::Hard => {
                self.say("purges", "hard", "purged since it was stored: treated as missing", "");
                return self.missed(shard, primary, None);
            }
        };
        let mut head = stored.head.clone();
        head.extend_from_slice(b"\r\n");
        let limits = HeadLimits { line_bytes_max: head.len(), head_bytes_max: head.len() };
        let mut slots = HeaderSlots::new();
        let facts = match parse_response(&head, &mut slots, &limits) {
            Ok(Progress::Complete((head, _))) => Some(ResponseFacts::of(&head, config.cdn_cache_control)),
            Ok(Progress::NeedMore) | Err(_) => None,
        };
        let default_ttl_s = store_s(self.core.sites.rules(self.site).default_ttl.as_secs());
        let path_ttl_s = self.facts.ruled.ttl_s;
        let source = facts
            .as_ref()
            .and_then(|facts| arithmetic::source(facts, &stored.meta, default_ttl_s, path_ttl_s));
        let words = arithmetic::sum(&stored.meta, source, meta.lifetime_s, now_s);
        let decision = if meta.fresh_until_s() > now_s { "fresh" } else { "stale" };
        let section = source.map_or("RFC 9111 §4.2", policy::Source::section);
        let step = self.say("freshness", decision, words, section);
        step.number("lifetime_s", meta.lifetime_s).number("age_s", meta.age_s(now_s));
        step.number("fresh_until_s", meta.fresh_until_s());
        let (decision, words, section) = arithmetic::stale_deadline(facts.as_ref(), &meta);
        self.say("stale", decision, words, section);
        self.outcome(shard, stored, &meta, primary);
    }

    /// Explains the outcome by the rules of [`hit`](crate::states::hit). `meta` is the stored one with purges
    /// applied.
    fn outcome(&mut self, shard: &Shard, stored: &StoredObject<'_>, meta: &StoredMeta, primary: &[u8]) {
        let core = self.core;
        let asked = stored.meta.has_validator().then_some(stored);
        if stored.object.expires_s() <= store_s(self.now_s) {
            self.say("reuse", "no", "past its retention time in the store", "knob keep");
            return self.missed(shard, primary, None);
        }
        if meta.born_s > self.now_s + CLOCK_BACK_S_MAX {
            self.say("reuse", "no", "stored in the future: the clock was set back", "");
            return self.missed(shard, primary, asked);
        }
        if !core.purges.cluster.membership.may_serve() {
            let words = "revalidated first: the cluster lease has run out, so purges may have been missed";
            self.say("reuse", "no", words, "knob cluster-lease");
            return self.missed(shard, primary, asked);
        }
        if self.facts.certificate && !meta.flags.has(Flags::FOR_ALL) {
            let words = "not explicitly shareable, and the client has shown a certificate";
            self.say("reuse", "no", words, "knob tls-client");
            return self.missed(shard, primary, asked);
        }
        if !policy::may_share(meta.audience(), self.facts.cookie, core.config.cookies) {
            let words = "stored for visitors without cookies";
            self.say("reuse", "no", words, "knob cookies");
            return self.missed(shard, primary, asked);
        }
        let now_ms = clock::monotonic_ms();
        let is_failing = core.fetches.refreshed_lately.has(stored.hash, now_ms)
            || core.sites.group(self.site).is_failing(now_ms);
        match policy::judge_reuse(meta.stored(self.now_s), &self.facts.directives) {
            Reuse::Fresh { ttl_s } => {
                self.say("reuse", "fresh", format!("fresh for {ttl_s} s"), "RFC 9111 §4.2");
                self.hit(shard, stored, meta);
            }
            Reuse::StaleAccepted { stale_s } => {
                let words = format!("stale for {stale_s} s, which the request accepts");
                self.say("reuse", "max-stale", words, "RFC 9111 §5.2.1.2");
                self.hit(shard, stored, meta);
            }
            Reuse::StaleWhileRevalidate { stale_s } => {
                let words = format!("stale for {stale_s} s, and served while one request refreshes it");
                self.say("reuse", "stale-while-revalidate", words, "RFC 5861 §3");
                self.hit(shard, stored, meta);
            }
            Reuse::StaleIfError { stale_s } if is_failing => {
                let words = format!("stale for {stale_s} s, and served because the origin fails");
                self.say("reuse", "stale-if-error", words, "RFC 5861 §4");
                self.hit(shard, stored, meta);
            }
            Reuse::StaleIfError { stale_s } => {
                let words = format!("stale for {stale_s} s, and served only if the origin fails");
                self.say("reuse", "no", words, "RFC 5861 §4");
                self.missed(shard, primary, asked);
            }
            Reuse::No(reason) => {
                self.say("reuse", "no", reason.words(), reason.section()).text("reason", reason.name());
                self.missed(shard, primary, asked);
            }
        }
    }

    fn hit(
        &mut self,
        shard: &Shard,
        StoredObject { object, hash, head, .. }: &StoredObject<'_>,
        meta: &StoredMeta,
    ) {
        let headers = &self.head.headers;
        let found = FoundObject { object: *object, meta, hash: *hash };
        let (decision, words, section) = codings::of_hit(self.core, shard, found, head, headers);
        self.say("coding", decision, words, section);
        let complete = meta.content_bytes(object);
        let is_get = self.head.method == "GET";
        let validators = meta.validators(head);
        let (words, section) =
            match policy::evaluate(&self.head.headers, is_get, meta.status, &validators, complete) {
                policy::Verdict::Whole => ("answered from the store".to_owned(), ""),
                policy::Verdict::NotModified => {
                    ("answered from the store with 304: the client has it".to_owned(), "RFC 9110 §13.2.2")
                }
                policy::Verdict::Partial { first, last, .. } => {
                    (format!("answered from the store with 206, bytes {first} to {last}"), "RFC 9110 §14.2")
                }
                policy::Verdict::Several { .. } => {
                    ("answered from the store with 206, several ranges".to_owned(), "RFC 9110 §15.3.7.2")
                }
                policy::Verdict::Unsatisfiable { complete } => {
                    let words = format!("answered with 416: there are {complete} bytes");
                    (words, "RFC 9110 §15.5.17")
                }
            };
        self.say("now", "hit", words, section);
    }

    /// Explains how a request that the store cannot answer is handled. `asked` is the stored object that the
    /// origin is asked to revalidate.
    pub(super) fn missed(&mut self, shard: &Shard, primary: &[u8], asked: Option<&StoredObject<'_>>) {
        let origin = self.origin();
        let query = NoteQuery { primary, facts: &self.facts, fields: &self.fields(), now_s: self.now_s };
        if let Some(note) = hit_for_miss::peek(self.core, shard, query) {
            let until = arithmetic::date(note.until_s);
            let why = policy::Why::ALL.iter().find(|why| why.name() == note.reason);
            let (words, section) = match (why, note.reason) {
                (Some(why), _) => (why.words(), why.section()),
                (None, NO_RANGES) => {
                    ("The origin does not send ranges although it announced them", "RFC 9110 §14.3")
                }
                (None, VERSIONS_DIFFER) => (
                    "The servers of the origin have different versions, so that the slices do not fit together",
                    "",
                ),
                (None, _) => ("The answer is larger than the largest object", "bound"),
            };
            let is_waited_for = why == Some(&policy::Why::Expired);
            let mut words = format!("hit-for-miss until {until}: the last answer was not storable: {words}");
            if why == Some(&policy::Why::NoFreshness) {
                words.push_str(" (default-ttl sets a lifetime for such answers)");
            }
            let decision = match (is_waited_for, note.is_due) {
                (true, _) => "expired-on-arrival",
                (false, true) => "over",
                (false, false) => "not-stored",
            };
            if is_waited_for {
                words = "hit-for-miss: the last answer had expired on arrival, because the origin took longer than its \
                         freshness lifetime. Requests that waited got it, later ones do not (default-ttl and a path's \
                         ttl count from the arrival)"
                    .to_owned();
            }
            let step = self.say("note", decision, words, section);
            step.text("reason", note.reason).number("until_s", note.until_s);
            if !note.is_due && !is_waited_for && !self.only_if_cached {
                let words = format!("passed to the origin, {origin}, at once and without collapsing");
                self.say("now", "pass", words, section);
                return;
            }
        }
        if self.only_if_cached {
            self.say("now", "synth", "answered with 504", "RFC 9111 §5.2.1.7").number("status", 504u16);
        } else if let Some(StoredObject { meta, head, .. }) = asked {
            let conditions = in_words(&revalidate::conditions(meta, head));
            let words = format!("revalidated with the origin, {origin}: {conditions}");
            self.say("now", "revalidate", words, "RFC 9111 §4.3");
        } else {
            let words = format!("fetched from the origin, {origin}, and stored if the answer allows that");
            self.say("now", "miss", words, "RFC 9111 §3");
        }
    }
}
