//! Requests to the server in the system account.

/// Subject of a request to the server: what the requested page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// This server. The page's name follows `$SYS.REQ.SERVER.PING.`, or the server's id in place of `PING`.
    Server(Page),
    /// An account. The page's name follows the account's name.
    Account(Page),
    /// All accounts: `$SYS.REQ.ACCOUNT.PING.STATZ`.
    Accounts,
}

/// Page that a request in the system account asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    Statsz,
    Idz,
    Varz,
    Connz,
    Subsz,
    Routez,
    Gatewayz,
    Leafz,
    Accountz,
    Jsz,
    Healthz,
    /// Statistics of an account.
    Statz,
    /// Statistics of an account, in an older form.
    Conns,
    /// Configuration of an account.
    Info,
    /// A page that nats-server has and the feed does not.
    NotDone,
}

impl Page {
    fn of_server(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"STATSZ" => Self::Statsz,
            b"IDZ" => Self::Idz,
            b"VARZ" => Self::Varz,
            b"CONNZ" => Self::Connz,
            b"SUBSZ" => Self::Subsz,
            b"ROUTEZ" => Self::Routez,
            b"GATEWAYZ" => Self::Gatewayz,
            b"LEAFZ" => Self::Leafz,
            b"ACCOUNTZ" => Self::Accountz,
            b"JSZ" => Self::Jsz,
            b"HEALTHZ" => Self::Healthz,
            b"PROFILEZ" | b"EXPVARZ" | b"KICK" | b"LDM" | b"RELOAD" => Self::NotDone,
            _ => return None,
        })
    }

    fn of_account(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"CONNZ" => Self::Connz,
            b"SUBSZ" => Self::Subsz,
            b"LEAFZ" => Self::Leafz,
            b"JSZ" => Self::Jsz,
            b"INFO" => Self::Info,
            b"STATZ" => Self::Statz,
            b"CONNS" => Self::Conns,
            _ => return None,
        })
    }
}

/// A request to the server in the system account.
pub(crate) struct Question {
    pub(crate) about: Subject,
    /// Name of the account that the request is about; empty if it is not about one.
    pub(crate) account: String,
    /// Payload of the request: a JSON object, or nothing.
    pub(crate) options: Vec<u8>,
    pub(crate) reply: Vec<u8>,
    /// Index of the core that received the request.
    pub(crate) core: usize,
}

/// Event from a loop to the answering thread.
pub(crate) enum SystemEvent {
    Asked(Question),
    /// The system account has a new subscriber, which may want STATSZ.
    Subscribed,
}

/// Parses the subject of a request to the server with this id. Returns what the request is about, and the
/// name of the account in the subject.
pub(super) fn question_of<'a>(subject: &'a [u8], server_id: &str) -> Option<(Subject, &'a [u8])> {
    let rest = subject.strip_prefix(b"$SYS.REQ.")?;
    let mut tokens = rest.split(|byte| *byte == b'.');
    let (kind, whose, page) = (tokens.next()?, tokens.next()?, tokens.next());
    if tokens.next().is_some() {
        return None;
    }
    match (kind, whose, page) {
        (b"SERVER", b"PING", None) => Some((Subject::Server(Page::Statsz), b"")),
        (b"SERVER", whose, Some(page)) if whose == b"PING" || whose == server_id.as_bytes() => {
            Some((Subject::Server(Page::of_server(page)?), b""))
        }
        (b"ACCOUNT", b"PING", Some(b"STATZ")) => Some((Subject::Accounts, b"")),
        (b"ACCOUNT", b"PING", _) => None,
        (b"ACCOUNT", name, Some(page)) => Some((Subject::Account(Page::of_account(page)?), name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_that_ask_the_server() {
        let asked = |subject: &str| {
            question_of(subject.as_bytes(), "NID")
                .map(|(about, account)| (about, String::from_utf8_lossy(account).into_owned()))
        };
        for (subject, about, account) in [
            ("$SYS.REQ.SERVER.PING", Subject::Server(Page::Statsz), ""),
            ("$SYS.REQ.SERVER.PING.VARZ", Subject::Server(Page::Varz), ""),
            ("$SYS.REQ.SERVER.NID.CONNZ", Subject::Server(Page::Connz), ""),
            ("$SYS.REQ.SERVER.NID.KICK", Subject::Server(Page::NotDone), ""),
            ("$SYS.REQ.ACCOUNT.$G.INFO", Subject::Account(Page::Info), "$G"),
            ("$SYS.REQ.ACCOUNT.PING.STATZ", Subject::Accounts, ""),
        ] {
            assert_eq!(asked(subject), Some((about, account.to_owned())), "{subject}");
        }
        for subject in [
            "$SYS.REQ.SERVER.NOTME.VARZ",
            "$SYS.REQ.SERVER.PING.NOSUCH",
            "$SYS.REQ.SERVER.PING.VARZ.X",
            "$SYS.REQ.ACCOUNT.PING.CONNZ",
            "$SYS.REQ.ACCOUNT.A",
            "$SYS.REQ",
            "a.b",
        ] {
            assert_eq!(asked(subject), None, "{subject}");
        }
    }
}
