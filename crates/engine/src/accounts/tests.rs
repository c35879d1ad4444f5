use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    task::{Wake, Waker},
};

use proptest::prelude::*;

use super::*;

const BYTES: Category = Category(0);
const TOTAL: usize = 1 << 20;
const RESERVE: usize = TOTAL / RESERVE_PARTS;
const SHARE: usize = TOTAL / SHARE_PARTS;

fn accounts() -> Accounts {
    Accounts::new(vec![Limit::of_core(TOTAL), Limit::of_core(64)])
}

fn key(address: &str) -> ClientKey {
    ClientKey::of(address.parse().expect(address))
}

/// An attacker: connections of one client that take as much as they can get, in charges of equal size, and
/// end when they are cut.
struct Greedy {
    client: Client,
    size: usize,
    charges: Vec<Charge>,
}

impl Greedy {
    fn new(accounts: &Accounts, address: &str, size: usize) -> Self {
        Self { client: accounts.client(key(address)), size, charges: Vec::new() }
    }

    /// Runs one turn of the loop: cut connections end, and the client charges until it is refused.
    fn turn(&mut self) {
        self.charges.retain(|charge| !charge.is_cut());
        while let Ok(charge) = self.client.charge(BYTES, self.size) {
            self.charges.push(charge);
        }
    }

    fn holds(&self) -> usize {
        self.client.kept(BYTES)
    }
}

/// A client whose connections each want one charge, and retry in the next turn if there is no room.
struct Honest {
    client: Client,
    wants: usize,
    charges: Vec<Charge>,
    refused: usize,
}

impl Honest {
    fn new(accounts: &Accounts, address: &str) -> Self {
        Self { client: accounts.client(key(address)), wants: 0, charges: Vec::new(), refused: 0 }
    }

    /// Runs one turn of the loop: every connection without a charge requests one.
    fn turn(&mut self, connections: usize, size: usize) {
        self.wants = connections;
        for _ in self.charges.len()..connections {
            match self.client.charge(BYTES, size) {
                Ok(charge) => self.charges.push(charge),
                Err(_) => self.refused += 1,
            }
        }
    }

    fn is_served(&self) -> bool {
        self.charges.len() == self.wants && self.charges.iter().all(|charge| !charge.is_cut())
    }
}

#[test]
fn one_address_alone_gets_all_but_a_sixteenth() {
    let accounts = accounts();
    let mut greedy = Greedy::new(&accounts, "192.0.2.1", 1000);
    greedy.turn();
    assert!(TOTAL - RESERVE - greedy.holds() < 1000, "{}", greedy.holds());
    assert_eq!(greedy.client.charge(BYTES, 1000).err(), Some(Refusal::OverShare));
    assert_eq!(accounts.counts(BYTES), Counts { refused: 2, cut: 0 });
    assert_eq!(accounts.most(BYTES), Some((greedy.client.key(), greedy.holds())));
    // The last sixteenth is for other clients, and charges are cut to make it free again.
    let other = accounts.charge(key("192.0.2.2"), BYTES, SHARE);
    assert!(other.is_ok() && greedy.charges.iter().any(Charge::is_cut), "the sixteenth is made free again");
}

#[test]
fn nobody_is_refused_below_half() {
    let accounts = accounts();
    let _most = accounts.charge(key("192.0.2.1"), BYTES, TOTAL / 2 - 10).expect("less than half is used");
    let mut more = accounts.charge(key("192.0.2.1"), BYTES, 0).expect("nothing");
    assert_eq!(more.resize(10), Ok(()));
    assert_eq!(more.resize(TOTAL), Err(Refusal::OverShare));
    assert_eq!((more.amount(), accounts.used(BYTES)), (10, TOTAL / 2));
}

/// Two hundred connections behind a NAT, which together hold two fifths of the sum, are still served while a
/// client in another network takes all that it can get, in large or in small charges.
#[test]
fn a_nat_is_served_beside_an_attacker() {
    for size in [TOTAL / 4, TOTAL / 100, 1000] {
        let accounts = accounts();
        let mut attacker = Greedy::new(&accounts, "203.0.113.9", size);
        attacker.turn();
        let mut nat = Honest::new(&accounts, "192.0.2.1");
        for turn in 0..100 {
            nat.turn(200, TOTAL / 500);
            attacker.turn();
            assert!(turn < 40 || nat.is_served(), "turn {turn}: {} of 200, size {size}", nat.charges.len());
        }
        accounts.assert_invariants();
    }
}

/// When the attacker is behind the same NAT, a client elsewhere is served at once, and the other users of the
/// NAT are served once the attacker's large connection has been cut.
#[test]
fn a_nat_is_served_with_its_attacker() {
    let accounts = accounts();
    let mut attacker = Greedy::new(&accounts, "192.0.2.1", TOTAL / 8);
    let (mut nat, mut other) = (Honest::new(&accounts, "192.0.2.1"), Honest::new(&accounts, "198.51.100.1"));
    attacker.turn();
    for turn in 0..100 {
        nat.turn(200, TOTAL / 1000);
        other.turn(10, TOTAL / 1000);
        attacker.turn();
        assert!(turn < 40 || nat.is_served(), "turn {turn}: {} of 200", nat.charges.len());
        assert!(other.is_served(), "turn {turn}: {} of 10", other.charges.len());
    }
    // Among two hundred connections with equal amounts the attacker cannot be identified; the client
    // elsewhere is not affected.
    let mut same = Greedy::new(&accounts, "192.0.2.1", TOTAL / 1000);
    for _ in 0..10 {
        same.turn();
        other.turn(20, TOTAL / 1000);
        assert!(other.is_served());
    }
    accounts.assert_invariants();
}

/// Thousands of /64s of one /48, each below its share, leave room for sixteen addresses that want a
/// forty-third of the sum each.
#[test]
fn a_slash_48_has_sixteen_shares() {
    let accounts = accounts();
    let mut attackers: Vec<Greedy> = (0..4000)
        .map(|number| Greedy::new(&accounts, &format!("2001:db8:1:{number:x}::1"), SHARE / 4))
        .collect();
    for attacker in &mut attackers {
        attacker.charges.extend(attacker.client.charge(BYTES, attacker.size));
    }
    assert_eq!(accounts.most(BYTES).map(|(key, _)| key.to_string()).as_deref(), Some("2001:db8:1::/48"));
    let mut honest: Vec<Honest> =
        (1..=16).map(|number| Honest::new(&accounts, &format!("192.0.2.{number}"))).collect();
    for turn in 0..100 {
        for one in &mut honest {
            one.turn(24, TOTAL / 1024);
            assert!(turn < 60 || one.is_served(), "turn {turn}: {} of 24", one.charges.len());
        }
        for attacker in &mut attackers {
            attacker.charges.retain(|charge| !charge.is_cut());
            if attacker.charges.is_empty() {
                attacker.charges.extend(attacker.client.charge(BYTES, attacker.size));
            }
        }
    }
    accounts.assert_invariants();
}

#[test]
fn a_client_within_its_share_is_never_cut() {
    let accounts = accounts();
    let within = accounts.charge(key("192.0.2.1"), BYTES, SHARE).expect("little");
    let mut attackers: Vec<Greedy> =
        (0..10).map(|number| Greedy::new(&accounts, &format!("203.0.113.{number}"), TOTAL / 40)).collect();
    for _ in 0..20 {
        attackers.iter_mut().for_each(Greedy::turn);
        assert!(!within.is_cut());
    }
}

#[test]
fn loopback_is_a_client_a_connection() {
    let accounts = accounts();
    let of = |number| ClientKey::of_connection([127, 0, 0, 1].into(), number, &[]);
    let mut large = accounts.charge(of(1), BYTES, TOTAL / 2).expect("half");
    while large.resize(large.amount() + 1000).is_ok() {}
    let small = accounts.charge(of(2), BYTES, TOTAL / 40).expect("from the reserve");
    assert!(large.is_cut() && !small.is_cut());
    assert_eq!(large.resize(large.amount() + 1), Err(Refusal::Cut));
}

#[test]
fn who_is_cut_is_woken_and_may_charge() {
    struct Charges(AtomicU64);
    impl Wake for Charges {
        fn wake(self: Arc<Self>) {
            LAST.with_borrow(|accounts| {
                let charge =
                    accounts.as_ref().map(|accounts| accounts.charge(key("192.0.2.7"), Category(1), 1));
                assert!(charge.is_some_and(|charge| charge.is_ok()));
            });
            self.0.fetch_add(1, Relaxed);
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Rc<Accounts>>> = const { RefCell::new(None) };
    }
    let accounts = Rc::new(accounts());
    LAST.set(Some(Rc::clone(&accounts)));
    let count = Arc::new(Charges(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut large = accounts.charge(key("203.0.113.9"), BYTES, TOTAL / 2).expect("half");
    while large.resize(large.amount() + 1000).is_ok() {}
    let cx = &Context::from_waker(&waker);
    assert!(large.poll_cut(cx).is_pending() && large.poll_cut(cx).is_pending());
    let _small = accounts.charge(key("192.0.2.1"), BYTES, TOTAL / 40).expect("from the reserve");
    assert!(large.poll_cut(cx).is_ready());
    assert_eq!(count.0.load(Relaxed), 1);
    drop(large);
    assert_eq!(accounts.used(BYTES), TOTAL / 40);
    LAST.set(None);
}

#[test]
fn handles_outlive_their_accounts() {
    let accounts = accounts();
    let client = accounts.client(key("2001:db8::1"));
    let charge = client.charge(BYTES, 7).expect("little");
    drop(accounts);
    drop((client, charge));
}

#[test]
fn who_is_gone_is_forgotten() {
    let accounts = accounts();
    for number in 0..1000 {
        let charge = accounts.charge(key(&format!("2001:db8:{number:x}::1")), BYTES, 1000).expect("little");
        drop(charge);
    }
    assert_eq!((accounts.used(BYTES), accounts.most(BYTES)), (0, None));
    with_live(accounts.number, |ledger| assert!(ledger.parties() <= 2, "rows are used again"));
    accounts.assert_invariants();
}

/// Two cores share one sum: the amount that one takes of the common half reduces the other's limit.
#[test]
fn cores_share_a_sum() {
    let common = Arc::new(CommonPart::default());
    let [one, two] = [(); 2].map(|()| Accounts::new(vec![Limit::of_cores(Arc::clone(&common), TOTAL, 2)]));
    let mut greedy = Greedy::new(&one, "192.0.2.1", 1000);
    greedy.turn();
    let mine = TOTAL / 4 + TOTAL / 2;
    assert!(greedy.holds() <= mine - mine / 16 && greedy.holds() > mine - mine / 16 - TOTAL / 32 - 1000);
    let mut other = Greedy::new(&two, "192.0.2.1", 1000);
    other.turn();
    assert!(other.holds() > TOTAL / 8, "a fixed part is there: {}", other.holds());
    assert!(greedy.holds() + other.holds() <= TOTAL);
}

/// Reference implementation of the accounts, simple and slow: a list of charges.
#[derive(Default)]
struct Twin(Vec<(Charge, ClientKey)>);

impl Twin {
    fn kept(&self, is_of: impl Fn(ClientKey) -> bool) -> usize {
        self.0
            .iter()
            .filter(|(charge, of)| !charge.is_cut() && is_of(*of))
            .map(|(charge, _)| charge.amount())
            .sum()
    }

    /// Returns the measure by which each client and group is compared.
    fn measures(&self) -> HashMap<ClientKey, usize> {
        let mut measures = HashMap::new();
        for (_, client) in &self.0 {
            measures.insert(*client, self.kept(|of| of == *client));
            if let Some(group) = client.group() {
                measures.insert(group, self.kept(|of| of.group() == Some(group)).div_ceil(GROUP_SHARES));
            }
        }
        measures
    }

    fn used(&self) -> usize {
        self.0.iter().map(|(charge, _)| charge.amount()).sum()
    }
}

fn a_key() -> impl Strategy<Value = ClientKey> {
    prop_oneof![
        (0_u8..4).prop_map(|last| ClientKey::of([192, 0, 2, last].into())),
        (0_u16..6).prop_map(|net| ClientKey::of([0x2001, 0xdb8, 1, net, 0, 0, 0, 1].into())),
        (0_u64..3).prop_map(ClientKey::Connection),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Charge(ClientKey, usize),
    Resize(prop::sample::Index, usize),
    End(prop::sample::Index),
}

fn a_step() -> impl Strategy<Value = Step> {
    let amount = || prop_oneof![0..SHARE * 2, 0..TOTAL / 10, 0..TOTAL];
    prop_oneof![
        4 => (a_key(), amount()).prop_map(|(key, amount)| Step::Charge(key, amount)),
        2 => (any::<prop::sample::Index>(), amount()).prop_map(|(at, amount)| Step::Resize(at, amount)),
        2 => any::<prop::sample::Index>().prop_map(Step::End),
    ]
}

proptest! {
    /// Verdicts, sums and the choice of charges to cut equal those of the slow reference implementation.
    #[test]
    fn accounts_are_as_their_slow_twin(steps in prop::collection::vec(a_step(), 1..150)) {
        let accounts = accounts();
        let mut twin = Twin::default();
        for step in steps {
            let (at, client, amount) = match step {
                Step::End(at) => {
                    if !twin.0.is_empty() {
                        twin.0.swap_remove(at.index(twin.0.len()));
                    }
                    continue;
                }
                Step::Charge(client, amount) => (None, client, amount),
                Step::Resize(at, amount) if !twin.0.is_empty() => {
                    let at = at.index(twin.0.len());
                    (Some(at), twin.0[at].1, amount)
                }
                Step::Resize(..) => continue,
            };
            let before = at.map_or(0, |at| twin.0[at].0.amount());
            let was_cut = at.is_some_and(|at| twin.0[at].0.is_cut());
            let cut_before: Vec<bool> = twin.0.iter().map(|(charge, _)| charge.is_cut()).collect();
            let (measures, used, most) = (twin.measures(), twin.used(), accounts.most(BYTES));
            let more = amount.saturating_sub(before);
            let own = twin.kept(|of| of == client) + more;
            let of_group = client.group().map_or(0, |group| {
                (twin.kept(|of| of.group() == Some(group)) + more).div_ceil(GROUP_SHARES)
            });
            let would_keep = own.max(of_group);
            let leaving = used - twin.kept(|_| true);

            let verdict = match at {
                Some(at) => twin.0[at].0.resize(amount),
                None => accounts.charge(client, BYTES, amount).map(|charge| twin.0.push((charge, client))),
            };
            accounts.assert_invariants();

            let cut_now: Vec<usize> =
                (0..cut_before.len()).filter(|at| !cut_before[*at] && twin.0[*at].0.is_cut()).collect();
            if at.is_some() && amount <= before {
                prop_assert!(verdict.is_ok() && cut_now.is_empty());
                continue;
            }
            if was_cut {
                prop_assert_eq!(verdict, Err(Refusal::Cut));
                continue;
            }
            if used + more <= TOTAL / 2 {
                prop_assert!(verdict.is_ok() && cut_now.is_empty());
                continue;
            }
            let most = most.map_or(0, |(client, _)| measures[&client]);
            prop_assert_eq!(classes::class(most), classes::class(measures.values().copied().max().unwrap_or(0)));
            let beyond = would_keep.max(SHARE);
            let is_small = would_keep <= SHARE;
            let short = (used + more - leaving).saturating_sub(TOTAL - RESERVE);
            let mut is_own = false;
            for at in &cut_now {
                let of = twin.0[*at].1;
                let is_over = |key: ClientKey| measures.get(&key).is_some_and(|measure| *measure > beyond);
                let gives_way = is_over(of) || of.group().is_some_and(is_over);
                is_own |= !gives_way;
                prop_assert!(gives_way || of == client || of.group() == client.group(), "{of} is cut for {client}");
                prop_assert!(short > 0);
            }
            prop_assert!(short == 0 || most <= beyond || !cut_now.is_empty(), "who has most gives way");
            let bound = if is_small {
                TOTAL
            } else if most > would_keep || is_own {
                TOTAL - RESERVE / 2
            } else {
                TOTAL - RESERVE
            };
            let is_making_room = !cut_now.is_empty() || leaving > 0 && (is_small || most > would_keep);
            let right = if used + more <= bound {
                Ok(())
            } else if is_making_room || is_small {
                Err(Refusal::Full)
            } else {
                Err(Refusal::OverShare)
            };
            prop_assert_eq!(verdict, right, "{} + {} of {}", used, more, TOTAL);
            prop_assert!(accounts.used(BYTES) <= TOTAL);
        }
        drop(twin);
        accounts.assert_invariants();
        prop_assert_eq!((accounts.used(BYTES), accounts.most(BYTES)), (0, None));
    }
}
