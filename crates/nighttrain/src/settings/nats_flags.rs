//! Flags of nats-server, so that its users' command lines and systemd units also work with this program.
//!
//! They duplicate settings (`-p` and `-a` are two halves of `--listen`), and like other flags they override
//! the file.

use std::{fs, net::IpAddr, str::FromStr};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    failure::Failure,
    settings::{
        Section, in_section,
        nats_file::LogOptions,
        precedence::{ActiveSettings, Source},
        resolve,
    },
};

/// Flags of nats-server that `nighttrain feed` has.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "nats-server options")]
pub(crate) struct NatsFlags {
    /// The port of --listen; -1 takes a free one
    #[arg(short = 'p', long = "port", value_name = "PORT", value_parser = port, allow_negative_numbers = true)]
    port: Option<u16>,
    /// The host of --listen, and of --monitor with -m: an address or a name
    #[arg(short = 'a', long = "addr", visible_alias = "net", value_name = "HOST", value_parser = host)]
    addr: Option<IpAddr>,
    /// The port of --monitor; -1 takes a free one
    #[arg(short = 'm', long = "http_port", value_name = "PORT", value_parser = port, allow_negative_numbers = true)]
    http_port: Option<u16>,
    /// Logs more, unless --log is given
    #[arg(short = 'D', long = "debug", action = clap::ArgAction::Count)]
    debug: u8,
    /// Logs the protocol lines of clients, unless --log is given
    #[arg(short = 'V', long = "trace", action = clap::ArgAction::Count)]
    trace: u8,
    /// Sends a signal to a running feed, and ends: stop, quit, term, reopen, reload, ldm
    #[arg(long = "signal", value_name = "SIGNAL[=PID|FILE]")]
    pub signal: Option<SignalTarget>,
}

impl NatsFlags {
    /// Short flags of nats-server for settings that exist here.
    pub(crate) const SHORT: [(&str, char); 4] =
        [("nats-config", 'c'), ("log-file", 'l'), ("pid-file", 'P'), ("server-name", 'n')];

    /// Applies the flags to the settings.
    pub(crate) fn join(&self, in_force: &mut ActiveSettings) {
        let mut said = |section, key| {
            if let Some((place, _)) = in_section(section, key) {
                in_force.sources[place] = Source::Flag;
            }
        };
        if self.port.is_some() || self.addr.is_some() {
            said(Section::Feed, "listen");
        }
        if self.http_port.is_some() {
            said(Section::Feed, "monitor");
        }
        let feed = &mut in_force.settings.feed;
        let (listen, monitor) = (&mut feed.config.listen, &mut feed.monitor);
        self.addr.into_iter().for_each(|ip| listen.set_ip(ip));
        self.port.into_iter().for_each(|port| listen.set_port(port));
        if let Some(port) = self.http_port {
            monitor.set_port(port);
            self.addr.into_iter().for_each(|ip| monitor.set_ip(ip));
        }
        let log = in_section(Section::Common, "log").map(|(place, _)| in_force.sources[place]);
        if (self.debug > 0 || self.trace > 0) && log != Some(Source::Flag) {
            in_force.settings.log = LogOptions { debug: self.debug > 0, trace: self.trace > 0 }.filter();
        }
    }
}

fn port(text: &str) -> Result<u16, String> {
    match text.parse::<i32>() {
        Ok(-1) => Ok(0),
        Ok(port) => u16::try_from(port)
            .map_err(|_| "invalid port: expected 0 to 65535, or -1 for a free one".to_owned()),
        Err(_) => Err("invalid port: expected a number, such as 4222".to_owned()),
    }
}

fn host(text: &str) -> Result<IpAddr, String> {
    text.trim_matches(['[', ']']).parse().or_else(|_| resolve(text))
}

/// A signal and its target.
#[derive(Debug, Clone)]
pub(crate) struct SignalTarget {
    signal: Signal,
    /// Process id, or a file that holds it; `None` selects the only running feed.
    to: Option<String>,
}

impl FromStr for SignalTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, to) = match text.split_once('=') {
            Some((name, to)) => (name, Some(to.to_owned()).filter(|to| !to.is_empty())),
            None => (text, None),
        };
        let signal = match name {
            "stop" => Signal::KILL,
            "quit" => Signal::INT,
            "term" => Signal::TERM,
            "reopen" => Signal::USR1,
            "reload" => Signal::HUP,
            "ldm" => Signal::USR2,
            _ => return Err("invalid signal: expected stop, quit, term, reopen, reload or ldm".to_owned()),
        };
        Ok(Self { signal, to })
    }
}

impl SignalTarget {
    /// Sends the signal.
    ///
    /// # Errors
    /// Returns `Failure::Failed` if no feed is found, or more than one.
    pub(crate) fn send(&self) -> Result<(), Failure> {
        let failed = |message: String| Failure::Failed(format!("signal: {message}"));
        let id = match &self.to {
            Some(to) => id_of(to).map_err(failed)?,
            None => match feeds()[..] {
                [one] => one,
                [] => return Err(failed("no feed is running; name the process: SIGNAL=PID".to_owned())),
                ref several => {
                    let numbers: Vec<String> = several.iter().map(i32::to_string).collect();
                    return Err(failed(format!(
                        "several feeds are running: {}; name one: SIGNAL=PID",
                        numbers.join(", ")
                    )));
                }
            },
        };
        let process = Pid::from_raw(id).ok_or_else(|| failed("invalid process id 0".to_owned()))?;
        kill_process(process, self.signal).map_err(|why| failed(format!("process {id}: {why}")))
    }
}

fn id_of(text: &str) -> Result<i32, String> {
    let number = |text: &str| text.trim().parse::<i32>().ok().filter(|id| *id > 0);
    if let Some(id) = number(text) {
        return Ok(id);
    }
    let read = fs::read_to_string(text)
        .map_err(|why| format!("`{text}` is neither a process id nor a file with one: {why}"))?;
    number(&read).ok_or_else(|| format!("{text} contains no process id"))
}

/// Returns the other processes of this program that are feeds.
fn feeds() -> Vec<i32> {
    let own = std::env::current_exe().ok().and_then(|path| path.file_name().map(ToOwned::to_owned));
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut feeds: Vec<i32> = numbers
        .filter(|id| u32::try_from(*id).ok() != Some(std::process::id()))
        .filter(|id| {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let mut words = words.split(|byte| *byte == 0);
            let program = words.next().and_then(|word| word.rsplit(|byte| *byte == b'/').next());
            program == own.as_ref().map(|name| name.as_encoded_bytes()) && words.next() == Some(b"feed")
        })
        .collect();
    feeds.sort_unstable();
    feeds
}
