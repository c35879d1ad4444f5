//! SMTP replies: code, enhanced status (RFC 3463), text.

/// A reply of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Reply code of three digits.
    pub code: u16,
    /// Enhanced status, such as `2.1.5`; `None` where RFC 2034 defines none (greeting, EHLO, 3xx).
    pub status: Option<&'static str>,
    /// Human-readable text, without line ends.
    pub text: &'static str,
}

impl Reply {
    /// Creates a reply with an enhanced status.
    #[must_use]
    pub const fn new(code: u16, status: &'static str, text: &'static str) -> Self {
        Self { code, status: Some(status), text }
    }

    /// Returns whether the code is 4xx or 5xx.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        self.code >= 400
    }

    /// Appends the reply's line.
    pub fn write(self, out: &mut Vec<u8>) {
        self.write_about(out, b"");
    }

    /// Appends the line with `about` (such as an address) before its text. Bytes of `about` that are not
    /// printable ASCII, and those beyond 200, are omitted.
    pub fn write_about(self, out: &mut Vec<u8>, about: &[u8]) {
        let mut digits = itoa::Buffer::new();
        out.extend_from_slice(digits.format(self.code).as_bytes());
        out.push(b' ');
        if let Some(status) = self.status {
            out.extend_from_slice(status.as_bytes());
            out.push(b' ');
        }
        let before = out.len();
        out.extend(about.iter().filter(|byte| byte.is_ascii_graphic()).take(200));
        if out.len() > before {
            out.push(b' ');
        }
        out.extend_from_slice(self.text.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// 354: send the mail.
pub const GO_AHEAD: Reply = Reply { code: 354, status: None, text: "End data with <CRLF>.<CRLF>" };
/// 250 to RSET.
pub const RESET: Reply = Reply::new(250, "2.0.0", "Reset");
/// 250 to NOOP.
pub const NOTHING_DONE: Reply = Reply::new(250, "2.0.0", "OK");
/// 250 to MAIL.
pub const SENDER_OK: Reply = Reply::new(250, "2.1.0", "Sender OK");
/// 250 to RCPT.
pub const RECIPIENT_OK: Reply = Reply::new(250, "2.1.5", "Recipient OK");
/// 250 to a chunk that is not the last.
pub const CHUNK_OK: Reply = Reply::new(250, "2.0.0", "Chunk received");
/// 252 to VRFY: every address is an inbox, so a verification would mean nothing.
pub const CANNOT_VERIFY: Reply = Reply::new(252, "2.5.0", "Any address here is an inbox; send it");
/// 502 to EXPN: there are no lists.
pub const NO_LISTS: Reply = Reply::new(502, "5.5.1", "There are no mailing lists here");
/// 214 to HELP.
pub const HELP: Reply = Reply::new(
    214,
    "2.0.0",
    "EHLO HELO LHLO MAIL RCPT DATA BDAT RSET NOOP VRFY HELP STARTTLS AUTH QUIT; see RFC 5321",
);
/// 221 to QUIT.
pub const BYE: Reply = Reply::new(221, "2.0.0", "Bye");
/// 220 to STARTTLS.
pub const START_TLS: Reply = Reply::new(220, "2.0.0", "Begin TLS");
/// 235: any credentials are accepted.
pub const AUTHENTICATED: Reply = Reply::new(235, "2.7.0", "Authenticated; anyone is");
/// 334 with an empty challenge, for AUTH PLAIN.
pub const CHALLENGE: Reply = Reply { code: 334, status: None, text: "" };
/// 334 `Username:`, for AUTH LOGIN.
pub const CHALLENGE_USER: Reply = Reply { code: 334, status: None, text: "VXNlcm5hbWU6" };
/// 334 `Password:`, for AUTH LOGIN.
pub const CHALLENGE_PASSWORD: Reply = Reply { code: 334, status: None, text: "UGFzc3dvcmQ6" };
/// 501 to `*` in an AUTH exchange.
pub const AUTH_GIVEN_UP: Reply = Reply::new(501, "5.7.0", "Authentication given up");
/// 501 to a line that is not base64 in an AUTH exchange.
pub const AUTH_NOT_BASE64: Reply = Reply::new(501, "5.5.2", "That is not base64");
/// 504 to a mechanism that is not supported.
pub const AUTH_MECHANISM: Reply = Reply::new(504, "5.5.4", "The mechanisms are PLAIN and LOGIN");
/// 503 to AUTH in a session that is already authenticated.
pub const AUTH_AGAIN: Reply = Reply::new(503, "5.5.1", "Already authenticated");
/// 503 to AUTH or STARTTLS between MAIL and the end of the mail.
pub const IN_TRANSACTION: Reply = Reply::new(503, "5.5.1", "Not in a mail transaction");
/// 503 to a command before the greeting.
pub const HELLO_FIRST: Reply = Reply::new(503, "5.5.1", "Say EHLO first");
/// 503 to a command before LMTP's greeting.
pub const LHLO_FIRST: Reply = Reply::new(503, "5.5.1", "Say LHLO first");
/// 500 to LHLO over SMTP (RFC 2033, 4.1).
pub const NOT_LMTP: Reply = Reply::new(500, "5.5.1", "This is SMTP: say EHLO");
/// 500 to EHLO and HELO over LMTP (RFC 2033, 4.1).
pub const NOT_SMTP: Reply = Reply::new(500, "5.5.1", "This is LMTP: say LHLO");
/// 503 to a second MAIL.
pub const NESTED_MAIL: Reply = Reply::new(503, "5.5.1", "There is a sender already; RSET takes it back");
/// 503 to RCPT before MAIL.
pub const MAIL_FIRST: Reply = Reply::new(503, "5.5.1", "Say MAIL first");
/// 503 to DATA before MAIL and RCPT.
pub const RCPT_FIRST: Reply = Reply::new(503, "5.5.1", "Say MAIL and RCPT first");
/// 554 to DATA where every recipient was refused (RFC 5321, 4.2.5).
pub const NO_RECIPIENTS: Reply = Reply::new(554, "5.5.1", "No valid recipients");
/// 503 to RCPT or DATA after BDAT has begun the mail (RFC 3030, 2).
pub const BDAT_BEGUN: Reply = Reply::new(503, "5.5.1", "BDAT has begun: go on with BDAT, or RSET");
/// 503 to STARTTLS when TLS is already on.
pub const TLS_ON: Reply = Reply::new(503, "5.5.1", "TLS is on already");
/// 502 to STARTTLS without a certificate.
pub const NO_TLS: Reply = Reply::new(502, "5.5.1", "There is no TLS here");
/// 500 to an unknown command.
pub const UNKNOWN: Reply = Reply::new(500, "5.5.2", "Command not known; HELP lists them");
/// 502 to a known command that is not implemented.
pub const NOT_IMPLEMENTED: Reply = Reply::new(502, "5.5.1", "Command not implemented");
/// 421 to a line of an HTTP request.
pub const NOT_HTTP: Reply = Reply::new(421, "4.7.0", "This is SMTP, and that was HTTP; closing");
/// 501 to an argument of a command that takes none.
pub const NO_ARGUMENT: Reply = Reply::new(501, "5.5.4", "This command takes no argument");
/// 501 to a greeting without a name.
pub const HELLO_SYNTAX: Reply = Reply::new(501, "5.5.4", "It is EHLO, a space, and your name");
/// 501 to MAIL with a syntax error.
pub const MAIL_SYNTAX: Reply = Reply::new(501, "5.5.4", "It is MAIL FROM:<address>");
/// 501 to RCPT with a syntax error.
pub const RCPT_SYNTAX: Reply = Reply::new(501, "5.5.4", "It is RCPT TO:<address>");
/// 501 to BDAT with a syntax error.
pub const BDAT_SYNTAX: Reply = Reply::new(501, "5.5.4", "It is BDAT, a size, and perhaps LAST");
/// 501 to any other argument with a syntax error.
pub const ARGUMENT_SYNTAX: Reply = Reply::new(501, "5.5.4", "The argument is missing or too long");
/// 501 to an invalid address in MAIL.
pub const SENDER_SYNTAX: Reply = Reply::new(501, "5.1.7", "That is no address");
/// 501 to an invalid address in RCPT.
pub const RECIPIENT_SYNTAX: Reply = Reply::new(501, "5.1.3", "That is no address");
/// 501 to a parameter of MAIL or RCPT with a wrong value.
pub const PARAMETER_VALUE: Reply = Reply::new(501, "5.5.4", "A parameter has a wrong value");
/// 555 to a parameter of MAIL or RCPT that EHLO did not offer.
pub const PARAMETER: Reply = Reply::new(555, "5.5.4", "A parameter is not one that EHLO offered");
/// 553 to non-ASCII addresses without SMTPUTF8 (RFC 6531, 3.5).
pub const NEEDS_SMTPUTF8: Reply =
    Reply::new(553, "5.6.7", "An address beyond ASCII needs SMTPUTF8 in MAIL FROM");
/// 500 to an overlong line.
pub const LINE_TOO_LONG: Reply = Reply::new(500, "5.5.6", "Line too long");
/// 500 to a line that ends in a bare LF.
pub const BARE_LF: Reply = Reply::new(500, "5.5.2", "Lines end in CRLF, not in LF alone");
/// 500 to a CR within a line.
pub const BARE_CR: Reply = Reply::new(500, "5.5.2", "A CR stands only at a line's end, before LF");
/// 500 to NUL and other control characters.
pub const CONTROL: Reply = Reply::new(500, "5.5.2", "A line has a control character");
/// 500 to a line that is not UTF-8.
pub const NOT_UTF8: Reply = Reply::new(500, "5.5.2", "A line is not UTF-8");
/// 452 to more recipients than a mail may have (RFC 5321, 4.5.3.1.10).
pub const TOO_MANY_RECIPIENTS: Reply = Reply::new(452, "4.5.3", "Too many recipients for one mail");
/// 552 to a mail over the limit.
pub const TOO_LARGE: Reply = Reply::new(552, "5.3.4", "The mail is larger than SIZE in EHLO says");
/// 421 to a client with too many errors.
pub const TOO_MANY_FAULTS: Reply = Reply::new(421, "4.7.0", "Too many errors; closing");
