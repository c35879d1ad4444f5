//! Counts of functions whose shape makes them hard to read, and of long test names; they may only shrink.
//!
//! Each constant is today's count; a change that lowers a count updates its constant here.

use house::{assert_stands, modules::is_condition_of_tests, sources};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Functions of more than [`LINES_MAX`] lines.
const LONG_FUNCTIONS: usize = 0;
const LINES_MAX: usize = 100;
/// Functions whose braces are nested [`DEPTH`] deep or deeper.
const DEEP_FUNCTIONS: usize = 0;
const DEPTH: usize = 7;
/// Functions with a tuple as parameter.
const TUPLE_PARAMETERS: usize = 0;
/// Functions with two parameters of type `bool` side by side.
const BOOLS_SIDE_BY_SIDE: usize = 0;
/// Tests whose name has more than [`NAME_WORDS_MAX`] words, the row of `docs/features.md` apart.
const LONG_TEST_NAMES: usize = 0;
const NAME_WORDS_MAX: usize = 8;
/// Files that hold the state of a core and its parts, and the most fields of a struct in them.
const CORE_FIELDS: [(&str, usize); 7] = [
    ("cache/src/core/mod.rs", 12),
    ("cache/src/core/parts.rs", 12),
    ("feed/src/mesh/core.rs", 12),
    ("feed/src/delivery/outputs.rs", 15),
    ("feed/src/routing/subjects.rs", 13),
    ("mail/src/store/core/mod.rs", 12),
    ("mail/src/store/core/parts.rs", 12),
];

/// A function of the product.
struct Function {
    name: String,
    parameters: Vec<Vec<TokenTree>>,
    body: Group,
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == c)
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

/// Returns the tokens of a parameter list, split at its commas.
fn parameters(list: &Group) -> Vec<Vec<TokenTree>> {
    let mut all = vec![Vec::new()];
    let (mut angles, mut before) = (0_i32, None);
    for token in list.stream() {
        if is_punct(&token, '<') {
            angles += 1;
        } else if is_punct(&token, '>') && !before.as_ref().is_some_and(|before| is_punct(before, '-')) {
            angles -= 1;
        }
        before = Some(token.clone());
        if is_punct(&token, ',') && angles == 0 {
            all.push(Vec::new());
        } else if let Some(last) = all.last_mut() {
            last.push(token);
        }
    }
    all
}

/// Returns the number of tokens of the generic parameters that follow a function's name.
fn generics(tokens: &[TokenTree]) -> usize {
    let mut angles = 0_i32;
    for (at, token) in tokens.iter().enumerate() {
        let is_arrow = at > 0 && is_punct(&tokens[at - 1], '-');
        angles += i32::from(is_punct(token, '<')) - i32::from(is_punct(token, '>') && !is_arrow);
        if angles == 0 {
            return at;
        }
    }
    0
}

/// Appends the functions of a stream of tokens, without those of its tests.
fn find_functions(stream: TokenStream, found: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        let is_of_test = is_punct(&tokens[at], '#')
            && tokens.get(at + 1).is_some_and(|attribute| {
                let TokenTree::Group(attribute) = attribute else { return false };
                let parts: Vec<TokenTree> = attribute.stream().into_iter().collect();
                matches!(&parts[..], [name, TokenTree::Group(condition)]
                    if is_ident(name, "cfg") && is_condition_of_tests(&condition.stream().to_string()))
            });
        if is_of_test {
            // The module, or the item, ends with its braces or a semicolon.
            while at < tokens.len()
                && !is_punct(&tokens[at], ';')
                && !matches!(&tokens[at], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
            {
                at += 1;
            }
            at += 1;
            continue;
        }
        if is_ident(&tokens[at], "fn")
            && let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
        {
            let group = |delimiter| {
                move |token: &TokenTree| match token {
                    TokenTree::Group(group) if group.delimiter() == delimiter => Some(group.clone()),
                    _ => None,
                }
            };
            let rest = &tokens[at + 2..];
            let end = rest.iter().position(|token| is_punct(token, ';')).unwrap_or(rest.len());
            let list = rest[generics(rest)..].iter().find_map(group(Delimiter::Parenthesis));
            let body = rest[..end].iter().find_map(group(Delimiter::Brace));
            if let (Some(list), Some(body)) = (list, body) {
                found.push(Function { name: name.to_string(), parameters: parameters(&list), body });
            }
        }
        if let TokenTree::Group(group) = &tokens[at] {
            find_functions(group.stream(), found);
        }
        at += 1;
    }
}

/// Returns how deep the braces within a group are nested, its own included.
fn depth(group: &Group) -> usize {
    let inner = group.stream().into_iter().filter_map(|token| match token {
        TokenTree::Group(group) => Some(depth(&group)),
        _ => None,
    });
    inner.max().unwrap_or(0) + usize::from(group.delimiter() == Delimiter::Brace)
}

/// Returns the type of a parameter, without its reference.
fn type_of(parameter: &[TokenTree]) -> &[TokenTree] {
    let colon = parameter.iter().position(|token| is_punct(token, ':')).map_or(parameter.len(), |at| at + 1);
    let start = parameter[colon..].iter().position(|token| !is_punct(token, '&') && !is_ident(token, "mut"));
    &parameter[start.map_or(parameter.len(), |start| colon + start)..]
}

fn is_tuple(parameter: &[TokenTree]) -> bool {
    matches!(type_of(parameter), [TokenTree::Group(group)]
        if group.delimiter() == Delimiter::Parenthesis && parameters(group).len() > 1)
}

fn is_bool(parameter: &[TokenTree]) -> bool {
    matches!(type_of(parameter), [token] if is_ident(token, "bool"))
}

/// Returns the names and lengths of the functions that are longer than allowed. In formatted sources a function
/// ends with the first line that closes a brace at its own indentation.
fn long_functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some((before, name)) = line.trim_start().split_once("fn ") else { continue };
        if !before.split(' ').all(|word| {
            word.is_empty()
                || ["pub", "async", "const", "unsafe", "extern", "\"C\""].contains(&word)
                || word.starts_with("pub(")
        }) {
            continue;
        }
        let close = format!("{}}}", " ".repeat(indent));
        let Some(body) = lines[at..].iter().position(|line| *line == close) else { continue };
        if body + 1 > LINES_MAX {
            long.push((identifier(name), body + 1));
        }
    }
    long
}

/// Returns the product's sources without its tests and the lab.
fn product() -> impl Iterator<Item = (String, String)> {
    house::product().filter(|(path, _)| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_of_tests = name.contains("test") || name == "twin.rs" || path.contains("/tests/");
        !path.starts_with("crates/lab/") && !is_of_tests
    })
}

/// Returns the identifier at the beginning of a text.
fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn long_functions_only_shrink() {
    let found: Vec<String> = product()
        .flat_map(|(path, text)| {
            long_functions(&text)
                .into_iter()
                .map(move |(name, lines)| format!("{path}: {name}, {lines} lines"))
        })
        .collect();
    assert_stands("functions that are too long", &found, LONG_FUNCTIONS);
}

#[test]
fn odd_shapes_only_shrink() {
    let (mut deep, mut tuples, mut bools) = (Vec::new(), Vec::new(), Vec::new());
    for (path, text) in product() {
        let mut functions = Vec::new();
        let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        find_functions(stream, &mut functions);
        for Function { name, parameters, body } in functions {
            if depth(&body) >= DEPTH {
                deep.push(format!("{path}: {name}"));
            }
            if parameters.iter().any(|one| is_tuple(one)) {
                tuples.push(format!("{path}: {name}"));
            }
            if parameters.windows(2).any(|pair| pair.iter().all(|parameter| is_bool(parameter))) {
                bools.push(format!("{path}: {name}"));
            }
        }
    }
    assert_stands("functions that are nested too deep", &deep, DEEP_FUNCTIONS);
    assert_stands("functions with a tuple as parameter", &tuples, TUPLE_PARAMETERS);
    assert_stands("functions with two bools side by side", &bools, BOOLS_SIDE_BY_SIDE);
}

/// Returns the words of a test's name, without the rows of features at its front.
fn words(name: &str) -> usize {
    let is_row = |word: &&str| {
        let (letter, number) = word.split_at(1.min(word.len()));
        letter.chars().all(|c| c.is_ascii_lowercase())
            && !number.is_empty()
            && number.chars().all(|c| c.is_ascii_digit())
    };
    name.split('_').filter(|word| !word.is_empty()).skip_while(is_row).count()
}

#[test]
fn names_of_tests_are_short() {
    let mut long = Vec::new();
    for (path, text) in sources(".rs") {
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for (at, line) in lines.iter().enumerate() {
            let is_test = line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = if is_test {
                lines[at + 1..].iter().find_map(|line| line.split_once("fn ")).map(|(_, name)| name)
            } else {
                // A test that a macro runs on one core or on two.
                line.strip_prefix("fn ").filter(|name| name.contains("(cores: &str)"))
            };
            let Some(name) = name.map(identifier) else { continue };
            if words(&name) > NAME_WORDS_MAX {
                long.push(format!("{path}: {name}"));
            }
        }
    }
    assert_stands("names of tests that are too long", &long, LONG_TEST_NAMES);
}

/// The state of a core, and each of its parts, has few fields.
#[test]
fn parts_of_cores_have_few_fields() {
    for (path, stands) in CORE_FIELDS {
        let text = std::fs::read_to_string(house::root().join("crates").join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let fields = file.items.iter().filter_map(|item| match item {
            syn::Item::Struct(item) => Some(item.fields.len()),
            _ => None,
        });
        let most = fields.max().unwrap_or_else(|| panic!("{path} has no struct"));
        assert!(most <= stands, "{path}: a struct has {most} fields, in place of at most {stands}");
    }
}

/// The counts find what is known to be there.
#[test]
fn shapes_are_recognised() {
    let text = "fn a((x, y): (u8, u8), is_here: bool, is_there: bool) { if x { if y { match x { _ => { loop { while y { z() } } } } } } }
        fn b<T: Fn(u8, u8) -> u8>(with: T, of: &(), pair: &mut (u8, u8), reader: &mut (impl Read + Unpin)) {}
        #[cfg(test)] mod tests { fn c(t: (u8, u8)) {} }
        #[cfg(all(test, not(feature = \"loom\")))] mod more { fn d(t: (u8, u8)) {} }";
    let mut found = Vec::new();
    find_functions(text.parse().unwrap_or_else(|error| panic!("{error}")), &mut found);
    let names: Vec<&str> = found.iter().map(|function| &*function.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(found.iter().map(|function| depth(&function.body)).collect::<Vec<_>>(), [7, 1]);
    let tuples = |function: &Function| function.parameters.iter().filter(|one| is_tuple(one)).count();
    assert_eq!(found.iter().map(tuples).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(words("a12_a13_three_short_words"), 3);
    let long = format!(
        "#[cfg(test)]\nmod tests;\nfn long() {{\n{}}}\nfn short() {{\n}}\n",
        "    a();\n".repeat(100)
    );
    assert_eq!(long_functions(&long), [("long".to_owned(), 102)]);
}
