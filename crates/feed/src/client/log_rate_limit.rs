//! Rate limit for log lines that clients can cause.

/// Largest number of lines written per second. The next written line says how many were suppressed.
const LINES_A_SECOND: u32 = 10;

/// Counts of the lines written in the current second and of the lines suppressed since the last written one.
#[derive(Debug, Default)]
pub(crate) struct LogRateLimit {
    second: u64,
    written: u32,
    left_out: u64,
}

impl LogRateLimit {
    /// Returns the number of lines suppressed since the last written one, if a line may be written now;
    /// `None` otherwise.
    pub(crate) fn admit_line(&mut self, now_ms: u64) -> Option<u64> {
        let second = now_ms / 1000;
        if self.second != second {
            *self = Self { second, written: 0, ..*self };
        }
        if self.written == LINES_A_SECOND {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_limited_and_omissions_counted() {
        let mut sparing = LogRateLimit::default();
        let lines: Vec<_> = (0..15).map(|at| sparing.admit_line(5_000 + at)).collect();
        assert_eq!(lines.iter().filter(|line| **line == Some(0)).count(), 10);
        assert_eq!(lines[10..], [None; 5]);
        assert_eq!(sparing.admit_line(6_000), Some(5));
        assert_eq!(sparing.admit_line(6_001), Some(0));
    }
}
