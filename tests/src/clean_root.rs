//! A root directory that contains only what a test puts there. Packages are tried in it, as on a machine that
//! has never seen their source.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// An empty root directory. Programs run in it with `chroot`, in mount and network namespaces of their own.
#[derive(Debug)]
pub struct CleanRoot {
    directory: tempfile::TempDir,
    /// Flags with which `unshare` works here.
    namespaces: Vec<&'static str>,
}

impl CleanRoot {
    /// Makes an empty root; `None` if this user may not create namespaces.
    ///
    /// # Panics
    /// When the disk is full.
    pub fn new() -> Option<Self> {
        let plain = ["--mount", "--net"];
        let namespaces = [plain.to_vec(), [&["--user", "--map-root-user"], &plain[..]].concat()]
            .into_iter()
            .find(|kind| {
                let probe =
                    Command::new("unshare").args(kind).args(["--", "ip", "link", "set", "lo", "up"]).output();
                probe.is_ok_and(|probe| probe.status.success())
            })?;
        let directory = tempfile::tempdir().expect("a directory");
        // The program may run as another user than the one who made the directory.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        let root = Self { directory, namespaces };
        for place in ["dev", "proc", "tmp", "etc"] {
            fs::create_dir_all(root.path(place)).expect("made");
        }
        fs::set_permissions(root.path("tmp"), fs::Permissions::from_mode(0o1777)).expect("ours");
        fs::write(root.path("dev/null"), "").expect("written");
        Some(root)
    }

    /// Returns the path outside of the root for a path inside.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        self.directory.path().join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Copies a program's shared libraries, and nothing else, to the paths where the loader looks for them.
    ///
    /// # Panics
    /// When `ldd` does not name them.
    pub fn libraries_of(&self, program: &Path) {
        let listed = Command::new("ldd").arg(program).output().expect("ldd runs");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(!listed.contains("not found"), "{}: {listed}", program.display());
        let libraries: Vec<&str> = listed.split_whitespace().filter(|word| word.starts_with('/')).collect();
        assert!(!libraries.is_empty(), "{}: {listed}", program.display());
        for library in libraries {
            let there = self.path(library);
            fs::create_dir_all(there.parent().expect("a directory")).expect("made");
            // `copy` follows links, so the copy is a regular file under the name that the loader opens.
            fs::copy(library, &there).unwrap_or_else(|why| panic!("{library}: {why}"));
        }
    }

    /// Copies a program of this machine into the root, with its libraries: a stand-in for a base image's
    /// program.
    ///
    /// # Panics
    /// When the program is not on this machine.
    pub fn borrow(&self, program: &str) {
        let file = fs::canonicalize(program).unwrap_or_else(|why| panic!("{program}: {why}"));
        let there = self.path(program);
        fs::create_dir_all(there.parent().expect("a directory")).expect("made");
        fs::copy(&file, there).expect("copied");
        self.libraries_of(&file);
    }

    /// Returns a command that runs in the root with only these variables: `HOME` and `PATH` are unset unless
    /// they are named. `words` begin with an absolute path. `user` is for `chroot --userspec` and takes
    /// effect for root only.
    ///
    /// # Panics
    /// When there is no chroot(8).
    pub fn command(&self, variables: &[(String, String)], user: Option<&str>, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(&self.namespaces)
            .args(["--", "sh", "-ec", INSIDE, "clean-root"])
            .arg(self.directory.path());
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(tool("chroot"));
        // Only root can switch to another user.
        if let Some(user) = user.filter(|_| !self.namespaces.contains(&"--user")) {
            command.arg(format!("--userspec={user}"));
        }
        command.arg(self.directory.path()).args(words).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// When the command does not start.
    pub fn run(&self, variables: &[(String, String)], words: &[&str]) -> Output {
        self.command(variables, None, words).output().expect("unshare runs")
    }

    /// Runs a command in the root and the network namespace of another running command.
    ///
    /// # Panics
    /// When the command does not start.
    pub fn run_beside(&self, running: &Child, words: &[&str]) -> Output {
        let mut command = Command::new(tool("nsenter"));
        command.args(["--target", &running.id().to_string(), "--net", "--root"]);
        if self.namespaces.contains(&"--user") {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").args(words).stdin(Stdio::null()).env_clear().output().expect("nsenter runs")
    }
}

/// Shell script: `$1` is the root, the rest is the command line for `env`. Each step replaces the shell, so
/// that the started process becomes the program itself.
const INSIDE: &str = r#"
ip link set lo up
mount --rbind /proc "$1/proc"
mount --bind /dev/null "$1/dev/null"
shift
exec env -i "$@"
"#;

/// Finds a tool by name; the administrator's tools are not on every user's `PATH`.
fn tool(name: &str) -> PathBuf {
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("there is no {name}"))
}
