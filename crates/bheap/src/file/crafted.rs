//! Tests with hand-made files: the format matches `docs/formats/queue.md`, whose numbers are repeated here,
//! and a file with valid checksums but absurd content does no harm.

use super::error::{Fault, FileError};
use super::header::{Header, SLOTS, Shape};
use super::power_loss::Faulty;
use super::{FileLayout, FileRows, StoredItem};
use crate::heap::Heap;
use crate::layout::PageLayout;
use crate::rows::Rows;
use std::vec::Vec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

fn shape() -> Shape {
    PageLayout::for_page_bytes::<u64>(4096).unwrap().shape::<u64>(1000)
}

/// Returns a disk with 600 items in the second checkpoint; the first block was changed after the first
/// checkpoint.
fn disk() -> Faulty {
    let layout = PageLayout::for_page_bytes::<u64>(4096).unwrap();
    let rows = FileRows::create_on(Faulty::new(shape().plan().unwrap().file_bytes, 1), shape()).unwrap();
    let mut heap: Heap<StoredItem<u64>, _, FileRows<u64, Faulty>> = Heap::with_rows(layout, rows);
    for key in 0..600 {
        heap.push(StoredItem::new(key * 3 + 1));
    }
    heap.rows_mut().checkpoint().unwrap();
    heap.replace_at(0, StoredItem::new(0));
    heap.rows_mut().checkpoint().unwrap();
    heap.rows_mut().disk_mut().clone()
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn the_file_is_what_the_document_says() {
    let file = disk().seen;
    // B = ⌈(1 + 1000) · 8 / 4096⌉ = 2, T = 4096, I = 16384, S = 8192.
    assert_eq!(file.len(), 16_384 + 2 * 8_192);
    for slot in [0, 4096] {
        let header = &file[slot..slot + 128];
        assert_eq!(header[..8], [0x42, 0x48, 0x45, 0x41, 0x50, 0x51, 0x46, 0x0A]);
        assert_eq!(header[8..16], [1, 0, 0, 0, 128, 0, 0, 0]);
        assert_eq!(number(header, 16), 4096);
        assert_eq!(header[24..32], [8, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(header[32..40], *b"u64\0\0\0\0\0");
        assert_eq!([40, 48, 56, 64].map(|at| number(header, at)), [1, 1000, 2, 600]);
        assert_eq!(number(header, 72), xxh3_64_with_seed(&file[8192..8192 + 16], 2));
        assert_eq!(header[80..120], [0; 40]);
        assert_eq!(number(header, 120), xxh3_64_with_seed(&header[..120], 0));
        assert!(file[slot + 128..slot + 4096].iter().all(|&byte| byte == 0));
    }
    // The change after the first checkpoint moved block 0 to image 1; block 1 has not moved.
    for (block, image) in [(0, 1), (1, 0)] {
        let at = 16_384 + image * 8_192 + block * 4096;
        let sum = xxh3_64_with_seed(&file[at..at + 4096], block as u64);
        assert_eq!(number(&file, 8192 + 8 * block), sum / 2 * 2 + image as u64, "block {block}");
    }
    assert_eq!(number(&file, 16_384 + 8_192 + 8), 0, "item 0 follows one unused cell");
    // 600 items and one unused cell: 601 − 512 cells in block 1; the keys were pushed in ascending order.
    assert_eq!(number(&file, 16_384 + 4096), 511 * 3 + 1);
}

/// Opens the sample file with its header changed in both slots, with a valid checksum.
fn crafted(change: impl FnOnce(&mut Header)) -> Result<FileRows<u64, Faulty>, FileError> {
    let mut disk = disk();
    let table_sum = number(&disk.seen, 72);
    let mut header = Header { shape: shape(), sequence: 2, len: 600, table_sum };
    change(&mut header);
    for slot in SLOTS {
        disk.seen[slot..slot + 128].copy_from_slice(&header.encode());
    }
    FileRows::open_on(disk, shape())
}

#[test]
fn absurd_headers_with_right_checksums_are_refused() {
    assert_eq!(crafted(|_| {}).unwrap().len(), 600);
    let refused: Vec<FileError> = [
        crafted(|header| header.len = 1001),
        crafted(|header| header.len = u64::MAX),
        crafted(|header| header.sequence = 3),
        crafted(|header| header.sequence = u64::MAX),
        crafted(|header| header.shape.capacity = u64::MAX),
        crafted(|header| header.shape.capacity = 1 << 40),
        crafted(|header| header.shape.capacity = 0),
        crafted(|header| header.shape.lead = u64::MAX),
        crafted(|header| header.shape.page_bytes = 0),
        crafted(|header| header.shape.item_bytes = 0),
    ]
    .into_iter()
    .map(|opened| opened.err().unwrap())
    .collect();
    assert!(matches!(refused[0].fault, Fault::Damaged { at: 64, .. }), "{}", refused[0]);
    assert!(matches!(refused[5].fault, Fault::Length { found: 32_768, .. }), "{}", refused[5]);
}

#[test]
fn a_checkpoint_sequence_overflow_is_an_error() {
    let mut rows = crafted(|header| {
        (header.sequence, header.len) = (u64::MAX, 0);
        header.table_sum = xxh3_64_with_seed(&[], u64::MAX);
    })
    .unwrap();
    assert!(matches!(rows.checkpoint().unwrap_err().fault, Fault::Damaged { at: 56, .. }));
}

#[test]
fn items_out_of_order_are_put_in_order() {
    let mut disk = disk();
    // Block 0 in image 1 begins at 24576; the checksums of its entry, of the table and of the headers are
    // recomputed.
    disk.seen[24_576 + 8..24_576 + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    let sum = xxh3_64_with_seed(&disk.seen[24_576..24_576 + 4096], 0) / 2 * 2 + 1;
    disk.seen[8192..8200].copy_from_slice(&sum.to_le_bytes());
    let table_sum = xxh3_64_with_seed(&disk.seen[8192..8208], 2);
    for slot in SLOTS {
        let header = Header { shape: shape(), sequence: 2, len: 600, table_sum };
        disk.seen[slot..slot + 128].copy_from_slice(&header.encode());
    }
    let rows = FileRows::<u64, _>::open_on(disk, shape()).unwrap();
    let mut heap: Heap<StoredItem<u64>, _, _> =
        Heap::with_rows(PageLayout::for_page_bytes::<u64>(4096).unwrap(), rows);
    let items: Vec<u64> = heap.drain().map(|stored| stored.item()).collect();
    assert!(items.is_sorted());
    assert_eq!((items.len(), items.last()), (600, Some(&u64::MAX)));
}
