//! Search over the stored mail.
//!
//! ```text
//!  text ─▶ Query ─▶ walk: summaries newest first, in batches ─┬▶ terms that the summary answers (from, subject, dates)
//!                                                            └▶ only then the mail itself (to, body, attachments)
//! ```
//! In a store of many mails an index names the candidates ([`SearchBackend::candidates`]), and only these are
//! examined. Most searches cover only one inbox with a few hundred mails, and walk these. Both are bounded by
//! mails examined, mails opened, bytes read and time; a search that stops at a bound returns a [`Cursor`] to
//! continue from.

mod cursor;
mod fold;
pub(crate) mod index;
mod mail_key;
mod query;

use std::{sync::Arc, time::Duration};

use self::fold::{fold_into, push_folded};
use crate::{
    mailbox::mailboxes::{Mail, MailId, Mailboxes, Scope, Summary, Unavailable},
    render::{DecodedMail, PARSED_BYTES_MAX, ParsedMail, StepLimit, StepLimitReached, fields},
};

pub use self::fold::fold;
pub(crate) use self::query::date_ms;
pub use self::query::{Query, QueryFault, Term};
pub use cursor::Cursor;
use cursor::CursorPosition;
pub use mail_key::MailKey;

/// Maximum number of summaries that one search examines.
pub const LOOKED_AT_MAX: usize = 20_000;
/// Maximum number of mails that one search opens.
pub const OPENED_MAX: usize = 2_000;
/// Maximum total size of the mails that one search opens, in bytes.
pub const OPENED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum processor time for the mails that one search opens.
pub const OPENED_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum number of bytes of a mail's folded text that are searched. The text consists of the displayed
/// text, the head and the links.
pub const SEARCHED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of mails opened together, so that a thread need not be woken for each mail.
const BUNCH_MAX: usize = 32;
/// Maximum total size of mails opened together, in bytes, not counting the last of them.
const BUNCH_BYTES_MAX: u64 = 1024 * 1024;
/// Summaries requested at a time.
const BATCH: usize = 200;
/// A cursor loses its position after this many arrivals and deletions between two pages of a search.
const SHIFT_MAX: usize = 1_000;

/// Result of a search.
#[derive(Debug, Clone, Default)]
pub struct SearchOutcome {
    /// Mails found, newest first.
    pub mails: Vec<Arc<Summary>>,
    /// Number of summaries examined.
    pub looked_at: usize,
    /// Cursor to continue from; `None` if all mails were examined.
    pub next: Option<Cursor>,
    /// True if the search stopped at a bound, not because it had found enough.
    pub bounded: bool,
}

/// Lookup of the flags and tags of mails (as in Mailpit), which are stored separately from the mails.
pub trait FlagLookup {
    /// Returns whether a reader has opened the mail.
    fn is_read(&self, id: MailId) -> bool;
    /// Returns whether the mail has this tag.
    fn has_tag(&self, id: MailId, tag: &str) -> bool;
    /// Returns whether the mail has any tag.
    fn is_tagged(&self, id: MailId) -> bool;
}

/// Mails that may match, newest first. A mail that is newer than the last candidate and not among the
/// candidates does not match.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    /// The candidates.
    pub mails: Vec<MailKey>,
    /// True if there are more candidates after the last.
    pub is_more: bool,
}

/// Backend that opens mails for a search. The backend manages its own memory and threads.
pub trait SearchBackend: Sync {
    /// Error of the backend.
    type Fault: From<Unavailable>;

    /// Returns the candidates that an index names, after the mail `after` if that is given; `None` if there is
    /// no index that can answer.
    fn candidates(
        &self,
        scope: &Scope,
        query: &Query,
        after: Option<MailKey>,
    ) -> impl Future<Output = Result<Option<Candidates>, Self::Fault>> + Send {
        let _ = (scope, query, after);
        async { Ok(None) }
    }

    /// Opens the given mails as the scope shows them, and matches each. A mail that no longer exists does not
    /// match.
    fn judge(
        &self,
        scope: &Scope,
        query: &Query,
        mails: Vec<MailId>,
    ) -> impl Future<Output = Result<MatchReport, Self::Fault>> + Send;
}

/// Result of matching mails that were opened together.
#[derive(Debug, Clone, Default)]
pub struct MatchReport {
    /// One result for each mail, in the order requested.
    pub matches: Vec<bool>,
    /// Processor time taken.
    pub took: Duration,
    /// True if at least one mail took too long and was not searched to its end.
    pub is_cut: bool,
}

/// Searches until `limit` mails are found or a bound is reached. The search examines the candidates of an
/// index if the backend has an index that can answer, and otherwise one mail after the other.
///
/// # Errors
/// Returns the backend's error; it includes [`Unavailable`] if the store cannot be read.
pub async fn search<M: Mailboxes, D: SearchBackend>(
    mailboxes: &M,
    desk: &D,
    scope: &Scope,
    query: &Query,
    marks: &(impl FlagLookup + Sync),
    from: Option<Cursor>,
    limit: usize,
) -> Result<SearchOutcome, D::Fault> {
    let looking = SearchRun {
        desk,
        scope,
        query,
        marks,
        limit,
        found: SearchOutcome::default(),
        opened: SearchCost::default(),
        bunch_max: 1,
    };
    let behind = match from {
        Some(Cursor { place: CursorPosition::InList(skip), after }) => {
            return looking.walk(mailboxes, skip, Some(after)).await;
        }
        Some(Cursor { place: CursorPosition::Arrived(arrived_ms), after }) => {
            Some(MailKey { arrived_ms, id: after })
        }
        None => None,
    };
    match (desk.candidates(scope, query, behind).await?, behind) {
        (Some(candidates), _) => looking.scan_candidates(mailboxes, candidates).await,
        (None, None) => looking.walk(mailboxes, 0, None).await,
        // The index answered for earlier pages but no longer can.
        (None, Some(behind)) => looking.walk_from_position(mailboxes, behind).await,
    }
}

/// A running search.
struct SearchRun<'a, D, K> {
    desk: &'a D,
    scope: &'a Scope,
    query: &'a Query,
    marks: &'a K,
    limit: usize,
    found: SearchOutcome,
    opened: SearchCost,
    /// Number of mails opened together next. It starts at one, as the first mail is often the wanted one.
    bunch_max: usize,
}

impl<D: SearchBackend, K: FlagLookup + Sync> SearchRun<'_, D, K> {
    /// Walks over the list from an index on, and starts after mail `after`.
    async fn walk<M: Mailboxes>(
        mut self,
        mailboxes: &M,
        from: usize,
        mut after: Option<MailId>,
    ) -> Result<SearchOutcome, D::Fault> {
        let mut skip = from;
        loop {
            let batch = mailboxes.list(self.scope, skip, BATCH).await?;
            if batch.is_empty() {
                // All mails after the cursor have been deleted.
                return Ok(self.found);
            }
            let mut start = 0;
            if let Some(last) = after {
                match batch.iter().position(|summary| summary.id == last) {
                    Some(place) => (start, after) = (place + 1, None),
                    None if skip + batch.len() < from + SHIFT_MAX && batch.len() == BATCH => {
                        skip += batch.len();
                        continue;
                    }
                    // The cursor's mail was deleted, so the search continues at the mail's old index.
                    None => {
                        after = None;
                        if skip != from {
                            skip = from;
                            continue;
                        }
                    }
                }
            }
            if let Some(at) = self.scan_batch(&batch[start..]).await? {
                let (at, last) = (start + at, &batch[start + at]);
                self.found.next = Some(Cursor { place: CursorPosition::InList(skip + at), after: last.id });
                return Ok(self.found);
            }
            if batch.len() < BATCH {
                return Ok(self.found);
            }
            skip += batch.len();
            // A walk over a long list yields the thread to other tasks.
            tokio::task::yield_now().await;
        }
    }

    /// Walks over the list after a mail whose index is unknown, if the mail is among the first
    /// [`LOOKED_AT_MAX`].
    async fn walk_from_position<M: Mailboxes>(
        mut self,
        mailboxes: &M,
        behind: MailKey,
    ) -> Result<SearchOutcome, D::Fault> {
        let mut skip = 0;
        while skip < LOOKED_AT_MAX {
            let batch = mailboxes.list(self.scope, skip, BATCH).await?;
            let newer = batch.iter().take_while(|summary| MailKey::of(summary) >= behind).count();
            if newer < batch.len() {
                return self.walk(mailboxes, skip + newer, None).await;
            }
            if batch.len() < BATCH {
                return Ok(self.found);
            }
            skip += batch.len();
        }
        self.found.bounded = true;
        Ok(self.found)
    }

    /// Searches the candidates of an index.
    async fn scan_candidates<M: Mailboxes>(
        mut self,
        mailboxes: &M,
        Candidates { mails, is_more }: Candidates,
    ) -> Result<SearchOutcome, D::Fault> {
        let mut last = None;
        for some in mails.chunks(BATCH) {
            let mut ids: Vec<MailId> = Vec::with_capacity(some.len());
            for MailKey { id: letter, .. } in some {
                match self.scope {
                    Scope::All => ids.push(*letter),
                    // The mail has another ID in each inbox.
                    _ => ids.extend(mailboxes.names_of(*letter).await?),
                }
            }
            let mut batch = mailboxes.find(self.scope, &ids).await?;
            batch.sort_unstable_by_key(|summary| std::cmp::Reverse((MailKey::of(summary), summary.id)));
            if let Some(at) = self.scan_batch(&batch).await? {
                let last = &batch[at];
                let next = Cursor { place: CursorPosition::Arrived(last.arrived_ms), after: last.letter };
                // The next page continues after this mail, so its entries in other inboxes are examined now.
                let same = batch[at + 1..].iter().take_while(|of| of.letter == last.letter).count();
                for other in at + 1..=at + same {
                    self.scan_batch(&batch[other..=other]).await?;
                }
                self.found.next = Some(next);
                return Ok(self.found);
            }
            last = some.last();
            tokio::task::yield_now().await;
        }
        if let Some(last) = last.filter(|_| is_more) {
            self.found.bounded = true;
            self.found.next =
                Some(Cursor { place: CursorPosition::Arrived(last.arrived_ms), after: last.id });
        }
        Ok(self.found)
    }

    /// Examines these summaries. Returns the index at which enough mails were found or a bound was reached,
    /// if any.
    async fn scan_batch(&mut self, batch: &[Arc<Summary>]) -> Result<Option<usize>, D::Fault> {
        let mut start = 0;
        while start < batch.len() {
            let stretch = self.scan_summaries(&batch[start..]);
            self.bunch_max = (self.bunch_max * 2).min(BUNCH_MAX);
            let open = stretch.iter().zip(&batch[start..]).filter(|(verdict, _)| **verdict == Verdict::Open);
            let open: Vec<MailId> = open.map(|(_, summary)| summary.id).collect();
            let judged = match open.is_empty() {
                true => MatchReport::default(),
                false => self.desk.judge(self.scope, self.query, open).await?,
            };
            self.opened.time += judged.took;
            self.found.bounded |= judged.is_cut;
            let mut judged = judged.matches.into_iter();
            for verdict in stretch {
                let summary = &batch[start];
                self.found.looked_at += 1;
                let matched = match verdict {
                    Verdict::No => false,
                    Verdict::Yes => true,
                    Verdict::Open => {
                        self.opened.mails += 1;
                        self.opened.bytes += bytes_opened(summary);
                        judged.next().unwrap_or_default()
                    }
                };
                if matched {
                    self.found.mails.push(Arc::clone(summary));
                }
                let bounded = self.opened.is_enough(self.found.looked_at);
                if self.found.mails.len() >= self.limit || bounded {
                    self.found.bounded |= self.found.mails.len() < self.limit;
                    return Ok(Some(start));
                }
                start += 1;
            }
        }
        Ok(None)
    }

    /// Judges summaries until the mails that must be opened fill a bunch.
    fn scan_summaries(&self, batch: &[Arc<Summary>]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let mut after = self.opened;
        for summary in batch {
            let verdict = self.query.judge(summary, self.marks);
            verdicts.push(verdict);
            if verdict == Verdict::Open {
                after.mails += 1;
                after.bytes += bytes_opened(summary);
            }
            let together = after.mails - self.opened.mails >= self.bunch_max
                || after.bytes - self.opened.bytes >= BUNCH_BYTES_MAX;
            if together || after.is_enough(self.found.looked_at + verdicts.len()) {
                break;
            }
        }
        verdicts
    }
}

/// Totals of the mails that a search has opened.
#[derive(Debug, Clone, Copy, Default)]
struct SearchCost {
    mails: usize,
    bytes: u64,
    time: Duration,
}

impl SearchCost {
    fn is_enough(&self, looked_at: usize) -> bool {
        looked_at >= LOOKED_AT_MAX
            || self.mails >= OPENED_MAX
            || self.bytes >= OPENED_BYTES_MAX
            || self.time >= OPENED_TIME_MAX
    }
}

/// Returns the bytes of a mail that are read when it is opened.
fn bytes_opened(summary: &Summary) -> u64 {
    summary.size_bytes.min(PARSED_BYTES_MAX as u64)
}

/// Verdict of a query on a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The mail does not match.
    No,
    /// The mail matches.
    Yes,
    /// The mail itself must be opened.
    Open,
}

impl Query {
    /// Judges a mail as far as that is possible without opening it.
    pub fn judge(&self, summary: &Summary, marks: &impl FlagLookup) -> Verdict {
        let mut verdict = Verdict::Yes;
        let mut decoded: Option<(String, String)> = None;
        for (term, negated) in self.terms() {
            let (from, subject) = decoded.get_or_insert_with(|| {
                (fold(&sender_text(summary)), fold(&fields::decode(&summary.subject)))
            });
            let holds = match term {
                Term::From(word) => from.contains(word),
                Term::Subject(word) => subject.contains(word),
                // A word found here need not be looked for in the body.
                Term::Word(word) if from.contains(word) || subject.contains(word) => true,
                Term::Before(ms) => summary.arrived_ms < *ms,
                Term::After(ms) => summary.arrived_ms >= *ms,
                Term::Larger(bytes) => summary.size_bytes > *bytes,
                Term::Smaller(bytes) => summary.size_bytes < *bytes,
                Term::Read => marks.is_read(summary.id),
                Term::Tagged => marks.is_tagged(summary.id),
                Term::Tag(tag) => marks.has_tag(summary.id, tag),
                Term::Word(_)
                | Term::To(_)
                | Term::Cc(_)
                | Term::Bcc(_)
                | Term::MessageId(_)
                | Term::HasAttachment
                | Term::HasInline => {
                    verdict = Verdict::Open;
                    continue;
                }
            };
            if holds == negated {
                return Verdict::No;
            }
        }
        verdict
    }

    /// Returns the folded words that are all contained in the text ([`text_of`]) of any matching mail.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.terms().filter(|(_, negated)| !negated).filter_map(|(term, _)| match term {
            Term::Word(word)
            | Term::From(word)
            | Term::To(word)
            | Term::Cc(word)
            | Term::Bcc(word)
            | Term::Subject(word)
            | Term::MessageId(word) => Some(&**word),
            _ => None,
        })
    }

    /// Returns whether the mail satisfies the terms that need its content. A mail that takes too long does
    /// not match.
    #[must_use]
    pub fn matches_mail(&self, mail: &Mail, until: &StepLimit) -> bool {
        let prepared = ParsedMail::within(&mail.raw, until);
        let reading = prepared.read();
        let mut text: Option<String> = None;
        let matches = self.terms().all(|(term, negated)| {
            let holds = match term {
                Term::Word(word) => {
                    let text = text.get_or_insert_with(|| whole_text(mail, &reading, until));
                    until.pay(text.len()).is_ok() && text.contains(word)
                }
                Term::To(word) => {
                    mail.recipients
                        .iter()
                        .any(|said| fold(said).contains(word) || unquoted(said).contains(word))
                        || addresses_contain(&reading, mail_parser::HeaderName::To, word)
                }
                Term::Cc(word) => addresses_contain(&reading, mail_parser::HeaderName::Cc, word),
                Term::MessageId(word) => fold(&reading.message_id()).contains(word),
                Term::HasAttachment => reading.attachments().iter().any(|attachment| attachment.attached),
                Term::HasInline => reading.attachments().iter().any(|attachment| attachment.inline),
                Term::Bcc(word) => is_bcc(mail, &reading, word),
                // The summary has already answered the other terms.
                _ => return true,
            };
            holds != negated
        });
        matches && !until.has_ended()
    }
}

fn addresses_contain(reading: &DecodedMail<'_>, field: mail_parser::HeaderName<'static>, word: &str) -> bool {
    reading.addresses(field).iter().any(|address| fold(&address.to_string()).contains(word))
}

/// Returns a recipient without the quotes of RFC 5321, 4.1.2, which do not change its meaning: `"ann"@a.test`
/// is `ann@a.test`.
fn unquoted(said: &str) -> String {
    fold(said).replace(['"', '\\'], "")
}

/// Returns whether a recipient that contains `word` is named in Bcc, or in no field of the head.
fn is_bcc(mail: &Mail, reading: &DecodedMail<'_>, word: &str) -> bool {
    let is_named = |said: &str| {
        [mail_parser::HeaderName::To, mail_parser::HeaderName::Cc]
            .into_iter()
            .flat_map(|field| reading.addresses(field))
            .any(|named| named.address.eq_ignore_ascii_case(said))
    };
    addresses_contain(reading, mail_parser::HeaderName::Bcc, word)
        || mail.recipients.iter().any(|said| fold(said).contains(word) && !is_named(said))
}

/// Returns all folded text that any term searches in, for a mail as seen across all inboxes.
pub(crate) fn text_of(mail: &Mail) -> String {
    let until = StepLimit::default();
    let prepared = ParsedMail::within(&mail.raw, &until);
    let reading = prepared.read();
    let mut text = whole_text(mail, &reading, &until);
    let summary = &mail.summary;
    let mut add = |more: &str| {
        text.push('\n');
        push_folded(more, &mut text);
    };
    add(&sender_text(summary));
    add(&fields::decode(&summary.subject));
    add(&reading.message_id());
    for field in [mail_parser::HeaderName::To, mail_parser::HeaderName::Cc, mail_parser::HeaderName::Bcc] {
        reading.addresses(field).iter().for_each(|address| add(&address.to_string()));
    }
    text
}

/// Returns the text that `from:` searches.
fn sender_text(summary: &Summary) -> String {
    format!("{} {}", fields::decode(&summary.from), summary.envelope_from)
}

/// Returns the folded text that words are searched in, about [`SEARCHED_BYTES_MAX`] at most, until `until` ends.
fn whole_text(mail: &Mail, reading: &DecodedMail<'_>, until: &StepLimit) -> String {
    let mut text = String::new();
    // The text written before the limit is returned.
    _ = write_whole_text(mail, reading, until, &mut text);
    text
}

fn write_whole_text(
    mail: &Mail,
    reading: &DecodedMail<'_>,
    until: &StepLimit,
    text: &mut String,
) -> Result<(), StepLimitReached> {
    let mut add = |more: &[&str]| {
        if text.len() < SEARCHED_BYTES_MAX {
            for piece in more {
                fold_into(piece, text, until)?;
            }
            text.push('\n');
        }
        Ok(())
    };
    add(&[&fields::decode(&mail.summary.from)])?;
    add(&[&reading.subject()])?;
    add(&[&mail.recipients.join(" ")])?;
    for said in mail.recipients.iter().filter(|said| said.contains('"')) {
        add(&[&unquoted(said)])?;
    }
    add(&[&reading.whole_text()])?;
    for attachment in reading.attachments() {
        add(&[&attachment.filename])?;
    }
    for (name, value) in reading.headers() {
        add(&[&name, ": ", &value])?;
    }
    for target in reading.link_targets() {
        add(&[&target])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
