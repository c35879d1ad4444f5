//! The generator's loop.

use std::{
    collections::VecDeque,
    fs, io,
    net::TcpStream,
    time::{Duration, Instant},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    fd::OwnedFd,
    time::{ClockId, clock_gettime},
};

use super::{
    Arrivals, CONNECTIONS_MAX, Connections, Outcome, Plan, SLEEP_NS, Schedule,
    connection::{Connection, InFlightRequest, READ_BYTES, ReadOutcome, Tls},
    target::{Target, TargetError},
};
use crate::latency::Latencies;

/// Timeout for the greetings and TLS handshakes of all connections, and for the answers to a single request
/// on each.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of connections of [`rest`] that are opened at once.
const RESTING_AT_ONCE: usize = 200;
/// Number of broken connections in a row that are reopened before the server is considered gone.
const REOPEN_MAX: u64 = 100;
/// Number of events taken from epoll at once.
const EVENTS: usize = 256;
/// Number of requests that are sent before the loop looks for answers again.
const BURST: usize = 64;

/// Reason why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan makes no sense.
    #[error("{0}")]
    Plan(String),
    /// The target is invalid.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The server does not accept connections.
    #[error("cannot connect to {address}: {error}; is the server running?")]
    Connect {
        /// Address of the server.
        address: std::net::SocketAddr,
        /// Error that the system returned.
        error: io::Error,
    },
    /// The server's greeting is wrong or missing.
    #[error("the server at {address} is not ready: {reason}")]
    NotReady {
        /// Address of the server.
        address: std::net::SocketAddr,
        /// Description of the fault.
        reason: String,
    },
    /// The server broke too many connections in a row, or does not accept a new one.
    #[error("too many connections broke in a row, or one could not be opened again; first loss: {0}")]
    Gone(String),
    /// A system call failed.
    #[error("the generator cannot run: {0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for LoadError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Loads `target` as planned, from the calling thread.
///
/// # Errors
/// Returns [`LoadError`] if the run cannot start or the server goes away. A server that answers slowly,
/// wrongly or not at all during the run is a result, not an error.
pub fn run(target: &Target, plan: &Plan) -> Result<Outcome, LoadError> {
    check(plan)?;
    let mut generator = Generator::connect(target, plan)?;
    generator.greet()?;
    generator.go(plan)
}

/// Opens `connections` connections, each of which sends one request and then stays idle. Only the sockets are
/// kept, so that many connections are cheap; dropping the sockets closes them.
///
/// # Errors
/// Returns the errors of [`run`], and [`LoadError::NotReady`] if a request got no answer or was refused.
pub fn rest(target: &Target, connections: usize) -> Result<Vec<TcpStream>, LoadError> {
    let mut resting = Vec::with_capacity(connections);
    while resting.len() < connections {
        let plan = Plan { connections: RESTING_AT_ONCE.min(connections - resting.len()), ..Plan::default() };
        let mut generator = Generator::connect(target, &plan)?;
        generator.greet()?;
        generator.ask_once()?;
        resting.extend(generator.connections.into_iter().flatten().map(Connection::into_socket));
    }
    Ok(resting)
}

fn check(plan: &Plan) -> Result<(), LoadError> {
    let refuse = |text: String| Err(LoadError::Plan(text));
    if !(plan.rate.is_finite() && plan.rate > 0.0 && plan.rate <= 1e8) {
        return refuse(format!(
            "a rate of {} a second makes no sense: more than 0, at most 100 million",
            plan.rate
        ));
    }
    if !(1..=CONNECTIONS_MAX).contains(&plan.connections) {
        return refuse(format!("{} connections: 1 to {CONNECTIONS_MAX} can be opened", plan.connections));
    }
    if plan.duration.is_zero() {
        return refuse("a run of no time measures nothing".to_owned());
    }
    Ok(())
}

struct Generator<'t> {
    target: &'t Target,
    tls: Tls,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    /// Flags of the connections for which epoll reports writability.
    watching_writes: Vec<bool>,
    /// Connections that can take a request, each at most once. The least recently used comes first, so that
    /// all are used.
    free: VecDeque<usize>,
    is_in_free: Vec<bool>,
    clock: Instant,
    buffer: Vec<u8>,
    events: Vec<epoll::Event>,
    tally: Tally,
}

/// Counts of the run so far.
#[derive(Default)]
struct Tally {
    latencies: Latencies,
    lateness: Latencies,
    /// Time in nanoseconds from which requests and answers count.
    recorded_from_ns: u64,
    due: u64,
    answered: u64,
    /// Answers that arrived after `recorded_from_ns`, including those to requests of the warm-up: the
    /// server's throughput in that time.
    served: u64,
    connections: Connections,
    lost: u64,
    first_loss: Option<String>,
    reconnects: u64,
    broken_in_a_row: u64,
    refused: u64,
    first_refusal: Option<String>,
    last_answer_ns: u64,
}

impl<'t> Generator<'t> {
    fn connect(target: &'t Target, plan: &Plan) -> Result<Self, LoadError> {
        let tls = target.tls()?;
        let mut connections = Vec::with_capacity(plan.connections);
        for number in 0..plan.connections as u64 {
            let connection = Connection::open(target, &tls, number)
                .map_err(|error| LoadError::Connect { address: target.address(), error })?;
            connections.push(Some(connection));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, connection) in connections.iter().enumerate() {
            if let Some(connection) = connection {
                epoll::add(&epoll, connection, EventData::new_u64(at as u64), EventFlags::IN)?;
            }
        }
        Ok(Self {
            target,
            tls,
            epoll,
            watching_writes: vec![false; plan.connections],
            free: VecDeque::with_capacity(plan.connections),
            is_in_free: vec![false; plan.connections],
            connections,
            clock: Instant::now(),
            buffer: vec![0; READ_BYTES],
            events: Vec::with_capacity(EVENTS),
            tally: Tally::default(),
        })
    }

    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Waits until every connection can take requests.
    fn greet(&mut self) -> Result<(), LoadError> {
        let end = self.now() + READY_TIMEOUT.as_nanos() as u64;
        for at in 0..self.connections.len() {
            self.settle(at);
        }
        loop {
            let missing =
                self.connections.iter().filter(|c| !c.as_ref().is_some_and(Connection::is_ready)).count();
            let not_ready = |reason| LoadError::NotReady { address: self.target.address(), reason };
            if let Some(loss) = &self.tally.first_loss {
                return Err(not_ready(loss.clone()));
            }
            if missing == 0 {
                return Ok(());
            }
            let now = self.now();
            if now > end {
                let seconds = READY_TIMEOUT.as_secs();
                return Err(not_ready(format!("{missing} connections got no greeting within {seconds} s")));
            }
            self.answers(end - now)?;
        }
    }

    /// Sends one request on each connection, and waits for the answers.
    fn ask_once(&mut self) -> Result<(), LoadError> {
        for at in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[at] {
                connection.request(InFlightRequest { due_ns: 0, sent_ns: 0, warm_up: true });
            }
            self.settle(at);
        }
        let end = self.now() + READY_TIMEOUT.as_nanos() as u64;
        while self.waiting() > 0 && self.tally.first_loss.is_none() && self.now() < end {
            self.answers(end.saturating_sub(self.now()))?;
        }
        let refusal = self.connections.iter().flatten().find_map(|one| one.refusals().1.map(str::to_owned));
        let fault = self.tally.first_loss.take().or(refusal);
        let fault = fault.or_else(|| (self.waiting() > 0).then(|| "no answer".to_owned()));
        match fault {
            None => Ok(()),
            Some(reason) => Err(LoadError::NotReady { address: self.target.address(), reason }),
        }
    }

    fn go(mut self, plan: &Plan) -> Result<Outcome, LoadError> {
        let cpu = thread_cpu_ns();
        let preempted = preempted();
        // The run starts a moment later, so that the preparation does not delay the first request.
        let start = self.now() + 1_000_000;
        let recorded_from = start + plan.warm_up.as_nanos() as u64;
        let end = recorded_from + plan.duration.as_nanos() as u64;
        let drained = end + plan.drain.as_nanos() as u64;
        self.tally.recorded_from_ns = recorded_from;
        let mut schedule = Schedule::new(plan.arrivals, plan.rate, start, plan.seed);
        loop {
            let now = self.now();
            let due = schedule.due_ns();
            let sending = due < end;
            if now >= drained || (!sending && self.waiting() == 0) {
                break;
            }
            if sending && due <= now {
                self.send_what_is_due(&mut schedule, now, end, recorded_from)?;
            }
            let now = self.now();
            let wait = match schedule.due_ns() {
                due if due >= end => drained.saturating_sub(now),
                due if due <= now && self.free.is_empty() => drained.saturating_sub(now),
                due => due.saturating_sub(now).saturating_sub(SLEEP_NS),
            };
            self.answers(wait)?;
        }
        Ok(self.outcome(plan, &mut schedule, recorded_from, end, (cpu, preempted)))
    }

    /// Sends due requests on the connections that are free. Requests on the same connection are sent in one
    /// write: this is how the generator catches up when it is behind.
    fn send_what_is_due(
        &mut self,
        schedule: &mut Schedule,
        now: u64,
        end: u64,
        recorded_from: u64,
    ) -> Result<(), LoadError> {
        let mut together: Option<(usize, usize)> = None;
        for _ in 0..BURST {
            let due_ns = schedule.due_ns();
            if due_ns > now || due_ns >= end {
                break;
            }
            // A connection at the front of `free` stays there and gets requests until it can take no more.
            let Some(&at) = self.free.front() else { break };
            if let Some((other, requests)) = together
                && other != at
            {
                self.leave(other, requests)?;
                together = None;
                // `leave` may have removed the connection at the front.
                continue;
            }
            let Some(connection) = &mut self.connections[at] else {
                self.free.pop_front();
                self.is_in_free[at] = false;
                continue;
            };
            schedule.advance();
            let warm_up = due_ns < recorded_from;
            connection.request(InFlightRequest { due_ns, sent_ns: now, warm_up });
            if !connection.is_free() {
                self.free.pop_front();
                self.is_in_free[at] = false;
            }
            together = Some((at, together.map_or(1, |(_, requests)| requests + 1)));
        }
        match together {
            Some((at, requests)) => self.leave(at, requests),
            None => Ok(()),
        }
    }

    /// Writes the last `requests` requests of a connection; they count as sent just before the write.
    fn leave(&mut self, at: usize, requests: usize) -> Result<(), LoadError> {
        let now = self.now();
        // The next requests go to another connection, even if this one could take more.
        if self.free.front() == Some(&at) {
            self.free.rotate_left(1);
        }
        if let Some(connection) = &mut self.connections[at] {
            let free_ns = connection.free_ns;
            for sent in connection.waiting.iter_mut().rev().take(requests) {
                sent.sent_ns = now;
                self.tally.due += u64::from(!sent.warm_up);
                // A request of the warm-up that is sent after the warm-up's end counts as late, too.
                if now >= self.tally.recorded_from_ns {
                    // The earliest possible time is when the request was due and its connection was free.
                    let possible_ns = sent.due_ns.max(free_ns);
                    self.tally.lateness.record(possible_ns, possible_ns, now);
                }
            }
        }
        self.settle(at);
        if self.tally.broken_in_a_row > REOPEN_MAX {
            let reason = self.tally.first_loss.clone().unwrap_or_default();
            return Err(LoadError::Gone(reason));
        }
        Ok(())
    }

    /// Receives answers; waits at most `wait_ns` for the first.
    fn answers(&mut self, wait_ns: u64) -> Result<(), LoadError> {
        let timeout = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000 / 1_000_000 * 1_000_000) as _,
        };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            let at = event.data.u64() as usize;
            self.receive(at);
            if self.tally.broken_in_a_row > REOPEN_MAX {
                let reason = self.tally.first_loss.clone().unwrap_or_default();
                return Err(LoadError::Gone(reason));
            }
        }
        self.events = events;
        Ok(())
    }

    /// Reads the available bytes of one connection.
    fn receive(&mut self, at: usize) {
        loop {
            let Some(connection) = &mut self.connections[at] else { return };
            let arrived = connection.receive(&mut self.buffer);
            let now = self.clock.elapsed().as_nanos() as u64;
            match arrived {
                Ok(ReadOutcome::Answers(count)) => {
                    self.tally.answered(connection, count, now);
                    // TLS may hold more bytes than one read returned; for a plain socket epoll reports them
                    // again.
                    if self.tls.is_none() {
                        break;
                    }
                }
                Ok(ReadOutcome::Nothing) => break,
                Ok(ReadOutcome::End(count)) => {
                    self.tally.answered(connection, count, now);
                    self.reopen(at, None);
                    return;
                }
                Err(broken) => {
                    self.reopen(at, Some(broken.to_string()));
                    return;
                }
            }
        }
        self.settle(at);
    }

    /// Writes pending output, and updates the connection's event mask and its entry in `free`.
    fn settle(&mut self, at: usize) {
        let Some(connection) = &mut self.connections[at] else { return };
        let all_left = match connection.flush() {
            Ok(all_left) => all_left && !connection.wants_write(),
            Err(error) => {
                self.reopen(at, Some(format!("the connection broke: {error}")));
                return;
            }
        };
        if self.watching_writes[at] == all_left {
            let flags = if all_left { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
            // The descriptor was added to epoll, and stays there until it is closed.
            if epoll::modify(&self.epoll, &*connection, EventData::new_u64(at as u64), flags).is_ok() {
                self.watching_writes[at] = !all_left;
            }
        }
        if connection.is_free() && !self.is_in_free[at] {
            self.is_in_free[at] = true;
            self.free.push_back(at);
        }
    }

    /// Reopens a connection that has ended; the requests that waited on it are lost.
    fn reopen(&mut self, at: usize, reason: Option<String>) {
        if let Some(connection) = self.connections[at].take() {
            self.tally.close(&connection, reason);
        }
        self.tally.reconnects += 1;
        self.watching_writes[at] = false;
        let number = self.connections.len() as u64 + self.tally.reconnects;
        match Connection::open(self.target, &self.tls, number) {
            Ok(mut connection) => {
                connection.free_ns = self.now();
                let added =
                    epoll::add(&self.epoll, &connection, EventData::new_u64(at as u64), EventFlags::IN);
                if added.is_ok() {
                    self.connections[at] = Some(connection);
                    self.settle_new(at);
                }
            }
            Err(error) => {
                self.tally.broken_in_a_row = REOPEN_MAX + 1;
                self.tally.first_loss.get_or_insert_with(|| format!("cannot connect again: {error}"));
            }
        }
    }

    /// Settles a connection that has sent nothing yet, like [`Self::settle`]; such a connection cannot break
    /// here.
    fn settle_new(&mut self, at: usize) {
        if let Some(connection) = &self.connections[at]
            && connection.is_free()
            && !self.is_in_free[at]
        {
            self.is_in_free[at] = true;
            self.free.push_back(at);
        } else if self.connections[at].as_ref().is_some_and(Connection::wants_write) {
            self.settle(at);
        }
    }

    fn waiting(&self) -> usize {
        self.connections.iter().flatten().map(|connection| connection.waiting.len()).sum()
    }

    fn outcome(
        mut self,
        plan: &Plan,
        schedule: &mut Schedule,
        recorded_from: u64,
        end: u64,
        (cpu, preempted_before): (u64, u64),
    ) -> Outcome {
        let now = self.now();
        let busy =
            (thread_cpu_ns() - cpu) as f64 / (now - recorded_from + plan.warm_up.as_nanos() as u64) as f64;
        let mut unanswered = 0;
        for connection in std::mem::take(&mut self.connections).iter().flatten() {
            self.tally.note_refusals(connection);
            self.tally.connections.note(connection);
            for sent in connection.waiting.iter().filter(|sent| !sent.warm_up) {
                self.tally.latencies.record(sent.due_ns, sent.sent_ns, now);
                unanswered += 1;
            }
        }
        // The remaining requests never had a free connection.
        while schedule.due_ns() < end {
            let due = schedule.due_ns();
            if due >= recorded_from {
                self.tally.due += 1;
                unanswered += 1;
                self.tally.latencies.record_unsent(due, now);
            }
            schedule.advance();
        }
        let seconds = (self.tally.last_answer_ns.max(end) - recorded_from) as f64 / 1e9;
        let tally = self.tally;
        Outcome {
            offered: match plan.arrivals {
                Arrivals::Constant => plan.rate,
                Arrivals::Poisson => tally.due as f64 / plan.duration.as_secs_f64(),
            },
            achieved: tally.served as f64 / seconds,
            connections: tally.connections,
            due: tally.due,
            answered: tally.answered,
            refused: tally.refused,
            first_refusal: tally.first_refusal,
            lost: tally.lost,
            first_loss: tally.first_loss,
            reconnects: tally.reconnects,
            unanswered,
            latencies: tally.latencies,
            lateness: tally.lateness,
            busy,
            preempted: preempted() - preempted_before,
        }
    }
}

impl Tally {
    fn answered(&mut self, connection: &mut Connection, count: usize, now: u64) {
        if count == 0 {
            return;
        }
        self.broken_in_a_row = 0;
        let was_full = !connection.is_free() || connection.waiting.len() == count;
        for _ in 0..count {
            let Some(sent) = connection.take_answered() else { break };
            if now >= self.recorded_from_ns {
                self.served += 1;
                self.last_answer_ns = now;
            }
            if !sent.warm_up {
                self.answered += 1;
                self.latencies.record(sent.due_ns, sent.sent_ns, now);
            }
        }
        if was_full {
            connection.free_ns = now;
        }
    }

    fn close(&mut self, connection: &Connection, reason: Option<String>) {
        self.note_refusals(connection);
        self.connections.note(connection);
        self.connections.refused += u64::from(!connection.is_answered);
        self.broken_in_a_row += 1;
        let lost = connection.waiting.len() as u64;
        let recorded = connection.waiting.iter().filter(|sent| !sent.warm_up).count() as u64;
        self.lost += recorded;
        if reason.is_some() || lost > 0 {
            self.first_loss.get_or_insert_with(|| {
                reason.unwrap_or_else(|| "the server closed the connection".to_owned())
            });
        }
    }

    fn note_refusals(&mut self, connection: &Connection) {
        let (count, first) = connection.refusals();
        self.refused += count;
        if self.first_refusal.is_none() {
            self.first_refusal = first.map(ToOwned::to_owned);
        }
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns how often this thread was preempted since it began (proc(5)); 0 if the kernel does not report it.
fn preempted() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:")?.trim().parse().ok())
        .unwrap_or(0)
}
