//! *synth* and *backend_error*: answers of our own, which say what failed and on whose side.

use std::sync::Arc;

use engine::cores::clock;
use wire::http1::{head::HeadRule, known::KnownHeader};

use crate::{
    connection::Connection,
    core::{Core, with_core},
    error_page::{self, Fault, Rule},
    origin::OriginError,
    request::Request,
};

/// *backend_error*: says what failed on the origin's side.
pub(crate) async fn origin_failed(
    connection: &mut Connection,
    request: &Arc<Request>,
    error: &OriginError,
) -> bool {
    let fault = match error {
        OriginError::Unresolved(_) => Fault::OriginUnresolved,
        OriginError::Refused | OriginError::Connect(_) => Fault::OriginRefused,
        OriginError::ConnectTimeout(_) => Fault::OriginConnectTimeout,
        OriginError::Busy(_) => Fault::Overloaded,
        OriginError::Closed | OriginError::HeadShort => Fault::OriginClosedEarly,
        OriginError::FirstByteTimeout(_) => Fault::OriginStalled,
        OriginError::HeadTooLarge(_) => Fault::OriginHeadTooLarge,
        OriginError::Invalid(rule) => Fault::OriginInvalid(*rule),
        OriginError::Switched => Fault::OriginInvalid(Rule::Head(HeadRule::StatusCode)),
        OriginError::Reset | OriginError::BodyShort | OriginError::BodyStalled(_) => Fault::OriginReset,
    };
    // Nobody reads the rest of the request's body, so the connection ends.
    say(connection, request, fault, Some(error)).await
}

/// *synth*: an answer of our own; the connection goes on where nothing of the request is left unread.
pub(crate) async fn synth(connection: &mut Connection, request: &Arc<Request>, fault: Fault) -> bool {
    say(connection, request, fault, None).await
}

async fn say(
    connection: &mut Connection,
    request: &Arc<Request>,
    fault: Fault,
    error: Option<&OriginError>,
) -> bool {
    let unread = request.has_body();
    let open = send_page(connection, Some(request), fault, unread, error).await;
    if unread {
        connection.linger().await;
    }
    open
}

/// Says what the client did wrong, and ends the connection.
pub(crate) async fn refuse(
    connection: &mut Connection,
    request: Option<&Arc<Request>>,
    fault: Fault,
) -> bool {
    send_page(connection, request, fault, true, None).await;
    connection.linger().await;
    false
}

async fn send_page(
    connection: &mut Connection,
    request: Option<&Arc<Request>>,
    fault: Fault,
    close: bool,
    error: Option<&OriginError>,
) -> bool {
    let id = with_core(Core::request_id);
    // One line a failure, to be found by the number on the page.
    tracing::info!(
        request = %id,
        client = %connection.address,
        fault = fault.words().code,
        error = error.map(tracing::field::display),
        "answered with an error page"
    );
    let accept = request.and_then(|request| request.value(KnownHeader::Accept));
    let is_head = request.is_some_and(|request| request.method() == "HEAD");
    let close = close || request.is_none_or(|request| request.wants_close());
    let page = error_page::render(fault, &id, accept.as_deref());
    let mut out = Vec::with_capacity(512 + page.body.len());
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(page.status.to_string().as_bytes());
    for part in [" ", page.reason, "\r\nContent-Type: ", page.content_type, "\r\n", &*page.headers] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(httpdate::fmt_http_date(clock::now_system()).as_bytes());
    out.extend_from_slice(b"\r\nX-Request-Id: ");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\r\nContent-Length: ");
    out.extend_from_slice(page.body.len().to_string().as_bytes());
    out.extend_from_slice(if close { b"\r\nConnection: close\r\n\r\n" } else { b"\r\n\r\n" });
    if !is_head {
        out.extend_from_slice(&page.body);
    }
    connection.client.send_all(&out).await.is_ok() && !close
}
