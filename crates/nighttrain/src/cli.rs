//! The command line. clap derives the commands; flags that are settings come from the table in
//! [`crate::settings`], so that every flag also exists in the file and in the environment.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};

use crate::{
    settings::{
        SETTINGS, Section, Settings, ValueShape,
        feed_settings::FEED_ADMIN,
        mail_settings::MAIL_ADMIN,
        nats_flags::NatsFlags,
        precedence::Flags,
        table::{COMMON, FEED_LIMITS, LIMITS, MAIL_LIMITS},
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
    after_help = "Exit codes: 0 success, 1 failure, 2 usage, 3 configuration.\nEvery setting is a flag, an environment \
                  variable and a key of the configuration file;\nthey win in this order. `nighttrain config --print` \
                  shows the result."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Task,
}

/// A command of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Runs everything in one process: accelerator, feed and mail, with defaults for everything that no file
    /// sets
    Serve(ServeTask),
    /// Runs the accelerator in front of a web server
    Cache(CacheTask),
    /// Runs the message feed, which speaks the NATS protocol; or acts as a client of one
    Feed(Box<FeedTask>),
    /// Runs the disposable mail service: takes mail for any address, and shows it on pages and through an API
    Mail(Box<MailTask>),
    /// Shows the counters and the state of a running server
    Stat(StatTask),
    /// Shows the current numbers of a running server, refreshed every few seconds
    Top(TopTask),
    /// Shows a running server's log of requests, mails and slow consumers, live and filtered
    Log(LogTask),
    /// Purges a URL, tags or everything from the store of a running accelerator
    Purge(PurgeTask),
    /// Explains why a running accelerator answers a request from its store, or does not
    Explain(ExplainTask),
    /// Lists the objects that a running accelerator has in memory, or searches them
    Objects(ObjectsTask),
    /// Shows the state of the servers of a running accelerator's origins, or takes one out of rotation
    Origins(OriginsTask),
    /// Shows the effective configuration, and where each value comes from
    Config(ConfigTask),
    /// Checks a configuration file and reports each fault with its line and a correction; or checks a store's
    /// file
    Check(CheckTask),
    /// Tests claims about servers and queues on this machine, with the program nighttrain-lab
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
    /// Sends a sample mail to demo@localhost every few seconds, so that arriving mail can be watched
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
    /// Runs in front of a small slow site that is part of the program, to demonstrate an accelerator
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
    after_help = "Users, permissions and accounts come from a nats-server configuration file: -c FILE, --nats-config FILE."
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
    /// Prints JSON with stable names
    #[arg(long)]
    pub json: bool,
    /// Shows the contents of a store's file instead; no server may be using it
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Shows instead how much of a store's file is in the page cache, even while a server uses it
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
    /// Time between two frames
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Duration,
    /// Ends after this many frames; by default when the server is gone
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
    after_help = "Filters: status >= 500 and url ~ \"^/api\"   time.first_byte > 0.5   kind == mail   cache != \
                  hit\nEnds with Ctrl-C, or with the server, and then prints how many records were lost."
)]
pub(crate) struct LogTask {
    /// Shows records that match an expression in the language of bans, such as 'status >= 500 and url ~
    /// "^/api"'; default: all
    pub filter: Option<String>,
    /// Prints JSON with stable names, one object per line
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Format of a line: common, combined, or a template such as '{status} {time.done} {url}'
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Shows each request together with its fetches from origins; the group is shown if the filter matches
    /// any of its records
    #[arg(long)]
    pub group: bool,
    /// Ends after this many records
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// Parses the interval between frames: from 100 ms, because faster polling would itself show in the numbers,
/// to one hour.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    if allowed.contains(&interval) { Ok(interval) } else { Err("from 100ms to 1h".to_owned()) }
}

/// `nighttrain purge`
#[derive(Debug, Args)]
pub(crate) struct PurgeTask {
    #[arg(
        help = "URL as visitors request it, such as http://www.example.org/news",
        required_unless_present_any = ["tags", "ban", "all", "list"],
        conflicts_with_all = ["tags", "ban", "all", "list"]
    )]
    pub url: Option<String>,
    #[arg(
        long,
        value_name = "EXPRESSION",
        conflicts_with_all = ["tags", "all", "list"],
        help = "Condition on objects to purge, such as 'req.http.host == example.org && req.url ~ ^/news'"
    )]
    pub ban: Option<String>,
    #[arg(long, conflicts_with_all = ["tags", "all", "soft"], help = "Lists the bans, and purges nothing")]
    pub list: bool,
    #[arg(long = "tag", value_name = "TAG", help = "Tag from the origin's answer; may be repeated")]
    pub tags: Vec<String>,
    #[arg(long, conflicts_with = "tags", help = "Everything")]
    pub all: bool,
    #[arg(
        long,
        conflicts_with_all = ["local", "list"],
        help = "Waits until every accelerator of the cluster has applied the purge, and prints the state of each"
    )]
    pub everywhere: bool,
    #[arg(
        long,
        conflicts_with = "list",
        help = "Purges on this accelerator only, not on others of the cluster"
    )]
    pub local: bool,
    #[arg(
        long,
        help = "Soft purge: objects become stale and stay, to be served while they are refreshed, or revalidated"
    )]
    pub soft: bool,
    #[command(flatten)]
    pub config: ConfigFile,
    #[command(flatten)]
    pub settings: AdminFlags,
}

/// `nighttrain explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainTask {
    /// The URL as visitors request it, with its scheme
    pub url: String,
    /// A header of the request, as curl takes it; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// The method of the request
    #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// Prints JSON with stable names
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
    /// Lists objects that match an expression as in a ban, such as 'req.url ~ ^/news && obj.status == 200';
    /// default: all
    pub expression: Option<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
    /// Prints JSON with stable names
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
    /// A server as it is configured, such as http://10.0.0.1:3000
    #[arg(requires = "set")]
    pub server: Option<String>,
    /// drain: only visitors bound to it by their cookie; down: no requests; auto: decided by its health
    #[arg(long, value_name = "STATE", value_parser = ["drain", "down", "auto"], requires = "server")]
    pub set: Option<String>,
    /// Prints JSON with stable names
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
    /// Prints the configuration as a file
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
    /// The configuration to check: one of nighttrain's, or one of nats-server's (*.conf)
    #[arg(value_name = "FILE", required_unless_present_any = ["store", "config"], conflicts_with_all = ["store", "config"])]
    pub file: Option<PathBuf>,
    /// A configuration of nighttrain's, whatever its extension
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    pub config: Option<PathBuf>,
    /// A store's file to check, every byte of it; no server may be using it
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// `nighttrain lab`: all further arguments go to the program `nighttrain-lab` unchanged.
#[derive(Debug, Args)]
pub(crate) struct LabTask {
    /// `list` shows the experiments, `all` runs them, names run those experiments; `--help` explains more
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
    /// Directory for the pages; must exist, such as share/man/man1
    pub directory: PathBuf,
}

/// `--config`
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// The configuration file, in TOML [env: NIGHTTRAIN_CONFIG=]
    #[arg(long, value_name = "FILE", help_heading = COMMON.heading)]
    pub config: Option<PathBuf>,
}

impl ConfigFile {
    /// Returns the file that the flag or the environment names.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| std::env::var_os("NIGHTTRAIN_CONFIG").map(PathBuf::from))
    }
}

/// Settings that `cache` takes as flags.
#[derive(Debug)]
pub(crate) struct CacheFlags(pub Flags);

/// Settings that `feed` takes as flags.
#[derive(Debug)]
pub(crate) struct FeedFlags(pub Flags);

/// Settings that `mail` takes as flags.
#[derive(Debug)]
pub(crate) struct MailFlags(pub Flags);

/// Settings of commands that talk to the admin server.
#[derive(Debug)]
pub(crate) struct AdminFlags(pub Flags);

/// Settings that `serve` takes as flags: those that its servers share.
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
                .hide_short_help([LIMITS, FEED_LIMITS, MAIL_LIMITS].iter().any(|limits| limits.has(setting)))
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
