//! One mail: who and what first, then its views, each with a path of its own.

use std::sync::Arc;

use askama::Template;
use axum::{
    body::Bytes,
    extract::{Query, State},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{IntoResponse, Redirect, Response},
};
use engine::cores::clock;
use mail_parser::HeaderName as Field;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::web::{
    board::{Board, ListPage, ROW_BYTES},
    previews::rendered_cache::{RenderKey, RenderedHtml},
    serve::{
        access::{RequestInitiator, asker},
        answer::{self, Fault, inbox_tag, mail_tag, public},
        app::{App, Site},
        client::Client,
        counters::Counter,
        jobs::ChargedMail,
        scope::{PathParams, RequestScope, segment},
    },
    source::source,
    when::{self, ShortText},
};
use crate::{
    mailbox::mailboxes::{Mail, MailId, Mailboxes, Scope, Summary},
    render::{
        Attachment, DecodedMail, Notice, ParsedMail, StepLimit, cut, fields,
        findings::{self, Link},
        html::{DisplayOptions, RemoteContent, SanitizedHtml, escape, is_image, picture_type},
    },
};

/// Of a longer source only the beginning is shown; all of it can be downloaded.
const SOURCE_BYTES_MAX: usize = 256 * 1024;
/// Addresses of a field that are shown.
const ADDRESSES_MAX: usize = 50;
/// Bytes of a group's name that are shown.
const GROUP_BYTES_MAX: usize = 320;
/// Of a larger picture no small one is shown: a browser would fetch all of it.
const THUMBNAIL_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Steps that it costs to compare a link with a text.
const LINK_STEPS: usize = 4;
/// Where the attachments of a mail are, as its frame names them.
const ATTACHMENTS: &str = "attachments";

/// A mail beside the list that it is in.
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
    /// No mails were deleted on the way to a mail's own page.
    deleted: Option<(usize, u64)>,
    query: &'a str,
}

/// The mail alone, for the pages' script.
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

/// What is shown of a mail.
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
    /// The text is shown instead of the HTML.
    html_over: bool,
}

impl Letter {
    /// Bytes of the letter that depend on what the sender wrote.
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
    /// Escaped, links made links.
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
    /// They are shown below each view.
    Attachments,
}

/// How the HTML may be looked at.
struct ViewChoice {
    name: &'static str,
    href: String,
    current: bool,
    /// What the script does without loading the page again.
    width: Option<Width>,
}

struct Item {
    href: String,
    filename: String,
    content_type: String,
    size: ShortText,
    is_picture: bool,
    /// What a file is, in a few letters.
    sign: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Html,
    Headers,
    Source,
    Attachments,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "text" => Self::Text,
            "html" => Self::Html,
            "headers" => Self::Headers,
            "source" => Self::Source,
            "attachments" => Self::Attachments,
            _ => return None,
        })
    }
}

/// How wide the frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Width {
    Phone,
    Tablet,
    #[default]
    Desk,
}

impl Width {
    const ALL: [Self; 3] = [Self::Phone, Self::Tablet, Self::Desk];

    fn name(self) -> &'static str {
        match self {
            Self::Phone => "phone",
            Self::Tablet => "tablet",
            Self::Desk => "desk",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Phone => "Phone",
            Self::Tablet => "Tablet",
            Self::Desk => "Desk",
        }
    }
}

/// What a page's query says about the HTML.
#[derive(Deserialize)]
pub(super) struct ViewParams {
    /// `load`: the reader asked for remote content.
    remote: Option<String>,
    /// Anything: in the dark.
    dark: Option<String>,
    width: Option<String>,
    /// The page of the list beside it.
    #[serde(default)]
    skip: usize,
    /// `reading`: the mail alone.
    part: Option<String>,
}

impl ViewParams {
    fn seen(&self) -> HtmlView {
        let width = Width::ALL.into_iter().find(|width| Some(width.name()) == self.width.as_deref());
        HtmlView {
            remote: if self.remote.as_deref() == Some("load") {
                RemoteContent::Loaded
            } else {
                RemoteContent::Blocked
            },
            dark: self.dark.is_some(),
            width: width.unwrap_or_default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct HtmlView {
    remote: RemoteContent,
    dark: bool,
    width: Width,
}

impl HtmlView {
    fn made(self, id: MailId) -> RenderKey {
        RenderKey { id, remote: self.remote, dark: self.dark }
    }

    fn showing(self) -> DisplayOptions<'static> {
        DisplayOptions { remote: self.remote, dark: self.dark, pictures: ATTACHMENTS }
    }

    /// As a query, with a question mark if it says anything.
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
    shown(&app, (client, &headers), &scope, &id, (None, look)).await
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
    shown(&app, (client, &headers), &scope, &id, (Some(kind), look)).await
}

async fn shown<M: Mailboxes>(
    app: &Arc<App<M>>,
    (client, headers): (Client, &HeaderMap),
    scope: &Scope,
    id: &str,
    (kind, look): (Option<Kind>, ViewParams),
) -> Result<Response, Fault> {
    let mail = fetch(app, client, scope, id).await?;
    let (id, inbox) = (mail.summary.id, mail.summary.inbox.clone());
    let tags = [mail_tag(id), inbox_tag(&inbox)];
    // Who looks at it has read it; a page of another site that shows it has not.
    if asker(headers) != RequestInitiator::AnotherSite {
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
            letter((mail, &reading, rendered.as_deref()), &base, tags, (kind, seen), (now_ms, until))
        })
        .await?;
    if letter.html_over {
        app.counters.add(Counter::RenderOver, 1);
    }
    // Up to here the letter takes nothing from the budget. Its bytes are charged while it is printed; the printed page
    // is charged as the answer.
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

/// The mail, if it lies where the path says.
pub(crate) async fn fetch<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    id: &str,
) -> Result<ChargedMail, Fault> {
    let id = named(app, scope, id)?;
    app.mail_in(client, scope, id).await?.ok_or(Fault::NoSuchMail)
}

/// The mail that a path names, unless it is on its way out.
fn named<M: Mailboxes>(app: &App<M>, scope: &Scope, id: &str) -> Result<MailId, Fault> {
    let id: MailId = id.parse().map_err(|_| Fault::NoSuchMail)?;
    if app.leaving.has(scope, id) { Err(Fault::NoSuchMail) } else { Ok(id) }
}

/// The mail's HTML as a document, made now or before; nothing if it has none.
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

fn letter(
    (mail, reading, rendered): (&Mail, &DecodedMail<'_>, Option<&RenderedHtml>),
    base: &str,
    tags: Vec<String>,
    (kind, seen): (Option<Kind>, HtmlView),
    (now_ms, until): (u64, &StepLimit),
) -> Letter {
    let summary = &mail.summary;
    let clean = rendered.map(|rendered| &rendered.clean);
    let has_html = clean.is_some();
    // What the sender meant to be seen first; the text where there is no HTML.
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
        Kind::Html => html_view(clean, base, seen, &mut notices),
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
        tabs: tabs((base, seen), kind, has_html, reading.attachments().len()),
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

fn html_view(clean: Option<&SanitizedHtml>, base: &str, seen: HtmlView, notices: &mut Vec<String>) -> View {
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
            notices.push("The HTML is too long to be shown whole. The source has all of it.".to_owned());
        }
        if let Some(over) = clean.css_over {
            notices
                .push(format!("A part of this mail's style is left out: {over}. The source has all of it."));
        }
        let taken = clean.taken.in_words();
        view.2 = (!taken.is_empty()).then(|| format!("Taken out to make it safe: {}.", listed(&taken)));
        if clean.remote_items > 0 {
            let items = match clean.remote_items {
                1 => "1 remote item".to_owned(),
                n => format!("{n} remote items"),
            };
            let hosts = listed(&clean.remote_hosts);
            let words = match seen.remote {
                RemoteContent::Blocked => {
                    view.1 = Some(page(HtmlView { remote: RemoteContent::Loaded, ..seen }));
                    "blocked: to load them tells the sender that this was read."
                }
                RemoteContent::Loaded => "loaded, because you asked.",
            };
            view.0 = Some(format!("{items} from {hosts} {words}"));
        }
    }
    let (blocked, load, taken) = view;
    View::Html { frame, width: seen.width, choices, blocked, load, taken }
}

/// "a, b and c".
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// The views of a mail. Each keeps the look that the reader chose for the HTML.
fn tabs((base, seen): (&str, HtmlView), current: Kind, has_html: bool, attachments: usize) -> Vec<Tab> {
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

fn from(reading: &DecodedMail<'_>, mail: &Mail) -> String {
    let written = joined(reading, Field::From);
    match (written.is_empty(), mail.summary.envelope_from.is_empty()) {
        (false, _) => written,
        (true, false) => fields::printable(&mail.summary.envelope_from).into_owned(),
        (true, true) => "(no sender)".to_owned(),
    }
}

fn to(reading: &DecodedMail<'_>, mail: &Mail) -> String {
    let written = joined(reading, Field::To);
    if written.is_empty() {
        // A group without members (RFC 5322, 3.4) names nobody: it is shown as it is written.
        let headers = reading.headers();
        let group = headers.iter().find(|(name, value)| name.eq_ignore_ascii_case("to") && !value.is_empty());
        if let Some((_, group)) = group {
            return cut(group, GROUP_BYTES_MAX).to_owned();
        }
        let said: Vec<_> =
            mail.recipients.iter().take(ADDRESSES_MAX).map(|said| fields::printable(said)).collect();
        return said.join(", ");
    }
    written
}

fn joined(reading: &DecodedMail<'_>, field: Field<'static>) -> String {
    let addresses = reading.addresses(field);
    let shown: Vec<String> = addresses.iter().take(ADDRESSES_MAX).map(ToString::to_string).collect();
    match addresses.len().checked_sub(ADDRESSES_MAX) {
        Some(more) if more > 0 => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
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

/// The end of a file's name, as its icon says it; of one without an end, what kind it is of.
fn sign(attachment: &Attachment) -> String {
    let end = attachment.filename.rsplit_once('.').map(|(_, end)| end);
    let plain = |end: &&str| (1..=4).contains(&end.len()) && end.bytes().all(|b| b.is_ascii_alphanumeric());
    end.filter(plain).unwrap_or("file").to_uppercase()
}

/// The path of a mail's attachments, as a page elsewhere names it.
pub(crate) fn attachments_of(summary: &Summary) -> String {
    format!("/inbox/{}/{}/{ATTACHMENTS}", segment(&summary.inbox.to_string()), summary.id)
}

/// A text as HTML: everything escaped, and bare links made links that say where they go because they are what they say.
pub(crate) fn linked(text: &str, until: &StepLimit) -> String {
    let mut links = Vec::new();
    findings::in_text(text, &mut links, until);
    // The longest first, or a link would be found within a longer one.
    links.sort_by_key(|link| std::cmp::Reverse(link.link.len()));
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some(at) = rest.find("http") {
        // Each link is compared with the text that begins here. Text that is not paid for is shown without links.
        if until.pay(at + LINK_STEPS * links.len()).is_err() {
            break;
        }
        escape(&rest[..at], &mut html);
        rest = &rest[at..];
        match links.iter().find(|link| rest.starts_with(&link.link)) {
            Some(link) => {
                if until.pay(2 * link.link.len()).is_err() {
                    break;
                }
                let mut target = String::new();
                escape(&link.link, &mut target);
                html.push_str(&format!(
                    "<a href=\"{target}\" rel=\"noopener noreferrer nofollow\" target=\"_blank\">{target}</a>"
                ));
                rest = &rest[link.link.len()..];
            }
            None => {
                html.push_str("http");
                rest = &rest[4..];
            }
        }
    }
    escape(rest, &mut html);
    html
}

/// What the sandboxed frame shows.
pub(super) async fn frame<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams((_, id)): PathParams<(String, String)>,
    Query(look): Query<ViewParams>,
) -> Result<Response, Fault> {
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

/// The mail as it came, to be saved.
pub(super) async fn raw<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams((_, id)): PathParams<(String, String)>,
) -> Result<Response, Fault> {
    let id = named(&app, &scope, &id)?;
    Ok(saved("message/rfc822", &format!("{id}.eml"), source(&app, client, &scope, id).await?))
}

/// How an attachment is asked for.
#[derive(Deserialize)]
pub(super) struct AttachmentQuery {
    /// Set by a picture of the mail's HTML.
    picture: Option<String>,
}

pub(super) async fn attachment<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams((_, id, part, _)): PathParams<(String, String, u32, String)>,
    Query(asked): Query<AttachmentQuery>,
) -> Result<Response, Fault> {
    let mail = fetch(&app, client, &scope, &id).await?;
    let found = app.render(client, mail, move |mail, until| part_of(mail, part, until)).await?;
    let (attachment, bytes) = found.ok_or(Fault::NoSuchPart)?;
    let mut response = download(&attachment.content_type, &attachment.filename, bytes);
    // Still something to be saved, and nothing that runs, for who opens it by itself.
    if asked.picture.is_some()
        && let Some(kind) = picture_type(&attachment).and_then(|kind| HeaderValue::from_str(kind).ok())
    {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    Ok(response)
}

/// A part that is an attachment, with its bytes.
pub(crate) fn part_of(mail: &Mail, part: u32, until: &StepLimit) -> Option<(Attachment, Vec<u8>)> {
    let prepared = ParsedMail::within(&mail.raw, until);
    let reading = prepared.read();
    let attachment = reading.attachments().iter().find(|attachment| attachment.part == part)?;
    Some((attachment.clone(), reading.attachment_bytes(attachment).into_owned()))
}

/// Something to be saved and never run: whatever its sender says that it is, a browser gets it as a file.
pub(crate) fn download(content_type: &str, filename: &str, bytes: impl Into<Bytes>) -> Response {
    saved(content_type, filename, bytes.into().into_response())
}

/// The same of an answer that has the bytes already.
pub(crate) fn saved(content_type: &str, filename: &str, mut response: Response) -> Response {
    let runs = ["html", "xml", "svg", "script", "pdf"].iter().any(|word| content_type.contains(word));
    let kind = if runs { "application/octet-stream" } else { content_type };
    let ascii: String = filename
        .chars()
        .map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' { c } else { '_' })
        .collect();
    let encoded = utf8_percent_encode(cut(filename, 400), NON_ALPHANUMERIC);
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, kind);
    // RFC 6266: the plain name for old programs, the encoded one for all others.
    set(
        header::CONTENT_DISPOSITION,
        &format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}"),
    );
    set(header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'");
    set(header::CACHE_CONTROL, "private, no-store");
    response
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

#[cfg(test)]
mod tests {
    use super::{StepLimit, linked};

    #[test]
    fn a_text_is_escaped_and_its_links_are_links() {
        let html = linked(
            "<b>see</b> https://a.test/?x=1&y=\"2 and https://a.test/?x=1 or javascript:alert(1), httpx",
            &StepLimit::default(),
        );
        assert!(html.starts_with("&lt;b&gt;see&lt;/b&gt; <a href=\"https://a.test/?x=1&amp;y=\""), "{html}");
        assert_eq!(html.matches("<a ").count(), 2);
        assert!(html.ends_with("or javascript:alert(1), httpx"));
    }
}
