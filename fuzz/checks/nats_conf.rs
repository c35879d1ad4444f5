//! A file of nats-server's: what is wrong or not honoured is on a line that there is; a comment in front, or a blank at
//! each line's end, changes the numbers of lines and nothing else; who may do what can be built, or is refused.

use std::{net::IpAddr, path::Path};

use feed::{
    identity::Identities,
    nats_config::{Fault, Options, Surroundings, Unhonoured},
};

/// One file to include, one variable, one name.
struct Around;

impl Surroundings for Around {
    fn file(&self, path: &Path) -> Result<String, String> {
        if path.ends_with("b.conf") { Ok("max_payload: 1MB\n".into()) } else { Err("no such file".into()) }
    }
    fn variable(&self, name: &str) -> Option<String> {
        (name == "P").then(|| "4222".into())
    }
    fn address_of(&self, name: &str) -> Result<IpAddr, String> {
        if name == "localhost" { Ok([127, 0, 0, 1].into()) } else { Err("no such name".into()) }
    }
}

fn read(text: &str) -> Result<(Options, Vec<Unhonoured>), Vec<Fault>> {
    feed::nats_config::read(text, Path::new("nats.conf"), &Around)
}

/// What was made of it, with faults and passed-over words by their lines.
#[derive(Debug, PartialEq)]
struct Made {
    options: Option<String>,
    said: Vec<(usize, String)>,
}

fn made(text: &str) -> Made {
    match read(text) {
        Ok((options, unhonoured)) => Made {
            options: Some(format!("{options:?}")),
            said: unhonoured.into_iter().map(|of| (of.line, of.key)).collect(),
        },
        Err(faults) => {
            Made { options: None, said: faults.into_iter().map(|of| (of.line, of.message)).collect() }
        }
    }
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let whole = made(text);
    assert!(whole.options.is_some() || !whole.said.is_empty(), "refused, and nothing said");
    let lines = text.split('\n').count();
    for (line, what) in &whole.said {
        assert!((1..=lines).contains(line), "{what} on line {line} of {lines}");
    }
    let mut below = made(&format!("# of whoever\n{text}"));
    below.said.iter_mut().for_each(|(line, _)| *line -= 1);
    assert_eq!(below, whole);
    assert_eq!(made(&text.replace('\n', " \n")), whole);
    if let Ok((options, _)) = read(text) {
        let _ = Identities::build(&options.authorization, None);
    }
}
