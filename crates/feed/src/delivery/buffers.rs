//! The buffers that a core's connections share: one to read into, and some for operations that have not come whole.

/// Bytes read from a socket at once.
const READ_BYTES: usize = 128 * 1024;
/// An unfinished operation that is longer is read on in place instead of being copied into the scratch.
pub(crate) const SMALL_LEFTOVER_BYTES_MAX: usize = 16 * 1024;
/// Bytes of buffers for unfinished operations that a core keeps for the next connection.
const SPARE_LEFTOVER_BYTES_MAX: usize = 4 << 20;
/// What a new one has room for: most control lines with a short payload.
const LEFTOVER_BYTES: usize = 2048;

/// A core's buffers for what is received.
pub(crate) struct Buffers {
    /// What is read from sockets; taken out during a turn.
    pub(crate) read: Vec<u8>,
    leftovers: Vec<Vec<u8>>,
    /// What those have room for.
    leftover_bytes: usize,
    /// For messages whose control line must be put into its usual form.
    pub(crate) rewritten: Vec<u8>,
    /// For a subject that stands for another.
    pub(crate) mapped: Vec<u8>,
    /// For one that is another account's.
    pub(crate) imported: Vec<u8>,
    /// For the names of queue groups at a hub.
    pub(crate) queues: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new(max_control_line: usize) -> Self {
        // An unfinished operation and a read behind it fit: what is longer is refused by the parser.
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

    /// A buffer for an unfinished operation.
    pub(crate) fn take_leftover(&mut self) -> Vec<u8> {
        let Some(spare) = self.leftovers.pop() else { return Vec::with_capacity(LEFTOVER_BYTES) };
        self.leftover_bytes -= spare.capacity();
        spare
    }

    /// Gives up what is spare.
    pub(crate) fn shrink(&mut self) {
        self.leftovers = Vec::new();
        self.rewritten = Vec::new();
    }

    /// Takes such a buffer back.
    pub(crate) fn give_back_leftover(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.leftover_bytes + buffer.capacity() <= SPARE_LEFTOVER_BYTES_MAX {
            buffer.clear();
            self.leftover_bytes += buffer.capacity();
            self.leftovers.push(buffer);
        }
    }
}
