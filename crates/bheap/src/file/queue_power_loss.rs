//! Tests of the page queues with power failures and process deaths at any moment, repeated many times on the
//! disk of [`super::power_loss`].

use super::power_loss::{Faulty, Random};
use super::{Disk, FileError, FileQueue, FileTimers};
use crate::Handle;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::vec::Vec;

const CAPACITY: usize = 20_000;

/// A queue under test, and its expected content.
trait Life: Sized {
    type Twin: Clone + PartialEq + core::fmt::Debug + Default;
    fn disk_bytes() -> usize;
    fn create(disk: Faulty) -> Self;
    fn open(disk: Faulty) -> Result<Self, FileError>;
    fn disk_mut(&mut self) -> &mut Faulty;
    /// Performs some operations on the queue and on its twin.
    fn work(&mut self, twin: &mut Self::Twin, random: &mut Random);
    fn checkpoint(&mut self) -> Result<u64, FileError>;
    fn content(&self) -> Self::Twin;
    /// Records handles that were lost in the failure.
    fn lost(&mut self, _twin: &Self::Twin, _kept: &Self::Twin) {}
    fn is_dead(&mut self) -> bool;
    fn check(&self);
    /// Takes over test data from the queue as it was before the failure.
    fn inherit(&mut self, _from: Self) {}
}

struct Plain(FileQueue<u64, Faulty>);

impl Life for Plain {
    type Twin = BTreeMap<u64, u32>;
    fn disk_bytes() -> usize {
        FileQueue::<u64, Faulty>::disk_bytes(CAPACITY).unwrap()
    }
    fn create(disk: Faulty) -> Self {
        Self(FileQueue::create_on(disk, CAPACITY).unwrap())
    }
    fn open(disk: Faulty) -> Result<Self, FileError> {
        FileQueue::open_on(disk).map(Self)
    }
    fn disk_mut(&mut self) -> &mut Faulty {
        self.0.disk_mut()
    }
    fn work(&mut self, twin: &mut Self::Twin, random: &mut Random) {
        let pushes = random.below(101);
        for _ in 0..random.below(3_000) {
            if random.below(100) < pushes {
                let item = random.below(1 << 20);
                if self.0.push(item).is_ok() {
                    *twin.entry(item).or_default() += 1;
                }
            } else {
                let least = twin.first_entry();
                assert_eq!(self.0.pop(), least.as_ref().map(|least| *least.key()));
                if let Some(mut least) = least {
                    *least.get_mut() -= 1;
                    if *least.get() == 0 {
                        least.remove();
                    }
                }
            }
        }
    }
    fn checkpoint(&mut self) -> Result<u64, FileError> {
        self.0.checkpoint()
    }
    fn content(&self) -> Self::Twin {
        let mut items = BTreeMap::new();
        self.0.for_each(|item| *items.entry(item).or_default() += 1);
        items
    }
    fn is_dead(&mut self) -> bool {
        self.0.is_empty() && self.0.push(1).is_err() && self.0.pop().is_none()
    }
    fn check(&self) {
        self.0.assert_invariants();
    }
}

struct Handles {
    timers: FileTimers<u64, Faulty>,
    /// Handles whose items are gone: lost, removed or popped.
    gone: Vec<Handle>,
}

impl Life for Handles {
    type Twin = BTreeMap<[u8; 12], u64>;
    fn disk_bytes() -> usize {
        FileTimers::<u64, Faulty>::disk_bytes(CAPACITY).unwrap()
    }
    fn create(disk: Faulty) -> Self {
        Self { timers: FileTimers::create_on(disk, CAPACITY).unwrap(), gone: Vec::new() }
    }
    fn open(disk: Faulty) -> Result<Self, FileError> {
        Ok(Self { timers: FileTimers::open_on(disk)?, gone: Vec::new() })
    }
    fn disk_mut(&mut self) -> &mut Faulty {
        self.timers.disk_mut()
    }
    fn work(&mut self, twin: &mut Self::Twin, random: &mut Random) {
        let inserts = 20 + random.below(60);
        let mut handles: Vec<[u8; 12]> = twin.keys().copied().collect();
        for _ in 0..random.below(3_000) {
            let key = random.below(1 << 40);
            let at = random.below(handles.len().max(1) as u64) as usize;
            let what = if handles.is_empty() { 0 } else { random.below(100) };
            if what < inserts {
                if let Ok(handle) = self.timers.insert(key) {
                    assert_eq!(twin.insert(handle.to_bytes(), key), None);
                    handles.push(handle.to_bytes());
                }
            } else if random.below(3) == 0 {
                let handle = Handle::from_bytes(handles.swap_remove(at));
                self.timers.remove(handle).unwrap();
                twin.remove(&handle.to_bytes());
                self.gone.push(handle);
            } else if random.below(2) == 0 {
                let handle = Handle::from_bytes(handles[at]);
                if let Ok(new) = self.timers.update(handle, key) {
                    handles[at] = new.to_bytes();
                    twin.remove(&handle.to_bytes());
                    twin.insert(new.to_bytes(), key);
                    self.gone.push(handle);
                }
            } else if let Some((key, handle)) = self.timers.pop() {
                assert_eq!(twin.remove(&handle.to_bytes()), Some(key));
                assert!(random.below(20) > 0 || twin.values().all(|other| *other >= key));
                handles.retain(|other| *other != handle.to_bytes());
                self.gone.push(handle);
            }
        }
        for _ in 0..200.min(self.gone.len()) {
            let at = random.below(self.gone.len() as u64) as usize;
            assert!(!self.timers.contains(self.gone[at]), "a handle that is gone means another item");
        }
    }
    fn checkpoint(&mut self) -> Result<u64, FileError> {
        self.timers.checkpoint()
    }
    fn content(&self) -> Self::Twin {
        let mut items = BTreeMap::new();
        self.timers.for_each(|key, handle| assert_eq!(items.insert(handle.to_bytes(), key), None));
        items
    }
    fn lost(&mut self, twin: &Self::Twin, kept: &Self::Twin) {
        self.gone
            .extend(twin.keys().filter(|handle| !kept.contains_key(*handle)).map(|h| Handle::from_bytes(*h)));
        self.gone.retain(|handle| !kept.contains_key(&handle.to_bytes()));
    }
    fn is_dead(&mut self) -> bool {
        self.timers.is_empty() && self.timers.insert(1).is_err() && self.timers.pop().is_none()
    }
    fn check(&self) {
        self.timers.assert_invariants();
    }
    fn inherit(&mut self, from: Self) {
        self.gone = from.gone;
    }
}

/// Numbers of failures: between checkpoints; during a checkpoint that the next opening did not find; during
/// one that it found; during an opening.
#[derive(Debug, Default)]
struct Outcome {
    between: u32,
    before: u32,
    after: u32,
    opening: u32,
}

fn lives<L: Life>(seed: u64, rounds: u32, outcome: &mut Outcome) {
    let mut random = Random(seed);
    let mut queue = L::create(Faulty::new(L::disk_bytes(), seed));
    let mut kept = L::Twin::default();
    for life in 0..rounds {
        let mut twin = kept.clone();
        let mut under_way = false;
        for checkpoints in (0..=random.below(3)).rev() {
            queue.work(&mut twin, &mut random);
            if random.below(3) == 0 {
                queue.disk_mut().write_back(20);
            }
            if checkpoints == 0 {
                under_way = random.below(2) == 0;
                if under_way {
                    queue.disk_mut().syncs_left = random.below(3);
                    queue.checkpoint().unwrap_err();
                    assert!(queue.is_dead(), "after a checkpoint that failed");
                }
                break;
            }
            queue.check();
            assert_eq!(queue.content(), twin);
            queue.checkpoint().unwrap();
            kept = twin.clone();
        }
        let disk = queue.disk_mut();
        let mut disk =
            if random.below(3) == 0 { disk.process_death(under_way) } else { disk.clone().power_failure() };
        let mut next = loop {
            if random.below(2) == 0 {
                disk.syncs_left = random.below(6);
            }
            let wreck = Rc::clone(&disk.wreck);
            match L::open(disk) {
                Ok(mut next) => {
                    next.disk_mut().syncs_left = u64::MAX;
                    break next;
                }
                Err(error) => {
                    let wrecked = wreck.take();
                    assert!(wrecked.is_some(), "seed {seed}, life {life}: {error}");
                    disk = wrecked.unwrap().power_failure();
                    outcome.opening += 1;
                }
            }
        };
        let found = next.content();
        next.check();
        if found == kept {
            *(if under_way { &mut outcome.before } else { &mut outcome.between }) += 1;
        } else {
            assert!(under_way && found == twin, "seed {seed}, life {life}: neither checkpoint");
            outcome.after += 1;
        }
        queue.lost(&twin, &found);
        next.inherit(queue);
        (queue, kept) = (next, found);
    }
}

fn rounds() -> u32 {
    std::env::var("BHEAP_POWER_ROUNDS").ok().map_or(25, |rounds| rounds.parse().unwrap())
}

#[test]
fn a_page_queue_survives_every_power_failure() {
    let mut outcome = Outcome::default();
    for seed in [3, 7, 11] {
        lives::<Plain>(seed * 7919, rounds(), &mut outcome);
    }
    std::eprintln!("{outcome:?}");
    let Outcome { between, before, after, opening } = outcome;
    assert!(between > 5 && before > 5 && after > 5 && opening > 2, "{outcome:?}");
}

#[test]
fn handles_are_good_after_every_power_failure() {
    let mut outcome = Outcome::default();
    for seed in [5, 13, 17] {
        lives::<Handles>(seed * 7919, rounds(), &mut outcome);
    }
    std::eprintln!("{outcome:?}");
    let Outcome { between, before, after, opening } = outcome;
    assert!(between > 5 && before > 5 && after > 5 && opening > 2, "{outcome:?}");
}

#[test]
fn a_full_disk_refuses_items_and_loses_none() {
    let mut disk = Faulty::new(Plain::disk_bytes(), 5);
    // Room for the tables and for 700 pages in both images, of which a push leaves some hundreds free.
    disk.room = 100_000 + 2 * 700 * 4096;
    let mut queue = FileQueue::<u64, Faulty>::create_on(disk, CAPACITY).unwrap();
    let mut random = Random(9);
    let mut items = Vec::new();
    let why = loop {
        let item = random.below(1 << 40);
        match queue.push(item) {
            Ok(()) => items.push(item),
            Err(refused) => break refused,
        }
    };
    assert!(std::format!("{why}").contains("reserve room for items"), "{why}");
    assert!(items.len() > 100 * 512, "{} items", items.len());
    queue.checkpoint().unwrap();
    let disk = queue.into_disk();
    let mut queue = FileQueue::<u64, Faulty>::open_on(disk).unwrap();
    items.sort_unstable();
    let (first, rest) = items.split_at(items.len() / 2);
    assert!(first.iter().all(|item| queue.pop() == Some(*item)));
    queue.checkpoint().unwrap();
    assert!(queue.drain().eq(rest.iter().copied()));
    queue.checkpoint().unwrap();
}

#[test]
fn a_queue_holds_what_it_was_made_for() {
    for kind in 0..4 {
        let bytes = FileQueue::<u64, Faulty>::disk_bytes(200_000).unwrap();
        let mut queue = FileQueue::<u64, Faulty>::create_on(Faulty::new(bytes, 1), 200_000).unwrap();
        let mut random = Random(kind + 1);
        let mut key = |n: u64| [random.below(1 << 50), n, u64::MAX - n, n % 3][kind as usize];
        for n in 0..200_000 {
            queue.push(key(n)).unwrap();
        }
        // The capacity also suffices while items are replaced.
        for n in 0..100_000 {
            queue.pop();
            queue.push(key(n)).unwrap();
        }
        queue.checkpoint().unwrap();
        let mut more = 0;
        let refused = loop {
            match queue.push(key(more)) {
                Ok(()) => more += 1,
                Err(refused) => break refused,
            }
        };
        assert!(std::format!("{refused}").contains("the queue is full"), "{refused}");
        assert_eq!(queue.len(), 200_000 + more as usize);
        assert!(queue.drain().is_sorted());
    }
}

#[test]
fn a_disk_of_another_length_is_refused() {
    let disk = Faulty::new(4096 * 10, 1);
    assert!(FileQueue::<u64, Faulty>::create_on(disk.clone(), 1000).is_err());
    assert!(
        FileTimers::<u64, Faulty>::open_on(disk).is_err_and(|error| error.path == Faulty::new(0, 1).path())
    );
}
