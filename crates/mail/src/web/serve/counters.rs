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
        Connections => Gauge, "mail_web_connections", None, "Connections of browsers and programs that are open.";
        ConnectionsWaited => Counter, "mail_web_connections_waited", None, "Connections that waited because every place was being answered.";
        ConnectionsIdle => Counter, "mail_web_connections_idle", None, "Connections closed while idle: for too long, or because places were short.";
        Requests => Counter, "mail_web_requests", None, "Requests answered.";
        ClientFaults => Counter, "mail_web_client_faults", None, "Requests answered with a status from 400 to 499.";
        ServerFaults => Counter, "mail_web_server_faults", None, "Requests answered with a status from 500 to 599.";
        Rendered => Counter, "mail_web_rendered", None, "Mails taken apart for a page or an API.";
        GistsMade => Counter, "mail_web_gists_made", None, "Mails taken apart for a list; what it shows of them is kept.";
        GistBytes => Gauge, "mail_web_gist_bytes", None, "Bytes kept of mails for lists, at most 32 MiB.";
        GistsDropped => Counter, "mail_web_gists_dropped", None, "Mails whose part in lists is not kept any more because those bytes are in use; it is made anew when asked for.";
        RenderedBytes => Gauge, "mail_web_rendered_bytes", None, "Bytes of documents made of mails' HTML that are kept for who asks next (16 MiB at most).";
        RenderedFound => Counter, "mail_web_rendered_found", None, "Documents made of mails' HTML that were there already.";
        RenderedDropped => Counter, "mail_web_rendered_dropped", None, "Documents made of mails' HTML that made room for others.";
        RenderBusy => Counter, "mail_web_render_busy", None, "Requests turned away because too many were waiting for large mails to be read.";
        SearchBusy => Counter, "mail_web_search_busy", None, "Searches turned away because too many were waiting for their turn.";
        HeldBytes => Gauge, "mail_web_held_bytes", None, "Bytes held for requests: bodies, mails read for an answer, answers under way; http-bytes-max bounds them.";
        HeldOver => Counter, "mail_web_held_over", None, "Requests turned away because http-bytes-max was reached, or the half of it that one address may have.";
        SourcesBroken => Counter, "mail_web_sources_broken", None, "Answers with the source of a large mail that broke off, because a part was damaged or gone, or there was no room for it in time.";
        ListsBroken => Counter, "mail_web_lists_broken", None, "Lists of whole mails that broke off: no room for the next mail, or it could not be read.";
        RenderLeft => Counter, "mail_web_render_left", None, "Renders that ended early because nobody waited for them any more.";
        RenderTimeOver => Counter, "mail_web_render_time_over", None, "Mails whose HTML was not shown because it took too long to be made safe.";
        RenderOver => Counter, "mail_web_render_over", None, "Pages that showed the text of a mail because its HTML was over a bound (tags, attributes, elements, depth, time).";
        StylesOver => Counter, "mail_web_styles_over", None, "Mails shown without a part of their style sheets, because those were over a bound (bytes, rules, selectors, declarations, depth).";
        Leaving => Gauge, "mail_web_leaving", None, "Mails that were deleted on a page and can be brought back for ten seconds.";
        LeavingFull => Counter, "mail_web_leaving_full", None, "Deletions on a page that could not be undone, because too many mails were on their way out (10,000).";
        Listeners => Gauge, "mail_web_listeners", None, "Live pages, streams and waiting requests.";
        ListenersFull => Counter, "mail_web_listeners_full", None, "Live pages, streams and waits turned away because of the limit.";
        ListenersCut => Counter, "mail_web_listeners_cut", None, "Live pages and waits that were ended because their client had most of them and others came.";
        ListenersLagged => Counter, "mail_web_listeners_lagged", None, "Times that a listener missed events, because it read too slowly or because they were lost before; it was told to look again.";
        Unauthorized => Counter, "mail_web_unauthorized", None, "Requests for more than one inbox without the token.";
        ProxySignsHttp10 => Counter, "mail_web_proxy_signs_http10", None, "Requests in HTTP/1.0 from this machine: a proxy that does not say for whom it asks sent them, so all mail together is closed to this machine.";
        ProxySignsHost => Counter, "mail_web_proxy_signs_host", None, "Requests of pages that were opened at another host than they ask for: a proxy that does not say for whom it asks sent them, so its address has no right to all mail together.";
        ProxiesFull => Counter, "mail_web_proxies_full", None, "Times that more addresses of mail-readers were such proxies than are remembered (256); only whom a trusted proxy names is a reader then.";
        ForeignWrites => Counter, "mail_web_foreign_writes", None, "Changes refused because another site's page asked for them.";
        ForeignHosts => Counter, "mail_web_foreign_hosts", None, "Requests refused because their Host is no address, not localhost and not in http-hosts.";
        BodiesCut => Counter, "mail_web_bodies_cut", None, "Requests whose body was refused and longer, or slower, than what is thrown away; their connections were closed.";
        IndexMails => Gauge, "mail_search_index_mails", None, "Mails in the index for searches.";
        IndexPending => Gauge, "mail_search_index_pending", None, "Mails that the index for searches is to take in: each search looks into them, unless the index of the version before knows them.";
        IndexBytes => Gauge, "mail_search_index_bytes", Bytes, "Bytes of the index for searches on the disk.";
        IndexAsked => Counter, "mail_search_index_asked", None, "Searches that were told by the index which mails to look into.";
        IndexDamaged => Counter, "mail_search_index_damaged", None, "Files of the index for searches that were damaged, or of another version or store, and are made anew.";
        IndexNotWritten => Counter, "mail_search_index_not_written", None, "Times that the disk took nothing of the index for searches; searches look into the mails themselves.";
        SearchesBounded => Counter, "mail_web_searches_bounded", None, "Searches that stopped at a bound before they had found enough.";
        TagsRefused => Counter, "mail_web_tags_refused", None, "Tags that were not taken: too long a name, too many on a mail, too many bytes of them in an inbox or in all.";
        MarksDropped => Counter, "mail_web_marks_dropped", None, "Marks (read, tags) forgotten because there were too many.";
    }
}

/// Values of the counters. One thread writes nearly all of them, so an atomic addition is uncontended.
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
