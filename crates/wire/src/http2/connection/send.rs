//! Sending side of a connection: our frames to the client.

use super::{
    super::{
        error::ErrorCode,
        frame::{self, HEADER_BYTES, WINDOW_MAX},
        hpack::NO_TABLE,
    },
    Connection, ConnectionError, Drain, Event, Limit, SMALL_BYTES, UPDATES_PER_FRAME,
    streams::Stream,
};

impl Connection {
    /// Appends the frames that answer an event, and any WINDOW_UPDATE frames that are due.
    pub fn reply(&mut self, event: &Event<'_, '_>, out: &mut Vec<u8>) {
        match *event {
            Event::Broken { stream, code, .. } => frame::reset(out, stream, code),
            Event::Refused { stream } => frame::reset(out, stream, ErrorCode::REFUSED_STREAM),
            Event::PingToAck(opaque) => frame::ping(out, true, opaque),
            Event::SettingsToAck => frame::settings_ack(out),
            _ => {}
        }
        self.give_back(out);
    }

    /// Reports that `bytes` of a request's content were consumed: the windows are reopened once half of a
    /// window has been consumed. A stream that is gone has no window, but the connection's window still has
    /// to be reopened, so discarded content must be released too.
    ///
    /// # Panics
    /// Panics if more is released than was received.
    pub fn release(&mut self, stream: u32, bytes: usize, out: &mut Vec<u8>) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let unreleased = self.limits.connection_window - self.owed - self.receive_window as u32;
        assert!(bytes <= unreleased, "what is released has come");
        self.owed += bytes;
        self.give_back(out);
        let half = self.limits.stream_window / 2;
        if let Some(open) = self.streams.find(stream)
            && open.is_remote_open
        {
            open.owed += bytes;
            if open.owed >= half {
                frame::window_update(out, stream, open.owed);
                open.receive_window += open.owed as i32;
                open.owed = 0;
            }
        }
    }

    #[inline]
    fn give_back(&mut self, out: &mut Vec<u8>) {
        if self.owed >= self.limits.connection_window / 2 {
            frame::window_update(out, 0, self.owed);
            self.receive_window += self.owed as i32;
            self.owed = 0;
        }
    }

    /// Appends the field block of a response's head (interim heads included) or of its trailers. Returns
    /// whether the stream is still open for it.
    pub fn send_headers(&mut self, stream: u32, block: &[u8], end_stream: bool, out: &mut Vec<u8>) -> bool {
        let frame_bytes_max = self.peer_frame_bytes_max;
        match self.streams.find(stream) {
            Some(open) if open.is_local_open => {}
            _ => return false,
        }
        if self.table_update_is_due {
            self.table_update_is_due = false;
            let block = [&[NO_TABLE], block].concat();
            frame::headers(out, stream, &block, end_stream, frame_bytes_max);
        } else {
            frame::headers(out, stream, block, end_stream, frame_bytes_max);
        }
        if end_stream {
            self.close_local(stream);
        }
        true
    }

    /// Returns how many of `want` bytes of content may be sent on a stream now, in one frame. 0 for a nonzero
    /// `want` means that the stream waits for a window or is gone.
    ///
    /// # Errors
    /// Returns the error that ends the connection if the client's windows allow only tiny frames for too
    /// long.
    #[inline]
    pub fn sendable(&mut self, stream: u32, want: usize, now_ms: u64) -> Result<usize, ConnectionError> {
        let frame_bytes_max = self.peer_frame_bytes_max as usize;
        let connection_window = self.send_window.max(0) as usize;
        let Some(open) = self.streams.find(stream).filter(|open| open.is_local_open) else {
            return Ok(0);
        };
        let stream_window = open.send_window.max(0) as usize;
        open.wait.note(stream_window < want, now_ms);
        if connection_window >= want || stream_window >= want {
            self.wait.note(connection_window < want, now_ms);
        }
        let allowed = stream_window.min(connection_window).min(want).min(frame_bytes_max);
        let is_tiny = allowed > 0 && allowed < want.min(SMALL_BYTES);
        if is_tiny && !self.credits.tiny_windows.take(self.limits.tiny_windows, now_ms) {
            return Err(ConnectionError::limit(Limit::TinyWindows));
        }
        Ok(allowed)
    }

    /// Returns the number of bytes that the windows of the stream and of the connection allow now.
    #[inline]
    pub fn window(&mut self, stream: u32) -> usize {
        let of_connection = self.send_window;
        let of_stream = self.streams.find(stream).map_or(0, |open| open.send_window);
        of_connection.min(of_stream).max(0) as usize
    }

    /// Returns the header of a DATA frame of `bytes` bytes, which the caller sends now; `bytes` is at most
    /// what [`Self::sendable`] returned.
    ///
    /// # Panics
    /// Panics in the same cases as [`Self::sends_data`].
    #[inline]
    pub fn data_header(&mut self, stream: u32, bytes: usize, end_stream: bool) -> [u8; HEADER_BYTES] {
        self.sends_data(stream, bytes, end_stream);
        frame::data_header(stream, bytes, end_stream)
    }

    /// Records that a DATA frame of `bytes` bytes, whose header the caller made with [`frame::data_header`],
    /// is being sent.
    ///
    /// # Panics
    /// Panics if the stream is gone or its window is smaller.
    #[inline]
    pub fn sends_data(&mut self, stream: u32, bytes: usize, end_stream: bool) {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        let open = self.streams.find(stream).filter(|open| open.is_local_open);
        assert!(open.is_some(), "what is sent is on a stream that is open");
        if let Some(open) = open {
            let window = i64::from(open.send_window.min(self.send_window));
            // Windows may be negative; an empty frame consumes nothing from them (RFC 9113 §6.9.1).
            assert!(bytes == 0 || bytes as i64 <= window, "what is sent is within the windows");
            open.send_window -= bytes as i32;
            open.turn = turn;
            open.wait.sent(bytes, self.limits.progress_bytes_min);
        }
        self.wait.sent(bytes, self.limits.progress_bytes_min);
        self.send_window -= bytes as i32;
        self.credits.window_updates.give(self.limits.window_updates, UPDATES_PER_FRAME);
        self.credits.pings.give(self.limits.pings, 1);
        if bytes >= SMALL_BYTES {
            self.credits.tiny_windows.give(self.limits.tiny_windows, 1);
        }
        if end_stream {
            self.close_local(stream);
        }
    }

    /// Returns the most urgent stream with content, which sends next. Among equally urgent streams it is the
    /// one opened first, unless they are incremental: then the one that has waited longest (RFC 9218 §10).
    /// Streams whose window is closed wait.
    pub fn next(&self, mut has_content: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.send_window <= 0 {
            return None;
        }
        let ready = self
            .streams
            .iter()
            .filter(|open| open.is_local_open && open.send_window > 0 && has_content(open.id));
        let order = |open: &&Stream| {
            let waited = self.turn.wrapping_sub(open.turn);
            let place = if open.priority.incremental { u32::MAX - waited } else { open.id };
            (open.priority.urgency, open.priority.incremental, place)
        };
        ready.min_by_key(order).map(|open| open.id)
    }

    /// Appends RST_STREAM unless the stream is gone; frames that still arrive for it are ignored. Returns
    /// whether the stream was open.
    pub fn reset(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) -> bool {
        if self.streams.remove(stream).is_none() {
            return false;
        }
        self.streams.mark_reset(stream);
        frame::reset(out, stream, code);
        true
    }

    /// Appends a GOAWAY announcing that the connection will end: once the client has seen it, it opens no
    /// more streams; streams opened before that are served (RFC 9113 §6.8). The caller calls [`Self::drain`]
    /// one round trip later.
    pub fn announce_drain(&mut self, out: &mut Vec<u8>) {
        if self.drain == Drain::No {
            self.drain = Drain::Announced;
            frame::goaway(out, WINDOW_MAX, ErrorCode::NO_ERROR, &[]);
        }
    }

    /// Appends a GOAWAY after which newly opened streams are ignored.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        if !matches!(self.drain, Drain::After(_)) {
            self.goaway(ErrorCode::NO_ERROR, out);
        }
    }

    /// Appends GOAWAY with the last stream that was processed.
    pub fn goaway(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        self.drain = Drain::After(self.streams.last());
        frame::goaway(out, self.streams.last(), code, &[]);
    }

    /// Returns whether all streams have ended after [`Self::drain`].
    pub fn is_drained(&self) -> bool {
        matches!(self.drain, Drain::After(_)) && self.streams.len() == 0
    }

    /// Returns whether we may still send on a stream.
    pub fn is_open(&mut self, stream: u32) -> bool {
        self.streams.find(stream).is_some_and(|open| open.is_local_open)
    }

    #[inline]
    pub(super) fn close_remote(&mut self, stream: u32) {
        if let Some(open) = self.streams.find(stream) {
            open.is_remote_open = false;
            if !open.is_local_open {
                self.finish(stream);
            }
        }
    }

    #[inline]
    fn close_local(&mut self, stream: u32) {
        if let Some(open) = self.streams.find(stream) {
            (open.is_local_open, open.wait.is_on) = (false, false);
            if !open.is_remote_open {
                self.finish(stream);
            }
        }
    }

    /// Removes a stream that both sides have ended.
    #[inline]
    fn finish(&mut self, stream: u32) {
        self.streams.remove(stream);
        self.credits.resets.give(self.limits.resets, 1);
    }
}
