//! Rows A10, A11 and A42 of the features: HTTP/2 origins, host names whose addresses change, and servers that
//! go and come back under load, over either protocol.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use tests::{
    Accelerator, Answer, Client, End, Gate, Next, Request, ScriptedOrigin, accelerator::Setup,
    certificate::Certificate, clients::installed, eventually, nginx::Nginx, on_one_core,
    on_one_core_and_on_two,
};
use tokio::{net::TcpListener, runtime};

on_one_core! {
    a_silent_upload_over_http2_holds_no_exchange,
    a42_nginx_over_http2_gets_a_client_certificate,
    a42_gos_server_is_asked_over_http2,
    a42_probes_go_over_http2,
    a42_a_websocket_goes_by_http1_all_the_same,
    a11_the_whole_of_an_answer_has_its_time,
    a10_a_name_that_moves_is_followed,
}

on_one_core_and_on_two! {
    a11_an_http1_server_killed_under_load_returns_gently,
    a42_many_exchanges_share_a_connection_to_an_origin,
    a11_an_http2_server_killed_under_load_returns_gently,
}

/// HTTP/2 server without TLS. Each answer is the server's name, which may be stored for `/stored/…` only.
struct Http2Origin {
    address: SocketAddr,
    /// `None` once the server is killed.
    runtime: Option<runtime::Runtime>,
    asked: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Http2Origin {
    fn start_at(at: SocketAddr, name: usize, gate: &Gate, is_well: &Arc<AtomicBool>) -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind(at)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (asked, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, opened) = (Arc::clone(&asked), Arc::clone(&connections));
        let (gate, is_well) = (gate.clone(), Arc::clone(is_well));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                opened.fetch_add(1, Relaxed);
                let (count, gate, is_well) = (Arc::clone(&count), gate.clone(), Arc::clone(&is_well));
                tokio::spawn(async move {
                    let Ok(mut server) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, mut reply))) = server.accept().await {
                        let path = request.uri().path().to_owned();
                        let is_probe = path == "/healthz";
                        if !is_probe {
                            count.fetch_add(1, Relaxed);
                        }
                        let status = if is_probe && !is_well.load(Relaxed) { 500 } else { 200 };
                        let kept = if path.starts_with("/stored/") { "max-age=600" } else { "no-store" };
                        let response = Response::builder().status(status).header("cache-control", kept);
                        let response = response.body(()).expect("a response");
                        let gate = gate.clone();
                        tokio::spawn(async move {
                            if path.starts_with("/slow") {
                                let _ = tokio::task::spawn_blocking(move || gate.pass()).await;
                            }
                            let mut content = request.into_body();
                            let mut came = 0;
                            while path.starts_with("/up")
                                && let Some(Ok(bytes)) = content.data().await
                            {
                                came += bytes.len();
                                let _ = content.flow_control().release_capacity(bytes.len());
                            }
                            let name = if path.starts_with("/up") { came } else { name };
                            if let Ok(mut stream) = reply.send_response(response, false) {
                                let _ = stream.send_data(Bytes::from(name.to_string()), true);
                            }
                        });
                    }
                });
            }
        });
        Self { address, runtime: Some(runtime), asked, connections }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Http2Origin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn before_http2(urls: &str, cores: &str) -> Setup {
    Accelerator::before(urls).flag("--cores", cores).flag("--origin-protocol", "http2")
}

fn who(client: &mut Client, path: &str) -> String {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: site.test\r\n\r\n").as_bytes());
    client.response("GET").expect_status(200).text()
}

fn a42_many_exchanges_share_a_connection_to_an_origin(cores: &str) {
    let (gate, is_well) = (Gate::new(), Arc::new(AtomicBool::new(true)));
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let origin = Http2Origin::start_at(at, 7, &gate, &is_well);
    let accelerator = before_http2(&origin.url(), cores).start();
    let mut clients = Vec::new();
    for number in 0..40 {
        let mut client = accelerator.connect();
        client.send(format!("GET /slow/{number} HTTP/1.1\r\nHost: site.test\r\n\r\n").as_bytes());
        clients.push(client);
    }
    eventually("all are asked at once", || origin.asked.load(Relaxed) == 40);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response("GET").expect_status(200).text(), "7");
    }
    let connections = origin.connections.load(Relaxed);
    let cores = cores.split(',').count();
    assert!(connections <= cores, "{connections} connections");
    let stat = accelerator.stat();
    assert_eq!(stat.count("requests.origin_http2_requests"), 40);
    assert_eq!(stat.count("requests.origin_http2_connects"), connections as u64);
    assert_eq!(stat.count("requests.origin_http2_open"), connections as u64);
    drop(origin);
    eventually("their end is known", || accelerator.stat().count("requests.origin_http2_open") == 0);
    accelerator.get("/").expect_status(502);
}

/// An upload whose client is silent holds neither an HTTP/2 exchange nor a grant for a window of bytes.
fn a_silent_upload_over_http2_holds_no_exchange(cores: &str) {
    let (gate, is_well) = (Gate::new(), Arc::new(AtomicBool::new(true)));
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let origin = Http2Origin::start_at(at, 7, &gate, &is_well);
    let accelerator = before_http2(&origin.url(), cores)
        .limit("origin_connections_max", "1")
        .limit("origin_stream_bytes_max", "64KiB")
        .limit("origin_streams_bytes_max", "64KiB")
        .limit("origin_first_byte_time_max", "120s")
        .start();
    let mut uploads: Vec<Client> = (0..8)
        .map(|number| {
            let mut client = accelerator.connect();
            let head =
                format!("POST /up/{number} HTTP/1.1\r\nHost: site.test\r\nContent-Length: 10\r\n\r\nhello");
            client.send(head.as_bytes());
            client
        })
        .collect();
    eventually("each is asked", || origin.asked.load(Relaxed) == 8);
    for _ in 0..4 {
        let mine = Request::new("POST", "/mine").body(b"q");
        assert_eq!(accelerator.fetch(&mine).expect_status(200).text(), "7");
    }
    for upload in &mut uploads {
        upload.send(b"world");
        assert_eq!(upload.response("POST").expect_status(200).text(), "10");
    }
}

fn a42_nginx_over_http2_gets_a_client_certificate(cores: &str) {
    let (server, ours) = (Certificate::of(&["localhost"]), Certificate::of(&["accelerator"]));
    let body = tests::content::content(7, 0, 3_000_000);
    let configure = |directory: &str, address: SocketAddr| {
        fs::create_dir_all(format!("{directory}/www")).expect("a directory");
        fs::write(format!("{directory}/www/large"), &body).expect("a file");
        format!(
            "daemon off; master_process off; pid {directory}/pid;\nevents {{ worker_connections 256; }}\nhttp {{\n\
             log_format lines '$server_protocol $connection $request_uri $ssl_client_verify';\n\
             access_log {directory}/lines lines;\nclient_body_temp_path {directory}/b; proxy_temp_path {directory}/p;\n\
             fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;\n\
             server {{ listen {address} ssl http2; root {directory}/www;\n\
             ssl_certificate {}; ssl_certificate_key {}; ssl_client_certificate {}; ssl_verify_client on;\n\
             location /none {{ return 204; }} }} }}\n",
            server.file().display(),
            server.key().display(),
            ours.file().display(),
        )
    };
    let nginx = Nginx::configured(configure, Stdio::null);
    let setup = || {
        Accelerator::before(&format!("https://{}", nginx.address()))
            .flag("--cores", cores)
            .flag("--host", "localhost")
            .flag("--origin-tls-name", "localhost")
            .flag("--origin-tls-ca", &server.file().display().to_string())
    };
    let accelerator = setup()
        .flag("--origin-tls-cert", &ours.file().display().to_string())
        .flag("--origin-tls-key", &ours.key().display().to_string())
        .start();
    let mut client = accelerator.connect();
    assert!(client.get("/large").expect_status(200).body == body);
    client.get("/none").expect_status(204);
    client.get("/nothing").expect_status(404);
    let ranged = accelerator.fetch(&Request::get("/large").header("Range", "bytes=1000000-1000009"));
    assert!(ranged.expect_status(206).body == body[1_000_000..1_000_010]);
    for _ in 0..2 {
        let head = accelerator.fetch(&Request::new("HEAD", "/large")).expect_status(200);
        assert_eq!((head.header("content-length"), head.body.len()), (Some("3000000"), 0));
    }
    assert!(accelerator.stat().count("requests.origin_http2_requests") >= 3);
    // The server refuses a request without a client certificate; with one, HTTP/1.1 works as well.
    setup().start().get("/large").expect_status(400);
    let older = setup()
        .flag("--origin-protocol", "http1")
        .flag("--origin-tls-cert", &ours.file().display().to_string())
        .flag("--origin-tls-key", &ours.key().display().to_string())
        .start();
    assert!(older.get("/large").expect_status(200).body == body);
    assert_eq!(older.stat().count("requests.origin_http2_requests"), 0);
}

fn a42_gos_server_is_asked_over_http2(cores: &str) {
    let Some(program) = installed("edge/origin") else { return };
    let (server, ours) = (Certificate::of(&["localhost"]), Certificate::of(&["accelerator"]));
    let mut child = Command::new(program)
        .args([server.file(), server.key(), ours.file()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("where it listens");
    let (secured, clear) = line.trim().split_once(' ').expect("both");
    let over_tls = Accelerator::before(&format!("https://{secured}"))
        .flag("--cores", cores)
        .flag("--origin-tls-name", "localhost")
        .flag("--origin-tls-ca", &server.file().display().to_string())
        .flag("--origin-tls-cert", &ours.file().display().to_string())
        .flag("--origin-tls-key", &ours.key().display().to_string());
    for setup in [over_tls, before_http2(&format!("http://{clear}"), cores)] {
        let accelerator = setup.start();
        let mut client = accelerator.connect();
        assert_eq!(who(&mut client, "/page"), "HTTP/2.0 site.test http");
        // Content in both directions: with a declared length, and in chunks with trailers.
        let body = tests::content::content(9, 0, 1_000_000);
        client.send(b"POST /echo HTTP/1.1\r\nHost: site.test\r\nContent-Length: 1000000\r\n\r\n");
        client.send(&body);
        assert!(client.response("POST").expect_status(200).body == body);
        client.send(
            b"POST /echo HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Asked\r\n\r\n",
        );
        client.send(b"5\r\nhello\r\n4\r\n you\r\n0\r\nX-Asked: why\r\n\r\n");
        let echoed = client.response("POST").expect_status(200);
        assert_eq!((echoed.text().as_str(), echoed.trailers.first("x-sum")), ("hello you", Some("9why")));
        // An answer that comes before all content is sent is passed on at once.
        let mut early = accelerator.connect();
        early.send(b"PUT /early HTTP/1.1\r\nHost: site.test\r\nContent-Length: 50000000\r\n\r\n");
        early.send(&body);
        early.response("PUT").expect_status(403);
        // A large body that is stored; early hints; and an endless stream of events, each passed on as it
        // arrives.
        for _ in 0..2 {
            assert_eq!(client.get("/large").expect_status(200).body.len(), 3_200_000);
        }
        assert_eq!(accelerator.stat().count("requests.hits"), 1);
        client.send(b"GET /hints HTTP/1.1\r\nHost: site.test\r\n\r\n");
        let hints = client.head("GET");
        assert_eq!((hints.status, hints.headers.first("link")), (103, Some("</style.css>; rel=preload")));
        assert_eq!(client.response("GET").expect_status(200).text(), "hinted");
        let mut events = accelerator.connect();
        events.send(b"GET /events HTTP/1.1\r\nHost: site.test\r\n\r\n");
        assert_eq!(events.head("GET").status, 200);
        let text = events.body_exactly(3 * 9);
        assert_eq!(text, b"data: 0\n\ndata: 1\n\ndata: 2\n\n");
        drop(events);
        // An answer that the origin breaks off never looks complete.
        let cut = accelerator.get("/cut");
        assert_ne!(cut.end, End::Complete, "{cut:?}");
        assert_eq!(who(&mut accelerator.connect(), "/page"), "HTTP/2.0 site.test http");
    }
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

fn a42_probes_go_over_http2(cores: &str) {
    let (gate, is_well) = (Gate::new(), Arc::new(AtomicBool::new(true)));
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let origin = Http2Origin::start_at(at, 1, &gate, &is_well);
    let accelerator = before_http2(&origin.url(), cores)
        .flag("--probe", "/healthz")
        .flag("--probe-interval", "20ms")
        .flag("--probe-window", "4")
        .flag("--probe-threshold", "3")
        .flag("--slow-start", "0s")
        .start();
    assert_eq!(state(&accelerator, 0), "up");
    let shown = || {
        let stat = accelerator.stat();
        stat.document()["requests"][format!("origin_up_{}", origin.url())].as_u64()
    };
    assert_eq!(shown(), Some(1));
    is_well.store(false, Relaxed);
    eventually("it is sick", || state(&accelerator, 0) == "sick");
    assert_eq!(shown(), Some(0));
    accelerator.get("/").expect_status(502);
    is_well.store(true, Relaxed);
    eventually("it is well again", || state(&accelerator, 0) == "up");
    accelerator.get("/").expect_status(200);
}

/// State of a server, by its position in the configuration.
fn state(accelerator: &Accelerator, at: usize) -> String {
    let said = accelerator.ask(&["origins", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    said["origins"][at]["state"].as_str().expect("a state").to_owned()
}

/// An HTTP/2 origin gets WebSocket requests over HTTP/1.1; the origin here is an accelerator.
fn a42_a_websocket_goes_by_http1_all_the_same(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/socket", |request, reply| {
        let key = request.header("sec-websocket-key").expect("a key").to_owned();
        assert_eq!(key, "dGhlIHNhbXBsZSBub25jZQ==");
        reply.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        )?;
        let mut room = [0; 4];
        let bytes = reply.receive(&mut room)?;
        reply.send(&room[..bytes])?;
        Ok(Next::Close)
    });
    let inner = Accelerator::before(&origin.url()).flag("--name", "inner").start();
    let accelerator = before_http2(&format!("http://{}", inner.address()), cores).start();
    assert_eq!(accelerator.get("/nothing").status(), inner.get("/nothing").status());
    let mut client = accelerator.connect();
    client.send(
        b"GET /socket HTTP/1.1\r\nHost: site.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert_eq!(client.head("GET").status, 101);
    client.send(b"ping");
    assert_eq!(client.exactly(4), b"ping");
    assert_eq!(inner.stat().count("requests.pipes"), 1);
    assert!(inner.stat().count("requests.http2_received") >= 1);
}

/// An origin server, of HTTP/1.1 or HTTP/2.
trait Server: Sized {
    fn start_at(at: SocketAddr, name: usize) -> Self;
    fn address(&self) -> SocketAddr;
    fn asked(&self) -> usize;
    fn kill(self);
}

impl Server for ScriptedOrigin {
    fn start_at(at: SocketAddr, name: usize) -> Self {
        let origin = Self::start_at(at);
        origin.otherwise(move |request, reply| {
            let kept = if request.path().starts_with("/stored/") { "max-age=600" } else { "no-store" };
            reply.answer(&Answer::new(200, name.to_string()).header("Cache-Control", kept))
        });
        origin.answers("/healthz", Answer::new(200, "well"));
        origin
    }

    fn address(&self) -> SocketAddr {
        self.address()
    }

    fn asked(&self) -> usize {
        self.all_seen().iter().filter(|seen| seen.path() != "/healthz").count()
    }

    fn kill(self) {
        self.kill();
    }
}

impl Server for Http2Origin {
    fn start_at(at: SocketAddr, name: usize) -> Self {
        Self::start_at(at, name, &Gate::new(), &Arc::new(AtomicBool::new(true)))
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn asked(&self) -> usize {
        self.asked.load(Relaxed)
    }

    fn kill(self) {
        drop(self);
    }
}

fn a11_an_http1_server_killed_under_load_returns_gently(cores: &str) {
    killed_under_load::<ScriptedOrigin>(cores, "http1");
}

fn a11_an_http2_server_killed_under_load_returns_gently(cores: &str) {
    killed_under_load::<Http2Origin>(cores, "http2");
}

/// One of three servers is killed under load. No client sees an error for a request that is storable or safe;
/// probes alone move the load within one probe window; and the server gets a sixteenth of its share once it
/// is back.
fn killed_under_load<S: Server>(cores: &str, protocol: &str) {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut servers: Vec<S> = (0..3).map(|name| S::start_at(anywhere, name)).collect();
    let address = servers[1].address();
    let urls: Vec<String> = servers.iter().map(|server| format!("http://{}", server.address())).collect();
    let accelerator = Arc::new(
        Accelerator::before(&urls.join(","))
            .flag("--cores", cores)
            .flag("--origin-protocol", protocol)
            .flag("--eject-after", "0")
            .flag("--probe", "/healthz")
            .flag("--probe-interval", "50ms")
            .flag("--probe-window", "4")
            .flag("--probe-threshold", "3")
            .flag("--slow-start", "10h")
            .start(),
    );
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let (accelerator, is_over) = (Arc::clone(&accelerator), Arc::clone(&is_over));
            thread::spawn(move || {
                let mut connection = accelerator.connect();
                let mut asked = 0;
                while !is_over.load(Relaxed) {
                    let kind = if client % 2 == 0 { "stored" } else { "passed" };
                    // Any status but 200 ends the test.
                    who(&mut connection, &format!("/{kind}/{client}/{asked}"));
                    asked += 1;
                }
            })
        })
        .collect();
    eventually("all are asked", || servers.iter().all(|server| server.asked() > 30));
    servers.remove(1).kill();
    eventually("its probes have found it out", || state(&accelerator, 1) == "sick");
    // Requests that were under way may have tried the dead server; no later one does.
    let asked = |servers: &[S]| servers.iter().map(Server::asked).sum::<usize>();
    let seen = asked(&servers);
    eventually("the others are asked", || asked(&servers) > seen + 30);
    let retries = accelerator.stat().count("requests.origin_retries");
    let seen = asked(&servers);
    eventually("the others are asked on", || asked(&servers) > seen + 100);
    assert_eq!(accelerator.stat().count("requests.origin_retries"), retries);
    let back = S::start_at(address, 1);
    eventually("it is back", || state(&accelerator, 1) == "warming");
    let (seen, own) = (asked(&servers), back.asked());
    eventually("it is asked, and the others", || asked(&servers) > seen + 320 && back.asked() > own);
    let (others, own) = (asked(&servers) - seen, back.asked() - own);
    // A sixteenth of its share is one request in 33; a core's round may begin with this server.
    assert!(own * 16 < others, "{own} of {others}");
    is_over.store(true, Relaxed);
    for client in clients {
        client.join().expect("no client has seen an error");
    }
}

fn a11_the_whole_of_an_answer_has_its_time(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/drip", |_, reply| {
        reply.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n")?;
        while !reply.stopped() {
            reply.send(b"1\r\nx\r\n")?;
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Next::Close)
    });
    origin.on("/never", |_, reply| Ok(reply.stall()));
    origin.answers("/quick", Answer::new(200, "quick"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_request_time_max", "400ms")
        .start();
    accelerator.get("/quick").expect_status(200);
    accelerator.get("/never").expect_status(504);
    let dripped = accelerator.get("/drip");
    assert_eq!(dripped.status(), 200);
    assert_ne!(dripped.end, End::Complete, "it is cut");
    let stat = accelerator.stat();
    assert!(stat.count("limits.origin_request_time") >= 2);
    assert_eq!(stat.count("limits.origin_time"), 0, "no other time was over");
}

/// DNS server that answers with one IPv4 address, with a TTL of one second.
fn dns(address: &Arc<Mutex<Ipv4Addr>>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = socket.local_addr().expect("an address");
    let address = Arc::clone(address);
    thread::spawn(move || {
        let mut room = [0; 1500];
        while let Ok((bytes, from)) = socket.recv_from(&mut room) {
            let name_bytes = room[12..bytes].iter().position(|&b| b == 0).expect("a name") + 1;
            let asked = &room[12..12 + name_bytes + 4];
            let is_of_four = asked[name_bytes..name_bytes + 2] == [0, 1];
            let mut answer = room[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_of_four), 0, 0, 0, 0]);
            answer.extend(asked);
            if is_of_four {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
                answer.extend(address.lock().expect("nobody has panicked").octets());
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    at
}

fn a10_a_name_that_moves_is_followed(cores: &str) {
    let first = ScriptedOrigin::start();
    let port = first.address().port();
    let second = ScriptedOrigin::start_at(SocketAddr::from(([127, 0, 0, 2], port)));
    for (name, origin) in [(1, &first), (2, &second)] {
        let answer = Answer::new(200, name.to_string()).header("Cache-Control", "no-store");
        origin.otherwise(move |_, reply| {
            reply.send(&answer.bytes("GET"))?;
            // Each connection carries one request, so that the next request uses the name's current address.
            Ok(Next::Close)
        });
    }
    let address = Arc::new(Mutex::new(Ipv4Addr::new(127, 0, 0, 1)));
    let accelerator = Accelerator::before(&format!("http://app.example:{port}"))
        .flag("--cores", cores)
        .flag("--resolver", &dns(&address).to_string())
        .start();
    assert_eq!(accelerator.get("/").expect_status(200).text(), "1");
    *address.lock().expect("nobody has panicked") = Ipv4Addr::new(127, 0, 0, 2);
    eventually("it is followed", || accelerator.get("/").expect_status(200).text() == "2");
    assert!(accelerator.stat().count("requests.origin_lookups") >= 2);
    assert_eq!(accelerator.stat().count("errors.origin_lookups_failed"), 0);
}

#[test]
fn a42_invalid_protocol_and_resolver_flags_are_refused() {
    for (flags, said) in [
        (["--origin-protocol", "h2"], "expected auto, http1 or http2"),
        (["--resolver", "dns.example"], "invalid DNS server address"),
        (["--origin-stream-bytes-max", "1KiB"], "16KiB to 64MiB"),
        (["--origin-streams-max", "0"], "at least 1"),
    ] {
        let mut command = tests::program::command();
        command.args([
            "cache",
            "--origin",
            "http://a:1",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ]);
        let output = command.args(flags).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(said), "{flags:?}: {told}");
    }
}
