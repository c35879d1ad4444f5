//! The counter counts deliberate allocations exactly, and reports none where none are made.

use std::alloc::{Layout, System, alloc_zeroed, dealloc};
use std::error::Error;
use std::hint::black_box;
use std::thread;

use allocations::{Allocations, AllocationsError, CountingAllocator, Counts, thread_counts};

#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator::before(System);

type Outcome = Result<(), Box<dyn Error>>;

#[test]
fn finds_planted_allocations_exactly() -> Outcome {
    let mut allocations = Allocations::new()?;
    for planted in 0..50_u64 {
        allocations.mark()?;
        for _ in 0..planted {
            drop(black_box(Box::new([0_u8; 40])));
        }
        let expected = Counts {
            allocations: planted,
            frees: planted,
            allocated_bytes: 40 * planted,
            freed_bytes: 40 * planted,
        };
        assert_eq!(allocations.since_mark()?, expected);
    }
    Ok(())
}

#[test]
fn finds_one_allocation_among_a_million_empty_steps() -> Outcome {
    let mut allocations = Allocations::new()?;
    allocations.mark()?;
    for step in 0..1_000_000_u32 {
        if black_box(step) == 765_432 {
            drop(black_box(Box::new(step)));
        }
    }
    let counts = allocations.mark()?;
    assert_eq!((counts.allocations, counts.allocated_bytes), (1, 4));
    Ok(())
}

#[test]
fn reallocations_and_zeroed_allocations_are_counted() -> Outcome {
    let mut allocations = Allocations::new()?;
    let mut list = black_box(Vec::<u8>::with_capacity(100));
    allocations.mark()?;
    list.reserve_exact(1_000);
    assert_eq!(
        allocations.mark()?,
        Counts { allocations: 1, frees: 1, allocated_bytes: 1_000, freed_bytes: 100 }
    );
    let zeroed = black_box(vec![0_u8; 4_096]);
    assert_eq!(allocations.mark()?, Counts { allocations: 1, allocated_bytes: 4_096, ..Counts::default() });
    drop(zeroed);
    assert_eq!(allocations.mark()?, Counts { frees: 1, freed_bytes: 4_096, ..Counts::default() });
    Ok(())
}

#[test]
fn finds_nothing_where_nothing_was_planted() -> Outcome {
    let mut allocations = Allocations::new()?;
    let mut room = black_box(Vec::<u64>::with_capacity(1_000));
    allocations.mark()?;
    for value in 0..1_000 {
        room.push(value);
    }
    room.sort_unstable_by_key(|value| value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    black_box(&room);
    assert!(allocations.since_mark()?.is_zero());
    allocations.assert_none("filling and sorting in place");
    Ok(())
}

#[test]
fn the_handles_own_use_is_not_counted() -> Outcome {
    let mut allocations = Allocations::new()?;
    for _ in 0..1_000 {
        assert!(allocations.mark()?.is_zero());
        assert!(allocations.since_mark()?.is_zero());
        allocations.reset()?;
        allocations.assert_none("nothing");
    }
    // The first print allocates the line buffer of stdout, and every print formats: neither is counted.
    drop(black_box(Box::new(1_u8)));
    assert_eq!(allocations.print("one planted box")?.allocations, 1);
    assert!(allocations.mark()?.is_zero());
    // A second handle is calibrated without disturbing the first one's counts.
    drop(black_box(Box::new(1_u8)));
    let second = Allocations::new()?;
    assert!(second.since_mark()?.is_zero());
    assert!(allocations.since_mark()?.allocations >= 1);
    Ok(())
}

#[test]
fn each_thread_counts_for_itself() -> Outcome {
    let mut allocations = Allocations::new()?;
    allocations.mark()?;
    let elsewhere = thread::spawn(|| {
        for _ in 0..10_000 {
            drop(black_box(Box::new([0_u8; 64])));
        }
        thread_counts().allocations
    });
    let elsewhere = elsewhere.join().map_err(|_| "the other thread panicked")?;
    let here = allocations.since_mark()?;
    assert!(elsewhere >= 10_000, "the other thread counted {elsewhere}");
    assert!(here.allocations < 100, "starting a thread takes a few, but its 10,000 are not ours: {here}");
    Ok(())
}

#[test]
fn refuses_another_thread_and_names_both() -> Outcome {
    let allocations = thread::Builder::new().name("owner".into()).spawn(Allocations::new)?;
    let mut allocations = allocations.join().map_err(|_| "the owner panicked")??;
    let caller = thread::Builder::new().name("caller".into()).spawn(move || {
        let refused = [
            allocations.mark().err(),
            allocations.since_mark().err(),
            allocations.reset().err(),
            allocations.print("not ours").err(),
        ];
        let panic = std::panic::catch_unwind(|| allocations.assert_none("not ours"));
        (refused, panic.is_err())
    })?;
    let (refused, panicked) = caller.join().map_err(|_| "the caller panicked")?;
    for error in refused {
        let error = error.ok_or("was not refused")?;
        assert!(matches!(error, AllocationsError::OtherThread { .. }));
        let words = error.to_string();
        assert!(words.contains("\"owner\"") && words.contains("\"caller\""), "{words}");
    }
    assert!(panicked);
    Ok(())
}

#[test]
fn the_assertion_fails_with_the_counts() -> Outcome {
    let mut allocations = Allocations::new()?;
    allocations.mark()?;
    drop(black_box(Box::new([0_u8; 24])));
    let panic = std::panic::catch_unwind(|| allocations.assert_none("a hit"));
    let words = panic.err().and_then(|panic| panic.downcast::<String>().ok()).ok_or("no panic with words")?;
    assert_eq!(*words, "a hit must not allocate, but made 1 allocations (24 bytes), 1 frees (24 bytes)");
    Ok(())
}

#[test]
#[allow(unsafe_code, reason = "calls the allocator directly, as a collection would")]
fn memory_is_what_was_asked_for() -> Outcome {
    for size in [1_usize, 24, 4_096, 1 << 20] {
        for align in [1_usize, 16, 64, 4_096] {
            let layout = Layout::from_size_align(size, align)?;
            // SAFETY: the layout's size is not zero.
            let pointer = unsafe { alloc_zeroed(layout) };
            assert!(!pointer.is_null());
            assert_eq!(pointer.addr() % align, 0);
            // SAFETY: `size` zeroed bytes begin at `pointer`, and nothing else refers to them.
            let bytes = unsafe { std::slice::from_raw_parts_mut(pointer, size) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(7);
            // SAFETY: `pointer` was allocated above with the same layout, and is not used afterwards.
            unsafe { dealloc(pointer, layout) };
        }
    }
    Ok(())
}
