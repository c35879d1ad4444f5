use super::*;

#[test]
fn keys_are_unique_and_kebab() {
    for (i, setting) in SETTINGS.iter().enumerate() {
        assert!(setting.key.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", setting.key);
        let twin = |other: &&Setting| {
            other.key == setting.key && (other.section == setting.section || other.section == Section::Common)
        };
        assert!(SETTINGS[..i].iter().find(twin).is_none(), "{} twice", setting.key);
    }
}

#[test]
fn variables_are_named_after_keys() {
    let variable = |key| by_key(key).expect("a setting").1.variable();
    assert_eq!(variable("listen"), "NIGHTTRAIN_CACHE_LISTEN");
    assert_eq!(variable("default-ttl"), "NIGHTTRAIN_CACHE_DEFAULT_TTL");
    assert_eq!(variable("admin"), "NIGHTTRAIN_ADMIN");
}

/// The printed text of every setting is accepted again: the defaults, and one other value each.
#[test]
fn text_sets_the_same_value() {
    let others = |key: &str| match key {
        "cores" => "0,2,3",
        "admin" | "listen" | "tls-listen" => "[::1]:1",
        "admin-token-file" | "state" | "log-file" | "pid-file" | "listen-unix" | "access-log" => "/a/b",
        "log-ring" => "128KiB",
        "client-memory" => "64MiB",
        "access-log-format" => "json",
        "access-log-rotate" => "daily",
        "access-log-keep" => "3",
        "log-hide-query" => "-",
        "admin-tls" | "tls-shared" | "http-tls" => "true",
        "admin-name" | "acme-profile" => "a.example",
        "admin-ca-file" | "acme-ca-file" => "/a/b",
        "acme-directory" => "https://ca.example/dir",
        "acme-domain" => "a.example,192.0.2.1",
        "acme-contact" => "mailto:a@b.example",
        "acme-challenge" => "tls-alpn-01",
        "log" => "warn,cache=debug",
        "origin" => "http://[::1]:3000, https://a:443 weight=2, unix:/a/b backup",
        "balance" => "hash",
        "bots" => "cached-only",
        "strangers" => "20/s",
        "bot-agents" => "night,Train",
        "bots-approved" => "/a/b,/c",
        "sticky-cookie" | "probe-body" | "origin-tls-name" => "night",
        "probe" => "/healthz",
        "probe-status" => "204",
        "origin-tries" | "eject-after" | "probe-window" | "probe-threshold" => "7",
        "origin-tls-ca" | "origin-tls-cert" | "origin-tls-key" => "/a/b",
        "store" => "/a/store",
        "paging" => "kernel",
        "store-admission" => "second-request",
        "memory-limit" => "5MiB",
        "cookies" => "rfc",
        "client-cache-control" => "obey",
        "grace" => "10s",
        "stale-if-error" => "1h",
        "keep" => "2h",
        "name" => "edge-1",
        "purge-from"
        | "trusted-proxies"
        | "mail-readers"
        | "proxy-protocol-from"
        | "bot-networks"
        | "shared-networks" => "10.0.0.0/8,::1",
        "tags" => "Edge-Tag,xkey",
        "host" => "app.internal:81",
        "ignore-query" | "bypass-cookies" => "utm_*,gclid",
        "methods" => "GET,POST",
        "bypass-headers" => "X-Preview,X-Debug",
        "sort-query" | "https-only" | "remove-set-cookie" => "true",
        "error-page" => concat!(env!("CARGO_MANIFEST_DIR"), "/../cache/src/error_page/page.css"),
        "resolver" => "10.0.0.2:53,10.0.0.3:5353",
        "compress" => "gzip,br",
        "compress-types" => "text/*,*+json",
        "compress-bytes-min" => "5KiB",
        "monitor" | "websocket" => "127.0.0.1:7",
        "tls-cert" | "tls-key" | "tls-ca" | "tls-ocsp" | "nats-config" => "/a/b",
        "smtp" | "http" | "smtps" | "lmtp" => "127.0.0.1:7",
        "banned" | "token-file" | "purge-token-file" => "/a/b",
        "store-size" | "blocks-from" | "index-memory" => "256MiB",
        "durability" => "power",
        "host-name" | "domain" => "mx.example.org",
        "domains" | "http-hosts" => "a.example,b.example",
        "inbox-mails-max" | "recipients-max" | "session-commands-max" => "7",
        key if key.ends_with("-per-minute") => "7",
        "share-bodies" | "unsafe-invalidates" | "cdn-cache-control" | "search-index" => "false",
        "tls-verify" | "proxy-protocol" | "tls-handshake-first" | "websocket-tls" => "true",
        "websocket-origins" => "https://a.example,https://b.example",
        "leaf" => "nats-leaf://a.example:7422,tls://[::1]:9",
        "leaf-credentials" | "leaf-tls-ca" => "/a/b",
        "cluster" => "nats://a.example:4222,tls://[::1]:9",
        "cluster-name" | "cluster-stream" | "cluster-bucket" | "cluster-certificates" => "night-1",
        "cluster-replicas" => "5",
        "cluster-when-cut-off" => "serve",
        key if key.starts_with("cluster-tls") => "/a/b",
        "cluster-credentials" | "cluster-nkey" | "cluster-secret" | "peers-secret" => "/a/b",
        "peers-listen" => "10.0.0.1:6080",
        "peers-address" => "web1.internal:6080",
        "peers-members" => "web1=10.0.0.1:6080,web2=[::1]:9",
        "peers-connections-max" | "peers-requests-max" => "7",
        "server-name" => "night-1",
        "max-connections" | "max-subscriptions" | "ping-max" => "7",
        "max-payload"
        | "max-control-line"
        | "max-subscription-memory"
        | "max-pending"
        | "max-pending-total" => "5KiB",
        "origin-stream-bytes-max" => "20KiB",
        key if key.ends_with("bytes-max") || key == "memory" => "5KiB",
        "origin-queue-max" | "origin-lasting-max" | "origin-streams-max" => "7",
        "request-headers-max" | "requests-per-connection-max" | "handshakes-max" => "7",
        "request-body-rate-min" | "send-rate-min" => "5KiB",
        "tls-client-ca" => "/a/b",
        "tls-client" => "asked",
        "tls-client-header" => "X-Client",
        "origin-protocol" => "http2",
        "client-fin" => "end",
        key if key.contains("-requests-") => "7",
        key if key.contains("connections-") => "7",
        _ => "1500ms",
    };
    for setting in SETTINGS {
        for text in [setting.text(&Settings::default()), Some(others(setting.key).to_owned())] {
            let Some(text) = text else { continue };
            let mut settings = Settings::default();
            setting.set(&mut settings, &text).unwrap_or_else(|e| panic!("{} {text}: {e}", setting.key));
            assert_eq!(setting.text(&settings).as_deref(), Some(text.as_str()), "{}", setting.key);
        }
    }
}

#[test]
fn hosts_have_names() {
    let local = parse_host_and_port("localhost:4222", 1).expect("it is there");
    assert!(local.ip().is_loopback() && local.port() == 4222, "{local}");
    assert_eq!(parse_host_and_port("[::1]:7", 1), Ok(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 7))));
    for (wrong, says) in [
        ("localhost:port", "invalid port `port`; expected one such as 4222"),
        ("nowhere.invalid:1", "`nowhere.invalid` has no address"),
        ("4222", "perhaps 127.0.0.1:4222"),
        ("127.0.0.1", "perhaps 127.0.0.1:4222"),
    ] {
        let error = parse_host_and_port(wrong, 4222).expect_err(wrong);
        assert!(error.contains(says), "{wrong}: {error}");
    }
}

#[test]
fn addresses() {
    assert!(parse_address("0.0.0.0:80", 1).is_ok());
    for (wrong, says) in [
        ("127.0.0.1", "perhaps 127.0.0.1:8080"),
        (":8081", "perhaps 127.0.0.1:8081"),
        ("8081", "perhaps 127.0.0.1:8081"),
        ("localhost:8081", "perhaps 127.0.0.1:8081"),
        ("localhost", "perhaps 127.0.0.1:8080"),
        ("*:8081", "0.0.0.0:8081 or [::]:8081"),
        ("www.example.org:8081", "`www.example.org` is a name"),
        ("x", "`x` is a name"),
        ("localhost:http", "expected"),
        ("", "expected"),
        ("127.0.0.1:99999", "expected"),
    ] {
        let error = parse_address(wrong, 8080).expect_err(wrong);
        assert!(error.contains(says), "{wrong}: {error}");
    }
}
