//! Buffers that a core's connections share: one read buffer, and several for incomplete operations.

/// Largest number of bytes read from a socket at once.
const READ_BYTES: usize = 128 * 1024;
/// Largest incomplete operation that is copied into the shared read buffer; a longer one gets its own buffer.
pub(crate) const SMALL_LEFTOVER_BYTES_MAX: usize = 16 * 1024;
/// Total capacity, in bytes, of spare buffers for incomplete operations that a core keeps.
const SPARE_LEFTOVER_BYTES_MAX: usize = 4 << 20;
/// Capacity of a new buffer for an incomplete operation; most control lines with a short payload fit.
const LEFTOVER_BYTES: usize = 2048;

/// Receive buffers of a core.
pub(crate) struct Buffers {
    /// Shared buffer for bytes read from a socket; moved out of this field during a turn.
    pub(crate) read: Vec<u8>,
    leftovers: Vec<Vec<u8>>,
    /// Total capacity of the spare buffers, in bytes.
    leftover_bytes: usize,
    /// Buffer for messages whose control line is rewritten into the usual form.
    pub(crate) rewritten: Vec<u8>,
    /// Buffer for a subject that results from a mapping.
    pub(crate) mapped: Vec<u8>,
    /// Buffer for a message's subject in an importing account.
    pub(crate) imported: Vec<u8>,
    /// Buffer for the names of the queue groups at a hub that get a message.
    pub(crate) queues: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new(max_control_line: usize) -> Self {
        // An incomplete operation and one more read fit into the buffer; the parser refuses anything longer.
        let read_bytes = READ_BYTES + SMALL_LEFTOVER_BYTES_MAX + max_control_line;
        Self {
            read: vec![0; read_bytes],
            leftovers: Vec::new(),
            leftover_bytes: 0,
            rewritten: Vec::new(),
            mapped: Vec::new(),
            imported: Vec::new(),
            queues: Vec::new(),
        }
    }

    /// Takes a buffer for an incomplete operation.
    pub(crate) fn take_leftover(&mut self) -> Vec<u8> {
        let Some(spare) = self.leftovers.pop() else { return Vec::with_capacity(LEFTOVER_BYTES) };
        self.leftover_bytes -= spare.capacity();
        spare
    }

    /// Frees the spare buffers.
    pub(crate) fn shrink(&mut self) {
        self.leftovers = Vec::new();
        self.rewritten = Vec::new();
    }

    /// Takes back the buffer of an incomplete operation, for the next connection that needs one.
    pub(crate) fn give_back_leftover(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.leftover_bytes + buffer.capacity() <= SPARE_LEFTOVER_BYTES_MAX {
            buffer.clear();
            self.leftover_bytes += buffer.capacity();
            self.leftovers.push(buffer);
        }
    }
}
