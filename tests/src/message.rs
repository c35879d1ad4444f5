//! HTTP/1.1 messages as the tests write them: bytes and field names, deliberately not the program's own
//! types.

use std::fmt::Write as _;

/// Header fields in the order and the letter case in which they were received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// Returns the first field of this name, regardless of letter case.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Iterates over all fields of this name, regardless of letter case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Returns all fields of this name joined by commas, as for a list (RFC 9110 §5.3).
    pub fn joined(&self, name: &str) -> String {
        self.all(name).collect::<Vec<_>>().join(", ")
    }

    /// Parses the lines between the start line and the empty line, strictly: the program must send plain
    /// fields.
    ///
    /// # Errors
    /// The line that is not a field.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut fields = Vec::new();
        for line in lines {
            let (name, value) =
                line.split_once(':').ok_or_else(|| format!("a field without a colon: {line:?}"))?;
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || !name.bytes().all(token) {
                return Err(format!("a field whose name is no token: {line:?}"));
            }
            if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
                return Err(format!("a field whose value holds a control character: {line:?}"));
            }
            fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
        Ok(Self(fields))
    }
}

/// A request to send.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    target: String,
    fields: Headers,
    body: Vec<u8>,
}

impl Request {
    /// Makes a request with this method and target, `Host: site.test`, and nothing else.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            fields: Headers::default(),
            body: Vec::new(),
        }
    }

    /// Makes a plain `GET`.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.fields.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a body with its `Content-Length`.
    #[must_use]
    pub fn body(self, body: &[u8]) -> Self {
        let mut with_length = self.header("Content-Length", &body.len().to_string());
        with_length.body = body.to_vec();
        with_length
    }

    /// Adds a chunked body.
    #[must_use]
    pub fn chunked(self, pieces: &[&[u8]]) -> Self {
        let mut with_chunks = self.header("Transfer-Encoding", "chunked");
        with_chunks.body = chunks(pieces, &[]);
        with_chunks
    }

    /// Returns the method, which decides whether an answer has a body.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the bytes on the wire. `Host` is added unless it was given.
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if self.fields.first("host").is_none() {
            head.push_str("Host: site.test\r\n");
        }
        append_fields(&mut head, &self.fields);
        [head.as_bytes(), &self.body].concat()
    }
}

/// A well-formed answer for an origin to send.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    fields: Headers,
    body: Vec<u8>,
}

impl Answer {
    /// Makes an answer with this status, a `Date`, and a body with its `Content-Length`.
    pub fn new(status: u16, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        let plain = Self { status, fields: Headers::default(), body };
        // RFC 9112 §6.3: these statuses have no body, and a length would describe another answer.
        if status == 204 || status == 304 || status < 200 {
            return plain.header("Date", &date(0));
        }
        let length = plain.body.len().to_string();
        plain.header("Date", &date(0)).header("Content-Length", &length)
    }

    /// Makes a chunked answer with trailers.
    pub fn chunked(status: u16, pieces: &[&[u8]], trailers: &[(&str, &str)]) -> Self {
        let plain = Self { status, fields: Headers::default(), body: chunks(pieces, trailers) };
        plain.header("Date", &date(0)).header("Transfer-Encoding", "chunked")
    }

    /// Makes an answer without framing: its body ends when the connection does.
    pub fn until_close(status: u16, body: impl AsRef<[u8]>) -> Self {
        let plain = Self { status, fields: Headers::default(), body: body.as_ref().to_vec() };
        plain.header("Date", &date(0)).header("Connection", "close")
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.fields.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes the `Date`.
    #[must_use]
    pub fn undated(mut self) -> Self {
        self.fields.0.retain(|(name, _)| !name.eq_ignore_ascii_case("date"));
        self
    }

    /// Sets the `Date` to `seconds` from now (before now, if negative).
    #[must_use]
    pub fn dated(mut self, seconds: i64) -> Self {
        self.fields.0.retain(|(name, _)| !name.eq_ignore_ascii_case("date"));
        self.header("Date", &date(seconds))
    }

    /// Returns the head's bytes only, with the empty line.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        append_fields(&mut head, &self.fields);
        head.into_bytes()
    }

    /// Returns the bytes on the wire; for a `HEAD` the head only.
    pub fn bytes(&self, method: &str) -> Vec<u8> {
        let mut bytes = self.head_bytes();
        if method != "HEAD" {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

fn append_fields(head: &mut String, fields: &Headers) {
    for (name, value) in &fields.0 {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
}

fn chunks(pieces: &[&[u8]], trailers: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for piece in pieces {
        assert!(!piece.is_empty(), "an empty piece would end the body");
        body.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        body.extend_from_slice(piece);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        body.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    body.extend_from_slice(b"\r\n");
    body
}

/// Returns the time `seconds` from now as an HTTP date (RFC 9110 §5.6.7).
pub fn date(seconds: i64) -> String {
    use std::time::{Duration, SystemTime};
    let shift = Duration::from_secs(seconds.unsigned_abs());
    let now = SystemTime::now();
    httpdate::fmt_http_date(if seconds < 0 { now - shift } else { now + shift })
}
