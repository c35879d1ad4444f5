//! A response head: agrees with the slow twin, and with itself at a prefix and under limits that the fuzzer
//! chooses. An accepted head is never missed by `may_end_in`, and is the same when it is kept.

use super::cut::Cut;
use super::naive::{self, Naive, drive};
use wire::http1::{
    framing::{Framing, RequestKind, response_framing},
    head::{HeadLimits, HeadRule, HeaderSlots, KeptResponse, Progress, may_end_in, parse_response},
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
    let whole = drive::response(text, &mut slots, &limits);
    match (&whole, naive::response(text)) {
        (Ok(Some(real)), Naive::Complete(naive)) => assert_eq!(real, &naive),
        (Ok(None), Naive::Unfinished) | (Err(_), Naive::Refused) => {}
        (Err(error), Naive::Unfinished) => assert!((error.at as usize) <= text.len()),
        (Err(error), Naive::Complete(_)) => {
            assert!(matches!(error.rule, HeadRule::LineTooLong | HeadRule::HeadersTooLarge));
        }
        (real, naive) => panic!("{real:?} but the twin says {naive:?}"),
    }
    let cut = usize::from(cut) % (text.len() + 1);
    match (drive::response(&text[..cut], &mut slots, &limits), &whole) {
        (Ok(None), Ok(Some(head))) => assert!(cut < head.len),
        (Ok(None), _) => {}
        (part, whole) => assert_eq!(&part, whole),
    }
    if let Ok(Progress::Complete((head, len))) = parse_response(text, &mut slots, &limits) {
        assert!((0..len).all(|seen| may_end_in(&text[..len], seen, &limits)), "its end is missed");
        let kept = KeptResponse::new(&head, len);
        let again = kept.head();
        assert_eq!((again.status, again.version, again.reason), (head.status, head.version, head.reason));
        assert!(again.headers.classified().eq(head.headers.classified()));
        assert_eq!(head.is_interim(), (100..200).contains(&head.status) && head.status != 101);
        for answered in [RequestKind::Head, RequestKind::Connect, RequestKind::Other] {
            let framing = response_framing(&head, answered);
            assert!(answered != RequestKind::Head || matches!(framing, Ok(Framing::None) | Err(_)));
        }
    }
}
