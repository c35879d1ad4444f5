//! Syntax of the file: `key: value`, `key = value` or `key value`, in blocks and lists, with comments.
//!
//! The syntax is that of nats-server's `conf` package. Separators are line ends, commas and semicolons.
//! Strings are in single or double quotes, or bare. Numbers may have a unit (`1MB`, `64k`). A list or block
//! may appear wherever a value may.
//!
//! ```text
//!   include ./users.conf     its entries are inserted here; every path, even an absolute one, is relative to the directory of
//!                            the including file (as in nats-server, which joins the two)
//!   PORT: 4222               a variable:
//!   listen: $PORT            looked up in this block, then in the blocks around it, then in the environment; an included
//!                            file does not see the variables around its `include`
//! ```
//! *Bounds*, for untrusted files: [`DEPTH_MAX`] nested blocks, [`INCLUDES_DEEP_MAX`] nested files,
//! [`FILES_MAX`] files, and [`VALUES_MAX`] values, each counted every time a variable repeats it.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

/// Maximum number of nested blocks and lists.
const DEPTH_MAX: usize = 16;
/// Maximum depth of nested includes; a file that includes itself also exceeds it.
const INCLUDES_DEEP_MAX: usize = 16;
/// Maximum number of files in one configuration, including the included ones.
const FILES_MAX: usize = 256;
/// Maximum number of values in all files; a value that variables repeat is counted each time.
const VALUES_MAX: usize = 1 << 20;

/// Environment of a file: other files, variables and host names.
pub trait Surroundings {
    /// Reads an included file.
    ///
    /// # Errors
    /// A description of why the file cannot be read.
    fn file(&self, path: &Path) -> Result<String, String>;

    /// Returns the value of an environment variable, if it is set.
    fn variable(&self, name: &str) -> Option<String>;

    /// Resolves a host name.
    ///
    /// # Errors
    /// A description of why the name cannot be resolved.
    fn address_of(&self, name: &str) -> Result<IpAddr, String>;
}

/// Error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Included file that contains the error; `None` for the main file.
    pub file: Option<PathBuf>,
    /// Line of the error, counted from 1.
    pub line: usize,
    /// Describes the error and what would be valid instead.
    pub message: String,
    at: Line,
}

impl std::error::Error for Fault {}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}, ", file.display())?;
        }
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl Fault {
    pub(super) fn new(at: Line, message: impl Into<String>) -> Self {
        Self { file: None, line: at.number as usize, message: message.into(), at }
    }

    /// Returns this error with the name of its file.
    pub(super) fn placed(mut self, files: &Files) -> Self {
        self.file = files.name(self.at);
        self
    }
}

/// A line in one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Index of the file in [`Files`].
    pub(super) file: u16,
    /// Line number, counted from 1.
    pub(super) number: u32,
}

/// Paths of the files that were read, starting with the main file.
#[derive(Debug, Default)]
pub(super) struct Files(Vec<PathBuf>);

impl Files {
    /// Returns the path of the file that contains a line; `None` for the main file.
    pub(super) fn name(&self, at: Line) -> Option<PathBuf> {
        self.0.get(usize::from(at.file)).filter(|_| at.file > 0).cloned()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) line: Line,
    pub(super) key: String,
    pub(super) value: LocatedValue,
    /// The entry is used as a variable, so its key need not be an option.
    pub(super) is_variable: bool,
}

/// A value and the line on which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LocatedValue {
    pub(super) line: Line,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A quoted or bare string; numbers and booleans are parsed from it when they are read.
    Text(String),
    Block(Vec<Entry>),
    List(Vec<LocatedValue>),
}

impl Value {
    /// Returns the number of values in this value, including itself.
    fn count(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Block(entries) => 1 + entries.iter().map(|entry| entry.value.value.count()).sum::<usize>(),
            Self::List(list) => 1 + list.iter().map(|one| one.value.count()).sum::<usize>(),
        }
    }

    /// Sets the line of the value, so that errors in it are reported where the variable is used.
    fn at(self, line: Line) -> LocatedValue {
        LocatedValue { line, value: self }
    }
}

/// Parses a file and the files that it includes. `path` is the location of `text`.
pub(super) fn parse(
    text: &str,
    path: &Path,
    around: &dyn Surroundings,
) -> (Result<Vec<Entry>, Fault>, Files) {
    let mut all = All { around, files: Files(vec![path.to_owned()]), values: 0 };
    let entries = Reader::new(text, 0).whole(&mut all);
    (entries, all.files)
}

/// State shared by all files of a configuration.
struct All<'a> {
    around: &'a dyn Surroundings,
    files: Files,
    values: usize,
}

impl All<'_> {
    fn count(&mut self, values: usize, line: Line) -> Result<(), Fault> {
        self.values += values;
        if self.values > VALUES_MAX {
            let message =
                format!("too many values: more than {VALUES_MAX}, each repetition by a variable counted");
            return Err(Fault::new(line, message));
        }
        Ok(())
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    line: Line,
    /// Depth of the includes that led to this file.
    included: usize,
    /// Entries parsed so far in each enclosing block.
    scopes: Vec<Vec<Entry>>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, file: u16) -> Self {
        let line = Line { file, number: 1 };
        Self { bytes: text.as_bytes(), at: 0, line, included: 0, scopes: Vec::new() }
    }

    fn whole(&mut self, all: &mut All<'_>) -> Result<Vec<Entry>, Fault> {
        self.skip(true);
        // A file in JSON format is enclosed in braces.
        if self.peek() != Some(b'{') {
            return self.entries(None, 0, all);
        }
        self.step();
        let entries = self.entries(Some(b'}'), 0, all)?;
        self.skip(true);
        if self.peek().is_some() {
            return Err(Fault::new(self.line, "unexpected text after the end"));
        }
        Ok(entries)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn step(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line.number += 1;
        }
        self.at += 1;
    }

    /// Skips spaces and comments; if `all`, also separators and line ends.
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

    /// Parses entries up to the closing bracket `end`, or to the end of the file.
    fn entries(&mut self, end: Option<u8>, depth: usize, all: &mut All<'_>) -> Result<Vec<Entry>, Fault> {
        let opened = self.line;
        self.scopes.push(Vec::new());
        loop {
            self.skip(true);
            match (self.peek(), end) {
                (None, None) => break,
                (None, Some(_)) => return Err(Fault::new(opened, "unclosed block that begins here")),
                (Some(byte), Some(end)) if byte == end => {
                    self.step();
                    break;
                }
                (Some(b'}' | b']'), _) => return Err(Fault::new(self.line, "unmatched closing bracket")),
                _ => {}
            }
            let line = self.line;
            let key = self.word(true)?;
            self.skip(false);
            if key == "include" && !matches!(self.peek(), Some(b':' | b'=')) {
                let entries = self.include(all)?;
                self.scope().extend(entries);
                continue;
            }
            if matches!(self.peek(), Some(b':' | b'=')) {
                self.step();
                self.skip(false);
            }
            if matches!(self.peek(), None | Some(b'\n' | b',' | b';' | b'}')) {
                return Err(Fault::new(line, format!("`{key}` has no value")));
            }
            let value = self.value(depth, all)?;
            let entry = Entry { line, key, value, is_variable: false };
            self.scope().push(entry);
        }
        Ok(self.scopes.pop().unwrap_or_default())
    }

    /// Returns the entries of the block that is being parsed.
    fn scope(&mut self) -> &mut Vec<Entry> {
        match self.scopes.last_mut() {
            Some(scope) => scope,
            None => unreachable!("entries are read within a scope"),
        }
    }

    /// Parses an included file, whose entries take the place of the `include`.
    fn include(&mut self, all: &mut All<'_>) -> Result<Vec<Entry>, Fault> {
        let line = self.line;
        let name = self.word(false)?;
        if self.included >= INCLUDES_DEEP_MAX {
            let message =
                format!("more than {INCLUDES_DEEP_MAX} nested includes: does a file include itself?");
            return Err(Fault::new(line, message));
        }
        let number = u16::try_from(all.files.0.len()).ok().filter(|_| all.files.0.len() < FILES_MAX);
        let number = number.ok_or_else(|| Fault::new(line, format!("more than {FILES_MAX} files")))?;
        let directory = all.files.0.get(usize::from(self.line.file)).and_then(|path| path.parent());
        // An absolute path is also relative to the including file's directory, as in nats-server; existing
        // configurations rely on this.
        let path = directory.unwrap_or(Path::new("")).join(name.trim_start_matches('/'));
        let path: PathBuf = path.components().collect();
        let text = all.around.file(&path).map_err(|why| Fault::new(line, format!("`{name}`: {why}")))?;
        all.files.0.push(path);
        let mut reader = Reader { included: self.included + 1, ..Reader::new(&text, number) };
        reader.whole(all)
    }

    fn value(&mut self, depth: usize, all: &mut All<'_>) -> Result<LocatedValue, Fault> {
        let line = self.line;
        if depth >= DEPTH_MAX {
            return Err(Fault::new(line, format!("more than {DEPTH_MAX} nested brackets")));
        }
        all.count(1, line)?;
        let value = match self.peek() {
            Some(b'{') => {
                self.step();
                Value::Block(self.entries(Some(b'}'), depth + 1, all)?)
            }
            Some(b'[') => {
                self.step();
                let mut list = Vec::new();
                loop {
                    self.skip(true);
                    match self.peek() {
                        None => return Err(Fault::new(line, "unclosed list that begins here")),
                        Some(b']') => {
                            self.step();
                            break Value::List(list);
                        }
                        _ => list.push(self.value(depth + 1, all)?),
                    }
                }
            }
            Some(b'$') if !self.is_hash() => {
                self.step();
                let name = self.word(false)?;
                return self.variable(&name, line, all);
            }
            _ => Value::Text(self.word(false)?),
        };
        Ok(value.at(line))
    }

    /// Returns the value of a variable, from the innermost block that has set it earlier or from the
    /// environment.
    fn variable(&mut self, name: &str, line: Line, all: &mut All<'_>) -> Result<LocatedValue, Fault> {
        // If a name occurs twice, the last entry counts, as for options.
        let mut scopes = self.scopes.iter_mut().rev();
        if let Some(entry) = scopes.find_map(|scope| scope.iter_mut().rfind(|entry| entry.key == name)) {
            entry.is_variable = true;
            all.count(entry.value.value.count(), line)?;
            return Ok(entry.value.value.clone().at(line));
        }
        let Some(text) = all.around.variable(name) else {
            let message = format!("`${name}` is defined neither before in this file nor in the environment");
            return Err(Fault::new(line, message));
        };
        if self.included >= INCLUDES_DEEP_MAX {
            return Err(Fault::new(line, format!("`${name}` of the environment refers to itself")));
        }
        let mut reader = Reader { included: self.included + 1, ..Reader::new(&text, line.file) };
        let value = reader
            .value(0, all)
            .map_err(|fault| Fault::new(line, format!("`${name}` of the environment: {}", fault.message)))?;
        Ok(value.value.at(line))
    }

    /// Returns whether a bare bcrypt hash starts here, which nats-server does not treat as a variable.
    fn is_hash(&self) -> bool {
        self.bytes[self.at..].starts_with(b"$2")
    }

    /// Parses a quoted or bare string. A bare key also ends at `:` and `=`.
    fn word(&mut self, is_key: bool) -> Result<String, Fault> {
        let line = self.line;
        let word = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote)?,
            _ => self.bare(is_key)?,
        };
        String::from_utf8(word).map_err(|_| Fault::new(line, "invalid UTF-8"))
    }

    /// Parses a string up to its closing quote, on one line. Between double quotes, a backslash escapes.
    fn quoted(&mut self, quote: u8) -> Result<Vec<u8>, Fault> {
        let line = self.line;
        let mut word = Vec::new();
        self.step();
        loop {
            match self.peek() {
                None | Some(b'\n') => return Err(Fault::new(line, "a quote is not closed on its line")),
                Some(byte) if byte == quote => {
                    self.step();
                    return Ok(word);
                }
                Some(b'\\') if quote == b'"' => {
                    self.step();
                    word.push(self.escaped(line)?);
                }
                Some(byte) => word.push(byte),
            }
            self.step();
        }
    }

    /// Returns the byte that the character after a backslash stands for.
    fn escaped(&self, line: Line) -> Result<u8, Fault> {
        match self.peek() {
            Some(b'n') => Ok(b'\n'),
            Some(b't') => Ok(b'\t'),
            Some(b'r') => Ok(b'\r'),
            Some(byte @ (b'"' | b'\\' | b'\'')) => Ok(byte),
            _ => Err(Fault::new(line, "\\ must be followed by n, t, r, \\ or a quote")),
        }
    }

    /// Parses a string without quotes, which has at least one byte.
    fn bare(&mut self, is_key: bool) -> Result<Vec<u8>, Fault> {
        let mut word = Vec::new();
        while let Some(byte) = self.peek() {
            let ends = match byte {
                b'\n' | b'\r' | b',' | b';' | b'{' | b'}' | b'[' | b']' | b'"' | b'\'' | b' ' | b'\t' => true,
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
            return Err(Fault::new(self.line, "expected a word"));
        }
        Ok(word)
    }
}
