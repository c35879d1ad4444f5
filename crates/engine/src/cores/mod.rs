//! One pinned event loop per core, and what passes between them.
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
//! - [`listener`]: one listening socket per core on one port; who hands a connection to whom.
//! - [`mesh`]: batches from every core to every core over [`ring`]s; [`bell`] wakes who sleeps.
//! - [`lateness`]: how late each loop runs, and what the kernel knows of why.
//! - [`rounds`]: what a loop does by the clock, and that it does not wake where there is nothing to time.
//! - [`fair`]: those of one address who have much to do take turns.
//! - [`behind`]: what is to be stored waits for what is ready to be answered.
//! - [`clock`]: the time, and what each way of asking costs.
//! - [`steady_clock`]: the time by which stored things end, undisturbed by a step of the clock.
//! - [`give_way`]: threads that do what nobody waits for.
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
pub mod steady_clock;
pub mod watch;

pub use causes::Causes;
pub use priority::give_way;
pub use processors::{ListError, available, parse_list};
pub use rounds::Rounds;
pub use run::{CoreContext, Cores, CoresConfig, Shutdown};
pub use steady_clock::SteadyClock;
