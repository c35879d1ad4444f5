//! Filter expressions over the fields of a record: used for bans, the list of stored objects and the log.
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
//! The language is that of Varnish's bans (`std.ban()` in vmod_std(3)) with `or`, `not` and groups. Outside a
//! group, a word is delimited exactly as in Varnish, so shops may send `((^|,)cat_p_1(,|$))` without quotes.
//! The differences and their reasons: `docs/decisions/033-filter-expressions.md`.
//!
//! The caller passes a table of the fields that exist ([`Field`]), and a [`Record`] supplies their values.
//! The field's [`Kind`] decides which operators apply: `==` and `!=` to all, `~` and `!~` (the pattern is
//! found or is not found) to text and numbers, `<`, `<=`, `>`, `>=` to all kinds except text.
//!
//! *A missing field* behaves as in Varnish 7: only `!=` is true of it; `!~` is false. A header with several
//! lines equals a text if one of its lines equals it, and a pattern is searched for in each line.
//!
//! *Patterns* take time linear in the length of the text searched, and work on bytes: `.`, `\w` and `(?i)`
//! match ASCII only. [`Expression::matches`] does not allocate after its first run: the automaton of a small
//! pattern is a table, and only the automaton of a large pattern is built lazily, up to a size limit. Each
//! core evaluates its own clone: a pattern's working memory is behind a lock for every thread but the first
//! that uses it.

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

/// Maximum length of an expression, both as received and as printed. Shops send patterns of less than 8 KiB,
/// because Varnish rejects longer header lines (`http_req_hdr_len`).
pub const EXPRESSION_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of tests in one expression.
pub const TESTS_MAX: usize = 64;
/// Maximum nesting depth of groups and negations.
pub const DEPTH_MAX: usize = 16;
/// Maximum memory for the compiled automata of one expression.
pub const AUTOMATA_BYTES_MAX: usize = 4 << 20;

/// A field that expressions may name.
#[derive(Debug, Clone, Copy)]
pub struct Field<F> {
    /// Field name: letters, digits, `.`, `-` and `_`, but not `and`, `or` or `not`. In a text field a
    /// trailing `*` matches any name: `obj.http.*` covers every header.
    pub name: &'static str,
    /// Identifier that is passed to [`Record`] to look up the field's values.
    pub id: F,
    /// Kind of the field's values, which decides how they are compared.
    pub kind: Kind,
    /// True if the field belongs to the request, not to the stored object.
    pub of_request: bool,
}

/// Kind of a field's values: how they are written and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes, compared case-sensitively.
    Text,
    /// A whole number. Patterns see its decimal digits, since Varnish treats a status as text: `obj.status ~
    /// ^5`.
    Number,
    /// A size, such as `64KiB` or `1.5MiB`; without a unit, bytes.
    Bytes,
    /// A duration in microseconds, such as `3h`, `90s` or `500ms`; without a unit, seconds.
    Duration,
}

/// Source of the field values that an expression is evaluated against.
pub trait Record<F> {
    /// Returns the values of a text field: none if it is missing, several if a header has several lines.
    /// `name` is the lower-case text in place of the field's `*`.
    fn texts(&self, field: F, name: &str) -> impl Iterator<Item = &[u8]>;

    /// Returns the value of a field that is not text; a duration in microseconds.
    fn number(&self, field: F) -> Option<i64>;
}

/// A parsed expression. It prints in one canonical form, which parses to an equal expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression<F> {
    root: Node<F>,
    automata_bytes: usize,
    working_bytes_max: usize,
}

impl<F: Copy> Expression<F> {
    /// Parses an expression.
    ///
    /// # Errors
    /// Returns the first [`Fault`]: a syntax error, or a bound that is exceeded.
    ///
    /// # Panics
    /// Panics if a field of the table has an invalid name.
    pub fn parse(expression: &[u8], fields: &[Field<F>]) -> Result<Self, Fault> {
        parse::expression(expression, fields)
    }

    /// Returns whether the record satisfies the expression.
    pub fn matches(&self, record: &impl Record<F>) -> bool {
        self.root.holds(record)
    }

    /// Returns whether the expression tests a field of the request, so that the stored object alone cannot
    /// decide the result.
    pub fn needs_request(&self) -> bool {
        self.root.any(&|test| test.field.of_request)
    }

    /// Returns whether `is_meant` is true for any field that the expression tests. Its arguments are the
    /// field's id and the lower-case name in place of the field's `*`.
    pub fn asks_for(&self, is_meant: impl Fn(F, &str) -> bool) -> bool {
        self.root.any(&|test| is_meant(test.field.id, &test.name))
    }

    /// Returns the memory of the compiled patterns, which all clones share. The working memory that each
    /// clone allocates on its first run is not included ([`working_bytes_max`](Self::working_bytes_max)).
    pub fn automata_bytes(&self) -> usize {
        self.automata_bytes
    }

    /// Returns the maximum size of one clone's working memory.
    pub fn working_bytes_max(&self) -> usize {
        self.working_bytes_max
    }
}

/// Syntax tree of an expression. An `All` never contains an `All`, an `Any` never an `Any`, and a `Not` never
/// a `Not`, so that expressions differing only in grouping are equal.
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
    /// Name that the expression gives in place of the field's `*`, in lower case.
    name: Box<str>,
    comparison: Comparison,
}

/// Compares fields by name: each name is unique in the table, so the id type need not be comparable.
impl<F> PartialEq for Test<F> {
    fn eq(&self, other: &Self) -> bool {
        self.field.name == other.field.name && self.name == other.name && self.comparison == other.comparison
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Comparison {
    /// Comparison of text: `==` if `equal`, otherwise `!=`.
    Text { equal: bool, text: Box<str> },
    /// Search for a pattern: `~` if `found`, otherwise `!~`.
    Pattern { found: bool, pattern: Pattern },
    /// Comparison of a number, a size or a duration.
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

/// A numeric operator, as the set of comparison outcomes for which it is true.
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
            // `Any` is the only node that binds less tightly than its surroundings, so it gets parentheses.
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

/// A value in quotes, for expressions built from request data: quotes within the value are doubled, so that
/// the value cannot end early.
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
