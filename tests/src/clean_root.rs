//! A root directory with nothing in it but what is put there: where a package is tried, as on a machine that has never
//! seen its source.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// An empty root, in which programs run by `chroot`, in a mount and a network namespace of their own.
#[derive(Debug)]
pub struct CleanRoot {
    directory: tempfile::TempDir,
    /// How `unshare` is allowed to do it here.
    namespaces: Vec<&'static str>,
}

impl CleanRoot {
    /// None, if this user may not make namespaces.
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
        // Its user need not be the one who made it.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        let root = Self { directory, namespaces };
        for place in ["dev", "proc", "tmp", "etc"] {
            fs::create_dir_all(root.path(place)).expect("made");
        }
        fs::set_permissions(root.path("tmp"), fs::Permissions::from_mode(0o1777)).expect("ours");
        fs::write(root.path("dev/null"), "").expect("written");
        Some(root)
    }

    /// Where an absolute or relative path of it lies outside.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        self.directory.path().join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Puts the shared libraries of a program there, and nothing else, each where the loader looks for it.
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
            // Follows links: what arrives is a file of the name that is asked for.
            fs::copy(library, &there).unwrap_or_else(|why| panic!("{library}: {why}"));
        }
    }

    /// Puts a program of this machine there, with its libraries: a stand-in for what a base image has.
    ///
    /// # Panics
    /// When it is not on this machine.
    pub fn borrow(&self, program: &str) {
        let file = fs::canonicalize(program).unwrap_or_else(|why| panic!("{program}: {why}"));
        let there = self.path(program);
        fs::create_dir_all(there.parent().expect("a directory")).expect("made");
        fs::copy(&file, there).expect("copied");
        self.libraries_of(&file);
    }

    /// A command in it, with these variables and no others: `HOME` and `PATH` are not there unless they are named.
    /// `words` begin with an absolute path. `user` is for `chroot --userspec`; it takes effect for root alone.
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
        // Without root there is no other user to be.
        if let Some(user) = user.filter(|_| !self.namespaces.contains(&"--user")) {
            command.arg(format!("--userspec={user}"));
        }
        command.arg(self.directory.path()).args(words).stdin(Stdio::null());
        command
    }

    /// Runs one to its end.
    ///
    /// # Panics
    /// When it does not start.
    pub fn run(&self, variables: &[(String, String)], words: &[&str]) -> Output {
        self.command(variables, None, words).output().expect("unshare runs")
    }

    /// Runs one in the root and the network of another that runs.
    ///
    /// # Panics
    /// When it does not start.
    pub fn run_beside(&self, running: &Child, words: &[&str]) -> Output {
        let mut command = Command::new(tool("nsenter"));
        command.args(["--target", &running.id().to_string(), "--net", "--root"]);
        if self.namespaces.contains(&"--user") {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").args(words).stdin(Stdio::null()).env_clear().output().expect("nsenter runs")
    }
}

/// `$1` is the root, the rest what `env` is to run. Each step replaces the shell, so that the process that was started
/// is the program in the end.
const INSIDE: &str = r#"
ip link set lo up
mount --rbind /proc "$1/proc"
mount --bind /dev/null "$1/dev/null"
shift
exec env -i "$@"
"#;

/// Where a tool is: those of the administrator are not on everybody's path.
fn tool(name: &str) -> PathBuf {
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("there is no {name}"))
}
