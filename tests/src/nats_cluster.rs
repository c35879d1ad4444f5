//! Three nats-servers as a cluster with JetStream, each on a loopback address of its own or on a machine of a
//! namespace network; and a proxy whose connections can be cut.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{PATIENCE, clients::installed, network::Network, pebble::free_ports};

/// Number of servers in the cluster.
pub const SERVERS: usize = 3;

/// A cluster. Its servers are killed, by their process ids, when it is dropped.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<Server>,
    directory: tempfile::TempDir,
    /// Network whose first machines run the servers, if they are not on loopback addresses.
    network: Option<Arc<Network>>,
}

#[derive(Debug)]
struct Server {
    child: Option<Child>,
    address: SocketAddr,
    printed: Arc<Mutex<Vec<String>>>,
}

impl NatsCluster {
    /// Starts a cluster, and waits until its servers see each other; `None` if nats-server is not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// Starts a cluster with these lines of nats.conf at each server.
    #[must_use]
    pub fn start_with(lines: &str) -> Option<Self> {
        Self::start_by(lines, None)
    }

    /// Starts a cluster on the first machines of a network.
    #[must_use]
    pub fn start_on(network: &Arc<Network>) -> Option<Self> {
        Self::start_by("", Some(Arc::clone(network)))
    }

    fn start_by(lines: &str, network: Option<Arc<Network>>) -> Option<Self> {
        installed("hub/nats-server")?;
        let directory = tempfile::tempdir().expect("a directory");
        let clients: [u16; SERVERS] = free_ports();
        let routes: [u16; SERVERS] = free_ports();
        let host = |index: usize| match &network {
            Some(network) => network.address(index),
            None => Ipv4Addr::new(127, 0, 0, 11 + u8::try_from(index).expect("few")),
        };
        let others: Vec<String> =
            (0..SERVERS).map(|index| format!("nats-route://{}:{}", host(index), routes[index])).collect();
        let mut cluster = Self { servers: Vec::new(), directory, network: network.clone() };
        for index in 0..SERVERS {
            let text = format!(
                "server_name: n{index}\nlisten: \"{host}:{client}\"\n\
                 jetstream {{ store_dir: \"{directory}/n{index}\", max_memory_store: 64MB, max_file_store: 1GB }}\n\
                 cluster {{ name: test, listen: \"{host}:{route}\", routes: [{others}] }}\n{lines}\n",
                host = host(index),
                client = clients[index],
                route = routes[index],
                directory = cluster.directory.path().display(),
                others = others.join(", "),
            );
            fs::write(cluster.directory.path().join(format!("n{index}.conf")), text).expect("a file");
            let address = SocketAddr::from((host(index), clients[index]));
            cluster.servers.push(Server { child: None, address, printed: Arc::default() });
        }
        for index in 0..SERVERS {
            cluster.begin(index);
        }
        Some(cluster)
    }

    /// Starts a server, or restarts it with its files.
    pub fn begin(&mut self, index: usize) {
        let program = installed("hub/nats-server").expect("it was there");
        let mut command = Command::new(program);
        command.arg("-c").arg(self.directory.path().join(format!("n{index}.conf")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.on(index, || command.spawn()).expect("nats-server can be started");
        let server = &mut self.servers[index];
        let (stderr, printed) = (child.stderr.take().expect("a pipe"), Arc::clone(&server.printed));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                printed.lock().expect("no thread panics with it").push(line);
            }
        });
        server.child = Some(child);
        let (began, address) = (Instant::now(), server.address);
        while self.on(index, || TcpStream::connect(address)).is_err() {
            assert!(began.elapsed() < PATIENCE, "the server does not listen:\n{}", self.printed(index));
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn on<T: Send>(&self, index: usize, work: impl FnOnce() -> T + Send) -> T {
        match &self.network {
            Some(network) => network.on(index, work),
            None => work(),
        }
    }

    /// Ends a server with SIGKILL.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.servers[index].child.take() {
            child.kill().expect("it is ours");
            child.wait().expect("it ends");
        }
    }

    /// Sends a signal to a server.
    pub fn signal(&self, index: usize, signal: Signal) {
        let child = self.servers[index].child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("the process is ours");
    }

    /// Returns the address where clients of a server connect.
    #[must_use]
    pub fn address(&self, index: usize) -> SocketAddr {
        self.servers[index].address
    }

    /// Returns the URLs of all servers, as the value of a setting.
    #[must_use]
    pub fn urls(&self) -> String {
        self.servers.iter().map(|server| format!("nats://{}", server.address)).collect::<Vec<_>>().join(",")
    }

    /// Directory of the servers' files.
    #[must_use]
    pub fn files(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Returns a server's output so far.
    #[must_use]
    pub fn printed(&self, index: usize) -> String {
        self.servers[index].printed.lock().expect("no thread panics with it").join("\n")
    }
}

impl Drop for NatsCluster {
    fn drop(&mut self) {
        for index in 0..self.servers.len() {
            if let Some(child) = &mut self.servers[index].child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if thread::panicking() {
            for index in 0..self.servers.len() {
                let printed = self.printed(index);
                let lines: Vec<&str> = printed.lines().collect();
                eprintln!(
                    "server {index} printed last:\n{}",
                    lines[lines.len().saturating_sub(20)..].join("\n")
                );
            }
        }
    }
}

const OPEN: u8 = 0;
const CUT: u8 = 1;
const ENDED: u8 = 2;

/// A proxy to an address, on a port of its own. Its traffic can be held back, as by a network that drops
/// every packet, or slowed down.
#[derive(Debug)]
pub struct Way {
    address: SocketAddr,
    state: Arc<AtomicU8>,
    delay_ms: Arc<AtomicU64>,
}

impl Way {
    /// Opens a proxy to an address.
    #[must_use]
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let way = Self { address, state: Arc::default(), delay_ms: Arc::default() };
        let (state, delay_ms) = (Arc::clone(&way.state), Arc::clone(&way.delay_ms));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if state.load(Ordering::Acquire) == ENDED {
                    return;
                }
                let (state, delay_ms) = (Arc::clone(&state), Arc::clone(&delay_ms));
                thread::spawn(move || pass(&stream, target, &state, &delay_ms));
            }
        });
        way
    }

    /// Address where the proxy listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds all traffic back from now on; neither end sees an error.
    pub fn cut(&self) {
        self.state.store(CUT, Ordering::Release);
    }

    /// Releases the traffic that was held back, and lets further traffic pass.
    pub fn open(&self) {
        self.state.store(OPEN, Ordering::Release);
    }

    /// Delays all traffic by this much.
    pub fn delay(&self, by: Duration) {
        self.delay_ms.store(u64::try_from(by.as_millis()).expect("short"), Ordering::Release);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.state.store(ENDED, Ordering::Release);
        let _ = TcpStream::connect(self.address);
    }
}

/// Waits while the traffic is held back. Returns false once the proxy has ended.
fn may_pass(state: &AtomicU8) -> bool {
    loop {
        match state.load(Ordering::Acquire) {
            OPEN => return true,
            CUT => thread::sleep(Duration::from_millis(2)),
            _ => return false,
        }
    }
}

fn pass(from: &TcpStream, target: SocketAddr, state: &Arc<AtomicU8>, delay_ms: &Arc<AtomicU64>) {
    if !may_pass(state) {
        return;
    }
    let Ok(to) = TcpStream::connect(target) else { return };
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let copy = |from: &TcpStream, to: &TcpStream| {
        let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return None };
        let (state, delay_ms) = (Arc::clone(state), Arc::clone(delay_ms));
        Some(thread::spawn(move || {
            let mut bytes = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                thread::sleep(Duration::from_millis(delay_ms.load(Ordering::Acquire)));
                if !may_pass(&state) || to.write_all(&bytes[..read]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        }))
    };
    for thread in [copy(from, &to), copy(&to, from)].into_iter().flatten() {
        let _ = thread.join();
    }
}
