//! Slow, obvious twins of the parsers: whole buffers, owned values, `split` and `trim`. Tests and fuzz
//! targets compare the real parsers with them. They are written from the RFCs and from this crate's
//! documentation, not from its code.
#![allow(dead_code, reason = "each test and fuzz target uses a part")]

pub(crate) mod drive;

/// Result of a twin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Naive<T> {
    /// The input is complete and valid.
    Complete(T),
    /// The end was not found; the input so far may be valid or not.
    Unfinished,
    /// The end was found, and the input before it breaks a rule.
    Refused,
}

/// A head: the first line's three words, the headers, and the length in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Method, target, version; or version, status, reason.
    pub(crate) line: [String; 3],
    /// Name and trimmed value.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    /// Length of the head in bytes.
    pub(crate) len: usize,
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn crlf_lines(mut text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(end) = find(text, b"\r\n") {
        lines.push(&text[..end]);
        text = &text[end + 2..];
    }
    lines.push(text);
    lines
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(b))
}

fn is_value(text: &[u8]) -> bool {
    !text.iter().any(|&b| b == 0x7f || b < 0x20 && b != b'\t')
}

fn trim(value: &[u8]) -> Vec<u8> {
    let text: String = value.iter().map(|&b| b as char).collect();
    text.trim_matches([' ', '\t']).chars().map(|c| c as u8).collect()
}

fn field(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut halves = line.splitn(2, |&b| b == b':');
    let (name, value) = (halves.next()?, halves.next()?);
    (is_token(name) && is_value(value)).then(|| (String::from_utf8_lossy(name).into_owned(), trim(value)))
}

fn is_authority(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let host_ok = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|address| {
            !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
        }),
        None => host.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c)),
    };
    let port_ok = match port {
        None | Some("") => true,
        Some(port) => {
            port.chars().all(|c| c.is_ascii_digit())
                && (port.trim_start_matches('0').is_empty()
                    || port.trim_start_matches('0').parse::<u16>().is_ok())
        }
    };
    host_ok && port_ok && !(host.is_empty() && port.is_some())
}

fn target_fits(method: &str, target: &str) -> bool {
    if method == "CONNECT" {
        let has_port = target.rsplit_once(':').is_some_and(|(_, p)| !p.is_empty() && !p.contains(']'));
        return has_port && is_authority(target.as_bytes());
    }
    let lower = target.to_ascii_lowercase();
    let after_scheme = lower.strip_prefix("http://").or(lower.strip_prefix("https://"));
    let authority = after_scheme.and_then(|rest| rest.split(['/', '?']).next());
    target.starts_with('/')
        || target == "*" && method == "OPTIONS"
        || authority.is_some_and(|a| !a.is_empty() && is_authority(a.as_bytes()))
}

/// Splits an authority into host and port, both normalised.
fn host_and_port(authority: &str, default_port: &str) -> (String, String) {
    let lower = authority.to_ascii_lowercase();
    let (host, port) = match lower.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host.to_owned(), port.to_owned()),
        _ => (lower, String::new()),
    };
    let port = if port.is_empty() { default_port.to_owned() } else { port };
    (host, port.trim_start_matches('0').to_owned())
}

/// Returns whether an absolute target and `Host` name the same host (RFC 9112, 3.2.2).
fn names_one_host(target: &str, host: &[u8]) -> bool {
    let lower = target.to_ascii_lowercase();
    let (rest, default_port) = match (lower.strip_prefix("http://"), lower.strip_prefix("https://")) {
        (Some(rest), _) => (rest, "80"),
        (_, Some(rest)) => (rest, "443"),
        _ => return true,
    };
    let named = rest.split(['/', '?']).next().unwrap_or_default();
    host_and_port(named, default_port) == host_and_port(&String::from_utf8_lossy(host), default_port)
}

/// Parses a request's head; of the limits only the number of headers is checked.
pub(crate) fn request(buf: &[u8]) -> Naive<Head> {
    let start = if buf.starts_with(b"\r\n") { 2 } else { 0 };
    let Some(end) = find(&buf[start..], b"\r\n\r\n") else { return Naive::Unfinished };
    let lines = crlf_lines(&buf[start..start + end]);
    let Some(headers) = lines[1..].iter().map(|line| field(line)).collect::<Option<Vec<_>>>() else {
        return Naive::Refused;
    };
    let words: Vec<&[u8]> = lines[0].split(|&b| b == b' ').collect();
    let [method, target, version] = words[..] else { return Naive::Refused };
    let target_ok = target.iter().all(|b| b.is_ascii_graphic() && !b"\"#<>".contains(b));
    let hosts: Vec<_> = headers.iter().filter(|(name, _)| name.to_lowercase() == "host").collect();
    let hosts_ok = match version {
        b"HTTP/1.1" => hosts.len() == 1,
        b"HTTP/1.0" => hosts.len() <= 1,
        _ => return Naive::Refused,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !is_token(method)
        || !target_ok
        || !hosts_ok
        || !hosts.iter().all(|(_, host)| is_authority(host))
        || headers.len() > 128
        || !target_fits(&text(method), &text(target))
        || !hosts.iter().all(|(_, host)| names_one_host(&text(target), host))
    {
        return Naive::Refused;
    }
    Naive::Complete(Head { line: [text(method), text(target), text(version)], headers, len: start + end + 4 })
}

/// Parses a response's head.
pub(crate) fn response(buf: &[u8]) -> Naive<Head> {
    let Some(end) = find(buf, b"\r\n\r\n") else { return Naive::Unfinished };
    let lines = crlf_lines(&buf[..end]);
    let Some(headers) = lines[1..].iter().map(|line| field(line)).collect::<Option<Vec<_>>>() else {
        return Naive::Refused;
    };
    let words: Vec<&[u8]> = lines[0].splitn(3, |&b| b == b' ').collect();
    let (version, status, reason) = match words[..] {
        [version, status] => (version, status, &b""[..]),
        [version, status, reason] => (version, status, reason),
        _ => return Naive::Refused,
    };
    let status_ok = status.len() == 3 && status.iter().all(u8::is_ascii_digit) && status[0] != b'0';
    if !matches!(version, b"HTTP/1.0" | b"HTTP/1.1") || !status_ok || !is_value(reason) || headers.len() > 128
    {
        return Naive::Refused;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let reason = if reason.is_ascii() { text(reason) } else { String::new() };
    Naive::Complete(Head { line: [text(version), text(status), reason], headers, len: end + 4 })
}

/// A body: payload, trailers, and total length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Body {
    /// The payload of all chunks.
    pub(crate) payload: Vec<u8>,
    /// The trailers' lines, each with its CRLF.
    pub(crate) trailers: Vec<u8>,
    /// Length of the encoded body in bytes.
    pub(crate) len: usize,
}

/// Returns whether each quoted string of a chunk's extensions is closed.
fn has_closed_quotes(extension: &str) -> bool {
    let mut rest = extension;
    while let Some((_, quoted)) = rest.split_once('"') {
        let mut characters = quoted.chars();
        loop {
            match characters.next() {
                None => return false,
                Some('"') => break,
                Some('\\') => drop(characters.next()),
                Some(_) => {}
            }
        }
        rest = characters.as_str();
    }
    true
}

pub(crate) fn chunked(buf: &[u8], line_max: usize, trailers_max: usize) -> Naive<Body> {
    let (mut payload, mut rest) = (Vec::new(), buf);
    loop {
        let Some(end) = find(rest, b"\r\n") else { return Naive::Unfinished };
        let line = &rest[..end];
        rest = &rest[end + 2..];
        let text: String = line.iter().map(|&b| b as char).collect();
        let (digits, extension) = match text.split_once(';') {
            Some((digits, extension)) => (digits.trim_end_matches([' ', '\t']), extension),
            None => (&*text, ""),
        };
        let hex = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
        let significant = digits.trim_start_matches('0');
        if !hex
            || significant.len() > 16
            || line.len() > line_max
            || !is_value(line)
            || !has_closed_quotes(extension)
        {
            return Naive::Refused;
        }
        let size = u64::from_str_radix(significant, 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        if (rest.len() as u64) < size {
            return Naive::Unfinished;
        }
        let (data, after) = rest.split_at(size as usize);
        payload.extend_from_slice(data);
        match after.strip_prefix(b"\r\n") {
            Some(after) => rest = after,
            None if after.len() < 2 => return Naive::Unfinished,
            None => return Naive::Refused,
        }
    }
    let mut trailers = Vec::new();
    loop {
        let Some(end) = find(rest, b"\r\n") else { return Naive::Unfinished };
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if line.is_empty() {
            return Naive::Complete(Body { payload, trailers, len: buf.len() - rest.len() });
        }
        trailers.extend_from_slice(line);
        trailers.extend_from_slice(b"\r\n");
        if field(line).is_none() || trailers.len() > trailers_max {
            return Naive::Refused;
        }
    }
}
