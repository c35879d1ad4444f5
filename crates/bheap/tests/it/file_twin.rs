//! A queue in a file compared with its twin in memory: random operations, reopened at random checkpoints.
#![cfg(feature = "std")]

use bheap::BinaryHeap;
use bheap::file::{FileHeap, FileLayout, Item};
use bheap::layout::{Binary, Dary, PageLayout};
use proptest::prelude::*;
use std::fmt::Debug;

#[derive(Debug, Clone)]
enum Step {
    Push(Vec<u64>),
    Load(Vec<u64>),
    Pop(usize),
    PopPush(u64),
    Remove(usize),
    Checkpoint,
    /// Closing without a checkpoint, and reopening.
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::collection::vec(0..10_000_u64, 1..400).prop_map(Step::Push),
        2 => prop::collection::vec(0..10_000_u64, 0..1500).prop_map(Step::Load),
        4 => (1..400_usize).prop_map(Step::Pop),
        3 => (0..20_000_u64).prop_map(Step::PopPush),
        2 => any::<usize>().prop_map(Step::Remove),
        3 => Just(Step::Checkpoint),
        2 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

const CAPACITY: usize = 5_000;

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items
}

fn run<T: Item + Debug, L: FileLayout + Copy + Debug>(layout: L, steps: &[Step], item: impl Fn(u64) -> T) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let mut queue = FileHeap::<T, L>::create(&path, layout, CAPACITY).unwrap();
    let mut twin = BinaryHeap::<T>::new();
    let mut kept: Vec<T> = Vec::new();
    let mut sequence = 0;
    for step in steps {
        match step {
            Step::Push(keys) => {
                for key in keys.iter().map(|&key| item(key)) {
                    let refused = queue.push(key).err().map(|refused| refused.item);
                    assert_eq!(refused, (twin.len() == CAPACITY).then_some(key));
                    if refused.is_none() {
                        twin.push(key);
                    }
                }
            }
            Step::Load(keys) => {
                let room = keys.len().min(CAPACITY - twin.len());
                let loaded = queue.load(keys.iter().map(|&key| item(key)));
                assert_eq!(loaded.err().map(|refused| refused.item), keys.get(room).map(|&key| item(key)));
                for &key in &keys[..room] {
                    twin.push(item(key));
                }
            }
            Step::Pop(count) => {
                for _ in 0..*count {
                    assert_eq!(queue.pop(), twin.pop());
                }
            }
            Step::PopPush(key) => match queue.pop_push(item(*key)) {
                Ok(least) => assert_eq!(twin.pop_push(item(*key)), Some(least)),
                Err(_) => assert!(twin.is_empty()),
            },
            Step::Remove(at) if !queue.is_empty() => {
                let removed = queue.heap_mut().remove_at(at % twin.len()).map(|stored| stored.item());
                let mut rest = std::mem::take(&mut twin).into_vec();
                let same = rest.iter().position(|i| Some(*i) == removed).expect("the twin has it too");
                rest.swap_remove(same);
                twin = BinaryHeap::from_vec(rest);
            }
            Step::Remove(_) => {}
            Step::Checkpoint => {
                sequence += 1;
                assert_eq!(queue.checkpoint().unwrap(), sequence);
                kept = twin.iter().copied().collect();
            }
            Step::Reopen => {
                drop(queue);
                queue = FileHeap::open(&path, layout).unwrap();
                assert_eq!((queue.sequence(), queue.capacity()), (sequence, CAPACITY));
                twin = BinaryHeap::from_vec(kept.clone());
                assert_eq!(sorted(queue.iter()), sorted(kept.iter().copied()));
            }
        }
        assert_eq!((queue.len(), queue.peek()), (twin.len(), twin.peek().copied()));
        assert!(queue.heap().is_ordered());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: unify::cases(40, 400), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_file_layout_matches_its_memory_twin(steps in steps(), kind in 0..7_usize) {
        match kind {
            0 => run(Binary, &steps, |key| key),
            1 => run(PageLayout::for_page_bytes::<u64>(4096).unwrap(), &steps, |key| key),
            2 => run(PageLayout::for_page_bytes::<u64>(64).unwrap(), &steps, |key| key),
            3 => run(PageLayout::for_page_bytes::<(u64, u64)>(4096).unwrap(), &steps, |key| (key / 3, key)),
            4 => run(PageLayout::for_page_bytes::<(u64, u64)>(16384).unwrap(), &steps, |key| (key / 3, key)),
            5 => run(Dary::<8>, &steps, |key| key as u32),
            _ => run(Binary, &steps, |key| u128::from(key) << 64 | 7),
        }
    }
}

#[test]
fn items_lie_on_the_pages_of_their_layout() {
    let folder = tempfile::tempdir().unwrap();
    for page_bytes in [64, 512, 4096, 16384, 2 << 20] {
        let path = folder.path().join(page_bytes.to_string());
        let layout = PageLayout::for_page_bytes::<u64>(page_bytes).unwrap();
        let mut queue = FileHeap::<u64, _>::create(&path, layout, 300_000).unwrap();
        for key in 0..20_000 {
            queue.push(key).unwrap();
        }
        queue.checkpoint().unwrap();
        // The replacements move some blocks into the other image.
        for key in 0..500 {
            queue.pop_push(key * 40).unwrap();
        }
        for at in 0..queue.len() {
            assert_eq!(queue.heap().rows().page_of(at), layout.page_of(at), "page {page_bytes}, item {at}");
        }
    }
}
