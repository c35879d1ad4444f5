//! A request head: agrees with the slow twin, and with itself at a prefix and under limits that the fuzzer
//! chooses. An accepted head can be framed or refused without a panic, is never missed by `may_end_in`, and
//! is the same when it is kept.

use super::cut::Cut;
use super::naive::{self, Naive, drive};
use wire::http1::{
    fields,
    framing::{Framing, request_framing},
    head::{HeadLimits, HeadRule, HeaderSlots, KeptRequest, Progress, may_end_in, parse_request},
};

pub(crate) fn check(bytes: &[u8]) {
    let mut front = Cut(bytes);
    let (cut, line, head, text) = (front.u16(), front.u8(), front.u8(), front.0);
    let (mut slots, mut limits) = (HeaderSlots::new(), HeadLimits::default());
    // 255 stands for a limit that is never reached.
    if line < 255 {
        limits.line_bytes_max = line.into();
    }
    if head < 255 {
        limits.head_bytes_max = usize::from(head) * 2;
    }
    let whole = drive::request(text, &mut slots, &limits);
    match (&whole, naive::request(text)) {
        (Ok(Some(real)), Naive::Complete(naive)) => assert_eq!(real, &naive),
        (Ok(None), Naive::Unfinished) | (Err(_), Naive::Refused) => {}
        // The head is broken before its end, or exceeds a limit that the twin does not know.
        (Err(error), Naive::Unfinished) => assert!((error.at as usize) <= text.len()),
        (Err(error), Naive::Complete(_)) => {
            assert!(matches!(error.rule, HeadRule::LineTooLong | HeadRule::HeadersTooLarge));
        }
        (real, naive) => panic!("{real:?} but the twin says {naive:?}"),
    }
    let cut = usize::from(cut) % (text.len() + 1);
    match (drive::request(&text[..cut], &mut slots, &limits), &whole) {
        (Ok(None), Ok(Some(head))) => assert!(cut < head.len),
        (Ok(None), _) => {}
        (Ok(Some(part)), Ok(Some(head))) => assert_eq!(&part, head),
        (part, whole) => assert_eq!(&part, whole),
    }
    if let Ok(Progress::Complete((head, len))) = parse_request(text, &mut slots, &limits) {
        assert!((0..len).all(|seen| may_end_in(&text[..len], seen, &limits)), "its end is missed");
        let kept = KeptRequest::new(&head, len);
        let again = kept.head();
        assert_eq!((again.method, again.target, again.form), (head.method, head.target, head.form));
        assert_eq!(
            (kept.head_bytes(), again.version, again.authority()),
            (len, head.version, head.authority())
        );
        assert!(again.headers.classified().eq(head.headers.classified()));
        assert_ne!(request_framing(&head), Ok(Framing::UntilClose));
        let _ = (head.authority(), fields::persists(head.version, &head.headers));
        for (name, _) in head.headers.iter() {
            let _ = fields::is_hop_by_hop(name, &head.headers);
        }
    }
}
