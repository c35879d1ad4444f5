//! Parser of the subset of `nats.conf` that the feed supports; it reports every other option in the file.
//!
//! ```text
//!  bytes ─text::parse─▶ Entry{line, key, Value} … ─options::read─▶ Options, and each option that is ignored
//!            │ include, $variable
//!            ▼
//!       Surroundings: files, environment, host names
//! ```
//! Pure except for [`Surroundings`], which the caller provides. Each error names its line. An unsupported
//! option is reported and ignored, unless ignoring it would allow access that the option restricts: an
//! unknown option among users, permissions or TLS is an error, and so is any option for JWTs.

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
