//! Accounts: the amounts, in bytes or in items, that a core holds for each client, by category.
//!
//! A limit on the total alone lets one attacker use all of it, and a limit for each connection is useless
//! when one client opens a thousand. Here each category has a sum that all clients share, and within it
//! clients give way to each other:
//!
//! ```text
//!   0 ─────────────────────────────── 15/16 ─────── 31/32 ─────── 1    of a category's sum
//!   │ any request is admitted          │ only below   │ only up to a │
//!   │                                  │ the largest  │ share        │
//! ```
//! *A share is enforced only when the sum is short.* A client alone gets all but a sixteenth
//! ([`RESERVE_PARTS`]). Requests of other clients are admitted at once from that sixteenth, and charges of
//! the client that keeps most are cut until the sixteenth is free again; the client is not cut below the
//! amount of the requesting client, and never below a client's share. A share is a 256th of the sum
//! ([`SHARE_PARTS`]). It is small because it is promised to every client at once: an attacker needs 256
//! networks to fill a sum with shares. A request of the client that keeps most is refused, unless one of its
//! own charges is at least twice as large as the requested one. Then that charge is cut, so that an attacker
//! behind a NAT does not shut out other users of the same NAT.
//!
//! An IPv6 /64 is a client. Its /48 is compared by a sixteenth of what it holds ([`GROUP_SHARES`]): the owner
//! of a /48 gets as much as sixteen addresses, not as 65,536.
//!
//! **Use.** A loop has one [`Accounts`]. A connection creates its [`Client`] from its [`ClientKey`] once. Its
//! memory is held as a [`Charge`], which is released when it is dropped and is [resized](Charge::resize) as
//! it grows. A request of another client can cut a charge at any time: the holder awaits [`Charge::cut`], or
//! checks [`Charge::is_cut`] once per turn, and ends. The amount still counts until the charge is dropped.
//! - [`Refusal::OverShare`]: answer with the limit's error; the client itself holds too much.
//! - [`Refusal::Full`]: room is being made, or all clients are at their share: retry in the next turn, until a
//!   deadline.
//!
//! All of this belongs to the thread that created the [`Accounts`]: no lock, and no atomics except in the
//! [common half](crate::share) of sums that several cores share. Tasks of any kind may hold the handles, as
//! long as they run on that thread. A charge of a known client allocates nothing and takes constant time.

mod classes;
mod key;
mod ledger;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

pub use key::ClientKey;
use ledger::Ledger;

use crate::share::CommonPart;

/// Divisor for the reserve: this fraction of a sum cannot be used by a single client, so that other clients
/// are admitted at once.
pub const RESERVE_PARTS: usize = 16;
/// Divisor for a share: charges of a client that holds at most this fraction of the sum are never cut.
pub const SHARE_PARTS: usize = 256;
/// Number of client shares that an IPv6 /48 gets.
pub const GROUP_SHARES: usize = 16;

/// Reasons why a client may not hold more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The sum is used up, and the client holds more than others.
    #[error("the client exceeds its share of the memory for clients")]
    OverShare,
    /// The sum is used up. Other clients hold more and have been cut, or all hold at most their share.
    #[error("the memory for clients is used up")]
    Full,
    /// The charge was cut to make room for other clients, and can no longer grow.
    #[error("the client was cut off to free memory for other clients")]
    Cut,
}

/// A category, by its index in the list passed to [`Accounts::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Category(pub usize);

/// Limit on the amount that all clients together may hold in a category.
#[derive(Debug)]
pub struct Limit {
    common: Arc<CommonPart>,
    total: usize,
    cores: usize,
}

impl Limit {
    /// Creates a limit for one core alone.
    pub fn of_core(total: usize) -> Self {
        Self { common: Arc::default(), total, cores: 1 }
    }

    /// Creates a limit that `cores` cores share: each has its own part and takes what it needs from `common`.
    pub fn of_cores(common: Arc<CommonPart>, total: usize, cores: usize) -> Self {
        Self { common, total, cores }
    }

    fn share_min(&self) -> usize {
        ledger::share_min(self.total, self.cores)
    }
}

/// Counters for a category since startup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of requests for memory that were refused.
    pub refused: u64,
    /// Number of charges that were cut in favour of other clients.
    pub cut: u64,
}

thread_local! {
    /// Ledgers of this thread, by the number of their [`Accounts`]: one, or a few in tests.
    static LEDGERS: RefCell<Vec<(u64, Ledger)>> = const { RefCell::new(Vec::new()) };
}

/// Counter for the numbers of [`Accounts`]; unique numbers prevent a misplaced handle from reaching another
/// thread's ledger.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Runs `act` on a ledger; returns `None` if the ledger is gone. Tasks are woken after the ledger is no
/// longer borrowed, because waking or dropping them may create charges.
fn with<R>(number: u64, act: impl FnOnce(&mut Ledger) -> R) -> Option<R> {
    let answer = LEDGERS.try_with(|ledgers| {
        let mut ledgers = ledgers.borrow_mut();
        let (_, ledger) = ledgers.iter_mut().find(|(of, _)| *of == number)?;
        let answer = act(ledger);
        let woken = (!ledger.woken.is_empty()).then(|| std::mem::take(&mut ledger.woken));
        Some((answer, woken))
    });
    let (answer, woken) = answer.ok().flatten()?;
    woken.into_iter().flatten().for_each(std::task::Waker::wake);
    Some(answer)
}

/// Runs `act` like [`with`], for handles that must not outlive their ledger; panics if it is gone.
fn with_live<R>(number: u64, act: impl FnOnce(&mut Ledger) -> R) -> R {
    let Some(answer) = with(number, act) else {
        panic!("an account was used on another thread than its own, or after its end");
    };
    answer
}

/// Accounts of one loop.
#[derive(Debug)]
pub struct Accounts {
    number: u64,
}

impl Accounts {
    /// Creates accounts without any charges. They belong to this thread.
    pub fn new(limits: Vec<Limit>) -> Self {
        let number = NUMBERS.fetch_add(1, Relaxed);
        LEDGERS.with_borrow_mut(|ledgers| ledgers.push((number, Ledger::new(limits))));
        Self { number }
    }

    /// Returns the handle of a client, which a connection keeps. Allocates if the client is new.
    pub fn client(&self, key: ClientKey) -> Client {
        Client { number: self.number, party: with_live(self.number, |ledger| ledger.enter(key)) }
    }

    /// Charges a client that has no handle yet.
    ///
    /// # Errors
    /// [`Refusal::OverShare`] if the client holds too much; [`Refusal::Full`] if the sum is used up.
    pub fn charge(&self, key: ClientKey, category: Category, amount: usize) -> Result<Charge, Refusal> {
        self.client(key).charge(category, amount)
    }

    /// Returns the client or /48 that keeps the largest amount (accurate to an eighth), and that amount.
    pub fn most(&self, category: Category) -> Option<(ClientKey, usize)> {
        with_live(self.number, |ledger| ledger.most(category))
    }

    /// Returns the amount that all clients hold.
    pub fn used(&self, category: Category) -> usize {
        with_live(self.number, |ledger| ledger.used(category))
    }

    /// Returns the counters since startup.
    pub fn counts(&self, category: Category) -> Counts {
        with_live(self.number, |ledger| ledger.counts(category))
    }

    /// Changes the limit for all clients. No charge is cut until the next request.
    pub fn resize(&self, category: Category, total: usize, cores: usize) {
        with_live(self.number, |ledger| ledger.resize_sum(category, total, cores));
    }

    /// Cuts charges that exceed the current limit, because other cores or categories want their part of the
    /// sum back. A loop with any charges must call this periodically.
    pub fn give_way(&self) {
        with_live(self.number, Ledger::give_way);
    }

    /// Returns whether a category has taken some of the part common to all cores, which other cores may want
    /// back.
    pub fn has_taken(&self) -> bool {
        with_live(self.number, |ledger| ledger.has_taken())
    }

    #[cfg(test)]
    fn assert_invariants(&self) {
        with_live(self.number, |ledger| ledger.assert_invariants());
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        let ledger = LEDGERS.try_with(|ledgers| {
            let mut ledgers = ledgers.borrow_mut();
            let at = ledgers.iter().position(|(of, _)| *of == self.number)?;
            Some(ledgers.swap_remove(at))
        });
        // The ledger is dropped only here, because its wakers may only be dropped once the list is free
        // again.
        drop(ledger);
    }
}

/// Handle on a client. The accounts remember the client while this handle or one of its charges exists.
#[derive(Debug)]
pub struct Client {
    number: u64,
    party: u32,
}

impl Client {
    /// Charges the client with `amount` more.
    ///
    /// # Errors
    /// [`Refusal::OverShare`] if the client holds too much; [`Refusal::Full`] if the sum is used up.
    pub fn charge(&self, category: Category, amount: usize) -> Result<Charge, Refusal> {
        let at = with_live(self.number, |ledger| ledger.charge(self.party, category, amount))?;
        Ok(Charge { number: self.number, at })
    }

    /// Returns the amount that the client keeps: all that it holds, minus the charges that are cut.
    pub fn kept(&self, category: Category) -> usize {
        with_live(self.number, |ledger| ledger.kept(self.party, category))
    }

    /// Returns the client's key.
    pub fn key(&self) -> ClientKey {
        with_live(self.number, |ledger| ledger.key(self.party))
    }
}

impl Clone for Client {
    fn clone(&self) -> Self {
        with_live(self.number, |ledger| ledger.refer(self.party));
        Self { number: self.number, party: self.party }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // If the accounts are gone, there is nothing to release.
        let _ = with(self.number, |ledger| ledger.leave(self.party));
    }
}

/// An amount of one category that a client holds until this value is dropped.
#[derive(Debug)]
pub struct Charge {
    number: u64,
    at: u32,
}

impl Charge {
    /// Changes the amount. A smaller amount is always allowed.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the amount is not allowed; the charge is then unchanged.
    pub fn resize(&mut self, amount: usize) -> Result<(), Refusal> {
        with_live(self.number, |ledger| ledger.resize(self.at, amount))
    }

    /// Returns the charged amount.
    pub fn amount(&self) -> usize {
        with_live(self.number, |ledger| ledger.amount(self.at))
    }

    /// Returns whether the charge was cut, in which case its holder must end.
    pub fn is_cut(&self) -> bool {
        with_live(self.number, |ledger| ledger.is_cut(self.at))
    }

    /// Polls like [`cut`](Self::cut). Only the last task that polled is woken.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        let (poll, _before) = with_live(self.number, |ledger| ledger.poll_cut(self.at, cx));
        poll
    }

    /// Waits until the charge is cut.
    pub async fn cut(&self) {
        poll_fn(|cx| self.poll_cut(cx)).await;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // The returned waker is dropped here, once the ledger is free again.
        let _waker = with(self.number, |ledger| ledger.end(self.at));
    }
}
