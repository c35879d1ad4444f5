//! The available processors, and lists of them in the configuration.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the processors that this process may use (its affinity mask, which `taskset`, cgroups' cpusets and
/// containers narrow), in ascending order.
///
/// # Errors
/// Returns the error of `sched_getaffinity(2)`; it fails with `EINVAL` if the machine has more than 1,024
/// processors.
pub fn available() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// Pins the calling thread to one processor.
pub(super) fn pin(processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the calling thread's affinity mask, to be set on another thread.
pub(super) fn mask() -> io::Result<CpuSet> {
    Ok(sched_getaffinity(None)?)
}

/// Lets the calling thread run on these processors.
pub(super) fn set_mask(mask: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(None, mask)?)
}

/// Reasons why a list of processors cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A part that is neither a number nor a range.
    #[error("invalid processor \"{0}\": expected a number or a range such as 2-5")]
    NotANumber(String),
    /// A range whose end comes before its start.
    #[error("invalid range {0}-{1}: the first is larger than the last")]
    Backwards(usize, usize),
    /// A processor is listed twice: two loops would compete for it.
    #[error("processor {0} is listed twice")]
    Twice(usize),
    /// A number above the largest possible processor number.
    #[error("processor {0} is beyond the limit of Linux's affinity masks ({max})", max = CpuSet::MAX_CPU - 1)]
    TooLarge(usize),
}

/// Parses a list such as `0,2-3` into `[0, 2, 3]`, in the given order. Spaces around the parts are allowed.
///
/// # Errors
/// Returns a [`ListError`] if the list is invalid; an empty list is [`ListError::NotANumber`].
pub fn parse_list(list: &str) -> Result<Vec<usize>, ListError> {
    let number =
        |text: &str| text.trim().parse::<usize>().map_err(|_| ListError::NotANumber(text.trim().into()));
    let mut processors = Vec::new();
    for part in list.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(ListError::Backwards(first, last));
        }
        if last >= CpuSet::MAX_CPU {
            return Err(ListError::TooLarge(last));
        }
        for processor in first..=last {
            if processors.contains(&processor) {
                return Err(ListError::Twice(processor));
            }
            processors.push(processor);
        }
    }
    Ok(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0"), Ok(vec![0]));
        assert_eq!(parse_list("0,2-3"), Ok(vec![0, 2, 3]));
        assert_eq!(parse_list(" 5 - 6 , 1 "), Ok(vec![5, 6, 1]));
        assert_eq!(parse_list(""), Err(ListError::NotANumber(String::new())));
        assert_eq!(parse_list("1,"), Err(ListError::NotANumber(String::new())));
        assert_eq!(parse_list("-1"), Err(ListError::NotANumber(String::new())));
        assert_eq!(parse_list("a"), Err(ListError::NotANumber("a".into())));
        assert_eq!(parse_list("3-1"), Err(ListError::Backwards(3, 1)));
        assert_eq!(parse_list("0-2,1"), Err(ListError::Twice(1)));
        assert_eq!(parse_list("0-99999999999"), Err(ListError::TooLarge(99_999_999_999)));
    }

    #[test]
    fn own_processors_can_be_pinned_to() {
        let all = available().unwrap();
        assert!(!all.is_empty() && all.is_sorted());
        let last = *all.last().unwrap();
        std::thread::spawn(move || {
            pin(last).unwrap();
            assert_eq!(available().unwrap(), [last]);
            assert_eq!(rustix::thread::sched_getcpu(), last);
        })
        .join()
        .unwrap();
        assert_eq!(available().unwrap(), all, "pinning a thread must not pin the others");
    }
}
