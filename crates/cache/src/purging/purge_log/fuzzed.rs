//! What is held of the file of purges, for the fuzzer and its seeds.

use super::*;

const MARK: u64 = 7;

/// The input is the words of a frame. What is read of them is what is written and read again; a file that ends with that
/// frame is read to the frame's end, or, cut anywhere, to its beginning.
pub(crate) fn purges_file(bytes: &[u8]) {
    let (words, _) = bytes.as_chunks::<WORD>();
    let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).take(FRAME_WORDS_MAX).collect();
    let file = framed(MARK, &words);
    let mut table = Table::default();
    match parse(&words) {
        None => assert_eq!(read(MARK, &file, &mut table), Err(0)),
        Some(purges) => {
            let mut again = Vec::new();
            purges.iter().for_each(|purge| append(&mut again, purge));
            assert_eq!(parse(&again), Some(purges));
            assert_eq!(read(MARK, &file, &mut table), Ok(file.len()));
            // What a table comes to is written and read, too.
            let mut anew = Vec::new();
            table.purges().for_each(|purge| append(&mut anew, &purge));
            let mut same = Table::default();
            parse(&anew).unwrap_or_default().iter().for_each(|purge| _ = same.apply(purge));
            assert_eq!((same.youngest(), same.held()), (table.youngest(), table.held()));
            assert!(same.bans().iter().eq(table.bans().iter()));
        }
    }
    let cut = bytes.first().map_or(0, |byte| usize::from(*byte)) % file.len();
    let mut none = Table::default();
    assert_eq!(read(MARK, &file[..cut], &mut none), Ok(0));
    assert_eq!(none.youngest(), 0);
}
