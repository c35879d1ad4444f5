//! Counters of receiving. Each limit has a counter of how often it is hit, and each kind of refusal for abuse
//! its own.

engine::counters! {
    /// Counters and gauges of receiving, one row a core.
    pub enum Counter {
        Connections => Gauge, "mail_connections", None, "SMTP and LMTP connections that are open.";
        Accepted => Counter, "mail_connections_accepted", None, "Connections that peers opened.";
        HandedOff => Counter, "mail_connections_handed_off", None, "Connections given to a less busy core.";
        TlsSessions => Counter, "mail_tls_sessions", None, "Sessions that went over to TLS, or began with it.";
        TlsFailures => Counter, "mail_tls_failures", None, "TLS handshakes that failed.";
        Received => Counter, "mail_received", None, "Mails that got their 250.";
        ReceivedBytes => Counter, "mail_received_bytes", Bytes, "Bytes of these mails.";
        Deliveries => Counter, "mail_deliveries", None, "Inboxes that these mails were put into.";
        Refused => Counter, "mail_refused", None, "Mails refused, for whatever reason.";
        BareLineEnds => Counter, "mail_bare_line_ends", None, "Mails with a CR or LF that stood alone; kept as they are, and no end was taken from them.";
        Stored => Gauge, "mail_stored", None, "Mails that are stored now, one for each inbox.";
        StoredBytes => Gauge, "mail_stored_bytes", Bytes, "Bytes of these mails.";
        Inboxes => Gauge, "mail_inboxes", None, "Inboxes that hold a mail.";
        IndexBytes => Gauge, "mail_index_bytes", Bytes, "Memory of the index, without the names of inboxes.";
        SharedBodies => Counter, "mail_shared_bodies", None, "Mails stored without their body, because the log had it already.";
        SharedBodyBytes => Counter, "mail_shared_body_bytes", Bytes, "Bytes of these bodies, not stored again.";
        Expired => Counter, "mail_expired", None, "Mails forgotten by age, or earlier because somebody asked for it.";
        Hurried => Counter, "mail_hurried", None, "Times that a mail was given an earlier end, by delete= with a time.";
        HurriesRefused => Counter, "mail_hurries_refused", None, "Times that a mail kept its end, because it had been given an earlier one too often.";
        NotesNotWritten => Counter, "mail_notes_not_written", None, "Read marks and tags that hold until the process ends alone, because those of their mail were written too often.";
        DroppedForCount => Counter, "mail_dropped_for_count", None, "Mails dropped because their inbox had no room for more.";
        DroppedForBytes => Counter, "mail_dropped_for_bytes", None, "Mails dropped because the store had no room for more; the oldest.";
        DroppedForIndex => Counter, "mail_dropped_for_index", None, "Mails dropped because the index of inboxes had no memory for more (index-memory); the oldest.";
        Deleted => Counter, "mail_deleted", None, "Mails deleted by users.";
        DamagedRecords => Counter, "mail_damaged_records", None, "Stored mails that could not be read back.";
        EventsLost => Counter, "mail_events_lost", None, "Events not told because the ring to the listeners was full; the listeners are told that they missed some.";
        QuestionsRefused => Counter, "mail_questions_refused", None, "Questions of pages not put because a ring was full.";
        ConnectionsRefused => Counter, "mail_connections_refused", None, "Connections over the limit of this core, answered 421.";
        AddressConnectionsRefused => Counter, "mail_address_connections_refused", None, "Connections over the limit of one address, answered 421.";
        TooLarge => Counter, "mail_too_large", None, "Mails over SIZE, answered 552.";
        TooManyRecipients => Counter, "mail_too_many_recipients", None, "Recipients over the limit of one mail, answered 452.";
        BadRecipients => Counter, "mail_bad_recipients", None, "Recipients whose address is none, answered 501.";
        ForeignDomains => Counter, "mail_foreign_domains", None, "Recipients at domains that are not taken, answered 550.";
        ReceivingFull => Counter, "mail_receiving_full", None, "Mails refused because too many bytes were being received, answered 452.";
        AddressReceivingFull => Counter, "mail_address_receiving_full", None, "Mails refused because those of one address had half of what may be received at a time, answered 452.";
        Parts => Counter, "mail_parts", None, "Parts of large mails that were put into the store while they came.";
        PartsFull => Counter, "mail_parts_full", None, "Mails refused because mails that were not whole took all that they may of the store, answered 452.";
        AddressPartsFull => Counter, "mail_address_parts_full", None, "Mails refused because those of one address that were not whole took all that they may of the store, answered 452.";
        StoreFull => Counter, "mail_store_full", None, "Mails refused because the store had no room in time, answered 452.";
        StoreFailed => Counter, "mail_store_failed", None, "Mails refused because the disk failed, answered 451.";
        Waits => Counter, "mail_store_waits", None, "Times that a mail had to wait for room in the store.";
        Timeouts => Counter, "mail_timeouts", None, "Sessions ended because no whole command came in time, or nothing of a mail, with 421.";
        SlowMails => Counter, "mail_slow_mails", None, "Sessions ended because a mail took too long to come, with 421.";
        LongSessions => Counter, "mail_long_sessions", None, "Sessions ended because they had lasted long enough, or brought as many commands or bytes as one may, with 421.";
        TurnsWaited => Counter, "mail_turns_waited", None, "Times that a connection that brings much waited for its turn among those of its address.";
        Stalled => Counter, "mail_stalled", None, "Sessions cut because the peer did not read its replies.";
        Faults => Counter, "mail_command_faults", None, "Commands refused because they break the protocol.";
        TooManyFaults => Counter, "mail_too_many_faults", None, "Sessions ended with 421 after too many refused commands.";
        HttpRequests => Counter, "mail_http_requests", None, "Sessions ended with 421 because a line of them was HTTP's.";
        GoneInMail => Counter, "mail_gone_in_mail", None, "Peers that left in the middle of a mail; nothing of it is kept.";
        BadProxyHeaders => Counter, "mail_bad_proxy_headers", None, "Connections closed because their PROXY header was missing or wrong.";
        RingFull => Counter, "mail_core_ring_full", None, "Times that a message to another core had to be tried again.";
        Backlog => Gauge, "mail_core_backlog", None, "Messages that wait for a core that does not take what it is sent.";
        CoreBehind => Counter, "mail_core_behind", None, "Mails that waited because the core of one of their inboxes does not take what it is sent; 451 if that lasts.";
        BannedAddresses => Counter, "mail_banned_addresses", None, "Connections of banned addresses, answered 554, and mails that they hand over by the API, answered 422.";
        BannedSenders => Counter, "mail_banned_senders", None, "Mails of banned senders, answered 550 (API: 422).";
        BannedWords => Counter, "mail_banned_words", None, "Mails with a banned word in the subject, answered 554 (API: 422).";
        RateConnections => Counter, "mail_rate_connections", None, "Connections over the rate of one address, answered 421.";
        RateMails => Counter, "mail_rate_mails", None, "Mails over the rate of one address, answered 450 (API: 429).";
        RateInboxes => Counter, "mail_rate_inboxes", None, "Recipients over the rate of one inbox, answered 450 (API: 429).";
        RateSubjects => Counter, "mail_rate_subjects", None, "Mails over the rate of one subject, answered 450 (API: 429).";
        Campaigns => Counter, "mail_campaigns", None, "Mails over the rate of nearly the same text, answered 450 (API: 429).";
        Tarpitted => Counter, "mail_tarpitted", None, "Replies that were delayed because their peer was near a rate.";
    }
}
