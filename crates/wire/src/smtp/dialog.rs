//! State machine of an SMTP session: which commands are allowed in which order, and the replies.
//!
//! The host passes the received bytes to a [`Dialog`], which returns how many it consumed and what the host
//! must do ([`DialogStep`]). The host stores and judges senders and recipients: it reports acceptance with
//! [`Dialog::sender_accepted`] and [`Dialog::recipient_accepted`]; without that call they count as refused.
//! The dialog keeps counts only, and never allocates.

use super::{
    command::{self, Command, Hello, HelloKind, MailFrom, Mechanism},
    data::{Chunk, Data, DataProgress},
    line::{Line, LineFault, Lines},
    reply::{self, Reply},
};

/// Number of refused commands after which a session is closed with 421.
pub const FAULTS_MAX: u16 = 50;

/// Next action of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogStep<'a> {
    /// Read more bytes, and pass them together with the unconsumed bytes.
    NeedMore,
    /// Pass the remaining bytes again; no other action is needed.
    GoOn,
    /// Send the reply.
    Reply(Reply),
    /// Send the reply, and close the connection.
    Close(Reply),
    /// Answer the greeting; for EHLO and LHLO with the extensions.
    Hello(Hello<'a>),
    /// Accept or refuse the sender.
    Mail(MailFrom<'a>),
    /// Accept or refuse the recipient.
    Rcpt(&'a str),
    /// Prepare for a mail's bytes; for DATA, `send_first` is 354 and must be sent before more is read.
    MailBegins {
        /// 354 for DATA, `None` for BDAT.
        send_first: Option<Reply>,
    },
    /// The mail is complete: store it and reply; over LMTP once for each recipient.
    MailEnds,
    /// A BDAT chunk other than the last is complete.
    ChunkEnds,
    /// A mail in progress is abandoned: discard it, and send the reply.
    Forget(Reply),
    /// Send 220, then begin TLS. Unconsumed bytes were received in the clear and must be discarded (RFC 3207,
    /// 6).
    StartTls,
}

/// Kind of data to which the next bytes belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Command,
    Data(Data),
    Chunk {
        chunk: Chunk,
        last: bool,
    },
    /// A chunk that was refused: its bytes arrive nevertheless (RFC 3030, 2).
    RefusedChunk {
        chunk: Chunk,
        reply: Reply,
    },
    /// A base64 line of an AUTH exchange, after which `more` further lines follow.
    Credentials {
        more: u8,
    },
}

/// State of the current mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mail {
    None,
    Sender,
    Recipients,
    /// Between two BDAT chunks of a mail.
    Chunks,
}

/// Protocol state of one session.
#[derive(Debug, Clone)]
pub struct Dialog {
    lines: Lines,
    expect: Expect,
    mail: Mail,
    lmtp: bool,
    offers_tls: bool,
    tls: bool,
    greeted: bool,
    extended: bool,
    authenticated: bool,
    smtputf8: bool,
    /// True once a RCPT was received, accepted or not.
    asked_recipient: bool,
    faults: u16,
    /// True if the last mail received with DATA had bare line ends.
    bare_line_ends: bool,
    mail_bytes_max: u64,
    /// Number of bytes announced by BDAT for this mail.
    chunk_bytes: u64,
}

/// Configuration of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// True for LMTP, false for SMTP.
    pub lmtp: bool,
    /// True if STARTTLS is available.
    pub offers_tls: bool,
    /// True if TLS is on from the start.
    pub tls: bool,
    /// Maximum size of a mail in bytes; the session is closed when a BDAT command exceeds it.
    pub mail_bytes_max: u64,
}

impl Dialog {
    /// Creates the state of a new session.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self {
            lines: Lines::default(),
            expect: Expect::Command,
            mail: Mail::None,
            lmtp: terms.lmtp,
            offers_tls: terms.offers_tls,
            tls: terms.tls,
            greeted: false,
            extended: false,
            authenticated: false,
            smtputf8: false,
            asked_recipient: false,
            faults: 0,
            bare_line_ends: false,
            mail_bytes_max: terms.mail_bytes_max,
            chunk_bytes: 0,
        }
    }

    /// Returns the protocol's name for the Received header (RFC 3848).
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match (self.lmtp, self.extended, self.tls, self.authenticated) {
            (true, _, false, false) => "LMTP",
            (true, _, true, false) => "LMTPS",
            (true, _, false, true) => "LMTPA",
            (true, _, true, true) => "LMTPSA",
            (false, false, ..) => "SMTP",
            (false, true, false, false) => "ESMTP",
            (false, true, true, false) => "ESMTPS",
            (false, true, false, true) => "ESMTPA",
            (false, true, true, true) => "ESMTPSA",
        }
    }

    /// Returns whether the session is LMTP.
    #[must_use]
    pub fn is_lmtp(&self) -> bool {
        self.lmtp
    }

    /// Returns whether TLS is on.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Returns whether STARTTLS should be offered now.
    #[must_use]
    pub fn may_start_tls(&self) -> bool {
        self.offers_tls && !self.tls
    }

    /// Returns whether no mail or command is in progress, so that the session may be closed without loss.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.mail == Mail::None && self.expect == Expect::Command
    }

    /// Returns whether the next bytes belong to a mail.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        matches!(self.expect, Expect::Data(_) | Expect::Chunk { .. })
    }

    /// Returns whether addresses in this mail may contain non-ASCII characters.
    #[must_use]
    pub fn is_smtputf8(&self) -> bool {
        self.smtputf8
    }

    /// Returns whether the mail that has just ended contained a lone CR or LF.
    #[must_use]
    pub fn had_bare_line_ends(&self) -> bool {
        self.bare_line_ends
    }

    /// Records that the host accepted the sender of [`DialogStep::Mail`].
    ///
    /// # Panics
    /// Panics if the mail already has a sender; [`DialogStep::Mail`] is never returned in that state.
    pub fn sender_accepted(&mut self, smtputf8: bool) {
        assert_eq!(self.mail, Mail::None, "a mail has one sender");
        self.mail = Mail::Sender;
        self.smtputf8 = smtputf8;
    }

    /// Records that the host accepted the recipient of [`DialogStep::Rcpt`].
    ///
    /// # Panics
    /// Panics if there is no sender; [`DialogStep::Rcpt`] is never returned in that state.
    pub fn recipient_accepted(&mut self) {
        assert!(matches!(self.mail, Mail::Sender | Mail::Recipients), "a recipient comes after the sender");
        self.mail = Mail::Recipients;
    }

    /// Ends the current mail, stored or not.
    pub fn mail_done(&mut self) {
        self.mail = Mail::None;
        self.expect = Expect::Command;
        self.smtputf8 = false;
        self.asked_recipient = false;
        self.bare_line_ends = false;
        self.chunk_bytes = 0;
    }

    /// Restarts the session after TLS has begun: all earlier state is discarded (RFC 3207, 4.2).
    pub fn tls_begun(&mut self) {
        *self = Self::new(Terms {
            lmtp: self.lmtp,
            offers_tls: self.offers_tls,
            tls: true,
            mail_bytes_max: self.mail_bytes_max,
        });
    }

    /// Records that the host refused a command. Returns whether the session must be closed because of too
    /// many refused commands.
    pub fn refused(&mut self) -> bool {
        self.faults = self.faults.saturating_add(1);
        self.faults >= FAULTS_MAX
    }

    /// Processes `bytes`: returns how many are consumed, and the next action. A mail's bytes go to `sink`.
    pub fn step<'a>(&mut self, bytes: &'a [u8], sink: impl FnMut(&[u8])) -> (usize, DialogStep<'a>) {
        match &mut self.expect {
            Expect::Data(data) => match data.take(bytes, sink) {
                DataProgress::All => (bytes.len(), DialogStep::NeedMore),
                DataProgress::Ended(used) => {
                    self.bare_line_ends = data.had_bare_line_ends();
                    (used, DialogStep::MailEnds)
                }
            },
            Expect::Chunk { chunk, last } => match chunk.take(bytes, sink) {
                DataProgress::All => (bytes.len(), DialogStep::NeedMore),
                DataProgress::Ended(used) if *last => (used, DialogStep::MailEnds),
                DataProgress::Ended(used) => {
                    self.expect = Expect::Command;
                    (used, DialogStep::ChunkEnds)
                }
            },
            Expect::RefusedChunk { chunk, reply } => match chunk.take(bytes, |_| ()) {
                DataProgress::All => (bytes.len(), DialogStep::NeedMore),
                DataProgress::Ended(used) => {
                    let reply = *reply;
                    self.expect = Expect::Command;
                    (used, self.refuse(reply))
                }
            },
            Expect::Command | Expect::Credentials { .. } => self.line(bytes),
        }
    }

    fn line<'a>(&mut self, bytes: &'a [u8]) -> (usize, DialogStep<'a>) {
        match self.lines.first(bytes) {
            Line::NeedMore => (0, DialogStep::NeedMore),
            Line::Skipped { bytes } => (bytes, DialogStep::NeedMore),
            Line::Refused { bytes, fault } => {
                self.expect = Expect::Command;
                let ask = self.refuse(match fault {
                    LineFault::TooLong => reply::LINE_TOO_LONG,
                    LineFault::BareLf => reply::BARE_LF,
                    LineFault::BareCr => reply::BARE_CR,
                    LineFault::Control => reply::CONTROL,
                    LineFault::NotUtf8 => reply::NOT_UTF8,
                });
                (bytes, ask)
            }
            Line::Whole(line) => {
                let ask = match self.expect {
                    Expect::Credentials { more } => self.credentials(line.trim_end(), more),
                    _ => match command::parse(line) {
                        Ok(command) => self.command(command),
                        // A web page could choose the lines that follow (see `is_http`), so the connection is
                        // closed.
                        Err(reply::NOT_HTTP) => DialogStep::Close(reply::NOT_HTTP),
                        Err(reply) => self.refuse(reply),
                    },
                };
                (line.len(), ask)
            }
        }
    }

    fn command<'a>(&mut self, command: Command<'a>) -> DialogStep<'a> {
        match command {
            Command::Hello(hello) => match (self.lmtp, hello.kind) {
                (true, HelloKind::Ehlo | HelloKind::Helo) => self.refuse(reply::NOT_SMTP),
                (false, HelloKind::Lhlo) => self.refuse(reply::NOT_LMTP),
                _ => {
                    // A greeting also acts as RSET (RFC 5321, 4.1.4).
                    self.mail_done();
                    self.greeted = true;
                    self.extended = hello.kind != HelloKind::Helo;
                    DialogStep::Hello(hello)
                }
            },
            Command::Noop => DialogStep::Reply(reply::NOTHING_DONE),
            Command::Help => DialogStep::Reply(reply::HELP),
            Command::Vrfy => DialogStep::Reply(reply::CANNOT_VERIFY),
            Command::Expn => self.refuse(reply::NO_LISTS),
            Command::Quit => DialogStep::Close(reply::BYE),
            Command::Rset => {
                self.mail_done();
                DialogStep::Forget(reply::RESET)
            }
            Command::Bdat { bytes, last } => self.chunk(bytes, last),
            _ if !self.greeted => self.refuse(if self.lmtp { reply::LHLO_FIRST } else { reply::HELLO_FIRST }),
            Command::Mail(_) if self.mail != Mail::None => self.refuse(reply::NESTED_MAIL),
            Command::Mail(from) => DialogStep::Mail(from),
            Command::Rcpt(to) => match self.mail {
                Mail::None => self.refuse(reply::MAIL_FIRST),
                Mail::Chunks => self.refuse(reply::BDAT_BEGUN),
                Mail::Sender | Mail::Recipients => {
                    self.asked_recipient = true;
                    if !self.smtputf8 && !to.is_ascii() {
                        return self.refuse(reply::NEEDS_SMTPUTF8);
                    }
                    DialogStep::Rcpt(to)
                }
            },
            Command::Data => match self.mail {
                Mail::Recipients => {
                    self.expect = Expect::Data(Data::new());
                    DialogStep::MailBegins { send_first: Some(reply::GO_AHEAD) }
                }
                Mail::Chunks => self.refuse(reply::BDAT_BEGUN),
                _ => self.refuse(self.no_recipients()),
            },
            Command::StartTls if self.mail != Mail::None => self.refuse(reply::IN_TRANSACTION),
            Command::StartTls if self.tls => self.refuse(reply::TLS_ON),
            Command::StartTls if !self.offers_tls => self.refuse(reply::NO_TLS),
            Command::StartTls => DialogStep::StartTls,
            Command::Auth { .. } if self.authenticated => self.refuse(reply::AUTH_AGAIN),
            Command::Auth { .. } if self.mail != Mail::None => self.refuse(reply::IN_TRANSACTION),
            Command::Auth { mechanism, initial } => match mechanism {
                None => self.refuse(reply::AUTH_MECHANISM),
                Some(Mechanism::Plain) if initial.is_empty() => {
                    self.expect = Expect::Credentials { more: 0 };
                    DialogStep::Reply(reply::CHALLENGE)
                }
                Some(Mechanism::Plain) => self.credentials(initial, 0),
                Some(Mechanism::Login) if initial.is_empty() => {
                    self.expect = Expect::Credentials { more: 1 };
                    DialogStep::Reply(reply::CHALLENGE_USER)
                }
                Some(Mechanism::Login) => self.credentials(initial, 1),
            },
        }
    }

    /// Checks one line of an AUTH exchange, without keeping it.
    fn credentials(&mut self, line: &str, more: u8) -> DialogStep<'static> {
        self.expect = Expect::Command;
        if line == "*" {
            return self.refuse(reply::AUTH_GIVEN_UP);
        }
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        if !line.bytes().all(is_base64) {
            return self.refuse(reply::AUTH_NOT_BASE64);
        }
        if more > 0 {
            self.expect = Expect::Credentials { more: more - 1 };
            return DialogStep::Reply(reply::CHALLENGE_PASSWORD);
        }
        self.authenticated = true;
        DialogStep::Reply(reply::AUTHENTICATED)
    }

    fn chunk(&mut self, bytes: u64, last: bool) -> DialogStep<'static> {
        let chunk = Chunk::new(bytes);
        self.chunk_bytes = self.chunk_bytes.saturating_add(bytes);
        if self.chunk_bytes > self.mail_bytes_max {
            // The chunk's bytes arrive whatever the reply is (RFC 3030, 2): closing is the only way not to
            // read them.
            return DialogStep::Close(reply::TOO_LARGE);
        }
        match self.mail {
            Mail::Recipients | Mail::Chunks => {
                let begins = self.mail == Mail::Recipients;
                self.mail = Mail::Chunks;
                self.expect = Expect::Chunk { chunk, last };
                if begins { DialogStep::MailBegins { send_first: None } } else { DialogStep::GoOn }
            }
            Mail::None | Mail::Sender => {
                self.chunk_bytes = 0;
                let reply = if self.greeted { self.no_recipients() } else { reply::HELLO_FIRST };
                self.expect = Expect::RefusedChunk { chunk, reply };
                DialogStep::GoOn
            }
        }
    }

    fn no_recipients(&self) -> Reply {
        if self.asked_recipient { reply::NO_RECIPIENTS } else { reply::RCPT_FIRST }
    }

    fn refuse(&mut self, reply: Reply) -> DialogStep<'static> {
        if self.refused() { DialogStep::Close(reply::TOO_MANY_FAULTS) } else { DialogStep::Reply(reply) }
    }
}
