//! Subject mappings of an account: `orders.*` becomes `orders.{{partition(3,1)}}.{{wildcard(1)}}`.
//!
//! ```text
//!   published   orders.ann      ─▶ the first mapping whose source matches ─▶ one of its destinations, by weight
//!   delivered   orders.2.ann    ◀─ the tokens that the wildcards matched are inserted
//! ```
//! The behaviour is nats-server's, and the tests compare the two. If the weights sum to less than 100, the
//! rest of the messages keep their subject; if the subject itself is listed as a destination, the rest are
//! dropped. Pure: the caller provides the random numbers.

use smallvec::SmallVec;

use super::pattern::{self, covers};

/// Configured mapping for one source pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// Pattern of the subjects that are mapped.
    pub source: String,
    /// Destinations; each message goes to one of them.
    pub destinations: Vec<WeightedDestination>,
}

/// A destination of a mapping, with its weight.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WeightedDestination {
    /// Tokens of the destination: `$2` and `{{wildcard(2)}}` insert the token that the source's second `*`
    /// matched; the other functions compute a token from such tokens.
    pub subject: String,
    /// Percentage of the messages that get this destination.
    pub weight: u8,
}

/// Compiled mappings of one account.
#[derive(Debug, Clone, Default)]
pub struct Mappings(Vec<Ready>);

#[derive(Debug, Clone)]
struct Ready {
    source: String,
    /// Destinations, each preceded by the cumulative weight up to and including it.
    destinations: Vec<(u8, Transform)>,
}

/// Result of applying an account's mappings to a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingResult {
    /// The subject is unchanged.
    Same,
    /// The subject was replaced by the text that was written. An empty text means that the mapping drops this
    /// message on purpose.
    Other,
}

/// Compiled transformation of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Transform {
    tokens: Vec<Token>,
    /// Index of the first source token that `>` matches; this token and all later ones are appended. `None`
    /// if the source has no `>`.
    tail_from: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(Box<[u8]>),
    /// Copies the source token with this index.
    Copy(usize),
    /// A partition number smaller than the first field, computed as the hash of these source tokens: FNV-1a,
    /// 32 bits, as in nats-server, so that all servers agree.
    Partition(u32, Vec<usize>),
    /// A random number below this bound, drawn for each message.
    Random(u32),
    /// The source token with this index, with a dot inserted this many bytes from its start or from its end.
    SplitFromLeft(usize, usize),
    SplitFromRight(usize, usize),
    /// The source token with this index, cut into pieces of this many bytes; a shorter piece is the last one
    /// (`FromLeft`) or the first one (`FromRight`).
    SliceFromLeft(usize, usize),
    SliceFromRight(usize, usize),
    /// The source token with this index, with dots in place of this separator.
    Split(usize, Box<[u8]>),
    /// The first or the last bytes of the source token with this index; the second field is their number.
    Left(usize, usize),
    Right(usize, usize),
}

impl Mappings {
    /// Checks and compiles the configured mappings.
    ///
    /// # Errors
    /// A description of the error if a source or destination is invalid.
    pub fn build(mappings: &[Mapping]) -> Result<Self, String> {
        mappings.iter().map(Ready::build).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether the account has no mappings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the patterns of the subjects that are mapped.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|ready| &*ready.source)
    }

    /// Returns whether every message to this subject has the same mapping result, without a random choice.
    pub fn is_certain(&self, subject: &[u8]) -> bool {
        self.find(subject).is_none_or(|ready| match &ready.destinations[..] {
            [(100, only)] => !only.tokens.iter().any(|token| matches!(token, Token::Random(_))),
            _ => false,
        })
    }

    /// Writes the subject that `subject` is mapped to. `dice` returns an unpredictable number below its
    /// argument.
    pub fn apply(
        &self,
        subject: &[u8],
        mut dice: impl FnMut(u32) -> u32,
        into: &mut Vec<u8>,
    ) -> MappingResult {
        let Some(ready) = self.find(subject) else { return MappingResult::Same };
        into.clear();
        let chosen = match &ready.destinations[..] {
            [(100, only)] => Some(only),
            several => {
                let thrown = dice(100);
                several.iter().find(|(up_to, _)| thrown < u32::from(*up_to)).map(|(_, transform)| transform)
            }
        };
        if let Some(transform) = chosen {
            transform.apply(subject, &mut dice, into);
        }
        MappingResult::Other
    }

    fn find(&self, subject: &[u8]) -> Option<&Ready> {
        self.0.iter().find(|ready| covers(ready.source.as_bytes(), subject))
    }
}

impl Ready {
    fn build(mapping: &Mapping) -> Result<Self, String> {
        let source = &mapping.source;
        if !pattern::is_valid(source) {
            return Err(format!("invalid subject pattern `{source}`; expected a pattern such as orders.*"));
        }
        let mut destinations = Vec::new();
        let mut sum: u8 = 0;
        for (at, one) in mapping.destinations.iter().enumerate() {
            if mapping.destinations[..at].iter().any(|before| before.subject == one.subject) {
                return Err(format!("`{source}` is mapped to `{}` twice", one.subject));
            }
            sum = sum
                .checked_add(one.weight)
                .filter(|sum| *sum <= 100)
                .ok_or_else(|| format!("the weights of `{source}` exceed 100 together"))?;
            destinations.push((one.weight, Transform::build(source, &one.subject)?));
        }
        let is_listed = mapping.destinations.iter().any(|one| one.subject == *source);
        if sum < 100 && !is_listed {
            destinations.push((100 - sum, Transform::itself(source)));
        }
        destinations.sort_by_key(|(weight, _)| *weight);
        let mut up_to = 0;
        for (weight, _) in &mut destinations {
            up_to += *weight;
            *weight = up_to;
        }
        Ok(Self { source: source.clone(), destinations })
    }
}

impl Transform {
    /// Builds the transformation that leaves every subject unchanged.
    fn itself(source: &str) -> Self {
        let mut tokens: Vec<Token> = source
            .split('.')
            .enumerate()
            .map(
                |(at, token)| {
                    if token == "*" { Token::Copy(at) } else { Token::Literal(token.as_bytes().into()) }
                },
            )
            .collect();
        let tail_from = source.split('.').position(|token| token == ">");
        tokens.truncate(tail_from.unwrap_or(tokens.len()));
        Self { tokens, tail_from }
    }

    fn build(source: &str, destination: &str) -> Result<Self, String> {
        // A destination equal to the source leaves the subject unchanged.
        if source == destination {
            return Ok(Self::itself(source));
        }
        let wrong = |why: &str| Err(format!("`{source}` cannot be mapped to `{destination}`: {why}"));
        let wildcards: Vec<usize> =
            source.split('.').enumerate().filter(|(_, token)| *token == "*").map(|(at, _)| at).collect();
        let tail_from = source.split('.').position(|token| token == ">");
        let mut tokens = Vec::new();
        let mut all = destination.split('.').peekable();
        let mut has_tail = false;
        while let Some(token) = all.next() {
            match token {
                "" => return wrong("empty token"),
                "*" => return wrong("use $1 or {{wildcard(1)}} in a destination for a token of the source"),
                ">" if all.peek().is_none() && tail_from.is_some() => has_tail = true,
                ">" => return wrong("`>` must be at the end of both or of neither"),
                _ => match Token::read(token, &wildcards) {
                    Ok(token) => tokens.push(token),
                    Err(why) => return wrong(&format!("{token}: {why}")),
                },
            }
        }
        if tail_from.is_some() != has_tail {
            return wrong("`>` must be at the end of both or of neither");
        }
        Ok(Self { tokens, tail_from })
    }

    fn apply(&self, subject: &[u8], dice: &mut impl FnMut(u32) -> u32, into: &mut Vec<u8>) {
        let of: SmallVec<[&[u8]; 16]> = subject.split(|byte| *byte == b'.').collect();
        for token in &self.tokens {
            if !into.is_empty() {
                into.push(b'.');
            }
            token.write(subject, &of, dice, into);
        }
        for token in self.tail_from.into_iter().flat_map(|from| &of[from.min(of.len())..]) {
            if !into.is_empty() {
                into.push(b'.');
            }
            into.extend_from_slice(token);
        }
    }
}

impl Token {
    fn read(text: &str, wildcards: &[usize]) -> Result<Self, String> {
        let place = |number: &str| -> Result<usize, String> {
            let number: usize = number.trim().parse().map_err(|_| format!("invalid number `{number}`"))?;
            let place = number.checked_sub(1).and_then(|at| wildcards.get(at)).copied();
            place.ok_or_else(|| format!("the source has no wildcard number {number}"))
        };
        // A token that begins with `$` and is not a number is a literal.
        if let Some(number) = text.strip_prefix('$').filter(|number| number.parse::<u32>().is_ok()) {
            return place(number).map(Self::Copy);
        }
        let Some(call) = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) else {
            return match text.bytes().any(|byte| byte.is_ascii_whitespace()) {
                true => Err("a subject may not contain blanks".to_owned()),
                false => Ok(Self::Literal(text.as_bytes().into())),
            };
        };
        let call = call.trim();
        let Some((name, arguments)) = call.strip_suffix(')').and_then(|call| call.split_once('(')) else {
            return Err("invalid function; expected one such as {{wildcard(1)}}".to_owned());
        };
        let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
        let length = |text: &str| text.parse::<usize>().map_err(|_| format!("invalid number `{text}`"));
        let name = name.trim().to_ascii_lowercase();
        match (name.as_str(), &arguments[..]) {
            ("wildcard", [number]) => place(number).map(Self::Copy),
            ("random", [below]) => {
                below.parse().map(Self::Random).map_err(|_| format!("invalid number `{below}`"))
            }
            ("partition", [parts, of @ ..]) => {
                let parts: u32 = parts.parse().map_err(|_| format!("invalid number `{parts}`"))?;
                Ok(Self::Partition(parts, of.iter().map(|number| place(number)).collect::<Result<_, _>>()?))
            }
            ("split", [of, at]) if !at.is_empty() && !at.contains(' ') => {
                Ok(Self::Split(place(of)?, at.as_bytes().into()))
            }
            (name, [of, number]) => {
                let (of, number) = (place(of)?, length(number)?);
                Ok(match name {
                    "splitfromleft" => Self::SplitFromLeft(of, number),
                    "splitfromright" => Self::SplitFromRight(of, number),
                    "slicefromleft" => Self::SliceFromLeft(of, number),
                    "slicefromright" => Self::SliceFromRight(of, number),
                    "left" => Self::Left(of, number),
                    "right" => Self::Right(of, number),
                    _ => return Err("unknown function".to_owned()),
                })
            }
            _ => Err("unknown function, or wrong arguments".to_owned()),
        }
    }

    fn write(&self, subject: &[u8], of: &[&[u8]], dice: &mut impl FnMut(u32) -> u32, into: &mut Vec<u8>) {
        let token = |at: usize| of.get(at).copied().unwrap_or_default();
        // A length of zero, or of the whole token or more, leaves the token unchanged.
        let fits = |token: &[u8], length: usize| length > 0 && length < token.len();
        let dotted = |into: &mut Vec<u8>, parts: [&[u8]; 2]| {
            into.extend_from_slice(parts[0]);
            into.push(b'.');
            into.extend_from_slice(parts[1]);
        };
        match self {
            Self::Literal(text) => into.extend_from_slice(text),
            Self::Copy(at) => into.extend_from_slice(token(*at)),
            Self::Partition(parts, tokens) => {
                let add = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
                // The whole subject is hashed if there are no tokens.
                let hash = match &tokens[..] {
                    [] => subject.iter().fold(0x811c_9dc5, add),
                    some => some.iter().flat_map(|at| token(*at)).fold(0x811c_9dc5, add),
                };
                wire::nats::write::number(into, hash.checked_rem(*parts).unwrap_or(0) as usize);
            }
            Self::Random(0) => into.push(b'0'),
            Self::Random(below) => wire::nats::write::number(into, dice(*below) as usize),
            Self::SplitFromLeft(at, length) if fits(token(*at), *length) => {
                dotted(into, token(*at).split_at(*length).into());
            }
            Self::SplitFromRight(at, length) if fits(token(*at), *length) => {
                let token = token(*at);
                dotted(into, token.split_at(token.len() - length).into());
            }
            Self::SliceFromLeft(at, length) if fits(token(*at), *length) => {
                for (n, piece) in token(*at).chunks(*length).enumerate() {
                    if n > 0 {
                        into.push(b'.');
                    }
                    into.extend_from_slice(piece);
                }
            }
            Self::SliceFromRight(at, length) if fits(token(*at), *length) => {
                let token = token(*at);
                let (odd, even) = token.split_at(token.len() % length);
                into.extend_from_slice(odd);
                for (n, piece) in even.chunks(*length).enumerate() {
                    if n > 0 || !odd.is_empty() {
                        into.push(b'.');
                    }
                    into.extend_from_slice(piece);
                }
            }
            Self::Split(at, by) => {
                // Empty pieces are skipped, because a token cannot be empty.
                let mut rest = token(*at);
                let begin = into.len();
                loop {
                    let found = rest.windows(by.len()).position(|window| window == &**by);
                    let piece = &rest[..found.unwrap_or(rest.len())];
                    if !piece.is_empty() {
                        if into.len() > begin {
                            into.push(b'.');
                        }
                        into.extend_from_slice(piece);
                    }
                    match found {
                        Some(at) => rest = &rest[at + by.len()..],
                        None => break,
                    }
                }
            }
            Self::Left(at, length) if fits(token(*at), *length) => {
                into.extend_from_slice(&token(*at)[..*length])
            }
            Self::Right(at, length) if fits(token(*at), *length) => {
                let token = token(*at);
                into.extend_from_slice(&token[token.len() - length..]);
            }
            Self::SplitFromLeft(at, _)
            | Self::SplitFromRight(at, _)
            | Self::SliceFromLeft(at, _)
            | Self::SliceFromRight(at, _)
            | Self::Left(at, _)
            | Self::Right(at, _) => into.extend_from_slice(token(*at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(source: &str, destinations: &[(&str, u8)]) -> Mapping {
        let weighted = |(subject, weight): &(&str, u8)| WeightedDestination {
            subject: (*subject).to_owned(),
            weight: *weight,
        };
        Mapping { source: source.to_owned(), destinations: destinations.iter().map(weighted).collect() }
    }

    fn mapped(mappings: &Mappings, subject: &str, thrown: u8) -> String {
        let mut into = b"of before".to_vec();
        match mappings.apply(subject.as_bytes(), |below| u32::from(thrown) % below, &mut into) {
            MappingResult::Same => subject.to_owned(),
            MappingResult::Other => String::from_utf8(into).expect("text"),
        }
    }

    /// Tokens and functions of a destination are replaced. The functions give the same results as in
    /// nats-server: `tests/tests/it/feed_mappings.rs` compares both servers.
    #[test]
    fn tokens_are_put_in() {
        for (source, destination, subject, expected) in [
            ("a", "b.c", "a", "b.c"),
            ("a.*.*", "b.$2.$1", "a.x.y", "b.y.x"),
            ("a.*.>", "b.{{wildcard(1)}}.z.>", "a.x.y.w", "b.x.z.y.w"),
            ("a.>", "b.>", "a.x.y", "b.x.y"),
            (">", "all.>", "x.y", "all.x.y"),
            ("a.*", "$JS.{{ Wildcard( 1 ) }}", "a.x", "$JS.x"),
            ("a.*", "b.{{SplitFromLeft(1,2)}}", "a.12345", "b.12.345"),
            ("a.*", "b.{{splitFromRight(1,2)}}", "a.12345", "b.123.45"),
            ("a.*", "b.{{splitFromRight(1,9)}}", "a.12345", "b.12345"),
            ("a.*", "b.{{SliceFromLeft(1,2)}}", "a.12345", "b.12.34.5"),
            ("a.*", "b.{{SliceFromRight(1,2)}}", "a.12345", "b.1.23.45"),
            ("a.*", "b.{{split(1,-)}}", "a.-1--2-", "b.1.2"),
            ("a.*", "b.{{left(1,2)}}.{{right(1,2)}}", "a.12345", "b.12.45"),
            ("a.*.*", "b.{{partition(1000,1,2)}}", "a.x.y", "b.802"),
            // FNV-1a of the single byte "a" is 0xe40c292c.
            ("a", "b.{{partition(1000)}}", "a", "b.220"),
            ("a", "b.{{partition(0)}}", "a", "b.0"),
        ] {
            let mappings = Mappings::build(&[mapping(source, &[(destination, 100)])]).expect("sound");
            assert!(mappings.is_certain(subject.as_bytes()));
            assert_eq!(mapped(&mappings, subject, 0), expected, "{source} to {destination}");
            assert_eq!(mapped(&mappings, "other", 0), if source == ">" { "all.other" } else { "other" });
        }
    }

    #[test]
    fn weights_share_the_messages() {
        let rest = Mappings::build(&[mapping("a.*", &[("b.$1", 20), ("c.$1", 30)])]).expect("sound");
        assert!(!rest.is_certain(b"a.x"));
        for (thrown, expected) in
            [(0, "b.x"), (19, "b.x"), (20, "c.x"), (49, "c.x"), (50, "a.x"), (99, "a.x")]
        {
            assert_eq!(mapped(&rest, "a.x", thrown), expected, "{thrown}");
        }
        // The subject is a destination itself, so the rest of the messages are dropped.
        let lost = Mappings::build(&[mapping("a", &[("a", 50), ("b", 20)])]).expect("sound");
        for (thrown, expected) in [(19, "b"), (20, "a"), (69, "a"), (70, "")] {
            assert_eq!(mapped(&lost, "a", thrown), expected, "{thrown}");
        }
        let none = Mappings::build(&[mapping("a", &[])]).expect("sound");
        assert_eq!(mapped(&none, "a", 0), "a");
    }

    /// `{{random(3)}}` and weights draw a new random number for each message.
    #[test]
    fn a_random_token_is_another_each_time() {
        let mappings =
            Mappings::build(&[mapping("a", &[("b.{{ Random(3) }}.{{random(0)}}", 100)])]).expect("sound");
        assert!(!mappings.is_certain(b"a"));
        for (thrown, expected) in [(0, "b.0.0"), (1, "b.1.0"), (5, "b.2.0")] {
            assert_eq!(mapped(&mappings, "a", thrown), expected);
        }
    }

    #[test]
    fn the_first_that_matches_counts() {
        let both = [mapping("a.b", &[("first", 100)]), mapping("a.*", &[("second", 100)])];
        let mappings = Mappings::build(&both).expect("sound");
        assert_eq!(
            (mapped(&mappings, "a.b", 0), mapped(&mappings, "a.c", 0)),
            ("first".into(), "second".into())
        );
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (source, destinations, says) in [
            ("a..b", &[("b", 100)][..], "invalid subject pattern"),
            ("a", &[("b", 60), ("c", 60)], "exceed 100"),
            ("a", &[("b", 60), ("b", 10)], "twice"),
            ("a", &[("b.$1", 100)], "no wildcard number 1"),
            ("a.*", &[("b.$2", 100)], "no wildcard number 2"),
            ("a.*", &[("b.*", 100)], "use $1"),
            ("a.>", &[("b", 100)], "at the end of both"),
            ("a", &[("b.>", 100)], "at the end of both"),
            ("a.*", &[("b..$1", 100)], "empty token"),
            ("a.*", &[("b.{{wildcard(0)}}", 100)], "no wildcard number 0"),
            ("a.*", &[("b.{{wildcard()}}", 100)], "invalid number"),
            ("a.*", &[("b.{{partition()}}", 100)], "invalid number"),
            ("a.*", &[("b.{{random()}}", 100)], "invalid number"),
            ("a.*", &[("b.{{random(3,1)}}", 100)], "no wildcard number 3"),
            ("a.*", &[("b.{{reverse(1,2)}}", 100)], "unknown function"),
            ("a.*", &[("b.{{oops}}", 100)], "invalid function"),
        ] {
            let error = Mappings::build(&[mapping(source, destinations)]).expect_err(source);
            assert!(error.contains(says), "{source}: {error}");
        }
    }
}
