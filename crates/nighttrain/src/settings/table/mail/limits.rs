//! Settings of the mail service: limits on senders.

use super::values::{rate, recipients};
use crate::settings::{
    Group, Section, Setting, any_count, one_or_more, optional, plain, some_size, some_time,
    units::{duration_text, parse_duration, parse_size, size_text},
    usize_size_text, value,
};

/// Group of limits, which `-h` omits.
pub(crate) const MAIL_LIMITS: Group = Group { section: Section::Mail, heading: "Limits on senders" };

/// Settings that limit senders.
pub(crate) const MAIL_LIMIT_SETTINGS: &[Setting] = &[
    MAIL_LIMITS.text(
        "mail-bytes-max",
        "SIZE",
        "Size of a mail, up to 256MiB and a quarter of the store; larger ones are answered 552",
        value!(mail.config.limits.mail_bytes_max, parse = parse_size, show = size_text),
    ),
    MAIL_LIMITS.count(
        "recipients-max",
        "N",
        "Recipients of a mail, up to 10000; more are answered 452",
        value!(mail.config.limits.recipients_max, parse = recipients, show = plain),
    ),
    MAIL_LIMITS.count(
        "connections-max",
        "N",
        "Connections per core; further ones are answered 421",
        value!(mail.config.limits.connections_max, parse = one_or_more, show = plain),
    ),
    MAIL_LIMITS.count(
        "connections-per-address-max",
        "N",
        "Connections per address; further ones are answered 421; 0: no limit; unset: a sixteenth of \
         connections-max",
        optional!(mail.config.limits.connections_per_address_max, parse = any_count, show = usize::to_string),
    ),
    MAIL_LIMITS.text(
        "command-time-max",
        "TIME",
        "Time from a reply to the end of the sender's next command",
        value!(mail.config.limits.command_time_max, parse = some_time, show = duration_text),
    ),
    MAIL_LIMITS.text(
        "data-time-max",
        "TIME",
        "Time that a sender may be silent within a mail",
        value!(mail.config.limits.data_time_max, parse = some_time, show = duration_text),
    ),
    MAIL_LIMITS.text(
        "receiving-bytes-max",
        "SIZE",
        "Memory for mails that are being received, half of it per address; mails beyond it are answered 452",
        value!(mail.config.limits.receiving_bytes_max, parse = some_size, show = usize_size_text),
    ),
    MAIL_LIMITS.text(
        "mail-time-max",
        "TIME",
        "Time for a whole mail to arrive",
        value!(mail.config.limits.mail_time_max, parse = some_time, show = duration_text),
    ),
    MAIL_LIMITS.text(
        "session-time-max",
        "TIME",
        "Time that a session may last",
        value!(mail.config.limits.session_time_max, parse = some_time, show = duration_text),
    ),
    MAIL_LIMITS.count(
        "session-commands-max",
        "N",
        "Commands per session",
        value!(mail.config.limits.session_commands_max, parse = one_or_more, show = plain),
    ),
    MAIL_LIMITS.text(
        "session-bytes-max",
        "SIZE",
        "Bytes that a session may send",
        value!(mail.config.limits.session_bytes_max, parse = some_size, show = usize_size_text),
    ),
    MAIL_LIMITS.count(
        "connections-per-minute",
        "N",
        "New connections per address and minute, half of them at once; further ones are answered 421; 0: no \
         limit",
        value!(mail.config.rates.connections_per_minute, parse = rate, show = plain),
    ),
    MAIL_LIMITS.count(
        "mails-per-minute",
        "N",
        "Mails per address and minute; further ones are answered 450; 0: no limit",
        value!(mail.config.rates.mails_per_minute, parse = rate, show = plain),
    ),
    MAIL_LIMITS.count(
        "inbox-mails-per-minute",
        "N",
        "Mails per inbox and minute; further ones are answered 450; 0: no limit",
        value!(mail.config.rates.inbox_mails_per_minute, parse = rate, show = plain),
    ),
    MAIL_LIMITS.count(
        "subject-mails-per-minute",
        "N",
        "Mails with the same subject per minute; further ones are answered 450; 0: no limit",
        value!(mail.config.rates.subject_mails_per_minute, parse = rate, show = plain),
    ),
    MAIL_LIMITS.count(
        "campaign-mails-per-minute",
        "N",
        "Mails with nearly the same text per minute; further ones are answered 450; 0: no limit",
        value!(mail.config.rates.campaign_mails_per_minute, parse = rate, show = plain),
    ),
    MAIL_LIMITS.text(
        "tarpit",
        "TIME",
        "Delay of replies to a sender that is near one of these rates",
        value!(mail.config.rates.tarpit, parse = parse_duration, show = duration_text),
    ),
];
