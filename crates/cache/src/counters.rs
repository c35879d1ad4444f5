//! Counters of the accelerator. Each limit has a counter for the times that it is hit.

use engine::store::InsertRefusal;
use wire::{
    http1::head::{HeadError, HeadRule},
    http2::connection::Limit,
};

use crate::origin::OriginError;

engine::counters! {
    /// Counters and gauges of the accelerator, one row per core.
    pub enum Counter {
        Connections => Gauge, "cache_connections", None, "Open client connections.";
        Accepted => Counter, "cache_connections_accepted", None, "Client connections accepted.";
        HandedOff => Counter, "cache_connections_handed_off", None, "Connections handed to a less busy core.";
        Handshakes => Counter, "cache_handshakes", None, "TLS handshakes completed.";
        BadProxyHeaders => Counter, "cache_bad_proxy_headers", None, "Connections from proxy-protocol-from networks that did not begin with a PROXY protocol header.";
        HandshakesFailed => Counter, "cache_handshakes_failed", None, "TLS handshakes that the client aborted, that were refused, or that timed out.";
        ChallengesAnswered => Counter, "cache_acme_challenges_answered", None, "ACME challenges answered: validation requests of a certificate authority.";
        ConnectionsHttp2 => Counter, "cache_http2_connections", None, "Open client connections that speak HTTP/2.";
        RequestsHttp2 => Counter, "cache_http2_requests", None, "Requests received over HTTP/2.";
        StreamsReset => Counter, "cache_http2_streams_reset", None, "HTTP/2 streams reset by their clients.";
        StreamsRefused => Counter, "cache_http2_streams_refused", None, "HTTP/2 streams refused because the connection or the core is at its stream limit; clients may retry.";
        EndedRapidReset => Counter, "cache_http2_ended_rapid_reset", None, "HTTP/2 connections closed for rapid reset: streams opened and reset without end.";
        EndedMadeUsReset => Counter, "cache_http2_ended_made_us_reset", None, "HTTP/2 connections closed after repeated protocol errors on their streams.";
        EndedRefusals => Counter, "cache_http2_ended_refusals", None, "HTTP/2 connections closed because they opened more streams than announced.";
        EndedContinuations => Counter, "cache_http2_ended_continuations", None, "HTTP/2 connections closed because a field block did not end.";
        EndedHeaderBlock => Counter, "cache_http2_ended_header_block", None, "HTTP/2 connections closed because a field block was too long.";
        EndedHeaderList => Counter, "cache_http2_ended_header_list", None, "HTTP/2 connections closed because a decoded field section was far over the limit.";
        EndedSettings => Counter, "cache_http2_ended_settings", None, "HTTP/2 connections closed for a flood of SETTINGS frames.";
        EndedPings => Counter, "cache_http2_ended_pings", None, "HTTP/2 connections closed for a flood of PING frames.";
        EndedPriorities => Counter, "cache_http2_ended_priorities", None, "HTTP/2 connections closed for a flood of priority frames.";
        EndedSmallFrames => Counter, "cache_http2_ended_small_frames", None, "HTTP/2 connections closed for a flood of very small frames of content.";
        EndedUselessFrames => Counter, "cache_http2_ended_useless_frames", None, "HTTP/2 connections closed for a flood of frames without effect.";
        EndedWindowUpdates => Counter, "cache_http2_ended_window_updates", None, "HTTP/2 connections closed for a flood of WINDOW_UPDATE frames.";
        EndedTinyWindows => Counter, "cache_http2_ended_tiny_windows", None, "HTTP/2 connections closed because their flow-control windows let only a few bytes out at a time.";
        Requests => Counter, "cache_requests", None, "Requests whose head was received.";
        Hits => Counter, "cache_hits", None, "Requests answered from the store.";
        HitsNotModified => Counter, "cache_hits_not_modified", None, "Hits answered with 304, without the body.";
        HitsRange => Counter, "cache_hits_range", None, "Hits answered with 206, a part of the body.";
        HitsCoded => Counter, "cache_hits_coded", None, "Hits answered with a content coding that was made here.";
        CodedBytesSaved => Counter, "cache_coded_saved_bytes", None, "Bytes that compression saved on these hits.";
        CodingsMade => Counter, "cache_codings_made", None, "Encoded variants made of stored objects for clients that accept the coding.";
        CodingsNotShrunk => Counter, "cache_codings_not_shrunk", None, "Stored objects left uncompressed because compression saves less than a twentieth.";
        CodingsRefused => Counter, "cache_codings_refused", None, "Compressions refused because too much content was waiting to be compressed.";
        HitsDecoded => Counter, "cache_hits_decoded", None, "Hits answered without the origin's content coding, for clients that do not accept it.";
        DecodedMade => Counter, "cache_decoded_made", None, "Decoded variants made of stored objects for such clients.";
        DecodedNotPossible => Counter, "cache_decoded_not_possible", None, "Stored objects sent in the origin's coding because their content is damaged or too long once decoded.";
        DecodingsRefused => Counter, "cache_decodings_refused", None, "Answers sent in a coding that the client does not accept, because too much content was waiting to be decoded.";
        ObjectsInBlocks => Counter, "cache_objects_in_blocks", None, "Large objects stored without their content, which is fetched in slices.";
        BlocksStored => Counter, "cache_blocks_stored", None, "Slices of large objects sent from the store.";
        BlocksFetched => Counter, "cache_blocks_fetched", None, "Slices of large objects fetched from the origin.";
        BlocksLost => Counter, "cache_blocks_lost", None, "Sliced objects dropped because the origin has another version or does not send ranges of it.";
        BodiesLent => Counter, "cache_bodies_lent", None, "Hits whose body was sent by reference to the store's pages, without a copy.";
        Misses => Counter, "cache_misses", None, "Requests for which the store had no usable object.";
        Collapsed => Counter, "cache_misses_collapsed", None, "Misses that waited for a fetch already under way.";
        FileRefused => Counter, "cache_file_reads_refused", None, "Objects on the store's file that were fetched from the origin because too many disk reads were under way.";
        PartsShared => Counter, "cache_parts_shared", None, "Parts of large objects that were in memory, or being read, for another request.";
        PartsRefused => Counter, "cache_parts_refused", None, "Large objects on the store's file that were passed because too many were being sent or read from it.";
        PartsSlowed => Counter, "cache_parts_slowed", None, "Answers from large objects on the store's file whose read-ahead ended because their client held most of the memory for it and other clients needed some.";
        PartsGaveWay => Counter, "cache_parts_gave_way", None, "Answers from large objects on the store's file that were cut because their client held most of the memory for it and other clients needed some.";
        PartsCut => Counter, "cache_parts_cut", None, "Answers cut short because a part of a large object could not be read from the store's file.";
        Passes => Counter, "cache_passes", None, "Requests passed to the origin, bypassing the store.";
        Pipes => Counter, "cache_pipes", None, "WebSockets opened.";
        PipesOpen => Gauge, "cache_pipes_open", None, "Open WebSockets.";
        PipesRefused => Counter, "cache_pipes_refused", None, "WebSockets answered 503 because origin_lasting_max was reached.";
        PipesIdle => Counter, "cache_pipes_idle", None, "WebSockets closed after no data moved for pipe_idle_time_max.";
        PipesBroken => Counter, "cache_pipes_broken", None, "WebSockets closed because one side disconnected.";
        Fetches => Counter, "cache_fetches", None, "Fetches: requests sent to the origin for the store.";
        HitsStale => Counter, "cache_hits_stale", None, "Requests answered with a stale object, as the origin (RFC 5861) or a setting allows.";
        Refreshes => Counter, "cache_refreshes", None, "Background fetches begun while a stale object was served.";
        InterimsPassed => Counter, "cache_interims_passed", None, "Interim responses of the origin (1xx, such as 103 Early Hints) forwarded to clients.";
        Revalidated => Counter, "cache_revalidated", None, "Stored objects that the origin confirmed as unchanged (304).";
        HeardStale => Counter, "cache_heard_stale", None, "Stored objects made stale because the origin's answer to a HEAD request differs.";
        FetchesBehind => Counter, "cache_fetches_behind", None, "Fetched answers that waited for hits, because the time for storing answers in this round of the event loop was used up.";
        FetchesGivenUp => Counter, "cache_fetches_given_up", None, "Fetches abandoned because the answer was neither stored nor read by a client any more.";
        WaitsInVain => Counter, "cache_waits_in_vain", None, "Collapsed requests that could not use the fetched answer, because it must be validated before each use or had expired on arrival; for a minute such requests go to the origin side by side.";
        SharedLate => Counter, "cache_shared_late", None, "Answers that had expired on arrival and were still given to the collapsed requests waiting for them.";
        Uncacheable => Counter, "cache_uncacheable", None, "Answers to fetches that may not be stored.";
        WithoutFreshness => Counter, "cache_without_freshness", None, "Pages fetched that state no freshness lifetime and allow no heuristic one.";
        NotesLeft => Counter, "cache_notes_left", None, "hit-for-miss notes made: answers for the key are not stored, so its requests pass at once.";
        PassesNarrowed => Counter, "cache_passes_narrowed", None, "Chunks not read ahead for a slow reader because too much data was waiting for all slow readers.";
        SharedPagesDiffer => Counter, "cache_shared_pages_differ", None, "Fetches for a visitor with a cookie whose answer differs from the one before, although all visitors share it by its max-age alone.";
        NotesUsed => Counter, "cache_notes_used", None, "Requests passed at once because of a hit-for-miss note.";
        LeasesOut => Counter, "cache_leases_out", None, "Stored objects revalidated because this instance's cluster lease ran out: purges of other instances may have been missed.";
        PurgesNotTold => Counter, "cache_purges_not_told", None, "Purges by visitors' requests that were applied here but not sent to the other instances.";
        Purges => Counter, "cache_purges", None, "Purges carried out.";
        InvalidatedDropped => Counter, "cache_invalidated_dropped", None, "Stored objects dropped at lookup because of an earlier purge by tag or of everything.";
        TagsPurged => Gauge, "cache_tags_purged", None, "Purged tags and addresses that the core keeps to check stored objects against.";
        Bans => Gauge, "cache_bans", None, "Bans that the core keeps to check stored objects against.";
        BansDropped => Counter, "cache_bans_dropped", None, "Stored objects dropped because the ban lurker found a ban that matches them.";
        PurgesForbidden => Counter, "cache_purges_forbidden", None, "Purges refused because the client's address is in no permitted network.";
        PurgesNotUnderstood => Counter, "cache_purges_not_understood", None, "Purges refused because the request was malformed.";
        Misdirected => Counter, "cache_misdirected", None, "Requests answered 421 because no site is configured for their host.";
        CertificatesWanted => Counter, "cache_certificates_wanted", None, "Requests answered 421 because their site requires a client certificate and the connection has none or an expired one.";
        MethodsRefused => Counter, "cache_methods_refused", None, "Requests answered 405 because their site does not allow their method.";
        Invalidations => Counter, "cache_invalidations", None, "Objects dropped because an unsafe request changed them (RFC 9111 §4.4).";
        BytesSent => Counter, "cache_sent_bytes", Bytes, "Response bytes written to clients' sockets.";
        BytesSaved => Counter, "cache_saved_bytes", Bytes, "Body bytes that the origin did not have to send.";
        MillisSaved => Counter, "cache_saved_milliseconds", None, "Origin time saved by hits: the sum of what the origin had taken to answer when the object was stored.";
        BytesFetched => Counter, "cache_fetched_bytes", Bytes, "Body bytes received from the origin.";
        PeerAsks => Counter, "cache_peers_asked", None, "Requests sent to peers for keys that they own.";
        PeerHits => Counter, "cache_peers_hits", None, "Requests to peers answered from the peer's store.";
        PeerDeclined => Counter, "cache_peers_declined", None, "Requests to peers that the peer declined: overloaded, no lease, or nothing to share.";
        PeerAnswersBehind => Counter, "cache_peers_behind", None, "Answers of peers not used because the peer had not applied a purge that was known when the request began.";
        PeerFailures => Counter, "cache_peers_failures", None, "Requests to peers that failed: timeout, broken connection, or invalid answer.";
        PeersBusy => Counter, "cache_peers_busy", None, "Requests sent to the origin because the core has as many connections to the peer as it may.";
        PeerNotKept => Counter, "cache_peers_not_kept", None, "Answers of peers that were given to waiting requests and not stored, because the key had not been requested recently.";
        PeerResumed => Counter, "cache_peers_resumed", None, "Answers that a peer broke off and the origin completed.";
        PeerBytes => Counter, "cache_peers_bytes", Bytes, "Body bytes received from peers.";
        PeerServed => Counter, "cache_peers_served", None, "Requests from peers answered.";
        PeerServedNot => Counter, "cache_peers_served_not", None, "Requests from peers declined because of their kind, or because this instance had no lease.";
        PeerRequestsMax => Counter, "cache_peers_requests_max", None, "Requests from peers declined because too many were being served.";
        PeerForged => Counter, "cache_peers_forged", None, "Requests to peers-listen that no peer sent: without a valid MAC, or signed with another secret.";
        PeerReplayed => Counter, "cache_peers_replayed", None, "Requests from peers refused as replays.";
        OriginConnects => Counter, "cache_origin_connects", None, "Connections opened to the origin.";
        OriginHttp2Connects => Counter, "cache_origin_http2_connects", None, "Connections opened to the origin that use HTTP/2.";
        OriginHttp2Open => Gauge, "cache_origin_http2_open", None, "Open HTTP/2 connections to the origin.";
        OriginHttp2Requests => Counter, "cache_origin_http2_requests", None, "Requests sent to the origin over HTTP/2.";
        OriginHttp2Unprocessed => Counter, "cache_origin_http2_unprocessed", None, "HTTP/2 requests that the origin reported as not processed and that were sent again.";
        OriginHttp2Silent => Counter, "cache_origin_http2_silent", None, "HTTP/2 connections to the origin closed because a ping was not answered.";
        OriginStreamsBusy => Counter, "cache_origin_streams_busy", None, "Requests for which no receive budget for an HTTP/2 answer became free in time.";
        OriginTooSlow => Counter, "cache_origin_too_slow", None, "Answers of the origin that were not complete within origin-request-time-max.";
        OriginRetries => Counter, "cache_origin_retries", None, "Requests retried at another server of the origin because one did not answer.";
        OriginEjections => Counter, "cache_origin_ejections", None, "Times that a server of an origin was ejected after repeated failures.";
        OriginProbes => Counter, "cache_origin_probes", None, "Health probes sent to origins' servers.";
        OriginProbesFailed => Counter, "cache_origin_probes_failed", None, "Health probes that failed.";
        OriginRefused => Counter, "cache_origin_refused", None, "Connections to the origin that failed: refused, unresolved or unreachable.";
        OriginClosed => Counter, "cache_origin_closed", None, "Connections that the origin closed or reset before it had answered.";
        OriginTimeouts => Counter, "cache_origin_timeouts", None, "Timeouts of the origin while connecting, answering or sending.";
        OriginInvalid => Counter, "cache_origin_invalid", None, "Answers of the origin that broke the protocol.";
        OriginHeadTooLarge => Counter, "cache_origin_head_too_large", None, "Answers of the origin whose head was over the limit.";
        OriginBodyShort => Counter, "cache_origin_body_short", None, "Answers of the origin whose body ended too early.";
        OriginLongWaits => Counter, "cache_origin_long_waits", None, "Requests that waited more than a second for an exchange with a server of an origin.";
        WideRanges => Counter, "cache_wide_ranges", None, "Range requests passed because storing would have fetched, or read and dropped, far more than they ask for.";
        QueriesTooMany => Counter, "cache_queries_too_many", None, "Answers not stored because other queries of their path have used their share of the store; they are stored when requested again.";
        OriginBusy => Counter, "cache_origin_busy", None, "Requests for which no connection to the origin became free in time.";
        BadRequests => Counter, "cache_bad_requests", None, "Requests refused because they break the protocol.";
        TrailersDropped => Counter, "cache_trailers_dropped", None, "Trailers of origins and clients dropped because their name is not allowed in trailers (RFC 9110 §6.5.1).";
        HeadsTooLarge => Counter, "cache_request_heads_too_large", None, "Requests refused because their request line or headers are too large.";
        BodiesTooLarge => Counter, "cache_request_bodies_too_large", None, "Requests refused because their body is too large.";
        SlowHeads => Counter, "cache_slow_heads", None, "Clients that did not finish a request's head in time.";
        ClientsGone => Counter, "cache_clients_gone", None, "Clients that left before their answer was sent.";
        ClientsGoneInHead => Counter, "cache_clients_gone_in_head", None, "Clients that left in the middle of a request's head.";
        ClientsStalled => Counter, "cache_clients_stalled", None, "Clients disconnected because they stopped reading or sending.";
        SlowReaders => Counter, "cache_slow_readers", None, "Clients disconnected because they read more slowly than send_rate_min.";
        ConnectionsUsedUp => Counter, "cache_connections_used_up", None, "Connections closed in order because they reached requests_per_connection_max.";
        HandshakesRefused => Counter, "cache_handshakes_refused", None, "TLS connections closed because the core had handshakes_max handshakes under way.";
        ConnectionBytes => Gauge, "cache_connection_bytes", Bytes, "Memory that connections and pending handshakes are charged with.";
        ConnectionBytesRefused => Counter, "cache_connection_bytes_refused", None, "Connections refused because open connections use all of connection_bytes_max.";
        IdleEvicted => Counter, "cache_idle_evicted", None, "Connections closed while idle or slow in a request's head, because connections or their memory were near a limit.";
        SlowReadersCut => Counter, "cache_slow_readers_cut", None, "Clients disconnected because they held memory that the store wanted back.";
        RemaindersCopied => Counter, "cache_remainders_copied", None, "Rests of answers copied out of the store for slow clients.";
        ConnectionsRefused => Counter, "cache_connections_refused", None, "Connections over the limit of this core, of clients that have most of them, or when all clients have few.";
        ConnectionsDisplaced => Counter, "cache_connections_displaced", None, "Connections closed in favour of other clients because the core was at its limit and their client had the most.";
        ClientConnectionsRefused => Counter, "cache_client_connections_refused", None, "Connections refused over the limit of one client address.";
        CrawlersHeldBack => Counter, "cache_crawlers_held_back", None, "Requests of crawlers refused because the crawlers' budget at the origin was used up.";
        StrangersHeldBack => Counter, "cache_strangers_held_back", None, "Requests without a cookie refused because the strangers' budget at the origin was used up.";
        NetworkConnectionsRefused => Counter, "cache_network_connections_refused", None, "Connections refused over the limit of one client's network.";
        ClientRequestsRefused => Counter, "cache_client_requests_refused", None, "Requests answered 429, over the rate of one client address.";
        NetworkRequestsRefused => Counter, "cache_network_requests_refused", None, "Requests answered 429, over the rate of one client's network.";
        BodiesCut => Counter, "cache_bodies_cut", None, "Answers cut short because the origin closed the connection.";
        StoreNoRoom => Counter, "cache_store_no_room", None, "Answers not stored because no segment was free.";
        StoreTooLarge => Counter, "cache_store_too_large", None, "Answers not stored because they are larger than the largest object.";
        FetchTableFull => Counter, "cache_fetch_table_full", None, "Misses passed because too many fetches were under way.";
        PurgesRefused => Counter, "cache_purges_refused", None, "Purges and invalidations not carried out because the ring to the core that owns the key stayed full.";
        TagTableEmptied => Counter, "cache_tag_table_emptied", None, "Times that a core had as many purged tags as it keeps and treated all tagged objects as purged.";
        MomentaryTableFull => Counter, "cache_momentary_table_full", None, "Times that a core had as many momentarily changed tags as it keeps and treated all momentary answers as changed.";
        VariantsTooMany => Counter, "cache_variants_too_many", None, "Answers not stored because their key has as many variants as it may.";
        BansOverflowed => Counter, "cache_bans_overflowed", None, "Bans turned into a purge of all older objects, because a core had as many as it keeps.";
        TagsTooMany => Counter, "cache_tags_too_many", None, "Answers not stored because their tags are too many or too long.";
        SlowBodies => Counter, "cache_slow_bodies", None, "Requests refused because their body arrived too slowly.";
        TurnsCut => Counter, "cache_turns_cut", None, "Event loop turns that ended because one connection had sent as many requests as a turn answers.";
        TurnsWaited => Counter, "cache_turns_waited", None, "Times that a busy connection waited for its turn among those of its address.";
        ClientsOverBytes => Counter, "cache_clients_over_bytes", None, "Clients disconnected because clients together used the core's part of client_bytes_max.";
        CoreRingFull => Counter, "cache_core_ring_full", None, "Misses passed because the ring to the core that owns the key was full.";
    }
}

impl Counter {
    pub(crate) fn of_origin_error(error: &OriginError) -> Self {
        match error {
            OriginError::Unresolved(_)
            | OriginError::ResolveTimeout(_)
            | OriginError::Refused
            | OriginError::Connect(_)
            | OriginError::Tls(_)
            | OriginError::NobodyUp => Self::OriginRefused,
            OriginError::ConnectTimeout(_)
            | OriginError::FirstByteTimeout(_)
            | OriginError::BodyStalled(_) => Self::OriginTimeouts,
            OriginError::TooSlow(_) => Self::OriginTooSlow,
            OriginError::Busy(_) | OriginError::Queue(_) | OriginError::NoSocket(_) => Self::OriginBusy,
            OriginError::StreamsBusy(_) => Self::OriginStreamsBusy,
            OriginError::Closed
            | OriginError::Reset
            | OriginError::Broken(_)
            | OriginError::HeadShort
            | OriginError::Unprocessed
            | OriginError::Http1Required => Self::OriginClosed,
            OriginError::HeadTooLarge(_) => Self::OriginHeadTooLarge,
            OriginError::Invalid(_)
            | OriginError::Switched
            | OriginError::NotSwitched
            | OriginError::UnaskedNotModified => Self::OriginInvalid,
            OriginError::BodyShort => Self::OriginBodyShort,
        }
    }

    pub(crate) fn of_http2_limit(limit: Limit) -> Self {
        match limit {
            Limit::RapidReset => Self::EndedRapidReset,
            Limit::MadeUsReset => Self::EndedMadeUsReset,
            Limit::Refusals => Self::EndedRefusals,
            Limit::Continuations => Self::EndedContinuations,
            Limit::HeaderBlock => Self::EndedHeaderBlock,
            Limit::HeaderList => Self::EndedHeaderList,
            Limit::Settings => Self::EndedSettings,
            Limit::Pings => Self::EndedPings,
            Limit::Priorities => Self::EndedPriorities,
            Limit::SmallFrames => Self::EndedSmallFrames,
            Limit::UselessFrames => Self::EndedUselessFrames,
            Limit::WindowUpdates => Self::EndedWindowUpdates,
            Limit::TinyWindows => Self::EndedTinyWindows,
        }
    }

    pub(crate) fn of_refusal(refused: InsertRefusal) -> Self {
        match refused {
            InsertRefusal::NoRoom => Self::StoreNoRoom,
            InsertRefusal::TooLarge => Self::StoreTooLarge,
            InsertRefusal::Short => Self::OriginBodyShort,
        }
    }

    pub(crate) fn of_head_error(error: &HeadError) -> Self {
        match error.rule {
            HeadRule::LineTooLong | HeadRule::HeadersTooLarge | HeadRule::TooManyHeaders => {
                Self::HeadsTooLarge
            }
            _ => Self::BadRequests,
        }
    }
}
