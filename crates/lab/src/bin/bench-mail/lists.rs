//! What it costs to show an inbox, and to list a hundred mails.

use std::{io, net::Ipv4Addr, thread, time::Duration};

use lab::{
    paired::{Work, interleave, measure, record::Comparison},
    peers::{
        PeerError,
        mail::{
            contenders::{self, Contender, Running},
            load,
            pages::{self, Pages},
        },
    },
};

use crate::{Bench, table};

/// Mails of the inbox whose pages are asked for.
const PAGE_MAILS: u64 = 100;
/// What a page of them may cost.
const PAGE_US_MAX: f64 = 200.0;
/// Mails that are stored where a hundred of them are listed, and what the list may cost.
const LISTED_OF: u64 = 2_000;
const LIST_US_MAX: f64 = 300.0;
/// What a server makes ahead of the first who asks, it makes meanwhile.
const AHEAD: Duration = Duration::from_secs(5);

impl Bench {
    /// What it costs to show an inbox.
    pub(crate) fn pages(&mut self) -> Result<(), PeerError> {
        let started = contenders::start(Contender::Ours, (Ipv4Addr::LOCALHOST, &self.server))
            .map_err(PeerError::Failed)?;
        // All to the inboxes i0 to i9.
        load::pipelined(started.address, load::Until::Mails(10 * PAGE_MAILS), PAGE_MAILS)?;
        let pages_at = started.pages()?;
        let pages = [
            ("inbox page", "/inbox/i1@bench.test"),
            ("API list", "/api/v2/domains/bench.test/inboxes/i1?limit=99"),
            ("home page", "/"),
        ]
        .map(|(name, path)| (name.to_owned(), path));
        let count = if self.options.chosen.quick { 300 } else { 3_000 };
        for (_, path) in &pages {
            pages::ask(pages_at, path, count / 3)?;
        }
        let server = self.server.clone();
        let series = interleave(&pages, self.rounds(), |path: &&str, _| {
            measure(&started.tree, &server, || {
                pages::ask(pages_at, path, count).map(|_| Work { units: count, ..Work::default() })
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
    pub(crate) fn list_100(&mut self) -> Result<(), PeerError> {
        let running = self.start(&[Contender::Ours, Contender::Other, Contender::Mailpit])?;
        let mails = if self.options.chosen.quick { 200 } else { LISTED_OF };
        for (_, contender) in &running {
            load::source(contender.address, &self.load, mails, true)?;
        }
        self.lists_first(&running, mails)?;
        let count = if self.options.chosen.quick { 30 } else { 1_000 };
        let list = |contender: &Running| -> Result<u64, PeerError> {
            pages::ask(contender.pages()?, "/api/v1/messages?limit=100", count)
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

    /// Lists that nobody has asked for before, a moment after their mails came.
    fn lists_first(&mut self, running: &[(String, Running)], mails: u64) -> Result<(), PeerError> {
        thread::sleep(if self.options.chosen.quick { Duration::ZERO } else { AHEAD });
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
        self.tables.push(table("Lists of 100 that nobody has asked for before", &columns, rows));
        Ok(())
    }
}
