//! Pinned event loops, one per core, and the communication between them.
//!
//! ```text
//!   core 0                                core 1                          any other thread
//!  ┌──────────────────────────┐          ┌──────────────────────────┐    ┌──────────────┐
//!  │ listener (SO_REUSEPORT)  │          │ listener                 │    │ admin, tests │
//!  │ tokio current_thread     │  ring →  │ tokio current_thread     │    │              │
//!  │ Sender ──────────────────┼─────────▶│ Receiver (+ eventfd) ◀───┼────┼── Sender     │
//!  │ Receiver ◀───────────────┼──────────┼── Sender                 │    └──────────────┘
//!  └──────────────────────────┘  ← ring  └──────────────────────────┘
//! ```
//!
//! - [`run`]: starts, pins, drains and joins the loops; a panic on one stops all.
//! - [`listener`]: one listening socket per core on one port, and handing connections over.
//! - [`mesh`]: message batches from every core to every core over [`ring`]s; [`bell`] wakes sleepers.
//! - [`lateness`]: how late each loop runs, and the causes that the kernel counts.
//! - [`service`]: the skeleton of a server on these loops: its start, its readiness, its drain.
//! - [`rounds`]: periodic tasks of a loop, which do not wake an idle loop.
//! - [`fair`]: busy connections of one address take turns.
//! - [`behind`]: storing answers yields to connections that are ready.
//! - [`clock`]: the clocks, and the cost of reading each.
//! - [`steady_clock`]: the time by which stored objects expire, unaffected by a step of the clock.
//! - [`give_way`]: threads with low priority.
//! - [`watch`]: deadlines of connections, without a timer for each wait.

pub mod behind;
pub mod bell;
mod causes;
pub mod clock;
pub mod fair;
pub mod lateness;
pub mod listener;
pub mod mesh;
mod priority;
mod processors;
pub mod ring;
pub mod rounds;
pub mod run;
pub mod service;
pub mod steady_clock;
pub mod watch;

pub use causes::Causes;
pub use priority::give_way;
pub use processors::{ListError, available, parse_list};
pub use rounds::Rounds;
pub use run::{CoreContext, Cores, CoresConfig, Shutdown};
pub use steady_clock::SteadyClock;
