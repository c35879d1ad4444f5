//! One core's connections to one server of an origin: limits on exchanges under way, and the pool of idle
//! connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use engine::cores::clock;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    OriginError, OriginEvent, Tell,
    group::{MemberId, TriedMembers},
    http2::{Connection, Place},
    line::Line,
    member::{Busy, Member},
    shares::{Client, Share, Shares},
};
use crate::{config::Limits, request::OriginNeed};

/// An idle connection, and the time since which it has been idle.
struct Idle {
    line: Line,
    since: Instant,
}

/// Divisor: 1/`FOR_STORE_SHARE` of an origin's exchanges are reserved for fetches whose answers will be
/// stored. Passed requests cannot take them, so slow uploads, however many, do not keep a page from all other
/// clients.
const FOR_STORE_SHARE: usize = 4;

/// One core's connections to one server.
pub(crate) struct Upstream {
    pub(crate) member: Arc<Member>,
    idle: Vec<Idle>,
    /// HTTP/2 connections, which many exchanges share, busy or idle.
    shared: Vec<Connection>,
    idle_time_max: Duration,
    pub(super) permits: Arc<Permits>,
    pub(super) streams: Streams,
    /// Lets one request at a time connect to a server that may speak HTTP/2. The others wait, because they
    /// can all use the connection.
    pub(super) connecting: Arc<Semaphore>,
    /// Number of attempts to connect that have ended, and the error of the last failed one.
    pub(super) attempts: Attempts,
    pub(super) tell: Tell,
}

/// Attempts to connect that other requests wait for.
#[derive(Clone, Default)]
pub(super) struct Attempts {
    pub(super) count: u64,
    pub(super) failed: Option<(u64, OriginError)>,
}

/// A number of slots, of which a share is reserved for answers that will be stored.
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

    /// Takes a slot if one is free.
    fn take_now(&self, wanted: OriginNeed) -> Option<OwnedSemaphorePermit> {
        let kinds: &[&Arc<Semaphore>] = match wanted {
            OriginNeed::Storing => &[&self.common, &self.for_store],
            OriginNeed::Passing | OriginNeed::Switching => &[&self.common],
        };
        kinds.iter().find_map(|kind| Arc::clone(kind).try_acquire_owned().ok())
    }

    /// Waits for a slot; `None` if the time is up.
    async fn take(&self, wanted: OriginNeed, at_most: Duration) -> Option<OwnedSemaphorePermit> {
        let waiting = async {
            match wanted {
                OriginNeed::Passing | OriginNeed::Switching => Arc::clone(&self.common).acquire_owned().await,
                OriginNeed::Storing => tokio::select! {
                    held = Arc::clone(&self.common).acquire_owned() => held,
                    held = Arc::clone(&self.for_store).acquire_owned() => held,
                },
            }
        };
        // Boxed: waiting is rare, and every request's future would be larger otherwise. The semaphores are
        // never closed.
        Box::pin(timeout(at_most, waiting)).await.ok()?.ok()
    }
}

/// Budget for received but unread bytes of a core's exchanges over HTTP/2, with all servers. Each exchange
/// takes a window's bytes.
#[derive(Clone)]
pub(crate) struct Streams(Places);

impl Streams {
    /// Creates a budget of the size that the limits configure.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self(Places::new((limits.origin_streams_bytes_max / limits.origin_stream_bytes_max.max(1)).max(1)))
    }

    /// Waits for a permit for one more exchange.
    pub(super) async fn acquire(
        &self,
        wanted: OriginNeed,
        at_most: Duration,
    ) -> Result<StreamLeave, OriginError> {
        let mut leave = StreamLeave { held: None, streams: self.clone(), wanted };
        leave.resume(at_most).await?;
        Ok(leave)
    }
}

/// Permit for an exchange over HTTP/2 to buffer a window of bytes; given back on drop.
pub(super) struct StreamLeave {
    /// `None` while the client of an upload is silent, because the origin then sends nothing.
    held: Option<OwnedSemaphorePermit>,
    streams: Streams,
    wanted: OriginNeed,
}

impl StreamLeave {
    /// Gives the permit back while the client sends nothing of its request's body.
    pub(super) fn pause(&mut self) {
        self.held = None;
    }

    /// Takes a permit again if there is none; waits for it as a new exchange does.
    pub(super) async fn resume(&mut self, at_most: Duration) -> Result<(), OriginError> {
        if self.resume_now().is_err() {
            let taken = self.streams.0.take(self.wanted, at_most).await;
            self.held = Some(taken.ok_or(OriginError::StreamsBusy(at_most))?);
        }
        Ok(())
    }

    /// Takes a permit again without a wait, because the origin answers and its bytes are buffered from now
    /// on.
    pub(super) fn resume_now(&mut self) -> Result<(), OriginError> {
        if self.held.is_none() {
            let taken = self.streams.0.take_now(self.wanted);
            self.held = Some(taken.ok_or(OriginError::StreamsBusy(Duration::ZERO))?);
        }
        Ok(())
    }
}

/// Permits for exchanges with a server of an origin, one per exchange under way. Idle connections hold none,
/// so a request that waits for a permit finds an idle connection as soon as there is one.
///
/// Bounds: `origin_connections_max` exchanges, of which a share is reserved for the store;
/// `origin_lasting_max` passed answers whose head has been sent; `origin_queue_max` requests that wait. While
/// more than half of one of these is in use, a client may use at most a quarter of it ([`Shares`]). An upload
/// whose client is silent gives its slot back ([`Permit::pause`]). The server still has its request, so
/// silent uploads have a limit of their own: as high as that of exchanges, but at least [`SILENT_MIN`].
pub(super) struct Permits {
    places: Places,
    lasting: Arc<Semaphore>,
    silent: Arc<Semaphore>,
    of_silent: Shares,
    of_exchanges: Shares,
    of_lasting: Shares,
    of_queue: Shares,
    /// Time from which a long wait may be logged again, in milliseconds of the monotonic clock.
    said_ms: AtomicU64,
}

/// Minimum for the limit on a server's silent uploads.
const SILENT_MIN: usize = 16;
/// Minimum wait for an exchange that is counted and logged as a long wait.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// Minimum milliseconds between two log lines about long waits, per server and core.
const SAID_EVERY_MS: u64 = 10_000;

/// Permit to talk to an origin; given back on drop.
pub(crate) struct Permit {
    /// Slot of an exchange, or of a silent upload while its client sends nothing.
    held: PermitHold,
    is_silent: bool,
    permits: Arc<Permits>,
    wanted: OriginNeed,
    client: Client,
    /// Guard that counts the exchange in the server's load.
    pub(super) busy: Option<Busy>,
}

struct PermitHold {
    _place: OwnedSemaphorePermit,
    _share: Share,
}

impl Permit {
    /// Counts the exchange as long-lived instead of as an ordinary one, if there is room, and frees its slot.
    /// Returns whether there was room.
    pub(crate) fn outlast(&mut self) -> bool {
        let permits = &self.permits;
        let Some(share) = permits.of_lasting.take(self.client) else { return false };
        let place = Arc::clone(&permits.lasting).try_acquire_owned();
        let is_room = place.is_ok();
        if let Ok(place) = place {
            (self.held, self.is_silent) = (PermitHold { _place: place, _share: share }, false);
        }
        is_room
    }

    /// Gives the slot to other requests while the client sends nothing of its request's body, unless the
    /// limit on silent uploads is reached.
    pub(crate) fn pause(&mut self) {
        let permits = &self.permits;
        if self.is_silent {
            return;
        }
        if let Some(share) = permits.of_silent.take(self.client)
            && let Ok(place) = Arc::clone(&permits.silent).try_acquire_owned()
        {
            (self.held, self.is_silent) = (PermitHold { _place: place, _share: share }, true);
        }
    }

    /// Takes a slot again if the permit has none; waits for it as a new exchange does.
    pub(crate) async fn resume(&mut self, at_most: Duration) -> Result<(), OriginError> {
        if self.is_silent {
            let held = self.permits.held(self.wanted, self.client, at_most).await?;
            (self.held, self.is_silent) = (held, false);
        }
        Ok(())
    }
}

impl Permits {
    fn new(limits: &Limits) -> Self {
        let silent_max = limits.origin_connections_max.max(SILENT_MIN);
        Self {
            places: Places::new(limits.origin_connections_max),
            lasting: Arc::new(Semaphore::new(limits.origin_lasting_max)),
            silent: Arc::new(Semaphore::new(silent_max)),
            of_silent: Shares::new(silent_max),
            of_exchanges: Shares::new(limits.origin_connections_max),
            of_lasting: Shares::new(limits.origin_lasting_max),
            of_queue: Shares::new(limits.origin_queue_max),
            said_ms: AtomicU64::new(0),
        }
    }

    /// Waits for a permit, in a queue of bounded length. The log names `member`; `tell` receives the event of
    /// a long wait.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        wanted: OriginNeed,
        client: Client,
        at_most: Duration,
        member: &Member,
        tell: Tell,
    ) -> Result<Permit, OriginError> {
        let permit =
            |held| Permit { held, is_silent: false, permits: Arc::clone(self), wanted, client, busy: None };
        if let Some(held) = self.held_now(wanted, client) {
            return Ok(permit(held));
        }
        let since = clock::now();
        // Boxed: waiting is rare, and every request's future would be larger otherwise.
        let held = Box::pin(self.wait(wanted, client, at_most)).await;
        let waited = since.elapsed();
        if waited >= LONG_WAIT {
            tell(OriginEvent::LongWait);
            let now_ms = clock::monotonic_ms();
            if now_ms >= self.said_ms.load(Ordering::Relaxed) {
                self.said_ms.store(now_ms + SAID_EVERY_MS, Ordering::Relaxed);
                tracing::warn!(
                    origin = %member.name(),
                    waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                    exchanges = self.of_exchanges.used(),
                    waiting = self.of_queue.used(),
                    "origin busy: a request waited more than a second for a free connection or stream (origin-connections-max)"
                );
            }
        }
        held.map(permit)
    }

    fn held_now(&self, wanted: OriginNeed, client: Client) -> Option<PermitHold> {
        let share = self.of_exchanges.take(client)?;
        let place = self.places.take_now(wanted)?;
        Some(PermitHold { _place: place, _share: share })
    }

    async fn held(
        &self,
        wanted: OriginNeed,
        client: Client,
        at_most: Duration,
    ) -> Result<PermitHold, OriginError> {
        match self.held_now(wanted, client) {
            Some(held) => Ok(held),
            None => Box::pin(self.wait(wanted, client, at_most)).await,
        }
    }

    /// Waits in the queue: first for the client's share, which does not delay other clients, then for a slot.
    async fn wait(
        &self,
        wanted: OriginNeed,
        client: Client,
        at_most: Duration,
    ) -> Result<PermitHold, OriginError> {
        let Some(_queued) = self.of_queue.take(client).filter(|_| self.of_queue.used() <= self.of_queue.max)
        else {
            return Err(OriginError::Queue(self.of_queue.max));
        };
        let until = clock::now() + at_most;
        let share = timeout(at_most, self.of_exchanges.wait(client)).await;
        let share = share.map_err(|_| OriginError::Busy(at_most))?;
        let left = until.saturating_duration_since(clock::now());
        let place = self.places.take(wanted, left).await.ok_or(OriginError::Busy(at_most))?;
        Ok(PermitHold { _place: place, _share: share })
    }
}

impl Upstream {
    /// Creates an empty pool. `streams` is the core's budget for all servers; `tell` receives the events of
    /// HTTP/2 connections.
    pub(crate) fn new(member: Arc<Member>, limits: &Limits, streams: Streams, tell: Tell) -> Self {
        Self {
            member,
            idle: Vec::new(),
            shared: Vec::new(),
            idle_time_max: limits.origin_idle_time_max,
            permits: Arc::new(Permits::new(limits)),
            streams,
            connecting: Arc::new(Semaphore::new(1)),
            attempts: Attempts::default(),
            tell,
        }
    }

    /// Takes a stream's slot on an HTTP/2 connection with room. The oldest connection is used first, so that
    /// connections opened during a burst become idle and are closed afterwards.
    pub(super) fn place(&mut self, leave: StreamLeave) -> Result<Place, StreamLeave> {
        let mut at = 0;
        while let Some(connection) = self.shared.get_mut(at) {
            match connection.check_room() {
                Some(true) => return Ok(connection.place(leave)),
                Some(false) => at += 1,
                None => drop(self.shared.remove(at)),
            }
        }
        Err(leave)
    }

    /// Adds a new connection for sharing.
    pub(super) fn share(&mut self, connection: Connection) {
        self.shared.push(connection);
    }

    /// Takes the most recently used idle connection that is still usable.
    pub(super) fn take(&mut self) -> Option<Line> {
        while let Some(Idle { mut line, since }) = self.idle.pop() {
            // An idle connection is readable only if it has ended, or has received an answer without a
            // request.
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

    /// Closes the connections that have been idle for too long. Returns the time until the next connection
    /// reaches that limit.
    pub(crate) fn close_old(&mut self) -> Option<Duration> {
        let now = clock::now();
        // `idle` is sorted by idle time, the longest first.
        let old =
            self.idle.iter().take_while(|idle| now.duration_since(idle.since) >= self.idle_time_max).count();
        self.idle.drain(..old);
        let due = self.idle.first().map(|idle| now.duration_since(idle.since));
        // HTTP/2 connections end when nothing refers to them any more.
        self.shared.retain(|connection| connection.idle_for().is_none_or(|idle| idle < self.idle_time_max));
        let shared = self.shared.iter().map(|connection| connection.idle_for().unwrap_or_default()).max();
        due.max(shared).map(|idle| self.idle_time_max.saturating_sub(idle))
    }
}

/// Access to the current core's connections to servers, which are plain memory of that core.
pub(crate) trait Pools {
    /// Runs `with` on the connections to one server; `None` if no configuration contains that server any
    /// more.
    fn upstream<R>(&self, member: MemberId, with: impl FnOnce(&mut Upstream) -> R) -> Option<R>;
}

/// Access to the servers of an origin.
pub(crate) trait Upstreams: Pools {
    /// Chooses the next member to ask, among those not asked yet; `None` if none is left, or the maximum
    /// number has been asked.
    fn choose(&self, tried: &mut TriedMembers) -> Option<MemberId>;

    /// Records that a request is sent to another member because the previous one did not answer.
    fn note_retry(&self);

    /// Records the outcome of an exchange. `is_well` is false if the connect failed, or the exchange ended
    /// without an answer.
    fn note_outcome(&self, member: MemberId, is_well: bool);
}
