//! A memory cgroup that limits the memory and page cache of one process.
//!
//! ```text
//! parent: Group::create() ─▶ <hierarchy>/nighttrain-lab-PID-N
//! child:  Group::enter() ─▶ writes its id into cgroup.procs ─▶ pages that it touches later are charged to the group
//!         Group::limit(bytes) ─▶ the kernel reclaims the excess
//! parent, when the child has ended: drop ─▶ the group is removed
//! ```
//! Source: the kernel's `admin-guide/cgroup-v1/memory.rst` and `admin-guide/cgroup-v2.rst`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Version of the cgroup interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// Version 1, with `memory.limit_in_bytes`.
    One,
    /// Version 2, with `memory.max`.
    Two,
}

impl Version {
    const fn limit_file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    const fn usage_file(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }
}

/// A mounted hierarchy, in which a group can be created.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    mount: PathBuf,
}

/// Returns the mounted hierarchies with a memory controller, from the text of `/proc/self/mounts`. Version 1
/// comes first: if it is mounted with `memory`, version 2 has no memory controller.
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (mount, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let version = match kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
                "cgroup2" => Version::Two,
                _ => return None,
            };
            Some(Hierarchy { version, mount: PathBuf::from(mount) })
        })
        .collect();
    found.sort_by_key(|hierarchy| hierarchy.version == Version::Two);
    found
}

/// A cgroup. Dropping the value that created it removes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Group {
    path: PathBuf,
    version: Version,
    /// True if dropping this value removes the group.
    #[serde(skip)]
    ours: bool,
}

/// Error for a group that cannot be created: what this machine lacks, and how to provide it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no memory cgroup can be made here ({0}); run as root, or where a group with a memory controller is delegated"
)]
pub struct CgroupFault(String);

impl Group {
    /// Creates a group below the root of the first hierarchy that allows it.
    ///
    /// # Errors
    /// Returns [`CgroupFault`] with the reasons if no hierarchy allows it.
    pub fn create() -> Result<Self, CgroupFault> {
        let mounts =
            fs::read_to_string("/proc/self/mounts").map_err(|error| CgroupFault(error.to_string()))?;
        Self::below(&hierarchies(&mounts))
    }

    fn below(hierarchies: &[Hierarchy]) -> Result<Self, CgroupFault> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if hierarchies.is_empty() {
            return Err(CgroupFault("no hierarchy with a memory controller is mounted".into()));
        }
        let mut refused = Vec::new();
        for Hierarchy { version, mount } in hierarchies {
            remove_abandoned(mount);
            let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
            let path = mount.join(name);
            if let Err(error) = fs::create_dir(&path) {
                refused.push(format!("{}: {error}", path.display()));
                continue;
            }
            let group = Self { path, version: *version, ours: true };
            // A directory in a version 2 hierarchy has this file only if its parent delegates the controller.
            if group.path.join(version.limit_file()).exists() {
                return Ok(group);
            }
            refused.push(format!(
                "{0}: the memory controller is not handed down (echo +memory > {0}/cgroup.subtree_control)",
                mount.display()
            ));
        }
        Err(CgroupFault(refused.join("; ")))
    }

    /// Returns the version of the interface.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the group's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the calling process into the group; pages that it has already touched stay charged to its old
    /// group.
    ///
    /// # Errors
    /// Returns the system's error if the process may not be moved.
    pub fn enter(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), std::process::id().to_string())
    }

    /// Limits the group to `bytes`; the kernel reclaims everything above, or refuses.
    ///
    /// # Errors
    /// Returns `EBUSY` in version 1 if the excess cannot be reclaimed.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.path.join(self.version.limit_file()), bytes.to_string())
    }

    /// Returns the bytes charged to the group now: memory of its processes, and the page cache that they were
    /// the first to touch.
    ///
    /// # Errors
    /// Returns the system's error if the file cannot be read.
    pub fn usage_bytes(&self) -> io::Result<u64> {
        let text = fs::read_to_string(self.path.join(self.version.usage_file()))?;
        text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "usage is no number"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        // The kernel may still count a process for a moment after its end.
        for _ in 0..50 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                // The group is gone, or may not be removed: there is nothing else to do.
                _ => return,
            }
        }
    }
}

/// Prefix of the names of our groups; the creating process's id and a number follow.
const PREFIX: &str = "nighttrain-lab-";

/// Removes leftover groups whose process was killed before it could remove them. The kernel refuses to remove
/// a group that still has processes.
fn remove_abandoned(mount: &Path) {
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        if maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // An error is ignored: the leftover does not affect the new group.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Lock of tests that create groups, so that a test can check that this process has left no group behind.
#[cfg(test)]
pub(crate) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_versions_1_and_2_are_found() {
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                      tmpfs /tmp tmpfs rw 0 0\n";
        let found = hierarchies(mounts);
        let named: Vec<_> = found.iter().map(|h| (h.version, h.mount.to_str().unwrap())).collect();
        assert_eq!(
            named,
            [(Version::One, "/sys/fs/cgroup/memory"), (Version::Two, "/sys/fs/cgroup/unified")]
        );
        assert!(hierarchies("").is_empty());
    }

    #[test]
    fn a_missing_memory_controller_is_reported() {
        let nothing = Group::below(&[]).unwrap_err().to_string();
        assert!(nothing.contains("no hierarchy with a memory controller is mounted"), "{nothing}");
        let directory = tempfile::tempdir().unwrap();
        let bare = Hierarchy { version: Version::Two, mount: directory.path().to_owned() };
        let missing = Hierarchy { version: Version::One, mount: directory.path().join("absent") };
        let refusal = Group::below(&[missing, bare]).unwrap_err().to_string();
        assert!(refusal.contains("not handed down") && refusal.contains("absent"), "{refusal}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the group that was tried is removed");
    }

    #[test]
    fn only_groups_of_dead_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        // The process id is above the kernel's maximum (2^22), so no such process exists.
        let dead = directory.path().join(format!("{PREFIX}4194305-0"));
        let kept = [
            directory.path().join(format!("{PREFIX}{}-0", std::process::id())),
            directory.path().join("other-1"),
        ];
        for path in kept.iter().chain([&dead]) {
            fs::create_dir(path).unwrap();
        }
        remove_abandoned(directory.path());
        assert!(!dead.exists() && kept.iter().all(|path| path.exists()));
    }
}
