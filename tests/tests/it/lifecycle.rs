//! From start to end: ports that are taken, a graceful stop, a sudden one, and the admin port meanwhile.

use std::net::TcpListener;

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Client, End, Gate, Next, Request, Response, ScriptedOrigin, content::content,
    eventually, on_one_core_and_on_two, program,
};

on_one_core_and_on_two! {
    an_idle_server_stops_at_once,
    the_admin_port_tells_how_it_is,
    a_stop_lets_downloads_finish,
    an_abrupt_end_leaves_the_ports_reusable,
    a_reload_loses_no_request,
}

fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, "a page").header("Cache-Control", "max-age=600"));
    origin
}

#[test]
fn a_port_in_use_is_a_clear_error() {
    let origin = origin();
    let running = Accelerator::before(&origin.url()).start();
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let strangers = stranger.local_addr().expect("a bound socket has an address");
    for (flag, address) in [
        ("--listen", strangers),
        ("--admin", strangers),
        // Another process of ours: our loops share a port with SO_REUSEPORT, but a second process must not
        // take some of the connections unnoticed.
        ("--listen", running.address()),
        ("--admin", running.admin()),
    ] {
        let output = Accelerator::before(&origin.url()).flag(flag, &address.to_string()).run_to_its_end();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{flag} {address}: {said}");
        assert!(said.contains(&address.to_string()), "which address is taken? {said}");
        assert!(said.contains("another process listens there"), "what is wrong? {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(said.lines().count() <= 3, "one clear error: {said}");
    }
    for _ in 0..20 {
        assert_eq!(running.get("/page").expect_status(200).text(), "a page");
    }
}

#[test]
fn commands_to_nobody_say_so() {
    let nobody = tests::origin::NobodyThere::new();
    for command in [&["stat"][..], &["stat", "--json"], &["purge", "http://site.test/page"]] {
        let output =
            program::command().args(command).arg("--admin").arg(nobody.address().to_string()).output();
        let output = output.expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains(&nobody.address().to_string()), "{command:?}: {said}");
        assert!(output.stdout.is_empty(), "{command:?}");
    }
}

fn a_stop_lets_downloads_finish(cores: &str) {
    for signal in [Signal::TERM, Signal::INT] {
        let origin = origin();
        let gate = Gate::new();
        let length = 1_000_000;
        for (path, control) in [("/kept", "max-age=600"), ("/passed", "no-store")] {
            let in_script = gate.clone();
            origin.on(path, move |_, reply| {
                let answer = Answer::new(200, content(1, 0, length)).header("Cache-Control", control);
                reply.send(&answer.head_bytes())?;
                reply.send(&content(1, 0, length / 2))?;
                in_script.pass();
                reply.send(&content(1, (length / 2) as u64, length / 2))?;
                Ok(Next::KeepAlive)
            });
        }
        let mut accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
        let mut downloads: Vec<Client> = Vec::new();
        for path in ["/kept", "/kept", "/passed"] {
            let mut client = accelerator.connect();
            client.send(&Request::get(path).bytes());
            assert_eq!(client.head("GET").status, 200);
            assert_eq!(client.body_exactly(1000), content(1, 0, 1000));
            downloads.push(client);
        }
        let mut idle = accelerator.connect();
        idle.get("/page").expect_status(200);

        accelerator.signal(signal);
        eventually("nobody new is taken", || match Client::try_connect(accelerator.address()) {
            Err(_) => true,
            Ok(mut client) => {
                let sent = client.try_send(&Request::get("/page").bytes());
                sent.is_err() || client.try_response("GET").is_none_or(|response| response.status() == 503)
            }
        });
        assert_eq!(idle.until_closed(), (End::Closed, Vec::new()), "who waits for nothing is let go");
        assert!(accelerator.is_running(), "three downloads are under way");
        gate.open();
        for client in &mut downloads {
            let (rest, _, end) = client.rest_of_body();
            assert_eq!((rest.len(), end), (length - 1000, End::Complete));
            assert!(rest == content(1, 1000, length - 1000));
        }
        let status = accelerator.wait();
        assert_eq!(status.code(), Some(0), "{}", accelerator.printed());
    }
}

fn an_idle_server_stops_at_once(cores: &str) {
    let origin = origin();
    let mut accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let mut idle: Vec<Client> = (0..20).map(|_| accelerator.connect()).collect();
    idle.iter_mut().for_each(|client| drop(client.get("/page").expect_status(200)));
    accelerator.signal(Signal::TERM);
    let status = accelerator.wait();
    assert_eq!(status.code(), Some(0), "{}", accelerator.printed());
    for client in &mut idle {
        assert_eq!(client.until_closed(), (End::Closed, Vec::new()));
    }
}

fn an_abrupt_end_leaves_the_ports_reusable(cores: &str) {
    let origin = origin();
    let mut accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let (listen, admin) = (accelerator.address(), accelerator.admin());
    for _ in 0..3 {
        // Open connections with unfinished requests, whose remains the kernel keeps for a while.
        let mut clients: Vec<Client> = (0..5).map(|_| accelerator.connect()).collect();
        clients.iter_mut().for_each(|client| drop(client.get("/page").expect_status(200)));
        clients.iter_mut().for_each(|client| client.send(b"GET /page HT"));
        accelerator.signal(Signal::KILL);
        accelerator.wait();
        for client in &mut clients {
            client.until_closed();
        }
        accelerator = Accelerator::before(&origin.url())
            .flag("--cores", cores)
            .flag("--listen", &listen.to_string())
            .flag("--admin", &admin.to_string())
            .start();
        assert_eq!((accelerator.address(), accelerator.admin()), (listen, admin));
        assert_eq!(accelerator.get("/page").expect_status(200).text(), "a page");
    }
}

fn a_reload_loses_no_request(cores: &str) {
    let origin = origin();
    let gate = Gate::new();
    let in_script = gate.clone();
    origin.on("/slow", move |_, reply| {
        in_script.pass();
        reply.answer(&Answer::new(200, "slow").header("Cache-Control", "no-store"))
    });
    let mut accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let mut kept = accelerator.connect();
    kept.get("/page").expect_status(200);
    let mut waiting = accelerator.connect();
    waiting.send(&Request::get("/slow").bytes());
    eventually("the origin is asked", || origin.count("/slow") == 1);
    for _ in 0..3 {
        accelerator.signal(Signal::HUP);
        kept.get("/page").expect_status(200);
        accelerator.get("/page").expect_status(200);
    }
    gate.open();
    assert_eq!(waiting.response("GET").expect_status(200).text(), "slow");
    assert!(accelerator.is_running());
    assert_eq!(origin.count("/page"), 1, "what was stored is still there");
}

fn the_admin_port_tells_how_it_is(cores: &str) {
    let origin = origin();
    let gate = Gate::new();
    let in_script = gate.clone();
    origin.on("/slow", move |_, reply| {
        in_script.pass();
        reply.answer(&Answer::new(200, "slow").header("Cache-Control", "no-store"))
    });
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    for path in ["/healthz", "/readyz"] {
        accelerator.admin_get(path).expect_status(200);
    }
    accelerator.admin_get("/no-such-page").expect_status(404);
    for _ in 0..5 {
        accelerator.get("/page").expect_status(200);
    }
    // A loop's lateness is first measured when its timer fires.
    let has_lateness = |page: &Response| {
        let text = page.text();
        let counts = text.lines().filter_map(|line| line.strip_prefix("loop_lateness_seconds_count"));
        counts.filter_map(|rest| rest.rsplit(' ').next()).any(|count| count != "0")
    };
    let mut page = accelerator.admin_get("/metrics").expect_status(200);
    eventually("a loop's lateness is measured", || {
        page = accelerator.admin_get("/metrics").expect_status(200);
        has_lateness(&page)
    });
    let text = page.text();
    assert!(page.header("content-type").is_some_and(|kind| kind.contains("text")), "{}", page.text_of_head());
    let sum = |name: &str| -> f64 {
        let of_this = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
        };
        let lines: Vec<&str> = text.lines().filter(of_this).collect();
        assert!(!lines.is_empty(), "no {name} in:\n{text}");
        lines
            .iter()
            .map(|line| {
                line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok()).expect("a number")
            })
            .sum()
    };
    assert!((sum("cache_hits_total") - 4.0).abs() < 0.1, "{text}");
    assert!((sum("cache_misses_total") - 1.0).abs() < 0.1, "{text}");
    assert!(sum("loop_lateness_seconds_count") > 0.0);
    // Every line is a comment or a sample, and every sample belongs to a declared family.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let families = ["_total", "_bucket", "_sum", "_count", "_info", ""].map(|end| name.strip_suffix(end));
        let announced = families.iter().flatten().any(|family| text.contains(&format!("# TYPE {family} ")));
        assert!(announced, "{line}");
    }
    // `nighttrain stat` shows these numbers, too, as JSON and as a table.
    assert_eq!(accelerator.stat().count("requests.hits"), 4);
    let table = accelerator.ask(&["stat"]);
    assert!(table.status.success() && String::from_utf8_lossy(&table.stdout).contains("hits"), "{table:?}");

    // A server that is stopping is alive and not ready.
    let mut waiting = accelerator.connect();
    waiting.send(&Request::get("/slow").bytes());
    eventually("the origin is asked", || origin.count("/slow") == 1);
    accelerator.signal(Signal::TERM);
    eventually("it is not ready", || accelerator.admin_get("/readyz").status() == 503);
    accelerator.admin_get("/healthz").expect_status(200);
    gate.open();
    assert_eq!(waiting.response("GET").expect_status(200).text(), "slow");
}
