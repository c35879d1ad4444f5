//! `make bench-mail`: what it costs to take a mail, ours beside five others and a sink that throws mails away; and what it
//! costs to list, to search and to show mails, ours beside Mailpit.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)       core 1: smtp-source, or our pipelining client
//!   smtp-sink · ours · mailpit · postfix · aiosmtpd · maildev · greenmail  ◄── 4 KiB mails, 20 sessions ──
//! ```
//! Every contender is started from a temporary directory on a loopback port. The figure is CPU time of the server's
//! process tree per mail, in interleaved rounds ([`lab::paired`]). `smtp-sink` is the limit: it reads a mail and
//! forgets it; ours has stored it, indexed it and shows it when it says 250. Peers that are not installed are left out,
//! and the record says so (`bench/install-mail-peers.sh`, `bench/install-mailpit.sh`).
//!
//! Mailpit takes part in every scenario but two: `slow-mails` is about HTML that the server takes apart, which Mailpit leaves to
//! the browser, and `pipelined` sends by BDAT (RFC 3030), which it does not offer.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench reads clocks and waits for processes; nothing here runs on a loop"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talks to the person who started it")]

mod beside;
mod browser;
mod letters;
mod lists;
mod search;
mod taking;

use std::{collections::BTreeMap, net::Ipv4Addr, process::ExitCode};

use clap::Parser;
use lab::{
    paired::{
        chosen::Chosen,
        machine,
        place::ours,
        record::{Comparison, Figure, Record},
        spread::median,
        tree::Cores,
    },
    peers::{
        PeerError,
        mail::{
            MAIL_BYTES, SESSIONS,
            contenders::{self, Contender, Running},
        },
    },
    report::Table,
};

/// Rounds in every scenario.
const ROUNDS: usize = 7;

/// GiB of the store of ours: each is on the disk from the beginning, and several run at once.
const STORE_GIB: u64 = 2;
/// Where it has a million mails, or as many as can be sent.
const LARGE_STORE_GIB: u64 = 6;

/// Compares what a mail costs: ours, five peers, and the limit.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-mail")]
pub(crate) struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Mails stored before, for `stored`.
    #[arg(long, value_delimiter = ',', default_value = "100000,1000000")]
    stored: Vec<u64>,
    /// The same of Mailpit, which takes two thousand a second and 5 KiB of disk each.
    #[arg(long, value_delimiter = ',', default_value = "100000")]
    stored_in_mailpit: Vec<u64>,
    /// Mails that `rare-word` searches.
    #[arg(long, default_value_t = 1_000_000)]
    searched: u64,
    /// Mails that it searches both in ours and in Mailpit, which reads all of them for each search.
    #[arg(long, default_value_t = 100_000)]
    searched_in_both: u64,
    /// Seconds of `pipelined`.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.chosen.list {
        println!("scenarios: {}", SCENARIOS.map(|(name, _)| name).join(", "));
        println!("contenders: {}", Contender::ALL.map(Contender::name).join(", "));
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-mail: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Bench {
    options: Options,
    server: Cores,
    load: Cores,
    comparisons: Vec<Comparison>,
    figures: Vec<Figure>,
    tables: Vec<Table>,
    remarks: Vec<String>,
    versions: BTreeMap<String, String>,
}

/// What measures one thing, of all contenders.
type Scenario = fn(&mut Bench) -> Result<(), PeerError>;

const SCENARIOS: [(&str, Scenario); 12] = [
    ("reused", |bench| bench.sessions("reused", "connections reused", true)),
    ("connections", |bench| bench.sessions("connections", "a connection for each mail", false)),
    ("stored", Bench::stored),
    ("pages", Bench::pages),
    ("list-100", Bench::list_100),
    ("search", Bench::search),
    ("rare-word", Bench::rare_word),
    ("newsletter", Bench::newsletter),
    ("slow-mails", Bench::slow_mails),
    ("browser", Bench::browser),
    ("pipelined", Bench::pipelined),
    ("idle", Bench::idle),
];

fn run(options: &Options) -> Result<(), PeerError> {
    let allowed = Cores::allowed()?;
    let (Some(&first), Some(&last)) = (allowed.first(), allowed.last()) else {
        return Err(PeerError::Failed("no processor".to_owned()));
    };
    let cores = |core| Cores::new(vec![core]).ok_or_else(|| PeerError::Failed("no processor".to_owned()));
    let mut bench = Bench {
        options: options.clone(),
        server: cores(first)?,
        load: cores(last)?,
        comparisons: Vec::new(),
        figures: Vec::new(),
        tables: Vec::new(),
        remarks: Vec::new(),
        versions: BTreeMap::new(),
    };
    let date = machine::date();
    let here = machine::Machine::here();
    if first == last {
        bench.remarks.push("one processor only: server and load share it".to_owned());
    }
    if let Some(unknown) =
        options.chosen.scenario.iter().find(|name| SCENARIOS.iter().all(|(known, _)| known != name))
    {
        let known = SCENARIOS.map(|(name, _)| name).join(", ");
        return Err(PeerError::Failed(format!("there is no scenario {unknown}; there are {known}")));
    }
    for (name, run) in SCENARIOS {
        if options.chosen.scenario.is_empty() || options.chosen.scenario.iter().any(|wanted| wanted == name) {
            run(&mut bench)?;
        }
    }
    bench.quoted();
    let settings = [
        ("mail", format!("{MAIL_BYTES} bytes, {SESSIONS} sessions, a recipient of its own each")),
        ("server", format!("processor {first}; load on {last}")),
        ("ours", "--durability process: 250 is said when the mail has been handed to the system".to_owned()),
        (
            "bodies",
            "all mails have one body; ours stores each whole (--share-bodies=false), ours-shared once a segment".to_owned(),
        ),
        (
            "mailpit",
            "--max 0: it keeps all mails; its database is on the same disk as ours, compressed as it ships; asks no other server"
                .to_owned(),
        ),
        ("build", built()),
        ("rounds", bench.rounds().to_string()),
    ];
    let record = Record {
        name: "bench-mail".into(),
        date,
        commit: machine::commit(),
        machine: here,
        settings: settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        versions: bench.versions,
        reference: Contender::Sink.name().into(),
        comparisons: bench.comparisons,
        figures: bench.figures,
        tables: bench.tables,
        attached: BTreeMap::new(),
        remarks: bench.remarks,
    };
    println!("{}", record.text());
    let path = record.write(&options.chosen.records())?;
    println!("{}", path.display());
    Ok(())
}

impl Bench {
    fn rounds(&self) -> usize {
        self.options.chosen.rounds(ROUNDS)
    }

    fn takes_part(&self, contender: Contender) -> bool {
        self.options.chosen.only.is_empty()
            || self.options.chosen.only.iter().any(|name| name == contender.name())
    }

    /// Starts whoever is there, ours with room for 400,000 mails; who is not there is remarked on.
    fn start(&mut self, contenders: &[Contender]) -> Result<Vec<(String, Running)>, PeerError> {
        self.start_with_store(contenders, STORE_GIB)
    }

    /// The same, ours with a store of so many GiB.
    fn start_with_store(
        &mut self,
        contenders: &[Contender],
        store_gib: u64,
    ) -> Result<Vec<(String, Running)>, PeerError> {
        let mut running = Vec::new();
        for &contender in contenders {
            if !self.takes_part(contender) {
                continue;
            }
            match contenders::start_with_store(contender, (Ipv4Addr::LOCALHOST, &self.server), store_gib) {
                Ok(started) => {
                    if let Some(version) = &started.version {
                        self.versions.insert(contender.name().to_owned(), version.clone());
                    }
                    running.push((contender.name().to_owned(), started));
                }
                Err(why) => {
                    let remark = format!("{} is left out: {why}", contender.name());
                    if !self.remarks.contains(&remark) {
                        self.remarks.push(remark);
                    }
                }
            }
        }
        Ok(running)
    }

    /// Remarks on what was measured, which may be so much.
    fn judged(&mut self, what: &str, (is, most): (f64, f64), unit: &str) {
        let verdict = match is <= most {
            _ if self.options.chosen.quick => "quick: no verdict",
            true => "met",
            false => "not met",
        };
        self.remarks.push(format!("{what}, ≤ {most} {unit}: {is:.1} {unit} → {verdict}"));
    }

    /// What others measured of servers that are not to be had as packages.
    fn quoted(&mut self) {
        let rows = [("Inbucket 3.1.1", "2.1–2.3"), ("MailHog", "7")];
        self.tables.push(table(
            "Quoted, not measured here: × smtp-sink, reused connections",
            &[("server", ""), ("× sink", "")],
            rows.map(|(name, times)| vec![name.to_owned(), times.to_owned()]).to_vec(),
        ));
        let shares: Vec<f64> = self
            .comparisons
            .iter()
            .flat_map(|comparison| &comparison.series)
            .flat_map(|series| &series.samples)
            .map(|sample| sample.foreign_share)
            .collect();
        if let Some(share) = median(&shares).filter(|share| *share > 0.05) {
            self.remarks.push(format!(
                "not a quiet machine: others used {:.0}% of the server's core (median)",
                share * 100.0
            ));
        }
    }
}

/// The profile that ours was built by, which its directory is named by.
fn built() -> String {
    let ours = ours().unwrap_or_default();
    let profile = ours.parent().and_then(|directory| directory.file_name());
    profile.map_or_else(String::new, |profile| profile.to_string_lossy().into_owned())
}

fn table(title: impl Into<String>, columns: &[(&str, &str)], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new(title, columns);
    table.rows = rows;
    table
}
