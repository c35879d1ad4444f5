//! Notes that what comes for an address is not to be stored: who asks for it meanwhile passes at once, beside all others,
//! with conditions and ranges of its own, and does not wait for a fetch that will be of no use to it.
//!
//! A note is a record of the store without a body, its head the reason, under a key of its own: the address, and what
//! the request showed of its visitor. For a page that is private to those who have logged in may be for all to those who
//! have not; so a request with a cookie leaves no note for one without, and one with credentials, or with a client's certificate,
//! none for either.
//! *Bounds:* those of the store, which forgets notes as it does any object; [`NOTE_S`], [`DUE_S`]. A purge drops an
//! address's notes. Errors leave none: while an origin fails, one request at a time is enough.

use engine::{
    store::{BodyLength, Hash, Lookup, NewObject, Object, Shard, Turn},
    sys::span::Span,
};

use crate::{
    block::NO_RANGES,
    core::{Core, store_s},
    counters::Counter,
    invalidations::Verdict,
    key,
    policy::{RequestFacts, Why},
    response::TOO_LARGE,
    response_head::{Flags, StoredMeta},
};

/// For how long a note holds.
const NOTE_S: u32 = 60;
/// For how much longer it is known that there was one: whoever comes then asks for the store again, but nobody waits for
/// that, as 50 clients of a private page would once a minute.
const DUE_S: u32 = 60;
/// Bytes of the longest reason.
const REASON_BYTES_MAX: usize = 32;

/// What a request shows of its visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing = 0,
    Cookie = 1,
    Credentials = 2,
    Certificate = 3,
}

impl Shown {
    const ALL: [Self; 4] = [Self::Nothing, Self::Cookie, Self::Credentials, Self::Certificate];

    fn by(facts: &RequestFacts) -> Self {
        if facts.certificate {
            Self::Certificate
        } else if facts.authorization {
            Self::Credentials
        } else if facts.cookie {
            Self::Cookie
        } else {
            Self::Nothing
        }
    }

    /// Writes the key of an address's note into `key`; its hash, which has the address's owner.
    fn place(self, primary: &[u8], hash: impl Fn(&[u8]) -> Hash, key: &mut Vec<u8>) -> Hash {
        key.clear();
        key.extend_from_slice(primary);
        key.extend_from_slice(&[0, b'N', self as u8]);
        key::hash_of_variant(hash(primary), hash(key))
    }
}

/// Whether a reason holds for who comes next, too, and a failure of the origin was none of it.
pub(crate) fn is_lasting(why: Why, status: u16) -> bool {
    // A page of a session is its visitor's, whatever its status; while an origin fails, one request at a time is enough.
    let is_failure = if why == Why::SetCookie { status >= 500 } else { status >= 400 };
    !is_failure
        && matches!(
            why,
            Why::NoStore
                | Why::Private
                | Why::NoCache
                | Why::VaryAny
                | Why::VaryTooLarge
                | Why::VaryMalformed
                | Why::Authorization
                | Why::Certificate
                | Why::VaryCertificate
                | Why::SetCookie
                | Why::NoFreshness
                | Why::Cookie
                | Why::TooManyTags
        )
}

/// Leaves a note for requests like this one; `bans` is the youngest purge that was known when its fetch began. Runs on
/// the owner's core.
pub(crate) fn leave(
    core: &Core,
    primary: &[u8],
    facts: &RequestFacts,
    reason: &'static str,
    now_s: u64,
    bans: u64,
) {
    if core.invalidations.has_walked_past(bans) {
        return;
    }
    let mut key = Vec::new();
    let hash = Shown::by(facts).place(primary, |key| core.store.hash(key), &mut key);
    let meta = StoredMeta::of_not_stored(now_s, NOTE_S);
    let meta = StoredMeta { head_bytes: reason.len() as u32, bans, ..meta };
    let expires_s = store_s(now_s).saturating_add(NOTE_S + DUE_S);
    let new = NewObject {
        hash,
        key: &key,
        head: reason.as_bytes(),
        extra: &[],
        meta: meta.pack(),
        body: BodyLength::Exact(0),
        expires_s,
        now_s: store_s(now_s),
    };
    match core.shard_mut().insert(new, &[], &[]) {
        Ok(()) => core.count(Counter::NotesLeft),
        Err(refused) => core.count(Counter::of_refusal(refused)),
    }
}

/// What a note says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    /// Why what comes is not stored.
    pub(crate) reason: &'static str,
    /// It is time to look whether that is still so.
    pub(crate) is_due: bool,
    /// When that time comes or came.
    pub(crate) until_s: u64,
}

/// Why what comes for this request is not stored, if there is a note. `key` is a buffer.
pub(crate) fn of(
    core: &Core,
    turn: &Turn<'_>,
    primary: &[u8],
    facts: &RequestFacts,
    now_s: u64,
    key: &mut Vec<u8>,
) -> Option<Note> {
    let hash = Shown::by(facts).place(primary, |key| turn.hash(key), key);
    let Lookup::Hit(note) = turn.lookup(hash, key) else { return None };
    read(core, &note, (hash, turn.hash(primary)), now_s)
}

/// As [`of`], for who only looks. Runs on the owner's core.
pub(crate) fn peek(
    core: &Core,
    shard: &Shard,
    primary: &[u8],
    facts: &RequestFacts,
    now_s: u64,
) -> Option<Note> {
    let mut key = Vec::new();
    let hash = Shown::by(facts).place(primary, |key| core.store.hash(key), &mut key);
    read(core, &shard.peek(hash, &key)?, (hash, core.store.hash(primary)), now_s)
}

fn read(core: &Core, note: &Object<'_>, hashes: (Hash, Hash), now_s: u64) -> Option<Note> {
    let mut meta = StoredMeta::unpack(&note.meta())?;
    if core.invalidations.judge(note, &mut meta, hashes, None, now_s) == Verdict::Hard {
        return None;
    }
    let until_s = meta.fresh_until_s();
    if !meta.flags.has(Flags::NOT_STORED) || until_s + u64::from(DUE_S) <= now_s {
        return None;
    }
    Some(Note { reason: reason(note.head())?, is_due: until_s <= now_s, until_s })
}

/// Drops the notes of an address. Runs on the owner's core.
pub(crate) fn forget(core: &Core, primary: &[u8]) {
    let mut key = Vec::new();
    for shown in Shown::ALL {
        let hash = shown.place(primary, |key| core.store.hash(key), &mut key);
        core.shard_mut().unlink(hash, &key);
    }
}

/// The words of a note as one of our own.
fn reason(head: Span<'_>) -> Option<&'static str> {
    let mut bytes = [0; REASON_BYTES_MAX];
    let bytes = bytes.get_mut(..head.len())?;
    head.copy_to_slice(bytes);
    Why::ALL
        .iter()
        .map(|why| why.name())
        .chain([TOO_LARGE, NO_RANGES])
        .find(|known| known.as_bytes() == bytes)
}
