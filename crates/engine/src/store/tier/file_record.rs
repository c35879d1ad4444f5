//! Places in the file: of an object's record, and of a body that is sent from there.

use crate::log::{Location, Reader};

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

impl FileRecord {
    /// Reports to the log that this record is dead.
    pub(super) fn died(self, reader: &Reader) {
        reader.died(self.location, self.payload_bytes as usize);
    }
}
