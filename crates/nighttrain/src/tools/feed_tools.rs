//! `nighttrain feed pub`, `sub` and `bench`: clients for any NATS server.

use std::{
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use wire::nats::stamp::SIZE_MIN;

use crate::{
    console::{print, print_at_once},
    failure::Failure,
    tools::{
        lab,
        nats::{
            bench::{self, Outcome, Plan, THREADS_MAX},
            client::{Client, Message},
            target::Target,
        },
    },
};

/// Interval at which `sub` checks whether it should end, and at which the progress bar moves.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum size of a text that is read from stdin and published.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Number of points of the latency curve. They are at 1 − 10^−x for equal steps of x, the usual scale of a
/// percentile plot.
const CURVE_STEPS: usize = 48;
const CURVE_END: f64 = 6.0;
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("worst", 1.0)];

/// A command of the client tools.
#[derive(Debug, Subcommand)]
pub(crate) enum FeedTool {
    /// Publishes one message: TEXT, or the text from stdin
    Pub(PubTool),
    /// Shows the messages of a subject as they arrive
    Sub(SubTool),
    /// Measures a server: producers, and consumers that verify every message
    Bench(BenchTool),
}

/// Server and credentials of the client.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server: nats://HOST:PORT, nats://USER:PASSWORD@HOST:PORT, nats://TOKEN@HOST:PORT, tls://HOST:PORT
    #[arg(
        long,
        value_name = "URL",
        default_value = "nats://127.0.0.1:4222",
        env = "NIGHTTRAIN_FEED_URL",
        hide_env_values = true
    )]
    pub url: Target,
    /// A file with the seed of the nkey to log in with (SU…)
    #[arg(long, value_name = "FILE")]
    pub nkey: Option<PathBuf>,
    /// CA certificates to trust for the server (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
}

/// `nighttrain feed pub`
#[derive(Debug, Args)]
pub(crate) struct PubTool {
    /// The subject
    pub subject: String,
    /// The message; default: stdin
    pub text: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `nighttrain feed sub`
#[derive(Debug, Args)]
pub(crate) struct SubTool {
    /// The subject: `orders.*` matches one token, `orders.>` all below
    pub subject: String,
    /// Shares the messages with the other members of this queue group
    #[arg(long, value_name = "GROUP")]
    pub queue: Option<String>,
    /// Ends after this many messages
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `nighttrain feed bench`
#[derive(Debug, Args)]
pub(crate) struct BenchTool {
    /// Messages in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub messages: u64,
    /// Bytes of each payload
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub size: usize,
    /// Number of producers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub producers: usize,
    /// Number of consumers; each receives every message
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub consumers: usize,
    /// Messages per second in all, each due at a fixed time, to measure latency; default: measures throughput
    #[arg(long, value_name = "N")]
    pub rate: Option<u64>,
    /// Prefix of the subjects
    #[arg(long, value_name = "SUBJECT", default_value = "nighttrain.bench")]
    pub subject: String,
    /// Prints JSON with stable names
    #[arg(long)]
    pub json: bool,
    /// Writes a self-contained page with a plot of the latencies
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Runs the command.
pub(crate) fn perform(tool: &FeedTool) -> Result<(), Failure> {
    match tool {
        FeedTool::Pub(tool) => publish(tool),
        FeedTool::Sub(tool) => subscribe(tool),
        FeedTool::Bench(tool) => measure(tool),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

impl ServerArgs {
    fn target(&self) -> Result<Target, Failure> {
        let mut target = self.url.clone();
        target.ca_file.clone_from(&self.tls_ca);
        if let Some(path) = &self.nkey {
            let seed = std::fs::read_to_string(path)
                .map_err(|error| failed(format!("cannot read {}: {error}", path.display())))?;
            target.seed = Some(seed.trim().to_owned());
        }
        Ok(target)
    }
}

fn publish(tool: &PubTool) -> Result<(), Failure> {
    if !wire::nats::subject::is_valid_literal(tool.subject.as_bytes()) {
        return Err(Failure::Usage(format!(
            "invalid subject `{}` to publish to: expected words separated by dots, without blanks and wildcards",
            tool.subject
        )));
    }
    let mut client = Client::connect(&tool.server.target()?, "nighttrain feed pub").map_err(failed)?;
    let mut payload = Vec::new();
    match &tool.text {
        Some(text) => payload.extend_from_slice(text.as_bytes()),
        None => {
            io::stdin()
                .lock()
                .take(TEXT_BYTES_MAX)
                .read_to_end(&mut payload)
                .map_err(|error| failed(format!("cannot read stdin: {error}")))?;
        }
    }
    let most = client.info().max_payload;
    if most > 0 && payload.len() > most {
        let bytes = payload.len();
        return Err(failed(format!(
            "the message has {bytes} bytes, more than the server's max_payload ({most})"
        )));
    }
    client.publish(tool.subject.as_bytes(), b"", &payload).map_err(failed)?;
    client.confirm().map_err(failed)
}

fn subscribe(tool: &SubTool) -> Result<(), Failure> {
    if !wire::nats::subject::is_valid_pattern(tool.subject.as_bytes()) {
        return Err(Failure::Usage(format!(
            "invalid subject `{}` to subscribe to: expected words separated by dots; `*` matches one, `>` all that \
             follow",
            tool.subject
        )));
    }
    let mut client = Client::connect(&tool.server.target()?, "nighttrain feed sub").map_err(failed)?;
    client.subscribe(tool.subject.as_bytes(), tool.queue.as_deref().unwrap_or_default().as_bytes(), b"1");
    client.confirm().map_err(failed)?;
    let for_people = io::stdout().is_terminal();
    if for_people {
        print(&format!("Listening on {}. Ctrl-C stops.\n", tool.subject))?;
    }
    let mut left = tool.count.unwrap_or(u64::MAX);
    let mut shown = Vec::new();
    while left > 0 {
        client
            .receive(LOOK_EVERY, |message| {
                if left > 0 {
                    left -= 1;
                    if for_people {
                        for_a_terminal(&mut shown, message);
                    } else {
                        shown.extend_from_slice(message.payload);
                        shown.push(b'\n');
                    }
                }
            })
            .map_err(failed)?;
        let printed = print_at_once(&shown);
        if !printed.map_err(|error| failed(format!("cannot write to stdout: {error}")))? {
            return Ok(());
        }
        shown.clear();
    }
    Ok(())
}

/// Writes time and subject in a dim colour, then the text. Control characters that a terminal would obey are
/// shown as `·`.
fn for_a_terminal(out: &mut Vec<u8>, message: Message<'_>) {
    let clean = |bytes: &[u8]| -> String {
        let text = String::from_utf8_lossy(bytes);
        text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '·' } else { c }).collect()
    };
    let seconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    let time = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let quiet = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (dim, bold, plain) = if quiet { ("\x1b[2m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
    let (subject, text) = (clean(message.subject), clean(message.payload));
    out.extend_from_slice(format!("{dim}{time}{plain} {bold}{subject}{plain}").as_bytes());
    if !message.reply.is_empty() {
        out.extend_from_slice(format!(" {dim}reply to {}{plain}", clean(message.reply)).as_bytes());
    }
    // A header consists of its status line and fields, one per line.
    for field in clean(message.header).lines().skip(1).filter(|field| !field.is_empty()) {
        out.extend_from_slice(format!("\n  {dim}{field}{plain}").as_bytes());
    }
    out.extend_from_slice(format!("\n  {text}\n").as_bytes());
}

fn measure(tool: &BenchTool) -> Result<(), Failure> {
    let usage = |message: String| Err(Failure::Usage(message));
    if tool.size < SIZE_MIN {
        return usage(format!(
            "--size must be at least {SIZE_MIN}: a message carries its number, its time and a checksum"
        ));
    }
    if tool.messages == 0 || tool.rate == Some(0) {
        return usage("--messages and --rate must be above zero".to_owned());
    }
    if tool.producers == 0 || tool.producers > THREADS_MAX || tool.consumers > THREADS_MAX {
        return usage(format!("--producers must be 1 to {THREADS_MAX}, --consumers 0 to {THREADS_MAX}"));
    }
    if !wire::nats::subject::is_valid_literal(tool.subject.as_bytes()) {
        return usage(format!("invalid subject `{}`: wildcards are not allowed", tool.subject));
    }
    // A unique subject keeps the messages of simultaneous runs apart.
    let run = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let plan = Plan {
        target: tool.server.target()?,
        messages: tool.messages,
        size: tool.size,
        producers: tool.producers,
        consumers: tool.consumers,
        rate: tool.rate,
        subject: format!("{}.{:x}", tool.subject, run ^ u128::from(std::process::id())),
    };
    let running = bench::start(plan).map_err(failed)?;
    let bar = bar();
    while !running.is_finished() {
        let [published, received] = running.progress();
        let (done, of) = if tool.consumers > 0 { received } else { published };
        bar.set_length(of);
        bar.set_position(done);
        std::thread::sleep(LOOK_EVERY);
    }
    bar.finish_and_clear();
    let outcome = running.finish().map_err(failed)?;
    if let Some(file) = &tool.html {
        draw(tool, &outcome, file)?;
    }
    if tool.json {
        print(&format!("{:#}\n", as_json(tool, &outcome)))?;
    } else {
        print(&as_text(tool, &outcome))?;
    }
    if outcome.is_intact() {
        Ok(())
    } else {
        Err(Failure::Failed(format!(
            "not every message arrived as it was sent: {} lost, {} out of order, {} damaged",
            outcome.lost, outcome.out_of_order, outcome.damaged
        )))
    }
}

fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} {per_sec} {eta}") {
        bar.set_style(style);
    }
    bar
}

fn per_second(count: u64, elapsed: Duration) -> u64 {
    if elapsed.is_zero() { 0 } else { (count as f64 / elapsed.as_secs_f64()) as u64 }
}

fn as_json(tool: &BenchTool, outcome: &Outcome) -> serde_json::Value {
    let mut value = json!({
        "url": tool.server.url.to_string(),
        "messages": tool.messages,
        "size": tool.size,
        "producers": tool.producers,
        "consumers": tool.consumers,
        "rate": tool.rate,
        "published": outcome.published,
        "received": outcome.received,
        "lost": outcome.lost,
        "out_of_order": outcome.out_of_order,
        "damaged": outcome.damaged,
        "seconds": outcome.elapsed.as_secs_f64(),
        "published_per_second": per_second(outcome.published, outcome.elapsed),
        "received_per_second": per_second(outcome.received, outcome.elapsed),
    });
    if let Some(latency) = &outcome.latency {
        let values = latency.quantiles(QUANTILES.map(|(_, quantile)| quantile));
        let named =
            QUANTILES.iter().zip(values).map(|((name, _), ns)| ((*name).to_owned(), json!(ns as f64 / 1e3)));
        value["latency_us"] = serde_json::Value::Object(named.collect());
    }
    value
}

/// Returns a line with the parameters of the run, and whether every message arrived intact.
fn title(tool: &BenchTool, outcome: &Outcome) -> String {
    format!(
        "{} → {}, {} bytes, {} producers, {} consumers: {}",
        tool.subject,
        tool.server.url,
        tool.size,
        tool.producers,
        tool.consumers,
        if outcome.is_intact() { "every message verified" } else { "NOT INTACT" }
    )
}

/// Returns the counts as rows: a name, a number, a rate.
fn rows(outcome: &Outcome) -> Vec<[String; 3]> {
    let counted = |name: &str, count: u64, rate: String| [name.to_owned(), grouped(count), rate];
    let rate = |count| grouped(per_second(count, outcome.elapsed));
    let mut rows = vec![
        counted("published", outcome.published, rate(outcome.published)),
        counted("received", outcome.received, rate(outcome.received)),
    ];
    let faults =
        [("lost", outcome.lost), ("out of order", outcome.out_of_order), ("damaged", outcome.damaged)];
    rows.extend(
        faults
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| counted(name, *count, String::new())),
    );
    if let Some(latency) = &outcome.latency {
        let values = latency.quantiles(QUANTILES.map(|(_, quantile)| quantile));
        rows.extend(QUANTILES.iter().zip(values).map(|((name, _), ns)| {
            [format!("latency {name}, µs"), format!("{:.1}", ns as f64 / 1e3), String::new()]
        }));
    }
    rows
}

/// Formats the rows as a table with numbers aligned on the right.
fn as_text(tool: &BenchTool, outcome: &Outcome) -> String {
    let mut rows = rows(outcome);
    rows.insert(0, [String::new(), "count".to_owned(), "1/s".to_owned()]);
    let [name, count, rate] =
        [0, 1, 2].map(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0));
    let mut text = title(tool, outcome);
    for [a, b, c] in &rows {
        let line = format!("  {a:<name$}  {b:>count$}  {c:>rate$}");
        text.push('\n');
        text.push_str(line.trim_end());
    }
    text.push('\n');
    text
}

/// Formats a whole number with commas: `1,234,567`.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Writes the page: a percentile plot if latency was measured, and the table. The lab draws the plot.
fn draw(tool: &BenchTool, outcome: &Outcome, file: &Path) -> Result<(), Failure> {
    let curve: Option<Vec<(f64, f64)>> = outcome.latency.as_ref().map(|latency| {
        let nines: [f64; CURVE_STEPS] =
            std::array::from_fn(|step| CURVE_END * step as f64 / (CURVE_STEPS - 1) as f64);
        // Quantiles finer than one message in the total have no data.
        let most = (latency.count().max(1) as f64).log10();
        let values = latency.quantiles(nines.map(|nines| 1.0 - 10f64.powf(-nines)));
        let points = nines.iter().zip(values).filter(|(nines, _)| **nines <= most);
        points.map(|(&nines, ns)| (nines, (ns as f64 / 1e3).max(1.0))).collect()
    });
    let rate = tool.rate.map_or_else(String::new, |rate| format!(" --rate {rate}"));
    let repeat = format!(
        "nighttrain feed bench --url {} --messages {} --size {} --producers {} --consumers {}{rate} --html bench.html",
        tool.server.url, tool.messages, tool.size, tool.producers, tool.consumers
    );
    let measured = json!({
        "title": title(tool, outcome),
        "rows": rows(outcome),
        "latency_us_by_nines": curve,
        "nines_max": CURVE_END,
        "repeat": repeat,
    });
    let arguments = ["feed-bench-page".into(), file.as_os_str().to_owned()];
    lab::run(&arguments, measured.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_shown_no_commands() {
        let mut out = Vec::new();
        let message = Message {
            subject: b"a",
            reply: b"",
            header: b"NATS/1.0\r\nK: v\r\n\r\n",
            payload: b"x\x1b[2Jy\nz",
        };
        for_a_terminal(&mut out, message);
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("x·[2Jy\nz") && text.contains("K: v"), "{text:?}");
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        let texts = [0, 999, 1_000, 46_077_574, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "46,077,574", "1,234,567"]);
    }
}
