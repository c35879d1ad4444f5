#![allow(clippy::disallowed_methods, reason = "a test waits, on no loop")]

use std::{net::Ipv4Addr, path::Path, thread::JoinHandle, time::Duration};

use engine::cores::clock;
use tokio::sync::watch;

use super::*;
use crate::{
    mailbox::{
        mailboxes::{MailId, Mailboxes, Scope},
        twin::{Retention, Twin},
    },
    search::{Query, text_of},
    web::{
        Config,
        serve::{app::App, client::Client},
    },
};

/// Timeout that is enough for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running indexer, with one app that searches with the index and one without.
struct Site {
    twin: Twin,
    index: Arc<Index>,
    counters: Arc<Counters>,
    with: App<Twin>,
    without: App<Twin>,
    stop: watch::Sender<bool>,
    feeding: Option<JoinHandle<()>>,
}

fn twin() -> Twin {
    let retention = Retention { per_inbox_max: 100_000, ..Retention::default() };
    Twin::new(retention, "night.test")
}

impl Site {
    fn open(twin: &Twin, directory: &Path) -> Self {
        Self::of(twin, IndexLocation { directory: directory.to_owned(), store: 7, mails_min: 0 })
    }

    fn of(twin: &Twin, at: IndexLocation) -> Self {
        let counters = Arc::new(Counters::new());
        let index = Arc::new(Index::open(at, Arc::clone(&counters)).unwrap());
        let (stop, stopping) = watch::channel(false);
        let feeding = Some(start(Arc::clone(&index), twin.clone(), stopping.clone()).unwrap());
        let app = |index| {
            let config = Config { domain: "night.test".to_owned(), ..Config::default() };
            let here = (Ipv4Addr::LOCALHOST, 0).into();
            App::counted(twin.clone(), config, here, stopping.clone(), index, Arc::clone(&counters))
        };
        let (with, without) = (app(Some(Arc::clone(&index))), app(None));
        Self { twin: twin.clone(), index, counters, with, without, stop, feeding }
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.counters.now(counter)
    }

    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = clock::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: not in time");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until all stored mails are indexed.
    #[track_caller]
    fn assert_indexed(&self) {
        let stored = run(self.twin.count(&Scope::All)).unwrap();
        self.until("indexed", |site| {
            site.counted(Counter::IndexPending) == 0
                && site.counted(Counter::IndexMails) >= stored
                && site.index.state.lock().is_complete
        });
    }

    /// Searches with and without the index, and asserts that both return the same mails.
    #[track_caller]
    fn finds(&self, scope: &Scope, text: &str) -> Vec<MailId> {
        let query = Query::parse(text).unwrap();
        let here = Client::of(httpd::Client(Ipv4Addr::LOCALHOST.into()));
        let ids = |app: &App<Twin>| {
            let mut ids = Vec::new();
            let mut from = None;
            loop {
                let Ok(found) = run(app.search(here, scope, &query, from, 7)) else { panic!("{text}") };
                ids.extend(found.mails.iter().map(|mail| mail.id));
                from = found.next;
                if from.is_none() {
                    ids.sort_unstable();
                    return ids;
                }
            }
        };
        let (with, without) = (ids(&self.with), ids(&self.without));
        assert_eq!(with, without, "{text}");
        with
    }

    fn close(mut self) {
        self.stop.send(true).unwrap();
        self.feeding.take().unwrap().join().unwrap();
    }
}

fn run<T>(question: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(question)
}

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn word(&mut self) -> String {
        const SYLLABLES: [&str; 14] =
            ["ka", "ro", "Zü", "ßen", "lo", "mét", "ri", "Ωm", "ta", "vel", "qu", "x", "ing", "日本"];
        (0..1 + self.below(4)).map(|_| SYLLABLES[self.below(SYLLABLES.len())]).collect()
    }

    fn words(&mut self, count: usize) -> String {
        (0..count).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

fn deliver(twin: &Twin, numbers: &mut Numbers, n: usize) {
    let (subject, body) = (numbers.words(4), numbers.words(60));
    let raw = match n % 4 {
        0 => format!(
            "From: \"{}\" <{n}@a.test>\r\nTo: x <y{n}@z.test>\r\nSubject: {subject}\r\n\r\n{body}\r\n",
            numbers.word()
        ),
        1 => format!(
            "From: b@a.test\r\nCc: carbon{n}@z.test\r\nMessage-ID: <m{n}@id.test>\r\nSubject: s\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>{body}<a href=\"https://{n}.link.test/?q={n}\">{subject}</a>\r\n"
        ),
        2 => format!(
            "From: c@a.test\r\nSubject: =?utf-8?B?U3RyYcOfZQ==?= {n}\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n{body}\r\n--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=\"file{n}.pdf\"\r\n\r\nx\r\n--b--\r\n"
        ),
        _ => format!("X-Campaign: {subject}\r\n\r\n{body}"),
    };
    let to: Vec<String> = (0..1 + n % 3).map(|k| format!("inbox{}x{k}", n % 17)).collect();
    twin.deliver_at(clock::unix_ms() + n as u64 % 5, &format!("bounce{n}@s.test"), &to, raw.as_bytes())
        .unwrap();
}

/// A search with the index finds everything that a full scan finds.
#[test]
fn every_hit_of_a_scan_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let (twin, mut numbers) = (twin(), Numbers(3));
    for n in 0..150 {
        deliver(&twin, &mut numbers, n);
    }
    let site = Site::open(&twin, directory.path());
    site.assert_indexed();
    for n in 150..200 {
        deliver(&twin, &mut numbers, n);
    }
    // Some mails are indexed, others are still pending.
    let letters = run(twin.list(&Scope::All, 0, 1000)).unwrap();
    assert_eq!(letters.len(), 200);
    let mut hits = 0;
    for round in 0..150 {
        let mail = run(twin.mail(letters[numbers.below(letters.len())].id)).unwrap().unwrap();
        // A random substring of the mail's searchable text.
        let text: Vec<char> = text_of(&mail).chars().filter(|letter| *letter != '"').collect();
        let from = numbers.below(text.len().saturating_sub(12).max(1));
        let piece: String = text[from..(from + 3 + numbers.below(9)).min(text.len())].iter().collect();
        let piece = piece.trim().to_owned();
        if piece.is_empty() || piece.contains('\n') {
            continue;
        }
        let scope = match round % 5 {
            0 => Scope::of("inbox3*@night.test", "night.test").unwrap(),
            1 => Scope::of("*@night.test", "night.test").unwrap(),
            _ => Scope::All,
        };
        hits += site.finds(&scope, &format!("\"{piece}\"")).len();
        if round == 40 {
            site.assert_indexed();
        }
    }
    assert!(hits > 100, "{hits} hits prove little");
    for (text, found) in [
        ("strasse", 50),
        ("from:bounce7@s.test", 1),
        ("to:inbox4x0", 12),
        ("cc:carbon9@z", 1),
        ("message-id:m13@id", 1),
        ("file22.pdf", 1),
        ("https://5.link.test/?q=5", 1),
        ("x-campaign", 50),
        ("nothing-has-this-at-all", 0),
        ("-strasse larger:1", 150),
    ] {
        assert_eq!(site.finds(&Scope::All, text).len(), found, "{text}");
    }
    assert!(site.counted(Counter::IndexAsked) > 100);
    site.close();
}

#[test]
fn the_index_survives_restarts_and_repairs_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (twin, mut numbers) = (twin(), Numbers(4));
    for n in 0..60 {
        deliver(&twin, &mut numbers, n);
    }
    let site = Site::open(&twin, directory.path());
    site.assert_indexed();
    site.close();
    let files = || -> Vec<PathBuf> {
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    assert!(!files().is_empty());
    let site = Site::open(&twin, directory.path());
    assert_eq!(site.counted(Counter::IndexMails), 60, "nothing was read again");
    site.assert_indexed();
    assert_eq!(site.finds(&Scope::All, "file22.pdf").len(), 1);
    assert_eq!(site.counted(Counter::IndexDamaged), 0);
    site.close();

    // A flipped bit in the rows is noticed when the row is read.
    for file in files() {
        let mut bytes = fs::read(&file).unwrap();
        let to = bytes.len() - 2000;
        bytes[100..to].iter_mut().for_each(|byte| *byte ^= 4);
        fs::write(&file, bytes).unwrap();
    }
    let site = Site::open(&twin, directory.path());
    site.assert_indexed();
    assert_eq!(site.finds(&Scope::All, "file22.pdf").len(), 1);
    assert!(site.counted(Counter::IndexDamaged) > 0);
    site.assert_indexed();
    assert_eq!(site.finds(&Scope::All, "file26.pdf").len(), 1);
    site.close();

    // A file that is truncated, belongs to another store or is not a segment is detected at the start.
    for file in files() {
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    }
    fs::write(directory.path().join("999.sheet"), b"what is this").unwrap();
    fs::write(directory.path().join("998.part"), b"half").unwrap();
    fs::write(directory.path().join("README"), b"not ours").unwrap();
    let site = Site::open(&twin, directory.path());
    assert!(site.counted(Counter::IndexDamaged) > 1);
    site.assert_indexed();
    assert_eq!(site.finds(&Scope::All, "file22.pdf").len(), 1);
    assert!(directory.path().join("README").exists() && !directory.path().join("998.part").exists());
    site.close();
}

/// Segments of the previous version are used for their mails, and removed once all of these are indexed
/// again. After a stop in between nothing is indexed twice.
#[test]
fn an_outdated_index_answers_until_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (twin, mut numbers) = (twin(), Numbers(6));
    for n in 0..60 {
        deliver(&twin, &mut numbers, n);
    }
    let site = Site::open(&twin, directory.path());
    site.assert_indexed();
    site.close();
    let mut outdated = Vec::new();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        segment::make_outdated(&path, 7);
        outdated.push(fs::read(&path).unwrap());
    }
    assert!(!outdated.is_empty());

    // With so few mails nothing is indexed: the segments of the previous version are the whole index.
    let at = IndexLocation { directory: directory.path().to_owned(), store: 7, mails_min: u64::MAX };
    let site = Site::of(&twin, at);
    site.until("gone through", |site| site.index.state.lock().is_complete);
    deliver(&twin, &mut numbers, 62);
    assert_eq!((site.counted(Counter::IndexMails), site.counted(Counter::IndexDamaged)), (0, 0));
    for (word, found) in [("file22.pdf", 1), ("file62.pdf", 1), ("nowhere-at-all", 0)] {
        assert_eq!(site.finds(&Scope::All, word).len(), found, "{word}");
        let candidates = site.index.candidates([word].into_iter(), &[], None, 100).unwrap();
        assert!(candidates.mails.len() < 10, "{word}: {} candidates", candidates.mails.len());
    }
    site.close();

    let only_current = |site: &Site| !site.index.state.lock().sheets.iter().any(|sheet| sheet.is_outdated());
    let site = Site::open(&twin, directory.path());
    site.assert_indexed();
    site.until("replaced", only_current);
    assert_eq!(site.finds(&Scope::All, "file22.pdf").len(), 1);
    site.close();
    let versions = || -> Vec<u8> {
        let files = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| fs::read(path).unwrap()[8]).collect()
    };
    assert!(versions().iter().all(|version| *version == 2), "{:?}", versions());

    // After a stop before the removal nothing is indexed twice.
    for (n, bytes) in outdated.iter().enumerate() {
        fs::write(directory.path().join(format!("{}.sheet", 900 + n)), bytes).unwrap();
    }
    let site = Site::open(&twin, directory.path());
    site.assert_indexed();
    site.until("removed", only_current);
    assert_eq!((site.counted(Counter::IndexMails), site.counted(Counter::IndexDamaged)), (61, 0));
    assert_eq!(site.finds(&Scope::All, "file22.pdf").len(), 1);
    site.close();
    assert!(versions().iter().all(|version| *version == 2), "{:?}", versions());
}

#[test]
fn deleted_mails_leave_and_full_segments_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let (twin, mut numbers) = (twin(), Numbers(5));
    let begun_ms = clock::unix_ms();
    for n in 0..1100 {
        let to = [if n % 10 < 7 { "away" } else { "kept" }.to_owned()];
        // The mails have so many grams that columns are high, and a segment has only a few.
        let body: String = (0..5000).map(|_| char::from(b'!' + numbers.below(90) as u8)).collect();
        let raw = format!("Subject: number {n}\r\n\r\n{body}\r\n");
        twin.deliver_at(begun_ms + n, "a@b.test", &to, raw.as_bytes()).unwrap();
    }
    let site = Site::open(&twin, directory.path());
    site.assert_indexed();
    let sheets = site.index.state.lock().sheets.len();
    assert!(sheets > 0, "a sheet was filled");
    let share = site.counted(Counter::IndexBytes) * 100 / twin.totals().stored_bytes;
    assert!(share <= 15, "{share}% of the mails");
    // One deletion: after several, the last may be too few to be cleared away.
    run(twin.delete_all(&Scope::of("away", "night.test").unwrap())).unwrap();
    site.until("cleared away", |site| {
        site.index.state.lock().sheets.iter().map(|sheet| sheet.mails()).sum::<usize>() < 400
    });
    assert_eq!(site.finds(&Scope::All, "\"number 1007\"").len(), 1);
    assert_eq!(site.finds(&Scope::All, "\"number 1006\"").len(), 0);
    site.until("the replaced files are removed", |site| {
        let files = fs::read_dir(directory.path()).unwrap();
        let on_disk: u64 = files.filter_map(|file| file.unwrap().metadata().ok()).map(|of| of.len()).sum();
        on_disk == site.index.state.lock().sheets.iter().map(|sheet| sheet.bytes).sum::<u64>()
    });
    site.close();
}

#[test]
fn an_unwritable_disk_costs_no_search_hit() {
    let directory = tempfile::tempdir().unwrap();
    let (twin, mut numbers) = (twin(), Numbers(6));
    for n in 0..60 {
        deliver(&twin, &mut numbers, n);
    }
    let place = directory.path().join("index");
    let site = Site::open(&twin, &place);
    site.assert_indexed();
    fs::remove_dir_all(&place).unwrap();
    fs::write(&place, b"no directory").unwrap();
    // A search also finds the mails if a full segment cannot be written.
    assert_eq!(site.finds(&Scope::All, "file22.pdf").len(), 1);
    let counters = Arc::clone(&site.counters);
    site.close();
    assert!(counters.now(Counter::IndexNotWritten) > 0);
    assert!(Index::open(IndexLocation::new(place, 1), counters).is_err());
}
