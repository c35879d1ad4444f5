//! The package of `make dist`, unpacked and run in an otherwise empty root, and the container file, executed
//! by hand.
//!
//! The programs are those of the build under test (`NIGHTTRAIN_DIST=DIR` uses others, such as target/dist):
//! the packaging is tested here, not the profile. No container engine is needed or used: the test reads the
//! container file and executes its steps in a clean root, with this machine's `sh` and `install` in place of
//! the base image's.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use tests::{clean_root::CleanRoot, node::source_tree, program};

/// Directory of the tarball's programs, if its README is followed.
const PROGRAMS: &str = "/usr/local/bin";
const COMMANDS: [&str; 11] =
    ["serve", "cache", "feed", "mail", "stat", "top", "purge", "explain", "objects", "config", "check"];

/// Configuration with every listener on a port that the kernel chooses.
const PORTS: &str = "admin = \"127.0.0.1:0\"\n\
                     [cache]\nlisten = \"127.0.0.1:0\"\nmemory = \"64MiB\"\n\
                     [feed]\nlisten = \"127.0.0.1:0\"\nmonitor = \"127.0.0.1:0\"\n\
                     [mail]\nsmtp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nstore-size = \"128MiB\"\n";

/// Packs the programs, unpacks the tarball, and returns the directory in it.
fn unpacked(work: &Path) -> PathBuf {
    let built = match std::env::var_os("NIGHTTRAIN_DIST") {
        Some(directory) => PathBuf::from(directory),
        None => program::program().parent().expect("a directory").to_owned(),
    };
    let packed = succeeded(
        Command::new("sh")
            .arg(source_tree().join("dist/package.sh"))
            .arg(built)
            .arg(work.join("package"))
            .output()
            .expect("sh runs"),
    );
    let tarball = PathBuf::from(packed.lines().last().expect("it says where"));
    let name = tarball.file_name().expect("a name").to_string_lossy().replace(".tar.gz", "");
    assert!(name.starts_with("nighttrain-") && name.ends_with("-linux"), "{name}");
    let place = work.join("unpacked");
    fs::create_dir(&place).expect("made");
    succeeded(
        Command::new("tar").arg("-xzf").arg(&tarball).arg("-C").arg(&place).output().expect("tar runs"),
    );
    place.join(name)
}

#[track_caller]
fn succeeded(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    said
}

/// A server that is killed on drop, so that it does not outlive its test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads a server's output until it is ready, and returns it.
fn until_ready(server: &mut Started) -> String {
    let mut said = String::new();
    for line in BufReader::new(server.0.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        said.push_str(&line);
        said.push('\n');
        if line.starts_with("admin: listening on ") {
            return said;
        }
    }
    let status = server.0.wait().expect("it ended");
    panic!("it ended before it was ready, {status}: {said}");
}

fn ended_well(mut server: Started) {
    let number = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(number, rustix::process::Signal::TERM).expect("it runs");
    let status = server.0.wait().expect("ours");
    assert!(status.success(), "{status}");
}

#[test]
fn the_tarball_runs_in_an_empty_root() {
    let work = tempfile::tempdir().expect("a directory");
    let package = unpacked(work.path());
    shows_how_to_use_it(&package);
    let Some(root) = CleanRoot::new() else {
        eprintln!("this user may not make namespaces, so nothing runs in a root of its own");
        return;
    };
    fs::create_dir_all(root.path(PROGRAMS)).expect("made");
    for program in ["nighttrain", "nighttrain-lab"] {
        fs::copy(package.join("bin").join(program), root.path(PROGRAMS).join(program)).expect("copied");
        root.libraries_of(&package.join("bin").join(program));
    }
    let nighttrain = format!("{PROGRAMS}/nighttrain");
    let version = succeeded(root.run(&[], &[&nighttrain, "--version"]));
    assert!(version.starts_with("nighttrain 0."), "{version}");
    assert!(succeeded(root.run(&[], &[&nighttrain, "lab", "list"])).contains("bheap-sim"));
    fs::copy(package.join("etc/nighttrain.toml"), root.path("etc/example.toml")).expect("copied");
    succeeded(root.run(&[], &[&nighttrain, "check", "--config", "/etc/example.toml"]));

    fs::write(root.path("etc/nighttrain.toml"), PORTS).expect("written");
    let words = [&nighttrain, "serve", "--config", "/etc/nighttrain.toml", "--state", "/tmp/state"];
    let mut server =
        Started(root.command(&[], None, &words).stdout(Stdio::piped()).spawn().expect("unshare starts"));
    let said = until_ready(&mut server);
    let admin = said.lines().last().and_then(|line| line.rsplit("//").next()).expect("an address");
    let stat = succeeded(root.run_beside(&server.0, &[&nighttrain, "stat", "--admin", admin]));
    assert!(stat.lines().next().is_some_and(|line| line.ends_with("ready")), "{stat}");
    ended_well(server);
}

/// Checks the package's documentation: completions that a shell can read, a manual page for each command, a
/// unit file that systemd understands.
fn shows_how_to_use_it(package: &Path) {
    for file in
        ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "SECURITY.md", "CHANGELOG.md", "etc/container.toml"]
    {
        assert!(package.join(file).is_file(), "{file}");
    }
    for (file, part) in [
        ("share/bash-completion/completions/nighttrain", "complete -F"),
        ("share/zsh/site-functions/_nighttrain", "#compdef nighttrain"),
        ("share/fish/vendor_completions.d/nighttrain.fish", "complete -c nighttrain"),
    ] {
        let script = fs::read_to_string(package.join(file)).expect(file);
        assert!(script.contains(part), "{file} lacks {part}");
    }
    let bash = package.join("share/bash-completion/completions/nighttrain");
    succeeded(Command::new("bash").arg("-n").arg(bash).output().expect("bash runs"));
    for command in COMMANDS {
        let page = format!("share/man/man1/nighttrain-{command}.1");
        let text = fs::read_to_string(package.join(&page)).unwrap_or_else(|why| panic!("{page}: {why}"));
        assert!(text.contains(".TH") && text.contains(command), "{page}: {text}");
    }
    let unit = fs::read_to_string(package.join("lib/systemd/system/nighttrain.service")).expect("the unit");
    let here = tempfile::tempdir().expect("a directory");
    let file = here.path().join("nighttrain.service");
    // The program that the unit starts is not installed on this machine.
    let runs = package.join("bin/nighttrain").display().to_string();
    fs::write(&file, unit.replace("/usr/local/bin/nighttrain", &runs)).expect("written");
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output() {
        Ok(judged) => {
            let said = String::from_utf8_lossy(&judged.stderr).into_owned();
            for complaint in ["Unknown", "Failed to parse", "Invalid", "bad unit", &runs] {
                assert!(!said.contains(complaint), "{said}");
            }
        }
        Err(why) => eprintln!("there is no systemd-analyze, so nobody judges the unit: {why}"),
    }
}

/// Settings with which a container is started.
#[derive(Debug, Default)]
struct Image {
    variables: Vec<(String, String)>,
    user: Option<String>,
    volumes: Vec<String>,
    ports: Vec<String>,
    entry: Vec<String>,
    arguments: Vec<String>,
}

/// Returns each instruction with its arguments; comments are removed and continued lines joined.
fn instructions(file: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = file.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    joined
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .map(|(word, rest)| (word.to_owned(), rest.trim().to_owned()))
        .collect()
}

/// Executes the container file in this root; `context` is the directory of the file.
fn carried_out(file: &str, context: &Path, root: &CleanRoot) -> Image {
    let mut image = Image::default();
    let json =
        |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    for (word, rest) in instructions(file) {
        match word.as_str() {
            // The programs of the base image that the steps need.
            "FROM" => ["/bin/sh", "/usr/bin/install"].iter().for_each(|program| root.borrow(program)),
            "COPY" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let (to, from) = words.split_last().expect("COPY FROM… TO");
                for source in from {
                    let name = Path::new(source).file_name().expect("a file");
                    let there = if to.ends_with('/') { root.path(to).join(name) } else { root.path(to) };
                    fs::create_dir_all(there.parent().expect("a directory")).expect("made");
                    fs::copy(context.join(source), &there).unwrap_or_else(|why| panic!("{source}: {why}"));
                }
            }
            "RUN" => {
                _ = succeeded(
                    root.run(&[("PATH".into(), "/usr/bin:/bin".into())], &["/bin/sh", "-ec", &rest]),
                )
            }
            "ENV" => image.variables.extend(rest.split_whitespace().map(|pair| {
                let (name, value) = pair.split_once('=').expect("NAME=VALUE");
                (name.to_owned(), value.to_owned())
            })),
            "USER" => image.user = Some(rest),
            "VOLUME" => image.volumes.push(rest),
            "EXPOSE" => image.ports = rest.split_whitespace().map(str::to_owned).collect(),
            "ENTRYPOINT" => image.entry = json(&rest),
            "CMD" => image.arguments = json(&rest),
            "STOPSIGNAL" => assert_eq!(rest, "SIGTERM", "the signal that the program ends well by"),
            other => panic!("this test does not know {other}, so it has not been tried"),
        }
    }
    image
}

#[test]
fn the_container_file_builds_a_root_that_works() {
    let work = tempfile::tempdir().expect("a directory");
    let package = unpacked(work.path());
    let Some(root) = CleanRoot::new() else {
        eprintln!("this user may not make namespaces, so the container file is not carried out");
        return;
    };
    for program in ["nighttrain", "nighttrain-lab"] {
        root.libraries_of(&package.join("bin").join(program));
    }
    let file = fs::read_to_string(package.join("Containerfile")).expect("the container file");
    let image = carried_out(&file, &package, &root);
    for volume in &image.volumes {
        let there = fs::metadata(root.path(volume)).expect("the volume's directory");
        assert_eq!(there.permissions().mode() & 0o777, 0o700, "{volume}");
        let owner = format!("{}:{}", there.uid(), there.gid());
        assert_eq!(Some(owner), image.user, "{volume}");
    }
    let words: Vec<&str> = image.entry.iter().chain(&image.arguments).map(String::as_str).collect();
    let mut command = root.command(&image.variables, image.user.as_deref(), &words);
    let mut server = Started(command.stdout(Stdio::piped()).spawn().expect("unshare starts"));
    let said = until_ready(&mut server);
    for port in &image.ports {
        assert!(
            said.contains(&format!("://0.0.0.0:{port}\n")),
            "{port} is exposed, and nobody listens: {said}"
        );
    }
    assert!(image.volumes.iter().any(|volume| said.contains(volume)), "the mail is kept elsewhere: {said}");
    let stat = succeeded(root.run_beside(&server.0, &[&image.entry[0], "stat"]));
    assert!(stat.lines().next().is_some_and(|line| line.ends_with("ready")), "{stat}");
    ended_well(server);
}
