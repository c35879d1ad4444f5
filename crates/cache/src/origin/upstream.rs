//! One core's connections to one origin: how many may be busy, and with what; those that idle.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use engine::cores::clock;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    OriginError, Tell,
    group::{MemberId, Tried},
    http2::{Connection, Place},
    line::Line,
    member::{Busy, Member},
};
use crate::{config::Limits, request::Wanted};

/// An idle connection and since when.
struct Idle {
    line: Line,
    since: Instant,
}

/// One in so many of an origin's connections is kept for fetches that will be stored: what is passed cannot take it,
/// so 256 slow uploads do not keep a page from everybody else.
const FOR_STORE_SHARE: usize = 4;

/// One core's connections to one server.
pub(crate) struct Upstream {
    pub(crate) member: Arc<Member>,
    idle: Vec<Idle>,
    /// Those that many exchanges share, busy or not.
    shared: Vec<Connection>,
    idle_time_max: Duration,
    pub(super) permits: Permits,
    pub(super) streams: Streams,
    /// Who connects to a server that may speak HTTP/2; others wait, because they can all use what comes of it.
    pub(super) connecting: Arc<Semaphore>,
    /// How many of these attempts have ended, and why the last one that failed did.
    pub(super) attempts: Attempts,
    pub(super) tell: Tell,
}

/// Attempts to connect that others wait for.
#[derive(Clone, Default)]
pub(super) struct Attempts {
    pub(super) count: u64,
    pub(super) failed: Option<(u64, OriginError)>,
}

/// A number of places, of which a share is kept for what will be stored.
#[derive(Clone)]
struct Places {
    common: Arc<Semaphore>,
    for_store: Arc<Semaphore>,
}

impl Places {
    fn new(places: usize) -> Self {
        let for_store = places / FOR_STORE_SHARE;
        Self {
            common: Arc::new(Semaphore::new(places - for_store)),
            for_store: Arc::new(Semaphore::new(for_store)),
        }
    }

    /// A place, if there is one now.
    fn take_now(&self, wanted: Wanted) -> Option<OwnedSemaphorePermit> {
        let kinds: &[&Arc<Semaphore>] = match wanted {
            Wanted::Storing => &[&self.common, &self.for_store],
            Wanted::Passing | Wanted::Switching => &[&self.common],
        };
        kinds.iter().find_map(|kind| Arc::clone(kind).try_acquire_owned().ok())
    }

    /// Waits for one; `None`: its time is up.
    async fn take(&self, wanted: Wanted, at_most: Duration) -> Option<OwnedSemaphorePermit> {
        let waiting = async {
            match wanted {
                Wanted::Passing | Wanted::Switching => Arc::clone(&self.common).acquire_owned().await,
                Wanted::Storing => tokio::select! {
                    held = Arc::clone(&self.common).acquire_owned() => held,
                    held = Arc::clone(&self.for_store).acquire_owned() => held,
                },
            }
        };
        // On the heap: it is rare to wait, and every request would be larger by it. The semaphores are never closed.
        Box::pin(timeout(at_most, waiting)).await.ok()?.ok()
    }
}

/// What a core's exchanges over HTTP/2 with all servers may keep that came and was not read: each a window's bytes.
#[derive(Clone)]
pub(crate) struct Streams(Places);

impl Streams {
    /// Of so many bytes.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self(Places::new((limits.origin_streams_bytes_max / limits.origin_stream_bytes_max.max(1)).max(1)))
    }

    /// Leave for one more.
    pub(super) async fn acquire(
        &self,
        wanted: Wanted,
        at_most: Duration,
    ) -> Result<OwnedSemaphorePermit, OriginError> {
        if let Some(leave) = self.0.take_now(wanted) {
            return Ok(leave);
        }
        self.0.take(wanted, at_most).await.ok_or(OriginError::StreamsBusy(at_most))
    }
}

/// Who may talk to the origin: a permit stands for an exchange under way; idle connections hold none, so whoever waits
/// for a permit finds an idle connection as soon as there is one.
///
/// Bounds: `origin_connections_max` exchanges, of which a share is for the store; `origin_lasting_max` passed answers
/// whose head has been sent; `origin_queue_max` who wait.
#[derive(Clone)]
pub(super) struct Permits {
    places: Places,
    lasting: Arc<Semaphore>,
    queued: Arc<AtomicUsize>,
    queue_max: usize,
}

/// Leave to talk to the origin, while it is held.
pub(crate) struct Permit {
    _held: OwnedSemaphorePermit,
    lasting: Arc<Semaphore>,
    /// What is counted as the server's work.
    pub(super) busy: Option<Busy>,
}

impl Permit {
    /// Counts the exchange among those that last, if there is room; its place is free for another.
    pub(crate) fn outlast(&mut self) -> bool {
        let held = Arc::clone(&self.lasting).try_acquire_owned();
        let is_room = held.is_ok();
        if let Ok(held) = held {
            self._held = held;
        }
        is_room
    }
}

/// One who waits for a permit.
struct Queued(Arc<AtomicUsize>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Permits {
    fn new(limits: &Limits) -> Self {
        Self {
            places: Places::new(limits.origin_connections_max),
            lasting: Arc::new(Semaphore::new(limits.origin_lasting_max)),
            queued: Arc::new(AtomicUsize::new(0)),
            queue_max: limits.origin_queue_max,
        }
    }

    /// Waits for leave, in a queue of bounded length.
    pub(super) async fn acquire(&self, wanted: Wanted, at_most: Duration) -> Result<Permit, OriginError> {
        let permit = |held| Permit { _held: held, lasting: Arc::clone(&self.lasting), busy: None };
        if let Some(held) = self.places.take_now(wanted) {
            return Ok(permit(held));
        }
        let queued = Queued(Arc::clone(&self.queued));
        if queued.0.fetch_add(1, Ordering::Relaxed) >= self.queue_max {
            return Err(OriginError::Queue(self.queue_max));
        }
        self.places.take(wanted, at_most).await.map(permit).ok_or(OriginError::Busy(at_most))
    }
}

impl Upstream {
    /// `streams` are those of the core, whichever server they are with; `tell` is told what becomes of connections of
    /// HTTP/2.
    pub(crate) fn new(member: Arc<Member>, limits: &Limits, streams: Streams, tell: Tell) -> Self {
        Self {
            member,
            idle: Vec::new(),
            shared: Vec::new(),
            idle_time_max: limits.origin_idle_time_max,
            permits: Permits::new(limits),
            streams,
            connecting: Arc::new(Semaphore::new(1)),
            attempts: Attempts::default(),
            tell,
        }
    }

    /// A place on a connection of HTTP/2 that has room; the eldest first, so that those that a rush has brought go when it is
    /// over.
    pub(super) fn place(&mut self, leave: OwnedSemaphorePermit) -> Result<Place, OwnedSemaphorePermit> {
        let mut at = 0;
        while let Some(connection) = self.shared.get_mut(at) {
            match connection.has_room() {
                Some(true) => return Ok(connection.place(leave)),
                Some(false) => at += 1,
                None => drop(self.shared.remove(at)),
            }
        }
        Err(leave)
    }

    /// Shares a new connection.
    pub(super) fn share(&mut self, connection: Connection) {
        self.shared.push(connection);
    }

    /// The youngest idle connection that is still good.
    pub(super) fn take(&mut self) -> Option<Line> {
        while let Some(Idle { mut line, since }) = self.idle.pop() {
            // Anything to read on an idle connection is its end, or an answer that nobody asked for.
            if line.is_quiet() && clock::now().duration_since(since) < self.idle_time_max {
                return Some(line);
            }
        }
        None
    }

    pub(super) fn put(&mut self, line: Line, idle_max: usize) {
        if self.idle.len() < idle_max {
            self.idle.push(Idle { line, since: clock::now() });
        }
    }

    /// Closes the connections that have been idle for too long; when the next one will have been.
    pub(crate) fn close_old(&mut self) -> Option<Duration> {
        let now = clock::now();
        // The oldest come first.
        let old =
            self.idle.iter().take_while(|idle| now.duration_since(idle.since) >= self.idle_time_max).count();
        self.idle.drain(..old);
        let due = self.idle.first().map(|idle| now.duration_since(idle.since));
        // Those of HTTP/2 end when nobody holds them.
        self.shared.retain(|connection| connection.idle_for().is_none_or(|idle| idle < self.idle_time_max));
        let shared = self.shared.iter().map(|connection| connection.idle_for().unwrap_or_default()).max();
        due.max(shared).map(|idle| self.idle_time_max.saturating_sub(idle))
    }
}

/// Gives access to the connections to servers that the core that runs has; they are plain memory of that core.
pub(crate) trait Pools {
    /// Runs `with` on those to one; `None`: nobody has that server any more.
    fn upstream<R>(&self, member: MemberId, with: impl FnOnce(&mut Upstream) -> R) -> Option<R>;
}

/// Gives access to the servers of an origin.
pub(crate) trait Upstreams: Pools {
    /// The member that is asked next, of those that have not been; `None`: nobody is left, or enough were asked.
    fn choose(&self, tried: &mut Tried) -> Option<MemberId>;

    /// Another member is asked because the one before did not answer.
    fn asks_again(&self);

    /// A member answered; or it could not be reached, or has ended an exchange without an answer.
    fn fared(&self, member: MemberId, is_well: bool);
}
