//! A memory cgroup of our own: a limit on what a process and its page cache may keep.
//!
//! ```text
//! parent: Group::create() ─▶ <hierarchy>/nighttrain-lab-PID-N
//! child:  Group::enter() ─▶ writes itself into cgroup.procs ─▶ what it touches from then on is charged to the group
//!         Group::limit(bytes) ─▶ the kernel takes from it what is above
//! parent, when the child has ended: drop ─▶ the group is removed
//! ```
//! Source: the kernel's `admin-guide/cgroup-v1/memory.rst` and `admin-guide/cgroup-v2.rst`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which of the two interfaces a hierarchy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// `memory.limit_in_bytes`.
    One,
    /// `memory.max`.
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

/// A place where a group can be made: a mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    mount: PathBuf,
}

/// The hierarchies with a memory controller that are mounted, from the text of `/proc/self/mounts`. Version 1 comes
/// first: where it is mounted with `memory`, the other one has no memory controller.
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

/// A group that exists; the one who made it removes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Group {
    path: PathBuf,
    version: Version,
    /// Whether dropping this value removes the group.
    #[serde(skip)]
    ours: bool,
}

/// No group can be made here: what is missing, and how to provide it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no memory cgroup can be made here ({0}); run as root, or where a group with a memory controller is delegated"
)]
pub struct CgroupFault(String);

impl Group {
    /// Makes one, below the root of the first hierarchy that allows it.
    ///
    /// # Errors
    /// If none does; the text says why not.
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
            // A directory in a version 2 hierarchy has this file only where its parent hands the controller down.
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

    /// Which interface it speaks.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the calling process into it: what it has touched already stays charged where it was.
    ///
    /// # Errors
    /// If the process may not be moved.
    pub fn enter(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), std::process::id().to_string())
    }

    /// Limits it to `bytes`; the kernel takes back what is above, and says no if it cannot.
    ///
    /// # Errors
    /// `EBUSY` in version 1 if what is above cannot be taken back.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.path.join(self.version.limit_file()), bytes.to_string())
    }

    /// Bytes charged to it now: memory of its processes and page cache that they were the first to touch.
    ///
    /// # Errors
    /// If the file cannot be read.
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
        // A process that has just ended may still be counted for a moment.
        for _ in 0..50 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                // Gone, or not to be removed by us: nothing else can be done about it here.
                _ => return,
            }
        }
    }
}

/// What the name of each of our groups begins with; the process that made it and a number follow.
const PREFIX: &str = "nighttrain-lab-";

/// Removes groups of ours whose process was killed before it could: a group with processes in it is refused.
fn remove_abandoned(mount: &Path) {
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        if maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Whether it could be removed is of no consequence to the one that is made now.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Held by tests that make groups, so that one can say that none of this process is left.
#[cfg(test)]
pub(crate) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_in_the_mounts_and_others_are_not() {
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
    fn without_a_controller_it_says_what_is_missing_and_leaves_nothing() {
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
    fn groups_of_the_dead_are_removed_and_those_of_the_living_and_of_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        // Above the largest process number that the kernel allows (2^22).
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
