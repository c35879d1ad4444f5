//! A filter expression: its printed form parses to the same expression, and it matches exactly what the slow
//! twin matches. An error has a position in the text.

use wire::filter::{AUTOMATA_BYTES_MAX, EXPRESSION_BYTES_MAX, Expression, Fault};

use crate::naive_filter::{FIELDS, Test, Thing, apart, holds};

pub(crate) fn check(bytes: &[u8]) {
    let expression = match Expression::parse(bytes, &FIELDS) {
        Ok(expression) => expression,
        Err(fault) => return has_a_place(&fault, bytes),
    };
    let printed = expression.to_string();
    assert!(printed.len() <= EXPRESSION_BYTES_MAX && expression.automata_bytes() <= AUTOMATA_BYTES_MAX);
    let again = Expression::parse(printed.as_bytes(), &FIELDS);
    assert_eq!(again.as_ref(), Ok(&expression), "{printed}");
    assert_eq!(again.map(|again| again.to_string()).as_ref(), Ok(&printed));

    let (tests, around) = apart(&printed);
    assert_eq!(expression.needs_request(), tests.iter().any(|test| test.field.starts_with("req.")));
    let opposite = Expression::parse(format!("!({printed})").as_bytes(), &FIELDS);
    for thing in things(&tests) {
        let twin = holds(&around, tests.iter().map(|test| test.holds(&thing)));
        assert_eq!(expression.matches(&thing), twin, "{printed} of {thing:?}");
        // The negation may be too deep or too long to parse.
        if let Ok(opposite) = &opposite {
            assert_eq!(opposite.matches(&thing), !twin, "{opposite} of {thing:?}");
        }
    }
}

/// Things without fields, with the values that each test compares, with those of the next test, and with
/// slightly larger or smaller numbers.
fn things(tests: &[Test]) -> Vec<Thing> {
    let mut things = vec![Thing::default()];
    for (shift, more) in [(0, 0), (1, 0), (0, 1), (0, -1)] {
        let mut thing = Thing::default();
        for (at, test) in tests.iter().enumerate() {
            let other = &tests[(at + shift) % tests.len()];
            let is_text = test.field == "req.url" || test.field.contains(".http.");
            match (is_text, other.number()) {
                (true, _) => thing.texts.push((test.field.clone(), other.value.clone().into_bytes())),
                (false, Some(number)) => {
                    thing.numbers.push((test.field.clone(), number.saturating_add(more)))
                }
                (false, None) => thing.numbers.push((test.field.clone(), more)),
            }
        }
        things.push(thing);
    }
    things
}

fn has_a_place(fault: &Fault, bytes: &[u8]) {
    assert!(fault.at <= bytes.len(), "{fault}");
    assert!(!fault.found.is_empty() && !fault.expected.is_empty(), "{fault:?}");
    let marked = fault.marked(bytes);
    let lines: Vec<&str> = marked.split('\n').collect();
    assert!(lines.len() == 2 && !marked.contains('\r'), "{marked:?}");
    let indent = lines[1].find('^');
    assert!(indent.is_some_and(|indent| indent <= lines[0].chars().count()), "{marked}");
    assert!(lines[1].trim_start().starts_with('^'), "{marked}");
}
