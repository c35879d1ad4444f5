//! Messages from every core to every core, in batches.
//!
//! ```text
//!              to 0      to 1      to 2            one ring per pair, each with one writer and one reader
//!   from 0   [ ring ]  [ ring ]  [ ring ]
//!   from 1   [ ring ]  [ ring ]  [ ring ]   ──▶  Receiver of 1 empties its column
//!   from 2   [ ring ]  [ ring ]  [ ring ]          (2: an outsider, such as the admin thread)
//!                         │
//!                     bell + eventfd of 1
//! ```
//!
//! A loop sends messages during its turn and then calls [`Sender::flush`]: one wake-up for each sleeping
//! destination that got any, whatever the number of messages. A ring holds `capacity` messages and refuses
//! more: [`Sender::send`] returns the message and counts it, and the caller handles it. Between two endpoints
//! messages arrive once and in order; between different pairs there is no order.
//!
//! A receiver that is dropped, for example when its loop ends, drops the messages in its rings, and
//! [`Sender::flush`] drops messages sent to it afterwards: a sender that waits for an answer to such a
//! message learns at once that none will come.
//!
//! Memory: `endpoints² × capacity × size_of::<M>()`, of which the kernel commits only pages that have been
//! used.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use tokio::io::unix::AsyncFd;

use super::{
    bell::Bell,
    ring::{Consumer, Producer, channel},
};
use crate::{
    meter::{CoreCounters, CounterSet},
    sys::readiness::readable,
};

crate::counters! {
    /// Counters of a mesh, summed over its endpoints.
    pub enum MeshCounter {
        Sent => Counter, "mesh_sent", None, "Messages sent over rings between cores.";
        Refused => Counter, "mesh_refused", None, "Messages returned to their sender because the ring was full.";
        Wakes => Counter, "mesh_wakes", None, "Wake-ups of sleeping cores by a message (one system call each).";
        Received => Counter, "mesh_received", None, "Messages received from rings between cores.";
        Batches => Counter, "mesh_batches", None, "Times that a core drained its rings.";
    }
}

/// All endpoints of one mesh, created together and then handed out.
#[derive(Debug)]
pub struct Mesh<M> {
    endpoints: Vec<Endpoint<M>>,
    counters: Arc<CounterSet<MeshCounter>>,
}

impl<M: Send> Mesh<M> {
    /// Creates a mesh of `cores + outsiders` endpoints, numbered in that order, with rings of `capacity`
    /// messages. An outsider is a thread that is not a core; its endpoint sends and receives like any other.
    ///
    /// # Errors
    /// Returns the kernel's error if it refuses an eventfd (`EMFILE`, `ENFILE`, `ENOMEM`): each endpoint
    /// needs one.
    ///
    /// # Panics
    /// Panics if `capacity` is 0.
    pub fn new(cores: usize, outsiders: usize, capacity: usize) -> io::Result<Self> {
        let count = cores + outsiders;
        let counters = CounterSet::new(2 * count);
        let sleepers = (0..count)
            .map(|_| {
                let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                Ok(Arc::new(Sleeper { bell: Bell::new(), eventfd: Arc::new(eventfd) }))
            })
            .collect::<io::Result<Vec<_>>>()?;
        // Consumers, indexed `columns[to][from]`.
        let mut columns: Vec<Vec<Consumer<M>>> = (0..count).map(|_| Vec::with_capacity(count)).collect();
        let mut rows: Vec<Vec<Producer<M>>> = Vec::with_capacity(count);
        for _from in 0..count {
            let row = columns.iter_mut().map(|column| {
                let (producer, consumer) = channel(capacity);
                column.push(consumer);
                producer
            });
            rows.push(row.collect());
        }
        let endpoints = rows.into_iter().zip(columns).enumerate().map(|(index, (row, column))| {
            let links = row.into_iter().zip(&sleepers).map(|(ring, sleeper)| Link {
                ring,
                sleeper: Arc::clone(sleeper),
                unannounced: Cell::new(false),
            });
            Endpoint {
                sender: Sender {
                    links: links.collect(),
                    unannounced: Cell::new(false),
                    counters: counters.core(index),
                },
                receiver: Receiver {
                    rings: column.into(),
                    sleeper: Arc::clone(&sleepers[index]),
                    woken: None,
                    counters: counters.core(count + index),
                },
            }
        });
        let endpoints = endpoints.collect();
        Ok(Self { endpoints, counters })
    }

    /// Returns the endpoints: one for each core, then one for each outsider.
    #[must_use]
    pub fn into_endpoints(self) -> Vec<Endpoint<M>> {
        self.endpoints
    }

    /// Returns the counters of the mesh, for a [`crate::meter::Registry`].
    #[must_use]
    pub fn counters(&self) -> Arc<CounterSet<MeshCounter>> {
        Arc::clone(&self.counters)
    }
}

/// An endpoint of the mesh: sends to and receives from all endpoints, including itself.
#[derive(Debug)]
pub struct Endpoint<M> {
    sender: Sender<M>,
    receiver: Receiver<M>,
}

impl<M: Send> Endpoint<M> {
    /// Splits the endpoint into its halves, for two owners on one core: the receiver belongs to one task, the
    /// sender may be in a thread-local or an `Rc` (its methods take `&self`).
    #[must_use]
    pub fn split(self) -> (Sender<M>, Receiver<M>) {
        (self.sender, self.receiver)
    }

    /// Sends a message like [`Sender::send`].
    ///
    /// # Errors
    /// Returns the message if the ring is full, like [`Sender::send`].
    pub fn send(&self, to: usize, message: M) -> Result<(), M> {
        self.sender.send(to, message)
    }

    /// Wakes the destinations like [`Sender::flush`].
    pub fn flush(&self) {
        self.sender.flush();
    }

    /// Receives like [`Receiver::recv_batch`].
    pub async fn recv_batch(&mut self, into: &mut Vec<M>) -> usize {
        self.receiver.recv_batch(into).await
    }

    /// Receives like [`Receiver::try_recv_batch`].
    pub fn try_recv_batch(&mut self, into: &mut Vec<M>) -> usize {
        self.receiver.try_recv_batch(into)
    }
}

/// Sleep and wake-up state of one endpoint.
#[derive(Debug)]
struct Sleeper {
    bell: Bell,
    eventfd: Arc<OwnedFd>,
}

impl Sleeper {
    fn wake(&self) {
        match rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes()) {
            // EAGAIN: the counter is at its maximum, so the eventfd is readable.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => panic!("mesh: cannot write an eventfd: {error}"),
        }
    }
}

impl Sleeper {
    /// Sleeps until the endpoint is woken; returns at once if it was woken since the last sleep.
    fn sleep(&self) {
        let mut watched = [PollFd::new(&self.eventfd, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("mesh: cannot wait for an eventfd: {error}"),
        }
        // Unlike an edge in an epoll, a readable eventfd stays readable until it is read.
        let mut count = [0; 8];
        match rustix::io::read(&self.eventfd, &mut count) {
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => panic!("mesh: cannot read an eventfd: {error}"),
        }
    }
}

#[derive(Debug)]
struct Link<M> {
    ring: Producer<M>,
    sleeper: Arc<Sleeper>,
    /// True if messages were sent on this link since the last flush.
    unannounced: Cell<bool>,
}

/// The sending half: one row of rings.
#[derive(Debug)]
pub struct Sender<M> {
    links: Box<[Link<M>]>,
    /// True if any link has messages that were sent since the last flush.
    unannounced: Cell<bool>,
    counters: CoreCounters<MeshCounter>,
}

impl<M: Send> Sender<M> {
    /// Puts a message into the ring to endpoint `to`. It may stay there until [`Self::flush`], which drops it
    /// if that endpoint's receiver is gone.
    ///
    /// # Errors
    /// Returns the message if the ring is full, and counts it as [`MeshCounter::Refused`]. The receiver is
    /// woken at the next flush nevertheless.
    ///
    /// # Panics
    /// Panics if there is no endpoint `to`.
    pub fn send(&self, to: usize, message: M) -> Result<(), M> {
        let link = &self.links[to];
        match link.ring.push(message) {
            Ok(()) => {
                link.unannounced.set(true);
                self.unannounced.set(true);
                self.counters.add(MeshCounter::Sent, 1);
                Ok(())
            }
            Err(message) => {
                self.counters.add(MeshCounter::Refused, 1);
                Err(message)
            }
        }
    }

    /// Returns whether the ring to endpoint `to` has room for a message. The room remains until this sender
    /// sends a message.
    ///
    /// # Panics
    /// Panics if there is no endpoint `to`.
    #[must_use]
    pub fn has_room(&self, to: usize) -> bool {
        self.links[to].ring.has_room()
    }

    /// Wakes each sleeping destination to which messages were sent since the last flush. Called at the end of
    /// each turn; otherwise a message waits until its receiver wakes for another reason. Costs a branch if
    /// nothing was sent, a fence per destination with new messages, and one system call (≈ 1 µs) per sleeping
    /// destination.
    pub fn flush(&self) {
        if !self.unannounced.replace(false) {
            return;
        }
        for link in &self.links {
            if !link.unannounced.replace(false) {
                continue;
            }
            // `must_wake` includes the full fence that `drop_if_abandoned` needs.
            let must_wake = link.sleeper.bell.must_wake();
            if link.ring.drop_if_abandoned() {
                continue;
            }
            if must_wake {
                link.sleeper.wake();
                self.counters.add(MeshCounter::Wakes, 1);
            }
        }
    }

    /// Returns how many messages were refused so far because a ring was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counters.value(MeshCounter::Refused)
    }

    /// Returns the number of endpoints.
    #[must_use]
    pub fn endpoints(&self) -> usize {
        self.links.len()
    }
}

/// The receiving half: one column of rings.
#[derive(Debug)]
pub struct Receiver<M> {
    rings: Box<[Consumer<M>]>,
    sleeper: Arc<Sleeper>,
    /// The eventfd, registered with the runtime in which this receiver was first awaited.
    woken: Option<AsyncFd<Arc<OwnedFd>>>,
    counters: CoreCounters<MeshCounter>,
}

impl<M: Send> Receiver<M> {
    /// Waits for messages and appends all that have arrived to `into`. Returns their number, at least 1 and
    /// at most `endpoints × capacity`. Cancel-safe: no message is taken before the last wait is over.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with I/O, or if its epoll refuses the eventfd at the first wait (out of
    /// kernel memory or over `max_user_watches`). The receiver must stay with the runtime of its first wait.
    pub async fn recv_batch(&mut self, into: &mut Vec<M>) -> usize {
        // An endless stream of messages must not prevent the loop from serving its sockets.
        tokio::task::coop::consume_budget().await;
        poll_fn(|cx| self.poll_recv_batch(cx, into)).await
    }

    /// Polls like [`Self::recv_batch`], for a loop that also calls [`Self::try_recv_batch`] between two
    /// waits, because it must handle other cores' messages before it continues reading: the receiver is
    /// borrowed only during the call. Only one task may wait at a time.
    ///
    /// # Panics
    /// Panics like [`Self::recv_batch`].
    pub fn poll_recv_batch(&mut self, cx: &mut Context<'_>, into: &mut Vec<M>) -> Poll<usize> {
        loop {
            let count = self.try_recv_batch(into);
            if count > 0 {
                return Poll::Ready(count);
            }
            self.sleeper.bell.about_to_sleep();
            let count = self.try_recv_batch(into);
            if count > 0 {
                self.sleeper.bell.awake();
                return Poll::Ready(count);
            }
            let woken = self.woken.get_or_insert_with(|| {
                readable(Arc::clone(&self.sleeper.eventfd))
                    .unwrap_or_else(|error| panic!("mesh: cannot add an eventfd to epoll: {error}"))
            });
            // The eventfd's counter is never read. The registration is edge-triggered and each write is a new
            // edge, whatever the counter's value; mio's waker relies on this too. That saves a read per
            // wake-up.
            match woken.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(mut guard)) => guard.clear_ready(),
                Poll::Ready(Err(error)) => {
                    panic!("mesh: the runtime ended while a task was waiting: {error}")
                }
            }
        }
    }

    /// Receives like [`Self::recv_batch`], for a thread without an event loop that may sleep in the kernel.
    ///
    /// # Panics
    /// Panics if waiting for the eventfd fails, which only a broken invariant can cause.
    pub fn recv_batch_blocking(&mut self, into: &mut Vec<M>) -> usize {
        loop {
            let count = self.try_recv_batch(into);
            if count > 0 {
                return count;
            }
            self.sleeper.bell.about_to_sleep();
            let count = self.try_recv_batch(into);
            if count > 0 {
                self.sleeper.bell.awake();
                return count;
            }
            self.sleeper.sleep();
        }
    }

    /// Appends to `into` all messages that have arrived by now, without waiting, and returns their number.
    pub fn try_recv_batch(&mut self, into: &mut Vec<M>) -> usize {
        let count: usize = self.rings.iter().map(|ring| ring.pop_all(into)).sum();
        if count > 0 {
            self.counters.add(MeshCounter::Received, count as u64);
            self.counters.add(MeshCounter::Batches, 1);
        }
        count
    }
}
