//! How many connections a server of pages has at once, how long each may take, and what is counted when one may not.

use std::{sync::Arc, time::Duration};

use crate::share::ClientBudget;

/// How many, and how long each may take.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Places for all together. Who finds none free, and none to be freed, waits in the kernel's queue.
    pub places_max: usize,
    /// The memory budget for clients of all servers of the process: where it has none for another place, an idle connection gives
    /// way, as where all places are taken. `None`: places are bounded by their number.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Places for one address (IPv6: one /64, which is one customer's); 0: no bound. What comes from loopback is not
    /// counted: proxies and tunnels make one address of many people.
    pub places_per_address_max: usize,
    /// From the end of an answer to the first byte of another question.
    pub idle_time_max: Duration,
    /// From accept to the first byte, and from a question's first byte to the end of its head, however many bytes come
    /// one at a time.
    pub head_time_max: Duration,
    /// From the end of a head to the end of the body that follows it.
    pub body_time_max: Duration,
    /// How long a peer may take nothing of what is being sent to it.
    pub stall_time_max: Duration,
    /// From the first time that an answer has to wait for its peer until all of it is taken, however often some is.
    pub answer_time_max: Duration,
    /// Bytes of a head, from a question's first byte to its end. Whoever reads keeps them until the head is whole.
    pub head_bytes_max: usize,
    /// Sent to who has a longer head.
    pub long_words: &'static [u8],
    /// Sent to who is too late with a head, or must go with one begun.
    pub late_words: &'static [u8],
    /// Sent to who comes from an address that has its places already.
    pub refused_words: &'static [u8],
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Places taken now.
    pub open: u64,
    /// Connections that came in.
    pub accepted: u64,
    /// Connections that found no place and none that could be freed, and waited.
    pub waited: u64,
    /// Connections refused because their address had its places.
    pub refused: u64,
    /// Idle connections ended because places were short.
    pub idle_evicted: u64,
    /// Connections ended with a head under way because places were short.
    pub heads_evicted: u64,
    /// Connections ended with a body under way because places were short.
    pub bodies_evicted: u64,
    /// Connections that had idled for too long.
    pub idle_ended: u64,
    /// Heads that took too long.
    pub slow_heads: u64,
    /// Heads that were longer than they may be.
    pub long_heads: u64,
    /// Bodies that took too long.
    pub slow_bodies: u64,
    /// Peers that took nothing of what was sent to them for too long.
    pub stalled: u64,
    /// Answers that were taken too slowly.
    pub slow_answers: u64,
}
