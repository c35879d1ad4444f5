//! The index beside a list that is walked for every question.

use proptest::prelude::*;

use super::*;

/// A segment has the locations of ten mails.
const RULES: Rules =
    Rules { age_ms: 5_000, per_inbox_max: 3, segments_at: 0, segment_bytes: 16 * 1000, seed: 7 };

impl Index {
    /// What must hold between any two calls.
    fn invariants(&self) {
        let mut seen = 0;
        for (which, chain) in std::iter::once((BY_ALL, self.all)) {
            let (mut slot, mut newer) = (chain.newest, NONE);
            while slot != NONE {
                let entry = &self.entries[slot];
                assert_eq!(entry.links[which].newer, newer, "a chain runs both ways");
                assert_eq!(self.find(MailId(entry.id)), Some(slot), "an entry is under its name");
                let inbox = &self.inboxes[entry.inbox];
                let domain = &self.domains[inbox.domain];
                assert_eq!(self.find_inbox(&inbox.local, &domain.name), Some(entry.inbox));
                if newer != NONE {
                    assert!(self.entries[newer].arrived_ms >= entry.arrived_ms, "newest first");
                }
                (newer, slot) = (slot, entry.links[which].older);
                seen += 1;
            }
            assert_eq!((newer, seen), (chain.oldest, chain.count));
        }
        assert_eq!(seen as usize, self.len());
        let hurried = self
            .hurried
            .keys()
            .filter(|id| self.find(MailId(**id)).is_some_and(|slot| self.entries[slot].is_hurried));
        assert_eq!(hurried.count(), self.hurried.len(), "who is hurried is here and says so");
    }

    fn listed(&self, scope: &Scope, now_ms: u64) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut walk = self.walk(scope);
        loop {
            let stepped = self.step(&mut walk, 2, now_ms, |place| {
                ids.push(place.id.0);
                Enough::No
            });
            match stepped {
                Stepped::More => {}
                Stepped::End => return ids,
                Stepped::Lost => panic!("nothing was taken out"),
            }
        }
    }
}

fn inbox(number: u8) -> Inbox {
    Inbox { local: format!("a{}", number / 2).into(), domain: format!("d{}", number % 2).into() }
}

fn new(id: u64, arrived_ms: u64) -> NewEntry {
    NewEntry {
        id: MailId(id),
        location: id * 100,
        record_bytes: 50,
        mail_bytes: 10,
        arrived_ms,
        shared: false,
    }
}

fn scopes() -> Vec<Scope> {
    let mut scopes = vec![Scope::All];
    for number in 0..8 {
        scopes.push(Scope::Inbox(inbox(number)));
    }
    for (local, domain) in [("", "d0"), ("", "d1"), ("a", "d1"), ("a1", "d0"), ("x", "d0"), ("", "d9")] {
        scopes.push(Scope::Prefix { local: local.into(), domain: domain.into() });
    }
    scopes
}

#[derive(Debug, Clone)]
enum Step {
    Insert { inbox: u8, late_ms: u64 },
    Remove(u64),
    Hurry { id: u64, ms: u64 },
    Later(u64),
    DropSegment(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u8..8, 0u64..3).prop_map(|(inbox, late_ms)| Step::Insert { inbox, late_ms }),
        2 => (1u64..60).prop_map(Step::Remove),
        2 => (1u64..60, 0u64..6_000).prop_map(|(id, ms)| Step::Hurry { id, ms }),
        1 => (1u64..2_000).prop_map(Step::Later),
        1 => (0u32..6).prop_map(Step::DropSegment),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn it_agrees_with_a_plain_list(steps in steps()) {
        let mut index = Index::new(RULES);
        // Oldest first: (arrived, id, inbox, expires).
        let mut twin: Vec<(u64, u64, u8, u64)> = Vec::new();
        let mut markers: std::collections::HashMap<u64, u64> = std::collections::HashMap::new();
        let (mut now_ms, mut next_id) = (1_000_000u64, 1);
        for step in steps {
            match step {
                Step::Insert { inbox: number, late_ms } => {
                    let arrived_ms = now_ms - late_ms;
                    let gone = index.insert(new(next_id, arrived_ms), &inbox(number));
                    let gone = gone.and_then(|id| index.remove(id, Some(inbox(number))));
                    twin.push((arrived_ms, next_id, number, arrived_ms + RULES.age_ms));
                    twin.sort_unstable();
                    let of_inbox: Vec<_> = twin.iter().filter(|mail| mail.2 == number).copied().collect();
                    let over = of_inbox.len() > RULES.per_inbox_max as usize;
                    prop_assert_eq!(gone.map(|gone| gone.place.id.0), over.then(|| of_inbox[0].1));
                    if over {
                        twin.retain(|mail| mail.1 != of_inbox[0].1);
                    }
                    next_id += 1;
                }
                Step::Remove(id) => {
                    let gone = index.remove(MailId(id), None);
                    prop_assert_eq!(gone.is_some(), twin.iter().any(|mail| mail.1 == id));
                    twin.retain(|mail| mail.1 != id);
                }
                Step::Hurry { id, ms } => {
                    let at_ms = now_ms + ms;
                    let known = twin.iter_mut().find(|mail| mail.1 == id && mail.3 > now_ms);
                    match (index.may_hurry(MailId(id), at_ms, now_ms), known) {
                        (Hurry::Gone, None) | (Hurry::TooOften, Some(_)) => {}
                        (Hurry::NoNeed, Some(mail)) => prop_assert!(mail.3 <= at_ms),
                        (Hurry::Yes, Some(mail)) => {
                            prop_assert!(mail.3 > at_ms);
                            mail.3 = at_ms;
                            let marker = markers.len() as u64 + 1;
                            prop_assert_eq!(index.hurry(MailId(id), at_ms, marker), markers.insert(id, marker));
                        }
                        (may, mail) => prop_assert!(false, "{:?} of {:?}", may, mail),
                    }
                }
                Step::Later(ms) => {
                    now_ms += ms;
                    let mut expired = Vec::new();
                    while let Some(gone) = index.expire_one(now_ms) {
                        prop_assert_eq!(gone.hurried_by, markers.get(&gone.place.id.0).copied());
                        expired.push(gone.place.id.0);
                    }
                    // Those that are due in the second that runs may stay until it is over.
                    let due = |mail: &(u64, u64, u8, u64)| mail.3 <= now_ms;
                    let over = |mail: &(u64, u64, u8, u64)| mail.3.div_ceil(1000) * 1000 <= now_ms;
                    for id in &expired {
                        prop_assert!(twin.iter().any(|mail| mail.1 == *id && due(mail)));
                    }
                    twin.retain(|mail| !expired.contains(&mail.1));
                    prop_assert!(!twin.iter().any(over));
                }
                Step::DropSegment(segment) => {
                    let gone: Vec<u64> =
                        index.drain_segment(segment, 4).iter().map(|gone| gone.place.id.0).collect();
                    let in_segment = |mail: &&(u64, u64, u8, u64)| mail.1 / 10 == u64::from(segment);
                    let oldest: Vec<u64> = twin.iter().filter(in_segment).take(4).map(|mail| mail.1).collect();
                    prop_assert_eq!(&gone, &oldest);
                    twin.retain(|mail| !oldest.contains(&mail.1));
                }
            }
            index.invariants();
            let visible: Vec<_> = twin.iter().rev().filter(|mail| mail.3 > now_ms).collect();
            for scope in scopes() {
                let expected: Vec<u64> =
                    visible.iter().filter(|mail| scope.contains(&inbox(mail.2))).map(|mail| mail.1).collect();
                prop_assert_eq!(index.listed(&scope, now_ms), expected, "{:?}", scope);
                let all = twin.iter().filter(|mail| scope.contains(&inbox(mail.2))).count() as u64;
                prop_assert!(index.count(&scope).is_none_or(|count| count == all));
            }
            prop_assert_eq!(index.mail_bytes(), twin.len() as u64 * 10);
            let inboxes: std::collections::HashSet<u8> = twin.iter().map(|mail| mail.2).collect();
            prop_assert_eq!(index.inboxes(), inboxes.len());
        }
    }
}

/// 100 bytes a mail (the figure), names of inboxes apart.
#[test]
fn a_mail_costs_no_more_than_a_hundred_bytes() {
    let mut index = Index::new(Rules { age_ms: 86_400_000, per_inbox_max: 500, ..RULES });
    let empty = index.bytes();
    let mails = 100_000;
    for id in 1..=mails {
        let inbox = Inbox { local: format!("inbox{}", id % 1000).into(), domain: "d0".into() };
        index.insert(new(id, 1_000_000 + id), &inbox);
    }
    let each = (index.bytes() - empty) / mails as usize;
    assert!(each <= 100, "{each} bytes a mail");
}

/// Whoever asks over and over makes neither the queue nor the log grow without end.
#[test]
fn a_mail_is_hurried_a_few_times_at_most() {
    let mut index = Index::new(Rules { age_ms: 86_400_000, per_inbox_max: 500, ..RULES });
    index.insert(new(1, 1_000_000), &inbox(0));
    let mut hurried = 0;
    for ms in (0..1000).rev() {
        match index.may_hurry(MailId(1), 2_000_000 + ms, 1_000_000) {
            Hurry::Yes => _ = index.hurry(MailId(1), 2_000_000 + ms, 1),
            Hurry::TooOften => break,
            other => panic!("{other:?}"),
        }
        hurried += 1;
    }
    assert_eq!(hurried, 8);
    assert_eq!(index.may_hurry(MailId(1), 86_000_000, 1_000_000), Hurry::NoNeed);
    assert_eq!(index.may_hurry(MailId(2), 2_000_000, 1_000_000), Hurry::Gone);
}

/// A million mails that came and went leave no tables of theirs behind.
#[test]
fn an_index_that_is_empty_again_is_small_again() {
    let mut index = Index::new(Rules { age_ms: 86_400_000, per_inbox_max: 500, ..RULES });
    let mails = 100_000;
    for id in 1..=mails {
        let inbox = Inbox { local: format!("inbox{}", id % 1000).into(), domain: "d0".into() };
        index.insert(new(id, 1_000_000 + id), &inbox);
    }
    let mut walk = index.walk(&Scope::All);
    for id in 1..=mails {
        assert!(index.remove(MailId(id), None).is_some());
    }
    assert!(index.bytes() <= 1 << 20, "{} bytes", index.bytes());
    assert_eq!(
        index.step(&mut walk, 1, 1_000_000, |_| Enough::No),
        Stepped::Lost,
        "a walk that was under way"
    );
    index.insert(new(mails + 1, 2_000_000), &inbox(0));
    assert_eq!(index.listed(&Scope::All, 2_000_000), [mails + 1]);
    index.invariants();
}
