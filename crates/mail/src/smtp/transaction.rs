//! The transaction record of a mail: its progress from MAIL to the store, or why it was refused.
//!
//! While nobody reads the transaction log, a draft is `None` and costs neither a clock call nor memory. A
//! mail has one record, and each refused recipient has a record of its own that names the mail's record as
//! its parent. Subject and text are not logged.

use std::net::IpAddr;

use engine::{cores::clock, journal::Scribe};
use wire::{
    smtp::reply::Reply,
    transaction::{self as record, Kind, Tag},
};

/// Maximum number of recipients that a record lists.
const RECIPIENTS_MAX: usize = 10;

/// The sender of a mail, as written in its transaction record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) peer: IpAddr,
    pub(crate) hello: &'a str,
    pub(crate) protocol: &'a str,
    pub(crate) from: &'a str,
}

/// An unfinished transaction record.
#[derive(Debug, Default)]
pub(crate) struct Draft(Option<Box<Inner>>);

#[derive(Debug)]
struct Inner {
    bytes: Vec<u8>,
    id: u64,
    recipients: usize,
    began_ns: u64,
    /// Time at which the last byte of the mail came.
    whole_ns: u64,
}

impl Draft {
    /// Begins a record if anybody reads the log.
    pub(crate) fn begin(scribe: Option<&Scribe>, parent: u64, sender: Sender<'_>) -> Self {
        let Some(scribe) = scribe.filter(|scribe| scribe.is_read()) else {
            return Self(None);
        };
        let (mut bytes, id) = (Vec::with_capacity(256), scribe.next_id());
        let now = clock::now_system().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let began_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        record::begin(Kind::Mail, id, parent, began_us, &mut bytes);
        record::address(Tag::Client, sender.peer, &mut bytes);
        record::text(Tag::Protocol, sender.protocol.as_bytes(), &mut bytes);
        record::text(Tag::Hello, sender.hello.as_bytes(), &mut bytes);
        record::text(Tag::From, sender.from.as_bytes(), &mut bytes);
        let began_ns = clock::monotonic_ns();
        Self(Some(Box::new(Inner { bytes, id, recipients: 0, began_ns, whole_ns: 0 })))
    }

    /// ID of the record; 0 if nobody reads the log.
    pub(crate) fn id(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.id)
    }

    /// Adds a recipient.
    pub(crate) fn recipient(&mut self, said: &str) {
        if let Some(inner) = &mut self.0 {
            inner.recipients += 1;
            if inner.recipients <= RECIPIENTS_MAX {
                record::text(Tag::To, said.as_bytes(), &mut inner.bytes);
            }
        }
    }

    /// Notes that the mail is complete, with its size and ID.
    pub(crate) fn log_data_end(&mut self, bytes: usize, name: &[u8]) {
        if let Some(inner) = &mut self.0 {
            inner.whole_ns = clock::monotonic_ns();
            record::number(Tag::BytesIn, bytes as u64, &mut inner.bytes);
            record::text(Tag::Mail, name.trim_ascii(), &mut inner.bytes);
        }
    }

    /// Ends the record of a mail that is accepted.
    pub(crate) fn log_accepted(self, scribe: Option<&Scribe>) {
        self.end(scribe, Some(250), None);
    }

    /// Ends the record of a refused mail or recipient.
    pub(crate) fn log_refused(self, scribe: Option<&Scribe>, reply: Reply) {
        self.end(scribe, Some(reply.code), Some(reply.text));
    }

    /// Ends the record of a mail whose sender abandoned it or disconnected.
    pub(crate) fn log_aborted(self, scribe: Option<&Scribe>) {
        self.end(scribe, None, None);
    }

    fn end(self, scribe: Option<&Scribe>, status: Option<u16>, detail: Option<&str>) {
        let (Some(mut inner), Some(scribe)) = (self.0, scribe) else { return };
        let now_ns = clock::monotonic_ns();
        let micros = |from_ns: u64| now_ns.saturating_sub(from_ns) / 1000;
        let out = &mut inner.bytes;
        record::number(Tag::Recipients, inner.recipients as u64, out);
        match status {
            Some(status) => record::number(Tag::Status, u64::from(status), out),
            None => record::text(Tag::End, b"given-up", out),
        }
        if let Some(detail) = detail {
            record::text(Tag::Detail, detail.as_bytes(), out);
        }
        if inner.whole_ns > 0 {
            record::number(Tag::TimeDurable, micros(inner.whole_ns), out);
        }
        record::number(Tag::TimeDone, micros(inner.began_ns), out);
        record::end(out);
        Scribe::write(scribe, &[out]);
    }
}
