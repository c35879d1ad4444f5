//! Drop-in for programs that call `sendmail`: the mail on standard input goes to our own SMTP port, and
//! nowhere else.
//!
//! These flags are supported, as Debian's and Postfix's manual pages describe them: `-t` takes the recipients
//! from To, Cc and Bcc (and removes Bcc), `-f ADDRESS`/`-r ADDRESS` sets MAIL FROM, `-F NAME` sets the name
//! in a From field that is missing, `-i` and `-oi` do not end the mail at a line with a single dot. `-bm`,
//! `-v`, `-N …`, `-R …`, `-V …`, `-q…`, `-o…`, `-B…`, `-O …`, `-L …`, `-U`, `-G`, `-n`, `-h …`, `-X …`, `-p
//! …` are accepted and ignored. `-bs`, `-bp`, `-bi`, `-bd` and the like are refused: there is no queue.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// Largest mail; a larger one is refused before it is sent.
const MAIL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum number of recipients of one mail.
const RECIPIENTS_MAX: usize = 1000;
/// Timeout for a reply from the server.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Longest line of a reply; RFC 5321, 4.5.3.1.5 allows 512 octets.
const ANSWER_LINE_BYTES_MAX: u64 = 4096;

/// Reason why a mail was not submitted.
#[derive(Debug, thiserror::Error)]
pub enum SendmailFault {
    /// The flag asks for a function that does not exist here.
    #[error(
        "sendmail: `{0}` is not supported: there is no queue and no relaying; mail goes to one SMTP port"
    )]
    Unsupported(String),
    /// The flag lacks its value.
    #[error("sendmail: `{0}` needs a value")]
    ValueMissing(String),
    /// Neither the arguments nor `-t` name a recipient.
    #[error("sendmail: no recipient; name one, or use -t and a To field")]
    NoRecipient,
    /// The mail has more than `RECIPIENTS_MAX` recipients.
    #[error("sendmail: more than {RECIPIENTS_MAX} recipients")]
    TooManyRecipients,
    /// The mail is larger than `MAIL_BYTES_MAX`.
    #[error("sendmail: the mail is larger than {MAIL_BYTES_MAX} bytes")]
    TooLarge,
    /// Reading standard input failed.
    #[error("sendmail: cannot read the mail: {0}")]
    Input(io::Error),
    /// The connection to the server failed.
    #[error("sendmail: cannot connect to {server}: {error} (is `nighttrain mail` running?)")]
    Server {
        /// The server's address.
        server: String,
        /// The system's error.
        error: io::Error,
    },
    /// The server refused a command.
    #[error("sendmail: {server} refused {command}: {answer}")]
    Refused {
        /// The server's address.
        server: String,
        /// The refused command.
        command: String,
        /// The server's reply.
        answer: String,
    },
}

impl SendmailFault {
    /// Exit code from `sysexits.h`, which programs that call sendmail check.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unsupported(_) | Self::ValueMissing(_) | Self::NoRecipient => 64,
            Self::TooManyRecipients | Self::TooLarge => 65,
            Self::Input(_) => 74,
            Self::Server { .. } => 75,
            Self::Refused { answer, .. } if answer.starts_with('4') => 75,
            Self::Refused { .. } => 69,
        }
    }
}

/// Parsed arguments of a sendmail call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    from: Option<String>,
    full_name: Option<String>,
    recipients: Vec<String>,
    recipients_from_head: bool,
    dot_is_text: bool,
}

impl Call {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// Returns [`SendmailFault::Unsupported`] or [`SendmailFault::ValueMissing`] for a flag that is not
    /// supported or lacks its value.
    pub fn parse(arguments: &[String]) -> Result<Self, SendmailFault> {
        let mut call = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
                call.recipients.extend(
                    argument.split(',').map(str::trim).filter(|r| !r.is_empty()).map(address_in_brackets),
                );
                continue;
            };
            if flag == "-" {
                call.recipients.extend(arguments.by_ref().map(|argument| address_in_brackets(argument)));
                break;
            }
            let mut value = |rest: &str| {
                if rest.is_empty() {
                    arguments.next().cloned().ok_or_else(|| SendmailFault::ValueMissing(argument.clone()))
                } else {
                    Ok(rest.to_owned())
                }
            };
            match flag.as_bytes()[0] {
                b'f' | b'r' => call.from = Some(address_in_brackets(&value(&flag[1..])?)),
                b'F' => call.full_name = Some(value(&flag[1..])?),
                b'b' if flag == "bm" => {}
                b'b' => return Err(SendmailFault::Unsupported(argument.clone())),
                b'o' if flag == "oi" => call.dot_is_text = true,
                // `-o x`, with a space before the letter, is an older spelling.
                b'o' if flag == "o" => call.dot_is_text |= value("")?.starts_with('i'),
                b'o' | b'q' | b'B' if flag.len() > 1 => {}
                b'q' => {}
                b'N' | b'R' | b'V' | b'O' | b'L' | b'B' | b'h' | b'X' | b'p' | b'C' | b'A' => {
                    drop(value(&flag[1..])?)
                }
                _ => call.set_flags(flag).ok_or_else(|| SendmailFault::Unsupported(argument.clone()))?,
            }
        }
        Ok(call)
    }

    /// Sets flags without a value, which may be combined: -ti. Returns `None` if one is not supported.
    fn set_flags(&mut self, letters: &str) -> Option<()> {
        for letter in letters.chars() {
            match letter {
                't' => self.recipients_from_head = true,
                'i' => self.dot_is_text = true,
                'v' | 'U' | 'G' | 'n' | 'm' | 's' => {}
                _ => return None,
            }
        }
        Some(())
    }

    /// Reads the mail and submits it.
    ///
    /// # Errors
    /// Returns a [`SendmailFault`] if the mail is invalid or the server does not accept it. If the server
    /// refuses a recipient, the error names it, and no mail is delivered.
    pub fn run(self, input: impl Read, server: &str) -> Result<(), SendmailFault> {
        let mail = self.prepare(input)?;
        submit(server, &mail.from, &mail.recipients, &mail.raw)
    }

    pub(crate) fn prepare(self, input: impl Read) -> Result<OutgoingMail, SendmailFault> {
        let mut raw = Vec::new();
        input.take(MAIL_BYTES_MAX + 1).read_to_end(&mut raw).map_err(SendmailFault::Input)?;
        if raw.len() as u64 > MAIL_BYTES_MAX {
            return Err(SendmailFault::TooLarge);
        }
        let mut lines = lines(&raw);
        if !self.dot_is_text
            && let Some(end) = lines.iter().position(|line| *line == b".")
        {
            lines.truncate(end);
        }
        let head_end = lines.iter().position(|line| !is_head_line(line)).unwrap_or(lines.len());
        let mut recipients = self.recipients;
        let mut has_from = false;
        let mut head: Vec<u8> = Vec::new();
        let mut in_bcc = false;
        let mut field: Vec<u8> = Vec::new();
        for line in lines[..head_end].iter().chain([&&b""[..]]) {
            let continues = matches!(line.first(), Some(b' ' | b'\t'));
            if !continues {
                // The field before this line is complete.
                if self.recipients_from_head {
                    recipients.extend(recipients_of(&field));
                }
                if !in_bcc {
                    head.extend_from_slice(&field);
                }
                field.clear();
                in_bcc = self.recipients_from_head && has_name(line, b"bcc");
                has_from |= has_name(line, b"from");
            }
            if !line.is_empty() {
                field.extend_from_slice(line);
                field.extend_from_slice(b"\r\n");
            }
        }
        let from = self.from.unwrap_or_else(|| format!("{}@localhost", user()));
        if !has_from {
            let line = match &self.full_name {
                Some(name) => format!("From: \"{}\" <{from}>\r\n", name.replace(['"', '\\', '\r', '\n'], "")),
                None => format!("From: {from}\r\n"),
            };
            head.splice(0..0, line.into_bytes());
        }
        recipients.dedup();
        if recipients.is_empty() {
            return Err(SendmailFault::NoRecipient);
        }
        if recipients.len() > RECIPIENTS_MAX {
            return Err(SendmailFault::TooManyRecipients);
        }
        let mut raw = head;
        // Adds the blank line between head and body, unless the mail already has one.
        if lines.get(head_end).is_none_or(|line| !line.is_empty()) {
            raw.extend_from_slice(b"\r\n");
        }
        for line in &lines[head_end..] {
            raw.extend_from_slice(line);
            raw.extend_from_slice(b"\r\n");
        }
        Ok(OutgoingMail { from, recipients, raw })
    }
}

#[derive(Debug)]
pub(crate) struct OutgoingMail {
    from: String,
    pub(crate) recipients: Vec<String>,
    pub(crate) raw: Vec<u8>,
}

/// Submits a mail to our SMTP server.
///
/// # Errors
/// [`SendmailFault::Server`] if the server cannot be reached, [`SendmailFault::Refused`] if it refuses a
/// command.
pub fn submit(server: &str, from: &str, recipients: &[String], raw: &[u8]) -> Result<(), SendmailFault> {
    let unreachable = |error| SendmailFault::Server { server: server.to_owned(), error };
    let address = server
        .to_socket_addrs()
        .and_then(|mut all| all.next().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable)))
        .map_err(unreachable)?;
    let stream = TcpStream::connect_timeout(&address, ANSWER_WAIT).map_err(unreachable)?;
    stream.set_read_timeout(Some(ANSWER_WAIT)).map_err(unreachable)?;
    stream.set_write_timeout(Some(ANSWER_WAIT)).map_err(unreachable)?;
    let mut session = Session { server, reader: BufReader::new(stream) };
    session.expect("the connection", b'2')?;
    session.ask("EHLO localhost", b'2')?;
    let eight_bit = if raw.is_ascii() { "" } else { " BODY=8BITMIME" };
    let international =
        [from].into_iter().chain(recipients.iter().map(String::as_str)).any(|a| !a.is_ascii());
    let utf8 = if international { " SMTPUTF8" } else { "" };
    session.ask(&format!("MAIL FROM:<{}>{eight_bit}{utf8}", one_line(from)), b'2')?;
    for recipient in recipients {
        session.ask(&format!("RCPT TO:<{}>", one_line(recipient)), b'2')?;
    }
    session.ask("DATA", b'3')?;
    session.send(&dot_stuff(raw))?;
    session.expect("the mail", b'2')?;
    // The server has accepted the mail; its reply to QUIT does not matter.
    let _ = session.ask("QUIT", b'2');
    Ok(())
}

struct Session<'a> {
    server: &'a str,
    reader: BufReader<TcpStream>,
}

impl Session<'_> {
    fn ask(&mut self, command: &str, class: u8) -> Result<(), SendmailFault> {
        self.send(format!("{command}\r\n").as_bytes())?;
        self.expect(command, class)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), SendmailFault> {
        self.reader.get_mut().write_all(bytes).map_err(|error| self.unreachable(error))
    }

    fn expect(&mut self, command: &str, class: u8) -> Result<(), SendmailFault> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.reader).take(ANSWER_LINE_BYTES_MAX).read_until(b'\n', &mut line);
            read.map_err(|error| self.unreachable(error))?;
            if line.is_empty() {
                return Err(self.unreachable(io::ErrorKind::UnexpectedEof.into()));
            }
            if line.get(3) == Some(&b'-') {
                continue;
            }
            if line[0] == class {
                return Ok(());
            }
            return Err(SendmailFault::Refused {
                server: self.server.to_owned(),
                command: command.to_owned(),
                answer: String::from_utf8_lossy(&line).trim().to_owned(),
            });
        }
    }

    fn unreachable(&self, error: io::Error) -> SendmailFault {
        SendmailFault::Server { server: self.server.to_owned(), error }
    }
}

/// Removes characters that would let an address inject an SMTP command.
fn one_line(address: &str) -> String {
    address.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect()
}

/// Dot-stuffs the mail (RFC 5321, 4.5.2) and appends the end of data.
pub(crate) fn dot_stuff(raw: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(raw.len() + raw.len() / 64 + 5);
    for line in lines(raw) {
        if line.first() == Some(&b'.') {
            data.push(b'.');
        }
        data.extend_from_slice(line);
        data.extend_from_slice(b"\r\n");
    }
    data.extend_from_slice(b".\r\n");
    data
}

/// Returns the lines without their line ends. Text after the last line feed is a line unless it is empty.
fn lines(raw: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> =
        raw.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

fn is_head_line(line: &[u8]) -> bool {
    match line.first() {
        Some(b' ' | b'\t') => true,
        Some(_) => line.iter().position(|&byte| byte == b':').is_some_and(|colon| {
            let name = line[..colon].trim_ascii_end();
            !name.is_empty() && name.iter().all(u8::is_ascii_graphic)
        }),
        None => false,
    }
}

fn has_name(line: &[u8], name: &[u8]) -> bool {
    line.iter()
        .position(|&byte| byte == b':')
        .is_some_and(|colon| line[..colon].trim_ascii_end().eq_ignore_ascii_case(name))
}

fn recipients_of(field: &[u8]) -> Vec<String> {
    if ![&b"to"[..], b"cc", b"bcc"].iter().any(|name| has_name(field, name)) {
        return Vec::new();
    }
    let colon = field.iter().position(|&byte| byte == b':').map_or(0, |colon| colon + 1);
    let mut head = b"To:".to_vec();
    head.extend_from_slice(&field[colon..]);
    head.extend_from_slice(b"\r\n");
    let parsed = mail_parser::MessageParser::default().parse_headers(&head);
    let Some(addresses) = parsed.as_ref().and_then(|message| message.to()) else { return Vec::new() };
    addresses.iter().filter_map(|address| address.address().map(str::to_owned)).collect()
}

/// Returns the address in `Name <address>`.
fn address_in_brackets(address: &str) -> String {
    let inner = address.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(inner, _)| inner);
    inner.unwrap_or(address).trim().to_owned()
}

fn user() -> String {
    std::env::var("LOGNAME").or_else(|_| std::env::var("USER")).unwrap_or_else(|_| "nobody".to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn call(arguments: &[&str]) -> Result<Call, SendmailFault> {
        Call::parse(&arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
    }

    fn prepared(arguments: &[&str], input: &str) -> (String, Vec<String>, String) {
        let mail = call(arguments).unwrap().prepare(input.as_bytes()).unwrap();
        (mail.from, mail.recipients, String::from_utf8(mail.raw).unwrap())
    }

    #[test]
    fn flags_that_programs_use_are_understood() {
        // Flags used by PHP's default configuration, git send-email, cron, callers of msmtp, and mutt.
        for arguments in [
            &["-t", "-i"][..],
            &["-ti"],
            &["-i", "-f", "a@b", "c@d"],
            &["-fa@b", "-oi", "-oem", "--", "c@d"],
            &["-FCronDaemon", "-i", "-odi", "-oem", "-oi", "-t", "-f", "root"],
            &["-oi", "-f", "a@b", "-B8BITMIME", "-N", "never", "c@d"],
            &["-bm", "-v", "c@d"],
        ] {
            assert!(call(arguments).is_ok(), "{arguments:?}");
        }
        assert_eq!(call(&["-f"]).unwrap_err().exit_code(), 64);
        for refused in ["-bp", "-bs", "-bd", "-z"] {
            assert!(matches!(call(&[refused]), Err(SendmailFault::Unsupported(_))), "{refused}");
        }
    }

    #[test]
    fn recipients_come_from_the_head_and_bcc_goes() {
        let (from, recipients, raw) = prepared(
            &["-t", "-f", "Me <me@x.test>"],
            "To: Ann <ann@x.test>,\n  bob@x.test\nBcc: secret@x.test,\n  more@x.test\nSubject: s\n\nbody\n",
        );
        assert_eq!(from, "me@x.test");
        assert_eq!(recipients, ["ann@x.test", "bob@x.test", "secret@x.test", "more@x.test"]);
        assert_eq!(
            raw,
            "From: me@x.test\r\nTo: Ann <ann@x.test>,\r\n  bob@x.test\r\nSubject: s\r\n\r\nbody\r\n"
        );
    }

    #[test]
    fn a_dot_ends_the_mail_unless_told_otherwise() {
        let text = "From: a@b\n\none\n.\ntwo\n";
        assert_eq!(prepared(&["c@d"], text).2, "From: a@b\r\n\r\none\r\n");
        assert_eq!(prepared(&["-i", "c@d"], text).2, "From: a@b\r\n\r\none\r\n.\r\ntwo\r\n");
        assert_eq!(dot_stuff(b"one\n.\n..x\n"), b"one\r\n..\r\n...x\r\n.\r\n");
    }

    #[test]
    fn a_body_without_a_head_gets_one() {
        let (_, _, raw) = prepared(&["-F", "Cron \"D\"", "-f", "root@x.test", "c@d"], "just text\n");
        assert_eq!(raw, "From: \"Cron D\" <root@x.test>\r\n\r\njust text\r\n");
        assert!(matches!(
            call(&["-t"]).unwrap().prepare(&b"Subject: x\n\n"[..]),
            Err(SendmailFault::NoRecipient)
        ));
    }

    #[test]
    fn the_conversation_is_smtp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let heard = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut heard = String::new();
            let say = |reader: &mut BufReader<TcpStream>, words: &str| {
                reader.get_mut().write_all(words.as_bytes()).unwrap();
            };
            say(&mut reader, "220 hello\r\n");
            let mut in_data = false;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap() == 0 {
                    return heard;
                }
                heard.push_str(&line);
                let answer = match (in_data, line.trim_end()) {
                    (true, ".") => {
                        in_data = false;
                        "250 2.0.0 taken\r\n"
                    }
                    (true, _) => continue,
                    (false, "DATA") => {
                        in_data = true;
                        "354 go on\r\n"
                    }
                    (false, "QUIT") => "221 bye\r\n",
                    (false, line) if line.starts_with("EHLO") => "250-me\r\n250 8BITMIME\r\n",
                    (false, line) if line.contains("full@") => "452 4.3.1 full\r\n",
                    _ => "250 ok\r\n",
                };
                say(&mut reader, answer);
            }
        });
        submit(&server, "a@b", &["c>\r\nRSET@d".to_owned()], b"Subject: x\n\n.hidden\n").unwrap();
        let heard = heard.join().unwrap();
        assert_eq!(
            heard,
            "EHLO localhost\r\nMAIL FROM:<a@b>\r\nRCPT TO:<cRSET@d>\r\nDATA\r\nSubject: x\r\n\r\n..hidden\r\n.\r\nQUIT\r\n"
        );
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let fault = submit(&free, "a@b", &["c@d".to_owned()], b"x").unwrap_err();
        assert!(fault.to_string().contains(&free) && fault.exit_code() == 75, "{fault}");
    }
}
