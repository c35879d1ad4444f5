//! Encoder for the protocol lines of clients and servers; each function appends to a buffer.

/// Appends a number in decimal digits.
pub fn number(out: &mut Vec<u8>, number: usize) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(number).as_bytes());
}

/// Appends `MSG subject sid [reply ]size CRLF payload CRLF`.
pub fn msg(out: &mut Vec<u8>, subject: &[u8], sid: &[u8], reply: &[u8], payload: &[u8]) {
    words(out, b"MSG ", &[subject, sid], reply);
    number(out, payload.len());
    body(out, payload);
}

/// Appends `HMSG subject sid [reply ]header total CRLF header payload CRLF`; `header` includes its empty
/// line.
pub fn hmsg(out: &mut Vec<u8>, subject: &[u8], sid: &[u8], reply: &[u8], header: &[u8], payload: &[u8]) {
    words(out, b"HMSG ", &[subject, sid], reply);
    sizes(out, header, payload);
    out.extend_from_slice(header);
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// Appends the message that a requester gets when its subject has no responders: a 503 that names the
/// subject.
pub fn no_responders(out: &mut Vec<u8>, reply: &[u8], sid: &[u8], subject: &[u8]) {
    words(out, b"HMSG ", &[reply, sid], b"");
    let bytes = NO_RESPONDERS.len() + subject.len() + 4;
    number(out, bytes);
    out.push(b' ');
    number(out, bytes);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(NO_RESPONDERS);
    out.extend_from_slice(subject);
    out.extend_from_slice(b"\r\n\r\n\r\n");
}

const NO_RESPONDERS: &[u8] = b"NATS/1.0 503\r\nNats-Subject: ";

/// Appends `PUB subject [reply ]size CRLF payload CRLF`.
pub fn publish(out: &mut Vec<u8>, subject: &[u8], reply: &[u8], payload: &[u8]) {
    words(out, b"PUB ", &[subject], reply);
    number(out, payload.len());
    body(out, payload);
}

/// Appends `HPUB subject [reply ]header total CRLF header payload CRLF`; `header` includes its empty line.
pub fn hpublish(out: &mut Vec<u8>, subject: &[u8], reply: &[u8], header: &[u8], payload: &[u8]) {
    words(out, b"HPUB ", &[subject], reply);
    sizes(out, header, payload);
    out.extend_from_slice(header);
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// Appends `SUB subject [queue ]sid CRLF`.
pub fn subscribe(out: &mut Vec<u8>, subject: &[u8], queue: &[u8], sid: &[u8]) {
    words(out, b"SUB ", &[subject], queue);
    out.extend_from_slice(sid);
    out.extend_from_slice(b"\r\n");
}

/// Appends `UNSUB sid[ max] CRLF`.
pub fn unsubscribe(out: &mut Vec<u8>, sid: &[u8], max: Option<usize>) {
    out.extend_from_slice(b"UNSUB ");
    out.extend_from_slice(sid);
    if let Some(max) = max {
        out.push(b' ');
        number(out, max);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `CONNECT json CRLF`.
pub fn connect(out: &mut Vec<u8>, json: &[u8]) {
    out.extend_from_slice(b"CONNECT ");
    out.extend_from_slice(json);
    out.extend_from_slice(b"\r\n");
}

/// Appends `INFO json CRLF`, with a blank before the line end as nats-server writes it.
pub fn info(out: &mut Vec<u8>, json: &[u8]) {
    out.extend_from_slice(b"INFO ");
    out.extend_from_slice(json);
    out.extend_from_slice(b" \r\n");
}

fn words(out: &mut Vec<u8>, verb: &[u8], words: &[&[u8]], optional: &[u8]) {
    out.extend_from_slice(verb);
    for word in words {
        out.extend_from_slice(word);
        out.push(b' ');
    }
    if !optional.is_empty() {
        out.extend_from_slice(optional);
        out.push(b' ');
    }
}

fn sizes(out: &mut Vec<u8>, header: &[u8], payload: &[u8]) {
    number(out, header.len());
    out.push(b' ');
    number(out, header.len() + payload.len());
    out.extend_from_slice(b"\r\n");
}

fn body(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}
