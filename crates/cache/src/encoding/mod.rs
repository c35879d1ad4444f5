//! Content codings: encoded variants of stored objects, made outside of the event loops.

pub(crate) mod codec_pool;
pub(crate) mod decoders;
pub(crate) mod encoded_variants;
pub(crate) mod encoders;
