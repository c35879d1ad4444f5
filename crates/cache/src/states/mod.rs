//! States of a request, with Varnish's names: *recv* and *hit*, *miss*, *pass*, *pipe*, *purge*, *synth*.

#[cfg(test)]
pub(crate) mod exchange_tests;
pub(crate) mod full_duplex;
pub(crate) mod head_validation;
pub(crate) mod hit;
#[cfg(test)]
pub(crate) mod hot_path_tests;
pub(crate) mod miss;
pub(crate) mod pass;
pub(crate) mod pipe;
pub(crate) mod purge;
pub(crate) mod put;
pub(crate) mod respond;
pub(crate) mod state;
pub(crate) mod synth;
pub(crate) mod unsafe_methods;
pub(crate) mod websocket_handshake;
