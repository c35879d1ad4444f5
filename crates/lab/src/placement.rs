//! On which cores a thread, or a program that it starts, may run (claims C10, C22; sched_setaffinity(2)).

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that the calling thread may use, in ascending order.
///
/// # Errors
/// What the system says.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Ties the calling thread to these cores; threads and processes that it starts inherit them.
///
/// # Errors
/// What the system says: none of them may be used.
pub fn restrict(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no core {core}")));
        }
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Does something on these cores, on the calling thread, and lets it roam as before afterwards.
///
/// # Errors
/// What the system says of the cores.
pub fn within<T>(cores: &[usize], work: impl FnOnce() -> T) -> io::Result<T> {
    let before = allowed()?;
    restrict(cores)?;
    let result = work();
    restrict(&before)?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_where_it_was_said_and_the_thread_roams_again() {
        let before = allowed().unwrap();
        let last = *before.last().unwrap();
        let (here, inherited) = within(&[last], || {
            let inherited = std::thread::spawn(|| allowed().unwrap()).join().unwrap();
            (allowed().unwrap(), inherited)
        })
        .unwrap();
        assert_eq!((here, inherited), (vec![last], vec![last]));
        assert_eq!(allowed().unwrap(), before);
        assert!(restrict(&[CpuSet::MAX_CPU]).is_err());
    }
}
