//! Locations of the parts of large mails.
//!
//! ```text
//!   ID ─▶ parts (shared by the IDs that one core has of a mail)      segment ─▶ IDs of mails with a part there
//! ```
//! When a segment is reclaimed, every mail with a part in it is removed. *Memory:* 16 bytes for each part of
//! some hundred KiB, and 8 for each segment that a mail is in. *Writer:* the core.

use std::{collections::HashMap, sync::Arc};

use crate::store::record::Part;

#[derive(Debug, Default)]
pub(super) struct LargeMailParts {
    parts: HashMap<u64, Arc<[Part]>>,
    within: HashMap<u32, Vec<u64>>,
    /// Number of parts of all mails.
    parts_count: usize,
}

impl LargeMailParts {
    pub(super) fn insert(&mut self, id: u64, parts: Arc<[Part]>, segment_of: impl Fn(u64) -> u32) {
        for segment in segments(&parts, segment_of) {
            self.within.entry(segment).or_default().push(id);
        }
        self.parts_count += parts.len();
        self.parts.insert(id, parts);
    }

    pub(super) fn remove(&mut self, id: u64, segment_of: impl Fn(u64) -> u32) -> Option<Arc<[Part]>> {
        // Most mails have no parts.
        if self.parts.is_empty() {
            return None;
        }
        let parts = self.parts.remove(&id)?;
        self.parts_count -= parts.len();
        for segment in segments(&parts, segment_of) {
            if let Some(ids) = self.within.get_mut(&segment) {
                ids.retain(|own| *own != id);
                if ids.is_empty() {
                    self.within.remove(&segment);
                }
            }
        }
        Some(parts)
    }

    /// Returns the IDs of the mails that have a part in a segment, in order of arrival.
    pub(super) fn within(&self, segment: u32) -> Vec<u64> {
        self.within.get(&segment).cloned().unwrap_or_default()
    }

    /// Returns the location of a mail's first part, if it has parts.
    pub(super) fn first(&self, id: u64) -> Option<u64> {
        self.parts.get(&id)?.first().map(|part| part.location)
    }

    pub(super) fn bytes(&self) -> usize {
        self.parts.capacity() * size_of::<(u64, Arc<[Part]>)>()
            + self.within.capacity() * size_of::<(u32, Vec<u64>)>()
            + self.parts_count * size_of::<Part>()
    }
}

/// Returns each segment of the parts once.
fn segments(parts: &[Part], segment_of: impl Fn(u64) -> u32) -> Vec<u32> {
    let mut segments: Vec<u32> = parts.iter().map(|part| segment_of(part.location)).collect();
    segments.sort_unstable();
    segments.dedup();
    segments
}
