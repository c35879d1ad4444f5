//! Smoke tests of the servers whose CPU time is compared.

use super::{Outcome, bench, has_ours, is_installed, printed, smoke};

/// Returns the names of the contenders whose programs are all installed.
fn installed(all: &[(&'static str, &[&str])]) -> Vec<&'static str> {
    all.iter()
        .filter(|(_, programs)| programs.iter().all(|program| is_installed(program)))
        .map(|&(name, _)| name)
        .collect()
}

#[test]
fn the_cache_is_compared() -> Outcome {
    if !["wrk", "cc", "taskset", "setpriv"].iter().all(|tool| is_installed(tool)) {
        return Ok(());
    }
    let mut hits = installed(&[
        ("varnish", &["varnishd"]),
        ("nginx", &["nginx"]),
        ("haproxy", &["haproxy"]),
        ("trafficserver", &["traffic_server"]),
        ("squid", &["squid"]),
        ("limit", &["cc"]),
    ]);
    if has_ours("cache", "--origin") {
        hits.extend(["ours", "ours-file"]);
    }
    let storeless = ["limit-crowd", "direct"];
    let smoke = smoke("cache", &["--only", &[&hits[..], &storeless].concat().join(",")])?;
    for scenario in ["one-1k-64", "one-64k-64", "zipf-1k-64"] {
        for name in &hits {
            assert!(smoke.contenders(scenario).contains(name), "{name} in {scenario}: {}", smoke.printed);
        }
        smoke.assert_worked(scenario, "origin");
    }
    // The floors have no origin, and only three of the peers are compared as proxies.
    for (scenario, more) in [
        ("miss-1k", ""),
        ("checked-1k", ""),
        ("pass-1k", ""),
        ("pass-64k", ""),
        ("upload-1m", ""),
        ("private-100", "direct"),
        ("crowd-1000", "limit-crowd"),
    ] {
        let takes_part = |name: &&&str| {
            **name == more
                || ["varnish", "nginx", "ours"].contains(*name)
                || **name == "haproxy" && scenario != "crowd-1000"
        };
        let expected = hits.iter().chain(&storeless).filter(takes_part).count();
        if expected == 0 {
            continue;
        }
        let samples = smoke.samples(scenario);
        assert_eq!(samples.len(), expected, "{scenario}: {}", smoke.printed);
        assert!(samples.iter().all(|(_, sample)| sample["latency"].is_object()), "{scenario}");
        smoke.assert_worked(scenario, "origin");
    }
    smoke.assert_undecided(|_| true);
    assert!(hits.iter().all(|name| smoke.record["versions"][name].is_string()), "{}", smoke.printed);
    Ok(())
}

#[test]
fn tls_and_http2_are_compared() -> Outcome {
    if !["wrk", "h2load", "openssl", "cc", "taskset", "setpriv"].iter().all(|tool| is_installed(tool)) {
        return Ok(());
    }
    let mut servers = installed(&[
        ("nginx", &["nginx"]),
        ("haproxy", &["haproxy"]),
        ("hitch+varnish", &["hitch", "varnishd"]),
    ]);
    if has_ours("cache", "--tls-listen") {
        servers.push("ours");
    }
    let all = [&["limit-h2"], &servers[..]].concat();
    let smoke = smoke("tls", &["--only", &all.join(",")])?;
    let comparisons = smoke.record["comparisons"].as_array().ok_or("no comparisons")?;
    for comparison in comparisons {
        let scenario = comparison["scenario"].as_str().ok_or("no name")?;
        let expected = if scenario.starts_with("h2c-") { &all } else { &servers };
        assert_eq!(smoke.contenders(scenario).len(), expected.len(), "{scenario}: {}", smoke.printed);
        // Doubts would be hits that were misses, handshakes of the wrong kind, or failures; a busy machine
        // causes none of them.
        smoke.assert_worked(scenario, "");
    }
    assert!(servers.is_empty() || comparisons.len() == 19, "{}", smoke.printed);
    smoke.assert_undecided(|figure| !figure.contains("(idle)"));
    if servers.contains(&"ours") {
        let figures = smoke.record["figures"].as_array().ok_or("no figures")?;
        let idle = figures
            .iter()
            .filter(|figure| figure["what"].as_str().is_some_and(|what| what.contains("(idle)")));
        let kib: Vec<_> = idle.filter_map(|figure| figure["ratio"]["median"].as_f64()).collect();
        assert!(kib.len() == 3 && kib.iter().all(|kib| *kib > 0.0), "{}", smoke.printed);
    }
    Ok(())
}

#[test]
fn the_feed_is_compared() -> Outcome {
    let mut servers = installed(&[
        ("nats-server", &["/usr/local/bin/nats-server"]),
        ("nats-server-debian", &["/usr/sbin/nats-server"]),
        ("redis", &["redis-server"]),
        ("mosquitto", &["mosquitto"]),
        ("floor", &["cc"]),
    ]);
    if has_ours("feed", "--monitor") {
        servers.push("ours");
    }
    let scenarios = "none,one,ten,one-64k,one-1m,fan-out,ask-one,ask-fifty,many-slow,leaf,cores-pairs,churn";
    let arguments = ["--milliseconds", "30", "--scenario", scenarios, "--only", &servers.join(",")];
    let smoke = smoke("feed", &arguments)?;
    for scenario in ["none", "one", "ten"] {
        assert_eq!(smoke.contenders(scenario).len(), servers.len(), "{scenario}: {}", smoke.printed);
        smoke.assert_worked(scenario, "");
        let consumers = if scenario == "ten" { 10 } else { 1 };
        for (name, sample) in smoke.samples(scenario) {
            let units = sample["units"].as_u64().unwrap_or_default();
            assert_eq!(units % consumers, 0, "{name}: every message reaches every consumer");
        }
    }
    for scenario in ["one-64k", "one-1m", "fan-out", "ask-one", "ask-fifty", "many-slow"] {
        if !smoke.contenders(scenario).is_empty() {
            smoke.assert_worked(scenario, "");
        }
    }
    smoke.assert_undecided(|_| true);
    let page = bench(&["html"]).arg(&smoke.file).output()?;
    let text = printed(&page);
    assert!(page.status.success() && text.contains("<svg") && text.contains("CPU µs a delivery"), "{text}");
    Ok(())
}

#[test]
fn mail_is_compared() -> Outcome {
    if !has_ours("mail", "--search-index") {
        return Ok(());
    }
    let scenarios = "reused,connections,stored,pages,list-100,search,rare-word,newsletter,slow-mails,browser";
    let smoke = smoke("mail", &["--only", "ours,ours-unindexed,mailpit", "--scenario", scenarios])?;
    // Mailpit takes part if it is installed.
    let has_mailpit = smoke.record["versions"]["mailpit"].is_string();
    for scenario in [
        "reused",
        "connections",
        "stored",
        "pages",
        "list-100",
        "search",
        "rare-word",
        "beside-searches",
        "newsletter",
    ] {
        smoke.samples(scenario);
        smoke.assert_worked(scenario, "");
        let names = smoke.contenders(scenario);
        assert_eq!(
            names.iter().any(|name| name.starts_with("mailpit")),
            has_mailpit,
            "{scenario}: {names:?}"
        );
    }
    let tables = smoke.record["tables"].as_array().ok_or("no tables")?;
    for title in ["Index for searches", "A rare word", "Pages, 250 a second", "Mails made to be slow"] {
        let is_there =
            tables.iter().any(|table| table["title"].as_str().is_some_and(|it| it.starts_with(title)));
        assert!(is_there, "{title}: {}", smoke.printed);
    }
    Ok(())
}
