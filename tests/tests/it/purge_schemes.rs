//! A purge drops a page under every scheme and port that it is stored under (A9): a shop's purge over http
//! drops the page that visitors get over https, and is not redirected.

use std::{io::Write as _, process::Command};

use tests::{
    Accelerator, Answer, Request, ScriptedOrigin, accelerator::Setup, certificate::Certificate, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    a_purge_by_http_drops_https_pages,
    a_page_is_purged_under_every_port,
}

on_one_core_and_on_two! {
    a_token_by_http_is_warned_of,
    a_purge_says_what_it_found,
}

struct Site {
    origin: ScriptedOrigin,
    certificate: Certificate,
    running: Accelerator,
}

impl Site {
    /// Starts a site like WordPress behind our TLS: only purges arrive over http.
    fn start(cores: &str, with: impl FnOnce(Setup) -> Setup) -> Self {
        let origin = ScriptedOrigin::start();
        origin.otherwise(|_, reply| {
            reply.answer(&Answer::new(200, "page").header("Cache-Control", "public, max-age=600"))
        });
        let certificate = Certificate::of(&["site.test"]);
        let setup = Accelerator::before(&origin.url())
            .flag("--cores", cores)
            .flag("--tls-listen", "127.0.0.1:0")
            .flag("--tls-cert", &certificate.file().display().to_string())
            .flag("--tls-key", &certificate.key().display().to_string())
            .limit("https_only", "true")
            .flag("--purge-from", "127.0.0.1");
        Self { running: with(setup).start(), origin, certificate }
    }

    /// Returns whether an https URL is answered without a fetch.
    fn is_hit(&self, url: &str) -> bool {
        let before = self.origin.all_seen().len();
        let output = Command::new("curl")
            .args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--fail", "--max-time", "60"])
            .args(["--connect-to", &format!("::127.0.0.1:{}", self.running.secured().port())])
            .arg("--cacert")
            .arg(self.certificate.file())
            .arg(url)
            .output()
            .expect("curl is installed: run tests/install-packages.sh");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "page", "{output:?}");
        self.origin.all_seen().len() == before
    }

    fn purge(&self, request: Request) -> u16 {
        self.running.fetch(&request.header("Host", "site.test")).status()
    }
}

fn a_purge_by_http_drops_https_pages(cores: &str) {
    for is_on_file in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path().join("store");
        let site =
            Site::start(cores, |setup| if is_on_file { setup.store_in(&store, "128MiB") } else { setup });
        let url = "https://site.test/2026/a-post/";
        for (purge, status) in [
            (Request::new("PURGE", "/2026/a-post/"), 200),
            (Request::new("PURGE", "http://site.test/2026/a-post/"), 200),
            (Request::new("PURGE", "https://site.test/2026/a-post/"), 200),
            (Request::new("PURGE", "/2026/.*").header("X-Purge-Method", "regex"), 200),
            (Request::new("BAN", "/").header("X-Ban", "req.url ~ ^/2026/"), 200),
        ] {
            site.is_hit(url);
            assert!(site.is_hit(url));
            let shown = format!("{purge:?}");
            assert_eq!(site.purge(purge), status, "{shown}");
            assert!(!site.is_hit(url), "it is there after {shown}");
        }
        // Only that page was purged.
        site.is_hit("https://site.test/other");
        assert_eq!(site.purge(Request::new("PURGE", "/2026/a-post/")), 200);
        assert!(site.is_hit("https://site.test/other"));
        // A soft purge makes the page stale.
        site.is_hit(url);
        assert_eq!(site.purge(Request::new("PURGE", "/2026/a-post/").header("Fastly-Soft-Purge", "1")), 200);
        assert!(!site.is_hit(url));
        // Visitors over http are still redirected.
        assert_eq!(site.purge(Request::get("/2026/a-post/")), 301);
    }
}

fn a_page_is_purged_under_every_port(cores: &str) {
    let site = Site::start(cores, |setup| setup);
    let url = |port: u16| format!("https://site.test:{port}/x");
    // More ports than `PORTS_MAX` (8), the number that is remembered.
    let ports: Vec<u16> = (8443..8443 + 12).collect();
    for port in &ports {
        site.is_hit(&url(*port));
    }
    assert!(ports.iter().all(|port| site.is_hit(&url(*port))));
    assert_eq!(site.purge(Request::new("PURGE", "/x")), 200);
    assert!(!ports.iter().any(|port| site.is_hit(&url(*port))));
}

fn a_purge_says_what_it_found(cores: &str) {
    let site = Site::start(cores, |setup| setup);
    let said = |url: &str| {
        let output = site.running.ask(&["purge", url]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    site.is_hit("https://site.test/x");
    assert_eq!(said("http://site.test/x"), "Dropped https://site.test/x\n");
    assert_eq!(said("http://site.test/x"), "No stored object: http://site.test/x, by http or by https\n");
    site.is_hit("https://site.test/x");
    site.is_hit("https://site.test:8443/x");
    let all = "Dropped https://site.test/x and https://site.test:8443/x\n";
    assert_eq!(said("https://site.test/x"), all);
}

fn a_token_by_http_is_warned_of(cores: &str) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"an/honest+token.of24characters\n").expect("written");
    let path = file.path().display().to_string();
    let site =
        Site::start(cores, |setup| setup.flag("--purge-token-file", &path).flag("--purge-from", "192.0.2.1"));
    for _ in 0..3 {
        site.is_hit("https://site.test/x");
        let purge = Request::new("PURGE", "/x").header("X-Purge-Token", "an/honest+token.of24characters");
        assert_eq!(site.purge(purge), 200);
        assert!(!site.is_hit("https://site.test/x"));
    }
    let wrong = Request::new("PURGE", "/x").header("X-Purge-Token", "guess");
    assert_eq!(site.purge(wrong), 403);
    let printed = site.running.printed();
    assert_eq!(printed.matches("purge token received over plain http").count(), 1, "{printed}");
    assert!(!printed.contains("an/honest+token.of24characters"));
}
