//! A browser at the accelerator: a page by HTTP/2 with TLS, a chat by WebSocket on a stream of that
//! connection, and server-sent events as they arrive.

use std::{
    io::{self, Read, Write},
    process::Command,
};

use tests::{
    Accelerator, Answer, Gate, Next, ScriptedOrigin,
    certificate::Certificate,
    eventually,
    node::{artifacts, node_modules, source_tree, succeeds},
    origin::Reply,
};
use tokio_tungstenite::tungstenite::{
    Message,
    handshake::derive_accept_key,
    protocol::{Role, WebSocket},
};

const PAGE: &str = "<!doctype html><html lang=en><title>Night chat</title>
<h1>Night chat</h1><form><input aria-label=Say><button>Send</button></form><ul></ul><h2>Trains</h2><ol></ol>
<script>
const line = (list, text) => document.querySelector(list).appendChild(document.createElement('li')).textContent = text;
const socket = new WebSocket(`wss://${location.host}/chat`);
socket.onopen = () => line('ul', 'open');
socket.onmessage = ({ data }) => line('ul', data);
socket.onclose = () => line('ul', 'closed');
document.querySelector('form').onsubmit = (event) => {
  event.preventDefault();
  socket.send(document.querySelector('input').value);
};
const events = new EventSource('/trains');
events.onmessage = ({ data }) => line('ol', data);
</script>";

/// Reads and writes of an origin's script, as the WebSocket library needs them.
struct Socket<'a, 'b>(&'a mut Reply<'b>);

impl Read for Socket<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.receive(into)
    }
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts a site whose events come one by one, each after a message in its chat.
fn night_chat() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.answers(
        "/",
        Answer::new(200, PAGE).header("Content-Type", "text/html").header("Cache-Control", "max-age=600"),
    );
    let gates = [Gate::new(), Gate::new()];
    let said = gates.clone();
    origin.on("/chat", move |request, reply| {
        let accept = derive_accept_key(request.header("sec-websocket-key").unwrap_or_default().as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        reply.send(head.as_bytes())?;
        let mut socket = WebSocket::from_raw_socket(Socket(reply), Role::Server, None);
        let mut gates = said.iter();
        while let Ok(message) = socket.read() {
            if let Message::Text(text) = message {
                socket.send(Message::text(format!("heard {text}"))).map_err(io::Error::other)?;
                gates.next().inspect(|gate| gate.open());
            }
        }
        Ok(Next::Close)
    });
    origin.on("/trains", move |_, reply| {
        reply.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
              Transfer-Encoding: chunked\r\n\r\n",
        )?;
        for (number, gate) in gates.iter().enumerate() {
            gate.pass();
            let event = format!("data: train {number}\n\n");
            reply.send(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
        }
        Ok(reply.stall())
    });
    origin
}

#[test]
fn a12_a13_a16_websocket_and_events_share_a_browsers_connection() {
    let origin = night_chat();
    let certificate = Certificate::of(&["localhost"]);
    let accelerator = Accelerator::before(&origin.url())
        .flag("--tls-listen", "127.0.0.1:0")
        .flag("--tls-cert", &certificate.file().display().to_string())
        .flag("--tls-key", &certificate.key().display().to_string())
        .start();
    let said = succeeds(
        Command::new("node")
            .arg(source_tree().join("tests/browser/edge.cjs"))
            .env("NODE_PATH", node_modules())
            .env("SITE", format!("https://localhost:{}/", accelerator.secured().port()))
            .env("CHROMIUM", "/usr/bin/chromium")
            .env("SHOTS", artifacts("edge-pages")),
    );
    for step in ["the page came by HTTP/2", "the chat answers", "events come one by one"] {
        assert!(said.contains(&format!("ok {step}")), "{said}");
    }
    let stat = accelerator.stat();
    assert_eq!(stat.count("requests.pipes"), 1);
    // The chat used a stream of the page's connection (RFC 8441), not a connection of its own.
    assert_eq!(stat.count("requests.http2_connections"), 1, "{stat:?}");
    eventually("the chat ended with its page", || accelerator.stat().count("requests.pipes_open") == 0);
}
