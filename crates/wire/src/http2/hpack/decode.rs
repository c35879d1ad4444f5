//! Field blocks to fields (RFC 7541 §3 and §6).

use super::{
    huffman::{self, Failure},
    section::{FieldSection, Overflow},
    static_table::{ENTRIES, ENTRIES_BY_INDEX},
    table::DynamicTable,
};

/// Changes of the table's size at the beginning of one block: the smallest that there was, and the last (RFC 7541 §4.2).
pub const TABLE_SIZE_UPDATES_MAX: usize = 2;

/// Why a field block cannot be decoded: afterwards the table is not what the peer believes it to be, so the connection
/// ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The block ends within a field.
    #[error("the field block ends within a field (RFC 7541 §3.2)")]
    Truncated,
    /// There is no entry of that number.
    #[error("a field refers to no entry (RFC 7541 §2.3.3)")]
    Index,
    /// A number is larger than any that could mean something.
    #[error("an integer is too large (RFC 7541 §5.1)")]
    Integer,
    /// A string's code is none.
    #[error("a string is not coded as it should be (RFC 7541 §5.2)")]
    Huffman,
    /// The table's size changes too often, too late or to more than was allowed.
    #[error("the dynamic table is resized where, or to what, it must not be (RFC 7541 §4.2, §6.3)")]
    TableSize,
    /// The section is several times as large as the peer was told it may be.
    #[error("the field section is far beyond the limit (RFC 9113 §10.5.1)")]
    Bomb,
}

/// What the fields of one connection's client are decoded with.
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
    /// One whose table is empty.
    pub fn new() -> Self {
        Self { table: DynamicTable::new() }
    }

    /// What the table's entries count for (RFC 7541 §4.1).
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Bytes that are held beside this struct.
    pub fn held_bytes(&self) -> usize {
        DynamicTable::HELD_BYTES
    }

    /// Decodes one whole field block into `section`, which is cleared first. Where the section overflows, the block is
    /// decoded to its end all the same, for the table; then the section says so.
    ///
    /// # Errors
    /// Where the block breaks a rule; the connection must end with COMPRESSION_ERROR, or ENHANCE_YOUR_CALM for
    /// [`DecodeError::Bomb`].
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

    /// A field that is in one of the tables.
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
        // Where there was no room, the limit of bytes is reached as well.
        Ok(section.add(name_bytes, value_bytes))
    }

    /// A field that is written out, at least its value.
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
                // It may be one that the table has room for.
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
                // Larger than the section can be, and so than the table: nothing of it is kept anywhere.
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

    /// Writes a field's name and value to the beginning of `room`, and returns how long they are.
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

    /// Passes over a field, and returns how long its name and value are.
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

/// Which entry of the dynamic table an index is.
fn age(index: usize) -> Result<usize, DecodeError> {
    index.checked_sub(ENTRIES + 1).ok_or(DecodeError::Index)
}

/// Why a field was not read.
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

/// Bytes of an integer after the first: 28 bits, far more than any size here.
const INTEGER_BYTES_MAX: usize = 4;

impl<'b> Reader<'b> {
    /// An integer whose first byte has so many bits of it (RFC 7541 §5.1).
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

    /// A string as it is in the block, and whether it is coded.
    #[inline]
    fn raw(&mut self) -> Result<(&'b [u8], bool), DecodeError> {
        let &first = self.block.get(self.at).ok_or(DecodeError::Truncated)?;
        let len = self.integer(7)?;
        let string = self.block[self.at..].get(..len).ok_or(DecodeError::Truncated)?;
        self.at += len;
        Ok((string, first & 0x80 != 0))
    }

    /// Writes a string to the beginning of `room`, and returns how long it is.
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

    /// Passes over a string, and returns how long it is.
    fn pass_over(&mut self) -> Result<usize, DecodeError> {
        let (string, is_coded) = self.raw()?;
        if is_coded {
            huffman::decoded_bytes(string).map_err(|_| DecodeError::Huffman)
        } else {
            Ok(string.len())
        }
    }
}
