//! `tcp://`: sends some bytes and expects the same number back.

use super::{Client, InvalidReply};

/// Client that sends `bytes` bytes and accepts any `bytes` bytes as the answer, in order.
#[derive(Debug)]
pub(in super::super) struct Echo {
    bytes: usize,
    depth: usize,
    waiting: usize,
    /// Bytes received of the current answer.
    arrived: usize,
}

impl Echo {
    pub(in super::super) const fn new(bytes: usize, depth: usize) -> Self {
        Self { bytes, depth, waiting: 0, arrived: 0 }
    }
}

impl Client for Echo {
    fn request(&mut self, out: &mut Vec<u8>) {
        out.resize(out.len() + self.bytes, b'x');
        self.waiting += 1;
    }

    fn received(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<usize, InvalidReply> {
        self.arrived += bytes.len();
        let answers = self.arrived / self.bytes;
        self.arrived %= self.bytes;
        if answers > self.waiting || (answers == self.waiting && self.arrived > 0) {
            return Err(InvalidReply("the server sent more bytes than it was sent".into()));
        }
        self.waiting -= answers;
        Ok(answers)
    }

    fn closed(&mut self) -> Result<usize, InvalidReply> {
        match self.waiting {
            0 => Ok(0),
            waiting => {
                Err(InvalidReply(format!("the server closed the connection and owes {waiting} echoes")))
            }
        }
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn refusals(&self) -> (u64, Option<&str>) {
        (0, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_are_counted_by_bytes_however_they_arrive() {
        let mut echo = Echo::new(3, 8);
        let mut out = Vec::new();
        echo.request(&mut out);
        echo.request(&mut out);
        assert_eq!(out.len(), 6);
        let answers: Vec<usize> =
            [2, 1, 2, 1].iter().map(|n| echo.received(&vec![0; *n], &mut out).unwrap()).collect();
        assert_eq!(answers, [0, 1, 0, 1]);
        assert!(echo.received(b"x", &mut out).is_err(), "nothing is owed any more");
    }

    #[test]
    fn closing_is_wrong_only_while_something_is_owed() {
        let mut echo = Echo::new(1, 8);
        assert_eq!(echo.closed(), Ok(0));
        echo.request(&mut Vec::new());
        assert!(echo.closed().is_err());
    }
}
