//! The texts of the error pages: what happened, what a reader can do, and what the operator should look at.

use super::{NOT_YOUR_DOING, RETRY, Side, Words};

pub(super) const ORIGIN_UNRESOLVED: Words = Words {
    status: 502,
    code: "origin-unresolved",
    side: Side::Website,
    title: "The website’s server cannot be found",
    what: "This accelerator passes requests on to the website’s own server, but the name of that server \
           has no address at the moment.",
    visitor: RETRY,
    operator: "Check the host name in --origin, and that it resolves on this machine.",
};

pub(super) const ORIGIN_REFUSED: Words = Words {
    status: 502,
    code: "origin-refused",
    side: Side::Website,
    title: "The website’s server is not accepting connections",
    what: "This accelerator asked the website’s own server for the page, and that server refused the \
           connection. It may be restarting.",
    visitor: RETRY,
    operator: "Check that the server named in --origin is running and listens on that port.",
};

pub(super) const ORIGIN_UNTRUSTED: Words = Words {
    status: 502,
    code: "origin-untrusted",
    side: Side::Website,
    title: "The website’s server could not be trusted",
    what: "This accelerator asked the website’s own server for the page under TLS, and TLS failed: the server’s \
           certificate may have expired, or be for another name.",
    visitor: RETRY,
    operator: "The log has the TLS error. Check the certificate of the server named in --origin, the name in it, and \
               the trusted CA certificates.",
};

pub(super) const ORIGIN_DOWN: Words = Words {
    status: 502,
    code: "origin-down",
    side: Side::Website,
    title: "All of the website’s servers are down",
    what: "The website’s own servers are all marked as unhealthy at the moment.",
    visitor: RETRY,
    operator: "nighttrain origins shows the state of each server, and what its probes found.",
};

pub(super) const ORIGIN_RESET: Words = Words {
    status: 502,
    code: "origin-reset",
    side: Side::Website,
    title: "The website’s server broke off the connection",
    what: "The website’s own server accepted the request and then reset the connection before it had \
           answered. The program behind it may have crashed.",
    visitor: RETRY,
    operator: "Look in the origin’s error log for this moment.",
};

pub(super) const ORIGIN_CONNECT_TIMEOUT: Words = Words {
    status: 504,
    code: "origin-connect-timeout",
    side: Side::Website,
    title: "The website’s server cannot be reached",
    what: "This accelerator tried to connect to the website’s own server and had no reply in time.",
    visitor: RETRY,
    operator: "Check the network between this accelerator and the origin, and firewalls that drop packets.",
};

pub(super) const ORIGIN_STALLED: Words = Words {
    status: 504,
    code: "origin-stalled",
    side: Side::Website,
    title: "The website’s server took too long",
    what: "The website’s own server accepted the request but did not begin to answer in time. \
           It may be overloaded.",
    visitor: RETRY,
    operator: "Find out why the origin is slow, or raise its first-byte limit if this page needs longer.",
};

pub(super) const ORIGIN_INVALID: Words = Words {
    status: 502,
    code: "origin-invalid",
    side: Side::Website,
    title: "The website’s server sent a broken answer",
    what: "The website’s own server answered, but the answer does not follow the rules of HTTP, and \
           guessing what was meant would be unsafe.",
    visitor: RETRY,
    operator: "Ask the origin for the page directly and compare what it sends with the rule above.",
};

pub(super) const ORIGIN_HEAD_TOO_LARGE: Words = Words {
    status: 502,
    code: "origin-head-too-large",
    side: Side::Website,
    title: "The website’s server sent too many headers",
    what: "The website’s own server answered with more header data than this accelerator accepts.",
    visitor: "Delete this website’s cookies and reload the page. If it keeps failing, tell the people who \
              run the website and give them the request number below.",
    operator: "Find the header that grew (often Set-Cookie), or raise the limit on response heads.",
};

pub(super) const ORIGIN_CLOSED_EARLY: Words = Words {
    status: 502,
    code: "origin-closed-early",
    side: Side::Website,
    title: "The website’s server hung up without an answer",
    what: "The website’s own server accepted the request and closed the connection before it had answered.",
    visitor: RETRY,
    operator: "Look in the origin’s error log for this moment; a limit on its side may have been hit.",
};

pub(super) const BAD_REQUEST: Words = Words {
    status: 400,
    code: "bad-request",
    side: Side::Yours,
    title: "The request does not follow the rules of HTTP",
    what: "The request was refused before it reached the website, because servers could understand it in \
           different ways.",
    visitor: NOT_YOUR_DOING,
    operator: "The rule above says what to change.",
};

pub(super) const HEAD_TOO_LARGE: Words = Words {
    status: 431,
    code: "head-too-large",
    side: Side::Yours,
    title: "The request’s headers are too large",
    what: "The browser sent more header data than this accelerator accepts. Usually this is too many \
           cookies for one website.",
    visitor: "Delete this website’s cookies and reload the page.",
    operator: "Set fewer or smaller cookies, or raise the limit on request heads.",
};

pub(super) const URI_TOO_LONG: Words = Words {
    status: 414,
    code: "uri-too-long",
    side: Side::Yours,
    title: "The address is too long",
    what: "The requested address is longer than this accelerator accepts.",
    visitor: "Check the address for text that was pasted twice. If a form led here, tell the people who \
              run the website.",
    operator: "Send long data in a request body (POST) and not in the address.",
};

pub(super) const BODY_TOO_LARGE: Words = Words {
    status: 413,
    code: "body-too-large",
    side: Side::Yours,
    title: "The upload is too large",
    what: "The request carries more data than this accelerator passes on to the website.",
    visitor: "Send a smaller file, or several parts.",
    operator: "Raise the limit on request bodies if uploads of this size are meant to work.",
};

pub(super) const REQUEST_TIMEOUT: Words = Words {
    status: 408,
    code: "request-timeout",
    side: Side::Yours,
    title: "The request did not arrive in time",
    what: "The connection was opened, but the request on it was not complete within the time limit.",
    visitor: "Check your network connection and reload the page.",
    operator: "Send the whole head of a request at once.",
};

pub(super) const METHOD_NOT_ALLOWED: Words = Words {
    status: 405,
    code: "method-not-allowed",
    side: Side::Yours,
    title: "This kind of request is not allowed here",
    what: "TRACE would send the request’s headers back, and with them cookies and passwords. It is \
           refused here.",
    visitor: "Go back and follow a link instead.",
    operator: "Use another method, such as GET.",
};

pub(super) const METHOD_NOT_TAKEN: Words = Words {
    status: 405,
    code: "method-not-taken",
    side: Side::Yours,
    title: "This kind of request is not supported here",
    what: "The website accepts only other methods at this address.",
    visitor: "Go back and follow a link instead.",
    operator: "The Allow header of this answer names the allowed methods; the setting methods configures them.",
};

pub(super) const MISDIRECTED: Words = Words {
    status: 421,
    code: "misdirected",
    side: Side::Yours,
    title: "No website of this name is served here",
    what: "The request came to this accelerator, but no website of that name is served over this connection, or not by \
           https.",
    visitor: "Check the address for a typing mistake. If it is right, tell the people who run the website and give \
              them the request number below.",
    operator: "List the name in the hosts of a site, or set an origin for all other names; https needs a certificate \
               for the name, on the port of tls-listen.",
};

pub(super) const CERTIFICATE_WANTED: Words = Words {
    status: 421,
    code: "certificate-wanted",
    side: Side::Yours,
    title: "This website asks for a certificate",
    what: "The website requires a client certificate, and this connection was made without a valid one.",
    visitor: "Close the browser, open it again, and choose the certificate that you were given for this website.",
    operator: "A client must connect by https to this accelerator itself, name the website when it connects (SNI), and \
               show a certificate that is signed by one of tls-client-ca and has not expired.",
};

pub(super) const METHOD_NOT_IMPLEMENTED: Words = Words {
    status: 501,
    code: "method-not-implemented",
    side: Side::Yours,
    title: "This server is not a proxy for other addresses",
    what: "CONNECT asks for a tunnel to another server. This accelerator serves one website only.",
    visitor: "Check the proxy settings of your browser or system.",
    operator: "Send requests for this website directly.",
};

pub(super) const PURGE_FORBIDDEN: Words = Words {
    status: 403,
    code: "purge-forbidden",
    side: Side::Yours,
    title: "PURGE is not allowed from this address",
    what: "Removing a page from the store is allowed from listed networks only, and this address is in none.",
    visitor: "Nothing was removed. Reload the page to see it as usual.",
    operator: "Run nighttrain purge on the machine itself, or list the address in the setting purge-from.",
};

pub(super) const TRANSFER_CODING_NOT_IMPLEMENTED: Words = Words {
    status: 501,
    code: "transfer-coding-not-implemented",
    side: Side::Yours,
    title: "The request’s body has an unknown transfer coding",
    what: "The request’s Transfer-Encoding names a coding other than chunked.",
    visitor: NOT_YOUR_DOING,
    operator: "Send the body with a Content-Length, or with Transfer-Encoding: chunked alone.",
};

pub(super) const EXPECTATION_FAILED: Words = Words {
    status: 417,
    code: "expectation-failed",
    side: Side::Yours,
    title: "The request expects something unknown",
    what: "The request’s Expect header asks for something other than 100-continue.",
    visitor: NOT_YOUR_DOING,
    operator: "Leave out Expect, or send Expect: 100-continue.",
};

pub(super) const RANGE_NOT_SATISFIABLE: Words = Words {
    status: 416,
    code: "range-not-satisfiable",
    side: Side::Yours,
    title: "That part of the file does not exist",
    what: "The request asks for a range of bytes beyond the end of the file. The file may have become \
           shorter since a download began.",
    visitor: "Start the download again from the beginning.",
    operator: "Content-Range in this answer gives the present length.",
};

pub(super) const UNSUPPORTED_VERSION: Words = Words {
    status: 505,
    code: "unsupported-version",
    side: Side::Yours,
    title: "This version of HTTP is not supported here",
    what: "The request names a version of HTTP other than 1.0 and 1.1.",
    visitor: NOT_YOUR_DOING,
    operator: "Send HTTP/1.1 on this port.",
};

pub(super) const ONLY_IF_CACHED: Words = Words {
    status: 504,
    code: "only-if-cached",
    side: Side::Yours,
    title: "The page is not in the store",
    what: "The request asks for a stored copy only (Cache-Control: only-if-cached), and there is none that \
           may be used.",
    visitor: "Reload the page; your browser may be in offline mode.",
    operator: "Leave out only-if-cached to have the page fetched.",
};

pub(super) const TOO_MANY_REQUESTS: Words = Words {
    status: 429,
    code: "too-many-requests",
    side: Side::Yours,
    title: "Too many requests at once",
    what: "Your address, or its network, sent more requests than this website accepts in so short a time.",
    visitor: "Reload the page in a few seconds. If you share your address with many others, it may have been them.",
    operator: "The settings client-requests-per-second-max and network-requests-per-second-max set the limits; your \
               own proxy in front must be listed in trusted-proxies, or all requests count for its address.",
};

pub(super) const WORK_TOO_MUCH: Words = Words {
    status: 429,
    code: "work-too-much",
    side: Side::Yours,
    title: "This page is not available to you just now",
    what: "The website’s server would have to make the page, and is serving known visitors first.",
    visitor: "Reload the page in a few seconds.",
    operator: "The settings bots and strangers limit what crawlers, and visitors without a cookie, may cost the \
               website’s server.",
};

pub(super) const TOO_MANY_CONNECTIONS: Words = Words {
    status: 503,
    code: "too-many-connections",
    side: Side::Accelerator,
    title: "Too many visitors at this moment",
    what: "This accelerator has as many open connections as it may have.",
    visitor: "Reload the page in a few seconds.",
    operator: "If this lasts, raise the limit on connections or add a core.",
};

pub(super) const OVERLOADED: Words = Words {
    status: 503,
    code: "overloaded",
    side: Side::Accelerator,
    title: "Too many requests are waiting",
    what: "As many requests as may wait for the website’s own server are already waiting.",
    visitor: "Reload the page in a few seconds.",
    operator: "See whether the origin has become slow; if not, raise the limit on origin connections.",
};

pub(super) const LOOP_DETECTED: Words = Words {
    status: 508,
    code: "loop",
    side: Side::Accelerator,
    title: "This request goes round in a circle",
    what: "This accelerator sent the request on and received it again: the configured origin is this accelerator, or \
           leads back to it.",
    visitor: RETRY,
    operator: "Check --origin: it must name the website’s own server, not this accelerator’s --listen or anything that \
               leads back to it.",
};
