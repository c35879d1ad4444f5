//! A nats-server configuration file: each fault or ignored option is on an existing line; a comment in front,
//! or a blank at each line's end, changes line numbers and nothing else; the users and permissions can be
//! built, or are refused.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use feed::{
    identity::{Identities, Mapping, Mappings},
    nats_config::{Fault, IgnoredOption, Options, Surroundings},
};

/// Surroundings with a file to include and one that includes itself, a variable and one that refers to
/// itself, and a name.
struct Around;

impl Surroundings for Around {
    fn file(&self, path: &Path) -> Result<String, String> {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("b.conf") => Ok("max_payload: 1MB\n".into()),
            Some("c.conf") => Ok("include c.conf\n".into()),
            _ => Err("no such file".into()),
        }
    }
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "P" => Some("4222".into()),
            "SELF" => Some("$SELF".into()),
            _ => None,
        }
    }
    fn address_of(&self, name: &str) -> Result<IpAddr, String> {
        if name == "localhost" { Ok([127, 0, 0, 1].into()) } else { Err("no such name".into()) }
    }
}

fn read(text: &str) -> Result<(Options, Vec<IgnoredOption>), Vec<Fault>> {
    feed::nats_config::read(text, Path::new("nats.conf"), &Around)
}

/// Result of reading a file: its options, and each fault or ignored option with its line; a line in an
/// included file is `None`.
#[derive(Debug, PartialEq)]
struct Made {
    options: Option<String>,
    said: Vec<(Option<usize>, String)>,
}

fn here(file: Option<PathBuf>, line: usize) -> Option<usize> {
    file.is_none().then_some(line)
}

fn made(text: &str) -> Made {
    match read(text) {
        Ok((options, unhonoured)) => Made {
            options: Some(format!("{options:?}")),
            said: unhonoured.into_iter().map(|of| (here(of.file, of.line), of.key)).collect(),
        },
        Err(faults) => Made {
            options: None,
            said: faults.into_iter().map(|of| (here(of.file, of.line), of.message)).collect(),
        },
    }
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let whole = made(text);
    assert!(whole.options.is_some() || !whole.said.is_empty(), "refused, and nothing said");
    let lines = text.split('\n').count();
    for (line, what) in &whole.said {
        assert!(line.is_none_or(|line| (1..=lines).contains(&line)), "{what} on line {line:?} of {lines}");
    }
    let mut below = made(&format!("# of whoever\n{text}"));
    below.said.iter_mut().filter_map(|(line, _)| line.as_mut()).for_each(|line| *line -= 1);
    assert_eq!(below, whole);
    assert_eq!(made(&text.replace('\n', " \n")), whole);
    if let Ok((options, _)) = read(text) {
        let authorization = &options.authorization;
        let _ = Identities::build(authorization, None);
        check_mappings(&authorization.mappings);
        authorization.accounts.iter().for_each(|account| check_mappings(&account.mappings));
    }
}

/// Checks that a mapping without a random choice gives the same subject for any dice.
fn check_mappings(mappings: &[Mapping]) {
    let Ok(ready) = Mappings::build(mappings) else { return };
    for Mapping { source, .. } in mappings {
        let subject = source.replace('*', "x-12").replace('>', "t.u");
        let mapped = |dice: u32| {
            let mut into = Vec::new();
            (ready.apply(subject.as_bytes(), |below| dice % below, &mut into), into)
        };
        let (low, high) = (mapped(0), mapped(99));
        assert!(low == high || !ready.is_certain(subject.as_bytes()), "{subject} is certain");
    }
}
