//! Merges a file in NATS's own format into the settings: its path, the files it refers to, and its
//! unsupported options.
//!
//! The file overrides the defaults, and every other source overrides the file (drawn in
//! [`crate::settings::feed_settings`]).

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use feed::{
    CertificateSource, Pair,
    config::{Tls, WebSocket},
    identity::Identities,
    nats_config::{self, IgnoredOption, Options, Surroundings},
};

use crate::{
    failure::Fault,
    settings::{
        Section,
        feed_settings::FeedSettings,
        in_section,
        precedence::{self, ActiveSettings, Source},
        resolve,
    },
};

/// Maximum payload of a NATS message (nats-server warns above 8 MiB and accepts at most this).
const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Maximum length of a control line if the file disables the limit (-1).
const CONTROL_LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum size of a NATS file; a larger file is refused, because it is probably not the right file.
const NATS_CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Reads the NATS file that the settings name, and takes from it every setting that no other source has set.
/// Returns the options that are not honoured, so that they can be reported.
///
/// # Errors
/// Returns a fault if the file cannot be read, or all faults in it.
pub(crate) fn join_nats_config(in_force: &mut ActiveSettings) -> Result<Vec<IgnoredOption>, Vec<Fault>> {
    let Some(path) = in_force.settings.feed.nats_config.clone() else { return Ok(Vec::new()) };
    let text = read(&path).map_err(|message| vec![Fault { place: path.display().to_string(), message }])?;
    let (options, unhonoured) = nats_config::read(&text, &path, &HostEnvironment).map_err(|faults| {
        let place = |file: Option<PathBuf>, line: usize| {
            format!("{}:{line}", file.as_deref().unwrap_or(&path).display())
        };
        faults
            .into_iter()
            .map(|fault| Fault { place: place(fault.file, fault.line), message: fault.message })
            .collect::<Vec<_>>()
    })?;
    join(in_force, options);
    Ok(unhonoured)
}

/// Returns whether a path has an extension that nats-server's configuration files use.
pub(crate) fn is_nats_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["conf", "cfg", "json"].iter().any(|one| ending == *one))
}

/// Reads a NATS file as at startup. Returns its settings, and lines for the operator about options that are
/// not honoured, or that have a new meaning since this version.
///
/// # Errors
/// Returns all faults in the file that would prevent a start.
pub(crate) fn check(path: &Path) -> Result<(Vec<String>, ActiveSettings), Vec<Fault>> {
    let mut in_force = precedence::in_force(None, |_| None, &Vec::new())?;
    in_force.settings.feed.nats_config = Some(path.to_owned());
    let unhonoured = join_nats_config(&mut in_force)?;
    let config = in_force.settings.feed.config(None).map_err(|fault| vec![fault])?;
    Identities::build(&config.authorization, None)
        .map_err(|error| vec![Fault { place: "authorization".to_owned(), message: error.to_string() }])?;
    let name = |file: Option<PathBuf>| file.unwrap_or_else(|| path.to_owned()).display().to_string();
    let mut lines = vec![format!("{} is right.", path.display())];
    lines.extend(
        unhonoured
            .into_iter()
            .map(|IgnoredOption { file, line, key }| format!("{}:{line}: `{key}` is ignored", name(file))),
    );
    lines.extend(word_on_origins(&in_force).map(|word| format!("{}: {word}", path.display())));
    let text = read(path).unwrap_or_default();
    lines.extend(
        nats_config::remarks(&text, path, &HostEnvironment)
            .into_iter()
            .map(|remark| format!("{}:{}: {}", name(remark.file), remark.line, remark.message)),
    );
    Ok((lines, in_force))
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if bytes > NATS_CONFIG_BYTES_MAX {
        return Err("larger than 1 MiB: is it the right file?".to_owned());
    }
    std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
}

/// Access to the files, variables and host names that a configuration refers to, on this machine.
struct HostEnvironment;

impl Surroundings for HostEnvironment {
    fn file(&self, path: &Path) -> Result<String, String> {
        read(path)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn address_of(&self, name: &str) -> Result<IpAddr, String> {
        resolve(name)
    }
}

/// Settings that the file may change, because no other source has set them.
#[derive(Clone, Copy)]
struct FreeSettings<'a> {
    sources: &'a [Source],
}

impl FreeSettings<'_> {
    fn contains(self, section: Section, key: &str) -> bool {
        in_section(section, key).is_none_or(|(place, _)| self.sources[place] == Source::Default)
    }

    fn has(self, key: &str) -> bool {
        self.contains(Section::Feed, key)
    }

    /// Sets a setting of the feed to the file's value, if the file has one and the setting is free.
    fn take<T>(self, key: &str, to: &mut T, from: Option<T>) {
        if let Some(from) = from.filter(|_| self.has(key)) {
            *to = from;
        }
    }
}

fn join(in_force: &mut ActiveSettings, options: Options) {
    let ActiveSettings { settings, sources } = in_force;
    let free = FreeSettings { sources };
    join_addresses(free, &mut settings.feed, &options);
    join_limits(free, &mut settings.feed.config, &options);
    for (key, to, from) in [
        ("log-file", &mut settings.log_file, options.log_file),
        ("pid-file", &mut settings.pid_file, options.pid_file),
    ] {
        if from.is_some() && free.contains(Section::Common, key) {
            *to = from;
        }
    }
    let is_told = options.debug.is_some() || options.trace.is_some();
    if is_told && free.contains(Section::Common, "log") {
        let [debug, trace] = [options.debug, options.trace].map(Option::unwrap_or_default);
        settings.log = LogOptions { debug, trace }.filter();
    }
    let feed = &mut settings.feed;
    let config = &mut feed.config;
    config.server_tags = options.server_tags;
    config.headers = !options.no_header_support.unwrap_or(false);
    free.take("server-name", &mut config.server_name, options.server_name);
    free.take("proxy-protocol", &mut config.proxy_protocol, options.proxy_protocol);
    config.authorization = options.authorization;
    if free.has("leaf") && feed.leaf_remotes.is_empty() {
        feed.leaf_remotes = options.hubs;
    }
    if free.has("tls-cert") {
        config.tls = options.tls.map(tls);
    }
    if let Some(websocket) = options.websocket.filter(|_| free.has("websocket")) {
        join_websocket(free, feed, websocket, options.host);
    }
    let config = &mut settings.feed.config;
    let maps = |tls: Option<&Tls>| tls.is_some_and(|tls| tls.map);
    config.authorization.by_certificate =
        maps(config.tls.as_ref()) || maps(config.websocket.as_ref().and_then(|web| web.tls.as_ref()));
}

fn join_addresses(free: FreeSettings<'_>, feed: &mut FeedSettings, options: &Options) {
    let listen = &mut feed.config.listen;
    if free.has("listen") {
        *listen = SocketAddr::new(options.host.unwrap_or(listen.ip()), options.port.unwrap_or(listen.port()));
    }
    if free.has("monitor") {
        feed.monitor = SocketAddr::new(
            options.http_host.or(options.host).unwrap_or(feed.monitor.ip()),
            options.http_port.unwrap_or(feed.monitor.port()),
        );
    }
}

fn join_limits(free: FreeSettings<'_>, config: &mut feed::Config, options: &Options) {
    let limits = &mut config.limits;
    let take = |key: &str, to: &mut usize, from: Option<u64>| {
        free.take(key, to, from.map(|number| usize::try_from(number).unwrap_or(usize::MAX)));
    };
    // With a limit of -1, the bound that all clients share still applies.
    let or_at_most = |limit: Option<u64>, most: usize| {
        limit.map(|limit| if limit == Options::NO_LIMIT { most as u64 } else { limit })
    };
    let subscriptions = or_at_most(options.max_subscriptions, 0);
    take("max-connections", &mut limits.max_connections, options.max_connections);
    take("max-subscriptions", &mut limits.max_subscriptions, subscriptions);
    let pending = or_at_most(options.max_pending, limits.max_pending_total);
    take("max-pending", &mut limits.max_pending, pending);
    let payload = or_at_most(options.max_payload, PAYLOAD_BYTES_MAX.min(limits.max_pending));
    take("max-payload", &mut limits.max_payload, payload);
    let control_line = or_at_most(options.max_control_line, CONTROL_LINE_BYTES_MAX);
    take("max-control-line", &mut limits.max_control_line, control_line);
    let ping_max = options.ping_max.map(|ping_max| u32::try_from(ping_max).unwrap_or(u32::MAX));
    free.take("ping-max", &mut limits.ping_max, ping_max);
    free.take("write-deadline", &mut limits.write_deadline, options.write_deadline);
    free.take("ping-interval", &mut limits.ping_interval, options.ping_interval);
    free.take("auth-timeout", &mut limits.auth_timeout, options.auth_timeout);
    free.take("lame-duck-duration", &mut config.lame_duck_duration, options.lame_duck_duration);
    let grace_period = options.lame_duck_grace_period;
    free.take("lame-duck-grace-period", &mut config.lame_duck_grace_period, grace_period);
}

fn tls(tls: nats_config::Tls) -> Tls {
    Tls {
        shown: CertificateSource::Pair(Pair { certificates: tls.cert_file, key: tls.key_file, ocsp: None }),
        ca_file: tls.ca_file,
        verify: tls.verify,
        map: tls.map,
        handshake_first: tls.handshake_first,
        timeout: tls.timeout,
        optional: tls.optional,
    }
}

/// Takes the WebSocket listener; `host` is the file's address of the other listener.
fn join_websocket(
    free: FreeSettings<'_>,
    feed: &mut FeedSettings,
    websocket: nats_config::WebSocket,
    host: Option<IpAddr>,
) {
    let config = &mut feed.config;
    let host = websocket.host.or(host).unwrap_or(config.listen.ip());
    config.websocket = Some(WebSocket {
        listen: SocketAddr::new(host, websocket.port),
        tls: websocket.tls.map(tls),
        same_origin: websocket.same_origin,
        allowed_origins: match free.has("websocket-origins") {
            false => feed.websocket_origins.clone(),
            // All web pages may connect, as in nats-server, because users and passwords keep strangers
            // out. If no user is required, any web page could use its visitors' browsers to reach a feed
            // that only they can reach, so its origin is refused.
            true if websocket.allowed_origins.is_empty()
                && !websocket.same_origin
                && !config.authorization.is_open() =>
            {
                vec!["*".to_owned()]
            }
            true => websocket.allowed_origins,
        },
    });
}

/// Returns a line for the operator if browsers are refused; `None` if all web pages may connect, or none can.
pub(crate) fn word_on_origins(in_force: &ActiveSettings) -> Option<&'static str> {
    let config = &in_force.settings.feed.config;
    let web = config.websocket.as_ref()?;
    let is_own_alone = web.allowed_origins.is_empty() && !web.same_origin && config.authorization.is_open();
    is_own_alone.then_some(
        "websocket: pages of other origins are refused (403), because the file names no users; list the origins that \
         may connect in `allowed_origins`",
    )
}

/// The options `debug` and `trace` of nats-server, which are independent of each other.
pub(crate) struct LogOptions {
    pub(crate) debug: bool,
    /// True if the protocol lines of clients are logged.
    pub(crate) trace: bool,
}

impl LogOptions {
    /// Returns the log filter for the options.
    pub(crate) fn filter(&self) -> String {
        let level = if self.debug { "debug" } else { "info" };
        if self.trace { format!("{level},{}=trace", feed::PROTOCOL_LOG) } else { level.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn joined(
        nats: &str,
        flags: &[(&str, &str)],
    ) -> Result<(ActiveSettings, Vec<IgnoredOption>), Vec<Fault>> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nats.conf");
        std::fs::write(&path, nats).expect("a file");
        let mut all = vec![("nats-config", path.to_str().expect("text"))];
        all.extend(flags);
        let flags = all
            .into_iter()
            .map(|(key, text)| (in_section(Section::Feed, key).expect("a setting").0, text.to_owned()))
            .collect();
        let mut in_force = precedence::in_force(None, |_| None, &flags)?;
        let unhonoured = join_nats_config(&mut in_force)?;
        Ok((in_force, unhonoured))
    }

    #[test]
    fn other_settings_override_the_nats_file() {
        let nats = "port: 5000\nmax_payload: 2MB\nmax_pending: 3MB\nhttp: 127.0.0.1:5001\njetstream: {}\n\
                    authorization { user: a, password: b }\n";
        let (in_force, unhonoured) = joined(nats, &[("max-payload", "5KiB")]).expect("right");
        let config = in_force.settings.feed.config(None).expect("sound");
        assert_eq!(config.listen.port(), 5000);
        assert_eq!(in_force.settings.feed.monitor.port(), 5001);
        assert_eq!((config.limits.max_payload, config.limits.max_pending), (5 << 10, 3 << 20));
        assert!(!config.authorization.is_open());
        assert_eq!(unhonoured.len(), 1);
    }

    /// A limit of 0 is the default and -1 is no limit, as in nats-server; with -1 only the bound that all
    /// clients share applies.
    #[test]
    fn limits_without_a_number_are_those_of_all() {
        let config = |text: &str| {
            let (in_force, unhonoured) = joined(text, &[]).expect("right");
            assert_eq!(unhonoured, []);
            in_force.settings.feed.config(None).expect("sound").limits
        };
        let usual = config("");
        let zeros =
            "max_payload: 0\nmax_pending: 0\nmax_control_line: 0\nping_interval: 0\nping_max: 0\nmax_subs: 0";
        assert_eq!(config(zeros), usual);
        let limits = config("max_payload: -1\nmax_pending: -1\nmax_connections: -1\nmax_subscriptions: -1");
        assert_eq!(limits.max_pending, usual.max_pending_total);
        assert_eq!((limits.max_payload, limits.max_subscriptions), (PAYLOAD_BYTES_MAX, 0));
        assert_eq!(limits.max_connections, usize::MAX);
    }

    /// Pages of all sites may connect, as in nats-server. If no password is required, only pages of the
    /// feed's own address may, and the operator is informed.
    #[test]
    fn pages_may_connect_where_users_need_passwords() {
        for (text, origins, is_told) in [
            ("", &[][..], true),
            ("authorization { user: a, password: b }", &["*"], false),
            ("accounts { A { users: [ {user: a, password: b} ] } }", &["*"], false),
        ] {
            let text = format!("websocket {{ port: 8443, no_tls: true }}\n{text}");
            let (in_force, _) = joined(&text, &[]).expect("right");
            let web = in_force.settings.feed.config(None).expect("sound").websocket.expect("a listener");
            assert_eq!(web.allowed_origins, origins, "{text}");
            assert_eq!(word_on_origins(&in_force).is_some(), is_told, "{text}");
        }
    }

    #[test]
    fn the_nats_file_check_names_affected_lines() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nats.conf");
        let text = "jetstream: {}\nauthorization { users: [\n\
                    {user: a, password: b, permissions: {subscribe: {deny: [\"a.secret q\"]}, allow_responses: true}}\n\
                    {user: c, password: b, permissions: {publish: [\"req.>\", \"_INBOX.>\"]}} ] }\n";
        std::fs::write(&path, text).expect("a file");
        let (said, _) = check(&path).expect("right");
        let said = said.join("\n").replace(path.to_str().expect("text"), "F");
        let lines: Vec<&str> = said.lines().map(|line| line.split(" now ").next().unwrap_or(line)).collect();
        assert_eq!(lines[0], "F is right.");
        assert_eq!(lines[1], "F:1: `jetstream` is ignored");
        assert!(lines[2].starts_with("F:3: a deny of a queue group"), "{said}");
        assert!(lines[3].starts_with("F:3: each response"), "{said}");
        assert!(lines[4].starts_with("F:4: a requester"), "{said}");
        assert_eq!(lines.len(), 5, "{said}");
        for (text, place) in
            [("authorizaton { user: a, password: b }", "F:1"), ("no_auth_user: nobody", "authorization")]
        {
            std::fs::write(&path, text).expect("a file");
            let Err(faults) = check(&path) else { panic!("{text} is taken") };
            assert_eq!(faults[0].place.replace(path.to_str().expect("text"), "F"), place, "{faults:?}");
        }
    }

    #[test]
    fn faults_of_the_nats_file_have_its_lines() {
        let faults = joined("port: 1\nmax_payload: much\n", &[]).expect_err("wrong");
        assert!(faults[0].place.ends_with("nats.conf:2"), "{faults:?}");
    }

    #[test]
    fn the_process_follows_the_file_too() {
        let nats = "log_file: /l\npid_file: /p\ndebug: true\ntrace: true\nno_header_support: true\nproxy_protocol: true\n\
                    lame_duck_grace_period: 3s\nserver_tags: [a, b]\nlisten: \"localhost:4444\"\n\
                    tls { cert_file: /c, key_file: /k, ca_file: /a, verify_and_map: true }\n";
        let (in_force, unhonoured) = joined(nats, &[]).expect("right");
        assert_eq!(unhonoured, []);
        let settings = in_force.settings;
        assert_eq!((settings.log_file, settings.pid_file), (Some("/l".into()), Some("/p".into())));
        assert_eq!(settings.log, "debug,feed::protocol=trace");
        let config = settings.feed.config(None).expect("sound");
        assert!(
            config.proxy_protocol
                && !config.headers
                && config.listen.ip().is_loopback()
                && config.listen.port() == 4444
        );
        assert_eq!(config.lame_duck_grace_period, Duration::from_secs(3));
        assert_eq!(config.server_tags, ["a", "b"]);
        assert!(config.authorization.by_certificate);
    }

    #[test]
    fn a_file_beside_it_is_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nats.conf");
        std::fs::write(directory.path().join("more.conf"), "port: 4555\nmax_payload: x").expect("a file");
        std::fs::write(&path, "include ./more.conf").expect("a file");
        let mut in_force = precedence::in_force(None, |_| None, &Vec::new()).expect("right");
        in_force.settings.feed.nats_config = Some(path);
        let faults = join_nats_config(&mut in_force).expect_err("it is wrong");
        assert!(faults[0].place.ends_with("more.conf:2"), "{faults:?}");
        std::fs::write(directory.path().join("more.conf"), "port: 4555").expect("a file");
        join_nats_config(&mut in_force).expect("right");
        assert_eq!(in_force.settings.feed.config.listen.port(), 4555);
    }

    #[test]
    fn what_does_not_go_together_is_said() {
        for (flags, place) in [
            (vec![("tls-cert", "/c")], "tls-key"),
            (vec![("tls-key", "/k")], "tls-cert"),
            (vec![("tls-cert", "/c"), ("tls-key", "/k"), ("tls-verify", "true")], "tls-verify"),
            (vec![("websocket", "127.0.0.1:1"), ("websocket-tls", "true")], "websocket-tls"),
            (vec![("tls-handshake-first", "true")], "tls-cert"),
        ] {
            let (in_force, _) = joined("", &flags).expect("right");
            assert_eq!(in_force.settings.feed.config(None).expect_err("wrong").place, place);
        }
    }
}
