//! Requests that are not hits: which state each goes to, and counting how it ended.
//!
//! The states carry Varnish's names: *recv* decided in [`hit`](crate::hit); from here it goes on to *miss*, *pass*,
//! *purge* or *synth*, each a file of its own.

use std::sync::Arc;

use crate::{
    client::Gone,
    connection::Connection,
    core::with_core,
    counters::Counter,
    deliver::Cut,
    error_page::Fault,
    hit::{Slow, Why},
    miss::miss,
    pass::pass,
    purge::purge,
    request::Request,
    synth::synth,
};

/// Answers a request that was not a hit; true if the connection can go on.
pub(crate) async fn respond(connection: &mut Connection, request: &Arc<Request>, slow: Slow) -> bool {
    connection.client.watch.work();
    match slow.why {
        Why::Miss { anew, only_if_cached } => {
            with_core(|core| core.count(Counter::Misses));
            if only_if_cached {
                return synth(connection, request, Fault::OnlyIfCached).await;
            }
            miss(connection, request, anew, slow.fwd).await
        }
        Why::Pass(reason) => pass(connection, request, slow.fwd, Some(reason.name())).await,
        Why::Purge => purge(connection, request).await,
        Why::Synth(fault) => synth(connection, request, fault).await,
    }
}

/// Counts how a body ended.
pub(crate) fn account(sent: &Result<(), Cut>) {
    let counter = match sent {
        Ok(()) => return,
        Err(Cut::Client(Gone::Closed)) => Counter::ClientsGone,
        Err(Cut::Client(Gone::Stalled)) => Counter::ClientsStalled,
        // Counted where it was decided.
        Err(Cut::Client(Gone::Wanted)) => return,
        Err(Cut::Disk) => Counter::PartsCut,
        Err(Cut::Origin) => Counter::BodiesCut,
    };
    with_core(|core| core.count(counter));
}
