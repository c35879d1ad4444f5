//! Content codings: compressed variants of stored objects, made off the loops.

pub(crate) mod codec_pool;
pub(crate) mod decoders;
pub(crate) mod encoded_variants;
pub(crate) mod encoders;
