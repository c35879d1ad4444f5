//! Attacks every port while honest clients work: `siege run`, `siege attack --feed HOST:PORT …`.

use std::{
    io::Read as _,
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use tests::siege::{
    Part, Target, Until,
    attacks::{self, ATTACKS},
    honest::{self, KINDS, Met},
    origin::Origin,
    peers::Peer,
    server::{self, Server},
};

const USAGE: &str = "\
siege: attackers of every port at once, and honest clients beside them

  siege run [--seconds 60] [--pairs 9] [--peers 3] [--only NAME]…
                                                         against `nighttrain serve` with default limits: memory beside the
                                                         sum of bounds that `nighttrain check` prints, what was lost,
                                                         which limits were hit, and how long honest clients wait
                                                         beside the attackers and beside a program that only burns as
                                                         much of the processors, in turn; then, as often as --peers
                                                         says, the feed and nats-server, the accelerator and Varnish,
                                                         each alone and beside the attackers of its part, in turn
  siege attack --seconds 60 [--only NAME]… [--cache|--feed|--monitor|--smtp|--pages|--admin HOST:PORT]…
                                                         the attackers alone, against whatever listens there
  siege against --pid PID --seconds 60 [--only NAME]… [--feed|--smtp|… HOST:PORT]…
                                                         the same beside honest clients, against a server that runs
                                                         already: its memory, and how long they wait
  siege list                                             what they do
";

/// Time that work for a client may continue after the client has left: a render takes up to 2 s on a shared
/// processor, and several may be queued.
const LEFT: Duration = Duration::from_secs(10);
/// Time for which threads are watched after `LEFT`.
const BUSY_LOOK: Duration = Duration::from_secs(2);
/// Threads that work only on behalf of clients.
const AT_ONES_WISH: [&str; 3] = ["mail-help", "mail-search", "mail-web"];
/// Interval between two samples of the server's memory.
const LOOK: Duration = Duration::from_millis(100);

struct Arguments {
    seconds: u64,
    pairs: usize,
    /// Rounds against peers, the servers that ours is compared with.
    peers: usize,
    only: Vec<String>,
    target: Target,
    /// Process id of the server that `against` attacks.
    pid: u32,
    /// Processor seconds per second that `burn` uses.
    load: f64,
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut all = Arguments {
        seconds: 60,
        pairs: 9,
        peers: 3,
        only: Vec::new(),
        target: Target::default(),
        pid: 0,
        load: 0.0,
    };
    while let Some(name) = given.next() {
        let value = given.next().ok_or_else(|| format!("{name} needs a value"))?;
        let wrong = || format!("{name} {value}: not what {name} takes");
        match name.as_str() {
            "--seconds" => all.seconds = value.parse().map_err(|_| wrong())?,
            "--pairs" => all.pairs = value.parse().map_err(|_| wrong())?,
            "--peers" => all.peers = value.parse().map_err(|_| wrong())?,
            "--pid" => all.pid = value.parse().map_err(|_| wrong())?,
            "--load" => all.load = value.parse().map_err(|_| wrong())?,
            "--only" if ATTACKS.iter().any(|attack| attack.name == value) => all.only.push(value),
            _ => {
                let part = name.strip_prefix("--").unwrap_or_default();
                let mut parts = all.target.parts();
                let (_, place) = parts.iter_mut().find(|(its, _)| *its == part).ok_or_else(wrong)?;
                **place = Some(value.parse().map_err(|_| wrong())?);
            }
        }
    }
    Ok(all)
}

fn main() -> ExitCode {
    let mut given = std::env::args().skip(1);
    let command = given.next().unwrap_or_default();
    let all = match arguments(given) {
        Ok(all) => all,
        Err(wrong) => {
            eprintln!("siege: {wrong}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // Needed for the crowds of attackers and for the origin's connections.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the hard limit");
    match command.as_str() {
        "list" => ATTACKS.iter().for_each(|attack| println!("{:<16} {}", attack.name, attack.tries)),
        "attack" => attack(&all),
        "burn" => burn(&all),
        "against" => match against(&all) {
            Ok(true) => {}
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("siege: {error}");
                return ExitCode::FAILURE;
            }
        },
        "run" => match run(&all) {
            Ok(true) => {}
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("siege: {error}");
                return ExitCode::FAILURE;
            }
        },
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn attack(all: &Arguments) {
    println!(
        "{:<16} {:>9} {:>9} {:>9} {:>11} {:>10} {:>10}",
        "attack", "opened", "refused", "ended", "MiB taken", "lived ms", "longest"
    );
    for (name, tally) in attacks::run(&all.target, &Until::after(Duration::from_secs(all.seconds)), &all.only)
    {
        let mib = tally.bytes as f64 / f64::from(1 << 20);
        let lived_ms = tally.lived_ms / tally.ended.max(1);
        println!(
            "{name:<16} {:>9} {:>9} {:>9} {mib:>11.1} {lived_ms:>10} {:>10}",
            tally.opened, tally.refused, tally.ended, tally.longest_ms
        );
    }
}

/// Uses as much processor time as the attackers did, and attacks nothing: the control of the experiment.
fn burn(all: &Arguments) {
    let until = Until::after(Duration::from_secs(all.seconds));
    let threads = all.load.ceil().max(1.0);
    let share = all.load / threads;
    thread::scope(|scope| {
        for _ in 0..threads as usize {
            scope.spawn(|| {
                while !until.is_over() {
                    let start = std::time::Instant::now();
                    while start.elapsed() < Duration::from_millis(10).mul_f64(share) {
                        std::hint::spin_loop();
                    }
                    thread::sleep(Duration::from_millis(10).mul_f64((1.0 - share).max(0.01)));
                }
            });
        }
    });
}

/// Starts this program again, to attack or to burn.
fn other(command: &str, all: &Arguments, target: Option<&Target>, load: f64) -> Child {
    let mut other = Command::new(std::env::current_exe().expect("a process knows its own file"));
    other.arg(command).args(["--seconds", &all.seconds.to_string(), "--load", &load.to_string()]);
    if let Some(target) = target {
        let mut target = *target;
        for (part, address) in target.parts() {
            if let Some(address) = address {
                other.args([format!("--{part}"), address.to_string()]);
            }
        }
        for name in &all.only {
            other.args(["--only", name]);
        }
    }
    other.stdout(Stdio::piped()).spawn().expect("this program can be started")
}

/// Results of each kind of honest client.
type AllMet = [(&'static str, Met); KINDS.len()];

/// Results of one spell: honest clients beside another process.
struct Spell {
    met: AllMet,
    memory_bytes: u64,
    /// Sum of the memory bounds that the program promises.
    promised_bytes: u64,
    /// Event streams that the origin still has open although no client listens.
    open_streams: usize,
    hit: Vec<(String, f64)>,
    said: String,
    load: f64,
    /// Render and search threads that still work although no client waits.
    busy: Vec<String>,
}

/// Runs honest clients beside another process. Returns the clients' results, the highest memory use sampled
/// meanwhile, and the other process's output.
fn beside_honest(
    all: &Arguments,
    beside: &str,
    target: &Target,
    load: f64,
    memory: impl Fn() -> u64,
) -> Result<(AllMet, u64, String), String> {
    let mut process =
        (beside != "nobody").then(|| other(beside, all, (beside == "attack").then_some(target), load));
    let until = Until::after(Duration::from_secs(all.seconds));
    let (met, memory_bytes) = thread::scope(|scope| {
        let honest = scope.spawn(|| honest::run(target, &until));
        let mut memory_bytes = 0;
        while !honest.is_finished() {
            memory_bytes = memory_bytes.max(memory());
            thread::sleep(LOOK);
        }
        (honest.join().expect("no panic"), memory_bytes)
    });
    let mut said = String::new();
    if let Some(mut process) = process.take() {
        let heard = process.stdout.take().expect("piped").read_to_string(&mut said);
        let ended = process.wait();
        heard.and(ended).map_err(|error| error.to_string())?;
    }
    Ok((met, memory_bytes, said))
}

/// Attacks a server that was started elsewhere, and returns whether it still runs.
fn against(all: &Arguments) -> Result<bool, String> {
    let memory = || server::memory_bytes(all.pid);
    let (met, memory_bytes, said) = beside_honest(all, "attack", &all.target, 0.0, memory)?;
    println!("{said}");
    show(&met, memory_bytes);
    let runs = memory() > 0;
    println!("  it {}", if runs { "runs" } else { "has ended" });
    Ok(runs)
}

fn spell(all: &Arguments, origin: &Origin, beside: &str, load: f64) -> Result<Spell, String> {
    let mut server = Server::start(origin);
    let before = server.counters()?;
    let cpu_before = children_cpu();
    let target = server.target;
    let (met, memory_bytes, said) = beside_honest(all, beside, &target, load, || server.memory_bytes())?;
    let load = (children_cpu() - cpu_before) / all.seconds as f64;
    // All clients have left. Work begun for them may continue for `LEFT`, and must have ended then.
    thread::sleep(LEFT);
    let busy = server.busy_threads(BUSY_LOOK);
    let busy = busy.into_iter().filter(|thread| AT_ONES_WISH.iter().any(|name| thread.starts_with(name)));
    let busy = busy.collect();
    let open_streams = origin.open_streams();
    if !server.is_running() {
        return Err("the server has ended".to_owned());
    }
    let after = server.counters()?;
    let is_limit = |name: &str| {
        [
            "refused", "denied", "limit", "slow", "held", "late", "evict", "lost", "banned", "timeout",
            "over", "cut",
        ]
        .iter()
        .any(|word| name.contains(word))
    };
    let hit = after
        .into_iter()
        .map(|(name, now)| (now - before.get(&name).copied().unwrap_or(0.0), name))
        .filter(|(more, name)| *more > 0.0 && is_limit(name) && !name.contains("_bucket"))
        .map(|(more, name)| (name, more))
        .collect();
    let promised_bytes = server.promised_bytes;
    Ok(Spell { met, memory_bytes, promised_bytes, open_streams, hit, said, load, busy })
}

/// Returns the processor seconds of the child processes that have been waited for.
fn children_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = |at: usize| {
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').nth(at);
        fields.and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0)
    };
    // cutime and cstime of proc(5), in hundredths of a second.
    (ticks(13) + ticks(14)) / 100.0
}

/// Returns the table's head.
fn head() -> String {
    let kinds: String = KINDS.iter().map(|kind| format!(" {kind:>20}")).collect();
    format!("pair  memory MiB  burned{kinds}\n")
}

/// Returns a pair's row of the table.
fn row(pair: usize, under_siege: &Spell, beside_burner: &Spell) -> String {
    let ms = |met: &Met| met.quantile_us(0.99) as f64 / 1000.0;
    let mut row = format!("{pair:>4} {:>11} {:>7.2}", under_siege.memory_bytes >> 20, under_siege.load);
    for ((_, under), (_, beside)) in under_siege.met.iter().zip(&beside_burner.met) {
        row += &format!(" {:>9.1} / {:>8.1}", ms(under), ms(beside));
    }
    row + "\n"
}

/// Waits of a part's honest clients at one server: alone, and beside the attackers of that part.
struct Beside {
    name: &'static str,
    alone: AllMet,
    attacked: AllMet,
    memory_bytes: u64,
}

/// Measures our server and its peer, one after the other, under the attacks of a part. `None`: the peer is
/// not installed.
fn beside_peer(all: &Arguments, origin: &Origin, part: Part) -> Result<Option<[Beside; 2]>, String> {
    let peer = match Peer::start(part, origin) {
        Ok(peer) => peer,
        Err(why) => {
            println!("{why}");
            return Ok(None);
        }
    };
    let (alone, ..) = beside_honest(all, "nobody", &peer.target, 0.0, || 0)?;
    let memory = || peer.memory_bytes();
    let (attacked, memory_bytes, said) = beside_honest(all, "attack", &peer.target, 0.0, memory)?;
    println!("{}: the attackers\n{said}", peer.name);
    let theirs = Beside { name: peer.name, alone, attacked, memory_bytes };
    drop(peer);
    let mut server = Server::start(origin);
    let target = server.target.only(part);
    let (alone, ..) = beside_honest(all, "nobody", &target, 0.0, || 0)?;
    let (attacked, memory_bytes, said) =
        beside_honest(all, "attack", &target, 0.0, || server.memory_bytes())?;
    println!("nighttrain: the same attackers\n{said}");
    if !server.is_running() {
        return Err("the server has ended".to_owned());
    }
    Ok(Some([Beside { name: "nighttrain", alone, attacked, memory_bytes }, theirs]))
}

/// Compares each part with its peer, and says where the peer's honest clients waited less. That is no
/// failure: waits depend on the machine, and the peer may have disconnected attackers that ours still serves.
fn beside_peers(all: &Arguments, origin: &Origin) -> Result<(), String> {
    for (part, kinds) in [(Part::Feed, ["messages", "flow"]), (Part::Cache, ["pages", "passes"])] {
        let mut p99: [[Vec<u64>; 2]; 2] = Default::default();
        for round in 1..=all.peers {
            let Some(both) = beside_peer(all, origin, part)? else { break };
            println!("round {round}, p50 / p99 in ms, alone and beside the attackers of this part");
            for (server, p99) in both.iter().zip(&mut p99) {
                for (kind, p99) in kinds.iter().zip(p99) {
                    let of = |met: &AllMet| {
                        let (_, met) = met.iter().find(|(its, _)| its == kind).expect("a kind");
                        let ms = |share| met.quantile_us(share) as f64 / 1000.0;
                        let text = format!("{:.2} / {:.2}", ms(0.5), ms(0.99));
                        (text, met.quantile_us(0.99), met.failed, met.lost, met.waits_us.len())
                    };
                    let ((alone, ..), (attacked, us, failed, lost, in_time)) =
                        (of(&server.alone), of(&server.attacked));
                    println!(
                        "  {:<12} {kind:<9} {alone:>18} {attacked:>20}; {in_time} in time, {failed} failed, {lost} lost, \
                         memory at most {} MiB",
                        server.name,
                        server.memory_bytes >> 20
                    );
                    // A server that answers no client in time counts as the slowest.
                    p99.push(if in_time > 0 { us } else { u64::MAX });
                }
            }
        }
        for (at, kind) in kinds.into_iter().enumerate() {
            let median = |server: usize| {
                let mut all = p99[server][at].clone();
                all.sort_unstable();
                all.get(all.len() / 2).copied()
            };
            let (Some(ours), Some(theirs)) = (median(0), median(1)) else { continue };
            let verdict = if ours <= theirs { "met" } else { "not met" };
            let ms = |us: u64| us as f64 / 1000.0;
            println!(
                "{kind}: p99 beside the attackers {:.2} ms, the peer's {:.2} ms: {verdict}",
                ms(ours),
                ms(theirs)
            );
        }
    }
    Ok(())
}

/// Runs all pairs, and returns whether every bound held.
fn run(all: &Arguments) -> Result<bool, String> {
    let origin = Origin::start();
    let mut ratios: [Vec<f64>; KINDS.len()] = Default::default();
    let mut to_echoes = ratios.clone();
    let mut failed = Vec::new();
    let mut table = String::new();
    for pair in 1..=all.pairs.max(1) {
        let under_siege = spell(all, &origin, "attack", 0.0)?;
        println!("pair {pair}: the attackers\n{}", under_siege.said);
        show(&under_siege.met, under_siege.memory_bytes);
        under_siege.hit.iter().for_each(|(name, more)| println!("  {more:>12} {name}"));
        if under_siege.memory_bytes > under_siege.promised_bytes {
            failed.push(format!(
                "pair {pair}: {} MiB of memory, where `nighttrain check` says {} MiB",
                under_siege.memory_bytes >> 20,
                under_siege.promised_bytes >> 20
            ));
        }
        if under_siege.open_streams > 0 {
            failed.push(format!(
                "pair {pair}: {} event streams of clients that have gone are held at the origin",
                under_siege.open_streams
            ));
        }
        for thread in &under_siege.busy {
            failed.push(format!("pair {pair}: {thread} works for nobody"));
        }
        for (kind, met) in &under_siege.met {
            if met.lost > 0 {
                failed.push(format!("pair {pair}: {} {kind} were lost", met.lost));
            }
        }
        if all.pairs == 0 {
            break;
        }
        let beside_burner = spell(all, &origin, "burn", under_siege.load)?;
        println!("pair {pair}: beside who burns {:.2} processors", under_siege.load);
        show(&beside_burner.met, beside_burner.memory_bytes);
        for ((ratios, (_, under)), (_, beside)) in
            ratios.iter_mut().zip(&under_siege.met).zip(&beside_burner.met)
        {
            ratios.push(under.quantile_us(0.99) as f64 / (beside.quantile_us(0.99) as f64).max(1.0));
        }
        let us = |met: &Met| (met.quantile_us(0.99) as f64).max(1.0);
        let [.., (_, echoes)] = &under_siege.met;
        for (ratios, (_, met)) in to_echoes.iter_mut().zip(&under_siege.met) {
            ratios.push(us(met) / us(echoes));
        }
        table += &row(pair, &under_siege, &beside_burner);
    }
    if all.pairs > 0 {
        beside_peers(all, &origin)?;
    }
    if !table.is_empty() {
        println!("honest p99, ms: beside the attackers / beside the burner\n{}{table}", head());
    }
    let median = |mut ratios: Vec<f64>| {
        ratios.sort_unstable_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    };
    for ((kind, ratios), to_echoes) in KINDS.into_iter().zip(ratios).zip(to_echoes) {
        let pairs = ratios.len();
        if let (Some(median), Some(to_echoes)) = (median(ratios), median(to_echoes)) {
            println!(
                "{kind}: p99 under siege {median:.2} times as long, {to_echoes:.2} times an echo's; medians of {pairs} pairs"
            );
            // Echoes do not pass through our server, so we promise nothing for them.
            if median > 2.0 && kind != "echoes" {
                failed.push(format!("{kind}: p99 {median:.2} times as long"));
            }
        }
    }
    failed.iter().for_each(|failed| println!("not held: {failed}"));
    Ok(failed.is_empty())
}

fn show(met: &AllMet, memory_bytes: u64) {
    println!("  memory at most {} MiB", memory_bytes >> 20);
    for (kind, met) in met {
        println!(
            "  {kind:<9} {:>6} in time, p50 {:>7} µs, p99 {:>8} µs, worst {:>8} µs; {} failed, {} lost",
            met.waits_us.len(),
            met.quantile_us(0.5),
            met.quantile_us(0.99),
            met.quantile_us(1.0),
            met.failed,
            met.lost
        );
    }
}
