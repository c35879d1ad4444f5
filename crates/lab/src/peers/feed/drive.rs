//! Runs flows on several threads, one per core that drives them.

use std::{net::SocketAddr, ops::Range, thread, time::Duration};

use super::PAYLOAD_BYTES;
use crate::{
    paired::Work,
    peers::{
        PeerError,
        feed::{
            load::{Flow, Shape, closed_loop},
            wire::Wire,
        },
    },
};

/// Maximum number of messages by which a producer may be ahead of its consumer: with a single flow, and with
/// many flows.
const WINDOW_ONE: u64 = 16_384;
const WINDOW_MANY: u64 = 4_096;

/// Load on a message server.
#[derive(Debug, Clone)]
pub struct Load {
    /// Shape of the flows; each flow has one producer and one consumer.
    pub shape: Shape,
    /// Number of threads; each drives its share of the flows.
    pub threads: usize,
    /// Time that the load runs.
    pub duration: Duration,
}

impl Load {
    /// Creates a load of a single flow, with one producer and one consumer.
    #[must_use]
    pub const fn one(duration: Duration) -> Self {
        let shape = Shape {
            flows: 1,
            consumers: 1,
            payload_bytes: PAYLOAD_BYTES,
            window: WINDOW_ONE,
            per_second: None,
        };
        Self { shape, threads: 1, duration }
    }

    /// Creates a load of independent flows, each with one producer and one consumer.
    #[must_use]
    pub fn many(flows: usize, threads: usize, duration: Duration) -> Self {
        let shape = Shape {
            flows,
            consumers: 1,
            payload_bytes: PAYLOAD_BYTES,
            window: WINDOW_MANY,
            per_second: None,
        };
        Self { shape, threads: threads.clamp(1, flows), duration }
    }
}

/// Relays messages as fast as the server can. Each delivery counts as a unit and is verified.
///
/// # Errors
/// `PeerError` if a message is lost or damaged, or the server closes a connection.
pub fn driven(wire: Wire, address: SocketAddr, load: &Load) -> Result<Work, PeerError> {
    driven_across(wire, address, address, load)
}

/// Relays like [`driven`], with the consumers connected to another server.
///
/// # Errors
/// The errors of [`driven`].
pub fn driven_across(
    wire: Wire,
    address: SocketAddr,
    consumers_at: SocketAddr,
    load: &Load,
) -> Result<Work, PeerError> {
    let part = |flows: Range<usize>| {
        let flow = |id| Flow::across(wire, address, consumers_at, &load.shape, id);
        let flows = flows.map(flow).collect::<Result<Vec<_>, _>>()?;
        closed_loop(flows, &load.shape, load.duration)
    };
    let share = load.shape.flows.div_ceil(load.threads);
    let parts = (0..load.shape.flows).step_by(share).map(|from| from..(from + share).min(load.shape.flows));
    thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|flows| scope.spawn(|| part(flows))).collect();
        let mut all = Work::default();
        for thread in threads {
            let work = thread.join().map_err(|_| PeerError::failed("a thread of the load panicked"))??;
            all.units += work.units;
            all.wall_s = Some(work.wall_s.unwrap_or(0.0).max(all.wall_s.unwrap_or(0.0)));
            all.doubts.extend(work.doubts);
        }
        Ok(all)
    })
}
