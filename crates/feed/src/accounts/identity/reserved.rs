//! Subjects reserved for the program: only the program itself publishes on them.

use std::sync::Arc;

use super::{
    AccountId, covers,
    permissions::{Entry, Permissions, SharedPermissions},
};

/// Reserved subjects of the global account. Other accounts have separate subject spaces and no reserved
/// subjects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReservedSubjects {
    /// Subjects on which no client may publish, whatever its permissions say.
    pub publish: Vec<Entry>,
    /// Subjects to which a user may subscribe only if its permissions name them: the first token of an
    /// allowed pattern must equal the entry's first token. (`>` and other wildcards do not count, because
    /// their author may not have known about these subjects.)
    pub subscribe: Vec<Entry>,
}

impl ReservedSubjects {
    /// Returns whether messages on a subject of an account are withheld from hubs. Reserved subjects stay
    /// within this program: its own clients may be allowed to see them, but a hub has clients elsewhere.
    pub(crate) fn keeps_from_hub(&self, account: u16, subject: &[u8]) -> bool {
        let all = [&self.publish, &self.subscribe];
        account == AccountId::GLOBAL.0 && all.into_iter().any(|entries| names(entries, subject))
    }

    /// Returns whether only the program publishes on a subject of an account. A hub may not publish there,
    /// and a client may not name the subject as its reply subject.
    pub(crate) fn is_of_program(&self, account: u16, subject: &[u8]) -> bool {
        account == AccountId::GLOBAL.0 && names(&self.publish, subject)
    }
}

fn names(entries: &[Entry], subject: &[u8]) -> bool {
    entries.iter().any(|entry| covers(entry.subject.as_bytes(), subject))
}

/// Denies the reserved subjects to an identity of the global account.
pub(super) fn deny(shared: &mut SharedPermissions, reserved: &ReservedSubjects) {
    let mut permissions = shared.as_deref().cloned().unwrap_or_default();
    let missing = |entry: &&Entry, denied: &[Entry]| !denied.contains(entry);
    let publish: Vec<Entry> =
        reserved.publish.iter().filter(|entry| missing(entry, &permissions.publish.deny)).cloned().collect();
    permissions.publish.deny.extend(publish);
    let subscribe: Vec<Entry> = reserved
        .subscribe
        .iter()
        .filter(|entry| !is_named(&permissions, entry) && missing(entry, &permissions.subscribe.deny))
        .cloned()
        .collect();
    permissions.subscribe.deny.extend(subscribe);
    *shared = Some(Arc::new(permissions));
}

fn is_named(permissions: &Permissions, entry: &Entry) -> bool {
    let first = |entry: &Entry| entry.subject.split('.').next().map(str::to_owned);
    permissions.subscribe.allow.iter().flatten().any(|allowed| first(allowed) == first(entry))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Authorization, Check, Credentials, Identities, Identity, Secret, SubscribeVerdict, User,
            permissions::{Responses, Rules},
        },
        *,
    };

    fn mail() -> ReservedSubjects {
        ReservedSubjects { publish: vec![Entry::of("mail.>")], subscribe: vec![Entry::of("mail.>")] }
    }

    fn identity(authorization: &Authorization, user: &str) -> Identity {
        let identities = Identities::build(authorization, None).expect("it is sound");
        let credentials = match user {
            "" => Credentials::default(),
            "token" => Credentials { auth_token: Some("t"), ..Credentials::default() },
            user => Credentials { user: Some(user), pass: Some("p"), ..Credentials::default() },
        };
        match identities.check(&credentials, b"") {
            Check::Done(Ok(identity)) => identity,
            other => panic!("{user}: {other:?}"),
        }
    }

    fn user(name: &str, permissions: Option<Permissions>) -> User {
        User { user: Some(name.to_owned()), password: Some(Secret::new("p")), permissions, ..User::default() }
    }

    fn subscribing(allow: &str) -> Option<Permissions> {
        let subscribe = Rules { allow: Some(vec![Entry::of(allow)]), ..Rules::default() };
        Some(Permissions { subscribe, ..Permissions::default() })
    }

    #[test]
    fn nobody_publishes_what_the_program_alone_says() {
        let open = Authorization { reserved: mail(), ..Authorization::default() };
        let token = Authorization { token: Some(Secret::new("t")), ..open.clone() };
        let answering = Permissions { responses: Some(Responses::default()), ..Permissions::default() };
        let all = Permissions {
            publish: Rules { allow: Some(vec![Entry::of(">"), Entry::of("mail.>")]), ..Rules::default() },
            ..Permissions::default()
        };
        let users = vec![user("plain", None), user("all", Some(all)), user("answers", Some(answering))];
        let users = Authorization { users, ..open.clone() };
        for (authorization, name) in
            [(&open, ""), (&token, "token"), (&users, "plain"), (&users, "all"), (&users, "answers")]
        {
            let permissions = identity(authorization, name).permissions.expect("something is denied");
            assert!(!permissions.may_publish(b"mail.arrived.example.org.ann"), "{name}");
            assert_eq!(permissions.may_publish(b"news.a"), name != "answers", "{name}");
        }
    }

    #[test]
    fn who_may_hear_it_is_named() {
        let users = vec![
            user("plain", None),
            user("all", subscribing(">")),
            user("any", subscribing("*.>")),
            user("reader", subscribing("mail.>")),
            user("one", subscribing("mail.arrived.example.org.>")),
        ];
        let authorization = Authorization { users, reserved: mail(), ..Authorization::default() };
        for (name, mail, everything) in [
            ("plain", SubscribeVerdict::Denied, SubscribeVerdict::Filtered),
            ("all", SubscribeVerdict::Denied, SubscribeVerdict::Filtered),
            ("any", SubscribeVerdict::Denied, SubscribeVerdict::Denied),
            ("reader", SubscribeVerdict::Whole, SubscribeVerdict::Denied),
            ("one", SubscribeVerdict::Denied, SubscribeVerdict::Denied),
        ] {
            let permissions = identity(&authorization, name).permissions.expect("something is denied");
            assert_eq!(permissions.subscribe_verdict(b"mail.>", None), mail, "{name}");
            assert_eq!(permissions.subscribe_verdict(b">", None), everything, "{name}");
        }
        let one = identity(&authorization, "one").permissions.expect("a list");
        assert_eq!(one.subscribe_verdict(b"mail.arrived.example.org.ann", None), SubscribeVerdict::Whole);
    }
}
