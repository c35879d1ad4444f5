//! The command line of `nighttrain lab`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use humantime::parse_duration;
use lab::experiments::bheap_sim::costs;

/// What the simulated memory and the queues in it cost (`nighttrain lab bheap-sim`)
#[derive(Debug, Args)]
pub(crate) struct CostFlags {
    /// Pages of memory, one size instead of all
    #[arg(long, value_name = "PAGES", help_heading = "Costs in bheap-sim")]
    pub memory_pages: Option<usize>,
    /// Time that reading a page takes: 10ms, 80us
    #[arg(long, value_name = "TIME", value_parser = costs::seconds, help_heading = "Costs in bheap-sim")]
    pub page_read: Option<f64>,
    /// Time that writing a page takes
    #[arg(long, value_name = "TIME", value_parser = costs::seconds, help_heading = "Costs in bheap-sim")]
    pub page_write: Option<f64>,
    /// CPU time of an operation: `article`, `measured`, or those of binary heap,B-heap[,page queue]
    #[arg(long, value_name = "TIMES", help_heading = "Costs in bheap-sim")]
    pub cpu: Option<costs::Cpu>,
    /// Whether a page's first touch costs a read: `free` or `charged`
    #[arg(long, value_name = "HOW", help_heading = "Costs in bheap-sim")]
    pub first_touch: Option<costs::FirstTouch>,
}

/// Puts claims about servers and queues to the test on this machine
#[derive(Debug, Parser)]
#[command(
    name = "nighttrain-lab",
    // It is started by `nighttrain`, and that is what people type.
    bin_name = "nighttrain lab",
    version,
    max_term_width = 100,
    after_help = "An experiment prints the claim, the published figure, ours, and a verdict: holds, holds with \
                        another figure, does not hold here, cannot be tested here, or too noisy to say.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct LabTask {
    #[command(subcommand)]
    pub tool: Option<Box<LabTool>>,
    /// `list` shows the experiments, `all` runs them, names run those
    #[arg(value_name = "list | all | NAME")]
    pub names: Vec<String>,
    /// At most 30 seconds an experiment
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub shown: DisplayOptions,
    /// Writes each claim with its verdict, and in words why, as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Goes through the experiment's sizes instead of taking the article's alone
    #[arg(long)]
    pub sweep: bool,
    /// Items in a queue, for experiments with queues
    #[arg(long, value_name = "N")]
    pub items: Option<usize>,
    /// Bytes in a page, for experiments with pages: a power of two
    #[arg(long, value_name = "BYTES")]
    pub page_bytes: Option<usize>,
    /// Bytes in an item, for experiments with items: 4, 8 or 16
    #[arg(long, value_name = "BYTES")]
    pub item_bytes: Option<usize>,
    /// Only this part of an experiment that has parts, for instance `ram` of queue-beyond
    #[arg(long, value_name = "PART")]
    pub part: Option<String>,
    #[command(flatten)]
    pub costs: CostFlags,
    /// Where an experiment's large files go while it runs
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// How a report is read.
#[derive(Debug, Args)]
pub(crate) struct DisplayOptions {
    /// Prints JSON, whose names stay
    #[arg(long)]
    pub json: bool,
    /// Writes a page with the figures drawn, which stands alone
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No colour on a terminal; NO_COLOR in the environment says the same
    #[arg(long)]
    pub no_color: bool,
}

/// The lab's instruments, for anyone's server.
#[derive(Debug, Subcommand)]
pub(crate) enum LabTool {
    /// Loads a server at a rate that it does not set, and measures from when each request was due
    Load(LoadTask),
    /// Runs a program on one core, on two, on more, and draws how it fares
    Cores(CoresTask),
    /// Says what changed beyond noise between two records (JSON of the lab or of a benchmark)
    Compare(CompareTask),
    /// Draws what `nighttrain feed bench --html` hands over on standard input
    #[command(hide = true)]
    FeedBenchPage {
        /// Where to
        file: PathBuf,
    },
}

/// `nighttrain lab load`
#[derive(Debug, Args)]
pub(crate) struct LoadTask {
    /// http://…, https://…, h2://… (HTTP/2), h2c://… (without TLS), nats://HOST, smtp://HOST/RECIPIENT or tcp://HOST:PORT (an echo)
    pub url: String,
    /// Requests a second; with --sweep, where to begin
    #[arg(long, value_name = "PER SECOND", default_value_t = 1000.0)]
    pub rate: f64,
    /// When requests are due: at equal distances, or as from visitors who do not know of each other
    #[arg(long, value_enum, default_value_t = ArrivalsChoice::Constant)]
    pub arrivals: ArrivalsChoice,
    /// Of the random times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Connections, opened before the start
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub connections: usize,
    /// Requests under way at once on a connection of h2:// or h2c:// [default: 10]
    #[arg(long, value_name = "N")]
    pub streams: Option<usize>,
    /// How long requests become due
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
    /// At the same rate before that, and not counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub warm_up: Duration,
    /// Looks for the highest rate that keeps the bound
    #[arg(long)]
    pub sweep: bool,
    /// The bound of --sweep: so many percent …
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    pub percentile: f64,
    /// … are answered within this time from when they were due
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    pub at_most: Duration,
    /// Bytes of an echo (tcp://), a message (nats://) or a mail (smtp://)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub bytes: usize,
    /// Takes any certificate (https://, h2://)
    #[arg(long)]
    pub insecure: bool,
    /// Writes PREFIX.corrected.hgrm, PREFIX.uncorrected.hgrm and PREFIX.hlog for HdrHistogram's tools
    #[arg(long, value_name = "PREFIX", conflicts_with = "sweep")]
    pub hgrm: Option<PathBuf>,
    #[command(flatten)]
    pub shown: DisplayOptions,
}

/// [`lab::load::Arrivals`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ArrivalsChoice {
    Constant,
    Poisson,
}

impl From<ArrivalsChoice> for lab::load::Arrivals {
    fn from(choice: ArrivalsChoice) -> Self {
        match choice {
            ArrivalsChoice::Constant => Self::Constant,
            ArrivalsChoice::Poisson => Self::Poisson,
        }
    }
}

/// `nighttrain lab cores`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nighttrain lab cores -- ./compute\n  \
    nighttrain lab cores --load 'wrk -d5 http://127.0.0.1:8080/' --figure Requests/sec: -- ./server --port 8080")]
pub(crate) struct CoresTask {
    /// A shell command that loads the program while it runs; the program is ended after it
    #[arg(long, value_name = "COMMAND")]
    pub load: Option<String>,
    /// Takes the first number after this text in the output (of the load, if there is one), not the seconds
    #[arg(long, value_name = "TEXT")]
    pub figure: Option<String>,
    /// Times that each placement is tried, in turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// How long the program is given before its load begins
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub settle: Duration,
    #[command(flatten)]
    pub shown: DisplayOptions,
    /// The program with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `nighttrain lab compare`
#[derive(Debug, Args)]
pub(crate) struct CompareTask {
    /// The earlier record
    pub before: PathBuf,
    /// The later record
    pub after: PathBuf,
    /// Compares records of different machines, too
    #[arg(long)]
    pub any_machine: bool,
    /// Prints JSON, whose names stay
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn clap_finds_no_fault() {
        super::LabTask::command().debug_assert();
    }
}
