//! Reasons why a hub is not joined, worded for the operator, and the pauses between attempts.

use std::time::Duration;

use engine::random;

use crate::client::connection::CloseReason;

/// First pause between attempts to join a hub; each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest pause between attempts, except after lasting errors ([`PAUSE_LONG`]).
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// Pause after an error that the next attempt is unlikely to avoid (half a minute, as in nats-server).
const PAUSE_LONG: Duration = Duration::from_secs(30);

/// Reason why a hub is not joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The connection cannot be established.
    Unreachable(String),
    /// The port does not belong to a hub.
    NotAHub(String),
    /// The TLS or WebSocket handshake failed.
    Handshake(String),
    /// The configured credentials for the hub are unusable.
    Credentials(String),
    /// The hub does not answer CONNECT.
    NoAnswer,
    /// The hub refused the connection with this error.
    Refused(String),
    /// Messages would loop: this server's own subscriptions come back to it.
    Loop(String),
    /// The hub has changed this server's permissions.
    Changed,
    /// A reload has removed or changed the hub.
    NotConfigured,
    /// The connection was closed.
    Lost(CloseReason),
    /// The hub violated the protocol.
    Protocol(String),
}

impl Trouble {
    /// Classifies an error from the hub.
    pub(crate) fn of_words(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text).into_owned();
        if text.contains("Loop detected") { Self::Loop(text) } else { Self::Refused(text) }
    }

    /// Returns whether another attempt within seconds would fail in the same way.
    pub(crate) fn is_lasting(&self) -> bool {
        const LASTING: [&str; 4] =
            ["same cluster name", "minimum version", "Permissions Violation", "Duplicate Remote"];
        match self {
            Self::Loop(_) => true,
            Self::Refused(text) => LASTING.iter().any(|words| text.contains(words)),
            _ => false,
        }
    }

    /// Returns the reason as a line of text for the operator.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Unreachable(why) => format!("unreachable: {why}"),
            Self::NotAHub(what) => {
                format!("{what}; a port for leaf nodes is needed (nats-server's default is 7422)")
            }
            Self::Handshake(why) | Self::Credentials(why) => why.clone(),
            Self::NoAnswer => "pings are not answered".to_owned(),
            Self::Refused(text) => match meaning(text) {
                Some(meaning) => format!("it says '{text}': {meaning}"),
                None => format!("it says '{text}'"),
            },
            Self::Loop(text) => {
                format!("loop detected: {text}; is the same cluster joined twice for one account?")
            }
            Self::Changed => "our permissions were changed".to_owned(),
            Self::NotConfigured => "no longer configured".to_owned(),
            Self::Lost(why) => format!("connection lost: {}", why.reason()),
            Self::Protocol(why) => format!("protocol error: {why}"),
        }
    }
}

/// Returns advice on an error text from a hub, if there is any.
fn meaning(text: &str) -> Option<&'static str> {
    [
        (
            "Authorization Violation",
            "authorization violation: no such user, or wrong password, token, key or credentials",
        ),
        ("Authentication Timeout", "authentication timeout: our CONNECT did not arrive"),
        ("Authentication Expired", "the user's JWT has expired: a new one is needed"),
        ("same cluster name", "the hub's cluster has our name: set another server-name"),
        ("minimum version", "the hub's leafnodes.min_version is above our version"),
        ("Permissions Violation", "the hub's permissions for this user are narrower than announced"),
        ("Duplicate Remote", "another server of this name has joined: set another server-name"),
        ("leaf node port", "the hub took us for a client"),
    ]
    .into_iter()
    .find_map(|(words, meaning)| text.contains(words).then_some(meaning))
}

/// Increasing pauses between attempts. Their length is randomized, so that servers that lose the same hub do
/// not all reconnect at once.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    in_a_row: u32,
}

impl Pauses {
    /// Resets the pauses after the hub was joined.
    pub(crate) fn begin_anew(&mut self) {
        self.in_a_row = 0;
    }

    /// Returns the next pause.
    pub(crate) fn next(&mut self, trouble: &Trouble) -> Duration {
        if trouble.is_lasting() {
            return with_jitter(PAUSE_LONG, PAUSE_LONG / 10);
        }
        let max = if matches!(trouble, Trouble::Protocol(_)) { PAUSE_LONG } else { PAUSE_MAX };
        let pause = PAUSE_MIN.saturating_mul(1 << self.in_a_row.min(16)).min(max);
        self.in_a_row += 1;
        with_jitter(pause / 2, pause / 2)
    }
}

/// Returns a random duration from `least` to `least + more`.
fn with_jitter(least: Duration, more: Duration) -> Duration {
    let part = random::number().unwrap_or_default() % 1000;
    least + more.mul_f64(part as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_a_bound() {
        let mut pauses = Pauses::default();
        let trouble = Trouble::Unreachable("x".to_owned());
        for nth in 0..40 {
            let longest = PAUSE_MIN.saturating_mul(1 << nth.min(16)).min(PAUSE_MAX);
            let pause = pauses.next(&trouble);
            assert!(pause >= longest / 2 && pause <= longest, "{nth}: {pause:?}");
        }
        // A hub that violates the protocol gets longer pauses.
        let broken = pauses.next(&Trouble::Protocol("x".to_owned()));
        assert!(broken >= PAUSE_LONG / 2 && broken <= PAUSE_LONG, "{broken:?}");
        pauses.begin_anew();
        assert!(pauses.next(&trouble) <= PAUSE_MIN);
        for lasting in [
            "Loop detected for leafnode account=\"$G\". Delaying attempt to reconnect for 30s",
            "remote leafnode has same cluster name",
            "connection rejected since minimum version required is \"9.0.0\"",
            "Permissions Violation for Publish to \"x\"",
        ] {
            let pause = pauses.next(&Trouble::of_words(lasting.as_bytes()));
            assert!(pause >= PAUSE_LONG && pause <= PAUSE_LONG * 11 / 10, "{lasting}: {pause:?}");
        }
        assert!(pauses.next(&Trouble::of_words(b"Authorization Violation")) < PAUSE_LONG);
    }
}
