//! The subset of `nats.conf` that the feed honours, and the name of every other line in it.
//!
//! ```text
//!  bytes ─text::parse─▶ Entry{line, key, Value} … ─options::read─▶ Options, and each word that is not honoured
//!            │ include, $variable
//!            ▼
//!       Surroundings: files, environment, names of hosts
//! ```
//! Pure but for [`Surroundings`], which the caller makes. What is wrong has its line. What is not honoured is said and passed over, unless passing over it would open
//! what it closes: an unknown word among users, permissions or TLS is a fault, and so is everything about JWTs.

mod exchange;
mod leafnodes;
mod mappings;
mod options;
mod remarks;
mod text;
mod users;
mod values;
mod words;

pub use options::{IgnoredOption, Options, Tls, WebSocket, read};
pub use remarks::remarks;
pub use text::{Fault, Surroundings};

#[cfg(test)]
mod tests;
