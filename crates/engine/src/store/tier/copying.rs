//! Copying of a large object into the log, a bounded number of bytes at each step.

use super::{layout::put, lifetimes::LifetimeWriters, parts::PartsWriter};
use crate::{
    log::{AppendRefusal, RecordWriter},
    store::{Hash, PinnedObject},
};

/// Progress of copying a pinned object of several extents to the file.
#[derive(Debug)]
pub(super) struct CopyProgress {
    object: PinnedObject,
    hash: Hash,
    to: CopyTarget,
    copied: u64,
}

/// Destination in the file to which an object is copied.
#[derive(Debug)]
pub(super) enum CopyTarget {
    /// A single record, whose header, key and head have already been written.
    Record(RecordWriter),
    /// Several parts; everything but the body is written later, with the list of parts.
    Parts(PartsWriter),
}

/// Result of one step of copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// More remains to be copied now.
    More,
    /// The whole body has been copied.
    Whole,
    /// The disk must catch up before the copy can continue.
    Later,
    /// The copy was given up: the store needs the memory, and the disk is behind.
    GivenUp,
}

impl CopyProgress {
    pub(super) fn new(object: PinnedObject, hash: Hash, to: CopyTarget) -> Self {
        Self { object, hash, to, copied: 0 }
    }

    /// Copies about `bytes` bytes of the body, or exactly one part if the target is a list of parts.
    pub(super) fn step(&mut self, writers: &mut LifetimeWriters, bytes: usize) -> Step {
        let Self { object, to, copied, .. } = self;
        let (body_bytes, expires_s) = (object.body_bytes(), object.expires_s());
        match to {
            CopyTarget::Record(filling) => {
                let to = body_bytes.min(copied.saturating_add(bytes as u64));
                put_body(filling, object, *copied, to);
                *copied = to;
                if to == body_bytes {
                    put(filling, object.tail());
                    return Step::Whole;
                }
            }
            CopyTarget::Parts(parts) => {
                let to = *copied + parts.next_bytes() as u64;
                if to > *copied {
                    match parts.append(writers, expires_s, |filling| put_body(filling, object, *copied, to)) {
                        Ok(()) => *copied = to,
                        Err(AppendRefusal::Busy | AppendRefusal::Full) if !object.wanted() => {
                            return Step::Later;
                        }
                        Err(_) => return Step::GivenUp,
                    }
                }
                if to == body_bytes {
                    return Step::Whole;
                }
            }
        }
        // Bytes that have been copied are not needed any more, so their segments are unpinned.
        self.object.release_before(self.copied);
        Step::More
    }

    pub(super) fn hash(&self) -> Hash {
        self.hash
    }

    pub(super) fn object(&self) -> &PinnedObject {
        &self.object
    }

    /// Returns the writer of the parts, if the target is a list of parts.
    pub(super) fn parts(&self) -> Option<&PartsWriter> {
        match &self.to {
            CopyTarget::Record(_) => None,
            CopyTarget::Parts(parts) => Some(parts),
        }
    }

    pub(super) fn into_to(self) -> CopyTarget {
        self.to
    }
}

/// Copies bytes `from..to` of the body into a record.
fn put_body(filling: &mut RecordWriter, object: &PinnedObject, from: u64, to: u64) {
    let mut at = from;
    while at < to {
        let run = object.body(at);
        let run = run.slice(0..run.len().min(usize::try_from(to - at).unwrap_or(usize::MAX)));
        put(filling, run);
        at += run.len() as u64;
    }
}
