//! Opens or creates the stream and the buckets, and checks their configuration.

use std::time::Duration;

use async_nats::jetstream::{
    Context, ErrorCode,
    context::{CreateStreamErrorKind, GetStreamErrorKind},
    kv,
    stream::{Config as StreamConfig, DiscardPolicy, RetentionPolicy, StorageType},
};

use crate::{
    config::{Config, Name},
    keeper::Fault,
    record::RECORD_BYTES_MAX,
    vault::VALUE_BYTES_MAX,
};

/// Time for which purges are kept for absent instances. An instance that is absent for longer revalidates
/// everything.
const PURGES_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum total size of the kept purges; beyond it the oldest is removed.
const PURGES_BYTES_MAX: i64 = 256 << 20;
/// Time of silence after which an instance is forgotten.
pub(crate) const CARDS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Time for which the stream recognises a duplicate of a purge whose acknowledgement was lost.
const DUPLICATES_KNOWN: Duration = Duration::from_secs(120);
/// Maximum total size of the shared data: a certificate and its order take about ten thousand bytes.
const VAULT_BYTES_MAX: i64 = 64 << 20;
/// Maximum length of a heartbeat in bytes.
const CARD_BYTES_MAX: i32 = 4096;
/// Length allowed for a message's headers, in addition to its record.
const HEADERS_BYTES: i32 = 1024;

/// State of the stream when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) made_ns: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Opens the stream of purges, or creates it.
pub(crate) async fn stream(context: &Context, config: &Config) -> Result<Stream, Fault> {
    let name = config.stream.as_str();
    let wanted = |replicas| StreamConfig {
        name: name.to_owned(),
        subjects: vec![name.to_owned()],
        description: Some("what Nighttrain's accelerators are to purge".to_owned()),
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        storage: StorageType::File,
        num_replicas: replicas,
        max_age: PURGES_KEPT,
        max_bytes: PURGES_BYTES_MAX,
        max_message_size: i32::try_from(RECORD_BYTES_MAX).unwrap_or(i32::MAX) + HEADERS_BYTES,
        duplicate_window: DUPLICATES_KNOWN,
        ..StreamConfig::default()
    };
    let found = match context.get_stream(name).await {
        Ok(found) => found,
        Err(error) if is_not_found(&error.kind()) => make(context, name, config.replicas, wanted).await?,
        Err(error) => return Err(Fault::of("cannot look up the stream", &error)),
    };
    let info = found.cached_info();
    let of = &info.config;
    if !of.subjects.iter().any(|subject| subject == name) {
        return Err(Fault::Cannot(format!("the stream {name} is not ours: its subject is not {name}")));
    }
    if of.retention != RetentionPolicy::Limits {
        let why = "messages are dropped once one consumer has read them, and each instance must read them";
        return Err(Fault::Cannot(format!("the stream {name} has an unsuitable configuration: {why}")));
    }
    let made_ns = u64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(0);
    Ok(Stream { made_ns, first: info.state.first_sequence, last: info.state.last_sequence })
}

async fn make(
    context: &Context,
    name: &str,
    replicas: usize,
    wanted: impl Fn(usize) -> StreamConfig,
) -> Result<async_nats::jetstream::stream::Stream, Fault> {
    match context.create_stream(wanted(replicas)).await {
        Ok(made) => Ok(made),
        // A single server cannot replicate, so the stream is created with one replica.
        Err(error) if is_alone(&error.kind()) => {
            tracing::warn!(
                stream = name,
                "the NATS cluster has a single server: the purge stream has no replica"
            );
            context
                .create_stream(wanted(1))
                .await
                .map_err(|error| Fault::of("cannot create the purge stream", &error))
        }
        Err(error) => Err(Fault::of("cannot create the purge stream", &error)),
    }
}

/// Opens the bucket of heartbeats, or creates it.
pub(crate) async fn bucket(context: &Context, config: &Config) -> Result<kv::Store, Fault> {
    let name = config.bucket.to_string();
    match context.get_stream(format!("KV_{name}")).await {
        Ok(found) => {
            let kept = found.cached_info().config.max_age;
            let least = config.lease * 10;
            if !kept.is_zero() && kept < least {
                let why = format!("values expire after {kept:?}, and {least:?} are needed");
                return Err(Fault::Cannot(format!(
                    "the bucket {name} has an unsuitable configuration: {why}"
                )));
            }
        }
        Err(error) if is_not_found(&error.kind()) => {
            let wanted = |replicas| kv::Config {
                bucket: name.clone(),
                description: "Nighttrain's accelerators".to_owned(),
                history: 1,
                max_age: CARDS_KEPT,
                max_value_size: CARD_BYTES_MAX,
                storage: StorageType::File,
                num_replicas: replicas,
                ..kv::Config::default()
            };
            return make_bucket(context, config.replicas, wanted).await;
        }
        Err(error) => return Err(Fault::of("cannot look up the bucket", &error)),
    }
    context.get_key_value(&name).await.map_err(|error| Fault::of("cannot use the bucket", &error))
}

/// Opens the bucket of the shared data, or creates it.
pub(crate) async fn vault(context: &Context, config: &Config, name: &Name) -> Result<kv::Store, Fault> {
    let name = name.to_string();
    match context.get_stream(format!("KV_{name}")).await {
        Ok(found) if !found.cached_info().config.max_age.is_zero() => {
            let why = "values expire";
            Err(Fault::Cannot(format!("the bucket {name} has an unsuitable configuration: {why}")))
        }
        Ok(_) => {
            context.get_key_value(&name).await.map_err(|error| Fault::of("cannot use the bucket", &error))
        }
        Err(error) if is_not_found(&error.kind()) => {
            let wanted = |replicas| kv::Config {
                bucket: name.clone(),
                description: "what Nighttrain's instances share, sealed".to_owned(),
                history: 1,
                max_value_size: i32::try_from(VALUE_BYTES_MAX).unwrap_or(i32::MAX) + HEADERS_BYTES,
                max_bytes: VAULT_BYTES_MAX,
                storage: StorageType::File,
                num_replicas: replicas,
                ..kv::Config::default()
            };
            make_bucket(context, config.replicas, wanted).await
        }
        Err(error) => Err(Fault::of("cannot look up the bucket", &error)),
    }
}

async fn make_bucket(
    context: &Context,
    replicas: usize,
    wanted: impl Fn(usize) -> kv::Config,
) -> Result<kv::Store, Fault> {
    let made = match context.create_key_value(wanted(replicas)).await {
        // The second attempt shows whether the number of replicas was the reason.
        Err(_) if replicas > 1 && is_one_server(context) => context.create_key_value(wanted(1)).await,
        made => made,
    };
    made.map_err(|error| Fault::of("cannot create the bucket", &error))
}

/// Returns whether the server runs alone: it then names no cluster.
fn is_one_server(context: &Context) -> bool {
    context.client().server_info().cluster.is_none()
}

fn is_not_found(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn is_alone(kind: &CreateStreamErrorKind) -> bool {
    matches!(kind, CreateStreamErrorKind::JetStream(error)
        if error.error_code() == ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED)
}
