//! A store that is started again and again: each run begins new segments, and mails in the old ones stay.

use crate::common::{HERE, ask, config, drain, first_processor};
use mail::{
    Config, Server,
    config::Store,
    mailboxes::{Mailboxes, Scope},
};

/// Eight segments; each run begins two of them, and as many are kept free.
const STORE_BYTES: u64 = 128 << 20;
const LIVES: usize = 12;

#[test]
fn a_nearly_empty_store_survives_repeated_restarts() {
    for cores in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            store: Store::File(directory.path().join("mail.store")),
            store_bytes: STORE_BYTES,
            cores: vec![first_processor(); cores],
            ..config()
        };
        let mut kept = Vec::new();
        for life in 0..LIVES {
            let server = Server::start(config.clone()).unwrap();
            let store = server.mailstore();
            // Mails by inbox: over all inboxes, a mail to two recipients is one.
            let each = Scope::Prefix { local: "".into(), domain: "one.test".into() };
            let listed = ask(store.list(&each, 0, 1000)).unwrap();
            let mut found: Vec<String> =
                listed.iter().map(|mail| String::from_utf8_lossy(&mail.subject).into_owned()).collect();
            found.sort();
            assert_eq!(found, kept, "life {life} on {cores} cores");
            for number in 0..3 {
                let subject = format!("{life:02} {number}");
                let raw = format!("Subject: {subject}\r\n\r\n{}\r\n", "x".repeat(1000));
                // To one inbox, and to two inboxes whose mail may be one record.
                let to = [format!("a{number}@one.test"), format!("b{number}@one.test")];
                ask(store.deliver(HERE, "s@client.test", &to[..1 + number % 2], raw.as_bytes())).unwrap();
                kept.extend(vec![subject; 1 + number % 2]);
            }
            drain(server);
        }
    }
}
