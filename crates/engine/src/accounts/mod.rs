//! One account a client of what it makes a core hold: bytes or pieces, by category.
//!
//! A sum that all clients share is one attacker's if nothing else bounds it; a bound for each connection is nothing
//! when one client opens a thousand. Here each category has a sum, and within it clients give way to each other:
//!
//! ```text
//!   0 ─────────────────────────────── 15/16 ─────── 31/32 ─────── 1    of a category's sum
//!   │ whoever asks gets it             │ less than     │ no more than │
//!   │                                  │ who has most  │ a share      │
//! ```
//! *A share binds only under want.* Alone, a client has all but a sixteenth ([`RESERVE_PARTS`]). Others who ask get what
//! they ask for from that sixteenth, at once, and charges of the client that keeps most are cut until it is free again:
//! down to the amount of the one that asks, and to a client's share at the least. That is a 256th of the sum
//! ([`SHARE_PARTS`]); it is small because it is promised to everybody at once: an attacker needs 256 networks to fill a
//! sum with shares. Whoever keeps most and asks for more is refused, unless one of its own charges is twice as large as
//! the one that asks: then that is cut, so that an attacker behind a NAT does not silence those behind the same NAT.
//!
//! An IPv6 /64 is a client. Its /48 is compared by a sixteenth of what it holds ([`GROUP_SHARES`]): whoever has a /48
//! has as much as sixteen addresses, not as 65,536.
//!
//! **Use.** A loop has one [`Accounts`]. A connection has its [`Client`] made from its [`ClientKey`] once. What it holds
//! is a [`Charge`], which gives back when it is dropped and is [resized](Charge::resize) as it grows. A charge can be
//! cut at any time by somebody else's request: its holder awaits [`Charge::cut`], or asks [`Charge::is_cut`] once a
//! turn, and ends. Until it is dropped its amount still counts.
//! - [`Refusal::OverShare`]: answer with the limit's word; the client itself holds too much.
//! - [`Refusal::Full`]: room is being made, or all are at their share: ask again in the next turn, until a deadline.
//!
//! All of this belongs to the thread that made the [`Accounts`]: no lock, no atomic but the [common
//! half](crate::share) of sums that several cores share. The handles may be held by tasks of any kind, as long as they
//! run on that thread. A charge of a known client allocates nothing and takes constant time.

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

/// The part of a sum that a client alone does not get: it is there for the first who come beside it.
pub const RESERVE_PARTS: usize = 16;
/// The part of a sum below which a client is never cut.
pub const SHARE_PARTS: usize = 256;
/// Shares of an IPv6 /48.
pub const GROUP_SHARES: usize = 16;

/// Why a client may not hold more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The sum is used up, and the client holds more than others.
    #[error("the client holds more than its share of what all clients may hold")]
    OverShare,
    /// The sum is used up. Others hold more and have been cut, or all hold no more than their share.
    #[error("all clients together hold what they may")]
    Full,
    /// The charge was cut and may only end.
    #[error("the client has given way to others")]
    Cut,
}

/// A category, by its number in the list that [`Accounts::new`] was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Category(pub usize);

/// What all clients may hold in a category.
#[derive(Debug)]
pub struct Limit {
    common: Arc<CommonPart>,
    total: usize,
    cores: usize,
}

impl Limit {
    /// Of one core alone.
    pub fn of_core(total: usize) -> Self {
        Self { common: Arc::default(), total, cores: 1 }
    }

    /// Of so many cores, of which each has its part and takes from `common` what it needs.
    pub fn of_cores(common: Arc<CommonPart>, total: usize, cores: usize) -> Self {
        Self { common, total, cores }
    }

    fn share_min(&self) -> usize {
        ledger::share_min(self.total, self.cores)
    }
}

/// What happened in a category since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests for more that were refused.
    pub refused: u64,
    /// Charges that were cut for others.
    pub cut: u64,
}

thread_local! {
    /// The ledgers of this thread, by the number of their [`Accounts`]: one, or a few in tests.
    static LEDGERS: RefCell<Vec<(u64, Ledger)>> = const { RefCell::new(Vec::new()) };
}

/// Numbers of [`Accounts`], so that a handle that went astray meets no other thread's ledger.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Asks or changes a ledger; `None` if it is gone. Wakers are woken after the ledger is free again: what they wake, or
/// drop, may charge.
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

/// As [`with`], for handles that are used only where their ledger is.
fn with_live<R>(number: u64, act: impl FnOnce(&mut Ledger) -> R) -> R {
    let Some(answer) = with(number, act) else {
        panic!("an account is used on another thread than its own, or after its end");
    };
    answer
}

/// The accounts of one loop.
#[derive(Debug)]
pub struct Accounts {
    number: u64,
}

impl Accounts {
    /// Nobody holds anything. The accounts belong to this thread.
    pub fn new(limits: Vec<Limit>) -> Self {
        let number = NUMBERS.fetch_add(1, Relaxed);
        LEDGERS.with_borrow_mut(|ledgers| ledgers.push((number, Ledger::new(limits))));
        Self { number }
    }

    /// A client, whose handle a connection keeps. The first one of a client allocates.
    pub fn client(&self, key: ClientKey) -> Client {
        Client { number: self.number, party: with_live(self.number, |ledger| ledger.enter(key)) }
    }

    /// Charges a client that has no handle yet.
    ///
    /// # Errors
    /// [`Refusal::OverShare`], [`Refusal::Full`].
    pub fn charge(&self, key: ClientKey, category: Category, amount: usize) -> Result<Charge, Refusal> {
        self.client(key).charge(category, amount)
    }

    /// The client, or the /48, that keeps most, to an eighth, and how much.
    pub fn most(&self, category: Category) -> Option<(ClientKey, usize)> {
        with_live(self.number, |ledger| ledger.most(category))
    }

    /// What all clients hold.
    pub fn used(&self, category: Category) -> usize {
        with_live(self.number, |ledger| ledger.used(category))
    }

    /// What happened since the start.
    pub fn counts(&self, category: Category) -> Counts {
        with_live(self.number, |ledger| ledger.counts(category))
    }

    /// All clients may hold another amount from now on. Nobody is cut until somebody asks.
    pub fn resize(&self, category: Category, total: usize, cores: usize) {
        with_live(self.number, |ledger| ledger.resize_sum(category, total, cores));
    }

    /// Cuts what is more than there may be now, because other cores or kinds have come to want their parts of it. To be
    /// called now and then by a loop that has anything charged.
    pub fn give_way(&self) {
        with_live(self.number, Ledger::give_way);
    }

    /// Returns whether a category has taken some of its common part, which others may come to want.
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
        // Its wakers go when the list is free again.
        drop(ledger);
    }
}

/// A client, known to the account while this, or a charge of it, is held.
#[derive(Debug)]
pub struct Client {
    number: u64,
    party: u32,
}

impl Client {
    /// Lets the client hold so much more.
    ///
    /// # Errors
    /// [`Refusal::OverShare`], [`Refusal::Full`].
    pub fn charge(&self, category: Category, amount: usize) -> Result<Charge, Refusal> {
        let at = with_live(self.number, |ledger| ledger.charge(self.party, category, amount))?;
        Ok(Charge { number: self.number, at })
    }

    /// What the client keeps: what it holds, less what is cut.
    pub fn kept(&self, category: Category) -> usize {
        with_live(self.number, |ledger| ledger.kept(self.party, category))
    }

    /// Who it is.
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
        // An account that is gone needs no word.
        let _ = with(self.number, |ledger| ledger.leave(self.party));
    }
}

/// What a client holds of a category, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    number: u64,
    at: u32,
}

impl Charge {
    /// Holds another amount. Less is always allowed.
    ///
    /// # Errors
    /// Any [`Refusal`]; the charge is then as it was.
    pub fn resize(&mut self, amount: usize) -> Result<(), Refusal> {
        with_live(self.number, |ledger| ledger.resize(self.at, amount))
    }

    /// How much it holds.
    pub fn amount(&self) -> usize {
        with_live(self.number, |ledger| ledger.amount(self.at))
    }

    /// Whether it gave way to others: its holder ends.
    pub fn is_cut(&self) -> bool {
        with_live(self.number, |ledger| ledger.is_cut(self.at))
    }

    /// As [`cut`](Self::cut), for who polls. The last one who polled is woken.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        let (poll, _before) = with_live(self.number, |ledger| ledger.poll_cut(self.at, cx));
        poll
    }

    /// Waits until it must give way to others.
    pub async fn cut(&self) {
        poll_fn(|cx| self.poll_cut(cx)).await;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // What is returned is dropped here, when the ledger is free again.
        let _waker = with(self.number, |ledger| ledger.end(self.at));
    }
}
