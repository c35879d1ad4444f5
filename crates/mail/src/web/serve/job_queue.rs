//! Queue of jobs for the helpers. The numbers of running and of waiting jobs are bounded, and clients take
//! turns.
//!
//! ```text
//!  client a: ▯▯▯▯▯ ─┐
//!  client b: ▯      ├─ a, b, c, a, a … ─▶ up to `running_max` at work, one fewer for one client ─▶ a blocking thread
//!  client c: ▯ ─────┘
//! ```
//! With a plain FIFO queue one client's long jobs would block everybody's pages. The permit is held by the
//! job itself, not by the request that waits for the job: an abandoned job keeps its thread until it notices.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use engine::cold_mutex::ColdMutex;
use tokio::sync::oneshot;

use super::{
    client::Client,
    counters::{Counter, Counters},
    fault::Fault,
};

/// One client may have 1/`CLIENT_SHARE` of the waiting jobs.
const CLIENT_SHARE: usize = 4;

pub(crate) struct JobQueue {
    running_max: usize,
    waiting_max: usize,
    /// Locked to add or remove one waiter; no loop of the mail service takes it.
    state: ColdMutex<State>,
    counters: Arc<Counters>,
    /// Counter of jobs that found the queue full.
    full: Counter,
}

#[derive(Default)]
struct State {
    running: HashMap<Client, usize>,
    running_in_all: usize,
    waiting: HashMap<Client, VecDeque<(u64, oneshot::Sender<JobPermit>)>>,
    waiting_in_all: usize,
    /// Waiting clients in the order of their turns.
    order: VecDeque<Client>,
    last_name: u64,
}

impl JobQueue {
    pub(crate) fn new(
        running_max: usize,
        waiting_max: usize,
        counters: Arc<Counters>,
        full: Counter,
    ) -> Self {
        Self { running_max, waiting_max, state: ColdMutex::default(), counters, full }
    }

    /// Waits for a permit; fails if too many jobs wait.
    pub(crate) async fn turn(self: &Arc<Self>, client: Client) -> Result<JobPermit, Fault> {
        let (name, granted) = {
            let mut state = self.state.lock();
            if state.waiting_in_all == 0 && self.has_room(&state, client) {
                return Ok(self.begin(&mut state, client));
            }
            let own = state.waiting.get(&client).map_or(0, VecDeque::len);
            let full = if state.waiting_in_all >= self.waiting_max {
                Some(Fault::Busy("too many requests are waiting for mails to be read"))
            } else if !client.is_here() && own >= (self.waiting_max / CLIENT_SHARE).max(1) {
                Some(Fault::TooMany("too many requests from this address are waiting for mails to be read"))
            } else {
                None
            };
            if let Some(fault) = full {
                self.counters.add(self.full, 1);
                return Err(fault);
            }
            let (grant, granted) = oneshot::channel();
            state.last_name += 1;
            let name = state.last_name;
            state.waiting.entry(client).or_default().push_back((name, grant));
            state.waiting_in_all += 1;
            if own == 0 {
                state.order.push_back(client);
            }
            // Other clients' jobs may be waiting only because of those clients' own limits on running jobs,
            // so this job may run.
            self.grant(&mut state);
            (name, granted)
        };
        let _waiting = QueueSlot { turns: self, client, name };
        // This queue owns the sender, and `self` keeps the queue alive.
        granted.await.map_err(|_| Fault::Broken)
    }

    /// Returns whether a client may start a job. If several jobs may run at the same time, one slot is left
    /// to other clients.
    fn has_room(&self, state: &State, client: Client) -> bool {
        let own = state.running.get(&client).copied().unwrap_or(0);
        state.running_in_all < self.running_max && own < (self.running_max - 1).max(1)
    }

    fn begin(self: &Arc<Self>, state: &mut State, client: Client) -> JobPermit {
        state.running_in_all += 1;
        *state.running.entry(client).or_default() += 1;
        JobPermit { turns: Arc::clone(self), client, is_over: false }
    }

    /// Gives permits to the clients whose turn it is.
    fn grant(self: &Arc<Self>, state: &mut State) {
        while let Some(place) = state.order.iter().position(|&client| self.has_room(state, client)) {
            let Some(client) = state.order.remove(place) else { return };
            let Some((_, grant)) = state.take_out(client, |_| true) else { continue };
            if state.waiting.contains_key(&client) {
                state.order.push_back(client);
            }
            let turn = self.begin(state, client);
            if let Err(unwanted) = grant.send(turn) {
                // The permit is ended here, because its drop would take the lock again.
                let mut unwanted = unwanted;
                unwanted.is_over = true;
                state.end(client);
            }
        }
    }
}

impl State {
    /// Removes the first of a client's waiting jobs that `meant` selects.
    fn take_out(
        &mut self,
        client: Client,
        meant: impl Fn(u64) -> bool,
    ) -> Option<(u64, oneshot::Sender<JobPermit>)> {
        let own = self.waiting.get_mut(&client)?;
        let place = own.iter().position(|(name, _)| meant(*name))?;
        let waiter = own.remove(place)?;
        self.waiting_in_all -= 1;
        if own.is_empty() {
            self.waiting.remove(&client);
        }
        Some(waiter)
    }

    fn end(&mut self, client: Client) {
        self.running_in_all -= 1;
        if let Some(own) = self.running.get_mut(&client) {
            *own -= 1;
            if *own == 0 {
                self.running.remove(&client);
            }
        }
    }
}

/// Permit to run a job on a helper; dropping it ends the job.
pub(crate) struct JobPermit {
    turns: Arc<JobQueue>,
    client: Client,
    /// True if the permit was ended already.
    is_over: bool,
}

impl Drop for JobPermit {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let turns = Arc::clone(&self.turns);
        let mut state = turns.state.lock();
        state.end(self.client);
        turns.grant(&mut state);
    }
}

/// A slot in the queue, freed on drop.
struct QueueSlot<'a> {
    turns: &'a Arc<JobQueue>,
    client: Client,
    name: u64,
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        let name = self.name;
        if state.take_out(self.client, |own| own == name).is_some()
            && !state.waiting.contains_key(&self.client)
        {
            let client = self.client;
            state.order.retain(|waiting| *waiting != client);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn client(last: u8) -> Client {
        Client::of(httpd::Client([192, 0, 2, last].into()))
    }

    fn turns(running_max: usize, waiting_max: usize) -> Arc<JobQueue> {
        Arc::new(JobQueue::new(running_max, waiting_max, Arc::new(Counters::new()), Counter::RenderBusy))
    }

    #[test]
    fn a_client_cannot_occupy_all_workers() {
        let turns = turns(2, 8);
        let held = turns.turn(client(1)).now_or_never().unwrap().unwrap();
        let mut again = Box::pin(turns.turn(client(1)));
        assert!((&mut again).now_or_never().is_none(), "one is left for others");
        let other = turns.turn(client(2)).now_or_never().unwrap().unwrap();
        let mut waits = Box::pin(turns.turn(client(3)));
        assert!((&mut waits).now_or_never().is_none());
        drop(other);
        assert!((&mut again).now_or_never().is_none(), "its client has one");
        let third_client = (&mut waits).now_or_never().unwrap().unwrap();
        drop(held);
        assert!((&mut again).now_or_never().is_some());
        drop(third_client);
    }

    #[test]
    fn clients_take_turns_however_many_of_one_wait() {
        let turns = turns(1, 64);
        let held = turns.turn(client(9)).now_or_never().unwrap().unwrap();
        let mut waiting: Vec<_> =
            [1, 1, 1, 2, 3, 2].map(|last| (last, Box::pin(turns.turn(client(last))))).into_iter().collect();
        for (_, turn) in &mut waiting {
            assert!(turn.as_mut().now_or_never().is_none());
        }
        drop(held);
        let mut served = Vec::new();
        while !waiting.is_empty() {
            let mut ready = None;
            for (place, (_, turn)) in waiting.iter_mut().enumerate() {
                if let Some(turn) = turn.as_mut().now_or_never() {
                    ready = Some((place, turn.unwrap()));
                    break;
                }
            }
            let (place, turn) = ready.expect("somebody has a turn");
            served.push(waiting.remove(place).0);
            drop(turn);
        }
        assert_eq!(served, [1, 2, 3, 1, 2, 1]);
        let state = turns.state.lock();
        assert_eq!((state.running_in_all, state.waiting_in_all, state.order.len()), (0, 0, 0));
    }

    #[test]
    fn a_full_queue_refuses_until_a_waiter_leaves() {
        let turns = turns(1, 8);
        let _held = turns.turn(client(9)).now_or_never().unwrap().unwrap();
        let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(turns.turn(client(1)))).collect();
        waiting.iter_mut().for_each(|turn| assert!(turn.as_mut().now_or_never().is_none()));
        let own_share = turns.turn(client(1)).now_or_never().unwrap();
        assert!(matches!(own_share, Err(Fault::TooMany(_))));
        let mut others: Vec<_> = (2..8).map(|last| Box::pin(turns.turn(client(last)))).collect();
        others.iter_mut().for_each(|turn| assert!(turn.as_mut().now_or_never().is_none()));
        assert!(matches!(turns.turn(client(8)).now_or_never().unwrap(), Err(Fault::Busy(_))));
        waiting.pop();
        assert!(turns.turn(client(8)).now_or_never().is_none(), "there is room to wait");
        drop((waiting, others));
        let state = turns.state.lock();
        assert_eq!((state.waiting_in_all, state.order.len()), (0, 0));
    }
}
