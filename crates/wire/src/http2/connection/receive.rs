//! Receiving side of a connection: the client's frames.

use super::{
    super::{
        Progress,
        error::{ErrorCode, Fault, Rule},
        frame::{self, Frame, FrameHeader, HEADER_BYTES, PREFACE, Setting, Settings},
        hpack::{DecodeError, FieldSection},
        priority::Priority,
        request::{Content, RequestTarget, Terms, read_request, read_trailers},
    },
    Connection, ConnectionError, ConnectionFault, Drain, Event, FRAME_BYTES_MIN, Limit, OpenBlock,
    SMALL_BYTES, Stage, StreamFault, WINDOW_MAX, Wait,
    streams::{AbsentStream, Stream, UNTOLD},
};

impl Connection {
    /// Consumes the preface or one frame at the front of `bytes`. Field blocks are decoded into `section`,
    /// which the event borrows. [`Self::reply`] writes the frames that must answer the event.
    ///
    /// # Errors
    /// Returns the error that ends the connection: the caller writes [`Self::goaway`] with the code, and
    /// closes. Nothing may be received afterwards.
    #[inline]
    pub fn receive<'b, 's>(
        &mut self,
        bytes: &'b [u8],
        section: &'s mut FieldSection,
        now_ms: u64,
    ) -> Result<Progress<Event<'b, 's>>, ConnectionError> {
        if self.stage == Stage::Preface {
            return self.preface(bytes);
        }
        match frame::parse(bytes, FRAME_BYTES_MIN) {
            Ok(Progress::Complete(frame, total)) => {
                self.order(&frame)?;
                Ok(Progress::Complete(self.frame(frame, section, now_ms)?, total))
            }
            Ok(Progress::NeedMore(need)) => Ok(Progress::NeedMore(need)),
            Err(Fault { rule, code, stream: None }) => {
                Err(ConnectionError { code, why: ConnectionFault::Rule(rule) })
            }
            Err(Fault { rule, code, stream: Some(stream) }) => {
                if self.open_block.is_some() {
                    return Err(ConnectionError::protocol(Rule::ContinuationMissing));
                }
                if self.stage == Stage::FirstSettings {
                    return Err(ConnectionError::protocol(Rule::FirstFrame));
                }
                // The rule concerns a whole frame, so its header is in `bytes`.
                let length = FrameHeader::parse(bytes).map_or(0, |header| header.length as usize);
                let event = self.broken(stream, code, StreamFault::Rule(rule), now_ms)?;
                Ok(Progress::Complete(event, HEADER_BYTES + length))
            }
        }
    }

    fn preface<'b, 's>(&mut self, bytes: &[u8]) -> Result<Progress<Event<'b, 's>>, ConnectionError> {
        let there = bytes.len().min(PREFACE.len());
        if bytes[..there] != PREFACE[..there] {
            return Err(ConnectionError::protocol(Rule::Preface));
        }
        if there < PREFACE.len() {
            return Ok(Progress::NeedMore(PREFACE.len()));
        }
        self.stage = Stage::FirstSettings;
        Ok(Progress::Complete(Event::Nothing, there))
    }

    /// Checks whether the frame is allowed in the present state.
    #[inline]
    fn order(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        if self.stage == Stage::FirstSettings {
            if !matches!(frame, Frame::Settings(_)) {
                return Err(ConnectionError::protocol(Rule::FirstFrame));
            }
            self.stage = Stage::Running;
        }
        match (&self.open_block, frame) {
            (None, Frame::Continuation { .. }) => Err(ConnectionError::protocol(Rule::ContinuationAlone)),
            (None, _) => Ok(()),
            (Some(block), Frame::Continuation { stream, .. }) if block.stream == *stream => Ok(()),
            (Some(_), _) => Err(ConnectionError::protocol(Rule::ContinuationMissing)),
        }
    }

    #[inline]
    fn frame<'b, 's>(
        &mut self,
        frame: Frame<'b>,
        section: &'s mut FieldSection,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        match frame {
            Frame::Headers { stream, fragment, end_stream, end_headers: true, .. } => {
                self.field_block(stream, fragment, end_stream, section, now_ms)
            }
            Frame::Headers { stream, fragment, end_stream, end_headers: false, .. } => {
                self.open_block =
                    Some(OpenBlock { stream, end_stream, continuations: 0, bytes: fragment.to_vec() });
                Ok(Event::Nothing)
            }
            Frame::Continuation { fragment, end_headers, .. } => {
                self.continuation(fragment, end_headers, section, now_ms)
            }
            Frame::Data { stream, payload, flow_bytes, end_stream } => {
                self.data(stream, payload, flow_bytes, end_stream, now_ms)
            }
            Frame::WindowUpdate { stream, increment } => self.window_update(stream, increment, now_ms),
            Frame::Reset { stream, code } => self.reset_by_client(stream, code, now_ms),
            Frame::Settings(settings) => self.settings(settings, now_ms),
            Frame::SettingsAck => {
                self.settings_sent_ms = None;
                self.pay_useless(now_ms)
            }
            Frame::Ping { ack: true, opaque } => {
                self.pay_useless(now_ms)?;
                Ok(Event::Pong(opaque))
            }
            Frame::Ping { ack: false, opaque } => {
                if !self.credits.pings.take(self.limits.pings, now_ms) {
                    return Err(ConnectionError::limit(Limit::Pings));
                }
                Ok(Event::PingToAck(opaque))
            }
            Frame::Priority { .. } => {
                self.pay_priority(now_ms)?;
                Ok(Event::Nothing)
            }
            Frame::PriorityUpdate { stream, value } => self.priority_update(stream, value, now_ms),
            Frame::GoAway { code, .. } => {
                self.pay_useless(now_ms)?;
                Ok(Event::GoAway { code })
            }
            Frame::PushPromise { .. } => Err(ConnectionError::protocol(Rule::PushByClient)),
            Frame::Unknown { .. } => self.pay_useless(now_ms),
        }
    }

    fn continuation<'b, 's>(
        &mut self,
        fragment: &[u8],
        end_headers: bool,
        section: &'s mut FieldSection,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        let Some(block) = &mut self.open_block else {
            return Err(ConnectionError::protocol(Rule::ContinuationAlone));
        };
        block.continuations += 1;
        if block.continuations > self.limits.continuations_max {
            return Err(ConnectionError::limit(Limit::Continuations));
        }
        if block.bytes.len() + fragment.len() > self.limits.header_block_bytes_max {
            return Err(ConnectionError::limit(Limit::HeaderBlock));
        }
        block.bytes.extend_from_slice(fragment);
        if !end_headers {
            return Ok(Event::Nothing);
        }
        match self.open_block.take() {
            Some(whole) => self.field_block(whole.stream, &whole.bytes, whole.end_stream, section, now_ms),
            None => Ok(Event::Nothing),
        }
    }

    /// Handles a complete field block. It is decoded whatever the state of its stream, since the decoder's
    /// table would otherwise differ from the client's.
    #[inline]
    fn field_block<'b, 's>(
        &mut self,
        stream: u32,
        block: &[u8],
        end_stream: bool,
        section: &'s mut FieldSection,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        if block.len() > self.limits.header_block_bytes_max {
            return Err(ConnectionError::limit(Limit::HeaderBlock));
        }
        if stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol(Rule::StreamParity));
        }
        self.decoder.decode(block, section).map_err(|error| match error {
            DecodeError::Bomb => ConnectionError::limit(Limit::HeaderList),
            error => ConnectionError {
                code: ErrorCode::COMPRESSION_ERROR,
                why: ConnectionFault::FieldBlock(error),
            },
        })?;
        if stream > self.streams.last() {
            return self.open(stream, end_stream, section, now_ms);
        }
        let Some(open) = self.streams.find(stream) else {
            return match self.streams.absent(stream) {
                AbsentStream::Reset => self.pay_useless(now_ms),
                AbsentStream::Skipped | AbsentStream::Idle => {
                    Err(ConnectionError::protocol(Rule::StreamBackwards))
                }
                AbsentStream::Closed => {
                    let code = ErrorCode::STREAM_CLOSED;
                    Err(ConnectionError { code, why: ConnectionFault::Rule(Rule::StreamClosed) })
                }
            };
        };
        let fault = if !open.is_remote_open {
            Some((ErrorCode::STREAM_CLOSED, Rule::StreamClosed))
        } else if !end_stream {
            Some((ErrorCode::PROTOCOL_ERROR, Rule::TrailersWithoutEnd))
        } else if !matches!(open.content_left, 0 | UNTOLD) {
            Some((ErrorCode::PROTOCOL_ERROR, Rule::ContentLength))
        } else if section.overflow().is_some() {
            Some((ErrorCode::ENHANCE_YOUR_CALM, Rule::TrailersTooLarge))
        } else {
            None
        };
        if let Some((code, rule)) = fault {
            return self.broken(stream, code, StreamFault::Rule(rule), now_ms);
        }
        match read_trailers(section) {
            Ok(trailers) => {
                self.close_remote(stream);
                Ok(Event::Trailers { stream, trailers })
            }
            Err(rule) => self.broken(stream, ErrorCode::PROTOCOL_ERROR, StreamFault::Request(rule), now_ms),
        }
    }

    /// Opens a stream for the client's request.
    #[inline]
    fn open<'b, 's>(
        &mut self,
        stream: u32,
        end_stream: bool,
        section: &'s FieldSection,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        if let Drain::After(_) = self.drain {
            // GOAWAY tells the client, now or earlier, that this stream was not processed.
            return self.pay_useless(now_ms);
        }
        self.streams.advance(stream);
        if self.streams.len() >= self.limits.streams_max as usize {
            if !self.credits.refusals.take(self.limits.refusals, now_ms) {
                return Err(ConnectionError::limit(Limit::Refusals));
            }
            self.streams.mark_reset(stream);
            return Ok(Event::Refused { stream });
        }
        if let Some(overflow) = section.overflow() {
            self.enter(stream, end_stream, UNTOLD, Priority::default());
            return Ok(Event::HeadTooLarge { stream, overflow, end: end_stream });
        }
        let terms = Terms { end_stream, extended_connect: self.limits.extended_connect };
        let request = match read_request(section, terms) {
            Ok(request) => request,
            Err(rule) => {
                return self.broken(stream, ErrorCode::PROTOCOL_ERROR, StreamFault::Request(rule), now_ms);
            }
        };
        let content_left = match (request.content, request.ask) {
            (Content::Length(length), RequestTarget::Resource { .. }) => length,
            _ => UNTOLD,
        };
        self.credits.priorities.give(self.limits.priorities, 1);
        self.enter(stream, end_stream, content_left, request.priority);
        Ok(Event::Request { stream, request, end: end_stream })
    }

    #[inline]
    fn enter(&mut self, id: u32, end_stream: bool, content_left: u64, said: Priority) {
        let priority = match self.early_priority {
            // A PRIORITY_UPDATE overrides the request's own priority (RFC 9218 §7).
            Some((early, priority)) if early == id => {
                self.early_priority = None;
                priority
            }
            _ => said,
        };
        self.streams.push(Stream {
            id,
            send_window: self.peer_initial_window,
            receive_window: self.limits.stream_window as i32,
            owed: 0,
            content_left,
            wait: Wait::default(),
            turn: 0,
            priority,
            is_remote_open: !end_stream,
            is_local_open: true,
        });
    }

    #[inline]
    fn data<'b, 's>(
        &mut self,
        stream: u32,
        payload: &'b [u8],
        flow_bytes: u32,
        end_stream: bool,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        let exceeded = (ErrorCode::FLOW_CONTROL_ERROR, Rule::WindowExceeded);
        if i64::from(flow_bytes) > i64::from(self.receive_window) {
            return Err(ConnectionError { code: exceeded.0, why: ConnectionFault::Rule(exceeded.1) });
        }
        let is_small = payload.len() < SMALL_BYTES && !end_stream;
        let Some(open) = self.streams.find(stream) else {
            return self.late_data(stream, flow_bytes, now_ms);
        };
        self.receive_window -= flow_bytes as i32;
        let is_told = open.content_left != UNTOLD;
        let left = if is_told { open.content_left.checked_sub(payload.len() as u64) } else { Some(UNTOLD) };
        let fault = if !open.is_remote_open {
            Some((ErrorCode::STREAM_CLOSED, Rule::StreamClosed))
        } else if i64::from(flow_bytes) > i64::from(open.receive_window) {
            Some(exceeded)
        } else if left.is_none() || is_told && end_stream && left != Some(0) {
            Some((ErrorCode::PROTOCOL_ERROR, Rule::ContentLength))
        } else {
            None
        };
        if let Some((code, rule)) = fault {
            self.owed += flow_bytes;
            return self.broken(stream, code, StreamFault::Rule(rule), now_ms);
        }
        open.receive_window -= flow_bytes as i32;
        open.content_left = left.unwrap_or(UNTOLD);
        // Padding is not handed to the caller, so it is credited back here.
        let padding = flow_bytes - payload.len() as u32;
        open.owed += padding;
        self.owed += padding;
        if end_stream {
            self.close_remote(stream);
        } else if !is_small {
            self.credits.small_frames.give(self.limits.small_frames, 1);
        } else if !self.credits.small_frames.take(self.limits.small_frames, now_ms) {
            return Err(ConnectionError::limit(Limit::SmallFrames));
        }
        Ok(Event::Data { stream, payload, end: end_stream })
    }

    /// Handles content for a stream that is not open. The content consumes the connection's window, and is
    /// credited back at once.
    fn late_data<'b, 's>(
        &mut self,
        stream: u32,
        flow_bytes: u32,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        self.receive_window -= flow_bytes as i32;
        self.owed += flow_bytes;
        match self.streams.absent(stream) {
            AbsentStream::Reset => self.pay_useless(now_ms),
            AbsentStream::Idle if self.is_passed_over(stream) => self.pay_useless(now_ms),
            AbsentStream::Idle | AbsentStream::Skipped => Err(ConnectionError::protocol(Rule::IdleStream)),
            AbsentStream::Closed => {
                let why = StreamFault::Rule(Rule::StreamClosed);
                self.broken(stream, ErrorCode::STREAM_CLOSED, why, now_ms)
            }
        }
    }

    /// Returns whether a stream's number is above that of the last stream still served during the shutdown.
    fn is_passed_over(&self, stream: u32) -> bool {
        stream % 2 == 1 && matches!(self.drain, Drain::After(last) if stream > last)
    }

    fn window_update<'b, 's>(
        &mut self,
        stream: u32,
        increment: u32,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        if !self.credits.window_updates.take(self.limits.window_updates, now_ms) {
            return Err(ConnectionError::limit(Limit::WindowUpdates));
        }
        let overflow = (ErrorCode::FLOW_CONTROL_ERROR, Rule::WindowOverflow);
        if stream == 0 {
            let Some(window) = grown(self.send_window, i64::from(increment)) else {
                return Err(ConnectionError { code: overflow.0, why: ConnectionFault::Rule(overflow.1) });
            };
            self.send_window = window;
            return Ok(Event::WindowOpened { stream: 0 });
        }
        let Some(open) = self.streams.find(stream) else {
            return self.passes_over(stream);
        };
        let Some(window) = grown(open.send_window, i64::from(increment)) else {
            return self.broken(stream, overflow.0, StreamFault::Rule(overflow.1), now_ms);
        };
        open.send_window = window;
        Ok(Event::WindowOpened { stream })
    }

    /// Accepts a frame that is allowed on a stream that has ended, but not on an idle one.
    fn passes_over<'b, 's>(&self, stream: u32) -> Result<Event<'b, 's>, ConnectionError> {
        match self.streams.absent(stream) {
            AbsentStream::Idle if !self.is_passed_over(stream) => {
                Err(ConnectionError::protocol(Rule::IdleStream))
            }
            _ => Ok(Event::Nothing),
        }
    }

    fn reset_by_client<'b, 's>(
        &mut self,
        stream: u32,
        code: ErrorCode,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        if !self.credits.resets.take(self.limits.resets, now_ms) {
            return Err(ConnectionError::limit(Limit::RapidReset));
        }
        if self.streams.remove(stream).is_none() {
            return self.passes_over(stream);
        }
        Ok(Event::Reset { stream, code })
    }

    fn settings<'b, 's>(
        &mut self,
        settings: Settings<'_>,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        let pays = self.credits.settings.take(self.limits.settings, now_ms);
        if !pays || settings.count() > self.limits.settings_max {
            return Err(ConnectionError::limit(Limit::Settings));
        }
        let mut initial_window = self.peer_initial_window;
        for (setting, value) in settings.iter() {
            match setting {
                Setting::INITIAL_WINDOW_SIZE => initial_window = value.min(WINDOW_MAX) as i32,
                Setting::MAX_FRAME_SIZE => self.peer_frame_bytes_max = value,
                Setting::HEADER_TABLE_SIZE => {
                    self.table_update_is_due |= value < self.peer_table_bytes;
                    self.peer_table_bytes = value;
                }
                _ => {}
            }
        }
        let change = i64::from(initial_window) - i64::from(self.peer_initial_window);
        self.peer_initial_window = initial_window;
        if change != 0 {
            for open in self.streams.iter_mut() {
                let Some(window) = grown(open.send_window, change) else {
                    let code = ErrorCode::FLOW_CONTROL_ERROR;
                    return Err(ConnectionError { code, why: ConnectionFault::Rule(Rule::WindowOverflow) });
                };
                open.send_window = window;
            }
        }
        Ok(Event::SettingsToAck)
    }

    fn priority_update<'b, 's>(
        &mut self,
        stream: u32,
        value: &[u8],
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        self.pay_priority(now_ms)?;
        if stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol(Rule::PriorityUpdateStream));
        }
        let priority = Priority::parse(value);
        if let Some(open) = self.streams.find(stream) {
            open.priority = priority;
            return Ok(Event::Prioritised { stream, priority });
        }
        if self.streams.absent(stream) == AbsentStream::Idle {
            self.early_priority = Some((stream, priority));
        }
        Ok(Event::Nothing)
    }

    fn pay_priority(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        if self.credits.priorities.take(self.limits.priorities, now_ms) {
            return Ok(());
        }
        Err(ConnectionError::limit(Limit::Priorities))
    }

    fn pay_useless<'b, 's>(&mut self, now_ms: u64) -> Result<Event<'b, 's>, ConnectionError> {
        if self.credits.useless_frames.take(self.limits.useless_frames, now_ms) {
            return Ok(Event::Nothing);
        }
        Err(ConnectionError::limit(Limit::UselessFrames))
    }

    /// Ends a stream because of an error by the client. RST_STREAM may not be sent on an idle stream, so in
    /// that case the connection ends.
    fn broken<'b, 's>(
        &mut self,
        stream: u32,
        code: ErrorCode,
        why: StreamFault,
        now_ms: u64,
    ) -> Result<Event<'b, 's>, ConnectionError> {
        let was_open = self.streams.remove(stream).is_some();
        if !was_open
            && self.streams.absent(stream) == AbsentStream::Idle
            && let StreamFault::Rule(rule) = why
        {
            return Err(ConnectionError { code, why: ConnectionFault::Rule(rule) });
        }
        if !self.credits.forced_resets.take(self.limits.forced_resets, now_ms) {
            return Err(ConnectionError::limit(Limit::MadeUsReset));
        }
        self.streams.mark_reset(stream);
        Ok(Event::Broken { stream, was_open, code, why })
    }
}

/// Returns a window after a change; `None` if it exceeds the largest possible window.
fn grown(window: i32, change: i64) -> Option<i32> {
    // Both operands fit 32 bits, and a window never falls below -(2^31-1).
    i32::try_from(i64::from(window) + change).ok()
}
