//! An origin's response: its head as it is stored or passed on, and its metadata.

use crate::{
    config::CookieRule,
    head::{
        response_head::StoredMeta,
        sent_fields::{Manner, SentFields},
    },
    policy::{self, RequestFacts, Reuse, Why},
    request::{Request, dependent::Dependent},
    tags,
};

/// A response on its way to the clients that requested it.
pub(crate) struct Response {
    /// Status line and fields, as they are stored; without the empty line.
    pub(crate) head: Vec<u8>,
    /// Metadata of the response.
    pub(crate) meta: StoredMeta,
    /// Bytes of the body, if the origin stated the length.
    pub(crate) length: Option<u64>,
    pub(crate) standing: ResponseRole,
    /// Hashes of the purge tags, sorted.
    pub(crate) tags: Vec<u64>,
    /// The tags as text, if there are peers, which hash with other seeds.
    pub(crate) tag_words: Vec<u8>,
    /// Time at which the request was sent, in milliseconds since 1970, if the response is momentary and has
    /// tags.
    pub(crate) fetched_ms: Option<u64>,
    /// Variant of a response that varies: the names of the fields, and the variant's key.
    pub(crate) variant: Option<Variant>,
    /// True if requests that waited for this response get it although it had expired on arrival: it would
    /// have been fresh if it had arrived immediately, and nothing forbids that
    /// (`judge::freshness_on_arrival`).
    pub(crate) may_be_late: bool,
}

/// Reason why a response does not answer a request that waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The response is stale for that request, and waiting for another fetch would not help.
    Stale,
    /// The response is another variant, is not allowed for such visitors, or was purged in the meantime.
    Other,
}

/// Reason why an answer larger than the maximum object size is not stored.
pub(crate) const TOO_LARGE: &str = "too-large";

/// Role of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseRole {
    /// The answer to a pass: the origin has applied the client's conditions and ranges.
    Passed,
    /// The answer to a fetch that is not stored: policy forbids it, or (without a reason) there was no room
    /// for its variants.
    NotStorable(Option<Why>),
    /// The answer to a fetch, stored or being stored.
    Stored,
    /// The answer to a fetch for the store, which did not accept it.
    Refused {
        /// True if the answer exceeds the maximum object size.
        too_large: bool,
    },
}

/// Variant of an address to which a response belongs.
pub(crate) struct Variant {
    pub(crate) spec: Vec<u8>,
    pub(crate) generation: u64,
    pub(crate) key: Vec<u8>,
}

impl Response {
    /// Returns whether the response came through a fetch for the store (and not through a pass): the client's
    /// conditions and ranges were not sent to the origin then, and are applied here.
    pub(crate) fn is_fetched(&self) -> bool {
        self.standing != ResponseRole::Passed
    }

    /// Returns whether the response is stored, or being stored.
    pub(crate) fn is_stored(&self) -> bool {
        self.standing == ResponseRole::Stored
    }

    /// Returns the reason why the response is not stored, as a token.
    pub(crate) fn not_stored(&self) -> Option<&'static str> {
        match self.standing {
            ResponseRole::NotStorable(why) => why.map(Why::name),
            ResponseRole::Refused { too_large: true } => Some(TOO_LARGE),
            ResponseRole::Passed | ResponseRole::Stored | ResponseRole::Refused { .. } => None,
        }
    }

    /// Returns the tags in the form in which they are stored.
    pub(crate) fn extra(&self) -> Vec<u8> {
        tags::extra(&self.tags, &self.tag_words, self.fetched_ms)
    }

    /// Returns the age if it must be stated (RFC 9111 §5.1): for a response made for the store, not for a
    /// passed one, whose head still has the origin's `Age`.
    pub(crate) fn age_s(&self, now_s: u64) -> Option<u64> {
        matches!(self.standing, ResponseRole::Stored | ResponseRole::Refused { .. })
            .then(|| self.meta.age_s(now_s))
    }

    /// Returns whether the response is still fresh; it may become stale while a slow body is arriving.
    pub(crate) fn is_fresh(&self, now_s: u64) -> bool {
        u64::from(self.meta.lifetime_s) > self.meta.age_s(now_s)
    }

    /// Returns the token for Cache-Status and the log if a stored response had expired on arrival.
    pub(crate) fn late_reason(&self) -> Option<&'static str> {
        (self.is_stored() && self.meta.was_late()).then(|| Why::Expired.name())
    }

    /// Returns whether only the requests that waited for this response may read it.
    pub(crate) fn is_for_waiters(&self) -> bool {
        self.may_be_late && self.standing == ResponseRole::NotStorable(Some(Why::Expired))
    }

    /// Checks that this response also answers a request that joined the fetch before the response arrived.
    ///
    /// # Errors
    /// [`Misfit::Other`] if the response is another variant, or is not for visitors with cookies or a
    /// certificate. [`Misfit::Stale`] if the response is too old for the request's directives.
    pub(crate) fn fits(
        &self,
        request: &Request,
        facts: &RequestFacts,
        cookies: CookieRule,
        manner: Manner<'_>,
        now_s: u64,
    ) -> Result<(), Misfit> {
        if !self.meta.may_answer(facts, cookies) {
            return Err(Misfit::Other);
        }
        if !self.is_of_variant(request, manner) {
            return Err(Misfit::Other);
        }
        let reuse = policy::judge_reuse(self.meta.stored(now_s), &facts.directives);
        if matches!(reuse, Reuse::Fresh { .. }) || self.is_in_time(facts, now_s) {
            Ok(())
        } else {
            Err(Misfit::Stale)
        }
    }

    /// Returns whether a request that waited gets this response as if it had arrived immediately. The limits
    /// on age in the request itself still apply.
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
        let Variant { generation, spec, .. } = variant;
        Dependent::Variant { generation: *generation, names: spec, fields: &fields }.extend(&mut key);
        key == variant.key
    }
}
