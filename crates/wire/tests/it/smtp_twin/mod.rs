//! The slow twin of the data decoder, and a host that accepts everything; the fuzz target uses them too.

use wire::smtp::{
    data::{Data, DataProgress},
    dialog::{Dialog, DialogStep, Terms},
};

/// Decodes data by RFC 5321, 4.5.2, line by line: lines end in CRLF; a line of one dot ends the mail; any
/// other line that begins with a dot loses it.
pub(crate) fn twin(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut mail, mut at) = (Vec::new(), 0);
    loop {
        let end = at + bytes[at..].windows(2).position(|pair| pair == b"\r\n")? + 2;
        let line = &bytes[at..end];
        at = end;
        if line == b".\r\n" {
            return Some((mail, at));
        }
        mail.extend_from_slice(line.strip_prefix(b".").unwrap_or(line));
    }
}

pub(crate) fn decode(parts: &[&[u8]]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut mail, mut before) = (Data::new(), Vec::new(), 0);
    for part in parts {
        match data.take(part, |piece| mail.extend_from_slice(piece)) {
            DataProgress::All => before += part.len(),
            DataProgress::Ended(used) => return Some((mail, before + used)),
        }
    }
    None
}

/// A host that accepts everything and logs the events.
pub(crate) struct Host {
    pub(crate) dialog: Dialog,
    pub(crate) pending: Vec<u8>,
    pub(crate) log: Vec<String>,
    pub(crate) mail: Vec<u8>,
    pub(crate) closed: bool,
}

impl Host {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            dialog: Dialog::new(terms),
            pending: Vec::new(),
            log: Vec::new(),
            mail: Vec::new(),
            closed: false,
        }
    }

    pub(crate) fn show(&mut self, bytes: &[u8]) {
        let bytes = [std::mem::take(&mut self.pending), bytes.to_vec()].concat();
        let mut at = 0;
        while !self.closed {
            let mail = &mut self.mail;
            let (used, ask) = self.dialog.step(&bytes[at..], |piece| mail.extend_from_slice(piece));
            at += used;
            let line = match ask {
                DialogStep::NeedMore => break,
                DialogStep::GoOn => continue,
                DialogStep::Reply(reply) => reply.code.to_string(),
                DialogStep::Close(reply) => {
                    self.closed = true;
                    reply.code.to_string()
                }
                DialogStep::Hello(hello) => format!("hello {}", hello.name),
                DialogStep::Mail(from) => {
                    self.dialog.sender_accepted(from.smtputf8);
                    format!("from {} {}", from.address, from.size_bytes)
                }
                DialogStep::Rcpt(to) if to.starts_with("no") => {
                    let _ = self.dialog.refused();
                    "refused".to_owned()
                }
                DialogStep::Rcpt(to) => {
                    self.dialog.recipient_accepted();
                    format!("to {to}")
                }
                DialogStep::MailBegins { send_first } => {
                    send_first.map_or("chunks".to_owned(), |reply| reply.code.to_string())
                }
                DialogStep::MailEnds => {
                    self.dialog.mail_done();
                    format!("mail {:?}", std::mem::take(&mut self.mail).escape_ascii().to_string())
                }
                DialogStep::ChunkEnds => "chunk".to_owned(),
                DialogStep::Forget(reply) => {
                    self.mail.clear();
                    reply.code.to_string()
                }
                DialogStep::StartTls => {
                    self.dialog.tls_begun();
                    at = bytes.len();
                    "tls".to_owned()
                }
            };
            self.log.push(line);
        }
        if !self.closed {
            self.pending = bytes[at..].to_vec();
        }
    }
}
