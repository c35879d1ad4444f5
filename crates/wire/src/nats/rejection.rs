//! What a server says to a client that broke a rule, and whether it then closes the connection.

/// A rule broken, in nats-server's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection<'a> {
    /// No such operation, or a payload that does not end where it should.
    UnknownOperation,
    /// Arguments that cannot be read: closed without a word, as nats-server does.
    Malformed(&'static str),
    /// A header where the connection has none: closed without a word.
    HeadersUnsupported,
    /// The server's own word for an error (`-ERR`) from a client: closed without a word.
    ErrorFromClient,
    /// More than `max_control_line` bytes before the line's end.
    ControlLineTooLong,
    /// A payload of more than `max_payload` bytes.
    PayloadTooLarge,
    /// CONNECT asks for a protocol that is not 0 or 1.
    ProtocolVersion,
    /// CONNECT asks for `no_responders` without `headers`.
    NoRespondersNeedHeaders,
    /// Wrong or missing credentials, or another operation before CONNECT where they are needed.
    AuthorizationViolation,
    /// No CONNECT within the time for it.
    AuthenticationTimeout,
    /// More connections than `max_connections`.
    ConnectionsExceeded,
    /// More connections than the client's account may have.
    AccountConnectionsExceeded,
    /// Two pings in a row were not answered.
    StaleConnection,
    /// The connection must begin with TLS.
    TlsRequired,
    /// The server is stopping, and the time for leaving is up.
    ServerShutdown,
    /// A subject to subscribe to that is not valid.
    InvalidSubject,
    /// A subject to publish to that is not valid; said to pedantic clients only.
    InvalidPublishSubject,
    /// More subscriptions than the connection may have.
    SubscriptionsExceeded,
    /// This user may not publish there.
    PublishDenied {
        /// Where.
        subject: &'a [u8],
    },
    /// This user may not have answers sent there.
    ReplyDenied {
        /// Where.
        reply: &'a [u8],
    },
    /// This user may not be subscribed to that any more: the subscription has ended.
    SubscriptionRevoked {
        /// To what.
        subject: &'a [u8],
        /// The client's name for it.
        sid: &'a [u8],
    },
    /// This user may not subscribe to that.
    SubscriptionDenied {
        /// To what.
        subject: &'a [u8],
        /// In which queue group.
        queue: Option<&'a [u8]>,
    },
}

impl Rejection<'_> {
    /// Whether the connection is closed after it.
    #[must_use]
    pub fn closes(&self) -> bool {
        !matches!(
            self,
            Self::InvalidSubject
                | Self::InvalidPublishSubject
                | Self::SubscriptionsExceeded
                | Self::PublishDenied { .. }
                | Self::ReplyDenied { .. }
                | Self::SubscriptionDenied { .. }
                | Self::SubscriptionRevoked { .. }
        )
    }

    /// The words between the quotes, where they do not depend on what the client sent. `None`: nothing is said, or
    /// the words name a subject.
    #[must_use]
    pub fn fixed_text(&self) -> Option<&'static str> {
        Some(match self {
            Self::UnknownOperation => "Unknown Protocol Operation",
            Self::ControlLineTooLong => "maximum control line exceeded",
            Self::PayloadTooLarge => "Maximum Payload Violation",
            Self::ProtocolVersion => "invalid client protocol",
            Self::NoRespondersNeedHeaders => "no responders requires headers support",
            Self::AuthorizationViolation => "Authorization Violation",
            Self::AuthenticationTimeout => "Authentication Timeout",
            Self::ConnectionsExceeded => "maximum connections exceeded",
            Self::AccountConnectionsExceeded => "maximum account active connections exceeded",
            Self::StaleConnection => "Stale Connection",
            Self::TlsRequired => "Secure Connection - TLS Required",
            Self::ServerShutdown => "Server Shutdown",
            Self::InvalidSubject => "Invalid Subject",
            Self::InvalidPublishSubject => "Invalid Publish Subject",
            Self::SubscriptionsExceeded => "maximum subscriptions exceeded",
            Self::Malformed(_)
            | Self::HeadersUnsupported
            | Self::ErrorFromClient
            | Self::PublishDenied { .. }
            | Self::ReplyDenied { .. }
            | Self::SubscriptionDenied { .. }
            | Self::SubscriptionRevoked { .. } => return None,
        })
    }

    /// Appends `-ERR '…'` with its line end; nothing where nothing is said.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut quoted = |parts: &[&[u8]]| {
            out.extend_from_slice(b"-ERR '");
            parts.iter().for_each(|part| out.extend_from_slice(part));
            out.extend_from_slice(b"'\r\n");
        };
        match *self {
            Self::PublishDenied { subject } => {
                quoted(&[b"Permissions Violation for Publish to \"", subject, b"\""]);
            }
            Self::ReplyDenied { reply } => {
                quoted(&[b"Permissions Violation for Publish with Reply of \"", reply, b"\""]);
            }
            Self::SubscriptionRevoked { subject, sid } => quoted(&[
                b"Permissions Violation for Subscription to \"",
                subject,
                b"\" (sid \"",
                sid,
                b"\")",
            ]),
            Self::SubscriptionDenied { subject, queue: None } => {
                quoted(&[b"Permissions Violation for Subscription to \"", subject, b"\""]);
            }
            Self::SubscriptionDenied { subject, queue: Some(queue) } => quoted(&[
                b"Permissions Violation for Subscription to \"",
                subject,
                b"\" using queue \"",
                queue,
                b"\"",
            ]),
            _ => {
                if let Some(text) = self.fixed_text() {
                    quoted(&[text.as_bytes()]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rejection: Rejection<'_>) -> String {
        let mut out = Vec::new();
        rejection.write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn the_words() {
        assert_eq!(text(Rejection::UnknownOperation), "-ERR 'Unknown Protocol Operation'\r\n");
        assert_eq!(text(Rejection::Malformed("PUB")), "");
        let denied = Rejection::SubscriptionDenied { subject: b"x", queue: Some(b"q") };
        assert_eq!(
            text(denied),
            "-ERR 'Permissions Violation for Subscription to \"x\" using queue \"q\"'\r\n"
        );
        let denied = Rejection::PublishDenied { subject: b"x" };
        assert_eq!(text(denied), "-ERR 'Permissions Violation for Publish to \"x\"'\r\n");
    }

    #[test]
    fn who_stays_open() {
        assert!(Rejection::UnknownOperation.closes());
        assert!(Rejection::Malformed("PUB").closes());
        assert!(Rejection::PayloadTooLarge.closes());
        assert!(!Rejection::InvalidSubject.closes());
        assert!(!Rejection::PublishDenied { subject: b"x" }.closes());
    }
}
