//! Debian's WordPress as the origin: its own files, its own installer, and a MariaDB of its own behind it.
//!
//! ```text
//!   php -S ──▶ a copy of /usr/share/wordpress ──▶ mariadbd, over a socket
//!                  wp-config.php of the test        both in one temporary directory
//! ```
//!
//! WordPress is copied because it looks for its configuration in its own directory, and PHP follows links
//! before it reports that directory. Only PHP listens, on loopback; WordPress does not look for updates and
//! sends no mail.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{Request, client::fetch, eventually, node::succeeds};

const FILES: &str = "/usr/share/wordpress";
/// Themes are packages of their own; without one WordPress shows empty pages.
const THEME: &str = "/usr/share/wordpress/wp-content/themes/twentytwentythree/style.css";

/// A running WordPress, installed, with an administrator. Its process groups are ended, by their ids, on
/// drop.
#[derive(Debug)]
pub struct WordPress {
    address: SocketAddr,
    site: PathBuf,
    // Fields are dropped in this order: PHP ends before the database that it uses, and the files go last.
    _php: Process,
    _database: Process,
    _directory: tempfile::TempDir,
}

/// A child that leads a process group of its own.
#[derive(Debug)]
struct Process {
    child: Child,
    log: PathBuf,
}

impl WordPress {
    /// Installs WordPress as the site `http://HOST`, with an administrator of this name, whose password is
    /// [`password`]. `None`, with a line on stderr, if the packages are not installed.
    ///
    /// # Panics
    /// When a step fails; its output is in the message.
    #[must_use]
    pub fn start(host: &str, administrator: &str) -> Option<Self> {
        let needed = ["/usr/bin/php", "/usr/sbin/mariadbd", "/usr/bin/mariadb-install-db", FILES, THEME]
            .map(Path::new);
        if let Some(missing) = needed.iter().find(|path| !path.exists()) {
            eprintln!(
                "nothing tried: {} is missing; tests/install-packages.sh installs it",
                missing.display()
            );
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let site = directory.path().join("site");
        let socket = directory.path().join("socket");
        // Both steps take seconds and do not depend on each other.
        let database = thread::scope(|scope| {
            scope.spawn(|| copy(&site));
            start_database(directory.path(), &socket)
        });
        fs::write(site.join("wp-config.php"), configuration(host, &socket)).expect("written");
        let (php, address) = start_php(&site, directory.path());
        let running = Self { address, site, _php: php, _database: database, _directory: directory };
        running.install(host, administrator);
        Some(running)
    }

    /// Returns the value for `origin`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs this PHP code inside WordPress, and returns its output.
    ///
    /// # Panics
    /// When the code fails.
    #[must_use]
    pub fn php(&self, code: &str) -> String {
        let load = format!("require '{}/wp-load.php'; {code}", self.site.display());
        succeeds(Command::new("/usr/bin/php").args(["-d", "display_errors=stderr", "-r", &load]))
    }

    /// Installs WordPress by its own form, then enables pretty permalinks, which WordPress itself would detect over
    /// HTTP.
    fn install(&self, host: &str, administrator: &str) {
        let word = password(administrator);
        let form = format!(
            "weblog_title=The+blog&user_name={administrator}&admin_password={word}&admin_password2={word}&pw_weak=on\
             &admin_email={administrator}%40{host}&blog_public=0&language="
        );
        let request = Request::new("POST", "/wp-admin/install.php?step=2").header("Host", host);
        let request = request.header("Content-Type", "application/x-www-form-urlencoded");
        let page = fetch(self.address, &request.body(form.as_bytes())).expect_status(200).text();
        assert!(page.contains("WordPress has been installed"), "{page}");
        let set = "global $wp_rewrite; $wp_rewrite->set_permalink_structure('/%postname%/'); flush_rewrite_rules();";
        assert_eq!(self.php(set), "");
    }
}

/// Returns the password of the user of this name.
#[must_use]
pub fn password(name: &str) -> String {
    format!("secret-of-{name}")
}

/// Copies WordPress, and with it the libraries and themes of other packages that Debian links to.
fn copy(site: &Path) {
    succeeds(Command::new("cp").args(["-rL", FILES]).arg(site));
}

fn configuration(host: &str, socket: &Path) -> String {
    format!(
        "<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:{}');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
define('WP_HOME', 'http://{host}');
define('WP_SITEURL', 'http://{host}');
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
",
        socket.display()
    )
}

fn start_database(directory: &Path, socket: &Path) -> Process {
    let data = directory.join("database");
    // The database refuses to run as root unless it is told to.
    let user: &[&str] = if rustix::process::geteuid().is_root() { &["--user=root"] } else { &[] };
    let small = ["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M"];
    let mut install = Command::new("/usr/bin/mariadb-install-db");
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    install.arg("--skip-name-resolve").args(user).args(small);
    succeeds(install.arg(format!("--datadir={}", data.display())));
    let mut server = Command::new("/usr/sbin/mariadbd");
    server.args(["--no-defaults", "--skip-networking", "--innodb-flush-log-at-trx-commit=0"]);
    server.args(user).args(small).arg(format!("--datadir={}", data.display()));
    server.arg(format!("--socket={}", socket.display()));
    server.arg(format!("--pid-file={}", data.join("pid").display()));
    let mut running = Process::spawn(&mut server, directory.join("database.log"));
    let create =
        "(new mysqli('localhost', 'root', '', '', 0, $argv[1]))->query('CREATE DATABASE wordpress');";
    eventually("the database takes connections", || {
        running.goes_on();
        // Errors are hidden: they only say that the database does not listen yet.
        let mut php = Command::new("/usr/bin/php");
        php.args(["-r", create]).arg(socket).stdout(Stdio::null()).stderr(Stdio::null());
        socket.exists() && php.status().is_ok_and(|status| status.success())
    });
    running
}

/// PHP's own web server. It cannot be asked which port it got, so it is given one that was free a moment ago.
fn start_php(site: &Path, directory: &Path) -> (Process, SocketAddr) {
    for _ in 0..10 {
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let mut server = Command::new("/usr/bin/php");
        server.args(["-d", "sendmail_path=/bin/true", "-S", &address.to_string(), "-t"]).arg(site);
        // Serves two visitors at once; the workers are children of the server, so its whole process group is
        // ended.
        server.env("PHP_CLI_SERVER_WORKERS", "2");
        let mut running = Process::spawn(&mut server, directory.join("php.log"));
        let mut ended = false;
        eventually("PHP listens or ends", || {
            ended = running.child.try_wait().expect("a child can be waited for").is_some();
            ended || TcpStream::connect(address).is_ok()
        });
        if !ended {
            return (running, address);
        }
    }
    panic!("PHP did not start on ten ports in turn");
}

impl Process {
    fn spawn(command: &mut Command, log: PathBuf) -> Self {
        let file = File::create(&log).expect("a file");
        let other = file.try_clone().expect("a file");
        command.stdin(Stdio::null()).stdout(file).stderr(other).process_group(0);
        Self { child: command.spawn().expect("it is installed"), log }
    }

    fn goes_on(&mut self) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert_eq!(ended, None, "{}", fs::read_to_string(&self.log).unwrap_or_default());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        if thread::panicking() {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            let last = lines[lines.len().saturating_sub(30)..].join("\n");
            eprintln!("--- the end of {}:\n{last}\n---", self.log.display());
        }
    }
}
