//! Speed of the disk itself: random O_DIRECT reads of whole objects, by threads that do nothing else.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::io::{DirectFile, Source};
use engine::sys::{arena::Words, span::Span};
use lab::paired::spread::Draws;
use lab::pressure::objects;

const BLOCK_BYTES: u64 = 4096;

/// Results of the raw reads.
pub(crate) struct Raw {
    pub(crate) reads_per_second: f64,
    /// CPU time of all threads per read, in microseconds.
    pub(crate) cpu_us: f64,
}

/// Reads the sizes of random objects at random offsets of `file` for `seconds`.
pub(crate) fn read(file: &Path, objects: u64, threads: usize, seconds: f64) -> io::Result<Raw> {
    let blocks =
        std::fs::metadata(file)?.len() / BLOCK_BYTES - u64::from(objects::LARGE_BYTES) / BLOCK_BYTES - 1;
    let source = DirectFile::open(file)?;
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let (begun, cpu_s) = (Instant::now(), cpu_s());
    thread::scope(|scope| -> io::Result<()> {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (stop, source, reads) = (&stop, &source, &reads);
                scope.spawn(move || -> io::Result<()> {
                    let memory = Words::reserve(objects::LARGE_BYTES as usize / 4, false)?;
                    let mut draws = Draws::new(number as u64);
                    while !stop.load(Ordering::Relaxed) {
                        let id = draws.bits() % objects;
                        // An object may start anywhere in a block, so it can touch one block more than it
                        // fills.
                        let whole = u64::from(objects::bytes(id)).next_multiple_of(BLOCK_BYTES);
                        let len = whole + if draws.below(2) == 0 { BLOCK_BYTES } else { 0 };
                        let at = draws.bits() % blocks * BLOCK_BYTES;
                        // The length is at most that of two large objects, so the conversion is lossless.
                        source.read(at, Span::new(&memory, 0..len as usize))?;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| io::Error::other("a reading thread panicked"))??;
        }
        Ok(())
    })?;
    let (took, reads) = (begun.elapsed().as_secs_f64(), reads.into_inner() as f64);
    Ok(Raw { reads_per_second: reads / took, cpu_us: (self::cpu_s() - cpu_s) * 1e6 / reads.max(1.0) })
}

fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn objects_are_read_from_all_over_the_file() {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        let raw = read(file.path(), 1000, 2, 0.05).unwrap();
        assert!(raw.reads_per_second > 0.0 && raw.cpu_us > 0.0);
    }
}
