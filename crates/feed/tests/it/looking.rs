//! Cost of monitoring for the loops: counted, not timed.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use crate::common::{Client, PATIENCE, start, wait_until};
use feed::{Counter, Looker, NoAnswer, Server, monitor};

pub(crate) struct MonitoredFeed(pub(crate) Looker);

impl monitor::MonitoredFeed for MonitoredFeed {
    fn looker(&self) -> Result<Looker, NoAnswer> {
        Ok(self.0.clone())
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// A server's monitoring pages, with a runtime that serves them.
struct Pages {
    server: Server,
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Pages {
    fn of(server: Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = monitor::router(Arc::new(MonitoredFeed(server.looker())), address);
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { server, address, _runtime: runtime }
    }

    fn ask(&self, path: &str) -> serde_json::Value {
        let answer = self.answer(path);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.0 200"), "{path}: {answer}");
        serde_json::from_str(body).expect("JSON")
    }

    fn answer(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Requests a page; returns it with the loops' cost: steps, and entries looked at.
    fn cost(&self, path: &str) -> (serde_json::Value, u64, u64) {
        let counted =
            || [Counter::MonitorSteps, Counter::MonitorLookedAt].map(|counter| self.server.counted(counter));
        let before = counted();
        let page = self.ask(path);
        let after = counted();
        (page, after[0] - before[0], after[1] - before[1])
    }
}

const SUBSCRIPTIONS: usize = 20_000;
const CLIENTS: usize = 4;

#[test]
fn a_page_costs_the_loops_what_it_shows() {
    let server = start(2, |_| {});
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|n| {
            let mut client = Client::new(&server);
            let wishes: String =
                (0..SUBSCRIPTIONS / CLIENTS).map(|at| format!("SUB {n}.{at} {at}\r\n")).collect();
            client.send(wishes.as_bytes());
            client.ping();
            client
        })
        .collect();
    let pages = Pages::of(server);
    for path in ["/varz", "/routez", "/leafz", "/gatewayz", "/accountz", "/healthz"] {
        let (page, steps, looked_at) = pages.cost(path);
        assert_eq!((steps, looked_at), (0, 0), "{path}: {page}");
    }
    let varz = pages.ask("/varz");
    assert_eq!((&varz["subscriptions"], &varz["connections"]), (&SUBSCRIPTIONS.into(), &CLIENTS.into()));

    let (page, steps, looked_at) = pages.cost("/subsz");
    assert_eq!(page["num_subscriptions"], SUBSCRIPTIONS);
    assert_eq!((steps, looked_at), (2, 0), "the sizes of the tables, of each core");
    // A core's connection slots are looked at, free ones included.
    let (page, _, looked_at) = pages.cost("/connz");
    assert_eq!(page["num_connections"], CLIENTS);
    assert_eq!(page["connections"][0]["subscriptions"], SUBSCRIPTIONS / CLIENTS);
    assert!(looked_at <= 64, "{looked_at} things for {CLIENTS} connections");

    // Lists walk all subscriptions in small steps, even if few of them are shown.
    for path in ["/subsz?subs=1&limit=10", "/subsz?subs=1&limit=100000", "/connz?subs=1"] {
        let (page, steps, looked_at) = pages.cost(path);
        assert!(looked_at >= SUBSCRIPTIONS as u64, "{path}: {looked_at}");
        assert!(looked_at / steps <= 2048, "{path}: {looked_at} in {steps} steps");
        let list = |page: &serde_json::Value| page["subscriptions_list"].as_array().map_or(0, Vec::len);
        match path {
            "/connz?subs=1" => {
                let each = page["connections"].as_array().expect("a list").iter().map(list);
                assert!(each.eq([SUBSCRIPTIONS / CLIENTS; CLIENTS]), "{path}");
                assert!(steps as usize > SUBSCRIPTIONS / 128, "{path}: {steps} steps, each of few copies");
            }
            _ => {
                let limit = page["limit"].as_u64().expect("a number") as usize;
                assert_eq!(
                    (page["total"].as_u64(), list(&page)),
                    (Some(SUBSCRIPTIONS as u64), limit),
                    "{path}"
                );
            }
        }
    }
    let one = pages.ask("/connz?subs=detail&offset=1&limit=1");
    let listed = one["connections"][0]["subscriptions_list_detail"].as_array().expect("a list");
    assert_eq!(listed.len(), SUBSCRIPTIONS / CLIENTS);
    assert!(
        listed.iter().all(|one| one["subject"].as_str().is_some_and(|subject| subject.starts_with("1.")))
    );
    let second = pages.ask("/subsz?subs=1&offset=19990");
    assert_eq!(second["subscriptions_list"].as_array().map(Vec::len), Some(10));
    // The query is percent-encoded, as a browser or curl -G sends it.
    let tested = pages.ask("/subsz?test=%33%2E17&acc=%24G");
    assert_eq!((&tested["total"], &tested["subscriptions_list"][0]["subject"]), (&1.into(), &"3.17".into()));
    // A subject longer than a control line is no subject; the loops are not asked.
    let steps = pages.server.counted(Counter::MonitorSteps);
    let refused = pages.answer(&format!("/subsz?subs=1&test={}a", "a.".repeat(2048)));
    assert!(refused.starts_with("HTTP/1.0 400") && refused.contains("at most 4096 bytes"), "{refused}");
    assert_eq!(pages.server.counted(Counter::MonitorSteps), steps);
    drop(clients);
    wait_until("all have left", || pages.server.counted(Counter::Connections) == 0);
    let closed = pages.ask("/connz?state=closed&limit=2");
    assert_eq!((&closed["total"], &closed["num_connections"]), (&CLIENTS.into(), &2.into()));
}
