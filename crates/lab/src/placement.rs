//! CPU affinity of a thread and of the programs that it starts (claims C10, C22; sched_setaffinity(2)).

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the cores that the calling thread may use, in ascending order.
///
/// # Errors
/// Returns the system's error.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Restricts the calling thread to these cores; threads and processes that it starts inherit them.
///
/// # Errors
/// Returns the system's error, for instance if none of the cores may be used.
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

/// Runs a closure on these cores, on the calling thread, and restores the previous affinity afterwards.
///
/// # Errors
/// Returns the system's error if the affinity cannot be set.
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
    fn pinning_is_undone_after_the_work() {
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
