//! Format of a purge in the stream: one JSON object in each message.
//!
//! ```text
//! {"v":1,"id":"9f…","by":"web1","kind":"tags","soft":true,"of":["product-7","list"]}
//! ```
//! `to` is the subject on which its writer waits for notices that it was carried out ([`AppliedNotice`]),
//! which saves a heartbeat. `kind` is `url`, `tags`, `ban` (with the values in `of`), `tagged` or `all`;
//! `here` purges nothing: a joining instance publishes it to learn the stream's position at that moment. **A
//! record that is not understood purges everything**, hard unless it says `soft`: a newer version may know
//! kinds that this one does not, and purging too much is the safe direction.

use serde::{Deserialize, Serialize};

/// Format version that this program writes.
const VERSION: u32 = 1;
/// Maximum length of a record in bytes. A larger purge must purge everything instead.
pub const RECORD_BYTES_MAX: usize = 128 << 10;

/// A purge: a selection of stored objects, and how they are purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purge {
    /// The objects to purge.
    pub what: PurgeSelection,
    /// True if the objects become stale instead of being removed.
    pub is_soft: bool,
}

/// Selection of the stored objects to purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeSelection {
    /// Objects stored under this URL.
    Url(String),
    /// Objects with at least one of these tags.
    Tags(Vec<String>),
    /// Objects that match this ban expression.
    Ban(String),
    /// Objects with any tag.
    Tagged,
    /// All stored objects.
    All,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordJson {
    v: u32,
    id: String,
    by: String,
    kind: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    soft: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    of: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    to: String,
}

/// Notice from an instance to the publisher of a purge, sent directly instead of through the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AppliedNotice {
    pub(crate) name: String,
    pub(crate) instance: String,
    pub(crate) generation: u64,
    /// Sequence number up to which the instance has carried out everything.
    pub(crate) applied: u64,
}

/// A record of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Identifier by which the writer recognises its own record.
    pub(crate) id: String,
    /// Name of the instance that wrote the record.
    pub(crate) by: String,
    /// Subject on which the writer waits for notices; empty if it does not wait.
    pub(crate) to: String,
    pub(crate) says: RecordContent,
}

/// Content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordContent {
    Purge(Purge),
    /// An instance has joined.
    Here,
    /// A kind that this version does not know: everything is purged.
    Unknown {
        is_soft: bool,
        why: String,
    },
}

impl Record {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, soft, of) = match &self.says {
            RecordContent::Purge(Purge { what, is_soft }) => {
                let (kind, of) = match what {
                    PurgeSelection::Url(url) => ("url", vec![url.clone()]),
                    PurgeSelection::Tags(tags) => ("tags", tags.clone()),
                    PurgeSelection::Ban(ban) => ("ban", vec![ban.clone()]),
                    PurgeSelection::Tagged => ("tagged", Vec::new()),
                    PurgeSelection::All => ("all", Vec::new()),
                };
                (kind, *is_soft, of)
            }
            RecordContent::Here => ("here", false, Vec::new()),
            RecordContent::Unknown { is_soft, .. } => ("all", *is_soft, Vec::new()),
        };
        let (id, by, to, kind) = (self.id.clone(), self.by.clone(), self.to.clone(), kind.to_owned());
        // A struct of text and numbers always serialises.
        serde_json::to_vec(&RecordJson { v: VERSION, id, by, kind, soft, of, to }).unwrap_or_default()
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let unknown = |is_soft, why: String| RecordContent::Unknown { is_soft, why };
        let written: RecordJson = match serde_json::from_slice(bytes) {
            Ok(written) => written,
            Err(error) => {
                let why = format!("invalid record: {error}");
                let says = unknown(false, why);
                return Self { id: String::new(), by: String::new(), to: String::new(), says };
            }
        };
        let RecordJson { v, id, by, kind, soft, mut of, to } = written;
        let purge = |what| RecordContent::Purge(Purge { what, is_soft: soft });
        let says = match (v, kind.as_str(), of.len()) {
            (VERSION, "url", 1) => purge(PurgeSelection::Url(of.remove(0))),
            (VERSION, "tags", 1..) => purge(PurgeSelection::Tags(of)),
            (VERSION, "ban", 1) => purge(PurgeSelection::Ban(of.remove(0))),
            (VERSION, "tagged", 0) => purge(PurgeSelection::Tagged),
            (VERSION, "all", 0) => purge(PurgeSelection::All),
            (_, "here", _) => RecordContent::Here,
            _ => unknown(soft, format!("unknown {kind} in a record of version {v}")),
        };
        Self { id, by, to, says }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(says: RecordContent) -> Record {
        Record { id: "1".to_owned(), by: "a".to_owned(), to: "_INBOX.x".to_owned(), says }
    }

    #[test]
    fn what_is_written_is_read() {
        let tags = PurgeSelection::Tags(vec!["a".into(), "b c\"".into()]);
        for what in [
            PurgeSelection::Url("http://a/ß".into()),
            tags,
            PurgeSelection::Ban("req.url ~ x".into()),
            PurgeSelection::Tagged,
            PurgeSelection::All,
        ] {
            for is_soft in [false, true] {
                let written = record(RecordContent::Purge(Purge { what: what.clone(), is_soft }));
                assert_eq!(Record::of_bytes(&written.to_bytes()), written);
            }
        }
        assert_eq!(Record::of_bytes(&record(RecordContent::Here).to_bytes()).says, RecordContent::Here);
    }

    #[test]
    fn unknown_records_purge_everything_soft_if_marked() {
        for (text, soft) in [
            (r#"{"v":2,"id":"1","by":"b","kind":"url","of":["http://a/"]}"#, false),
            (r#"{"v":1,"id":"1","by":"b","kind":"moon","soft":true}"#, true),
            (r#"{"v":1,"id":"1","by":"b","kind":"url","of":[]}"#, false),
            (r#"{"v":1,"id":"1","by":"b","kind":"tags"}"#, false),
            ("", false),
            ("{", false),
        ] {
            let says = Record::of_bytes(text.as_bytes()).says;
            assert!(
                matches!(says, RecordContent::Unknown { is_soft, .. } if is_soft == soft),
                "{text}: {says:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn random_bytes_decode_to_a_full_purge(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let says = Record::of_bytes(&bytes).says;
            prop_assert!(matches!(says, RecordContent::Unknown { .. }), "{:?}", says);
        }
    }
}
