//! HPACK decoder: turns field blocks into fields (RFC 7541 §3 and §6).

use super::{
    huffman::{self, Failure},
    section::{FieldSection, Overflow},
    static_table::{ENTRIES, ENTRIES_BY_INDEX},
    table::DynamicTable,
};

/// Maximum number of table size updates at the beginning of one block: the smallest intermediate size, and
/// the final size (RFC 7541 §4.2).
pub const TABLE_SIZE_UPDATES_MAX: usize = 2;

/// Error for a field block that cannot be decoded. The table then differs from the peer's, so the connection
/// ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The block ends within a field.
    #[error("the field block ends within a field (RFC 7541 §3.2)")]
    Truncated,
    /// No entry has the given index.
    #[error("a field refers to an entry that does not exist (RFC 7541 §2.3.3)")]
    Index,
    /// An integer is larger than any meaningful value.
    #[error("an integer is too large (RFC 7541 §5.1)")]
    Integer,
    /// A string is not valid Huffman code.
    #[error("a string has an invalid encoding (RFC 7541 §5.2)")]
    Huffman,
    /// The table's size changes too often, too late, or to more than the allowed size.
    #[error("invalid dynamic table size update: out of place or too large (RFC 7541 §4.2, §6.3)")]
    TableSize,
    /// The section is several times larger than the announced limit.
    #[error("the field section is far beyond the limit (RFC 9113 §10.5.1)")]
    Bomb,
}

/// HPACK decoder for the field blocks of one connection's client.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Creates a decoder with an empty table.
    pub fn new() -> Self {
        Self { table: DynamicTable::new() }
    }

    /// Returns the total size of the table's entries (RFC 7541 §4.1).
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Returns the heap memory held, in bytes, without this struct.
    pub fn held_bytes(&self) -> usize {
        DynamicTable::HELD_BYTES
    }

    /// Decodes one whole field block into `section`, which is cleared first. If the section overflows, the
    /// block is still decoded to its end, to keep the table in step; the section then reports the overflow.
    ///
    /// # Errors
    /// Returns the rule that the block breaks; the connection must end with COMPRESSION_ERROR, or
    /// ENHANCE_YOUR_CALM for [`DecodeError::Bomb`].
    #[inline]
    pub fn decode(&mut self, block: &[u8], section: &mut FieldSection) -> Result<(), DecodeError> {
        section.clear();
        let mut reader = Reader { block, at: 0 };
        let (mut resizes, mut may_resize) = (0, true);
        while let Some(&first) = block.get(reader.at) {
            let may_go_on = match first {
                0x80.. => {
                    let index = reader.integer(7)?;
                    self.indexed(index, section)?
                }
                0x20..0x40 => {
                    resizes += 1;
                    let bytes_max = reader.integer(5)?;
                    if !may_resize || resizes > TABLE_SIZE_UPDATES_MAX || !self.table.resize(bytes_max) {
                        return Err(DecodeError::TableSize);
                    }
                    continue;
                }
                _ => self.literal(first, &mut reader, section)?,
            };
            may_resize = false;
            if !may_go_on {
                return Err(DecodeError::Bomb);
            }
        }
        Ok(())
    }

    /// Decodes a field that is an entry of one of the tables.
    #[inline]
    fn indexed(&mut self, index: usize, section: &mut FieldSection) -> Result<bool, DecodeError> {
        let (name_bytes, value_bytes) = if let Some(&(name, value)) = of_static(index) {
            if let Some(room) = section.room().get_mut(..name.len() + value.len()) {
                let (name_room, value_room) = room.split_at_mut(name.len());
                name_room.copy_from_slice(name);
                value_room.copy_from_slice(value);
            }
            (name.len(), value.len())
        } else {
            let age = age(index)?;
            let (name_bytes, value_bytes) = self.table.lengths(age).ok_or(DecodeError::Index)?;
            if let Some(room) = section.room().get_mut(..name_bytes + value_bytes) {
                self.table.copy(age, room);
            }
            (name_bytes, value_bytes)
        };
        // If there was no room for the copy, the limit of bytes is exceeded as well, which `add` records.
        Ok(section.add(name_bytes, value_bytes))
    }

    /// Decodes a field whose value, and possibly name, is given as a literal.
    fn literal(
        &mut self,
        first: u8,
        reader: &mut Reader<'_>,
        section: &mut FieldSection,
    ) -> Result<bool, DecodeError> {
        let is_entered = first & 0x40 != 0;
        let start = reader.at;
        let lengths = match self.field(is_entered, reader, section.room()) {
            Err(Stop::NoRoom) if !section.is_all_room() => {
                // The field may still fit the table, so its bytes are decoded into the emptied section.
                section.overflow_with(Overflow::Bytes);
                reader.at = start;
                self.field(is_entered, reader, section.room())
            }
            other => other,
        };
        match lengths {
            Ok((name_bytes, value_bytes)) => {
                if is_entered {
                    let (name, value) = section.room()[..name_bytes + value_bytes].split_at(name_bytes);
                    self.table.insert(name, value);
                }
                Ok(section.add(name_bytes, value_bytes))
            }
            Err(Stop::NoRoom) => {
                // The field is larger than the section and therefore than the table, so its bytes are
                // skipped.
                section.overflow_with(Overflow::Bytes);
                reader.at = start;
                let (name_bytes, value_bytes) = self.pass_over(is_entered, reader)?;
                if is_entered {
                    self.table.clear();
                }
                Ok(section.add(name_bytes, value_bytes))
            }
            Err(Stop::Broken(error)) => Err(error),
        }
    }

    /// Writes a field's name and value to the beginning of `room`, and returns their lengths.
    fn field(
        &self,
        is_entered: bool,
        reader: &mut Reader<'_>,
        room: &mut [u8],
    ) -> Result<(usize, usize), Stop> {
        let index = reader.integer(if is_entered { 6 } else { 4 })?;
        let name_bytes = if index == 0 {
            reader.string(room)?
        } else if let Some(&(name, _)) = of_static(index) {
            room.get_mut(..name.len()).ok_or(Stop::NoRoom)?.copy_from_slice(name);
            name.len()
        } else {
            let age = age(index)?;
            let (name_bytes, _) = self.table.lengths(age).ok_or(DecodeError::Index)?;
            self.table.copy(age, room.get_mut(..name_bytes).ok_or(Stop::NoRoom)?);
            name_bytes
        };
        let value_bytes = reader.string(&mut room[name_bytes..])?;
        Ok((name_bytes, value_bytes))
    }

    /// Skips a field, and returns the lengths of its name and value.
    fn pass_over(&self, is_entered: bool, reader: &mut Reader<'_>) -> Result<(usize, usize), DecodeError> {
        let index = reader.integer(if is_entered { 6 } else { 4 })?;
        let name_bytes = if index == 0 {
            reader.pass_over()?
        } else if let Some(&(name, _)) = of_static(index) {
            name.len()
        } else {
            self.table.lengths(age(index)?).ok_or(DecodeError::Index)?.0
        };
        Ok((name_bytes, reader.pass_over()?))
    }
}

#[inline]
fn of_static(index: usize) -> Option<&'static (&'static [u8], &'static [u8])> {
    ENTRIES_BY_INDEX.get(index.wrapping_sub(1))
}

/// Converts an index to the age of an entry in the dynamic table.
fn age(index: usize) -> Result<usize, DecodeError> {
    index.checked_sub(ENTRIES + 1).ok_or(DecodeError::Index)
}

/// Reason why a field was not read.
enum Stop {
    NoRoom,
    Broken(DecodeError),
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        Self::Broken(error)
    }
}

struct Reader<'b> {
    block: &'b [u8],
    at: usize,
}

/// Maximum number of bytes of an integer after its first byte: 28 bits, far more than any size here.
const INTEGER_BYTES_MAX: usize = 4;

impl<'b> Reader<'b> {
    /// Reads an integer whose first `prefix_bits` bits are in the first byte (RFC 7541 §5.1).
    #[inline]
    fn integer(&mut self, prefix_bits: u32) -> Result<usize, DecodeError> {
        let &first = self.block.get(self.at).ok_or(DecodeError::Truncated)?;
        self.at += 1;
        let prefix_max = (1 << prefix_bits) - 1;
        let prefix = usize::from(first) & prefix_max;
        if prefix < prefix_max { Ok(prefix) } else { self.long_integer(prefix) }
    }

    fn long_integer(&mut self, prefix: usize) -> Result<usize, DecodeError> {
        let mut value = prefix;
        for number in 0..INTEGER_BYTES_MAX {
            let &byte = self.block.get(self.at).ok_or(DecodeError::Truncated)?;
            self.at += 1;
            value += usize::from(byte & 0x7f) << (7 * number);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Integer)
    }

    /// Reads a string as encoded in the block, and whether it is Huffman-coded.
    #[inline]
    fn raw(&mut self) -> Result<(&'b [u8], bool), DecodeError> {
        let &first = self.block.get(self.at).ok_or(DecodeError::Truncated)?;
        let len = self.integer(7)?;
        let string = self.block[self.at..].get(..len).ok_or(DecodeError::Truncated)?;
        self.at += len;
        Ok((string, first & 0x80 != 0))
    }

    /// Writes a string to the beginning of `room`, and returns its length.
    #[inline]
    fn string(&mut self, room: &mut [u8]) -> Result<usize, Stop> {
        let (string, is_coded) = self.raw()?;
        if is_coded {
            return huffman::decode(string, room).map_err(|failure| match failure {
                Failure::NoRoom => Stop::NoRoom,
                Failure::Invalid => Stop::Broken(DecodeError::Huffman),
            });
        }
        room.get_mut(..string.len()).ok_or(Stop::NoRoom)?.copy_from_slice(string);
        Ok(string.len())
    }

    /// Skips a string, and returns its decoded length.
    fn pass_over(&mut self) -> Result<usize, DecodeError> {
        let (string, is_coded) = self.raw()?;
        if is_coded {
            huffman::decoded_bytes(string).map_err(|_| DecodeError::Huffman)
        } else {
            Ok(string.len())
        }
    }
}
