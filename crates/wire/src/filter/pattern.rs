//! Pattern search in bytes, in linear time.
//!
//! A small pattern is compiled to a table of states and transitions (a DFA). The table of a larger pattern is
//! built lazily during the search, up to a size limit; if the limit is hit too often, the NFA is simulated
//! instead. None of these methods backtracks.

use regex_automata::{
    meta,
    nfa::thompson::{self, WhichCaptures},
    util::syntax,
};

use super::Fault;

/// Maximum nesting depth of a pattern's groups.
const GROUPS_DEEP_MAX: u32 = 64;
/// Maximum size of the NFA compiled from one pattern. The longest pattern that shops send, with some 330
/// tags, takes half of this size.
const STATES_BYTES_MAX: usize = 256 << 10;
/// Maximum number of NFA states for which a full DFA table is built at parse time; `TABLE_BYTES_MAX` is the
/// maximum size of that table.
const TABLE_STATES_MAX: usize = 500;
const TABLE_BYTES_MAX: usize = 512 << 10;
/// Maximum size of the lazily built DFA table of a larger pattern, for each of two search directions.
const LAZY_BYTES_MAX: usize = 512 << 10;
/// Estimated working memory for each NFA state: two sets of states, with some slack.
const STATE_WORKING_BYTES: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Pattern {
    text: Box<str>,
    automaton: meta::Regex,
    working_bytes_max: usize,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Returns a [`Fault`] at the offset of a syntax error, or one saying that the pattern is too large.
    pub(super) fn new(text: &str) -> Result<Self, Fault> {
        let syntax = syntax::Config::new().unicode(false).utf8(false).nest_limit(GROUPS_DEEP_MAX);
        let states = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(STATES_BYTES_MAX));
        let states = thompson::Compiler::new().syntax(syntax).configure(states).build(text);
        // A syntax error here counts as zero states; the build below reports it.
        let states = states.map_or(0, |nfa| nfa.states().len());
        let is_large = states > TABLE_STATES_MAX;
        let limits = meta::Config::new()
            .utf8_empty(false)
            // A small pattern uses a full DFA table, or NFA simulation if that table would be too large.
            .hybrid(is_large)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(STATES_BYTES_MAX))
            .dfa_state_limit(Some(TABLE_STATES_MAX))
            .dfa_size_limit(Some(TABLE_BYTES_MAX))
            .hybrid_cache_capacity(LAZY_BYTES_MAX);
        let automaton = meta::Builder::new().syntax(syntax).configure(limits).build(text);
        let automaton = automaton.map_err(|error| fault(&error))?;
        let large_bytes = if is_large { 2 * LAZY_BYTES_MAX } else { 0 };
        Ok(Self {
            text: text.into(),
            automaton,
            working_bytes_max: STATE_WORKING_BYTES * states + large_bytes,
        })
    }

    pub(super) fn working_bytes_max(&self) -> usize {
        self.working_bytes_max
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn bytes(&self) -> usize {
        self.automaton.memory_usage()
    }

    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        self.automaton.is_match(bytes)
    }
}

fn fault(error: &meta::BuildError) -> Fault {
    let (at, mistake) = match error.syntax_error() {
        Some(regex_syntax::Error::Parse(error)) => (error.span().start.offset, error.kind().to_string()),
        Some(regex_syntax::Error::Translate(error)) => (error.span().start.offset, error.kind().to_string()),
        _ => {
            let found = format!("a pattern that takes more than {STATES_BYTES_MAX} bytes compiled");
            return Fault::new(0, found, "a smaller one");
        }
    };
    let expected = "a regular expression over bytes, without look-around and back-references";
    Fault::new(at, format!("a mistake in the pattern ({mistake})"), expected)
}
