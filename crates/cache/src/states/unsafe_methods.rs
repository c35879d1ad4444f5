//! Invalidation of stored responses by a successful unsafe request (RFC 9111 §4.4).

use wire::http1::head::ResponseHead;

use crate::{
    core::{with_core, with_core_of},
    counters::Counter,
    policy::{invalidate, request::Method},
    request::{Request, key, query},
    states::purge::unlink_at_owner,
};

/// Drops the objects stored for the target of a request that changed something there, and for the URLs that
/// its answer names. The drop need not survive a crash, so nothing waits for the disk.
pub(crate) async fn invalidate_after(request: &Request, answer: &ResponseHead<'_, '_>) {
    for key in keys(request, answer) {
        match unlink_at_owner(key, false).await {
            Ok(unlinked) if unlinked.was_there => with_core(|core| core.count(Counter::Invalidations)),
            // A refusal is counted where it happens.
            Ok(_) | Err(_) => {}
        }
    }
}

fn keys(request: &Request, answer: &ResponseHead<'_, '_>) -> Vec<Vec<u8>> {
    let head = request.head();
    let mut keys = Vec::new();
    let is_wanted = with_core_of(request, |core| core.sites.rules(request.site).invalidates_unsafe);
    if !is_wanted || !invalidate::invalidates(Method::of(head.method), answer.status) {
        return keys;
    }
    keys.push(request.primary().to_vec());
    if let Some(base) = key::base_of(&head) {
        for reference in invalidate::references(&answer.headers) {
            let mut key = key::host_of(request.primary()).to_vec();
            let host_bytes = key.len();
            if invalidate::same_origin_path(&base, reference, &mut key) {
                with_core_of(request, |core| {
                    query::apply(core.sites.rules(request.site), host_bytes, &mut key)
                });
                keys.push(key);
            }
        }
    }
    keys
}
