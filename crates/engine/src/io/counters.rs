//! Counters of disk reads.

crate::counters! {
    /// Counters of disk reads, one row per core.
    pub enum ReadCounter {
        Begun => Counter, "store_reads", None, "Disk reads handed to a helper.";
        Joined => Counter, "store_reads_joined", None, "Requests that joined a disk read already under way.";
        ReadBytes => Counter, "store_read_bytes", Bytes, "Bytes read from the disk, including alignment.";
        Failed => Counter, "store_reads_failed", None, "Disk reads that failed or ended short.";
        Damaged => Counter, "store_reads_damaged", None, "Disk reads whose data did not match its checksum.";
        TooSlow => Counter, "store_reads_too_slow", None, "Disk reads abandoned by all requests that waited for them.";
        RefusedQueue => Counter, "store_reads_refused_queue", None, "Requests refused because too many disk reads were queued.";
        RefusedBuffers => Counter, "store_reads_refused_buffers", None, "Requests refused because no read buffer was free.";
        Waiting => Gauge, "store_reads_waiting", None, "Disk reads queued for a helper.";
        UnderWay => Gauge, "store_reads_under_way", None, "Disk reads that helpers are executing.";
    }
}
