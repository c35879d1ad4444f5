//! Counters of disk reads.

crate::counters! {
    /// Counters, one row for each core.
    pub enum ReadCounter {
        Begun => Counter, "store_reads", None, "Reads of the disk that were handed to a helper.";
        Joined => Counter, "store_reads_joined", None, "Requests that waited for a read which was under way already.";
        ReadBytes => Counter, "store_read_bytes", Bytes, "Bytes read from the disk, alignment included.";
        Failed => Counter, "store_reads_failed", None, "Reads that the disk answered with an error, or short.";
        Damaged => Counter, "store_reads_damaged", None, "Reads whose bytes were not what was written.";
        TooSlow => Counter, "store_reads_too_slow", None, "Reads that those who waited gave up on.";
        RefusedQueue => Counter, "store_reads_refused_queue", None, "Requests refused because too many reads waited.";
        RefusedBuffers => Counter, "store_reads_refused_buffers", None, "Requests refused because no buffer was free.";
        Waiting => Gauge, "store_reads_waiting", None, "Reads that wait for a helper now.";
        UnderWay => Gauge, "store_reads_under_way", None, "Reads that helpers have now.";
    }
}
