//! What somebody said about a mail (read, tags), written down beside it.
//!
//! ```text
//!   web: marks ─▶ Question::Note ─▶ the core that owns the name: a record that ends the one before
//!   a start: records ─▶ RecoveredNote, for the web to begin with
//! ```
//! The web's marks are what answers; here is only where each was written, so that the next one takes its place and it
//! goes with its mail. *Bound:* a mail's mark is written `TIMES_MAX` times; later ones hold until the process ends.
//! *Who writes:* the core.

use std::collections::{BTreeSet, HashMap};

use crate::mailbox::mailboxes::{Inbox, MailId};

/// How often a mail's mark is written down: who turns one on and off again does not fill the log.
const TIMES_MAX: u8 = 64;

/// What is said about a mail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Note {
    /// Somebody opened it.
    pub read: bool,
    /// What it is called by.
    pub tags: BTreeSet<String>,
}

impl Note {
    /// Nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.read && self.tags.is_empty()
    }

    /// The hash of its record.
    pub(crate) fn flags(&self) -> u64 {
        u64::from(self.read)
    }

    /// The payload of its record: each tag, its bytes before it (2, little-endian).
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        for tag in &self.tags {
            let Ok(bytes) = u16::try_from(tag.len()) else { continue };
            payload.extend_from_slice(&bytes.to_le_bytes());
            payload.extend_from_slice(tag.as_bytes());
        }
        payload
    }

    /// Reads a record; what is none of ours is nothing.
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

/// A note that a start has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredNote {
    /// The mail's name.
    pub id: MailId,
    /// Where it lies.
    pub inbox: Inbox,
    /// It is the mail's name over all inboxes.
    pub is_letter: bool,
    /// Its inbox has it no more; others have.
    pub is_let_go: bool,
    /// What is said.
    pub note: Note,
}

/// Where a note is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoteLocation {
    pub(crate) location: u64,
    pub(crate) payload_bytes: u32,
    times: u8,
}

/// The notes of one core's mails, by the mail's name.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    at: HashMap<u64, NoteLocation>,
}

impl Notes {
    /// Where the note of a mail is written now.
    pub(crate) fn find(&self, id: MailId) -> Option<NoteLocation> {
        self.at.get(&id.0).copied()
    }

    /// Whether it may be written once more.
    pub(crate) fn may_write(&self, id: MailId) -> bool {
        self.at.get(&id.0).is_none_or(|at| at.times < TIMES_MAX)
    }

    /// It is written here now.
    pub(crate) fn written(&mut self, id: MailId, location: u64, payload_bytes: u32) {
        let times = self.at.get(&id.0).map_or(0, |at| at.times).saturating_add(1);
        self.at.insert(id.0, NoteLocation { location, payload_bytes, times });
    }

    /// The mail goes; where its note was.
    pub(crate) fn forget(&mut self, id: MailId) -> Option<NoteLocation> {
        // As long as nobody says anything, mails that go look for nothing.
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

/// Room that is kept when the last note has gone.
const SPARE_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_note_is_read_back_as_it_was_written() {
        let tags = ["late", "grüße", ""].map(str::to_owned).into();
        let note = Note { read: true, tags };
        assert_eq!(Note::decode(note.flags(), &note.payload()), note);
        assert_eq!(Note::decode(0, &[]), Note::default());
        assert_eq!(Note::decode(0, &[9, 0, b'x']).tags.len(), 0, "cut short");
    }

    #[test]
    fn a_note_is_written_so_often_and_no_more() {
        let mut notes = Notes::default();
        for time in 0..TIMES_MAX {
            assert!(notes.may_write(MailId(1)), "{time}");
            notes.written(MailId(1), time.into(), 0);
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
