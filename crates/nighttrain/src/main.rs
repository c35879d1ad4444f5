//! The program: command line, configuration, wiring, admin server, demonstration site.
//!
//! ```text
//!                                          ┌── crates cache, feed, mail: pinned loops ◀── clients
//! flags, environment, file ──▶ Settings ───┤        ▲ snapshot, purge, drain
//!                                          └── admin thread (axum) ◀── nighttrain stat, log, purge, explain, objects, origins; Prometheus
//! main thread: signals, the periodic report of savings
//! ```
//! No code in this crate runs on a request's path.
#![allow(
    clippy::disallowed_methods,
    reason = "the program reads the clock and waits; its threads are no loops"
)]

mod admin;
mod check;
mod cli;
mod console;
mod failure;
mod log;
mod machine;
mod services;
mod settings;
mod tools;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::{
    cli::{Cli, ConfigFile, Task},
    console::{print, print_to_stderr},
    failure::Failure,
    settings::precedence::{ActiveSettings, Flags},
};

fn main() -> ExitCode {
    engine::sys::heap::keep_large_apart();
    match perform(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_to_stderr(&failure);
            failure.exit_code()
        }
    }
}

fn perform(task: Task) -> Result<(), Failure> {
    match task {
        Task::Serve(task) => crate::services::serve::serve(&task),
        Task::Cache(task) => crate::services::cache_command::cache(&task),
        Task::Feed(task) => match &task.tool {
            Some(tool) => crate::tools::feed_tools::perform(tool),
            None => match &task.nats.signal {
                Some(signal) => signal.send(),
                None => crate::services::feed::feed(&task),
            },
        },
        Task::Mail(task) => match &task.tool {
            Some(tool) => crate::tools::mail_tools::perform(tool),
            None => crate::services::mail::mail(&task),
        },
        Task::Stat(cli::StatTask { store: Some(store), json, .. }) => {
            print(&crate::machine::store_check::describe(&store, json)?)
        }
        Task::Stat(cli::StatTask { residency: Some(file), json, .. }) => {
            print(&crate::machine::residency::residency(&file, json)?)
        }
        Task::Stat(task) => {
            let settings = configured(&task.config, &task.settings.0)?.settings;
            print(&crate::admin::client::stat(&settings, task.json)?)
        }
        Task::Top(task) => {
            let settings = configured(&task.config, &task.settings.0)?.settings;
            crate::admin::top::top(&settings, task.interval, task.frames)
        }
        Task::Log(task) => {
            let settings = configured(&task.config, &task.settings.0)?.settings;
            crate::log::transactions::log(&settings, &task)
        }
        Task::Purge(task) => {
            let settings = configured(&task.config, &task.settings.0)?.settings;
            print(&crate::admin::client::purge(&settings, &task)?)
        }
        Task::Explain(task) => {
            let settings = configured(&task.config, &task.settings.0)?.settings;
            print(&crate::admin::client::explain(&settings, &task)?)
        }
        Task::Objects(task) => {
            let settings = configured(&task.config, &task.settings.0)?.settings;
            print(&crate::admin::client::objects(&settings, &task)?)
        }
        Task::Origins(task) => {
            let settings = configured(&task.config, &task.settings.0)?.settings;
            print(&crate::admin::client::origins(&settings, &task)?)
        }
        Task::Config(task) => {
            let path = task.config.path();
            let in_force = configured(&task.config, &task.settings.0)?;
            print(&crate::settings::effective::as_file(&in_force, path.as_deref()))
        }
        Task::Check(cli::CheckTask { store: Some(store), .. }) => {
            print(&crate::machine::store_check::verify(&store)?)
        }
        Task::Check(task) => {
            let nats = task.file.as_deref().filter(|file| crate::settings::nats_file::is_nats_file(file));
            let text = match nats {
                Some(file) => check::check_nats(file)?,
                None => check::check(&task.config.or(task.file).unwrap_or_default())?,
            };
            print(&text)
        }
        Task::Lab(task) => crate::tools::lab::start(&task.arguments),
        Task::Completions(task) => {
            let mut script = Vec::new();
            clap_complete::generate(task.shell, &mut Cli::command(), "nighttrain", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Task::Manual(task) => clap_mangen::generate_to(Cli::command(), &task.directory)
            .map_err(|why| Failure::Failed(format!("cannot write to {}: {why}", task.directory.display()))),
    }
}

fn configured(file: &ConfigFile, flags: &Flags) -> Result<ActiveSettings, Failure> {
    crate::settings::precedence::in_force(file.path().as_deref(), |name| std::env::var_os(name), flags)
        .map_err(Failure::Configuration)
}
