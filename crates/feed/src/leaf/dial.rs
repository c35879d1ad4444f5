//! Dialing a hub: the TCP connection, the hub's INFO, TLS, and CONNECT.
//!
//! ```text
//!   nats-leaf://  TCP ─ INFO ─ (TLS, if INFO or the scheme asks for it) ─ CONNECT ─▶ served (`serve::attend`)
//!   tls first     TCP ─ TLS ─ INFO ─ CONNECT ─▶
//!   ws://, wss:// TCP ─ (TLS) ─ GET /leafnode ─ INFO ─ CONNECT ─▶
//! ```
//! Dialing is a task of the core, and each step has a time limit. A port that does not belong to a hub is
//! recognised by the first bytes that it sends.

use std::{io, net::SocketAddr, time::Duration};

use engine::{
    cores::clock,
    tls::client::{self, ServerName, TlsConnector},
};
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use wire::nats::{
    Progress,
    leaf::{self, LeafOp, Limits},
    write,
};

use super::{
    Seed,
    credentials::{self, SignedConnect},
    remote::{Address, Remote, Scheme},
    trouble::Trouble,
};
use crate::{
    client::{
        connection::{Transport, Writer},
        stream::{Duplex, Stream},
        transport::what_was_agreed_by,
        websocket,
    },
    leaf::info::Info,
};

/// Time limit for establishing the TCP connection to a hub.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time limit for each step: the hub's INFO, a handshake, and the answer to CONNECT.
pub(super) const STEP_TIME_MAX: Duration = Duration::from_secs(5);
/// Version of nats-server whose leaf protocol the feed implements; a hub compares its `min_version` with it.
const LEAF_VERSION: &str = "2.15.2";

/// CONNECT as leaf nodes send it. `lang` is absent, because a hub takes a sender of `lang` for a client at
/// the wrong port; `compress_mode` is absent, so that nothing is compressed. The feed has no JetStream, and
/// never binds the system account.
#[derive(Serialize)]
struct Connect<'a> {
    version: &'a str,
    server_id: &'a str,
    name: &'a str,
    cluster: &'a str,
    headers: bool,
    remote_account: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nkey: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<&'a str>,
}

/// A connection to a hub on which CONNECT has been sent.
pub(crate) struct DialedHub {
    pub(crate) stream: Stream,
    pub(crate) writer: Writer,
    pub(crate) transport: Transport,
    pub(crate) peer: SocketAddr,
    pub(crate) info: Info,
    /// Bytes that arrived from the hub after INFO.
    pub(crate) received: Vec<u8>,
}

/// A stream to a hub whose INFO has arrived.
struct GreetedStream<S> {
    stream: S,
    info: Info,
    received: Vec<u8>,
}

/// Connects to a hub and sends CONNECT.
pub(crate) async fn dial(seed: &Seed, address: &Address) -> Result<DialedHub, Trouble> {
    let unreachable = |error: io::Error| Trouble::Unreachable(error.to_string());
    let place = (address.host.as_str(), address.port);
    let socket = match timeout(CONNECT_TIME_MAX, TcpStream::connect(place)).await {
        Ok(connected) => connected.map_err(unreachable)?,
        Err(_) => return Err(Trouble::Unreachable("connection timed out".to_owned())),
    };
    // Every batch of output is one write, so waiting for more (Nagle) would only add latency.
    let _ = socket.set_nodelay(true);
    let peer = socket.peer_addr().map_err(unreachable)?;
    let remote = &seed.remote;
    if address.is_web() {
        let mut transport = Transport { websocket: true, tls: None };
        if address.scheme == Scheme::Ws {
            let web = upgrade(socket, address).await?;
            return wrapped(seed, address, greet(web).await?, transport, peer).await;
        }
        let secured = secure(remote, address, socket).await?;
        transport.tls = Some(what_was_agreed_by(secured.get_ref().1));
        let web = upgrade(secured, address).await?;
        return wrapped(seed, address, greet(web).await?, transport, peer).await;
    }
    if remote.tls_handshake_first {
        let secured = secure(remote, address, socket).await?;
        let transport = Transport { websocket: false, tls: Some(what_was_agreed_by(secured.get_ref().1)) };
        return wrapped(seed, address, greet(secured).await?, transport, peer).await;
    }
    let GreetedStream { stream: mut socket, info, received } = greet(socket).await?;
    if info.tls_required || address.scheme == Scheme::Tls || remote.tls_ca.is_some() {
        let secured = secure(remote, address, socket).await?;
        let transport = Transport { websocket: false, tls: Some(what_was_agreed_by(secured.get_ref().1)) };
        return wrapped(seed, address, GreetedStream { stream: secured, info, received }, transport, peer)
            .await;
    }
    connect(seed, address, &mut socket, &info).await?;
    let (read, write) = socket.into_split();
    let transport = Transport::default();
    Ok(DialedHub {
        stream: Stream::Plain(read),
        writer: Writer::Socket(write),
        transport,
        peer,
        info,
        received,
    })
}

/// Sends CONNECT on a stream that only the connection's own task reads and writes.
async fn wrapped<S: Duplex + 'static>(
    seed: &Seed,
    address: &Address,
    greeted: GreetedStream<S>,
    transport: Transport,
    peer: SocketAddr,
) -> Result<DialedHub, Trouble> {
    let GreetedStream { mut stream, info, received } = greeted;
    connect(seed, address, &mut stream, &info).await?;
    let stream = Stream::Wrapped(Box::new(stream));
    Ok(DialedHub { stream, writer: Writer::Task, transport, peer, info, received })
}

async fn secure(
    remote: &Remote,
    address: &Address,
    socket: TcpStream,
) -> Result<client::TlsStream<TcpStream>, Trouble> {
    let failed = |why: String| Trouble::Handshake(format!("TLS fails: {why}"));
    let connector = connector(remote).await?;
    // A server announced by a hub may be known by IP address only, but its certificate is for the configured
    // name.
    let name = remote
        .addresses
        .iter()
        .map(|address| &address.host)
        .find(|host| host.parse::<std::net::IpAddr>().is_err());
    let host = match address.host.parse::<std::net::IpAddr>() {
        Ok(_) => name.unwrap_or(&address.host),
        Err(_) => &address.host,
    };
    let name = ServerName::try_from(host.clone())
        .map_err(|_| failed(format!("{host} is not a valid name in a certificate")))?;
    match timeout(STEP_TIME_MAX, connector.connect(name, socket)).await {
        Ok(connected) => connected.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed("timed out".to_owned())),
    }
}

/// Builds the TLS connector. A helper thread reads the files for each new connection.
async fn connector(remote: &Remote) -> Result<TlsConnector, Trouble> {
    let (ca, pair) = (remote.tls_ca.clone(), remote.tls_pair.clone());
    let made = tokio::task::spawn_blocking(move || {
        client::connector(client::TlsClientOptions {
            authorities: ca.as_deref(),
            pair: pair.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path())),
            protocols: &[],
        })
        .map_err(|error| error.to_string())
    });
    made.await.map_err(|error| Trouble::Handshake(error.to_string()))?.map_err(Trouble::Handshake)
}

async fn upgrade<S>(stream: S, address: &Address) -> Result<websocket::WebStream<S>, Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |why: String| Trouble::Handshake(format!("WebSocket fails: {why}"));
    match timeout(STEP_TIME_MAX, websocket::connect(stream, &address.place(), "/leafnode")).await {
        Ok(upgraded) => upgraded.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed("timed out".to_owned())),
    }
}

/// Waits for the hub's INFO.
async fn greet<S: AsyncRead + Unpin>(mut stream: S) -> Result<GreetedStream<S>, Trouble> {
    let not_a_hub = |what: &str| Trouble::NotAHub(what.to_owned());
    let mut received = Vec::with_capacity(4096);
    let reading = async {
        loop {
            match leaf::parse(&received, &Limits::default()) {
                Ok(Progress::Complete(LeafOp::Info { json }, taken)) => {
                    let info: Info = serde_json::from_slice(json)
                        .map_err(|error| Trouble::Protocol(format!("invalid INFO: {error}")))?;
                    return Ok((info, taken));
                }
                Ok(Progress::Complete(LeafOp::Error { text }, _)) => return Err(Trouble::of_words(text)),
                Ok(Progress::Complete(..)) | Err(_) => {
                    return Err(Trouble::NotAHub(format!("another protocol ({})", first_words(&received))));
                }
                Ok(Progress::NeedMore(_)) => {}
            }
            match stream.read_buf(&mut received).await {
                Ok(0) => return Err(not_a_hub("the connection closes without an INFO")),
                Ok(_) => {}
                Err(error) => return Err(Trouble::Unreachable(error.to_string())),
            }
        }
    };
    let (info, taken) = match timeout(STEP_TIME_MAX, reading).await {
        Ok(read) => read?,
        Err(_) => return Err(not_a_hub("no greeting, as from an HTTP server")),
    };
    // nats-server uses the same fields to distinguish its ports.
    if info.client_id == 0 || info.leafnode_urls.is_none() {
        return Err(not_a_hub("the port is a NATS server's, but for clients or routes"));
    }
    received.drain(..taken);
    Ok(GreetedStream { stream, info, received })
}

/// Returns the start of the first line that a peer sent, in printable form.
fn first_words(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line[..line.len().min(40)].escape_ascii().to_string()
}

/// Sends CONNECT.
async fn connect<S: AsyncWrite + Unpin>(
    seed: &Seed,
    address: &Address,
    stream: &mut S,
    info: &Info,
) -> Result<(), Trouble> {
    let (login, nonce) = (seed.remote.login.clone(), info.nonce.clone());
    let signing = tokio::task::spawn_blocking(move || credentials::sign(&login, &nonce, clock::now_system()));
    let signed = signing.await.map_err(|error| Trouble::Credentials(error.to_string()))?;
    let SignedConnect { jwt, nkey, sig } = signed.map_err(Trouble::Credentials)?;
    // A server announced by a hub gets the credentials of the configured addresses.
    let configured = seed.remote.addresses.iter().find_map(|address| address.user.as_ref());
    let user = address.user.as_ref().or(configured);
    let json = serde_json::to_vec(&Connect {
        version: LEAF_VERSION,
        server_id: &seed.server_id,
        name: &seed.name,
        cluster: &seed.cluster,
        headers: info.headers,
        remote_account: &seed.account_name,
        user: user.map(|(user, _)| user.as_str()),
        pass: user.and_then(|(_, pass)| pass.as_deref()),
        auth_token: user.filter(|(_, pass)| pass.is_none()).map(|(token, _)| token.as_str()),
        nkey: nkey.as_deref(),
        jwt: jwt.as_deref(),
        sig: sig.as_deref(),
    })
    .map_err(|error| Trouble::Credentials(error.to_string()))?;
    let mut line = Vec::with_capacity(json.len() + 16);
    write::connect(&mut line, &json);
    match timeout(STEP_TIME_MAX, async {
        stream.write_all(&line).await?;
        stream.flush().await
    })
    .await
    {
        Ok(written) => written.map_err(|error| Trouble::Unreachable(error.to_string())),
        Err(_) => Err(Trouble::NoAnswer),
    }
}
