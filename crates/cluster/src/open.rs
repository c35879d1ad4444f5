//! Stream and bucket: found, or made; and what of them has to be as it is.

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

/// How long purges are kept for instances that are away. Who is away for longer doubts everything.
const PURGES_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// What they may measure together; then the oldest goes.
const PURGES_BYTES_MAX: i64 = 256 << 20;
/// An instance that has not been heard of for so long is forgotten.
pub(crate) const CARDS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long the stream knows a purge again whose acknowledgement was lost.
const DUPLICATES_KNOWN: Duration = Duration::from_secs(120);
/// What all that instances share may measure together: a certificate and its order are some ten thousand bytes.
const VAULT_BYTES_MAX: i64 = 64 << 20;
/// Bytes of a card.
const CARD_BYTES_MAX: i32 = 4096;
/// What a message has beside its record.
const HEADERS_BYTES: i32 = 1024;

/// The stream as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) made_ns: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The stream of purges.
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
        Err(error) => return Err(Fault::of("the stream cannot be asked for", &error)),
    };
    let info = found.cached_info();
    let of = &info.config;
    if !of.subjects.iter().any(|subject| subject == name) {
        return Err(Fault::Cannot(format!("the stream {name} is another's: its subject is not {name}")));
    }
    if of.retention != RetentionPolicy::Limits {
        let why = "it drops what one has read, and each instance has to read it";
        return Err(Fault::Cannot(format!("the stream {name} was made otherwise: {why}")));
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
        // A server by itself: there are no others to keep it.
        Err(error) if is_alone(&error.kind()) => {
            tracing::warn!(
                stream = name,
                "the NATS cluster has one server: its purge stream is lost with it"
            );
            context
                .create_stream(wanted(1))
                .await
                .map_err(|error| Fault::of("cannot create the purge stream", &error))
        }
        Err(error) => Err(Fault::of("cannot create the purge stream", &error)),
    }
}

/// The bucket of instances.
pub(crate) async fn bucket(context: &Context, config: &Config) -> Result<kv::Store, Fault> {
    let name = config.bucket.to_string();
    match context.get_stream(format!("KV_{name}")).await {
        Ok(found) => {
            let kept = found.cached_info().config.max_age;
            let least = config.lease * 10;
            if !kept.is_zero() && kept < least {
                let why = format!("it forgets a card after {kept:?}, and {least:?} are needed");
                return Err(Fault::Cannot(format!("the bucket {name} was made otherwise: {why}")));
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
        Err(error) => return Err(Fault::of("the bucket cannot be asked for", &error)),
    }
    context.get_key_value(&name).await.map_err(|error| Fault::of("the bucket cannot be used", &error))
}

/// The bucket of what instances share.
pub(crate) async fn vault(context: &Context, config: &Config, name: &Name) -> Result<kv::Store, Fault> {
    let name = name.to_string();
    match context.get_stream(format!("KV_{name}")).await {
        Ok(found) if !found.cached_info().config.max_age.is_zero() => {
            let why = "it forgets what is in it after a while";
            Err(Fault::Cannot(format!("the bucket {name} was made otherwise: {why}")))
        }
        Ok(_) => {
            context.get_key_value(&name).await.map_err(|error| Fault::of("the bucket cannot be used", &error))
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
        Err(error) => Err(Fault::of("the bucket cannot be asked for", &error)),
    }
}

async fn make_bucket(
    context: &Context,
    replicas: usize,
    wanted: impl Fn(usize) -> kv::Config,
) -> Result<kv::Store, Fault> {
    let made = match context.create_key_value(wanted(replicas)).await {
        // Whether that is the reason, the second attempt says.
        Err(_) if replicas > 1 && is_one_server(context) => context.create_key_value(wanted(1)).await,
        made => made,
    };
    made.map_err(|error| Fault::of("the bucket cannot be made", &error))
}

/// A server that names no cluster is one by itself.
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
