//! Buffers that a core's connections share: one to read into, and some for incomplete operations.

/// Bytes read from a socket at once.
const READ_BYTES: usize = 128 * 1024;
/// Largest incomplete operation that is copied into the scratch; a longer one is continued in its own buffer.
pub(crate) const SMALL_LEFTOVER_BYTES_MAX: usize = 16 * 1024;
/// Bytes of buffers for incomplete operations that a core keeps for the next connection.
const SPARE_LEFTOVER_BYTES_MAX: usize = 4 << 20;
/// Capacity of a new buffer: most control lines with a short payload fit.
const LEFTOVER_BYTES: usize = 2048;

/// Receive buffers of a core.
pub(crate) struct Buffers {
    /// Bytes read from a socket; taken out during a turn.
    pub(crate) read: Vec<u8>,
    leftovers: Vec<Vec<u8>>,
    /// Capacity of the spare buffers.
    leftover_bytes: usize,
    /// Buffer for messages whose control line is rewritten in the usual form.
    pub(crate) rewritten: Vec<u8>,
    /// Buffer for a mapped subject.
    pub(crate) mapped: Vec<u8>,
    /// Buffer for a subject in an importing account.
    pub(crate) imported: Vec<u8>,
    /// Buffer for the names of queue groups at a hub.
    pub(crate) queues: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new(max_control_line: usize) -> Self {
        // An incomplete operation and a read after it fit; the parser refuses anything longer.
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

    /// Returns a buffer of an incomplete operation.
    pub(crate) fn give_back_leftover(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.leftover_bytes + buffer.capacity() <= SPARE_LEFTOVER_BYTES_MAX {
            buffer.clear();
            self.leftover_bytes += buffer.capacity();
            self.leftovers.push(buffer);
        }
    }
}
