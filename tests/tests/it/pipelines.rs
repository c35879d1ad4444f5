//! Requests pipelined on one connection: any mix of hits, misses and passes, with bodies that the socket
//! takes at once and bodies that it does not, cut at any byte. Each request is answered, whole and in order.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tests::{Accelerator, Answer, Client, End, Next, Request, ScriptedOrigin, content::content};

/// Body sizes around each border of the hit path: copied behind the head (16 KiB), lent to the socket (64
/// KiB), small enough for one write to the socket or not, and in several extents.
const SIZES: [usize; 14] = [
    1,
    100,
    1024,
    16 << 10,
    (16 << 10) + 1,
    40_000,
    (64 << 10) - 1,
    64 << 10,
    100_000,
    (256 << 10) - 1,
    256 << 10,
    300_000,
    700_000,
    1 << 20,
];

/// Small enough that all uploads of a pipeline fit the sockets' buffers: the client sends them before it
/// reads an answer.
const UPLOAD_BYTES_MAX: usize = 2_000;

/// One request of a pipeline; the number is an index into [`SIZES`].
#[derive(Debug, Clone, Copy)]
enum Ask {
    /// A hit.
    Stored(usize),
    /// A hit that is sent in chunks, because trailers follow.
    Chunked(usize),
    /// HEAD of a stored object.
    Head(usize),
    /// Conditional request for a stored object: 304.
    NotModified(usize),
    /// Range of a stored object.
    Part(usize),
    /// Range beyond the end of a stored object, answered with our own 416 page.
    Beyond(usize),
    /// A miss: a new address.
    Missed(usize),
    /// An answer that may not be stored.
    Private(usize),
    /// A request body that goes to the origin.
    Upload(usize),
    /// A request body in chunks.
    ChunkedUpload(usize),
    /// A request that this client may not make: 403.
    Forbidden,
    /// A request that may go no further (`Max-Forwards: 0`), answered by the accelerator itself.
    LastHop,
    /// `only-if-cached` for an object that is not stored: 504.
    OnlyIfCached(usize),
    /// An answer that the origin breaks off: 502.
    Broken(usize),
}

fn stored(size: usize) -> String {
    format!("/stored/{size}")
}

fn chunked(size: usize) -> String {
    format!("/chunked/{size}")
}

/// A new address, whose answer has a body of this size.
fn fresh(path: &str, size: usize) -> String {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    format!("/{path}?{}&{}", ASKED.fetch_add(1, Ordering::Relaxed), SIZES[size])
}

/// The size that an address of [`fresh`] names.
fn size_in(target: &str) -> usize {
    target.split('&').next_back().and_then(|size| size.parse().ok()).expect("a size")
}

fn body(bytes: usize) -> Vec<u8> {
    content(bytes as u64, 0, bytes)
}

fn start() -> (ScriptedOrigin, Accelerator) {
    let origin = ScriptedOrigin::start();
    for bytes in SIZES {
        let kept =
            Answer::new(200, body(bytes)).header("Cache-Control", "max-age=6000").header("ETag", "\"1\"");
        origin.answers(&stored(bytes), kept);
        let pieces = body(bytes);
        let pieces: Vec<&[u8]> = pieces.chunks(50_000).collect();
        let kept = Answer::chunked(200, &pieces, &[("X-Sum", "1")]).header("Cache-Control", "max-age=6000");
        origin.answers(&chunked(bytes), kept);
    }
    for (path, directive) in [("/missed", "max-age=60"), ("/private", "no-store")] {
        origin.on(path, move |request, reply| {
            let answer = Answer::new(200, body(size_in(&request.target)));
            reply.answer(&answer.header("Cache-Control", directive))
        });
    }
    origin.on("/upload", |request, reply| {
        reply.answer(&Answer::new(200, format!("{} bytes", request.body.len())))
    });
    origin.sends("/broken", &b"HTTP/1.1 nonsense\r\n\r\n"[..], Next::Close);
    let accelerator = Accelerator::before(&origin.url()).start();
    for bytes in SIZES {
        accelerator.get(&stored(bytes)).expect_status(200);
        accelerator.get(&chunked(bytes)).expect_status(200);
    }
    (origin, accelerator)
}

impl Ask {
    fn request(self) -> Request {
        match self {
            Self::Stored(size) => Request::get(&stored(SIZES[size])),
            Self::Chunked(size) => Request::get(&chunked(SIZES[size])),
            Self::Head(size) => Request::new("HEAD", &stored(SIZES[size])),
            Self::NotModified(size) => Request::get(&stored(SIZES[size])).header("If-None-Match", "\"1\""),
            Self::Part(size) => Request::get(&stored(SIZES[size])).header("Range", "bytes=0-19999"),
            Self::Beyond(size) => {
                let range = format!("bytes={}-", SIZES[size]);
                Request::get(&stored(SIZES[size])).header("Range", &range)
            }
            Self::Missed(size) => Request::get(&fresh("missed", size)),
            Self::Private(size) => Request::get(&fresh("private", size)),
            Self::Upload(size) => {
                Request::new("POST", "/upload").body(&body(SIZES[size].min(UPLOAD_BYTES_MAX)))
            }
            Self::ChunkedUpload(size) => {
                let body = body(SIZES[size].min(UPLOAD_BYTES_MAX));
                Request::new("POST", "/upload").chunked(&body.chunks(700).collect::<Vec<_>>())
            }
            Self::Forbidden => Request::new("PURGE", &stored(SIZES[0])),
            Self::LastHop => Request::new("OPTIONS", "*").header("Max-Forwards", "0"),
            Self::OnlyIfCached(size) => {
                Request::get(&fresh("missed", size)).header("Cache-Control", "only-if-cached")
            }
            Self::Broken(size) => Request::get(&fresh("broken", size)),
        }
    }

    /// Reads the answer, which must be the one to this request.
    fn expect(self, client: &mut Client) {
        let method = match self {
            Self::Head(_) => "HEAD",
            Self::Upload(_) | Self::ChunkedUpload(_) => "POST",
            _ => "GET",
        };
        let response = client.response(method).whole();
        let (status, want) = match self {
            Self::Stored(size) | Self::Chunked(size) | Self::Missed(size) | Self::Private(size) => {
                (200, body(SIZES[size]))
            }
            Self::Head(_) => (200, Vec::new()),
            Self::NotModified(_) => (304, Vec::new()),
            Self::Part(size) => (206, body(SIZES[size])[..SIZES[size].min(20_000)].to_vec()),
            Self::Beyond(_) => (416, response.body.clone()),
            // Error pages of the accelerator.
            Self::Forbidden => (403, response.body.clone()),
            Self::OnlyIfCached(_) => (504, response.body.clone()),
            Self::Broken(_) => (502, response.body.clone()),
            Self::LastHop => (200, Vec::new()),
            Self::Upload(size) | Self::ChunkedUpload(size) => {
                (200, format!("{} bytes", SIZES[size].min(UPLOAD_BYTES_MAX)).into_bytes())
            }
        };
        assert_eq!(response.status(), status, "{self:?}: {}", response.text_of_head());
        assert!(
            response.body == want,
            "{self:?}: {} bytes: {}",
            response.body.len(),
            response.text_of_head()
        );
        if let Self::Chunked(_) = self {
            assert_eq!(response.trailers.first("x-sum"), Some("1"), "{}", response.text_of_head());
        }
    }
}

/// Sends the requests as one run of bytes, cut at `cuts` (in thousandths of its length). Where a cut says so,
/// all answers due so far are read before the rest is sent, so that the cut surely falls between two reads.
fn pipeline(accelerator: &Accelerator, asks: &[Ask], cuts: &[(usize, bool)]) {
    let mut client = accelerator.connect();
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for ask in asks {
        bytes.extend_from_slice(&ask.request().bytes());
        ends.push(bytes.len());
    }
    let mut cuts: Vec<(usize, bool)> =
        cuts.iter().map(|&(at, settles)| (at * bytes.len() / 1000, settles)).collect();
    cuts.sort_unstable();
    let (mut sent, mut answered) = (0, 0);
    for (cut, settles) in cuts.into_iter().chain([(bytes.len(), true)]) {
        client.send(&bytes[sent..cut]);
        sent = cut;
        while settles && answered < asks.len() && ends[answered] <= sent {
            asks[answered].expect(&mut client);
            answered += 1;
        }
    }
    let last = client.exchange(&Request::get(&stored(1)).header("Connection", "close")).expect_status(200);
    assert_eq!(last.body.len(), 1);
    assert_eq!(client.until_closed(), (End::Closed, Vec::new()), "after the last answer");
}

fn ask() -> impl Strategy<Value = Ask> {
    (0..SIZES.len(), 0..17).prop_map(|(size, kind)| match kind {
        0..4 => Ask::Stored(size),
        4 => Ask::Chunked(size),
        5 => Ask::Head(size),
        6 => Ask::NotModified(size),
        7 => Ask::Part(size),
        8 => Ask::Beyond(size),
        9 => Ask::Missed(size),
        10 => Ask::Private(size),
        11 => Ask::Upload(size),
        12 => Ask::ChunkedUpload(size),
        13 => Ask::Forbidden,
        14 => Ask::LastHop,
        15 => Ask::OnlyIfCached(size),
        _ => Ask::Broken(size),
    })
}

/// A request behind a large hit of any size, in the same bytes, is answered.
#[test]
fn what_is_behind_a_large_hit_is_answered() {
    let (_origin, accelerator) = start();
    for size in 0..SIZES.len() {
        for large in [Ask::Stored(size), Ask::Chunked(size), Ask::Part(size)] {
            pipeline(&accelerator, &[large, Ask::Stored(1)], &[]);
            pipeline(&accelerator, &[large, large, Ask::Missed(0), Ask::Head(0)], &[]);
        }
    }
}

#[test]
fn any_pipeline_is_answered_whole_and_in_order() {
    let (_origin, accelerator) = start();
    let cuts = prop::collection::vec((0..1000usize, any::<bool>()), 0..6);
    let pipelines = (prop::collection::vec(ask(), 1..12), cuts);
    // A failing pipeline may need ten seconds to report its failure.
    let config = Config {
        cases: unify::cases(64, 2_000),
        max_shrink_iters: 50,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&pipelines, |(asks, cuts)| {
            pipeline(&accelerator, &asks, &cuts);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}
