//! The file's grammar: `key: value`, `key = value` or `key value`, in blocks and lists, with comments.
//!
//! As nats-server's `conf` package reads it: separators are line ends, commas and semicolons; strings in either quotes
//! or bare; numbers may carry a size (`1MB`, `64k`); a list or block may stand anywhere a value may.
//!
//! ```text
//!   include ./users.conf     its entries stand here; a file's own directory is where its includes begin, and an
//!                            absolute path begins there too (as in nats-server, which joins the two)
//!   PORT: 4222               a value for later:
//!   listen: $PORT            what this block said before, then the blocks around it, then the environment; an included
//!                            file does not see what stands around its `include`
//! ```
//! *Bounds*, for a file that somebody else wrote: [`DEPTH_MAX`] blocks and [`INCLUDES_DEEP_MAX`] files within each
//! other, [`FILES_MAX`] files, [`VALUES_MAX`] values in all, those counted that variables repeat.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

/// Blocks and lists within each other.
const DEPTH_MAX: usize = 16;
/// Files within each other; a file that includes itself meets it, too.
const INCLUDES_DEEP_MAX: usize = 16;
/// Files that one configuration consists of.
const FILES_MAX: usize = 256;
/// Values of all files, with what variables repeat.
const VALUES_MAX: usize = 1 << 20;

/// What a file refers to beside itself.
pub trait Surroundings {
    /// The text of a file that is included.
    ///
    /// # Errors
    /// Why there is none.
    fn file(&self, path: &Path) -> Result<String, String>;

    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// The address that a host's name means.
    ///
    /// # Errors
    /// Why there is none.
    fn address_of(&self, name: &str) -> Result<IpAddr, String>;
}

/// What is wrong in the file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file that it is in, if that is an included one.
    pub file: Option<PathBuf>,
    /// From 1.
    pub line: usize,
    /// What is wrong and what would be right.
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

    /// With the name of its file.
    pub(super) fn placed(mut self, files: &Files) -> Self {
        self.file = files.name(self.at);
        self
    }
}

/// A line of one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Which of [`Files`].
    pub(super) file: u16,
    /// From 1.
    pub(super) number: u32,
}

/// The files that were read: the first is the one that was asked for.
#[derive(Debug, Default)]
pub(super) struct Files(Vec<PathBuf>);

impl Files {
    /// The file of a line, unless it is the first.
    pub(super) fn name(&self, at: Line) -> Option<PathBuf> {
        self.0.get(usize::from(at.file)).filter(|_| at.file > 0).cloned()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) line: Line,
    pub(super) key: String,
    pub(super) value: LocatedValue,
    /// Some `$key` stands for it, so that it need not mean anything by itself.
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
    /// Quoted or bare; numbers and booleans are read from it where they are wanted.
    Text(String),
    Block(Vec<Entry>),
    List(Vec<LocatedValue>),
}

impl Value {
    /// How many values it consists of.
    fn count(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Block(entries) => 1 + entries.iter().map(|entry| entry.value.value.count()).sum::<usize>(),
            Self::List(list) => 1 + list.iter().map(|one| one.value.count()).sum::<usize>(),
        }
    }

    /// Says that it stands on a line, so that a fault in it is looked for where the variable is used.
    fn at(self, line: Line) -> LocatedValue {
        LocatedValue { line, value: self }
    }
}

/// Reads a whole file and those that it includes. `path` is where its own text was found.
pub(super) fn parse(
    text: &str,
    path: &Path,
    around: &dyn Surroundings,
) -> (Result<Vec<Entry>, Fault>, Files) {
    let mut all = All { around, files: Files(vec![path.to_owned()]), values: 0 };
    let entries = Reader::new(text, 0).whole(&mut all);
    (entries, all.files)
}

/// What the files of one configuration have in common.
struct All<'a> {
    around: &'a dyn Surroundings,
    files: Files,
    values: usize,
}

impl All<'_> {
    fn count(&mut self, values: usize, line: Line) -> Result<(), Fault> {
        self.values += values;
        if self.values > VALUES_MAX {
            let message = format!("more than {VALUES_MAX} values, counted as often as variables repeat them");
            return Err(Fault::new(line, message));
        }
        Ok(())
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    line: Line,
    /// Includes from the first file to this one.
    included: usize,
    /// The entries so far of each block around.
    scopes: Vec<Vec<Entry>>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, file: u16) -> Self {
        let line = Line { file, number: 1 };
        Self { bytes: text.as_bytes(), at: 0, line, included: 0, scopes: Vec::new() }
    }

    fn whole(&mut self, all: &mut All<'_>) -> Result<Vec<Entry>, Fault> {
        self.skip(true);
        // JSON puts a bracket around it all.
        if self.peek() != Some(b'{') {
            return self.entries(None, 0, all);
        }
        self.step();
        let entries = self.entries(Some(b'}'), 0, all)?;
        self.skip(true);
        if self.peek().is_some() {
            return Err(Fault::new(self.line, "something comes after the end"));
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
    fn entries(&mut self, end: Option<u8>, depth: usize, all: &mut All<'_>) -> Result<Vec<Entry>, Fault> {
        let opened = self.line;
        self.scopes.push(Vec::new());
        loop {
            self.skip(true);
            match (self.peek(), end) {
                (None, None) => break,
                (None, Some(_)) => return Err(Fault::new(opened, "a block that begins here does not end")),
                (Some(byte), Some(end)) if byte == end => {
                    self.step();
                    break;
                }
                (Some(b'}' | b']'), _) => return Err(Fault::new(self.line, "a bracket that closes nothing")),
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

    /// The block that is being read.
    fn scope(&mut self) -> &mut Vec<Entry> {
        match self.scopes.last_mut() {
            Some(scope) => scope,
            None => unreachable!("entries are read within a scope"),
        }
    }

    /// The entries of another file, which stand where its name does.
    fn include(&mut self, all: &mut All<'_>) -> Result<Vec<Entry>, Fault> {
        let line = self.line;
        let name = self.word(false)?;
        if self.included >= INCLUDES_DEEP_MAX {
            let message =
                format!("more than {INCLUDES_DEEP_MAX} files within each other: does one include itself?");
            return Err(Fault::new(line, message));
        }
        let number = u16::try_from(all.files.0.len()).ok().filter(|_| all.files.0.len() < FILES_MAX);
        let number = number.ok_or_else(|| Fault::new(line, format!("more than {FILES_MAX} files")))?;
        let directory = all.files.0.get(usize::from(self.line.file)).and_then(|path| path.parent());
        // An absolute one, too: nats-server joins them, and its users' files are written so.
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
            return Err(Fault::new(line, format!("more than {DEPTH_MAX} brackets within each other")));
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
                        None => return Err(Fault::new(line, "a list that begins here does not end")),
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

    /// What a variable stands for: the innermost block that has said it before, or the environment.
    fn variable(&mut self, name: &str, line: Line, all: &mut All<'_>) -> Result<LocatedValue, Fault> {
        // The last of a name counts, as where it is an option.
        let mut scopes = self.scopes.iter_mut().rev();
        if let Some(entry) = scopes.find_map(|scope| scope.iter_mut().rfind(|entry| entry.key == name)) {
            entry.is_variable = true;
            all.count(entry.value.value.count(), line)?;
            return Ok(entry.value.value.clone().at(line));
        }
        let Some(text) = all.around.variable(name) else {
            let message = format!("`${name}` is said neither before in this file nor in the environment");
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
