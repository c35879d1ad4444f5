//! The origins' servers as a readable table: one line per server, numbers aligned, the name last.

use serde_json::Value;

use crate::admin::{explained::plain, numbers::thousands};

/// Returns the admin server's JSON as a table.
pub(crate) fn text(said: &Value) -> String {
    let rows = said["origins"].as_array().map(Vec::as_slice).unwrap_or_default();
    let heading = ["state", "busy", "requests", "failures", "probes", "server"].map(str::to_owned);
    let lines: Vec<[String; 6]> = std::iter::once(heading).chain(rows.iter().map(row)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for [state, busy, requests, failures, probes, server] in &lines {
        let [states, busies, all, failed, probed] = widths;
        text.push_str(&format!(
            "{state:<states$}  {busy:>busies$}  {requests:>all$}  {failures:>failed$}  {probes:>probed$}  {server}\n"
        ));
    }
    text
}

fn row(member: &Value) -> [String; 6] {
    let number = |name: &str| member[name].as_u64();
    let count = |name: &str| thousands(number(name).unwrap_or_default());
    let state = member["state"].as_str().unwrap_or_default();
    [
        match number("sixteenths") {
            Some(steps) => format!("{state}, {}%", steps * 100 / 16),
            None => state.to_owned(),
        },
        count("busy"),
        count("requests"),
        count("failures"),
        match number("probes_good").zip(number("probes")) {
            Some((good, all)) => format!("{good} of {all}"),
            None => "none".to_owned(),
        },
        plain(member["server"].as_str().unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned() {
        let member = |server: &str, state: &str, steps: Option<u64>, probes: Option<u64>| {
            serde_json::json!({
                "server": server, "state": state, "sixteenths": steps, "busy": 2, "requests": 1200, "failures": 0,
                "probes_good": probes, "probes": probes.map(|_| 8),
            })
        };
        let rows = [member("http://a:80", "warming", Some(4), Some(3)), member("unix:/b", "up", None, None)];
        let want = "state         busy  requests  failures  probes  server\n\
                    warming, 25%     2     1,200         0  3 of 8  http://a:80\n\
                    up               2     1,200         0    none  unix:/b\n";
        assert_eq!(text(&serde_json::json!({ "origins": rows })), want);
    }
}
