//! Random expressions, written in many ways and damaged, compared with their slow twin.

use std::fmt::Write as _;

use proptest::{collection::vec, prelude::*, sample::select};

use crate::{
    filter::{page, parse},
    fuzz_seeds::filter::check,
    naive_filter::{Test, Thing},
};

/// Syntax tree of an expression, with the ways to write it.
#[derive(Debug, Clone)]
enum Said {
    Test(Test),
    Not(Box<Said>),
    All(Vec<Said>),
    Any(Vec<Said>),
}

impl Said {
    fn holds(&self, thing: &Thing) -> bool {
        match self {
            Self::Test(test) => test.holds(thing),
            Self::Not(said) => !said.holds(thing),
            Self::All(all) => all.iter().all(|said| said.holds(thing)),
            Self::Any(any) => any.iter().any(|said| said.holds(thing)),
        }
    }

    /// Writes the expression; each `dice()` chooses how the next element is written.
    fn write(&self, out: &mut String, dice: &mut impl FnMut() -> u8) {
        let (said, connectives) = match self {
            Self::Test(Test { field, operator, value }) => {
                let is_bare =
                    !value.is_empty() && !value.starts_with('"') && !value.contains([' ', '(', ')']);
                let value = match dice() % 2 {
                    0 if is_bare && value != "&&" => format!(" {value} "),
                    _ => format!("{}\"{}\"", blanks(dice()), value.replace('"', "\"\"")),
                };
                let _ = write!(out, "{field}{}{operator}{value}", blanks(dice()));
                return;
            }
            Self::Not(said) => {
                out.push_str(["!", "! ", "not ", "!!! "][usize::from(dice() % 4)]);
                return said.write_group(out, dice);
            }
            Self::All(said) => (said, ["&&", " && ", " and ", "\nand\t"]),
            Self::Any(said) => (said, ["||", " || ", " or ", " or"]),
        };
        for (at, said) in said.iter().enumerate() {
            if at > 0 {
                out.push_str(connectives[usize::from(dice() % 4)]);
                // `or` needs a blank before a name.
                out.push(' ');
            }
            let needs_group =
                !matches!((self, said), (_, Self::Test(_) | Self::Not(_)) | (Self::Any(_), Self::All(_)));
            if needs_group || dice().is_multiple_of(8) {
                said.write_group(out, dice)
            } else {
                said.write(out, dice)
            }
        }
    }

    fn write_group(&self, out: &mut String, dice: &mut impl FnMut() -> u8) {
        let blank = blanks(dice());
        let _ = write!(out, "({blank}");
        self.write(out, dice);
        let _ = write!(out, "{blank})");
    }
}

fn blanks(die: u8) -> &'static str {
    ["", " ", "  ", "\t\n"][usize::from(die % 4)]
}

fn test() -> impl Strategy<Value = Said> {
    let text = (
        select(vec!["req.url", "req.http.host", "obj.http.x-type", "obj.http.x-tags", "obj.http.x-none"]),
        select(vec!["==", "!=", "~", "!~"]),
        select(vec![
            "", "a", "page", "/news", "^/news", ".", "^$", "store 2", "a\"b", "\"", "(a|p)", "&&", "or",
            "\\.png$",
        ]),
    );
    let order = || select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let time = (
        select(vec!["obj.age", "obj.ttl"]),
        order(),
        select(vec!["0", "-1s", "-500ms", "90m", "5400s", "1y"]),
    );
    let size = (Just("obj.size"), order(), select(vec!["64KiB", "65537B", "0", "1GiB"]));
    let number = (Just("obj.status"), order(), select(vec!["200", "0", "-1", "404"]));
    let status = (Just("obj.status"), select(vec!["~", "!~"]), select(vec!["^2", "4$", "."]));
    prop_oneof![text, time, size, number, status].prop_map(|(field, operator, value)| {
        let [field, operator, value] = [field, operator, value].map(str::to_owned);
        Said::Test(Test { field, operator, value })
    })
}

fn said() -> impl Strategy<Value = Said> {
    test().prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|said| Said::Not(Box::new(said))),
            vec(inner.clone(), 2..4).prop_map(Said::All),
            vec(inner, 2..4).prop_map(Said::Any),
        ]
    })
}

fn written(said: &Said, dice: &[u8]) -> String {
    let (mut out, mut dice) = (String::new(), dice.iter().copied().cycle());
    said.write(&mut out, &mut || dice.next().unwrap_or(0));
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 8_192)))]

    #[test]
    fn an_expression_means_what_its_tree_does(said in said(), dice in vec(any::<u8>(), 1..40)) {
        let text = written(&said, &dice);
        let expression = parse(&text);
        for thing in [page(), Thing::default()] {
            prop_assert_eq!(expression.matches(&thing), said.holds(&thing), "{}", text);
        }
        check(text.as_bytes());
    }

    #[test]
    fn mutated_expressions_parse_or_name_a_place(
        said in said(),
        dice in vec(any::<u8>(), 1..40),
        edits in vec((any::<prop::sample::Index>(), 0..3_u8, select(b" \"\\()!&|=~<>.-*[]{}0a\t\xff".to_vec())), 0..4),
    ) {
        let mut text = written(&said, &dice).into_bytes();
        for (index, kind, byte) in edits {
            let at = index.index(text.len());
            match kind {
                0 => text.insert(at, byte),
                1 => text[at] = byte,
                _ => text.truncate(at.max(1)),
            }
        }
        check(&text);
    }
}
