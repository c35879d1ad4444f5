//! Debian's nginx as the origin: a real web server over a real documentation tree.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::eventually;

/// Documentation tree that `tests/install-packages.sh` installs.
pub const DOCUMENTATION: &str = "/usr/share/doc/wx3.2-doc/html";

/// A running nginx. Killed, by its process id, when dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Nginx {
    /// Serves [`DOCUMENTATION`] at `/`, fresh for an hour; the same at `/unsaid/` without explicit freshness;
    /// and passes `/app/` on to the application.
    ///
    /// # Panics
    /// When nginx or the documentation is not installed; the message names the command that installs them.
    pub fn start(application: SocketAddr) -> Self {
        assert!(
            Path::new(DOCUMENTATION).is_dir(),
            "{DOCUMENTATION} is missing: run tests/install-packages.sh"
        );
        let configure = |directory: &str, address| configure(directory, address, application);
        Self::configured(configure, Stdio::inherit)
    }

    /// Starts nginx with the configuration that `configure` makes from its directory and listen address.
    ///
    /// # Panics
    /// When nginx is not installed; the message names the command that installs it.
    pub fn configured(configure: impl Fn(&str, SocketAddr) -> String, stdout: fn() -> Stdio) -> Self {
        let binary = Self::binary();
        // nginx cannot report which port it got, so it is given one that was free a moment ago. If another
        // process takes that port first, nginx fails and the next port is tried.
        for _ in 0..10 {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let address =
                TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
            let configuration = directory.path().join("nginx.conf");
            fs::write(&configuration, configure(&directory.path().to_string_lossy(), address))
                .expect("a file is written");
            let mut child = Command::new(binary)
                .arg("-p")
                .arg(directory.path())
                .arg("-c")
                .arg(&configuration)
                .arg("-e")
                .arg(directory.path().join("error.log"))
                .stdin(Stdio::null())
                .stdout(stdout())
                .spawn()
                .expect("nginx starts");
            let mut ended = None;
            eventually("nginx listens or ends", || {
                ended = child.try_wait().expect("a child can be waited for");
                ended.is_some() || TcpStream::connect(address).is_ok()
            });
            if ended.is_none() {
                return Self { child, address, directory };
            }
        }
        panic!("nginx did not start on ten ports in turn");
    }

    /// Returns the path of the program.
    ///
    /// # Panics
    /// When nginx is not installed; the message names the command that installs it.
    pub fn binary() -> &'static Path {
        ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"]
            .iter()
            .map(Path::new)
            .find(|path| path.exists())
            .expect("nginx is missing: run tests/install-packages.sh")
    }

    /// Takes the standard output, if it was piped; works once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Address where nginx listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the value for `--origin`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns method, target and status of each request so far, from the access log. Requests with an
    /// `X-Direct` field are left out: a test sets it on requests that bypass the accelerator, for comparison.
    pub fn log(&self) -> Vec<(String, String, u16)> {
        let text = fs::read_to_string(self.directory.path().join("access.log")).unwrap_or_default();
        text.lines().filter_map(log_line).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // nginx runs as one process without workers (`master_process off`), so no other process remains.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_line(line: &str) -> Option<(String, String, u16)> {
    let mut words = line.split(' ');
    let method = words.next()?.to_owned();
    let target = words.next()?.to_owned();
    let status = words.next()?.parse().ok()?;
    (words.next() == Some("-")).then_some((method, target, status))
}

fn configure(directory: &str, address: SocketAddr, application: SocketAddr) -> String {
    // A site's usual configuration: compression if the client accepts it (also behind a proxy), and Debian's
    // media types.
    let http = format!(
        r#"
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    log_format counted '$request_method $request_uri $status $http_x_direct';
    access_log {directory}/access.log counted;
    sendfile on;
    tcp_nopush on;
    gzip on;
    gzip_vary on;
    gzip_proxied any;
    gzip_types text/css application/javascript image/svg+xml;
    server {{
        listen {address};
        root {DOCUMENTATION};
        index index.html;
        expires 1h;
        location /unsaid/ {{
            alias {DOCUMENTATION}/;
            expires off;
        }}
        location /app/ {{
            expires off;
            proxy_pass http://{application};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
        }}
    }}
"#
    );
    configuration(directory, &http)
}

/// Returns a configuration for one process with all files in its own directory; `http` is the content of the
/// http block.
pub(crate) fn configuration(directory: &str, http: &str) -> String {
    format!(
        r#"
daemon off;
master_process off;
pid {directory}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 1000000;
    {http}
}}
"#
    )
}
