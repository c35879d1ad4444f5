//! SMTP command parser: one command from one whole line, or the reply that describes the error.
//!
//! The grammar follows RFC 5321, 4.1.2, and the line is read once from left to right; values borrowed from
//! the line are unchanged. Addresses are parsed in `path`, parameters of MAIL and RCPT here. The parser
//! accepts some input beyond the standard: more than one space between words, spaces before and after the
//! colon of `FROM:` and `TO:`, and spaces at the end. Parameters for delivery reports (RFC 3461) are accepted
//! and ignored: no report is ever sent.

use super::{
    path,
    reply::{self, Reply},
};

/// Length of the longest client name (RFC 5321, 4.5.3.1.2).
const NAME_BYTES_MAX: usize = 255;

/// Command of an SMTP client.
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
        /// Length of the chunk in bytes.
        bytes: u64,
        /// True if the chunk ends the mail.
        last: bool,
    },
    /// AUTH.
    Auth {
        /// PLAIN or LOGIN; `None` for any other mechanism.
        mechanism: Option<Mechanism>,
        /// The initial response, "" if there is none.
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

/// Greeting of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Kind of the greeting.
    pub kind: HelloKind,
    /// The name in the greeting, unverified, at most 255 bytes.
    pub name: &'a str,
}

/// Kind of a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloKind {
    /// EHLO: extended SMTP.
    Ehlo,
    /// HELO.
    Helo,
    /// LHLO: LMTP.
    Lhlo,
}

/// Arguments of MAIL FROM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailFrom<'a> {
    /// The sender's address; "" for a bounce.
    pub address: &'a str,
    /// Value of SIZE, 0 if it is missing.
    pub size_bytes: u64,
    /// True for BODY=8BITMIME.
    pub eight_bit: bool,
    /// True if SMTPUTF8 is given.
    pub smtputf8: bool,
}

/// Authentication mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// PLAIN (RFC 4616).
    Plain,
    /// LOGIN, which sends two challenges.
    Login,
}

/// Parses a line with its CRLF, as [`super::line`] returns it.
///
/// # Errors
/// Returns the [`Reply`] that describes the error.
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

/// Length of the longest verb, STARTTLS.
const VERB_BYTES_MAX: usize = 8;

/// Blanks between words; CR and LF occur only at a line's end.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Splits off the first word, and returns it with the rest after the blanks.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(BLANKS).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start_matches(BLANKS))
}

/// Returns whether a line may be the first line or a header line of an HTTP request. Any web page can make a
/// browser send such a request to any port, followed by lines that the page chooses; no SMTP command has this
/// form.
#[cold]
fn is_http(verb: &str, rest: &str) -> bool {
    const METHODS: [&str; 10] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "PRI"];
    let is_field = verb.split_once(':').is_some_and(|(name, _)| !name.is_empty());
    let version = rest.rsplit(BLANKS).next().unwrap_or_default();
    is_field || METHODS.contains(&verb) || version.starts_with("HTTP/")
}

fn hello(kind: HelloKind, name: &str) -> Result<Command<'_>, Reply> {
    // A name is a domain or an address literal; nothing else may be written into the Received header.
    let plain =
        name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'(' | b')' | b'<' | b'>'));
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if plain && fits { Ok(Command::Hello(Hello { kind, name })) } else { Err(reply::HELLO_SYNTAX) }
}

/// Returns the rest after `<` of `FROM:<path> parameters` or `TO:<path> parameters`.
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
            // AUTH names the sender's identity as the client claims it: the parameter is allowed (RFC 4954,
            // 5), but not trusted.
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

/// A parameter and its value, if it has one.
type Parameter<'l> = (&'l str, Option<&'l str>);

/// Iterates over the parameters after a path (RFC 5321, 4.1.2: `esmtp-param`); a malformed one yields
/// `fault`.
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
