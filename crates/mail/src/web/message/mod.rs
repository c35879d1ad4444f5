//! The page of one mail: its head fields first, then its views, each with a path of its own.

mod attachments;
#[cfg(test)]
mod tests;
mod text;
mod view_choice;

use std::sync::Arc;

use askama::Template;
use axum::{
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Redirect, Response},
};
use engine::cores::clock;
use mail_parser::HeaderName as Field;

use crate::web::{
    board::{Board, ListPage, ROW_BYTES},
    previews::rendered_cache::{RenderKey, RenderedHtml},
    serve::{
        answer::{self, inbox_tag, mail_tag, public},
        app::{App, Site},
        client::Client,
        counters::Counter,
        fault::Fault,
        jobs::ChargedMail,
        params::PathParams,
        request_source::{RequestInitiator, asker},
        scope::{RequestScope, segment},
    },
    when::{self, ShortText},
};
use crate::{
    mailbox::mailboxes::{Mail, MailId, Mailboxes, Scope, Summary},
    render::{
        Attachment, DecodedMail, Notice, ParsedMail, StepLimit, fields,
        findings::{self, Link},
        html::{DisplayOptions, RemoteContent, SanitizedHtml, is_image},
    },
};

pub(super) use attachments::{attachment, raw};
pub(crate) use attachments::{download, part_of, saved};
pub(crate) use text::linked;
use text::{from, joined, to};
use view_choice::{HtmlView, Kind, ViewParams, Width};

/// Maximum number of bytes of the source that are shown; the whole source can be downloaded.
const SOURCE_BYTES_MAX: usize = 256 * 1024;
/// Largest picture that is shown as a thumbnail. The limit exists because the browser fetches the whole
/// picture.
const THUMBNAIL_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Path of a mail's attachments, relative to its frame.
const ATTACHMENTS: &str = "attachments";

/// Page of a mail, next to its list.
#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage<'a> {
    site: &'a Site,
    letter: &'a Letter,
    address: &'a str,
    name: &'a str,
    base: &'a str,
    board: Board<'a>,
    list_query: &'a str,
    above: Option<MailId>,
    below: Option<MailId>,
    readers: &'a str,
    /// Always `None`: a mail's own page does not offer to undo a deletion.
    deleted: Option<(usize, u64)>,
    query: &'a str,
}

/// The mail without its list, for the pages' script.
#[derive(Template)]
#[template(path = "reading.html")]
struct ReadingPart<'a> {
    letter: &'a Letter,
    name: &'a str,
    base: &'a str,
    list_query: &'a str,
    above: Option<MailId>,
    below: Option<MailId>,
    readers: &'a str,
}

/// A mail as its page shows it.
struct Letter {
    id: String,
    inbox: String,
    raw: String,
    subject: String,
    from: String,
    to: String,
    cc: String,
    iso: ShortText,
    exact: ShortText,
    relative: ShortText,
    size: ShortText,
    kept: String,
    tags: Vec<String>,
    codes: Vec<String>,
    notices: Vec<String>,
    tabs: Vec<Tab>,
    view: View,
    attachments: Vec<Item>,
    links: Vec<Link>,
    /// True if the text is shown in place of the HTML.
    html_over: bool,
}

impl Letter {
    /// Returns the size of the page's data that the sender determines.
    fn bytes(&self) -> usize {
        let view = match &self.view {
            View::Text { html } => html.len(),
            View::Headers { fields } => fields.iter().map(|(name, value)| name.len() + value.len()).sum(),
            View::Source { source, .. } => source.len(),
            View::Html { .. } | View::Attachments => 0,
        };
        let links: usize = self.links.iter().map(|link| link.link.len() + link.text.len()).sum();
        let items: usize = self.attachments.iter().map(|of| of.href.len() + of.filename.len()).sum();
        view + links + items + self.subject.len() + self.from.len() + self.to.len() + self.cc.len()
    }
}

struct Tab {
    name: &'static str,
    href: String,
    current: bool,
    count: Option<usize>,
}

enum View {
    /// The escaped text, with bare links made clickable.
    Text {
        html: String,
    },
    Html {
        frame: String,
        width: Width,
        choices: Vec<ViewChoice>,
        blocked: Option<String>,
        load: Option<String>,
        taken: Option<String>,
    },
    Headers {
        fields: Vec<(String, String)>,
    },
    Source {
        source: String,
        cut: bool,
    },
    /// Only the list of attachments, which the other views show below their content.
    Attachments,
}

/// An option for how the HTML is shown.
struct ViewChoice {
    name: &'static str,
    href: String,
    current: bool,
    /// Width that the script sets without reloading the page.
    width: Option<Width>,
}

struct Item {
    href: String,
    filename: String,
    content_type: String,
    size: ShortText,
    is_picture: bool,
    /// Short label for the file's type.
    sign: String,
}

impl HtmlView {
    fn made(self, id: MailId) -> RenderKey {
        RenderKey { id, remote: self.remote, dark: self.dark }
    }

    fn showing(self) -> DisplayOptions<'static> {
        DisplayOptions { remote: self.remote, dark: self.dark, pictures: ATTACHMENTS }
    }

    /// Formats the options as a query, with a question mark unless it is empty.
    fn query(self) -> String {
        let mut query = String::new();
        let mut add = |pair: &str| {
            query.push(if query.is_empty() { '?' } else { '&' });
            query.push_str(pair);
        };
        if self.remote == RemoteContent::Loaded {
            add("remote=load");
        }
        if self.dark {
            add("dark=1");
        }
        if self.width != Width::default() {
            add("width=");
            query.push_str(self.width.name());
        }
        query
    }
}

pub(super) async fn page<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    headers: HeaderMap,
    PathParams((_, id)): PathParams<(String, String)>,
    Query(look): Query<ViewParams>,
) -> Result<Response, Fault> {
    shown(&app, client, &scope, PageRequest { id: &id, initiator: asker(&headers), kind: None, look }).await
}

pub(super) async fn view<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    headers: HeaderMap,
    PathParams((_, id, view)): PathParams<(String, String, String)>,
    Query(look): Query<ViewParams>,
) -> Result<Response, Fault> {
    let kind = Kind::named(&view).ok_or(Fault::NoSuchPage)?;
    let request = PageRequest { id: &id, initiator: asker(&headers), kind: Some(kind), look };
    shown(&app, client, &scope, request).await
}

/// Request of a mail's page.
struct PageRequest<'a> {
    id: &'a str,
    initiator: RequestInitiator,
    /// View in the path; `None` selects the default view.
    kind: Option<Kind>,
    look: ViewParams,
}

async fn shown<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    PageRequest { id, initiator, kind, look }: PageRequest<'_>,
) -> Result<Response, Fault> {
    app.note_handed_out(scope);
    let mail = fetch(app, client, scope, id).await?;
    let (id, inbox) = (mail.summary.id, mail.summary.inbox.clone());
    let tags = [mail_tag(id), inbox_tag(&inbox)];
    // Opening the page marks the mail read, unless a page of another site requests it.
    if initiator != RequestInitiator::AnotherSite {
        app.set_read(client, &[Arc::new(mail.summary.clone())], true).await?;
    }
    let listed = ListPage::load(app, client, scope, look.skip).await?;
    let (seen, now_ms) = (look.seen(), clock::unix_ms());
    let (app_there, base) = (Arc::clone(app), format!("{}/{id}", listed.base));
    let letter = app
        .render(client, mail, move |mail, until| {
            let prepared = ParsedMail::within(&mail.raw, until);
            let reading = prepared.read();
            let rendered = rendered(&app_there, mail, &reading, seen, until);
            let tags = app_there.marks.tags(mail.summary.id);
            let content = MailContent { mail, reading: &reading, rendered: rendered.as_deref() };
            letter(content, ViewPath { base: &base, seen }, kind, tags, now_ms, until)
        })
        .await?;
    if letter.html_over {
        app.counters.add(Counter::RenderOver, 1);
    }
    // The page's data is charged while the page is written, but not before. The written page is then charged
    // as the response.
    let mut printing = app.budget.of(client);
    printing.grow(letter.bytes() as u64)?;
    let (above, below) = listed.beside(id);
    let (readers, list_query) = (app.readers(scope), listed.query());
    let (address, name, base) = (&*listed.address, &*listed.name, &*listed.base);
    let (letter, list_query, readers) = (&letter, &*list_query, &*readers);
    let response = if look.part.as_deref() == Some("reading") {
        answer::page(&ReadingPart { letter, name, base, list_query, above, below, readers })?
    } else {
        let board = listed.board(app, Some(id));
        let rows_bytes = board.rows.len() * ROW_BYTES;
        let (site, deleted, query) = (&app.site, None, "");
        let page = MessagePage {
            site,
            letter,
            address,
            name,
            base,
            board,
            list_query,
            above,
            below,
            readers,
            deleted,
            query,
        };
        answer::long_page(&page, rows_bytes)?
    };
    Ok(if scope.is_wide() { response } else { public(response, &tags) })
}

/// Reads the mail if it is within the path's scope.
pub(crate) async fn fetch<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    id: &str,
) -> Result<ChargedMail, Fault> {
    let id = named(app, scope, id)?;
    app.mail_in(client, scope, id).await?.ok_or(Fault::NoSuchMail)
}

/// Parses the mail ID of a path; a mail that is being deleted counts as missing.
fn named<M: Mailboxes>(app: &App<M>, scope: &Scope, id: &str) -> Result<MailId, Fault> {
    let id: MailId = id.parse().map_err(|_| Fault::NoSuchMail)?;
    if app.leaving.has(scope, id) { Err(Fault::NoSuchMail) } else { Ok(id) }
}

/// Returns the mail's HTML as a document, from the cache or rendered now; `None` if there is no HTML.
fn rendered<M: Mailboxes>(
    app: &App<M>,
    mail: &Mail,
    reading: &DecodedMail<'_>,
    seen: HtmlView,
    until: &StepLimit,
) -> Option<Arc<RenderedHtml>> {
    let made = seen.made(mail.summary.id);
    if let Some(rendered) = app.renderings.find(made) {
        return Some(rendered);
    }
    let clean = reading.html(&seen.showing(), until)?;
    if clean.css_over.is_some() {
        app.counters.add(Counter::StylesOver, 1);
    }
    let rendered = Arc::new(RenderedHtml::new(clean, until));
    app.renderings.keep(made, &rendered);
    Some(rendered)
}

/// A mail with its decoded parts and its sanitized HTML, if it has any.
struct MailContent<'a> {
    mail: &'a Mail,
    reading: &'a DecodedMail<'a>,
    rendered: Option<&'a RenderedHtml>,
}

/// Path of a mail's page, with the options for the HTML that the links of its views keep.
#[derive(Clone, Copy)]
struct ViewPath<'a> {
    base: &'a str,
    seen: HtmlView,
}

fn letter(
    MailContent { mail, reading, rendered }: MailContent<'_>,
    path: ViewPath<'_>,
    kind: Option<Kind>,
    tags: Vec<String>,
    now_ms: u64,
    until: &StepLimit,
) -> Letter {
    let base = path.base;
    let summary = &mail.summary;
    let clean = rendered.map(|rendered| &rendered.clean);
    let has_html = clean.is_some();
    // The default view is the HTML, as the sender intended, or the text if there is no HTML.
    let kind = match kind {
        Some(Kind::Html) | None if has_html => Kind::Html,
        Some(Kind::Html) | None => Kind::Text,
        Some(kind) => kind,
    };
    let mut notices: Vec<String> = reading.notices().iter().map(ToString::to_string).collect();
    let over = clean.and_then(|clean| clean.over).filter(|_| kind == Kind::Html);
    notices.extend(over.map(|over| {
        format!("The HTML of this mail is not shown: {over}. This is its text. The source has all of it.")
    }));
    let (text, text_notice) = reading.text();
    let subject = fields::decode(&summary.subject);
    let view = match kind {
        _ if over.is_some() => View::Text { html: linked(&text, until) },
        Kind::Text => {
            notices.extend(text_notice.map(|notice| notice.to_string()));
            View::Text { html: linked(&text, until) }
        }
        Kind::Html => html_view(clean, path, &mut notices),
        Kind::Headers => View::Headers { fields: reading.headers() },
        Kind::Source => {
            let shown = &mail.raw[..mail.raw.len().min(SOURCE_BYTES_MAX)];
            View::Source {
                source: String::from_utf8_lossy(shown).replace("\r\n", "\n"),
                cut: (shown.len() as u64) < mail.summary.size_bytes,
            }
        }
        Kind::Attachments => View::Attachments,
    };
    let mut links = rendered.map(|rendered| rendered.links.clone()).unwrap_or_default();
    findings::in_text(&text, &mut links, until);
    let codes = findings::codes(&subject, &reading.with_html_text(text), until);
    if !reading.is_in_time() && !reading.notices().contains(&Notice::TimeOver) {
        notices.push(Notice::TimeOver.to_string());
    }
    Letter {
        tabs: tabs(path, kind, has_html, reading.attachments().len()),
        raw: format!("{base}/raw"),
        id: summary.id.to_string(),
        inbox: summary.inbox.to_string(),
        codes,
        subject: if subject.is_empty() { "(no subject)".to_owned() } else { subject.into_owned() },
        from: from(reading, mail),
        to: to(reading, mail),
        cc: joined(reading, Field::Cc),
        iso: when::iso(summary.arrived_ms),
        exact: when::exact(summary.arrived_ms),
        relative: when::relative(summary.arrived_ms, now_ms),
        size: when::size(summary.size_bytes),
        kept: when::span(summary.expires_ms.saturating_sub(now_ms)),
        attachments: match kind {
            Kind::Headers | Kind::Source => Vec::new(),
            Kind::Text | Kind::Html | Kind::Attachments => {
                reading.attachments().iter().map(|attachment| item(attachment, base)).collect()
            }
        },
        html_over: over.is_some(),
        tags,
        notices,
        view,
        links,
    }
}

fn html_view(
    clean: Option<&SanitizedHtml>,
    ViewPath { base, seen }: ViewPath<'_>,
    notices: &mut Vec<String>,
) -> View {
    let frame = format!("{base}/frame{}", HtmlView { width: Width::Desk, ..seen }.query());
    let page = |seen: HtmlView| format!("{base}/html{}", seen.query());
    let mut choices: Vec<ViewChoice> = Width::ALL
        .into_iter()
        .map(|width| ViewChoice {
            name: width.label(),
            href: page(HtmlView { width, ..seen }),
            current: width == seen.width,
            width: Some(width),
        })
        .collect();
    choices.push(ViewChoice {
        name: "Dark",
        href: page(HtmlView { dark: !seen.dark, ..seen }),
        current: seen.dark,
        width: None,
    });
    let mut view = (None, None, None);
    if let Some(clean) = clean {
        if clean.cut {
            notices.push("The HTML is too long to be shown in full. The source has all of it.".to_owned());
        }
        if let Some(over) = clean.css_over {
            notices
                .push(format!("A part of this mail's style is left out: {over}. The source has all of it."));
        }
        let taken = clean.taken.in_words();
        view.2 = (!taken.is_empty()).then(|| format!("Removed for safety: {}.", listed(&taken)));
        if clean.remote_items > 0 {
            let items = match clean.remote_items {
                1 => "1 remote item".to_owned(),
                n => format!("{n} remote items"),
            };
            let hosts = listed(&clean.remote_hosts);
            let words = match seen.remote {
                RemoteContent::Blocked => {
                    view.1 = Some(page(HtmlView { remote: RemoteContent::Loaded, ..seen }));
                    "blocked: loading them would tell the sender that the mail was read."
                }
                RemoteContent::Loaded => "loaded at your request.",
            };
            view.0 = Some(format!("{items} from {hosts} {words}"));
        }
    }
    let (blocked, load, taken) = view;
    View::Html { frame, width: seen.width, choices, blocked, load, taken }
}

/// Joins words as in "a, b and c".
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// Returns the tabs of a mail's views. Each keeps the options that the reader chose for the HTML.
fn tabs(
    ViewPath { base, seen }: ViewPath<'_>,
    current: Kind,
    has_html: bool,
    attachments: usize,
) -> Vec<Tab> {
    let look = seen.query();
    let tab = |name, kind, path: &str, count| Tab {
        name,
        href: format!("{base}/{path}{look}"),
        current: kind == current,
        count,
    };
    let mut tabs = vec![tab("Text", Kind::Text, "text", None)];
    if has_html {
        tabs.push(tab("HTML", Kind::Html, "html", None));
    }
    tabs.push(tab("Headers", Kind::Headers, "headers", None));
    tabs.push(tab("Source", Kind::Source, "source", None));
    if attachments > 0 {
        tabs.push(tab("Attachments", Kind::Attachments, "attachments", Some(attachments)));
    }
    tabs
}

fn item(attachment: &Attachment, base: &str) -> Item {
    Item {
        href: format!("{base}/attachments/{}/{}", attachment.part, segment(&attachment.filename)),
        filename: attachment.filename.clone(),
        content_type: attachment.content_type.clone(),
        size: when::size(attachment.size_bytes as u64),
        is_picture: is_image(&attachment.content_type) && attachment.size_bytes <= THUMBNAIL_BYTES_MAX,
        sign: sign(attachment),
    }
}

/// Returns the file extension in capitals, for an icon, or "FILE" if there is no usable extension.
fn sign(attachment: &Attachment) -> String {
    let end = attachment.filename.rsplit_once('.').map(|(_, end)| end);
    let plain = |end: &&str| (1..=4).contains(&end.len()) && end.bytes().all(|b| b.is_ascii_alphanumeric());
    end.filter(plain).unwrap_or("file").to_uppercase()
}

/// Returns the path of a mail's attachments for use on other pages.
pub(crate) fn attachments_of(summary: &Summary) -> String {
    format!("/inbox/{}/{}/{ATTACHMENTS}", segment(&summary.inbox.to_string()), summary.id)
}

/// Serves the document of the sandboxed frame.
pub(super) async fn frame<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams((_, id)): PathParams<(String, String)>,
    Query(look): Query<ViewParams>,
) -> Result<Response, Fault> {
    app.note_handed_out(&scope);
    let mail = fetch(&app, client, &scope, &id).await?;
    let tags = [mail_tag(mail.summary.id), inbox_tag(&mail.summary.inbox)];
    let seen = look.seen();
    let found = app.renderings.find(seen.made(mail.summary.id));
    let found = match found {
        Some(rendered) => Some(rendered),
        None => {
            let app_there = Arc::clone(&app);
            app.render(client, mail, move |mail, until| {
                let prepared = ParsedMail::within(&mail.raw, until);
                rendered(&app_there, mail, &prepared.read(), seen, until)
            })
            .await?
        }
    };
    let html = found.ok_or(Fault::NoSuchPart)?.html.clone();
    let policy = SanitizedHtml::content_security_policy(seen.remote);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
    ];
    let response = (headers, html).into_response();
    Ok(if scope.is_wide() { response } else { public(response, &tags) })
}

pub(super) async fn delete<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams((_, id)): PathParams<(String, String)>,
) -> Result<Response, Fault> {
    let mail = fetch(&app, client, &scope, &id).await?;
    app.mailboxes.delete(&scope, mail.summary.id).await?;
    Ok(Redirect::to(&format!("/inbox/{}", segment(&scope.name()))).into_response())
}
