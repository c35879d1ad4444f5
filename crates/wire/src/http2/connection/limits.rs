//! What one client may make us hold and do. Each bound has a name, which the connection's end tells
//! ([`Limit`]), so that whoever counts ends can say why.
//!
//! Frames that cost us more than the client are paid for from a credit that fills up with time. Where a frame is a normal
//! part of work (a window that opens after content went out, a reset after many answers), the work gives credit, so that
//! a busy client is not taken for a hostile one.

/// How fast a credit fills up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Frames at once, when nothing was spent for long.
    pub burst: u32,
    /// Frames a second in the long run.
    pub per_s: u32,
}

/// The bounds of one connection. All are hints to nobody: a client is only told of the first three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Streams open at once (SETTINGS_MAX_CONCURRENT_STREAMS), at most [`STREAMS_CAP`].
    pub streams_max: u32,
    /// What a stream may send before we take it (SETTINGS_INITIAL_WINDOW_SIZE); not below the value at the start.
    pub stream_window: u32,
    /// What all streams together may; not below the value at the start.
    pub connection_window: u32,
    /// Whether extended CONNECT is offered (RFC 8441).
    pub extended_connect: bool,
    /// Bytes of a field block, coded, over all its frames: [`Limit::HeaderBlock`].
    pub header_block_bytes_max: usize,
    /// CONTINUATION of one field block: [`Limit::Continuations`].
    pub continuations_max: u32,
    /// Settings in one frame: [`Limit::Settings`].
    pub settings_max: usize,
    /// How long a response may wait for a window in which fewer than `progress_bytes_min` went out:
    /// [`Connection::stalled`](super::Connection::stalled).
    pub stall_ms_max: u32,
    /// What must go out for a response not to count as stalled; at least 1.
    pub progress_bytes_min: u32,
    /// How long SETTINGS may go without an acknowledgement.
    pub settings_ack_ms_max: u32,
    /// RST_STREAM of streams that we had not finished; each that we finish gives one back: [`Limit::RapidReset`].
    pub resets: Rate,
    /// Streams that we must reset because the client broke a rule: [`Limit::MadeUsReset`].
    pub forced_resets: Rate,
    /// Streams beyond `streams_max`: [`Limit::Refusals`].
    pub refusals: Rate,
    /// SETTINGS: [`Limit::Settings`].
    pub settings: Rate,
    /// PING; each frame of content that we send gives one: [`Limit::Pings`].
    pub pings: Rate,
    /// PRIORITY and PRIORITY_UPDATE; each request gives one: [`Limit::Priorities`].
    pub priorities: Rate,
    /// DATA that neither ends a stream nor holds [`SMALL_BYTES`]; one that does gives one: [`Limit::SmallFrames`].
    pub small_frames: Rate,
    /// What means nothing: unknown types, content for streams that are gone: [`Limit::UselessFrames`].
    pub useless_frames: Rate,
    /// WINDOW_UPDATE; each frame of content that we send gives [`UPDATES_PER_FRAME`]: [`Limit::WindowUpdates`].
    pub window_updates: Rate,
    /// DATA of ours below [`SMALL_BYTES`] because the client's windows allow no more; a larger frame gives one, as a window
    /// that is no multiple of our frames leaves a crumb each time: [`Limit::TinyWindows`].
    pub tiny_windows: Rate,
}

/// Streams that any limit may allow.
pub const STREAMS_CAP: u32 = 128;

/// Content of a frame that is worth its nine bytes.
pub const SMALL_BYTES: usize = 256;

/// WINDOW_UPDATE that each frame of ours may bring about: one for the stream, one for the connection, and as many again
/// for clients that read in small parts.
pub const UPDATES_PER_FRAME: u32 = 4;

impl Default for Limits {
    /// For browsers: 100 streams, windows of 64 KiB and 1 MiB.
    fn default() -> Self {
        Self {
            streams_max: 100,
            stream_window: 1 << 16,
            connection_window: 1 << 20,
            extended_connect: false,
            header_block_bytes_max: 32 << 10,
            continuations_max: 8,
            settings_max: 64,
            stall_ms_max: 60_000,
            progress_bytes_min: 16 << 10,
            settings_ack_ms_max: 10_000,
            resets: Rate { burst: 200, per_s: 20 },
            forced_resets: Rate { burst: 20, per_s: 1 },
            refusals: Rate { burst: 200, per_s: 10 },
            settings: Rate { burst: 10, per_s: 1 },
            pings: Rate { burst: 50, per_s: 10 },
            priorities: Rate { burst: 200, per_s: 20 },
            small_frames: Rate { burst: 1000, per_s: 500 },
            useless_frames: Rate { burst: 500, per_s: 50 },
            window_updates: Rate { burst: 1000, per_s: 100 },
            tiny_windows: Rate { burst: 100, per_s: 10 },
        }
    }
}

macro_rules! limit_names {
    ($($(#[$about:meta])* $variant:ident $name:literal,)*) => {
        /// Which bound a client reached that ends its connection (ENHANCE_YOUR_CALM).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Limit {
            $($(#[$about])* $variant,)*
        }

        impl Limit {
            /// Every limit.
            pub const ALL: &[Limit] = &[$(Limit::$variant,)*];

            /// Its name, for counters.
            pub const fn name(self) -> &'static str {
                match self { $(Limit::$variant => $name,)* }
            }
        }
    };
}

limit_names! {
    /// Streams opened and reset (CVE-2023-44487).
    RapidReset "rapid_reset",
    /// Streams that we were made to reset (CVE-2025-8671).
    MadeUsReset "made_us_reset",
    /// Streams beyond the number that was announced.
    Refusals "refusals",
    /// CONTINUATION without end (CVE-2024-27316).
    Continuations "continuations",
    /// A field block, coded.
    HeaderBlock "header_block",
    /// A field section, decoded, several times over its limit: references to one large entry, or crumbs.
    HeaderList "header_list",
    /// SETTINGS (CVE-2019-9515), or many settings in one (CVE-2020-11080).
    Settings "settings",
    /// PING (CVE-2019-9512).
    Pings "pings",
    /// PRIORITY and PRIORITY_UPDATE (CVE-2019-9513).
    Priorities "priorities",
    /// DATA of next to nothing (CVE-2019-9518).
    SmallFrames "small_frames",
    /// Frames that mean nothing.
    UselessFrames "useless_frames",
    /// WINDOW_UPDATE.
    WindowUpdates "window_updates",
    /// Windows that let only crumbs out (CVE-2019-9511).
    TinyWindows "tiny_windows",
}

/// A thousandth of a frame, so that a credit fills up each millisecond.
const FRAME: u32 = 1000;

/// What is left of a [`Rate`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Credit {
    thousandths: u32,
    /// When it was last filled up: the clock's low 32 bits. After 49 days without a frame it may miss some.
    at_ms: u32,
}

impl Credit {
    pub(super) fn full(rate: Rate, now_ms: u64) -> Self {
        Self { thousandths: rate.burst.saturating_mul(FRAME), at_ms: now_ms as u32 }
    }

    /// Pays for a frame. Returns whether there was enough.
    #[inline]
    pub(super) fn take(&mut self, rate: Rate, now_ms: u64) -> bool {
        let elapsed_ms = (now_ms as u32).wrapping_sub(self.at_ms);
        self.at_ms = now_ms as u32;
        let filled = self.thousandths.saturating_add(elapsed_ms.saturating_mul(rate.per_s));
        self.thousandths = filled.min(rate.burst.saturating_mul(FRAME));
        match self.thousandths.checked_sub(FRAME) {
            Some(left) => {
                self.thousandths = left;
                true
            }
            None => false,
        }
    }

    /// Work was done that pays for so many frames.
    #[inline]
    pub(super) fn give(&mut self, rate: Rate, frames: u32) {
        let filled = self.thousandths.saturating_add(frames * FRAME);
        self.thousandths = filled.min(rate.burst.saturating_mul(FRAME));
    }
}

/// The credits of one connection: those of [`Limits`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Credits {
    pub(super) resets: Credit,
    pub(super) forced_resets: Credit,
    pub(super) refusals: Credit,
    pub(super) settings: Credit,
    pub(super) pings: Credit,
    pub(super) priorities: Credit,
    pub(super) small_frames: Credit,
    pub(super) useless_frames: Credit,
    pub(super) window_updates: Credit,
    pub(super) tiny_windows: Credit,
}

impl Credits {
    pub(super) fn full(limits: &Limits, now_ms: u64) -> Self {
        let full = |rate| Credit::full(rate, now_ms);
        Self {
            resets: full(limits.resets),
            forced_resets: full(limits.forced_resets),
            refusals: full(limits.refusals),
            settings: full(limits.settings),
            pings: full(limits.pings),
            priorities: full(limits.priorities),
            small_frames: full(limits.small_frames),
            useless_frames: full(limits.useless_frames),
            window_updates: full(limits.window_updates),
            tiny_windows: full(limits.tiny_windows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_is_spent_and_fills_up_with_time_and_work() {
        let rate = Rate { burst: 3, per_s: 2 };
        let mut credit = Credit::full(rate, 1000);
        let taken = |credit: &mut Credit, now_ms| (0..10).take_while(|_| credit.take(rate, now_ms)).count();
        assert_eq!(taken(&mut credit, 1000), 3);
        assert_eq!(taken(&mut credit, 1499), 0);
        assert_eq!(taken(&mut credit, 1500), 1);
        assert_eq!(taken(&mut credit, 60_000), 3);
        credit.give(rate, 2);
        assert_eq!(taken(&mut credit, 60_000), 2);
        credit.give(rate, 100);
        assert_eq!(taken(&mut credit, 60_000), 3);
    }
}
