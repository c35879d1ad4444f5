//! Counters of the feed.

use crate::client::connection::CloseReason;

engine::counters! {
    /// Counters and gauges of the feed, one row for each core.
    pub enum Counter {
        Accepted => Counter, "feed_accepted", None, "Connections accepted.";
        HandedOff => Counter, "feed_handed_off", None, "Connections given to a core that had fewer.";
        Connections => Gauge, "feed_connections", None, "Connections open.";
        Subscriptions => Gauge, "feed_subscriptions", None, "Subscriptions.";
        MessagesIn => Counter, "feed_messages_in", None, "Messages taken from producers.";
        PayloadIn => Counter, "feed_in_bytes", Bytes, "Payload taken from producers.";
        MessagesOut => Counter, "feed_messages_out", None, "Messages put into consumers' outputs.";
        PayloadOut => Counter, "feed_out_bytes", Bytes, "Payload put into consumers' outputs.";
        Writes => Counter, "feed_writes", None, "Writes to sockets.";
        NoResponders => Counter, "feed_no_responders", None, "Requests that nobody was there to answer.";
        RunsAcross => Counter, "feed_runs_across", None, "Runs of messages sent to another core.";
        MatchesFound => Counter, "feed_matches_kept", None, "Subjects whose subscribers were known from before.";
        MatchesMade => Counter, "feed_matches_made", None, "Subjects whose subscribers were looked up.";
        MatchesDropped => Counter, "feed_matches_dropped", None, "Times that a subject's subscribers, or those of all subjects, were not remembered, because that would have taken too much memory.";
        MatchesBytes => Gauge, "feed_matches_bytes", Bytes, "Memory that remembered subjects' subscribers take.";
        TurnsEnded => Counter, "feed_turns_ended", None, "Times that a message waited for another turn, because looking for its consumers or handing it out took too long for one.";
        TurnsWaited => Counter, "feed_turns_waited", None, "Times that a client with much to do waited for its turn among those of its address.";
        MemoryGivenBack => Counter, "feed_memory_given_back", None, "Times that a core gave back memory that it had needed before and not for ten seconds.";
        ConnectionsRefused => Counter, "feed_connections_refused", None, "Connections closed because of max_connections, or for want of memory for clients.";
        SubscriptionsRefused => Counter, "feed_subscriptions_refused", None, "Subscriptions refused because of max_subscriptions.";
        SubscriptionBytes => Gauge, "feed_subscription_bytes", Bytes, "Memory that subscriptions of clients count for.";
        SubscriptionMemoryRefused => Counter, "feed_subscription_memory_refused", None, "Subscriptions refused because of max_subscription_memory, or because their pattern has more than 2,048 tokens.";
        SubscriptionMemoryCut => Counter, "feed_subscription_memory_cut", None, "Connections closed because their subscriptions took most of max_subscription_memory, and others needed some.";
        ImportedSubscriptions => Gauge, "feed_imported_subscriptions", None, "Subscriptions that clients have in other accounts, whose streams theirs takes.";
        ImportedSubscriptionsRefused => Counter, "feed_imported_subscriptions_refused", None, "Subscriptions refused because there were as many in other accounts as there may be.";
        RequestsOpen => Gauge, "feed_requests_open", None, "Requests to other accounts' services that wait for their answers.";
        RequestsRefused => Counter, "feed_requests_refused", None, "Requests to other accounts' services that were answered at once that nobody is there, because too many of that client wait for their answers.";
        RequestsForgotten => Counter, "feed_requests_forgotten", None, "Times that requests to other accounts' services were forgotten before their time was up, because others needed the room.";
        RequestsUnanswered => Counter, "feed_requests_unanswered", None, "Requests to other accounts' services whose time was up before the last answer.";
        AnswersLost => Counter, "feed_answers_lost", None, "Answers of other accounts' services that were not handed on, because a core had fallen behind.";
        RepliesForgotten => Counter, "feed_replies_forgotten", None, "Requests that a client with allow_responses cannot answer any more, because too many were open for it: those of whoever had asked most.";
        HandshakesFailed => Counter, "feed_handshakes_failed", None, "TLS or WebSocket handshakes that failed or took too long.";
        BadProxyHeaders => Counter, "feed_bad_proxy_headers", None, "Connections closed because their PROXY header was missing, wrong, or late.";
        OwnLost => Counter, "feed_own_lost", None, "Messages of the program's own that were not handed on, because a core had fallen behind.";
        PermissionsDenied => Counter, "feed_permissions_denied", None, "Publishes and subscriptions that the user may not.";
        Revoked => Counter, "feed_revoked", None, "Connections closed by a reload, because their user, secret or account is gone or another.";
        SubscriptionsRevoked => Counter, "feed_subscriptions_revoked", None, "Subscriptions ended by a reload, because their user may not have them any more.";
        Checks => Counter, "feed_password_checks", None, "Passwords compared with their bcrypt hashes, by helpers.";
        ChecksRefused => Counter, "feed_password_checks_refused", None, "Connections closed because too many passwords waited to be compared.";
        AuthorizationViolations => Counter, "feed_authorization_violations", None, "Connections closed for want of valid credentials.";
        AuthenticationTimeouts => Counter, "feed_authentication_timeouts", None, "Connections closed because no CONNECT came in time.";
        ProtocolViolations => Counter, "feed_protocol_violations", None, "Connections closed because the client broke the protocol.";
        PayloadsTooLarge => Counter, "feed_payloads_too_large", None, "Connections closed because of max_payload.";
        ControlLinesTooLong => Counter, "feed_control_lines_too_long", None, "Connections closed because of max_control_line.";
        StaleConnections => Counter, "feed_stale_connections", None, "Connections closed because pings were not answered.";
        SystemSubscriptions => Gauge, "feed_system_subscriptions", None, "Subscriptions in the system account.";
        SystemTooLong => Counter, "feed_system_too_long", None, "Questions in the system account with options of more than 64 KiB.";
        SystemRefused => Counter, "feed_system_refused", None, "Questions in the system account for which there was no room.";
        MonitorSteps => Counter, "feed_monitor_steps", None, "Times that a loop was asked for a part of what a monitoring page shows.";
        MonitorLookedAt => Counter, "feed_monitor_looked_at", None, "Connections and subscriptions that loops looked at for monitoring pages.";
        ProducersHeld => Counter, "feed_producers_held", None, "Times that a producer's reads were paused for a consumer that fell behind.";
        HoldsInVain => Counter, "feed_holds_in_vain", None, "Times that a producer was not held for a consumer that fell behind, because that had taken too little since the last hold, or nothing yet and its address had no free hold left.";
        ProducersHeldForCores => Counter, "feed_producers_held_for_cores", None, "Times that a producer's reads were paused for a core that fell behind.";
        HeldForAnswers => Counter, "feed_held_for_answers", None, "Times that a client's reads were paused because it did not take its answers.";
        SlowPending => Counter, "feed_slow_consumers_pending", None, "Consumers cut off because more than max_pending waited for them.";
        SlowTotal => Counter, "feed_slow_consumers_in_sum", None, "Those of them that were cut off because more than max_pending_total waited for all clients, and most of it for them.";
        SlowProducers => Counter, "feed_slow_producers_in_sum", None, "Clients cut off because more than max_pending_total was held for all clients, and most of it was a message of theirs that had not come whole.";
        SlowOperations => Counter, "feed_slow_operations", None, "Clients cut off because they had begun a long operation and did not go on with it within write_deadline.";
        HandshakesDisplaced => Counter, "feed_handshakes_displaced", None, "Handshakes that were ended for another one, because as many were under way as there may be.";
        SlowHold => Counter, "feed_slow_consumers_hold", None, "Consumers cut off because they had held producers back for too long.";
        SlowDeadline => Counter, "feed_slow_consumers_deadline", None, "Consumers cut off because they did not take within write_deadline what waited for them.";
        LeafConnected => Gauge, "feed_leaf_connected", None, "Hubs that are joined as a leaf node.";
        LeafAttempts => Counter, "feed_leaf_attempts", None, "Attempts to join a hub.";
        LeafConnects => Counter, "feed_leaf_connects", None, "Times that a hub was joined.";
        LeafLosses => Counter, "feed_leaf_losses", None, "Times that a hub that was joined was lost.";
        LeafLoops => Counter, "feed_leaf_loops", None, "Times that a hub gave back what it was told: its connection is closed for half a minute.";
        LeafInterest => Gauge, "feed_leaf_interest", None, "Patterns and queue groups that hubs want messages for.";
        LeafInterestRefused => Counter, "feed_leaf_interest_refused", None, "Patterns of hubs that were not taken, because they want as many as they may, or because they are none.";
        LeafInterestDenied => Counter, "feed_leaf_interest_denied", None, "Patterns of clients that a hub was not told of, because it does not permit it.";
        LeafMessagesIn => Counter, "feed_leaf_messages_in", None, "Messages from hubs.";
        LeafPayloadIn => Counter, "feed_leaf_in_bytes", Bytes, "Payload from hubs.";
        LeafMessagesOut => Counter, "feed_leaf_messages_out", None, "Messages put into the outputs to hubs.";
        LeafPayloadOut => Counter, "feed_leaf_out_bytes", Bytes, "Payload put into the outputs to hubs.";
        LeafDenied => Counter, "feed_leaf_denied", None, "Messages that hubs want and do not permit, or that are kept from hubs or hubs are kept from publishing.";
        LeafTooLarge => Counter, "feed_leaf_too_large", None, "Messages that hubs want and that are above their max_payload.";
        LeafDropped => Counter, "feed_leaf_dropped", None, "Messages for a hub that were given up, because it was gone or too slow.";
        LeafLost => Counter, "feed_leaf_lost_bytes", Bytes, "What waited for hubs when their connections ended.";
    }
}

impl Counter {
    /// Returns the counter of a close reason, if it has one.
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
