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
//! A turn of a loop sends what it has to and then calls [`Sender::flush`]: one wake-up per destination that got
//! something and sleeps, whatever the number of messages. A ring holds `capacity` messages and refuses more:
//! [`Sender::send`] gives the message back, counts it, and the caller answers for it. Between two endpoints messages
//! arrive once and in order; between different pairs there is no order.
//!
//! A receiver that goes, as one does when its loop ends, drops what lies in its rings, and [`Sender::flush`] drops what is
//! sent to it afterwards: whoever waits for an answer to such a message hears at once that none will come.
//!
//! Memory: `endpoints² × capacity × size_of::<M>()`, of which the kernel commits only what was once used.

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
    /// What a mesh counts, summed over its endpoints.
    pub enum MeshCounter {
        Sent => Counter, "mesh_sent", None, "Messages put into a ring between cores.";
        Refused => Counter, "mesh_refused", None, "Messages given back to the sender because the ring was full.";
        Wakes => Counter, "mesh_wakes", None, "Cores woken from their sleep by a message (one system call each).";
        Received => Counter, "mesh_received", None, "Messages taken out of a ring between cores.";
        Batches => Counter, "mesh_batches", None, "Times that a core found messages and took them all.";
    }
}

/// All endpoints of one mesh, made together and then given away.
#[derive(Debug)]
pub struct Mesh<M> {
    endpoints: Vec<Endpoint<M>>,
    counters: Arc<CounterSet<MeshCounter>>,
}

impl<M: Send> Mesh<M> {
    /// A mesh of `cores + outsiders` endpoints, numbered in that order, with rings of `capacity` messages. An
    /// outsider is a thread that is not a core: it sends, and may receive, like any other.
    ///
    /// # Errors
    /// When the kernel gives no eventfd (`EMFILE`, `ENFILE`, `ENOMEM`): one is needed per endpoint.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn new(cores: usize, outsiders: usize, capacity: usize) -> io::Result<Self> {
        let count = cores + outsiders;
        let counters = CounterSet::new(2 * count);
        let sleepers = (0..count)
            .map(|_| {
                let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                Ok(Arc::new(Sleeper { bell: Bell::new(), eventfd: Arc::new(eventfd) }))
            })
            .collect::<io::Result<Vec<_>>>()?;
        // columns[to][from]
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

    /// One endpoint for each core and then for each outsider.
    #[must_use]
    pub fn into_endpoints(self) -> Vec<Endpoint<M>> {
        self.endpoints
    }

    /// What the mesh counts, for a [`crate::meter::Registry`].
    #[must_use]
    pub fn counters(&self) -> Arc<CounterSet<MeshCounter>> {
        Arc::clone(&self.counters)
    }
}

/// One place in the mesh: it sends to all (itself too) and receives from all.
#[derive(Debug)]
pub struct Endpoint<M> {
    sender: Sender<M>,
    receiver: Receiver<M>,
}

impl<M: Send> Endpoint<M> {
    /// The two halves, for two owners on one core: the receiver belongs to one task, the sender may lie in a
    /// thread-local or an `Rc` (its methods take `&self`).
    #[must_use]
    pub fn split(self) -> (Sender<M>, Receiver<M>) {
        (self.sender, self.receiver)
    }

    /// See [`Sender::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, to: usize, message: M) -> Result<(), M> {
        self.sender.send(to, message)
    }

    /// See [`Sender::flush`].
    pub fn flush(&self) {
        self.sender.flush();
    }

    /// See [`Receiver::recv_batch`].
    pub async fn recv_batch(&mut self, into: &mut Vec<M>) -> usize {
        self.receiver.recv_batch(into).await
    }

    /// See [`Receiver::try_recv_batch`].
    pub fn try_recv_batch(&mut self, into: &mut Vec<M>) -> usize {
        self.receiver.try_recv_batch(into)
    }
}

/// How one endpoint sleeps and is woken.
#[derive(Debug)]
struct Sleeper {
    bell: Bell,
    eventfd: Arc<OwnedFd>,
}

impl Sleeper {
    fn wake(&self) {
        match rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes()) {
            // EAGAIN: the counter stands at its maximum, so it is readable.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => panic!("mesh: an eventfd of ours cannot be written: {error}"),
        }
    }
}

impl Sleeper {
    /// Sleeps until it is woken, or was since the last time.
    fn sleep(&self) {
        let mut watched = [PollFd::new(&self.eventfd, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("mesh: an eventfd of ours cannot be waited for: {error}"),
        }
        // Unlike an edge in an epoll, the level stays until it is read.
        let mut count = [0; 8];
        match rustix::io::read(&self.eventfd, &mut count) {
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => panic!("mesh: an eventfd of ours cannot be read: {error}"),
        }
    }
}

#[derive(Debug)]
struct Link<M> {
    ring: Producer<M>,
    sleeper: Arc<Sleeper>,
    /// Something was sent since the last flush.
    unannounced: Cell<bool>,
}

/// The sending half: one row of rings.
#[derive(Debug)]
pub struct Sender<M> {
    links: Box<[Link<M>]>,
    /// One of the links has something unannounced.
    unannounced: Cell<bool>,
    counters: CoreCounters<MeshCounter>,
}

impl<M: Send> Sender<M> {
    /// Puts a message into the ring to endpoint `to`. It may lie there until [`Self::flush`], which drops it where that
    /// endpoint's receiver is gone.
    ///
    /// # Errors
    /// Gives the message back when the ring is full, and counts it as [`MeshCounter::Refused`]. The receiver is
    /// woken at the next flush nevertheless.
    ///
    /// # Panics
    /// If there is no endpoint `to`.
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

    /// Whether the ring to endpoint `to` has room for a message, which it keeps until this half sends one.
    ///
    /// # Panics
    /// If there is no endpoint `to`.
    #[must_use]
    pub fn has_room(&self, to: usize) -> bool {
        self.links[to].ring.has_room()
    }

    /// Wakes each destination that got something since the last flush and sleeps. At the end of each turn; without it,
    /// a message waits until its receiver wakes for another reason. Costs a branch when nothing was sent, a fence per
    /// destination that got something, and one system call (≈ 1 µs) per sleeper.
    pub fn flush(&self) {
        if !self.unannounced.replace(false) {
            return;
        }
        for link in &self.links {
            if !link.unannounced.replace(false) {
                continue;
            }
            // With the full fence that `drop_if_abandoned` wants.
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

    /// How many messages were refused so far because a ring was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counters.value(MeshCounter::Refused)
    }

    /// How many endpoints there are.
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
    /// The eventfd in the epoll of the runtime that this half was first awaited on.
    woken: Option<AsyncFd<Arc<OwnedFd>>>,
    counters: CoreCounters<MeshCounter>,
}

impl<M: Send> Receiver<M> {
    /// Appends to `into` all that has arrived, and waits until there is something. Gives the number of messages, at
    /// least 1 and at most `endpoints × capacity`. Safe to cancel: nothing is taken out before the last wait is over.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O, or when its epoll refuses the eventfd at the first wait (out of kernel
    /// memory or over `max_user_watches`). The half must stay with the runtime of its first wait.
    pub async fn recv_batch(&mut self, into: &mut Vec<M>) -> usize {
        // A stream of messages that never ends must not keep the loop from its sockets.
        tokio::task::coop::consume_budget().await;
        poll_fn(|cx| self.poll_recv_batch(cx, into)).await
    }

    /// The same for a loop that also calls [`Self::try_recv_batch`] between two waits, because it must know what other
    /// cores have said before it reads on: the half is borrowed for the call alone. One task waits at a time.
    ///
    /// # Panics
    /// As [`Self::recv_batch`].
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
                    .unwrap_or_else(|error| panic!("mesh: epoll refuses our eventfd: {error}"))
            });
            // The counter is never read. The registration is edge-triggered and each write is an edge of its own,
            // however high the counter stands: what mio's waker relies on too. That saves a read per wake-up.
            match woken.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(mut guard)) => guard.clear_ready(),
                Poll::Ready(Err(error)) => {
                    panic!("mesh: the runtime is going down while a task waits: {error}")
                }
            }
        }
    }

    /// As [`Self::recv_batch`], for a thread that has no loop and may sleep in the kernel.
    ///
    /// # Panics
    /// If the eventfd cannot be waited for: it is ours and open, so only a broken invariant is a reason.
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

    /// Appends to `into` all that has arrived by now, without waiting, and says how many.
    pub fn try_recv_batch(&mut self, into: &mut Vec<M>) -> usize {
        let count: usize = self.rings.iter().map(|ring| ring.pop_all(into)).sum();
        if count > 0 {
            self.counters.add(MeshCounter::Received, count as u64);
            self.counters.add(MeshCounter::Batches, 1);
        }
        count
    }
}
