//! Client connections, from handshake to close: reading, operations, deadlines.

pub(crate) mod accept;
pub(crate) mod acceptors;
pub(crate) mod check_slots;
pub(crate) mod connection;
pub(crate) mod door;
pub(crate) mod handshakes;
pub(crate) mod keepalive;
pub(crate) mod lifecycle;
pub(crate) mod log_rate_limit;
pub(crate) mod password_checks;
pub(crate) mod protocol_log;
pub(crate) mod proxy_protocol;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod transaction;
pub(crate) mod transport;
#[cfg(test)]
pub(crate) mod turn_tests;
pub(crate) mod websocket;
