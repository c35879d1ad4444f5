//! `nighttrain log`: reads the journal of a running server from its shared memory, and prints it.
//!
//! The server does not know its readers; it only sees whether any reader holds a lease. A reader that is too
//! slow loses records and reports how many.

use std::{
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use engine::journal::{JournalAddress, JournalReader, LEASE_MAX, Lease, OpenError};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use wire::{
    filter::{Expression, Fault},
    transaction::{
        FIELDS, FieldId, Fields, Record,
        show::{Format, LineCache},
    },
};

use super::groups::{RequestGroup, RequestGroups};
use crate::{
    admin::client,
    cli::LogTask,
    console::print_at_once,
    failure::{Failure, failed},
    settings::Settings,
};

/// Pause when there is no record.
const PAUSE: Duration = Duration::from_millis(10);
/// Interval of lease renewals.
const RENEW_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of records that are read from one ring before the next ring.
const BATCH: usize = 1000;
/// Number of bytes that are collected before a write.
const OUT_BYTES: usize = 64 << 10;

/// A parsed log request.
struct LogQuery {
    filter: Option<Expression<FieldId>>,
    format: Format,
    is_grouped: bool,
    limit: u64,
}

impl LogQuery {
    fn of(task: &LogTask) -> Result<Self, Failure> {
        let not_understood = |what: &str, fault: &Fault, text: &str| {
            Failure::Usage(format!(
                "invalid {what}, at byte {}:\n{}",
                fault.at,
                fault.marked(text.as_bytes())
            ))
        };
        let filter = task.filter.as_deref().map(|text| {
            Expression::parse(text.as_bytes(), &FIELDS)
                .map_err(|fault| not_understood("filter", &fault, text))
        });
        let format = match &task.format {
            _ if task.json => Format::Json,
            None => Format::Line,
            Some(text) => Format::parse(text).map_err(|fault| not_understood("format", &fault, text))?,
        };
        if task.group && matches!(format, Format::Common | Format::Combined) {
            let message =
                "common and combined show client requests only: there is nothing to group with them";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(Self {
            filter: filter.transpose()?,
            format,
            is_grouped: task.group,
            limit: task.limit.unwrap_or(u64::MAX),
        })
    }

    fn matches(&self, record: Record<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(&Fields::of(record)))
    }
}

/// Prints records until a signal arrives, the server ends, or stdout is closed.
pub(crate) fn log(settings: &Settings, task: &LogTask) -> Result<(), Failure> {
    let wanted = LogQuery::of(task)?;
    let opened = client::journal(settings)?;
    let server = Server::of(opened)?;
    let (reader, lease) = opened.open().map_err(|error| cannot_open(opened, &error))?;
    let leasing = LeaseThread::start(lease).map_err(failed("cannot read the log"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("cannot wait for signals"))?;
    let mut printer = Printer::new(wanted);
    let ended = runtime.block_on(print_all(reader, &server, &mut printer));
    let (lost, shown) = ended.map_err(failed("cannot write to stdout"))?;
    let lapsed = leasing.lapsed_s();
    let mut said = format!("{shown} shown, {lost} lost\n");
    if lapsed > 0 {
        said.push_str(&format!("reader paused for {lapsed} s, in which nothing was logged for it\n"));
    }
    // An error is ignored: if stderr is gone, there is no reader.
    _ = io::stderr().write_all(said.as_bytes());
    Ok(())
}

fn cannot_open(opened: JournalAddress, error: &OpenError) -> Failure {
    let pid = opened.pid;
    let hint = match error {
        OpenError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            ": the process belongs to another user; run this as that user, or as root"
        }
        OpenError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            ": the process is on another machine, or in another container; run this there"
        }
        _ => "",
    };
    Failure::Failed(format!("cannot read the log of process {pid}: {error}{hint}"))
}

/// The process that owns the journal.
struct Server(OwnedFd);

impl Server {
    fn of(opened: JournalAddress) -> Result<Self, Failure> {
        let pid = i32::try_from(opened.pid).ok().and_then(Pid::from_raw);
        let process = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match process {
            Some(Ok(process)) => Ok(Self(process)),
            _ => Err(cannot_open(opened, &OpenError::Io(io::ErrorKind::NotFound.into()))),
        }
    }

    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut polled, Some(&at_once)), Ok(1..))
    }
}

/// Thread that renews the reader's lease. It is separate because a reader that waits for a slow terminal must
/// keep its lease.
struct LeaseThread {
    is_over: Arc<AtomicBool>,
    lapsed_ms: Arc<AtomicU64>,
}

impl LeaseThread {
    fn start(lease: Lease) -> io::Result<Self> {
        let (is_over, lapsed_ms) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, lapsed) = (Arc::clone(&is_over), Arc::clone(&lapsed_ms));
        std::thread::Builder::new().name("lease".to_owned()).spawn(move || {
            let mut renewed = Instant::now();
            while !over.load(Ordering::Relaxed) {
                lease.renew();
                let passed = renewed.elapsed();
                if passed > LEASE_MAX {
                    lapsed
                        .fetch_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
                }
                renewed = Instant::now();
                std::thread::sleep(RENEW_EVERY);
            }
        })?;
        Ok(Self { is_over, lapsed_ms })
    }

    /// Returns for how many seconds the lease had lapsed because this process was stopped.
    fn lapsed_s(&self) -> u64 {
        self.lapsed_ms.load(Ordering::Relaxed) / 1000
    }
}

impl Drop for LeaseThread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Reads and prints until there is a reason to stop; returns the number of lost and of shown records.
async fn print_all(
    mut reader: JournalReader,
    server: &Server,
    printer: &mut Printer,
) -> io::Result<(u64, u64)> {
    let mut stops = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .map(signal)
        .into_iter()
        .collect::<io::Result<Vec<Signal>>>()?;
    let mut record = Vec::new();
    loop {
        let has_ended = server.has_ended();
        let read = reader.read(&mut record, BATCH, |bytes| printer.take(bytes));
        if has_ended && read == 0 {
            printer.finish();
        } else {
            printer.show_overdue();
        }
        if !printer.flush()? || printer.is_done() || (has_ended && read == 0) {
            return Ok((reader.lost(), printer.shown));
        }
        let wait = if read == 0 { PAUSE } else { Duration::ZERO };
        let stopped = std::future::poll_fn(|cx| {
            let is_told = stops.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if is_told { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        if tokio::time::timeout(wait, stopped).await.is_ok() {
            printer.finish();
            printer.flush()?;
            return Ok((reader.lost(), printer.shown));
        }
    }
}

/// Filters, groups and formats records.
struct Printer {
    wanted: LogQuery,
    groups: RequestGroups,
    recent: LineCache,
    out: Vec<u8>,
    shown: u64,
    is_closed: bool,
}

impl Printer {
    fn new(wanted: LogQuery) -> Self {
        Self {
            wanted,
            groups: RequestGroups::default(),
            recent: LineCache::default(),
            out: Vec::new(),
            shown: 0,
            is_closed: false,
        }
    }

    /// Returns whether the output is closed or the limit is reached.
    fn is_done(&self) -> bool {
        self.is_closed || self.shown >= self.wanted.limit
    }

    fn take(&mut self, bytes: &[u8]) {
        let Some(record) = Record::read(bytes).filter(|_| !self.is_done()) else { return };
        if self.wanted.is_grouped {
            let whole = self.groups.take(&record, bytes, Instant::now());
            whole.iter().for_each(|group| self.show(group));
        } else if self.wanted.matches(record)
            && self.wanted.format.append(&record, &mut self.recent, &mut self.out)
        {
            self.shown += 1;
        }
        if self.out.len() >= OUT_BYTES && !self.flush().unwrap_or(false) {
            self.is_closed = true;
        }
    }

    fn show_overdue(&mut self) {
        let overdue = self.groups.overdue(Some(Instant::now()));
        overdue.iter().for_each(|group| self.show(group));
    }

    fn finish(&mut self) {
        let left = self.groups.overdue(None);
        left.iter().for_each(|group| self.show(group));
    }

    /// Shows a group if any of its records matches the filter.
    fn show(&mut self, group: &RequestGroup) {
        let records = || group.client.iter().chain(&group.origins).filter_map(|bytes| Record::read(bytes));
        if self.is_done() || !records().any(|record| self.wanted.matches(record)) {
            return;
        }
        self.shown += 1;
        let Self { wanted, recent, out, .. } = self;
        if wanted.format == Format::Json && group.client.is_some() {
            return nested(records(), recent, out);
        }
        for (at, record) in records().enumerate() {
            if wanted.format == Format::Line && at > 0 {
                out.extend_from_slice(b"  ");
            }
            wanted.format.append(&record, recent, out);
        }
    }

    /// Writes the collected output; returns false if stdout is closed.
    fn flush(&mut self) -> io::Result<bool> {
        if !print_at_once(&self.out)? {
            return Ok(false);
        }
        self.out.clear();
        Ok(!self.is_closed)
    }
}

/// Writes the client's record as a JSON object that contains its origins' records.
fn nested<'a>(mut records: impl Iterator<Item = Record<'a>>, recent: &mut LineCache, out: &mut Vec<u8>) {
    let Some(client) = records.next() else { return };
    Format::Json.append(&client, recent, out);
    // Removes the closing brace and the newline.
    out.truncate(out.len() - 2);
    out.extend_from_slice(b",\"origins\":[");
    for (at, record) in records.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        Format::Json.append(&record, recent, out);
        out.pop();
    }
    out.extend_from_slice(b"]}\n");
}
