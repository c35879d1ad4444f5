//! The mutex of code that is off the hot path.
//!
//! `clippy.toml` bans `std::sync::Mutex`, because a loop that waits for a lock serves no connection meanwhile.
//! Code off the hot path may lock, and uses [`ColdMutex`]: start, reload, purge, statistics, threads beside the
//! loops, requests of peers, and the miss path of the cache.

#![expect(clippy::disallowed_types, reason = "the one mutex for code off the hot path")]

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex for code off the hot path: no visitor's cache hit, no message between clients of the feed and no
/// receiving of a mail locks one. A mutex that a loop locks is held for a few lookups at most.
///
/// Poisoning is ignored: a panic ends the program, so only a test sees a value whose holder panicked.
#[derive(Debug, Default)]
pub struct ColdMutex<T>(Mutex<T>);

impl<T> ColdMutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks the mutex; blocks while another thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex without blocking; `None` if it is held.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_panicking_holder_locks_nobody_out() {
        let mutex = ColdMutex::new(1);
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                *mutex.lock() = 2;
                let _guard = mutex.lock();
                panic!("while the mutex is held");
            });
            assert!(holder.join().is_err());
        });
        assert!(mutex.0.is_poisoned(), "the panic came while the mutex was held");
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(mutex.try_lock().as_deref(), Some(&2));
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn a_held_mutex_is_not_locked_again() {
        let mutex = ColdMutex::new(());
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }
}
