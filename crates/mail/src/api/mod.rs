//! What programs ask: Mailinator's API v2, Mailpit's API v1, and waiting for a mail.
//!
//! The same rules as for pages: one inbox is public, more than one is the operator's. Faults are JSON, `{"error": …}`.
//!
//! - [`mailinator`]: `/api/v2/…`, the paths and fields that Mailinator's own clients use;
//! - [`wait`]: `…/inboxes/NAME/wait`, for test suites;
//! - [`mailhog`]: MailHog's paths of `/api/v1/…` and `/api/v2/…`, all of them below `/mailhog`;
//! - [`mailpit`]: `/api/v1/…` over everything, `/inbox/ADDRESS/api/v1/…` over one inbox;
//! - [`socket`]: what arrives and goes, by WebSocket, for both;
//! - [`routes`]: the list of it all, of which the router is made;
//! - [`openapi`]: that list as a document and as a page.

pub(crate) mod duration;
mod letter;
mod mailhog;
mod mailinator;
mod mailpit;
mod openapi;
pub(crate) mod routes;
mod socket;
mod wait;

pub(crate) use self::mailpit::shapes::{
    hidden as mailpit_hidden, list_fields as mailpit_list_fields, said_address as mailpit_address,
};
use self::routes::Routes;
use crate::{mailbox::mailboxes::Mailboxes, web::serve::answer::Fault};

/// What both of them release, we do not.
async fn not_released() -> Fault {
    Fault::NotDone("mail is never sent on")
}

/// Refuses what would be more than one line of a mail's head: who writes `Subject` must not write fields of their choice
/// after it (RFC 5322, 2.2).
fn one_line(name: &str, value: &str) -> Result<(), Fault> {
    match value.chars().find(|c| c.is_control() && *c != '\t') {
        None => Ok(()),
        Some('\r' | '\n') => {
            Err(Fault::Bad(format!("there is a line break in `{name}`; it has to be one line")))
        }
        Some(_) => Err(Fault::Bad(format!("there is a control character in `{name}`; leave it out"))),
    }
}

/// All paths of the APIs, after those that are there already.
pub(crate) fn routes<M: Mailboxes>(before: Routes<M>) -> Routes<M> {
    openapi::routes(mailhog::routes(mailpit::routes(mailinator::routes(before))))
}
