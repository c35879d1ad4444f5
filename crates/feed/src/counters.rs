//! Counters and gauges that the feed exports.

use crate::client::connection::CloseReason;

engine::counters! {
    /// Counters and gauges of the feed, one row for each core.
    pub enum Counter {
        Accepted => Counter, "feed_accepted", None, "Connections accepted.";
        HandedOff => Counter, "feed_handed_off", None, "Connections handed to a core that had fewer.";
        Connections => Gauge, "feed_connections", None, "Connections open.";
        Subscriptions => Gauge, "feed_subscriptions", None, "Subscriptions.";
        MessagesIn => Counter, "feed_messages_in", None, "Messages received from producers.";
        PayloadIn => Counter, "feed_in_bytes", Bytes, "Payload bytes received from producers.";
        MessagesOut => Counter, "feed_messages_out", None, "Messages queued for consumers.";
        PayloadOut => Counter, "feed_out_bytes", Bytes, "Payload bytes queued for consumers.";
        Writes => Counter, "feed_writes", None, "Writes to sockets.";
        NoResponders => Counter, "feed_no_responders", None, "Requests without a responder.";
        RunsAcross => Counter, "feed_runs_across", None, "Batches of messages sent to another core.";
        MatchesFound => Counter, "feed_matches_kept", None, "Lookups of a subject's subscribers answered from the cache.";
        MatchesMade => Counter, "feed_matches_made", None, "Lookups of a subject's subscribers that were not in the cache.";
        MatchesDropped => Counter, "feed_matches_dropped", None, "Times that cached subscribers, of one subject or of all, were dropped for want of memory.";
        MatchesBytes => Gauge, "feed_matches_bytes", Bytes, "Memory that the cache of subjects' subscribers takes.";
        TurnsEnded => Counter, "feed_turns_ended", None, "Messages continued in another turn because matching or delivering them took too long for one.";
        TurnsWaited => Counter, "feed_turns_waited", None, "Times that a busy client waited for its turn among those of its address.";
        MemoryGivenBack => Counter, "feed_memory_given_back", None, "Times that a core returned memory to the system that it had not used for ten seconds.";
        ConnectionsRefused => Counter, "feed_connections_refused", None, "Connections refused because of max_connections, or because the memory for clients was used up.";
        SubscriptionsRefused => Counter, "feed_subscriptions_refused", None, "Subscriptions refused because of max_subscriptions.";
        SubscriptionBytes => Gauge, "feed_subscription_bytes", Bytes, "Memory charged for clients' subscriptions.";
        SubscriptionMemoryRefused => Counter, "feed_subscription_memory_refused", None, "Subscriptions refused because of max_subscription_memory, or because their pattern has more than 2,048 tokens.";
        SubscriptionMemoryCut => Counter, "feed_subscription_memory_cut", None, "Connections closed because their subscriptions used most of max_subscription_memory and other clients needed some.";
        ImportedSubscriptions => Gauge, "feed_imported_subscriptions", None, "Subscriptions held in other accounts for clients that use stream imports.";
        ImportedSubscriptionsRefused => Counter, "feed_imported_subscriptions_refused", None, "Subscriptions refused because the limit on subscriptions in other accounts was reached.";
        RequestsOpen => Gauge, "feed_requests_open", None, "Requests to service imports that wait for a reply.";
        RequestsRefused => Counter, "feed_requests_refused", None, "Requests to service imports answered at once with no responders (503) because too many of the client's requests were waiting.";
        RequestsForgotten => Counter, "feed_requests_forgotten", None, "Requests to service imports dropped early because other requests needed the room.";
        RequestsUnanswered => Counter, "feed_requests_unanswered", None, "Requests to service imports that timed out before their last reply.";
        AnswersLost => Counter, "feed_answers_lost", None, "Replies of service imports lost because a core had fallen behind.";
        RepliesForgotten => Counter, "feed_replies_forgotten", None, "Requests that a client with allow_responses can no longer answer, because too many were open for it; those of the busiest requester go first.";
        HandshakesFailed => Counter, "feed_handshakes_failed", None, "TLS or WebSocket handshakes that failed or took too long.";
        BadProxyHeaders => Counter, "feed_bad_proxy_headers", None, "Connections closed because their PROXY protocol header was missing, invalid, or late.";
        OwnLost => Counter, "feed_own_lost", None, "Messages of the server itself lost because a core had fallen behind.";
        PermissionsDenied => Counter, "feed_permissions_denied", None, "Publishes and subscriptions that the user's permissions deny.";
        Revoked => Counter, "feed_revoked", None, "Connections closed by a reload because their user, secret or account was removed or changed.";
        SubscriptionsRevoked => Counter, "feed_subscriptions_revoked", None, "Subscriptions ended by a reload because the user's permissions no longer allow them.";
        Checks => Counter, "feed_password_checks", None, "Passwords checked against bcrypt hashes by helpers.";
        ChecksRefused => Counter, "feed_password_checks_refused", None, "Connections closed because too many password checks were queued.";
        AuthorizationViolations => Counter, "feed_authorization_violations", None, "Connections closed because their credentials were missing or invalid.";
        AuthenticationTimeouts => Counter, "feed_authentication_timeouts", None, "Connections closed because no CONNECT arrived in time.";
        ProtocolViolations => Counter, "feed_protocol_violations", None, "Connections closed because of a protocol violation by the client.";
        PayloadsTooLarge => Counter, "feed_payloads_too_large", None, "Connections closed because of max_payload.";
        ControlLinesTooLong => Counter, "feed_control_lines_too_long", None, "Connections closed because of max_control_line.";
        StaleConnections => Counter, "feed_stale_connections", None, "Connections closed because their pings were not answered.";
        SystemSubscriptions => Gauge, "feed_system_subscriptions", None, "Subscriptions in the system account.";
        SystemTooLong => Counter, "feed_system_too_long", None, "Requests to the system account with more than 64 KiB of options.";
        SystemRefused => Counter, "feed_system_refused", None, "Requests to the system account refused because too many were waiting.";
        MonitorSteps => Counter, "feed_monitor_steps", None, "Requests to loops for a part of a monitoring page.";
        MonitorLookedAt => Counter, "feed_monitor_looked_at", None, "Connections and subscriptions inspected for monitoring pages.";
        ProducersHeld => Counter, "feed_producers_held", None, "Times that a producer was paused for a slow consumer.";
        HoldsInVain => Counter, "feed_holds_in_vain", None, "Times that a producer was not paused for a slow consumer, because the consumer had read too little since the last pause, or nothing yet and its address had no pause left.";
        ProducersHeldForCores => Counter, "feed_producers_held_for_cores", None, "Times that a producer was paused for a core that fell behind.";
        HeldForAnswers => Counter, "feed_held_for_answers", None, "Times that a client's reads were paused because it did not read its replies.";
        SlowPending => Counter, "feed_slow_consumers_pending", None, "Slow consumers disconnected because their backlog exceeded max_pending.";
        SlowTotal => Counter, "feed_slow_consumers_in_sum", None, "Slow consumers disconnected because all backlogs exceeded max_pending_total and theirs was the largest share.";
        SlowProducers => Counter, "feed_slow_producers_in_sum", None, "Clients disconnected because buffers exceeded max_pending_total and an incomplete message of theirs used most of it.";
        SlowOperations => Counter, "feed_slow_operations", None, "Clients disconnected because they did not finish a long operation within write_deadline.";
        HandshakesDisplaced => Counter, "feed_handshakes_displaced", None, "Handshakes ended in favour of a newer one because too many were under way.";
        SlowHold => Counter, "feed_slow_consumers_hold", None, "Slow consumers disconnected because they held back producers for too long.";
        SlowDeadline => Counter, "feed_slow_consumers_deadline", None, "Slow consumers disconnected because they did not read their backlog within write_deadline.";
        LeafConnected => Gauge, "feed_leaf_connected", None, "Hubs connected as a leaf node.";
        LeafAttempts => Counter, "feed_leaf_attempts", None, "Connection attempts to hubs.";
        LeafConnects => Counter, "feed_leaf_connects", None, "Connections to hubs established.";
        LeafLosses => Counter, "feed_leaf_losses", None, "Connections to hubs lost.";
        LeafLoops => Counter, "feed_leaf_loops", None, "Loops detected: a hub sent back this server's own messages; its connection is closed for 30 seconds.";
        LeafInterest => Gauge, "feed_leaf_interest", None, "Subscriptions and queue groups of hubs.";
        LeafInterestRefused => Counter, "feed_leaf_interest_refused", None, "Subscriptions of hubs refused because they are invalid or over the limit.";
        LeafInterestDenied => Counter, "feed_leaf_interest_denied", None, "Subscriptions of clients not sent to a hub because its permissions deny them.";
        LeafMessagesIn => Counter, "feed_leaf_messages_in", None, "Messages received from hubs.";
        LeafPayloadIn => Counter, "feed_leaf_in_bytes", Bytes, "Payload bytes received from hubs.";
        LeafMessagesOut => Counter, "feed_leaf_messages_out", None, "Messages queued for hubs.";
        LeafPayloadOut => Counter, "feed_leaf_out_bytes", Bytes, "Payload bytes queued for hubs.";
        LeafDenied => Counter, "feed_leaf_denied", None, "Messages to or from hubs that permissions deny.";
        LeafTooLarge => Counter, "feed_leaf_too_large", None, "Messages for hubs over the hub's max_payload.";
        LeafDropped => Counter, "feed_leaf_dropped", None, "Messages for hubs dropped because the hub was disconnected or too slow.";
        LeafLost => Counter, "feed_leaf_lost_bytes", Bytes, "Bytes queued for hubs that were lost when their connections closed.";
    }
}

impl Counter {
    /// Returns the counter for a close reason, if there is one.
    pub(crate) fn of_closed(closed: CloseReason) -> Option<Self> {
        Some(match closed {
            CloseReason::ProtocolViolation => Self::ProtocolViolations,
            CloseReason::MaximumPayload => Self::PayloadsTooLarge,
            CloseReason::MaximumControlLine => Self::ControlLinesTooLong,
            CloseReason::AuthorizationViolation => Self::AuthorizationViolations,
            CloseReason::AuthenticationTimeout => Self::AuthenticationTimeouts,
            CloseReason::StaleConnection => Self::StaleConnections,
            CloseReason::SlowConsumerPending => Self::SlowPending,
            CloseReason::SlowConsumerHold => Self::SlowHold,
            CloseReason::SlowProducer => Self::SlowProducers,
            CloseReason::SlowOperation => Self::SlowOperations,
            CloseReason::SubscriptionMemory => Self::SubscriptionMemoryCut,
            CloseReason::SlowConsumerDeadline => Self::SlowDeadline,
            CloseReason::MaximumConnections => Self::ConnectionsRefused,
            CloseReason::ClientClosed
            | CloseReason::ReadError
            | CloseReason::WriteError
            | CloseReason::ServerShutdown => {
                return None;
            }
        })
    }
}
