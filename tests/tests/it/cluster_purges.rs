//! Several accelerators and one purge, on a real cluster of three nats-servers that store everything three
//! times.

use std::{
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tests::{
    Accelerator, Request, eventually,
    nats_cluster::{NatsCluster, Way},
};

use crate::several::{
    HOST, LEASE, Numbered, block_on, get, is_hit, is_joined, jetstream, look, must_purge_everywhere, on_file,
    page, purge_everywhere, setup, start, store, until_joined, url, version,
};

#[test]
fn a38_any_purge_from_any_instance_holds_everywhere() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let all = ["a", "b", "c"].map(|name| start(&origin, &cluster.urls(), name));
    let each = |of: &dyn Fn(&Accelerator)| all.iter().for_each(of);
    each(&|one| store(one, "/p"));
    for (from, how) in [
        (0, &[&url("/p")[..]][..]),
        (1, &["--tag", "all"]),
        (2, &["--ban", "req.url ~ ^/p"]),
        (0, &["--all"]),
    ] {
        let version_now = origin.raise();
        each(&|one| assert_eq!(version(one, "/p"), version_now - 1, "it is stored, before {how:?}"));
        let said = must_purge_everywhere(&all[from], how);
        for name in ["a", "b", "c"] {
            assert!(said.contains(&format!("{name} has applied the purge")), "{said}");
        }
        each(&|one| assert_eq!(version(one, "/p"), version_now, "after {how:?}"));
        each(&|one| store(one, "/p"));
    }
    // A soft purge: the old answer may be served once more, while it is fetched.
    let version_now = origin.raise();
    must_purge_everywhere(&all[1], &["--soft", &url("/p")]);
    each(&|one| eventually("it is fetched anew", || version(one, "/p") == version_now));

    // A PURGE request of a client reaches the other instances asynchronously.
    let version_now = origin.raise();
    all[2].fetch(&Request::new("PURGE", "/p").header("Host", HOST)).expect_status(200);
    assert_eq!(version(&all[2], "/p"), version_now);
    each(&|one| eventually("it has heard of it", || version(one, "/p") == version_now));
    let version_now = origin.raise();
    let purge = Request::new("PURGE", "/").header("Host", HOST).header("Surrogate-Key", "all");
    all[0].fetch(&purge).expect_status(200);
    each(&|one| eventually("it has heard of it", || version(one, "/p") == version_now));

    // A purge of this instance only.
    origin.raise();
    each(&|one| store(one, "/p"));
    let before = version(&all[1], "/p");
    assert!(all[0].ask(&["purge", "--local", &url("/p")]).status.success());
    assert_eq!(version(&all[0], "/p"), origin.version.load(SeqCst));
    assert_eq!(version(&all[1], "/p"), before);

    let stat = all[1].stat();
    assert!(stat.count("cluster.renewals") > 0 && stat.count("cluster.purges_applied") >= 4);
    assert_eq!(stat.document()["cluster"]["instances"].as_array().map(Vec::len), None, "numbers alone");
    let table = String::from_utf8(all[1].ask(&["stat"]).stdout).expect("text");
    assert!(table.contains("b (this one)"), "{table}");
}

#[test]
fn a38_a_purge_waits_for_a_stopped_instances_lease() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let [a, b] = ["a", "b"].map(|name| start(&origin, &cluster.urls(), name));
    [&a, &b].into_iter().for_each(|one| store(one, "/p"));
    let mut asking = b.connect();
    asking.exchange(&page("/p")).expect_status(200);
    for round in 0..3 {
        b.signal(Signal::STOP);
        let (version_now, began) = (origin.raise(), Instant::now());
        let said = must_purge_everywhere(&a, &[&url("/p")]);
        assert!(said.contains("b is cut off") && said.contains("a has applied the purge"), "{said}");
        assert!(began.elapsed() >= LEASE / 2, "{:?}", began.elapsed());
        // Requests that wait in the sockets of a stopped instance: three at once, on two connections.
        let pipelined = [page("/p").bytes(), page("/p").bytes()].concat();
        asking.send(&pipelined);
        let mut other = b.connect();
        other.send(&page("/p").bytes());
        thread::sleep(Duration::from_millis(20 * round));
        b.signal(Signal::CONT);
        for client in [&mut asking, &mut other] {
            let answer = client.response("GET");
            assert_eq!(answer.text(), version_now.to_string(), "round {round}");
        }
        assert_eq!(asking.response("GET").text(), version_now.to_string());
        until_joined(&b);
        eventually("it serves again", || is_hit(&get(&b, "/p")));
    }
    assert!(b.stat().count("cluster.lapses") >= 3);
}

#[test]
fn a38_a_killed_instance_catches_up_before_serving() {
    let Some(cluster) = NatsCluster::start() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let store_file = directory.path().join("store");
    let origin = Numbered::start();
    let a = start(&origin, &cluster.urls(), "a");
    let begin = || {
        let b = on_file(setup(&origin, &cluster.urls(), "b"), &store_file).start().warm();
        until_joined(&b);
        b
    };
    let mut b = begin();
    for path in ["/p", "/q"] {
        store(&b, path);
    }
    tests::purging::is_all_on_file(&b, 2);
    b.signal(Signal::KILL);
    b.wait();
    let version_now = origin.raise();
    must_purge_everywhere(&a, &[&url("/p")]);
    drop(b);
    let b = begin();
    assert_eq!(version(&b, "/p"), version_now);
    assert_eq!(version(&b, "/q"), 1, "what was not purged is there");
    assert_eq!(b.stat().count("cluster.doubts"), 0);
    drop(b);

    // The instance was away for longer than the stream keeps purges.
    origin.raise();
    must_purge_everywhere(&a, &[&url("/q")]);
    block_on(async {
        let stream = jetstream(&cluster).await.get_stream("NIGHTTRAIN_PURGES").await.expect("it is there");
        stream.purge().await.expect("it is emptied");
    });
    let b = begin();
    assert_eq!(version(&b, "/q"), origin.version.load(SeqCst), "it is validated, and is another");
    assert_eq!(b.stat().count("cluster.doubts"), 1);
    let printed = b.printed();
    assert!(printed.contains("are no longer in the stream"), "{printed}");
}

#[test]
fn a38_a_cut_off_instance_revalidates_and_catches_up() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let way = Way::to(cluster.address(1));
    let a = start(&origin, &cluster.urls(), "a");
    let b = start(&origin, &format!("nats://{}", way.address()), "b");
    store(&b, "/p");
    way.cut();
    let version_now = origin.raise();
    let said = must_purge_everywhere(&a, &[&url("/p")]);
    assert!(said.contains("b is cut off"), "{said}");
    assert_eq!(version(&b, "/p"), version_now);
    // A stored answer that has not changed is validated for each request, and not fetched.
    let answer = get(&b, "/p");
    assert!(!is_hit(&answer), "{}", answer.text_of_head());
    assert!(b.stat().count("cluster.hits_validated") > 0);
    let (is_done, said) = purge_everywhere(&b, &["--tag", "x"]);
    assert!(!is_done && said.contains("purged here; the cluster did not accept the purge"), "{said}");
    // An answer that may have been purged is not served when validation is not possible.
    let answer = b.fetch(&page("/p").header("Cache-Control", "only-if-cached"));
    assert_ne!(answer.status(), 200);

    origin.raise();
    must_purge_everywhere(&a, &[&url("/p")]);
    way.open();
    let began = Instant::now();
    eventually("it has joined again", || is_joined(&b));
    eventually("it serves again", || is_hit(&get(&b, "/p")));
    assert_eq!(version(&b, "/p"), origin.version.load(SeqCst));
    println!("back after {:?}", began.elapsed());
}

#[test]
fn a38_an_unreachable_cluster_stops_only_hits() {
    let Some(mut cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    // An address where no server listens.
    let nobody = tests::origin::NobodyThere::new();
    let servers = format!("nats://{},{}", nobody.address(), cluster.urls());
    (0..3).for_each(|index| cluster.kill(index));
    let a = setup(&origin, &servers, "a").start();
    assert_eq!(version(&a, "/p"), 1);
    assert!(!is_hit(&get(&a, "/p")));
    eventually("it says why", || {
        look(&a)["state"].as_str().is_some_and(|state| state.contains("unreachable"))
    });
    let (is_done, said) = purge_everywhere(&a, &[&url("/p")]);
    assert!(!is_done && said.contains("unreachable"), "{said}");
    assert!(a.ask(&["purge", "--local", &url("/p")]).status.success());
    let answer = a.fetch(&Request::new("PURGE", "/p").header("Host", HOST));
    assert!(
        answer.status() == 503 && answer.text().contains("not sent to the other accelerators"),
        "{}",
        answer.text()
    );

    (0..3).for_each(|index| cluster.begin(index));
    until_joined(&a);
    eventually("it serves", || is_hit(&get(&a, "/p")));

    // A single server of three is no quorum.
    cluster.kill(1);
    cluster.kill(2);
    eventually("its lease is out", || !is_hit(&get(&a, "/p")));
    let (is_done, said) = purge_everywhere(&a, &[&url("/p")]);
    assert!(!is_done && said.contains("purged here; "), "{said}");
    cluster.begin(1);
    until_joined(&a);
    must_purge_everywhere(&a, &[&url("/p")]);
}

#[test]
fn a38_a_deleted_stream_or_bucket_is_created_again() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let [a, b] = ["a", "b"].map(|name| start(&origin, &cluster.urls(), name));
    for deleted in ["NIGHTTRAIN_PURGES", "KV_NIGHTTRAIN_INSTANCES"] {
        [&a, &b].into_iter().for_each(|one| store(one, "/p"));
        block_on(async {
            jetstream(&cluster).await.delete_stream(deleted).await.expect("it was there");
        });
        let version_now = origin.raise();
        eventually("a purge holds everywhere again", || purge_everywhere(&a, &[&url("/p")]).0);
        for one in [&a, &b] {
            assert_eq!(version(one, "/p"), version_now, "{deleted}");
        }
        [&a, &b].into_iter().for_each(until_joined);
    }
    assert!(a.stat().count("cluster.doubts") >= 1 && b.stat().count("cluster.doubts") >= 1);
}

#[test]
fn a38_a_duplicate_instance_name_prevents_hits() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let a = start(&origin, &cluster.urls(), "a");
    let second = setup(&origin, &cluster.urls(), "a").start();
    eventually("it says so", || {
        look(&second)["state"].as_str().is_some_and(|state| state.contains("another instance has the name a"))
    });
    assert_eq!(version(&second, "/p"), 1);
    assert!(!is_hit(&get(&second, "/p")));
    store(&a, "/p");
    let version_now = origin.raise();
    must_purge_everywhere(&a, &[&url("/p")]);
    assert_eq!((version(&a, "/p"), version(&second, "/p")), (version_now, version_now));
    // The first instance stops, and its name is free at once.
    a.signal(Signal::TERM);
    until_joined(&second);
}

#[test]
fn a38_purges_name_instances_that_serve_on() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let way = Way::to(cluster.address(2));
    let a = start(&origin, &cluster.urls(), "a");
    let b = setup(&origin, &format!("nats://{}", way.address()), "b")
        .flag("--cluster-when-cut-off", "serve")
        .start();
    until_joined(&b);
    let said = must_purge_everywhere(&a, &["--tag", "x"]);
    assert!(said.contains("b ") && said.contains("configured to serve on"), "{said}");
    store(&b, "/p");
    way.cut();
    origin.raise();
    let said = must_purge_everywhere(&a, &[&url("/p")]);
    assert!(said.contains("b has not applied the purge: configured to serve on"), "{said}");
    thread::sleep(LEASE * 2);
    assert!(is_hit(&get(&b, "/p")));
    way.open();
    eventually("it has heard of it", || version(&b, "/p") == origin.version.load(SeqCst));
}

#[test]
fn a38_what_a_younger_version_says_purges_everything() {
    let Some(cluster) = NatsCluster::start() else { return };
    let origin = Numbered::start();
    let a = start(&origin, &cluster.urls(), "a");
    store(&a, "/p");
    let version_now = origin.raise();
    block_on(async {
        let record = r#"{"v":2,"id":"x","by":"younger","kind":"galaxy","of":["m31"]}"#;
        // The context must outlive the publish, or the acknowledgement would not be received.
        let context = jetstream(&cluster).await;
        let told = context.publish("NIGHTTRAIN_PURGES", record.into()).await.expect("it is sent");
        told.await.expect("it is taken");
    });
    eventually("everything is purged", || version(&a, "/p") == version_now);
    assert_eq!(a.stat().count("cluster.purges_unknown"), 1);
    assert!(a.printed().contains("in a record of version"), "{}", a.printed());
}

#[test]
fn a38_a_login_refused_by_the_cluster_is_explained() {
    let users = "authorization { users: [ { user: right, password: word }, \
                 { user: weak, password: word, permissions: { publish: [\"x\"], subscribe: [\"_INBOX.>\"] } } ] }";
    let Some(cluster) = NatsCluster::start_with(users) else { return };
    let origin = Numbered::start();
    let servers = |login: &str| format!("nats://{login}@{}", cluster.address(0));
    for (login, says) in
        [("right:wrong", "authorization violation"), ("weak:word", "cannot look up the stream")]
    {
        let a = setup(&origin, &servers(login), "a").start();
        eventually("it says why", || look(&a)["state"].as_str().is_some_and(|state| state.contains(says)));
        let printed = a.printed();
        assert!(!printed.contains("wrong@") && !printed.contains(":word"), "{printed}");
        assert_eq!(version(&a, "/p"), 1);
    }
    start(&origin, &servers("right:word"), "a");
}

#[test]
fn a38_everywhere_is_refused_where_there_is_no_cluster() {
    let origin = Numbered::start();
    let a = Accelerator::before(&origin.origin.url()).start();
    let (is_done, said) = purge_everywhere(&a, &[&url("/p")]);
    assert!(!is_done && said.contains("no cluster is configured"), "{said}");
    assert_eq!(a.admin_get("/cluster").status(), 404);
}

#[test]
fn a38_the_guide_s_commands_do_what_they_say() {
    if tests::clients::installed("hub/nats-server").is_none() {
        return;
    }
    let Some(output) = tests::guide::run("cluster.md") else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let pages: Vec<&str> = text.lines().filter(|line| line.ends_with("version")).collect();
    assert_eq!(pages[..3], ["the first version"; 3], "{text}");
    assert_eq!(pages[3..], ["the second version"; 3], "{text}");
    for (said, times) in
        [("web1 has applied the purge", 2), ("web3 has applied the purge", 1), ("web3 is cut off", 1)]
    {
        assert_eq!(text.matches(said).count(), times, "{said}: {text}");
    }
}
