//! One command from one whole line, and what is wrong with it as a reply.

use std::borrow::Cow;

use smtp_proto::{
    AUTH_LOGIN, AUTH_PLAIN, Error, MAIL_BODY_8BITMIME, MAIL_BODY_BINARYMIME, MAIL_REQUIRETLS, MAIL_SMTPUTF8,
    Request,
};

use super::reply::{self, Reply};

/// What a peer wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    /// EHLO, HELO or LHLO.
    Hello(Hello<'a>),
    /// MAIL FROM.
    Mail(MailFrom<'a>),
    /// RCPT TO, with its address.
    Rcpt(Cow<'a, str>),
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
        initial: Cow<'a, str>,
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
    pub name: Cow<'a, str>,
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
    pub address: Cow<'a, str>,
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
    match Request::parse(&mut line.as_bytes().iter()) {
        Ok(request) => command(request, line),
        Err(error) => literal(line).unwrap_or_else(|| Err(refusal(&error, line))),
    }
}

/// What the library has read in `line`.
fn command<'l>(request: Request<Cow<'l, str>>, line: &'l str) -> Result<Command<'l>, Reply> {
    let verb_len = line.bytes().take_while(u8::is_ascii_alphabetic).count();
    let is_bare = line[verb_len..].trim_end_matches([' ', '\t', '\r', '\n']).is_empty();
    let command = match request {
        Request::Ehlo { host } => hello(HelloKind::Ehlo, host)?,
        Request::Helo { host } => hello(HelloKind::Helo, host)?,
        Request::Lhlo { host } => hello(HelloKind::Lhlo, host)?,
        Request::Mail { from } => {
            let unoffered = from.flags & (MAIL_BODY_BINARYMIME | MAIL_REQUIRETLS) != 0
                || from.hold_for != 0
                || from.hold_until != 0
                || from.by != 0;
            if unoffered {
                return Err(reply::PARAMETER);
            }
            let smtputf8 = from.flags & MAIL_SMTPUTF8 != 0;
            if !smtputf8 && !from.address.is_ascii() {
                return Err(reply::NEEDS_SMTPUTF8);
            }
            Command::Mail(MailFrom {
                address: as_quoted(line).map_or(from.address, Cow::Borrowed),
                size_bytes: from.size as u64,
                eight_bit: from.flags & MAIL_BODY_8BITMIME != 0,
                smtputf8,
            })
        }
        // The library reads <postmaster>, which needs no domain (RFC 5321, 4.1.1.3), and <> alike as "".
        Request::Rcpt { to } if to.address.is_empty() => {
            let path = line.split_once('<').map_or("", |(_, path)| path);
            match path.split_once('>') {
                Some((name, _)) if name.eq_ignore_ascii_case("postmaster") => {
                    Command::Rcpt(Cow::Borrowed("postmaster"))
                }
                _ => return Err(reply::RECIPIENT_SYNTAX),
            }
        }
        // The library takes the quotes off a quoted local part, after which it could mean another address.
        Request::Rcpt { to } => Command::Rcpt(as_quoted(line).map_or(to.address, Cow::Borrowed)),
        Request::Bdat { chunk_size, is_last } => Command::Bdat { bytes: chunk_size as u64, last: is_last },
        Request::Auth { mechanism, initial_response } => {
            let mechanism = match mechanism {
                AUTH_PLAIN => Some(Mechanism::Plain),
                AUTH_LOGIN => Some(Mechanism::Login),
                _ => None,
            };
            Command::Auth { mechanism, initial: initial_response }
        }
        Request::Noop { .. } => Command::Noop,
        Request::Vrfy { .. } => Command::Vrfy,
        Request::Expn { .. } => Command::Expn,
        Request::Help { .. } => Command::Help,
        // The library overlooks what stands behind these (RFC 5321, 4.1.1: they take no argument).
        Request::Data | Request::StartTls | Request::Rset | Request::Quit if !is_bare => {
            return Err(reply::NO_ARGUMENT);
        }
        Request::Data => Command::Data,
        Request::StartTls => Command::StartTls,
        Request::Rset => Command::Rset,
        Request::Quit => Command::Quit,
        Request::Etrn { .. } | Request::Atrn { .. } | Request::Burl { .. } => {
            return Err(reply::NOT_IMPLEMENTED);
        }
    };
    Ok(command)
}

/// MAIL and RCPT with an address literal (`<a@[192.0.2.1]>`, RFC 5321, 4.1.3), which the library does not know: it reads
/// the line with a domain in its place. `None` if there is no literal.
fn literal(line: &str) -> Option<Result<Command<'_>, Reply>> {
    const STAND_IN: &str = "literal.invalid";
    let begin = line.find('<')? + 1;
    let end = begin + line[begin..].find("]>")? + 1;
    let domain = begin + line[begin..end].rfind("@[")? + 1;
    let name = &line[begin..domain];
    // A route's literal is not the mailbox's, and what is told of it is the route's syntax.
    if name.starts_with('@') {
        return None;
    }
    let address = Cow::Borrowed(&line[begin..end]);
    let stood_in = [&line[..domain], STAND_IN, &line[end..]].concat();
    // Once: a line of many brackets is not read again for each of them.
    let read = Request::parse(&mut stood_in.as_bytes().iter()).map_err(|error| refusal(&error, &stood_in));
    let read = read.and_then(|request| command(request, &stood_in)).map(|command| match command {
        Command::Rcpt(_) => Some(Command::Rcpt(address)),
        Command::Mail(MailFrom { size_bytes, eight_bit, smtputf8, .. }) => {
            Some(Command::Mail(MailFrom { address, size_bytes, eight_bit, smtputf8 }))
        }
        _ => None,
    });
    read.transpose()
}

/// The address of a path as it was said, without a source route, where it begins with a quote.
fn as_quoted(line: &str) -> Option<&str> {
    let path = line.split_once('<')?.1;
    let address = match path.split_once(":\"") {
        Some((route, _)) if route.starts_with('@') => &path[route.len() + 1..],
        _ => path,
    };
    if !address.starts_with('"') {
        return None;
    }
    let mut escaped = false;
    let close = address[1..].bytes().position(|byte| match (escaped, byte) {
        (true, _) => {
            escaped = false;
            false
        }
        (false, b'\\') => {
            escaped = true;
            false
        }
        (false, byte) => byte == b'"',
    })? + 2;
    let end = close + address[close..].find('>')?;
    Some(&address[..end])
}

fn hello(kind: HelloKind, name: Cow<'_, str>) -> Result<Command<'_>, Reply> {
    // A name is a domain or an address literal; what is written into Received must not be more than that.
    let plain =
        name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'(' | b')' | b'<' | b'>'));
    if plain { Ok(Command::Hello(Hello { kind, name })) } else { Err(reply::HELLO_SYNTAX) }
}

fn refusal(error: &Error, line: &str) -> Reply {
    let begins = |verb: &str| line.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(verb));
    match error {
        Error::InvalidSenderAddress => reply::SENDER_SYNTAX,
        Error::InvalidRecipientAddress => reply::RECIPIENT_SYNTAX,
        Error::InvalidParameter { .. } => reply::PARAMETER_VALUE,
        Error::UnsupportedParameter { .. } => reply::PARAMETER,
        Error::SyntaxError { .. } if begins("MAIL") => reply::MAIL_SYNTAX,
        Error::SyntaxError { .. } if begins("RCPT") => reply::RCPT_SYNTAX,
        Error::SyntaxError { .. } if begins("BDAT") => reply::BDAT_SYNTAX,
        Error::SyntaxError { .. } if begins("EHLO") || begins("HELO") || begins("LHLO") => {
            reply::HELLO_SYNTAX
        }
        // The line is whole: whatever the library still waits for is not there.
        Error::SyntaxError { .. } | Error::NeedsMoreData { .. } => reply::ARGUMENT_SYNTAX,
        Error::UnknownCommand | Error::ResponseTooLong | Error::InvalidResponse { .. } => reply::UNKNOWN,
    }
}
