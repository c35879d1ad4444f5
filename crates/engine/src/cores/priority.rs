//! Threads that do what nobody waits for.

use std::io;

/// How much: a thread of the usual priority that wants the same processor gets nine tenths of it
/// (`sched(7)`: a step of nice is a factor of 1.25).
const NICE: i32 = 10;

/// Makes the calling thread give way to those of the usual priority. (POSIX says that this is about the process; on Linux
/// it is about the thread, `setpriority(2)`.)
///
/// # Errors
/// What the kernel says.
pub fn give_way() -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, NICE)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_gives_way_and_the_others_do_not() {
        let nice = || rustix::process::getpriority_process(None).expect("it can be asked");
        let before = nice();
        let other = std::thread::spawn(move || {
            give_way().expect("less is always allowed");
            nice()
        });
        assert_eq!(other.join().expect("it ended"), NICE.max(before));
        assert_eq!(nice(), before);
    }
}
