//! A request that comes, as the log hears of it.

use engine::tls::session::Session;
use wire::http1::head::RequestHead;

use crate::{
    core::Core,
    log::{
        last_logged::LastSaid,
        transaction::{Draft, Moment, RequestMeta},
    },
    request::client_ip::Visitor,
};

/// What the log will say of a request that came at this moment, with so many bytes of head; nothing where nobody reads.
#[inline]
pub(crate) fn begin(
    core: &Core,
    moment: Option<Moment>,
    (head, head_bytes): (&RequestHead<'_, '_>, usize),
    visitor: Visitor,
    is_http2: bool,
    session: Option<&Session>,
) -> Draft {
    let Some(moment) = moment else { return Draft::none() };
    Draft::client(&came(core, moment, (head, head_bytes), is_http2, session), head, visitor)
}

/// The same of a client's over HTTP/1, of which these are the head's bytes; `last` is what the connection's last request said.
#[inline]
pub(crate) fn begin_http1(
    core: &Core,
    moment: Option<Moment>,
    (head, bytes): (&RequestHead<'_, '_>, &[u8]),
    visitor: Visitor,
    session: Option<&Session>,
    last: &mut Option<Box<LastSaid>>,
) -> Draft {
    let Some(moment) = moment else { return Draft::none() };
    let came = || came(core, moment, (head, bytes.len()), false, session);
    let last = last.get_or_insert_default();
    Draft::client_again(moment, (head, bytes), visitor, &core.sites, last, came)
}

fn came<'a>(
    core: &'a Core,
    moment: Moment,
    (head, head_bytes): (&'a RequestHead<'_, '_>, usize),
    is_http2: bool,
    session: Option<&Session>,
) -> RequestMeta<'a> {
    let host = head.authority().map(|authority| authority.host);
    RequestMeta {
        moment,
        head_bytes,
        is_http2,
        tls: session.and_then(Session::version),
        host,
        site: core.sites.table.names_for(host.unwrap_or_default().as_bytes()),
    }
}
