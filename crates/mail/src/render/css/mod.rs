//! Sanitizer of a mail's style sheets and `style` attributes: rewrites them without anything that loads or
//! runs.
//!
//! ```text
//!  text ─▶ cssparser's tokens and rules ─▶ judged one by one ─▶ the same tokens, serialised: out
//!                                              └▶ RemovedCounts, remote items, dark rules
//! ```
//! The output consists of allowed tokens: no byte of the source is copied, so an escape, a comment or an
//! unclosed block cannot mean something else to the browser. Pictures of the mail itself stay. Remote
//! pictures become `none`, which keeps the colour in the same declaration, until the reader asks for remote
//! pictures; then they load like those of an `<img>`. A declaration is removed if it ran code in some older
//! browser, or if it calls a function that is not listed, because such a function might fetch in a future
//! browser. Selectors stay, whatever they match; pictures of a rule that depends on the reader's actions
//! (`:hover`, `:visited`) are always `none`. No `<` that could end the element is written.
//!
//! All limits apply to all sheets of a mail together.

mod allowed;
mod limits;
mod words;

use std::{borrow::Cow, collections::HashMap, fmt::Write as _};

use cssparser::{
    AtRuleParser, CowRcStr, DeclarationParser, ParseError, Parser, ParserState, QualifiedRuleParser,
    RuleBodyItemParser, RuleBodyParser, StyleSheetParser, ToCss, Token, TokenSerializationType,
    serialize_string,
};

use super::{
    cut,
    html::RemovedCounts,
    sources::{RemoteHost, Source, Sources},
};

use allowed::{
    ALWAYS, FUNCTIONS, IDLE, KEYFRAMES, NEVER, OF_THE_DOCUMENT, PICTURES, RUNNING, SHAPES, WITH_RULES,
};
pub(crate) use limits::{
    CSS_BYTES_MAX, CSS_DECLARATIONS_MAX, CSS_DEPTH_MAX, CSS_RULES_MAX, CSS_SELECTORS_MAX, CssLimit,
};
use limits::{WRITTEN_BYTES_MAX, WRITTEN_MAX};
pub(super) use words::is_simple;
use words::{is_plain, trim};

/// Sanitizer of the style sheets and attributes of one mail.
pub(super) struct Css<'a> {
    sources: &'a Sources,
    dark: bool,
    bytes_left: usize,
    rules_left: usize,
    declarations_left: usize,
    /// The first limit that was hit.
    pub(super) over: Option<CssLimit>,
    pub(super) taken: RemovedCounts,
    /// Hosts of remote pictures.
    pub(super) seen: Vec<RemoteHost>,
    /// True if there are rules for a dark colour scheme.
    pub(super) has_dark: bool,
    /// Cache of `style` attributes and their sanitized form, because layouts repeat the same attribute in
    /// each cell. An attribute in which something is counted as removed is not cached, so that each
    /// occurrence is counted.
    written: HashMap<String, String>,
}

type Fault<'i> = ParseError<()>;

impl<'a> Css<'a> {
    pub(super) fn new(sources: &'a Sources, dark: bool) -> Self {
        Self {
            sources,
            dark,
            bytes_left: CSS_BYTES_MAX,
            rules_left: CSS_RULES_MAX,
            declarations_left: CSS_DECLARATIONS_MAX,
            over: None,
            taken: RemovedCounts::default(),
            seen: Vec::new(),
            has_dark: false,
            written: HashMap::new(),
        }
    }

    /// Sanitizes a style sheet and appends it to `out`.
    pub(super) fn sheet(&mut self, text: &str, out: &mut String) {
        let read = cut(text, self.bytes_left);
        self.bytes_left -= read.len();
        if read.len() < text.len() {
            self.record_limit(CssLimit::Bytes);
        }
        let mut input = Parser::new(read);
        input.set_nested_block_limit(CSS_DEPTH_MAX + 1);
        let mut rules = Rules { css: self, out, place: RuleContext::Sheet, depth: 0, acts: false };
        let mut items = StyleSheetParser::new(&mut input, &mut rules);
        loop {
            let begin = items.parser.out.len();
            match items.next() {
                None => return,
                Some(Ok(())) => {}
                Some(Err(_)) => items.parser.out.truncate(begin),
            }
        }
    }

    /// Sanitizes the media condition in an attribute.
    pub(super) fn media(&mut self, text: &str) -> Option<String> {
        let mut input = Parser::new(text);
        input.set_nested_block_limit(CSS_DEPTH_MAX + 1);
        let mut out = String::with_capacity(text.len());
        let mut rules = Rules { css: self, out: &mut out, place: RuleContext::Sheet, depth: 0, acts: false };
        rules.copy(&mut input, TokenContext::Media).ok()?;
        Some(out)
    }

    /// Sanitizes the value of a `style` attribute; `None` if nothing remains.
    pub(super) fn attribute<'s>(&mut self, text: &'s str) -> Option<Cow<'s, str>> {
        if text.bytes().all(is_plain) {
            return (!text.is_empty()).then_some(Cow::Borrowed(text));
        }
        if let Some(written) = self.written.get(text) {
            return (!written.is_empty()).then(|| Cow::Owned(written.clone()));
        }
        let before = (self.taken, self.seen.len(), self.over);
        let written = self.attribute_by_tokens(text);
        let nothing_was_said = before == (self.taken, self.seen.len(), self.over);
        if nothing_was_said && text.len() <= WRITTEN_BYTES_MAX && self.written.len() < WRITTEN_MAX {
            self.written.insert(text.to_owned(), written.clone());
        }
        (!written.is_empty()).then_some(Cow::Owned(written))
    }

    pub(super) fn attribute_by_tokens(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut input = Parser::new(text);
        input.set_nested_block_limit(CSS_DEPTH_MAX + 1);
        Rules { css: self, out: &mut out, place: RuleContext::Attribute, depth: 0, acts: false }
            .body(&mut input);
        out
    }

    fn record_limit(&mut self, over: CssLimit) {
        self.over.get_or_insert(over);
    }
}

/// Context in which a rule appears.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleContext {
    /// A style sheet, or a rule that contains rules.
    Sheet,
    /// A rule with declarations, and possibly nested rules.
    Rule,
    Keyframes,
    Attribute,
}

/// Meaning of the tokens being copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenContext {
    Selectors,
    Media,
    Value,
}

struct Rules<'r, 'a> {
    css: &'r mut Css<'a>,
    out: &'r mut String,
    place: RuleContext,
    /// Number of open blocks, brackets and functions.
    depth: u8,
    /// True if the declarations here depend on the reader's actions: loading their pictures would reveal
    /// these actions to the sender.
    acts: bool,
}

/// Kind of an at-rule whose name and condition have already been written.
enum AtRuleKind {
    Statement,
    Rules {
        place: RuleContext,
        /// True if the block's rules depend on the reader's actions, as in [`Rules`].
        acts: bool,
    },
}

impl Rules<'_, '_> {
    /// Runs `work` one level deeper, within a block, a bracket or a function.
    fn within<'i, T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Fault<'i>>,
    ) -> Result<T, Fault<'i>> {
        if self.depth == CSS_DEPTH_MAX {
            self.css.record_limit(CssLimit::Depth);
            return Err(ParseError::custom(()));
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        done
    }

    /// Sanitizes declarations and rules up to the end of a block or an attribute.
    fn body(&mut self, input: &mut Parser<'_>) {
        let mut items = RuleBodyParser::new(input, self);
        loop {
            let begin = items.parser.out.len();
            match items.next() {
                None => return,
                Some(Ok(())) => {}
                Some(Err(_)) => items.parser.out.truncate(begin),
            }
        }
    }

    /// Sanitizes a block in the given context.
    fn block<'i>(&mut self, input: &mut Parser<'_>, place: RuleContext, acts: bool) -> Result<(), Fault<'i>> {
        self.within(|rules| {
            rules.out.push('{');
            let outer = (rules.place, rules.acts);
            (rules.place, rules.acts) = (place, rules.acts || acts);
            rules.body(input);
            (rules.place, rules.acts) = outer;
            rules.out.push('}');
            Ok(())
        })
    }

    /// Writes all tokens of the input, or fails if they must be removed.
    fn copy<'i>(&mut self, input: &mut Parser<'i>, kind: TokenContext) -> Result<(), Fault<'i>> {
        let mut before = TokenSerializationType::Nothing;
        let mut behind_colon = false;
        while let Ok(token) = input.next_including_whitespace() {
            let token = token.clone();
            if kind == TokenContext::Selectors {
                if let Token::Ident(name) | Token::Function(name) = &token
                    && behind_colon
                {
                    self.acts |= !is_one_of(name, OF_THE_DOCUMENT);
                }
                behind_colon = matches!(token, Token::Colon);
            }
            let this = token.serialization_type();
            // `--` and `>` together would be `-->`, which ends an SGML comment.
            let is_other_comment = matches!(token, Token::Delim('>')) && self.out.ends_with("--");
            if before.needs_separator_when_before(this) || is_other_comment {
                self.out.push_str("/**/");
            }
            before = self.token(input, &token, kind)?.unwrap_or(this);
        }
        Ok(())
    }

    /// Writes a token with its content. Returns the token type to use when deciding on a separator before the
    /// next token, if that is not the type of this token.
    fn token<'i>(
        &mut self,
        input: &mut Parser<'i>,
        token: &Token<'i>,
        kind: TokenContext,
    ) -> Result<Option<TokenSerializationType>, Fault<'i>> {
        let gone = || ParseError::custom(());
        match token {
            Token::WhiteSpace(_) => self.out.push(' '),
            Token::QuotedString(text) => self.string(text),
            Token::UnquotedUrl(url) => {
                self.fetched(url, kind)?;
                return Ok(Some(TokenSerializationType::Ident));
            }
            Token::Function(name) if is_one_of(name, PICTURES) => {
                let is_url = name.eq_ignore_ascii_case("url");
                // A URL with further arguments is dropped.
                let url = input.parse_nested_block(|input| {
                    let url = input.expect_string_cloned().map(|url| url.to_string()).unwrap_or_default();
                    let alone = is_url && input.is_exhausted();
                    while input.next().is_ok() {}
                    Ok::<_, Fault<'i>>(if alone { url } else { String::new() })
                })?;
                self.fetched(&url, kind)?;
                return Ok(Some(TokenSerializationType::Ident));
            }
            Token::Function(name) => {
                // No browser runs `expression` in a selector, but it is never needed there either.
                let ran_once = name.eq_ignore_ascii_case("expression");
                if ran_once || kind == TokenContext::Value && !is_listed(name) {
                    self.css.taken.styles += 1;
                    return Err(gone());
                }
                self.plain(token);
                input.parse_nested_block(|input| self.within(|rules| rules.copy(input, kind)))?;
                self.out.push(')');
                return Ok(Some(TokenSerializationType::Other));
            }
            Token::ParenthesisBlock => {
                input.parse_nested_block(|input| self.within(|rules| rules.bracket(input, kind)))?;
                return Ok(Some(TokenSerializationType::Other));
            }
            Token::SquareBracketBlock => {
                self.out.push('[');
                input.parse_nested_block(|input| self.within(|rules| rules.copy(input, kind)))?;
                self.out.push(']');
                return Ok(Some(TokenSerializationType::Other));
            }
            // A comparison in a condition. A blank keeps the `<` from beginning an end tag.
            Token::Delim('<') if kind == TokenContext::Media => {
                self.out.push_str("< ");
                input.skip_whitespace();
                return Ok(Some(TokenSerializationType::WhiteSpace));
            }
            Token::Delim('<' | '\\')
            | Token::AtKeyword(_)
            | Token::Semicolon
            | Token::CDO
            | Token::CDC
            | Token::CurlyBracketBlock
            | Token::BadUrl(_)
            | Token::BadString(_)
            | Token::CloseParenthesis
            | Token::CloseSquareBracket
            | Token::CloseCurlyBracket => return Err(gone()),
            Token::Colon if kind == TokenContext::Value && self.out.ends_with("progid") => return Err(gone()),
            token => self.plain(token),
        }
        Ok(None)
    }

    /// Writes a pair of round brackets and its content. A condition on the colour scheme is decided here,
    /// because the reader, not the system, chooses the frame's scheme.
    fn bracket<'i>(&mut self, input: &mut Parser<'i>, kind: TokenContext) -> Result<(), Fault<'i>> {
        if kind == TokenContext::Media
            && let Ok(wanted) = input.try_parse(scheme)
        {
            self.css.has_dark |= wanted == Some(true);
            let holds = wanted.is_none_or(|dark| dark == self.css.dark);
            self.out.push_str(if holds { ALWAYS } else { NEVER });
            return Ok(());
        }
        self.out.push('(');
        self.copy(input, kind)?;
        self.out.push(')');
        Ok(())
    }

    /// Writes a token as it is serialised, but escapes a `<`, which could end the element.
    fn plain(&mut self, token: &Token<'_>) {
        // Most tokens are simple names and need no escapes.
        if let Token::Ident(name) = token
            && is_simple(name)
        {
            self.out.push_str(name);
            return;
        }
        let begin = self.out.len();
        // Writing to a string cannot fail.
        _ = token.to_css(self.out);
        if self.out[begin..].contains('<') {
            // A `<` in a name is escaped already.
            let written = self.out.split_off(begin);
            self.out.push_str(&written.replace("\\<", "\\3c "));
        }
    }

    fn string(&mut self, text: &str) {
        let begin = self.out.len();
        _ = serialize_string(text, self.out);
        if self.out[begin..].contains('<') {
            let written = self.out.split_off(begin);
            self.out.push_str(&written.replace('<', "\\3c "));
        }
    }

    /// Writes a URL that a browser would fetch. A picture from the mail itself is kept, with a path on our
    /// server. A remote picture becomes `none` until the reader asks for remote content, and always if the
    /// fetch would depend on the reader's actions.
    fn fetched<'i>(&mut self, url: &str, kind: TokenContext) -> Result<(), Fault<'i>> {
        if kind != TokenContext::Value {
            return Err(ParseError::custom(()));
        }
        let source = self.css.sources.of(url);
        let kept = match source {
            Source::Kept(url) => url,
            Source::Remote(url) if !self.acts => {
                self.css.seen.push(RemoteHost::of(&url));
                url
            }
            Source::Blocked if !self.acts => {
                self.css.seen.push(RemoteHost::of(url));
                self.out.push_str("none");
                return Ok(());
            }
            Source::Remote(_) | Source::Blocked | Source::Nothing => {
                self.css.taken.styles += 1;
                self.out.push_str("none");
                return Ok(());
            }
        };
        self.out.push_str("url(");
        self.string(&kept);
        self.out.push(')');
        Ok(())
    }
}

/// Parses `prefers-color-scheme`: returns whether it asks for dark, or `None` if it asks for any.
fn scheme<'i>(input: &mut Parser<'i>) -> Result<Option<bool>, Fault<'i>> {
    input.expect_ident_matching("prefers-color-scheme")?;
    if input.is_exhausted() {
        return Ok(None);
    }
    input.expect_colon()?;
    let dark = match input.expect_ident()? {
        name if name.eq_ignore_ascii_case("dark") => true,
        name if name.eq_ignore_ascii_case("light") => false,
        _ => return Err(ParseError::custom(())),
    };
    input.expect_exhausted()?;
    Ok(Some(dark))
}

fn is_listed(function: &str) -> bool {
    is_one_of(function, FUNCTIONS) || is_one_of(function, SHAPES)
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|one| name.eq_ignore_ascii_case(one))
}

impl<'i> DeclarationParser<'i> for Rules<'_, '_> {
    type Declaration = ();
    type Error = ();

    fn parse_value(
        &mut self,
        name: CowRcStr<'i>,
        input: &mut Parser<'i>,
        _: &ParserState,
    ) -> Result<(), Fault<'i>> {
        let begin = self.out.len();
        if is_one_of(&name, RUNNING) {
            self.css.taken.styles += 1;
            return Err(ParseError::custom(()));
        }
        if self.place != RuleContext::Attribute {
            if self.css.declarations_left == 0 {
                self.css.record_limit(CssLimit::Declarations);
                return Err(ParseError::custom(()));
            }
            self.css.declarations_left -= 1;
        }
        let is_variable = name.starts_with("--");
        self.plain(&Token::Ident(name));
        self.out.push(':');
        input.skip_whitespace();
        let (taken, seen) = (self.css.taken, self.css.seen.len());
        // A rule that matches on hover may use the variable.
        let outer = self.acts;
        self.acts |= is_variable;
        let copied = self.copy(input, TokenContext::Value);
        self.acts = outer;
        // One declaration counts once, even if several of its values were removed.
        self.css.taken.styles = self.css.taken.styles.min(taken.styles + 1);
        match &copied {
            Ok(()) => {
                trim(self.out, begin);
                self.out.push(';');
            }
            Err(_) => {
                self.out.truncate(begin);
                self.css.seen.truncate(seen);
            }
        }
        copied
    }
}

impl<'i> QualifiedRuleParser<'i> for Rules<'_, '_> {
    /// True if the rule's selectors depend on the reader's actions.
    type Prelude = bool;
    type QualifiedRule = ();
    type Error = ();

    fn parse_prelude(&mut self, input: &mut Parser<'i>) -> Result<bool, Fault<'i>> {
        let begin = self.out.len();
        let acts = self.selectors(input)?;
        trim(self.out, begin);
        if self.out.len() == begin {
            return Err(ParseError::custom(()));
        }
        // Commas within strings and brackets also count.
        if self.out[begin..].bytes().filter(|&byte| byte == b',').count() >= CSS_SELECTORS_MAX {
            self.css.record_limit(CssLimit::Selectors);
            return Err(ParseError::custom(()));
        }
        Ok(acts)
    }

    fn parse_block(&mut self, acts: bool, _: &ParserState, input: &mut Parser<'i>) -> Result<(), Fault<'i>> {
        self.rule()?;
        self.block(input, RuleContext::Rule, acts)
    }
}

impl Rules<'_, '_> {
    /// Writes selectors; returns whether they depend on the reader's actions.
    fn selectors<'i>(&mut self, input: &mut Parser<'i>) -> Result<bool, Fault<'i>> {
        let outer = std::mem::take(&mut self.acts);
        let copied = self.copy(input, TokenContext::Selectors);
        let acts = std::mem::replace(&mut self.acts, outer);
        copied.map(|()| acts)
    }

    /// Counts a rule, or fails if there are too many.
    fn rule<'i>(&mut self) -> Result<(), Fault<'i>> {
        if self.css.rules_left == 0 {
            self.css.record_limit(CssLimit::Rules);
            return Err(ParseError::custom(()));
        }
        self.css.rules_left -= 1;
        Ok(())
    }
}

impl<'i> AtRuleParser<'i> for Rules<'_, '_> {
    type Prelude = AtRuleKind;
    type AtRule = ();
    type Error = ();

    fn parse_prelude(&mut self, name: CowRcStr<'i>, input: &mut Parser<'i>) -> Result<AtRuleKind, Fault<'i>> {
        let place = if self.place == RuleContext::Attribute {
            return Err(ParseError::custom(()));
        } else if is_one_of(&name, WITH_RULES) {
            // Within a style rule, the block of such an at-rule contains declarations.
            self.place
        } else if is_one_of(&name, KEYFRAMES) {
            RuleContext::Keyframes
        } else {
            let taken = &mut self.css.taken;
            match () {
                () if name.eq_ignore_ascii_case("import") => taken.imports += 1,
                () if name.eq_ignore_ascii_case("font-face") => taken.fonts += 1,
                () if is_one_of(&name, IDLE) => {}
                () => taken.styles += 1,
            }
            return Err(ParseError::custom(()));
        };
        let is_layer = name.eq_ignore_ascii_case("layer");
        _ = write!(self.out, "@");
        let is_scope = name.eq_ignore_ascii_case("scope");
        self.plain(&Token::Ident(name));
        self.out.push(' ');
        input.skip_whitespace();
        let begin = self.out.len();
        self.copy(input, TokenContext::Media)?;
        // An animation may start on hover, and `@scope` is followed by selectors.
        let acts = place == RuleContext::Keyframes || (is_scope && self.out[begin..].contains(':'));
        Ok(if is_layer && self.place == RuleContext::Sheet {
            AtRuleKind::Statement
        } else {
            AtRuleKind::Rules { place, acts }
        })
    }

    fn rule_without_block(&mut self, prelude: AtRuleKind, _: &ParserState) -> Result<(), ()> {
        match prelude {
            AtRuleKind::Statement => {
                self.out.push(';');
                Ok(())
            }
            AtRuleKind::Rules { .. } => Err(()),
        }
    }

    fn parse_block(
        &mut self,
        prelude: AtRuleKind,
        _: &ParserState,
        input: &mut Parser<'i>,
    ) -> Result<(), Fault<'i>> {
        self.rule()?;
        let (place, acts) = match prelude {
            AtRuleKind::Rules { place, acts } => (place, acts),
            AtRuleKind::Statement => (self.place, false),
        };
        self.block(input, place, acts)
    }
}

impl RuleBodyItemParser<'_, (), ()> for Rules<'_, '_> {
    fn parse_declarations(&self) -> bool {
        matches!(self.place, RuleContext::Rule | RuleContext::Attribute)
    }

    fn parse_qualified(&self) -> bool {
        self.place != RuleContext::Attribute
    }
}
