//! Model test: bans, purges, fetches, a lurker on each of two cores and lookups, in any order, compared with
//! a complete list of all purges.

use std::{cell::RefCell, collections::HashMap};

use engine::store::{BodyLength, Lookup, NewObject, Reader, Shard, StoreConfig, open_anon};
use proptest::prelude::*;

use super::*;
use crate::{head::response_head::BLANK, policy::test_heads::with_request};

const CORES: usize = 2;
const URLS: u8 = 12;
/// Seconds per step; after six steps lurkers no longer wait for a fetch.
const STEP_S: u64 = 11;
const BEGIN_S: u64 = 1_000_000;

/// A purge.
#[derive(Debug, Clone, Copy)]
struct PurgeStep {
    /// Index of the condition.
    what: usize,
    is_soft: bool,
    /// The other core receives the purge later.
    is_late: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Purge(PurgeStep),
    /// The other core receives the delayed purges.
    Hear,
    Fetch(u8),
    Arrive(u8),
    Lurk(usize),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..CONDITIONS.len() + 2, any::<bool>(), any::<bool>())
            .prop_map(|(what, is_soft, is_late)| Step::Purge(PurgeStep { what, is_soft, is_late })),
        2 => Just(Step::Hear),
        5 => (0..URLS).prop_map(Step::Fetch),
        5 => (0..URLS).prop_map(Step::Arrive),
        6 => (0..CORES).prop_map(Step::Lurk),
        2 => Just(Step::Wait),
    ]
}

/// A stored page, as recorded in the complete list.
#[derive(Debug, Clone, Copy)]
struct Page {
    url: u8,
    since: u64,
    born_s: u64,
}

/// Returns whether an expression matches a page at a time in seconds; the last argument: requested by staff.
type Meaning = fn(Page, u64, bool) -> bool;
const CONDITIONS: [(&str, Meaning); 6] = [
    ("req.url == /1", |page, _, _| page.url == 1),
    ("req.url ~ ^/[0-4]$", |page, _, _| page.url <= 4),
    ("obj.http.x-type == odd", |page, _, _| page.url % 2 == 1),
    ("obj.http.x-type == even && req.url != /2", |page, _, _| page.url.is_multiple_of(2) && page.url != 2),
    ("obj.age > 30s", |page, at_s, _| at_s.saturating_sub(page.born_s) > 30),
    ("req.http.x-group == staff and req.url ~ [0-9]{2}", |page, _, is_staff| is_staff && page.url >= 10),
];

struct World {
    shards: Vec<Shard>,
    readers: Vec<Reader>,
    cores: Vec<Invalidations>,
    /// Purges that each core has received: number, index of the condition, and whether the purge is soft. The
    /// first index beyond the conditions means the tag 1, the next one all objects.
    heard: [Vec<(u64, usize, bool)>; CORES],
    kept_back: Vec<(Invalidation, usize)>,
    numbers: Numbers,
    now_s: u64,
    under_way: HashMap<u8, Page>,
    stored: HashMap<u8, Page>,
}

impl World {
    fn new() -> Self {
        let config = StoreConfig { cores: CORES, ..StoreConfig::default() };
        let (store, shards) = open_anon(&config).expect("a store");
        Self {
            readers: (0..CORES).map(|core| store.reader(core)).collect(),
            shards,
            cores: (0..CORES).map(|_| Invalidations::new(Table::default())).collect(),
            heard: Default::default(),
            kept_back: Vec::new(),
            numbers: Numbers::default(),
            now_s: BEGIN_S,
            under_way: HashMap::new(),
            stored: HashMap::new(),
        }
    }

    fn key(&self, url: u8) -> (Hash, Vec<u8>, usize) {
        let key = format!("a.example\0/{url}").into_bytes();
        let hash = self.shards[0].store().hash(&key);
        (hash, key, self.shards[0].store().owner(hash))
    }

    fn hear(&mut self, core: usize, invalidation: &Invalidation, what: usize) {
        assert_eq!(self.cores[core].apply(invalidation), Overflow::default());
        self.heard[core].push((invalidation.number, what, invalidation.is_soft));
    }

    fn purge(&mut self, PurgeStep { what, is_soft, is_late }: PurgeStep) {
        let number = self.numbers.next(self.now_s * 1000);
        let purged = match what.checked_sub(CONDITIONS.len()) {
            None => What::Ban(Ban::parse(CONDITIONS[what].0.as_bytes(), &[]).expect("one")),
            Some(0) => What::Tags([1].into()),
            Some(_) => What::All,
        };
        let invalidation = Invalidation { number, what: purged, is_soft };
        self.hear(0, &invalidation, what);
        if is_late {
            self.kept_back.push((invalidation, what));
        } else {
            self.hear(1, &invalidation, what);
        }
    }

    /// Returns the effect on a page of all purges that a core has received.
    fn verdict(&self, core: usize, page: Page, is_staff: bool) -> Verdict {
        let is_about = |number: u64, what: usize| match what.checked_sub(CONDITIONS.len()) {
            None => CONDITIONS[what].1(page, number / NUMBERS_A_SECOND, is_staff),
            // Every third page has the tag.
            Some(0) => page.url.is_multiple_of(3),
            Some(_) => true,
        };
        let later = self.heard[core]
            .iter()
            .filter(|(number, what, _)| *number > page.since && is_about(*number, *what));
        let verdict =
            later.map(|(number, _, is_soft)| if *is_soft { Verdict::Soft(*number) } else { Verdict::Hard });
        verdict.max().unwrap_or(Verdict::Valid)
    }

    fn fetch(&mut self, url: u8) {
        if !self.under_way.contains_key(&url) {
            let (_, _, owner) = self.key(url);
            let page = Page { url, since: self.cores[owner].fetch_begins(), born_s: self.now_s };
            self.under_way.insert(url, page);
        }
    }

    fn arrive(&mut self, url: u8) {
        let Some(page) = self.under_way.remove(&url) else { return };
        let (hash, key, owner) = self.key(url);
        self.cores[owner].fetch_ends(page.since);
        if self.cores[owner].has_walked_past(page.since) {
            // The ban may have been received late; the minute counts from the ban's own time.
            let is_long_ago = |number: u64| number / NUMBERS_A_SECOND + 60 <= self.now_s;
            let mut later = self.heard[owner].iter().filter(|(number, ..)| *number > page.since);
            assert!(later.any(|(number, ..)| is_long_ago(*number)), "it was not waited for");
            return;
        }
        let head = format!("HTTP/1.1 200 OK\r\nX-Type: {}\r\n", if url % 2 == 1 { "odd" } else { "even" });
        let meta = StoredMeta {
            born_s: page.born_s,
            status: 200,
            lifetime_s: 100_000,
            bans: page.since,
            head_bytes: head.len() as u32,
            ..BLANK
        };
        let new = NewObject {
            hash,
            key: &key,
            head: head.as_bytes(),
            extra: &if url.is_multiple_of(3) { tags::section(&[1]) } else { Vec::new() },
            meta: meta.pack(),
            body: BodyLength::Exact(0),
            expires_s: u32::MAX,
            now_s: 1,
        };
        self.shards[owner].insert(new, &[], &[]).expect("room");
        self.stored.insert(url, page);
    }

    /// Runs a round of a core's lurker, over one page of the index.
    fn lurk(&mut self, core: usize) {
        let bans = &self.cores[core];
        if let Some(from) = bans.walk(self.now_s * 1000) {
            let gone = RefCell::new(Vec::new());
            let swept = self.shards[core].sweep(from, 1, |object| {
                let is_to_go = bans.is_walked_down(object);
                if is_to_go {
                    let mut key = Vec::new();
                    object.key().copy_to(&mut key);
                    gone.borrow_mut().push(key);
                }
                is_to_go
            });
            bans.walked_to(swept.next, true);
            for url in 0..URLS {
                if gone.borrow().contains(&self.key(url).1) {
                    let page = self.stored.remove(&url).expect("it was stored");
                    assert_eq!(self.verdict(core, page, false), Verdict::Hard, "{page:?} went for nothing");
                }
            }
        }
        self.cores[core].drop_done_bans(CORES);
    }

    fn look(&self) {
        for core in 0..CORES {
            let turn = self.readers[core].turn();
            for url in 0..URLS {
                let (hash, key, _) = self.key(url);
                let found = turn.lookup(hash, &key);
                let (Some(page), Lookup::Hit(object)) = (self.stored.get(&url), found) else {
                    assert!(!self.stored.contains_key(&url), "{url} is stored");
                    continue;
                };
                for (is_staff, group) in [(false, "X-Group: none"), (true, "X-Group: staff")] {
                    let mut meta = StoredMeta::unpack(&object.meta()).expect("ours");
                    let said = with_request("GET /", group, |head| {
                        self.cores[core].judge(
                            &object,
                            &mut meta,
                            KeyHashes { own: hash, address: hash },
                            Some(&head.headers),
                            self.now_s,
                        )
                    });
                    assert_eq!(
                        said,
                        self.verdict(core, *page, is_staff),
                        "{page:?} on core {core}, {is_staff}"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_banned_is_shown_and_nothing_else_goes(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Purge(purge) => world.purge(purge),
                Step::Hear => {
                    for (invalidation, what) in std::mem::take(&mut world.kept_back) {
                        world.hear(1, &invalidation, what);
                    }
                }
                Step::Fetch(url) => world.fetch(url),
                Step::Arrive(url) => world.arrive(url),
                Step::Lurk(core) => world.lurk(core),
                Step::Wait => world.now_s += STEP_S,
            }
            world.look();
        }
    }
}
