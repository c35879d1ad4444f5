//! A server's errors for clients that break a rule, and whether it then closes the connection.

/// Error for a broken rule, with nats-server's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection<'a> {
    /// The operation is unknown, or a payload does not end where it should.
    UnknownOperation,
    /// Arguments that cannot be read; the connection is closed without an error line, as nats-server does.
    Malformed(&'static str),
    /// A header on a connection without headers; the connection is closed without an error line.
    HeadersUnsupported,
    /// An `-ERR`, which only servers send, from a client; the connection is closed without an error line.
    ErrorFromClient,
    /// More than `max_control_line` bytes before the line's end.
    ControlLineTooLong,
    /// A payload of more than `max_payload` bytes.
    PayloadTooLarge,
    /// CONNECT names a protocol other than 0 or 1.
    ProtocolVersion,
    /// CONNECT requests `no_responders` without `headers`.
    NoRespondersNeedHeaders,
    /// Wrong or missing credentials, or another operation before CONNECT where credentials are required.
    AuthorizationViolation,
    /// No CONNECT arrived in time.
    AuthenticationTimeout,
    /// The server has more connections than `max_connections`.
    ConnectionsExceeded,
    /// The client's account has more connections than its limit allows.
    AccountConnectionsExceeded,
    /// Two PINGs in a row were not answered.
    StaleConnection,
    /// The connection must begin with TLS.
    TlsRequired,
    /// The server is shutting down, and the grace period has ended.
    ServerShutdown,
    /// The subject of a subscription is not valid.
    InvalidSubject,
    /// The subject of a message is not valid; reported to pedantic clients only.
    InvalidPublishSubject,
    /// The connection has more subscriptions than its limit allows.
    SubscriptionsExceeded,
    /// The user may not publish to the subject.
    PublishDenied {
        /// Subject of the message.
        subject: &'a [u8],
    },
    /// The user may not use the subject for replies.
    ReplyDenied {
        /// Reply subject of the message.
        reply: &'a [u8],
    },
    /// The user has lost the permission for a subscription: it has ended.
    SubscriptionRevoked {
        /// Subject of the subscription.
        subject: &'a [u8],
        /// The client's name for the subscription.
        sid: &'a [u8],
    },
    /// The user may not subscribe to the subject.
    SubscriptionDenied {
        /// Subject of the subscription.
        subject: &'a [u8],
        /// Queue group of the subscription, if any.
        queue: Option<&'a [u8]>,
    },
}

impl Rejection<'_> {
    /// Returns whether the connection is closed after the error.
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

    /// Returns the text between the quotes if it does not depend on the client's input. `None` if there is no
    /// error line, or if its text names a subject.
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

    /// Appends `-ERR '…'` with its line end; nothing for an error without a line.
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
