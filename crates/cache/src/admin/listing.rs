//! List of stored objects for the operator: objects that match an expression, collected step by step.
//!
//! ```text
//!  operator's thread ── step ──▶ core 0: examines some hundred objects ── rows, position ──▶ … next step, next core
//! ```
//! Expressions have the syntax of bans ([`bans`](crate::purging::bans)). Listing changes nothing and reads
//! nothing from the file: objects that are only in the file are not listed. *Bounds:* a step examines
//! [`OBJECTS_A_STEP`] objects plus the rest of an index page; a list has at most the requested number of
//! rows, at most [`OBJECTS_MAX`](crate::admin::objects::OBJECTS_MAX) rows and [`BYTES_MAX`] bytes, and ends
//! after [`TIME_MAX`].

use std::time::{Duration, Instant};

use engine::{
    cores::clock,
    store::{Object, Sweep},
};
use wire::http1::url::Scheme;

use crate::{
    admin::{
        objects::{OBJECTS_MAX, ObjectSeen, Objects, ObjectsError, ObjectsPage, Step},
        operator_port::Outside,
    },
    core::{Core, CoreBusy, Message},
    head::response_head::{StoredMeta, stored_values},
    purging::{
        bans::Ban,
        invalidations::{KeyHashes, Verdict},
    },
    request::{dependent, key},
    tags,
};

/// Maximum total bytes of the texts in a list; a single URL may be as long as a request head.
const BYTES_MAX: usize = 4 << 20;
/// Number of objects that a listing examines per turn of the event loop.
const OBJECTS_A_STEP: usize = 256;
/// Time limit for the whole list.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Lists matching objects in the memory of all cores. Blocks until all objects were examined or enough were
/// found.
///
/// # Errors
/// [`ObjectsError`] if the expression is invalid, or a core did not answer.
pub(crate) fn ask_from_outside(
    cores: usize,
    tag_fields: &[Box<str>],
    outside: &Outside,
    expression: Option<&str>,
    rows_max: usize,
) -> Result<Objects, ObjectsError> {
    let rows_max = rows_max.min(OBJECTS_MAX);
    let parsed = |text: &str| {
        let ban = Ban::parse(text.as_bytes(), tag_fields).map_err(|fault| fault.marked(text.as_bytes()))?;
        if ban.is_about_who_asks() {
            return Err(
                "a ban can test only req.http.host and req.url of a request: its other fields are not stored"
                    .to_owned(),
            );
        }
        Ok(ban)
    };
    let expression = expression.map(parsed).transpose().map_err(ObjectsError::NotAnExpression)?;
    #[expect(clippy::disallowed_methods, reason = "the operator's thread, on no loop")]
    let until = Instant::now() + TIME_MAX;
    let mut found = Objects { is_all: true, ..Objects::default() };
    let mut left_bytes = BYTES_MAX;
    for core in 0..cores {
        let mut from = Some(Sweep::default());
        while let Some(at) = from {
            #[expect(clippy::disallowed_methods, reason = "the operator's thread, on no loop")]
            let is_late = Instant::now() > until;
            let rows_left = rows_max - found.seen.len();
            if is_late || rows_left == 0 || left_bytes == 0 {
                return Ok(Objects { is_all: false, ..found });
            }
            let taken = outside.ask(core, |reply| {
                let expression = expression.clone();
                Message::Objects(Box::new(Step { from: at, expression, rows_max: rows_left, reply }))
            });
            let taken = taken.map_err(|CoreBusy| ObjectsError::NoAnswer)?;
            left_bytes =
                left_bytes.saturating_sub(taken.seen.iter().map(ObjectSeen::text_bytes).sum::<usize>());
            found.seen.extend(taken.seen);
            found.looked_at += taken.looked_at;
            found.is_all &= !taken.is_cut;
            from = taken.next;
        }
    }
    Ok(found)
}

/// Performs one step of a listing, on the core whose objects it lists.
pub(crate) fn answer(core: &Core, Step { from, expression, rows_max, reply }: Step) {
    let now_s = clock::unix_s();
    let (mut seen, mut looked_at, mut is_cut) = (Vec::new(), 0, false);
    let swept = core.shard_mut().sweep(from, OBJECTS_A_STEP, |object| {
        if let Some(found) = look(core, object, expression.as_deref(), now_s) {
            looked_at += 1;
            match found {
                Some(row) if seen.len() < rows_max => seen.push(row),
                Some(_) => is_cut = true,
                None => {}
            }
        }
        false
    });
    // The receiver may have given up.
    let _ = reply.send(ObjectsPage { seen, looked_at, is_cut, next: swept.next });
}

/// Describes an object for the list. `None`: the object is not an answer, or has expired or been purged.
/// `Some(None)`: the object does not match the expression.
fn look(
    core: &Core,
    object: &Object<'_>,
    expression: Option<&Ban>,
    now_s: u64,
) -> Option<Option<ObjectSeen>> {
    let mut meta = StoredMeta::unpack(&object.meta()).filter(StoredMeta::is_response)?;
    let mut key = Vec::new();
    object.key().copy_to(&mut key);
    if dependent::is_content_of_object(&key) {
        // Encoded variants and slices are not listed; the object that they belong to is.
        return None;
    }
    let primary = key::primary(&key);
    let is_variant = primary.len() < key.len();
    let (own, address) = (core.storage.store.hash(&key), core.storage.store.hash(primary));
    let own = if is_variant { dependent::hash_of_dependent(address, own) } else { own };
    let hashes = KeyHashes { own, address };
    let verdict = core.purges.invalidations.judge(object, &mut meta, hashes, None, now_s);
    if verdict == Verdict::Hard || u64::from(object.expires_s()) <= now_s {
        return None;
    }
    let mut head = Vec::new();
    object.head().copy_to(&mut head);
    if !expression.is_none_or(|expression| expression.holds_now(&key, &head, &meta, now_s)) {
        return Some(None);
    }
    let scheme = if key::scheme(&key) == Scheme::Https { "https" } else { "http" };
    let [authority, path] =
        [key::authority(&key), key::url(&key)].map(|part| String::from_utf8_lossy(part).into_owned());
    let seconds = |at_s: u64| i64::try_from(at_s).unwrap_or(i64::MAX);
    let content_type = stored_values(&head, "content-type").next();
    Some(Some(ObjectSeen {
        url: format!("{scheme}://{authority}{path}"),
        is_variant,
        status: meta.status,
        content_type: content_type.map(|said| String::from_utf8_lossy(said).into_owned()),
        body_bytes: meta.content_bytes(object).unwrap_or_default(),
        age_s: meta.age_s(now_s),
        ttl_s: seconds(meta.fresh_until_s()) - seconds(now_s),
        tags: tags::stored(object.extra()).map_or(0, Iterator::count),
    }))
}
