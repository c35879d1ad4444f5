//! Property tests that compare the index with a plain list, which is walked for every query.

use proptest::prelude::*;

use super::*;

/// Rules of the tests; a segment holds ten mails.
const RULES: IndexRules = IndexRules {
    age_ms: 5_000,
    per_inbox_max: 3,
    bytes_max: usize::MAX,
    segments_at: 0,
    segment_bytes: 16 * 1000,
    seed: 7,
};

impl Index {
    /// Asserts the index's invariants.
    fn invariants(&self) {
        let mut seen = 0;
        let mut let_go = 0;
        for (which, chain) in [(BY_ALL, self.all), (BY_ALL, self.others)] {
            let (mut slot, mut newer) = (chain.newest, NONE);
            let before = seen;
            while slot != NONE {
                let entry = &self.entries[slot];
                assert_eq!(entry.links[which].newer, newer, "a chain runs both ways");
                assert_eq!(self.find(MailId(entry.id)), Some(slot), "an entry is under its name");
                assert!(
                    !entry.is_let_go || entry.role == Role::First,
                    "who stands for a mail among all is its first"
                );
                if entry.is_let_go {
                    let_go += 1;
                } else {
                    let inbox = &self.inboxes[entry.inbox];
                    let domain = &self.domains[inbox.domain];
                    assert_eq!(self.find_inbox(&inbox.local, &domain.name), Some(entry.inbox));
                }
                if newer != NONE {
                    assert!(self.entries[newer].arrived_ms >= entry.arrived_ms, "newest first");
                }
                (newer, slot) = (slot, entry.links[which].older);
                seen += 1;
            }
            assert_eq!((newer, seen - before), (chain.oldest, chain.count));
        }
        assert_eq!((seen as usize, let_go), (self.entries.len(), self.let_go));
        assert_eq!(
            self.letters.len(),
            self.others.count as usize,
            "those of other inboxes know the first one's name"
        );
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
                WalkControl::No
            });
            match stepped {
                StepOutcome::More => {}
                StepOutcome::End => return ids,
                StepOutcome::Lost => panic!("nothing was taken out"),
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
        letter: MailId(id),
        inboxes: 1,
        location: id * 100,
        record_bytes: 50,
        mail_bytes: 10,
        arrived_ms,
        parts: None,
    }
}

/// A mail delivered to one inbox, or to several.
fn of_several(id: u64, arrived_ms: u64, role: Role) -> NewEntry {
    let letter = if role == Role::Other { MailId(OTHER_LETTERS + id) } else { MailId(id) };
    let inboxes = if role == Role::Only { 1 } else { 2 };
    NewEntry { letter, inboxes, ..new(id, arrived_ms) }
}

/// First-inbox IDs of mails whose first inbox belongs to another core.
const OTHER_LETTERS: u64 = 1_000_000;

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
    Insert {
        inbox: u8,
        late_ms: u64,
        role: Role,
    },
    Remove(u64),
    /// The last inbox drops a mail that its first inbox has dropped already.
    Forget(prop::sample::Index),
    Hurry {
        id: u64,
        ms: u64,
    },
    Later(u64),
    DropSegment(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let role = prop_oneof![3 => Just(Role::Only), 1 => Just(Role::First), 1 => Just(Role::Other)];
    let step = prop_oneof![
        6 => (0u8..8, 0u64..3, role).prop_map(|(inbox, late_ms, role)| Step::Insert { inbox, late_ms, role }),
        2 => (1u64..60).prop_map(Step::Remove),
        1 => any::<prop::sample::Index>().prop_map(Step::Forget),
        2 => (1u64..60, 0u64..6_000).prop_map(|(id, ms)| Step::Hurry { id, ms }),
        1 => (1u64..2_000).prop_map(Step::Later),
        1 => (0u32..6).prop_map(Step::DropSegment),
    ];
    proptest::collection::vec(step, 0..80)
}

/// A mail of the twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Plain {
    arrived_ms: u64,
    id: u64,
    inbox: u8,
    expires_ms: u64,
    is_first: bool,
    is_other: bool,
}

/// The twin: mails in inboxes, and mails that their first inbox has dropped, oldest first.
#[derive(Debug, Default)]
struct List {
    mails: Vec<Plain>,
    let_go: Vec<Plain>,
}

impl List {
    fn remove(&mut self, is_gone: impl Fn(&Plain) -> bool) {
        let gone = self.mails.extract_if(.., |mail| is_gone(mail));
        self.let_go.extend(gone.filter(|mail| mail.is_first));
        self.let_go.sort_unstable();
    }

    /// Returns the mails that a scope shows, newest first.
    fn shown(&self, scope: &Scope, now_ms: u64) -> Vec<u64> {
        let of_age = |mail: &&Plain| mail.arrived_ms + RULES.age_ms > now_ms;
        let mut shown: Vec<&Plain> = match scope {
            Scope::All => {
                let all = self.mails.iter().filter(|mail| !mail.is_other);
                let all =
                    all.filter(|mail| if mail.is_first { of_age(mail) } else { mail.expires_ms > now_ms });
                all.chain(self.let_go.iter().filter(of_age)).collect()
            }
            _ => {
                let within = self.mails.iter().filter(|mail| scope.contains(&inbox(mail.inbox)));
                within.filter(|mail| mail.expires_ms > now_ms).collect()
            }
        };
        shown.sort_unstable_by_key(|mail| std::cmp::Reverse((mail.arrived_ms, mail.id)));
        shown.iter().map(|mail| mail.id).collect()
    }

    fn count(&self, scope: &Scope) -> usize {
        match scope {
            Scope::All => self.mails.iter().filter(|mail| !mail.is_other).count() + self.let_go.len(),
            _ => self.mails.iter().filter(|mail| scope.contains(&inbox(mail.inbox))).count(),
        }
    }
}

proptest! {
    #[test]
    fn it_agrees_with_a_plain_list(steps in steps()) {
        let mut index = Index::new(RULES);
        let mut twin = List::default();
        let mut markers: std::collections::HashMap<u64, u64> = std::collections::HashMap::new();
        let (mut now_ms, mut next_id) = (1_000_000u64, 1);
        for step in steps {
            match step {
                Step::Insert { inbox: number, late_ms, role } => {
                    let arrived_ms = now_ms - late_ms;
                    let gone = index.insert(of_several(next_id, arrived_ms, role), &inbox(number));
                    let gone = gone.and_then(|id| index.remove(id, Some(inbox(number))));
                    twin.mails.push(Plain {
                        arrived_ms,
                        id: next_id,
                        inbox: number,
                        expires_ms: arrived_ms + RULES.age_ms,
                        is_first: role == Role::First,
                        is_other: role == Role::Other,
                    });
                    twin.mails.sort_unstable();
                    let of_inbox: Vec<u64> =
                        twin.mails.iter().filter(|mail| mail.inbox == number).map(|mail| mail.id).collect();
                    let over = of_inbox.len() > RULES.per_inbox_max as usize;
                    prop_assert_eq!(gone.map(|gone| gone.place.id.0), over.then(|| of_inbox[0]));
                    if over {
                        twin.remove(|mail| mail.id == of_inbox[0]);
                    }
                    next_id += 1;
                }
                Step::Remove(id) => {
                    let gone = index.remove(MailId(id), None);
                    let known = twin.mails.iter().find(|mail| mail.id == id);
                    let letter = known.map(|mail| if mail.is_other { OTHER_LETTERS + id } else { id });
                    prop_assert_eq!(gone.map(|gone| gone.letter.0), letter);
                    twin.remove(|mail| mail.id == id);
                }
                Step::Forget(which) => {
                    if !twin.let_go.is_empty() {
                        let gone = twin.let_go.remove(which.index(twin.let_go.len()));
                        prop_assert_eq!(index.remove_unlinked(MailId(gone.id)).map(|(place, _)| place.location), Some(gone.id * 100));
                    }
                }
                Step::Hurry { id, ms } => {
                    let at_ms = now_ms + ms;
                    let known = twin.mails.iter_mut().find(|mail| mail.id == id && mail.expires_ms > now_ms);
                    match (index.check_early_expiry(MailId(id), at_ms, now_ms), known) {
                        (EarlyExpiryOutcome::Gone, None) | (EarlyExpiryOutcome::TooOften, Some(_)) => {}
                        (EarlyExpiryOutcome::NoNeed, Some(mail)) => prop_assert!(mail.expires_ms <= at_ms),
                        (EarlyExpiryOutcome::Yes, Some(mail)) => {
                            prop_assert!(mail.expires_ms > at_ms);
                            mail.expires_ms = at_ms;
                            let marker = markers.len() as u64 + 1;
                            prop_assert_eq!(index.set_early_expiry(MailId(id), at_ms, marker), markers.insert(id, marker));
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
                    // Mails that are due within the current second may stay until it is over.
                    let due = |mail: &Plain| mail.expires_ms <= now_ms;
                    let over = |mail: &Plain| mail.expires_ms.div_ceil(1000) * 1000 <= now_ms;
                    for id in &expired {
                        prop_assert!(twin.mails.iter().any(|mail| mail.id == *id && due(mail)));
                    }
                    twin.remove(|mail| expired.contains(&mail.id));
                    prop_assert!(!twin.mails.iter().any(over));
                }
                Step::DropSegment(segment) => {
                    let gone: Vec<u64> =
                        index.drain_segment(segment, 4).iter().map(|gone| gone.place.id.0).collect();
                    let in_segment = |mail: &&Plain| mail.id / 10 == u64::from(segment);
                    let mut oldest: Vec<&Plain> = twin.mails.iter().filter(in_segment).collect();
                    // Mails in the chain of all mails are removed first.
                    oldest.sort_by_key(|mail| mail.is_other);
                    let oldest: Vec<u64> = oldest.iter().take(4).map(|mail| mail.id).collect();
                    prop_assert_eq!(&gone, &oldest);
                    twin.remove(|mail| oldest.contains(&mail.id));
                }
            }
            index.invariants();
            for scope in scopes() {
                prop_assert_eq!(index.listed(&scope, now_ms), twin.shown(&scope, now_ms), "{:?}", scope);
                prop_assert!(index.count(&scope).is_none_or(|count| count == twin.count(&scope) as u64));
            }
            prop_assert_eq!((index.len(), index.mail_bytes()), (twin.mails.len(), twin.mails.len() as u64 * 10));
            let inboxes: std::collections::HashSet<u8> = twin.mails.iter().map(|mail| mail.inbox).collect();
            prop_assert_eq!(index.inboxes(), inboxes.len());
        }
    }
}

/// A mail takes at most 100 bytes, not counting the names of inboxes.
#[test]
fn a_mail_takes_at_most_100_bytes() {
    let mut index = Index::new(IndexRules { age_ms: 86_400_000, per_inbox_max: 500, ..RULES });
    let empty = index.bytes();
    let mails = 100_000;
    for id in 1..=mails {
        let inbox = Inbox { local: format!("inbox{}", id % 1000).into(), domain: "d0".into() };
        index.insert(new(id, 1_000_000 + id), &inbox);
    }
    let each = (index.bytes() - empty) / mails as usize;
    assert!(each <= 100, "{each} bytes a mail");
}

/// The expiry of a mail can be changed only a few times, so that neither queue nor log grows without bound.
#[test]
fn early_expiry_changes_are_bounded_per_mail() {
    let mut index = Index::new(IndexRules { age_ms: 86_400_000, per_inbox_max: 500, ..RULES });
    index.insert(new(1, 1_000_000), &inbox(0));
    let mut hurried = 0;
    for ms in (0..1000).rev() {
        match index.check_early_expiry(MailId(1), 2_000_000 + ms, 1_000_000) {
            EarlyExpiryOutcome::Yes => _ = index.set_early_expiry(MailId(1), 2_000_000 + ms, 1),
            EarlyExpiryOutcome::TooOften => break,
            other => panic!("{other:?}"),
        }
        hurried += 1;
    }
    assert_eq!(hurried, 8);
    assert_eq!(index.check_early_expiry(MailId(1), 86_000_000, 1_000_000), EarlyExpiryOutcome::NoNeed);
    assert_eq!(index.check_early_expiry(MailId(2), 2_000_000, 1_000_000), EarlyExpiryOutcome::Gone);
}

/// An index that has become empty frees the tables that many mails needed.
#[test]
fn an_emptied_index_frees_its_tables() {
    let mut index = Index::new(IndexRules { age_ms: 86_400_000, per_inbox_max: 500, ..RULES });
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
        index.step(&mut walk, 1, 1_000_000, |_| WalkControl::No),
        StepOutcome::Lost,
        "a walk that was under way"
    );
    index.insert(new(mails + 1, 2_000_000), &inbox(0));
    assert_eq!(index.listed(&Scope::All, 2_000_000), [mails + 1]);
    index.invariants();
}

/// The oldest mails are dropped beyond the memory limit even if each mail creates a new inbox in a new
/// domain.
#[test]
fn an_index_names_the_oldest_beyond_its_memory() {
    let bytes_max = 1 << 20;
    let mut index = Index::new(IndexRules { age_ms: 86_400_000, bytes_max, ..RULES });
    let mut oldest = 1;
    for id in 1..=20_000_u64 {
        let inbox = Inbox { local: format!("somebody-{id}").into(), domain: format!("{id}.test").into() };
        index.insert(new(id, 1_000_000 + id), &inbox);
        while let Some(over) = index.oldest_above_limit() {
            assert_eq!(over, MailId(oldest), "the oldest goes first");
            assert!(index.remove(over, None).is_some());
            oldest += 1;
        }
        assert!(index.live_bytes() <= bytes_max);
    }
    assert!(oldest > 10_000, "{oldest}");
    assert!(index.bytes() <= 2 * bytes_max, "{} bytes of memory", index.bytes());
    index.invariants();
}

/// A full inbox drops a mail for each new one, and the expiry words of dropped mails are removed, too.
#[test]
fn dropped_mails_leave_no_expiry_entries() {
    let mut index = Index::new(IndexRules { age_ms: 86_400_000, per_inbox_max: 10, ..RULES });
    for id in 1..=300_000_u64 {
        if let Some(over) = index.insert(new(id, 1_000_000 + id), &inbox(0)) {
            assert!(index.remove(over, None).is_some());
        }
    }
    assert!(index.bytes() <= 2 << 20, "{} bytes", index.bytes());
    let mut gone = 0;
    while index.expire_one(1_000_000 + 300_000 + 86_401_000).is_some() {
        gone += 1;
    }
    assert_eq!(gone, 10, "each that is there is over age once");
}
