//! An origin's answer on its way: its head as it is kept or sent on, and what is known of it.

use crate::{
    config::CookieRule,
    head::{
        response_head::{Flags, StoredMeta},
        sent_fields::{Manner, SentFields},
    },
    policy::{self, RequestFacts, Reuse, Why},
    request::{Request, key},
    tags,
};

/// A response on its way to the clients that asked for it.
pub(crate) struct Response {
    /// Status line and fields, as they are kept; without the empty line.
    pub(crate) head: Vec<u8>,
    /// What is known of it.
    pub(crate) meta: StoredMeta,
    /// Bytes of the body, where the origin said so.
    pub(crate) length: Option<u64>,
    pub(crate) standing: ResponseRole,
    /// By which it may be purged: hashes, sorted.
    pub(crate) tags: Vec<u64>,
    /// The same as words, where there are peers, whose hashes are not ours.
    pub(crate) tag_words: Vec<u8>,
    /// Where it varies: the names of the headers, and the key of the variant that it is.
    pub(crate) variant: Option<Variant>,
    /// Requests that waited for this response get it although it had expired on arrival: it would have been fresh had
    /// it come at once, and nothing forbids that (`judge::at_once`).
    pub(crate) may_be_late: bool,
}

/// Why a response does not answer a request that waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The response is stale for that request, and so will be any other that the request waits for.
    Stale,
    /// The response is another variant, is not meant for such visitors, or was purged meanwhile.
    Other,
}

/// Why what is larger than an object may be is not stored.
pub(crate) const TOO_LARGE: &str = "too-large";

/// What a response is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseRole {
    /// The answer to a pass: the origin has applied the client's conditions and ranges.
    Passed,
    /// The answer to a fetch that is not stored: policy forbids it, or (no reason) there was no room for its variants.
    NotStorable(Option<Why>),
    /// The answer to a fetch, stored or on its way into the store.
    Stored,
    /// The answer to a fetch, made for the store, which did not take it.
    Refused {
        /// Because it is larger than an object may be.
        too_large: bool,
    },
}

/// Which variant of its address a response is.
pub(crate) struct Variant {
    pub(crate) spec: Vec<u8>,
    pub(crate) generation: u64,
    pub(crate) key: Vec<u8>,
}

impl Response {
    /// Whether it came through a fetch for the store (and not through a pass): then conditions and ranges of the client
    /// were kept from the origin, and are ours to apply.
    pub(crate) fn is_fetched(&self) -> bool {
        self.standing != ResponseRole::Passed
    }

    /// Whether it is stored, or on its way into the store.
    pub(crate) fn is_stored(&self) -> bool {
        self.standing == ResponseRole::Stored
    }

    /// Why it is not stored, in a word.
    pub(crate) fn not_stored(&self) -> Option<&'static str> {
        match self.standing {
            ResponseRole::NotStorable(why) => why.map(Why::name),
            ResponseRole::Refused { too_large: true } => Some(TOO_LARGE),
            ResponseRole::Passed | ResponseRole::Stored | ResponseRole::Refused { .. } => None,
        }
    }

    /// What is stored of its tags.
    pub(crate) fn extra(&self) -> Vec<u8> {
        tags::extra(&self.tags, &self.tag_words)
    }

    /// Its age where it must be stated (RFC 9111 §5.1): of what the store keeps, not of what is only passed on, in
    /// whose head an origin's `Age` still stands.
    pub(crate) fn age_s(&self, now_s: u64) -> Option<u64> {
        matches!(self.standing, ResponseRole::Stored | ResponseRole::Refused { .. })
            .then(|| self.meta.age_s(now_s))
    }

    /// Whether it is fresh still, which the beginning of a slow body may not be.
    pub(crate) fn is_fresh(&self, now_s: u64) -> bool {
        u64::from(self.meta.lifetime_s) > self.meta.age_s(now_s)
    }

    /// The word for Cache-Status and the log that says that a stored response had expired on arrival.
    pub(crate) fn was_late(&self) -> Option<&'static str> {
        (self.is_stored() && self.meta.was_late()).then(|| Why::Expired.name())
    }

    /// Returns whether only the requests that waited for this response read it, and no later ones.
    pub(crate) fn is_for_waiters(&self) -> bool {
        self.may_be_late && self.standing == ResponseRole::NotStorable(Some(Why::Expired))
    }

    /// Checks that this response also answers a request that joined the fetch before the response came.
    ///
    /// # Errors
    /// [`Misfit::Other`]: the response is another variant, or is not meant for visitors with cookies or a certificate.
    /// [`Misfit::Stale`]: the response is too old for what the request asks.
    pub(crate) fn fits(
        &self,
        request: &Request,
        facts: &RequestFacts,
        (cookies, manner): (CookieRule, Manner<'_>),
        now_s: u64,
    ) -> Result<(), Misfit> {
        if !policy::may_share(!self.meta.flags.has(Flags::NOT_FOR_COOKIES), facts.cookie, cookies) {
            return Err(Misfit::Other);
        }
        if facts.certificate && !self.meta.flags.has(Flags::FOR_ALL) {
            return Err(Misfit::Other);
        }
        if !self.is_of_variant(request, manner) {
            return Err(Misfit::Other);
        }
        let reuse = policy::may_reuse(self.meta.stored(now_s), &facts.directives);
        if matches!(reuse, Reuse::Fresh { .. }) || self.is_in_time(facts, now_s) {
            Ok(())
        } else {
            Err(Misfit::Stale)
        }
    }

    /// Returns whether a request that waited gets this response as if it had come at once. The limits on age in the
    /// request itself count all the same.
    fn is_in_time(&self, facts: &RequestFacts, now_s: u64) -> bool {
        let said = &facts.directives;
        let is_young = |max_s: u32| max_s > 0 && self.meta.age_s(now_s) <= u64::from(max_s);
        self.may_be_late
            && !facts.authorization
            && !said.no_cache
            && said.min_fresh_s.is_none()
            && said.max_age_s.is_none_or(is_young)
    }

    fn is_of_variant(&self, request: &Request, manner: Manner<'_>) -> bool {
        let Some(variant) = &self.variant else { return true };
        let mut key = request.primary().to_vec();
        let fields = SentFields { head: &request.head(), visitor: request.visitor, manner };
        key::append_variant(&mut key, variant.generation, &variant.spec, &fields);
        key == variant.key
    }
}
