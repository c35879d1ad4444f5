//! The ring compared with a `VecDeque`, and between two real threads.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use engine::cores::ring::channel;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Push,
    Pop,
    PopAll,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: unify::cases(256, 8_192), ..ProptestConfig::default() })]

    #[test]
    fn does_what_a_deque_does(
        capacity in 1_usize..20,
        steps in prop::collection::vec(
            prop_oneof![6 => Just(Step::Push), 4 => Just(Step::Pop), 1 => Just(Step::PopAll)],
            0..200,
        ),
    ) {
        let (producer, consumer) = channel(capacity);
        let mut twin = VecDeque::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push => {
                    // A String, so that the allocator also detects a value that is read twice or never.
                    let pushed = producer.push(number.to_string());
                    if twin.len() < capacity {
                        prop_assert_eq!(pushed, Ok(()));
                        twin.push_back(number.to_string());
                    } else {
                        prop_assert_eq!(pushed, Err(number.to_string()));
                    }
                }
                Step::Pop => prop_assert_eq!(consumer.pop(), twin.pop_front()),
                Step::PopAll => {
                    let mut all = vec!["before".to_owned()];
                    prop_assert_eq!(consumer.pop_all(&mut all), twin.len());
                    prop_assert!(all.into_iter().skip(1).eq(twin.drain(..)));
                }
            }
            prop_assert_eq!(consumer.is_empty(), twin.is_empty());
        }
    }
}

#[test]
fn everything_pushed_is_dropped_once() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let (producer, consumer) = channel(5);
    for _ in 0..3 {
        // Three laps, so that the remaining values lie across the wrap.
        for _ in 0..4 {
            assert!(producer.push(Counted(Arc::clone(&dropped))).is_ok());
        }
        drop((consumer.pop(), consumer.pop(), consumer.pop(), consumer.pop()));
    }
    for _ in 0..5 {
        assert!(producer.push(Counted(Arc::clone(&dropped))).is_ok());
    }
    drop(producer.push(Counted(Arc::clone(&dropped))));
    assert_eq!(dropped.load(Ordering::Relaxed), 13);
    drop(producer);
    assert_eq!(dropped.load(Ordering::Relaxed), 13, "the consumer may still want them");
    drop(consumer);
    assert_eq!(dropped.load(Ordering::Relaxed), 18);
}

#[test]
fn two_threads() {
    const MESSAGES: u64 = 1_000_000;
    for capacity in [1, 3, 64, 1024] {
        // A ring of one message switches threads for every message on a machine with only one free processor.
        let messages = if capacity < 64 { MESSAGES / 100 } else { MESSAGES };
        let (producer, consumer) = channel(capacity);
        let pusher = std::thread::spawn(move || {
            for number in 0..messages {
                let mut message = (number, !number);
                while let Err(refused) = producer.push(message) {
                    message = refused;
                    std::thread::yield_now();
                }
            }
        });
        let mut batch = Vec::new();
        let mut next = 0;
        while next < messages {
            if next % 3 == 0 {
                batch.extend(consumer.pop());
            } else {
                consumer.pop_all(&mut batch);
            }
            if batch.is_empty() {
                std::thread::yield_now();
            }
            assert!(batch.len() <= capacity);
            for message in batch.drain(..) {
                assert_eq!(message, (next, !next));
                next += 1;
            }
        }
        pusher.join().unwrap();
        assert!(consumer.is_empty());
    }
}
