//! APIs for programs: Mailinator's API v2, Mailpit's API v1, MailHog's API, and an operation that waits for a
//! mail.
//!
//! The APIs follow the same access rules as the pages: one inbox is public, more than one is reserved for the
//! operator. Errors are JSON, `{"error": …}`.
//!
//! - [`mailinator`]: `/api/v2/…`, with the paths and fields that Mailinator's own clients use;
//! - [`wait`]: `…/inboxes/NAME/wait`, for test suites;
//! - [`mailhog`]: MailHog's paths of `/api/v1/…` and `/api/v2/…`, all of them also below `/mailhog`;
//! - [`mailpit`]: `/api/v1/…` over all mail, `/inbox/ADDRESS/api/v1/…` over one inbox;
//! - [`socket`]: arrivals and deletions over WebSocket, for Mailpit's and MailHog's clients;
//! - [`routes`]: the list of all operations, from which the router is built;
//! - [`openapi`]: that list as a document and as a page.

mod deletion;
pub(crate) mod duration;
mod letter;
mod mailhog;
mod mailinator;
mod mailpit;
mod openapi;
mod refusals;
pub(crate) mod routes;
mod socket;
mod wait;

use self::routes::Routes;
use crate::mailbox::mailboxes::Mailboxes;

/// Adds all paths of the APIs to `before`.
pub(crate) fn routes<M: Mailboxes>(before: Routes<M>) -> Routes<M> {
    openapi::routes(mailhog::routes(mailpit::routes(mailinator::routes(before))))
}
