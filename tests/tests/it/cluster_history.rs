//! Under load, with pauses, cuts and kills at random, no client gets an answer that was purged before its
//! request began.
//!
//! ```text
//!  clients ──▶ a, b, c ──▶ an origin whose pages are numbers        one purger: raise, purge everywhere, note when
//!              │ │ │                                                one that disturbs: SIGSTOP, a cut, SIGKILL
//!              └─┴─┴─ways─▶ three nats-servers                      afterwards: tests::purge_history
//! ```
//! `NIGHTTRAIN_SOAK_PURGES` is the number of purges: 60 by default, 1,000 in `make soak`.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Client, Request, ScriptedOrigin, eventually,
    nats_cluster::{NatsCluster, Way},
    pebble::free_ports,
    purge_history::{Event, stale},
};

const PURGES: usize = 60;
pub(crate) const OBJECTS: usize = 4;
const INSTANCES: usize = 3;
const CLIENTS_EACH: usize = 2;

/// Random numbers from a seed, so that a run can be repeated.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // xorshift64 (Marsaglia 2003)
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Starts an instance; with a `secret` it shares keys with the others.
fn start(
    origin: &ScriptedOrigin,
    way: &Way,
    index: usize,
    directory: &Path,
    secret: Option<&Path>,
) -> Accelerator {
    let setup = Accelerator::before(&origin.url())
        .flag("--cluster", &format!("nats://{}", way.address()))
        .flag("--cluster-name", &format!("i{index}"))
        .flag("--cluster-lease", "600ms")
        .flag("--memory", "16MiB")
        .store_in(&directory.join(format!("store{index}")), "64MiB");
    match secret {
        Some(secret) => {
            let [port] = free_ports();
            setup
                .flag("--peers-listen", &format!("127.0.0.1:{port}"))
                .flag("--peers-secret", secret.to_str().expect("a path"))
                .start()
        }
        None => setup.start(),
    }
}

/// Returns the number of purges to make.
pub(crate) fn purges() -> usize {
    std::env::var("NIGHTTRAIN_SOAK_PURGES")
        .map_or(PURGES, |text| text.parse().expect("NIGHTTRAIN_SOAK_PURGES is a number"))
}

/// Current versions of the pages.
pub(crate) type Versions = Arc<Vec<AtomicU64>>;

pub(crate) fn versions() -> Versions {
    Arc::new((0..OBJECTS).map(|_| AtomicU64::new(1)).collect())
}

/// Scripts an origin that serves the versions, with entity tags, fresh for ten minutes and usable stale for
/// ten more.
pub(crate) fn serve_versions(origin: &ScriptedOrigin, versions: &Versions) {
    for object in 0..OBJECTS {
        let versions = Arc::clone(versions);
        origin.on(&format!("/{object}"), move |seen, reply| {
            let version = versions[object].load(SeqCst);
            let etag = format!("\"{version}\"");
            let answer = match seen.header("if-none-match") {
                Some(known) if known == etag => Answer::new(304, ""),
                _ => Answer::new(200, version.to_string()),
            };
            // The answer is delayed after its version was read.
            thread::sleep(Duration::from_millis(version % 4 * 10));
            let lasts = "max-age=600, stale-while-revalidate=600, stale-if-error=600";
            reply.answer(&answer.header("Cache-Control", lasts).header("ETag", &etag))
        });
    }
}

fn page(object: usize) -> Request {
    Request::get(&format!("/{object}")).header("Host", "shop.example")
}

/// Requests pages over and over. Returns the answers with the times at which the requests began.
pub(crate) fn ask(
    address: &Mutex<SocketAddr>,
    index: usize,
    seed: u64,
    began: Instant,
    stop: &AtomicBool,
) -> Vec<Event> {
    let (mut chance, mut events, mut client) = (Chance(seed), Vec::new(), None);
    while !stop.load(SeqCst) {
        let object = usize::try_from(chance.below(OBJECTS as u64)).expect("few");
        let to = *address.lock().expect("no thread panics with it");
        let Some(mut connection) = client.take().or_else(|| Client::try_connect(to).ok()) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let begun_ns = u64::try_from(began.elapsed().as_nanos()).expect("short");
        if connection.try_send(&page(object).bytes()).is_err() {
            continue;
        }
        let Some(answer) = connection.try_response("GET") else { continue };
        if let (200, Ok(version)) = (answer.status(), answer.text().parse()) {
            events.push(Event::Answered { instance: index, object, version, begun_ns });
        }
        client = Some(connection);
        thread::sleep(Duration::from_millis(1));
    }
    events
}

/// Changes pages, purges them everywhere, and records when that was acknowledged.
pub(crate) fn purge_at_random(
    admin: SocketAddr,
    versions: &Versions,
    mut chance: Chance,
    began: Instant,
    purges: usize,
) -> Vec<Event> {
    let (mut events, mut refused, mut taken) = (Vec::new(), 0, Vec::new());
    while events.len() < purges {
        let object = usize::try_from(chance.below(OBJECTS as u64)).expect("few");
        let version = versions[object].fetch_add(1, SeqCst) + 1;
        let asked = Instant::now();
        let target = format!("/purge?url=http://shop.example/{object}&everywhere");
        let purge = Request::new("POST", &target).header("Host", &admin.to_string());
        let answer = tests::client::fetch(admin, &purge);
        if answer.status() == 200 {
            let acknowledged_ns = u64::try_from(began.elapsed().as_nanos()).expect("short");
            events.push(Event::Purged { object, version, acknowledged_ns });
            taken.push(asked.elapsed());
        } else {
            refused += 1;
            assert!(refused < purges + 20, "purges are refused: {}", answer.text());
        }
        thread::sleep(Duration::from_millis(chance.below(30)));
    }
    taken.sort();
    let (median, worst) = (taken[taken.len() / 2], taken[taken.len() - 1]);
    println!(
        "{purges} purges, {refused} not acknowledged; acknowledged after {median:?} (median), {worst:?} (worst)"
    );
    events
}

/// Disturbs an instance in one way, and then repairs it.
fn disturb(
    chance: &mut Chance,
    instances: &Mutex<Vec<Accelerator>>,
    ways: &[Way],
    again: impl Fn(usize) -> Accelerator,
    addresses: &[Mutex<SocketAddr>],
) {
    // The first instance makes the purges, so it is not disturbed.
    let index = 1 + usize::try_from(chance.below(INSTANCES as u64 - 1)).expect("few");
    let pause = Duration::from_millis(50 + chance.below(1_200));
    match chance.below(5) {
        0 | 1 => {
            instances.lock().expect("no thread panics with it")[index].signal(Signal::STOP);
            thread::sleep(pause);
            instances.lock().expect("no thread panics with it")[index].signal(Signal::CONT);
        }
        2 | 3 => {
            ways[index].cut();
            thread::sleep(pause);
            ways[index].open();
        }
        _ => {
            let mut instances = instances.lock().expect("no thread panics with it");
            instances[index].signal(Signal::KILL);
            instances[index].wait();
            thread::sleep(pause / 4);
            // The store's lock is free once the process has ended.
            instances[index] = again(index);
            *addresses[index].lock().expect("no thread panics with it") = instances[index].address();
        }
    }
    thread::sleep(Duration::from_millis(chance.below(400)));
}

#[test]
fn a38_nobody_gets_what_was_purged_before_they_asked() {
    nobody_gets_what_was_purged(false);
}

#[test]
fn a38_nobody_gets_it_of_a_peer_either() {
    nobody_gets_what_was_purged(true);
}

fn nobody_gets_what_was_purged(is_shared: bool) {
    let Some(cluster) = NatsCluster::start() else { return };
    let purges = purges();
    let versions = versions();
    let origin = ScriptedOrigin::start();
    serve_versions(&origin, &versions);
    let directory = tempfile::tempdir().expect("a directory");
    let ways: Vec<Way> = (0..INSTANCES).map(|index| Way::to(cluster.address(index))).collect();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "a-secret-of-more-than-16-letters").expect("written");
    let shared = is_shared.then_some(&*secret);
    let again = |index: usize| start(&origin, &ways[index], index, directory.path(), shared);
    let instances: Mutex<Vec<Accelerator>> = Mutex::new((0..INSTANCES).map(again).collect());
    let addresses: Vec<Mutex<SocketAddr>> = instances
        .lock()
        .expect("no thread panics with it")
        .iter()
        .map(|instance| {
            eventually("it has joined", || instance.stat().document()["cluster"]["joins"] != 0);
            Mutex::new(instance.address())
        })
        .collect();
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let seed = u64::from(std::process::id()) << 20 | 1;
    println!("seed {seed}");
    let admin = instances.lock().expect("no thread panics with it")[0].admin();
    let history = thread::scope(|scope| {
        let clients: Vec<_> = (0..INSTANCES * CLIENTS_EACH)
            .map(|number| {
                let (index, stop) = (number % INSTANCES, &stop);
                let address = &addresses[index];
                scope.spawn(move || ask(address, index, seed + number as u64, began, stop))
            })
            .collect();
        let disturber = scope.spawn(|| {
            let mut chance = Chance(seed * 31);
            while !stop.load(SeqCst) {
                disturb(&mut chance, &instances, &ways, again, &addresses);
            }
        });
        let mut events = purge_at_random(admin, &versions, Chance(seed * 17), began, purges);
        stop.store(true, SeqCst);
        disturber.join().expect("it does not fail");
        for client in clients {
            events.extend(client.join().expect("it does not fail"));
        }
        println!("{} answers", events.len() - purges);
        events
    });
    let found = stale(&history);
    assert!(found.is_empty(), "{} stale answers: {:?}", found.len(), &found[..found.len().min(10)]);
    let hits: u64 = instances
        .lock()
        .expect("no thread panics with it")
        .iter()
        .map(|instance| instance.stat().count("requests.hits"))
        .sum();
    assert!(hits > 0, "nothing was answered from the store");
    let of_peers: u64 = instances
        .lock()
        .expect("no thread panics with it")
        .iter()
        .map(|instance| instance.stat().count("cluster.peers_served"))
        .sum();
    assert_eq!(of_peers > 0, is_shared, "{of_peers} answers of peers");
}

/// Measures how long a purge takes until it holds on three instances, alternating with a bare publish that
/// the same servers store three times. Run by hand (`--ignored`): it checks nothing.
#[test]
#[ignore = "a measurement"]
fn a38_the_time_of_a_purge_everywhere_is_measured() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = ScriptedOrigin::start();
    let instances: Vec<Accelerator> = (0..INSTANCES)
        .map(|index| {
            let url = format!("nats://{}", cluster.address(index));
            let name = format!("i{index}");
            let setup =
                Accelerator::before(&origin.url()).flag("--cluster", &url).flag("--cluster-name", &name);
            setup.start()
        })
        .collect();
    for instance in &instances {
        eventually("it has joined", || instance.stat().count("cluster.joins") > 0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let context = runtime.block_on(async {
        let client = async_nats::connect(cluster.address(0).to_string()).await.expect("it is let in");
        let context = async_nats::jetstream::new(client);
        let config = async_nats::jetstream::stream::Config {
            name: "BARE".to_owned(),
            num_replicas: 3,
            ..Default::default()
        };
        context.create_stream(config).await.expect("it is made");
        context
    });
    let admin = instances[0].admin();
    let mut connection = Client::connect(admin);
    let (mut bare, mut purges, mut local, mut told) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..1_100 {
        let began = Instant::now();
        runtime.block_on(async {
            let kept = context.publish("BARE", "x".repeat(120).into()).await.expect("it is sent");
            kept.await.expect("it is kept");
        });
        let published = began.elapsed();
        let mut purge = |how: &str| {
            let began = Instant::now();
            let target = format!("/purge?tag=t{round}{how}");
            let purge = Request::new("POST", &target).header("Host", &admin.to_string());
            connection.exchange(&purge).expect_status(200);
            began.elapsed()
        };
        let [everywhere, of_local, of_told] = ["&everywhere", "&local", ""].map(&mut purge);
        // The first purges wait until all possible instances are known.
        if round >= 100 {
            bare.push(published);
            purges.push(everywhere);
            local.push(of_local);
            told.push(of_told);
        }
    }
    for (what, times) in [
        ("bare publish", &mut bare),
        ("purge here alone", &mut local),
        ("purge here, and told", &mut told),
        ("purge everywhere", &mut purges),
    ] {
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!("{what}: p50 {:?} p90 {:?} p99 {:?} worst {:?}", at(0.5), at(0.9), at(0.99), at(1.0));
    }
}
