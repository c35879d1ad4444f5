//! What a start finds on the file, record by record, until it is known what of it each core has.
//!
//! ```text
//! records, in any order ─▶ directories (the newest of each hash) ─┐
//!                          parts, heads, by whose they are ───────┴─ all read ─▶ a tier for each core
//!                          deadlines of segments                                 what nobody claims is dead
//! ```

use super::{
    Admission, Bodies, FileRecord, FileTier, OBJECT, Tier,
    directory::{Directory, FileObject},
    heads::{FoundHeads, HEAD},
    lifetimes::{Deadlines, LifetimeWriters, NEVER, WRITERS_PER_CORE},
    parts::{FoundParts, PART, split_tag},
};
use crate::{
    log::{FoundRecord, Header, Log, Reader},
    store::hash::Hash,
};

/// The records of a file that were found.
pub(super) struct RecoveryIndex {
    header: Header,
    now_s: u32,
    /// One for each core, as `parts` and `heads`.
    directories: Vec<Directory>,
    parts: Vec<FoundParts>,
    heads: Vec<FoundHeads>,
    deadlines: Deadlines,
    /// Those of which a newer one was found.
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

    /// A record was found; whether it is live, as far as can be said now.
    pub(super) fn note(&mut self, found: &FoundRecord) -> bool {
        let hash = Hash::from_word(found.hash);
        let owner = hash.owner(self.directories.len());
        if found.kind == PART {
            self.parts[owner].part(found.hash, found.tag, found.location, found.payload_bytes);
            self.deadlines.note(self.header.segment_of(found.location), found.location, NEVER);
            // Until it is known whose it is.
            return true;
        }
        if found.is_claimed {
            // Until it is known by what: its own time does not matter.
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

    /// Two of one hash: an end was lost with damage, or never written. The one that came later is right.
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

    /// The whole file has been read.
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
            // What is in a segment may be several cores'; one of them looks at it.
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

/// Gives the heads of a core their bodies. A head that has none is no object.
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
