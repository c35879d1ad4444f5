//! Search over the stored mail.
//!
//! ```text
//!  text ─▶ Query ─▶ walk: summaries newest first, in batches ─┬▶ terms that the summary answers (from, subject, dates)
//!                                                            └▶ only then the mail itself (to, body, attachments)
//! ```
//! There is no index of words: one would cost more memory than the index of inboxes has (100 bytes a mail), for mail
//! that lives a day. A search walks instead, and is bounded by mails looked at, mails opened, bytes read and time; where it
//! stopped, it hands out a [`Cursor`] to go on from. What people search, their own inbox, is a few hundred mails.

mod fold;
mod query;

use std::{sync::Arc, time::Duration};

use crate::{
    mailboxes::{Mail, MailId, Mailboxes, Scope, Summary, Unavailable},
    render::{Prepared, Reading, fields},
};

pub use self::fold::fold;
pub(crate) use self::query::date_ms;
pub use self::query::{Query, QueryFault, Term};

/// Summaries that one search looks at.
pub const LOOKED_AT_MAX: usize = 20_000;
/// Mails that one search opens.
pub const OPENED_MAX: usize = 2_000;
/// Bytes of mails that one search opens.
pub const OPENED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Processor time for the mails that one search opens.
pub const OPENED_TIME_MAX: Duration = Duration::from_secs(5);
/// Mails that are opened together, so that each need not wake a thread.
const BUNCH_MAX: usize = 32;
/// Bytes of mails that are opened together, but for the last of them.
const BUNCH_BYTES_MAX: u64 = 1024 * 1024;
/// Summaries asked for at once.
const BATCH: usize = 200;
/// Mails that may have come or gone between two pages of one search before its cursor loses its place.
const SHIFT_MAX: usize = 1_000;

/// Where to go on. Mails that came meanwhile move it down, so it knows the last mail looked at as well as its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    skip: usize,
    after: MailId,
}

/// `place-name`.
impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.skip, self.after)
    }
}

impl std::str::FromStr for Cursor {
    type Err = QueryFault;

    fn from_str(text: &str) -> Result<Self, QueryFault> {
        let fault = || QueryFault::Cursor(text.chars().take(40).collect());
        let (skip, after) = text.split_once('-').ok_or_else(fault)?;
        Ok(Self { skip: skip.parse().map_err(|_| fault())?, after: after.parse().map_err(|_| fault())? })
    }
}

/// What a search found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Newest first.
    pub mails: Vec<Arc<Summary>>,
    /// Summaries looked at.
    pub looked_at: usize,
    /// There may be more from here on; nothing when all was seen.
    pub next: Option<Cursor>,
    /// It stopped at a bound, not because it had found enough.
    pub bounded: bool,
}

/// What is known of a mail beside its bytes (Mailpit's marks).
pub trait Marks {
    /// Somebody opened it.
    fn is_read(&self, id: MailId) -> bool;
    /// It carries this tag.
    fn has_tag(&self, id: MailId, tag: &str) -> bool;
    /// It carries any tag.
    fn is_tagged(&self, id: MailId) -> bool;
}

/// Where mails are opened for a search: with what memory and on whose thread is its business.
pub trait Desk: Sync {
    /// What may go wrong there.
    type Fault: From<Unavailable>;

    /// Opens these mails, as the scope shows them, and asks each; one that is gone does not match.
    fn judge(
        &self,
        scope: &Scope,
        query: &Query,
        mails: Vec<MailId>,
    ) -> impl Future<Output = Result<Judged, Self::Fault>> + Send;
}

/// What was found in mails that were opened together.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    /// In the order in which they were asked for.
    pub matches: Vec<bool>,
    /// Processor time.
    pub took: Duration,
}

/// Walks until `limit` mails are found or a bound is met.
///
/// # Errors
/// The store cannot be read, or what the desk says.
pub async fn search<M: Mailboxes, D: Desk>(
    (mailboxes, desk): (&M, &D),
    scope: &Scope,
    query: &Query,
    marks: &(impl Marks + Sync),
    from: Option<Cursor>,
    limit: usize,
) -> Result<Found, D::Fault> {
    let mut found = Found::default();
    let mut skip = from.map_or(0, |cursor| cursor.skip);
    let mut resume = from;
    let mut opened = Opened::default();
    // What is wanted is often the first: that one is opened by itself.
    let mut bunch_max = 1;
    loop {
        let batch = mailboxes.list(scope, skip, BATCH).await?;
        if batch.is_empty() {
            // Everything behind the cursor is gone.
            return Ok(found);
        }
        let mut start = 0;
        if let Some(cursor) = resume {
            match batch.iter().position(|summary| summary.id == cursor.after) {
                Some(place) => (start, resume) = (place + 1, None),
                None if skip + batch.len() < cursor.skip + SHIFT_MAX && batch.len() == BATCH => {
                    skip += batch.len();
                    continue;
                }
                // The mail was deleted: its place is the next best.
                None => {
                    resume = None;
                    if skip != cursor.skip {
                        skip = cursor.skip;
                        continue;
                    }
                }
            }
        }
        while start < batch.len() {
            let stretch = stretch(&batch[start..], query, marks, (&found, &opened), bunch_max);
            bunch_max = (bunch_max * 2).min(BUNCH_MAX);
            let open = stretch.iter().zip(&batch[start..]).filter(|(verdict, _)| **verdict == Verdict::Open);
            let open: Vec<MailId> = open.map(|(_, summary)| summary.id).collect();
            let judged =
                if open.is_empty() { Judged::default() } else { desk.judge(scope, query, open).await? };
            opened.time += judged.took;
            let mut judged = judged.matches.into_iter();
            for verdict in stretch {
                let summary = &batch[start];
                found.looked_at += 1;
                let matched = match verdict {
                    Verdict::No => false,
                    Verdict::Yes => true,
                    Verdict::Open => {
                        opened.mails += 1;
                        opened.bytes += summary.size_bytes;
                        judged.next().unwrap_or_default()
                    }
                };
                if matched {
                    found.mails.push(Arc::clone(summary));
                }
                let bounded = opened.is_enough(found.looked_at);
                if found.mails.len() >= limit || bounded {
                    found.bounded = found.mails.len() < limit;
                    found.next = Some(Cursor { skip: skip + start, after: summary.id });
                    return Ok(found);
                }
                start += 1;
            }
        }
        if batch.len() < BATCH {
            return Ok(found);
        }
        skip += batch.len();
        // A walk over a long list lets others have the thread.
        tokio::task::yield_now().await;
    }
}

/// What a search has opened.
#[derive(Debug, Clone, Copy, Default)]
struct Opened {
    mails: usize,
    bytes: u64,
    time: Duration,
}

impl Opened {
    fn is_enough(&self, looked_at: usize) -> bool {
        looked_at >= LOOKED_AT_MAX
            || self.mails >= OPENED_MAX
            || self.bytes >= OPENED_BYTES_MAX
            || self.time >= OPENED_TIME_MAX
    }
}

/// What summaries say, as far as no more mails are to be opened than go together.
fn stretch(
    batch: &[Arc<Summary>],
    query: &Query,
    marks: &impl Marks,
    (found, opened): (&Found, &Opened),
    bunch_max: usize,
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut after = *opened;
    for summary in batch {
        let verdict = query.judge(summary, marks);
        verdicts.push(verdict);
        if verdict == Verdict::Open {
            after.mails += 1;
            after.bytes += summary.size_bytes;
        }
        let together =
            after.mails - opened.mails >= bunch_max || after.bytes - opened.bytes >= BUNCH_BYTES_MAX;
        if together || after.is_enough(found.looked_at + verdicts.len()) {
            break;
        }
    }
    verdicts
}

/// What a summary says about a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does not match.
    No,
    /// It matches.
    Yes,
    /// The mail itself must be asked.
    Open,
}

impl Query {
    /// What can be said without opening the mail.
    pub fn judge(&self, summary: &Summary, marks: &impl Marks) -> Verdict {
        let mut verdict = Verdict::Yes;
        let mut decoded: Option<(String, String)> = None;
        for (term, negated) in self.terms() {
            let (from, subject) = decoded.get_or_insert_with(|| {
                let from = format!("{} {}", fields::decode(&summary.from), summary.envelope_from);
                (fold(&from), fold(&fields::decode(&summary.subject)))
            });
            let holds = match term {
                Term::From(word) => from.contains(word),
                Term::Subject(word) => subject.contains(word),
                // Found here, it need not be looked for in the body.
                Term::Word(word) if from.contains(word) || subject.contains(word) => true,
                Term::Before(ms) => summary.arrived_ms < *ms,
                Term::After(ms) => summary.arrived_ms >= *ms,
                Term::Larger(bytes) => summary.size_bytes > *bytes,
                Term::Smaller(bytes) => summary.size_bytes < *bytes,
                Term::Read => marks.is_read(summary.id),
                Term::Tagged => marks.is_tagged(summary.id),
                Term::Tag(tag) => marks.has_tag(summary.id, tag),
                Term::Word(_) | Term::To(_) | Term::Cc(_) | Term::MessageId(_) | Term::HasAttachment => {
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

    /// Whether the mail holds the terms that only it can answer.
    #[must_use]
    pub fn matches_mail(&self, mail: &Mail) -> bool {
        let prepared = Prepared::new(&mail.raw);
        let reading = prepared.read();
        let mut text: Option<String> = None;
        self.terms().all(|(term, negated)| {
            let holds = match term {
                Term::Word(word) => {
                    let text = text.get_or_insert_with(|| whole_text(mail, &reading));
                    text.contains(word)
                }
                Term::To(word) => {
                    mail.recipients.iter().any(|recipient| fold(recipient).contains(word))
                        || addresses_contain(&reading, mail_parser::HeaderName::To, word)
                }
                Term::Cc(word) => addresses_contain(&reading, mail_parser::HeaderName::Cc, word),
                Term::MessageId(word) => fold(&reading.message_id()).contains(word),
                Term::HasAttachment => reading.attachments().iter().any(|attachment| !attachment.inline),
                // The summary has answered these.
                _ => return true,
            };
            holds != negated
        })
    }
}

fn addresses_contain(reading: &Reading<'_>, field: mail_parser::HeaderName<'static>, word: &str) -> bool {
    reading.addresses(field).iter().any(|address| fold(&address.to_string()).contains(word))
}

/// All that a word is looked for in.
fn whole_text(mail: &Mail, reading: &Reading<'_>) -> String {
    let mut text = format!(
        "{}\n{}\n{}\n",
        fields::decode(&mail.summary.from),
        reading.subject(),
        mail.recipients.join(" ")
    );
    text.push_str(&reading.text().0);
    for attachment in reading.attachments() {
        text.push('\n');
        text.push_str(&attachment.filename);
    }
    for (name, value) in reading.headers() {
        text.push('\n');
        text.push_str(&name);
        text.push_str(": ");
        text.push_str(&value);
    }
    for target in reading.link_targets() {
        text.push('\n');
        text.push_str(&target);
    }
    fold(&text)
}

#[cfg(test)]
mod tests;
