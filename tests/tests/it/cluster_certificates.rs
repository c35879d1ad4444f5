//! Shared ACME certificates: several accelerators on a real cluster of three nats-servers share one account
//! at an authority (Pebble), order each certificate once, and answer each other's challenges.

use std::{
    fs,
    path::{Path, PathBuf},
};

use async_nats::jetstream::kv;
use futures_util::TryStreamExt as _;
use rustix::process::Signal;
use tests::{Accelerator, accelerator::Setup, eventually, nats_cluster::NatsCluster, pebble::Pebble};

use crate::{
    acme::{LONG_S, Place, error, files_below, serial},
    several::{block_on, jetstream, look, until_joined},
};

const SECRET: &str = "a-secret-of-twenty-four!\n";
const BUCKET: &str = "NIGHTTRAIN_CERTIFICATES";

/// Accelerators that share a cluster and its secret.
struct Company {
    cluster: NatsCluster,
    directory: tempfile::TempDir,
}

impl Company {
    fn start() -> Option<Self> {
        let cluster = NatsCluster::start()?;
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("secret"), SECRET).expect("written");
        Some(Self { cluster, directory })
    }

    fn secret(&self) -> PathBuf {
        self.directory.path().join("secret")
    }

    /// Adds the flags of an instance with this name.
    fn with(&self, setup: Setup, name: &str, secret: &Path) -> Setup {
        setup
            .flag("--cluster", &self.cluster.urls())
            .flag("--cluster-name", name)
            .flag("--cluster-lease", "1s")
            .flag("--cluster-secret", secret.to_str().expect("a path"))
    }

    fn join(&self, setup: Setup, name: &str) -> Accelerator {
        let accelerator = self.with(setup, name, &self.secret()).start();
        until_joined(&accelerator);
        accelerator
    }

    async fn bucket(&self) -> Option<kv::Store> {
        jetstream(&self.cluster).await.get_key_value(BUCKET).await.ok()
    }

    /// Returns the keys of the bucket; none while there is no bucket.
    fn keys(&self) -> Vec<String> {
        block_on(async {
            let keys = self.bucket().await?.keys().await.ok()?;
            keys.try_collect().await.ok()
        })
        .unwrap_or_default()
    }

    /// Returns the name of the instance that holds the lease to order.
    fn holder(&self) -> Option<String> {
        block_on(async {
            let turn = self.bucket().await?.get("turn").await.expect("read")?;
            let turn: serde_json::Value = serde_json::from_slice(&turn).expect("JSON");
            Some(turn["name"].as_str().expect("a name").to_owned()).filter(|name| !name.is_empty())
        })
    }
}

fn is_in(directory: &Path, what: &[u8]) -> bool {
    let holds = |path: &PathBuf| {
        fs::read(path).is_ok_and(|content| content.windows(what.len()).any(|window| window == what))
    };
    files_below(directory.to_owned()).iter().any(holds)
}

/// The authority validates at an instance that has not ordered, and all instances show the certificate that
/// one obtained.
#[test]
fn a36_every_instance_answers_challenges_and_shows_the_certificate() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let Some(company) = Company::start() else { return };
        let [a, b, c] = std::array::from_fn(|_| Place::new());
        let Some(pebble) = Pebble::start(c.ports, LONG_S, &[]) else { return };
        let root = pebble.root();
        let setup =
            |place: &Place, domains: &str| place.with(&pebble, domains).flag("--acme-challenge", challenge);
        let _at_c = company.join(setup(&c, "c.example"), "c");
        eventually("the first one's certificate is shown", || c.is_shown(&root, "c.example"));
        let both = [(&a, "a"), (&b, "b")].map(|(place, name)| company.join(setup(place, "a.example"), name));
        for (place, accelerator) in [&a, &b].into_iter().zip(&both) {
            eventually("the certificate is shown", || place.is_shown(&root, "a.example"));
            assert_eq!(error(accelerator, "a.example"), "");
            assert_eq!(look(accelerator)["shared"], "the shared vault is open");
        }
        assert_eq!(serial(a.ports, "a.example"), serial(b.ports, "a.example"));
        assert_eq!(pebble.orders(), 2, "one for each name: {}", both[0].printed());
        assert_eq!(pebble.said("There are now 2 accounts"), 0, "one account");
        let [of_a, of_b] = [&a, &b].map(|place| fs::read(place.file("a.example.pem")).expect("a file"));
        assert!(of_a == of_b && of_a.starts_with(b"-----BEGIN PRIVATE KEY"));
        assert!(!is_in(company.cluster.files(), b"PRIVATE KEY"), "nobody else can read it");
        let keys = company.keys();
        assert!(keys.iter().any(|key| key.ends_with("/a.example.pem")), "{keys:?}");
        assert!(!keys.iter().any(|key| key.contains("challenge")), "no challenge stays open: {keys:?}");
        // The authority suggests a renewal: one instance renews, and all show the new certificate.
        let before = serial(a.ports, "a.example");
        pebble.would_like_renewed(&a.file("a.example.pem"), "2021-01-03T00:00:00Z", "2021-01-07T00:00:00Z");
        both.iter().for_each(|one| one.signal(Signal::HUP));
        for place in [&a, &b] {
            eventually("it is renewed", || serial(place.ports, "a.example") != before);
        }
        eventually("they agree", || serial(a.ports, "a.example") == serial(b.ports, "a.example"));
        assert_eq!(pebble.orders(), 3, "{}", both[0].printed());
    }
}

/// When an instance is killed in the middle of an order, another finishes it.
#[test]
fn a36_another_instance_finishes_a_killed_instances_order() {
    let Some(company) = Company::start() else { return };
    let a = Place::new();
    let sleeps = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "4")];
    let Some(pebble) = Pebble::start(a.ports, LONG_S, &sleeps) else { return };
    let root = pebble.root();
    let setup = |place: &Place| place.with(&pebble, "a.example").flag("--acme-challenge", "http-01");
    // The instance that the authority validates at orders nothing, so that it is not killed.
    let _asked = company.join(a.with(&pebble, "refused.example"), "asked");
    let two = ["one", "two"].map(|name| {
        let place = Place::new();
        (company.join(setup(&place), name), place, name)
    });
    eventually("it is ordered", || pebble.orders() == 1);
    let mut holder = None;
    eventually("one of them orders", || {
        holder = company.holder().filter(|name| name != "asked");
        holder.is_some()
    });
    let is_holder = |(_, _, name): &(Accelerator, Place, &str)| Some(*name) == holder.as_deref();
    let (mut ordering, left): (Vec<_>, Vec<_>) = two.into_iter().partition(is_holder);
    let (ordering, ..) = &mut ordering[0];
    ordering.signal(Signal::KILL);
    ordering.wait();
    let (left, place, _) = &left[0];
    eventually("the other has the certificate", || place.is_shown(&root, "a.example"));
    assert_eq!(pebble.orders(), 1, "{}", left.printed());
}

/// From one instance to several: a certificate obtained alone is shared, and it is shown without the cluster,
/// with another secret, and after the bucket is deleted.
#[test]
fn a36_earlier_certificates_are_shared_and_outlive_the_cluster() {
    let Some(company) = Company::start() else { return };
    let [a, b, c] = std::array::from_fn(|_| Place::new());
    let Some(pebble) = Pebble::start(a.ports, LONG_S, &[]) else { return };
    let root = pebble.root();
    let mut alone = a.with(&pebble, "a.example").start();
    eventually("one alone has it", || a.is_shown(&root, "a.example"));
    alone.signal(Signal::TERM);
    alone.wait();

    let first = company.join(a.with(&pebble, "a.example"), "a");
    let mut second = company.join(b.with(&pebble, "a.example"), "b");
    eventually("the second has it", || b.is_shown(&root, "a.example"));
    assert_eq!(serial(a.ports, "a.example"), serial(b.ports, "a.example"));

    // An instance with another secret neither reads nor orders.
    let other = company.directory.path().join("other");
    fs::write(&other, "another-secret-of-thirty-one!!\n").expect("written");
    let third = company.with(c.with(&pebble, "a.example"), "c", &other).start();
    until_joined(&third);
    eventually("that is said", || error(&third, "a.example").contains("sealed with another cluster-secret"));
    assert!(!c.is_shown(&root, "a.example"));
    // With two secrets, the first seals and both open.
    drop(third);
    fs::write(&other, format!("another-secret-of-thirty-one!!\n{SECRET}")).expect("written");
    let third = company.with(c.with(&pebble, "a.example"), "c", &other).start();
    eventually("it has it now", || c.is_shown(&root, "a.example"));
    // Four records: account and key, certificate and order.
    eventually("it seals all anew", || third.stat().count("cluster.vault_writes") >= 4);
    drop(third);
    let d = Place::new();
    fs::write(&other, "another-secret-of-thirty-one!!\n").expect("written");
    let fourth = company.with(d.with(&pebble, "a.example"), "d", &other).start();
    eventually("it can be read by the new secret alone", || d.is_shown(&root, "a.example"));
    drop(fourth);
    let third = company.with(c.with(&pebble, "a.example"), "c", &company.secret()).start();
    eventually("and not by the old one", || {
        third.printed().contains("sealed with another cluster-secret")
            || third.stat().count("cluster.vault_foreign") > 0
    });
    drop(third);
    // From here on all instances have both secrets.
    fs::write(company.secret(), format!("{SECRET}another-secret-of-thirty-one!!\n")).expect("written");

    // Without the cluster the certificate is shown at once, and nothing is ordered.
    second.signal(Signal::KILL);
    second.wait();
    let nowhere = b.with(&pebble, "a.example,b.example").flag("--cluster", "nats://127.0.0.1:9");
    let nowhere = nowhere.flag("--cluster-secret", company.secret().to_str().expect("a path")).start();
    assert!(b.is_shown(&root, "a.example"), "it is there at once");
    eventually("that is said", || {
        let why = error(&nowhere, "b.example");
        why.contains("shared vault unavailable") || why.contains("the cluster")
    });
    drop(nowhere);

    // A deleted bucket is made again and filled with the instances' certificates.
    block_on(async { jetstream(&company.cluster).await.delete_key_value(BUCKET).await.expect("deleted") });
    let again = company.join(b.with(&pebble, "a.example"), "b");
    eventually("it is there again", || company.keys().iter().any(|key| key.ends_with("/a.example.pem")));
    assert_eq!(pebble.orders(), 1, "{}\n{}", first.printed(), again.printed());
    assert_eq!(pebble.said("There are now 2 accounts"), 0, "one account");
}
