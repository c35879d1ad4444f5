use std::collections::BTreeSet;

use proptest::prelude::*;
use wire::nats::subject;

use super::{tokens::LABEL_BYTES_MAX, *};

fn pattern() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![
            8 => "[ab]",
            2 => Just("*".to_owned()),
            2 => Just("x*".to_owned()),
            1 => Just("l".repeat(LABEL_BYTES_MAX / 2 - 1)),
        ],
        1..7,
    )
    .prop_flat_map(|tokens| (Just(tokens), prop::bool::weighted(0.2)))
    .prop_map(|(tokens, tail)| tokens.join(".") + if tail { ".>" } else { "" })
}

fn any_subject() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![
            12 => "[ab]",
            2 => "[*>x]",
            2 => Just(String::new()),
            1 => Just("l".repeat(LABEL_BYTES_MAX / 2 - 1)),
        ],
        1..8,
    )
    .prop_map(|tokens| tokens.join("."))
}

proptest! {
    /// Comparison with a list of patterns: the same patterns match, and no nodes remain when all are removed.
    #[test]
    fn like_a_list(
        patterns in prop::collection::vec(pattern(), 1..30),
        keep in prop::collection::vec(any::<bool>(), 30),
        subjects in prop::collection::vec(any_subject(), 1..20),
    ) {
        let mut trie = Trie::new();
        let (root, other) = (trie.add_root(), trie.add_root());
        let mut twin = BTreeSet::new();
        for (number, pattern) in (0..).zip(&patterns) {
            let node = trie.insert(root, pattern.as_bytes());
            prop_assert_eq!(trie.find(root, pattern.as_bytes()), Some(node));
            prop_assert_eq!(trie.pattern_of(node), pattern.as_bytes());
            trie.add_subscriber(node, number);
            twin.insert((number, pattern.clone()));
        }
        for (number, pattern) in (0..).zip(&patterns) {
            if keep[number as usize] {
                continue;
            }
            let node = trie.find(root, pattern.as_bytes()).expect("there");
            let place = trie.subscribers(node).iter().position(|id| *id == number).expect("there");
            trie.remove_subscriber(node, place);
            trie.prune(node);
            twin.remove(&(number, pattern.clone()));
        }
        for text in &subjects {
            let mut found = BTreeSet::new();
            let mut turns = 0;
            let mut open = OpenLookup::default();
            trie.look_for(root, text.as_bytes(), &mut open);
            while !open.is_empty() {
                // The budget allows a few nodes in each turn.
                let mut work = Work::of(1 + turns % 3);
                turns += 1;
                trie.go_on(&mut open, text.as_bytes(), &mut work, |node, _, _| {
                    found.extend(trie.subscribers(node).iter().copied());
                    None
                });
            }
            let expected: BTreeSet<u32> = twin
                .iter()
                .filter(|(_, pattern)| subject::matches(pattern.as_bytes(), text.as_bytes()))
                .map(|(number, _)| *number)
                .collect();
            prop_assert_eq!(&found, &expected, "{}", text);
            trie.look_for(other, text.as_bytes(), &mut open);
            let mut work = Work::of(u64::MAX);
            trie.go_on(&mut open, text.as_bytes(), &mut work, |_, _, _| panic!("another account's"));
        }
        for (number, pattern) in twin {
            let node = trie.find(root, pattern.as_bytes()).expect("there");
            let place = trie.subscribers(node).iter().position(|id| *id == number).expect("there");
            trie.remove_subscriber(node, place);
            trie.prune(node);
        }
        prop_assert_eq!(trie.nodes(), 2);
        prop_assert_eq!((trie.edges.len(), trie.mores.len()), (0, 0));
    }
}
