//! Records of the log: the course of a request, an origin's response, a mail or a consumer, as tags and
//! values.
//!
//! ```text
//!   kind · 7 bytes zero · id · parent · start time (µs since 1970)                       32 bytes
//!   tag · length and whether it was cut (2 bytes) · value │ tag · … │ zeros up to a whole word
//! ```
//! Numbers are 8 bytes, addresses 4 or 16, all little-endian; times are microseconds since the start. Text is
//! the sender's bytes, cut at the tag's bound: the code that shows it escapes terminal controls and quotes
//! ([`show`]). A reader skips tags that it does not know, and rejects bytes that are not a record: the memory
//! may belong to another program.
//!
//! Records are written within a turn, so nothing here allocates except by growing the caller's buffer.

mod fields;
mod secret;
pub mod show;

use std::net::IpAddr;

pub use self::{
    fields::{FIELDS, FieldId, Fields},
    secret::{Secrets, url},
};

/// Kind of a record: the event that it describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A client's request and its response.
    Client,
    /// A request to an origin's server, and its response.
    Origin,
    /// A mail, from MAIL FROM on.
    Mail,
    /// A feed consumer that was disconnected.
    Consumer,
}

impl Kind {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Client, "client"),
        (Self::Origin, "origin"),
        (Self::Mail, "mail"),
        (Self::Consumer, "consumer"),
    ];

    /// Returns the kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Encoding of a tag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Bytes, at most this number of them.
    Text(usize),
    /// A number.
    Number,
    /// A number of bytes.
    Bytes,
    /// A duration in microseconds.
    Duration,
    /// The id of another record.
    Id,
    /// An IP address.
    Address,
}

macro_rules! tags {
    ($($variant:ident $name:literal $shape:expr, $help:literal;)+) => {
        /// Name of one value in a record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Tag {
            $(#[doc = $help] $variant,)+
        }

        impl Tag {
            /// All tags with their names, shapes and descriptions.
            pub const ALL: &'static [(Self, &'static str, Shape, &'static str)] =
                &[$((Self::$variant, $name, $shape, $help),)+];
        }
    };
}

tags! {
    Method "method" Shape::Text(32), "The request's method.";
    Scheme "scheme" Shape::Text(8), "http or https.";
    Host "host" Shape::Text(256), "Host that the request is for.";
    Url "url" Shape::Text(4096), "Path and query, without the values of secret parameters.";
    Protocol "protocol" Shape::Text(16), "HTTP/1.0, HTTP/1.1 or HTTP/2.0; SMTP, LMTP and their TLS variants.";
    Tls "tls" Shape::Text(16), "The version of TLS, if it is used.";
    Client "client" Shape::Address, "Address of the client: the visitor, or the other end of the connection.";
    Through "through" Shape::Address, "Address of the proxy that named the client.";
    Status "status" Shape::Number, "The status of the answer; of a mail, the reply code.";
    Cache "cache" Shape::Text(16), "hit, stale, miss, revalidated, pass, pipe or synth.";
    Detail "detail" Shape::Text(64), "Reason of the outcome: of a pass, of an error page, or of a refused mail.";
    Collapsed "collapsed" Shape::Number, "1 if the request waited for another request's fetch.";
    Site "site" Shape::Text(256), "The hosts of the site, as configured.";
    Server "server" Shape::Text(256), "The origin's server.";
    Reused "reused" Shape::Number, "1 if the connection to the server was reused.";
    Why "why" Shape::Text(16), "Kind of the origin request: fetch, revalidate, block, pass or pipe.";
    UserAgent "user_agent" Shape::Text(512), "User-Agent of the client.";
    Referer "referer" Shape::Text(1024), "Referer of the client, without the values of secret parameters.";
    RequestId "request_id" Shape::Text(64), "Request number as shown on error pages, or the client's X-Request-Id.";
    BytesIn "bytes.in" Shape::Bytes, "Bytes of the request's head and content; of a mail, all of its bytes.";
    BytesOut "bytes.out" Shape::Bytes, "Bytes of the answer written to the client's connection.";
    BytesBody "bytes.body" Shape::Bytes, "Bytes of the answer's body written to the client's connection.";
    BytesPending "bytes.pending" Shape::Bytes, "Bytes waiting for the consumer.";
    TimeAsked "time.asked" Shape::Duration, "Time until the origin was asked.";
    TimeFirstByte "time.first_byte" Shape::Duration, "Time until the answer's first byte left, or arrived from an origin.";
    TimeDone "time.done" Shape::Duration, "Time until the end.";
    TimeDurable "time.durable" Shape::Duration, "Time from a mail's last byte until it was stored.";
    End "end" Shape::Text(32), "Reason of an early end: client-gone, client-stalled, origin-broke, …";
    Error "error" Shape::Text(256), "Error on the origin's side.";
    Fetch "fetch" Shape::Id, "Id of the origin transaction that the request waited for.";
    From "from" Shape::Text(320), "A mail's sender.";
    To "to" Shape::Text(320), "Recipients of a mail; the first ones, if there are many.";
    Recipients "recipients" Shape::Number, "Number of recipients.";
    Hello "hello" Shape::Text(256), "Name of the sending host in HELO, EHLO or LHLO.";
    Mail "mail" Shape::Text(64), "Id of the mail in its first inbox.";
    Connection "connection" Shape::Number, "Connection number of the consumer (cid).";
    Name "name" Shape::Text(128), "Name of the consumer.";
    Subject "subject" Shape::Text(256), "A subject that the consumer subscribes to.";
}

impl Tag {
    /// Returns the tag's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns the encoding of the tag's value.
    #[must_use]
    pub fn shape(self) -> Shape {
        Self::ALL[self as usize].2
    }

    /// Returns the tag with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, ..)| *known == name).map(|(tag, ..)| *tag)
    }
}

/// Length of a record before its first tag.
pub const HEAD_BYTES: usize = 32;
/// Maximum length of a record: every tag at its full length, and ten recipients.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;
const WORD_BYTES: usize = 8;
const CUT: u16 = 1 << 15;

/// Appends the head of a record.
#[inline]
pub fn begin(kind: Kind, id: u64, parent: u64, began_us: u64, out: &mut Vec<u8>) {
    out.extend_from_slice([kind as u64 + 1, id, parent, began_us].map(u64::to_le_bytes).as_flattened());
}

#[inline]
fn append(tag: Tag, cut: u16, value: &[u8], out: &mut Vec<u8>) {
    // The length is at most a bound of the table, so it leaves the top bit free.
    let [low, high] = (value.len() as u16 | cut).to_le_bytes();
    out.extend_from_slice(&[tag as u8 + 1, low, high]);
    out.extend_from_slice(value);
}

/// Appends a text, cut at its tag's bound.
#[inline]
pub fn text(tag: Tag, value: &[u8], out: &mut Vec<u8>) {
    let Shape::Text(bytes_max) = tag.shape() else { unreachable!("{} is no text", tag.name()) };
    match value.get(..bytes_max) {
        Some(beginning) if value.len() > bytes_max => append(tag, CUT, beginning, out),
        _ => append(tag, 0, value, out),
    }
}

/// Appends a number, in the unit of its tag.
#[inline]
pub fn number(tag: Tag, value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number_pair(tag, value));
}

/// Appends several numbers with a single capacity check, because this code is on the event loops' hot path.
#[inline]
pub fn numbers(values: &[(Tag, u64)], out: &mut Vec<u8>) {
    out.reserve(values.len() * NUMBER_BYTES);
    for (tag, value) in values {
        out.extend_from_slice(&number_pair(*tag, *value));
    }
}

/// Length of a number with its tag.
const NUMBER_BYTES: usize = 3 + WORD_BYTES;

#[inline]
fn number_pair(tag: Tag, value: u64) -> [u8; NUMBER_BYTES] {
    // The pair is written as two overlapping words, with one store each.
    let mut pair = [tag as u8 + 1, WORD_BYTES as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    pair[3..].copy_from_slice(&value.to_le_bytes());
    pair
}

/// Appends an address.
#[inline]
pub fn address(tag: Tag, value: IpAddr, out: &mut Vec<u8>) {
    match value {
        IpAddr::V4(address) => append(tag, 0, &address.octets(), out),
        IpAddr::V6(address) => append(tag, 0, &address.octets(), out),
    }
}

/// Pads the record to a whole word; `out` must hold nothing else.
#[inline]
pub fn end(out: &mut Vec<u8>) {
    let bytes = out.len().next_multiple_of(WORD_BYTES);
    out.resize(bytes, 0);
}

/// A record as read from bytes.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Kind of the record.
    pub kind: Kind,
    /// Id of the record, unique in its process.
    pub id: u64,
    /// Id of the parent record; 0 if there is none.
    pub parent: u64,
    /// Start time, in microseconds since 1970.
    pub began_us: u64,
    pairs: &'a [u8],
}

/// A tag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Bytes; the flag is true if the text was cut.
    Text(&'a [u8], bool),
    /// A number.
    Number(u64),
    /// An address.
    Address(IpAddr),
}

impl<'a> Record<'a> {
    /// Reads a record; `None` if the bytes are not one.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, pairs) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (words, _) = head.as_chunks::<WORD_BYTES>();
        let [kind, id, parent, began_us] = [0, 1, 2, 3].map(|at: usize| u64::from_le_bytes(words[at]));
        let (kind, _) = *Kind::ALL.get(usize::try_from(kind.checked_sub(1)?).ok()?)?;
        Some(Self { kind, id, parent, began_us, pairs })
    }

    /// Iterates over the tags and values, in the order written.
    pub fn pairs(&self) -> impl Iterator<Item = (Tag, Value<'a>)> + use<'a> {
        self.raw().filter_map(|Raw { tag, value, is_cut }| pair(tag, value, is_cut))
    }

    /// Iterates over the tags and values without decoding them.
    #[inline]
    fn raw(&self) -> impl Iterator<Item = Raw<'a>> + use<'a> {
        let mut left = self.pairs;
        std::iter::from_fn(move || {
            let (&[tag, low, high], rest) = left.split_first_chunk::<3>()?;
            let said = u16::from_le_bytes([low, high]);
            let (value, rest) = rest.split_at_checked(usize::from(said & !CUT)).filter(|_| tag != 0)?;
            left = rest;
            Some(Raw { tag, value, is_cut: said & CUT != 0 })
        })
    }

    /// Returns the first value of a tag.
    #[must_use]
    pub fn value(&self, wanted: Tag) -> Option<Value<'a>> {
        self.pairs().find(|(tag, _)| *tag == wanted).map(|(_, value)| value)
    }

    /// Returns the first value of a tag, if it is text.
    #[must_use]
    pub fn text(&self, wanted: Tag) -> Option<&'a [u8]> {
        match self.value(wanted)? {
            Value::Text(text, _) => Some(text),
            _ => None,
        }
    }

    /// Returns the first value of a tag, if it is a number.
    #[must_use]
    pub fn number(&self, wanted: Tag) -> Option<u64> {
        match self.value(wanted)? {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }
}

/// A tag and its value as encoded in a record.
struct Raw<'a> {
    /// Number of the tag, from 1; it may be unknown to this version.
    tag: u8,
    value: &'a [u8],
    is_cut: bool,
}

fn pair(tag: u8, value: &[u8], is_cut: bool) -> Option<(Tag, Value<'_>)> {
    let (tag, _, shape, _) = *Tag::ALL.get(usize::from(tag.checked_sub(1)?))?;
    let value = match shape {
        Shape::Text(_) => Value::Text(value, is_cut),
        Shape::Address => Value::Address(match value.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(value).ok()?),
            _ => IpAddr::from(<[u8; 16]>::try_from(value).ok()?),
        }),
        Shape::Number | Shape::Bytes | Shape::Duration | Shape::Id => {
            Value::Number(u64::from_le_bytes(value.try_into().ok()?))
        }
    };
    Some((tag, value))
}

#[cfg(test)]
mod tests;
