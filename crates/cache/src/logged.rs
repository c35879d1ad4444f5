//! A request that comes, as the log hears of it.

use engine::tls::session::Session;
use wire::http1::head::RequestHead;

use crate::{
    core::Core,
    deliver::Protocol,
    transaction::{Came, Draft, Moment},
    visitor::Visitor,
};

/// What the log will say of a request that came at this moment, with so many bytes of head; nothing where nobody reads.
#[inline]
pub(crate) fn begin(
    core: &Core,
    moment: Option<Moment>,
    (head, head_bytes): (&RequestHead<'_, '_>, usize),
    visitor: Visitor,
    protocol: Protocol,
    session: Option<&Session>,
) -> Draft {
    let Some(moment) = moment else { return Draft::none() };
    let host = head.authority().map(|authority| authority.host);
    let came = Came {
        moment,
        head_bytes,
        is_http2: protocol == Protocol::Http2,
        tls: session.and_then(Session::version),
        host,
        site: core.sites.table.names_for(host.unwrap_or_default().as_bytes()),
    };
    Draft::client(&came, head, visitor)
}
