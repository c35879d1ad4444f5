//! Hit-for-miss: notes that the answers of an address are not stored. A request that finds a note is passed
//! at once, in parallel with all others, with its own conditions and ranges, and does not wait for a fetch
//! that would be of no use to it.
//!
//! A note is a store record without a body. Its head is the reason why the answers are not stored. Its key
//! consists of the address and of the kind of data that identified the request's visitor: a page that is
//! private for logged-in visitors may be shared for all others. So a request with a cookie leaves no note for
//! requests without a cookie; the same holds for a request with credentials or a client certificate.
//!
//! An answer with `Vary` leaves two records. The record of the address has the names in `Vary`. The record of
//! the variant has the reason, under a key with the generation of the first record and the values of those
//! fields, so that the note applies to that variant only.
//!
//! *Bounds:* those of the store, which evicts notes like any object; [`NOTE_S`], [`DUE_S`]. A purge drops an
//! address's notes. Errors leave no note: while an origin fails, one request at a time is enough.

use engine::store::{BodyLength, EpochGuard, Hash, Lookup, NewObject, Object, Shard};
use smallvec::SmallVec;
use wire::http1::head::Headers;

use crate::{
    body::slice::{NO_RANGES, VERSIONS_DIFFER},
    core::{Core, store_s},
    counters::Counter,
    fetch::response::TOO_LARGE,
    head::{
        response_head::{Flags, StoredMeta},
        sent_fields::SentFields,
    },
    policy::{RequestFacts, Why, vary::VARY_SPEC_BYTES_MAX},
    purging::invalidations::{KeyHashes, Verdict},
    request::{dependent::Dependent, key},
    site::SiteId,
};

/// Lifetime of a note in seconds.
const NOTE_S: u32 = 60;
/// Seconds for which an expired note is still remembered: the next request fetches for the store again, but
/// no other request waits for that fetch. Otherwise all clients of a private page would wait once a minute.
const DUE_S: u32 = 60;

/// Prefix of the head of a note that holds the names in `Vary`; no reason begins with it.
const VARIES: &[u8] = b"vary:";

/// Part of a request that identifies its visitor: a cookie, credentials or a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VisitorSigns {
    Nothing = 0,
    Cookie = 1,
    Credentials = 2,
    Certificate = 3,
}

impl VisitorSigns {
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

    /// Writes the key of an address's note into `key`. Returns the key's hash, which belongs to the same
    /// owner as the address.
    fn place(self, primary: &[u8], hash: impl Fn(&[u8]) -> Hash, key: &mut Vec<u8>) -> Hash {
        key.clear();
        key.extend_from_slice(primary);
        Dependent::Note { visitor: self as u8 }.place(hash(primary), key, hash)
    }
}

/// Returns whether a reason also applies to the next request, and is not a failure of the origin.
pub(crate) fn is_lasting(why: Why, status: u16) -> bool {
    // An answer that sets a cookie is private to its visitor, if its status is below 500. Other errors leave
    // no note: while an origin fails, one request at a time is enough.
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

/// Leaves a note for requests like this one. `bans` is the number of the latest purge that was known when the
/// fetch began. `varies` holds the names in the answer's `Vary`, and the request's fields. Runs on the
/// owner's core.
pub(crate) fn leave(
    core: &Core,
    primary: &[u8],
    facts: &RequestFacts,
    reason: &'static str,
    now_s: u64,
    bans: u64,
    varies: Option<(&[u8], &SentFields<'_>)>,
) {
    if core.purges.invalidations.has_walked_past(bans) {
        return;
    }
    let mut key = Vec::new();
    let hash = VisitorSigns::by(facts).place(primary, |key| core.storage.store.hash(key), &mut key);
    let Some((spec, fields)) = varies.filter(|(spec, _)| !spec.is_empty()) else {
        return insert(core, hash, &key, reason.as_bytes(), now_s, bans);
    };
    let known = |core: &Core| {
        let shard = core.storage.shard.borrow();
        let note = shard.peek(hash, &key)?;
        let hashes = KeyHashes { own: hash, address: core.storage.store.hash(primary) };
        let (says, _) = read(core, &note, hashes, now_s)?;
        (says.strip_prefix(VARIES) == Some(spec)).then(|| note.sequence())
    };
    let generation = known(core).or_else(|| {
        insert(core, hash, &key, &[VARIES, spec].concat(), now_s, bans);
        known(core)
    });
    let Some(generation) = generation else { return };
    let hash = variant(generation, spec, fields, primary, |key| core.storage.store.hash(key), &mut key);
    insert(core, hash, &key, reason.as_bytes(), now_s, bans);
}

/// Turns the key of an address's note into the key of a variant's note. Returns the new key's hash, which
/// belongs to the same owner as the address.
fn variant(
    generation: u64,
    spec: &[u8],
    fields: &SentFields<'_>,
    primary: &[u8],
    hash: impl Fn(&[u8]) -> Hash,
    key: &mut Vec<u8>,
) -> Hash {
    Dependent::VariantNote { generation, names: spec, fields }.place(hash(primary), key, hash)
}

fn insert(core: &Core, hash: Hash, key: &[u8], head: &[u8], now_s: u64, bans: u64) {
    let meta = StoredMeta::of_not_stored(now_s, NOTE_S);
    let meta = StoredMeta { head_bytes: head.len() as u32, bans, ..meta };
    let expires_s = store_s(now_s).saturating_add(NOTE_S + DUE_S);
    let new = NewObject {
        hash,
        key,
        head,
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

/// Contents of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    /// Reason why the answers are not stored.
    pub(crate) reason: &'static str,
    /// True once the note has expired: the next request checks whether its reason still applies.
    pub(crate) is_due: bool,
    /// Time at which the note expires.
    pub(crate) until_s: u64,
}

/// Request for which a note is looked up.
#[derive(Clone, Copy)]
pub(crate) struct NoteQuery<'a> {
    /// Part of the request's key that all variants share.
    pub(crate) primary: &'a [u8],
    pub(crate) facts: &'a RequestFacts,
    /// Fields on which a note may depend through `Vary`.
    pub(crate) fields: &'a SentFields<'a>,
    pub(crate) now_s: u64,
}

/// Returns the note that applies to a request, if there is one. `key` is a buffer.
pub(crate) fn of(
    core: &Core,
    turn: &EpochGuard<'_>,
    query: NoteQuery<'_>,
    key: &mut Vec<u8>,
) -> Option<Note> {
    let look = |hash, key: &[u8]| match turn.lookup(hash, key) {
        Lookup::Hit(note) => Some(note),
        Lookup::Miss | Lookup::Contended => None,
    };
    // A note about an answer that had expired on arrival is only for `explain`: requests wait for the next
    // answer.
    find(core, query, look, |key| turn.hash(key), key).filter(|note| note.reason != Why::Expired.name())
}

/// Returns a note as [`of`] does, for `explain`. Runs on the owner's core.
pub(crate) fn peek(core: &Core, shard: &Shard, query: NoteQuery<'_>) -> Option<Note> {
    let look = |hash, key: &[u8]| shard.peek(hash, key);
    find(core, query, look, |key| core.storage.store.hash(key), &mut Vec::new())
}

fn find<'o>(
    core: &Core,
    query: NoteQuery<'_>,
    look: impl Fn(Hash, &[u8]) -> Option<Object<'o>>,
    hash_of: impl Fn(&[u8]) -> Hash,
    key: &mut Vec<u8>,
) -> Option<Note> {
    let NoteQuery { primary, facts, fields, now_s } = query;
    let address = hash_of(primary);
    let mut hash = VisitorSigns::by(facts).place(primary, &hash_of, key);
    let mut note = look(hash, key)?;
    let (mut says, mut until_s) = read(core, &note, KeyHashes { own: hash, address }, now_s)?;
    if let Some(spec) = says.strip_prefix(VARIES) {
        let spec = SmallVec::<[u8; VARY_SPEC_BYTES_MAX]>::from_slice(spec);
        hash = variant(note.sequence(), &spec, fields, primary, &hash_of, key);
        note = look(hash, key)?;
        (says, until_s) = read(core, &note, KeyHashes { own: hash, address }, now_s)?;
    }
    Some(Note { reason: reason(&says)?, is_due: until_s <= now_s, until_s })
}

/// Head of a note: the reason, or the names in `Vary`.
type Says = SmallVec<[u8; 1024]>;

/// Returns the head of a note and the time at which it expires; `None` if the note no longer applies.
fn read(core: &Core, note: &Object<'_>, hashes: KeyHashes, now_s: u64) -> Option<(Says, u64)> {
    let mut meta = StoredMeta::unpack(&note.meta())?;
    if core.purges.invalidations.judge(note, &mut meta, hashes, None, now_s) == Verdict::Hard {
        return None;
    }
    let until_s = meta.fresh_until_s();
    if !meta.flags.has(Flags::NOT_STORED) || until_s + u64::from(DUE_S) <= now_s {
        return None;
    }
    let head = note.head();
    let mut says = Says::from_elem(0, head.len().min(VARIES.len() + VARY_SPEC_BYTES_MAX));
    (says.len() == head.len()).then(|| head.copy_to_slice(&mut says))?;
    Some((says, until_s))
}

/// Drops the notes of an address. Runs on the owner's core.
pub(crate) fn forget(core: &Core, primary: &[u8]) {
    let mut key = Vec::new();
    for shown in VisitorSigns::ALL {
        let hash = shown.place(primary, |key| core.storage.store.hash(key), &mut key);
        core.shard_mut().unlink(hash, &key);
    }
}

/// Counts a request for a page that was answered by its origin. `is_by_cookie`: only the request's cookies
/// keep the page from being shared.
pub(crate) fn count_page(
    core: &Core,
    site: SiteId,
    primary: &[u8],
    headers: &Headers<'_, '_>,
    is_by_cookie: bool,
) {
    let by_cookie = core.sites.by_cookie(site);
    let hosts = core.sites.table.names(site);
    if is_by_cookie && !by_cookie.is_told() {
        core.observers.cookie_names.borrow_mut().take(hosts, headers);
    }
    let Some(percent) = by_cookie.count(core.index, is_by_cookie) else { return };
    tracing::warn!(
        host = %String::from_utf8_lossy(key::authority(primary)),
        cookies = %core.observers.cookie_names.borrow_mut().shown(hosts),
        share = %format_args!("{percent}%"),
        "most requests to the origin bypass the store only because they carry cookies: list in bypass-cookies only the \
         cookies that identify a visitor ([] if none does), or let the origin send Cache-Control: public (logged once \
         per site)"
    );
}

/// Returns the static string equal to a note's reason.
fn reason(bytes: &[u8]) -> Option<&'static str> {
    Why::ALL
        .iter()
        .map(|why| why.name())
        .chain([TOO_LARGE, NO_RANGES, VERSIONS_DIFFER])
        .find(|known| known.as_bytes() == bytes)
}
