//! TLS and WebSocket: the same conversations over each of them, and handshakes that must fail.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use crate::common::{Client, HELLO, start, wait_until};
use feed::{
    CertificateSource, Counter, Pair, Tls, WebSocket,
    config::HandshakeFirst,
    identity::{Authorization, User},
};
use futures_util::{SinkExt, StreamExt};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::{Bytes, Message, client::IntoClientRequest};

/// Self-signed certificates for localhost and for a client, as files.
struct Certificates {
    _directory: tempfile::TempDir,
    server: rcgen::CertifiedKey<rcgen::KeyPair>,
    client: rcgen::CertifiedKey<rcgen::KeyPair>,
    tls: Tls,
}

fn certificates() -> Certificates {
    let directory = tempfile::tempdir().expect("a directory");
    let make = |name: &str| rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
    let (server, client) = (make("localhost"), make("client"));
    let write = |name: &str, text: String| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let tls = Tls {
        shown: CertificateSource::Pair(Pair {
            certificates: write("cert.pem", server.cert.pem()),
            key: write("key.pem", server.signing_key.serialize_pem()),
            ocsp: None,
        }),
        ca_file: Some(write("ca.pem", client.cert.pem())),
        verify: false,
        map: false,
        handshake_first: HandshakeFirst::No,
        timeout: None,
        optional: false,
    };
    Certificates { _directory: directory, server, client, tls }
}

fn connector(certificates: &Certificates, with_certificate: bool) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificates.server.cert.der().clone()).expect("a root");
    let builder = ClientConfig::builder_with_provider(engine::tls::provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = if with_certificate {
        let key = rustls::pki_types::PrivateKeyDer::try_from(certificates.client.signing_key.serialize_der())
            .expect("a key");
        builder
            .with_client_auth_cert(vec![certificates.client.cert.der().clone()], key)
            .expect("a certificate")
    } else {
        builder.with_no_client_auth()
    };
    TlsConnector::from(Arc::new(config))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(crate::common::PATIENCE, future).await.expect("in time") })
}

async fn info_line(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        line.push(stream.read_u8().await.expect("INFO"));
    }
    String::from_utf8(line).expect("text")
}

/// Sends a message of a megabyte to itself, and a PING.
async fn converse(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let body: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 3) as u8).collect();
    let mut out = [HELLO, b"SUB a 1\r\n"].concat();
    wire::nats::write::publish(&mut out, b"a", b"", &body);
    out.extend_from_slice(b"PING\r\n");
    let mut expected = b"MSG a 1 1000000\r\n".to_vec();
    expected.extend_from_slice(&body);
    expected.extend_from_slice(b"\r\nPONG\r\n");
    let (mut read, mut write) = tokio::io::split(stream);
    let sending = async {
        write.write_all(&out).await.expect("sent");
        write.flush().await.expect("sent");
    };
    let mut got = vec![0; expected.len()];
    let (read, ()) = tokio::join!(read.read_exact(&mut got), sending);
    read.expect("all of it");
    assert!(got == expected, "what came back is what was sent");
}

#[test]
fn tls_handshakes_work_before_and_after_info() {
    let certificates = certificates();
    let late = HandshakeFirst::After(Duration::from_millis(1));
    let early = HandshakeFirst::After(Duration::from_secs(600));
    for (verify, handshake_first, is_first) in [
        (false, HandshakeFirst::No, false),
        (true, HandshakeFirst::No, false),
        (false, HandshakeFirst::Yes, true),
        (false, late, false),
        (false, early, true),
    ] {
        let server = start(2, |config| {
            config.tls = Some(Tls { verify, handshake_first, ..certificates.tls.clone() });
        });
        let name = || ServerName::try_from("localhost").expect("a name");
        block_on(async {
            let mut socket = TcpStream::connect(server.addresses()[0]).await.expect("a connection");
            if !is_first {
                let info = info_line(&mut socket).await;
                assert!(info.contains("\"tls_required\":true"), "{info}");
                assert_eq!(info.contains("\"tls_verify\":true"), verify, "{info}");
            }
            let mut stream =
                connector(&certificates, verify).connect(name(), socket).await.expect("a handshake");
            if is_first {
                info_line(&mut stream).await;
            }
            converse(&mut stream).await;
            let snapshot = server.snapshot().await.expect("a snapshot");
            assert_eq!(snapshot.connections[0].transport.tls.map(|tls| tls.0), Some("1.3"));
        });
        if verify {
            block_on(async {
                let mut socket = TcpStream::connect(server.addresses()[0]).await.expect("a connection");
                info_line(&mut socket).await;
                // In TLS 1.3 the client learns of the refusal only when it reads.
                let refused = match connector(&certificates, false).connect(name(), socket).await {
                    Ok(mut stream) => stream.read_u8().await.is_err(),
                    Err(_) => true,
                };
                assert!(refused, "without a certificate");
            });
            wait_until("it is counted", || server.counted(Counter::HandshakesFailed) == 1);
        }
        // A client without TLS is closed.
        let mut plain = std::net::TcpStream::connect(server.addresses()[0]).expect("a connection");
        std::io::Write::write_all(&mut plain, b"CONNECT {}\r\nPING\r\n").expect("sent");
        plain.set_read_timeout(Some(crate::common::PATIENCE)).expect("an option");
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut plain, &mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("PONG"));
    }
}

/// `allow_non_tls`: clients may connect without TLS, and INFO says that TLS is available.
#[test]
fn tls_is_offered_where_it_is_not_required() {
    let certificates = certificates();
    let server = start(1, |config| {
        config.tls = Some(Tls { optional: true, ..certificates.tls.clone() });
        // The server waits half of this for a client that sends nothing.
        config.limits.auth_timeout = crate::common::PATIENCE;
    });
    block_on(async {
        for is_tls in [false, true] {
            let mut socket = TcpStream::connect(server.addresses()[0]).await.expect("a connection");
            let info = info_line(&mut socket).await;
            assert!(
                info.contains("\"tls_available\":true") && !info.contains("\"tls_required\":true"),
                "{info}"
            );
            if is_tls {
                let name = ServerName::try_from("localhost").expect("a name");
                let mut stream =
                    connector(&certificates, false).connect(name, socket).await.expect("a handshake");
                converse(&mut stream).await;
            } else {
                converse(&mut socket).await;
            }
        }
    });
}

#[test]
fn files_that_are_wrong_are_named() {
    let certificates = certificates();
    let nowhere =
        Pair { certificates: "/nowhere/cert.pem".into(), key: "/nowhere/key.pem".into(), ocsp: None };
    let missing = Tls { shown: CertificateSource::Pair(nowhere), ..certificates.tls.clone() };
    let config = feed::Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: Some(missing),
        ..feed::Config::default()
    };
    let Err(error) = feed::Server::start(config) else { panic!("a file is missing") };
    assert!(error.to_string().contains("/nowhere/cert.pem"), "{error}");
}

#[test]
fn browsers_by_web_socket() {
    let certificates = certificates();
    for tls in [None, Some(certificates.tls.clone())] {
        let is_tls = tls.is_some();
        let server = start(2, |config| {
            config.websocket = Some(WebSocket {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                tls,
                allowed_origins: vec!["http://good.example".to_owned()],
                same_origin: false,
            });
        });
        let [nats, web] = server.addresses()[..] else { panic!("two addresses") };
        let mut consumer = Client::to(nats);
        consumer.send(HELLO);
        consumer.subscribe("live.*", "1");
        block_on(async {
            let socket = TcpStream::connect(web).await.expect("a connection");
            let stream: Box<dyn Both> = if is_tls {
                let name = ServerName::try_from("localhost").expect("a name");
                Box::new(connector(&certificates, false).connect(name, socket).await.expect("a handshake"))
            } else {
                Box::new(socket)
            };
            let mut request = "ws://localhost/".into_client_request().expect("a request");
            request.headers_mut().insert("Origin", "http://good.example".parse().expect("a value"));
            let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("an upgrade");
            let mut out = [HELLO, b"SUB live.a 7\r\nPUB live.a 5\r\nhello\r\nPING\r\n"].concat();
            // The operations are cut into messages at an arbitrary byte.
            let rest = out.split_off(out.len() - 9);
            socket.send(Message::Binary(Bytes::from(out))).await.expect("sent");
            socket.send(Message::Text(String::from_utf8(rest).expect("text").into())).await.expect("sent");
            let mut all = Vec::new();
            while !String::from_utf8_lossy(&all).contains("PONG") {
                match socket.next().await.expect("more").expect("a message") {
                    Message::Binary(bytes) => all.extend_from_slice(&bytes),
                    other => panic!("{other:?}"),
                }
            }
            let text = String::from_utf8_lossy(&all).into_owned();
            assert!(
                text.starts_with("INFO {") && text.contains("MSG live.a 7 5\r\nhello\r\nPONG\r\n"),
                "{text}"
            );
            socket.close(None).await.expect("goodbye");
        });
        loop {
            // The second INFO comes first.
            if let crate::common::Got::Message { payload, .. } = consumer.next() {
                assert_eq!(payload, b"hello");
                break;
            }
        }
        wait_until("it has left", || server.counted(Counter::Connections) == 1);
        if !is_tls {
            block_on(async {
                let mut request = format!("ws://{web}/").into_client_request().expect("a request");
                let own = format!("http://{web}").parse().expect("a value");
                request.headers_mut().insert("Origin", own);
                let socket = TcpStream::connect(web).await.expect("a connection");
                assert!(
                    tokio_tungstenite::client_async(request, socket).await.is_ok(),
                    "of this very address"
                );
                let mut request = format!("ws://{web}/").into_client_request().expect("a request");
                request.headers_mut().insert("Origin", "http://evil.example".parse().expect("a value"));
                let socket = TcpStream::connect(web).await.expect("a connection");
                let refused = tokio_tungstenite::client_async(request, socket).await;
                assert!(refused.expect_err("another origin").to_string().contains("403"));
            });
        }
    }
}

/// A client that pipelines over TLS and reads late is paused, and gets all its answers.
#[test]
fn a_pipeliner_over_tls_gets_all_its_answers() {
    const PINGS: usize = 1_000_000;
    let certificates = certificates();
    let server = start(1, |config| {
        config.tls = Some(Tls { handshake_first: HandshakeFirst::Yes, ..certificates.tls.clone() });
        config.limits.max_pending = 1 << 20;
        config.limits.write_deadline = Duration::from_secs(60);
    });
    block_on(async {
        let socket = TcpStream::connect(server.addresses()[0]).await.expect("a connection");
        // A small receive buffer, so that the answers do not all fit into the kernel.
        socket2::SockRef::from(&socket).set_recv_buffer_size(64 << 10).expect("an option");
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = connector(&certificates, false).connect(name, socket).await.expect("a handshake");
        info_line(&mut stream).await;
        let (mut read, mut write) = tokio::io::split(stream);
        let sending = async {
            write.write_all(&b"PING\r\n".repeat(PINGS)).await.expect("sent");
            write.flush().await.expect("sent");
        };
        let reading = async {
            while server.counted(Counter::HeldForAnswers) == 0 {
                tokio::task::yield_now().await;
            }
            // Only PONG has an O: the server's own PING, after two seconds, is not counted.
            let (mut buffer, mut pongs) = (vec![0; 64 << 10], 0);
            while pongs < PINGS {
                let bytes = read.read(&mut buffer).await.expect("an answer");
                assert!(bytes > 0, "closed after {pongs} answers");
                pongs += buffer[..bytes].iter().filter(|byte| **byte == b'O').count();
            }
        };
        tokio::join!(sending, reading);
    });
    let slow = [Counter::SlowPending, Counter::SlowDeadline].map(|counter| server.counted(counter));
    assert_eq!(slow, [0, 0]);
}

/// A client certificate names the user, whatever else CONNECT says; a client without one is refused.
#[test]
fn a_certificate_names_the_user() {
    let certificates = certificates();
    let named = |name: &str| User { user: Some(name.to_owned()), ..User::default() };
    for (name, is_let_in) in [("client", true), ("other", false)] {
        let server = start(1, |config| {
            config.tls = Some(Tls { verify: true, map: true, ..certificates.tls.clone() });
            config.authorization =
                Authorization { users: vec![named(name)], by_certificate: true, ..Authorization::default() };
        });
        block_on(async {
            let mut socket = TcpStream::connect(server.addresses()[0]).await.expect("a connection");
            info_line(&mut socket).await;
            let localhost = ServerName::try_from("localhost").expect("a name");
            let mut stream =
                connector(&certificates, true).connect(localhost, socket).await.expect("a handshake");
            stream
                .write_all(b"CONNECT {\"verbose\":false,\"user\":\"zed\",\"pass\":\"z\"}\r\nPING\r\n")
                .await
                .expect("sent");
            let answer = info_line(&mut stream).await;
            let expected = if is_let_in { "PONG\r\n" } else { "-ERR 'Authorization Violation'\r\n" };
            assert_eq!(answer, expected);
            if is_let_in {
                let snapshot = server.snapshot().await.expect("a snapshot");
                assert_eq!(snapshot.connections[0].user.as_deref(), Some("client"));
            }
        });
    }
}

/// A handshake that never ends is cut after a timeout.
#[test]
fn a_handshake_has_its_time() {
    let certificates = certificates();
    let server = start(1, |config| {
        config.tls = Some(certificates.tls.clone());
        config.limits.auth_timeout = Duration::from_millis(50);
    });
    let mut mute = Client::silent(&server);
    assert_eq!(mute.next(), crate::common::Got::Closed);
    wait_until("it is counted", || server.counted(Counter::HandshakesFailed) == 1);
}

trait Both: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Both for T {}
