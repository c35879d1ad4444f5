use engine::cores::watch::{Phase, Watches};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};
use wire::http2::frame::{self, FrameHeader, PREFACE, flag, kind};

use super::*;
use crate::core::test_core;

/// A connection under test. The test decides when bytes arrive, and sets the clock.
struct Scene {
    client: TcpStream,
    multiplex: Multiplex,
    watch: Rc<Watch>,
    now_ms: u64,
}

impl Scene {
    async fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (served, _) = listener.accept().await.expect("accepted");
        let multiplex = with_core(|core| {
            let wire = Connection::new(limits(core), 0);
            let taking = SendRate::new(&core.config.limits);
            Multiplex::new(wire, Transport::plain(served), Vec::new(), Vec::new(), taking)
        });
        let mut hello = PREFACE.to_vec();
        frame::settings(&mut hello, &[]);
        client.write_all(&hello).await.expect("taken");
        let mut scene = Self { client, multiplex, watch: Watch::new(), now_ms: 0 };
        assert!(scene.take().await.is_ok());
        scene
    }

    /// Processes all bytes that have arrived, after waiting for the first.
    async fn take(&mut self) -> Result<(), End> {
        let Self { multiplex, watch, now_ms, .. } = self;
        let peer = Peer::new(([127, 0, 0, 1], 1).into(), false, &[]);
        let client = Client { number: Number::NOBODY, peer };
        let (mut has_come, mut comes) = (false, true);
        while comes || !has_come {
            // Yields, so that the event loop polls the socket first.
            tokio::task::yield_now().await;
            comes = poll_fn(|cx| {
                with_core(|core| -> Poll<Result<bool, End>> {
                    // Flushes before it reads, as the connection's task does.
                    if multiplex.flush().is_err() {
                        return Poll::Ready(Err(End::Gone));
                    }
                    let taken = read(core, multiplex, client, cx, &mut TURN_FRAMES_MAX.clone());
                    deadlines::set(core, multiplex, watch, *now_ms);
                    Poll::Ready(taken)
                })
            })
            .await?;
            has_come |= comes;
        }
        Ok(())
    }

    async fn comes(&mut self, bytes: &[u8], after_ms: u64) -> Result<(), End> {
        self.now_ms += after_ms;
        let Self { multiplex, watch, now_ms, .. } = self;
        let mut watches = Watches::default();
        watches.add(Rc::clone(watch));
        watches.sweep(*now_ms);
        if watch.expired() {
            with_core(|core| deadlines::check(core, multiplex, watch, *now_ms))?;
        }
        self.client.write_all(bytes).await.expect("taken");
        self.take().await
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .expect("a runtime");
    runtime.block_on(async {
        let _inbox = test_core::install(1, 16);
        test.await;
    });
}

fn header(kind: u8, flags: u8, bytes: usize) -> [u8; 9] {
    FrameHeader { length: bytes as u32, kind, flags, stream: 1 }.bytes()
}

/// The client's acknowledgement of our settings.
fn settings_ack() -> [u8; 9] {
    FrameHeader { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.bytes()
}

/// `POST http://a/`, encoded with HPACK's static table.
const HEAD: [u8; 6] = [0x83, 0x86, 0x84, 0x41, 0x01, b'a'];

/// Each frame has a deadline of ten seconds. A DATA frame is also given the time that the slowest accepted
/// body takes.
#[test]
fn a_deadline_belongs_to_a_frame() {
    run(async {
        let mut scene = Scene::new().await;
        assert!(scene.comes(&settings_ack(), 0).await.is_ok(), "right");
        let head = [&header(kind::HEADERS, flag::END_HEADERS, HEAD.len())[..], &HEAD].concat();
        assert!(scene.comes(&head, 0).await.is_ok(), "right");
        let content = [&header(kind::DATA, 0, 200)[..], &[b'x'; 200]].concat();
        // A frame is incomplete at every check.
        assert!(scene.comes(&content[..100], 0).await.is_ok(), "right");
        for _ in 0..60 {
            let next = [&content[100..], &content[..100]].concat();
            assert!(scene.comes(&next, 5000).await.is_ok(), "frames come to their ends");
        }
        assert!(matches!(scene.comes(&content[100..101], 12_000).await, Err(End::Done)), "one does not");
    });
}

/// Content of a stream that its client has reset has the time of a slow body, as while the stream was there.
#[test]
fn content_of_a_reset_stream_has_time() {
    run(async {
        let mut scene = Scene::new().await;
        assert!(scene.comes(&settings_ack(), 0).await.is_ok(), "right");
        let head = [&header(kind::HEADERS, flag::END_HEADERS, HEAD.len())[..], &HEAD].concat();
        let reset = [&header(kind::RST_STREAM, 0, 4)[..], &[0, 0, 0, 8]].concat();
        assert!(scene.comes(&[head, reset].concat(), 0).await.is_ok(), "right");
        let content = [&header(kind::DATA, 0, 16_000)[..], &[b'x'; 100]].concat();
        assert!(scene.comes(&content, 0).await.is_ok(), "right");
        assert_eq!(scene.watch.phase(), Phase::Head);
        assert!(scene.comes(b"x", 11_000).await.is_ok(), "a slow body");
    });
}

/// A connection with a frame under way and no stream may be closed to make room, as one that idles.
#[test]
fn a_head_under_way_may_make_room() {
    run(async {
        let mut scene = Scene::new().await;
        assert!(scene.comes(&settings_ack(), 0).await.is_ok(), "right");
        assert_eq!(scene.watch.phase(), Phase::Idle);
        let head = [&header(kind::HEADERS, flag::END_HEADERS, HEAD.len())[..], &HEAD].concat();
        assert!(scene.comes(&head[..12], 0).await.is_ok(), "right");
        assert_eq!(scene.watch.phase(), Phase::Head);
        scene.watch.end();
        assert!(matches!(scene.comes(&head[12..], 2000).await, Err(End::Done)), "it made room");

        let mut scene = Scene::new().await;
        assert!(scene.comes(&settings_ack(), 0).await.is_ok(), "right");
        assert!(scene.comes(&head, 0).await.is_ok(), "right");
        assert_eq!(scene.watch.phase(), Phase::Streams);
    });
}

/// A field block in many frames has one deadline.
#[test]
fn a_deadline_belongs_to_a_field_block() {
    run(async {
        let mut scene = Scene::new().await;
        assert!(scene.comes(&settings_ack(), 0).await.is_ok(), "right");
        let begin = [&header(kind::HEADERS, 0, 2)[..], &HEAD[..2]].concat();
        assert!(scene.comes(&begin, 0).await.is_ok(), "right");
        let more = header(kind::CONTINUATION, 0, 0);
        assert!(scene.comes(&more, 4000).await.is_ok(), "in time");
        assert!(scene.comes(&more, 4000).await.is_ok(), "in time");
        assert!(matches!(scene.comes(&more, 4000).await, Err(End::Done)), "twelve seconds");
    });
}
