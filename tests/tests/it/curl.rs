//! A third-party client: curl, with its own behaviour in connections, versions and uploads.

use std::{fs, process::Command};

use tests::{Accelerator, Answer, ScriptedOrigin, content::content, on_one_core, on_one_core_and_on_two};

on_one_core! {
    downloads_come_whole_over_one_connection,
    uploads_arrive_whole,
}

on_one_core_and_on_two! {
    many_at_once_are_each_whole,
}

fn curl(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("curl")
        // Ignores the user's .curlrc and proxy.
        .args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--fail", "--max-time", "120"])
        .args(arguments)
        .output()
        .expect("curl is installed: run tests/install-packages.sh");
    assert!(output.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn downloads_come_whole_over_one_connection(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = content(1, 0, 3_000_000);
    let pieces: Vec<&[u8]> = body.chunks(10_007).collect();
    origin.answers("/length", Answer::new(200, &body).header("Cache-Control", "max-age=600"));
    origin.answers("/chunked", Answer::chunked(200, &pieces, &[]).header("Cache-Control", "max-age=600"));
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let url = |path: &str| format!("http://{}{path}", accelerator.address());
    for version in ["--http1.1", "--http1.0"] {
        for path in ["/length", "/chunked", "/length", "/chunked"] {
            assert!(curl(&[version, &url(path)]) == body, "{version} {path}");
        }
        let head = String::from_utf8(curl(&[version, "--head", &url("/length")])).expect("a head is text");
        assert!(
            head.starts_with("HTTP/1.1 200") && head.contains("\r\nContent-Length: 3000000\r\n"),
            "{head}"
        );
    }
    assert_eq!((origin.count("/length"), origin.count("/chunked")), (1, 1));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("body").display().to_string();
    let urls: Vec<String> = (0..5).map(|_| url("/length")).collect();
    let mut arguments = vec!["--write-out", "%{num_connects} "];
    for url in &urls {
        arguments.extend([url, "--output", &file]);
    }
    assert_eq!(curl(&arguments), b"1 0 0 0 0 ", "connections made for five downloads");
}

fn uploads_arrive_whole(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/upload", |request, reply| reply.answer(&Answer::new(200, &request.body)));
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let url = format!("http://{}/upload", accelerator.address());
    // Above a mebibyte curl sends `Expect: 100-continue` by itself.
    let body = content(1, 0, 3_000_000);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), &body).expect("a file is written");
    let path = file.path().display().to_string();
    let data = format!("@{path}");
    for arguments in [
        &["--upload-file", &*path][..],
        &["--data-binary", &data],
        &["--data-binary", &data, "--header", "Transfer-Encoding: chunked"],
        &["--data-binary", &data, "--header", "Expect:"],
    ] {
        assert!(curl(&[arguments, &[&url]].concat()) == body, "{arguments:?}");
    }
    let asked = origin.seen("/upload").iter().filter(|seen| seen.header("expect").is_some()).count();
    assert!(asked <= 4, "curl's expectation may be passed on, once for each upload");
}

fn many_at_once_are_each_whole(cores: &str) {
    const FILES: u64 = 100;
    let origin = ScriptedOrigin::start();
    origin.on("/file", |request, reply| {
        let number = request.target.split_once('?').and_then(|(_, n)| n.parse().ok()).unwrap_or_default();
        reply.answer(&Answer::new(200, content(number, 0, 50_000)).header("Cache-Control", "max-age=600"))
    });
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    for round in 1..=2 {
        let output = format!("{}/#1", directory.path().display());
        let url = format!("http://{}/file?[0-{}]", accelerator.address(), FILES - 1);
        curl(&["--parallel", "--parallel-max", "30", "--output", &output, &url]);
        for number in 0..FILES {
            let file = directory.path().join(number.to_string());
            assert!(
                fs::read(&file).expect("curl wrote it") == content(number, 0, 50_000),
                "{number}, round {round}"
            );
        }
    }
    assert_eq!(origin.count("/file") as u64, FILES);
}
