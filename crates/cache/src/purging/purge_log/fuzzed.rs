//! Properties of the purge log's file format, for the fuzzer and its seeds.

use super::*;

const MARK: u64 = 7;

/// Checks a frame whose words are the input. Purges parsed from it survive writing and parsing again. A file
/// that ends with the frame is read to the frame's end; a file cut anywhere is read to the frame's beginning.
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
            // The purges that rebuild a table also survive writing and parsing.
            let mut rewritten = Vec::new();
            table.purges().for_each(|purge| append(&mut rewritten, &purge));
            let mut same = Table::default();
            parse(&rewritten).unwrap_or_default().iter().for_each(|purge| _ = same.apply(purge));
            assert_eq!((same.youngest(), same.held()), (table.youngest(), table.held()));
            assert!(same.bans().iter().eq(table.bans().iter()));
        }
    }
    let cut = bytes.first().map_or(0, |byte| usize::from(*byte)) % file.len();
    let mut none = Table::default();
    assert_eq!(read(MARK, &file[..cut], &mut none), Ok(0));
    assert_eq!(none.youngest(), 0);
}
