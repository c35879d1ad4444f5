//! `bench run mail`: the cost of receiving a mail in Nighttrain, five other servers and a sink that discards
//! mails; and the cost of listing, searching and showing mails in Nighttrain and Mailpit.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)       core 1: smtp-source, or our pipelining client
//!   smtp-sink · ours · mailpit · postfix · aiosmtpd · maildev · greenmail  ◄── 4 KiB mails, 20 sessions ──
//! ```
//! Every contender is started from a temporary directory on a loopback port. The figure is CPU time of the
//! server's process tree per mail, in interleaved rounds ([`lab::paired`]). `smtp-sink` is the limit: it
//! reads a mail and discards it. When Nighttrain answers 250, it has stored and indexed the mail and lists
//! it. Peers that are not installed are left out, and the record says so (`bench/install-mail-peers.sh`,
//! `bench/install-mailpit.sh`).
//!
//! Mailpit takes part in every scenario but two: `slow-mails` is about HTML that the server parses, which
//! Mailpit leaves to the browser, and `pipelined` sends by BDAT (RFC 3030), which Mailpit does not offer.

mod beside;
mod browser;
mod html_mails;
mod lists;
mod page_client;
mod sample_mails;
mod search;
mod taking;

use std::net::Ipv4Addr;
use std::process::ExitCode;

use clap::Args;
use lab::paired::place::ours;
use lab::peers::PeerError;
use lab::peers::mail::contenders::{self, Contender, ServerProcess};
use lab::peers::mail::{MAIL_BYTES, SESSIONS};
use lab::report::Table;

use crate::part::{Contents, Entry};
use crate::selection::{self, Selection};
use crate::session::{Outcome, Session, Tools};

/// Number of rounds in every scenario.
const ROUNDS: usize = 7;

/// Store size of Nighttrain in GiB: the file has its full size from the start, and several servers run at
/// once.
const STORE_GIB: u64 = 2;
/// Store size in GiB for a million mails, or for as many as can be sent.
const LARGE_STORE_GIB: u64 = 6;
const TOOLS: Tools = Tools { all: &[("taskset", "util-linux")], script: "bench/install-mail-peers.sh" };

/// Options of this part.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
    /// Mails stored before, for `stored`
    #[arg(long, value_delimiter = ',', default_value = "100000,1000000")]
    stored: Vec<u64>,
    /// Mails stored before, for `stored` in Mailpit, which takes two thousand a second and 5 KiB of disk for
    /// each
    #[arg(long, value_delimiter = ',', default_value = "100000")]
    stored_in_mailpit: Vec<u64>,
    /// Mails that `rare-word` searches
    #[arg(long, default_value_t = 1_000_000)]
    searched: u64,
    /// Mails that `rare-word` searches in both Nighttrain and Mailpit, which reads all of them for each
    /// search
    #[arg(long, default_value_t = 100_000)]
    searched_in_both: u64,
    /// Seconds of `pipelined`
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// A named measurement of this part.
struct Scenario {
    name: &'static str,
    what: &'static str,
    /// Estimated seconds of a full and of a quick run.
    seconds: [u64; 2],
    run: fn(&mut Bench) -> Result<(), PeerError>,
}

const fn scenario(
    name: &'static str,
    what: &'static str,
    seconds: [u64; 2],
    run: fn(&mut Bench) -> Result<(), PeerError>,
) -> Scenario {
    Scenario { name, what, seconds, run }
}

const SCENARIOS: [Scenario; 12] = [
    scenario("reused", "Mails of 4 KiB, connections reused.", [120, 10], |bench| {
        bench.sessions("reused", "connections reused", true)
    }),
    scenario("connections", "Mails of 4 KiB, a connection for each.", [300, 15], |bench| {
        bench.sessions("connections", "a connection for each mail", false)
    }),
    scenario("stored", "Mails taken beside a million that are stored.", [240, 10], Bench::stored),
    scenario("pages", "The page of a mail.", [90, 6], Bench::pages),
    scenario("list-100", "An inbox of a hundred mails.", [40, 4], Bench::list_100),
    scenario("search", "A search for a rare word in 10,000 mails.", [60, 4], Bench::search),
    scenario(
        "rare-word",
        "The same in a million mails, and other pages beside such searches.",
        [900, 15],
        Bench::rare_word,
    ),
    scenario("newsletter", "A mail of HTML, made safe to show.", [30, 4], Bench::newsletter),
    scenario("slow-mails", "Other pages beside mails that are built to be slow.", [60, 4], Bench::slow_mails),
    scenario("browser", "Pages and arriving mails in a browser.", [120, 12], Bench::browser),
    scenario("pipelined", "Mails pipelined for a minute.", [70, 4], Bench::pipelined),
    scenario("idle", "Memory of idle connections.", [30, 3], Bench::idle),
];

pub(crate) fn contents(quick: bool) -> Contents {
    let entry = |one: &Scenario| Entry {
        name: one.name.into(),
        what: one.what.into(),
        seconds: one.seconds[usize::from(quick)],
    };
    Contents {
        scenarios: SCENARIOS.iter().map(entry).collect(),
        contenders: CONTENDERS.map(Contender::name).into(),
        start_s: 0,
    }
}

/// Contenders that `--only` accepts.
const CONTENDERS: [Contender; 10] = [
    Contender::Sink,
    Contender::Ours,
    Contender::Other,
    Contender::Shared,
    Contender::Unindexed,
    Contender::Mailpit,
    Contender::Postfix,
    Contender::Aiosmtpd,
    Contender::Maildev,
    Contender::Greenmail,
];

pub(crate) fn run(options: &Options) -> ExitCode {
    selection::exit_code("mail", measured(options))
}

struct Bench {
    options: Options,
    session: Session,
    outcome: Outcome,
}

fn measured(options: &Options) -> Result<bool, PeerError> {
    let selection = &options.selection;
    selection::known("scenario", &selection.scenario, SCENARIOS.iter().map(|one| one.name))?;
    selection.contenders(&CONTENDERS, Contender::name)?;
    let session = Session::begin(TOOLS, Vec::new())?;
    let mut bench = Bench { options: options.clone(), session, outcome: Outcome::default() };
    for one in SCENARIOS.iter().filter(|one| selection.has_scenario(one.name)) {
        println!("{} …", one.name);
        (one.run)(&mut bench)?;
    }
    bench.quote();
    let Bench { mut session, outcome, .. } = bench;
    session.set([
        ("mail", format!("{MAIL_BYTES} bytes, {SESSIONS} sessions, a recipient of its own each")),
        ("server", format!("processor {}; load on {}", session.server, session.load)),
        ("build", built()),
        ("rounds", selection.pairs(ROUNDS).to_string()),
    ]);
    session.set([
        ("ours", "--durability process: 250 is said when the mail has been handed to the system"),
        (
            "bodies",
            "all mails have one body; ours stores each whole (--share-bodies=false), ours-shared once a segment",
        ),
        (
            "mailpit",
            "--max 0: it keeps all mails; its database is on the same disk as ours, compressed as it ships; asks no \
             other server",
        ),
    ]);
    session.record(&selection.records(), ("bench-mail", Contender::Sink.name()), outcome, |_, _| true)
}

impl Bench {
    fn rounds(&self) -> usize {
        self.options.selection.pairs(ROUNDS)
    }

    /// Starts the contenders that are installed, Nighttrain with room for 400,000 mails; a missing one
    /// becomes a remark.
    fn start(&mut self, contenders: &[Contender]) -> Result<Vec<(String, ServerProcess)>, PeerError> {
        self.start_with_store(contenders, STORE_GIB)
    }

    /// Starts the contenders that are installed, Nighttrain with a store of `store_gib` GiB.
    fn start_with_store(
        &mut self,
        contenders: &[Contender],
        store_gib: u64,
    ) -> Result<Vec<(String, ServerProcess)>, PeerError> {
        let mut running = Vec::new();
        for &contender in contenders {
            if !self.options.selection.has_contender(contender.name()) {
                continue;
            }
            match contenders::start_with_store(
                contender,
                (Ipv4Addr::LOCALHOST, &self.session.server),
                store_gib,
            ) {
                Ok(started) => {
                    if let Some(version) = &started.version {
                        self.session.versions.insert(contender.name().to_owned(), version.clone());
                    }
                    running.push((contender.name().to_owned(), started));
                }
                Err(why) => {
                    let remark = format!("{} is left out: {why}", contender.name());
                    if !self.session.remarks.contains(&remark) {
                        self.session.remarks.push(remark);
                    }
                }
            }
        }
        Ok(running)
    }

    /// Remarks that a measured value is `is` with the bound `most`, and whether it is met.
    fn judged(&mut self, what: &str, (is, most): (f64, f64), unit: &str) {
        let verdict = match is <= most {
            _ if self.options.selection.quick => "quick: no verdict",
            true => "met",
            false => "not met",
        };
        self.session.remarks.push(format!("{what}, ≤ {most} {unit}: {is:.1} {unit} → {verdict}"));
    }

    /// Adds figures published elsewhere, of servers that have no packages.
    fn quote(&mut self) {
        let rows = [("Inbucket 3.1.1", "2.1–2.3"), ("MailHog", "7")];
        self.outcome.tables.push(table(
            "Quoted, not measured here: × smtp-sink, reused connections",
            &[("server", ""), ("× sink", "")],
            rows.map(|(name, times)| vec![name.to_owned(), times.to_owned()]).to_vec(),
        ));
    }
}

/// Returns the build profile of Nighttrain, which is the name of its directory.
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
