//! What one client may have a core do and hold beside others: requests that a task answers, and their heads.
//!
//! A bound for all of them alone is the first one's to use up: a hundred connections with a hundred slow streams each
//! refused everybody's misses. In an [account](engine::accounts) one client has all but a sixteenth while nobody else
//! asks, and whoever has most gives way when others do.

use std::net::IpAddr;

use engine::accounts::{Accounts, Category, Charge, ClientKey, Limit};

use crate::config::Limits;

/// Streams of HTTP/2 that a task answers, of a core.
const STREAM_TASKS: Category = Category(0);
/// Bytes of requests' heads that are kept while they are answered, of a core.
const REQUEST_HEADS: Category = Category(1);
/// What a request takes beside its head: where its fields lie, its key, and the task's own state.
const REQUEST_BYTES: usize = 2 << 10;

/// The accounts of one core.
pub(crate) fn accounts(limits: &Limits, cores: usize) -> Accounts {
    let heads = Limit::of_core(limits.client_bytes_max / cores.max(1));
    Accounts::new(vec![Limit::of_core(limits.connections_max), heads])
}

/// The client of a request: who asks, by what its connection or a proxy that is believed says. Whoever comes from this
/// machine may be anybody, so that `connection` counts by itself.
pub(crate) fn client_of(address: IpAddr, connection: u64) -> ClientKey {
    ClientKey::of_connection(address, connection, &[])
}

/// A request's head that is kept.
pub(crate) struct KeptHead(Charge);

impl KeptHead {
    /// `None`: others have none left, or its client has most of them.
    pub(crate) fn new(accounts: &Accounts, client: ClientKey, head_bytes: usize) -> Option<Self> {
        // Once as it came, once as its origin gets it.
        let bytes = 2 * head_bytes + REQUEST_BYTES;
        accounts.charge(client, REQUEST_HEADS, bytes).ok().map(Self)
    }

    /// Waits until it has to give way to others.
    pub(crate) async fn cut(&self) {
        self.0.cut().await;
    }
}

/// A stream of HTTP/2 that a task answers.
pub(crate) struct StreamTask {
    task: Charge,
    head: Option<KeptHead>,
}

impl StreamTask {
    /// Of a request whose head is so long, or of what is left of an answer.
    pub(crate) fn new(accounts: &Accounts, client: ClientKey, head_bytes: Option<usize>) -> Option<Self> {
        let task = accounts.charge(client, STREAM_TASKS, 1).ok()?;
        let head = match head_bytes {
            Some(bytes) => Some(KeptHead::new(accounts, client, bytes)?),
            None => None,
        };
        Some(Self { task, head })
    }

    /// Waits until it has to give way to others.
    pub(crate) async fn cut(&self) {
        match &self.head {
            None => self.task.cut().await,
            Some(head) => tokio::select! {
                () = self.task.cut() => {}
                () = head.cut() => {}
            },
        }
    }
}
