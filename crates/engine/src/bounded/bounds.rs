//! Bounds of a small HTTP server: the number of connections, their deadlines, and counters of connections
//! that exceed them.

use std::{sync::Arc, time::Duration};

use crate::share::ClientBudget;

/// Bounds on the number and duration of connections.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Connection slots in total. A connection that finds no free slot, and none that can be freed, waits in
    /// the kernel's queue.
    pub places_max: usize,
    /// Memory budget for clients of all servers of the process. If it has no room for another slot, an idle
    /// connection is closed, as when all slots are taken. `None`: slots are bounded by their number alone.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Maximum connection slots for one address (IPv6: one /64, which belongs to one customer); 0: no bound.
    /// Loopback connections are not counted, because many people share one address behind proxies and
    /// tunnels.
    pub places_per_address_max: usize,
    /// Maximum time from the end of an answer to the first byte of the next request.
    pub idle_time_max: Duration,
    /// Maximum time from accept to the first byte, and from a request's first byte to the end of its head,
    /// even if the bytes arrive one at a time.
    pub head_time_max: Duration,
    /// Maximum time from the end of a head to the end of the body that follows it.
    pub body_time_max: Duration,
    /// Maximum time during which the peer accepts no byte of the data being sent to it.
    pub stall_time_max: Duration,
    /// Maximum time from the first wait for the peer until it has accepted the whole answer, even if it
    /// accepts a few bytes now and then.
    pub answer_time_max: Duration,
    /// Maximum bytes of a head, from a request's first byte to its end. The reader keeps them until the head
    /// is complete.
    pub head_bytes_max: usize,
    /// Answer to a head that is too long.
    pub long_words: &'static [u8],
    /// Answer to a head that exceeds its deadline, or whose connection is closed while the head is
    /// incomplete.
    pub late_words: &'static [u8],
    /// Answer to a connection from an address that has used all its slots.
    pub refused_words: &'static [u8],
}

/// Counters of a listener and its connection slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Slots in use now.
    pub open: u64,
    /// Accepted connections.
    pub accepted: u64,
    /// Connections that had to wait, because no slot was free or could be freed.
    pub waited: u64,
    /// Connections refused because their address had used all its slots.
    pub refused: u64,
    /// Idle connections closed because slots were short.
    pub idle_evicted: u64,
    /// Connections closed with an incomplete head because slots were short.
    pub heads_evicted: u64,
    /// Connections closed with an incomplete body because slots were short.
    pub bodies_evicted: u64,
    /// Connections closed because they idled for too long.
    pub idle_ended: u64,
    /// Heads that took too long.
    pub slow_heads: u64,
    /// Heads that were too long.
    pub long_heads: u64,
    /// Bodies that took too long.
    pub slow_bodies: u64,
    /// Connections closed because the peer accepted no byte of the sent data for too long.
    pub stalled: u64,
    /// Connections closed because the peer took too long to accept a whole answer.
    pub slow_answers: u64,
}
