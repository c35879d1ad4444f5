//! Counts of code that is still in the old tone; they may only shrink.
//!
//! The rules are in `CONTRIBUTING.md`: a type is a noun, a function that answers yes or no begins with `is_`,
//! `has_` or `may_` and no other does, a comment's subject is a noun, a log message is a whole sentence. Each
//! constant is today's count; a change that lowers a count updates its constant here.

use std::collections::BTreeMap;

use house::{assert_stands, product};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Comments that begin with *what*, *who*, *whether* or *it*.
const COMMENTS_WITHOUT_A_NOUN: usize = 0;
/// Types that are named by a participle.
const PARTICIPLE_TYPES: usize = 0;
/// Functions that begin with `is_`, `has_` or `may_` and do not return `bool`.
const PREDICATES_WITHOUT_AN_ANSWER: usize = 0;
/// Log messages that begin with a verb in the third person.
const MESSAGES_THAT_BEGIN_WITH_A_VERB: usize = 0;

/// Files of the product with more than [`LINES_MAX`] lines, including the tests at their end.
const LONG_FILES: usize = 0;
const LINES_MAX: usize = 600;
/// Words of `ARCHITECTURE.md`, and of all decisions together.
const ARCHITECTURE_WORDS_MAX: usize = 1300;
const DECISIONS_WORDS: usize = 15_000;
/// Files at the top of the accelerator's sources.
const TOP_FILES_MAX: usize = 6;

/// First words of comments that do not name a subject.
const NO_NOUNS: [&str; 4] = ["what", "who", "whether", "it"];
/// Participles that cannot be recognized by their ending.
const IRREGULAR: [&str; 28] = [
    "Came", "Said", "Told", "Held", "Kept", "Left", "Sent", "Met", "Lent", "Put", "Found", "Gone", "Known",
    "Shown", "Given", "Taken", "Seen", "Heard", "Made", "Begun", "Done", "Bound", "Read", "Laid", "Sworn",
    "Drawn", "Built", "Thrown",
];
/// Nouns that look like participles.
const NOUNS: [&str; 27] = [
    "Coding", "Framing", "Heading", "Listing", "Setting", "Mapping", "Building", "Drawing", "Timing",
    "Rating", "Ring", "String", "Spelling", "Reading", "Meaning", "Sibling", "Routing", "Encoding", "Seed",
    "Feed", "Need", "Speed", "Screen", "Token", "Garden", "Ending", "Bed",
];
/// Verbs in the third person that begin a message without its subject.
const VERBS: [&str; 14] = [
    "is", "are", "has", "have", "was", "were", "does", "fails", "takes", "says", "stays", "goes", "comes",
    "asks",
];

#[derive(Default)]
struct Words {
    participles: Vec<String>,
    predicates: Vec<String>,
    messages: Vec<String>,
}

fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|c| c.is_ascii_lowercase());
    let has_its_form = name.ends_with("ed") || name.ends_with("en") || name.ends_with("ing");
    is_one_word && !NOUNS.contains(&name) && (has_its_form || IRREGULAR.contains(&name))
}

impl Words {
    fn take_type(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        if is_participle(&name) {
            self.participles.push(name);
        }
    }

    fn take_function(&mut self, signature: &syn::Signature) {
        let name = signature.ident.to_string();
        let is_named_so = ["is_", "has_", "may_"].iter().any(|prefix| name.starts_with(prefix));
        let syn::ReturnType::Type(_, of) = &signature.output else {
            self.predicates.extend(is_named_so.then_some(name));
            return;
        };
        let answers = matches!(&**of, syn::Type::Path(path) if path.path.is_ident("bool"));
        self.predicates.extend((is_named_so && !answers).then_some(name));
    }

    fn take_message(&mut self, tokens: TokenStream) {
        for token in tokens {
            let TokenTree::Literal(literal) = token else { continue };
            let text = literal.to_string();
            let Some(text) = text.strip_prefix('"') else { continue };
            let first = text.split([' ', ':', '"']).next().unwrap_or_default();
            self.messages.extend(VERBS.contains(&first).then(|| text.to_owned()));
        }
    }
}

impl<'ast> Visit<'ast> for Words {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.take_type(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.take_type(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.take_type(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.take_type(&item.ident);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.take_function(signature);
        visit::visit_signature(self, signature);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let path: Vec<String> = call.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        if matches!(path[..], ["tracing", "info" | "warn" | "error" | "debug"]) {
            self.take_message(call.tokens.clone());
        }
    }
}

#[test]
fn names_in_the_old_tone_only_shrink() {
    let mut words = Words::default();
    for (path, text) in product() {
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        words.visit_file(&file);
    }
    assert_stands("types named by a participle", &words.participles, PARTICIPLE_TYPES);
    assert_stands("predicates that return no bool", &words.predicates, PREDICATES_WITHOUT_AN_ANSWER);
    assert_stands("messages that begin with a verb", &words.messages, MESSAGES_THAT_BEGIN_WITH_A_VERB);
}

#[test]
fn comments_without_a_noun_only_shrink() {
    let (mut without, mut all) = (Vec::new(), 0);
    for (path, text) in product() {
        let mut is_within = false;
        for line in text.lines().map(str::trim_start) {
            let comment =
                line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim_start());
            let begins = !is_within && comment.is_some_and(|comment| !comment.is_empty());
            is_within = comment.is_some_and(|comment| !comment.is_empty());
            let Some(comment) = comment.filter(|_| begins) else { continue };
            all += 1;
            let first = comment.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_lowercase();
            if NO_NOUNS.contains(&first.as_str()) {
                without.push(format!("{path}: {comment}"));
            }
        }
    }
    assert!(all > 10_000, "comments are found: {all}");
    assert_stands("comments that begin with what, who, whether, it", &without, COMMENTS_WITHOUT_A_NOUN);
}

#[test]
fn long_files_only_shrink() {
    let long: Vec<String> = product()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(path, lines)| *lines > LINES_MAX && !path.starts_with("crates/lab/"))
        .map(|(path, lines)| format!("{path}: {lines}"))
        .collect();
    assert_stands("files that are too long", &long, LONG_FILES);
    let at_the_top = house::files(&house::root().join("crates/cache/src"), ".rs")
        .iter()
        .filter(|path| path.parent().is_some_and(|folder| folder.ends_with("src")))
        .count();
    assert!(at_the_top <= TOP_FILES_MAX, "{at_the_top} files at the top of the accelerator");
}

#[test]
fn documents_are_short() {
    let words = |path: &std::path::Path| {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.split_whitespace().count()
    };
    let architecture = words(&house::root().join("ARCHITECTURE.md"));
    assert!(architecture <= ARCHITECTURE_WORDS_MAX, "ARCHITECTURE.md has {architecture} words");
    let decisions: usize =
        house::files(&house::root().join("docs/decisions"), ".md").iter().map(|path| words(path)).sum();
    assert!(
        decisions <= DECISIONS_WORDS,
        "the decisions have {decisions} words in place of {DECISIONS_WORDS}"
    );
}

#[test]
fn participles_are_recognised() {
    let all: BTreeMap<&str, bool> = [
        ("Told", true),
        ("Freshened", true),
        ("Looking", true),
        ("Coding", false),
        ("HitForMiss", false),
        ("Hidden", true),
        ("ClientInfo", false),
        ("Feed", false),
    ]
    .into();
    for (name, is) in all {
        assert_eq!(is_participle(name), is, "{name}");
    }
}
