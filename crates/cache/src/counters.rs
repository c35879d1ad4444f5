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
        Connections => Gauge, "cache_connections", None, "Connections of clients that are open.";
        Accepted => Counter, "cache_connections_accepted", None, "Connections that clients opened.";
        HandedOff => Counter, "cache_connections_handed_off", None, "Connections given to a less busy core.";
        Handshakes => Counter, "cache_handshakes", None, "Handshakes of TLS that came to their end.";
        BadProxyHeaders => Counter, "cache_bad_proxy_headers", None, "Connections of proxy-protocol-from that did not begin with a header of the PROXY protocol.";
        HandshakesFailed => Counter, "cache_handshakes_failed", None, "Handshakes of TLS that the client broke off, that were refused, or that took too long.";
        ChallengesAnswered => Counter, "cache_acme_challenges_answered", None, "Times that an authority asked whether a name is ours, and was answered.";
        ConnectionsHttp2 => Counter, "cache_http2_connections", None, "Connections that speak HTTP/2.";
        RequestsHttp2 => Counter, "cache_http2_requests", None, "Requests that came over HTTP/2.";
        StreamsReset => Counter, "cache_http2_streams_reset", None, "Streams of HTTP/2 that their clients gave up.";
        StreamsRefused => Counter, "cache_http2_streams_refused", None, "Streams of HTTP/2 refused because their connection, or the core, has as many as it may; clients may ask again.";
        EndedRapidReset => Counter, "cache_http2_ended_rapid_reset", None, "Connections of HTTP/2 ended because they opened and reset streams without end.";
        EndedMadeUsReset => Counter, "cache_http2_ended_made_us_reset", None, "Connections of HTTP/2 ended because they broke rule after rule on their streams.";
        EndedRefusals => Counter, "cache_http2_ended_refusals", None, "Connections of HTTP/2 ended because they opened streams beyond the number that was announced.";
        EndedContinuations => Counter, "cache_http2_ended_continuations", None, "Connections of HTTP/2 ended because a field block did not end.";
        EndedHeaderBlock => Counter, "cache_http2_ended_header_block", None, "Connections of HTTP/2 ended because a field block was too long.";
        EndedHeaderList => Counter, "cache_http2_ended_header_list", None, "Connections of HTTP/2 ended because a field block was far too long when it was decoded.";
        EndedSettings => Counter, "cache_http2_ended_settings", None, "Connections of HTTP/2 ended because they sent SETTINGS without end.";
        EndedPings => Counter, "cache_http2_ended_pings", None, "Connections of HTTP/2 ended because they sent PING without end.";
        EndedPriorities => Counter, "cache_http2_ended_priorities", None, "Connections of HTTP/2 ended because they sent priorities without end.";
        EndedSmallFrames => Counter, "cache_http2_ended_small_frames", None, "Connections of HTTP/2 ended because they sent content in crumbs.";
        EndedUselessFrames => Counter, "cache_http2_ended_useless_frames", None, "Connections of HTTP/2 ended because they sent frames that mean nothing.";
        EndedWindowUpdates => Counter, "cache_http2_ended_window_updates", None, "Connections of HTTP/2 ended because they sent WINDOW_UPDATE without end.";
        EndedTinyWindows => Counter, "cache_http2_ended_tiny_windows", None, "Connections of HTTP/2 ended because their windows let only crumbs out.";
        Requests => Counter, "cache_requests", None, "Requests whose head was received.";
        Hits => Counter, "cache_hits", None, "Requests answered from the store.";
        HitsNotModified => Counter, "cache_hits_not_modified", None, "Hits answered with 304, without the body.";
        HitsRange => Counter, "cache_hits_range", None, "Hits answered with 206, a part of the body.";
        HitsCoded => Counter, "cache_hits_coded", None, "Answers from the store in a coding that was made here.";
        CodedBytesSaved => Counter, "cache_coded_saved_bytes", None, "Bytes that these were shorter than their objects.";
        CodingsMade => Counter, "cache_codings_made", None, "Stored objects whose content was coded for clients that accept it.";
        CodingsNotShrunk => Counter, "cache_codings_not_shrunk", None, "Stored objects that are left as they are because their content does not shrink by a twentieth.";
        CodingsRefused => Counter, "cache_codings_refused", None, "Times that content was not coded because too much of it waits for that.";
        HitsDecoded => Counter, "cache_hits_decoded", None, "Answers from the store without the coding that the origin sent, to clients that do not accept it.";
        DecodedMade => Counter, "cache_decoded_made", None, "Stored objects whose content was decoded for such clients.";
        DecodedNotPossible => Counter, "cache_decoded_not_possible", None, "Stored objects that are sent as they are because their content is damaged, or too long when it is decoded.";
        DecodingsRefused => Counter, "cache_decodings_refused", None, "Answers in a coding that their client does not accept, because too much waits to be decoded.";
        ObjectsInBlocks => Counter, "cache_objects_in_blocks", None, "Large answers stored without their content, which is fetched in blocks.";
        BlocksStored => Counter, "cache_blocks_stored", None, "Blocks of large objects that were sent from the store.";
        BlocksFetched => Counter, "cache_blocks_fetched", None, "Blocks of large objects fetched from the origin.";
        BlocksLost => Counter, "cache_blocks_lost", None, "Objects in blocks dropped because their origin has another version by now, or does not send parts of it.";
        BodiesLent => Counter, "cache_bodies_lent", None, "Hits whose body went to the socket by reference to its pages, without a copy.";
        Misses => Counter, "cache_misses", None, "Requests for which the store had no usable object.";
        Collapsed => Counter, "cache_misses_collapsed", None, "Misses that joined a fetch under way.";
        FileRefused => Counter, "cache_file_reads_refused", None, "Objects on the file that were fetched from the origin because too many reads were under way.";
        PartsShared => Counter, "cache_parts_shared", None, "Parts of large objects that were in memory, or being read, for somebody else.";
        PartsRefused => Counter, "cache_parts_refused", None, "Large objects on the file that were passed because too many were being sent, or read, from there.";
        PartsSlowed => Counter, "cache_parts_slowed", None, "Answers from large objects on the file that are read no more ahead, because their client had most of the memory for it and others needed some.";
        PartsGaveWay => Counter, "cache_parts_gave_way", None, "Answers from large objects on the file that were cut, because their client had most of the memory for it and others needed some.";
        PartsCut => Counter, "cache_parts_cut", None, "Answers cut short because a part of a large object on the file could not be read.";
        Passes => Counter, "cache_passes", None, "Requests passed to the origin without the store.";
        Pipes => Counter, "cache_pipes", None, "WebSockets that were opened.";
        PipesOpen => Gauge, "cache_pipes_open", None, "WebSockets that are open.";
        PipesRefused => Counter, "cache_pipes_refused", None, "WebSockets that were answered 503 because as many as origin_lasting_max allows were open.";
        PipesIdle => Counter, "cache_pipes_idle", None, "WebSockets ended because nothing moved on them for pipe_idle_time_max.";
        PipesBroken => Counter, "cache_pipes_broken", None, "WebSockets that ended because one side was gone.";
        Fetches => Counter, "cache_fetches", None, "Requests sent to the origin for the store.";
        HitsStale => Counter, "cache_hits_stale", None, "Requests answered by what is stale, as its origin (RFC 5861) or a knob lets us.";
        Refreshes => Counter, "cache_refreshes", None, "Fetches begun beside a stale answer that was shown meanwhile.";
        InterimsPassed => Counter, "cache_interims_passed", None, "Interim responses of the origin (1xx, as 103 Early Hints) told to clients.";
        Revalidated => Counter, "cache_revalidated", None, "Stored answers that the origin said are still the same (304).";
        HeardStale => Counter, "cache_heard_stale", None, "Stored answers that are stale because the origin said otherwise to HEAD.";
        FetchesBehind => Counter, "cache_fetches_behind", None, "Fetched answers that waited for hits, because a round of the loop had taken in as many as it may.";
        FetchesGivenUp => Counter, "cache_fetches_given_up", None, "Fetches not stored and not read by anyone any more.";
        WaitsInVain => Counter, "cache_waits_in_vain", None, "Answers that requests waited for and may not have, because they are to be validated each time, or had expired on arrival; for a minute such requests go to the origin side by side.";
        SharedLate => Counter, "cache_shared_late", None, "Answers that had expired on arrival, and were given to those who waited for them, as if they had come at once.";
        Uncacheable => Counter, "cache_uncacheable", None, "Answers to fetches that may not be stored.";
        WithoutFreshness => Counter, "cache_without_freshness", None, "Pages fetched that do not say how long they are fresh, and allow no guess.";
        NotesLeft => Counter, "cache_notes_left", None, "Notes that what comes for an address is not to be stored, so that requests for it pass at once.";
        PassesNarrowed => Counter, "cache_passes_narrowed", None, "Chunks that were not read ahead of a slow reader because too much waited for all of them.";
        SharedPagesDiffer => Counter, "cache_shared_pages_differ", None, "Fetches that brought a visitor with a cookie something else than the one before, of what all visitors share by its max-age alone.";
        NotesUsed => Counter, "cache_notes_used", None, "Requests that passed at once because of such a note.";
        LeasesOut => Counter, "cache_leases_out", None, "Stored answers that were not shown without asking their origin, because this instance has not heard of the others' purges for too long.";
        PurgesNotTold => Counter, "cache_purges_not_told", None, "Purges that visitors' requests asked for and that hold here, but the other instances were not told of.";
        Purges => Counter, "cache_purges", None, "Purges carried out.";
        InvalidatedDropped => Counter, "cache_invalidated_dropped", None, "Stored answers dropped when they were asked for, because they were purged with others: by a tag, or all.";
        TagsPurged => Gauge, "cache_tags_purged", None, "Purged tags and addresses that the core keeps to compare stored answers with.";
        Bans => Gauge, "cache_bans", None, "Bans that the core keeps to ask about what is stored.";
        BansDropped => Counter, "cache_bans_dropped", None, "Stored answers dropped because a walk through memory found that a ban is about them.";
        PurgesForbidden => Counter, "cache_purges_forbidden", None, "Purges refused because their sender is in no network that may.";
        PurgesNotUnderstood => Counter, "cache_purges_not_understood", None, "Purges refused because they are none that we know.";
        Misdirected => Counter, "cache_misdirected", None, "Requests answered 421, because no site is for their host.";
        CertificatesWanted => Counter, "cache_certificates_wanted", None, "Requests answered 421, because their site asks for a client's certificate that the connection was not asked for, or one that has expired.";
        MethodsRefused => Counter, "cache_methods_refused", None, "Requests answered 405, because their site does not take their method.";
        Invalidations => Counter, "cache_invalidations", None, "Objects dropped because an unsafe request changed them (RFC 9111 section 4.4).";
        BytesSent => Counter, "cache_sent_bytes", Bytes, "Bytes of answers handed to clients' sockets.";
        BytesSaved => Counter, "cache_saved_bytes", Bytes, "Bytes of bodies that the origin did not have to send.";
        MillisSaved => Counter, "cache_saved_milliseconds", None, "Time that the origin had taken for what was then answered from the store, summed over the hits.";
        BytesFetched => Counter, "cache_fetched_bytes", Bytes, "Bytes of bodies received from the origin.";
        PeerAsks => Counter, "cache_peers_asked", None, "Requests to other accelerators that share keys with this one, for what is theirs.";
        PeerHits => Counter, "cache_peers_hits", None, "Requests to peers that they answered from their stores.";
        PeerDeclined => Counter, "cache_peers_declined", None, "Requests to peers that they left to the origin: they have no time, no lease, or nothing to share.";
        PeerAnswersBehind => Counter, "cache_peers_behind", None, "Answers of peers that were not used, because the peer had not come to a purge that was begun with here.";
        PeerFailures => Counter, "cache_peers_failures", None, "Requests to peers that failed: silence, a broken connection, an answer that is none.";
        PeersBusy => Counter, "cache_peers_busy", None, "Requests that were left to the origin because a core has as many connections to a peer as it may.";
        PeerNotKept => Counter, "cache_peers_not_kept", None, "Answers of peers that were shared with those who waited and not stored, because nobody had asked for the same lately.";
        PeerResumed => Counter, "cache_peers_resumed", None, "Answers whose peer broke off, and whose rest came from the origin.";
        PeerBytes => Counter, "cache_peers_bytes", Bytes, "Bytes of bodies received from peers.";
        PeerServed => Counter, "cache_peers_served", None, "Requests of peers that were answered.";
        PeerServedNot => Counter, "cache_peers_served_not", None, "Requests of peers that were left to the origin, because of what they are, or because there was no lease.";
        PeerRequestsMax => Counter, "cache_peers_requests_max", None, "Requests of peers that were left to the origin, because as many as may be were being answered.";
        PeerForged => Counter, "cache_peers_forged", None, "Requests where peers ask that no peer has made: without a mark, or signed with another secret.";
        PeerReplayed => Counter, "cache_peers_replayed", None, "Requests of peers that had come before, and were refused.";
        OriginConnects => Counter, "cache_origin_connects", None, "Connections opened to the origin.";
        OriginHttp2Connects => Counter, "cache_origin_http2_connects", None, "Connections to the origin on which HTTP/2 is spoken, of these.";
        OriginHttp2Open => Gauge, "cache_origin_http2_open", None, "Connections of HTTP/2 to the origin that are open.";
        OriginHttp2Requests => Counter, "cache_origin_http2_requests", None, "Requests to the origin over HTTP/2.";
        OriginHttp2Unprocessed => Counter, "cache_origin_http2_unprocessed", None, "Requests that the origin did not look at, as it said over HTTP/2, and that were sent again.";
        OriginHttp2Silent => Counter, "cache_origin_http2_silent", None, "Connections of HTTP/2 to the origin that were closed because it did not answer a ping.";
        OriginStreamsBusy => Counter, "cache_origin_streams_busy", None, "Requests for which no leave to keep bytes of an answer over HTTP/2 became free in time.";
        OriginTooSlow => Counter, "cache_origin_too_slow", None, "Answers of the origin that were not whole in the time for all of one.";
        OriginRetries => Counter, "cache_origin_retries", None, "Requests sent to another of the origin's servers, because one did not answer.";
        OriginEjections => Counter, "cache_origin_ejections", None, "Times that one of the origin's servers failed so often that it was left alone for a while.";
        OriginProbes => Counter, "cache_origin_probes", None, "Probes of the origin's servers.";
        OriginProbesFailed => Counter, "cache_origin_probes_failed", None, "Probes that the origin's servers did not answer as they should.";
        OriginRefused => Counter, "cache_origin_refused", None, "The origin could not be reached: refused, unknown or unreachable.";
        OriginClosed => Counter, "cache_origin_closed", None, "The origin closed or reset a connection before it had answered.";
        OriginTimeouts => Counter, "cache_origin_timeouts", None, "The origin did not connect, answer or go on in time.";
        OriginInvalid => Counter, "cache_origin_invalid", None, "The origin's answer broke the protocol.";
        OriginHeadTooLarge => Counter, "cache_origin_head_too_large", None, "The head of the origin's answer was over the limit.";
        OriginBodyShort => Counter, "cache_origin_body_short", None, "The origin ended a body before its stated end.";
        OriginLongWaits => Counter, "cache_origin_long_waits", None, "Requests that waited for more than a second for an exchange with a server of an origin.";
        WideRanges => Counter, "cache_wide_ranges", None, "Requests for ranges that were passed because far more than they ask for would have been fetched for the store, or read and dropped.";
        QueriesTooMany => Counter, "cache_queries_too_many", None, "Answers not stored because other queries of their path have their share of the store; they are when they are asked for again.";
        OriginBusy => Counter, "cache_origin_busy", None, "No connection to the origin became free in time.";
        BadRequests => Counter, "cache_bad_requests", None, "Requests refused because they break the protocol.";
        TrailersDropped => Counter, "cache_trailers_dropped", None, "Trailers of origins and clients that were dropped, because none may have their name (RFC 9110 section 6.5.1).";
        HeadsTooLarge => Counter, "cache_request_heads_too_large", None, "Requests refused for the size of their line or headers.";
        BodiesTooLarge => Counter, "cache_request_bodies_too_large", None, "Requests refused for the size of their body.";
        SlowHeads => Counter, "cache_slow_heads", None, "Clients that did not finish a request's head in time.";
        ClientsGone => Counter, "cache_clients_gone", None, "Clients that left before their answer was sent.";
        ClientsGoneInHead => Counter, "cache_clients_gone_in_head", None, "Clients that left in the middle of a request's head.";
        ClientsStalled => Counter, "cache_clients_stalled", None, "Clients that stopped reading or sending, and were cut.";
        SlowReaders => Counter, "cache_slow_readers", None, "Clients cut because they took what waited for them more slowly than send_rate_min.";
        ConnectionsUsedUp => Counter, "cache_connections_used_up", None, "Connections closed in order because they had brought as many requests as one may.";
        HandshakesRefused => Counter, "cache_handshakes_refused", None, "Connections under TLS closed because as many handshakes as a core may have were under way.";
        ConnectionBytes => Gauge, "cache_connection_bytes", Bytes, "Memory that connections take by their kinds, and handshakes under way.";
        ConnectionBytesRefused => Counter, "cache_connection_bytes_refused", None, "Connections refused because those that there are take as much memory as they may.";
        IdleEvicted => Counter, "cache_idle_evicted", None, "Connections closed that were idle, or long in a request's head, because connections were nearly as many, or took nearly as much memory, as they may.";
        SlowReadersCut => Counter, "cache_slow_readers_cut", None, "Clients cut because they held memory that the store wanted back.";
        RemaindersCopied => Counter, "cache_remainders_copied", None, "Remainders of answers copied out of the store for slow clients.";
        ConnectionsRefused => Counter, "cache_connections_refused", None, "Connections over the limit of this core, of clients that have most of them or when all have few.";
        ConnectionsDisplaced => Counter, "cache_connections_displaced", None, "Connections closed in favour of other clients, because the limit of this core was reached and their client had most.";
        ClientConnectionsRefused => Counter, "cache_client_connections_refused", None, "Connections over the limit of one client address.";
        CrawlersHeldBack => Counter, "cache_crawlers_held_back", None, "Requests of crawlers that would have cost their origin more than the budget of crawlers allows.";
        StrangersHeldBack => Counter, "cache_strangers_held_back", None, "Requests without a cookie that would have cost their origin more than the budget of strangers allows.";
        NetworkConnectionsRefused => Counter, "cache_network_connections_refused", None, "Connections over the limit of one client's network.";
        ClientRequestsRefused => Counter, "cache_client_requests_refused", None, "Requests answered 429, over the rate of one client address.";
        NetworkRequestsRefused => Counter, "cache_network_requests_refused", None, "Requests answered 429, over the rate of one client's network.";
        BodiesCut => Counter, "cache_bodies_cut", None, "Answers cut short because the origin broke off.";
        StoreNoRoom => Counter, "cache_store_no_room", None, "Answers not stored because no segment was free.";
        StoreTooLarge => Counter, "cache_store_too_large", None, "Answers not stored because they are larger than an object may be.";
        FetchTableFull => Counter, "cache_fetch_table_full", None, "Misses passed through because too many fetches are under way.";
        PurgesRefused => Counter, "cache_purges_refused", None, "Purges and invalidations not carried out because the ring to the owner of the key stayed full.";
        TagTableEmptied => Counter, "cache_tag_table_emptied", None, "Times that a core had as many purged tags as it keeps, and all stored answers with tags counted as purged instead.";
        VariantsTooMany => Counter, "cache_variants_too_many", None, "Answers not stored because the address has as many variants as it may have.";
        BansOverflowed => Counter, "cache_bans_overflowed", None, "Bans that became purges of everything as old, because a core had as many as it keeps.";
        TagsTooMany => Counter, "cache_tags_too_many", None, "Answers not stored because they have more tags, or longer ones, than an object may have.";
        SlowBodies => Counter, "cache_slow_bodies", None, "Requests refused because their body came too slowly.";
        TurnsCut => Counter, "cache_turns_cut", None, "Turns that ended because one connection had sent as many requests as one turn answers.";
        TurnsWaited => Counter, "cache_turns_waited", None, "Times that a connection with much to do waited for its turn among those of its address.";
        ClientsOverBytes => Counter, "cache_clients_over_bytes", None, "Clients cut because all clients made their core hold more than its part of client_bytes_max.";
        CoreRingFull => Counter, "cache_core_ring_full", None, "Misses passed through because the ring to the owner of the key is full.";
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
