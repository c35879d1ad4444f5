//! Client connections: acceptance, protocols, limits.

pub(crate) mod accept;
pub(crate) mod accepted;
pub(crate) mod fin;
pub(crate) mod front;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod peer_endpoint;
pub(crate) mod proxy_protocol;
pub(crate) mod tls_terms;
pub(crate) mod transport;
