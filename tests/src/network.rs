//! A network of machines, each a namespace with an interface at one switch. Any two can be cut off from each
//! other, and each can be slow.
//!
//! ```text
//!   10.78.0.1   10.78.0.2   10.78.0.3 …     a cut: each has a neighbour entry (ip-neighbour) with an unused address
//!       └── veth ───┴─ bridge ──┘            for the other, so that frames are lost and neither sees an error
//! ```

use std::net::Ipv4Addr;

use namespaces::{Namespace, command};

/// Name of each machine's interface.
const INTERFACE: &str = "wire";
/// Link-layer address that no interface has; frames to it are lost.
const NOBODY: &str = "02:00:00:00:00:ff";

/// Machines and their switch.
#[derive(Debug)]
pub struct Network {
    machines: Vec<Namespace>,
    _switch: Namespace,
}

impl Network {
    /// Makes a network of this many machines; `None`, with a line on stderr, if that is not possible here.
    #[must_use]
    pub fn laid(machines: u8) -> Option<Self> {
        Self::try_laid(machines).inspect_err(|why| eprintln!("no network of namespaces: {why}")).ok()
    }

    fn try_laid(machines: u8) -> Result<Self, String> {
        let switch = Namespace::new()?;
        switch.within(|| {
            command("ip", &["link", "add", "switch", "type", "bridge"])?;
            command("ip", &["link", "set", "switch", "up"])
        })??;
        let machines: Vec<Namespace> = (0..machines).map(|_| Namespace::new()).collect::<Result<_, _>>()?;
        for (number, machine) in machines.iter().enumerate() {
            let (port, keeper) = (format!("port{number}"), machine.keeper().to_string());
            switch.within(|| {
                let pair =
                    ["link", "add", &port, "type", "veth", "peer", "name", INTERFACE, "netns", &keeper];
                command("ip", &pair)?;
                command("ip", &["link", "set", &port, "master", "switch", "up"])
            })??;
            machine.within(|| {
                let address = format!("{}/24", address(number));
                command("ip", &["address", "add", &address, "dev", INTERFACE])?;
                command("ip", &["link", "set", INTERFACE, "up"])
            })??;
        }
        Ok(Self { machines, _switch: switch })
    }

    /// Returns the address of a machine.
    #[must_use]
    pub fn address(&self, machine: usize) -> Ipv4Addr {
        address(machine)
    }

    /// Runs `work` on a machine: the sockets, threads and programs that it makes belong to that machine.
    ///
    /// # Panics
    /// If `work` panics, or the thread cannot enter the namespace.
    pub fn on<T: Send>(&self, machine: usize, work: impl FnOnce() -> T + Send) -> T {
        self.machines[machine].within(work).unwrap_or_else(|why| panic!("machine {machine}: {why}"))
    }

    /// Moves the calling thread to a machine for good.
    ///
    /// # Panics
    /// If the thread cannot enter the namespace.
    pub fn move_to(&self, machine: usize) {
        self.machines[machine].enter().unwrap_or_else(|why| panic!("machine {machine}: {why}"));
    }

    /// Cuts two machines off from each other; neither sees an error.
    ///
    /// # Panics
    /// If the `ip` command fails.
    pub fn cut(&self, one: usize, other: usize) {
        for (at, to) in [(one, other), (other, one)] {
            let to = address(to).to_string();
            let set = ["neigh", "replace", &to, "lladdr", NOBODY, "nud", "permanent", "dev", INTERFACE];
            self.on(at, || command("ip", &set)).unwrap_or_else(|why| panic!("{why}"));
        }
    }

    /// Lets traffic between two machines pass again.
    ///
    /// # Panics
    /// If they were not cut off from each other.
    pub fn mend(&self, one: usize, other: usize) {
        for (at, to) in [(one, other), (other, one)] {
            let to = address(to).to_string();
            let deleted = self.on(at, || command("ip", &["neigh", "del", &to, "dev", INTERFACE]));
            deleted.unwrap_or_else(|why| panic!("{why}"));
        }
    }

    /// Limits what a machine sends to this many kilobits a second; `None` removes the limit.
    ///
    /// # Panics
    /// If the `tc` command fails.
    pub fn slow(&self, machine: usize, kilobits: Option<u32>) {
        let done = self.on(machine, || match kilobits {
            None => command("tc", &["qdisc", "del", "dev", INTERFACE, "root"]),
            Some(kilobits) => {
                let rate = format!("{kilobits}kbit");
                let shaper = ["qdisc", "replace", "dev", INTERFACE, "root", "tbf", "rate", &rate];
                command("tc", &[&shaper[..], &["burst", "4kb", "latency", "400ms"]].concat())
            }
        });
        done.unwrap_or_else(|why| panic!("{why}"));
    }
}

fn address(machine: usize) -> Ipv4Addr {
    let last =
        u8::try_from(machine + 1).unwrap_or_else(|_| panic!("machine {machine}: there are 254 at most"));
    Ipv4Addr::new(10, 78, 0, last)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    use super::*;

    /// Traffic of two machines that are cut off does not pass; after `mend` it passes on the same connection.
    /// The third machine is not affected.
    #[test]
    fn any_two_machines_can_be_cut_off() {
        let Some(network) = Network::laid(3) else { return };
        let listener = network.on(1, || TcpListener::bind((network.address(1), 0))).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let echo = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("somebody comes");
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while let Ok(1) = stream.read(&mut byte) {
                        stream.write_all(&byte).expect("it is read");
                    }
                });
            }
        });
        let connect = |from: usize| {
            let stream = network.on(from, || TcpStream::connect_timeout(&address, Duration::from_secs(5)));
            stream.expect("it is let in")
        };
        let (mut cut, mut other) = (connect(0), connect(2));
        echo.join().expect("two came");
        let ask = |stream: &mut TcpStream, patience: u64| {
            stream.set_read_timeout(Some(Duration::from_millis(patience))).expect("a time");
            stream.write_all(b"x").expect("it is sent");
            stream.read_exact(&mut [0])
        };
        ask(&mut cut, 5_000).expect("it is answered");
        network.cut(0, 1);
        assert!(ask(&mut cut, 300).is_err());
        ask(&mut other, 5_000).expect("the third is answered");
        network.mend(0, 1);
        cut.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        cut.read_exact(&mut [0]).expect("what waited passes");
        network.slow(0, Some(100));
        network.slow(0, None);
        ask(&mut cut, 5_000).expect("it is answered");
    }
}
