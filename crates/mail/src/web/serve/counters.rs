//! Counters of the pages and APIs. Each limit has a counter of how often it is hit.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use engine::{
    bounded,
    meter::{CounterTable, Family, Kind, Point, Source, Value},
};

engine::counters! {
    /// Counters and gauges of the pages and APIs.
    pub enum Counter {
        Connections => Gauge, "mail_web_connections", None, "Open HTTP connections.";
        ConnectionsWaited => Counter, "mail_web_connections_waited", None, "Connections that waited because all connection slots were in use.";
        ConnectionsIdle => Counter, "mail_web_connections_idle", None, "Connections closed while idle, after the timeout or because connection slots were short.";
        Requests => Counter, "mail_web_requests", None, "Requests answered.";
        ClientFaults => Counter, "mail_web_client_faults", None, "Requests answered with a 4xx status.";
        ServerFaults => Counter, "mail_web_server_faults", None, "Requests answered with a 5xx status.";
        Rendered => Counter, "mail_web_rendered", None, "Mails parsed for a page or an API.";
        GistsMade => Counter, "mail_web_gists_made", None, "Mails parsed for a list; the preview is cached.";
        GistBytes => Gauge, "mail_web_gist_bytes", None, "Bytes of cached previews, at most 16 MiB.";
        GistsDropped => Counter, "mail_web_gists_dropped", None, "Previews evicted because the cache was full; each is made again on demand.";
        RenderedBytes => Gauge, "mail_web_rendered_bytes", None, "Bytes of cached HTML documents of mails, at most 8 MiB.";
        RenderedFound => Counter, "mail_web_rendered_found", None, "Requests answered with a cached HTML document of a mail.";
        RenderedDropped => Counter, "mail_web_rendered_dropped", None, "Cached HTML documents evicted for others.";
        RenderBusy => Counter, "mail_web_render_busy", None, "Requests refused because too many were waiting for large mails to be read.";
        SearchBusy => Counter, "mail_web_search_busy", None, "Searches refused because too many were queued.";
        HeldBytes => Gauge, "mail_web_held_bytes", None, "Memory of requests: bodies, mails read for an answer, answers under way; bounded by http-bytes-max.";
        HeldOver => Counter, "mail_web_held_over", None, "Requests refused because http-bytes-max, or the half of it per address, was reached.";
        SourcesBroken => Counter, "mail_web_sources_broken", None, "Downloads of a large mail's source that broke off, because a part was damaged or gone, or memory was not free in time.";
        ListsBroken => Counter, "mail_web_lists_broken", None, "Lists of whole mails that broke off because the next mail could not be read or had no memory.";
        RenderLeft => Counter, "mail_web_render_left", None, "Renders abandoned because no request waited for them any more.";
        RenderTimeOver => Counter, "mail_web_render_time_over", None, "Mails whose HTML was not shown because sanitizing it took too long.";
        RenderOver => Counter, "mail_web_render_over", None, "Pages that showed a mail's text because its HTML exceeded a limit (tags, attributes, elements, depth, time).";
        StylesOver => Counter, "mail_web_styles_over", None, "Mails shown without part of their style sheets, which exceeded a limit (bytes, rules, selectors, declarations, depth).";
        Leaving => Gauge, "mail_web_leaving", None, "Mails deleted on a page that can be restored for ten seconds.";
        LeavingFull => Counter, "mail_web_leaving_full", None, "Deletions on a page that could not be undone, because 10,000 mails were already waiting to be deleted.";
        Listeners => Gauge, "mail_web_listeners", None, "Open live pages, event streams and waiting requests.";
        ListenersFull => Counter, "mail_web_listeners_full", None, "Live pages, event streams and waits refused because of the limit.";
        ListenersCut => Counter, "mail_web_listeners_cut", None, "Live pages and waits ended because their client had the most and other clients came.";
        ListenersLagged => Counter, "mail_web_listeners_lagged", None, "Times that a listener missed events, because it read too slowly or they were lost earlier; it was told to reload.";
        Unauthorized => Counter, "mail_web_unauthorized", None, "Requests for more than one inbox refused for want of the token.";
        ProxySignsHttp10 => Counter, "mail_web_proxy_signs_http10", None, "HTTP/1.0 requests from this machine, which show a proxy that does not name its clients; the view of all mail is closed to this machine.";
        ProxySignsHost => Counter, "mail_web_proxy_signs_host", None, "Requests from pages opened at another host, which show a proxy that does not name its clients; its address may not see all mail.";
        ProxiesFull => Counter, "mail_web_proxies_full", None, "Times that more than 256 addresses of mail-readers were such proxies; mail-readers then admits no machine but this one.";
        ForeignWrites => Counter, "mail_web_foreign_writes", None, "Changes refused because another site's page sent them.";
        ForeignHosts => Counter, "mail_web_foreign_hosts", None, "Requests refused because their Host is neither an address, localhost nor in http-hosts.";
        BodiesCut => Counter, "mail_web_bodies_cut", None, "Connections closed because the rest of a refused request's body was too long or too slow to discard.";
        IndexMails => Gauge, "mail_search_index_mails", None, "Mails in the search index.";
        IndexPending => Gauge, "mail_search_index_pending", None, "Mails not yet in the search index; each search reads them, unless the previous version's index has them.";
        IndexBytes => Gauge, "mail_search_index_bytes", Bytes, "Bytes of the search index on disk.";
        IndexAsked => Counter, "mail_search_index_asked", None, "Searches narrowed down by the search index.";
        IndexDamaged => Counter, "mail_search_index_damaged", None, "Files of the search index rebuilt because they were damaged, or of another version or store.";
        IndexNotWritten => Counter, "mail_search_index_not_written", None, "Failed writes of the search index; searches read the mails themselves.";
        SearchesBounded => Counter, "mail_web_searches_bounded", None, "Searches stopped at a limit before they had found enough.";
        TagsRefused => Counter, "mail_web_tags_refused", None, "Tags refused: name too long, too many on a mail, or too many bytes in an inbox or in all.";
        MarksDropped => Counter, "mail_web_marks_dropped", None, "Flags and tags dropped because there were too many.";
    }
}

/// Values of the counters. One thread writes nearly all of them, so atomic additions are uncontended.
#[derive(Debug)]
pub(crate) struct Counters {
    cells: Box<[AtomicU64]>,
    /// Counters of the listener, once there is one.
    listener: OnceLock<bounded::Counters>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let cells = Counter::SPECS.iter().map(|_| AtomicU64::new(0)).collect();
        Self { cells, listener: OnceLock::new() }
    }

    /// Adds the listener's counters.
    pub(crate) fn listening(&self, listener: bounded::Counters) {
        // Set only once, as there is only one listener.
        _ = self.listener.set(listener);
    }

    pub(crate) fn set(&self, counter: Counter, n: u64) {
        self.cells[counter.index()].store(n, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn now(&self, counter: Counter) -> u64 {
        self.cells[counter.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.cells[counter.index()].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, counter: Counter, n: u64) {
        self.cells[counter.index()].fetch_sub(n, Ordering::Relaxed);
    }
}

impl Source for Counters {
    fn collect(&self, families: &mut Vec<Family>) {
        if let Some(listener) = self.listener.get() {
            let counts = listener.now();
            self.set(Counter::Connections, counts.open);
            self.set(Counter::ConnectionsWaited, counts.waited);
            self.set(Counter::ConnectionsIdle, counts.idle_ended + counts.idle_evicted);
            listener.collect(families);
        }
        families.extend(Counter::SPECS.iter().zip(&self.cells).map(|(spec, cell)| {
            let total = cell.load(Ordering::Relaxed);
            let value = match spec.kind {
                Kind::Counter => Value::Counter(total),
                Kind::Gauge => Value::Gauge(total.cast_signed() as f64),
            };
            Family {
                name: spec.name,
                help: spec.help,
                unit: spec.unit,
                points: vec![Point { labels: Vec::new(), value }],
            }
        }));
    }
}
