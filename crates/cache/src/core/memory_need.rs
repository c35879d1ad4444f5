//! Memory that the accelerator needs with a file-backed store, compared with the limit of the process.
//!
//! A process that needs more than its container's limit is killed days later, when the store has filled. So a
//! start with a limit that is too low fails, and the error names a sufficient limit. The sum is `--memory`,
//! the process itself, the metadata of the objects in the file, and every buffer between memory and the file;
//! the buffers count as full, because a busy disk fills them. The rest of the limit bounds the number of
//! objects in the file, so that a store that could start when it was empty can start again when it is full.

use std::path::Path;

use engine::size::Size;

/// Bytes of metadata per object that is only in the file (`docs/decisions/006-mapped-store.md`: 33, plus a
/// margin for tables that are about to grow).
const OBJECT_BYTES: u64 = 36;
/// Minimum number of objects for which the file must have room.
const OBJECTS_MIN: u64 = 64 << 10;
/// Memory of the program itself, with its stacks and buffers.
const OWN_BYTES: u64 = 20 << 20;

/// Memory that the process needs, by component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryNeed {
    /// Bytes for stored objects (`--memory`).
    pub(crate) objects_bytes: u64,
    /// Number of objects in the file.
    pub(crate) objects_on_file: u64,
    /// Maximum total bytes of the write buffers, the read buffers, and the records of purges by tag.
    pub(crate) buffer_bytes: u64,
}

impl MemoryNeed {
    /// Returns the number of objects that the file may hold if the process may use `limit_bytes`.
    pub(crate) fn objects_max(&self, limit_bytes: u64) -> u64 {
        let none = Self { objects_on_file: 0, ..*self };
        let rest_bytes = limit_bytes.saturating_sub(none.bytes()) + OBJECTS_MIN * OBJECT_BYTES;
        // The result is reduced by a sixteenth: after a kill, a start may find objects whose removal was not
        // written yet.
        rest_bytes / OBJECT_BYTES / 16 * 15
    }

    fn bytes(&self) -> u64 {
        let metadata_bytes = self.objects_on_file.max(OBJECTS_MIN).saturating_mul(OBJECT_BYTES);
        [self.objects_bytes, metadata_bytes, self.buffer_bytes, OWN_BYTES]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Checks that `limit_bytes` suffices.
    ///
    /// # Errors
    /// [`TooLittleMemory`], a sentence with the numbers, if `limit_bytes` is less than needed.
    pub(crate) fn within(&self, limit_bytes: u64) -> Result<(), TooLittleMemory> {
        let needed_bytes = self.bytes();
        let of_objects_bytes = self.objects_bytes;
        let buffer_bytes = self.buffer_bytes;
        let rest_bytes = needed_bytes - of_objects_bytes - buffer_bytes;
        let objects = self.objects_on_file;
        if needed_bytes <= limit_bytes {
            return Ok(());
        }
        Err(TooLittleMemory {
            limit_bytes,
            needed_bytes,
            of_objects_bytes,
            buffer_bytes,
            rest_bytes,
            objects,
        })
    }
}

/// The process may use less memory than it would need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not enough memory: the process may use {}, and would need up to {}: {} for stored objects (memory), {} for \
     reading and writing the store's file, and {} for itself and the metadata of {objects} objects on the file; raise \
     the limit to at least {}, or lower the memory for stored objects",
    Size(*limit_bytes),
    Size(*needed_bytes),
    Size(*of_objects_bytes),
    Size(*buffer_bytes),
    Size(*rest_bytes),
    Size(*needed_bytes)
)]
pub struct TooLittleMemory {
    limit_bytes: u64,
    needed_bytes: u64,
    of_objects_bytes: u64,
    buffer_bytes: u64,
    rest_bytes: u64,
    objects: u64,
}

/// Returns the bytes of memory that this process may use: the smallest of its cgroups' limits and the
/// machine's memory with swap. `None` if neither can be read.
pub fn memory_limit() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().map(|text| machine_bytes(&text));
    [cgroup_limit(), machine.filter(|bytes| *bytes > 0)].into_iter().flatten().min()
}

/// Returns the bytes of memory and swap from the text of `/proc/meminfo`, which counts in KiB.
fn machine_bytes(text: &str) -> u64 {
    let kib = |line: &str| {
        let rest = line.strip_prefix("MemTotal:").or_else(|| line.strip_prefix("SwapTotal:"))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    text.lines().filter_map(kib).sum::<u64>().saturating_mul(1024)
}

/// Returns the smallest limit of this process's memory cgroups, version 1 or 2; `None` if there is none, or
/// none can be read.
pub(crate) fn cgroup_limit() -> Option<u64> {
    let of_process = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_under(Path::new("/sys/fs/cgroup"), &of_process)
}

/// Returns the smallest limit on the path to the root, because a cgroup's limit applies to all groups below
/// it.
fn limit_under(root: &Path, of_process: &str) -> Option<u64> {
    let mut least = None;
    for line in of_process.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            some if some.split(',').any(|controller| controller == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container the path may be the host's, which is not mounted; the container's own group is then
        // the mounted root.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let text = std::fs::read_to_string(root.join(group).join(file));
            // "max" is not a number and means no limit. Version 1 writes a number beyond any memory instead.
            let limit: Option<u64> = text.ok().and_then(|text| text.trim().parse().ok());
            least = [least, limit].into_iter().flatten().min();
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        put("memory.max", "max\n");
        put("a/memory.max", "1000\n");
        put("a/b/memory.max", "max\n");
        put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        put("memory/c/memory.limit_in_bytes", "700\n");
        let limit = |of_process| limit_under(root.path(), of_process);
        assert_eq!(limit("0::/a/b\n"), Some(1000));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("4:memory:/c\n0::/\n"), Some(700));
        assert_eq!(limit("5:cpu,memory:/c/gone\n0::/a\n"), Some(700));
        assert_eq!(limit("4:cpu:/c\n"), None);
        assert_eq!(limit("nonsense\n\n1:\n"), None);
    }

    #[test]
    fn the_machine_has_memory_and_swap() {
        let text = "MemTotal:        2048 kB\nMemFree:  7 kB\nSwapTotal:       1024 kB\nSwapFree: 1 kB\n";
        assert_eq!(machine_bytes(text), 3 << 20);
        assert!(memory_limit().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn what_would_do_is_said_and_does() {
        let need =
            MemoryNeed { objects_bytes: 256 << 20, objects_on_file: 10_000_000, buffer_bytes: 96 << 20 };
        let error = need.within(600 << 20).expect_err("metadata of ten million objects has no room");
        let needed = (256 << 20) + 360_000_000 + (96 << 20) + OWN_BYTES;
        assert!(
            error.to_string().contains(&format!("raise the limit to at least {},", Size(needed))),
            "{error}"
        );
        assert_eq!(need.within(needed), Ok(()));
        assert!(need.within(needed - 1).is_err());
    }
}
