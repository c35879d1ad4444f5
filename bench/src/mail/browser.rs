//! Browser latency of Nighttrain and of Mailpit: time until an inbox of 500 mails, a mail, and a newly
//! received mail are visible.

use std::{collections::BTreeMap, process::Command};

use lab::{
    paired::place::{find, workspace},
    peers::{
        PeerError,
        mail::contenders::{Contender, ServerProcess},
    },
};

use crate::mail::page_client::quantile;
use crate::mail::{Bench, table};

/// Bounds: name of the figure in `tests/browser/figures.cjs`, its quantile, and its milliseconds.
const BOUNDS: [(&str, f64, f64); 3] = [
    ("inbox of 500, first paint", 0.5, 100.0),
    ("a mail, first paint", 0.5, 150.0),
    ("from 250 to the row on the screen", 0.99, 50.0),
];

impl Bench {
    pub(crate) fn browser(&mut self) -> Result<(), PeerError> {
        // The tests install the libraries there (tests/src/node.rs).
        let libraries = workspace().join("target/tests-node/node_modules");
        let Some(chromium) = find("chromium").filter(|_| libraries.is_dir() && find("node").is_some()) else {
            self.session.remarks.push(
                "browser is left out: it needs node, chromium, and libraries that `cargo nextest run -E 'test(mail_web)'` \
                 installs"
                    .to_owned(),
            );
            return Ok(());
        };
        let mut rows = Vec::new();
        for (name, running) in self.start(&[Contender::Ours, Contender::Mailpit])? {
            let mut command = Command::new("node");
            command
                .arg(workspace().join("tests/browser/figures.cjs"))
                .env("NODE_PATH", &libraries)
                .env("CHROMIUM", &chromium)
                .env("SHOTS", workspace().join("target/bench"))
                .env("KIND", if running.is_ours() { "ours" } else { "mailpit" });
            let told = self.told(&mut command, &running)?;
            for (what, mut took_ms) in told {
                took_ms.sort_unstable_by(f64::total_cmp);
                let at = |part| format!("{:.1}", quantile(&took_ms, part));
                rows.push(vec![
                    name.clone(),
                    what.clone(),
                    took_ms.len().to_string(),
                    at(0.5),
                    at(0.99),
                    at(1.0),
                ]);
                if let Some((_, part, most)) =
                    BOUNDS.iter().find(|(bound, ..)| *bound == what && running.is_ours())
                {
                    let which = if *part > 0.5 { "p99" } else { "median" };
                    self.judged(&format!("{what}, {which}"), (quantile(&took_ms, *part), *most), "ms");
                }
            }
        }
        let columns =
            [("", ""), ("what", ""), ("times", ""), ("p50 ms", ""), ("p99 ms", ""), ("longest ms", "")];
        self.outcome.tables.push(table("In a browser", &columns, rows));
        Ok(())
    }

    /// Runs the script and parses its measurements.
    fn told(
        &self,
        command: &mut Command,
        running: &ServerProcess,
    ) -> Result<BTreeMap<String, Vec<f64>>, PeerError> {
        let [rounds, mails, arrivals] =
            if self.options.selection.quick { [1, 20, 3] } else { [21, 500, 300] };
        let output = command
            .env("MAIL_URL", format!("http://{}", running.pages()?))
            .env("MAIL_SMTP", running.address.to_string())
            .envs(
                [("ROUNDS", rounds), ("MAILS", mails), ("ARRIVALS", arrivals)]
                    .map(|(name, n)| (name, n.to_string())),
            )
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let told = said.lines().next_back().map(serde_json::from_str);
        match told {
            Some(Ok(told)) if output.status.success() => Ok(told),
            _ => Err(PeerError::failed(format!(
                "the browser: {said}{}",
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    }
}
