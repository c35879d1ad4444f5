//! Snapshots of hubs, for the monitoring pages.

use std::{net::SocketAddr, sync::Arc};

use crate::client::connection::Transport;

/// Snapshot of a hub, for the monitoring pages.
#[derive(Debug, Clone)]
pub(crate) struct HubSnapshot {
    pub(crate) account: Arc<str>,
    pub(crate) address: String,
    pub(crate) is_up: bool,
    pub(crate) server_name: String,
    pub(crate) server_id: String,
    pub(crate) version: String,
    pub(crate) cluster: String,
    pub(crate) remote_account: String,
    pub(crate) trouble: Option<String>,
    pub(crate) attempts: u64,
    pub(crate) connections: u64,
    pub(crate) learnt: usize,
    pub(crate) wants: usize,
    pub(crate) connection: Option<HubConnection>,
}

/// Snapshot of a hub's connection.
#[derive(Debug, Clone)]
pub(crate) struct HubConnection {
    pub(crate) cid: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) rtt_ms: Option<u32>,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) payload_in_bytes: u64,
    pub(crate) payload_out_bytes: u64,
    pub(crate) pending_bytes: usize,
}
