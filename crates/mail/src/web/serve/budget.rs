//! Memory budget of requests: bodies being received, mails read for a response, and responses until their
//! clients have received them.
//!
//! ```text
//!  a body's pieces ──┐
//!  a mail's bytes ───┼─▶ hold ─▶ used ≤ bytes_max, a client's ≤ half ─▶ BudgetGuard, given back when dropped
//!  a response ───────┘     └─▶ 503, Retry-After
//! ```
//! Without a budget the only limit was 32 MiB for each of 4,096 anonymous connections. Large items (more than
//! [`SMALL_BYTES_MAX`]) may not use the last eighth, so that a client that fills the budget with them does
//! not block pages and small requests. *Writers:* the web's thread, and the helpers that read mails.

use std::{collections::HashMap, sync::Arc, time::Duration};

use engine::{
    cold_mutex::ColdMutex,
    share::{ClientBudget, CommonPart, Share},
};
use tokio::sync::Notify;

use super::{
    client::Client,
    counters::{Counter, Counters},
    fault::Fault,
};
use crate::mailbox::mailboxes::{ReadBudget, Unavailable};

/// Size of a small item: a page, a list of a hundred mails, a change.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// 1/`SMALL_SHARE` of the budget is reserved for small items.
const SMALL_SHARE: u64 = 8;
/// One client may use 1/`CLIENT_SHARE` of the budget.
const CLIENT_SHARE: u64 = 2;

pub(crate) struct Budget {
    bytes_max: u64,
    /// Locked for a few additions.
    used: ColdMutex<BudgetUse>,
    /// Notified when memory is released.
    freed: Notify,
    counters: Arc<Counters>,
}

struct BudgetUse {
    bytes: u64,
    /// Share of the memory budget that all servers of the process have in common, if there is one.
    share: Option<Share>,
    /// Bytes charged to each client except this machine.
    of_client: HashMap<Client, u64>,
}

impl BudgetUse {
    /// Returns whether the process's budget allows this many bytes.
    fn allows(&mut self, bytes: u64) -> bool {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.share.as_mut().is_none_or(|share| share.allows(bytes))
    }
}

impl Budget {
    pub(crate) fn new(bytes_max: u64, within: Option<&Arc<ClientBudget>>, counters: Arc<Counters>) -> Self {
        let total = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let share = within.map(|budget| Share::new(CommonPart::within(Some(budget)), total, 1));
        let used = ColdMutex::new(BudgetUse { bytes: 0, share, of_client: HashMap::new() });
        Self { bytes_max, used, freed: Notify::new(), counters }
    }

    /// Creates an empty charge for a client.
    pub(crate) fn of(self: &Arc<Self>, client: Client) -> BudgetGuard {
        BudgetGuard { budget: Arc::clone(self), client, bytes: 0 }
    }

    /// Charges bytes to a client. `in_all` is the total size of the item that they belong to.
    fn take(&self, client: Client, bytes: u64, in_all: u64) -> bool {
        let mut used = self.used.lock();
        // Other servers of the process may use so much memory that less than `bytes_max` is left for this
        // one.
        let limit = used.share.as_ref().map_or(u64::MAX, |share| share.limit() as u64);
        let most = self.bytes_max.min(limit);
        let for_small = if in_all > SMALL_BYTES_MAX { most / SMALL_SHARE } else { 0 };
        let bound = most - for_small;
        let after = used.bytes.saturating_add(bytes);
        if after > bound || !used.allows(after) {
            return false;
        }
        if !client.is_here() {
            let own = used.of_client.entry(client).or_default();
            if own.saturating_add(bytes) > self.bytes_max / CLIENT_SHARE {
                if *own == 0 {
                    used.of_client.remove(&client);
                }
                return false;
            }
            *own += bytes;
        }
        used.bytes += bytes;
        self.counters.set(Counter::HeldBytes, used.bytes);
        true
    }

    fn give_back(&self, client: Client, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut used = self.used.lock();
        used.bytes -= bytes;
        let left = used.bytes;
        used.allows(left);
        if let Some(own) = used.of_client.get_mut(&client) {
            *own -= bytes;
            if *own == 0 {
                used.of_client.remove(&client);
            }
        }
        self.counters.set(Counter::HeldBytes, used.bytes);
        drop(used);
        self.freed.notify_waiters();
    }
}

/// Charged bytes, released on drop.
pub(crate) struct BudgetGuard {
    budget: Arc<Budget>,
    client: Client,
    bytes: u64,
}

impl BudgetGuard {
    /// Charges more bytes, or fails if the budget has no room for them.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Fault> {
        if self.try_grow(bytes) { Ok(()) } else { Err(Fault::from(Unavailable::NoRoom)) }
    }

    fn try_grow(&mut self, bytes: u64) -> bool {
        let taken = self.budget.take(self.client, bytes, self.bytes.saturating_add(bytes));
        if taken {
            self.bytes += bytes;
        }
        taken
    }

    /// Replaces the charge with one of `bytes` bytes, and waits up to `at_most` until the budget has room.
    pub(crate) async fn wait_for(&mut self, bytes: u64, at_most: Duration) -> Result<(), Fault> {
        self.release();
        let budget = Arc::clone(&self.budget);
        let taken = async {
            loop {
                // The registration precedes the attempt, so that no notification is missed.
                let freed = budget.freed.notified();
                if self.try_grow(bytes) {
                    return;
                }
                freed.await;
            }
        };
        if tokio::time::timeout(at_most, taken).await.is_ok() {
            return Ok(());
        }
        self.grow(bytes)
    }

    /// Releases all bytes.
    pub(crate) fn release(&mut self) {
        self.budget.give_back(self.client, std::mem::take(&mut self.bytes));
    }
}

/// Bytes read from a mail are charged to the mail's client.
impl ReadBudget for BudgetGuard {
    fn reserve(&mut self, bytes: u64) -> bool {
        self.try_grow(bytes)
    }
}

impl Drop for BudgetGuard {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::of(httpd::Client([192, 0, 2, last].into()))
    }

    fn budget(bytes_max: u64) -> Arc<Budget> {
        Arc::new(Budget::new(bytes_max, None, Arc::new(Counters::new())))
    }

    #[test]
    fn a_client_is_limited_to_its_share() {
        let budget = budget(8 << 20);
        let mut one = budget.of(client(1));
        assert!(one.try_grow(4 << 20) && !one.try_grow(1), "a client has half");
        let mut two = budget.of(client(2));
        assert!(two.try_grow(3 << 20) && !two.try_grow(1), "an eighth is for what is small");
        let mut page = budget.of(client(2));
        assert!(page.try_grow(SMALL_BYTES_MAX) && !page.try_grow(1));
        drop((one, page));
        assert!(two.try_grow(1 << 19));
        assert_eq!(budget.used.lock().of_client.len(), 1);
        drop(two);
        let used = budget.used.lock();
        assert_eq!((used.bytes, used.of_client.len()), (0, 0));
        drop(used);
        let here = Client::of(httpd::Client(std::net::Ipv4Addr::LOCALHOST.into()));
        assert!(budget.of(here).try_grow(7 << 20), "this machine has what there is");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_what_is_given_back() {
        let budget = budget(1 << 20);
        let mut first = budget.of(client(1));
        first.grow(1 << 19).unwrap();
        let mut second = budget.of(client(1));
        assert!(second.wait_for(1, Duration::from_secs(1)).await.is_err());
        let (waited, ()) =
            tokio::join!(second.wait_for(1 << 19, Duration::from_secs(1)), async { drop(first) });
        waited.unwrap();
    }
}
