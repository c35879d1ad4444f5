use engine::meter::CounterSet;
use proptest::prelude::*;

use super::{ask::is_usable, *};
use crate::{config::PeerSecret, peers::lease::Membership};

fn names() -> Names {
    Names::new(&[], CounterSet::new(1))
}

fn at(name: &str) -> PeerAt {
    PeerAt { name: name.to_owned(), address: format!("127.0.0.1:{}", 1000 + u16::from(name.as_bytes()[0])) }
}

fn peers(own: &str, all: &[&str]) -> Peers {
    let rules = PeerRules {
        listen: ([127, 0, 0, 1], 0).into(),
        name: own.to_owned(),
        members: all.iter().map(|name| at(name)).collect(),
        secret: PeerSecret::new(b"secret"),
        patience: Duration::from_millis(500),
        connections_max: 1,
        requests_max: 2,
    };
    Peers::new(&rules, &Limits::default(), &mut names()).expect("peers")
}

fn keys() -> Vec<Vec<u8>> {
    (0..300).map(|number| format!("site\0/{number}").into_bytes()).collect()
}

fn owner_of(peers: &Peers, key: &[u8]) -> String {
    peers.owner(key).map(|peer| peer.name.to_string()).expect("there is somebody")
}

#[test]
fn all_members_agree_on_the_owner() {
    let all = ["a", "b", "c"].map(|own| peers(own, &["c", "a", "b"]));
    for key in keys() {
        let owner = owner_of(&all[0], &key);
        for one in &all {
            assert_eq!(owner_of(one, &key), owner);
            let asked = one.asked_for(&key).map(|peer| peer.name.to_string());
            assert_eq!(asked, (one.rules.name != owner).then(|| owner.clone()));
        }
    }
}

#[test]
fn a_failed_peer_is_retried_by_one_request() {
    let one = peers("a", &["a", "b", "c"]);
    let key = keys().into_iter().find(|key| owner_of(&one, key) == "b").expect("a key of b");
    let peer = one.owner(&key).expect("b");
    peer.failed("a test");
    assert_ne!(owner_of(&one, &key), "b", "its keys are others'");
    let seen = |name: &str| one.seen().into_iter().find(|peer| peer.name == name).expect("it is there");
    assert_eq!((seen("b").standing, seen("b").failures), (PeerStanding::Out, 1));
    assert_eq!((seen("a").standing, seen("c").standing), (PeerStanding::Own, PeerStanding::Up));

    let now_ms = clock::monotonic_ms();
    let back_off = |peer: &Peer, from_ms: u64| {
        (0..60_000).step_by(100).find(|later_ms| peer.is_up(from_ms + later_ms)).expect("it is tried again")
    };
    assert!((900..=1_100).contains(&back_off(&peer, now_ms)), "{}", back_off(&peer, now_ms));
    let later_ms = now_ms + 1_100;
    assert!(peer.is_up(later_ms) && peer.may_be_asked(later_ms), "one request tries it");
    assert!(!peer.is_up(later_ms) && !peer.may_be_asked(later_ms), "and no other");
    for _ in 0..10 {
        peer.failed("a test");
    }
    let most = back_off(&peer, clock::monotonic_ms());
    assert!((29_000..=30_100).contains(&most), "{most}");
    let told = PeerAnswerMark { how: mark::How::Fetched, sequence: 0, load: 0, epoch: 1 };
    peer.answered(&told, false);
    assert_eq!(owner_of(&one, &key), "b");
}

#[test]
fn a_membership_change_moves_only_necessary_keys() {
    let one = peers("a", &["a", "b", "c"]);
    let before: Vec<String> = keys().iter().map(|key| owner_of(&one, key)).collect();
    let c = one.table().peers.iter().find(|peer| &*peer.name == "c").cloned().expect("c");
    c.failed("a test");
    one.set_members(&[at("d"), at("c"), at("a")], &mut names()).expect("addresses");
    let again = one.table().peers.iter().find(|peer| &*peer.name == "c").cloned().expect("c");
    assert!(Arc::ptr_eq(&c, &again), "it is still left out");
    let told = PeerAnswerMark { how: mark::How::Hit, sequence: 0, load: 0, epoch: 1 };
    c.answered(&told, true);
    for (key, was) in keys().iter().zip(&before) {
        let is = owner_of(&one, key);
        assert!(is == *was || was == "b" || is == "d", "{was} {is}");
    }
    one.set_members(&[], &mut names()).expect("nobody");
    assert!(keys().iter().all(|key| one.asked_for(key).is_none()));
    let wrong =
        one.set_members(&[PeerAt { name: "x".to_owned(), address: "no port".to_owned() }], &mut names());
    assert!(wrong.is_err_and(|error| error.to_string().contains("no port")));
}

#[test]
fn a_reported_peer_load_expires() {
    let one = peers("a", &["a", "b"]);
    let b = one.table().peers[1].clone();
    let (now_ms, told) =
        (clock::monotonic_ms(), PeerAnswerMark { how: mark::How::Hit, sequence: 0, load: 500, epoch: 1 });
    b.answered(&told, true);
    assert_eq!(b.load(now_ms), 500);
    assert!(keys().iter().all(|key| owner_of(&one, key) == "a"), "the other has its part already");
    let asked = b.count_fetch();
    assert_eq!(b.load(now_ms + 60_000), 1, "what we ask it for ourselves");
    drop(asked);
    assert_eq!(b.load(now_ms + 60_000), 0);
    let fetches = [one.fetches(), one.fetches()];
    assert_eq!(one.fetching(), 2);
    drop(fetches);
    assert_eq!(one.fetching(), 0);
}

#[test]
fn concurrent_peer_requests_are_bounded() {
    let one = peers("a", &["a"]);
    let first = one.serve();
    assert!(first.is_some() && one.serve().is_some());
    let second = one.serve();
    assert!(second.is_some() && one.serve().is_none());
    drop(first);
    assert!(one.serve().is_some());
}

#[test]
fn only_the_addressed_peer_accepts_a_request() {
    let (a, b) = (peers("a", &["a", "b"]), peers("b", &["a", "b"]));
    let of_b = a.table().peers[1].clone();
    let head = || b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
    let (first, mac) = a.marked(head(), &of_b, 7, false);
    let Err(MarkError::Epoch(of)) = b.verify_request(&first) else {
        panic!("which process it is is not known yet")
    };
    assert_eq!(of, mac);
    let lines = b.tell(mark::How::Epoch, 0, &of);
    let value = lines.split_once("Nighttrain-Peer: ").expect("a mark").1.trim_end();
    let told = a.signing.read_answer_mark(value.as_bytes(), &mac).expect("it is b's");
    of_b.answered(&told, false);
    let (second, _) = a.marked(head(), &of_b, 7, true);
    let asked = b.verify_request(&second).expect("it is a's").0;
    assert_eq!((asked.asker, asked.sequence, asked.is_anew), ("a", 7, true));
    assert_eq!(b.verify_request(&second), Err(MarkError::Replayed));
    assert_eq!(a.verify_request(&second).err(), Some(MarkError::Forged), "it was for b");
    // While another core holds the table of numbers, a stranger's request is still refused, and an answer
    // still signed.
    let held = b.heard.lock();
    assert_eq!(b.verify_request(&head()).err(), Some(MarkError::Forged), "no lock is waited for");
    assert!(b.tell(mark::How::Hit, 0, &of).contains(mark::FIELD));
    drop(held);
}

/// An accelerator of the model: one page, and its knowledge of purges.
#[derive(Default)]
struct Instance {
    membership: Membership,
    /// Last purge that the page's core has applied; the other cores apply it later.
    on_core: u64,
    /// Version of the page that is stored.
    stored: Option<u64>,
    /// The fetch under way: the purge position at its beginning, and whether the page was purged since.
    asks: Option<(u64, bool)>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The page changes at the origin, and is purged.
    Publish,
    /// An instance begins the next purge; in the next two steps the page's core applies it, then all cores
    /// have.
    Begin(bool),
    Core(bool),
    Apply(bool),
    /// An instance begins to ask the other for the page, and gets the answer in the next step, in which the
    /// other looks up its store.
    Ask(bool),
    Answer(bool),
    /// An instance fetches the page from the origin by itself.
    Fetch(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Publish),
        3 => any::<bool>().prop_map(Step::Begin),
        3 => any::<bool>().prop_map(Step::Core),
        3 => any::<bool>().prop_map(Step::Apply),
        2 => any::<bool>().prop_map(Step::Ask),
        3 => any::<bool>().prop_map(Step::Answer),
        1 => any::<bool>().prop_map(Step::Fetch),
    ];
    prop::collection::vec(step, 1..80)
}

/// Returns whether no instance ever stores a version after it has applied the purge of that version. `by`
/// returns the purge position that an instance sends when it asks the other.
fn nothing_stale(steps: &[Step], by: impl Fn(&Membership) -> u64) -> bool {
    let mut all = [Instance::default(), Instance::default()];
    let mut published = 0;
    for step in steps {
        match *step {
            Step::Publish => published += 1,
            Step::Begin(which) => {
                let one = &all[usize::from(which)];
                if one.membership.begun() < published && one.membership.begun() == one.membership.applied() {
                    one.membership.note_begun(0, one.membership.begun() + 1);
                }
            }
            Step::Core(which) => {
                let one = &mut all[usize::from(which)];
                if one.on_core < one.membership.begun() {
                    one.on_core += 1;
                    one.stored = None;
                    if let Some((_, is_forgotten)) = &mut one.asks {
                        *is_forgotten = true;
                    }
                }
            }
            Step::Apply(which) => {
                let one = &all[usize::from(which)];
                one.membership.note_applied(0, one.on_core);
            }
            Step::Ask(which) => {
                let one = &mut all[usize::from(which)];
                if one.stored.is_none() {
                    one.asks.get_or_insert((by(&one.membership), false));
                }
            }
            Step::Answer(which) => {
                let Some((sequence, is_forgotten)) = all[usize::from(which)].asks.take() else { continue };
                let other = &mut all[usize::from(!which)];
                let carried_out = other.membership.applied();
                let answered = *other.stored.get_or_insert(published);
                // If the peer's answer is not usable, the origin is asked, which has the current version.
                let version = if is_usable(carried_out, sequence) { answered } else { published };
                if !is_forgotten {
                    all[usize::from(which)].stored = Some(version);
                }
            }
            Step::Fetch(which) => all[usize::from(which)].stored = Some(published),
        }
        let is_stale = |one: &Instance| one.stored.is_some_and(|version| version < one.membership.applied());
        if all.iter().any(is_stale) {
            return false;
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn peer_answers_older_than_purges_are_not_stored(steps in steps()) {
        prop_assert!(nothing_stale(&steps, Membership::begun));
    }
}

#[test]
fn the_model_finds_what_would_be_stale() {
    use Step::{Answer, Apply, Ask, Begin, Core, Fetch, Publish};
    // b has the page. a begins a purge; its core drops the page and asks again before a's other cores know of
    // the purge.
    let stale = [Fetch(true), Publish, Begin(false), Core(false), Ask(false), Answer(false), Apply(false)];
    assert!(!nothing_stale(&stale, Membership::applied), "an asker that goes by what it has carried out");
    assert!(!nothing_stale(&stale, |_| 0), "or by nothing");
    assert!(nothing_stale(&stale, Membership::begun));
}
