//! The list of mails, newest first, shown next to the open mail.

use std::{borrow::Cow, sync::Arc};

use askama::Template;
use engine::cores::clock;

use crate::web::{
    flags::RowFlags,
    previews::preview_cache::Preview,
    serve::{app::App, client::Client, fault::Fault, scope::segment},
    when::{self, ShortText},
};
use crate::{
    mailbox::mailboxes::{MailId, Mailboxes, Scope, Summary},
    render::fields::{self, Address},
    search::FlagLookup as _,
};

/// Maximum number of mails on one page.
pub(super) const ROWS_MAX: usize = 100;
/// Approximate size of a row in HTML, used to preallocate the page.
pub(super) const ROW_BYTES: usize = 1024;
/// Maximum number of mails that paging skips; older mails are found by searching.
const SKIP_MAX: usize = 100_000;

/// HTML of one row of the list.
#[derive(Template)]
#[template(path = "row.html")]
pub(super) struct RowPage<'a> {
    pub(super) row: Row<'a>,
}

/// A row of the list. The row borrows from the summary, as a page has a hundred of them.
pub(super) struct Row<'a> {
    pub(super) id: MailId,
    /// Path of the list.
    pub(super) base: &'a str,
    pub(super) iso: ShortText,
    pub(super) exact: ShortText,
    pub(super) relative: ShortText,
    pub(super) sender: Address<'a>,
    /// Text shown in place of a missing sender name.
    pub(super) nobody: Cow<'a, str>,
    pub(super) subject: Cow<'a, str>,
    pub(super) size: ShortText,
    /// Inbox of the mail, if the list covers more than one inbox.
    pub(super) inbox: Option<String>,
    pub(super) is_read: bool,
    pub(super) tags: Vec<String>,
    gist: Option<Arc<Preview>>,
    /// True for the mail that is open next to the list.
    pub(super) is_open: bool,
}

/// Data about a mail that its summary does not contain.
pub(super) struct RowExtras {
    pub(super) flags: RowFlags,
    /// Preview of the mail, if it is cached.
    pub(super) gist: Option<Arc<Preview>>,
}

impl<'a> Row<'a> {
    /// Builds a row. `base` is the path of the list; `wide` is true if it covers more than one inbox.
    pub(super) fn new(
        summary: &'a Summary,
        noted: RowExtras,
        base: &'a str,
        wide: bool,
        now_ms: u64,
    ) -> Self {
        let sender = fields::decode_address(&summary.from);
        let nobody = match (sender.label(), &*summary.envelope_from) {
            ("", "") => "(no sender)".into(),
            ("", envelope_from) => fields::printable(envelope_from),
            _ => "".into(),
        };
        let subject = fields::decode(&summary.subject);
        Self {
            id: summary.id,
            base,
            iso: when::iso(summary.arrived_ms),
            exact: when::exact(summary.arrived_ms),
            relative: when::relative(summary.arrived_ms, now_ms),
            sender,
            nobody,
            subject: if subject.is_empty() { "(no subject)".into() } else { subject },
            size: when::size(summary.size_bytes),
            inbox: wide.then(|| summary.inbox.to_string()),
            is_read: noted.flags.is_read,
            tags: noted.flags.tags,
            gist: noted.gist,
            is_open: false,
        }
    }

    /// Returns the beginning of the mail's text.
    pub(super) fn snippet(&self) -> &str {
        self.gist.as_ref().map_or("", |gist| &gist.snippet)
    }

    pub(super) fn attachments(&self) -> usize {
        self.gist.as_ref().map_or(0, |gist| gist.attachments)
    }

    pub(super) fn from(&self) -> &str {
        match self.sender.label() {
            "" => &self.nobody,
            label => label,
        }
    }
}

/// Returns the display name of a list.
pub(super) fn name_of(scope: &Scope) -> String {
    match scope {
        Scope::All => "All mail".to_owned(),
        scope => scope.name(),
    }
}

/// Returns the path of the page of one or more inboxes.
pub(super) fn path_of(address: &str) -> String {
    format!("/inbox/{}", segment(address))
}

/// A loaded page of a list.
pub(super) struct ListPage {
    pub(super) address: String,
    /// Display name of the list.
    pub(super) name: String,
    pub(super) base: String,
    pub(super) wide: bool,
    /// The page's mails, with one more on either side: the neighbours of its first and last mail.
    window: Vec<Arc<Summary>>,
    skip: usize,
    pub(super) count: u64,
    pub(super) unread: u64,
}

impl ListPage {
    /// Loads a page, without mails that are being deleted.
    pub(super) async fn load<M: Mailboxes>(
        app: &App<M>,
        client: Client,
        scope: &Scope,
        skip: usize,
    ) -> Result<Self, Fault> {
        let skip = skip.min(SKIP_MAX);
        let from = skip.saturating_sub(1);
        let mut window = app.mailboxes.list(scope, from, skip - from + ROWS_MAX + 1).await?;
        window.retain(|summary| !app.leaving.has(scope, summary.id));
        // The preview of each mail is computed once and cached for later readers.
        for summary in &window {
            match app.gist(client, summary).await {
                // A large mail for which there is no room now is listed without its preview.
                Ok(_) | Err(Fault::NoRoom | Fault::Busy(_) | Fault::TooMany(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        let whole = skip == 0 && window.len() <= ROWS_MAX;
        let count = if whole {
            window.len() as u64
        } else {
            app.mailboxes.count(scope).await?.saturating_sub(app.leaving.count(scope))
        };
        let read = if whole {
            window.iter().filter(|summary| app.marks.is_read(summary.id)).count() as u64
        } else {
            app.marks.read_count(scope)
        };
        let address = scope.name();
        Ok(Self {
            base: path_of(&address),
            name: name_of(scope),
            address,
            wide: scope.is_wide(),
            window,
            skip,
            count,
            unread: count.saturating_sub(read),
        })
    }

    fn before(&self) -> usize {
        usize::from(self.skip > 0).min(self.window.len())
    }

    /// Returns the path of the page that begins at `skip`.
    fn page(&self, skip: usize) -> String {
        if skip == 0 { self.base.clone() } else { format!("{}?skip={skip}", self.base) }
    }

    /// Returns the list as a page shows it.
    pub(super) fn board<M: Mailboxes>(&self, app: &App<M>, open: Option<MailId>) -> Board<'_> {
        let now_ms = clock::unix_ms();
        let shown = self.window.iter().skip(self.before()).take(ROWS_MAX);
        let rows: Vec<Row<'_>> = shown
            .map(|summary| {
                let noted = app.beside(summary);
                let row = Row::new(summary, noted, &self.base, self.wide, now_ms);
                Row { is_open: open == Some(row.id), ..row }
            })
            .collect();
        let more = self.window.len() > self.before() + ROWS_MAX;
        Board {
            listed: self,
            newest: (self.skip == 0).then(|| rows.first().map(|row| row.id.to_string()).unwrap_or_default()),
            newer: (self.skip > 0).then(|| self.page(self.skip.saturating_sub(ROWS_MAX))),
            older: more.then(|| self.page(self.skip + ROWS_MAX)),
            is_open: open.is_some(),
            rows,
        }
    }

    /// Returns the mails above and below a mail, if it is in the window.
    pub(super) fn beside(&self, id: MailId) -> (Option<MailId>, Option<MailId>) {
        let Some(place) = self.window.iter().position(|summary| summary.id == id) else {
            return (None, None);
        };
        let at =
            |place: Option<usize>| place.and_then(|place| self.window.get(place)).map(|summary| summary.id);
        (at(place.checked_sub(1)), at(place.checked_add(1)))
    }

    /// Returns the page's position as a query, so that a mail is opened next to the list page that contains
    /// it.
    pub(super) fn query(&self) -> String {
        if self.skip == 0 { String::new() } else { format!("?skip={}", self.skip) }
    }
}

/// A list as a page shows it.
pub(super) struct Board<'a> {
    pub(super) listed: &'a ListPage,
    pub(super) rows: Vec<Row<'a>>,
    /// Newest mail that the page shows; `None` on pages of older mails, which have no live updates.
    pub(super) newest: Option<String>,
    pub(super) newer: Option<String>,
    pub(super) older: Option<String>,
    /// True if a mail is open next to the list.
    pub(super) is_open: bool,
}

impl<M: Mailboxes> App<M> {
    /// Returns the data about a mail that its summary does not contain, without reading the mail.
    pub(super) fn beside(&self, of: &Arc<Summary>) -> RowExtras {
        let flags = self.marks.of(of.id);
        let gist = self.gists.of(of.letter);
        RowExtras { flags, gist }
    }
}
