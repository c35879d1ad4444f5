//! Two network namespaces with a cable between them that carries so many megabits a second (claims C11, C23).
//!
//! ```text
//!   near: the load              far: the server
//!   10.77.0.1 ──┤veth ═ tbf RATE ═══ tbf RATE ═ veth├── 10.77.0.2
//! ```
//! The host's own network is not touched: both ends of the pair live in namespaces of our own (crate `namespaces`).
//!
//! *What the shaper counts.* An Ethernet frame costs 24 bytes beside what the interface sees: preamble, checksum, gap.
//! They are added by `stab`; for a segment that the kernel hands over whole and would cut later, once instead of for
//! each frame, which flatters the link by at most 1.6%.

use std::{fs, net::Ipv4Addr};

use namespaces::{Namespace, command};

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
    near: Namespace,
    far: Namespace,
}

/// What an interface has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTraffic {
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
        let lan = Self { near: Namespace::new()?, far: Namespace::new()? };
        let far = lan.far.keeper().to_string();
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

/// proc(5), `net/dev`: received bytes are the first field, sent bytes the ninth.
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
