//! Counters for receiving mail. Each limit has a counter of how often it is hit, and each kind of abuse
//! refusal has its own counter.

engine::counters! {
    /// Counters and gauges for receiving mail, one row per core.
    pub enum Counter {
        Connections => Gauge, "mail_connections", None, "Open SMTP and LMTP connections.";
        Accepted => Counter, "mail_connections_accepted", None, "Connections accepted.";
        HandedOff => Counter, "mail_connections_handed_off", None, "Connections handed to a less busy core.";
        TlsSessions => Counter, "mail_tls_sessions", None, "Sessions under TLS, from the start or by STARTTLS.";
        TlsFailures => Counter, "mail_tls_failures", None, "TLS handshakes that failed.";
        Received => Counter, "mail_received", None, "Mails accepted with 250.";
        ReceivedBytes => Counter, "mail_received_bytes", Bytes, "Bytes of accepted mails.";
        Deliveries => Counter, "mail_deliveries", None, "Deliveries: inboxes that accepted mails were put into.";
        Refused => Counter, "mail_refused", None, "Mails refused, for any reason.";
        BareLineEnds => Counter, "mail_bare_line_ends", None, "Mails with a bare CR or LF; stored unchanged, and none of these ends the data.";
        Stored => Gauge, "mail_stored", None, "Stored mails, one for each inbox.";
        StoredBytes => Gauge, "mail_stored_bytes", Bytes, "Bytes of stored mails.";
        Inboxes => Gauge, "mail_inboxes", None, "Inboxes that hold a mail.";
        IndexBytes => Gauge, "mail_index_bytes", Bytes, "Memory of the index, without inbox names.";
        SharedBodies => Counter, "mail_shared_bodies", None, "Mails stored without their body, because the log already had it.";
        SharedBodyBytes => Counter, "mail_shared_body_bytes", Bytes, "Bytes of these bodies that were not stored again.";
        Expired => Counter, "mail_expired", None, "Mails expired by age or by an earlier end that a client set.";
        Hurried => Counter, "mail_hurried", None, "Times that a mail's end was brought forward by delete= with a time.";
        HurriesRefused => Counter, "mail_hurries_refused", None, "Times that a mail's end stayed because it had been changed too often.";
        NotesNotWritten => Counter, "mail_notes_not_written", None, "Flags and tags that are kept in memory only, because those of their mail were written too often.";
        DroppedForCount => Counter, "mail_dropped_for_count", None, "Mails dropped because their inbox was full.";
        DroppedForBytes => Counter, "mail_dropped_for_bytes", None, "Oldest mails dropped because the store was full.";
        DroppedForIndex => Counter, "mail_dropped_for_index", None, "Oldest mails dropped because the inbox index was full (index-memory).";
        Deleted => Counter, "mail_deleted", None, "Mails deleted by users.";
        DamagedRecords => Counter, "mail_damaged_records", None, "Stored mails that could not be read back.";
        EventsLost => Counter, "mail_events_lost", None, "Events lost because the ring to the listeners was full; the listeners learn that they missed some.";
        QuestionsRefused => Counter, "mail_questions_refused", None, "Page requests that could not be sent to a core because its ring was full.";
        ConnectionsRefused => Counter, "mail_connections_refused", None, "Connections over the core's limit, answered 421.";
        AddressConnectionsRefused => Counter, "mail_address_connections_refused", None, "Connections over the limit per address, answered 421.";
        TooLarge => Counter, "mail_too_large", None, "Mails over SIZE, answered 552.";
        TooManyRecipients => Counter, "mail_too_many_recipients", None, "Recipients over the limit per mail, answered 452.";
        BadRecipients => Counter, "mail_bad_recipients", None, "Recipients with an invalid address, answered 501.";
        ForeignDomains => Counter, "mail_foreign_domains", None, "Recipients at domains that are not accepted, answered 550.";
        ReceivingFull => Counter, "mail_receiving_full", None, "Mails refused because the receive memory was full, answered 452.";
        AddressReceivingFull => Counter, "mail_address_receiving_full", None, "Mails refused because their address used half of the receive memory, answered 452.";
        Parts => Counter, "mail_parts", None, "Parts of large mails stored while the mail was being received.";
        PartsFull => Counter, "mail_parts_full", None, "Mails refused because incomplete mails used all of their part of the store, answered 452.";
        AddressPartsFull => Counter, "mail_address_parts_full", None, "Mails refused because incomplete mails of one address used all of their part of the store, answered 452.";
        StoreFull => Counter, "mail_store_full", None, "Mails refused because the store had no room in time, answered 452.";
        StoreFailed => Counter, "mail_store_failed", None, "Mails refused because the disk failed, answered 451.";
        Waits => Counter, "mail_store_waits", None, "Times that a mail waited for room in the store.";
        Timeouts => Counter, "mail_timeouts", None, "Sessions closed with 421 because no complete command, or no data of a mail, arrived in time.";
        SlowMails => Counter, "mail_slow_mails", None, "Sessions closed with 421 because a mail took too long.";
        LongSessions => Counter, "mail_long_sessions", None, "Sessions closed with 421 because they reached the limit on time, commands or bytes per session.";
        TurnsWaited => Counter, "mail_turns_waited", None, "Times that a busy connection waited for its turn among those of its address.";
        Stalled => Counter, "mail_stalled", None, "Sessions closed because the client did not read its replies.";
        Faults => Counter, "mail_command_faults", None, "Commands refused because of a syntax or protocol error.";
        TooManyFaults => Counter, "mail_too_many_faults", None, "Sessions closed with 421 after too many refused commands.";
        HttpRequests => Counter, "mail_http_requests", None, "Sessions closed with 421 because a line was an HTTP request.";
        GoneInMail => Counter, "mail_gone_in_mail", None, "Clients that disconnected in the middle of a mail; nothing of it is kept.";
        BadProxyHeaders => Counter, "mail_bad_proxy_headers", None, "Connections closed because their PROXY protocol header was missing or invalid.";
        RingFull => Counter, "mail_core_ring_full", None, "Times that a message to another core was sent again.";
        Backlog => Gauge, "mail_core_backlog", None, "Messages queued for a core that has fallen behind.";
        CoreBehind => Counter, "mail_core_behind", None, "Mails that waited because the core of one of their inboxes had fallen behind; 451 if that lasts.";
        BannedAddresses => Counter, "mail_banned_addresses", None, "Connections of banned addresses, answered 554, and their mails sent through the API, answered 422.";
        BannedSenders => Counter, "mail_banned_senders", None, "Mails of banned senders, answered 550 (API: 422).";
        BannedWords => Counter, "mail_banned_words", None, "Mails with a banned word in the subject, answered 554 (API: 422).";
        RateConnections => Counter, "mail_rate_connections", None, "Connections over the rate limit per address, answered 421.";
        RateMails => Counter, "mail_rate_mails", None, "Mails over the rate limit per address, answered 450 (API: 429).";
        RateInboxes => Counter, "mail_rate_inboxes", None, "Recipients over the rate limit per inbox, answered 450 (API: 429).";
        RateSubjects => Counter, "mail_rate_subjects", None, "Mails over the rate limit per subject, answered 450 (API: 429).";
        Campaigns => Counter, "mail_campaigns", None, "Mails over the rate limit for nearly identical texts, answered 450 (API: 429).";
        Tarpitted => Counter, "mail_tarpitted", None, "Replies delayed because the client was near a rate limit.";
    }
}
