//! Cursor of a search: the position from which the next page continues.

use super::query::QueryFault;
use crate::mailbox::mailboxes::MailId;

/// Position from which a search continues: the last mail examined, and where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub(super) place: CursorPosition,
    pub(super) after: MailId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CursorPosition {
    /// Index in the list. Newly arrived mails shift it.
    InList(usize),
    /// Time of arrival of a candidate that came from the index.
    Arrived(u64),
}

/// Prefix of a cursor whose position is a time of arrival.
const ARRIVED: char = 'a';

/// Writes `position-ID`.
impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place {
            CursorPosition::InList(skip) => write!(f, "{skip}-{}", self.after),
            CursorPosition::Arrived(ms) => write!(f, "{ARRIVED}{ms}-{}", self.after),
        }
    }
}

impl std::str::FromStr for Cursor {
    type Err = QueryFault;

    fn from_str(text: &str) -> Result<Self, QueryFault> {
        let fault = || QueryFault::Cursor(text.chars().take(40).collect());
        let (place, after) = text.split_once('-').ok_or_else(fault)?;
        let place = match place.strip_prefix(ARRIVED) {
            Some(ms) => CursorPosition::Arrived(ms.parse().map_err(|_| fault())?),
            None => CursorPosition::InList(place.parse().map_err(|_| fault())?),
        };
        Ok(Self { place, after: after.parse().map_err(|_| fault())? })
    }
}
