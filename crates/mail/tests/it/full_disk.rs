//! A full disk: senders get a temporary error, stored mail stays readable, a refused mail is never listed,
//! and mail is accepted again once there is space.

use std::{sync::Arc, thread, time::Duration};

use crate::common::{config, drain, first_processor, greeted, inbox, subjects};
use engine::log::{
    format::SEGMENTS_AT,
    simulated::{Faults, SimulatedDisk},
};
use mail::{Config, Server, config::Durability};
use rustix::io::Errno;

const STORE_BYTES: u64 = 128 << 20;
/// Most attempts until a mail is accepted: the server tries the disk again by itself from time to time.
const TRIES: usize = 400;

#[test]
fn a_full_disk_is_reported_until_space_returns() {
    for durability in [Durability::Process, Durability::Power] {
        let disk = SimulatedDisk::new(SEGMENTS_AT + STORE_BYTES);
        let config =
            Config { durability, store_bytes: STORE_BYTES, cores: vec![first_processor()], ..config() };
        let server = Server::start_on(config.clone(), Arc::new(disk.clone()), None).unwrap();
        let (store, header) = (server.mailstore(), server.store_header());
        let mut client = greeted(server.addresses().smtp);
        let reply = client.mail("ann@inbox.test", "Subject: before\r\n\r\nx");
        assert!(reply.starts_with("250"), "{durability:?}: {reply}");

        disk.set_faults(Faults { write: Some(Errno::NOSPC.raw_os_error()), ..Faults::default() });
        for number in 0..3 {
            let reply = client.mail("ann@inbox.test", &format!("Subject: refused {number}\r\n\r\nx"));
            assert!(reply.starts_with("451 4.3.0"), "{durability:?}: {reply}");
        }
        assert_eq!(subjects(&store, &inbox("ann")), ["before"], "{durability:?}");

        disk.set_faults(Faults::default());
        let taken = (0..TRIES).any(|_| {
            thread::sleep(Duration::from_millis(50));
            client.mail("ann@inbox.test", "Subject: after\r\n\r\nx").starts_with("250")
        });
        assert!(taken, "{durability:?}: mail is taken again");
        assert_eq!(subjects(&store, &inbox("ann")), ["after", "before"], "{durability:?}");
        drain(server);

        let server = Server::start_on(config, Arc::new(disk.after_kill()), Some(header)).unwrap();
        assert_eq!(subjects(&server.mailstore(), &inbox("ann")), ["after", "before"], "{durability:?}");
        drain(server);
    }
}
