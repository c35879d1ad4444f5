//! Fuzz target: a mail that is parsed and cleaned. The checks are in `checks/mail_render.rs`.
#![no_main]

#[path = "../checks/mail_render.rs"]
mod mail_render;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mail_render::check(bytes));
