//! Textbook quicksort and heapsort, each on its best and on its worst input.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

use super::races::median;
use super::random::Random;

/// Nanoseconds per item of each sort, the median of the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct SortTimes {
    /// Description of the input.
    pub input: &'static str,
    /// Number of items.
    pub items: usize,
    /// Quicksort with the first item as the pivot.
    pub quicksort_ns: f64,
    /// Heapsort, which sifts down a binary heap.
    pub heapsort_ns: f64,
    /// Sort of the standard library.
    pub library_ns: f64,
}

/// Sorts arrays that fit the nearest caches, arrays of `large` items that fit none, and one that is already
/// sorted.
#[must_use]
pub fn spots(small: usize, large: usize, sorted: usize, random: &mut Random) -> Vec<SortTimes> {
    let mut shuffled = |items: usize| {
        let mut keys: Vec<u64> = (0..items as u64).collect();
        random.shuffle(&mut keys);
        keys
    };
    let (few, many) = (shuffled(small), shuffled(large));
    let ordered: Vec<u64> = (0..sorted as u64).collect();
    vec![
        spot("shuffled, in the near caches", &few, 9),
        spot("shuffled, large", &many, 1),
        spot("sorted", &ordered, 3),
    ]
}

fn spot(input: &'static str, keys: &[u64], rounds: usize) -> SortTimes {
    let ns = |sort: fn(&mut [u64])| {
        let mut times: Vec<f64> = (0..rounds)
            .map(|_| {
                let mut copy = keys.to_vec();
                let start = Instant::now();
                sort(black_box(&mut copy));
                let ns = start.elapsed().as_nanos() as f64 / keys.len() as f64;
                assert!(copy.is_sorted(), "sorted");
                ns
            })
            .collect();
        median(&mut times)
    };
    SortTimes {
        input,
        items: keys.len(),
        quicksort_ns: ns(quicksort),
        heapsort_ns: ns(heapsort),
        library_ns: ns(|keys| keys.sort_unstable()),
    }
}

/// Sorts with Lomuto's partition and the first item as the pivot. The smaller part is sorted first, so that
/// the depth stays logarithmic even when the time is quadratic.
fn quicksort(mut keys: &mut [u64]) {
    while keys.len() > 1 {
        let pivot = keys[0];
        let mut border = 0;
        for at in 1..keys.len() {
            if keys[at] < pivot {
                border += 1;
                keys.swap(at, border);
            }
        }
        keys.swap(0, border);
        let (left, right) = keys.split_at_mut(border);
        let right = &mut right[1..];
        if left.len() < right.len() {
            quicksort(left);
            keys = right;
        } else {
            quicksort(right);
            keys = left;
        }
    }
}

/// Sorts by Williams' and Floyd's heapsort: a heap with the largest item on top, dismantled from the end.
fn heapsort(keys: &mut [u64]) {
    for start in (0..keys.len() / 2).rev() {
        sift_down(keys, start);
    }
    for end in (1..keys.len()).rev() {
        keys.swap(0, end);
        sift_down(&mut keys[..end], 0);
    }
}

fn sift_down(keys: &mut [u64], mut node: usize) {
    loop {
        let mut child = 2 * node + 1;
        if child >= keys.len() {
            return;
        }
        if child + 1 < keys.len() && keys[child + 1] > keys[child] {
            child += 1;
        }
        if keys[child] <= keys[node] {
            return;
        }
        keys.swap(child, node);
        node = child;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sort_every_small_input() {
        let mut random = Random::new(11);
        for items in 0..40 {
            let keys: Vec<u64> = (0..items).map(|_| random.word() % 20).collect();
            let mut twin = keys.clone();
            twin.sort_unstable();
            for sort in [quicksort, heapsort] {
                let mut copy = keys.clone();
                sort(&mut copy);
                assert_eq!(copy, twin);
            }
        }
    }
}
