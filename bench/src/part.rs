//! The table of parts: each server's comparisons, with their scenarios and contenders.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{cache, feed, mail, pressure, tls};

/// A comparison of one server with its peers.
#[derive(Debug)]
pub(crate) struct Part {
    /// The name on the command line, and in a record's name.
    pub(crate) name: &'static str,
    /// The subject, for `bench list`.
    pub(crate) what: &'static str,
    /// The contents, in full or quick.
    pub(crate) contents: fn(quick: bool) -> Contents,
}

/// The scenarios and contenders of a part.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Scenarios, in the order in which they run.
    pub(crate) scenarios: Vec<Entry>,
    /// Contenders, whether they are installed or not.
    pub(crate) contenders: Vec<&'static str>,
    /// Seconds until everybody is started and filled.
    pub(crate) start_s: u64,
}

/// A scenario, for the list and for the estimate.
#[derive(Debug)]
pub(crate) struct Entry {
    /// A short name without spaces.
    pub(crate) name: String,
    /// A sentence.
    pub(crate) what: String,
    /// Seconds that it takes with all contenders and its own number of rounds.
    pub(crate) seconds: u64,
}

/// All parts, in the order in which `bench run` runs them.
pub(crate) const PARTS: [Part; 5] = [
    Part { name: "cache", what: "hits, misses, passes, uploads", contents: cache::contents },
    Part { name: "tls", what: "hits over TLS and HTTP/2, handshakes", contents: tls::contents },
    Part { name: "feed", what: "relayed messages", contents: feed::contents },
    Part { name: "mail", what: "mails taken, listed, searched, shown", contents: mail::contents },
    Part { name: "pressure", what: "stores larger than memory", contents: pressure::contents },
];

/// One part with its options.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Hits, misses, passes and uploads: the accelerator beside five caches
    Cache(cache::Options),
    /// Hits over TLS and HTTP/2, handshakes, idle connections: the accelerator beside three others
    Tls(tls::Options),
    /// Relayed messages: the feed beside four brokers
    Feed(feed::Options),
    /// Mails taken, listed, searched and shown: mail beside five others
    Mail(mail::Options),
    /// Stores larger than memory: servers under a memory limit, and caches as libraries
    Pressure(pressure::Options),
}

impl Task {
    /// Runs it.
    pub(crate) fn run(&self) -> ExitCode {
        match self {
            Self::Cache(options) => cache::run(options),
            Self::Tls(options) => tls::run(options),
            Self::Feed(options) => feed::run(options),
            Self::Mail(options) => mail::run(options),
            Self::Pressure(options) => pressure::run(options),
        }
    }
}

impl Part {
    /// Prints its scenarios and contenders.
    pub(crate) fn list(&self) {
        let contents = (self.contents)(false);
        println!("{}: {}, about {}", self.name, self.what, minutes(contents.seconds()));
        for Entry { name, what, .. } in &contents.scenarios {
            println!("  {name:<16} {what}");
        }
        println!("  contenders: {}\n", contents.contenders.join(", "));
    }
}

impl Contents {
    /// Seconds that the part takes where all contenders are installed.
    pub(crate) fn seconds(&self) -> u64 {
        self.start_s + self.scenarios.iter().map(|entry| entry.seconds).sum::<u64>()
    }
}

/// A time for people.
pub(crate) fn minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "a minute".into(),
        minutes if minutes < 60 => format!("{minutes} minutes"),
        minutes => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// Seconds of so many rounds with so many contenders, each of which takes a round and `beside` to begin and end it.
pub(crate) fn round_seconds(rounds: usize, contenders: usize, round_s: f64, beside_s: f64) -> u64 {
    ((rounds * contenders) as f64 * (round_s + beside_s)).ceil() as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_scenario_has_one_name_and_a_time() {
        for part in PARTS {
            for quick in [false, true] {
                let contents = (part.contents)(quick);
                let names: BTreeSet<&str> =
                    contents.scenarios.iter().map(|entry| entry.name.as_str()).collect();
                assert_eq!(names.len(), contents.scenarios.len(), "{}", part.name);
                assert!(contents.scenarios.iter().all(|entry| entry.seconds > 0), "{contents:?}");
            }
        }
    }

    #[test]
    fn a_quick_run_takes_ten_minutes() {
        let seconds: u64 = PARTS.iter().map(|part| (part.contents)(true).seconds()).sum();
        assert!(seconds <= 600, "{seconds} s");
        let full: u64 = PARTS.iter().map(|part| (part.contents)(false).seconds()).sum();
        assert!(full > 10 * seconds / 2, "{full} s");
        assert_eq!(
            (minutes(30), minutes(61), minutes(3_700)),
            ("a minute".into(), "2 minutes".into(), "1 h 2 min".into())
        );
    }
}
