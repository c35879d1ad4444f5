//! The task of one core of the mail service: listeners, messages from other cores, expiry, and room in the log.

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, Weak},
    time::Duration,
};

use engine::cores::{CoreContext, clock, mesh::Receiver, service::Stage};
use tokio::net::TcpStream;

use super::{ACCEPT_PAUSE, EXPIRY_LOOK_MAX, FORGOTTEN_A_ROUND, SEGMENTS_AHEAD, Seed, TELL_EVERY};
use crate::{
    counters::Counter,
    mailbox::questions,
    smtp::{ListenerKind, connection},
    store::{
        core::{Core, Message, SharedState},
        recovery::{self},
    },
};

pub(super) async fn run_core(
    context: CoreContext,
    seed: Seed,
    shared: Weak<SharedState>,
    stage: Arc<Stage>,
) -> io::Result<()> {
    // The server was dropped before its loops began.
    let Some(shared) = shared.upgrade() else { return Ok(()) };
    let Seed { listeners, receiver, core } = seed;
    let core = Rc::new(Core::new(context.index, context.cores, shared, core));
    core.gauges();
    let beside = [
        tokio::task::spawn_local(receive_messages(Rc::clone(&core), receiver)),
        tokio::task::spawn_local(run_housekeeping(Rc::clone(&core))),
        tokio::task::spawn_local(tell_listeners(Rc::clone(&core))),
        tokio::task::spawn_local(make_room(Rc::clone(&core))),
    ];
    let mut accepting = Vec::new();
    for (listener, kind) in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        accepting.push(tokio::task::spawn_local(accept(Rc::clone(&core), listener, kind)));
    }
    stage.serve(&context, accepting, || core.is_draining.set(true)).await;
    // Mails of other cores' sessions may still arrive for inboxes here, so the loop stays until the last session
    // of all loops has ended.
    let end_idle = || {
        core.clients.watches.borrow().end_idle();
        core.rings.backlog.borrow().is_empty()
    };
    stage.drain(end_idle).await;
    beside.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

pub(super) async fn accept(core: Rc<Core>, listener: tokio::net::TcpListener, kind: ListenerKind) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                core.count(Counter::Accepted);
                let to = core.shared.balance.hand_off_to(core.number);
                // A core that does not read its messages is given no connections.
                match to.filter(|to| !core.rings.backlog.borrow().has(*to)) {
                    Some(to) => hand_off(&core, to, stream, address, kind),
                    None => {
                        _ = tokio::task::spawn_local(connection::serve(
                            Rc::clone(&core),
                            stream,
                            address,
                            kind,
                        ))
                    }
                }
            }
            Err(error) => {
                // Out of file descriptors or memory, or the peer is already gone: accepting must continue.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Passes a new connection to a core with fewer connections.
fn hand_off(core: &Core, to: usize, stream: TcpStream, address: SocketAddr, kind: ListenerKind) {
    let Ok(stream) = stream.into_std() else { return };
    core.count(Counter::HandedOff);
    core.give(to, Message::Accept(stream, address, kind));
}

async fn receive_messages(core: Rc<Core>, mut receiver: Receiver<Message>) {
    let mut batch = Vec::new();
    loop {
        receiver.recv_batch(&mut batch).await;
        for message in batch.drain(..) {
            match message {
                Message::Arrived(arrivals) => core.enter(arrivals),
                Message::LetGo(let_go) => core.apply_release(let_go),
                Message::Ask(question) => questions::answer(&core, question),
                Message::Remember(summaries) => {
                    summaries
                        .into_iter()
                        .for_each(|summary| core.mails.summaries.borrow_mut().insert(summary));
                }
                Message::Reclaim(segment) => {
                    tokio::task::spawn_local(reclaim(Rc::clone(&core), segment));
                }
                Message::Accept(stream, address, kind) => match TcpStream::from_std(stream) {
                    Ok(stream) => {
                        tokio::task::spawn_local(connection::serve(Rc::clone(&core), stream, address, kind));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot register an accepted socket with the event loop")
                    }
                },
                Message::Lists(lists) => core.clients.abuse.borrow_mut().lists = lists,
                Message::Told(_) => unreachable!("events go to the listeners"),
            }
        }
    }
}

/// Runs a core's housekeeping: deadlines, expiry, gauges, and messages for other cores whose rings were full.
/// Pauses while there is nothing to do.
async fn run_housekeeping(core: Rc<Core>) {
    loop {
        core.clients.watches.borrow_mut().sweep(clock::monotonic_ms());
        core.send_backlog();
        loop {
            let forgotten = core.expire(FORGOTTEN_A_ROUND);
            if forgotten < FORGOTTEN_A_ROUND {
                break;
            }
            // Yields between two rounds, so that the loop serves its peers.
            tokio::task::yield_now().await;
        }
        core.gauges();
        let is_short = core.shared.reader.free_segments() < core.segments_ahead();
        if is_short {
            core.log.wants_room.notify_one();
        }
        core.rounds.pause(if is_short { Some(Duration::ZERO) } else { core.due_in() }).await;
    }
}

/// Wakes the listeners of events, at most once every [`TELL_EVERY`].
async fn tell_listeners(core: Rc<Core>) {
    loop {
        core.listeners.told.notified().await;
        tokio::time::sleep(TELL_EVERY).await;
        core.wake_listeners();
    }
}

/// Drops the mails of the oldest segment when the store gets full.
async fn make_room(core: Rc<Core>) {
    loop {
        core.log.wants_room.notified().await;
        // Dying segments will be free soon; both counts come from one snapshot, so that a segment that
        // changes state is not missed.
        let usage = core.shared.reader.usage();
        let coming = usize::try_from(usage.segments_free + usage.segments_dying).unwrap_or(usize::MAX);
        let missing = core.segments_ahead().saturating_sub(coming);
        if missing == 0 {
            continue;
        }
        for _ in 0..missing {
            let Some(segment) = core.oldest_segment() else { break };
            for other in (0..core.cores).filter(|other| *other != core.number) {
                // While the store is short of room the request is repeated, so it need not wait in the
                // backlog.
                if !core.rings.backlog.borrow().has(other) {
                    core.give(other, Message::Reclaim(segment));
                }
            }
            reclaim(Rc::clone(&core), segment).await;
        }
        // The log's reaper must run before the same segments are reclaimed again.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Drops this core's mails in a segment.
async fn reclaim(core: Rc<Core>, segment: u32) {
    loop {
        let gone = core.mails.index.borrow_mut().drain_segment(segment, FORGOTTEN_A_ROUND);
        let last = gone.len() < FORGOTTEN_A_ROUND;
        core.observers.counters.add(Counter::DroppedForBytes, gone.len() as u64);
        gone.into_iter().for_each(|gone| _ = core.remove_from_inbox(gone, false));
        if last {
            break;
        }
        tokio::task::yield_now().await;
    }
}

impl Core {
    /// Number of free segments kept in reserve: one per core and some more, but at most a quarter of a small
    /// store, which would otherwise drop mails although there is room.
    fn segments_ahead(&self) -> usize {
        let segments = self.config().store_bytes / u64::from(recovery::SEGMENT_BYTES);
        let quarter = usize::try_from(segments / 4).unwrap_or(usize::MAX);
        (SEGMENTS_AHEAD + self.cores).min(quarter)
    }

    /// Returns the time after which an idle core next has something to do.
    fn due_in(&self) -> Option<Duration> {
        // Sessions have deadlines.
        if self.shared.balance.held(self.number) > 0 || !self.rings.backlog.borrow().is_empty() {
            return Some(Duration::ZERO);
        }
        let expires_ms = self.mails.index.borrow().next_expiry_ms()?;
        Some(Duration::from_millis(expires_ms.saturating_sub(self.now_ms())).min(EXPIRY_LOOK_MAX))
    }

    /// Returns the segment to reclaim next, which is the segment of this core's oldest mail; the oldest mails
    /// of all cores are about equally old. If that segment is still being filled, or this core has no mail,
    /// the segment that was begun first is returned.
    fn oldest_segment(&self) -> Option<u32> {
        let sealed = self.shared.reader.sealed();
        let oldest = self.mails.index.borrow().oldest_segment();
        let first = || sealed.first().map(|sealed| sealed.segment);
        oldest.filter(|oldest| sealed.iter().any(|sealed| sealed.segment == *oldest)).or_else(first)
    }

    /// Drops up to `most` expired mails and returns how many.
    fn expire(&self, most: usize) -> usize {
        let now_ms = self.now_ms();
        for count in 0..most {
            let gone = self.mails.index.borrow_mut().expire_one(now_ms);
            let Some(gone) = gone else { return count };
            self.count(Counter::Expired);
            // After a crash the age expires the mail again, so nothing needs to be written. An early expiry
            // must be written as a deletion, because its record is freed with the mail.
            let for_good = gone.hurried_by.is_some();
            self.remove_from_inbox(gone, for_good);
        }
        most
    }

    /// Wakes the task that makes room in the store.
    pub(crate) fn make_room(&self) {
        self.log.wants_room.notify_one();
    }

    fn gauges(&self) {
        let index = self.mails.index.borrow();
        self.observers.counters.set(Counter::Stored, index.len() as u64);
        self.observers.counters.set(Counter::StoredBytes, index.mail_bytes());
        self.observers.counters.set(Counter::Inboxes, index.inboxes() as u64);
        self.observers.counters.set(Counter::IndexBytes, index.bytes() as u64);
        self.observers.counters.set(Counter::Backlog, self.rings.backlog.borrow().len() as u64);
    }
}
