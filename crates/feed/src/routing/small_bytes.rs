//! Byte strings in sixteen bytes, for tokens of subjects and for sids.
//!
//! Nearly all of these strings are short, and there are as many as subscriptions. Up to fourteen bytes are
//! stored in the value itself, longer strings on the heap.

/// Maximum number of bytes that are stored without an allocation.
const SHORT_BYTES_MAX: usize = 14;

/// A byte string; up to [`SHORT_BYTES_MAX`] bytes are stored without an allocation.
#[derive(Debug)]
pub(crate) enum Word {
    Short { len: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Box<Long>),
}

/// A long string, behind a single pointer so that [`Word`] does not become larger for this rare case.
#[derive(Debug)]
pub(crate) struct Long(Box<[u8]>);

const _: () = assert!(size_of::<Word>() == 16, "a word is sixteen bytes");

impl From<&[u8]> for Word {
    fn from(from: &[u8]) -> Self {
        match u8::try_from(from.len()) {
            Ok(len) if from.len() <= SHORT_BYTES_MAX => {
                let mut bytes = [0; SHORT_BYTES_MAX];
                bytes[..from.len()].copy_from_slice(from);
                Self::Short { len, bytes }
            }
            _ => Self::Long(Box::new(Long(from.into()))),
        }
    }
}

impl std::ops::Deref for Word {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(long) => &long.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_it_went_in() {
        for len in [0, 1, 13, 14, 15, 300] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            assert_eq!(*Word::from(&bytes[..]), bytes[..]);
        }
    }
}
