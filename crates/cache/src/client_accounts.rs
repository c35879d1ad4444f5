//! Each client's share of a core's request tasks, and of the memory for their heads.
//!
//! A sum without shares belongs to the first client that uses it up: a hundred connections with a hundred slow streams
//! each refused everybody's misses. In an [account](engine::accounts) a client alone has all but a sixteenth, and the one
//! with most gives way when others ask.

use std::net::IpAddr;

use engine::accounts::{Accounts, Category, Charge, ClientKey, Limit};

use crate::{client_memory::ClientMemory, config::Limits, growing::PASSING_BYTES_MIN};

/// Streams of HTTP/2 that a task answers, of a core.
const STREAM_TASKS: Category = Category(0);
/// Bytes of requests' heads that are kept while they are answered, of all cores.
const REQUEST_HEADS: Category = Category(1);
/// Memory of a request beside its head: the places of its fields, its key, the task's state, and the least that an answer
/// which is passed on keeps.
const REQUEST_BYTES: usize = (2 << 10) + PASSING_BYTES_MIN;

/// The accounts of one core.
pub(crate) fn accounts(limits: &Limits, memory: &ClientMemory) -> Accounts {
    Accounts::new(vec![Limit::of_core(limits.connections_max), memory.heads(limits)])
}

/// The client of a request, by the address of its connection or the one that a believed proxy names. A connection from this
/// machine may be anybody's, and counts by itself.
pub(crate) fn client_of(address: IpAddr, connection: u64) -> ClientKey {
    ClientKey::of_connection(address, connection, &[])
}

/// A request's head that is kept.
pub(crate) struct KeptHead(Charge);

impl KeptHead {
    /// Charges a head; `None` where the client has most, or nothing is left.
    pub(crate) fn new(accounts: &Accounts, client: ClientKey, head_bytes: usize) -> Option<Self> {
        // The head as it came, and as its origin gets it.
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
    /// Charges a stream whose request has a head of so many bytes; `None`: only the rest of an answer.
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
