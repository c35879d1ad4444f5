//! What one of several instances does beside: takes in what the others have, gives what they do not have, and orders only
//! in its turn.

use std::time::Duration;

use engine::tls::certificates::Certificate;

use super::{RenewalAction, RenewalTask, date, now_s};
use crate::{
    files::{ACCOUNT, ACCOUNT_KEY, FilesError, KeptAccount, Merge, certificate_file, order_file},
    share::ShareError,
};

/// When the others are asked again: whoever orders now is done, or the cluster is back.
pub(super) const ASK_OTHERS_AGAIN: Duration = Duration::from_secs(2);

impl RenewalTask {
    /// Notes what the others have changed; a round begins.
    pub(super) fn hear(&mut self) {
        self.waits = None;
        let Some(sharing) = &self.sharing else { return };
        let changed = sharing.changed();
        let is_account = changed.contains(ACCOUNT_KEY) || changed.contains(ACCOUNT);
        self.has_met_account &= !is_account;
        for entry in &mut self.entries {
            let files = [certificate_file(&entry.file), order_file(&entry.file)];
            entry.is_to_meet |= is_account || files.iter().any(|file| changed.contains(file));
        }
    }

    /// Whether what is due of a certificate may be done now. If it is one of several: what the others have is ours by then,
    /// what we have theirs, and if something is to be ordered, it is our turn to.
    pub(super) fn may_do(&mut self, at: usize) -> bool {
        let is_due = |keeper: &Self| keeper.entries[at].standing.due(now_s()) == RenewalAction::Order;
        if self.sharing.is_none() || !(self.entries[at].is_to_meet || is_due(self)) {
            return true;
        }
        // Whoever is busy, or cannot be asked, is not asked for each.
        if self.waits.is_some() {
            return false;
        }
        let mut agree = || {
            if self.entries[at].is_to_meet {
                self.meet(at)?;
            }
            if is_due(self) {
                self.take_turn()?;
                // Whoever had it before may have ordered just this.
                self.meet(at)?;
            }
            Ok(())
        };
        match agree() {
            Ok(()) => true,
            Err(why) => {
                self.waits = Some(why);
                false
            }
        }
    }

    fn take_turn(&mut self) -> Result<(), ShareError> {
        if let (None, Some(sharing)) = (&self.turn, &self.sharing) {
            self.turn = Some(sharing.take_turn()?);
            self.has_met_account = false;
        }
        Ok(())
    }

    /// Takes in what the others have of the account, and gives them what they do not have.
    fn meet_account(&mut self) -> Result<(), ShareError> {
        let key = self.files.meet(ACCOUNT_KEY, is_theirs).map_err(failed)?;
        let mut account = self.files.meet(ACCOUNT, is_theirs).map_err(failed)?;
        if key == Merge::Taken && account == Merge::OursIsToBeShared {
            // It is of another key.
            self.files.keep_account_here(&KeptAccount::default()).map_err(failed)?;
            account = Merge::Taken;
        }
        if [key, account].contains(&Merge::Taken) {
            self.account = None;
        }
        self.give(&[(key, ACCOUNT_KEY), (account, ACCOUNT)])?;
        self.has_met_account = true;
        Ok(())
    }

    /// The same of a certificate, and of the account if that is to be.
    fn meet(&mut self, at: usize) -> Result<(), ShareError> {
        if !self.has_met_account {
            self.meet_account()?;
        }
        let file = &self.entries[at].file;
        let (certificate_file, order_file) = (certificate_file(file), order_file(file));
        let order = self.files.meet(&order_file, is_theirs).map_err(failed)?;
        let certificate = self.files.meet(&certificate_file, begins_later).map_err(failed)?;
        let entry = &mut self.entries[at];
        if [order, certificate].contains(&Merge::Taken) {
            entry.read_again(&self.files).map_err(failed)?;
        }
        if certificate == Merge::Taken {
            let until = entry.standing.validity.map_or_else(String::new, |(_, until)| date(until));
            tracing::info!("the certificate for {} is another instance's, until {until}", entry.text());
            self.show();
            self.say();
        }
        self.give(&[(order, &order_file), (certificate, &certificate_file)])?;
        self.entries[at].is_to_meet = false;
        Ok(())
    }

    /// Gives the others what they do not have of these, in our turn.
    fn give(&mut self, met: &[(Merge, &str)]) -> Result<(), ShareError> {
        for (_, file) in met.iter().filter(|(met, _)| *met == Merge::OursIsToBeShared) {
            self.take_turn()?;
            self.files.give(file).map_err(failed)?;
        }
        Ok(())
    }

    /// The round is over: others may have their turn. What stands in the way for more than a round is said once.
    pub(super) fn end_turn(&mut self) {
        self.turn = None;
        if self.sharing.is_none() {
            return;
        }
        match &self.waits {
            Some(ShareError::Failed(why)) => {
                self.rounds_failed = self.rounds_failed.saturating_add(1);
                if self.rounds_failed == 2 {
                    tracing::warn!("certificates are neither ordered nor shared with other instances: {why}");
                }
            }
            Some(ShareError::Busy) | None => self.rounds_failed = 0,
        }
        self.say();
    }
}

fn failed(error: FilesError) -> ShareError {
    match error {
        FilesError::NotShared { why, .. } => why,
        other => ShareError::Failed(other.to_string()),
    }
}

/// What the others have counts, whatever we have.
fn is_theirs(_: &[u8], _: &[u8]) -> bool {
    true
}

/// Of two certificates, as files have them, the second is of no use beside the first.
fn begins_later(theirs: &[u8], ours: &[u8]) -> bool {
    let begins = |pem: &[u8]| Certificate::from_pem(pem).ok().map(|certificate| certificate.from_s);
    begins(theirs).is_some_and(|theirs| begins(ours).is_none_or(|ours| theirs >= ours))
}
