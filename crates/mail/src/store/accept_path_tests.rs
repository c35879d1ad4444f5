//! Counts the allocations of a steady SMTP session per mail, on the thread that acts as the core.

use std::{net::Ipv4Addr, rc::Rc, sync::Arc};

use allocations::{Allocations, CountingAllocator};
use engine::{
    cores::{
        clock,
        listener::Balance,
        mesh::{Mesh, Receiver},
    },
    log::{AppendRefusal, Log},
    meter::CounterSet,
};

use crate::{
    abuse::{PeerLimits, Rates},
    config::{Config, Retention, STORE_BYTES_MIN},
    counters::Counter,
    mailbox::mailboxes::{Event, Inbox, MailId, RemainingName},
    smtp::{
        ListenerKind,
        session::{Session, TurnEnd, TurnOutcome},
    },
    store::{
        core::{Core, CoreParts, MAIL, Message, SharedState},
        recovery::{self},
    },
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

/// Mails before counting starts: until then buffers and tables grow and inboxes fill up.
const WARM_UP: usize = 20_000;
const MAILS: usize = 20_000;
const INBOXES: usize = 10;
/// Allocations that live as long as a mail. All of them are for its summary: its `Arc`, sender, From,
/// Subject, and the inbox in two parts. Commands, replies, buffers, recipients, the index, the log, and the
/// mail dropped from a full inbox allocate nothing. The fraction is for tables that grow occasionally.
const ALLOCATIONS_A_MAIL: f64 = 6.1;

/// A service's only core, on this thread, and the receiver of its events.
pub(crate) fn core() -> (Log, Rc<Core>, Receiver<Message>) {
    core_of(Config {
        retention: Retention { per_inbox_max: 10, ..Retention::default() },
        store_bytes: 256 << 20,
        ..Config::default()
    })
}

fn core_of(config: Config) -> (Log, Rc<Core>, Receiver<Message>) {
    let (log, core, mut others) = core_beside(1, config);
    (log, core, others.pop().expect("the listeners"))
}

/// Returns the first of `cores` cores, and the receivers of the other cores and of the event listeners. The
/// test itself acts as the other cores.
pub(crate) fn core_beside(cores: usize, config: Config) -> (Log, Rc<Core>, Vec<Receiver<Message>>) {
    let recovered = recovery::recover(&config, None, cores, clock::unix_ms()).expect("a store");
    let mut endpoints = Mesh::<Message>::new(cores, 1, RING_MESSAGES).expect("a mesh").into_endpoints();
    let (sender, _) = endpoints.remove(0).split();
    let others = endpoints.into_iter().map(|endpoint| endpoint.split().1).collect();
    let (writer, of_core) = recovered.writers.into_iter().zip(recovered.cores).next().expect("one core");
    let shared = Arc::new(SharedState {
        receiving: Arc::default(),
        connections: Arc::default(),
        parts_bytes: std::sync::atomic::AtomicU64::default(),
        peers: PeerLimits::new(&config.rates, 0, 1),
        reader: recovered.log.reader(),
        balance: Balance::new(cores),
        listening: Arc::default(),
        events: tokio::sync::broadcast::Sender::new(1),
        tls: None,
        config,
    });
    let counters = CounterSet::<Counter>::new(1).core(0);
    let owned = CoreParts { recovered: of_core, writer, sender, counters, last_name: 0, scribe: None };
    (recovered.log, Rc::new(Core::new(0, cores, shared, owned)), others)
}

/// A mail that waits for room is counted against its rates only once. Counting each retry once made a mail
/// exceed its own rate.
#[test]
fn a_waiting_mail_is_charged_once() {
    // The burst is half a minute's worth, which is one mail.
    let rates = Rates { subject_mails_per_minute: 2, ..Rates::default() };
    let (_log, core, _told) = core_of(Config { rates, store_bytes: STORE_BYTES_MIN, ..Config::default() });
    let filler = vec![0; 15 << 20];
    for bytes in [15 << 20, 1 << 16, 64] {
        while !matches!(core.append(MAIL, 0, &[&filler[..bytes]]), Err(AppendRefusal::Full)) {}
    }
    let mut session = Session::new(&core, std::net::Ipv4Addr::LOCALHOST.into(), ListenerKind::Smtp);
    let mut turn = TurnOutcome::default();
    let said = b"EHLO x\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<ann@b.test>\r\nDATA\r\n";
    session.handle_input(&core, said, core.now_ms(), &mut turn);
    let (_, stop) = session.handle_input(&core, b"Subject: one\r\n\r\n.\r\n", core.now_ms(), &mut turn);
    assert_eq!(stop, TurnEnd::Room);
    for _ in 0..5 {
        assert_eq!(session.end_mail(&core, core.now_ms(), &mut turn), Some(TurnEnd::Room));
    }
    session.forget(&core);
    session.dialog.mail_done();
    let another = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<ann@b.test>\r\nDATA\r\nSubject: one\r\n\r\n.\r\n";
    let before = turn.out.len();
    for bytes in another.split_inclusive(|byte| *byte == b'\n') {
        session.handle_input(&core, bytes, core.now_ms(), &mut turn);
    }
    let said = String::from_utf8_lossy(&turn.out[before..]).into_owned();
    assert!(said.contains("450 4.7.1 Too many mails with this subject"), "{said}");
}

/// Events sent before the listeners' thread reads again, more than its ring holds.
const EVENTS_AT_ONCE: usize = RING_MESSAGES + 10;
/// Capacity of the ring from a core to the listeners.
pub(crate) const RING_MESSAGES: usize = 64;

#[test]
fn listeners_are_told_that_events_were_lost() {
    let (_log, core, mut told) = core();
    core.shared.listening.store(true, std::sync::atomic::Ordering::Release);
    let inbox = Inbox::of("ann", "inbox.test").expect("an address");
    let event =
        |number| Event::Deleted { inbox: inbox.clone(), id: MailId(number), remains: RemainingName::Nothing };
    let numbers = |batch: &mut Vec<Message>| -> Vec<Option<u64>> {
        let number = |message| match message {
            Message::Told(Event::Deleted { id, .. }) => Some(id.0),
            Message::Told(Event::Missed) => None,
            _ => panic!("an event"),
        };
        batch.drain(..).map(number).collect()
    };
    let mut batch = Vec::new();
    (0..EVENTS_AT_ONCE as u64).for_each(|number| core.send_event(event(number)));
    core.wake_listeners();
    told.try_recv_batch(&mut batch);
    let first = numbers(&mut batch);
    assert!(
        first.len() < EVENTS_AT_ONCE && first.iter().all(Option::is_some),
        "the ring was full: {first:?}"
    );
    // The loss is reported to the listeners even if no further mail arrives.
    core.wake_listeners();
    told.try_recv_batch(&mut batch);
    assert_eq!(numbers(&mut batch), [None]);
    // The loss is reported once, before later events.
    core.send_event(event(1000));
    core.wake_listeners();
    told.try_recv_batch(&mut batch);
    assert_eq!(numbers(&mut batch), [Some(1000)]);
}

/// The commands of one mail, split where a peer waits for a reply.
fn mails() -> Vec<[String; 4]> {
    (0..INBOXES)
        .map(|number| {
            [
                "MAIL FROM:<sender@client.test>\r\n".to_owned(),
                format!("RCPT TO:<inbox{number}@bench.test>\r\n"),
                "DATA\r\n".to_owned(),
                format!(
                    "From: sender@client.test\r\nSubject: {number}\r\n\r\n{}\r\n.\r\n",
                    "x\r\n".repeat(1300)
                ),
            ]
        })
        .collect()
}

async fn receive(core: &Core, session: &mut Session, parts: &[String]) {
    for part in parts {
        let mut turn = TurnOutcome::begin(core);
        let (used, stop) = session.handle_input(core, part.as_bytes(), core.now_ms(), &mut turn);
        assert_eq!((used, stop), (part.len(), TurnEnd::Read), "{part}");
        assert!(turn.settle(core).await, "it is kept");
        assert!(turn.out.starts_with(b"250") || turn.out.starts_with(b"354"));
        turn.end(core);
    }
}

#[test]
fn a_steady_session_allocates_little_per_mail() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut allocations = Allocations::new().expect("the counting allocator");
        let (_log, core, _told) = core();
        let mails = mails();
        let mut session = Session::new(&core, Ipv4Addr::LOCALHOST.into(), ListenerKind::Smtp);
        receive(&core, &mut session, &["EHLO client.test\r\n".to_owned()]).await;
        for number in 0..WARM_UP {
            receive(&core, &mut session, &mails[number % INBOXES]).await;
        }
        allocations.mark().expect("on this thread");
        for number in 0..MAILS {
            receive(&core, &mut session, &mails[number % INBOXES]).await;
        }
        let counts = allocations.since_mark().expect("on this thread");
        let (each, bytes) = (counts.allocations as f64 / MAILS as f64, counts.allocated_bytes / MAILS as u64);
        assert!(each <= ALLOCATIONS_A_MAIL, "{each} allocations and {bytes} bytes a mail");
    });
}
