//! The real store beside its slow twin: both get the same deliveries, listings and deletions, and must agree.

use std::{collections::HashMap, sync::Arc};

use crate::common::{HERE, ask, config, drain, first_processor};
use engine::cores::clock;
use mail::{
    Config, Mailstore, Server,
    config::{Retention, Store},
    mailboxes::{Inbox, Mail, MailId, Mailboxes, Scope, Summary},
    twin::{self, Twin},
};
use proptest::prelude::*;

/// Longest wait for an event that is immediate on a healthy machine.
const PATIENCE_MS: u64 = 2_000;

#[derive(Debug, Clone)]
enum Step {
    Deliver(Vec<u8>, u8),
    /// Deletes a mail over all inboxes (true), or in one inbox.
    Delete(prop::sample::Index, bool),
    Hurry(prop::sample::Index, u64),
    DeleteAll(u8),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (prop::collection::vec(0u8..8, 1..4), any::<u8>()).prop_map(|(to, text)| Step::Deliver(to, text)),
        3 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(index, over_all)| Step::Delete(index, over_all)),
        2 => (any::<prop::sample::Index>(), 1u64..12).prop_map(|(index, hours)| Step::Hurry(index, hours)),
        1 => (0u8..12).prop_map(Step::DeleteAll),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

fn address(number: u8) -> String {
    format!("n{}@d{}.test", number / 2, number % 2)
}

fn scope(number: u8) -> Scope {
    let domain = || format!("d{}.test", number % 2).into();
    match number {
        0..8 => Scope::Inbox(Inbox::of(&address(number), "x.test").unwrap()),
        8 | 9 => Scope::Prefix { local: "".into(), domain: domain() },
        10 => Scope::Prefix { local: "n1".into(), domain: domain() },
        _ => Scope::All,
    }
}

/// Number of scopes that are compared.
const SCOPES: u8 = 12;

/// Waits until all cores have exchanged their updates.
fn settle(store: &Mailstore, twin: &Twin) -> Result<(), TestCaseError> {
    let begun_ms = clock::monotonic_ms();
    for scope in (0..SCOPES).map(scope) {
        loop {
            let (real, slow) = (ask(store.count(&scope)).unwrap(), ask(twin.count(&scope)).unwrap());
            if real == slow {
                break;
            }
            prop_assert!(
                clock::monotonic_ms() - begun_ms < PATIENCE_MS,
                "{:?}: {} mails instead of {}",
                scope,
                real,
                slow
            );
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Mails of all inboxes, one for each inbox.
fn copies(twin: &Twin) -> Vec<Arc<Summary>> {
    [8, 9].into_iter().flat_map(|number| ask(twin.list(&scope(number), 0, 1000)).unwrap()).collect()
}

const HOUR_MS: u64 = 3_600_000;

/// Summaries without their ids, which differ between the two stores; of the expiry times only those that were
/// brought forward are compared.
fn shown(summaries: &[Arc<Summary>], of_age_ms: u64) -> Vec<(String, String, Vec<u8>, u64)> {
    let of = |mail: &Arc<Summary>| {
        let expires_ms = mail.expires_ms.min(of_age_ms);
        (mail.inbox.to_string(), mail.envelope_from.to_string(), mail.subject.to_vec(), expires_ms)
    };
    summaries.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(24, 400)))]

    #[test]
    fn the_store_and_its_twin_say_the_same(steps in steps(), cores in 1usize..3) {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            store: Store::File(directory.path().join("mail.store")),
            cores: vec![first_processor(); cores],
            retention: Retention { per_inbox_max: 4, ..Retention::default() },
            ..config()
        };
        let mut server = Some(Server::start(config.clone()).unwrap());
        let twin = Twin::new(twin::Retention { per_inbox_max: 4, ..twin::Retention::default() }, "inbox.test");
        let begun_ms = clock::unix_ms();
        let shown = |summaries: &[Arc<Summary>]| shown(summaries, begun_ms + 12 * HOUR_MS);
        let mut real_names: HashMap<MailId, MailId> = HashMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            let store = server.as_ref().unwrap().mailstore();
            match step {
                Step::Deliver(to, text) => {
                    let to: Vec<String> = to.into_iter().map(address).collect();
                    // Only a few bodies, so that some are equal; the longer ones are shared.
                    let body = format!("{}\r\n", text % 4).repeat(usize::from(text) * 3);
                    let raw = format!("From: {text}@x\r\nSubject: {number}\r\n\r\n{body}");
                    let real = ask(store.deliver(HERE, "a@b.test", &to, raw.as_bytes())).unwrap();
                    let slow = ask(twin.deliver(HERE, "a@b.test", &to, raw.as_bytes())).unwrap();
                    prop_assert_eq!(real.len(), slow.len());
                    real_names.extend(slow.into_iter().zip(real));
                    settle(&store, &twin)?;
                    // Two deliveries on two cores within a millisecond have no order, and a full inbox drops
                    // its oldest mail: so the next delivery waits.
                    let now_ms = clock::unix_ms();
                    while clock::unix_ms() < now_ms + 2 {
                        std::thread::yield_now();
                    }
                }
                Step::Delete(index, over_all) => {
                    let listed = if over_all { ask(twin.list(&Scope::All, 0, 1000)).unwrap() } else { copies(&twin) };
                    if !listed.is_empty() {
                        let mail = &listed[index.index(listed.len())];
                        let scope = if over_all { Scope::All } else { Scope::Inbox(mail.inbox.clone()) };
                        let real = real_names[&mail.id];
                        prop_assert_eq!(ask(store.delete(&scope, real)), ask(twin.delete(&scope, mail.id)));
                        prop_assert!(ask(store.mail_into(&scope, real, ())).unwrap().is_none());
                        settle(&store, &twin)?;
                    }
                }
                Step::Hurry(index, hours) => {
                    let listed = copies(&twin);
                    if !listed.is_empty() {
                        let id = listed[index.index(listed.len())].id;
                        let at_ms = begun_ms + hours * HOUR_MS;
                        prop_assert_eq!(ask(store.expire_early(&[real_names[&id]], at_ms)), Ok(()));
                        prop_assert_eq!(ask(twin.expire_early(&[id], at_ms)), Ok(()));
                    }
                }
                Step::DeleteAll(number) => {
                    prop_assert_eq!(ask(store.delete_all(&scope(number))), ask(twin.delete_all(&scope(number))));
                    settle(&store, &twin)?;
                }
                Step::Restart => {
                    drain(server.take().unwrap());
                    server = Some(Server::start(config.clone()).unwrap());
                }
            }
            let store = server.as_ref().unwrap().mailstore();
            for number in 0..SCOPES {
                let scope = scope(number);
                let (real, slow) = (ask(store.list(&scope, 0, 1000)).unwrap(), ask(twin.list(&scope, 0, 1000)).unwrap());
                // Deliveries on two cores within a millisecond may be listed in another order.
                let (mut real, mut slow) = (shown(&real), shown(&slow));
                if cores > 1 {
                    real.sort();
                    slow.sort();
                }
                prop_assert_eq!(&real, &slow, "{:?}", scope);
                prop_assert_eq!(ask(store.count(&scope)), ask(twin.count(&scope)));
            }
            if cores == 1 {
                let (real, slow) = (ask(store.list(&Scope::All, 1, 2)).unwrap(), ask(twin.list(&Scope::All, 1, 2)).unwrap());
                prop_assert_eq!(shown(&real), shown(&slow));
            }
            for number in 0..SCOPES {
                let scope = scope(number);
                let listed = ask(twin.list(&scope, 0, 3)).unwrap();
                // One id that never existed is among them.
                let mut wanted: Vec<_> = listed.iter().map(|mail| (real_names[&mail.id], ())).collect();
                wanted.insert(listed.len() / 2, (MailId(u64::MAX), ()));
                let together = ask(store.mails_into(&scope, wanted.clone())).unwrap();
                for ((id, ()), read) in wanted.into_iter().zip(together) {
                    let alone = ask(store.mail_into(&scope, id, ())).unwrap();
                    let told = |(mail, ()): (Mail, ())| (mail.summary, mail.recipients, mail.raw);
                    prop_assert_eq!(read.map(told), alone.map(told));
                }
                for mail in listed {
                    let real = ask(store.mail_into(&scope, real_names[&mail.id], ())).unwrap();
                    let ((real, ()), (slow, ())) =
                        (real.expect("the twin has it"), ask(twin.mail_into(&scope, mail.id, ())).unwrap().unwrap());
                    prop_assert_eq!(&real.recipients, &slow.recipients);
                    prop_assert_eq!(real.summary.inboxes, slow.summary.inboxes);
                    prop_assert_eq!(Some(&real.summary.letter), real_names.get(&slow.summary.letter));
                    prop_assert!(real.raw.ends_with(&slow.raw));
                }
            }
        }
        drain(server.take().unwrap());
    }
}
