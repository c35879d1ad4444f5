//! *purge*: drops an object with all its variants, on whichever core it is; and purges by tag, soft purges,
//! and purges of everything ([`invalidations`](crate::purging::invalidations)).

use std::sync::atomic::Ordering;

use engine::store::Hash;
use tokio::{sync::oneshot, time::Instant};
use wire::{filter::QuotedValue, http1::url::Scheme};

use crate::{
    core::{Core, CoreBusy, Message, RING_PAUSE, RING_WAIT_MAX, UnlinkOutcome, with_core, with_core_of},
    counters::Counter,
    deliver::answer::Answer,
    error_page::Fault,
    fetch::hit_for_miss,
    head::sent_fields::TOKEN_FIELD,
    peers::purge_broadcast::Invalidate,
    policy::purge::{PurgeTarget, What as Purge, parse_purge},
    purging::{
        bans::Ban,
        invalidations::What,
        spread::{UNLINK_WAIT_MAX, apply_on_all_cores},
    },
    request::{Request, key},
    states::synth::{synth, text},
};

/// Scheme of `Authorization` that carries a token (RFC 6750).
const BEARER: &[u8] = b"bearer ";
const UNAVAILABLE: &str = "503 Service Unavailable";
const NOT_KEPT: &str = "Purged, but not written to disk: the purge may be lost in a crash.\n";

const NOT_EVERYWHERE: &str = "Not purged everywhere: a core is overloaded. Try again.\n";

/// *purge*: drops what a request asks for. On the visitors' port only listed networks and senders with the
/// token may purge: behind a proxy on this machine every stranger comes from loopback.
pub(crate) async fn purge(request: &Request) -> Answer<'static> {
    if !with_core_of(request, |core| may_purge(core, request)) {
        with_core(|core| core.count(Counter::PurgesForbidden));
        return synth(Some(request), Fault::PurgeForbidden);
    }
    match with_core_of(request, |core| parse_order(core, request)) {
        Ok(PurgeOrder { what: None, told }) => {
            with_core(|core| core.count(Counter::Purges));
            let primary = request.primary().to_vec();
            run_detached(async move { (purge_page(primary).await, broadcast(told, false).await) }).await
        }
        Ok(PurgeOrder { what: Some((what, is_soft)), told }) => {
            with_core(|core| core.count(Counter::Purges));
            run_detached(async move {
                let here = match apply_on_all_cores(what, is_soft).await {
                    Ok(true) => text("200 OK", "Purged.\n"),
                    Ok(false) => text(UNAVAILABLE, NOT_KEPT),
                    Err(CoreBusy) => text(UNAVAILABLE, NOT_EVERYWHERE),
                };
                (here, broadcast(told, is_soft).await)
            })
            .await
        }
        Err(why) => {
            with_core(|core| core.count(Counter::PurgesNotUnderstood));
            text("400 Bad Request", &why)
        }
    }
}

/// Carries out a purge in a task of its own, because some senders close the connection right after their
/// request, such as older versions of Magento. A failed broadcast to the other accelerators takes precedence
/// in the answer.
async fn run_detached(
    purge: impl Future<Output = (Answer<'static>, Result<(), String>)> + 'static,
) -> Answer<'static> {
    match tokio::task::spawn_local(purge).await {
        Ok((here, Ok(()))) => here,
        Ok((_, Err(why))) => {
            with_core(|core| core.count(Counter::PurgesNotTold));
            text(UNAVAILABLE, &format!("Purged here, but not sent to the other accelerators: {why}.\n"))
        }
        Err(_) => text(UNAVAILABLE, "Not purged: the purge was interrupted. Try again.\n"),
    }
}

/// Broadcasts a purge to the other accelerators, if there are any; returns when they are certain to receive
/// it.
///
/// # Errors
/// Returns the reason if the purge may not reach all of them.
async fn broadcast(told: Option<Invalidate>, is_soft: bool) -> Result<(), String> {
    let abroad = with_core(|core| core.purges.cluster.abroad.clone());
    let Some((abroad, what)) = abroad.zip(told) else { return Ok(()) };
    abroad.broadcast(what, is_soft).await
}

/// A purge that a request asks for.
struct PurgeOrder {
    /// Objects to purge, and whether softly; `None` for the object under the request's address.
    what: Option<(What, bool)>,
    /// The purge in the form that is broadcast; `None` without other accelerators.
    told: Option<Invalidate>,
}

/// Returns whether the sender of a request may purge. A wrong token is refused even where no token is needed.
fn may_purge(core: &Core, request: &Request) -> bool {
    let head = request.head();
    if let Some(token) = &core.config.purge_token {
        let bearer = head.headers("authorization").filter_map(|value| {
            let (scheme, guess) = value.split_at_checked(BEARER.len())?;
            scheme.eq_ignore_ascii_case(BEARER).then(|| guess.trim_ascii())
        });
        let mut guesses = bearer.chain(head.headers(TOKEN_FIELD)).peekable();
        if guesses.peek().is_some() {
            let is_right = guesses.all(|guess| token.is(guess));
            if is_right && core.clients.terms.is_some() && key::scheme(request.primary()) == Scheme::Http {
                warn_of_token(core, request);
            }
            return is_right;
        }
    }
    core.config.purge_from.iter().any(|network| network.contains(request.visitor.address))
}

/// Logs once that a token was sent over plain HTTP, where others on the network can read it.
#[cold]
fn warn_of_token(core: &Core, request: &Request) {
    if !core.purges.purge_log.has_warned_of_token.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            client = %request.visitor.address,
            "purge token received over plain http, where it can be intercepted; send purges by https (logged once)"
        );
    }
}

/// Reads the purge that a request asks for.
///
/// # Errors
/// The text of the answer to the sender.
fn parse_order(core: &Core, request: &Request) -> Result<PurgeOrder, String> {
    let head = request.head();
    let PurgeTarget { what, is_soft } =
        parse_purge(&head, key::authority(request.primary()), &core.config.tags)
            .map_err(|why| format!("Nothing was purged: invalid request: {why}.\n"))?;
    let told = core.purges.cluster.abroad.is_some().then(|| broadcast_form(&what, request.primary()));
    let what = match what {
        Purge::Address if !is_soft => None,
        Purge::Address => Some((What::Address(key::place(request.primary()).word()), is_soft)),
        Purge::Tags(tags) => {
            let tags = tags.iter().map(|tag| core.storage.store.hash(tag).word());
            Some((What::Tags(tags.collect()), is_soft))
        }
        Purge::Tagged(pattern) => {
            // An invalid pattern is the sender's mistake, and the answer shows where it is.
            let text = format!("req.url ~ {}", QuotedValue(pattern));
            Ban::parse(text.as_bytes(), &core.config.tags).map_err(|fault| {
                format!("Nothing was purged: {fault}.\n\n{}\n", fault.marked(text.as_bytes()))
            })?;
            Some((What::Tagged, is_soft))
        }
        Purge::All => Some((What::All, is_soft)),
        Purge::Ban(text) => {
            let ban = Ban::parse(&text, &core.config.tags);
            let ban =
                ban.map_err(|fault| format!("Nothing was banned: {fault}.\n\n{}\n", fault.marked(&text)))?;
            Some((What::Ban(ban), is_soft))
        }
    };
    Ok(PurgeOrder { what, told })
}

/// Converts a purge to the form that is broadcast: URLs and tags as text, because other accelerators have
/// other hashes.
fn broadcast_form(what: &Purge<'_>, primary: &[u8]) -> Invalidate {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match what {
        Purge::Address => Invalidate::Url(key::as_url(primary)),
        // Tags are compared byte by byte, but broadcast as text. If one is not UTF-8, everything with tags is
        // purged.
        Purge::Tags(tags) if tags.iter().any(|tag| str::from_utf8(tag).is_err()) => Invalidate::Tagged,
        Purge::Tags(tags) => Invalidate::Tags(tags.iter().map(|tag| text(tag)).collect()),
        Purge::Tagged(_) => Invalidate::Tagged,
        Purge::All => Invalidate::All,
        Purge::Ban(ban) => Invalidate::Ban(text(ban)),
    }
}

/// Drops a page under both schemes and every port under which it may be stored.
async fn purge_page(primary: Vec<u8>) -> Answer<'static> {
    let (ports, are_more) =
        with_core(|core| (core.purges.purge_log.ports.seen(), core.purges.purge_log.ports.are_more()));
    let place = key::place(&primary);
    let (mut was_there, mut is_kept) = (false, true);
    for form in key::forms(&primary, &ports) {
        match unlink_at_owner(form, true).await {
            Ok(unlinked) => {
                is_kept &= unlinked.is_kept;
                was_there |= unlinked.was_there;
            }
            Err(CoreBusy) => {
                return text(
                    UNAVAILABLE,
                    "Not purged: the core that owns the object is overloaded. Try again.\n",
                );
            }
        }
    }
    if are_more {
        match apply_on_all_cores(What::Address(place.word()), false).await {
            Ok(kept) => is_kept &= kept,
            Err(CoreBusy) => return text(UNAVAILABLE, NOT_EVERYWHERE),
        }
    }
    match (is_kept, was_there) {
        (false, _) => text(UNAVAILABLE, NOT_KEPT),
        (true, true) => text("200 OK", "Purged.\n"),
        (true, false) => text("404 Not Found", "There was nothing to purge.\n"),
    }
}

/// Asks the core that owns an object to drop it. With `lasting`, the function returns once the object will
/// not come back even after a crash (at a start that still reads the file, it waits until the file has been
/// read). Without `lasting`, nothing waits for the disk.
///
/// # Errors
/// [`CoreBusy`] if the ring to that core stayed full for [`RING_WAIT_MAX`].
pub(crate) async fn unlink_at_owner(key: Vec<u8>, lasting: bool) -> Result<UnlinkOutcome, CoreBusy> {
    let hash = with_core(|core| core.storage.store.hash(&key));
    let (done, answer) = oneshot::channel();
    let mut message = Some(Message::Unlink { hash, key, is_purge: false, lasting, done });
    let until = Instant::now() + RING_WAIT_MAX;
    loop {
        with_core(|core| {
            let owner = core.storage.store.owner(hash);
            match message.take() {
                Some(Message::Unlink { hash, key, lasting, done, .. }) if owner == core.index => {
                    unlink(core, hash, &key, lasting, done);
                }
                Some(unsent) => message = core.give(owner, unsent).err(),
                None => {}
            }
        });
        if message.is_none() {
            break;
        }
        if Instant::now() >= until {
            with_core(|core| core.count(Counter::PurgesRefused));
            return Err(CoreBusy);
        }
        tokio::time::sleep(RING_PAUSE).await;
    }
    answer.await.map_err(|_| CoreBusy)
}

/// Drops an object, keeps a fetch under way from storing it again, and answers on `done`; with `lasting`,
/// only once the drop will survive a crash. Runs on the owner's core.
pub(crate) fn unlink(
    core: &Core,
    hash: Hash,
    key: &[u8],
    lasting: bool,
    done: oneshot::Sender<UnlinkOutcome>,
) {
    hit_for_miss::forget(core, key);
    let under_way = core.fetches.in_flight.borrow_mut().forget(key);
    let mut shard = core.shard_mut();
    // While the file is still being read, the object may be in it; it is then dropped there, too.
    let is_warming = shard.is_warming();
    let was_there = shard.unlink(hash, key) || under_way || is_warming;
    // The requesting client may be gone; the object is dropped all the same.
    if !lasting {
        if core.origins.peers.is_some() {
            core.origins.changed_here.set(hash, true);
        }
        let _ = done.send(UnlinkOutcome { was_there, is_kept: true });
        return;
    }
    let promise = shard.promise();
    drop(shard);
    if promise.is_void() {
        let _ = done.send(UnlinkOutcome { was_there, is_kept: true });
        return;
    }
    tokio::task::spawn_local(async move {
        let is_kept =
            tokio::time::timeout(UNLINK_WAIT_MAX, promise.kept()).await.is_ok_and(|kept| kept.is_ok());
        let _ = done.send(UnlinkOutcome { was_there, is_kept });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{core::test_core, request::key, site::SiteTable};

    /// Returns a key that the other core owns.
    fn of_the_other() -> Vec<u8> {
        let mut key = Vec::new();
        (0..)
            .find(|number| {
                key.clear();
                key::of_url(&format!("http://site/{number}"), &SiteTable::default(), &mut key)
                    && with_core(|core| core.storage.store.owner(core.storage.store.hash(&key))) == 1
            })
            .map(|_| key)
            .unwrap_or_default()
    }

    fn unlink_message() -> Message {
        let hash = with_core(|core| core.storage.store.hash(b"other"));
        Message::Unlink {
            hash,
            key: b"other".to_vec(),
            is_purge: false,
            lasting: false,
            done: oneshot::channel().0,
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_purge_waits_for_ring_space_or_fails() {
        let mut inboxes = test_core::install(2, 4);
        let key = of_the_other();
        while with_core(|core| core.give(1, unlink_message())).is_ok() {}
        assert_eq!(unlink_at_owner(key.clone(), false).await, Err(CoreBusy));
        with_core(|core| assert_eq!(core.observers.counters.value(Counter::PurgesRefused), 1));

        let mut told = Vec::new();
        let other = async {
            // The task has sent its message by the end of this pause, and waits for the answer.
            tokio::time::sleep(RING_PAUSE).await;
            while !told.iter().any(|told| matches!(told, Message::Unlink { key: of, .. } if *of == key)) {
                inboxes[1].try_recv_batch(&mut told);
                tokio::time::sleep(RING_PAUSE).await;
            }
            let Some(Message::Unlink { done, .. }) = told.pop() else { panic!("the last one was ours") };
            done.send(UnlinkOutcome { was_there: true, is_kept: true }).expect("it waits");
        };
        let (unlinked, ()) = tokio::join!(unlink_at_owner(key.clone(), false), other);
        assert_eq!(unlinked, Ok(UnlinkOutcome { was_there: true, is_kept: true }));
    }
}
