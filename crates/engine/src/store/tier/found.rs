//! Records that recovery finds in the file at startup, collected until each core's objects are known.
//!
//! ```text
//! records, in any order ─▶ directories (the newest of each hash) ─┐
//!                          parts, heads, by their object ─────────┴─ all read ─▶ a tier for each core
//!                          deadlines of segments                                 unclaimed records are dead
//! ```

use super::{
    Admission, Bodies, FileRecord, FileTier, OBJECT, Tier,
    bodies::{FoundHeads, HEAD},
    directory::{Directory, FileObject},
    lifetimes::{Deadlines, LifetimeWriters, NEVER, WRITERS_PER_CORE},
    parts::{FoundParts, PART, split_tag},
};
use crate::{
    log::{FoundRecord, Header, Log, Reader},
    store::hash::Hash,
};

/// Records that recovery has found in the file so far.
pub(super) struct RecoveryIndex {
    header: Header,
    now_s: u32,
    /// Directories of objects, one for each core, like `parts` and `heads`.
    directories: Vec<Directory>,
    parts: Vec<FoundParts>,
    heads: Vec<FoundHeads>,
    deadlines: Deadlines,
    /// Objects for which a newer record was found.
    outdated: Vec<FileObject>,
}

impl RecoveryIndex {
    pub(super) fn new(header: &Header, cores: usize, objects_max: u64, now_s: u32) -> Self {
        Self {
            header: *header,
            now_s,
            directories: (0..cores).map(|_| Directory::new(objects_max / cores as u64)).collect(),
            parts: (0..cores).map(|_| FoundParts::default()).collect(),
            heads: (0..cores).map(|_| FoundHeads::default()).collect(),
            deadlines: Deadlines::new(header.segments as usize),
            outdated: Vec::new(),
        }
    }

    /// Registers a record that recovery found; returns whether it is live, as far as is known yet.
    pub(super) fn note(&mut self, found: &FoundRecord) -> bool {
        let hash = Hash::from_word(found.hash);
        let owner = hash.owner(self.directories.len());
        if found.kind == PART {
            self.parts[owner].part(found.hash, found.tag, found.location, found.payload_bytes);
            self.deadlines.note(self.header.segment_of(found.location), found.location, NEVER);
            // The part is live until the object to which it belongs is known.
            return true;
        }
        if found.is_claimed {
            // The body is live until the head that claims it is known; the body's own expiry does not matter.
            let is_body = found.kind == OBJECT;
            if is_body {
                let FoundRecord { location, payload_bytes, .. } = *found;
                self.heads[owner].body(hash.word(), FileRecord { location, payload_bytes });
            }
            return is_body;
        }
        let (expires_s, mark_or_number) = split_tag(found.tag);
        if ![OBJECT, HEAD].contains(&found.kind) || expires_s <= self.now_s {
            return false;
        }
        self.deadlines.note(self.header.segment_of(found.location), found.location, expires_s);
        let kept = FileObject {
            hash: hash.word(),
            location: found.location,
            expires_s,
            payload_bytes: found.payload_bytes,
        };
        let is_older = self.is_older(owner, &kept, found, mark_or_number);
        if !is_older && found.kind == OBJECT {
            self.parts[owner].object(&kept, mark_or_number);
        }
        self.outdated.extend(if is_older {
            Some(kept)
        } else {
            self.directories[owner].insert(kept, |_| true)
        });
        true
    }

    /// Returns whether a record is older than another with the same hash. Both exist if the deletion of the
    /// older one was damaged or never written; the newer record is valid.
    fn is_older(&mut self, owner: usize, kept: &FileObject, found: &FoundRecord, number: u32) -> bool {
        let heads = &mut self.heads[owner];
        let other = self.directories[owner].find(kept.hash);
        let is_before_other = other.is_some_and(|other| other.location.is_after(kept.location));
        match (found.kind == HEAD, found.target) {
            (true, Some(body)) => {
                let are_heads = other.is_some_and(|other| heads.is_head(kept.hash, other.location));
                let is_older = !are_heads && is_before_other;
                is_older || heads.is_older(kept.hash, kept.location, number, body)
            }
            (true, None) => true,
            (false, _) => is_before_other,
        }
    }

    /// Builds the file tier of each core, once the whole file has been read.
    pub(super) fn tiers(self, log: &Log, admission: Admission) -> Vec<Tier> {
        let Self { header, mut directories, parts, heads, mut deadlines, outdated, .. } = self;
        let (reader, cores) = (log.reader(), directories.len());
        for loser in outdated {
            reader.died(loser.location, loser.payload_bytes as usize);
        }
        let mut bodies = Vec::with_capacity(cores);
        for (directory, heads) in directories.iter_mut().zip(heads) {
            bodies.push(bodies_of(directory, heads, &header, &mut deadlines, &reader));
        }
        let tier_of = |(core, ((directory, parts), bodies)): (usize, ((Directory, FoundParts), Bodies))| {
            let writers =
                std::array::from_fn(|class| log.writer(core * WRITERS_PER_CORE + class, class as u8));
            // A segment may hold records of several cores; one core watches its deadline.
            let writers = LifetimeWriters::new(writers, reader.clone(), deadlines.share(core, cores));
            let mut tier = Box::new(FileTier::new(writers, log.reader(), admission, directory));
            tier.bodies = bodies;
            let is_known =
                |hash, location| tier.directory.find(hash).is_some_and(|kept| kept.location == location);
            tier.large = parts.claimed(is_known, &reader).into_iter().collect();
            Tier { tier, epoch: log.epoch() }
        };
        directories.into_iter().zip(parts).zip(bodies).enumerate().map(tier_of).collect()
    }
}

/// Matches the heads of a core with their bodies. A head without a body is not a complete object and is
/// dropped.
fn bodies_of(
    directory: &mut Directory,
    heads: FoundHeads,
    header: &Header,
    deadlines: &mut Deadlines,
    reader: &Reader,
) -> Bodies {
    let mut lost = Vec::new();
    let mut found = |hash, body: FileRecord| {
        let until_s = directory.find(hash).map_or(0, |kept| kept.expires_s);
        deadlines.note(header.segment_of(body.location), body.location, until_s);
    };
    let is_known = |hash, location| directory.find(hash).is_some_and(|kept| kept.location == location);
    let bodies = heads.matched(is_known, &mut found, |hash| lost.push(hash), reader);
    for kept in lost.into_iter().filter_map(|hash| directory.remove(hash)) {
        reader.died(kept.location, kept.payload_bytes as usize);
    }
    bodies
}
