//! A response's head: agrees with the slow twin, and with itself at a prefix and under limits that the fuzzer chooses.

use super::cut::Cut;
use super::naive::{self, Naive, drive};
use wire::http1::{
    framing::{Answered, Framing, response_framing},
    head::{HeadLimits, HeadRule, HeaderSlots, Progress, parse_response},
};

pub(crate) fn check(bytes: &[u8]) {
    let mut front = Cut(bytes);
    let (cut, line, head, text) = (front.u16(), front.u8(), front.u8(), front.0);
    let (mut slots, mut limits) = (HeaderSlots::new(), HeadLimits::default());
    // 255 stands for no limit that matters.
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
    if let Ok(Progress::Complete((head, _))) = parse_response(text, &mut slots, &limits) {
        for answered in [Answered::Head, Answered::Connect, Answered::Other] {
            let framing = response_framing(&head, answered);
            assert!(answered != Answered::Head || matches!(framing, Ok(Framing::None) | Err(_)));
        }
    }
}
