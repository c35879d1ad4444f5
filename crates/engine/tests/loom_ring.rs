//! Invariant I8 of `docs/decisions/003-store-concurrency.md`, in every interleaving that loom finds: pushed
//! values are popped once, in order; a full ring refuses; a wake-up is never lost between "empty" and
//! "sleep". Run with `cargo test -p engine --features loom --test loom_ring --release`.

#![allow(clippy::expect_used, reason = "these are tests")]

use engine::cores::{
    bell::Bell,
    ring::{Consumer, channel},
};
use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Pops with a spin loop that yields, because loom must know that the consumer waits for another thread.
fn pop_or_wait<T: Send>(ring: &Consumer<T>) -> T {
    loop {
        if let Some(value) = ring.pop() {
            return value;
        }
        thread::yield_now();
    }
}

/// Runs a model with a preemption bound. Interleavings multiply fast; three forced thread switches find all
/// known bugs of this kind.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn popped_once_and_in_order_across_the_wrap() {
    model(|| {
        // Capacity 1 and 3 messages: each push except the first needs the pop before it.
        let (producer, consumer) = channel(1);
        let pusher = thread::spawn(move || {
            for value in 0..3_u32 {
                let mut value = Box::new(value);
                while let Err(refused) = producer.push(value) {
                    value = refused;
                    thread::yield_now();
                }
            }
        });
        for expected in 0..3 {
            assert_eq!(*pop_or_wait(&consumer), expected);
        }
        pusher.join().unwrap();
        assert!(consumer.pop().is_none());
    });
}

#[test]
fn batches_hold_what_was_pushed_and_nothing_else() {
    model(|| {
        let (producer, consumer) = channel(2);
        let pusher = thread::spawn(move || {
            let mut refused = 0;
            for value in 0..3_u32 {
                if producer.push(Box::new(value)).is_err() {
                    refused += 1;
                }
            }
            refused
        });
        let mut got = Vec::new();
        consumer.pop_all(&mut got);
        consumer.pop_all(&mut got);
        let refused = pusher.join().unwrap();
        consumer.pop_all(&mut got);
        assert_eq!(got.len() + refused, 3, "a message is popped or refused, never both or neither");
        assert!(got.is_sorted());
        assert!(refused <= 1, "capacity 2 takes two of three");
    });
}

#[test]
fn messages_left_behind_are_dropped() {
    model(|| {
        // Loom reports an Arc that is never dropped as a leak.
        let (producer, consumer) = channel(2);
        let pusher = thread::spawn(move || {
            let token = Arc::new(());
            producer.push(Arc::clone(&token)).unwrap();
            producer.push(token).unwrap();
        });
        drop(consumer.pop());
        drop(consumer);
        pusher.join().unwrap();
    });
}

/// When the consumer is dropped while the producer pushes and checks, with the mesh's fence in between, every
/// message is dropped in the end, although the producer still exists.
#[test]
fn nothing_stays_in_a_ring_without_consumer() {
    model(|| {
        let (producer, consumer) = channel(2);
        let alive = Arc::new(());
        let token = Arc::clone(&alive);
        let pusher = thread::spawn(move || {
            for _ in 0..2 {
                assert!(producer.push(Arc::clone(&token)).is_ok(), "two fit");
                loom::sync::atomic::fence(Ordering::SeqCst);
                producer.drop_if_abandoned();
            }
            drop(token);
            producer
        });
        drop(consumer);
        let producer = pusher.join().unwrap();
        assert_eq!(Arc::strong_count(&alive), 1, "a message was left behind");
        drop(producer);
    });
}

/// Models the mesh's protocol with a counter in place of the eventfd; Release and Acquire stand for the
/// kernel's locks that order a write before the wake-up that it causes. (Loom needs them: it does not know
/// that an atomic exchange comes right after the store that it read, and lets a later sender read the
/// exchange of an earlier one.) Returns whether the receiver would have slept forever: it slept, all senders
/// are done, none has woken it, and yet a message is there. `look_again` enables the receiver's second look
/// at the rings.
fn sleeps_for_ever(look_again: bool) -> bool {
    let bell = Arc::new(Bell::new());
    let eventfd = Arc::new(AtomicUsize::new(0));
    let (rings, mut senders): (Vec<_>, Vec<_>) = (0..2_u32)
        .map(|sender| {
            let (producer, consumer) = channel(1);
            let (bell, eventfd) = (Arc::clone(&bell), Arc::clone(&eventfd));
            let thread = thread::spawn(move || {
                producer.push(sender).expect("the ring is empty");
                if bell.must_wake() {
                    eventfd.fetch_add(1, Ordering::Release);
                }
            });
            (consumer, thread)
        })
        .unzip();
    let mut got = Vec::new();
    let look = |got: &mut Vec<u32>| rings.iter().map(|ring| ring.pop_all(got)).sum::<usize>();
    let mut slept_for_ever = false;
    while got.len() < 2 && !slept_for_ever {
        if look(&mut got) > 0 {
            continue;
        }
        bell.about_to_sleep();
        if look_again && look(&mut got) > 0 {
            bell.awake();
            continue;
        }
        if eventfd.swap(0, Ordering::Acquire) > 0 {
            continue;
        }
        // Sleeps until the senders have finished.
        senders.drain(..).for_each(|sender| sender.join().expect("no sender panics"));
        slept_for_ever = eventfd.swap(0, Ordering::Acquire) == 0;
    }
    senders.into_iter().for_each(|sender| sender.join().expect("no sender panics"));
    look(&mut got);
    got.sort_unstable();
    assert_eq!(got, [0, 1]);
    slept_for_ever
}

#[test]
fn no_wake_up_is_lost() {
    model(|| assert!(!sleeps_for_ever(true)));
}

/// The model finds the bug of a receiver that sleeps without the second look; otherwise it would prove
/// nothing.
#[test]
fn the_model_finds_a_lost_wake_up() {
    let found = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let note = std::sync::Arc::clone(&found);
    model(move || {
        if sleeps_for_ever(false) {
            note.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(found.load(std::sync::atomic::Ordering::Relaxed));
}
