//! `smtp://`: one mail after another on a persistent connection (RFC 5321).

use super::{Client, InvalidReply};

/// Maximum length of a reply line in bytes; RFC 5321 §4.5.3.1.5 allows 512.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Client that sends mails of a given size. MAIL, RCPT and DATA are sent together if the server offers
/// PIPELINING (RFC 2920).
#[derive(Debug)]
pub(in super::super) struct Smtp {
    commands: [String; 3],
    mail: Vec<u8>,
    state: State,
    pipelining: bool,
    line: Vec<u8>,
    refused: u64,
    first_refusal: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Greeting,
    Hello,
    Idle,
    /// Waits for the reply to the command at this index of `commands`. Without pipelining, the next command
    /// is sent after the reply.
    Command(usize),
    /// Waits for the reply to the mail.
    Mail,
    /// A command was refused: waits for this many replies, and then for the reply to RSET.
    Reset(usize),
}

impl Smtp {
    /// Creates a client that sends mails of `bytes` bytes to `recipient`.
    pub(in super::super) fn new(recipient: &str, bytes: usize) -> Self {
        let mut mail =
            format!("From: lab@localhost\r\nTo: {recipient}\r\nSubject: load\r\n\r\n").into_bytes();
        while mail.len() + 2 < bytes {
            let line = (bytes - mail.len() - 2).min(76);
            mail.resize(mail.len() + line, b'm');
            mail.extend_from_slice(b"\r\n");
        }
        mail.extend_from_slice(b".\r\n");
        Self {
            commands: [
                "MAIL FROM:<lab@localhost>\r\n".to_owned(),
                format!("RCPT TO:<{recipient}>\r\n"),
                "DATA\r\n".to_owned(),
            ],
            mail,
            state: State::Greeting,
            pipelining: false,
            line: Vec::new(),
            refused: 0,
            first_refusal: None,
        }
    }

    fn refuse(&mut self, line: &str) {
        self.refused += 1;
        self.first_refusal.get_or_insert_with(|| line.trim_end().to_owned());
    }

    /// Handles a complete reply line; returns whether it answers a request.
    fn reply(&mut self, line: &str, out: &mut Vec<u8>) -> Result<bool, InvalidReply> {
        let wrong = || InvalidReply(format!("not an SMTP reply: {:?}", line.trim_end()));
        let code: u16 = line.get(..3).and_then(|code| code.parse().ok()).ok_or_else(wrong)?;
        if !(200..600).contains(&code) {
            return Err(wrong());
        }
        if self.state == State::Hello
            && line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("PIPELINING"))
        {
            self.pipelining = true;
        }
        if line.as_bytes().get(3) == Some(&b'-') {
            return Ok(false);
        }
        match self.state {
            State::Greeting if code == 220 => {
                out.extend_from_slice(b"EHLO localhost\r\n");
                self.state = State::Hello;
            }
            State::Hello if code == 250 => self.state = State::Idle,
            State::Command(2) if code == 354 => {
                out.extend_from_slice(&self.mail);
                self.state = State::Mail;
            }
            State::Command(at) if at < 2 && code < 300 => {
                self.state = State::Command(at + 1);
                if !self.pipelining {
                    out.extend_from_slice(self.commands[at + 1].as_bytes());
                }
            }
            State::Command(at) if code >= 400 => {
                self.refuse(line);
                out.extend_from_slice(b"RSET\r\n");
                let outstanding = if self.pipelining { 2 - at } else { 0 };
                self.state = State::Reset(outstanding);
            }
            State::Reset(0) => {
                self.state = State::Idle;
                return Ok(true);
            }
            State::Reset(outstanding) => self.state = State::Reset(outstanding - 1),
            State::Mail => {
                if code >= 400 {
                    self.refuse(line);
                }
                self.state = State::Idle;
                return Ok(true);
            }
            _ => return Err(InvalidReply(format!("the server answers: {}", line.trim_end()))),
        }
        Ok(false)
    }
}

impl Client for Smtp {
    fn request(&mut self, out: &mut Vec<u8>) {
        let commands = if self.pipelining { 3 } else { 1 };
        for command in &self.commands[..commands] {
            out.extend_from_slice(command.as_bytes());
        }
        self.state = State::Command(0);
    }

    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, InvalidReply> {
        let mut answers = 0;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > LINE_BYTES_MAX {
                return Err(InvalidReply("an SMTP reply without an end".into()));
            }
            if part.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                answers += usize::from(self.reply(&line, out)?);
            }
        }
        Ok(answers)
    }

    fn closed(&mut self) -> Result<usize, InvalidReply> {
        match self.state {
            State::Idle => Ok(0),
            _ => Err(InvalidReply("the server closed the connection before it replied".into())),
        }
    }

    fn is_ready(&self) -> bool {
        !matches!(self.state, State::Greeting | State::Hello)
    }

    fn depth(&self) -> usize {
        1
    }

    fn refusals(&self) -> (u64, Option<&str>) {
        (self.refused, self.first_refusal.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(offers: &str) -> (Smtp, Vec<u8>) {
        let mut smtp = Smtp::new("a@b.example", 1_000);
        let mut out = Vec::new();
        assert_eq!(smtp.received(b"220 hello\r\n", &mut out), Ok(0));
        assert_eq!(out, b"EHLO localhost\r\n");
        assert_eq!(smtp.received(offers.as_bytes(), &mut out), Ok(0));
        assert!(smtp.is_ready());
        out.clear();
        (smtp, out)
    }

    #[test]
    fn each_mail_counts_once_at_any_split() {
        for offers in ["250 x\r\n", "250-x\r\n250-PIPELINING\r\n250 SIZE\r\n"] {
            let replies = b"250 2.1.0 ok\r\n250 2.1.5 ok\r\n354 go\r\n250 2.0.0 kept\r\n";
            for cut in 0..=replies.len() {
                let (mut smtp, mut out) = ready(offers);
                smtp.request(&mut out);
                let (first, second) = replies.split_at(cut);
                let answers =
                    smtp.received(first, &mut out).unwrap() + smtp.received(second, &mut out).unwrap();
                assert_eq!(answers, 1, "{offers:?} cut at {cut}");
                let sent = String::from_utf8(out).unwrap();
                assert_eq!(sent.matches("DATA\r\n").count(), 1);
                assert!(sent.ends_with("m\r\n.\r\n"));
                assert!(smtp.closed().is_ok());
            }
        }
    }

    #[test]
    fn a_refusal_counts_and_the_connection_goes_on() {
        let (mut smtp, mut out) = ready("250-x\r\n250 PIPELINING\r\n");
        smtp.request(&mut out);
        let replies = b"250 ok\r\n550 5.1.1 nobody\r\n503 no recipient\r\n250 reset\r\n";
        assert_eq!(smtp.received(replies, &mut out), Ok(1));
        assert_eq!(smtp.refusals(), (1, Some("550 5.1.1 nobody")));
        smtp.request(&mut out);
        assert_eq!(smtp.received(b"250 a\r\n250 b\r\n354 c\r\n452 full\r\n", &mut out), Ok(1));
        assert_eq!(smtp.refusals().0, 2);
    }

    #[test]
    fn what_is_no_smtp_is_wrong() {
        for bytes in ["HTTP/1.1 400 Bad Request\r\n", "554 go away\r\n", "999 what\r\n"] {
            assert!(Smtp::new("a@b", 100).received(bytes.as_bytes(), &mut Vec::new()).is_err(), "{bytes}");
        }
        let endless = vec![b'2'; LINE_BYTES_MAX + 1];
        assert!(Smtp::new("a@b", 100).received(&endless, &mut Vec::new()).is_err());
    }
}
