//! A purge as it stands in the stream: one JSON object a message.
//!
//! ```text
//! {"v":1,"id":"9f…","by":"web1","kind":"tags","soft":true,"of":["product-7","list"]}
//! ```
//! `to` is where its writer waits to be told that it was carried out ([`Carried`]), which saves a card in the bucket.
//! `kind` is `url`, `tags`, `ban` (with what of in `of`), `tagged` or `all`; `here` purges nothing: an instance that joins
//! writes it, to know where the stream was when it did. **What is not understood purges everything**, hard unless it says
//! `soft`: a younger version knows kinds that this one does not, and too much purged is the safe direction.

use serde::{Deserialize, Serialize};

/// The version that this one writes.
const VERSION: u32 = 1;
/// Bytes of a record. Whoever purges more at once purges everything.
pub const RECORD_BYTES_MAX: usize = 128 << 10;

/// What is purged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purge {
    /// What.
    pub what: What,
    /// It becomes stale and stays.
    pub is_soft: bool,
}

/// What is purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// What is stored under this URL.
    Url(String),
    /// What has one of these tags.
    Tags(Vec<String>),
    /// What this expression holds of.
    Ban(String),
    /// What has any tag.
    Tagged,
    /// Everything.
    All,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
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

/// What an instance says to who waits for a purge, past the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Carried {
    pub(crate) name: String,
    pub(crate) instance: String,
    pub(crate) generation: u64,
    /// It has carried out everything up to this.
    pub(crate) applied: u64,
}

/// A record of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Who wrote it gave it this, and knows it again by it.
    pub(crate) id: String,
    /// The name of the instance that wrote it.
    pub(crate) by: String,
    /// Where it waits to be told that it was carried out; empty: nowhere.
    pub(crate) to: String,
    pub(crate) says: Says,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Says {
    Purge(Purge),
    /// An instance has joined.
    Here,
    /// Something that this version does not know: everything is purged.
    Unknown {
        is_soft: bool,
        why: String,
    },
}

impl Record {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, soft, of) = match &self.says {
            Says::Purge(Purge { what, is_soft }) => {
                let (kind, of) = match what {
                    What::Url(url) => ("url", vec![url.clone()]),
                    What::Tags(tags) => ("tags", tags.clone()),
                    What::Ban(ban) => ("ban", vec![ban.clone()]),
                    What::Tagged => ("tagged", Vec::new()),
                    What::All => ("all", Vec::new()),
                };
                (kind, *is_soft, of)
            }
            Says::Here => ("here", false, Vec::new()),
            Says::Unknown { is_soft, .. } => ("all", *is_soft, Vec::new()),
        };
        let (id, by, to, kind) = (self.id.clone(), self.by.clone(), self.to.clone(), kind.to_owned());
        // Text and numbers alone: it cannot fail.
        serde_json::to_vec(&Written { v: VERSION, id, by, kind, soft, of, to }).unwrap_or_default()
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let unknown = |is_soft, why: String| Says::Unknown { is_soft, why };
        let written: Written = match serde_json::from_slice(bytes) {
            Ok(written) => written,
            Err(error) => {
                let why = format!("a record cannot be read: {error}");
                let says = unknown(false, why);
                return Self { id: String::new(), by: String::new(), to: String::new(), says };
            }
        };
        let Written { v, id, by, kind, soft, mut of, to } = written;
        let purge = |what| Says::Purge(Purge { what, is_soft: soft });
        let says = match (v, kind.as_str(), of.len()) {
            (VERSION, "url", 1) => purge(What::Url(of.remove(0))),
            (VERSION, "tags", 1..) => purge(What::Tags(of)),
            (VERSION, "ban", 1) => purge(What::Ban(of.remove(0))),
            (VERSION, "tagged", 0) => purge(What::Tagged),
            (VERSION, "all", 0) => purge(What::All),
            (_, "here", _) => Says::Here,
            _ => unknown(
                soft,
                format!("a record of version {v} says {kind}, which this version does not know"),
            ),
        };
        Self { id, by, to, says }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(says: Says) -> Record {
        Record { id: "1".to_owned(), by: "a".to_owned(), to: "_INBOX.x".to_owned(), says }
    }

    #[test]
    fn what_is_written_is_read() {
        let tags = What::Tags(vec!["a".into(), "b c\"".into()]);
        for what in
            [What::Url("http://a/ß".into()), tags, What::Ban("req.url ~ x".into()), What::Tagged, What::All]
        {
            for is_soft in [false, true] {
                let written = record(Says::Purge(Purge { what: what.clone(), is_soft }));
                assert_eq!(Record::of_bytes(&written.to_bytes()), written);
            }
        }
        assert_eq!(Record::of_bytes(&record(Says::Here).to_bytes()).says, Says::Here);
    }

    #[test]
    fn what_is_not_known_purges_everything_as_hard_as_it_says() {
        for (text, soft) in [
            (r#"{"v":2,"id":"1","by":"b","kind":"url","of":["http://a/"]}"#, false),
            (r#"{"v":1,"id":"1","by":"b","kind":"moon","soft":true}"#, true),
            (r#"{"v":1,"id":"1","by":"b","kind":"url","of":[]}"#, false),
            (r#"{"v":1,"id":"1","by":"b","kind":"tags"}"#, false),
            ("", false),
            ("{", false),
        ] {
            let says = Record::of_bytes(text.as_bytes()).says;
            assert!(matches!(says, Says::Unknown { is_soft, .. } if is_soft == soft), "{text}: {says:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_taken_for_less_than_a_purge(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let says = Record::of_bytes(&bytes).says;
            prop_assert!(matches!(says, Says::Unknown { .. }), "{:?}", says);
        }
    }
}
