//! Three nats-servers, three instances and the origin, each in a network namespace with an interface at one
//! switch. Any two are cut off from each other, machines are slow, processes are stopped or killed.
//!
//! ```text
//!  machine  0, 1, 2: nats-servers     3, 4, 5: instances, with their clients     6: the origin
//! ```
//! No client of any instance gets an answer that was purged before its request began. Where namespaces are
//! not available, the test says so, and only [`crate::cluster_history`] checks this, on loopback.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tests::{
    Accelerator, ScriptedOrigin, eventually,
    nats_cluster::{NatsCluster, SERVERS},
    network::Network,
    purge_history::stale,
};

use crate::cluster_history::{Chance, ask, purge_at_random, purges, serve_versions, versions};

const INSTANCES: usize = 3;
const CLIENTS_EACH: usize = 2;
/// Machine of the first instance.
const FIRST: usize = SERVERS;
const ORIGIN: usize = SERVERS + INSTANCES;
/// Port at which instances ask each other.
const PEERS_PORT: u16 = 6080;
/// Bandwidth of a slow machine: an instance's heartbeat takes some ten milliseconds.
const SLOW_KILOBITS: u32 = 256;

fn start(network: &Network, cluster: &str, origin: &str, index: usize, directory: &Path) -> Accelerator {
    let secret = directory.join("secret");
    let setup = Accelerator::before(origin)
        .flag("--cluster", cluster)
        .flag("--cluster-name", &format!("i{index}"))
        .flag("--cluster-lease", "600ms")
        .flag("--memory", "16MiB")
        .flag("--peers-listen", &format!("{}:{PEERS_PORT}", network.address(FIRST + index)))
        .flag("--peers-secret", secret.to_str().expect("a path"))
        .store_in(&directory.join(format!("store{index}")), "64MiB");
    network.on(FIRST + index, || setup.start())
}

/// Everything that runs and can be disturbed.
struct Running<'a> {
    network: &'a Network,
    cluster: Mutex<NatsCluster>,
    instances: Mutex<Vec<Accelerator>>,
    addresses: Vec<Mutex<SocketAddr>>,
    again: &'a (dyn Fn(usize) -> Accelerator + Sync),
}

impl Running<'_> {
    /// Disturbs something in one way, repairs it, and returns what it was.
    fn disturb(&self, chance: &mut Chance) -> &'static str {
        let mut one_of = |count: usize| usize::try_from(chance.below(count as u64)).expect("few");
        // The first instance makes the purges, so it is not disturbed.
        let (instance, server, other) = (1 + one_of(INSTANCES - 1), one_of(SERVERS), one_of(SERVERS - 1));
        let kind = one_of(8);
        let pause = Duration::from_millis(50 + chance.below(1_200));
        let (machine, peer) = (FIRST + instance, FIRST + (instance + 1) % INSTANCES);
        let between = |one: usize, other: usize| {
            self.network.cut(one, other);
            thread::sleep(pause);
            self.network.mend(one, other);
        };
        let what = match kind {
            0 => {
                self.instances.lock().expect("no thread panics with it")[instance].signal(Signal::STOP);
                thread::sleep(pause);
                self.instances.lock().expect("no thread panics with it")[instance].signal(Signal::CONT);
                "an instance was stopped"
            }
            1 => {
                let mut instances = self.instances.lock().expect("no thread panics with it");
                instances[instance].signal(Signal::KILL);
                instances[instance].wait();
                thread::sleep(pause / 4);
                instances[instance] = (self.again)(instance);
                let mut address = self.addresses[instance].lock().expect("no thread panics with it");
                *address = instances[instance].address();
                "an instance was killed"
            }
            2 => {
                between(machine, server);
                "an instance and a server were cut off from each other"
            }
            3 => {
                (0..SERVERS).for_each(|server| self.network.cut(machine, server));
                thread::sleep(pause);
                (0..SERVERS).for_each(|server| self.network.mend(machine, server));
                "an instance was cut off from all servers"
            }
            4 => {
                between(machine, peer);
                "two instances were cut off from each other"
            }
            5 => {
                between(server, (server + 1 + other) % SERVERS);
                "two servers were cut off from each other"
            }
            6 => {
                let mut cluster = self.cluster.lock().expect("no thread panics with it");
                cluster.kill(server);
                thread::sleep(pause);
                cluster.begin(server);
                "a server was killed"
            }
            _ => {
                let slow = [machine, server][other];
                self.network.slow(slow, Some(SLOW_KILOBITS));
                thread::sleep(pause);
                self.network.slow(slow, None);
                "a machine was slow"
            }
        };
        thread::sleep(Duration::from_millis(chance.below(400)));
        what
    }
}

#[test]
fn a38_purged_objects_stay_purged_in_network_partitions() {
    let machines = u8::try_from(ORIGIN + 1).expect("few");
    let Some(network) = Network::laid(machines).map(Arc::new) else { return };
    let Some(cluster) = NatsCluster::start_on(&network) else { return };
    let (purges, versions) = (purges(), versions());
    let origin =
        network.on(ORIGIN, || ScriptedOrigin::start_at(SocketAddr::from((network.address(ORIGIN), 0))));
    serve_versions(&origin, &versions);
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("secret"), "a-secret-of-more-than-16-letters").expect("written");
    let (urls, origin_url) = (cluster.urls(), origin.url());
    let again = |index: usize| start(&network, &urls, &origin_url, index, directory.path());
    let instances: Vec<Accelerator> = (0..INSTANCES).map(again).collect();
    for (index, instance) in instances.iter().enumerate() {
        let joins = || network.on(FIRST + index, || instance.stat().count("cluster.joins"));
        eventually("it has joined", || joins() > 0);
    }
    let admin = instances[0].admin();
    let addresses = instances.iter().map(|instance| Mutex::new(instance.address())).collect();
    let (cluster, instances) = (Mutex::new(cluster), Mutex::new(instances));
    let running = Running { network: &network, cluster, instances, addresses, again: &again };
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let seed = u64::from(std::process::id()) << 20 | 1;
    println!("seed {seed}");
    let history = thread::scope(|scope| {
        let clients: Vec<_> = (0..INSTANCES * CLIENTS_EACH)
            .map(|number| {
                let (index, stop, network) = (number % INSTANCES, &stop, &network);
                let address = &running.addresses[index];
                scope.spawn(move || {
                    network.move_to(FIRST + index);
                    ask(address, index, seed + number as u64, began, stop)
                })
            })
            .collect();
        let disturber = scope.spawn(|| {
            let (mut chance, mut counts) = (Chance(seed * 31), std::collections::BTreeMap::new());
            while !stop.load(SeqCst) {
                *counts.entry(running.disturb(&mut chance)).or_insert(0) += 1;
            }
            counts
        });
        let mut events =
            network.on(FIRST, || purge_at_random(admin, &versions, Chance(seed * 17), began, purges));
        stop.store(true, SeqCst);
        for (what, count) in disturber.join().expect("it does not fail") {
            println!("{count} times {what}");
        }
        for client in clients {
            events.extend(client.join().expect("it does not fail"));
        }
        println!("{} answers", events.len() - purges);
        events
    });
    let found = stale(&history);
    assert!(found.is_empty(), "{} stale answers: {:?}", found.len(), &found[..found.len().min(10)]);
    let instances = running.instances.into_inner().expect("no thread panics with it");
    let sum = |name: &str| -> u64 {
        let of = |(index, one): (usize, &Accelerator)| network.on(FIRST + index, || one.stat().count(name));
        instances.iter().enumerate().map(of).sum()
    };
    assert!(sum("requests.hits") > 0, "nothing was answered from the store");
    assert!(sum("cluster.peers_served") > 0, "no instance asked another");
}
