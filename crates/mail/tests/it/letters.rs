//! M15: a mail to many recipients is one mail over all inboxes, and a mail of its own in each inbox: also
//! after a kill, and with another number of cores.

use std::sync::Arc;

use crate::common::{HERE, ask, config, drain, first_processor, greeted, inbox, list};
use engine::{
    cores::clock,
    log::{Disk, format::SEGMENTS_AT, simulated::SimulatedDisk},
};
use mail::{
    Config, Mailstore, Server,
    mailboxes::{Event, MailId, Mailboxes, RemainingName, Scope},
};

/// Longest wait, after which a test fails.
const PATIENCE_MS: u64 = 30_000;
const NAMES: [&str; 6] = ["ann", "ben", "cid", "dan", "eve", "fay"];

#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let begun_ms = clock::monotonic_ms();
    while !is_so() {
        assert!(clock::monotonic_ms() - begun_ms < PATIENCE_MS, "it never became so");
        std::thread::yield_now();
    }
}

fn with_cores(cores: usize) -> Config {
    Config { cores: vec![first_processor(); cores], ..config() }
}

/// Inboxes that have the mail.
fn holders(store: &Mailstore) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| list(store, &inbox(name)).len() == 1).collect()
}

fn over_all(store: &Mailstore) -> Vec<(MailId, u16)> {
    list(store, &Scope::All).iter().map(|mail| (mail.id, mail.inboxes)).collect()
}

#[test]
fn m15_deletes_of_some_inboxes_survive_a_kill() {
    let disk = SimulatedDisk::new(SEGMENTS_AT + config().store_bytes);
    let server = Server::start_on(with_cores(2), Arc::new(disk.clone()) as Arc<dyn Disk>, None).unwrap();
    let header = server.store_header();
    let store = server.mailstore();
    let to: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let ids = ask(store.deliver(HERE, "s@client.test", &to, b"Subject: to all\r\n\r\nx")).unwrap();
    until(|| holders(&store).len() == NAMES.len());
    assert_eq!(over_all(&store), [(ids[0], 6)]);
    for at in [0, 3] {
        assert_eq!(ask(store.delete(&inbox(NAMES[at]), ids[at])), Ok(true));
    }
    let mut disk = disk.after_kill();
    drop(server);
    for (life, cores) in [1, 3, 2].into_iter().enumerate() {
        let on = Arc::new(disk.clone()) as Arc<dyn Disk>;
        let server = Server::start_on(with_cores(cores), on, Some(header)).unwrap();
        let store = server.mailstore();
        assert_eq!(holders(&store), ["ben", "cid", "eve", "fay"][life..], "life {life}");
        assert_eq!(over_all(&store), [(ids[0], 6)], "its first inbox has let it go");
        let (mail, ()) = ask(store.mail_into(&Scope::All, ids[0], ())).unwrap().unwrap();
        assert_eq!(mail.recipients.len(), NAMES.len());
        assert!(ask(store.mail_into(&inbox("ann"), ids[0], ())).unwrap().is_none());
        // In each run one inbox more deletes the mail.
        let next = [1, 2, 4][life];
        assert_eq!(ask(store.delete(&inbox(NAMES[next]), ids[next])), Ok(true));
        disk = disk.after_kill();
        drop(server);
    }
    let on = Arc::new(disk.clone()) as Arc<dyn Disk>;
    let server = Server::start_on(with_cores(2), on, Some(header)).unwrap();
    let store = server.mailstore();
    let mut events = store.events();
    assert_eq!((holders(&store), over_all(&store)), (vec!["fay"], vec![(ids[0], 6)]));
    assert_eq!(ask(store.delete(&Scope::All, ids[0])), Ok(true));
    until(|| over_all(&store).is_empty() && ask(store.count(&Scope::All)) == Ok(0));
    // The events come from two cores, in any order.
    let (mut last, mut over) = (None, None);
    for _ in 0..2 {
        match events.blocking_recv().unwrap() {
            Event::Deleted { id, remains: RemainingName::OtherName, .. } => last = Some(id),
            Event::Over { letter } => over = Some(letter),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((last, over), (Some(ids[5]), Some(ids[0])));
    let disk = disk.after_kill();
    drop(server);
    let server = Server::start_on(with_cores(2), Arc::new(disk) as Arc<dyn Disk>, Some(header)).unwrap();
    assert_eq!((server.recovered_mails(), over_all(&server.mailstore())), (0, Vec::new()));
}

#[test]
fn m15_recipients_over_a_thousand_get_452() {
    let server = Server::start(with_cores(2)).unwrap();
    let store = server.mailstore();
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<s@t.test>", "250");
    for number in 0..1_060 {
        let expected = if number < 1_000 { "250 2.1.5" } else { "452 4.5.3" };
        client.expect(&format!("RCPT TO:<n{number}@x{}.test>", number % 7), expected);
    }
    client.expect("DATA", "354");
    client.expect("Subject: to a thousand\r\n\r\nx\r\n.", "250 2.0.0");
    assert!(
        client.mail("after@x.test", "Subject: after\r\n\r\nx").starts_with("250 2.0.0"),
        "the session goes on"
    );
    until(|| list(&store, &Scope::Prefix { local: "".into(), domain: "x3.test".into() }).len() == 143);
    until(|| over_all(&store).len() == 2);
    let listed = list(&store, &Scope::All);
    assert_eq!((listed[0].inboxes, listed[1].inboxes), (1, 1000));
    let mail = ask(store.mail(listed[1].id)).unwrap().unwrap();
    assert_eq!(mail.recipients.len(), 1000);
    assert_eq!(ask(store.delete(&inbox("n10@x3.test"), list(&store, &inbox("n10@x3.test"))[0].id)), Ok(true));
    assert_eq!(over_all(&store).len(), 2);
    assert_eq!(ask(store.delete(&Scope::All, listed[1].id)), Ok(true));
    until(|| over_all(&store).len() == 1);
    assert_eq!(list(&store, &inbox("n11@x4.test")), []);
    drain(server);
}
