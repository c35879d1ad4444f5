//! The certificates, one line each: the names, the expiry, and the next step.

use std::fmt::Write;

use crate::{
    admin::{explained::plain, numbers::uptime_text},
    services::certificates::CertificateStatus,
};

/// Returns the lines; `now_s` is in seconds since the UNIX epoch.
pub(super) fn text(said: &[CertificateStatus], now_s: i64) -> String {
    let names: Vec<String> = said.iter().map(|of| plain(&of.names.join(", "))).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, of) in names.iter().zip(said) {
        _ = writeln!(text, "  {name:width$}  {}", line(of, now_s));
    }
    text
}

fn line(of: &CertificateStatus, now_s: i64) -> String {
    let span = |until_s: i64| uptime_text(until_s.saturating_sub(now_s).max(0).cast_unsigned());
    let mut parts = vec![match of.until_s {
        Some(until) if until <= now_s => "expired".to_owned(),
        Some(until) => format!("for another {}", span(until)),
        None => "none yet".to_owned(),
    }];
    match (&of.error, of.renewal_s) {
        (Some(error), _) => {
            let again = of.retry_s.map_or_else(String::new, |at| format!("; next attempt in {}", span(at)));
            parts.push(format!("{}{again}", plain(error)));
        }
        (None, Some(at)) => parts.push(format!("renewed in {}", span(at))),
        (None, None) if of.from == "file" => parts.push("from a file".to_owned()),
        (None, None) => parts.push("being obtained".to_owned()),
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a36_each_certificate_line_states_the_next_step() {
        const DAY: i64 = 86_400;
        let said = |name: &str, from, until_s, renewal_s, error: Option<&str>| CertificateStatus {
            names: vec![name.to_owned()],
            from,
            until_s,
            renewal_s,
            error: error.map(str::to_owned),
            retry_s: error.map(|_| 120),
        };
        let all = [
            said("www.example.org", "acme", Some(90 * DAY), Some(60 * DAY), None),
            said("a.example", "acme", Some(DAY), Some(0), Some("no answer from the CA: refused")),
            said("b.example", "acme", None, None, None),
            said("c.example", "acme", None, None, Some("no host")),
            said("d.example", "file", Some(0), None, None),
        ];
        let want = "  www.example.org  for another 90 d 0 h, renewed in 60 d 0 h\n  \
                      a.example        for another 1 d 0 h, no answer from the CA: refused; next attempt in 2 min\n  \
                      b.example        none yet, being obtained\n  \
                      c.example        none yet, no host; next attempt in 2 min\n  \
                      d.example        expired, from a file\n";
        assert_eq!(text(&all, 0), want);
    }
}
