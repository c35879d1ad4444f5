//! An answer that is larger than memory takes, stored on the file part by part while it passes.
//!
//! ```text
//!  origin ─▶ window of chunks ─▶ the client that asked                          (others ask for themselves meanwhile)
//!               └─ copied ─▶ one part ─ full ─▶ the log's buffers ─▶ helpers
//! ```
//! *Which memory:* one part for each such fetch, on the owner's core. *Bounds:* [`LARGE_FETCHES_MAX`] fetches a core. *Who waits:*
//! the client, for a disk that is behind, [`DISK_WAITS_MAX`] times [`DISK_WAIT`] in all; after that the answer goes on without
//! being stored, which is counted (`store_file_refused`).

use std::time::Duration;

use engine::{
    log::Refused,
    store::{NewObject, tier::LargeFilling},
    sys::span::Span,
};

use crate::core::{Core, with_core};

/// Such fetches on one core; what comes beyond is passed through without being stored.
const LARGE_FETCHES_MAX: usize = 16;
/// How long one wait for the disk takes.
const DISK_WAIT: Duration = Duration::from_millis(2);
/// Waits for the disk that one answer is delayed by at most: a second.
const DISK_WAITS_MAX: usize = 500;

/// An answer on its way to the file. Dropped, it is given up.
pub(crate) struct Large {
    filling: Option<LargeFilling>,
    /// What has come of the next part.
    part: Vec<u8>,
    waits_left: usize,
}

impl Large {
    /// Begins to store an answer; `None` if the file does not take it.
    pub(crate) fn begin(core: &Core, object: &NewObject<'_>) -> Option<Self> {
        let file = core.file.as_ref().filter(|file| file.storing.get() < LARGE_FETCHES_MAX)?;
        let filling = core.shard.borrow_mut().begin_large(object)?;
        file.storing.set(file.storing.get() + 1);
        Some(Self { filling: Some(filling), part: Vec::new(), waits_left: DISK_WAITS_MAX })
    }

    /// Takes the bytes that come next.
    pub(crate) async fn put(&mut self, bytes: Span<'_>) -> Result<(), Refused> {
        let mut at = 0;
        while at < bytes.len() {
            let part_bytes = self.filling.as_ref().map_or(0, LargeFilling::next_bytes);
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

    async fn append(&mut self) -> Result<(), Refused> {
        loop {
            let appended = with_core(|core| match &mut self.filling {
                Some(filling) => core.shard.borrow_mut().append_part(filling, &self.part),
                None => Ok(()),
            });
            match appended {
                Ok(()) => break,
                Err(refused) => self.wait(refused).await?,
            }
        }
        self.part.clear();
        Ok(())
    }

    /// All has come: the object is stored, unless it is not wanted any more (`is_wanted`).
    pub(crate) async fn finish(mut self, is_wanted: impl Fn(&Core) -> bool) {
        loop {
            let finished = with_core(|core| {
                if is_wanted(core) { core.shard.borrow_mut().finish_large(&mut self.filling) } else { Ok(()) }
            });
            let Err(refused) = finished else { return };
            if self.wait(refused).await.is_err() {
                return;
            }
        }
    }

    async fn wait(&mut self, refused: Refused) -> Result<(), Refused> {
        if self.waits_left == 0 {
            with_core(|core| core.shard.borrow().refused_large());
            return Err(refused);
        }
        self.waits_left -= 1;
        tokio::time::sleep(DISK_WAIT).await;
        Ok(())
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        with_core(|core| {
            if let Some(file) = &core.file {
                file.storing.set(file.storing.get() - 1);
            }
        });
    }
}
