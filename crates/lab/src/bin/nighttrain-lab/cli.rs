//! Command line of `nighttrain lab`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use humantime::parse_duration;
use lab::costs;

/// Costs of the simulated memory and of the queues in it (`nighttrain lab bheap-sim`)
#[derive(Debug, Args)]
pub(crate) struct CostFlags {
    /// Pages of memory: a single size instead of all
    #[arg(long, value_name = "PAGES", help_heading = "Costs in bheap-sim")]
    pub memory_pages: Option<usize>,
    /// Time to read a page: 10ms, 80us
    #[arg(long, value_name = "TIME", value_parser = costs::seconds, help_heading = "Costs in bheap-sim")]
    pub page_read: Option<f64>,
    /// Time to write a page
    #[arg(long, value_name = "TIME", value_parser = costs::seconds, help_heading = "Costs in bheap-sim")]
    pub page_write: Option<f64>,
    /// CPU time per operation: `article`, `measured`, or times of binary heap,B-heap[,page queue]
    #[arg(long, value_name = "TIMES", help_heading = "Costs in bheap-sim")]
    pub cpu: Option<costs::Cpu>,
    /// Cost of a page's first touch: `free`, or `charged` as a read
    #[arg(long, value_name = "HOW", help_heading = "Costs in bheap-sim")]
    pub first_touch: Option<costs::FirstTouch>,
}

/// Tests claims about servers and queues on this machine
#[derive(Debug, Parser)]
#[command(
    name = "nighttrain-lab",
    // The program is started by `nighttrain lab`, which is the command that people type.
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
    /// `list` shows the experiments, `all` runs them, names run those experiments
    #[arg(value_name = "list | all | NAME")]
    pub names: Vec<String>,
    /// Limits each experiment to 30 seconds
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub shown: DisplayOptions,
    /// Writes each claim with its verdict and an explanation, as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Varies the experiment's sizes instead of using only the article's
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
    /// Runs only this part of an experiment that has parts, for instance `ram` of queue-beyond
    #[arg(long, value_name = "PART")]
    pub part: Option<String>,
    #[command(flatten)]
    pub costs: CostFlags,
    /// Directory for an experiment's large files while it runs
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Output formats of a report.
#[derive(Debug, Args)]
pub(crate) struct DisplayOptions {
    /// Prints JSON with stable names
    #[arg(long)]
    pub json: bool,
    /// Writes a self-contained page with the figures drawn
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Disables colour on a terminal, as NO_COLOR in the environment does
    #[arg(long)]
    pub no_color: bool,
}

/// Instruments of the lab, which work with any server.
#[derive(Debug, Subcommand)]
pub(crate) enum LabTool {
    /// Loads a server at a fixed rate, and measures from when each request was due
    Load(LoadTask),
    /// Runs a program on one core, on two, and on more, and draws its performance
    Cores(CoresTask),
    /// Reports what changed beyond noise between two records (JSON of the lab or of a benchmark)
    Compare(CompareTask),
    /// Draws the page for `nighttrain feed bench --html`, from data on standard input
    #[command(hide = true)]
    FeedBenchPage {
        /// File of the page
        file: PathBuf,
    },
}

/// `nighttrain lab load`
#[derive(Debug, Args)]
pub(crate) struct LoadTask {
    /// http://…, https://…, h2://… (HTTP/2), h2c://… (without TLS), nats://HOST, smtp://HOST/RECIPIENT or tcp://HOST:PORT (an echo)
    pub url: String,
    /// Requests per second; with --sweep, the first rate
    #[arg(long, value_name = "PER SECOND", default_value_t = 1000.0)]
    pub rate: f64,
    /// Due times of requests: at equal intervals, or random as from independent visitors
    #[arg(long, value_enum, default_value_t = ArrivalsChoice::Constant)]
    pub arrivals: ArrivalsChoice,
    /// Seed of the random times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Connections, which are opened before the start
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub connections: usize,
    /// Requests under way at once on a connection of h2:// or h2c:// [default: 10]
    #[arg(long, value_name = "N")]
    pub streams: Option<usize>,
    /// Time during which requests become due
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Warm-up at the same rate before that, which is not counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub warm_up: Duration,
    /// Searches the highest rate that keeps the bound
    #[arg(long)]
    pub sweep: bool,
    /// Bound of --sweep: percentage of the requests that must be answered within --at-most
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    pub percentile: f64,
    /// Bound of --sweep: maximum time from when a request is due until it is answered
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    pub at_most: Duration,
    /// Bytes of an echo (tcp://), a message (nats://) or a mail (smtp://)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub bytes: usize,
    /// Accepts any certificate (https://, h2://)
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
    /// A shell command that puts load on the program; the program is ended after it
    #[arg(long, value_name = "COMMAND")]
    pub load: Option<String>,
    /// Takes the first number after this text in the output (of the load, if there is one) as the figure,
    /// instead of the run time
    #[arg(long, value_name = "TEXT")]
    pub figure: Option<String>,
    /// Number of runs under each placement; placements alternate
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Wait before the load begins
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
    /// Compares records even if they are from different machines
    #[arg(long)]
    pub any_machine: bool,
    /// Prints JSON with stable names
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
