//! The file's grammar: `key: value`, `key = value` or `key value`, in blocks and lists, with comments.
//!
//! As nats-server's `conf` package reads it: separators are line ends, commas and semicolons; strings in either quotes
//! or bare; numbers may carry a size (`1MB`, `64k`); a list or block may stand anywhere a value may. `include` and
//! `$variables` are faults here: a file is complete in itself.

/// Blocks and lists within each other.
const DEPTH_MAX: usize = 16;

/// What is wrong in the file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Fault {
    pub(super) fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: Located,
}

/// A value and the line on which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Located {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Quoted or bare; numbers and booleans are read from it where they are wanted.
    Text(String),
    Block(Vec<Entry>),
    List(Vec<Located>),
}

/// Reads a whole file.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, Fault> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0, line: 1 };
    reader.skip(true);
    // JSON puts a bracket around it all.
    if reader.peek() != Some(b'{') {
        return reader.entries(None, 0);
    }
    reader.step();
    let entries = reader.entries(Some(b'}'), 0)?;
    reader.skip(true);
    if reader.peek().is_some() {
        return Err(Fault::new(reader.line, "something comes after the end"));
    }
    Ok(entries)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn step(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    /// Past blanks and comments, and past separators and line ends if `all`.
    fn skip(&mut self, all: bool) {
        while let Some(byte) = self.peek() {
            let is_comment = byte == b'#' || self.bytes[self.at..].starts_with(b"//");
            match byte {
                _ if is_comment => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.step();
                    }
                }
                b' ' | b'\t' | b'\r' => self.step(),
                b'\n' | b',' | b';' if all => self.step(),
                _ => break,
            }
        }
    }

    /// Entries up to the bracket `end`, or to the end of the file.
    fn entries(&mut self, end: Option<u8>, depth: usize) -> Result<Vec<Entry>, Fault> {
        let mut entries = Vec::new();
        let opened = self.line;
        loop {
            self.skip(true);
            match (self.peek(), end) {
                (None, None) => return Ok(entries),
                (None, Some(_)) => return Err(Fault::new(opened, "a block that begins here does not end")),
                (Some(byte), Some(end)) if byte == end => {
                    self.step();
                    return Ok(entries);
                }
                (Some(b'}' | b']'), _) => return Err(Fault::new(self.line, "a bracket that closes nothing")),
                _ => {}
            }
            let line = self.line;
            let key = self.word(true)?;
            if key == "include" {
                return Err(Fault::new(line, "`include` is not supported: put it all into one file"));
            }
            self.skip(false);
            if matches!(self.peek(), Some(b':' | b'=')) {
                self.step();
                self.skip(false);
            }
            if matches!(self.peek(), None | Some(b'\n' | b',' | b';' | b'}')) {
                return Err(Fault::new(line, format!("`{key}` has no value")));
            }
            let value = self.value(depth)?;
            entries.push(Entry { line, key, value });
        }
    }

    fn value(&mut self, depth: usize) -> Result<Located, Fault> {
        let line = self.line;
        if depth >= DEPTH_MAX {
            return Err(Fault::new(line, format!("more than {DEPTH_MAX} brackets within each other")));
        }
        let value = match self.peek() {
            Some(b'{') => {
                self.step();
                Value::Block(self.entries(Some(b'}'), depth + 1)?)
            }
            Some(b'[') => {
                self.step();
                let mut list = Vec::new();
                loop {
                    self.skip(true);
                    match self.peek() {
                        None => return Err(Fault::new(line, "a list that begins here does not end")),
                        Some(b']') => {
                            self.step();
                            break Value::List(list);
                        }
                        _ => list.push(self.value(depth + 1)?),
                    }
                }
            }
            Some(b'$') if !self.is_hash() => {
                return Err(Fault::new(line, "$variables are not supported: write the value"));
            }
            _ => Value::Text(self.word(false)?),
        };
        Ok(Located { line, value })
    }

    /// nats-server takes a bare bcrypt hash for what it is.
    fn is_hash(&self) -> bool {
        self.bytes[self.at..].starts_with(b"$2")
    }

    /// A quoted or bare word. A bare key also ends at `:` and `=`.
    fn word(&mut self, is_key: bool) -> Result<String, Fault> {
        let line = self.line;
        let quote = self.peek().filter(|byte| matches!(byte, b'"' | b'\''));
        let mut word = Vec::new();
        if let Some(quote) = quote {
            self.step();
            loop {
                match self.peek() {
                    None | Some(b'\n') => {
                        return Err(Fault::new(line, "a quote that does not end on its line"));
                    }
                    Some(byte) if byte == quote => {
                        self.step();
                        break;
                    }
                    Some(b'\\') if quote == b'"' => {
                        self.step();
                        let escaped = self.peek();
                        word.push(match escaped {
                            Some(b'n') => b'\n',
                            Some(b't') => b'\t',
                            Some(b'r') => b'\r',
                            Some(byte @ (b'"' | b'\\' | b'\'')) => byte,
                            _ => return Err(Fault::new(line, "after \\ comes n, t, r, \\ or a quote")),
                        });
                        self.step();
                    }
                    Some(byte) => {
                        word.push(byte);
                        self.step();
                    }
                }
            }
        } else {
            while let Some(byte) = self.peek() {
                let ends = match byte {
                    b'\n' | b'\r' | b',' | b';' | b'{' | b'}' | b'[' | b']' | b'"' | b'\'' | b' ' | b'\t' => {
                        true
                    }
                    b':' | b'=' => is_key,
                    b'#' => word.is_empty(),
                    _ => false,
                };
                if ends {
                    break;
                }
                word.push(byte);
                self.step();
            }
            if word.is_empty() {
                return Err(Fault::new(line, "a word is wanted here"));
            }
        }
        String::from_utf8(word).map_err(|_| Fault::new(line, "not text in UTF-8"))
    }
}
