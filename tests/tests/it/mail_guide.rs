//! Runs each command of docs/guide/mail.md as it is written there.
//!
//! The commands run in a network namespace of their own (`unshare`), so that the guide's ports are free and
//! no other service is reached.

use std::{fmt::Write as _, fs, process::Command};

use tests::{
    node::{source_tree, succeeds},
    program,
};

/// Fenced blocks of a Markdown text: the words after the opening fence, and the content.
fn blocks(markdown: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in markdown.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(said)) => open = Some((said.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, content)), None) => content.push_str(&format!("{line}\n")),
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn every_command_of_the_guide_works_as_written() {
    let guide = fs::read_to_string(source_tree().join("docs/guide/mail.md")).expect("the guide");
    let directory = tempfile::tempdir().expect("a directory");
    let mut script = "set -eu\nip link set lo up\n".to_owned();
    let mut ran = 0;
    for (said, content) in blocks(&guide) {
        if let Some((_, file)) = said.split_once(" file=") {
            fs::write(directory.path().join(file), content).expect("written");
        } else if said == "sh service" {
            let started =
                "for try in $(seq 300); do curl -sf http://127.0.0.1:8025/healthz && break; sleep 0.1; done";
            writeln!(script, "{} >service.log 2>&1 &\nservice=$!\n{started}", content.trim()).expect("text");
        } else if said == "sh run" {
            writeln!(script, "echo '$ {}'\n{content}", content.trim().replace('\'', "'\\''")).expect("text");
            ran += 1;
        }
    }
    script.push_str("kill $service\nwait $service || true\necho every command worked\n");
    let program = program::program().parent().expect("a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let said = succeeds(
        Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c", &script])
            .current_dir(directory.path())
            .env("PATH", path)
            .env("XDG_STATE_HOME", directory.path()),
    );
    assert!(ran >= 6 && said.contains("every command worked"), "{said}");
    assert!(said.contains("signed up from Go") && said.contains("493021"), "{said}");
    // The guide's examples for the shell, Python and Go.
    assert_eq!(said.lines().filter(|line| line.starts_with("signed up")).count(), 3, "{said}");
}

/// The compose files, as far as a machine without containers allows: each service's command is run, and
/// requested by the service's name in the file, from an address of a network like that of the containers.
#[test]
fn m15_compose_files_give_all_mail_to_containers_only() {
    let guide = fs::read_to_string(source_tree().join("docs/guide/mail.md")).expect("the guide");
    let services: Vec<(String, String)> = blocks(&guide)
        .into_iter()
        .filter_map(|(said, content)| Some((said.strip_prefix("yaml service=")?.to_owned(), content)))
        .collect();
    assert_eq!(
        services.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
        ["mailpit", "mailhog", "inbucket"]
    );
    let program = program::program().parent().expect("a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    for (name, file) in services {
        let line = file.lines().find_map(|line| line.trim().strip_prefix("command: ")).expect("a command");
        let command: Vec<String> = serde_json::from_str(line).expect("a list");
        let port = command.iter().find_map(|word| {
            word.strip_prefix("0.0.0.0:").filter(|port| port.len() == 4 && *port != "1025" && *port != "2500")
        });
        let port = port.expect("a port of pages");
        let script = format!(
            "set -eu\n\
             ip link set lo up\n\
             for address in 172.18.0.2 172.18.0.3 192.0.2.9; do ip addr add $address/32 dev lo; done\n\
             nighttrain {arguments} >service.log 2>&1 &\n\
             service=$!\n\
             for try in $(seq 300); do curl -sf http://127.0.0.1:{port}/healthz >healthy && break; sleep 0.1; done\n\
             ask() {{ curl -sS --interface $1 --resolve {name}:{port}:172.18.0.2 -w ' %{{http_code}}\\n' http://{name}:{port}$2; }}\n\
             ask 172.18.0.3 /api/v1/messages\n\
             ask 172.18.0.3 /mailhog/api/v2/messages\n\
             ask 192.0.2.9 /api/v1/messages\n\
             kill $service\n\
             wait $service || true\n",
            arguments = command.join(" "),
        );
        let directory = tempfile::tempdir().expect("a directory");
        let said = succeeds(
            Command::new("unshare")
                .args(["--map-root-user", "--net", "sh", "-c", &script])
                .current_dir(directory.path())
                .env("PATH", &path)
                .env("XDG_STATE_HOME", directory.path()),
        );
        let answers: Vec<&str> = said.lines().collect();
        assert!(answers[0].ends_with(" 200") && answers[0].contains("\"messages\":[]"), "{name}: {said}");
        assert!(answers[1].ends_with(" 200") && answers[1].contains("\"items\":[]"), "{name}: {said}");
        assert!(answers[2].ends_with(" 403") && answers[2].contains("--mail-readers"), "{name}: {said}");
    }
}
