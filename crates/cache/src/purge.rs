//! *purge*: dropping an object with all its variants, wherever it is.

use std::{sync::Arc, time::Duration};

use engine::store::Hash;
use tokio::sync::oneshot;

use crate::{
    connection::Connection,
    core::{Core, Message, Unlinked, with_core},
    counters::Counter,
    error_page::Fault,
    fetch,
    request::Request,
    synth::synth,
};

/// How long whoever purges waits for the disk before it is said that the disk has not taken it.
const UNLINK_WAIT_MAX: Duration = Duration::from_secs(60);

/// *purge*: drops the object, wherever it is. At the port of the visitors that is for listed networks alone: behind a proxy on
/// this machine every stranger comes from loopback.
pub(crate) async fn purge(connection: &mut Connection, request: &Arc<Request>) -> bool {
    let from = connection.address;
    let allowed = with_core(|core| core.config.purge_from.iter().any(|network| network.contains(from)));
    if !allowed {
        return synth(connection, request, Fault::PurgeForbidden).await;
    }
    with_core(|core| core.count(Counter::Purges));
    let unlinked = unlink_at_owner(request.primary().to_vec(), true).await;
    let (status, body) = match unlinked {
        Unlinked { is_kept: false, .. } => (
            "503 Service Unavailable",
            "Purged, but the disk has not taken that: it may come back after a crash.\n",
        ),
        Unlinked { was_there: true, .. } => ("200 OK", "Purged.\n"),
        Unlinked { was_there: false, .. } => ("404 Not Found", "There was nothing to purge.\n"),
    };
    // A body that nobody read would be taken for the next request.
    let unread = request.has_body();
    let close = unread || request.wants_close();
    let end = if close { "Connection: close\r\n" } else { "" };
    let bytes = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {bytes}\r\n{end}\r\n{body}"
    );
    let sent = connection.client.send_all(answer.as_bytes()).await;
    if unread {
        connection.linger().await;
    }
    sent.is_ok() && !close
}

/// Drops an object at the core that owns it; when that is said, it does not come back after a crash either.
/// While the file is still being read at the start that takes as long, unless it need not stay so (`must_stay_so`).
pub(crate) async fn unlink_at_owner(key: Vec<u8>, must_stay_so: bool) -> Unlinked {
    let hash = Hash::of(&key);
    let (done, answer) = oneshot::channel();
    let sent = with_core(|core| {
        let owner = core.store.owner(hash);
        if owner == core.index {
            unlink(core, hash, &key, must_stay_so, done);
            return true;
        }
        core.send(owner, Message::Unlink { hash, key, is_purge: false, must_stay_so, done })
    });
    let nothing = Unlinked { was_there: false, is_kept: true };
    if sent { answer.await.unwrap_or(nothing) } else { nothing }
}

/// Drops an object and keeps a fetch under way from storing it; says so when it is certain. Runs on the owner's core.
pub(crate) fn unlink(
    core: &Core,
    hash: Hash,
    key: &[u8],
    must_stay_so: bool,
    done: oneshot::Sender<Unlinked>,
) {
    let under_way = fetch::forget(core, key);
    let mut shard = core.shard_mut();
    // What the file holds is not known yet: whatever it is, it is dropped.
    let is_warming = shard.is_warming();
    let was_there = shard.unlink(hash, key) || under_way || is_warming;
    if is_warming && !must_stay_so {
        let _ = done.send(Unlinked { was_there, is_kept: true });
        return;
    }
    let promise = shard.promise();
    drop(shard);
    // Who asked may have gone away: the object is dropped all the same.
    if promise.is_void() {
        let _ = done.send(Unlinked { was_there, is_kept: true });
        return;
    }
    tokio::spawn(async move {
        let is_kept =
            tokio::time::timeout(UNLINK_WAIT_MAX, promise.kept()).await.is_ok_and(|kept| kept.is_ok());
        let _ = done.send(Unlinked { was_there, is_kept });
    });
}
