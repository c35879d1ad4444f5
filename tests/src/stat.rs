//! The program's counters as `nighttrain stat --json` prints them.

use serde_json::Value;

/// One reading of every counter.
#[derive(Debug, Clone)]
pub struct Stat(Value);

impl Stat {
    /// Reads the program's output.
    ///
    /// # Panics
    /// When it is not JSON.
    pub fn parse(output: &[u8]) -> Self {
        Self(serde_json::from_slice(output).unwrap_or_else(|error| {
            panic!("nighttrain stat --json printed no JSON ({error}): {}", String::from_utf8_lossy(output))
        }))
    }

    /// The number at this path of keys, e.g. `number("cache.hits")`.
    ///
    /// # Panics
    /// When there is none; all that is there is then shown.
    #[track_caller]
    pub fn number(&self, path: &str) -> f64 {
        let pointer = format!("/{}", path.replace('.', "/"));
        self.0
            .pointer(&pointer)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("no number at {path} in {:#}", self.0))
    }

    /// The whole number at this path of keys.
    ///
    /// # Panics
    /// When there is none; all that is there is then shown.
    #[track_caller]
    pub fn count(&self, path: &str) -> u64 {
        let pointer = format!("/{}", path.replace('.', "/"));
        self.0
            .pointer(&pointer)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("no count at {path} in {:#}", self.0))
    }

    /// The whole document, to show.
    pub fn document(&self) -> &Value {
        &self.0
    }
}
