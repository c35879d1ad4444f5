//! A network of machines, each a namespace of its own with an interface at one switch; any two can be cut off from each
//! other, and each can be slow.
//!
//! ```text
//!   10.78.0.1   10.78.0.2   10.78.0.3 …     a cut: both have an address of nobody's for the other (ip-neighbour),
//!       └── veth ───┴─ bridge ──┘            so that frames leave and arrive nowhere, and nobody is told
//! ```

use std::net::Ipv4Addr;

use namespaces::{Namespace, command};

/// The name of each machine's interface.
const INTERFACE: &str = "wire";
/// Where frames go that are to arrive nowhere.
const NOBODY: &str = "02:00:00:00:00:ff";

/// Some machines and their switch.
#[derive(Debug)]
pub struct Network {
    machines: Vec<Namespace>,
    _switch: Namespace,
}

impl Network {
    /// Lays one of so many machines; `None`: there can be none here, which is said.
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

    /// The address of a machine.
    #[must_use]
    pub fn address(&self, machine: usize) -> Ipv4Addr {
        address(machine)
    }

    /// Does something on a machine: sockets, threads and programs that it makes are there.
    ///
    /// # Panics
    /// If that does, or the thread cannot be moved.
    pub fn on<T: Send>(&self, machine: usize, work: impl FnOnce() -> T + Send) -> T {
        self.machines[machine].within(work).unwrap_or_else(|why| panic!("machine {machine}: {why}"))
    }

    /// Moves the thread that calls it to a machine, for good.
    ///
    /// # Panics
    /// It cannot be moved.
    pub fn move_to(&self, machine: usize) {
        self.machines[machine].enter().unwrap_or_else(|why| panic!("machine {machine}: {why}"));
    }

    /// Nothing passes between two from now on; nobody is told.
    ///
    /// # Panics
    /// There is no such command.
    pub fn cut(&self, one: usize, other: usize) {
        for (at, to) in [(one, other), (other, one)] {
            let to = address(to).to_string();
            let set = ["neigh", "replace", &to, "lladdr", NOBODY, "nud", "permanent", "dev", INTERFACE];
            self.on(at, || command("ip", &set)).unwrap_or_else(|why| panic!("{why}"));
        }
    }

    /// What comes passes again.
    ///
    /// # Panics
    /// They were not cut off from each other.
    pub fn mend(&self, one: usize, other: usize) {
        for (at, to) in [(one, other), (other, one)] {
            let to = address(to).to_string();
            let deleted = self.on(at, || command("ip", &["neigh", "del", &to, "dev", INTERFACE]));
            deleted.unwrap_or_else(|why| panic!("{why}"));
        }
    }

    /// What leaves a machine takes as long as so many kilobits a second need; `None`: no longer than it must.
    ///
    /// # Panics
    /// There is no such shaper.
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

    /// What is cut does not pass, and passes once it is mended, on a connection that was there; the third hears all of it.
    #[test]
    fn any_two_can_be_cut_off_from_each_other() {
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
