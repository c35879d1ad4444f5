//! The lab as a program, `nighttrain lab`: its list, its runs, its output and its refusals.

use std::process::{Command, Stdio};

/// Returns the lab's command, without the developer's environment variables.
fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nighttrain-lab"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NIGHTTRAIN_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Exit code and output of a run.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run(command: &mut Command) -> Ended {
    let output = command.output().expect("it runs");
    Ended {
        code: output.status.code().expect("it ended by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

fn value(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn without_names_it_lists_what_there_is() {
    let listed = run(&mut program(&["list"]));
    assert_eq!((listed.code, listed.stderr.as_str()), (0, ""));
    for name in ["bheap-sim", "bheap-layout"] {
        assert!(listed.stdout.lines().any(|line| line.starts_with(name)), "{}", listed.stdout);
    }
    assert_eq!(run(&mut program(&[])).stdout, listed.stdout);

    let as_json = value(&run(&mut program(&["list", "--json"])).stdout);
    let experiments = as_json["experiments"].as_array().expect("a list");
    assert_eq!(experiments.len(), listed.stdout.lines().count());
    for experiment in experiments {
        assert!(experiment["claims"][0].as_str().is_some_and(|claim| claim.starts_with('C')), "{experiment}");
    }
}

/// A run with a small custom size takes the same path as the article's, in a second.
#[test]
fn a_run_writes_json_and_a_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("report.html");
    let ended = run(program(&["bheap-layout", "bheap-sim", "--quick", "--items", "20000", "--json"])
        .arg("--html")
        .arg(&page));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    let found = value(&ended.stdout);
    assert_eq!((found["lab"].as_u64(), found["quick"].as_bool()), (Some(1), Some(true)));
    assert!(found["machine"]["cores"].as_u64() >= Some(1));
    let [layout, sim] = found["experiments"].as_array().expect("a list").as_slice() else {
        panic!("two experiments: {found}")
    };
    assert_eq!((layout["name"].as_str(), sim["name"].as_str()), (Some("bheap-layout"), Some("bheap-sim")));
    assert_eq!(layout["verdicts"][0]["verdict"], "holds");
    assert_eq!(layout["figures"].as_array().map(Vec::len), Some(3));
    // ⌈20,001 / 512⌉, because index 0 is unused.
    assert_eq!(sim["data"]["pages"], 40);
    let nine = sim["data"]["sizes"].as_array().expect("sizes").iter().find(|size| size["resident"] == 9);
    let nine = nine.expect("nine pages");
    assert!(nine["binary"]["reads"].as_u64() > nine["b_heap"]["reads"].as_u64(), "{nine}");

    let page = std::fs::read_to_string(&page).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg ").count() == 3, "{page}");
    assert!(page.contains("id=\"bheap-sim\""));
}

#[test]
fn piped_text_output_has_no_colour() {
    let ended = run(&mut program(&["bheap-sim", "--items", "5000", "--page-bytes", "512"]));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    for part in ["Claim: ", "Source: P.-H. Kamp", "pages resident", "Notes"] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(!ended.stdout.contains('\x1b'));
}

#[test]
fn invalid_usage_exits_2_with_a_hint() {
    for (arguments, says) in [
        (&["bheep-sim"][..], "perhaps `bheap-sim`"),
        (&["nonsense"], "lab list"),
        (&["all", "bheap-sim"], "`all` stands alone"),
        (&["list", "--html", "x.html"], "runs nothing"),
        (&["bheap-sim", "--page-bytes", "3000"], "a power of two"),
        (&["bheap-sim", "--item-bytes", "5"], "4, 8 or 16"),
        (&["bheap-sim", "--page-bytes", "16"], "at least four"),
        (&["bheap-sim", "--items", "0"], "from 1 to"),
        (&["bheap-layout", "--items", "many"], "invalid"),
    ] {
        let ended = run(&mut program(arguments));
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
    }
    assert!(!std::path::Path::new("x.html").exists());
}

/// An unwritable file is reported before the measurement, not after it.
#[test]
fn an_unwritable_page_fails_before_the_run() {
    let ended = run(&mut program(&["bheap-sim", "--html", "/nonexistent/report.html"]));
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
    assert!(ended.stderr.contains("cannot write /nonexistent/report.html"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1);
}

/// Runs an experiment with whole servers, including this program: the figures exist without doubts, or the
/// experiment reports what is missing here. The figures themselves are not checked.
fn reports_or_says_what_is_missing(name: &str, claim: &str) {
    let ended = run(&mut program(&[name, "--quick", "--json"]));
    if ended.code == 1 && ended.stderr.contains("cannot be tested here") {
        return;
    }
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{name}");
    let found = value(&ended.stdout);
    let verdicts = found["experiments"][0]["verdicts"].as_array().expect("verdicts");
    assert!(!verdicts.is_empty(), "{found}");
    assert!(verdicts.iter().all(|verdict| verdict["claim"] == claim), "{found}");
    let mut samples = 0;
    let mut doubts = Vec::new();
    walk(&found["experiments"][0]["data"], &mut |object| {
        samples += u64::from(object["units"].as_u64() > Some(0) || object["mails"].as_u64() > Some(0));
        doubts.extend(object["doubts"].as_array().into_iter().flatten().cloned());
        doubts.extend(object.get("doubt").filter(|doubt| doubt.is_string()).cloned());
        if let Some([good, looked]) = object["readable"].as_array().map(Vec::as_slice) {
            assert_eq!(good, looked, "inboxes that show their mails");
        }
    });
    assert!(samples > 0, "{name} measured nothing: {found}");
    // Socket errors of the load generator are timeouts, which only show how busy this machine is.
    doubts.retain(|doubt| !doubt.as_str().is_some_and(|doubt| doubt.starts_with("socket errors")));
    assert!(doubts.is_empty(), "{name}: {doubts:?}");
}

fn walk(value: &serde_json::Value, see: &mut impl FnMut(&serde_json::Value)) {
    match value {
        serde_json::Value::Object(fields) => {
            see(value);
            fields.values().for_each(|field| walk(field, see));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, see)),
        _ => {}
    }
}

#[test]
fn messages_on_one_core_and_on_all() {
    reports_or_says_what_is_missing("feed-cores", "C10");
}

#[test]
fn messages_through_a_cable() {
    reports_or_says_what_is_missing("feed-lan", "C11");
}

#[test]
fn hits_beside_the_peers() {
    reports_or_says_what_is_missing("cache-vs-peers", "C1");
}

#[test]
fn pages_on_one_core_and_on_all() {
    reports_or_says_what_is_missing("http-cores", "C22");
}

#[test]
fn a_day_of_mail() {
    reports_or_says_what_is_missing("mail-day", "C13");
}

#[test]
fn mail_through_cables() {
    reports_or_says_what_is_missing("mail-lan", "C23");
}

#[test]
fn claims_and_verdicts_are_written_as_markdown() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("README.md");
    let html = directory.path().join("index.html");
    let ended = run(program(&["bheap-layout", "--quick", "--markdown"])
        .arg(&file)
        .arg("--html")
        .arg(&html)
        .args(["--items", "20000"]));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    let text = std::fs::read_to_string(&file).expect("the file");
    for part in ["| [C7](#c7) | both children", "## C7", "[index.html](index.html)", "`bheap-layout`"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let refused = run(program(&["list", "--markdown"]).arg(&file));
    assert_eq!(refused.code, 2, "{}", refused.stderr);
}

/// HdrHistogram's own tools can read the files: the distribution as text, and both histograms as a log.
#[test]
fn histograms_are_written_for_other_tools() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = directory.path().join("run");
    let url = format!("tcp://{address}");
    let ended = run(program(&["load", &url, "--rate", "500", "--duration", "400ms", "--warm-up", "50ms"])
        .args(["--json", "--hgrm"])
        .arg(&prefix));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let file = |ending: &str| {
        std::fs::read_to_string(format!("{}{ending}", prefix.display()))
            .unwrap_or_else(|error| panic!("{ending}: {error}"))
    };
    for ending in [".corrected.hgrm", ".uncorrected.hgrm"] {
        let text = file(ending);
        assert!(text.contains("Total count    =          200]"), "{ending}: {text}");
        // Columns are value, percentile, cumulative count, and one in how many; none of the first three ever
        // falls.
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|word| word.parse().expect("a number")).collect())
            .collect();
        assert!(rows.len() > 5, "{text}");
        for column in 0..3 {
            assert!(rows.is_sorted_by(|a, b| a[column] <= b[column]), "{ending}, column {column}: {text}");
        }
    }
    let log = file(".hlog");
    assert!(log.contains("Tag=corrected,") && log.contains("Tag=uncorrected,"), "{log}");
}
