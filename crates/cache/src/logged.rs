//! A request that comes, as the log hears of it.

use wire::http1::head::RequestHead;

use crate::{
    core::Core,
    deliver::Protocol,
    transaction::{Came, Draft, Moment},
    transport::Transport,
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
    transport: &Transport,
) -> Draft {
    let Some(moment) = moment else { return Draft::none() };
    let host = head.authority().map(|authority| authority.host);
    let came = Came {
        moment,
        head_bytes,
        is_http2: protocol == Protocol::Http2,
        tls: transport.session().and_then(engine::tls::session::Session::version),
        host,
        site: core.sites.table.names_for(host.unwrap_or_default().as_bytes()),
    };
    Draft::client(&came, head, visitor)
}
