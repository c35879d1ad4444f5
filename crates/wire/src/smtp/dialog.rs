//! The order of a session: what may come when, and what is answered.
//!
//! The host shows a [`Dialog`] the bytes that it has; the dialog says how many are used up and what is to be done
//! ([`DialogStep`]). Mail and recipients are the host's to keep and to judge: it says by [`Dialog::sender_accepted`] and
//! [`Dialog::recipient_accepted`] that it took one; without that, it refused. The dialog counts, and never allocates.

use super::{
    command::{self, Command, Hello, HelloKind, MailFrom, Mechanism},
    data::{Chunk, Data, DataProgress},
    line::{Line, LineFault, Lines},
    reply::{self, Reply},
};

/// Refused commands in a session before it is closed with 421.
pub const FAULTS_MAX: u16 = 50;

/// What the host is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogStep<'a> {
    /// Read more and show it, with what was not used up before it.
    NeedMore,
    /// Nothing: show what is left.
    GoOn,
    /// Send this.
    Reply(Reply),
    /// Send this, and close.
    Close(Reply),
    /// Introduce yourself: for EHLO and LHLO with the extensions.
    Hello(Hello<'a>),
    /// Judge a sender.
    Mail(MailFrom<'a>),
    /// Judge a recipient.
    Rcpt(&'a str),
    /// Prepare for a mail's bytes; for DATA, `send_first` is 354 and must leave before more is read.
    MailBegins {
        /// 354, or nothing for BDAT.
        send_first: Option<Reply>,
    },
    /// The mail is whole: keep it and answer; over LMTP once for each recipient.
    MailEnds,
    /// A chunk that is not the last is whole.
    ChunkEnds,
    /// A mail that had begun is given up: forget it, and send this.
    Forget(Reply),
    /// Send 220, then begin TLS; what is not used up came before it in the clear and must be thrown away (RFC 3207, 6).
    StartTls,
}

/// What the next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Command,
    Data(Data),
    Chunk {
        chunk: Chunk,
        last: bool,
    },
    /// A chunk that was refused: its bytes come all the same (RFC 3030, 2).
    RefusedChunk {
        chunk: Chunk,
        reply: Reply,
    },
    /// Base64, of which this many lines more.
    Credentials {
        more: u8,
    },
}

/// How far a mail has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mail {
    None,
    Sender,
    Recipients,
    /// Between two chunks.
    Chunks,
}

/// One session's place in the protocol.
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
    /// A RCPT came, accepted or not.
    asked_recipient: bool,
    faults: u16,
    /// The last mail by DATA had them.
    bare_line_ends: bool,
    mail_bytes_max: u64,
    /// Announced by BDAT for this mail.
    chunk_bytes: u64,
}

/// What kind of session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// LMTP instead of SMTP.
    pub lmtp: bool,
    /// STARTTLS can be had.
    pub offers_tls: bool,
    /// TLS is on from the start.
    pub tls: bool,
    /// The largest mail; a chunk that goes beyond is not waited for.
    pub mail_bytes_max: u64,
}

impl Dialog {
    /// A session that has just begun.
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

    /// The protocol's name as Received states it (RFC 3848).
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

    /// Whether it is LMTP.
    #[must_use]
    pub fn is_lmtp(&self) -> bool {
        self.lmtp
    }

    /// Whether TLS is on.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether STARTTLS is to be offered now.
    #[must_use]
    pub fn may_start_tls(&self) -> bool {
        self.offers_tls && !self.tls
    }

    /// Whether nothing has begun: a session that may be ended without loss.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.mail == Mail::None && self.expect == Expect::Command
    }

    /// Whether the next bytes are a mail's.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        matches!(self.expect, Expect::Data(_) | Expect::Chunk { .. })
    }

    /// Whether addresses may be beyond ASCII in this mail.
    #[must_use]
    pub fn is_smtputf8(&self) -> bool {
        self.smtputf8
    }

    /// Whether a CR or LF stood alone in the mail that has just ended.
    #[must_use]
    pub fn had_bare_line_ends(&self) -> bool {
        self.bare_line_ends
    }

    /// The host took the sender it was asked about.
    ///
    /// # Panics
    /// If there is one already: [`DialogStep::Mail`] is not asked then.
    pub fn sender_accepted(&mut self, smtputf8: bool) {
        assert_eq!(self.mail, Mail::None, "a mail has one sender");
        self.mail = Mail::Sender;
        self.smtputf8 = smtputf8;
    }

    /// The host took the recipient it was asked about.
    ///
    /// # Panics
    /// If there is no sender: [`DialogStep::Rcpt`] is not asked then.
    pub fn recipient_accepted(&mut self) {
        assert!(matches!(self.mail, Mail::Sender | Mail::Recipients), "a recipient comes after the sender");
        self.mail = Mail::Recipients;
    }

    /// The mail came to its end, kept or not.
    pub fn mail_done(&mut self) {
        self.mail = Mail::None;
        self.expect = Expect::Command;
        self.smtputf8 = false;
        self.asked_recipient = false;
        self.bare_line_ends = false;
        self.chunk_bytes = 0;
    }

    /// TLS has begun: everything that was said before is forgotten (RFC 3207, 4.2).
    pub fn tls_begun(&mut self) {
        *self = Self::new(Terms {
            lmtp: self.lmtp,
            offers_tls: self.offers_tls,
            tls: true,
            mail_bytes_max: self.mail_bytes_max,
        });
    }

    /// The host refused what it was asked. Says whether the session has to be closed for its many faults.
    pub fn refused(&mut self) -> bool {
        self.faults = self.faults.saturating_add(1);
        self.faults >= FAULTS_MAX
    }

    /// Looks at `bytes`: how many are used up, and what is to be done. A mail's bytes go to `sink`.
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
                        // What follows would be lines of somebody else's choice.
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
                    // A greeting is also a RSET (RFC 5321, 4.1.4).
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

    /// One line of an AUTH exchange. It is looked at, and kept nowhere.
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
            // Its bytes come whatever we answer (RFC 3030, 2): to end here is the only way not to read them.
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
