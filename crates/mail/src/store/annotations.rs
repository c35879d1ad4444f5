//! Notes of users on mails (read flag, tags), stored in the log.
//!
//! ```text
//!   web: flags, tags ─▶ Question::Note ─▶ the core that owns the mail: a record that replaces the one before
//!   a start: records ─▶ RecoveredNote, from which the web loads its state
//! ```
//! Requests are answered from the web's own state; this table only knows where each note is written, so that
//! the next note replaces it and the note is deleted with its mail. *Bound:* the note of a mail is written
//! `TIMES_MAX` times; later changes last until the process ends. *Writer:* the core.

use std::collections::{BTreeSet, HashMap};

use crate::mailbox::mailboxes::{Inbox, MailId};

/// Maximum number of times that the note of a mail is written, so that repeated toggling of a flag does not
/// fill the log.
const TIMES_MAX: u8 = 64;

/// Flags and tags of a mail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Note {
    /// True once a reader has opened the mail.
    pub read: bool,
    /// Tags of the mail.
    pub tags: BTreeSet<String>,
}

impl Note {
    /// Returns whether the mail is unread and has no tags.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.read && self.tags.is_empty()
    }

    /// Returns the note's flags, which are stored in the hash field of its record.
    pub(crate) fn flags(&self) -> u64 {
        u64::from(self.read)
    }

    /// The payload of the note's record: each tag after its length (2 bytes, little-endian).
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        for tag in &self.tags {
            let Ok(bytes) = u16::try_from(tag.len()) else { continue };
            payload.extend_from_slice(&bytes.to_le_bytes());
            payload.extend_from_slice(tag.as_bytes());
        }
        payload
    }

    /// Decodes a record; damaged or unknown parts are skipped.
    pub(crate) fn decode(flags: u64, payload: &[u8]) -> Self {
        let mut tags = BTreeSet::new();
        let mut rest = payload;
        while let Some((bytes, after)) = rest.split_first_chunk::<2>() {
            let Some((tag, after)) = after.split_at_checked(u16::from_le_bytes(*bytes).into()) else { break };
            tags.extend(std::str::from_utf8(tag).map(str::to_owned));
            rest = after;
        }
        Self { read: flags & 1 == 1, tags }
    }
}

/// A note recovered from the log at startup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredNote {
    /// ID of the mail.
    pub id: MailId,
    /// Inbox of the mail.
    pub inbox: Inbox,
    /// True if the ID is the mail's ID in its first inbox, under which it is listed across all inboxes.
    pub is_letter: bool,
    /// True if this inbox has deleted the mail, which other inboxes still have.
    pub is_let_go: bool,
    /// The note itself.
    pub note: Note,
}

/// Location of a note's record in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoteLocation {
    pub(crate) location: u64,
    pub(crate) payload_bytes: u32,
    times: u8,
}

/// Locations of the notes of one core's mails, by mail ID.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    at: HashMap<u64, NoteLocation>,
}

impl Notes {
    /// Returns where the current note of a mail is written.
    pub(crate) fn find(&self, id: MailId) -> Option<NoteLocation> {
        self.at.get(&id.0).copied()
    }

    /// Returns whether the note of a mail may be written again.
    pub(crate) fn may_write(&self, id: MailId) -> bool {
        self.at.get(&id.0).is_none_or(|at| at.times < TIMES_MAX)
    }

    /// Records the new location of a mail's note.
    pub(crate) fn set_location(&mut self, id: MailId, location: u64, payload_bytes: u32) {
        let times = self.at.get(&id.0).map_or(0, |at| at.times).saturating_add(1);
        self.at.insert(id.0, NoteLocation { location, payload_bytes, times });
    }

    /// Removes the note of a deleted mail and returns its location.
    pub(crate) fn forget(&mut self, id: MailId) -> Option<NoteLocation> {
        // While there are no notes, deleting a mail costs no lookup.
        if self.at.is_empty() {
            return None;
        }
        let at = self.at.remove(&id.0);
        if self.at.is_empty() && self.at.capacity() > SPARE_MAX {
            self.at.shrink_to(SPARE_MAX);
        }
        at
    }
}

/// Capacity that the table keeps when its last note is removed.
const SPARE_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_note_is_read_back_unchanged() {
        let tags = ["late", "grüße", ""].map(str::to_owned).into();
        let note = Note { read: true, tags };
        assert_eq!(Note::decode(note.flags(), &note.payload()), note);
        assert_eq!(Note::decode(0, &[]), Note::default());
        assert_eq!(Note::decode(0, &[9, 0, b'x']).tags.len(), 0, "cut short");
    }

    #[test]
    fn writes_of_a_note_are_bounded() {
        let mut notes = Notes::default();
        for time in 0..TIMES_MAX {
            assert!(notes.may_write(MailId(1)), "{time}");
            notes.set_location(MailId(1), time.into(), 0);
        }
        assert!(!notes.may_write(MailId(1)) && notes.may_write(MailId(2)));
        assert_eq!(notes.forget(MailId(1)).map(|at| at.location), Some(u64::from(TIMES_MAX) - 1));
        assert_eq!(notes.find(MailId(1)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Note::decode(1, &bytes);
        }
    }
}
