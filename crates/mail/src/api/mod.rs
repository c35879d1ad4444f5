//! What programs ask: Mailinator's API v2, Mailpit's API v1, and waiting for a mail.
//!
//! The same rules as for pages: one inbox is public, more than one is the operator's. Faults are JSON, `{"error": …}`.
//!
//! - [`mailinator`]: `/api/v2/…`, the paths and fields that Mailinator's own clients use;
//! - [`wait`]: `…/inboxes/NAME/wait`, for test suites;
//! - [`mailpit`]: `/api/v1/…` over everything, `/inbox/ADDRESS/api/v1/…` over one inbox;
//! - [`routes`]: the list of it all, of which the router is made;
//! - [`openapi`]: that list as a document and as a page.

pub(crate) mod duration;
mod letter;
mod mailinator;
mod mailpit;
mod openapi;
pub(crate) mod routes;
mod wait;

use self::routes::Routes;
use crate::mailboxes::Mailboxes;

/// All paths of the APIs, after those that are there already.
pub(crate) fn routes<M: Mailboxes>(before: Routes<M>) -> Routes<M> {
    openapi::routes(mailpit::routes(mailinator::routes(before)))
}
