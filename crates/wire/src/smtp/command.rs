//! One command from one whole line, and what is wrong with it as a reply.
//!
//! The grammar is that of RFC 5321, 4.1.2, read once and from left to right; what is borrowed from the line is as it
//! was said. Addresses are in `path`, parameters of MAIL and RCPT here. Taken although the standard does not: more than
//! one space between words, spaces before and behind the colon of `FROM:` and `TO:`, spaces at the end, and parameters
//! for delivery reports (RFC 3461), which are read and forgotten: no report is ever sent.

use super::{
    path,
    reply::{self, Reply},
};

/// The longest name of a peer (RFC 5321, 4.5.3.1.2).
const NAME_BYTES_MAX: usize = 255;

/// What a peer wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    /// EHLO, HELO or LHLO.
    Hello(Hello<'a>),
    /// MAIL FROM.
    Mail(MailFrom<'a>),
    /// RCPT TO, with its address.
    Rcpt(&'a str),
    /// DATA.
    Data,
    /// BDAT.
    Bdat {
        /// Bytes of the chunk.
        bytes: u64,
        /// Whether it ends the mail.
        last: bool,
    },
    /// AUTH.
    Auth {
        /// PLAIN or LOGIN; none: another one.
        mechanism: Option<Mechanism>,
        /// The initial response, "" for none.
        initial: &'a str,
    },
    /// STARTTLS.
    StartTls,
    /// RSET.
    Rset,
    /// NOOP.
    Noop,
    /// VRFY.
    Vrfy,
    /// EXPN.
    Expn,
    /// HELP.
    Help,
    /// QUIT.
    Quit,
}

/// How a peer introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Which of the three.
    pub kind: HelloKind,
    /// The name that it gave, unverified, at most 255 bytes.
    pub name: &'a str,
}

/// Which greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloKind {
    /// EHLO: extended SMTP.
    Ehlo,
    /// HELO.
    Helo,
    /// LHLO: LMTP.
    Lhlo,
}

/// MAIL FROM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailFrom<'a> {
    /// The address; "" for a bounce.
    pub address: &'a str,
    /// SIZE, 0 where it was not said.
    pub size_bytes: u64,
    /// BODY=8BITMIME.
    pub eight_bit: bool,
    /// SMTPUTF8.
    pub smtputf8: bool,
}

/// A way to authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// RFC 4616.
    Plain,
    /// Two challenges.
    Login,
}

/// Reads a line with its CRLF, as [`super::line`] gives it.
///
/// # Errors
/// The reply that says what is wrong.
pub fn parse(line: &str) -> Result<Command<'_>, Reply> {
    let line = line.trim_end_matches(BLANKS);
    let (verb, rest) = word(line);
    let mut upper = [0; VERB_BYTES_MAX];
    let verb_upper = match upper.get_mut(..verb.len()) {
        Some(upper) => {
            upper.copy_from_slice(verb.as_bytes());
            upper.make_ascii_uppercase();
            &*upper
        }
        None => b"",
    };
    let bare = |command| if rest.is_empty() { Ok(command) } else { Err(reply::NO_ARGUMENT) };
    let with_argument = |command| if rest.is_empty() { Err(reply::ARGUMENT_SYNTAX) } else { Ok(command) };
    match verb_upper {
        b"MAIL" => mail(rest),
        b"RCPT" => recipient(rest),
        b"DATA" => bare(Command::Data),
        b"BDAT" => chunk(rest),
        b"RSET" => bare(Command::Rset),
        b"NOOP" => Ok(Command::Noop),
        b"QUIT" => bare(Command::Quit),
        b"EHLO" => hello(HelloKind::Ehlo, rest),
        b"HELO" => hello(HelloKind::Helo, rest),
        b"LHLO" => hello(HelloKind::Lhlo, rest),
        b"STARTTLS" => bare(Command::StartTls),
        b"AUTH" => authentication(rest),
        b"VRFY" => with_argument(Command::Vrfy),
        b"EXPN" => with_argument(Command::Expn),
        b"HELP" => Ok(Command::Help),
        b"ETRN" | b"ATRN" | b"BURL" => Err(reply::NOT_IMPLEMENTED),
        _ if is_http(verb, rest) => Err(reply::NOT_HTTP),
        _ => Err(reply::UNKNOWN),
    }
}

/// STARTTLS.
const VERB_BYTES_MAX: usize = 8;

/// What may stand between words; CR and LF only at a line's end.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// The first word and what follows the blanks behind it.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(BLANKS).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start_matches(BLANKS))
}

/// Whether a line is the first, or a later one, of an HTTP request's head. A browser can be made by any page to send
/// one to any port, with lines of the page's choice behind it; no command of SMTP looks so.
#[cold]
fn is_http(verb: &str, rest: &str) -> bool {
    const METHODS: [&str; 10] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "PRI"];
    let is_field = verb.split_once(':').is_some_and(|(name, _)| !name.is_empty());
    let version = rest.rsplit(BLANKS).next().unwrap_or_default();
    is_field || METHODS.contains(&verb) || version.starts_with("HTTP/")
}

fn hello(kind: HelloKind, name: &str) -> Result<Command<'_>, Reply> {
    // A name is a domain or an address literal; what is written into Received must not be more than that.
    let plain =
        name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'(' | b')' | b'<' | b'>'));
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if plain && fits { Ok(Command::Hello(Hello { kind, name })) } else { Err(reply::HELLO_SYNTAX) }
}

/// `FROM:<path> parameters` or `TO:<path> parameters`: what stands behind `<`.
fn behind_bracket<'l>(rest: &'l str, keyword: &str) -> Option<&'l str> {
    let (said, rest) = rest.split_at_checked(keyword.len())?;
    if !said.eq_ignore_ascii_case(keyword) {
        return None;
    }
    let rest = rest.trim_start_matches(BLANKS).strip_prefix(':')?;
    rest.trim_start_matches(BLANKS).strip_prefix('<')
}

fn mail(rest: &str) -> Result<Command<'_>, Reply> {
    let path = behind_bracket(rest, "FROM").ok_or(reply::MAIL_SYNTAX)?;
    let (address, rest) = path::read(path).ok_or(reply::SENDER_SYNTAX)?;
    let mut from = MailFrom { address, size_bytes: 0, eight_bit: false, smtputf8: false };
    for parameter in parameters(rest, reply::MAIL_SYNTAX)? {
        let (keyword, value) = parameter?;
        let is = |name: &str| keyword.eq_ignore_ascii_case(name);
        match value {
            Some(value) if is("SIZE") => {
                from.size_bytes = path::number(value).ok_or(reply::PARAMETER_VALUE)?;
            }
            Some(value) if is("BODY") => match value {
                _ if value.eq_ignore_ascii_case("8BITMIME") => from.eight_bit = true,
                _ if value.eq_ignore_ascii_case("7BIT") => {}
                _ if value.eq_ignore_ascii_case("BINARYMIME") => return Err(reply::PARAMETER),
                _ => return Err(reply::PARAMETER_VALUE),
            },
            // Who the peer says the sender is: it may be said (RFC 4954, 5), and is believed as little as the rest.
            Some(_) if is("AUTH") || is("RET") || is("ENVID") => {}
            None if is("SMTPUTF8") => from.smtputf8 = true,
            None if is("SIZE") || is("BODY") => return Err(reply::PARAMETER_VALUE),
            _ => return Err(reply::PARAMETER),
        }
    }
    if !from.smtputf8 && !address.is_ascii() {
        return Err(reply::NEEDS_SMTPUTF8);
    }
    Ok(Command::Mail(from))
}

fn recipient(rest: &str) -> Result<Command<'_>, Reply> {
    let path = behind_bracket(rest, "TO").ok_or(reply::RCPT_SYNTAX)?;
    let (address, rest) = path::read(path).ok_or(reply::RECIPIENT_SYNTAX)?;
    if address.is_empty() {
        return Err(reply::RECIPIENT_SYNTAX);
    }
    for parameter in parameters(rest, reply::RCPT_SYNTAX)? {
        match parameter? {
            (name, Some(_)) if name.eq_ignore_ascii_case("NOTIFY") || name.eq_ignore_ascii_case("ORCPT") => {}
            _ => return Err(reply::PARAMETER),
        }
    }
    Ok(Command::Rcpt(address))
}

/// A parameter and its value, if one is said.
type Parameter<'l> = (&'l str, Option<&'l str>);

/// The parameters behind a path (RFC 5321, 4.1.2: `esmtp-param`); each that is none is told as `fault`.
fn parameters(rest: &str, fault: Reply) -> Result<impl Iterator<Item = Result<Parameter<'_>, Reply>>, Reply> {
    if !rest.is_empty() && !rest.starts_with(BLANKS) {
        return Err(fault);
    }
    let is_keyword = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let all = rest.split(BLANKS).filter(|word| !word.is_empty());
    Ok(all.map(move |parameter| {
        let (keyword, value) = match parameter.split_once('=') {
            Some((keyword, value)) => (keyword, Some(value)),
            None => (parameter, None),
        };
        if !is_keyword(keyword) {
            return Err(fault);
        }
        match value {
            Some("") => Err(reply::PARAMETER_VALUE),
            Some(value) if value.contains('=') && !keyword.eq_ignore_ascii_case("AUTH") => {
                Err(reply::PARAMETER_VALUE)
            }
            value => Ok((keyword, value)),
        }
    }))
}

fn chunk(rest: &str) -> Result<Command<'static>, Reply> {
    let (size, rest) = word(rest);
    let bytes = path::number(size).ok_or(reply::BDAT_SYNTAX)?;
    match rest {
        "" => Ok(Command::Bdat { bytes, last: false }),
        _ if rest.eq_ignore_ascii_case("LAST") => Ok(Command::Bdat { bytes, last: true }),
        _ => Err(reply::BDAT_SYNTAX),
    }
}

fn authentication(rest: &str) -> Result<Command<'_>, Reply> {
    let (mechanism, initial) = word(rest);
    let mechanism = match mechanism {
        "" => return Err(reply::ARGUMENT_SYNTAX),
        _ if mechanism.eq_ignore_ascii_case("PLAIN") => Some(Mechanism::Plain),
        _ if mechanism.eq_ignore_ascii_case("LOGIN") => Some(Mechanism::Login),
        _ => None,
    };
    Ok(Command::Auth { mechanism, initial })
}
