//! Coordination of certificate renewal among several instances: an instance takes over what the others have,
//! publishes what they lack, and orders only while it holds the lease.

use std::time::Duration;

use engine::tls::certificates::Certificate;

use super::{RenewalAction, RenewalTask, date, now_s};
use crate::{
    files::{ACCOUNT, ACCOUNT_KEY, FilesError, KeptAccount, Merge, certificate_file, order_file},
    share::ShareError,
};

/// Delay before the next attempt, while another instance is ordering or the cluster is unreachable.
pub(super) const ASK_OTHERS_AGAIN: Duration = Duration::from_secs(2);

impl RenewalTask {
    /// Begins a round: marks the files that other instances have changed.
    pub(super) fn note_shared_changes(&mut self) {
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

    /// Returns whether the action due for a certificate may be done now. With several instances, its files
    /// are first merged with those of the cluster in both directions, and an order needs the lease.
    pub(super) fn may_do(&mut self, at: usize) -> bool {
        let is_due = |keeper: &Self| keeper.entries[at].standing.due(now_s()) == RenewalAction::Order;
        if self.sharing.is_none() || !(self.entries[at].is_to_meet || is_due(self)) {
            return true;
        }
        // If the cluster is busy or unreachable, it is not tried again for the other certificates in this
        // round.
        if self.waits.is_some() {
            return false;
        }
        let mut agree = || {
            if self.entries[at].is_to_meet {
                self.merge_certificate(at)?;
            }
            if is_due(self) {
                self.take_turn()?;
                // The previous holder of the lease may have ordered this very certificate.
                self.merge_certificate(at)?;
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

    /// Merges the account's files with those of the cluster.
    fn meet_account(&mut self) -> Result<(), ShareError> {
        let key = self.files.merge_shared(ACCOUNT_KEY, is_theirs).map_err(failed)?;
        let mut account = self.files.merge_shared(ACCOUNT, is_theirs).map_err(failed)?;
        if key == Merge::Taken && account == Merge::OursIsToBeShared {
            // Our account belongs to another key, so it is dropped.
            self.files.keep_account_here(&KeptAccount::default()).map_err(failed)?;
            account = Merge::Taken;
        }
        if [key, account].contains(&Merge::Taken) {
            self.account = None;
        }
        self.give(key, ACCOUNT_KEY)?;
        self.give(account, ACCOUNT)?;
        self.has_met_account = true;
        Ok(())
    }

    /// Merges the files of a certificate, and of the account if that is still to be done.
    fn merge_certificate(&mut self, at: usize) -> Result<(), ShareError> {
        if !self.has_met_account {
            self.meet_account()?;
        }
        let file = &self.entries[at].file;
        let (certificate_file, order_file) = (certificate_file(file), order_file(file));
        let order = self.files.merge_shared(&order_file, is_theirs).map_err(failed)?;
        let certificate = self.files.merge_shared(&certificate_file, begins_later).map_err(failed)?;
        let entry = &mut self.entries[at];
        if [order, certificate].contains(&Merge::Taken) {
            entry.read_again(&self.files).map_err(failed)?;
        }
        if certificate == Merge::Taken {
            let until = entry.standing.validity.map_or_else(String::new, |(_, until)| date(until));
            tracing::info!(
                "certificate for {} taken from another instance, valid until {until}",
                entry.text()
            );
            self.show();
            self.publish_statuses();
        }
        self.give(order, &order_file)?;
        self.give(certificate, &certificate_file)?;
        self.entries[at].is_to_meet = false;
        Ok(())
    }

    /// Publishes a file if the cluster lacks it, while this instance holds the lease.
    fn give(&mut self, merge: Merge, file: &str) -> Result<(), ShareError> {
        if merge == Merge::OursIsToBeShared {
            self.take_turn()?;
            self.files.give(file).map_err(failed)?;
        }
        Ok(())
    }

    /// Ends the round and releases the lease. An obstacle that lasts for more than a round is logged once.
    pub(super) fn end_turn(&mut self) {
        self.turn = None;
        if self.sharing.is_none() {
            return;
        }
        match &self.waits {
            Some(ShareError::Failed(why)) => {
                self.rounds_failed = self.rounds_failed.saturating_add(1);
                if self.rounds_failed == 2 {
                    tracing::warn!(
                        "cannot share certificates with other instances: {why}; no certificates are ordered until this works"
                    );
                }
            }
            Some(ShareError::Busy) | None => self.rounds_failed = 0,
        }
        self.publish_statuses();
    }
}

fn failed(error: FilesError) -> ShareError {
    match error {
        FilesError::NotShared { why, .. } => why,
        other => ShareError::Failed(other.to_string()),
    }
}

/// Merge rule: the cluster's version always wins.
fn is_theirs(_: &[u8], _: &[u8]) -> bool {
    true
}

/// Merge rule for certificates: the cluster's version wins unless the validity of the local one begins later.
fn begins_later(theirs: &[u8], ours: &[u8]) -> bool {
    let begins = |pem: &[u8]| Certificate::from_pem(pem).ok().map(|certificate| certificate.from_s);
    begins(theirs).is_some_and(|theirs| begins(ours).is_none_or(|ours| theirs >= ours))
}
