//! Output formats for records: a readable line, JSON, the log formats of web servers, or a template.
//!
//! Data from a client cannot break out of its field or line: bytes that are not printable ASCII are escaped,
//! and JSON output also escapes characters that control a terminal or change the writing direction.

use std::{fmt, io::Write as _};

use super::{Kind, Raw, Record, Shape, Tag, Value, pair};
use crate::filter::Fault;

/// Output format of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// A human-readable line, for records of every kind.
    Line,
    /// One JSON object per line, with stable names.
    Json,
    /// Apache's common log format: client requests only.
    Common,
    /// Apache's combined log format: the common format with referer and user agent.
    Combined,
    /// A template such as `{status} {url}`.
    Template(Template),
}

/// A line with placeholders for fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Kind,
    Id,
    Parent,
    /// Start time of the record.
    Time,
    Of(Tag),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(Place),
}

impl Format {
    /// Parses `common`, `combined`, `json`, or a template.
    ///
    /// # Errors
    /// Returns a [`Fault`] with the offset of the error in the template, and what is valid there.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        match text {
            "common" => Ok(Self::Common),
            "combined" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            _ => Template::parse(text).map(Self::Template),
        }
    }

    /// Appends a record's line. Returns false if the format does not show records of this kind.
    pub fn append(&self, record: &Record<'_>, recent: &mut LineCache, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Common | Self::Combined if record.kind != Kind::Client => return false,
            Self::Common => common(record, recent, false, out),
            Self::Combined => common(record, recent, true, out),
            Self::Line => line(record, out),
            Self::Json => json(record, out),
            Self::Template(template) => template.append(record, out),
        }
        out.push(b'\n');
        true
    }
}

impl Template {
    fn parse(text: &str) -> Result<Self, Fault> {
        let fault = |at, found: String, expected: String| Fault { at, found, expected };
        let mut pieces = Vec::new();
        let (mut plain, mut at) = (String::new(), 0);
        while let Some(found) = text[at..].find(['{', '}']) {
            plain.push_str(&text[at..at + found]);
            at += found;
            let rest = &text[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                plain.push_str(&rest[..1]);
                at += 2;
                continue;
            }
            let end = rest.find('}').filter(|_| rest.starts_with('{'));
            let Some(end) = end else {
                let found =
                    if rest.starts_with('}') { "a `}` without its `{`" } else { "a `{` that is not closed" };
                return Err(fault(at, found.to_owned(), "a field in braces, such as `{status}`".to_owned()));
            };
            let name = &rest[1..end];
            let place = Place::of(name).ok_or_else(|| {
                let names: Vec<_> = Tag::ALL.iter().map(|(_, name, ..)| *name).collect();
                let shown: String = name.chars().filter(|c| !c.is_control()).take(24).collect();
                fault(
                    at + 1,
                    format!("`{shown}`"),
                    format!("one of the fields time, kind, id, parent, {}", names.join(", ")),
                )
            })?;
            pieces.extend([Piece::Text(std::mem::take(&mut plain)), Piece::Place(place)]);
            at += end + 1;
        }
        plain.push_str(&text[at..]);
        if pieces.is_empty() {
            return Err(fault(
                0,
                "no field".to_owned(),
                "common, combined, json, or a line with fields in braces, such as `{status} {url}`"
                    .to_owned(),
            ));
        }
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    fn append(&self, record: &Record<'_>, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Place(Place::Kind) => out.extend_from_slice(record.kind.name().as_bytes()),
                Piece::Place(Place::Id) => put(out, &Hex(record.id)),
                Piece::Place(Place::Parent) if record.parent == 0 => out.push(b'-'),
                Piece::Place(Place::Parent) => put(out, &Hex(record.parent)),
                Piece::Place(Place::Time) => put(out, &Moment(record.began_us)),
                Piece::Place(Place::Of(tag)) => value(*tag, record.value(*tag), out),
            }
        }
    }
}

impl Place {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "kind" => Self::Kind,
            "id" => Self::Id,
            "parent" => Self::Parent,
            "time" => Self::Time,
            name => Self::Of(Tag::of_name(name)?),
        })
    }
}

fn put(out: &mut Vec<u8>, value: &dyn fmt::Display) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{value}");
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a value as readable lines and templates show it: seconds, numbers, escaped text; `-` if it is
/// missing.
fn value(tag: Tag, value: Option<Value<'_>>, out: &mut Vec<u8>) {
    match value {
        None => shown(None, out),
        Some(Value::Text(text, is_cut)) => shown(Some(FieldText { text, is_cut }), out),
        Some(Value::Address(address)) => put(out, &address),
        Some(Value::Number(number)) => match tag.shape() {
            Shape::Duration => put(out, &Seconds(number)),
            Shape::Id => put(out, &Hex(number)),
            _ => put_number(out, number),
        },
    }
}

/// Appends escaped text; `-` if it is missing.
fn shown(text: Option<FieldText<'_>>, out: &mut Vec<u8>) {
    let Some(FieldText { text, is_cut }) = text else { return out.push(b'-') };
    escaped(text, out);
    if is_cut {
        out.extend_from_slice(CUT_SHOWN);
    }
}

/// Suffix of text that was cut.
const CUT_SHOWN: &[u8] = b"...";

/// Appends bytes as printable ASCII; quotes, backslashes and all other bytes become `\xHH`, as in nginx.
fn escaped(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    // Nearly all text is plain: sixteen bytes are checked at a time, without a branch for each byte.
    let (pieces, rest) = bytes.as_chunks::<16>();
    let is_all_plain = pieces.iter().all(|piece| piece.iter().fold(true, |all, &byte| all & is_plain(byte)))
        && rest.iter().fold(true, |all, &byte| all & is_plain(byte));
    if is_all_plain {
        return out.extend_from_slice(bytes);
    }
    let mut left = bytes;
    while let Some(at) = left.iter().position(|&byte| !is_plain(byte)) {
        let (plain, rest) = left.split_at(at);
        out.extend_from_slice(plain);
        let byte = usize::from(rest[0]);
        out.extend_from_slice(&[b'\\', b'x', DIGITS[byte >> 4], DIGITS[byte & 15]]);
        left = &rest[1..];
    }
    out.extend_from_slice(left);
}

/// Fields of a client's request that web servers log, found in one pass that decodes nothing else.
#[derive(Default)]
struct ClientRequestFields<'a> {
    client: &'a [u8],
    method: Option<FieldText<'a>>,
    url: Option<FieldText<'a>>,
    protocol: Option<FieldText<'a>>,
    status: u64,
    bytes: u64,
    referer: Option<FieldText<'a>>,
    user_agent: Option<FieldText<'a>>,
}

/// Text of a field.
#[derive(Clone, Copy)]
struct FieldText<'a> {
    text: &'a [u8],
    /// True if the text was cut.
    is_cut: bool,
}

impl<'a> ClientRequestFields<'a> {
    fn of(record: &Record<'a>) -> Self {
        const METHOD: u8 = Tag::Method as u8 + 1;
        const URL: u8 = Tag::Url as u8 + 1;
        const PROTOCOL: u8 = Tag::Protocol as u8 + 1;
        const CLIENT: u8 = Tag::Client as u8 + 1;
        const STATUS: u8 = Tag::Status as u8 + 1;
        const BYTES: u8 = Tag::BytesBody as u8 + 1;
        const REFERER: u8 = Tag::Referer as u8 + 1;
        const USER_AGENT: u8 = Tag::UserAgent as u8 + 1;
        let number = |value: &[u8]| value.try_into().map_or(0, u64::from_le_bytes);
        let mut of = Self::default();
        for Raw { tag, value, is_cut } in record.raw() {
            let text = FieldText { text: value, is_cut };
            match tag {
                METHOD => of.method = Some(text),
                URL => of.url = Some(text),
                PROTOCOL => of.protocol = Some(text),
                CLIENT => of.client = value,
                STATUS => of.status = number(value),
                BYTES => of.bytes = number(value),
                REFERER => of.referer = Some(text),
                USER_AGENT => of.user_agent = Some(text),
                _ => {}
            }
        }
        of
    }
}

fn common(record: &Record<'_>, recent: &mut LineCache, is_combined: bool, out: &mut Vec<u8>) {
    let of = ClientRequestFields::of(record);
    out.extend_from_slice(recent.client(of.client));
    out.extend_from_slice(b" - - [");
    out.extend_from_slice(recent.date(record.began_us / 1_000_000));
    out.extend_from_slice(b"] \"");
    if of.method.is_some() {
        shown(of.method, out);
        out.push(b' ');
        shown(of.url, out);
        out.push(b' ');
        shown(of.protocol, out);
    } else {
        out.push(b'-');
    }
    out.extend_from_slice(b"\" ");
    put_number(out, of.status);
    out.push(b' ');
    put_number(out, of.bytes);
    if is_combined {
        out.extend_from_slice(b" \"");
        shown(of.referer, out);
        out.extend_from_slice(b"\" \"");
        shown(of.user_agent, out);
        out.push(b'"');
    }
}

/// Returns the tags that a human-readable line shows first, without their names.
fn shown_first(kind: Kind) -> &'static [Tag] {
    match kind {
        Kind::Client => &[Tag::Client, Tag::Method, Tag::Host, Tag::Url, Tag::Status, Tag::Cache],
        Kind::Origin => &[Tag::Server, Tag::Method, Tag::Url, Tag::Status],
        Kind::Mail => &[Tag::Client, Tag::From, Tag::To, Tag::Status],
        Kind::Consumer => &[Tag::Client, Tag::Connection, Tag::Subject],
    }
}

/// Appends a human-readable line: time, id and kind, the first tags, then all other tags with their names.
fn line(record: &Record<'_>, out: &mut Vec<u8>) {
    put(out, &Moment(record.began_us));
    out.push(b' ');
    put(out, &Hex(record.id));
    out.push(b' ');
    out.extend_from_slice(record.kind.name().as_bytes());
    let first = shown_first(record.kind);
    for tag in first {
        out.push(b' ');
        value(*tag, record.value(*tag), out);
    }
    if record.parent != 0 {
        out.extend_from_slice(b" parent=");
        put(out, &Hex(record.parent));
    }
    let mut is_shown = 0_u32;
    for (tag, of_tag) in record.pairs() {
        let place = first.iter().position(|shown| *shown == tag);
        // A mail has several recipients: only the first is shown without its name.
        if let Some(place) = place.filter(|place| is_shown & 1 << place == 0) {
            is_shown |= 1 << place;
            continue;
        }
        out.push(b' ');
        out.extend_from_slice(tag.name().as_bytes());
        out.push(b'=');
        match of_tag {
            Value::Text(..) => {
                out.push(b'"');
                value(tag, Some(of_tag), out);
                out.push(b'"');
            }
            _ => value(tag, Some(of_tag), out),
        }
    }
}

fn json(record: &Record<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    put(out, &Moment(record.began_us));
    out.extend_from_slice(b"\",\"kind\":\"");
    out.extend_from_slice(record.kind.name().as_bytes());
    out.extend_from_slice(b"\",\"id\":\"");
    put(out, &Hex(record.id));
    out.push(b'"');
    if record.parent != 0 {
        out.extend_from_slice(b",\"parent\":\"");
        put(out, &Hex(record.parent));
        out.push(b'"');
    }
    let is_cut = |value: &Value<'_>| matches!(value, Value::Text(_, true));
    for (tag, value) in record.pairs().filter(|(tag, _)| *tag != Tag::To) {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(tag.name().as_bytes());
        out.extend_from_slice(if tag.shape() == Shape::Duration { b"_us\":" } else { b"\":" });
        json_value(tag, value, out);
    }
    for (at, (tag, value)) in record.pairs().filter(|(tag, _)| *tag == Tag::To).enumerate() {
        out.extend_from_slice(if at == 0 { b",\"to\":[" } else { b"," });
        json_value(tag, value, out);
    }
    if record.value(Tag::To).is_some() {
        out.push(b']');
    }
    for (at, (tag, _)) in record.pairs().filter(|(_, value)| is_cut(value)).enumerate() {
        out.extend_from_slice(if at == 0 { b",\"cut\":[\"" } else { b",\"" });
        out.extend_from_slice(tag.name().as_bytes());
        out.push(b'"');
    }
    if record.pairs().any(|(_, value)| is_cut(&value)) {
        out.push(b']');
    }
    out.push(b'}');
}

fn json_value(tag: Tag, value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Number(number) if tag.shape() != Shape::Id => put_number(out, number),
        Value::Number(id) => {
            out.push(b'"');
            put(out, &Hex(id));
            out.push(b'"');
        }
        Value::Address(address) => {
            out.push(b'"');
            put(out, &address);
            out.push(b'"');
        }
        Value::Text(text, _) => json_text(text, out),
    }
}

/// Appends bytes as a JSON string (RFC 8259 §7). Invalid UTF-8 becomes U+FFFD.
fn json_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for piece in bytes.utf8_chunks() {
        let mut left = piece.valid();
        while let Some(at) = left.find(must_be_escaped) {
            out.extend_from_slice(&left.as_bytes()[..at]);
            let mut rest = left[at..].chars();
            match rest.next() {
                Some(quote @ ('"' | '\\')) => out.extend_from_slice(&[b'\\', quote as u8]),
                // All characters to be escaped are in the Basic Multilingual Plane, so four digits suffice.
                Some(other) => _ = write!(out, "\\u{:04x}", u32::from(other)),
                None => {}
            }
            left = rest.as_str();
        }
        out.extend_from_slice(left.as_bytes());
        if !piece.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

fn must_be_escaped(character: char) -> bool {
    matches!(
        character,
        '"' | '\\' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    ) || character.is_control()
}

/// An id, formatted in hexadecimal.
#[derive(Debug, Clone, Copy)]
pub struct Hex(pub u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Microseconds, formatted as seconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Microseconds since 1970, formatted as a UTC time (RFC 3339).
struct Moment(u64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (second, us) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let Date { year, month, day } = Date::of(second / 86_400);
        let (hour, minute, second) = (second / 3_600 % 24, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
    }
}

struct Date {
    year: u64,
    /// Month, counted from 1.
    month: u64,
    day: u64,
}

impl Date {
    /// Returns the date `days` days after 1 January 1970, computed with Howard Hinnant's `civil_from_days`,
    /// in which years begin in March.
    fn of(days: u64) -> Self {
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Self { year, month, day: day_of_year - (153 * from_march + 2) / 5 + 1 }
    }
}

/// Cached parts of the last record's line in a web server's format: many records share a second or a client.
#[derive(Debug, Default)]
pub struct LineCache {
    second: Option<u64>,
    date: Vec<u8>,
    address: Vec<u8>,
    client: Vec<u8>,
}

impl LineCache {
    fn date(&mut self, second: u64) -> &[u8] {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        if self.second != Some(second) {
            let Date { year, month, day } = Date::of(second / 86_400);
            let month = usize::try_from(month - 1).ok().and_then(|month| MONTHS.get(month)).unwrap_or(&"Jan");
            let (hour, minute, of_minute) = (second / 3_600 % 24, second / 60 % 60, second % 60);
            self.date.clear();
            // Writing to memory cannot fail.
            let _ =
                write!(self.date, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{of_minute:02} +0000");
            self.second = Some(second);
        }
        &self.date
    }

    /// Returns an address of 4 or 16 bytes as text; any other length as `-`.
    fn client(&mut self, address: &[u8]) -> &[u8] {
        if self.address != address || self.client.is_empty() {
            self.address.clear();
            self.address.extend_from_slice(address);
            self.client.clear();
            let client = pair(Tag::Client as u8 + 1, address, false).map(|(_, client)| client);
            value(Tag::Client, client, &mut self.client);
        }
        &self.client
    }
}
