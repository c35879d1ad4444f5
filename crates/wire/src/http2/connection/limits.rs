//! Limits on the memory and the cost that one client may cause. Each bound has a name, which the connection's
//! error carries ([`Limit`]), so that counters can tell the reasons apart.
//!
//! Frames that cost us more than they cost the client are charged to a credit that refills over time. Where a
//! frame is a normal part of an exchange (a WINDOW_UPDATE after content was sent, a reset after many
//! responses), the exchange itself adds credit, so that a busy client is not taken for a hostile one.

/// Rate at which a kind of frame is allowed: a credit that refills over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Maximum number of frames in one burst, after a long time without any.
    pub burst: u32,
    /// Sustained number of frames per second.
    pub per_s: u32,
}

/// The bounds of one connection. Only the first four are announced to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open streams (SETTINGS_MAX_CONCURRENT_STREAMS), at most [`STREAMS_CAP`].
    pub streams_max: u32,
    /// Number of bytes that the client may send on a stream before we consume them
    /// (SETTINGS_INITIAL_WINDOW_SIZE); not below the protocol's initial value.
    pub stream_window: u32,
    /// Number of bytes that all streams together may send before we consume them; not below the protocol's
    /// initial value.
    pub connection_window: u32,
    /// True if extended CONNECT is offered (RFC 8441).
    pub extended_connect: bool,
    /// Maximum size of an encoded field block, over all its frames: [`Limit::HeaderBlock`].
    pub header_block_bytes_max: usize,
    /// Maximum number of CONTINUATION frames of one field block: [`Limit::Continuations`].
    pub continuations_max: u32,
    /// Maximum number of settings in one frame: [`Limit::Settings`].
    pub settings_max: usize,
    /// Longest time for which a response may wait for a window while fewer than `progress_bytes_min` bytes
    /// are sent: [`Connection::stalled`](super::Connection::stalled).
    pub stall_ms_max: u32,
    /// Number of bytes that a response must send within `stall_ms_max` not to count as stalled; at least 1.
    pub progress_bytes_min: u32,
    /// Longest time that the client may take to acknowledge SETTINGS.
    pub settings_ack_ms_max: u32,
    /// Rate of RST_STREAM frames for unfinished streams; each stream that we finish adds credit for one:
    /// [`Limit::RapidReset`].
    pub resets: Rate,
    /// Rate of streams that we must reset because the client broke a rule: [`Limit::MadeUsReset`].
    pub forced_resets: Rate,
    /// Rate of streams opened beyond `streams_max`: [`Limit::Refusals`].
    pub refusals: Rate,
    /// Rate of SETTINGS frames: [`Limit::Settings`].
    pub settings: Rate,
    /// Rate of PING frames; each DATA frame that we send adds credit for one: [`Limit::Pings`].
    pub pings: Rate,
    /// Rate of PRIORITY and PRIORITY_UPDATE frames; each request adds credit for one: [`Limit::Priorities`].
    pub priorities: Rate,
    /// Rate of DATA frames that neither end a stream nor hold at least [`SMALL_BYTES`]; a larger frame adds
    /// credit for one: [`Limit::SmallFrames`].
    pub small_frames: Rate,
    /// Rate of frames without effect: unknown types, content for streams that are gone:
    /// [`Limit::UselessFrames`].
    pub useless_frames: Rate,
    /// Rate of WINDOW_UPDATE frames; each DATA frame that we send adds credit for [`UPDATES_PER_FRAME`]:
    /// [`Limit::WindowUpdates`].
    pub window_updates: Rate,
    /// Rate of DATA frames that we send with less than [`SMALL_BYTES`] because the client's windows allow no
    /// more: [`Limit::TinyWindows`]. A larger frame adds credit for one, since a window that is not a
    /// multiple of our frame size regularly leaves a small remainder.
    pub tiny_windows: Rate,
}

/// The largest number of streams that any limit may allow.
pub const STREAMS_CAP: u32 = 128;

/// Smallest content of a frame that justifies its nine-byte header.
pub const SMALL_BYTES: usize = 256;

/// Number of WINDOW_UPDATE frames that each of our DATA frames may cause: one for the stream, one for the
/// connection, and the same again for clients that read in small parts.
pub const UPDATES_PER_FRAME: u32 = 4;

impl Default for Limits {
    /// Returns limits for browsers: 100 streams, windows of 64 KiB and 1 MiB.
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
        /// The bound that a client exceeded and that ends its connection (ENHANCE_YOUR_CALM).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Limit {
            $($(#[$about])* $variant,)*
        }

        impl Limit {
            /// Every limit.
            pub const ALL: &[Limit] = &[$(Limit::$variant,)*];

            /// Returns the limit's name, for counters.
            pub const fn name(self) -> &'static str {
                match self { $(Limit::$variant => $name,)* }
            }
        }
    };
}

limit_names! {
    /// Streams that the client opened and reset (CVE-2023-44487).
    RapidReset "rapid_reset",
    /// Streams that the client made us reset (CVE-2025-8671).
    MadeUsReset "made_us_reset",
    /// Streams beyond the announced maximum.
    Refusals "refusals",
    /// Endless CONTINUATION frames (CVE-2024-27316).
    Continuations "continuations",
    /// Size of an encoded field block.
    HeaderBlock "header_block",
    /// Decoded size of a field section, several times over its limit: references to one large entry, or many
    /// tiny fields.
    HeaderList "header_list",
    /// SETTINGS frames (CVE-2019-9515), or many settings in one (CVE-2020-11080).
    Settings "settings",
    /// PING frames (CVE-2019-9512).
    Pings "pings",
    /// PRIORITY and PRIORITY_UPDATE frames (CVE-2019-9513).
    Priorities "priorities",
    /// DATA frames that are empty or nearly so (CVE-2019-9518).
    SmallFrames "small_frames",
    /// Frames without effect.
    UselessFrames "useless_frames",
    /// WINDOW_UPDATE frames.
    WindowUpdates "window_updates",
    /// Windows so small that responses leave in tiny frames (CVE-2019-9511).
    TinyWindows "tiny_windows",
}

/// Cost of one frame, in thousandths, so that a credit can be refilled each millisecond.
const FRAME: u32 = 1000;

/// Remaining credit of a [`Rate`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Credit {
    thousandths: u32,
    /// Time of the last refill: the clock's low 32 bits. After 49 days without a frame a refill may be too
    /// small.
    at_ms: u32,
}

impl Credit {
    pub(super) fn full(rate: Rate, now_ms: u64) -> Self {
        Self { thousandths: rate.burst.saturating_mul(FRAME), at_ms: now_ms as u32 }
    }

    /// Deducts the cost of a frame. Returns whether the credit was sufficient.
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

    /// Adds credit for `frames` frames.
    #[inline]
    pub(super) fn give(&mut self, rate: Rate, frames: u32) {
        let filled = self.thousandths.saturating_add(frames * FRAME);
        self.thousandths = filled.min(rate.burst.saturating_mul(FRAME));
    }
}

/// The credits of one connection, one for each rate of [`Limits`].
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
    fn credit_refills_with_time_and_work() {
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
