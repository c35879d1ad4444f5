//! Recursive-descent parser for expressions, limited to the depth [`DEPTH_MAX`].

use super::{
    AUTOMATA_BYTES_MAX, Comparison, DEPTH_MAX, EXPRESSION_BYTES_MAX, Expression, Fault, Field, Kind, Node,
    Order, TESTS_MAX, Test, fault::visible, pattern::Pattern, units,
};

/// Number of characters of a word that an error message shows.
const WORD_SHOWN: usize = 24;

pub(super) fn expression<F: Copy>(bytes: &[u8], fields: &[Field<F>]) -> Result<Expression<F>, Fault> {
    for Field { name, kind, .. } in fields {
        assert!(is_nameable(name) && (*kind == Kind::Text || !name.ends_with('*')), "no field can be {name}");
    }
    let too_long = |len| {
        let expected = format!("{EXPRESSION_BYTES_MAX} at most");
        Fault::new(bytes.len().min(EXPRESSION_BYTES_MAX), format!("an expression of {len} bytes"), expected)
    };
    if bytes.len() > EXPRESSION_BYTES_MAX {
        return Err(too_long(bytes.len()));
    }
    let text = str::from_utf8(bytes)
        .map_err(|error| Fault::new(error.valid_up_to(), "a byte that is no UTF-8", "text in UTF-8"))?;
    let mut parser =
        Parser { text, at: 0, fields, depth: 0, tests: 0, automata_bytes: 0, working_bytes_max: 0 };
    let root = parser.any()?;
    if !parser.rest().is_empty() {
        return Err(parser.unexpected("`&&`, `||` or the end"));
    }
    let Parser { automata_bytes, working_bytes_max, .. } = parser;
    let expression = Expression { root, automata_bytes, working_bytes_max };
    // Printing doubles each quote, so the printed form can be longer; the limit applies to that form too.
    let printed = expression.to_string().len();
    if printed > EXPRESSION_BYTES_MAX {
        return Err(too_long(printed));
    }
    Ok(expression)
}

struct Parser<'a, F> {
    text: &'a str,
    at: usize,
    fields: &'a [Field<F>],
    /// Number of groups and negations that enclose the current position.
    depth: usize,
    tests: usize,
    automata_bytes: usize,
    working_bytes_max: usize,
}

/// The operand of an operator, with doubled quotes undone.
struct Value {
    /// Offset of the value's first byte, after its opening quote if it has one.
    at: usize,
    is_quoted: bool,
    text: String,
}

impl Value {
    /// Maps an offset in the value's text to an offset in the expression, where each quote is doubled.
    fn place(&self, at: usize) -> usize {
        let doubled = self.text.bytes().take(at).filter(|byte| self.is_quoted && *byte == b'"').count();
        self.at + at + doubled
    }
}

impl<'a, F: Copy> Parser<'a, F> {
    fn any(&mut self) -> Result<Node<F>, Fault> {
        let mut nodes = Vec::new();
        loop {
            match self.all()? {
                Node::Any(more) => nodes.extend(more),
                node => nodes.push(node),
            }
            if !self.takes("||", "or") {
                return Ok(one_or(nodes, Node::Any));
            }
        }
    }

    fn all(&mut self) -> Result<Node<F>, Fault> {
        let mut nodes = Vec::new();
        loop {
            match self.term()? {
                Node::All(more) => nodes.extend(more),
                node => nodes.push(node),
            }
            if !self.takes("&&", "and") {
                return Ok(one_or(nodes, Node::All));
            }
        }
    }

    fn term(&mut self) -> Result<Node<F>, Fault> {
        let (mut is_negation, mut is_negated) = (false, false);
        while self.takes("!", "not") {
            (is_negation, is_negated) = (true, !is_negated);
        }
        let is_group = self.rest().starts_with('(');
        // A negation counts as a level, because it is printed with parentheses.
        if (is_group || is_negation) && self.depth == DEPTH_MAX {
            return Err(self.unexpected(format!("{DEPTH_MAX} groups within each other at most")));
        }
        let node = if is_group { self.group()? } else { Node::Test(self.test()?) };
        Ok(match node {
            node if !is_negated => node,
            Node::Not(node) => *node,
            node => Node::Not(Box::new(node)),
        })
    }

    fn group(&mut self) -> Result<Node<F>, Fault> {
        let opened = self.at;
        self.at += 1;
        self.depth += 1;
        let node = self.any()?;
        self.depth -= 1;
        if !self.rest().starts_with(')') {
            return Err(self.unexpected(format!("`&&`, `||` or the `)` of the `(` at byte {opened}")));
        }
        self.at += 1;
        Ok(node)
    }

    fn test(&mut self) -> Result<Test<F>, Fault> {
        self.tests += 1;
        if self.tests > TESTS_MAX {
            let found = format!("a {}th test", self.tests);
            return Err(Fault::new(self.at, found, format!("{TESTS_MAX} at most")));
        }
        let (field, name) = self.field()?;
        let rest = self.rest();
        let symbol = &rest[..rest.find(|c| !"=!~<>".contains(c)).unwrap_or(rest.len())];
        let order = Order::ALL.into_iter().find(|order| order.symbol == symbol);
        let comparison = match (symbol, field.kind, order) {
            ("~" | "!~", Kind::Text | Kind::Number, _) => {
                Comparison::Pattern { found: symbol == "~", pattern: self.pattern(symbol)? }
            }
            ("==" | "!=", Kind::Text, _) => {
                Comparison::Text { equal: symbol == "==", text: self.value(symbol)?.text.into() }
            }
            (_, Kind::Number | Kind::Bytes | Kind::Duration, Some(order)) => {
                let value = self.value(symbol)?;
                let number = units::parse(&value.text, field.kind)
                    .ok_or_else(|| Fault::new(value.at, shown(&value.text), units::example(field.kind)))?;
                Comparison::Number { order, number }
            }
            _ => return Err(self.unexpected(operators(field.kind))),
        };
        Ok(Test { field, name: name.to_ascii_lowercase().into(), comparison })
    }

    /// Reads a field name, and returns the field and the text in place of its `*`.
    fn field(&mut self) -> Result<(Field<F>, &'a str), Fault> {
        let name = name(self.rest());
        if name.is_empty() {
            return Err(self.unexpected("a field, `!` or `(`"));
        }
        let of_name = |field: &Field<F>| match field.name.strip_suffix('*') {
            Some(prefix) => name.strip_prefix(prefix).map(|rest| (*field, rest)),
            None => (field.name == name).then_some((*field, "")),
        };
        match self.fields.iter().find_map(of_name) {
            Some((field, "")) if field.name.ends_with('*') => {
                Err(Fault::new(self.at, shown(name), format!("a name in place of `*` in `{}`", field.name)))
            }
            Some(found) => {
                self.at += name.len();
                Ok(found)
            }
            None => {
                let names: Vec<&str> = self.fields.iter().map(|field| field.name).collect();
                Err(Fault::new(self.at, shown(name), format!("one of the fields {}", names.join(", "))))
            }
        }
    }

    fn pattern(&mut self, symbol: &str) -> Result<Pattern, Fault> {
        let value = self.value(symbol)?;
        let pattern =
            Pattern::new(&value.text).map_err(|fault| Fault { at: value.place(fault.at), ..fault })?;
        self.automata_bytes += pattern.bytes();
        self.working_bytes_max += pattern.working_bytes_max();
        if self.automata_bytes > AUTOMATA_BYTES_MAX {
            let found = format!("patterns that take {} bytes compiled", self.automata_bytes);
            return Err(Fault::new(value.at, found, format!("{AUTOMATA_BYTES_MAX} at most")));
        }
        Ok(pattern)
    }

    /// Reads the value after an operator. A blank is required: otherwise `req.url ==/a&&obj.status ==200`
    /// would compare the URL with the whole rest of the expression.
    fn value(&mut self, symbol: &str) -> Result<Value, Fault> {
        self.at += symbol.len();
        let operator_end = self.at;
        let rest = self.rest();
        if let Some(quoted) = rest.strip_prefix('"') {
            return self.quoted(quoted);
        }
        if self.at == operator_end && !rest.is_empty() {
            return Err(self.unexpected(format!("a blank after `{symbol}`")));
        }
        let text = &rest[..word_len(rest, self.depth > 0)];
        if matches!(text, "" | "&&" | "||") {
            return Err(self.unexpected("a value"));
        }
        let value = Value { at: self.at, is_quoted: false, text: text.to_owned() };
        self.at += text.len();
        Ok(value)
    }

    /// Reads a quoted value; `text` begins after the opening quote. The value ends at the first quote that is
    /// not doubled.
    fn quoted(&mut self, text: &str) -> Result<Value, Fault> {
        let mut len = 0;
        loop {
            match text[len..].find('"') {
                Some(at) if text[len + at + 1..].starts_with('"') => len += at + 2,
                Some(at) => {
                    len += at;
                    break;
                }
                None => {
                    return Err(Fault::new(self.at, "a quote that is not closed", "another `\"` behind it"));
                }
            }
        }
        let value = Value { at: self.at + 1, is_quoted: true, text: text[..len].replace("\"\"", "\"") };
        self.at += len + 2;
        Ok(value)
    }

    /// Skips blanks and returns the rest of the expression.
    fn rest(&mut self) -> &'a str {
        let rest = self.text[self.at..].trim_ascii_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    /// Consumes the symbol or the word if it comes next, and returns whether it did.
    fn takes(&mut self, symbol: &str, word: &str) -> bool {
        let rest = self.rest();
        let taken = match rest.strip_prefix(symbol) {
            Some(_) => symbol.len(),
            None if name(rest) == word => word.len(),
            None => 0,
        };
        self.at += taken;
        taken > 0
    }

    fn unexpected(&mut self, expected: impl Into<String>) -> Fault {
        let rest = self.rest();
        let word = &rest[..word_len(rest, false)];
        Fault::new(self.at, if word.is_empty() { "the end".to_owned() } else { shown(word) }, expected)
    }
}

/// Returns whether the grammar allows `field` as a field name.
fn is_nameable(field: &str) -> bool {
    let fixed = field.strip_suffix('*').unwrap_or(field);
    !matches!(fixed, "" | "and" | "or" | "not") && name(fixed) == fixed
}

fn one_or<F>(mut nodes: Vec<Node<F>>, many: fn(Vec<Node<F>>) -> Node<F>) -> Node<F> {
    if nodes.len() == 1 { nodes.swap_remove(0) } else { many(nodes) }
}

fn operators(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "`==`, `!=`, `~` or `!~`",
        Kind::Number => "`==`, `!=`, `<`, `<=`, `>`, `>=`, `~` or `!~`",
        Kind::Bytes | Kind::Duration => "`==`, `!=`, `<`, `<=`, `>` or `>=`",
    }
}

/// Returns the longest prefix that is a name, which may also be `and`, `or` or `not`.
fn name(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    &text[..text.find(|c| !is_part(c)).unwrap_or(text.len())]
}

/// Returns the length of a text's first word. Inside a group, a `)` without a matching `(` ends the word.
fn word_len(text: &str, is_in_group: bool) -> usize {
    let (mut opened, mut is_escaped) = (0_usize, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if byte.is_ascii_whitespace() => return at,
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'(' => opened += 1,
            b')' if opened > 0 => opened -= 1,
            b')' if is_in_group => return at,
            _ => {}
        }
    }
    text.len()
}

/// Formats a word for an error message, shortened and in backticks.
fn shown(word: &str) -> String {
    let cut = if word.chars().nth(WORD_SHOWN).is_some() { "…" } else { "" };
    let shown: String = word.chars().take(WORD_SHOWN).map(visible).collect();
    format!("`{shown}{cut}`")
}
