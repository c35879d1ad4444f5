//! Accelerators in a cluster for the tests: an origin of numbered pages, and cluster-wide purges.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use async_nats::jetstream;
use tests::{
    Accelerator, Answer, Request, Response, ScriptedOrigin, accelerator::Setup, eventually,
    nats_cluster::NatsCluster,
};

pub(crate) const HOST: &str = "shop.example";
/// Short, so that a test does not wait long for an unreachable instance.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// An origin whose pages all show a version number, with an ETag.
pub(crate) struct Numbered {
    pub(crate) origin: ScriptedOrigin,
    pub(crate) version: Arc<AtomicU64>,
}

impl Numbered {
    pub(crate) fn start() -> Self {
        let (origin, version) = (ScriptedOrigin::start(), Arc::new(AtomicU64::new(1)));
        let now = Arc::clone(&version);
        origin.otherwise(move |seen, reply| {
            let version = now.load(SeqCst);
            let etag = format!("\"{version}\"");
            let answer = if seen.header("if-none-match") == Some(&etag) {
                Answer::new(304, "")
            } else {
                Answer::new(200, version.to_string())
            };
            let answer =
                answer.header("Cache-Control", "max-age=600, stale-while-revalidate=600, stale-if-error=600");
            reply.answer(&answer.header("ETag", &etag).header("Surrogate-Key", "all"))
        });
        Self { origin, version }
    }

    pub(crate) fn raise(&self) -> u64 {
        self.version.fetch_add(1, SeqCst) + 1
    }
}

pub(crate) fn setup(origin: &Numbered, servers: &str, name: &str) -> Setup {
    Accelerator::before(&origin.origin.url())
        .flag("--purge-from", "127.0.0.1")
        .flag("--cluster", servers)
        .flag("--cluster-name", name)
        .flag("--cluster-lease", "1s")
}

pub(crate) fn on_file(setup: Setup, store: &Path) -> Setup {
    setup.flag("--memory", "16MiB").store_in(store, "128MiB")
}

pub(crate) fn look(instance: &Accelerator) -> serde_json::Value {
    serde_json::from_slice(&instance.admin_get("/cluster").body).expect("JSON")
}

pub(crate) fn is_joined(instance: &Accelerator) -> bool {
    look(instance)["joined"] == true
}

pub(crate) fn until_joined(instance: &Accelerator) {
    eventually("it has joined", || is_joined(instance));
}

pub(crate) fn start(origin: &Numbered, servers: &str, name: &str) -> Accelerator {
    let instance = setup(origin, servers, name).start();
    until_joined(&instance);
    instance
}

pub(crate) fn page(path: &str) -> Request {
    Request::get(path).header("Host", HOST)
}

pub(crate) fn url(path: &str) -> String {
    format!("http://{HOST}{path}")
}

pub(crate) fn get(instance: &Accelerator, path: &str) -> Response {
    instance.fetch(&page(path)).expect_status(200)
}

pub(crate) fn version(instance: &Accelerator, path: &str) -> u64 {
    get(instance, path).text().parse().expect("a number")
}

pub(crate) fn is_hit(response: &Response) -> bool {
    response.header("cache-status").is_some_and(|status| status.contains("; hit"))
}

/// Requests a page until it is answered from the store.
pub(crate) fn store(instance: &Accelerator, path: &str) {
    eventually("it is answered from the store", || is_hit(&get(instance, path)));
}

/// Purges on all instances; returns whether the command succeeded, and its output.
pub(crate) fn purge_everywhere(instance: &Accelerator, more: &[&str]) -> (bool, String) {
    let output = instance.ask(&[&["purge", "--everywhere"], more].concat());
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.success(), String::from_utf8(said).expect("text"))
}

pub(crate) fn must_purge_everywhere(instance: &Accelerator, more: &[&str]) -> String {
    let (is_done, said) = purge_everywhere(instance, more);
    assert!(is_done, "{said}");
    said
}

pub(crate) async fn jetstream(cluster: &NatsCluster) -> jetstream::Context {
    let client = async_nats::connect(cluster.address(0).to_string()).await.expect("it is let in");
    jetstream::new(client)
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}
