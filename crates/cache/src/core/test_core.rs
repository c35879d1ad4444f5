//! Setup that makes a test's thread the first core of an accelerator.

use std::sync::Arc;

use engine::{
    cores::{
        listener::Balance,
        mesh::{Mesh, Receiver},
    },
    journal::Scribe,
    meter::CounterSet,
    store::{StoreConfig, open_anon},
};

use crate::{
    body::growing::PassingBudget,
    client::limits::client_memory::ClientMemory,
    config::{Config, Origin},
    core::{Core, CoreSetup, Message},
    counters::Counter,
    head::response_head::Identity,
    peers::purge_broadcast::ClusterHandle,
    purging::invalidations::Table,
    request::active_config::ActiveConfig,
};

/// Calls [`install_with`] with the default configuration.
pub(crate) fn install(cores: usize, ring: usize) -> Vec<Receiver<Message>> {
    install_with(Config::new(Origin::http("127.0.0.1", 9)), cores, ring)
}

/// Makes this thread the first of `cores` cores, with rings of `ring` messages between them. Returns the
/// receivers of the cores' messages. The other cores have no threads; the test acts for them.
pub(crate) fn install_with(config: Config, cores: usize, ring: usize) -> Vec<Receiver<Message>> {
    install_logged(config, cores, ring, None)
}

/// Calls [`install_with`], with a journal.
pub(crate) fn install_logged(
    config: Config,
    cores: usize,
    ring: usize,
    scribe: Option<Scribe>,
) -> Vec<Receiver<Message>> {
    let (store, mut shards) = open_anon(&StoreConfig { cores, ..StoreConfig::default() }).expect("a store");
    let mesh = Mesh::<Message>::new(cores, 0, ring).expect("a mesh");
    let (mut senders, receivers): (Vec<_>, Vec<_>) =
        mesh.into_endpoints().into_iter().map(engine::cores::mesh::Endpoint::split).unzip();
    let counters = CounterSet::<Counter>::new(cores);
    let identity = Identity::new(&config.name).expect("a name");
    let client_bytes_max = config.limits.client_bytes_max;
    Core::install(CoreSetup {
        index: 0,
        identity,
        pseudonym: "us".into(),
        in_force: ActiveConfig::of_test(config, cores),
        book: Arc::default(),
        terms: None,
        purged: Table::default(),
        store,
        shard: shards.remove(0),
        file: None,
        coders: None,
        sender: senders.remove(0),
        balance: Balance::new(1),
        counters: counters.core(0),
        scribe,
        client_memory: &ClientMemory::new(None, cores),
        passing: PassingBudget::new(client_bytes_max),
        among: ClusterHandle::default(),
        peers: None,
    });
    receivers
}
