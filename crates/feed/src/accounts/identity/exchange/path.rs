//! Translation of subjects between two accounts: the exporter's `a.*.>` becomes the importer's `p.a.*.>`, and
//! the exporter's `q.*.*` becomes the importer's `x.$2.$1`.
//!
//! Each wildcard on one side occurs once on the other side, so a path can be used in both directions: a
//! message's subject is translated forwards, a subscriber's pattern backwards. *Slow twin:* the tests
//! translate every possible subject one by one.

use smallvec::SmallVec;

use crate::accounts::identity::pattern;

/// Translation of the subjects that one pattern matches into those that another pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    source: String,
    destination: String,
    parts: Vec<Part>,
    /// Index of the first source token that `>` matches; this token and all later ones are appended. `None`
    /// if the source has no `>`.
    tail_from: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(Box<[u8]>),
    /// Index of a token of the source.
    Token(usize),
}

impl Path {
    /// Builds a path from one pattern to another. In the destination, `$2`, `{{wildcard(2)}}` or its second
    /// `*` refer to the second `*` of the source.
    ///
    /// # Errors
    /// A description of the error if a pattern is invalid, or the wildcards of the two patterns do not
    /// correspond.
    pub fn build(source: &str, destination: &str) -> Result<Self, String> {
        for text in [source, destination] {
            if !pattern::is_valid(text) {
                return Err(format!(
                    "invalid subject pattern `{text}`; expected a pattern such as orders.* or orders.>"
                ));
            }
        }
        let tail_from = source.split('.').position(|token| token == ">");
        let mut stars = source.split('.').enumerate().filter(|(_, token)| *token == "*").map(|(at, _)| at);
        let places: Vec<usize> = stars.by_ref().collect();
        let (mut parts, mut written, mut used, mut counted) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for token in destination.split('.').filter(|token| *token != ">") {
            let number = if token == "*" {
                counted += 1;
                Some(counted)
            } else {
                wildcard(token)
            };
            match number {
                None => {
                    parts.push(Part::Literal(token.as_bytes().into()));
                    written.push(token);
                }
                Some(number) => {
                    let place = number.checked_sub(1).and_then(|at| places.get(at).copied());
                    let place = place.ok_or_else(|| format!("`{source}` has no wildcard number {number}"))?;
                    parts.push(Part::Token(place));
                    written.push("*");
                    used.push(place);
                }
            }
        }
        if destination.ends_with('>') != tail_from.is_some() {
            return Err(format!(
                "`>` must be at the end of both `{source}` and `{destination}`, or of neither"
            ));
        }
        used.sort_unstable();
        if used != places {
            return Err(format!(
                "each wildcard of `{source}` must appear in `{destination}` once: as $1, $2 … or as * in their order"
            ));
        }
        if tail_from.is_some() {
            written.push(">");
        }
        Ok(Self { source: source.to_owned(), destination: written.join("."), parts, tail_from })
    }

    /// Pattern of the subjects that are translated.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Pattern of the translated subjects.
    pub fn destination(&self) -> &str {
        &self.destination
    }

    /// Returns the path in the other direction.
    #[must_use]
    pub fn reverse(&self) -> Self {
        let place_of = |wanted: usize| self.parts.iter().position(|part| *part == Part::Token(wanted));
        let tokens = self.source.split('.').filter(|token| *token != ">");
        let parts = tokens.enumerate().map(|(at, token)| match place_of(at) {
            Some(place) => Part::Token(place),
            None => Part::Literal(token.as_bytes().into()),
        });
        Self {
            source: self.destination.clone(),
            destination: self.source.clone(),
            parts: parts.collect(),
            tail_from: self.tail_from.map(|_| self.parts.len()),
        }
    }

    /// Writes the translation of a subject that the source pattern matches. For a pattern that the source
    /// covers, the result is the translated pattern.
    pub fn apply(&self, subject: &[u8], into: &mut Vec<u8>) {
        into.clear();
        if self.source == self.destination && self.is_straight() {
            into.extend_from_slice(subject);
            return;
        }
        let of: SmallVec<[&[u8]; 32]> = subject.split(|byte| *byte == b'.').collect();
        let parts = self.parts.iter().map(|part| match part {
            Part::Literal(text) => text,
            Part::Token(at) => of.get(*at).copied().unwrap_or_default(),
        });
        let tail = self.tail_from.map_or(&[][..], |from| &of[from.min(of.len())..]);
        for (at, token) in parts.chain(tail.iter().copied()).enumerate() {
            if at > 0 {
                into.push(b'.');
            }
            into.extend_from_slice(token);
        }
    }

    fn is_straight(&self) -> bool {
        self.parts.iter().enumerate().all(|(at, part)| match part {
            Part::Literal(_) => true,
            Part::Token(from) => *from == at,
        })
    }
}

/// Returns the number of the wildcard that a token refers to: `$2`, or `{{wildcard(2)}}`.
fn wildcard(token: &str) -> Option<usize> {
    if let Some(number) = token.strip_prefix('$') {
        return number.parse().ok();
    }
    let call = token.strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let (name, rest) = call.split_once('(')?;
    let is_it = name.trim().eq_ignore_ascii_case("wildcard");
    is_it.then(|| rest.trim_end().strip_suffix(')')?.trim().parse().ok())?
}

/// Returns the pattern of the subjects that both patterns match, if there are any.
pub fn common(one: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let split = |text| <[u8]>::split(text, |byte| *byte == b'.');
    let (mut ones, mut others) = (split(one), split(other));
    let mut all: Vec<&[u8]> = Vec::new();
    loop {
        match (ones.next(), others.next()) {
            (None, None) => return Some(all.join(&b'.')),
            (Some(b">"), Some(token)) => {
                all.extend(std::iter::once(token).chain(others));
                return Some(all.join(&b'.'));
            }
            (Some(token), Some(b">")) => {
                all.extend(std::iter::once(token).chain(ones));
                return Some(all.join(&b'.'));
            }
            (Some(b"*"), Some(token)) | (Some(token), Some(b"*")) => all.push(token),
            (Some(a), Some(b)) if a == b => all.push(a),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn applied(path: &Path, subject: &str) -> String {
        let mut into = Vec::new();
        path.apply(subject.as_bytes(), &mut into);
        String::from_utf8(into).expect("text")
    }

    #[test]
    fn subjects_go_along_and_back() {
        for (source, destination, subject, becomes) in [
            ("a.b", "x.y", "a.b", "x.y"),
            ("a.>", "p.a.>", "a.b.c", "p.a.b.c"),
            (">", "p.>", "a.b", "p.a.b"),
            ("q.*", "local.*", "q.x", "local.x"),
            ("q.*.*", "local.$2.m.$1", "q.x.y", "local.y.m.x"),
            ("q.*.*.*", "$2.$3.$1", "q.x.y.z", "y.z.x"),
            ("q.*.>", "l.{{wildcard(1)}}.>", "q.x.y.z", "l.x.y.z"),
            ("q.*.*", "q.$2.$1", "q.x.y", "q.y.x"),
            ("q.*", "q.*", "q.x", "q.x"),
        ] {
            let path = Path::build(source, destination).expect(source);
            assert_eq!(applied(&path, subject), becomes, "{source} {destination}");
            assert_eq!(applied(&path.reverse(), becomes), subject, "{source} {destination}");
        }
    }

    #[test]
    fn what_is_no_path_is_said() {
        for (source, destination, why) in [
            ("a.*", "b", "once"),
            ("a.*", "b.$1.$1", "once"),
            ("a.*", "b.$2", "no wildcard number 2"),
            ("a", "b.*", "no wildcard number 1"),
            ("a.>", "b", "at the end of both"),
            ("a", "b.>", "at the end of both"),
            ("a..b", "c", "invalid subject pattern"),
            ("a", "c.", "invalid subject pattern"),
        ] {
            let error = Path::build(source, destination).expect_err(source);
            assert!(error.contains(why), "{source} {destination}: {error}");
        }
    }

    /// Every subject of up to four tokens over a small alphabet.
    fn universe() -> Vec<String> {
        let letters = ["a", "b", "z"];
        let mut all: Vec<String> = Vec::new();
        let mut last = vec![String::new()];
        for _ in 0..4 {
            last = last
                .iter()
                .flat_map(|s| letters.map(|l| if s.is_empty() { l.into() } else { format!("{s}.{l}") }))
                .collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    fn patterns() -> impl Strategy<Value = String> {
        let token = prop_oneof![Just("a"), Just("b"), Just("*")];
        (prop::collection::vec(token, 0..4), any::<bool>()).prop_map(|(mut tokens, full)| {
            if full || tokens.is_empty() {
                tokens.push(">");
            }
            tokens.join(".")
        })
    }

    /// Generates a path from a pattern: its wildcards in any order, with literals before, between or after
    /// them.
    fn paths() -> impl Strategy<Value = Path> {
        (patterns(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(source, turned, literals)| {
            let stars = source.split('.').filter(|token| *token == "*").count();
            let turn = turned.index(stars.max(1));
            let mut tokens: Vec<String> = Vec::new();
            for star in 0..stars {
                if literals & (1 << star) != 0 {
                    tokens.push("a".into());
                }
                tokens.push(format!("${}", (star + turn) % stars + 1));
            }
            if literals & 16 != 0 || stars == 0 {
                tokens.push("b".into());
            }
            if source.ends_with('>') {
                tokens.push(">".into());
            }
            Path::build(&source, &tokens.join(".")).expect("it is one")
        })
    }

    proptest! {
        #[test]
        fn reversed_paths_select_exactly_the_wanted_subjects(
            path in paths(), wanted in patterns(), other in patterns()
        ) {
            let back = path.reverse();
            let wants = common(wanted.as_bytes(), path.destination().as_bytes()).map(|within| {
                let mut there = Vec::new();
                back.apply(&within, &mut there);
                there
            });
            let both = common(wanted.as_bytes(), other.as_bytes());
            for subject in universe() {
                let subject = subject.as_bytes();
                let here = pattern::covers(path.source().as_bytes(), subject).then(|| {
                    let mut here = Vec::new();
                    path.apply(subject, &mut here);
                    here
                });
                if let Some(here) = &here {
                    prop_assert!(pattern::covers(path.destination().as_bytes(), here));
                    let mut there = Vec::new();
                    back.apply(here, &mut there);
                    prop_assert_eq!(&there[..], subject);
                }
                let slow = here.is_some_and(|here| pattern::covers(wanted.as_bytes(), &here));
                let fast = wants.as_ref().is_some_and(|wants| pattern::covers(wants, subject));
                prop_assert_eq!(fast, slow, "{:?} {} {:?}", path, wanted, subject.escape_ascii().to_string());
                let slow = pattern::covers(wanted.as_bytes(), subject) && pattern::covers(other.as_bytes(), subject);
                prop_assert_eq!(both.as_ref().is_some_and(|both| pattern::covers(both, subject)), slow);
            }
        }
    }
}
