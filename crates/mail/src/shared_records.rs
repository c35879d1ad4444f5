//! Records that several inboxes of one core have: one copy, which stays until the last has let go.

use std::collections::HashMap;

#[derive(Debug, Default)]
struct Links {
    inboxes: u32,
    /// Where it is written that one of its inboxes has deleted it.
    markers: Vec<u64>,
}

/// By the location of the record.
#[derive(Debug, Default)]
pub(crate) struct SharedRecords {
    links: HashMap<u64, Links>,
}

impl SharedRecords {
    /// One more inbox has it.
    pub(crate) fn link(&mut self, location: u64) {
        self.links.entry(location).or_default().inboxes += 1;
    }

    /// One inbox less has it. Whether that was the last.
    pub(crate) fn unlink(&mut self, location: u64) -> bool {
        let Some(links) = self.links.get_mut(&location) else { return true };
        links.inboxes = links.inboxes.saturating_sub(1);
        links.inboxes == 0
    }

    /// Notes where it is written that an inbox has deleted it; that is needed as long as the record is there.
    pub(crate) fn unlinked_by(&mut self, location: u64, marker: u64) {
        self.links.entry(location).or_default().markers.push(marker);
    }

    /// The record is gone; gives what was written about it.
    pub(crate) fn forget(&mut self, location: u64) -> Vec<u64> {
        self.links.remove(&location).map_or_else(Vec::new, |links| links.markers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_let_go_is_known() {
        let mut records = SharedRecords::default();
        (0..3).for_each(|_| records.link(7));
        assert!(!records.unlink(7));
        records.unlinked_by(7, 100);
        assert!(!records.unlink(7));
        assert!(records.unlink(7));
        assert_eq!(records.forget(7), [100]);
        assert!(records.links.is_empty());
    }
}
