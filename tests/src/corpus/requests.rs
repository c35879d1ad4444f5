//! Requests that two parsers may read in two ways. Each gets one answer, the origin gets at most the requests
//! that the row allows, and a request sent after it gets its own answer or none.

use super::{
    CaseResult, each,
    origins::{Kind, Real},
    table::{Row, unescaped},
};
use crate::{Accelerator, Answer, Client, End, Request, ScriptedOrigin, origin::Seen};

/// Expectation of a row.
struct Expected {
    statuses: Vec<u16>,
    keeps: bool,
    /// Requests that the origin gets; `None`: it may see the beginning of the refused one.
    asked: Option<Vec<String>>,
}

impl Expected {
    fn of(row: &Row) -> Result<Self, String> {
        let words: Vec<&str> = row.one('=').split_whitespace().collect();
        let (end, statuses) = words.split_last().ok_or("no expectation")?;
        let statuses: Result<Vec<u16>, _> = statuses.iter().map(|status| status.parse()).collect();
        let keeps = match *end {
            "keep" => true,
            "close" => false,
            other => return Err(format!("{other:?} is neither keep nor close")),
        };
        let is_part = row.one('~') == "part";
        let asked = (!is_part).then(|| row.all('~').map(str::to_owned).collect());
        Ok(Self { statuses: statuses.map_err(|error| error.to_string())?, keeps, asked })
    }
}

/// Origin behind the accelerator.
enum Behind {
    Scripted(ScriptedOrigin, usize),
    Real(Real),
}

impl Behind {
    /// Returns the requests that the origin has understood since the last call.
    fn understood(&mut self) -> Result<Vec<(String, Option<Seen>)>, String> {
        match self {
            Self::Scripted(origin, before) => {
                if let Some(nonsense) = origin.nonsense().first() {
                    return Err(format!("the origin was sent nonsense: {nonsense}"));
                }
                let all = origin.all_seen();
                let new = all[*before..].iter().map(|seen| (line(seen), Some(seen.clone()))).collect();
                *before = all.len();
                Ok(new)
            }
            Self::Real(origin) => Ok(origin.understood().into_iter().map(|line| (line, None)).collect()),
        }
    }
}

/// Returns a request in the notation of the table.
fn line(seen: &Seen) -> String {
    let Seen { method, target, body, .. } = seen;
    let host = seen.header("host").unwrap_or_default();
    format!("{method} {target} {host} {}", body.escape_ascii()).trim_end().to_owned()
}

fn scripted() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|seen, reply| {
        // Stored answers serve requests without a request to the origin, so only one path may be stored.
        let kept = if seen.path() == "/stored" { "max-age=600" } else { "no-store" };
        reply.answer(&Answer::new(200, line(seen)).header("Cache-Control", kept))
    });
    origin
}

/// Runs the table with one origin, `None` for the scripted one. Returns each row's result, or how it differs
/// from the expectation.
pub(super) fn run(rows: &[Row], kind: Option<Kind>) -> Vec<Result<CaseResult, String>> {
    let mut behind = match kind {
        None => Behind::Scripted(scripted(), 0),
        Some(kind) => Behind::Real(Real::start(kind)),
    };
    let url = match &behind {
        Behind::Scripted(origin, _) => origin.url(),
        Behind::Real(origin) => origin.url(),
    };
    before(
        &Accelerator::before(&url).start(),
        &mut behind,
        rows,
        kind.map_or("the scripted origin", Kind::name),
    )
}

/// Runs the table with HTTP/2 on the way to the scripted origin: the accelerator sends its requests to a
/// second accelerator over HTTP/2.
pub(super) fn run_over_http2(rows: &[Row]) -> Vec<Result<CaseResult, String>> {
    let mut behind = Behind::Scripted(scripted(), 0);
    let Behind::Scripted(origin, _) = &behind else { return Vec::new() };
    let inner = Accelerator::before(&origin.url()).flag("--name", "inner").start();
    let url = format!("http://{}", inner.address());
    let accelerator = Accelerator::before(&url).flag("--origin-protocol", "http2").start();
    let came = before(&accelerator, &mut behind, rows, "an origin of HTTP/2");
    assert!(inner.stat().count("requests.http2_received") > 0, "it is asked over HTTP/2");
    came
}

fn before(
    accelerator: &Accelerator,
    behind: &mut Behind,
    rows: &[Row],
    name: &str,
) -> Vec<Result<CaseResult, String>> {
    accelerator.get("/stored").expect_status(200);
    let first = behind.understood().map(|understood| understood.len());
    assert_eq!(first, Ok(1), "the one that is to be stored");
    each(rows, |row| {
        let came = row_before(accelerator, behind, row);
        if came.is_err() {
            // Requests left over from a failed row must not count for the next row.
            let _ = behind.understood();
        }
        came.map_err(|why| format!("before {name}: {why}"))
    })
}

fn row_before(accelerator: &Accelerator, behind: &mut Behind, row: &Row) -> Result<CaseResult, String> {
    let expected = Expected::of(row)?;
    let sent = row.wire('>');
    let next = format!("/next/{}", row.name);
    let is_scripted = matches!(behind, Behind::Scripted(..));
    let refused = || accelerator.stat().count("errors.bad_requests");
    let is_refused = is_scripted && matches!(expected.statuses.last(), Some(400 | 505)) && !expected.keeps;
    let refused_before = if is_refused { refused() } else { 0 };
    let mut client = accelerator.connect();
    // The request may be refused before all of it is sent.
    let _ = client.try_send(&[&sent[..], &Request::get(&next).bytes()].concat());
    let statuses = answers(&mut client, &sent, &expected);
    // A refusal is the accelerator's own. A request that is passed on may be refused by a third-party origin,
    // or answered in that program's own way.
    let is_ours = |status: u16| status >= 400;
    // An origin that does not need the body may answer before the fault in it has arrived.
    let is_early = !is_scripted && expected.asked.is_none();
    let as_expected = statuses.len() == expected.statuses.len()
        && statuses.iter().zip(&expected.statuses).all(|(is, expected)| {
            is == expected || is_early || !is_scripted && !is_ours(*expected) && *is >= 300
        });
    if !as_expected {
        return Err(format!("answered {statuses:?} and not {:?}", expected.statuses));
    }
    if is_refused && refused() != refused_before + 1 {
        return Err("it is not counted".to_owned());
    }
    let mut own = Vec::new();
    if expected.keeps {
        own.push((next.clone(), client.try_response("GET").map(|next| next.text())));
    } else {
        let (_, more) = client.until_closed();
        if !more.is_empty() {
            return Err(format!("something is said behind the last answer: {}", more.escape_ascii()));
        }
    }
    drop(client);
    // Other clients, over whatever connections to the origin exist now.
    for number in 0..2 {
        let target = format!("/other/{}/{number}", row.name);
        let mut other = accelerator.connect();
        other.send(&Request::get(&target).bytes());
        own.push((target, other.try_response("GET").map(|answer| answer.text())));
    }
    for (target, text) in &own {
        let want = format!("GET {target} site.test");
        if !text.as_ref().is_some_and(|text| text.starts_with(&want)) {
            return Err(format!("{target} is answered with {text:?}"));
        }
    }
    let understood = asked(behind, &own)?;
    let lines: Vec<String> = understood.iter().map(|(line, _)| line.clone()).collect();
    compare(behind, &expected, &lines)?;
    fields(row, &understood)?;
    let connection = if expected.keeps { "open" } else { "closed" };
    let statuses: Vec<String> = statuses.iter().map(u16::to_string).collect();
    Ok(CaseResult { answer: statuses.join(", "), connection: connection.to_owned(), effect: lines })
}

/// Reads the statuses of the answers, as many as are expected.
fn answers(client: &mut Client, sent: &[u8], expected: &Expected) -> Vec<u16> {
    let is_head = sent.starts_with(b"HEAD ");
    let mut statuses = Vec::new();
    for (number, status) in expected.statuses.iter().enumerate() {
        let method = if is_head && number == 0 && *status < 400 { "HEAD" } else { "GET" };
        let Some(answer) = client.try_response(method) else { break };
        statuses.extend((answer.end == End::Complete).then_some(answer.status()));
    }
    statuses
}

/// Returns the row's requests to the origin, without those of the clients that followed.
fn asked(
    behind: &mut Behind,
    own: &[(String, Option<String>)],
) -> Result<Vec<(String, Option<Seen>)>, String> {
    let mut understood = behind.understood()?;
    for (target, _) in own {
        let is_own = |(line, _): &(String, Option<Seen>)| line.split(' ').nth(1) == Some(target.as_str());
        let at = understood.iter().position(is_own);
        understood.remove(at.ok_or_else(|| format!("the origin was not asked for {target}"))?);
    }
    Ok(understood)
}

/// Checks that the origin got the requests of the row and no others.
fn compare(behind: &Behind, expected: &Expected, lines: &[String]) -> Result<(), String> {
    let wrong = |asked: &[String]| format!("the origin was asked {lines:?} and not {asked:?}");
    let Some(asked) = &expected.asked else {
        // At most the beginning of the refused request.
        let is_well = lines.len() <= usize::from(matches!(behind, Behind::Real(..)));
        return if is_well { Ok(()) } else { Err(wrong(&[])) };
    };
    match behind {
        Behind::Scripted(..) if lines == asked => Ok(()),
        Behind::Scripted(..) => Err(wrong(asked)),
        // A third-party origin may refuse a request before its program sees it, but it may see no others.
        Behind::Real(..) => {
            let begins = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
            let mut allowed: Vec<String> = asked.iter().map(|line| begins(line)).collect();
            let is_well = lines.iter().all(|line| {
                let at = allowed.iter().position(|allowed| same_target(allowed, &begins(line)));
                at.map(|at| allowed.remove(at)).is_some()
            });
            if is_well { Ok(()) } else { Err(wrong(asked)) }
        }
    }
}

/// Returns whether two request lines name the same target. Python merges two slashes at the beginning of a
/// path into one.
fn same_target(asked: &str, understood: &str) -> bool {
    let single = |line: &str| line.replace(" //", " /");
    single(asked) == single(understood)
}

/// Checks that the fields that the row demands were received, and that those it forbids were not.
fn fields(row: &Row, understood: &[(String, Option<Seen>)]) -> Result<(), String> {
    let Some(Some(seen)) = understood.first().map(|(_, seen)| seen) else { return Ok(()) };
    for field in row.all('+') {
        let (name, value) = field.split_once(": ").ok_or("a field without a value")?;
        let value = unescaped(value)?;
        if !seen.headers.all(name).chain(seen.trailers.all(name)).any(|is| is.as_bytes() == value) {
            return Err(format!("the origin did not get {field}: {:?}", seen.headers));
        }
    }
    for name in row.all('-') {
        if seen.header(name).is_some() || seen.trailers.first(name).is_some() {
            return Err(format!("the origin got {name}: {:?} {:?}", seen.headers, seen.trailers));
        }
    }
    Ok(())
}
