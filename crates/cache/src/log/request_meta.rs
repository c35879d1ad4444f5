//! Start of a request's log record, from its head and its connection.

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

/// Begins the log record of a request that arrived at `moment`; empty if the log has no reader.
#[inline]
pub(crate) fn begin(
    core: &Core,
    moment: Option<Moment>,
    head: &RequestHead<'_, '_>,
    head_bytes: usize,
    visitor: Visitor,
    is_http2: bool,
    session: Option<&Session>,
) -> Draft {
    let Some(moment) = moment else { return Draft::none() };
    Draft::client(&read_request_meta(core, moment, head, head_bytes, is_http2, session), head, visitor)
}

/// Begins the log record of an HTTP/1 request, with the bytes of its head. `last` holds the tags of the
/// connection's last request.
#[inline]
pub(crate) fn begin_http1(
    core: &Core,
    moment: Option<Moment>,
    head: &RequestHead<'_, '_>,
    bytes: &[u8],
    visitor: Visitor,
    session: Option<&Session>,
    last: &mut Option<Box<LastSaid>>,
) -> Draft {
    let Some(moment) = moment else { return Draft::none() };
    let came = || read_request_meta(core, moment, head, bytes.len(), false, session);
    let last = last.get_or_insert_default();
    Draft::client_again(moment, head, bytes, visitor, &core.sites, last, came)
}

fn read_request_meta<'a>(
    core: &'a Core,
    moment: Moment,
    head: &'a RequestHead<'_, '_>,
    head_bytes: usize,
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
