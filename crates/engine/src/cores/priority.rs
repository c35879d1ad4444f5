//! Low-priority threads.

use std::io;

/// Nice value of low-priority threads. A thread of normal priority that wants the same processor gets nine
/// tenths of it (`sched(7)`: each nice level is a factor of 1.25).
const NICE: i32 = 10;

/// Lowers the priority of the calling thread, which is named in the log as `what` if the kernel refuses: it
/// then competes with the event loops.
pub fn give_way(what: &str) {
    if let Err(error) = lower() {
        tracing::warn!(%error, "cannot lower the priority of {what}");
    }
}

/// Lowers the priority of the calling thread. (POSIX defines this for the process; on Linux it applies to the
/// thread, `setpriority(2)`.)
fn lower() -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, NICE)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_lowers_its_priority() {
        let nice = || rustix::process::getpriority_process(None).expect("it can be asked");
        let before = nice();
        let other = std::thread::spawn(move || {
            lower().expect("less is always allowed");
            nice()
        });
        assert_eq!(other.join().expect("it ended"), NICE.max(before));
        assert_eq!(nice(), before);
    }
}
