//! `delete=5m`: a mail with an earlier expiry also expires after a crash, and does not come back.

use std::sync::Arc;

use crate::common::{HERE, ask, config, inbox, list};
use engine::{
    cores::clock,
    log::{Disk, format::SEGMENTS_AT, simulated::SimulatedDisk},
};
use mail::{
    Mailstore, Server,
    mailboxes::{Mailboxes, Scope, Unavailable},
};

/// Longest wait, after which a test fails.
const PATIENCE_MS: u64 = 30_000;

fn until(store: &Mailstore, is_so: impl Fn(&Mailstore) -> bool) {
    let begun_ms = clock::monotonic_ms();
    while !is_so(store) {
        assert!(clock::monotonic_ms() - begun_ms < PATIENCE_MS, "it never became so");
        std::thread::yield_now();
    }
}

#[test]
fn an_early_expiry_survives_a_kill() {
    let config = config();
    let disk = SimulatedDisk::new(SEGMENTS_AT + config.store_bytes);
    let server = Server::start_on(config.clone(), Arc::new(disk.clone()) as Arc<dyn Disk>, None).unwrap();
    let header = server.store_header();
    let store = server.mailstore();
    let deliver = |to: &[&str]| {
        let to: Vec<String> = to.iter().map(|name| (*name).to_owned()).collect();
        ask(store.deliver(HERE, "s@client.test", &to, b"Subject: x\r\n\r\n")).unwrap()
    };
    // One mail of its own, and one whose record another inbox shares.
    let ids = [deliver(&["ann"]), deliver(&["ann", "bob"])].concat();
    until(&store, |store| list(store, &inbox("ann")).len() == 2 && list(store, &inbox("bob")).len() == 1);
    let soon_ms = clock::unix_ms() + 600_000;
    ask(store.expire_early(&ids[..2], soon_ms)).unwrap();
    let ends = |store: &Mailstore, name: &str| -> Vec<u64> {
        list(store, &inbox(name)).iter().map(|mail| mail.expires_ms).collect()
    };
    assert_eq!(ends(&store, "ann"), [soon_ms; 2]);
    assert!(ends(&store, "bob")[0] > soon_ms);
    let killed = disk.after_kill();
    drop(server);
    let server =
        Server::start_on(config.clone(), Arc::new(killed.clone()) as Arc<dyn Disk>, Some(header)).unwrap();
    let store = server.mailstore();
    assert_eq!(ends(&store, "ann"), [soon_ms; 2], "after a kill");
    assert!(ends(&store, "bob")[0] > soon_ms);
    // The mails expire at once, and stay gone.
    ask(store.expire_early(&ids[..2], clock::unix_ms())).unwrap();
    assert_eq!(list(&store, &inbox("ann")), []);
    until(&store, |store| ask(store.count(&inbox("ann"))).unwrap() == 0);
    // Records are written in order: once this later delete is on the disk, everything before it is too.
    assert_eq!(ask(store.delete(&Scope::All, ids[2])), Ok(true));
    let killed = killed.after_kill();
    drop(server);
    let server = Server::start_on(config, Arc::new(killed) as Arc<dyn Disk>, Some(header)).unwrap();
    assert_eq!(list(&server.mailstore(), &Scope::All), []);
    assert_eq!(server.recovered_mails(), 0, "what went before its age is not there any more");
}

#[test]
fn who_asks_over_and_over_is_refused() {
    let server = Server::start(config()).unwrap();
    let store = server.mailstore();
    let ids = ask(store.deliver(HERE, "", &["ann".to_owned()], b"Subject: x\r\n\r\n")).unwrap();
    let soon_ms = clock::unix_ms() + 600_000;
    let asked: Vec<_> = (0..20).map(|n| ask(store.expire_early(&ids, soon_ms - n * 1000))).collect();
    assert_eq!(asked.iter().filter(|answer| answer.is_ok()).count(), 8);
    assert!(matches!(asked[19], Err(Unavailable::TooOften(_))));
    assert_eq!(list(&store, &inbox("ann"))[0].expires_ms, soon_ms - 7000);
}
