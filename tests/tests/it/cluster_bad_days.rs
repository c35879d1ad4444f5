//! Clusters on bad days: instances that are admitted or refused, streams and buckets that others have made or
//! restored, and clusters that are full, slow, or unreachable for long.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use async_nats::jetstream::{
    self, kv,
    stream::{Config as StreamConfig, DiscardPolicy, RetentionPolicy},
};
use cluster::{
    Cluster, Config, ExecuteError, InstanceOutcome, InstancePurgeState, LiveInstance, Purge, PurgeExecutor,
    PurgeSelection, Scope,
};
use engine::cores::clock;
use tests::{
    Accelerator,
    certificate::{Authority, Certificate},
    eventually,
    nats_cluster::{NatsCluster, SERVERS, Way},
};

use crate::{
    nats_operator::Operator,
    several::{
        LEASE, Numbered, block_on, get, is_hit, is_joined, jetstream, look, must_purge_everywhere,
        purge_everywhere, setup, start, store, until_joined, url, version,
    },
};

const PURGES: &str = "NIGHTTRAIN_PURGES";
const INSTANCES: &str = "NIGHTTRAIN_INSTANCES";
/// Duration of a cut: seconds here, a minute in the soak.
const CUT: Duration = Duration::from_secs(3);
const CUT_SOAK: Duration = Duration::from_secs(60);

/// Waits until an instance reports this state of its cluster, and prints the states before it.
fn until_said(instance: &Accelerator, words: &str) {
    let mut said = String::new();
    eventually(words, || {
        let now = look(instance)["state"].as_str().unwrap_or_default().to_owned();
        if now != said {
            println!("{now}");
            said = now;
        }
        said.contains(words)
    });
}

/// Checks that two instances with these flags join the cluster and receive each other's purges.
fn are_let_in(cluster: &NatsCluster, scheme: &str, flags: &[(&str, &Path)]) {
    let origin = Numbered::start();
    let servers: Vec<String> =
        (0..SERVERS).map(|index| format!("{scheme}://{}", cluster.address(index))).collect();
    let [a, b] = ["a", "b"].map(|name| {
        let setup = setup(&origin, &servers.join(","), name);
        let setup = flags
            .iter()
            .fold(setup, |setup, (flag, file)| setup.flag(flag, file.to_str().expect("a path in UTF-8")));
        let instance = setup.start();
        until_joined(&instance);
        instance
    });
    store(&b, "/p");
    let version_now = origin.raise();
    must_purge_everywhere(&a, &[&url("/p")]);
    assert_eq!(version(&b, "/p"), version_now);
}

/// An instance without a server: records the purges that it should carry out.
#[derive(Default)]
struct Noting {
    purged: Mutex<Vec<String>>,
    lease_until_ms: AtomicU64,
}

impl PurgeExecutor for Noting {
    fn carry_out(&self, purge: &Purge) -> Result<(), ExecuteError> {
        self.purged.lock().expect("no thread panics with it").push(format!("{:?}", purge.what));
        Ok(())
    }

    fn mark_all_unverified(&self) -> Result<(), ExecuteError> {
        Ok(())
    }

    fn set_lease(&self, boot_ms: Option<u64>) {
        self.lease_until_ms.store(boot_ms.expect("it has a lease"), SeqCst);
    }

    fn note_begun(&self, _: u64, _: u64) {}

    fn note_applied(&self, _: u64, _: u64) {}

    fn repeats_own_purges(&self) -> bool {
        false
    }

    fn members_changed(&self, _: &[LiveInstance]) {}
}

/// Clocks that differ do no harm: one instance's clock is stepped a minute ahead and then two minutes back.
/// That instance runs in this process, because a process can only step its own clock.
#[test]
fn a38_clocks_that_are_apart_do_no_harm() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let a = start(&origin, &cluster.urls(), "a");
    let server = Arc::new(Noting::default());
    let servers = cluster.urls().split(',').map(str::to_owned).collect();
    let config = Config { lease: LEASE, ..Config::new(servers, "apart".parse().expect("a name")) };
    let apart = Cluster::start(config, Arc::clone(&server) as Arc<dyn PurgeExecutor>).expect("started");
    eventually("it has joined", || apart.status().is_joined);
    for step_s in [60, -120, 60] {
        clock::step_unix_time(step_s);
        store(&a, "/p");
        let version_now = origin.raise();
        let said = must_purge_everywhere(&a, &[&url("/p")]);
        assert!(said.contains("apart has applied the purge"), "{said}");
        assert_eq!(version(&a, "/p"), version_now);
        assert!(server.purged.lock().expect("no panic").last().is_some_and(|what| what.contains("/p")));
        store(&a, "/p");
        let version_now = origin.raise();
        let purge = Purge { what: PurgeSelection::Url(url("/p")), is_soft: false };
        let told = apart.request_purge(purge, true, Scope::Everywhere, apart.settle_time());
        let outcome = told.blocking_recv().expect("an answer").expect("told");
        let applied = |of: &InstanceOutcome| of.standing == InstancePurgeState::Applied;
        assert!(outcome.instances.len() == 2 && outcome.instances.iter().all(applied), "{outcome:?}");
        assert_eq!(version(&a, "/p"), version_now);
        assert!(server.lease_until_ms.load(SeqCst) > clock::boot_ms(), "it may serve on");
    }
}

#[test]
fn a38_the_cluster_accepts_an_nkey_or_credentials() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| directory.path().join(name);
    let pair = nkeys::KeyPair::new_user();
    fs::write(file("seed"), pair.seed().expect("a seed")).expect("written");
    let lines = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", pair.public_key());
    let Some(cluster) = NatsCluster::start_with(&lines) else { return };
    are_let_in(&cluster, "nats", &[("--cluster-nkey", &file("seed"))]);
    drop(cluster);

    let operator = Operator::new(&file("creds"), false).expect("an operator");
    let cluster = NatsCluster::start_with(&operator.lines).expect("it was there");
    are_let_in(&cluster, "nats", &[("--cluster-credentials", &file("creds"))]);
}

#[test]
fn a38_the_cluster_accepts_our_client_certificate() {
    let servers = Certificate::of(&["127.0.0.11", "127.0.0.12", "127.0.0.13"]);
    let clients = Authority::named("clients");
    let ours = clients.signs("web", 2099);
    let lines = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        servers.file().display(),
        servers.key().display(),
        clients.file().display()
    );
    let Some(cluster) = NatsCluster::start_with(&lines) else { return };
    let ca = servers.file();
    are_let_in(
        &cluster,
        "tls",
        &[("--cluster-tls-ca", &ca), ("--cluster-tls-cert", &ours), ("--cluster-tls-key", &ours)],
    );
    // An instance without a certificate is refused, and one that trusts another CA does not connect.
    let origin = Numbered::start();
    let at = format!("tls://{}", cluster.address(0));
    let other = clients.file();
    for (trusted, says) in [(&ca, "CertificateRequired"), (&other, "invalid peer certificate")] {
        let trusted = trusted.to_str().expect("a path in UTF-8");
        let a = setup(&origin, &at, "a").flag("--cluster-tls-ca", trusted).start();
        until_said(&a, says);
        assert!(!is_joined(&a));
        assert_eq!(version(&a, "/p"), 1);
    }
}

#[test]
fn a38_expired_credentials_are_reported_as_expired() {
    let directory = tempfile::tempdir().expect("a directory");
    let creds = directory.path().join("creds");
    let operator = Operator::new(&creds, true).expect("an operator");
    let Some(cluster) = NatsCluster::start_with(&operator.lines) else { return };
    let origin = Numbered::start();
    let a = setup(&origin, &cluster.urls(), "a")
        .flag("--cluster-credentials", creds.to_str().expect("a path in UTF-8"))
        .start();
    until_said(&a, "the user's JWT expired at 2001-09-09T01:46:40Z: a new one is needed");
    assert_eq!(version(&a, "/p"), 1);
}

/// Makes a stream before any of our instances starts.
fn make(cluster: &NatsCluster, config: StreamConfig) {
    block_on(async {
        let context = jetstream(cluster).await;
        // The servers must elect a leader first.
        for _ in 0..100 {
            if context.create_stream(config.clone()).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the stream cannot be made");
    });
}

fn of_purges() -> StreamConfig {
    StreamConfig { name: PURGES.to_owned(), subjects: vec![PURGES.to_owned()], ..StreamConfig::default() }
}

#[test]
fn a38_a_purge_reports_a_full_stream() {
    let Some(cluster) = NatsCluster::start() else { return };
    // A stream of the operator's that refuses new messages rather than drop old ones, with room for two joins
    // and one purge.
    make(&cluster, StreamConfig { discard: DiscardPolicy::New, max_messages: 3, ..of_purges() });
    let origin = Numbered::start();
    let [a, b] = ["a", "b"].map(|name| start(&origin, &cluster.urls(), name));
    store(&b, "/p");
    must_purge_everywhere(&a, &["--tag", "x"]);
    let version_now = origin.raise();
    let (is_done, said) = purge_everywhere(&a, &[&url("/p")]);
    assert!(
        !is_done && said.contains("purged here; ") && said.contains("maximum messages exceeded"),
        "{said}"
    );
    assert_eq!(version(&a, "/p"), version_now, "it holds here");
    // The stream has room again.
    block_on(async {
        let stream = jetstream(&cluster).await.get_stream(PURGES).await.expect("it is there");
        stream.purge().await.expect("it is emptied");
    });
    eventually("it is taken", || purge_everywhere(&a, &[&url("/p")]).0);
    assert_eq!(version(&b, "/p"), version_now);
}

#[test]
fn a38_an_existing_stream_is_used_or_rejected() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    for (config, says) in [
        (
            StreamConfig { retention: RetentionPolicy::Interest, ..of_purges() },
            "has an unsuitable configuration",
        ),
        (StreamConfig { subjects: vec!["other".to_owned()], ..of_purges() }, "is not ours"),
    ] {
        make(&cluster, config);
        let a = setup(&origin, &cluster.urls(), "a").start();
        until_said(&a, says);
        assert_eq!(version(&a, "/p"), 1, "it serves");
        assert!(!is_hit(&get(&a, "/p")));
        block_on(async { jetstream(&cluster).await.delete_stream(PURGES).await.expect("it was there") });
        until_joined(&a);
        block_on(async { jetstream(&cluster).await.delete_stream(PURGES).await.expect("it is there again") });
    }
    // A stream on one server, in memory, with a shorter lifetime: that is the operator's choice.
    make(
        &cluster,
        StreamConfig {
            storage: jetstream::stream::StorageType::Memory,
            max_messages: 1000,
            max_age: Duration::from_secs(3600),
            ..of_purges()
        },
    );
    let [b, c] = ["b", "c"].map(|name| start(&origin, &cluster.urls(), name));
    store(&c, "/p");
    let version_now = origin.raise();
    must_purge_everywhere(&b, &[&url("/p")]);
    assert_eq!(version(&c, "/p"), version_now);
    drop((b, c));

    // A bucket that drops a heartbeat before its lease expires.
    block_on(async {
        let context = jetstream(&cluster).await;
        context.delete_key_value(INSTANCES).await.expect("it was there");
        let short = kv::Config {
            bucket: INSTANCES.to_owned(),
            max_age: Duration::from_secs(2),
            ..kv::Config::default()
        };
        context.create_key_value(short).await.expect("it is made");
    });
    let d = setup(&origin, &cluster.urls(), "d").start();
    until_said(&d, "values expire after");
    assert_eq!(version(&d, "/p"), version_now);
}

/// All servers stop, and come back with copies of their files from before the last purges.
#[test]
fn a38_a_restored_cluster_brings_no_object_back() {
    let Some(mut cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let [a, b] = ["a", "b"].map(|name| start(&origin, &cluster.urls(), name));
    must_purge_everywhere(&a, &["--tag", "first"]);
    (0..SERVERS).for_each(|index| cluster.kill(index));
    let copy = tempfile::tempdir().expect("a directory");
    copy_all(cluster.files(), copy.path());
    (0..SERVERS).for_each(|index| cluster.begin(index));
    [&a, &b].into_iter().for_each(until_joined);
    [&a, &b].into_iter().for_each(|one| store(one, "/p"));
    let version_now = origin.raise();
    must_purge_everywhere(&a, &[&url("/p")]);
    (0..SERVERS).for_each(|index| cluster.kill(index));
    copy_all(copy.path(), cluster.files());
    (0..SERVERS).for_each(|index| cluster.begin(index));
    for one in [&a, &b] {
        assert_eq!(version(one, "/p"), version_now);
    }
    [&a, &b].into_iter().for_each(until_joined);
    let version_now = origin.raise();
    eventually("a purge holds everywhere", || purge_everywhere(&b, &[&url("/p")]).0);
    for one in [&a, &b] {
        assert_eq!(version(one, "/p"), version_now);
    }
    let doubts: u64 = [&a, &b].into_iter().map(|one| one.stat().count("cluster.doubts")).sum();
    assert!(doubts >= 1, "sequences that were had already come again");
}

/// Copies a directory over another.
fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let there = to.join(entry.file_name());
        if entry.file_type().expect("its type").is_dir() {
            let _ = fs::remove_dir_all(&there);
            fs::create_dir(&there).expect("made");
            copy_all(&entry.path(), &there);
        } else {
            fs::copy(entry.path(), &there).expect("copied");
        }
    }
}

#[test]
fn a38_a_slow_cluster_delays_purges_without_stale_hits() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let ways = [0, 1].map(|index| Way::to(cluster.address(index)));
    let [a, b] = ["a", "b"].map(|name| {
        let way = &ways[usize::from(name == "b")];
        start(&origin, &format!("nats://{}", way.address()), name)
    });
    // A delay of a quarter of the lease, and then of more than it: then no stored answer is served without
    // validation.
    for (delay, may_hit) in [(Duration::from_millis(60), true), (Duration::from_millis(1500), false)] {
        ways.iter().for_each(|way| way.delay(delay));
        if may_hit {
            [&a, &b].into_iter().for_each(|one| store(one, "/p"));
        } else {
            eventually("its lease is out", || !is_hit(&get(&b, "/p")));
        }
        let version_now = origin.raise();
        if may_hit {
            must_purge_everywhere(&a, &[&url("/p")]);
        } else {
            purge_everywhere(&a, &[&url("/p")]);
        }
        for one in [&a, &b] {
            assert_eq!(version(one, "/p"), version_now, "{delay:?}");
        }
    }
    ways.iter().for_each(|way| way.delay(Duration::ZERO));
    [&a, &b].into_iter().for_each(until_joined);
    must_purge_everywhere(&a, &[&url("/p")]);
}

/// After a cut of a minute (in the soak), the purges made meanwhile are in force within a second of its end.
#[test]
fn a38_missed_purges_apply_right_after_a_long_cut() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let way = Way::to(cluster.address(1));
    let a = start(&origin, &cluster.urls(), "a");
    let b = start(&origin, &format!("nats://{}", way.address()), "b");
    let paths: Vec<String> = (0..20).map(|number| format!("/p{number}")).collect();
    paths.iter().for_each(|path| store(&b, path));
    way.cut();
    let cut = if std::env::var_os("NIGHTTRAIN_SOAK_PURGES").is_some() { CUT_SOAK } else { CUT };
    thread::sleep(cut);
    origin.raise();
    for path in &paths {
        must_purge_everywhere(&a, &[&url(path)]);
    }
    way.open();
    let opened = Instant::now();
    eventually("it has joined again", || is_joined(&b));
    println!("after a cut of {cut:?}: joined, and all carried out, {:?} after its end", opened.elapsed());
    for path in &paths {
        assert_eq!(version(&b, path), origin.version.load(SeqCst), "{path}");
    }
    store(&b, &paths[0]);
}
