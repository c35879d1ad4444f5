use proptest::prelude::*;

use super::*;

const MARK: u64 = 7;

fn purge(number: u64, what: What, is_soft: bool) -> Invalidation {
    Invalidation { number, what, is_soft }
}

fn some() -> Vec<Invalidation> {
    vec![
        purge(10, What::Tags([1, 2, 3].into()), false),
        purge(12, What::Address(9), true),
        purge(11, What::All, true),
        purge(13, What::Tagged, false),
        purge(14, What::Tags([2].into()), true),
    ]
}

/// Returns a table's purges in a fixed order, for comparison.
fn said(table: &Table) -> Vec<Invalidation> {
    let mut purges: Vec<_> = table.purges().collect();
    purges.sort_by_key(|purge| (purge.number, format!("{:?}", purge.what)));
    purges
}

fn table_of(purges: &[Invalidation]) -> Table {
    let mut table = Table::default();
    for purge in purges {
        table.apply(purge);
    }
    table
}

fn put_all(file: &mut PurgesFile, purges: &[Invalidation]) {
    for purge in purges {
        let mut frame = Vec::new();
        append(&mut frame, purge);
        file.put(&frame).expect("a disk");
    }
}

fn open(path: &Path) -> Result<(PurgesFile, Table), PurgesError> {
    PurgesFile::open(path.to_owned(), MARK)
}

fn file_with(purges: &[Invalidation]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.purges");
    put_all(&mut open(&path).expect("a new file").0, purges);
    (directory, path)
}

#[test]
fn a_purge_log_is_reread_and_continued() {
    let (_directory, path) = file_with(&some()[..3]);
    let (mut file, table) = open(&path).expect("it is whole");
    assert_eq!(said(&table), said(&table_of(&some()[..3])));
    put_all(&mut file, &some()[3..]);
    let (mut file, table) = open(&path).expect("it is whole");
    assert_eq!(said(&table), said(&table_of(&some())));
    assert_eq!(table.youngest(), 14);
    file.write_anew(&table).expect("a disk");
    put_all(&mut file, &[purge(20, What::Address(5), true)]);
    let (_, again) = open(&path).expect("it is whole");
    let want: Vec<_> = some().into_iter().chain([purge(20, What::Address(5), true)]).collect();
    assert_eq!(said(&again), said(&table_of(&want)));
}

#[test]
fn a_torn_end_is_cut_and_damage_reported() {
    let (_directory, path) = file_with(&some());
    let whole = fs::read(&path).expect("it is there");
    let last = {
        let mut frame = Vec::new();
        append(&mut frame, &some()[4]);
        framed(MARK, &frame).len()
    };
    for cut in 1..last {
        fs::write(&path, &whole[..whole.len() - cut]).expect("written");
        let (_, table) = open(&path).expect("its end is torn");
        assert_eq!(said(&table), said(&table_of(&some()[..4])), "{cut}");
        assert_eq!(fs::read(&path).expect("it is there").len(), whole.len() - last);
    }
    for at in 0..whole.len() - last {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).expect("written");
        match open(&path) {
            Err(PurgesError::Damaged { at: said, .. }) => assert!(said <= at as u64, "{at}: {said}"),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("byte {at} is another, and nobody says so"),
        }
    }
    // Damage in the last frame, which may have been in the middle of a write.
    let mut damaged = whole.clone();
    damaged[whole.len() - 3] ^= 1;
    fs::write(&path, &damaged).expect("written");
    assert_eq!(open(&path).expect("its end is torn").1.youngest(), 13);
}

#[test]
fn another_stores_purges_are_none_of_ours() {
    let (_directory, path) = file_with(&some());
    let (_, table) = PurgesFile::open(path.clone(), MARK + 1).expect("a new file");
    assert_eq!(table.youngest(), 0);
    assert_eq!(fs::read(&path).expect("it is there"), header(MARK + 1));
    fs::write(&path, b"a letter to my aunt, which is none of a server's business").expect("written");
    assert!(matches!(open(&path), Err(PurgesError::Damaged { at: 0, .. })));
}

#[test]
fn the_file_does_not_grow_for_ever() {
    let (_directory, path) = file_with(&[]);
    let (file, table) = open(&path).expect("a new file");
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let writer = thread::spawn(move || write_all_that_comes(file, table, &receiver));
    let mut longest = 0;
    for number in 1..=400 {
        // Each round purges these tags.
        let (done, kept) = oneshot::channel();
        let tags = (0..1000).collect();
        sender.send((Arc::new(purge(number, What::Tags(tags), false)), done)).expect("it listens");
        assert_eq!(kept.blocking_recv(), Ok(true));
        longest = longest.max(fs::metadata(&path).expect("it is there").len());
    }
    drop(sender);
    writer.join().expect("it ends");
    assert!(longest > SLACK_BYTES && longest < 2 * SLACK_BYTES, "{longest}");
    let (_, table) = open(&path).expect("it is whole");
    assert_eq!((table.youngest(), table.held()), (400, 1000));
}

proptest! {
    #[test]
    fn no_bytes_are_more_than_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (words, _) = bytes.as_chunks::<WORD>();
        let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
        if let Some(purges) = parse(&words) {
            prop_assert!(purges.len() <= words.len());
        }
        prop_assert!(frame_at(MARK, &bytes).is_none());
        let _ = read(MARK, &bytes, &mut Table::default());
    }
}

#[test]
fn a_file_is_looked_at_without_a_change() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let path = path_beside(&store);
    let seed = 99;
    let mark = Hash::seeded(&MAGIC.to_le_bytes(), seed).word();
    assert_eq!(check(&store, seed).expect("none"), None);
    let (mut file, _) = PurgesFile::open(path.clone(), mark).expect("a new file");
    put_all(&mut file, &some());
    let whole = fs::read(&path).expect("it is there");
    let seen = |torn_bytes: usize, is_foreign: bool| PurgesSeen {
        path: path.clone(),
        bytes: if is_foreign { (HEADER_WORDS * WORD) as u64 } else { whole.len() as u64 },
        purged: if is_foreign { 0 } else { table_of(&some()).held() },
        bans: 0,
        torn_bytes: torn_bytes as u64,
        is_foreign,
    };
    assert_eq!(check(&store, seed).expect("whole"), Some(seen(0, false)));
    assert_eq!(check(&store, seed + 1).expect("another's"), Some(seen(0, true)));
    fs::write(&path, [&whole[..], b"torn"].concat()).expect("a disk");
    assert_eq!(check(&store, seed).expect("torn"), Some(seen(4, false)));
    assert_eq!(fs::read(&path).expect("it is there").len(), whole.len() + 4, "nothing was cut off");
    let mut damaged = whole.clone();
    damaged[HEADER_WORDS * WORD + 20] ^= 1;
    fs::write(&path, &damaged).expect("a disk");
    assert!(matches!(check(&store, seed), Err(PurgesError::Damaged { .. })));
    fs::write(&path, b"nothing of ours, and longer than a header is").expect("a disk");
    assert!(matches!(check(&store, seed), Err(PurgesError::Damaged { at: 0, .. })));
}
