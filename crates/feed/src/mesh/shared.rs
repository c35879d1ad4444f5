//! State that all cores share; it is written when a client connects, but not when messages are delivered.

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use engine::{
    cores::clock,
    meter::CounterSet,
    random,
    share::{ClientBudget, CommonPart},
};
use serde::Serialize;

use crate::{
    accounts::identity::ACCOUNTS_MAX,
    client::connection::{Connection, Transport},
    counters::Counter,
    mesh::settings::Settings,
};

/// Version of nats-server whose protocol the feed implements; clients use it to decide which features they
/// may use.
pub(crate) const PROTOCOL_VERSION: &str = "2.10.0";

/// State that all cores share.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) server_id: String,
    pub(crate) started: SystemTime,
    /// Address of the listener for clients.
    pub(crate) address: SocketAddr,
    /// Address of the monitoring pages; set when they are first served.
    pub(crate) monitor: OnceLock<SocketAddr>,
    next_cid: AtomicU64,
    /// Connections still to be closed because a limit was lowered; each core takes its share.
    pub(crate) surplus: AtomicUsize,
    /// Counters of all cores, for readers outside of the loops.
    pub(crate) counters: Arc<CounterSet<Counter>>,
    /// Memory for connections beyond each core's own share.
    pub(crate) connections: Arc<CommonPart>,
    /// Memory for backlogs beyond each core's own share.
    pub(crate) pending: Arc<CommonPart>,
    /// Memory for subscriptions beyond each core's own share.
    pub(crate) subscription_memory: Arc<CommonPart>,
    /// Connections of each account on all cores; written when a client is admitted and when it leaves.
    of_accounts: Box<[AtomicUsize]>,
}

/// Reason why a client gets an INFO line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InfoOccasion {
    /// The client has just connected.
    Connection,
    /// The client has logged in, or something that INFO says has changed.
    Change,
}

/// Client for which an INFO line is built.
pub(crate) struct Reader<'a> {
    pub(crate) cid: u64,
    pub(crate) address: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) nonce: Option<&'a str>,
}

impl<'a> From<&'a Connection> for Reader<'a> {
    fn from(of: &'a Connection) -> Self {
        Self { cid: of.cid, address: of.address, transport: of.transport, nonce: of.nonce.as_deref() }
    }
}

/// Fields of the INFO that is sent to clients.
#[derive(Serialize)]
struct Info<'a> {
    server_id: &'a str,
    server_name: &'a str,
    version: &'a str,
    proto: u8,
    go: &'a str,
    host: String,
    port: u16,
    headers: bool,
    max_payload: usize,
    client_id: u64,
    client_ip: String,
    #[serde(skip_serializing_if = "is_false")]
    auth_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_available: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_verify: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    connect_urls: &'a [String],
    #[serde(skip_serializing_if = "is_false")]
    connect_info: bool,
    #[serde(skip_serializing_if = "is_false")]
    ldm: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(of: &bool) -> bool {
    !of
}

impl SharedState {
    pub(crate) fn new(
        address: SocketAddr,
        counters: Arc<CounterSet<Counter>>,
        budget: Option<&Arc<ClientBudget>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server_id: server_id(),
            started: clock::now_system(),
            address,
            monitor: OnceLock::new(),
            next_cid: AtomicU64::new(1),
            surplus: AtomicUsize::new(0),
            counters,
            connections: CommonPart::within(budget),
            pending: CommonPart::within(budget),
            subscription_memory: CommonPart::within(budget),
            of_accounts: (0..ACCOUNTS_MAX).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Adds one connection to an account's count. Returns false if the account has reached its limit.
    pub(crate) fn enter_account(&self, account: u16, max: Option<usize>) -> bool {
        let Some(count) = self.of_accounts.get(usize::from(account)) else { return true };
        let below = |now: usize| (now < max.unwrap_or(usize::MAX)).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_ok()
    }

    /// Removes one connection from an account's count.
    pub(crate) fn leave_account(&self, account: u16) {
        if let Some(count) = self.of_accounts.get(usize::from(account)) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns a new connection number; numbers are never reused.
    pub(crate) fn next_cid(&self) -> u64 {
        self.next_cid.fetch_add(1, Ordering::Relaxed)
    }

    /// Builds the INFO line for a client.
    pub(crate) fn info(
        &self,
        settings: &Settings,
        reader: &Reader<'_>,
        occasion: InfoOccasion,
        ldm: bool,
    ) -> Vec<u8> {
        let config = &settings.config;
        let tls = match reader.transport.websocket {
            true => config.websocket.as_ref().and_then(|websocket| websocket.tls.as_ref()),
            false => config.tls.as_ref(),
        };
        let info = Info {
            server_id: &self.server_id,
            server_name: &config.server_name,
            version: PROTOCOL_VERSION,
            proto: 1,
            go: "",
            host: self.address.ip().to_string(),
            port: self.address.port(),
            headers: config.headers,
            max_payload: config.limits.max_payload,
            client_id: reader.cid,
            client_ip: reader.address.ip().to_string(),
            auth_required: settings.identities.is_asked_for(),
            tls_required: tls.is_some_and(|tls| !tls.optional),
            tls_available: tls.is_some_and(|tls| tls.optional),
            tls_verify: tls.is_some_and(|tls| tls.verify),
            nonce: reader.nonce,
            connect_urls: &config.connect_urls,
            connect_info: occasion == InfoOccasion::Change,
            ldm,
        };
        let mut line = Vec::with_capacity(512);
        let json = serde_json::to_vec(&info).unwrap_or_else(|error| panic!("cannot write INFO: {error}"));
        wire::nats::write::info(&mut line, &json);
        line
    }
}

/// Builds a random server id of 56 characters, as long as an nkey's, from the system's random source.
fn server_id() -> String {
    format!("N{}", random_letters::<55>())
}

/// Builds a nonce for a client to sign.
pub(crate) fn nonce() -> Box<str> {
    random_letters::<22>().into()
}

fn random_letters<const N: usize>() -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    match random::bytes::<N>() {
        Ok(bytes) => {
            bytes.map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).iter().collect()
        }
        Err(error) => panic!("the system's random source failed: {error}"),
    }
}
