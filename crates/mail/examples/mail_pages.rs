//! Example that serves the pages over mail in memory, to look at while working on them: no SMTP, mail is
//! submitted by the API.
//!
//! `cargo run -p mail --example mail_pages -- 127.0.0.1:8025` fills `ann@night.test` with the samples.

use std::{
    io::{self, Write},
    net::TcpListener,
};

use engine::cores::clock;
use mail::{
    samples,
    twin::{Retention, Twin},
    web::{Config, serve},
};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let twin = Twin::new(Retention::default(), "night.test");
    let now_ms = clock::unix_ms();
    let ages_ms = [6 * 3_600_000, 3 * 3_600_000, 5_400_000, 2_400_000, 900_000, 300_000, 0];
    let set = samples::set("ann@night.test", (now_ms / 1000).cast_signed());
    for (sample, age_ms) in set.iter().zip(ages_ms) {
        twin.deliver_at(now_ms - age_ms, sample.envelope_from, &["ann@night.test".to_owned()], &sample.raw)
            .map_err(io::Error::other)?;
    }
    let config = Config {
        domain: "night.test".to_owned(),
        smtp: Some("127.0.0.1:1025".to_owned()),
        ..Config::default()
    };
    let web = serve(TcpListener::bind(address)?, twin, config)?;
    writeln!(io::stdout(), "http://{}/inbox/ann@night.test", web.address())?;
    // Runs until standard input ends.
    io::copy(&mut io::stdin(), &mut io::sink())?;
    web.stop();
    Ok(())
}
