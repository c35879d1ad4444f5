//! Answers that are too large for memory: stored in the file part by part while they are sent to the client.
//!
//! ```text
//!  origin ─▶ window of chunks ─▶ the client that asked                 (other requests are fetched separately meanwhile)
//!               └─ copied ─▶ one part ─ full ─▶ the log's buffers ─▶ helpers
//! ```
//! *Memory:* one part per fetch, on the owner's core. *Bounds:* [`LARGE_FETCHES_MAX`] fetches per core.
//! *Waits:* the fetch waits if the disk falls behind. During the wait nothing more is read from the origin;
//! the client already has the bytes received so far. The fetch waits while the disk makes progress
//! ([`STALL_TIME_MAX`]), and in total no longer than a slow disk needs for the body
//! ([`DISK_BYTES_PER_S_MIN`]). After that the answer is delivered without being stored, which is counted
//! (`store_file_refused`).

use std::time::Duration;

use engine::{
    log::{AppendRefusal, Reader},
    store::{NewObject, tier::LargeObjectWriter},
    sys::span::Span,
};

use tokio::time::{Instant, timeout};

use crate::core::{Core, with_core};

/// Maximum number of simultaneous fetches of large answers on one core; a further answer is passed through
/// without being stored.
const LARGE_FETCHES_MAX: usize = 16;
/// Time after which an answer stops waiting for the disk if no segment (at most 4 MiB) was written
/// completely.
const STALL_TIME_MAX: Duration = Duration::from_secs(2);
/// Disk speed that limits the total wait: an answer waits no longer than a disk of this speed needs to write
/// its body.
const DISK_BYTES_PER_S_MIN: u64 = 8 << 20;

/// An answer that is being written to the file. Dropping it abandons the write.
pub(crate) struct Large {
    filling: Option<LargeObjectWriter>,
    /// Bytes of the next part that have arrived.
    part: Vec<u8>,
    log: Reader,
    patience: Patience,
}

impl Large {
    /// Begins to store an answer; returns `None` if the file does not accept it.
    pub(crate) fn begin(core: &Core, object: &NewObject<'_>) -> Option<Self> {
        let file = core.storage.file.as_ref().filter(|file| file.storing.get() < LARGE_FETCHES_MAX)?;
        let log = file.log.get()?.clone();
        let filling = core.shard_mut().begin_large(object)?;
        file.storing.set(file.storing.get() + 1);
        let patience = Patience::of(filling.body_bytes());
        Some(Self { filling: Some(filling), part: Vec::new(), log, patience })
    }

    /// Adds the next bytes of the body.
    pub(crate) async fn put(&mut self, bytes: Span<'_>) -> Result<(), AppendRefusal> {
        let mut at = 0;
        while at < bytes.len() {
            let part_bytes = self.filling.as_ref().map_or(0, LargeObjectWriter::next_bytes);
            assert!(self.part.len() < part_bytes, "an answer has no more bytes than it says");
            let now = bytes.slice(at..bytes.len().min(at + part_bytes - self.part.len()));
            now.copy_to(&mut self.part);
            at += now.len();
            if self.part.len() == part_bytes {
                self.append().await?;
            }
        }
        Ok(())
    }

    async fn append(&mut self) -> Result<(), AppendRefusal> {
        let Self { filling, part, log, patience } = self;
        in_time(log, patience, || {
            with_core(|core| match filling {
                Some(filling) => core.shard_mut().append_part(filling, part),
                None => Ok(()),
            })
        })
        .await?;
        part.clear();
        Ok(())
    }

    /// Completes the object after the whole body has arrived, unless it was purged meanwhile (`is_wanted`
    /// returns false then).
    pub(crate) async fn finish(mut self, is_wanted: impl Fn(&Core) -> bool) {
        let Self { filling, log, patience, .. } = &mut self;
        // A final refusal by the file has already been counted.
        let _ = in_time(log, patience, || {
            with_core(|core| if is_wanted(core) { core.shard_mut().finish_large(filling) } else { Ok(()) })
        })
        .await;
    }
}

/// Repeats `attempt` whenever there may be room, until it succeeds or `patience` is used up.
async fn in_time(
    log: &Reader,
    patience: &mut Patience,
    mut attempt: impl FnMut() -> Result<(), AppendRefusal>,
) -> Result<(), AppendRefusal> {
    loop {
        // The wake-up is registered before the attempt, so that a buffer that becomes free in between is not missed.
        let room = log.room();
        let Err(refused) = attempt() else { return Ok(()) };
        let since = Instant::now();
        let is_made = match patience.next() {
            Some(time) => timeout(time, room).await.is_ok(),
            None => false,
        };
        patience.waited(since.elapsed());
        if !is_made {
            with_core(|core| core.storage.shard.borrow().refused_large());
            return Err(refused);
        }
    }
}

/// Time that an answer may still wait for the disk.
struct Patience {
    left: Duration,
}

impl Patience {
    fn of(body_bytes: u64) -> Self {
        let of_body = Duration::from_millis(body_bytes.saturating_mul(1000) / DISK_BYTES_PER_S_MIN);
        Self { left: STALL_TIME_MAX + of_body }
    }

    /// Returns the maximum time of the next wait; `None` if the total is used up.
    fn next(&self) -> Option<Duration> {
        (!self.left.is_zero()).then(|| self.left.min(STALL_TIME_MAX))
    }

    /// Deducts the time of a wait.
    fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        with_core(|core| {
            if let Some(file) = &core.storage.file {
                file.storing.set(file.storing.get() - 1);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY_BYTES: u64 = 40 << 20;
    const SEGMENT_BYTES: u64 = 4 << 20;

    /// Returns the number of bytes of a body that a disk of this speed writes before the answer stops waiting
    /// for it, and how long the answer has waited by then. Nothing of the body is written at the start.
    fn stored(disk_bytes_per_s: u64) -> (u64, Duration) {
        let mut patience = Patience::of(BODY_BYTES);
        let segment_time = Duration::from_secs_f64(SEGMENT_BYTES as f64 / disk_bytes_per_s as f64);
        let (mut bytes, mut waited) = (0, Duration::ZERO);
        while bytes < BODY_BYTES
            && let Some(time) = patience.next()
        {
            patience.waited(segment_time.min(time));
            waited += segment_time.min(time);
            if segment_time > time {
                break;
            }
            bytes += SEGMENT_BYTES;
        }
        (bytes, waited)
    }

    #[test]
    fn a_slow_disk_is_waited_for_within_bounds() {
        let of_body = Duration::from_secs(BODY_BYTES / DISK_BYTES_PER_S_MIN);
        // A memory card, and the slowest disk that suffices.
        assert_eq!(stored(20_000_000).0, BODY_BYTES);
        assert_eq!(stored(DISK_BYTES_PER_S_MIN), (BODY_BYTES, of_body));
        // A disk that is too slow: some of the body is written, and the total wait is used up.
        let (bytes, waited) = stored(DISK_BYTES_PER_S_MIN / 3);
        assert!(bytes < BODY_BYTES);
        assert_eq!(waited, STALL_TIME_MAX + of_body);
        // A disk that hangs.
        assert_eq!(stored(1), (0, STALL_TIME_MAX));
    }
}
