//! Two network namespaces with a link of a given rate between them (claims C11, C23).
//!
//! ```text
//!   near: the load              far: the server
//!   10.77.0.1 ──┤veth ═ tbf RATE ═══ tbf RATE ═ veth├── 10.77.0.2
//! ```
//! The host's own network is not touched: both ends of the veth pair are in new namespaces (crate
//! `namespaces`).
//!
//! *Accuracy of the shaper.* An Ethernet frame costs 24 bytes more than the interface counts: preamble,
//! checksum, gap. `stab` adds them. For a segment that the kernel splits into frames only later, they are
//! added once instead of once per frame, so the link carries up to 1.6% more than its rate.

use std::{fs, net::Ipv4Addr};

use namespaces::{Namespace, command};

/// Address of the load.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Address of the server.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Bytes of a frame on the wire that the interface does not count: preamble 8, checksum 4, gap 12.
pub const FRAME_OVERHEAD_BYTES: u32 = 24;
/// Burst size of the shaper: twice the largest segment that the kernel passes on whole, so that none is
/// dropped.
const BURST: &str = "128kb";
/// Maximum queueing time in the shaper; packets beyond it are dropped, as by a switch.
const QUEUE: &str = "20ms";
/// Name of the interface, on both sides.
const INTERFACE: &str = "cable";

/// The two namespaces of the link.
#[derive(Debug)]
pub struct Lan {
    near: Namespace,
    far: Namespace,
}

/// Traffic of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Bytes towards the server.
    pub out_bytes: u64,
    /// Bytes from the server.
    pub back_bytes: u64,
}

impl Lan {
    /// Creates the namespaces and the link, without a rate limit.
    ///
    /// # Errors
    /// Returns a sentence that says why they cannot be created on this machine.
    pub fn laid() -> Result<Self, String> {
        let lan = Self { near: Namespace::new()?, far: Namespace::new()? };
        let far = lan.far.keeper().to_string();
        lan.near(|| {
            ip(&["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &far])?;
            raised(NEAR)
        })??;
        lan.far(|| raised(FAR))??;
        Ok(lan)
    }

    /// Limits each direction to `megabits` per second; `None` removes the limit.
    ///
    /// # Errors
    /// Returns the message of `tc` if the system has no such shaper.
    pub fn shape(&self, megabits: Option<u32>) -> Result<(), String> {
        let shaped = || match megabits {
            None => {
                // An error is ignored: there may be no shaper to delete.
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

    /// Runs a closure on the load's side: the sockets and programs that it creates belong to that namespace.
    ///
    /// # Errors
    /// Returns a sentence if the thread cannot enter the namespace.
    pub fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        self.near.within(work)
    }

    /// Runs a closure on the server's side.
    ///
    /// # Errors
    /// Returns a sentence if the thread cannot enter the namespace.
    pub fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        self.far.within(work)
    }

    /// Returns the traffic of the link so far.
    ///
    /// # Errors
    /// Returns a sentence if the interface is gone.
    pub fn carried(&self) -> Result<LinkTraffic, String> {
        let text = self.near(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        carried(&text.map_err(|error| error.to_string())?).ok_or_else(|| "the cable is gone".to_owned())
    }
}

fn raised(address: Ipv4Addr) -> Result<(), String> {
    ip(&["address", "add", &format!("{address}/30"), "dev", INTERFACE])?;
    ip(&["link", "set", INTERFACE, "up"])
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    command("ip", arguments)
}

/// Parses `net/dev` of proc(5): received bytes are the first field, sent bytes the ninth.
fn carried(text: &str) -> Option<LinkTraffic> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(INTERFACE)?.strip_prefix(':'))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some(LinkTraffic { back_bytes: *fields.first()?, out_bytes: *fields.get(8)? })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn counters_are_read_by_their_place() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10\n cable: 70 2 0 0 0 0 0 0 900 4 0 0\n";
        assert_eq!(carried(text), Some(LinkTraffic { back_bytes: 70, out_bytes: 900 }));
        assert_eq!(carried("lo: 1 2"), None);
    }

    /// A shaped link is no faster than its rate: two megabytes at ten megabits per second take at least the
    /// computed time, less the burst, and the link counts them. If no namespace can be created, the error
    /// gives a reason.
    #[test]
    fn a_shaped_link_respects_its_rate() {
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
        // The host's own network has no such interface.
        assert!(!fs::read_to_string("/proc/net/dev").unwrap().contains("cable:"));
    }
}
