//! A queue file that was changed, and perhaps given valid checksums or cut short: it is refused, or it is a
//! queue. One of the two headers is enough.
//!
//! The input is a kind (modulo three: which queue; bit 5: cut short, bit 6: checksums stay as they were, bit
//! 7: the second header is left alone) and a list of strokes: a position in a page in use, and the bytes
//! written there. Without strokes the file is whole.

use super::cut::Cut;
use super::memory_disk::Memory;
use bheap::file::{BLOCK_BYTES, FileHeap, FileQueue, FileRows, FileTimers, HEADER_BYTES};
use bheap::file::{FileLayout, StoredItem};
use bheap::layout::PageLayout;
use bheap::{Heap, Rows};
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const ITEMS: usize = 4_000;

/// One file of each kind: a heap, a page queue, a queue with handles.
fn samples() -> &'static [Vec<u8>; 3] {
    static SAMPLES: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 30;
        let layout = layout();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("heap");
        let mut heap = FileHeap::<u64, _>::create(&path, layout, ITEMS).expect("a heap");
        (0..1_500).for_each(|n| heap.push(key(n)).expect("room"));
        heap.checkpoint().expect("a checkpoint");
        let disk = Memory(vec![0; FileQueue::<u64, Memory>::disk_bytes(ITEMS).expect("a size")]);
        let mut queue = FileQueue::<u64, _>::create_on(disk, ITEMS).expect("a queue");
        (0..3_500).for_each(|n| queue.push(key(n)).expect("room"));
        (0..300).for_each(|_| assert!(queue.pop().is_some()));
        queue.checkpoint().expect("a checkpoint");
        let disk = Memory(vec![0; FileTimers::<u64, Memory>::disk_bytes(ITEMS).expect("a size")]);
        let mut timers = FileTimers::<u64, _>::create_on(disk, ITEMS).expect("timers");
        let handles: Vec<_> = (0..3_500).map(|n| timers.insert(key(n)).expect("room")).collect();
        handles.iter().step_by(7).for_each(|handle| timers.remove(*handle).expect("it is there"));
        timers.checkpoint().expect("a checkpoint");
        let heap = std::fs::read(&path).expect("the heap's file");
        [heap, queue.into_disk().0, timers.into_disk().0]
    })
}

fn layout() -> PageLayout {
    PageLayout::for_page_bytes::<u64>(4096).expect("512 items fill a page")
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Offsets of the table and the blocks: `docs/formats/queue.md`.
struct Plan {
    table: usize,
    images: [usize; 2],
    blocks: usize,
}

impl Plan {
    fn of(file: &[u8]) -> Self {
        let item_bytes = usize::from(file[24]) | usize::from(file[25]) << 8;
        let blocks_of = |items: u64| ((number(file, 40) + items) as usize * item_bytes).div_ceil(BLOCK_BYTES);
        let blocks = blocks_of(number(file, 48));
        let table_bytes = (8 * blocks).next_multiple_of(BLOCK_BYTES);
        let image = 2 * BLOCK_BYTES + 2 * table_bytes;
        Self {
            table: 2 * BLOCK_BYTES + (number(file, 56) % 2) as usize * table_bytes,
            images: [image, image + blocks * BLOCK_BYTES],
            blocks: blocks_of(number(file, 64)),
        }
    }

    fn at(&self, file: &[u8], block: usize) -> usize {
        self.images[(number(file, self.table + 8 * block) & 1) as usize] + block * BLOCK_BYTES
    }
}

/// Makes all checksums valid.
fn seal(file: &mut [u8], plan: &Plan) {
    for block in 0..plan.blocks {
        let at = plan.at(file, block);
        let sum = xxh3_64_with_seed(&file[at..at + BLOCK_BYTES], block as u64);
        let entry = sum & !1 | number(file, plan.table + 8 * block) & 1;
        file[plan.table + 8 * block..][..8].copy_from_slice(&entry.to_le_bytes());
    }
    let table_sum = xxh3_64_with_seed(&file[plan.table..plan.table + 8 * plan.blocks], number(file, 56));
    for slot in [0, BLOCK_BYTES] {
        let header = &mut file[slot..slot + HEADER_BYTES];
        header[72..80].copy_from_slice(&table_sum.to_le_bytes());
        let sum = xxh3_64_with_seed(&header[..120], 0);
        header[120..].copy_from_slice(&sum.to_le_bytes());
    }
}

pub(crate) fn check(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let kind = cut.u8();
    let mut strokes: Vec<(u8, u16, [u8; 2])> = Vec::new();
    while cut.bool() {
        strokes.push((cut.u8(), cut.u16(), cut.array()));
    }
    let [header_at, header_byte, is_header] = cut.array();
    let mut file = samples()[usize::from(kind % 3)].clone();
    let plan = Plan::of(&file);
    let (is_cut, is_sealed, is_first_alone) = (kind & 32 != 0, kind & 64 == 0, kind & 128 != 0);
    let has_a_header = is_header % 4 != 0 || (is_first_alone && !is_sealed);
    let is_whole = strokes.is_empty() && has_a_header && !is_cut;
    for (page, at, bytes) in strokes {
        // The state begins in page 0, so half of the strokes go there.
        let page = if page < 128 { 0 } else { usize::from(page) % plan.blocks };
        let at = plan.at(&file, page) + usize::from(at) % (BLOCK_BYTES - 1);
        file[at..at + 2].copy_from_slice(&bytes);
    }
    if is_header % 4 == 0 {
        // Fields of the header except the number of checkpoints, which locates the table, and the checksums.
        let at = [8, 12, 16, 24, 28, 32, 40, 48, 64, 80, 0][usize::from(header_at) % 11]
            + usize::from(header_at >> 5);
        file[at] ^= header_byte;
        if !is_first_alone {
            let header: [u8; HEADER_BYTES] = file[..HEADER_BYTES].try_into().expect("a header");
            file[BLOCK_BYTES..BLOCK_BYTES + HEADER_BYTES].copy_from_slice(&header);
        }
    }
    if is_sealed {
        seal(&mut file, &plan);
    }
    if is_cut {
        file.truncate(file.len() / 256 * usize::from(header_at));
    }
    let disk = Memory(file);
    let opened = match kind % 3 {
        0 => FileRows::<u64, _>::open_on(disk, layout().shape::<u64>(1)).map(|rows| {
            let mut heap: Heap<StoredItem<u64>, _, _> = Heap::with_rows(layout(), rows);
            let len = heap.rows().len();
            let items: Vec<u64> = heap.drain().map(|stored| stored.item()).collect();
            assert!(items.is_sorted() && items.len() == len);
        }),
        1 => FileQueue::<u64, _>::open_on(disk).map(|mut queue| {
            queue.assert_invariants();
            let len = queue.len();
            queue.push(5).expect("room for one more");
            let items: Vec<u64> = queue.drain().collect();
            assert!(items.is_sorted() && items.len() == len + 1);
        }),
        _ => FileTimers::<u64, _>::open_on(disk).map(|mut timers| {
            timers.assert_invariants();
            let len = timers.len();
            let handle = timers.insert(5).expect("room for one more");
            assert!(
                timers.contains(handle) && timers.remove(handle).is_ok() && timers.remove(handle).is_err()
            );
            let items: Vec<u64> = timers.drain().map(|(key, _)| key).collect();
            assert!(items.is_sorted() && items.len() == len);
        }),
    };
    assert!(opened.is_ok() || !is_whole, "a file that nobody changed is refused");
}
