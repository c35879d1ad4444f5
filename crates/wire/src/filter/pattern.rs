//! A pattern that is looked for in bytes, in linear time.
//!
//! A small one becomes a table of its states and what each byte leads to (a DFA); of a larger one that table is made
//! while it runs, within a bound, and where the bound is met too often its states are simulated. None of the three goes
//! back in what it reads.

use regex_automata::{
    meta,
    nfa::thompson::{self, WhichCaptures},
    util::syntax,
};

use super::Fault;

/// Groups of a pattern within each other.
const GROUPS_DEEP_MAX: u32 = 64;
/// What one pattern may take, compiled to states. The longest that shops send, some 330 tags, takes half of it.
const STATES_BYTES_MAX: usize = 256 << 10;
/// The largest pattern, in states and bytes, that becomes a table when it is parsed.
const TABLE_STATES_MAX: usize = 500;
const TABLE_BYTES_MAX: usize = 512 << 10;
/// What the table of a larger one may grow to while it runs, in each direction.
const LAZY_BYTES_MAX: usize = 512 << 10;
/// Working memory for each state of any: twice a set of states, with room.
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
    /// # Errors
    /// Where in the text a mistake is, or that the pattern is too large.
    pub(super) fn new(text: &str) -> Result<Self, Fault> {
        let syntax = syntax::Config::new().unicode(false).utf8(false).nest_limit(GROUPS_DEEP_MAX);
        let states = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(STATES_BYTES_MAX));
        let states = thompson::Compiler::new().syntax(syntax).configure(states).build(text);
        // A mistake is told below.
        let states = states.map_or(0, |nfa| nfa.states().len());
        let is_large = states > TABLE_STATES_MAX;
        let limits = meta::Config::new()
            .utf8_empty(false)
            // A small one has its table, or (where that would be too large) its states are simulated.
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
