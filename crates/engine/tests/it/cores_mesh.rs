//! The mesh: everything arrives once and in order, sleepers wake, and a full ring refuses.

use std::{rc::Rc, time::Duration};

use engine::cores::{
    Cores, CoresConfig, available,
    mesh::{Mesh, MeshCounter, Receiver, Sender},
};
use tokio::runtime;

/// Sender and number of a message.
type Message = (usize, u64);

/// Timeout, so that a lost message fails the test with an explanation.
const PATIENCE: Duration = Duration::from_secs(60);

fn on_a_loop<T>(future: impl Future<Output = T>) -> T {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("a message did not arrive") })
}

/// Sends a message, and waits as long as its ring is full.
async fn send_when_there_is_room(sender: &Sender<Message>, to: usize, mut message: Message) {
    while let Err(refused) = sender.send(to, message) {
        message = refused;
        sender.flush();
        tokio::task::yield_now().await;
    }
}

/// Number of messages that each endpoint sends to each, itself included.
const MESSAGES: u64 = 5_000;

/// Sends everyone's messages, and flushes sometimes after one message, sometimes after many.
async fn send_all(sender: &Sender<Message>, me: usize, count: usize) {
    for number in 0..MESSAGES {
        for to in 0..count {
            send_when_there_is_room(sender, to, (me, number)).await;
        }
        if number % 7 == 0 || number % 100 > 90 {
            sender.flush();
            tokio::task::yield_now().await;
        }
    }
    sender.flush();
}

/// Receives the messages of all, each once and in order.
async fn receive_all(receiver: &mut Receiver<Message>, me: usize, count: usize) {
    let mut next = vec![0; count];
    let mut batch = Vec::new();
    while next.iter().any(|&next| next < MESSAGES) {
        let received = receiver.recv_batch(&mut batch).await;
        assert_eq!(received, batch.len());
        assert!((1..=count * 64).contains(&received));
        for (from, number) in batch.drain(..) {
            assert_eq!(number, next[from], "core {me}, from {from}");
            next[from] += 1;
        }
    }
    assert_eq!(receiver.try_recv_batch(&mut batch), 0, "core {me} got more than was sent");
}

#[test]
fn every_message_arrives_once_and_in_order() {
    let mesh = Mesh::<Message>::new(3, 1, 64).unwrap();
    let counters = mesh.counters();
    let endpoints = mesh.into_endpoints();
    let count = endpoints.len();
    assert_eq!(count, 4);
    let threads: Vec<_> = endpoints
        .into_iter()
        .enumerate()
        .map(|(me, endpoint)| {
            std::thread::spawn(move || {
                let (sender, mut receiver) = endpoint.split();
                on_a_loop(async move {
                    tokio::join!(send_all(&sender, me, count), receive_all(&mut receiver, me, count));
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let all = MESSAGES * (count * count) as u64;
    assert_eq!(counters.total(MeshCounter::Sent), all);
    assert_eq!(counters.total(MeshCounter::Received), all);
    assert!(counters.total(MeshCounter::Batches) <= all);
}

/// Every message is sent to a receiver that sleeps, or is about to: a lost wake-up stops the game.
#[test]
fn ping_pong_wakes_sleepers() {
    const ROUNDS: u64 = 5_000;
    let mesh = Mesh::<u64>::new(2, 0, 4).unwrap();
    let counters = mesh.counters();
    let mut endpoints = mesh.into_endpoints();
    let (mut one, mut zero) = (endpoints.pop().unwrap(), endpoints.pop().unwrap());
    let player = std::thread::spawn(move || {
        on_a_loop(async {
            let mut batch = Vec::new();
            for round in 0..ROUNDS {
                assert_eq!(one.recv_batch(&mut batch).await, 1);
                assert_eq!(batch.pop(), Some(round));
                one.send(0, round).unwrap();
                one.flush();
            }
        });
    });
    on_a_loop(async {
        let mut batch = Vec::new();
        for round in 0..ROUNDS {
            zero.send(1, round).unwrap();
            zero.flush();
            assert_eq!(zero.recv_batch(&mut batch).await, 1);
            assert_eq!(batch.pop(), Some(round));
        }
    });
    player.join().unwrap();
    let wakes = counters.total(MeshCounter::Wakes);
    assert!((1..=2 * ROUNDS).contains(&wakes), "{wakes} wake-ups for {} messages", 2 * ROUNDS);
}

#[test]
fn a_flush_wakes_a_sleeping_core_once() {
    let mesh = Mesh::<u32>::new(1, 1, 100).unwrap();
    let counters = mesh.counters();
    let mut endpoints = mesh.into_endpoints();
    let (outsider, mut core) = (endpoints.pop().unwrap(), endpoints.pop().unwrap());
    // The receiver is awake, so there is no system call.
    outsider.send(0, 1).unwrap();
    outsider.flush();
    assert_eq!(counters.total(MeshCounter::Wakes), 0);
    on_a_loop(async {
        let mut batch = Vec::new();
        assert_eq!(core.recv_batch(&mut batch).await, 1);
        // The receiver sleeps after the first poll.
        let mut receive = Box::pin(core.recv_batch(&mut batch));
        assert!(futures_poll_once(&mut receive).await.is_none());
        for number in 2..=50 {
            outsider.send(0, number).unwrap();
        }
        assert_eq!(counters.total(MeshCounter::Wakes), 0, "sending alone wakes nobody");
        outsider.flush();
        outsider.flush();
        assert_eq!(counters.total(MeshCounter::Wakes), 1, "49 messages, one wake-up");
        assert_eq!(receive.await, 49);
        assert!(batch.iter().copied().eq(1..=50));
    });
}

async fn futures_poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[test]
fn a_full_ring_refuses_and_counts() {
    let mesh = Mesh::<u32>::new(2, 0, 3).unwrap();
    let counters = mesh.counters();
    let mut endpoints = mesh.into_endpoints();
    let (mut one, zero) = (endpoints.pop().unwrap(), endpoints.pop().unwrap());
    for number in 0..3 {
        assert_eq!(zero.send(1, number), Ok(()));
    }
    assert_eq!(zero.send(1, 3), Err(3));
    assert_eq!(zero.send(1, 4), Err(4));
    assert_eq!(zero.send(0, 5), Ok(()), "the other rings have room");
    let (sender, _receiver) = zero.split();
    assert_eq!(sender.refused(), 2);
    assert_eq!(counters.total(MeshCounter::Refused), 2);
    let mut batch = Vec::new();
    assert_eq!(one.try_recv_batch(&mut batch), 3);
    assert_eq!(batch, [0, 1, 2]);
    assert_eq!(sender.send(1, 6), Ok(()));
}

#[test]
fn an_outsider_reaches_cores_and_gets_answers() {
    let processors = available().unwrap();
    let mesh = Mesh::<Message>::new(2, 1, 8).unwrap();
    let mut endpoints = mesh.into_endpoints();
    let mut outsider = endpoints.pop().unwrap();
    let config = CoresConfig {
        cores: vec![processors[0], *processors.last().unwrap()],
        name: "echo",
        ..Default::default()
    };
    let mut cores = Cores::start_each(config, endpoints, |context, endpoint| async move {
        let (sender, mut receiver) = endpoint.split();
        // The core's tasks share the sender, as in the servers.
        let sender = Rc::new(sender);
        let echo = async {
            let mut batch = Vec::new();
            loop {
                receiver.recv_batch(&mut batch).await;
                for (from, number) in batch.drain(..) {
                    sender.send(from, (context.index, number + 1)).expect("the outsider takes one at a time");
                }
                sender.flush();
            }
        };
        tokio::select! {
            () = echo => {}
            () = context.shutdown.requested() => {}
        }
    })
    .unwrap();
    on_a_loop(async {
        let mut batch = Vec::new();
        for number in 0..1_000 {
            let to = (number % 2) as usize;
            outsider.send(to, (2, number)).unwrap();
            outsider.flush();
            assert_eq!(outsider.recv_batch(&mut batch).await, 1);
            assert_eq!(batch.pop(), Some((to, number + 1)));
        }
    });
    assert!(cores.drain(PATIENCE).unwrap().cut.is_empty());
}

/// A message that carries its reply channel, like requests to a core.
struct Question {
    _answer: tokio::sync::oneshot::Sender<()>,
}

fn question() -> (Question, tokio::sync::oneshot::Receiver<()>) {
    let (sender, answer) = tokio::sync::oneshot::channel();
    (Question { _answer: sender }, answer)
}

/// A task that waits for a reply learns that the core has ended, whether it asked before the end or after it.
#[test]
fn whoever_awaits_an_ended_core_hears_of_it() {
    let mesh = Mesh::<Question>::new(1, 1, 8).unwrap();
    let mut endpoints = mesh.into_endpoints();
    let (outsider, core) = (endpoints.pop().unwrap(), endpoints.pop().unwrap());
    let (sender, receiver) = core.split();
    let (asked, before) = question();
    assert!(outsider.send(0, asked).is_ok());
    outsider.flush();
    drop((sender, receiver));
    on_a_loop(async {
        assert!(before.await.is_err(), "asked before the end");
        // More messages than a ring holds.
        for number in 0..20 {
            let (asked, after) = question();
            assert!(outsider.send(0, asked).is_ok(), "number {number} finds room");
            outsider.flush();
            assert!(after.await.is_err(), "number {number} was asked after the end");
        }
    });
}

/// All requests to a core end when its loop is cut, which drops its tasks and with them its receiver, while
/// an outsider keeps asking.
#[test]
fn questions_to_a_cut_core_all_end() {
    const QUESTIONS: usize = 10_000;
    let processors = available().unwrap();
    let mesh = Mesh::<Question>::new(1, 1, 8).unwrap();
    let mut endpoints = mesh.into_endpoints();
    let outsider = endpoints.pop().unwrap();
    let config = CoresConfig { cores: vec![processors[0]], name: "cut", ..Default::default() };
    let mut cores = Cores::start_each(config, endpoints, |_, endpoint| async move {
        let (_sender, mut receiver) = endpoint.split();
        let mut batch = Vec::new();
        while receiver.recv_batch(&mut batch).await > 0 {
            batch.clear();
        }
    })
    .unwrap();
    let asking = std::thread::spawn(move || {
        on_a_loop(async {
            for _ in 0..QUESTIONS {
                let (mut asked, answer) = question();
                while let Err(refused) = outsider.send(0, asked) {
                    asked = refused;
                    tokio::task::yield_now().await;
                }
                outsider.flush();
                assert!(answer.await.is_err(), "nobody answers");
            }
        });
    });
    assert_eq!(cores.drain(Duration::ZERO).unwrap().cut, [0]);
    asking.join().unwrap();
}
