//! Field blocks of one connection: decoded as by the slow twin, and decoded again to the same fields after
//! encoding. The input is the section's maximum number of fields, then the blocks, each after its length (two
//! bytes).

use super::cut::Cut;
use super::naive_hpack::{NaiveDecoder, list_bytes};
use wire::http2::hpack::{self, DecodeError, Decoder, FieldSection, OVERRUN_MAX, Overflow, Strings};

/// Smallest size that a section may have, so that limits are reached.
const LIST_BYTES_MAX: usize = hpack::TABLE_BYTES_MAX;

pub(crate) fn check(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let fields_max: usize = cut.u8().into();
    let mut section = FieldSection::new(LIST_BYTES_MAX, fields_max);
    let (mut decoder, mut twin) = (Decoder::new(), NaiveDecoder::new());
    while !cut.0.is_empty() {
        let len = usize::from(cut.u16()).min(cut.0.len());
        let (block, rest) = cut.0.split_at(len);
        cut.0 = rest;
        let (fast, slow) = (decoder.decode(block, &mut section), twin.decode(block));
        let fields = match (fast, slow) {
            (Ok(()), Ok(fields)) => fields,
            // The decoder stops early, so the twin may find a later fault, or none.
            (Err(DecodeError::Bomb), slow) => {
                if let Ok(fields) = slow {
                    let beyond = list_bytes(&fields) > OVERRUN_MAX * LIST_BYTES_MAX
                        || fields.len() > OVERRUN_MAX * fields_max;
                    assert!(beyond, "{} fields are no bomb", fields.len());
                }
                return;
            }
            (Err(_), Err(_)) => return,
            (fast, slow) => panic!("{fast:?}, {slow:?}"),
        };
        assert_eq!(decoder.table_bytes(), twin.table_bytes());
        assert_eq!(section.list_bytes(), list_bytes(&fields));
        match section.overflow() {
            None => {
                let decoded = section.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
                assert_eq!(decoded.collect::<Vec<_>>(), fields);
                encodes(&section);
            }
            Some(Overflow::Bytes) => assert!(list_bytes(&fields) > LIST_BYTES_MAX),
            Some(Overflow::Fields) => assert!(fields.len() > fields_max),
        }
    }
}

fn encodes(section: &FieldSection) {
    let mut again = FieldSection::new(LIST_BYTES_MAX, section.len());
    for strings in [Strings::Plain, Strings::Shorter] {
        let mut block = Vec::new();
        for (number, (name, value)) in section.iter().enumerate() {
            if number % 2 == 0 {
                hpack::field(&mut block, name, value, strings);
            } else {
                hpack::secret_field(&mut block, name, value, strings);
            }
        }
        assert_eq!(Decoder::new().decode(&block, &mut again), Ok(()));
        let lower = section.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()));
        assert!(again.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).eq(lower));
    }
}
