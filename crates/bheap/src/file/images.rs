//! Double storage of blocks, so that the last safe point is never overwritten.
//!
//! ```text
//!   header 0 │ header 1 │ table 0 │ table 1 │ image 0: block 0, 1, 2 … │ image 1: block 0, 1, 2 … │
//! ```
//!
//! A block is stored in image 0 or in image 1. Its first change after a checkpoint copies it into the other
//! image; later changes are made there. Between checkpoints every byte that the last checkpoint needs is
//! therefore unchanged, and the kernel may write pages out in any order.
//!
//! A checkpoint, numbered `k`:
//! 1. enters into table `k mod 2`, for each block, its image and its checksum; then **sync**;
//! 2. writes header `k` (length, checksum of the table) into slot 0; then **sync**;
//! 3. writes the same header into slot 1; then **sync**; only now is it acknowledged.
//!
//! *Proof.* Let `k − 1` be the last acknowledged checkpoint: both slots say `k − 1`. Its state consists of
//! table `(k − 1) mod 2`, which step 1 does not touch, and of the blocks in the images that it names, which
//! no change touches. A crash before step 2 leaves both slots at `k − 1`. During step 2, slot 0 is old, new
//! or torn: if torn, its checksum is wrong and slot 1 says `k − 1`; if new, the whole state `k` was synced in
//! step 1. During step 3, slot 0 says `k` and is synced. After it nothing refers to `k − 1`, and only then
//! may its blocks be written. There is therefore always a slot that says `k − 1` or `k`, and the state that
//! it names is complete.
//!
//! After an acknowledged checkpoint no slot holds an older one: if one slot is damaged, the other says the
//! same, and if both are, there is an error, never an old state passed off as the last. If the slots differ
//! when the file is opened (a crash, or damage), steps 2 and 3 are repeated with the newer header before any
//! change is allowed.
//!
//! Every store goes to room that was reserved on the disk, so that a full disk is an error of
//! [`Images::reserve`] and not a signal on a store.

use super::disk::Disk;
use super::error::{Fault, FileError};
use super::header::{BLOCK_BYTES, HEADER_BYTES, Header, Plan, SLOTS, Shape, Slot};
use std::vec::Vec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bit that selects the block's image.
const IMAGE: u8 = 1;
/// Bit that is set for a block changed since the last checkpoint: no checkpoint needs its present copy.
const CHANGED: u8 = 2;

/// Minimum and maximum number of blocks that are reserved at a time; between them, a quarter of the blocks
/// reserved so far.
const RESERVE_BLOCKS_MIN: usize = 64;
const RESERVE_BLOCKS_MAX: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Images<D> {
    disk: D,
    plan: Plan,
    /// Header of the last checkpoint.
    header: Header,
    /// The bits [`IMAGE`] and [`CHANGED`] of each reserved block.
    places: Vec<u8>,
    /// Entry of each reserved block in the table of the last checkpoint; meaningless from `kept` on. (A block
    /// is written as soon as it comes into use, because its first cell after the unused ones belongs to an
    /// item.)
    entries: Vec<u64>,
    /// Numbers of the blocks with [`CHANGED`], each once. Invariant: this vector has the same capacity as
    /// `places`.
    changed: Vec<usize>,
    /// Number of blocks that the last checkpoint needs.
    kept: usize,
    failed: bool,
}

/// Returns a block's table entry: its checksum, with the lowest bit replaced by the image.
fn entry(block: usize, bytes: &[u8], image: u8) -> u64 {
    // The block's number is the seed, so that a block written at another's position has a wrong checksum.
    xxh3_64_with_seed(bytes, block as u64) & !1 | u64::from(image)
}

impl<D: Disk> Images<D> {
    /// Creates an empty queue on a disk of zeros, as checkpoint 0.
    pub(super) fn create(disk: D, shape: Shape) -> Result<Self, FileError> {
        let plan = match shape.plan() {
            Ok(plan) if plan.file_bytes == disk.bytes().len() => plan,
            Ok(_) => return Err(Fault::Impossible { what: "the file has another length" }.at(disk.path())),
            Err(fault) => return Err(fault.at(disk.path())),
        };
        let header = Header { shape, sequence: 0, len: 0, table_sum: xxh3_64_with_seed(&[], 0) };
        let mut images = Self::empty(disk, plan, header);
        let room = images.disk.reserve(0, plan.images[0]).map_err(Fault::io("reserve room for the tables"));
        let made = room.and_then(|()| images.write_headers()).and_then(|()| images.expect_random());
        made.map_err(|fault| images.fault(fault))?;
        Ok(images)
    }

    /// Opens the last complete checkpoint, after checking each of its bytes.
    pub(super) fn open(disk: D, wanted: &Shape) -> Result<Self, FileError> {
        let (header, alike) = match newest(disk.bytes(), wanted) {
            Ok(found) => found,
            Err(fault) => return Err(fault.at(disk.path())),
        };
        let plan = match header.shape.plan() {
            Ok(plan) => plan,
            Err(fault) => return Err(fault.at(disk.path())),
        };
        let mut images = Self::empty(disk, plan, header);
        images.check().map_err(|fault| images.fault(fault))?;
        // Even equal headers may not be durable yet: the process that wrote them may have died before its
        // last sync.
        let lasting = if alike { images.sync() } else { images.write_headers() };
        // The check read the blocks in sequence, so random access is announced only now.
        lasting.and_then(|()| images.expect_random()).map_err(|fault| images.fault(fault))?;
        Ok(images)
    }

    fn empty(disk: D, plan: Plan, header: Header) -> Self {
        Self {
            disk,
            plan,
            header,
            places: Vec::new(),
            entries: Vec::new(),
            changed: Vec::new(),
            kept: 0,
            failed: false,
        }
    }

    fn fault(&self, fault: Fault) -> FileError {
        fault.at(self.disk.path())
    }

    /// Reads the table and verifies every block against it.
    fn check(&mut self) -> Result<(), Fault> {
        let Header { shape, sequence, len, table_sum } = self.header;
        let damaged = |at: usize, what| Fault::Damaged { at: at as u64, what };
        let found = self.disk.bytes().len();
        if found != self.plan.file_bytes {
            return Err(Fault::Length { found: found as u64, wanted: self.plan.file_bytes as u64 });
        }
        if len > shape.capacity {
            return Err(damaged(64, "the header counts more items than fit"));
        }
        // The room is already allocated, unless the file was copied as a sparse file.
        self.disk.reserve(0, self.plan.images[0]).map_err(Fault::io("reserve room for the tables"))?;
        let blocks = shape.blocks(len);
        self.make_room(blocks)?;
        let table = self.plan.tables[sequence as usize & 1];
        let entries = &self.disk.bytes()[table..table + blocks * 8];
        if xxh3_64_with_seed(entries, sequence) != table_sum {
            return Err(damaged(table, "the table of blocks does not match its checksum"));
        }
        for (block, bytes) in entries.chunks_exact(8).enumerate() {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            let entered = u64::from_le_bytes(number);
            let image = (entered & 1) as u8;
            let at = self.plan.images[usize::from(image)] + block * BLOCK_BYTES;
            if entry(block, &self.disk.bytes()[at..at + BLOCK_BYTES], image) != entered {
                return Err(damaged(at, "a block of items does not match its checksum"));
            }
            self.places[block] = image;
            self.entries[block] = entered;
        }
        self.kept = blocks;
        Ok(())
    }

    pub(super) const fn header(&self) -> &Header {
        &self.header
    }

    pub(super) const fn failed(&self) -> bool {
        self.failed
    }

    /// Returns an error if a checkpoint has failed.
    pub(super) fn alive(&self) -> Result<(), FileError> {
        if self.failed { Err(self.fault(Fault::Failed)) } else { Ok(()) }
    }

    /// Returns the offset of the items.
    pub(super) const fn begins(&self) -> u64 {
        self.plan.images[0] as u64
    }

    pub(super) const fn disk(&self) -> &D {
        &self.disk
    }

    pub(super) fn into_disk(self) -> D {
        self.disk
    }

    #[cfg(test)]
    pub(super) const fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Returns the present offset on the disk of byte `at` of the items. Panics if its block was never
    /// reserved.
    #[inline]
    fn place(&self, at: usize) -> usize {
        self.plan.images[usize::from(self.places[at / BLOCK_BYTES] & IMAGE)] + at
    }

    /// Returns `count` bytes of the items from `at`, which must be within one reserved block.
    #[inline]
    pub(super) fn read(&self, at: usize, count: usize) -> &[u8] {
        let place = self.place(at);
        &self.disk.bytes()[place..place + count]
    }

    /// Stores `bytes` at `at`, within one reserved block.
    #[inline]
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let block = at / BLOCK_BYTES;
        if self.places[block] & CHANGED == 0 {
            self.leave_checkpoint(block);
        }
        let place = self.place(at);
        self.disk.bytes_mut()[place..place + bytes.len()].copy_from_slice(bytes);
    }

    /// Starts to reuse block `block`, which must be reserved; its old content is dropped.
    pub(super) fn begin(&mut self, block: usize) {
        if self.places[block] & CHANGED == 0 {
            if block < self.kept {
                self.places[block] ^= IMAGE;
            }
            self.places[block] |= CHANGED;
            self.changed.push(block);
        }
    }

    /// Moves a block to the image that no checkpoint needs.
    #[cold]
    fn leave_checkpoint(&mut self, block: usize) {
        if block < self.kept {
            let from = self.place(block * BLOCK_BYTES);
            self.places[block] ^= IMAGE;
            let to = self.place(block * BLOCK_BYTES);
            self.disk.bytes_mut().copy_within(from..from + BLOCK_BYTES, to);
        }
        self.places[block] |= CHANGED;
        self.changed.push(block);
    }

    /// Makes sure that `block` can be written.
    #[inline]
    pub(super) fn reserve(&mut self, block: usize) -> Result<(), FileError> {
        if block < self.places.len() { Ok(()) } else { self.reserve_more(block) }
    }

    #[cold]
    fn reserve_more(&mut self, block: usize) -> Result<(), FileError> {
        let more = (self.places.len() / 4).clamp(RESERVE_BLOCKS_MIN, RESERVE_BLOCKS_MAX);
        let blocks = (block + 1).max(self.places.len() + more).min(self.plan.blocks_max).max(block + 1);
        // A nearly full disk may still have room for the one block that is needed.
        self.make_room(blocks).or_else(|_| self.make_room(block + 1)).map_err(|fault| self.fault(fault))
    }

    /// Reserves room for the first `blocks` blocks, in both images and in memory.
    fn make_room(&mut self, blocks: usize) -> Result<(), Fault> {
        let more = blocks - self.places.len();
        for image in self.plan.images {
            let from = image + self.places.len() * BLOCK_BYTES;
            self.disk.reserve(from, more * BLOCK_BYTES).map_err(Fault::io("reserve room for items"))?;
        }
        let memory = |_| Fault::io("reserve memory")(std::io::ErrorKind::OutOfMemory.into());
        self.places.try_reserve(more).map_err(memory)?;
        self.entries.try_reserve(more).map_err(memory)?;
        self.changed.try_reserve(blocks - self.changed.len()).map_err(memory)?;
        self.places.resize(blocks, 0);
        self.entries.resize(blocks, 0);
        Ok(())
    }

    /// Makes the present state, of `len` items, durable. Returns the checkpoint's number.
    pub(super) fn checkpoint(&mut self, len: u64) -> Result<u64, FileError> {
        if self.failed {
            return Err(self.fault(Fault::Failed));
        }
        // The flag stays set on failure: after a failed sync it is unknown which pages reached the disk, and
        // a retry would not reveal it (the kernel may have marked them clean).
        self.failed = true;
        self.write_checkpoint(len).map_err(|fault| self.fault(fault))?;
        self.failed = false;
        Ok(self.header.sequence)
    }

    fn write_checkpoint(&mut self, len: u64) -> Result<(), Fault> {
        let uncounted = Fault::Damaged { at: 56, what: "the checkpoint counter has reached its maximum" };
        let sequence = self.header.sequence.checked_add(1).ok_or(uncounted)?;
        let kept = self.header.shape.blocks(len);
        for &block in &self.changed {
            self.places[block] &= !CHANGED;
            if block < kept {
                let place = self.place(block * BLOCK_BYTES);
                let bytes = &self.disk.bytes()[place..place + BLOCK_BYTES];
                self.entries[block] = entry(block, bytes, self.places[block] & IMAGE);
            }
        }
        self.changed.clear();
        let table = self.plan.tables[sequence as usize & 1];
        let entries = &mut self.disk.bytes_mut()[table..table + kept * 8];
        for (bytes, entry) in entries.chunks_exact_mut(8).zip(&self.entries) {
            bytes.copy_from_slice(&entry.to_le_bytes());
        }
        let table_sum = xxh3_64_with_seed(entries, sequence);
        self.sync()?;
        self.header = Header { sequence, len, table_sum, ..self.header };
        self.write_headers()?;
        self.kept = kept;
        Ok(())
    }

    /// Performs steps 2 and 3 of a checkpoint: writes one header slot, then the other.
    fn write_headers(&mut self) -> Result<(), Fault> {
        let header = self.header.encode();
        for slot in SLOTS {
            self.disk.bytes_mut()[slot..slot + HEADER_BYTES].copy_from_slice(&header);
            self.sync()?;
        }
        Ok(())
    }

    fn expect_random(&self) -> Result<(), Fault> {
        self.disk.expect_random().map_err(Fault::io("advise the kernel"))
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.disk.sync().map_err(Fault::io("write the queue to the disk"))
    }
}

/// Returns the newer of the two headers, and whether both are equal.
fn newest(bytes: &[u8], wanted: &Shape) -> Result<(Header, bool), Fault> {
    let slots = SLOTS.map(|at| bytes.get(at..)?.first_chunk::<HEADER_BYTES>().map(Slot::read));
    let [Some(first), Some(second)] = slots else {
        let wanted = (SLOTS.len() * BLOCK_BYTES) as u64;
        return Err(Fault::Length { found: bytes.len() as u64, wanted });
    };
    let header = match (&first, &second) {
        (Slot::Whole(a), Slot::Whole(b)) => {
            if a.shape != b.shape {
                return Err(Fault::Damaged { at: SLOTS[1] as u64, what: "two headers of different queues" });
            }
            let newer = if a.sequence >= b.sequence { *a } else { *b };
            newer.shape.matches(wanted)?;
            return Ok((newer, a == b));
        }
        (Slot::Whole(one), _) | (_, Slot::Whole(one)) => *one,
        (Slot::OtherVersion(found), _) | (_, Slot::OtherVersion(found)) => {
            return Err(Fault::Version { found: *found, known: super::header::VERSION });
        }
        (Slot::Damaged, _) | (_, Slot::Damaged) => {
            return Err(Fault::Damaged { at: 0, what: "neither header matches its checksum" });
        }
        (Slot::Empty, Slot::Empty) => return Err(Fault::Unfinished),
        _ => return Err(Fault::Foreign { found: bytes[..8].into() }),
    };
    header.shape.matches(wanted)?;
    Ok((header, false))
}
