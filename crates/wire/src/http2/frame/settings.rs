//! Settings: their numbers, ranges and values at the start (RFC 9113 §6.5, RFC 8441 §3, RFC 9218 §2.1).

use super::super::error::{ErrorCode, Fault, Rule};

/// The number of a setting. What nobody knows is ignored (RFC 9113 §6.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Setting(pub u16);

impl Setting {
    /// Bytes of the dynamic table of whoever decodes.
    pub const HEADER_TABLE_SIZE: Self = Self(0x1);
    /// Whether the peer may push.
    pub const ENABLE_PUSH: Self = Self(0x2);
    /// Streams that the peer may have open.
    pub const MAX_CONCURRENT_STREAMS: Self = Self(0x3);
    /// The window of a stream that is opened.
    pub const INITIAL_WINDOW_SIZE: Self = Self(0x4);
    /// Bytes of a frame's payload.
    pub const MAX_FRAME_SIZE: Self = Self(0x5);
    /// Bytes of a field section, decoded, each field counted with 32 more.
    pub const MAX_HEADER_LIST_SIZE: Self = Self(0x6);
    /// Whether extended CONNECT is understood (RFC 8441 §3).
    pub const ENABLE_CONNECT_PROTOCOL: Self = Self(0x8);
    /// Whether the priorities of RFC 7540 are ignored (RFC 9218 §2.1).
    pub const NO_RFC7540_PRIORITIES: Self = Self(0x9);
}

/// Bytes of one setting in a frame.
pub const SETTING_BYTES: usize = 6;

/// The largest window there can be (RFC 9113 §6.9.1).
pub const WINDOW_MAX: u32 = (1 << 31) - 1;

/// The window of each stream and of the connection before anybody changed it (RFC 9113 §6.9.2).
pub const WINDOW_AT_START: u32 = 65_535;

/// The least that SETTINGS_MAX_FRAME_SIZE may be, and what it is at the start (RFC 9113 §6.5.2).
pub const FRAME_BYTES_MIN: u32 = 1 << 14;

/// The most that SETTINGS_MAX_FRAME_SIZE may be (RFC 9113 §6.5.2).
pub const FRAME_BYTES_CAP: u32 = (1 << 24) - 1;

/// SETTINGS_HEADER_TABLE_SIZE at the start (RFC 9113 §6.5.2).
pub const TABLE_BYTES_AT_START: u32 = 4096;

/// The payload of a SETTINGS frame: whole settings, each within its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings<'b>(&'b [u8]);

impl<'b> Settings<'b> {
    /// Takes a payload over if each setting in it is within its range.
    ///
    /// # Errors
    /// What the first bad one breaks; all of it is the connection's (RFC 9113 §6.5).
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

    /// Each setting with its value, in order: a later one of the same number counts (RFC 9113 §6.5.3).
    pub fn iter(&self) -> impl Iterator<Item = (Setting, u32)> + use<'b> {
        self.0.chunks_exact(SETTING_BYTES).map(|pair| {
            let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
            (Setting(u16::from_be_bytes([pair[0], pair[1]])), value)
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len() / SETTING_BYTES
    }

    /// The payload.
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
