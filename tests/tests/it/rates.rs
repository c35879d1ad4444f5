//! Row A30 of the features: limits on the requests of a client and of its network.

use std::io::Read as _;

use tests::{
    Accelerator, Answer, Client, Request, ScriptedOrigin, accelerator::Setup, connections::connect_from,
    eventually, on_one_core_and_on_two,
};

on_one_core_and_on_two! {
    a30_only_the_client_beyond_its_rate_is_refused,
    a30_a_network_counts_as_one,
    a30_a_network_holds_so_many_connections,
    a30_visitors_of_a_proxy_count_each_for_itself,
}

fn site() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    origin
}

fn before(origin: &ScriptedOrigin, cores: &str) -> Setup {
    Accelerator::before(&origin.url()).flag("--cores", cores)
}

/// Connects a client from a loopback address.
fn from(address: [u8; 4], accelerator: &Accelerator) -> Client {
    Client::over(connect_from(address, accelerator.address()).expect("connected")).expect("a client")
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n";

/// Statuses of `requests` requests, each over its own connection.
fn statuses(address: [u8; 4], accelerator: &Accelerator, requests: usize) -> Vec<u16> {
    let ask = |_| {
        let mut client = from(address, accelerator);
        client.send(GET);
        client.response("GET").status()
    };
    (0..requests).map(ask).collect()
}

fn a30_only_the_client_beyond_its_rate_is_refused(cores: &str) {
    let origin = site();
    let accelerator = before(&origin, cores)
        .limit("client_requests_per_second_max", "1")
        .limit("client_requests_burst", "600")
        .start();
    let mut client = from([127, 0, 0, 2], &accelerator);
    let mut answered = 0;
    let refused = loop {
        client.send(GET);
        match client.response("GET") {
            answer if answer.status() == 200 => answered += 1,
            answer => break answer,
        }
    };
    assert!((600..=600 + 60).contains(&answered), "{answered}");
    assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("5")));
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(refused.text().contains("too-many-requests") || refused.text().contains("Too many requests"));
    let mut rest = Vec::new();
    client.stream().try_clone().expect("a handle").read_to_end(&mut rest).expect("it is closed");
    assert_eq!(statuses([127, 0, 0, 2], &accelerator, 1), [429], "over any connection");
    assert_eq!(statuses([127, 0, 0, 3], &accelerator, 3), [200; 3]);
    assert_eq!(accelerator.stat().count("limits.client_requests"), 2);
    eventually("it may ask again", || statuses([127, 0, 0, 2], &accelerator, 1) == [200]);
    // HTTP/2 requests are limited too.
    let flood = std::process::Command::new("h2load")
        .args(["-n", "2000", "-c", "2", "-m", "10"])
        .arg(format!("http://{}/", accelerator.address()))
        .output()
        .expect("h2load is installed: run tests/install-packages.sh");
    let said = String::from_utf8_lossy(&flood.stdout).into_owned();
    let codes = said.lines().find(|line| line.starts_with("status codes:")).expect("codes").to_owned();
    let of_4xx: Vec<&str> = codes.split(',').filter(|part| part.ends_with(" 4xx")).collect();
    assert!(of_4xx.iter().any(|part| !part.trim().starts_with("0 ")), "{said}");
    // One fetch for each host.
    assert_eq!(origin.count("/"), 2);
}

fn a30_a_network_counts_as_one(cores: &str) {
    let origin = site();
    let accelerator = before(&origin, cores)
        .limit("network_requests_per_second_max", "1")
        .limit("network_requests_burst", "500")
        .start();
    let mut statuses_of = Vec::new();
    for host in 1..=8 {
        let mut client = from([127, 0, 1, host], &accelerator);
        for _ in 0..100 {
            if client.try_send(GET).is_err() {
                break;
            }
            let Some(answer) = client.try_response("GET") else { break };
            statuses_of.push(answer.status());
            if answer.status() != 200 {
                break;
            }
        }
    }
    let good = statuses_of.iter().filter(|status| **status == 200).count();
    assert!((500..=560).contains(&good), "{good} of {}", statuses_of.len());
    assert!(statuses_of.contains(&429));
    assert!(accelerator.stat().count("limits.network_requests") >= 2);
    assert_eq!(statuses([127, 0, 2, 1], &accelerator, 3), [200; 3], "another network");
}

fn a30_a_network_holds_so_many_connections(cores: &str) {
    let origin = site();
    let accelerator = before(&origin, cores).limit("connections_per_network_max", "5").start();
    let ask = |client: &mut Client| {
        client.send(GET);
        client.response("GET").status()
    };
    let mut held: Vec<Client> = (1..=5).map(|host| from([127, 0, 3, host], &accelerator)).collect();
    assert!(held.iter_mut().all(|client| ask(client) == 200));
    assert_eq!(ask(&mut from([127, 0, 3, 9], &accelerator)), 503);
    assert_eq!(ask(&mut from([127, 0, 4, 9], &accelerator)), 200, "another network");
    assert_eq!(accelerator.stat().count("limits.connections_per_network"), 1);
    held.pop();
    eventually("there is room again", || ask(&mut from([127, 0, 3, 9], &accelerator)) == 200);
}

fn a30_visitors_of_a_proxy_count_each_for_itself(cores: &str) {
    let origin = site();
    let accelerator = before(&origin, cores)
        .flag("--trusted-proxies", "127.0.0.0/8")
        .limit("client_requests_per_second_max", "1")
        .limit("client_requests_burst", "20")
        .start();
    let ask =
        |visitor: &str| accelerator.fetch(&Request::get("/").header("X-Forwarded-For", visitor)).status();
    let of_one: Vec<u16> = (0..40).map(|_| ask("192.0.2.1")).collect();
    assert_eq!(of_one[..20], [200; 20]);
    assert!(of_one.contains(&429), "{of_one:?}");
    assert_eq!(ask("192.0.2.2"), 200);
}

#[test]
fn a30_the_guides_commands_work() {
    let Some(output) = tests::guide::run("limits.md") else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.trim_end().ends_with("429"), "{said}");
}
