//! Links and one-time codes of a mail, which test suites look for.

use std::collections::HashSet;

use memchr::memmem;

use super::{DecodedMail, StepLimit, cut, fields::printable, html::DisplayOptions, until::StepLimitReached};

/// Maximum number of links that are reported.
pub const LINKS_MAX: usize = 500;
/// Maximum number of bytes of a link's target that are read.
const TARGET_BYTES_MAX: usize = 2048;
/// Maximum number of bytes of a link's text that are reported.
const LINK_TEXT_BYTES_MAX: usize = 1024;
/// Bytes of a link's content that are read for its text. Nested links (`<a><marquee><a>`) all contain the
/// content of the innermost one: without a limit, 1.9 MB of them became 2.6 GiB.
const LINK_CONTENT_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of codes that are reported.
pub const CODES_MAX: usize = 20;
/// Maximum number of bytes at the beginning of a text that are searched for codes.
const SEARCHED_BYTES_MAX: usize = 64 * 1024;
/// Number of characters around a number within which a word like "code" counts.
const NEAR_CHARACTERS: usize = 80;

/// A link with its text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Link {
    /// URL that the link points to.
    pub link: String,
    /// Text of the link; empty for a bare URL.
    pub text: String,
}

/// Returns all links, each target once, with the links from the HTML first.
#[must_use]
pub fn links(reading: &DecodedMail<'_>, until: &StepLimit) -> Vec<Link> {
    let mut links = Vec::new();
    if let Some(clean) = reading.html(&DisplayOptions::default(), until).filter(|clean| clean.over.is_none())
    {
        in_html(&clean.html, &mut links, until);
    }
    let (text, _) = reading.text();
    in_text(&text, &mut links, until);
    links
}

/// Adds the links of cleaned HTML, whose attributes are quoted and escaped as [`super::html`] writes them. Stops when
/// `until` ends.
pub fn in_html(html: &str, links: &mut Vec<Link>, until: &StepLimit) {
    _ = push_from_html(html, links, until);
}

fn push_from_html(html: &str, links: &mut Vec<Link>, until: &StepLimit) -> Result<(), StepLimitReached> {
    let mut links = DistinctLinks::new(links);
    let (begin, end) = (memmem::Finder::new("<a "), memmem::Finder::new("</a>"));
    let mut rest = html;
    while let Some(at) = begin.find(rest.as_bytes()).filter(|_| !links.is_full()) {
        until.pay(at)?;
        rest = &rest[at..];
        let Some(tag_end) = tag_end(rest) else { break };
        let (tag, after) = rest.split_at(tag_end);
        let content = cut(after, LINK_CONTENT_BYTES_MAX);
        let content = &content[..end.find(content.as_bytes()).unwrap_or(content.len())];
        until.pay(tag.len() + content.len())?;
        let href = tag.split_once(" href=\"").and_then(|(_, value)| value.split('"').next());
        // Links within the mail are left out.
        if let Some(href) = href.filter(|href| !href.starts_with('#')) {
            let text = without_tags(content);
            links.push(unescape(href), printable(cut(&text, LINK_TEXT_BYTES_MAX)).into_owned());
        }
        rest = after;
    }
    Ok(())
}

/// Adds the bare links of a text. Stops when `until` ends.
pub fn in_text(text: &str, links: &mut Vec<Link>, until: &StepLimit) {
    _ = push_from_text(text, links, until);
}

fn push_from_text(text: &str, links: &mut Vec<Link>, until: &StepLimit) -> Result<(), StepLimitReached> {
    let mut links = DistinctLinks::new(links);
    let mut rest = text;
    while let Some(at) = rest.find("http").filter(|_| !links.is_full()) {
        until.pay(at + 4)?;
        rest = &rest[at..];
        if !(rest.starts_with("http://") || rest.starts_with("https://")) {
            rest = &rest[4..];
            continue;
        }
        let end = rest
            .find(|c: char| {
                c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | '"' | '`' | '|' | '\\')
            })
            .unwrap_or(rest.len());
        let (link, after) = rest.split_at(end);
        until.pay(link.len())?;
        links.push(trim_sentence(link).to_owned(), String::new());
        rest = after;
    }
    Ok(())
}

/// Returns the values of `href` and `src` in any HTML, in order, with entities decoded. Stops when `until`
/// ends.
pub fn targets(html: &str, until: &StepLimit) -> Vec<String> {
    let mut targets = Vec::new();
    _ = push_targets(html, &mut targets, until);
    targets
}

/// Returns whether a text ends with this word, ignoring ASCII case.
fn ends(text: &[u8], word: &[u8]) -> bool {
    text.len() >= word.len() && text[text.len() - word.len()..].eq_ignore_ascii_case(word)
}

fn push_targets(html: &str, targets: &mut Vec<String>, until: &StepLimit) -> Result<(), StepLimitReached> {
    until.pay(html.len())?;
    for equals in memchr::memchr_iter(b'=', html.as_bytes()) {
        let before = html[..equals].trim_ascii_end().as_bytes();
        if !(ends(before, b"href") || ends(before, b"src")) {
            continue;
        }
        // The length is limited, because an unclosed value would otherwise be scanned to the end for each
        // attribute.
        let rest = cut(html[equals + 1..].trim_ascii_start(), TARGET_BYTES_MAX);
        until.pay(rest.len())?;
        let value = match rest.as_bytes().first() {
            Some(quote @ (b'"' | b'\'')) => rest[1..].split(char::from(*quote)).next(),
            Some(_) => rest.split(|c: char| c.is_ascii_whitespace() || c == '>').next(),
            None => None,
        };
        targets.extend(value.map(unescape));
        if targets.len() >= LINKS_MAX {
            break;
        }
    }
    Ok(())
}

/// A list of at most [`LINKS_MAX`] links, each target once.
struct DistinctLinks<'a> {
    links: &'a mut Vec<Link>,
    /// The targets of `links`.
    targets: HashSet<String>,
}

impl<'a> DistinctLinks<'a> {
    fn new(links: &'a mut Vec<Link>) -> Self {
        let targets = links.iter().map(|known| known.link.clone()).collect();
        Self { links, targets }
    }

    fn is_full(&self) -> bool {
        self.links.len() >= LINKS_MAX
    }

    /// Adds a link whose target is new and more than a scheme.
    fn push(&mut self, link: String, text: String) {
        if !self.is_full() && link.len() > "https://".len() && self.targets.insert(link.clone()) {
            self.links.push(Link { link, text });
        }
    }
}

/// Removes punctuation of the surrounding sentence from the end of a link. Brackets are counted only once, as
/// a link may consist of a mebibyte of them.
fn trim_sentence(link: &str) -> &str {
    let count = |bracket: u8| memchr::memchr_iter(bracket, link.as_bytes()).count();
    // Closing brackets in excess of opening ones.
    let mut round = count(b')').saturating_sub(count(b'('));
    let mut square = count(b']').saturating_sub(count(b'['));
    link.trim_end_matches(|c| match c {
        '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' | '。' | '、' | '」' => true,
        ')' | ']' => {
            let surplus = if c == ')' { &mut round } else { &mut square };
            let is_surplus = *surplus > 0;
            *surplus = surplus.saturating_sub(1);
            is_surplus
        }
        _ => false,
    })
}

fn tag_end(html: &str) -> Option<usize> {
    let mut quoted = false;
    for at in memchr::memchr2_iter(b'"', b'>', html.as_bytes()) {
        if html.as_bytes()[at] == b'"' {
            quoted = !quoted;
        } else if !quoted {
            return Some(at + 1);
        }
    }
    None
}

fn without_tags(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        rest = tag_end(&rest[at..]).map_or("", |end| &rest[at + end..]);
    }
    text.push_str(rest);
    unescape(&text)
}

/// Decodes the entities that [`super::html`] writes.
fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Words that indicate that a mail contains a code, in lower case.
const CODE_WORDS: &[&str] = &[
    "code",
    "otp",
    "pin",
    "passcode",
    "password",
    "verif",
    "confirm",
    "one-time",
    "security",
    "login",
    "sign in",
    "token",
    "2fa",
    "código",
    "codigo",
    "codice",
    "kod",
    "bestätig",
    "einmal",
    "コード",
    "認証",
    "確認",
    "番号",
    "验证码",
    "驗證碼",
    "인증",
    "код",
    "رمز",
    "קוד",
];

/// Words that may introduce a code, in lower case.
const CODE_NAMES: &[&str] = &[
    "code",
    "otp",
    "pin",
    "passcode",
    "password",
    "token",
    "código",
    "codigo",
    "codice",
    "kod",
    "コード",
    "番号",
    "验证码",
    "驗證碼",
    "인증번호",
    "код",
    "קוד",
];
/// Verbs that may occur between a word like "code" and the code itself.
const CODE_VERBS: &[&str] = &[" is", " are", " lautet", " ist", " est", " es", " è", "は", "为", "是"];
/// Words after which a number is not a code, in lower case.
const OTHER_NAMES: &[&str] = &[
    "phone",
    "tel",
    "tel.",
    "call",
    "fax",
    "mobile",
    "order",
    "invoice",
    "ticket",
    "account",
    "zip",
    "postcode",
    "postal",
    "ref",
    "reference",
    "tracking",
    "customer",
    "bestellung",
    "bestellnummer",
    "rechnung",
    "kundennummer",
    "plz",
    "telefon",
];
/// Number of characters before a number in which such words are searched.
const BEFORE_CHARACTERS: usize = 24;

/// Returns the one-time codes in a mail: 4 to 8 digits (possibly in groups, or one digit per table cell), or
/// capitals mixed with digits, as a separate word. A code after "code is" comes first, then codes near a word
/// like "code". Years, times, amounts, parts of links, and numbers of phones, orders and postcodes are left
/// out, or come last. Stops when `until` ends.
#[must_use]
pub fn codes(subject: &str, text: &str, until: &StepLimit) -> Vec<String> {
    let whole = format!("{}\n{}", cut(subject, SEARCHED_BYTES_MAX), cut(text, SEARCHED_BYTES_MAX));
    let mut found: Vec<(u32, usize, String)> = Vec::new();
    let mut known = HashSet::new();
    let in_words = words(&whole).filter_map(|(at, word)| Some((at, word.len(), as_code(&whole, at, word)?)));
    if until.pay(whole.len()).is_err() {
        return Vec::new();
    }
    for (at, length, code) in in_words.chain(digit_a_cell(&whole)) {
        if until.pay(2 * NEAR_CHARACTERS * CODE_WORDS.len()).is_err() {
            break;
        }
        let near = surrounding_text(&whole, at, length);
        let spoken_of = CODE_WORDS.iter().any(|sign| near.contains(sign));
        let alone = is_alone(&whole[..at], &whole[at + length..]);
        let before = before(&whole[..at]);
        let is_named = is_named_code(&before);
        let is_other = !is_named && is_named_otherwise(&before);
        let digits_only = code.bytes().all(|byte| byte.is_ascii_digit());
        let is_year = code.len() == 4 && (code.starts_with("19") || code.starts_with("20"));
        let rank = match (spoken_of, alone) {
            _ if is_named => 0,
            (true, true) => 1,
            (true, false) if digits_only && code.len() == 6 => 2,
            (true, false) => 3,
            (false, true) => 4,
            (false, false) => continue,
        };
        if (is_year && rank > 1) || (!digits_only && !spoken_of && !is_named) {
            continue;
        }
        if known.insert(code.clone()) {
            found.push((rank + if is_other { OTHER_RANK } else { 0 }, at, code));
        }
    }
    found.sort();
    found.into_iter().map(|(_, _, code)| code).take(CODES_MAX).collect()
}

/// Returns whether a code is alone on its line except for blanks. The check stops at the first other
/// character: a line may be as long as the text, and contain thousands of codes.
fn is_alone(before: &str, after: &str) -> bool {
    let is_blank = |c: char| c.is_whitespace() && c != '\n';
    let (before, after) = (before.trim_end_matches(is_blank), after.trim_start_matches(is_blank));
    (before.is_empty() || before.ends_with('\n')) && (after.is_empty() || after.starts_with('\n'))
}

/// Rank penalty of a number that the text calls something other than a code.
const OTHER_RANK: u32 = 10;

/// Returns the end of the line before a number, in lower case.
fn before(text: &str) -> String {
    let mut end: Vec<char> = text.chars().rev().take_while(|c| *c != '\n').take(BEFORE_CHARACTERS).collect();
    end.reverse();
    end.into_iter().collect::<String>().to_lowercase()
}

/// Returns whether the words before a number call it a code.
fn is_named_code(before: &str) -> bool {
    let signs = |text: &str| -> usize {
        text.trim_end_matches(|c: char| {
            c.is_whitespace() || matches!(c, ':' | '=' | '-' | '–' | '"' | '*' | '：' | '#' | '(')
        })
        .len()
    };
    let mut rest = &before[..signs(before)];
    if let Some(shorter) = CODE_VERBS.iter().find_map(|verb| rest.strip_suffix(verb)) {
        rest = &shorter[..signs(shorter)];
    }
    let word = |name: &&&str| {
        rest.strip_suffix(**name).is_some_and(|head| !head.ends_with(|c: char| c.is_ascii_alphanumeric()))
    };
    CODE_NAMES.iter().any(|name| word(&name))
        && !["zip code", "postal code", "promo code"].iter().any(|name| rest.ends_with(name))
}

/// Returns whether the words before a number call it something else. Only words of the same sentence that
/// follow any earlier number count.
fn is_named_otherwise(before: &str) -> bool {
    let mut is_other = false;
    for word in before.split_whitespace() {
        let name = word.trim_matches([':', '#', '(', ',']);
        if OTHER_NAMES.contains(&name) {
            is_other = true;
        } else if word.ends_with(['.', '!', '?', ';']) || word.bytes().any(|byte| byte.is_ascii_digit()) {
            is_other = false;
        }
    }
    is_other
}

/// Finds codes shown as single digits separated by blanks, one per table cell. "1 2 3 4" is left out, as such
/// digits are page numbers.
fn digit_a_cell(text: &str) -> Vec<(usize, usize, String)> {
    let mut runs: Vec<(usize, usize, String)> = Vec::new();
    let mut run: Option<(usize, usize, String)> = None;
    let mut end = |run: &mut Option<(usize, usize, String)>| {
        let Some((begin, last, digits)) = run.take() else { return };
        let is_counting = digits.bytes().zip(b'1'..).all(|(digit, counted)| digit == counted);
        if (4..=8).contains(&digits.len()) && !is_counting {
            runs.push((begin, last + 1 - begin, digits));
        }
    };
    for word in text.split_whitespace() {
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        match (word.as_bytes(), &mut run) {
            ([digit @ b'0'..=b'9'], Some((_, last, digits))) => {
                *last = at;
                digits.push(char::from(*digit));
            }
            ([digit @ b'0'..=b'9'], None) => run = Some((at, at, char::from(*digit).to_string())),
            _ => end(&mut run),
        }
    }
    end(&mut run);
    runs
}

/// Splits a text into runs of letters, digits and single joiners, with their offsets.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let base = text.as_ptr() as usize;
    text.split(|c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '"' | '\''
                    | '<'
                    | '>'
                    | '('
                    | ')'
                    | '['
                    | ']'
                    | '*'
                    | '「'
                    | '」'
                    | '。'
                    | '、'
                    | '，'
                    | '：'
                    | '！'
            )
    })
    .map(move |word| word.trim_matches([':', '.', ',', ';', '!', '?', '_', '=']))
    .filter(|word| !word.is_empty())
    .map(move |word| (word.as_ptr() as usize - base, word))
}

fn as_code(whole: &str, at: usize, word: &str) -> Option<String> {
    // Bytes are compared, so a multi-byte character is not a digit.
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let groups: Vec<&str> = word.split('-').collect();
    let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    match &*groups {
        // "12-34-56"
        [one, two, three] if groups.iter().all(|group| group.len() == 2 && digits(group)) => {
            return Some([*one, two, three].concat());
        }
        // "AB12-CD34"
        [one, two]
            if one.len() == 4 && two.len() == 4 && word.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            let is_mixed = one.bytes().chain(two.bytes()).all(is_capital)
                && word.bytes().any(|byte| byte.is_ascii_digit());
            return is_mixed.then(|| word.to_owned());
        }
        _ => {}
    }
    // "G-123456", "123-456", "123456"
    let body = match word.split_once('-') {
        Some((prefix, rest)) if digits(prefix) && digits(rest) && prefix.len() == rest.len() => {
            return (prefix.len() == 3 || prefix.len() == 4).then(|| format!("{prefix}{rest}"));
        }
        Some((prefix, rest))
            if prefix.len() <= 3 && prefix.bytes().all(|b| b.is_ascii_uppercase()) && digits(rest) =>
        {
            rest
        }
        Some(_) => return None,
        None => word,
    };
    if digits(body) && (4..=8).contains(&body.len()) {
        // "123 456" is handled as two groups of one code.
        if body.len() == 3 {
            return None;
        }
        let before = whole[..at].chars().next_back();
        let currency = matches!(before, Some('$' | '€' | '£' | '¥' | '#' | '/' | '+'));
        return (!currency).then(|| body.to_owned());
    }
    let mixed = (6..=10).contains(&body.len())
        && body.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        && body.bytes().any(|b| b.is_ascii_digit())
        && body.bytes().any(|b| b.is_ascii_uppercase());
    if mixed {
        return Some(body.to_owned());
    }
    two_groups(whole, at, word)
}

/// Returns the code of "123 456" if `word` is its first group.
fn two_groups(whole: &str, at: usize, word: &str) -> Option<String> {
    let three = |text: &str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !three(word) {
        return None;
    }
    let rest = whole[at + word.len()..].strip_prefix([' ', '\u{a0}'])?;
    let second = rest.get(..3)?;
    let ends =
        rest[3..].chars().next().is_none_or(|c| c.is_whitespace() || matches!(c, '.' | ',' | '<' | ')'));
    (three(second) && ends).then(|| format!("{word}{second}"))
}

fn surrounding_text(text: &str, at: usize, length: usize) -> String {
    let before: String = {
        let mut characters: Vec<char> = text[..at].chars().rev().take(NEAR_CHARACTERS).collect();
        characters.reverse();
        characters.into_iter().collect()
    };
    let after: String = text[at + length..].chars().take(NEAR_CHARACTERS).collect();
    format!("{before} {after}").to_lowercase()
}
