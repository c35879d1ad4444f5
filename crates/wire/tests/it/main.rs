//! Protocol parsers compared with their slow twins and with tables of inputs.
//!
//! All tests are one program, because each program is linked by itself; each file is one subject.
#![allow(clippy::expect_used, reason = "a test may fail")]

mod filter;
mod filter_twins;
mod framing_rules;
mod fuzz_seeds;
mod head_rules;
mod http2;
mod leaf_twins;
mod naive;
mod naive_filter;
mod naive_hpack;
mod naive_leaf;
mod naive_nats;
mod nats_twins;
mod smtp;
mod smtp_twin;
mod smuggling;
mod twins;
