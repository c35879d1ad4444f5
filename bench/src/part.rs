//! The table of parts: each server's comparisons, with their scenarios and contenders.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{cache, feed, mail, pressure, tls};

/// Comparison of one server with its peers, as `bench run` names it.
#[derive(Debug)]
pub(crate) struct Part {
    /// Name on the command line and in the names of records.
    pub(crate) name: &'static str,
    /// Subject, for `bench list`.
    pub(crate) what: &'static str,
    /// Returns the contents of a full or a quick run.
    pub(crate) contents: fn(quick: bool) -> Contents,
}

/// The scenarios and contenders of a part.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Scenarios, in the order in which they run.
    pub(crate) scenarios: Vec<Entry>,
    /// All contenders, installed or not.
    pub(crate) contenders: Vec<&'static str>,
    /// Seconds for starting and filling all contenders.
    pub(crate) start_s: u64,
}

/// A scenario in the list and in the estimate of the duration.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Short name without spaces.
    pub(crate) name: String,
    /// Description in one sentence.
    pub(crate) what: String,
    /// Seconds that the scenario takes with all contenders and its default number of rounds.
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

/// Subcommand that runs one part with its options.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Hits, misses, passes and uploads: the accelerator and five other caches
    Cache(cache::Options),
    /// Hits over TLS and HTTP/2, handshakes, idle connections: the accelerator and three other servers
    Tls(tls::Options),
    /// Relayed messages: the feed and four other brokers
    Feed(feed::Options),
    /// Mails received, listed, searched and shown: the mail server and five others
    Mail(mail::Options),
    /// Stores larger than memory: servers under a memory limit, and caches as libraries
    Pressure(pressure::Options),
}

impl Task {
    /// Runs the part.
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
    /// Prints the part's scenarios and contenders.
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
    /// Returns the seconds that the part takes if all contenders are installed.
    pub(crate) fn seconds(&self) -> u64 {
        self.start_s + self.scenarios.iter().map(|entry| entry.seconds).sum::<u64>()
    }
}

/// Formats a duration in minutes or hours.
pub(crate) fn minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "a minute".into(),
        minutes if minutes < 60 => format!("{minutes} minutes"),
        minutes => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// Returns the seconds of all rounds with all contenders: each takes `round_s`, and `beside_s` to begin and
/// end.
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
