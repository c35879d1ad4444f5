//! Third-party origins, each with its own HTTP/1 parser: they print the requests as they have understood
//! them.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    Request,
    client::fetch,
    eventually,
    nginx::{self, Nginx},
    node::{artifacts, installed, source_tree, succeeds},
};

/// Program that is the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// nginx as Debian packages it.
    Nginx,
    /// Node's server.
    Node,
    /// Node's server with `insecureHTTPParser`.
    NodeLax,
    /// Python's `http.server`.
    Python,
    /// Go's `net/http`.
    Go,
}

impl Kind {
    /// All origins, in the order of the data's columns.
    pub const ALL: [Self; 5] = [Self::Nginx, Self::Node, Self::NodeLax, Self::Python, Self::Go];

    /// Returns the origin's name in the data, without a version.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Node => "Node",
            Self::NodeLax => "Node, lax",
            Self::Python => "Python",
            Self::Go => "Go",
        }
    }

    /// Returns the origin's name with the installed version.
    #[must_use]
    pub fn title(self) -> String {
        let (program, argument) = match self {
            Self::Nginx => (Nginx::binary().to_string_lossy().into_owned(), "-v"),
            Self::Node | Self::NodeLax => ("node".to_owned(), "--version"),
            Self::Python => ("python3".to_owned(), "--version"),
            Self::Go => ("go".to_owned(), "version"),
        };
        let output = succeeds(Command::new(program).arg(argument));
        let word = output.split([' ', '\n', '/']).find(|word| {
            word.trim_start_matches(['v', 'g', 'o']).starts_with(|first: char| first.is_ascii_digit())
        });
        format!("{} {}", self.name(), word.unwrap_or("?").trim_start_matches(['v', 'g', 'o']))
    }

    /// Returns the command that starts the origin; nginx is started by [`Nginx`].
    fn command(self) -> Command {
        let sources = source_tree().join("tests/clients/origins");
        match self {
            Self::Node | Self::NodeLax => {
                let mut command = Command::new("node");
                command.arg(sources.join("node.cjs"));
                command.args((self == Self::NodeLax).then_some("lax"));
                command
            }
            Self::Python => {
                let mut command = Command::new("python3");
                command.arg(sources.join("python.py"));
                command
            }
            Self::Go => Command::new(go()),
            Self::Nginx => unreachable!("nginx is started otherwise"),
        }
    }
}

/// Builds Go's origin, once for each content of its source, and returns its path.
fn go() -> PathBuf {
    let directory = artifacts("tests-origins");
    let source = source_tree().join("tests/clients/origins/go");
    let program = directory.join("go-origin");
    installed(&directory, &source.join("main.go"), || {
        Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(&source).output()
    });
    program
}

/// A running origin. Killed, by its process id, when dropped.
#[derive(Debug)]
pub struct Real {
    child: Option<Child>,
    _nginx: Option<Nginx>,
    address: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
    marks: usize,
}

impl Drop for Real {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Real {
    /// Starts an origin.
    ///
    /// # Panics
    /// When the program is not installed.
    #[must_use]
    pub fn start(kind: Kind) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        if kind == Kind::Nginx {
            let mut nginx = Nginx::configured(nginx_configuration, Stdio::piped);
            let output = nginx.stdout().expect("it is piped");
            collect(BufReader::new(output), &lines);
            let address = nginx.address();
            return Self { child: None, _nginx: Some(nginx), address, lines, marks: 0 };
        }
        let child = kind.command().stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{kind:?}: {error}: tests/install-packages.sh"));
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut port = String::new();
        output.read_line(&mut port).expect("it says its port");
        let port: u16 = port.trim().parse().unwrap_or_else(|_| panic!("{kind:?} says {port:?}"));
        collect(output, &lines);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Self { child: Some(child), _nginx: None, address, lines, marks: 0 }
    }

    /// Returns the value for `--origin`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests that the origin has understood since the last call, one line each: method,
    /// target, host, and length of the body (nginx omits it for a chunked one).
    ///
    /// # Panics
    /// When the origin does not answer.
    pub fn understood(&mut self) -> Vec<String> {
        // An origin prints in the order in which it reads, so all earlier requests are printed before the
        // mark.
        self.marks += 1;
        let mark = format!("/mark/{}", self.marks);
        fetch(self.address, &Request::get(&mark).header("Connection", "close")).expect_status(200);
        let mut understood = Vec::new();
        eventually("an origin prints what it was asked", || {
            let mut lines = self.lines.lock().unwrap();
            let Some(at) = lines.iter().position(|line| line.contains(&mark)) else { return false };
            understood = lines.drain(..=at).take(at).collect();
            true
        });
        // nginx also logs requests that it refuses, without a target.
        understood.retain(|line| line.split(' ').nth(1).is_some_and(|target| !target.is_empty()));
        understood
    }
}

fn collect(output: BufReader<impl Read + Send + 'static>, lines: &Arc<Mutex<Vec<String>>>) {
    let lines = Arc::clone(lines);
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            lines.lock().unwrap().push(line);
        }
    });
}

fn nginx_configuration(directory: &str, address: SocketAddr) -> String {
    nginx::configuration(
        directory,
        &format!(
            r#"
    default_type text/plain;
    log_format asked escape=none '$request_method $request_uri $http_host $content_length';
    access_log /dev/stdout asked;
    underscores_in_headers on;
    map $uri $kept {{ /stored max-age=600; default no-store; }}
    server {{
        listen {address};
        merge_slashes off;
        location / {{
            add_header Cache-Control $kept;
            return 200 "$request_method $request_uri $http_host $content_length";
        }}
    }}
"#
        ),
    )
}
