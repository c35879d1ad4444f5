//! Two network namespaces with a cable between them that carries so many megabits a second (claims C11, C23).
//!
//! ```text
//!   near: the load              far: the server
//!   10.77.0.1 ──┤veth ═ tbf RATE ═══ tbf RATE ═ veth├── 10.77.0.2
//! ```
//! The host's own network is not touched: both ends of the pair live in namespaces of our own, each kept by a process
//! that ends when we do (its standard input closes), and the kernel takes interfaces and shapers away with it. A thread
//! that is moved into a namespace makes its sockets, and starts its programs, there (setns(2)).
//!
//! *What the shaper counts.* An Ethernet frame costs 24 bytes beside what the interface sees: preamble, checksum, gap.
//! They are added by `stab`; for a segment that the kernel hands over whole and would cut later, once instead of for
//! each frame, which flatters the link by at most 1.6%.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    net::Ipv4Addr,
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where the load is.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Where the server is.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// On the wire, a frame takes so much beside what the interface counts: preamble 8, checksum 4, gap 12.
pub const FRAME_OVERHEAD_BYTES: u32 = 24;
/// What may leave at once: twice the largest segment that the kernel hands over whole, so that none is dropped.
const BURST: &str = "128kb";
/// What may wait in the shaper, as time; what comes then is dropped, as a switch would.
const QUEUE: &str = "20ms";
/// The name of the interface, on both sides.
const INTERFACE: &str = "cable";

/// The two ends.
#[derive(Debug)]
pub struct Lan {
    near: Side,
    far: Side,
}

/// A namespace that lives as long as this.
#[derive(Debug)]
struct Side {
    keeper: Child,
    namespace: File,
}

/// What an interface has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes towards the server.
    pub out_bytes: u64,
    /// Bytes from it.
    pub back_bytes: u64,
}

impl Lan {
    /// Lays the cable, unshaped.
    ///
    /// # Errors
    /// Why there can be none here, in a sentence.
    pub fn laid() -> Result<Self, String> {
        let lan = Self { near: Side::new()?, far: Side::new()? };
        let far = lan.far.keeper.id().to_string();
        lan.near(|| {
            ip(&["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &far])?;
            raised(NEAR)
        })??;
        lan.far(|| raised(FAR))??;
        Ok(lan)
    }

    /// Lets so many megabits a second through in each direction; `None` as many as there are.
    ///
    /// # Errors
    /// The system has no such shaper.
    pub fn shape(&self, megabits: Option<u32>) -> Result<(), String> {
        let shaped = || match megabits {
            None => {
                // There may be none.
                let _ = command("tc", &["qdisc", "del", "dev", INTERFACE, "root"]);
                Ok(())
            }
            Some(megabits) => {
                let rate = format!("{megabits}mbit");
                let overhead = FRAME_OVERHEAD_BYTES.to_string();
                let shaper = [
                    "qdisc",
                    "replace",
                    "dev",
                    INTERFACE,
                    "root",
                    "stab",
                    "overhead",
                    &overhead,
                    "linklayer",
                    "ethernet",
                    "tbf",
                    "rate",
                    &rate,
                    "burst",
                    BURST,
                    "latency",
                    QUEUE,
                ];
                command("tc", &shaper)
            }
        };
        self.near(shaped)??;
        self.far(shaped)?
    }

    /// Does something on the load's side: sockets and programs that it makes are there.
    ///
    /// # Errors
    /// The thread cannot be moved.
    pub fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        self.near.within(work)
    }

    /// Does something on the server's side.
    ///
    /// # Errors
    /// The thread cannot be moved.
    pub fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        self.far.within(work)
    }

    /// What the cable has carried until now.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn carried(&self) -> Result<Carried, String> {
        let text = self.near(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        carried(&text.map_err(|error| error.to_string())?).ok_or_else(|| "the cable is gone".to_owned())
    }
}

impl Side {
    fn new() -> Result<Self, String> {
        let mut keeper = Command::new("unshare")
            .args(["--net", "--", "sh", "-ec", "ip link set lo up; echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error} (on Debian: apt-get install util-linux)"))?;
        let mut word = String::new();
        if let Some(out) = keeper.stdout.take() {
            // No word is said below.
            let _ = BufReader::new(out).read_line(&mut word);
        }
        if word.trim() != "ready" {
            let mut said = String::new();
            if let Some(mut err) = keeper.stderr.take() {
                let _ = err.read_to_string(&mut said);
            }
            let _ = keeper.wait();
            return Err(format!("no network namespace: {}", said.trim()));
        }
        let path = format!("/proc/{}/ns/net", keeper.id());
        match File::open(&path) {
            Ok(namespace) => Ok(Self { keeper, namespace }),
            Err(error) => {
                let _ = keeper.kill();
                let _ = keeper.wait();
                Err(format!("{path}: {error}"))
            }
        }
    }

    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        thread::scope(|scope| {
            let moved = scope.spawn(|| {
                move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|errno| format!("cannot enter a network namespace: {errno}"))?;
                Ok(work())
            });
            moved.join().unwrap_or_else(|_| Err("the thread in the namespace panicked".to_owned()))
        })
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn raised(address: Ipv4Addr) -> Result<(), String> {
    ip(&["address", "add", &format!("{address}/30"), "dev", INTERFACE])?;
    ip(&["link", "set", INTERFACE, "up"])
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    command("ip", arguments)
}

fn command(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error} (on Debian: apt-get install iproute2)"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// proc(5), `net/dev`: received bytes are the first field, sent bytes the ninth.
fn carried(text: &str) -> Option<Carried> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(INTERFACE)?.strip_prefix(':'))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some(Carried { back_bytes: *fields.first()?, out_bytes: *fields.get(8)? })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn counters_are_read_by_their_place() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10\n cable: 70 2 0 0 0 0 0 0 900 4 0 0\n";
        assert_eq!(carried(text), Some(Carried { back_bytes: 70, out_bytes: 900 }));
        assert_eq!(carried("lo: 1 2"), None);
    }

    /// What is planted is found: two megabytes through ten megabits a second take at least their time, the burst taken
    /// off, and the cable counts them. Where there can be no namespace, the reason is said.
    #[test]
    fn a_shaped_cable_carries_no_more_than_it_should() {
        let lan = match Lan::laid().and_then(|lan| lan.shape(Some(10)).map(|()| lan)) {
            Ok(lan) => lan,
            Err(why) => return assert!(!why.is_empty()),
        };
        let listener = lan.far(|| TcpListener::bind((FAR, 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let bytes = 2 << 20;
        let begun = Instant::now();
        let received = thread::spawn(move || {
            let mut all = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
            all.len()
        });
        lan.near(|| TcpStream::connect(address).unwrap().write_all(&vec![7; bytes]).unwrap()).unwrap();
        assert_eq!(received.join().unwrap(), bytes);
        let least = Duration::from_secs_f64((bytes - (128 << 10)) as f64 * 8.0 / 10e6);
        assert!(begun.elapsed() >= least, "{:?} of {least:?}", begun.elapsed());
        assert!(lan.carried().unwrap().out_bytes >= bytes as u64);
        // The host's own network has no part in it.
        assert!(!fs::read_to_string("/proc/net/dev").unwrap().contains("cable:"));
    }
}
