//! Lookup of programs, source files and free ports for the servers under test.

use std::env;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

/// Directories where Debian installs servers, which are not on every user's `PATH`.
const SERVER_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Environment variable with the directory of the shared reference floors: minimal servers in C whose costs
/// are a lower bound. Our own floors must not cost more than these.
pub const REFERENCE_FLOORS: &str = "NIGHTTRAIN_REFERENCE_FLOORS";

/// Returns the name of the environment variable that selects another build of a peer's program:
/// `BENCH_VARNISHD`, `BENCH_NATS_SERVER`.
pub fn variable(name: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("BENCH_{}", name.chars().map(upper).collect::<String>())
}

/// Returns the build of a program that its environment variable (see [`variable`]) names.
pub fn other_build(name: &str) -> Option<PathBuf> {
    env::var_os(variable(name)).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns the path of a program: the build that its environment variable (see [`variable`]) names, or else
/// the installed one.
pub fn find(name: &str) -> Option<PathBuf> {
    if let Some(path) = other_build(name) {
        return Some(path).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SERVER_DIRECTORIES.map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// Returns the command to run for a program: its path, or only its name if it is not installed.
pub fn program(name: &str) -> String {
    find(name).map_or_else(|| name.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// Returns the path of a file in the directory of this executable, which comes from the same build.
pub fn sibling(name: &str) -> Option<PathBuf> {
    Some(env::current_exe().ok()?.parent()?.join(name))
}

/// Returns the `nighttrain` program of this build, or the one that `NIGHTTRAIN_BIN` names.
///
/// # Errors
/// A message with the build command if the program does not exist.
pub fn ours() -> Result<PathBuf, String> {
    env::var_os("NIGHTTRAIN_BIN")
        .map_or_else(|| sibling("nighttrain"), |path| Some(path.into()))
        .filter(|path| path.exists())
        .ok_or_else(|| "ours is not built: cargo build --profile dist -p nighttrain".to_owned())
}

/// Returns another build of Nighttrain to compare with this one: another profile, or another commit.
///
/// # Errors
/// A message if `NIGHTTRAIN_OTHER` names no existing program.
pub fn other() -> Result<PathBuf, String> {
    env::var_os("NIGHTTRAIN_OTHER")
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .ok_or_else(|| "no other build is compared: NIGHTTRAIN_OTHER names its program".to_owned())
}

/// Returns the source file of a shared reference floor (see [`REFERENCE_FLOORS`]).
///
/// # Errors
/// Returns a message if the environment names no directory of floors, or the file does not exist.
pub fn reference_floor(file: &str) -> Result<PathBuf, String> {
    let floors = env::var_os(REFERENCE_FLOORS)
        .ok_or_else(|| format!("ours is not compared with a shared floor: {REFERENCE_FLOORS} is not set"))?;
    let source = Path::new(&floors).join(file);
    if source.exists() { Ok(source) } else { Err(format!("{} does not exist", source.display())) }
}

/// Returns a TCP port on loopback that is currently free.
///
/// # Errors
/// The kernel's error if no port can be bound.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Returns the root of the source tree.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_spelled_like_other_variables() {
        assert_eq!(variable("varnishd"), "BENCH_VARNISHD");
        assert_eq!(variable("nats-server"), "BENCH_NATS_SERVER");
    }
}
