//! `make bench-mail`: what it costs to take a mail, ours beside five others and a sink that throws mails away, and what
//! it costs to list a hundred of them over an API.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)       core 1: smtp-source, or our pipelining client
//!   smtp-sink · ours · mailpit · postfix · aiosmtpd · maildev · greenmail  ◄── 4 KiB mails, 20 sessions ──
//! ```
//! Every contender is started from a temporary directory on a loopback port. The figure is CPU time of the server's
//! process tree per mail, in interleaved rounds ([`lab::paired`]). `smtp-sink` is the limit: it reads a mail and
//! forgets it; ours has stored it, indexed it and shows it when it says 250. Peers that are not installed are left out,
//! and the record says so (`bench/install-mail-peers.sh`, `bench/install-mailpit.sh`).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench reads clocks and waits for processes; nothing here runs on a loop"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talks to the person who started it")]

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use lab::{
    paired::{
        Sample, Work, interleave, machine, measure,
        place::workspace,
        record::{Comparison, Figure, Record},
        spread::median,
        tree::Cores,
    },
    peers::{
        PeerError,
        mail::{
            MAIL_BYTES, SESSIONS,
            contenders::{self, Contender, Running},
            load,
        },
    },
    report::Table,
};

/// Compares what a mail costs: ours, five peers, and the limit.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-mail")]
pub(crate) struct Options {
    /// A minute in all: few mails, one round, no verdicts; shows that everything works.
    #[arg(long)]
    quick: bool,
    /// Only these contenders (sink, ours, ours-shared, mailpit, postfix, aiosmtpd, maildev, greenmail).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these scenarios (reused, connections, stored, pages, list-100, pipelined, idle).
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// Rounds in every scenario.
    #[arg(long)]
    rounds: Option<usize>,
    /// Mails stored before, for `stored`.
    #[arg(long, value_delimiter = ',', default_value = "100000,1000000")]
    stored: Vec<u64>,
    /// Seconds of `pipelined`.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Where the record goes; by default bench/records, for --quick target/bench.
    #[arg(long)]
    records: Option<PathBuf>,
}

const CONNECTIONS_IDLE: usize = 10_000;
/// Mails of the inbox whose pages are asked for.
const PAGE_MAILS: u64 = 100;
/// What a page of them may cost.
const PAGE_US_MAX: f64 = 200.0;
/// Mails that are stored where a hundred of them are listed, and what the list may cost.
const LISTED_OF: u64 = 2_000;
const LIST_US_MAX: f64 = 300.0;
/// What a million stored mails may take of memory beyond the log's buffers.
const STORED_MIB_MAX: u64 = 150;

fn main() -> ExitCode {
    match run(&Options::parse()) {
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
    let wanted =
        |name: &str| options.scenario.is_empty() || options.scenario.iter().any(|known| known == name);
    if wanted("reused") {
        bench.sessions("reused", "connections reused", true)?;
    }
    if wanted("connections") {
        bench.sessions("connections", "a connection for each mail", false)?;
    }
    if wanted("stored") {
        bench.stored()?;
    }
    if wanted("pages") {
        bench.pages()?;
    }
    if wanted("list-100") {
        bench.list_100()?;
    }
    if wanted("pipelined") {
        bench.pipelined()?;
    }
    if wanted("idle") {
        bench.idle()?;
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
    let default = if options.quick { "target/bench" } else { "bench/records" };
    let directory = options.records.clone().unwrap_or_else(|| workspace().join(default));
    let path = record.write(&directory)?;
    println!("{}", path.display());
    Ok(())
}

impl Bench {
    fn rounds(&self) -> usize {
        self.options.rounds.unwrap_or(if self.options.quick { 1 } else { 7 })
    }

    fn takes_part(&self, contender: Contender) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|name| name == contender.name())
    }

    /// Starts whoever is there; who is not is remarked on.
    fn start(&mut self, contenders: &[Contender]) -> Result<Vec<(String, Running)>, PeerError> {
        let mut running = Vec::new();
        for &contender in contenders {
            if !self.takes_part(contender) {
                continue;
            }
            match contenders::start(contender, (Ipv4Addr::LOCALHOST, &self.server)) {
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

    /// `smtp-source` against everybody.
    fn sessions(&mut self, scenario: &str, what: &str, reuse: bool) -> Result<(), PeerError> {
        let running = self.start(&Contender::ALL)?;
        let quick = self.options.quick;
        let mails = |contender: &Running| match (quick, contender.is_slow) {
            (true, _) => 500,
            (false, true) => 1_500,
            (false, false) => 15_000,
        };
        let (server, load) = (self.server.clone(), self.load.clone());
        // Once to warm up: what is compiled just in time, what grows.
        for (name, contender) in &running {
            if let Err(error) = load::source(contender.address, &load, mails(contender) / 2, reuse) {
                self.remarks.push(format!("{name}, {what}: {error}"));
            }
        }
        let series = interleave(&running, self.rounds(), |contender: &Running, _| {
            let count = mails(contender);
            let sample = measure(&contender.tree, &server, || {
                load::source(contender.address, &load, count, reuse)
                    .map(|()| Work { units: count, ..Work::default() })
            });
            match sample {
                Err(PeerError::Failed(why)) => Ok::<Sample, PeerError>(Sample::nothing(why)),
                other => other,
            }
        })?;
        let comparison = Comparison {
            scenario: scenario.to_owned(),
            what: format!("smtp-source, {SESSIONS} sessions, {MAIL_BYTES} bytes, {what}"),
            unit: "mail".to_owned(),
            series,
        };
        let bound = if reuse { 1.2 } else { 1.1 };
        self.figures.push(Figure::at_most(
            format!("CPU a mail, {what}, ≤ {bound} × smtp-sink, which stores nothing ({scenario})"),
            bound,
            comparison.series("ours"),
            comparison.series("sink"),
        ));
        self.comparisons.push(comparison);
        Ok(())
    }

    /// Ours with nothing stored beside ours with many.
    fn stored(&mut self) -> Result<(), PeerError> {
        let mut running = Vec::new();
        let mut rows = Vec::new();
        let counts: Vec<u64> = std::iter::once(0)
            .chain(
                self.options.stored.iter().map(|count| if self.options.quick { count / 100 } else { *count }),
            )
            .collect();
        for count in counts {
            let started = contenders::start(Contender::Ours, (Ipv4Addr::LOCALHOST, &self.server))
                .map_err(PeerError::Failed)?;
            let begun = Instant::now();
            load::pipelined(started.address, load::Until::Mails(count), count)?;
            if count > 0 {
                println!("{count} mails stored in {:.1} s", begun.elapsed().as_secs_f64());
            }
            let rss_mib = started.tree.usage()?.rss_bytes >> 20;
            let (mapped_mib, index_bytes) = (started.buffers_mib()?, started.metric("mail_index_bytes")?);
            let beyond_mib = rss_mib.saturating_sub(mapped_mib);
            if count >= 1_000_000 {
                let verdict = if beyond_mib <= STORED_MIB_MAX { "met" } else { "not met" };
                self.remarks.push(format!(
                    "memory with {count} stored, ≤ {STORED_MIB_MAX} MiB beyond the log's buffers: {beyond_mib} MiB → {verdict}"
                ));
            }
            rows.push(vec![
                count.to_string(),
                rss_mib.to_string(),
                mapped_mib.to_string(),
                beyond_mib.to_string(),
                format!("{:.0}", index_bytes / (count.max(1) as f64)),
            ]);
            running.push((format!("ours, {count} stored"), started));
        }
        let (server, load) = (self.server.clone(), self.load.clone());
        let count = if self.options.quick { 500 } else { 15_000 };
        for (_, contender) in &running {
            load::source(contender.address, &load, count / 2, true)?;
        }
        let series = interleave(&running, self.rounds(), |contender: &Running, _| {
            measure(&contender.tree, &server, || {
                load::source(contender.address, &load, count, true)
                    .map(|()| Work { units: count, ..Work::default() })
            })
        })?;
        for stored in &series[1..] {
            self.figures.push(Figure::at_most(
                format!("CPU a mail with {}, ≤ 1.1 × with none", stored.name),
                1.1,
                Some(stored),
                series.first(),
            ));
        }
        self.comparisons.push(Comparison {
            scenario: "stored".to_owned(),
            what: "smtp-source, connections reused, into a store that has mails already".to_owned(),
            unit: "mail".to_owned(),
            series,
        });
        self.tables.push(table(
            "Memory of ours",
            &[
                ("mails stored", ""),
                ("resident MiB", ""),
                ("of it the log's buffers MiB", ""),
                ("beyond them MiB", ""),
                ("index bytes a mail", ""),
            ],
            rows,
        ));
        Ok(())
    }

    /// What it costs to show an inbox.
    fn pages(&mut self) -> Result<(), PeerError> {
        let started = contenders::start(Contender::Ours, (Ipv4Addr::LOCALHOST, &self.server))
            .map_err(PeerError::Failed)?;
        // All to the inboxes i0 to i9.
        load::pipelined(started.address, load::Until::Mails(10 * PAGE_MAILS), PAGE_MAILS)?;
        let port = started.http.ok_or_else(|| PeerError::Failed("ours has pages".to_owned()))?;
        let pages_at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let pages = [
            ("inbox page", "/inbox/i1@bench.test"),
            ("API list", "/api/v2/domains/bench.test/inboxes/i1?limit=99"),
            ("home page", "/"),
        ]
        .map(|(name, path)| (name.to_owned(), path));
        let count = if self.options.quick { 300 } else { 3_000 };
        for (_, path) in &pages {
            load::ask(pages_at, path, count / 3)?;
        }
        let server = self.server.clone();
        let series = interleave(&pages, self.rounds(), |path: &&str, _| {
            measure(&started.tree, &server, || {
                load::ask(pages_at, path, count).map(|_| Work { units: count, ..Work::default() })
            })
        })?;
        let comparison = Comparison {
            scenario: "pages".to_owned(),
            what: format!("an inbox of {PAGE_MAILS} mails, asked for over one connection"),
            unit: "page".to_owned(),
            series,
        };
        for (name, _) in pages.iter().take(2) {
            if let Some(cost) = comparison.cost(name) {
                let verdict = if cost <= PAGE_US_MAX { "met" } else { "not met" };
                self.remarks.push(format!(
                    "{name} of {PAGE_MAILS} mails, ≤ {PAGE_US_MAX} µs of CPU: {cost:.0} µs → {verdict}"
                ));
            }
        }
        self.comparisons.push(comparison);
        Ok(())
    }

    /// What it costs to list a hundred mails with the beginnings of their texts over Mailpit's API, which both have.
    fn list_100(&mut self) -> Result<(), PeerError> {
        let running = self.start(&[Contender::Ours, Contender::Other, Contender::Mailpit])?;
        let mails = if self.options.quick { 200 } else { LISTED_OF };
        for (_, contender) in &running {
            load::source(contender.address, &self.load, mails, true)?;
        }
        let count = if self.options.quick { 30 } else { 1_000 };
        let list = |contender: &Running| -> Result<u64, PeerError> {
            let port = contender.http.ok_or_else(|| PeerError::Failed("it has no pages".to_owned()))?;
            load::ask(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), "/api/v1/messages?limit=100", count)
        };
        for (_, contender) in &running {
            list(contender)?;
        }
        let server = self.server.clone();
        let series = interleave(&running, self.rounds(), |contender: &Running, _| {
            measure(&contender.tree, &server, || {
                list(contender).map(|_| Work { units: count, ..Work::default() })
            })
        })?;
        let comparison = Comparison {
            scenario: "list-100".to_owned(),
            what: format!("GET /api/v1/messages?limit=100 of {mails} mails, over one connection"),
            unit: "list".to_owned(),
            series,
        };
        if let Some(cost) = comparison.cost("ours") {
            let verdict = if cost <= LIST_US_MAX { "met" } else { "not met" };
            self.remarks
                .push(format!("a list of 100 mails, ≤ {LIST_US_MAX} µs of CPU: {cost:.0} µs → {verdict}"));
        }
        self.comparisons.push(comparison);
        Ok(())
    }

    /// As many as our own client can send, for a while.
    fn pipelined(&mut self) -> Result<(), PeerError> {
        let started = contenders::start(Contender::Ours, (Ipv4Addr::LOCALHOST, &self.server))
            .map_err(PeerError::Failed)?;
        let seconds = if self.options.quick { 2 } else { self.options.seconds };
        let before = started.tree.usage()?;
        let begun = Instant::now();
        let sent = load::pipelined(started.address, load::Until::Time(Duration::from_secs(seconds)), 0)?;
        let elapsed_s = begun.elapsed().as_secs_f64();
        let after = started.tree.usage()?;
        let cpu_s = after.cpu_user_s + after.cpu_system_s - before.cpu_user_s - before.cpu_system_s;
        let rate = sent as f64 / elapsed_s;
        let received = started.metric("mail_received_total")?;
        if received < sent as f64 {
            self.remarks.push(format!("pipelined: {sent} were answered 250, but {received} were counted"));
        }
        self.tables.push(table(
            format!("Pipelined, {SESSIONS} connections kept, {elapsed_s:.0} s"),
            &[
                ("mails", ""),
                ("mails/s", ""),
                ("an hour", ""),
                ("a day", ""),
                ("CPU µs a mail", ""),
                ("server's core busy", ""),
            ],
            vec![vec![
                sent.to_string(),
                format!("{rate:.0}"),
                format!("{:.1} M", rate * 3600.0 / 1e6),
                format!("{:.0} M", rate * 86_400.0 / 1e6),
                format!("{:.1}", cpu_s * 1e6 / sent as f64),
                format!("{:.0}%", 100.0 * cpu_s / elapsed_s),
            ]],
        ));
        // The article's service carried 25 million a day after its rewrite.
        self.remarks.push(format!(
            "a day at the rate of \"pipelined\" on one core would be {:.0} million mails, {:.0} times 25 million",
            rate * 86_400.0 / 1e6,
            rate * 86_400.0 / 25e6
        ));
        println!("pipelined: {rate:.0} mails/s, {:.1} µs of CPU each", cpu_s * 1e6 / sent as f64);
        Ok(())
    }

    /// What a connection costs in which nothing happens.
    fn idle(&mut self) -> Result<(), PeerError> {
        let started = contenders::start(Contender::Ours, (Ipv4Addr::LOCALHOST, &self.server))
            .map_err(PeerError::Failed)?;
        let connections = if self.options.quick { 500 } else { CONNECTIONS_IDLE };
        let before = started.tree.usage()?.rss_bytes;
        let held = load::idle(started.address, connections)?;
        let after = started.tree.usage()?.rss_bytes;
        let each = after.saturating_sub(before) / held.len() as u64;
        self.tables.push(table(
            "Idle connections",
            &[("connections", ""), ("resident bytes each", "")],
            vec![vec![held.len().to_string(), each.to_string()]],
        ));
        println!("idle: {each} bytes a connection, {} of them", held.len());
        Ok(())
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

fn table(title: impl Into<String>, columns: &[(&str, &str)], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new(title, columns);
    table.rows = rows;
    table
}
