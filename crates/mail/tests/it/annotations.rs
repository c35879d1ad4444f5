//! Read flags and tags: stored beside their mail, restored after a kill, and deleted with the mail.

use std::{collections::BTreeMap, sync::Arc};

use crate::common::{HERE, ask, config, first_processor, inbox};
use engine::log::{Disk, format::SEGMENTS_AT, simulated::SimulatedDisk};
use mail::{
    Config, Mailstore, Server,
    annotations::{Note, RecoveredNote},
    mailboxes::{MailId, Mailboxes, Scope},
};

fn note(read: bool, tags: &[&str]) -> Note {
    Note { read, tags: tags.iter().map(|tag| (*tag).to_owned()).collect() }
}

fn noted(store: &Mailstore) -> BTreeMap<MailId, RecoveredNote> {
    store.take_recovered_notes().into_iter().map(|noted| (noted.id, noted)).collect()
}

#[test]
fn read_flags_and_tags_survive_a_kill() {
    let with_cores = |cores: usize| Config { cores: vec![first_processor(); cores], ..config() };
    let mut disk = SimulatedDisk::new(SEGMENTS_AT + config().store_bytes);
    let mut header = None;
    let mut begin = |disk: &SimulatedDisk, cores| {
        let on = Arc::new(disk.clone()) as Arc<dyn Disk>;
        let server = Server::start_on(with_cores(cores), on, header).unwrap();
        header = Some(server.store_header());
        server
    };
    let server = begin(&disk, 2);
    let store = server.mailstore();
    assert_eq!(store.take_recovered_notes(), []);
    let to = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let deliver =
        |names: &[&str]| ask(store.deliver(HERE, "s@x.test", &to(names), b"Subject: x\r\n\r\n")).unwrap();
    let (alone, shared, plain) =
        (deliver(&["ann"])[0], deliver(&["ben", "cid", "dan"]), deliver(&["eve"])[0]);
    while ask(store.count(&Scope::Prefix { local: "".into(), domain: "inbox.test".into() })) != Ok(5) {
        std::thread::yield_now();
    }
    // The last note of a mail counts; a default note is the same as none.
    ask(store.write_note(vec![(alone, note(true, &["blue"])), (plain, note(true, &[]))])).unwrap();
    ask(store.write_note(vec![(alone, note(true, &["grüße", "late"])), (plain, Note::default())])).unwrap();
    ask(store.write_note(vec![(shared[0], note(true, &[])), (shared[1], note(false, &["second"]))])).unwrap();
    // Over all inboxes the mail keeps its id in the first inbox, and the note under that id.
    assert_eq!(ask(store.delete(&inbox("ben"), shared[0])), Ok(true));
    for cores in [1, 2, 1] {
        disk = disk.after_kill();
        let server = begin(&disk, cores);
        let store = server.mailstore();
        let found = noted(&store);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), {
            let mut ids = vec![alone, shared[0], shared[1]];
            ids.sort();
            ids
        });
        assert_eq!(found[&alone].note, note(true, &["grüße", "late"]));
        assert_eq!((&found[&shared[0]].note, found[&shared[0]].is_let_go), (&note(true, &[]), true));
        let second = &found[&shared[1]];
        assert_eq!(
            (&second.note, second.is_letter, &*second.inbox.local),
            (&note(false, &["second"]), false, "cid")
        );
        assert_eq!(store.take_recovered_notes(), [], "told once");
    }
    let server = begin(&disk, 2);
    let store = server.mailstore();
    assert_eq!(ask(store.delete(&Scope::All, shared[0])), Ok(true));
    assert_eq!(ask(store.delete(&inbox("ann"), alone)), Ok(true));
    ask(store.write_note(vec![(alone, note(true, &[]))])).unwrap();
    let disk = disk.after_kill();
    assert_eq!(begin(&disk, 2).mailstore().take_recovered_notes(), []);
}
