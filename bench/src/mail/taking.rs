//! The cost of receiving a mail, of many stored mails, and of idle connections.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use lab::{
    paired::{Sample, Work, interleave, measure},
    peers::{
        PeerError,
        mail::{
            MAIL_BYTES, SESSIONS,
            contenders::{self, Contender, ServerProcess},
            load,
        },
    },
};

use crate::mail::{Bench, LARGE_STORE_GIB, STORE_GIB, table};
use crate::record::{Comparison, Figure};

const CONNECTIONS_IDLE: usize = 10_000;
/// Bound on the memory of a million stored mails, without the log's buffers.
const STORED_MIB_MAX: u64 = 150;

impl Bench {
    /// Measures every contender under load from `smtp-source`.
    pub(crate) fn sessions(&mut self, scenario: &str, what: &str, reuse: bool) -> Result<(), PeerError> {
        let running = self.start(&Contender::ALL)?;
        let (server, load) = (self.session.server.clone(), self.session.load.clone());
        // A warm-up comes first, for just-in-time compilers and growing data structures.
        for (name, contender) in &running {
            if let Err(error) =
                load::source(contender.address, &load, self.mails_a_round(contender) / 2, reuse)
            {
                self.session.remarks.push(format!("{name}, {what}: {error}"));
            }
        }
        let series = interleave(&running, self.rounds(), |contender: &ServerProcess, _| {
            let count = self.mails_a_round(contender);
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
        self.outcome.figures.push(Figure::at_most(
            format!("CPU a mail, {what}, ≤ {bound} × smtp-sink, which stores nothing ({scenario})"),
            bound,
            comparison.series("ours"),
            comparison.series("sink"),
        ));
        self.outcome.comparisons.push(comparison);
        Ok(())
    }

    /// Measures Nighttrain and Mailpit with an empty store and with many stored mails.
    pub(crate) fn stored(&mut self) -> Result<(), PeerError> {
        let mut running = Vec::new();
        let (mut rows, mut rows_of_mailpit) = (Vec::new(), Vec::new());
        let wanted = [
            (Contender::Ours, self.options.stored.clone()),
            (Contender::Mailpit, self.options.stored_in_mailpit.clone()),
        ];
        for (contender, counts) in wanted {
            for count in std::iter::once(0).chain(counts) {
                let count = if self.options.selection.quick { count / 100 } else { count };
                let store_gib = if count > 100_000 { LARGE_STORE_GIB } else { STORE_GIB };
                let started = self.start_with_store(&[contender], store_gib)?.pop();
                let Some((name, started)) = started else { break };
                let begun = Instant::now();
                // Each inbox gets ten mails.
                load::fill(&started, count, &load::plain(count.div_ceil(10)))?;
                if count > 0 {
                    println!("{name}: {count} mails stored in {:.1} s", begun.elapsed().as_secs_f64());
                }
                if started.is_ours() {
                    rows.push(self.memory(&started, count)?);
                } else {
                    let rss_mib = started.tree.usage()?.rss_bytes >> 20;
                    rows_of_mailpit.push(vec![count.to_string(), rss_mib.to_string()]);
                }
                running.push((format!("{name}, {count} stored"), started));
            }
        }
        for (_, contender) in &running {
            load::source(contender.address, &self.session.load, self.mails_a_round(contender) / 2, true)?;
        }
        let (server, load) = (self.session.server.clone(), self.session.load.clone());
        let series = interleave(&running, self.rounds(), |contender: &ServerProcess, _| {
            let count = self.mails_a_round(contender);
            measure(&contender.tree, &server, || {
                load::source(contender.address, &load, count, true)
                    .map(|()| Work { units: count, ..Work::default() })
            })
        })?;
        let comparison = Comparison {
            scenario: "stored".to_owned(),
            what: "smtp-source, connections reused, into a store that has mails already".to_owned(),
            unit: "mail".to_owned(),
            series,
        };
        for stored in comparison.series.iter().skip(1).filter(|series| series.name.starts_with("ours")) {
            self.outcome.figures.push(Figure::at_most(
                format!("CPU a mail with {}, ≤ 1.1 × with none", stored.name),
                1.1,
                Some(stored),
                comparison.series("ours, 0 stored"),
            ));
        }
        for peer in &comparison.series {
            if let Some(stored) = peer.name.strip_prefix("mailpit, ")
                && let Some(ours) = comparison.series(&format!("ours, {stored}"))
            {
                self.outcome.figures.push(Figure::at_most(
                    format!("CPU a mail with {stored}, ≤ 1 × Mailpit with as many (stored)"),
                    1.0,
                    Some(ours),
                    Some(peer),
                ));
            }
        }
        self.outcome.comparisons.push(comparison);
        self.outcome.tables.push(table(
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
        if !rows_of_mailpit.is_empty() {
            let columns = [("mails stored", ""), ("resident MiB", "")];
            self.outcome.tables.push(table("Memory of Mailpit", &columns, rows_of_mailpit));
        }
        Ok(())
    }

    /// Returns the number of mails that `smtp-source` sends in a round.
    fn mails_a_round(&self, contender: &ServerProcess) -> u64 {
        match (self.options.selection.quick, contender.is_slow) {
            (true, _) => 500,
            (false, true) => 1_500,
            (false, false) => 15_000,
        }
    }

    /// Returns the table row with the memory of `count` stored mails.
    fn memory(&mut self, ours: &ServerProcess, count: u64) -> Result<Vec<String>, PeerError> {
        let rss_mib = ours.tree.usage()?.rss_bytes >> 20;
        let (mapped_mib, index_bytes) = (ours.buffers_mib()?, ours.metric("mail_index_bytes")?);
        let beyond_mib = rss_mib.saturating_sub(mapped_mib);
        if count >= 1_000_000 {
            let verdict = if beyond_mib <= STORED_MIB_MAX { "met" } else { "not met" };
            self.session.remarks.push(format!(
                "memory with {count} stored, ≤ {STORED_MIB_MAX} MiB beyond the log's buffers: {beyond_mib} MiB → {verdict}"
            ));
        }
        let index_bytes_each = index_bytes / (count.max(1) as f64);
        Ok(vec![
            count.to_string(),
            rss_mib.to_string(),
            mapped_mib.to_string(),
            beyond_mib.to_string(),
            format!("{index_bytes_each:.0}"),
        ])
    }

    /// Measures mails sent as fast as the pipelining client can.
    pub(crate) fn pipelined(&mut self) -> Result<(), PeerError> {
        let started = contenders::start(Contender::Ours, (Ipv4Addr::LOCALHOST, &self.session.server))
            .map_err(PeerError::Failed)?;
        let seconds = if self.options.selection.quick { 2 } else { self.options.seconds };
        let before = started.tree.usage()?;
        let begun = Instant::now();
        let sent = load::pipelined(started.address, Duration::from_secs(seconds))?;
        let elapsed_s = begun.elapsed().as_secs_f64();
        let after = started.tree.usage()?;
        let cpu_s = after.cpu_user_s + after.cpu_system_s - before.cpu_user_s - before.cpu_system_s;
        let rate = sent as f64 / elapsed_s;
        let received = started.metric("mail_received_total")?;
        if received < sent as f64 {
            self.session
                .remarks
                .push(format!("pipelined: {sent} were answered 250, but {received} were counted"));
        }
        self.outcome.tables.push(table(
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
        self.session
            .remarks
            .push("Mailpit is not sent mail by BDAT, which it does not offer (pipelined)".to_owned());
        // According to the article, its service handled 25 million mails a day after its rewrite.
        self.session.remarks.push(format!(
            "a day at the rate of \"pipelined\" on one core would be {:.0} million mails, {:.0} times 25 million",
            rate * 86_400.0 / 1e6,
            rate * 86_400.0 / 25e6
        ));
        println!("pipelined: {rate:.0} mails/s, {:.1} µs of CPU each", cpu_s * 1e6 / sent as f64);
        Ok(())
    }

    /// Measures the memory of an idle connection.
    pub(crate) fn idle(&mut self) -> Result<(), PeerError> {
        let connections = if self.options.selection.quick { 500 } else { CONNECTIONS_IDLE };
        let mut rows = Vec::new();
        for (name, running) in self.start(&[Contender::Ours, Contender::Mailpit])? {
            let before = running.tree.usage()?.rss_bytes;
            let held = load::idle(running.address, connections)?;
            let after = running.tree.usage()?.rss_bytes;
            let each = after.saturating_sub(before) / held.len() as u64;
            println!("idle: {each} bytes a connection of {name}, {} of them", held.len());
            rows.push(vec![name, held.len().to_string(), each.to_string()]);
        }
        let columns = [("", ""), ("connections", ""), ("resident bytes each", "")];
        self.outcome.tables.push(table("Idle connections", &columns, rows));
        Ok(())
    }
}
