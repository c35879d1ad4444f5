use allocations::Allocations;
use engine::store::{BodyLength, NewObject, StoreConfig, open_anon};
use proptest::prelude::*;

use super::{table::TAGS_MAX, *};
use crate::head::response_head::BLANK;

/// The slow twin of the table: a list of all purges.
#[derive(Default)]
struct Twin(Vec<Invalidation>);

impl Twin {
    fn verdict(&self, since: u64, address: u64, tags: &[u64]) -> Verdict {
        let is_about = |what: &What| match what {
            What::All | What::Doubted => true,
            What::Tagged => !tags.is_empty(),
            What::Address(purged) => *purged == address,
            What::Tags(purged) => purged.iter().any(|tag| tags.contains(tag)),
            What::Ban(_) => unreachable!("bans have a test of their own"),
        };
        let later = self.0.iter().filter(|purge| purge.number > since && is_about(&purge.what));
        later
            .map(|purge| {
                if purge.is_soft && purge.what != What::Tagged || purge.what == What::Doubted {
                    Verdict::Soft(purge.number)
                } else {
                    Verdict::Hard
                }
            })
            .max()
            .unwrap_or(Verdict::Valid)
    }
}

fn purge(number: u64, what: What, is_soft: bool) -> Invalidation {
    Invalidation { number, what, is_soft }
}

fn tags(tags: &[u64]) -> What {
    What::Tags(tags.into())
}

/// Generates purges in which the hashes of addresses and tags never collide.
fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        6 => proptest::collection::vec(0u64..40, 1..4).prop_map(|list| tags(&list)),
        3 => (100u64..110).prop_map(What::Address),
        1 => Just(What::All),
        1 => Just(What::Tagged),
        1 => Just(What::Doubted),
    ]
}

fn answer() -> impl Strategy<Value = (u64, u64, Vec<u64>)> {
    (0u64..70, 100u64..110, proptest::collection::vec(0u64..40, 0..5))
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_purge_list(
        purges in proptest::collection::vec((what(), any::<bool>()), 0..60),
        order in any::<u64>(),
        marks_max in prop_oneof![Just(3usize), Just(1000)],
        answers in proptest::collection::vec(answer(), 1..20),
    ) {
        let (mut table, mut twin, mut emptied) = (Table::new(marks_max), Twin::default(), false);
        let mut purges: Vec<_> =
            (1..).zip(purges).map(|(number, (what, is_soft))| purge(number, what, is_soft)).collect();
        // Cores may receive neighbouring numbers in either order.
        for at in 1..purges.len() {
            if order >> (at % 64) & 1 == 1 {
                purges.swap(at - 1, at);
            }
        }
        for purge in purges {
            emptied |= table.apply(&purge).is_emptied;
            twin.0.push(purge);
            prop_assert!(table.marks.len() <= marks_max);
            let mut again = Table::new(marks_max);
            for purge in table.purges() {
                again.apply(&purge);
            }
            prop_assert_eq!((&again.marks, again.youngest), (&table.marks, table.youngest));
            prop_assert_eq!((again.all, again.tagged_hard), (table.all, table.tagged_hard));
            for (since, address, tags) in &answers {
                let said = table.verdict(*since, [*address; 2], tags.iter().copied());
                let want = twin.verdict(*since, *address, tags);
                if emptied {
                    prop_assert!(said >= want, "{said:?} for {want:?}: something came back");
                } else {
                    prop_assert_eq!(said, want);
                }
            }
        }
        prop_assert!(!emptied || marks_max == 3);
    }
}

#[test]
fn a_full_table_purges_only_older_tagged_objects() {
    let mut table = Table::new(2);
    let apply = |table: &mut Table, purge| table.apply(&purge).is_emptied;
    assert!(!apply(&mut table, purge(1, tags(&[1, 2]), false)));
    assert!(!apply(&mut table, purge(2, tags(&[2]), true)));
    assert_eq!(table.verdict(0, [100; 2], [3].into_iter()), Verdict::Valid);
    assert!(apply(&mut table, purge(5, tags(&[3]), true)));
    for (since, tags, want) in [
        (4, &[9][..], Verdict::Hard),
        (4, &[], Verdict::Valid),
        (5, &[9], Verdict::Valid),
        (5, &[1, 2, 3], Verdict::Valid),
    ] {
        assert_eq!(table.verdict(since, [100; 2], tags.iter().copied()), want, "{since} {tags:?}");
    }
    // After the table is emptied, an address that was purged softly is still stale, and so is everything up
    // to that number.
    assert!(!apply(&mut table, purge(6, What::Address(100), true)));
    assert!(apply(&mut table, purge(7, tags(&[1]), true)));
    assert_eq!(table.verdict(5, [100; 2], [].into_iter()), Verdict::Soft(6));
    assert_eq!(table.verdict(6, [100; 2], [].into_iter()), Verdict::Valid);
}

#[test]
fn numbers_grow_with_the_time_and_without_it() {
    let numbers = Numbers::after(7);
    assert_eq!(
        [0, 0, 1000, 1000, 20, 1_800_000_000_000].map(|ms| numbers.next(ms)),
        [8, 9, 100, 101, 102, 180_000_000_000]
    );
    assert_eq!(numbers.next(u64::MAX), NUMBER_MAX, "it is stored in so many bits");
}

#[test]
fn what_is_purged_softly_is_stale_from_then() {
    let fresh = StoredMeta { born_s: 1000, lifetime_s: 600, status: 200, ..BLANK };
    for (number, now_s, lifetime_s) in [
        (100_000, 1000, 0),
        (105_099, 1100, 50),
        // The purge came after the answer's lifetime, which stays unchanged.
        (170_000, 1700, 600),
        // A purge number ahead of the clock, and an answer born later than the purge.
        (109_900, 1050, 50),
        (90_000, 1050, 0),
    ] {
        let mut meta = fresh;
        end_lifetime(&mut meta, number, now_s);
        assert_eq!(meta.lifetime_s, lifetime_s, "{number} {now_s}");
        assert!(meta.stored(now_s).age_s >= u64::from(meta.lifetime_s), "not fresh any more");
    }
}

/// A full table takes no more memory than [`TABLE_BYTES_MAX`].
#[test]
fn a_table_takes_no_more_than_is_said() {
    let mut allocations = Allocations::new().expect("the counting allocator");
    allocations.mark().expect("this thread");
    let mut table = Table::new(TAGS_MAX);
    let mut emptied = false;
    for number in 1..=TAGS_MAX as u64 {
        let what = What::Address(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        emptied |= table.apply(&purge(number, what, true)).is_emptied;
    }
    let counts = allocations.since_mark().expect("this thread");
    assert!(!emptied && table.held() == TAGS_MAX);
    // A single map that never grew.
    assert!(counts.allocations == 1 && counts.allocated_bytes <= TABLE_BYTES_MAX, "{counts}");
}

/// A changed answer that is fresh for a second is shown while it is renewed, within the time for which it
/// would have been shown anyway; answers that live longer are not affected.
#[test]
fn changes_outdate_only_momentary_answers() {
    let config = StoreConfig { cores: 1, ..StoreConfig::default() };
    let (store, mut shards) = open_anon(&config).expect("a store");
    let invalidations = Invalidations::new(Table::default());
    let fetched_ms = clock::unix_ms();
    let born_s = fetched_ms / 1000;
    let hashes = |key: &[u8]| KeyHashes { own: store.hash(key), address: store.hash(key) };
    for (key, fetched_ms) in [(b"/list", Some(fetched_ms)), (b"/page", None)] {
        let meta = StoredMeta { born_s, status: 200, lifetime_s: 1, stale_while_revalidate_s: 1, ..BLANK };
        let new = NewObject {
            hash: store.hash(key),
            key,
            head: b"",
            extra: &tags::extra(&[7], b"", fetched_ms),
            meta: meta.pack(),
            body: BodyLength::Exact(0),
            expires_s: u32::MAX,
            now_s: 1,
        };
        shards[0].insert(new, &[], &[]).expect("room");
    }
    let judge = |key: &[u8]| {
        let object = shards[0].peek(store.hash(key), key).expect("stored");
        let mut meta = StoredMeta::unpack(&object.meta()).expect("ours");
        let verdict = invalidations.judge(&object, &mut meta, hashes(key), None, born_s);
        (verdict, meta.lifetime_s, meta.stale_while_revalidate_s)
    };
    assert_eq!(judge(b"/list"), (Verdict::Valid, 1, 1));
    invalidations.momentary.note(&[8], fetched_ms + 3_600_000, false);
    assert_eq!(judge(b"/list"), (Verdict::Valid, 1, 1), "another list");
    // A change in the future, so that the time for which the answer is shown does not end during the test.
    invalidations.momentary.note(&[7], fetched_ms + 3_600_000, false);
    assert_eq!(judge(b"/list"), (Verdict::Outdated, 0, 2));
    assert_eq!(judge(b"/page"), (Verdict::Valid, 1, 1), "not known to be changed");
    invalidations.momentary.note(&[7], fetched_ms, true);
    assert_eq!(judge(b"/list").0, Verdict::Hard);
}
