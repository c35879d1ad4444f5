//! Settings: their numbers, ranges and initial values (RFC 9113 §6.5, RFC 8441 §3, RFC 9218 §2.1).

use super::super::error::{ErrorCode, Fault, Rule};

/// The number of a setting. Unknown settings are ignored (RFC 9113 §6.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Setting(pub u16);

impl Setting {
    /// Maximum size of the decoder's dynamic table, in bytes.
    pub const HEADER_TABLE_SIZE: Self = Self(0x1);
    /// 1 if the peer may push, else 0.
    pub const ENABLE_PUSH: Self = Self(0x2);
    /// Number of streams that the peer may have open at once.
    pub const MAX_CONCURRENT_STREAMS: Self = Self(0x3);
    /// Initial window of a new stream.
    pub const INITIAL_WINDOW_SIZE: Self = Self(0x4);
    /// Maximum payload of a frame, in bytes.
    pub const MAX_FRAME_SIZE: Self = Self(0x5);
    /// Maximum decoded size of a field section, in bytes, with 32 added for each field.
    pub const MAX_HEADER_LIST_SIZE: Self = Self(0x6);
    /// 1 if extended CONNECT is supported (RFC 8441 §3).
    pub const ENABLE_CONNECT_PROTOCOL: Self = Self(0x8);
    /// 1 if the priorities of RFC 7540 are ignored (RFC 9218 §2.1).
    pub const NO_RFC7540_PRIORITIES: Self = Self(0x9);
}

/// Length of one setting in a frame, in bytes.
pub const SETTING_BYTES: usize = 6;

/// The largest possible window (RFC 9113 §6.9.1).
pub const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Initial window of each stream and of the connection (RFC 9113 §6.9.2).
pub const WINDOW_AT_START: u32 = 65_535;

/// The minimum and the initial value of SETTINGS_MAX_FRAME_SIZE (RFC 9113 §6.5.2).
pub const FRAME_BYTES_MIN: u32 = 1 << 14;

/// The maximum of SETTINGS_MAX_FRAME_SIZE (RFC 9113 §6.5.2).
pub const FRAME_BYTES_CAP: u32 = (1 << 24) - 1;

/// Initial value of SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §6.5.2).
pub const TABLE_BYTES_AT_START: u32 = 4096;

/// The payload of a SETTINGS frame: whole settings, each within its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings<'b>(&'b [u8]);

impl<'b> Settings<'b> {
    /// Accepts a payload if each setting in it is within its range.
    ///
    /// # Errors
    /// Returns the fault of the first invalid setting; every such fault ends the connection (RFC 9113 §6.5).
    pub fn parse(payload: &'b [u8]) -> Result<Self, Fault> {
        if !payload.len().is_multiple_of(SETTING_BYTES) {
            return Err(Fault::of_connection(Rule::FrameSize, ErrorCode::FRAME_SIZE_ERROR));
        }
        let settings = Self(payload);
        for (setting, value) in settings.iter() {
            check(setting, value)?;
        }
        Ok(settings)
    }

    /// Iterates over the settings and their values, in order; the last value of a setting applies (RFC 9113
    /// §6.5.3).
    pub fn iter(&self) -> impl Iterator<Item = (Setting, u32)> + use<'b> {
        self.0.chunks_exact(SETTING_BYTES).map(|pair| {
            let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
            (Setting(u16::from_be_bytes([pair[0], pair[1]])), value)
        })
    }

    /// Returns the number of settings.
    pub fn count(&self) -> usize {
        self.0.len() / SETTING_BYTES
    }

    /// Returns the payload.
    pub fn bytes(&self) -> &'b [u8] {
        self.0
    }
}

fn check(setting: Setting, value: u32) -> Result<(), Fault> {
    let (rule, is_sound) = match setting {
        Setting::ENABLE_PUSH => (Rule::EnablePush, value <= 1),
        Setting::INITIAL_WINDOW_SIZE => {
            return if value <= WINDOW_MAX {
                Ok(())
            } else {
                Err(Fault::of_connection(Rule::InitialWindow, ErrorCode::FLOW_CONTROL_ERROR))
            };
        }
        Setting::MAX_FRAME_SIZE => (Rule::MaxFrameSize, (FRAME_BYTES_MIN..=FRAME_BYTES_CAP).contains(&value)),
        Setting::ENABLE_CONNECT_PROTOCOL => (Rule::EnableConnectProtocol, value <= 1),
        Setting::NO_RFC7540_PRIORITIES => (Rule::NoRfc7540Priorities, value <= 1),
        _ => return Ok(()),
    };
    if is_sound { Ok(()) } else { Err(Fault::of_connection(rule, ErrorCode::PROTOCOL_ERROR)) }
}
