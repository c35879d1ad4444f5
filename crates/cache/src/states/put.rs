//! Stores a complete answer from any core: the answer to a POST that is also the answer to a later GET.

use engine::store::{BodyLength, NewObject};

use crate::{
    core::{Core, Message, StoreRequest},
    counters::Counter,
    fetch::response::Response,
    head::response_head::StoredMeta,
    request::Request,
};

/// Stores an answer under a request's address. If the core that owns the key cannot be reached now, the
/// answer is not stored, and a later GET fetches it.
pub(crate) fn keep(core: &Core, request: &Request, response: &Response, expires_s: u32, body: &[u8]) {
    let key = request.primary().to_vec();
    core.purges.purge_log.ports.note(&key);
    let put = StoreRequest {
        hash: core.storage.store.hash(&key),
        key,
        head: response.head.clone(),
        extra: response.extra(),
        meta: response.meta.pack(),
        body: body.to_vec(),
        expires_s,
    };
    let owner = core.storage.store.owner(put.hash);
    if owner == core.index {
        store(core, &put);
    } else if core.give(owner, Message::Put(Box::new(put))).is_err() {
        core.count(Counter::CoreRingFull);
    }
}

/// Stores the answer. Runs on the owner's core.
pub(crate) fn store(core: &Core, put: &StoreRequest) {
    let StoreRequest { hash, key, head, extra, meta, body, expires_s } = put;
    // A fetch under way began before the change, so its answer is outdated.
    core.fetches.in_flight.borrow_mut().forget(key);
    if StoredMeta::unpack(meta).is_none_or(|meta| core.purges.invalidations.has_walked_past(meta.bans)) {
        return;
    }
    let new = NewObject {
        hash: *hash,
        key,
        head,
        extra,
        meta: *meta,
        body: BodyLength::Exact(body.len() as u64),
        expires_s: *expires_s,
        now_s: core.store_now_s(),
    };
    if let Err(refused) = core.shard_mut().insert(new, body, &[]) {
        core.count(Counter::of_refusal(refused));
    }
}
