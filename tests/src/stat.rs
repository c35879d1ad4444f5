//! The program's counters as `nighttrain stat --json` prints them.

use serde_json::Value;

/// A snapshot of all counters.
#[derive(Debug, Clone)]
pub struct Stat(Value);

impl Stat {
    /// Parses the program's output.
    ///
    /// # Panics
    /// When the output is not JSON.
    pub fn parse(output: &[u8]) -> Self {
        Self(serde_json::from_slice(output).unwrap_or_else(|error| {
            panic!("nighttrain stat --json printed no JSON ({error}): {}", String::from_utf8_lossy(output))
        }))
    }

    /// Returns the number at this path of keys, e.g. `number("cache.hits")`.
    ///
    /// # Panics
    /// When there is no such number; the message shows the whole document.
    #[track_caller]
    pub fn number(&self, path: &str) -> f64 {
        let pointer = format!("/{}", path.replace('.', "/"));
        self.0
            .pointer(&pointer)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("no number at {path} in {:#}", self.0))
    }

    /// Returns the integer at this path of keys.
    ///
    /// # Panics
    /// When there is no such integer; the message shows the whole document.
    #[track_caller]
    pub fn count(&self, path: &str) -> u64 {
        let pointer = format!("/{}", path.replace('.', "/"));
        self.0
            .pointer(&pointer)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("no count at {path} in {:#}", self.0))
    }

    /// Returns the whole document, for messages.
    pub fn document(&self) -> &Value {
        &self.0
    }
}
