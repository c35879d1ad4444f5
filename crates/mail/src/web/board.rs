//! The list of mails: the departure board beside the mail, newest on top.

use std::{borrow::Cow, sync::Arc};

use askama::Template;
use engine::cores::clock;

use crate::web::{
    previews::preview_cache::Preview,
    serve::{answer::Fault, app::App, client::Client, scope::segment},
    when::{self, ShortText},
};
use crate::{
    mailbox::mailboxes::{MailId, Mailboxes, Scope, Summary},
    render::fields::{self, Address},
    search::FlagLookup as _,
};

/// Mails on one page.
pub(super) const ROWS_MAX: usize = 100;
/// What a line has in HTML, give or take: the page is written into memory that need not grow.
pub(super) const ROW_BYTES: usize = 1024;
/// Pages back that are walked; older mails are found by searching.
const SKIP_MAX: usize = 100_000;

/// A line of the board.
#[derive(Template)]
#[template(path = "row.html")]
pub(super) struct RowPage<'a> {
    pub(super) row: Row<'a>,
}

/// It borrows what the summary says: a page has a hundred of them.
pub(super) struct Row<'a> {
    pub(super) id: MailId,
    /// Of the list that it is in.
    pub(super) base: &'a str,
    pub(super) iso: ShortText,
    pub(super) exact: ShortText,
    pub(super) relative: ShortText,
    pub(super) sender: Address<'a>,
    /// What is shown for a sender who says nothing of himself.
    pub(super) nobody: Cow<'a, str>,
    pub(super) subject: Cow<'a, str>,
    pub(super) size: ShortText,
    /// Where it lies, where a list is of more than one inbox.
    pub(super) inbox: Option<String>,
    pub(super) is_read: bool,
    pub(super) tags: Vec<String>,
    gist: Option<Arc<Preview>>,
    /// It is the one that is open beside the list.
    pub(super) is_open: bool,
}

/// What is known of a mail beside its summary.
#[derive(Default)]
pub(super) struct RowExtras {
    pub(super) is_read: bool,
    pub(super) tags: Vec<String>,
    /// What lists show of its content, if that is at hand.
    pub(super) gist: Option<Arc<Preview>>,
}

impl<'a> Row<'a> {
    /// `base`: the path of the list; `wide`: it is of more than one inbox.
    pub(super) fn new(
        summary: &'a Summary,
        noted: RowExtras,
        (base, wide): (&'a str, bool),
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
            is_read: noted.is_read,
            tags: noted.tags,
            gist: noted.gist,
            is_open: false,
        }
    }

    /// The beginning of its text.
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

/// What people call a list.
pub(super) fn name_of(scope: &Scope) -> String {
    match scope {
        Scope::All => "All mail".to_owned(),
        scope => scope.name(),
    }
}

/// Where the page of an inbox, or of more than one, is.
pub(super) fn path_of(address: &str) -> String {
    format!("/inbox/{}", segment(address))
}

/// One page of a list, as it was asked for.
pub(super) struct ListPage {
    pub(super) address: String,
    /// What people call it.
    pub(super) name: String,
    pub(super) base: String,
    pub(super) wide: bool,
    /// One more in front of the page and one behind it: what comes before its first and after its last.
    window: Vec<Arc<Summary>>,
    skip: usize,
    pub(super) count: u64,
    pub(super) unread: u64,
}

impl ListPage {
    /// Reads a page; mails on their way out are in none.
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
        // Made once for each mail, and kept for whoever looks next.
        for summary in &window {
            match app.gist(client, summary).await {
                // A large one for which there is no room now is listed without its beginning.
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

    /// The page of the list that begins there.
    fn page(&self, skip: usize) -> String {
        if skip == 0 { self.base.clone() } else { format!("{}?skip={skip}", self.base) }
    }

    /// The list as a page shows it.
    pub(super) fn board<M: Mailboxes>(&self, app: &App<M>, open: Option<MailId>) -> Board<'_> {
        let now_ms = clock::unix_ms();
        let shown = self.window.iter().skip(self.before()).take(ROWS_MAX);
        let rows: Vec<Row<'_>> = shown
            .map(|summary| {
                let noted = app.beside(summary);
                let row = Row::new(summary, noted, (&self.base, self.wide), now_ms);
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

    /// The mails above and below one, if it is in the window.
    pub(super) fn beside(&self, id: MailId) -> (Option<MailId>, Option<MailId>) {
        let Some(place) = self.window.iter().position(|summary| summary.id == id) else {
            return (None, None);
        };
        let at =
            |place: Option<usize>| place.and_then(|place| self.window.get(place)).map(|summary| summary.id);
        (at(place.checked_sub(1)), at(place.checked_add(1)))
    }

    /// Where a page of the list goes on, in a query, so that a mail is opened beside the page that it is on.
    pub(super) fn query(&self) -> String {
        if self.skip == 0 { String::new() } else { format!("?skip={}", self.skip) }
    }
}

/// What a page shows of a list.
pub(super) struct Board<'a> {
    pub(super) listed: &'a ListPage,
    pub(super) rows: Vec<Row<'a>>,
    /// What the page knows as the newest; nothing on pages of older mails, which are not live.
    pub(super) newest: Option<String>,
    pub(super) newer: Option<String>,
    pub(super) older: Option<String>,
    /// A mail is open beside it.
    pub(super) is_open: bool,
}

impl<M: Mailboxes> App<M> {
    /// What is known of a mail beside its summary, without reading it.
    pub(super) fn beside(&self, of: &Arc<Summary>) -> RowExtras {
        let (is_read, tags) = self.marks.of(of.id);
        let gist = self.gists.find(std::slice::from_ref(of)).pop().flatten();
        RowExtras { is_read, tags, gist }
    }
}
