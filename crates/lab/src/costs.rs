//! Costs of the simulated memory and of the queues in it, as a user chooses them for `bheap-sim`.

use std::str::FromStr;

/// Costs that the user chose; missing ones are the article's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Costs {
    /// Memory in pages: a single size instead of many.
    pub memory_pages: Option<usize>,
    /// Seconds per page read.
    pub page_read_s: Option<f64>,
    /// Seconds per page write.
    pub page_write_s: Option<f64>,
    /// CPU time per operation.
    pub cpu: Option<Cpu>,
    /// Convention for a page's first touch.
    pub first_touch: Option<FirstTouch>,
}

/// CPU time of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cpu {
    /// The article's: 4.55 s and 5.92 s for 4 million operations.
    Article,
    /// Measured here, without memory pressure.
    Measured,
    /// Given seconds: binary heap, B-heap, page queue.
    Given([f64; 3]),
}

/// Convention for the first touch of a page: free, or charged as a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstTouch {
    /// No cost; this convention reproduces the article.
    Free,
    /// A read, as for a file that already existed.
    Charged,
}

/// Parses a time as `--page-read` accepts it (`10ms`, `80us`, `1137ns`) into seconds.
///
/// # Errors
/// Returns a message with correct examples.
pub fn seconds(text: &str) -> Result<f64, String> {
    humantime::parse_duration(text)
        .map(|time| time.as_secs_f64())
        .map_err(|_| format!("`{text}` is no time; for instance 10ms, 80us or 1137ns"))
}

impl FromStr for Cpu {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "article" => return Ok(Self::Article),
            "measured" => return Ok(Self::Measured),
            _ => {}
        }
        let times = text.split(',').map(seconds).collect::<Result<Vec<f64>, String>>();
        match times.as_deref() {
            Ok([each]) => Ok(Self::Given([*each; 3])),
            // If no time is given for the page queue, the B-heap's time is used.
            Ok([binary, paged]) => Ok(Self::Given([*binary, *paged, *paged])),
            Ok([binary, paged, queue]) => Ok(Self::Given([*binary, *paged, *queue])),
            _ => Err(format!(
                "`{text}`: `article`, `measured`, or times of an operation: binary heap,B-heap[,page queue], for \
                 instance 1137ns,1480ns"
            )),
        }
    }
}

impl FromStr for FirstTouch {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "free" => Ok(Self::Free),
            "charged" => Ok(Self::Charged),
            _ => Err(format!("`{text}`: `free` or `charged`")),
        }
    }
}

impl Costs {
    /// Returns whether the user chose any cost.
    #[must_use]
    pub fn are_chosen(&self) -> bool {
        *self != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_as_people_write_them() {
        assert_eq!(seconds("10ms"), Ok(0.01));
        assert!(seconds("80").unwrap_err().contains("10ms"));
        assert_eq!("article".parse(), Ok(Cpu::Article));
        assert_eq!("1us,2us".parse(), Ok(Cpu::Given([1e-6, 2e-6, 2e-6])));
        assert_eq!("1us,2us,3us".parse(), Ok(Cpu::Given([1e-6, 2e-6, 3e-6])));
        assert!("1us,2us,3us,4us".parse::<Cpu>().unwrap_err().contains("1137ns,1480ns"));
        assert!("dear".parse::<FirstTouch>().is_err());
    }
}
