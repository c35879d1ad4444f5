//! *purge*: dropping an object with all its variants, wherever it is.

use std::sync::Arc;

use engine::store::Hash;

use crate::{
    connection::Connection,
    core::{Core, Message, with_core},
    counters::Counter,
    error_page::Fault,
    fetch,
    request::Request,
    synth::synth,
};

/// *purge*: drops the object, wherever it is.
pub(crate) async fn purge(connection: &mut Connection, request: &Arc<Request>) -> bool {
    let allowed = with_core(|core| {
        let from = connection.address;
        // A list stands alone: behind a proxy on this machine every stranger comes from loopback.
        match core.config.purge_from.as_slice() {
            [] => from.is_loopback(),
            listed => listed.contains(&from),
        }
    });
    if !allowed {
        return synth(connection, request, Fault::PurgeForbidden).await;
    }
    with_core(|core| core.count(Counter::Purges));
    let (status, body) = if unlink_at_owner(request.primary().to_vec()).await {
        ("200 OK", "Purged.\n")
    } else {
        ("404 Not Found", "There was nothing to purge.\n")
    };
    let close = request.wants_close();
    let end = if close { "Connection: close\r\n" } else { "" };
    let bytes = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {bytes}\r\n{end}\r\n{body}"
    );
    connection.client.send_all(answer.as_bytes()).await.is_ok() && !close
}

pub(crate) async fn unlink_at_owner(key: Vec<u8>) -> bool {
    let hash = Hash::of(&key);
    let (done, answer) = tokio::sync::oneshot::channel();
    let sent = with_core(|core| {
        let owner = core.store.owner(hash);
        if owner == core.index {
            // The receiver is right here.
            let _ = done.send(unlink(core, hash, &key));
            return true;
        }
        core.send(owner, Message::Unlink { hash, key, is_purge: false, done })
    });
    sent && answer.await.unwrap_or(false)
}

/// Drops an object and keeps a fetch under way from storing it. Runs on the owner's core.
pub(crate) fn unlink(core: &Core, hash: Hash, key: &[u8]) -> bool {
    let under_way = fetch::forget(core, key);
    core.shard.borrow_mut().unlink(hash, key) || under_way
}
