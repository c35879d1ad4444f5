//! The task of one core: it serves its listeners and answers what the other cores and the server send.

use std::{io, sync::Arc};

use engine::cores::mesh::Sender;
use engine::cores::service::Stage;
use engine::journal::Scribe;
use engine::store::Shard;
use engine::store::Store;
use engine::{
    cores::{CoreContext, mesh::Receiver},
    io::Completions,
};

use crate::body::growing::PassingBudget;
use crate::client::limits::client_memory::ClientMemory;
use crate::client::listener::BoundSocket;
use crate::client::tls_terms::TlsTerms;
use crate::core::store_file::OfCore;
use crate::encoding::codec_pool;
use crate::head::response_head::Identity;
use crate::peers::Peers;
use crate::peers::purge_broadcast::ClusterHandle;
use crate::purging::invalidations::Table;
use crate::purging::purge_log::Book;
use crate::request::active_config::ActiveConfig;
use crate::{
    admin::{explain, listing},
    client::{accept, listener::Listener},
    core::{
        Core, CoreSetup, Message, housekeeping,
        store_file::{self},
        with_core,
    },
    counters::Counter,
    encoding::encoded_variants,
    fetch,
    purging::spread,
    states::{head_validation, purge, put},
};

/// State that is handed to one core at its start.
pub(super) struct Seed {
    pub(super) listeners: Vec<BoundSocket>,
    pub(super) shard: Shard,
    pub(super) file: Option<OfCore>,
    pub(super) coding: codec_pool::OfCore,
    pub(super) purged: Table,
    pub(super) sender: Sender<Message>,
    pub(super) receiver: Receiver<Message>,
    pub(super) counters: engine::meter::CoreCounters<Counter>,
    pub(super) scribe: Option<Scribe>,
}

/// State that all cores share.
pub(super) struct SharedState {
    pub(super) identity: Identity,
    pub(super) pseudonym: Arc<str>,
    pub(super) in_force: Arc<ActiveConfig>,
    pub(super) book: Arc<Book>,
    pub(super) store: Arc<Store>,
    pub(super) stage: Arc<Stage>,
    pub(super) terms: Option<Arc<TlsTerms>>,
    pub(super) client_memory: ClientMemory,
    pub(super) passing: Arc<PassingBudget>,
    pub(super) among: ClusterHandle,
    pub(super) peers: Option<Arc<Peers>>,
}

pub(super) async fn run_core(context: CoreContext, seed: Seed, shared: Arc<SharedState>) -> io::Result<()> {
    let index = context.index;
    let Seed { listeners, shard, file: of_core, coding, purged, sender, receiver, counters, scribe } = seed;
    let (mut file, mut completions, mut coming) = (None, None, None);
    if let Some(of_core) = of_core {
        (file, completions, coming) = (Some(of_core.reads), Some(of_core.completions), of_core.coming);
    }
    let (coders, coded) = coding;
    Core::install(CoreSetup {
        index,
        in_force: Arc::clone(&shared.in_force),
        identity: shared.identity.clone(),
        pseudonym: Arc::clone(&shared.pseudonym),
        terms: shared.terms.clone(),
        book: Arc::clone(&shared.book),
        purged,
        store: Arc::clone(&shared.store),
        shard,
        file,
        coders: Some(coders),
        sender,
        balance: Arc::clone(&shared.stage.balance),
        counters,
        scribe,
        client_memory: &shared.client_memory,
        passing: Arc::clone(&shared.passing),
        among: shared.among.clone(),
        peers: shared.peers.clone(),
    });
    let mut accepting = Vec::new();
    for bound in listeners {
        let listener = Listener::new(bound)?;
        accepting.push(tokio::task::spawn_local(async move { accept::accept(&listener).await }));
    }
    let messages = tokio::task::spawn_local(receive_messages(receiver));
    let housekeeping = tokio::task::spawn_local(housekeeping::keep_house());
    let settling = completions.map(|completions| tokio::task::spawn_local(settle_reads(completions)));
    let coded = tokio::task::spawn_local(encoded_variants::settle(coded));
    let coming = coming.map(|coming| tokio::task::spawn_local(store_file::take_over(coming)));
    shared.stage.serve(&context, accepting, || ()).await;
    // Idle connections are closed now, busy ones after their answer.
    let end_idle = || {
        with_core(|core| {
            core.is_draining.set(true);
            core.clients.watches.borrow().end_idle();
        });
        true
    };
    shared.stage.drain(end_idle).await;
    housekeeping.abort();
    for task in [settling, coming, Some(coded)].into_iter().flatten() {
        task.abort();
    }
    messages.abort();
    Ok(())
}

async fn receive_messages(mut receiver: Receiver<Message>) {
    let mut batch = Vec::new();
    loop {
        receiver.recv_batch(&mut batch).await;
        for message in batch.drain(..) {
            match message {
                // No other task runs on the core at this moment, so nothing refers to the old configuration.
                Message::ActiveConfig { in_force, done } => {
                    Core::activate(in_force);
                    // The receiver may have given up.
                    let _ = done.send(());
                }
                message => with_core(|core| receive(core, message)),
            }
        }
    }
}

fn receive(core: &Core, message: Message) {
    match message {
        Message::Fetch(want) => fetch::begin(core, *want).go_on_alone(),
        Message::Put(put) => put::store(core, &put),
        Message::Code(to_code) => encoded_variants::begin(core, *to_code),
        Message::Heard(heard) => head_validation::mark_stale_if_changed(core, &heard),
        Message::Accept(stream, arrival) => {
            accept::take_over(core, stream, arrival);
        }
        Message::Invalidate { invalidation, is_purge, done } => {
            if is_purge {
                core.count(Counter::Purges);
            }
            spread::apply(core, &invalidation);
            // The requester may be gone; the purge stays in effect.
            let _ = done.send(());
        }
        Message::Changed { tags, at_ms, is_deletion } => {
            if !core.purges.invalidations.momentary.note(&tags, at_ms, is_deletion) {
                core.count(Counter::MomentaryTableFull);
            }
        }
        Message::Bans(done) => {
            // The receiver may be gone.
            let _ = done.send(core.purges.invalidations.bans_seen());
        }
        Message::Explain(question) => explain::answer(core, *question),
        Message::LastClient { hash, reply } => {
            // The receiver may have given up.
            let _ = reply.send(core.observers.last_clients.of(hash));
        }
        Message::Objects(step) => listing::answer(core, *step),
        Message::LostPart { hash, key, id } => core.shard_mut().lost_part(hash, &key, id),
        Message::Unlink { hash, key, is_purge, lasting, done } => {
            if is_purge {
                core.count(Counter::Purges);
            }
            purge::unlink(core, hash, &key, lasting, done);
        }
        Message::ActiveConfig { .. } => unreachable!("it is taken where nothing runs"),
    }
}

/// Hands completed reads from the helper threads to the requests that wait for them.
async fn settle_reads(mut completions: Completions) {
    let mut messages = Vec::new();
    loop {
        completions.next(&mut messages).await;
        with_core(|core| {
            if let Some(file) = &core.storage.file {
                file.reads.settle(&mut messages);
            }
        });
    }
}
