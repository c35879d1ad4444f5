//! The command line. Commands by clap's derive; the flags that are settings come from the table in
//! [`crate::settings`], so that none can be forgotten in the file or the environment.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};

use crate::{
    settings::{
        COMMON, SETTINGS, Section, Settings, ValueShape,
        cache_settings::LIMITS,
        feed_settings::{FEED_ADMIN, FEED_LIMITS},
        mail_settings::{MAIL_ADMIN, MAIL_LIMITS},
        nats_flags::NatsFlags,
        precedence::Flags,
        units::parse_duration,
    },
    tools::{feed_tools::FeedTool, mail_tools::MailTool},
};

/// An HTTP accelerator, a message feed and disposable mail on one engine, and the lab that measures them.
#[derive(Debug, Parser)]
#[command(
    name = "nighttrain",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 configuration.\n\
                  Every setting is a flag, an environment variable and a key of the configuration file;\n\
                  the first of them that says something wins. `nighttrain config --print` shows the outcome."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Task,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Runs everything in one process: accelerator, feed and mail, with defaults where no file says otherwise
    Serve(ServeTask),
    /// Runs the accelerator in front of a web server
    Cache(CacheTask),
    /// Runs the message feed, which speaks the NATS protocol; or talks to one
    Feed(Box<FeedTask>),
    /// Runs the disposable mail service: takes mail for any address, and shows it on pages and by an API
    Mail(Box<MailTask>),
    /// Shows what a running server has done and how it is
    Stat(StatTask),
    /// Shows what a running server does now, again and again
    Top(TopTask),
    /// Shows what a running server says of each request, mail and slow consumer, live and filtered
    Log(LogTask),
    /// Purges a URL, tags or everything from the store of a running accelerator
    Purge(PurgeTask),
    /// Says why a request is, or is not, answered from the store of a running accelerator
    Explain(ExplainTask),
    /// Lists what a running accelerator has stored in memory, or searches it
    Objects(ObjectsTask),
    /// Shows how the servers of a running accelerator's origins are, or takes one out
    Origins(OriginsTask),
    /// Shows the effective configuration, and where each value comes from
    Config(ConfigTask),
    /// Says what is wrong in a configuration file, with the line and what would be right; or in a store's file
    Check(CheckTask),
    /// Puts claims about servers and queues to the test on this machine: the program nighttrain-lab
    #[command(disable_help_flag = true)]
    Lab(LabTask),
    /// Prints a script that completes this command line in a shell
    Completions(CompletionsTask),
    /// Writes the manual pages, one for each command
    Manual(ManualTask),
}

/// `nighttrain serve`
#[derive(Debug, Args)]
#[command(
    after_help = "Each server's own settings are in the file's [cache], [feed] and [mail], and in the environment."
)]
pub(crate) struct ServeTask {
    /// Sends sample mails to demo@localhost, one every few seconds, to see mail arrive
    #[arg(long)]
    pub demo: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: ServeFlags,
}

/// `nighttrain cache`
#[derive(Debug, Args)]
pub(crate) struct CacheTask {
    /// Runs in front of a small slow site that is part of the program, to see what an accelerator does
    #[arg(long, conflicts_with = "origin")]
    pub demo: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: CacheFlags,
}

/// `nighttrain feed`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Users, permissions and accounts come from a file in NATS's own format: -c FILE, --nats-config FILE."
)]
pub(crate) struct FeedTask {
    #[command(subcommand)]
    pub tool: Option<FeedTool>,
    #[command(flatten)]
    pub nats: NatsFlags,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: FeedFlags,
}

/// `nighttrain mail`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct MailTask {
    #[command(subcommand)]
    pub tool: Option<MailTool>,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: MailFlags,
}

/// `nighttrain stat`
#[derive(Debug, Args)]
pub(crate) struct StatTask {
    /// Prints JSON, whose names stay
    #[arg(long)]
    pub json: bool,
    /// Shows what a store's file holds instead, while no server uses it
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Shows instead how much of a store's file is in the page cache, also while a server uses it
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    pub residency: Option<PathBuf>,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// `nighttrain top`
#[derive(Debug, Args)]
pub(crate) struct TopTask {
    /// Time from one look to the next
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Duration,
    /// Ends after so many looks; without it, when the server is gone
    #[arg(long, value_name = "COUNT")]
    pub frames: Option<u64>,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// `nighttrain log`
#[derive(Debug, Args)]
#[command(
    after_help = "Filters: status >= 500 and url ~ \"^/api\"   time.first_byte > 0.5   kind == mail   cache != hit\n\
                  Ends with Ctrl-C, or with the server; then it says how many records it has lost."
)]
pub(crate) struct LogTask {
    /// Which: an expression in the language of bans, such as 'status >= 500 and url ~ "^/api"'; all without
    pub filter: Option<String>,
    /// Prints JSON, an object a line, whose names stay
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// How lines look: common, combined, or a template such as '{status} {time.done} {url}'
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Shows what origins were asked for a request with that request; all of it where the filter holds of any
    #[arg(long)]
    pub group: bool,
    /// Ends after so many
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// Below a tenth of a second one would see the asking; above an hour nobody looks.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    if allowed.contains(&interval) { Ok(interval) } else { Err("from 100ms to 1h".to_owned()) }
}

/// `nighttrain purge`
#[derive(Debug, Args)]
pub(crate) struct PurgeTask {
    #[arg(
        help = "The URL as visitors ask for it, such as http://www.example.org/news",
        required_unless_present_any = ["tags", "ban", "all", "list"],
        conflicts_with_all = ["tags", "ban", "all", "list"]
    )]
    pub url: Option<String>,
    #[arg(
        long,
        value_name = "EXPRESSION",
        conflicts_with_all = ["tags", "all", "list"],
        help = "What this holds of, such as 'req.http.host == example.org && req.url ~ ^/news'"
    )]
    pub ban: Option<String>,
    #[arg(long, conflicts_with_all = ["tags", "all", "soft"], help = "Purges nothing, and shows the bans that are kept")]
    pub list: bool,
    #[arg(long = "tag", value_name = "TAG", help = "What the origin has given this tag; may be said again")]
    pub tags: Vec<String>,
    #[arg(long, conflicts_with = "tags", help = "Everything")]
    pub all: bool,
    #[arg(
        long,
        conflicts_with_all = ["local", "list"],
        help = "Waits until no accelerator of the cluster shows it any more, and says so of each"
    )]
    pub everywhere: bool,
    #[arg(
        long,
        conflicts_with = "list",
        help = "Here alone: the other accelerators of the cluster are not told"
    )]
    pub local: bool,
    #[arg(long, help = "Softly: it is stale and stays, to be shown while it is fetched anew, or validated")]
    pub soft: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// `nighttrain explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainTask {
    /// The URL as visitors ask for it, with its scheme
    pub url: String,
    /// A header of the request, as curl takes it; may be said again
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// The method of the request
    #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// Prints JSON, whose names stay
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// `nighttrain objects`
#[derive(Debug, Args)]
pub(crate) struct ObjectsTask {
    /// Which: an expression as of a ban, such as 'req.url ~ ^/news && obj.status == 200'; all without
    pub expression: Option<String>,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
    /// Prints JSON, whose names stay
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// `nighttrain origins`
#[derive(Debug, Args)]
pub(crate) struct OriginsTask {
    /// A server as it was configured, such as http://10.0.0.1:3000
    #[arg(requires = "set")]
    pub server: Option<String>,
    /// drain: only visitors who stay with it; down: nobody; auto: as it fares
    #[arg(long, value_name = "STATE", value_parser = ["drain", "down", "auto"], requires = "server")]
    pub set: Option<String>,
    /// Prints JSON, whose names stay
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// `nighttrain config`
#[derive(Debug, Args)]
pub(crate) struct ConfigTask {
    /// Prints it as a configuration file
    #[arg(long, required = true)]
    pub print: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: CacheFlags,
}

/// `nighttrain check`
#[derive(Debug, Args)]
pub(crate) struct CheckTask {
    /// The configuration to check: nighttrain's, or one of nats-server's (*.conf)
    #[arg(value_name = "FILE", required_unless_present_any = ["store", "config"], conflicts_with_all = ["store", "config"])]
    pub file: Option<PathBuf>,
    /// A configuration of nighttrain's, whatever its name ends in
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    pub config: Option<PathBuf>,
    /// A store's file to check, every byte of it, while no server uses it
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// `nighttrain lab`: everything after it goes to the program `nighttrain-lab` as it stands.
#[derive(Debug, Args)]
pub(crate) struct LabTask {
    /// `list` shows the experiments, `all` runs them, names run those; `--help` says more
    #[arg(value_name = "list | all | NAME | --help", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// `nighttrain completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsTask {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `nighttrain manual`
#[derive(Debug, Args)]
pub(crate) struct ManualTask {
    /// Where they go: a directory that is there, such as share/man/man1
    pub directory: PathBuf,
}

/// `--config`
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// The configuration file, in TOML [env: NIGHTTRAIN_CONFIG=]
    #[arg(long, value_name = "FILE", help_heading = COMMON)]
    pub config: Option<PathBuf>,
}

impl ConfigFile {
    /// The file that was named by the flag or by the environment.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| std::env::var_os("NIGHTTRAIN_CONFIG").map(PathBuf::from))
    }
}

/// The settings that `cache` takes: all.
#[derive(Debug)]
pub(crate) struct CacheFlags(pub Flags);

/// The settings that `feed` takes.
#[derive(Debug)]
pub(crate) struct FeedFlags(pub Flags);

/// The settings that `mail` takes.
#[derive(Debug)]
pub(crate) struct MailFlags(pub Flags);

/// The settings that a command takes which talks to the admin server.
#[derive(Debug)]
pub(crate) struct AdminFlags(pub Flags);

/// The settings that `serve` takes as flags: those that its servers share.
#[derive(Debug)]
pub(crate) struct ServeFlags(pub Flags);

impl ServeFlags {
    const WANTED: fn(&str, Section) -> bool = |key, section| section == Section::Common || key == "cluster";
}

impl CacheFlags {
    const WANTED: fn(&str, Section) -> bool =
        |_, section| matches!(section, Section::Common | Section::Cache);
}

impl FeedFlags {
    const WANTED: fn(&str, Section) -> bool = |key, section| {
        matches!(section, Section::Common | Section::Feed) && !matches!(key, "state" | "drain-time-max")
    };
}

impl MailFlags {
    const WANTED: fn(&str, Section) -> bool = |_, section| matches!(section, Section::Common | Section::Mail);
}

impl AdminFlags {
    const WANTED: fn(&str, Section) -> bool =
        |key, _| matches!(key, "admin" | "admin-tls" | "admin-name" | "admin-ca-file" | "admin-token-file");
}

/// Implements clap's traits for a set of settings.
macro_rules! flags_from_settings {
    ($name:ident) => {
        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                augment(command, Self::WANTED)
            }
            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }
        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(given(matches, Self::WANTED)))
            }
            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}
flags_from_settings!(CacheFlags);
flags_from_settings!(ServeFlags);
flags_from_settings!(FeedFlags);
flags_from_settings!(MailFlags);
flags_from_settings!(AdminFlags);

fn augment(mut command: Command, wanted: fn(&str, Section) -> bool) -> Command {
    let defaults = Settings::default();
    let admin = if wanted("monitor", Section::Feed) {
        Some(FEED_ADMIN)
    } else {
        wanted("smtp", Section::Mail).then_some(MAIL_ADMIN)
    };
    for setting in SETTINGS.iter().filter(|setting| wanted(setting.key, setting.section)) {
        let default = match setting.text(&defaults) {
            Some(text) if setting.key == "admin" => {
                format!(" [default: {}]", admin.map_or(text, |address| address.to_string()))
            }
            Some(text) => format!(" [default: {text}]"),
            None => String::new(),
        };
        let set = setting.access.set;
        let is_feed = wanted("monitor", Section::Feed);
        command = command.arg(
            Arg::new(setting.key)
                .long(setting.key)
                .short(
                    NatsFlags::SHORT.iter().find(|(key, _)| is_feed && *key == setting.key).map(|(_, c)| *c),
                )
                .value_name(setting.value_name)
                .help(format!("{}{default} [env: {}=]", setting.help, setting.variable()))
                .help_heading(setting.heading)
                .hide_short_help(matches!(setting.heading, LIMITS | FEED_LIMITS | MAIL_LIMITS))
                .action(ArgAction::Set)
                .num_args(if setting.shape == ValueShape::Flag { 0..=1 } else { 1..=1 })
                .default_missing_values((setting.shape == ValueShape::Flag).then_some("true"))
                .require_equals(setting.shape == ValueShape::Flag)
                .value_parser(move |text: &str| {
                    set(&mut Settings::default(), text).map(|()| text.to_owned())
                }),
        );
    }
    command
}

fn given(matches: &ArgMatches, wanted: fn(&str, Section) -> bool) -> Flags {
    SETTINGS
        .iter()
        .enumerate()
        .filter(|(_, setting)| wanted(setting.key, setting.section))
        .filter_map(|(i, setting)| Some((i, matches.get_one::<String>(setting.key)?.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn clap_finds_no_fault() {
        super::Cli::command().debug_assert();
    }
}
