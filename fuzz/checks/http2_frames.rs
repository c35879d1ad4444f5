//! A sequence of HTTP/2 frames: parsed the same whole and at every prefix, and the same after being written
//! again.

use super::cut::Cut;
use wire::http2::{
    Progress,
    frame::{self, FRAME_BYTES_MIN, Frame, FrameHeader, HEADER_BYTES},
};

pub(crate) fn check(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    // 255 stands for the smallest maximum that SETTINGS may announce.
    let frame_bytes_max = match cut.u8() {
        255 => FRAME_BYTES_MIN,
        small => small.into(),
    };
    let mut rest = cut.0;
    loop {
        let whole = frame::parse(rest, frame_bytes_max);
        // At every prefix the parser asks for more bytes or already gives its final result.
        for end in 0..rest.len().min(HEADER_BYTES + 64) {
            match frame::parse(&rest[..end], frame_bytes_max) {
                Ok(Progress::NeedMore(need)) => {
                    assert!(need > end, "{need} bytes are needed, and {end} are there");
                    if let Ok(Progress::Complete(_, total)) = whole {
                        assert!(end < total && need <= total);
                    }
                }
                early => assert_eq!(early, whole),
            }
        }
        let total = match whole {
            Ok(Progress::Complete(frame, total)) => {
                writes_back(&frame);
                total
            }
            Ok(Progress::NeedMore(_)) => return,
            Err(fault) => {
                assert_ne!(fault.stream, Some(0));
                // After a stream error the receiver skips the frame.
                match (fault.stream, FrameHeader::parse(rest)) {
                    (Some(stream), Some(header)) => {
                        assert_eq!(stream, header.stream);
                        HEADER_BYTES + header.length as usize
                    }
                    _ => return,
                }
            }
        };
        rest = &rest[total..];
    }
}

fn writes_back(frame: &Frame<'_>) {
    // Written without padding, the frame takes less of the flow-control window.
    let frame = match *frame {
        Frame::Data { stream, payload, flow_bytes, end_stream } => {
            assert!(flow_bytes as usize >= payload.len());
            Frame::Data { stream, payload, flow_bytes: payload.len() as u32, end_stream }
        }
        frame => frame,
    };
    let mut written = Vec::new();
    frame::write(&mut written, &frame);
    assert_eq!(frame::parse(&written, 1 << 24), Ok(Progress::Complete(frame, written.len())));
}
