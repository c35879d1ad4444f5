//! Changes that people make on a page: mails are deleted and restored, marked read and unread, and tagged.
//! Changes are sent as forms, so they work without scripts; the pages' script sends the same forms and asks
//! for JSON.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Redirect, Response},
};
use percent_encoding::percent_decode_str;

use crate::mailbox::mailboxes::{MailId, Mailboxes, Scope, Summary};
use crate::web::{
    board::path_of,
    serve::{app::App, client::Client, fault::Fault, request_body::ChargedBody, scope::RequestScope},
    undo_delete::LEAVING_MAX,
};

/// Maximum number of mails that one form may name.
const IDS_MAX: usize = 1_000;

/// Fields of a submitted form.
#[derive(Debug, Default, PartialEq, Eq)]
struct ChangeForm {
    what: String,
    ids: Vec<String>,
    /// Path to redirect to afterwards.
    back: String,
    batch: String,
    tag: String,
}

impl ChangeForm {
    /// Parses `application/x-www-form-urlencoded`.
    fn read(form: &[u8]) -> Result<Self, Fault> {
        let mut wish = Self::default();
        let form =
            std::str::from_utf8(form).map_err(|_| Fault::Bad("the form is not valid UTF-8".to_owned()))?;
        for (name, value) in form.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8_lossy().into_owned();
            match name {
                "do" => wish.what = value,
                "id" => wish.ids.push(value),
                "back" => wish.back = value,
                "batch" => wish.batch = value,
                "tag" => wish.tag = value,
                _ => {}
            }
        }
        if wish.ids.len() > IDS_MAX {
            return Err(Fault::Bad(format!("more than {IDS_MAX} mails at once")));
        }
        Ok(wish)
    }

    /// Returns the path to redirect to: one of the list's own pages, or the list.
    fn redirect_path(&self, base: &str) -> String {
        let within =
            self.back.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with(['?', '/']));
        let plain = self.back.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        if within && plain && !self.back.contains("//") { self.back.clone() } else { base.to_owned() }
    }
}

/// Adds a tag to mails, or removes it; returns the tags of the last mail.
async fn set_tag<M: Mailboxes>(
    app: &App<M>,
    client: Client,
    mails: &[Arc<Summary>],
    tag: &str,
    is_added: bool,
) -> Result<Vec<String>, Fault> {
    let mut tags = Vec::new();
    for mail in mails {
        let mut names = app.marks.tags(mail.id);
        names.retain(|own| own != tag);
        if is_added {
            names.push(tag.to_owned());
        }
        let names = app.marks.names(&names)?;
        app.set_tags(client, std::slice::from_ref(mail), &names).await?;
        tags = app.marks.tags(mail.id);
    }
    Ok(tags)
}

pub(super) async fn change<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    headers: HeaderMap,
    form: ChargedBody,
) -> Result<Response, Fault> {
    let wish = ChangeForm::read(&form.bytes)?;
    let base = path_of(&scope.name());
    let count;
    let mut batch = None;
    let mut tags = Vec::new();
    match &*wish.what {
        "undo" => {
            let name = wish.batch.parse().map_err(|_| Fault::NoSuchMail)?;
            count = app.leaving.bring_back(name, &scope).ok_or(Fault::NoSuchMail)?;
            if let Scope::Inbox(inbox) = &scope {
                app.config.handed_out.announce_change(inbox, false);
            }
        }
        "delete-all" => {
            let mut listed = app.mailboxes.list(&scope, 0, LEAVING_MAX + 1).await?;
            if listed.len() > LEAVING_MAX {
                count = usize::try_from(app.mailboxes.delete_all(&scope).await?).unwrap_or(usize::MAX);
            } else {
                listed.retain(|summary| !app.leaving.has(&scope, summary.id));
                count = listed.len();
                batch = app.delete_with_undo(client, &scope, &listed).await?;
                app.announce_changes(&listed, true);
            }
        }
        "delete" => {
            let mails = visible_mails(&app, &scope, &wish.ids).await?;
            count = mails.len();
            batch = app.delete_with_undo(client, &scope, &mails).await?;
            app.announce_changes(&mails, true);
        }
        "read" | "unread" => {
            let mails = visible_mails(&app, &scope, &wish.ids).await?;
            count = mails.len();
            app.set_read(client, &mails, wish.what == "read").await?;
            app.announce_changes(&mails, false);
        }
        "tag" | "untag" => {
            let mails = visible_mails(&app, &scope, &wish.ids).await?;
            count = mails.len();
            let name = wish.tag.trim();
            if name.is_empty() {
                return Err(Fault::Bad("the field `tag` is missing: the tag to add".to_owned()));
            }
            let changed = set_tag(&app, client, &mails, name, wish.what == "tag").await;
            // After a failure, some mails may have the tag.
            app.announce_changes(&mails, false);
            tags = changed?;
        }
        _ => return Err(Fault::Bad("the form names no action".to_owned())),
    }
    let asks_for_json = headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.to_str().is_ok_and(|accept| accept.contains("application/json")));
    if asks_for_json {
        let told = serde_json::json!({ "count": count, "batch": batch, "tags": tags });
        return Ok(Json(told).into_response());
    }
    let back = wish.redirect_path(&base);
    let back = match batch {
        // The page of a deleted mail would be empty.
        Some(batch) if back.starts_with(&format!("{base}?")) => format!("{back}&deleted={batch}"),
        Some(batch) => format!("{base}?deleted={batch}"),
        None => back,
    };
    Ok(Redirect::to(&back).into_response())
}

/// Returns the named mails that the client may see; mails that do not exist are skipped.
async fn visible_mails<M: Mailboxes>(
    app: &App<M>,
    scope: &Scope,
    ids: &[String],
) -> Result<Vec<Arc<Summary>>, Fault> {
    let ids: BTreeSet<MailId> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    let ids: Vec<MailId> = ids.into_iter().filter(|id| !app.leaving.has(scope, *id)).collect();
    Ok(app.mailboxes.find(scope, &ids).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_redirects_only_within_its_inbox() {
        let wish = ChangeForm::read(b"do=delete&id=a&id=b&x=y&back=%2Finbox%2Fann%40x%3Fskip%3D100").unwrap();
        assert_eq!(
            (&*wish.what, wish.ids.len(), &*wish.redirect_path("/inbox/ann@x")),
            ("delete", 2, "/inbox/ann@x?skip=100")
        );
        for elsewhere in [
            "https://evil.test/",
            "//evil.test",
            "/inbox/ann@xyz",
            "/inbox/ann@x//evil.test",
            "/inbox/ann@x/%0a",
            "",
        ] {
            let wish = ChangeForm { back: elsewhere.to_owned(), ..ChangeForm::default() };
            let way = wish.redirect_path("/inbox/ann@x");
            assert!(way == "/inbox/ann@x" || way == "/inbox/ann@x/%0a", "{way}");
        }
        assert!(ChangeForm::read(&b"id=x&".repeat(IDS_MAX + 1)).is_err());
        assert!(ChangeForm::read(b"\xff").is_err());
    }
}
