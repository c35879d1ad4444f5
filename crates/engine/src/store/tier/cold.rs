//! Objects that are in the file and possibly not in memory: finding and restoring them.
//!
//! ```text
//! miss in memory ─▶ location from the file's directory ─▶ a helper reads ─▶ restore: in probation, unchanged
//!                                                             └ damaged: dropped from the directory
//! ```

use super::{
    FileRecord, FileRun, PartsList,
    image::{IMAGE_HEADER_BYTES, Image, RecordImage},
};
use crate::{
    log::{Location, format::RECORD_HEADER_BYTES},
    store::{
        filling::{BodyLength, InsertRefusal, NewObject},
        hash::Hash,
        link::FileCopy,
        object::Object,
        shard::Shard,
    },
};

impl Shard {
    /// Returns the location of an object that is not in memory, if it is in the file and has not expired. Its
    /// head may be in another record: see [`Shard::cold_head`].
    pub fn find_on_file(&mut self, hash: Hash, now_s: u32) -> Option<FileRecord> {
        let Self { local, file, .. } = self;
        let file = file.as_mut()?;
        let kept = file.find(hash, now_s)?;
        if file.has_lost_parts(hash.word()) {
            file.end(hash);
            local.store.shards[local.core].tally.file_incomplete.add(1);
            return None;
        }
        let own = FileRecord { location: kept.location, payload_bytes: kept.payload_bytes };
        Some(file.bodies.find(hash.word()).unwrap_or(own))
    }

    /// Returns the expiry of an object in the file, in seconds on the store's clock, if the file has the
    /// object. Unlike [`find_on_file`](Self::find_on_file), changes nothing.
    pub fn on_file_until_s(&self, hash: Hash, now_s: u32) -> Option<u32> {
        let file = self.file.as_ref()?;
        let kept = file.known(hash.word()).filter(|kept| kept.expires_s > now_s)?;
        let is_there =
            file.is_there(hash.word()) && !file.is_outdated(hash.word()) && !file.has_lost_parts(hash.word());
        is_there.then_some(kept.expires_s)
    }

    /// Drops an object whose record in the file cannot be read.
    pub fn damaged(&mut self, hash: Hash, location: Location) {
        let tally = &self.local.store.shards[self.local.core].tally;
        if let Some(file) = &mut self.file
            && let is_body = file.bodies.find(hash.word()).is_some_and(|body| body.location == location)
            && (is_body || file.known(hash.word()).is_some_and(|kept| kept.location == location))
        {
            file.end(hash);
            tally.file_damaged.add(1);
        }
    }

    /// Reads, without waiting, a record that is still in memory because it is not in the file yet.
    pub fn held(&self, cold: FileRecord) -> Option<Vec<u8>> {
        let reader = &self.file.as_ref()?.reader;
        reader.read_held(cold.location, cold.payload_bytes as usize)
    }

    /// Restores an object that was read from the file to memory, with its old sequence number. Returns
    /// `false` if the record is not the requested object (another with the same hash, or replaced since).
    /// `own` was read at [`Shard::find_on_file`], `head` at [`Shard::cold_head`], if that returned a location.
    ///
    /// # Errors
    /// Returns the same errors as [`Shard::insert`].
    pub fn restore(
        &mut self,
        hash: Hash,
        key: &[u8],
        own: &RecordImage<'_>,
        head: Option<&RecordImage<'_>>,
        now_s: u32,
    ) -> Result<bool, InsertRefusal> {
        let Some(file) = &self.file else { return Ok(false) };
        let RecordImage { record: cold, ref image } = *own;
        let known = file.known(hash.word()).map(|kept| kept.location);
        // `top` is the record to which the directory points; `body` tells whether the body's record is the
        // one that the head names.
        let (top, body) = match (head, file.bodies.find(hash.word())) {
            (None, None) => (Some(cold.location), true),
            (Some(head), Some(body)) => {
                let is_its = head.image.header.body_at == Some(cold.location) && head.image.key == key;
                (Some(head.record.location), is_its && body.location == cold.location)
            }
            _ => (None, false),
        };
        if image.key != key || image.header.body_at.is_some() || !body || top.is_none() || top != known {
            return Ok(false);
        }
        if self.index.find(self.shared(), hash).is_some() {
            return Ok(true);
        }
        let header = &image.header;
        if header.in_parts && !self.has_all_parts(hash, image) {
            // The previous process ended before all parts were written.
            if let Some(file) = &mut self.file {
                file.end(hash);
            }
            self.tally().file_incomplete.add(1);
            return Ok(false);
        }
        let youngest = head.map_or(image, |head| &head.image);
        let new = NewObject {
            hash,
            key,
            head: youngest.head,
            extra: youngest.extra,
            meta: youngest.header.meta,
            body: BodyLength::Exact(header.body_bytes),
            expires_s: youngest.header.expires_s,
            now_s,
        };
        // The body may be sent from the file only if the record there has the same layout as a record that
        // this process would write.
        let is_as_in_memory = head.is_none() && image.is_laid_out_as_ours();
        self.insert_as(
            new,
            image.body,
            image.tail,
            Some(FileCopy {
                sequence: header.sequence,
                location: if is_as_in_memory { cold.location.bits() } else { 0 },
                in_parts: header.in_parts,
            }),
        )?;
        let tally = self.tally();
        tally.file_hits.add(1);
        tally.file_hit_bytes.add(u64::from(cold.payload_bytes));
        Ok(true)
    }

    /// Returns whether the parts named by an object's list are the ones known to be in the file.
    fn has_all_parts(&self, hash: Hash, image: &Image<'_>) -> bool {
        let Some(file) = &self.file else { return false };
        let list = PartsList::parse(image.body, hash.word());
        list.zip(file.large.get(&hash.word())).is_some_and(|(list, owned)| {
            list.id() == image.header.sequence && owned.are(&list) && owned.are_there(&file.reader)
        })
    }
}

impl Object<'_> {
    /// Returns the object's location in the file, if it was copied there as one record. Use the log's reader
    /// to check whether it is written ([`Reader::is_on_file`](crate::log::Reader::is_on_file)), and to pin it
    /// there ([`Reader::pin`](crate::log::Reader::pin)).
    pub fn on_file(&self) -> Option<FileRun> {
        let record = self.local.store.record(self.slot.location());
        let is_one_record = !self.slot.is_chained() && !record.is_in_parts();
        let location = Location::from_bits(record.file()).filter(|_| is_one_record)?;
        let before = IMAGE_HEADER_BYTES + self.key().len() + self.head().len() + self.extra().len();
        let body_at = location.offset() + (RECORD_HEADER_BYTES + before) as u64;
        Some(FileRun { location, body_at, body_bytes: self.body_bytes() })
    }
}
