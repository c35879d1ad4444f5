//! Locations of objects' records and bodies in the file, and a record that is still to be appended.

use crate::{
    log::{Location, Reader},
    store::hash::Hash,
};

/// Location and length of an object's record in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRecord {
    /// Location of the object's record.
    pub location: Location,
    /// Length of the record's payload in bytes.
    pub payload_bytes: u32,
}

/// Location of an object's body in the file, to be sent from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRun {
    /// Location of the object's record.
    pub location: Location,
    /// File offset at which the body begins.
    pub body_at: u64,
    /// Length of the body in bytes.
    pub body_bytes: u64,
}

/// An object's record that is to be appended to the file.
pub(super) struct NewObjectRecord {
    pub(super) hash: Hash,
    pub(super) expires_s: u32,
    /// Mark of the object's parts; 0 if the record holds the body.
    pub(super) mark: u32,
    pub(super) payload_bytes: usize,
}

impl FileRecord {
    /// Reports to the log that this record is dead.
    pub(super) fn died(self, reader: &Reader) {
        reader.died(self.location, self.payload_bytes as usize);
    }
}
