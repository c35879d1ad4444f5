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

/// How long a purge waits for the disk. After that its answer says that the disk has not taken it.
const UNLINK_WAIT_MAX: Duration = Duration::from_secs(60);

/// *purge*: drops the object, wherever it is. At the port of the visitors that is for listed networks alone: behind a
/// proxy on this machine every stranger comes from loopback.
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

/// Asks the core that owns an object to drop it. When this returns, the object does not come back after a crash either.
/// At a start that still reads the file, this waits until the file has been read, unless `must_stay_so` is false.
pub(crate) async fn unlink_at_owner(key: Vec<u8>, must_stay_so: bool) -> Unlinked {
    let hash = with_core(|core| core.store.hash(&key));
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

/// Drops an object, keeps a fetch under way from storing it again, and answers on `done` when the drop will outlive a
/// crash. Runs on the owner's core.
pub(crate) fn unlink(
    core: &Core,
    hash: Hash,
    key: &[u8],
    must_stay_so: bool,
    done: oneshot::Sender<Unlinked>,
) {
    let under_way = fetch::forget(core, key);
    let mut shard = core.shard_mut();
    // The file has not been read yet: if it has the object, that is dropped too.
    let is_warming = shard.is_warming();
    let was_there = shard.unlink(hash, key) || under_way || is_warming;
    if is_warming && !must_stay_so {
        let _ = done.send(Unlinked { was_there, is_kept: true });
        return;
    }
    let promise = shard.promise();
    drop(shard);
    // The client that purges may be gone: the object is dropped all the same.
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
