//! The cost of showing an inbox, and of listing a hundred mails.

use std::{io, thread, time::Duration};

use lab::{
    paired::{Work, interleave, measure},
    peers::{
        PeerError,
        mail::{
            contenders::{Contender, ServerProcess},
            load,
        },
    },
};

use crate::mail::page_client::{self, Pages};
use crate::mail::{Bench, table};
use crate::record::{Comparison, Figure};

/// Number of mails in the requested inbox.
const PAGE_MAILS: u64 = 100;
/// Search that lists an inbox, supported by Nighttrain and Mailpit. Mailpit has no inboxes: its web page and
/// API use this search instead.
const INBOX_BY_SEARCH: &str = "/api/v1/search?query=addressed:i1@bench.test&limit=100";
/// Pages and lists: name, then the requests to Nighttrain and to Mailpit, as a browser or a program makes
/// them. Scripts, styles and images are left out, because browsers cache them. Mailpit's page is a script
/// that requests its settings and its mails; Nighttrain's page contains its mails. Only Nighttrain has a list
/// of an inbox by name.
const PAGES: [(&str, Query, Query); 4] = [
    ("inbox page", (3_000, &["/inbox/i1@bench.test"]), (300, &["/", "/api/v1/webui", INBOX_BY_SEARCH])),
    ("API list", (3_000, &["/api/v2/domains/bench.test/inboxes/i1?limit=99"]), (0, &[])),
    ("inbox by a search", (300, &[INBOX_BY_SEARCH]), (300, &[INBOX_BY_SEARCH])),
    ("home page", (20_000, &["/"]), (20_000, &["/"])),
];
/// Number of repetitions in a round, and paths.
type Query = (u64, &'static [&'static str]);
/// Bound on the CPU time of a page.
const PAGE_US_MAX: f64 = 200.0;
/// Number of stored mails when a hundred of them are listed, and the bound on the CPU time of a list.
const LISTED_OF: u64 = 2_000;
const LIST_US_MAX: f64 = 300.0;
/// Time in which a server may prepare lists before the first request.
const AHEAD: Duration = Duration::from_secs(5);

impl Bench {
    /// Measures the cost of showing an inbox.
    pub(crate) fn pages(&mut self) -> Result<(), PeerError> {
        let running = self.start(&[Contender::Ours, Contender::Mailpit])?;
        for (_, contender) in &running {
            // The mails are spread over the inboxes i0 to i9.
            load::fill(contender, 10 * PAGE_MAILS, &load::plain(10))?;
            for (what, of_ours, of_mailpit) in PAGES {
                let (_, paths) = if contender.is_ours() { of_ours } else { of_mailpit };
                listed(contender, what, paths)?;
            }
        }
        let pages: Vec<(String, (&ServerProcess, Query))> = PAGES
            .iter()
            .flat_map(|(what, of_ours, of_mailpit)| {
                let asked =
                    |contender: &ServerProcess| if contender.is_ours() { *of_ours } else { *of_mailpit };
                running
                    .iter()
                    .map(move |(name, contender)| (format!("{name}, {what}"), (contender, asked(contender))))
            })
            .filter(|(_, (_, (times, _)))| *times > 0)
            .collect();
        let quick = self.options.selection.quick;
        let shown = |contender: &ServerProcess, paths: &[&str], times: u64| -> Result<(), PeerError> {
            let mut asking = Pages::connect(contender.pages()?)?;
            for _ in 0..times {
                for path in paths {
                    asking.ask(path, &mut io::sink())?;
                }
            }
            Ok(())
        };
        for (_, (contender, (times, paths))) in &pages {
            shown(contender, paths, if quick { 10 } else { times / 3 })?;
        }
        let server = self.session.server.clone();
        let series =
            interleave(&pages, self.rounds(), |(contender, (times, paths)): &(&ServerProcess, Query), _| {
                let units = if quick { 30 } else { *times };
                measure(&contender.tree, &server, || {
                    shown(contender, paths, units).map(|()| Work { units, ..Work::default() })
                })
            })?;
        let comparison = Comparison {
            scenario: "pages".to_owned(),
            what: format!("an inbox of {PAGE_MAILS} mails, asked for over one connection"),
            unit: "page".to_owned(),
            series,
        };
        for what in ["inbox page", "API list"] {
            if let Some(cost) = comparison.cost(&format!("ours, {what}")) {
                let verdict = if cost <= PAGE_US_MAX { "met" } else { "not met" };
                self.session.remarks.push(format!(
                    "{what} of {PAGE_MAILS} mails, ≤ {PAGE_US_MAX} µs of CPU: {cost:.0} µs → {verdict}"
                ));
            }
        }
        for (what, ..) in PAGES.iter().filter(|(_, _, (times, _))| *times > 0) {
            self.outcome.figures.push(Figure::at_most(
                format!("CPU of {what}, ≤ 1 × Mailpit (pages)"),
                1.0,
                comparison.series(&format!("ours, {what}")),
                comparison.series(&format!("mailpit, {what}")),
            ));
        }
        self.outcome.comparisons.push(comparison);
        Ok(())
    }

    /// Measures the cost of listing a hundred mails with previews over Mailpit's API, which Nighttrain
    /// supports too.
    pub(crate) fn list_100(&mut self) -> Result<(), PeerError> {
        let running = self.start(&[Contender::Ours, Contender::Other, Contender::Mailpit])?;
        let mails = if self.options.selection.quick { 200 } else { LISTED_OF };
        for (_, contender) in &running {
            load::source(contender.address, &self.session.load, mails, true)?;
        }
        self.lists_first(&running, mails)?;
        let count = if self.options.selection.quick { 30 } else { 1_000 };
        let list = |contender: &ServerProcess| -> Result<u64, PeerError> {
            page_client::ask(contender.pages()?, "/api/v1/messages?limit=100", count)
        };
        for (_, contender) in &running {
            list(contender)?;
        }
        let server = self.session.server.clone();
        let series = interleave(&running, self.rounds(), |contender: &ServerProcess, _| {
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
            self.session
                .remarks
                .push(format!("a list of 100 mails, ≤ {LIST_US_MAX} µs of CPU: {cost:.0} µs → {verdict}"));
        }
        self.outcome.comparisons.push(comparison);
        Ok(())
    }

    /// Measures first requests for lists, soon after their mails arrived.
    fn lists_first(&mut self, running: &[(String, ServerProcess)], mails: u64) -> Result<(), PeerError> {
        thread::sleep(if self.options.selection.quick { Duration::ZERO } else { AHEAD });
        let mut rows = Vec::new();
        for (name, contender) in running {
            let before = contender.tree.usage()?;
            let mut asking = Pages::connect(contender.pages()?)?;
            let starts = (0..mails as usize).step_by(100);
            for start in starts.clone() {
                asking.ask(&format!("/api/v1/messages?limit=100&start={start}"), &mut io::sink())?;
            }
            let after = contender.tree.usage()?;
            let cpu_s = after.cpu_user_s + after.cpu_system_s - before.cpu_user_s - before.cpu_system_s;
            rows.push(vec![
                name.clone(),
                starts.len().to_string(),
                format!("{:.0}", cpu_s * 1e6 / starts.len() as f64),
            ]);
        }
        let columns = [("", ""), ("lists", ""), ("CPU µs each", "")];
        self.outcome.tables.push(table("Lists of 100 that nobody has asked for before", &columns, rows));
        Ok(())
    }
}

/// Checks that each page answers, and that the search finds the inbox's mails.
fn listed(contender: &ServerProcess, what: &str, paths: &[&str]) -> Result<(), PeerError> {
    let mut asking = Pages::connect(contender.pages()?)?;
    for &path in paths {
        if path != INBOX_BY_SEARCH {
            asking.ask(path, &mut io::sink())?;
            continue;
        }
        let told = asking.json(path)?;
        let count = told["messages"].as_array().map_or(0, Vec::len) as u64;
        if count != PAGE_MAILS {
            return Err(PeerError::failed(format!("{what}: {count} mails instead of {PAGE_MAILS}")));
        }
    }
    Ok(())
}
