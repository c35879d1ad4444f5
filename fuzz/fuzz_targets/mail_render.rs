//! A mail that is read and cleaned. What is held: `checks/mail_render.rs`.
#![no_main]

#[path = "../checks/mail_render.rs"]
mod mail_render;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mail_render::check(bytes));
