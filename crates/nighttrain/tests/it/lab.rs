//! `nighttrain lab` starts the program `nighttrain-lab` beside it, and reports an error if there is none.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::support::{program, run};

/// Copies the program into a directory of its own, so that the test decides which files are beside it.
fn copied(directory: &Path) -> Command {
    let copy = directory.join("nighttrain");
    fs::copy(program(&[]).get_program(), &copy).expect("a copy");
    let mut command = Command::new(copy);
    command.arg("lab").env("PATH", "/nonexistent");
    command
}

fn script(file: &Path, text: &str) {
    fs::write(file, text).expect("written");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("executable");
}

#[test]
fn lab_arguments_and_exit_code_pass_through() {
    let directory = tempfile::tempdir().expect("a directory");
    script(&directory.path().join("nighttrain-lab"), "#!/bin/sh\necho \"$# $*\"\nexit 7\n");
    let ended =
        run(copied(directory.path()).args(["load", "tcp://h:1", "--rate", "5", "--", "-x", "--help"]));
    assert_eq!((ended.code, ended.stdout.as_str()), (7, "7 load tcp://h:1 --rate 5 -- -x --help\n"));
    // `--help` prints the lab's own help.
    assert_eq!(run(copied(directory.path()).arg("--help")).stdout, "1 --help\n");
    assert_eq!(run(&mut copied(directory.path())).stdout, "0 \n");
}

#[test]
fn an_adjacent_lab_precedes_the_path() {
    let [directory, elsewhere] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    script(&elsewhere.path().join("nighttrain-lab"), "#!/bin/sh\necho path\n");
    assert_eq!(run(copied(directory.path()).env("PATH", elsewhere.path())).stdout, "path\n");
    script(&directory.path().join("nighttrain-lab"), "#!/bin/sh\necho beside\n");
    assert_eq!(run(copied(directory.path()).env("PATH", elsewhere.path())).stdout, "beside\n");
}

#[test]
fn a_missing_lab_program_is_explained() {
    let directory = tempfile::tempdir().expect("a directory");
    let ended = run(copied(directory.path()).arg("list"));
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
    for part in ["nighttrain-lab", "beside this one", "the PATH"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert_eq!(ended.stderr.lines().count(), 1);
}
