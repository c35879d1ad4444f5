//! Misses that the store's file can answer: a helper reads the object, the owner restores it to memory, and
//! every request that waits for the object looks it up again.
//!
//! ```text
//!  owner of the key                    helper
//!  begin: in the file? ─ Extent ─────▶ reads, compares checksums
//!    requests wait in the table    ◀── Block ─▶ restored in memory ─▶ FetchOutcome::Again for all
//!                                      damaged, refused, too slow ─▶ fetched from the origin instead
//! ```
//! Bounds: those of the read pool; [`LARGE_READS_MAX`] for objects that are longer than its buffers. The pool
//! counts a refused read; the only cost is a request to the origin.

use engine::{
    io::{Extent, READ_BYTES_MAX, ReadError},
    log,
    store::{
        Hash,
        tier::{FileRecord, image::RecordImage},
    },
};

use crate::{core::with_core, counters::Counter};

/// Maximum number of large objects that one core reads at once, each on a blocking thread.
const LARGE_READS_MAX: usize = 4;
/// Extra bytes that a read needs to align a record to disk blocks: one block at each end.
const AROUND_BYTES: usize = 8 << 10;

/// Restores a key's object to memory, if it can be read.
pub(crate) async fn restore(hash: Hash, key: &[u8], cold: FileRecord) {
    let Some(payload) = whole(hash, cold).await else { return };
    let Some(own) = RecordImage::parse(cold, &payload) else { return };
    // After a revalidation the object's current head is in a separate record.
    let head_at = with_core(|core| core.storage.shard.borrow().cold_head(hash));
    let head_payload = match head_at {
        None => Vec::new(),
        Some(at) => match whole(hash, at).await {
            Some(payload) => payload,
            None => return,
        },
    };
    let head = head_at.and_then(|at| RecordImage::parse(at, &head_payload));
    with_core(|core| {
        let now_s = core.store_now_s();
        let restored = core.shard_mut().restore(hash, key, &own, head.as_ref(), now_s);
        if let Err(refused) = restored {
            core.count(Counter::of_refusal(refused));
        }
    });
}

/// Reads a record of the key's object; `None` if that fails.
async fn whole(hash: Hash, cold: FileRecord) -> Option<Vec<u8>> {
    match read(cold).await {
        Ok(payload) => Some(payload),
        Err(Unread::Damaged) => {
            with_core(|core| {
                // If the segment was reused during the read, the object was evicted and is not damaged.
                let log = core.storage.file.as_ref().and_then(|file| file.log.get());
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

/// Reason for a failed read.
pub(crate) enum Unread {
    /// The bytes differ from those that were written, or the disk cannot read them.
    Damaged,
    /// The read is refused for now.
    Refused,
}

/// Reads the payload of a record; from memory if the record has not been written to the file yet.
pub(crate) async fn read(cold: FileRecord) -> Result<Vec<u8>, Unread> {
    let payload_bytes = cold.payload_bytes as usize;
    let record_bytes = log::record_bytes(payload_bytes);
    enum By {
        Memory(Vec<u8>),
        Helper(engine::io::PendingRead),
        Thread(log::Reader),
    }
    let by = with_core(|core| {
        let Some(file) = &core.storage.file else { return Err(Unread::Refused) };
        if let Some(bytes) = core.storage.shard.borrow().held(cold) {
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
                if let Some(file) = &core.storage.file {
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
                let file = core.storage.file.as_ref().ok_or(Unread::Refused)?;
                let log = file.log.get().ok_or(Unread::Refused)?;
                let payload = log.payload_of(cold.location, &bytes).map(<[u8]>::len);
                // No payload means that the segment was reused and the location now holds another record.
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
