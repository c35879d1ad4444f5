//! Parser for the operations that NATS servers send, for clients.

use super::{
    Progress,
    line::{size, split, without_end},
};

/// Maximum length of a server's control line that our own clients accept, in bytes. INFO with many
/// `connect_urls` is the longest.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// An operation of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOp<'a> {
    /// INFO: the server's identity, as JSON.
    Info {
        /// The JSON, not parsed.
        json: &'a [u8],
    },
    /// MSG or HMSG: a message.
    Message {
        /// Subject to which the message was published.
        subject: &'a [u8],
        /// The client's name for the subscription.
        sid: &'a [u8],
        /// Subject for the reply; empty if no reply is wanted.
        reply: &'a [u8],
        /// The header with its status line and empty line; empty for MSG.
        header: &'a [u8],
        /// The payload.
        payload: &'a [u8],
    },
    /// PING.
    Ping,
    /// PONG.
    Pong,
    /// +OK, sent after each operation to a verbose client.
    Ok,
    /// -ERR: a rule was broken.
    Error {
        /// The error text, without the quotes.
        text: &'a [u8],
    },
}

/// Error for bytes that a server must not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerFault {
    /// The operation is not INFO, MSG, HMSG, PING, PONG, +OK or -ERR.
    #[error("unknown operation")]
    UnknownOperation,
    /// The arguments cannot be read.
    #[error("invalid arguments of {0}")]
    Malformed(&'static str),
    /// The line does not end within [`LINE_BYTES_MAX`].
    #[error("protocol line longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
}

/// Parses one operation at the front of `bytes`.
///
/// # Errors
/// Returns a [`ServerFault`] if the peer is not a NATS server or the stream is broken.
pub fn parse(bytes: &[u8]) -> Result<Progress<ServerOp<'_>>, ServerFault> {
    let Some(lf) = memchr::memchr(b'\n', &bytes[..bytes.len().min(LINE_BYTES_MAX)]) else {
        return if bytes.len() >= LINE_BYTES_MAX {
            Err(ServerFault::LineTooLong)
        } else {
            Ok(Progress::NeedMore(bytes.len() + 1))
        };
    };
    let line = without_end(&bytes[..=lf]);
    let blank = line.iter().position(|&byte| byte == b' ' || byte == b'\t').unwrap_or(line.len());
    let (verb, arguments) = line.split_at(blank);
    let op = match verb {
        b"MSG" => return message(bytes, lf + 1, arguments, false),
        b"HMSG" => return message(bytes, lf + 1, arguments, true),
        b"PING" => ServerOp::Ping,
        b"PONG" => ServerOp::Pong,
        b"+OK" => ServerOp::Ok,
        b"INFO" => ServerOp::Info { json: arguments.trim_ascii() },
        b"-ERR" => {
            let text = arguments.trim_ascii();
            let text = text.strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'")).unwrap_or(text);
            ServerOp::Error { text }
        }
        _ => return Err(ServerFault::UnknownOperation),
    };
    Ok(Progress::Complete(op, lf + 1))
}

fn message<'a>(
    bytes: &'a [u8],
    body_at: usize,
    arguments: &'a [u8],
    has_header: bool,
) -> Result<Progress<ServerOp<'a>>, ServerFault> {
    let malformed = Err(ServerFault::Malformed(if has_header { "HMSG" } else { "MSG" }));
    let Ok((words, count)) = split::<5>(arguments) else { return malformed };
    let (reply, header, total): (&[u8], &[u8], _) = match (has_header, count) {
        (false, 3) => (&[], b"0", words[2]),
        (false, 4) => (words[2], b"0", words[3]),
        (true, 4) => (&[], words[2], words[3]),
        (true, 5) => (words[2], words[3], words[4]),
        _ => return malformed,
    };
    let (Some(header_bytes), Some(body_bytes)) = (size(header), size(total)) else { return malformed };
    if header_bytes > body_bytes {
        return malformed;
    }
    let whole = body_at + body_bytes + 2;
    if bytes.len() < whole {
        return Ok(Progress::NeedMore(whole));
    }
    if &bytes[whole - 2..whole] != b"\r\n" {
        return malformed;
    }
    let (header, payload) = bytes[body_at..whole - 2].split_at(header_bytes);
    let op = ServerOp::Message { subject: words[0], sid: words[1], reply, header, payload };
    Ok(Progress::Complete(op, whole))
}
