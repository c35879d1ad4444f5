//! Expressions over the fields of something: bans, the list of stored objects, the log.
//!
//! ```text
//!   req.url ~ "^/news" && obj.http.x-type == page
//!   obj.age > 3h and (obj.status == 404 or obj.status >= 500)
//!
//!   any   = all   { ("||" | "or")  all }
//!   all   = term  { ("&&" | "and") term }
//!   term  = ("!" | "not") term | "(" any ")" | test
//!   test  = field operator value              a blank or a quote comes after the operator
//!   value = '"' { any byte, a quote twice } '"' | word up to a blank; in a group also up to the group's ")"
//! ```
//! It is Varnish's language of bans (`std.ban()` in vmod_std(3)) with `or`, `not` and groups. Outside of a group a word
//! is whatever Varnish takes for one, so that `((^|,)cat_p_1(,|$))` needs no quotes, as shops send it. What differs
//! and why: `docs/decisions/033-filter-expressions.md`.
//!
//! The caller says by a table which fields there are ([`Field`]), and a [`Record`] says what they hold. The operators
//! are those of the field's [`Kind`]: `==` and `!=` for all, `~` and `!~` (a pattern is found, is not found) for text
//! and numbers, `<`, `<=`, `>`, `>=` for all but text.
//!
//! *A field that is not there* is as in Varnish 7: only `!=` holds of it, so `!~` does not. A header of several lines
//! equals what one of its lines equals, and a pattern is looked for in each line.
//!
//! *Patterns* take time linear in what they are matched with, and see bytes: `.`, `\w` and `(?i)` know ASCII alone.
//! [`Expression::matches`] does not allocate once it has run: the automaton of a small pattern is a table, and only
//! that of a large one is built while it is used, up to a bound. Each core evaluates a clone of its own: to any thread
//! but the first that uses a pattern its working memory is behind a lock.

mod fault;
mod parse;
mod pattern;
mod units;

use std::{
    cmp::Ordering,
    fmt::{self, Write as _},
};

pub use fault::Fault;
use pattern::Pattern;

/// The longest expression, as it is given and as it is printed. Shops send patterns of less than 8 KiB, because Varnish
/// takes no longer lines of a header (`http_req_hdr_len`).
pub const EXPRESSION_BYTES_MAX: usize = 16 * 1024;
/// Tests in one expression.
pub const TESTS_MAX: usize = 64;
/// Groups and negations within each other.
pub const DEPTH_MAX: usize = 16;
/// What the automata of one expression may take as they are compiled.
pub const AUTOMATA_BYTES_MAX: usize = 4 << 20;

/// A field that expressions may name.
#[derive(Debug, Clone, Copy)]
pub struct Field<F> {
    /// Letters, digits, `.`, `-` and `_`, but not `and`, `or`, `not`. A `*` at the end, if the kind is text, stands for
    /// any name: `obj.http.*` for every header.
    pub name: &'static str,
    /// By which a [`Record`] is asked for it.
    pub id: F,
    /// How its values are compared.
    pub kind: Kind,
    /// Whether it is the request's and not the stored object's.
    pub of_request: bool,
}

/// How a field's values are written and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes, of which case matters.
    Text,
    /// A whole number, to patterns its decimal digits: Varnish takes a status for text, `obj.status ~ ^5`.
    Number,
    /// A size: `64KiB`, `1.5MiB`, bytes without a unit.
    Bytes,
    /// Microseconds: `3h`, `90s`, `500ms`, seconds without a unit.
    Duration,
}

/// What an expression is asked of.
pub trait Record<F> {
    /// The values of a field of text: none if it is not there, several if a header has several lines. `name` is what
    /// stands in place of the field's `*`, in lower case.
    fn texts(&self, field: F, name: &str) -> impl Iterator<Item = &[u8]>;

    /// The value of another field, a duration in microseconds.
    fn number(&self, field: F) -> Option<i64>;
}

/// An expression that can be evaluated. Printed it reads as one way of writing it, which parses to an equal expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression<F> {
    root: Node<F>,
    automata_bytes: usize,
    working_bytes_max: usize,
}

impl<F: Copy> Expression<F> {
    /// Reads one.
    ///
    /// # Errors
    /// The first thing that is wrong, or which bound is met.
    ///
    /// # Panics
    /// If the name of a field in the table is none.
    pub fn parse(expression: &[u8], fields: &[Field<F>]) -> Result<Self, Fault> {
        parse::expression(expression, fields)
    }

    /// Whether it holds.
    pub fn matches(&self, record: &impl Record<F>) -> bool {
        self.root.holds(record)
    }

    /// Whether it cannot be told from a stored object alone.
    pub fn needs_request(&self) -> bool {
        self.root.any(&|test| test.field.of_request)
    }

    /// Whether a test is of a field that is meant, by its id and what stands in place of its `*`, in lower case.
    pub fn asks_for(&self, is_meant: impl Fn(F, &str) -> bool) -> bool {
        self.root.any(&|test| is_meant(test.field.id, &test.name))
    }

    /// What its patterns take, which all clones share; without the working memory that each clone makes when it first
    /// runs ([`working_bytes_max`](Self::working_bytes_max)).
    pub fn automata_bytes(&self) -> usize {
        self.automata_bytes
    }

    /// The most that the working memory of a clone comes to.
    pub fn working_bytes_max(&self) -> usize {
        self.working_bytes_max
    }
}

/// A chain never holds a chain of its own sort, nor a negation a negation: what means the same by that is equal.
#[derive(Debug, Clone, PartialEq)]
enum Node<F> {
    Test(Test<F>),
    Not(Box<Node<F>>),
    All(Vec<Node<F>>),
    Any(Vec<Node<F>>),
}

impl<F: Copy> Node<F> {
    fn holds(&self, record: &impl Record<F>) -> bool {
        match self {
            Self::Test(test) => test.holds(record),
            Self::Not(node) => !node.holds(record),
            Self::All(nodes) => nodes.iter().all(|node| node.holds(record)),
            Self::Any(nodes) => nodes.iter().any(|node| node.holds(record)),
        }
    }

    fn any(&self, is_meant: &impl Fn(&Test<F>) -> bool) -> bool {
        match self {
            Self::Test(test) => is_meant(test),
            Self::Not(node) => node.any(is_meant),
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().any(|node| node.any(is_meant)),
        }
    }
}

#[derive(Debug, Clone)]
struct Test<F> {
    field: Field<F>,
    /// What stands in place of the field's `*`, in lower case.
    name: Box<str>,
    comparison: Comparison,
}

/// The table gives each field one name, so that its id need not be comparable.
impl<F> PartialEq for Test<F> {
    fn eq(&self, other: &Self) -> bool {
        self.field.name == other.field.name && self.name == other.name && self.comparison == other.comparison
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Comparison {
    /// `==`, or `!=` if not `equal`.
    Text { equal: bool, text: Box<str> },
    /// `~`, or `!~` if not `found`.
    Pattern { found: bool, pattern: Pattern },
    /// The other kinds.
    Number { order: Order, number: i64 },
}

impl<F: Copy> Test<F> {
    fn holds(&self, record: &impl Record<F>) -> bool {
        let Self { field, name, comparison } = self;
        match comparison {
            Comparison::Number { order, number } => order.holds(record.number(field.id), *number),
            Comparison::Text { equal, text } => {
                let is_there = record.texts(field.id, name).any(|value| value == text.as_bytes());
                is_there == *equal
            }
            Comparison::Pattern { found, pattern } if field.kind == Kind::Number => {
                let number = record.number(field.id);
                number.is_some_and(|number| {
                    pattern.is_in(itoa::Buffer::new().format(number).as_bytes()) == *found
                })
            }
            Comparison::Pattern { found, pattern } => {
                let mut values = record.texts(field.id, name).peekable();
                values.peek().is_some() && values.any(|value| pattern.is_in(value)) == *found
            }
        }
    }
}

/// An operator between numbers: for which outcomes of a comparison it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Order {
    symbol: &'static str,
    less: bool,
    equal: bool,
    greater: bool,
    missing: bool,
}

impl Order {
    const ALL: [Self; 6] = [
        Self { symbol: "==", less: false, equal: true, greater: false, missing: false },
        Self { symbol: "!=", less: true, equal: false, greater: true, missing: true },
        Self { symbol: "<", less: true, equal: false, greater: false, missing: false },
        Self { symbol: "<=", less: true, equal: true, greater: false, missing: false },
        Self { symbol: ">", less: false, equal: false, greater: true, missing: false },
        Self { symbol: ">=", less: false, equal: true, greater: true, missing: false },
    ];

    fn holds(self, value: Option<i64>, number: i64) -> bool {
        match value.map(|value| value.cmp(&number)) {
            Some(Ordering::Less) => self.less,
            Some(Ordering::Equal) => self.equal,
            Some(Ordering::Greater) => self.greater,
            None => self.missing,
        }
    }
}

impl<F> fmt::Display for Expression<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

impl<F> fmt::Display for Node<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, connective) = match self {
            Self::Test(test) => return test.fmt(f),
            Self::Not(node) => return write!(f, "!({node})"),
            Self::All(nodes) => (nodes, " && "),
            Self::Any(nodes) => (nodes, " || "),
        };
        for (at, node) in nodes.iter().enumerate() {
            if at > 0 {
                f.write_str(connective)?;
            }
            // The only one that binds less than what is around it.
            match node {
                Self::Any(_) => write!(f, "({node})")?,
                _ => node.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl<F> fmt::Display for Test<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, name, comparison } = self;
        write!(f, "{}{name} ", field.name.trim_end_matches('*'))?;
        match comparison {
            Comparison::Text { equal, text } => {
                write!(f, "{} {}", if *equal { "==" } else { "!=" }, QuotedValue(text))
            }
            Comparison::Pattern { found, pattern } => {
                write!(f, "{} {}", if *found { "~" } else { "!~" }, QuotedValue(pattern.text()))
            }
            Comparison::Number { order, number } => {
                write!(f, "{} ", order.symbol)?;
                units::print(f, *number, field.kind)
            }
        }
    }
}

/// A value in quotes, for whoever makes an expression of what a request says: nothing in it ends the value.
#[derive(Debug, Clone, Copy)]
pub struct QuotedValue<'a>(pub &'a str);

impl fmt::Display for QuotedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for (at, piece) in self.0.split('"').enumerate() {
            f.write_str(if at > 0 { "\"\"" } else { "" })?;
            f.write_str(piece)?;
        }
        f.write_char('"')
    }
}
