//! A miss that the store's file can answer: a helper reads the object, the owner puts it back into memory, and every
//! request that waits for it looks it up again.
//!
//! ```text
//!  owner of the key                    helper
//!  begin: on the file? ─ Extent ─────▶ reads, compares checksums
//!    all who ask wait in the table ◀── Block ─▶ restored in memory ─▶ Start::Again for all
//!                                      damaged, refused, too slow ─▶ fetched from the origin instead
//! ```
//! Bounds: those of the pool of reads; [`LARGE_READS_MAX`] for objects that are longer than its buffers. A read that is
//! refused is counted by the pool, and costs the origin a request, no more.

use engine::{
    io::{Extent, READ_BYTES_MAX, ReadError},
    log,
    store::{
        Hash,
        tier::{FileRecord, image::Image},
    },
};

use crate::{core::with_core, counters::Counter};

/// Large objects that one core reads at once, each by a thread that may wait.
const LARGE_READS_MAX: usize = 4;
/// What a read takes besides the record: a block at each end.
const AROUND_BYTES: usize = 8 << 10;

/// Puts the object of a key back into memory, if it can be read.
pub(crate) async fn restore(hash: Hash, key: &[u8], cold: FileRecord) {
    let Some(payload) = whole(hash, cold).await else { return };
    let Some(image) = Image::parse(&payload) else { return };
    // Its head is in another record where it was revalidated since.
    let head_at = with_core(|core| core.shard.borrow().cold_head(hash));
    let head_payload = match head_at {
        None => Vec::new(),
        Some(at) => match whole(hash, at).await {
            Some(payload) => payload,
            None => return,
        },
    };
    let head = Image::parse(&head_payload);
    with_core(|core| {
        let now_s = core.store_now_s();
        let head = head_at.zip(head.as_ref());
        let restored = core.shard_mut().restore(hash, key, (cold, &image), head, now_s);
        if let Err(refused) = restored {
            core.count(Counter::of_refusal(refused));
        }
    });
}

/// Reads a record of the key's object; `None` if it cannot be had.
async fn whole(hash: Hash, cold: FileRecord) -> Option<Vec<u8>> {
    match read(cold).await {
        Ok(payload) => Some(payload),
        Err(Unread::Damaged) => {
            with_core(|core| {
                // Its segment was used again while it was read: the object is not damaged, it is gone.
                let log = core.file.as_ref().and_then(|file| file.log.get());
                if log.is_some_and(|log| log.segment_of(cold.location).is_some()) {
                    core.shard_mut().damaged(hash, cold.location);
                }
            });
            None
        }
        Err(Unread::Refused) => {
            with_core(|core| core.count(Counter::FileRefused));
            None
        }
    }
}

/// Why nothing was read.
pub(crate) enum Unread {
    /// The bytes are not those that were written, or the disk cannot read them.
    Damaged,
    /// Not now.
    Refused,
}

/// Reads the payload of a record, from memory where that still has it.
pub(crate) async fn read(cold: FileRecord) -> Result<Vec<u8>, Unread> {
    let payload_bytes = cold.payload_bytes as usize;
    let record_bytes = log::record_bytes(payload_bytes);
    enum By {
        Memory(Vec<u8>),
        Helper(engine::io::PendingRead),
        Thread(log::Reader),
    }
    let by = with_core(|core| {
        let Some(file) = &core.file else { return Err(Unread::Refused) };
        if let Some(bytes) = core.shard.borrow().held(cold) {
            return Ok(By::Memory(bytes));
        }
        if record_bytes > READ_BYTES_MAX - AROUND_BYTES {
            if file.large.get() >= LARGE_READS_MAX || file.log.get().is_none() {
                return Err(Unread::Refused);
            }
            file.large.set(file.large.get() + 1);
            return file.log.get().cloned().map(By::Thread).ok_or(Unread::Refused);
        }
        let extent = Extent { source: 0, at: cold.location.offset(), bytes: record_bytes as u32 };
        file.reads.read(extent).map(By::Helper).map_err(|_| Unread::Refused)
    })?;
    match by {
        By::Memory(bytes) => Ok(bytes),
        By::Thread(log) => {
            let read = tokio::task::spawn_blocking(move || log.read(cold.location, payload_bytes)).await;
            with_core(|core| {
                if let Some(file) = &core.file {
                    file.large.set(file.large.get() - 1);
                }
            });
            match read {
                Ok(Ok(record)) => Ok(record.payload().to_vec()),
                Ok(Err(log::ReadError::Gone(_))) | Err(_) => Err(Unread::Refused),
                Ok(Err(_)) => Err(Unread::Damaged),
            }
        }
        By::Helper(pending) => {
            let block = pending.settled().await.map_err(|error| match error {
                ReadError::Damaged { .. } | ReadError::Disk { .. } | ReadError::Short { .. } => {
                    Unread::Damaged
                }
                ReadError::TooSlow(_) => Unread::Refused,
            })?;
            let mut bytes = Vec::new();
            block.span().copy_to(&mut bytes);
            with_core(|core| {
                let file = core.file.as_ref().ok_or(Unread::Refused)?;
                let log = file.log.get().ok_or(Unread::Refused)?;
                let payload = log.payload_of(cold.location, &bytes).map(<[u8]>::len);
                // Another record by now: its segment was used again.
                payload.ok_or(Unread::Refused)
            })
            .map(|len| {
                bytes.drain(..log::format::RECORD_HEADER_BYTES);
                bytes.truncate(len);
                bytes
            })
        }
    }
}
