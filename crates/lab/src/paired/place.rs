//! Where programs are found, and where they may listen.

use std::env;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

/// Where Debian keeps servers; not on everybody's path.
const SERVER_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// The environment's name for the directory of the shared floors, which ours must not exceed.
pub const REFERENCE_FLOORS: &str = "NIGHTTRAIN_REFERENCE_FLOORS";

/// The environment's variable that names another build of a peer's program: `BENCH_VARNISHD`, `BENCH_NATS_SERVER`.
pub fn variable(name: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("BENCH_{}", name.chars().map(upper).collect::<String>())
}

/// The build of a program that its [`variable`] names.
pub fn other_build(name: &str) -> Option<PathBuf> {
    env::var_os(variable(name)).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The path of a program: the build that its [`variable`] names, or else that of the distribution.
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

/// What is to be run for a program: its path, or its name where it is not installed.
pub fn program(name: &str) -> String {
    find(name).map_or_else(|| name.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// A file beside this program: the same build.
pub fn sibling(name: &str) -> Option<PathBuf> {
    Some(env::current_exe().ok()?.parent()?.join(name))
}

/// The program of this build, or the one that `NIGHTTRAIN_BIN` names; otherwise how to have it.
///
/// # Errors
/// It is not there.
pub fn ours() -> Result<PathBuf, String> {
    env::var_os("NIGHTTRAIN_BIN")
        .map_or_else(|| sibling("nighttrain"), |path| Some(path.into()))
        .filter(|path| path.exists())
        .ok_or_else(|| "ours is not built: cargo build --profile dist -p nighttrain".to_owned())
}

/// Another build of ours, to be held against this one: another profile, or another commit's.
///
/// # Errors
/// None is named.
pub fn other() -> Result<PathBuf, String> {
    env::var_os("NIGHTTRAIN_OTHER")
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .ok_or_else(|| "no other build is compared: NIGHTTRAIN_OTHER names its program".to_owned())
}

/// A shared floor's source, if there is one to be held against.
///
/// # Errors
/// A sentence that says why there is none.
pub fn reference_floor(file: &str) -> Result<PathBuf, String> {
    let floors = env::var_os(REFERENCE_FLOORS)
        .ok_or_else(|| format!("ours is not compared with a shared floor: {REFERENCE_FLOORS} is not set"))?;
    let source = Path::new(&floors).join(file);
    if source.exists() { Ok(source) } else { Err(format!("{} does not exist", source.display())) }
}

/// A port that nobody has just now.
///
/// # Errors
/// From the kernel.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The top of the source tree.
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
