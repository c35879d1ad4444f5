//! Answers that two parsers may read in two ways, or that carry surplus bytes. Each gives its client one
//! answer, is stored or not as its row says, and the surplus bytes reach no client.

use super::{
    CaseResult,
    cases::shortened,
    each,
    table::{Row, unescaped},
};
use crate::{Accelerator, Answer, End, Gate, Next, Request, Response, ScriptedOrigin};

struct Expected {
    status: u16,
    end: Ending,
    stored: bool,
    content: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Keep,
    Close,
    Cut,
    /// A 502, or the beginning of the answer with a visible cut, depending on how much was sent already.
    Broken,
}

impl Expected {
    fn of(row: &Row) -> Result<Self, String> {
        let said = row.one('=');
        if said == "broken anew" {
            return Ok(Self { status: 502, end: Ending::Broken, stored: false, content: Vec::new() });
        }
        let words: Vec<&str> = said.splitn(4, ' ').collect();
        let [status, end, stored, content @ ..] = words.as_slice() else {
            return Err(format!("{said:?} is no expectation"));
        };
        let end = match *end {
            "keep" => Ending::Keep,
            "close" => Ending::Close,
            "cut" => Ending::Cut,
            other => return Err(format!("{other:?} is no end")),
        };
        let stored = match *stored {
            "stored" => true,
            "anew" => false,
            other => return Err(format!("{other:?} is neither stored nor anew")),
        };
        let content = unescaped(content.first().copied().unwrap_or_default())?;
        Ok(Self { status: status.parse().map_err(|_| "no status")?, end, stored, content })
    }
}

/// Runs the table; an error says how the result differs from the row.
pub(super) fn run(rows: &[Row]) -> Vec<Result<CaseResult, String>> {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|seen, reply| {
        reply.answer(&Answer::new(200, format!("own {}", seen.target)).header("Cache-Control", "no-store"))
    });
    let accelerator = Accelerator::before(&origin.url())
        .limit("origin_first_byte_time_max", "5s")
        .limit("origin_between_bytes_time_max", "5s")
        .start();
    each(rows, |row| row_through(&accelerator, &origin, row))
}

fn row_through(accelerator: &Accelerator, origin: &ScriptedOrigin, row: &Row) -> Result<CaseResult, String> {
    let expected = Expected::of(row)?;
    let path = format!("/answer/{}", row.name);
    let (answered, sent) = (Gate::new(), Gate::new());
    let is_later = script(origin, &path, row, &answered, &sent);
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: site.test\r\n\r\n").into_bytes();
    if row.one('>').contains(' ') {
        request = row.wire('>');
    }
    let method = if request.starts_with(b"HEAD ") { "HEAD" } else { "GET" };
    let own = |number: usize| Request::get(&format!("/own/{}/{number}", row.name));

    let mut client = accelerator.connect();
    if is_later {
        client.send(&request);
    } else {
        client.send(&[&request[..], &own(0).bytes()].concat());
    }
    let first = client.response(method);
    judge(&first, &expected, row)?;
    if is_later {
        answered.open();
        sent.pass();
        // On loopback the bytes sent have arrived by now; they wait on an idle connection to the origin.
        client.send(&own(0).bytes());
    }
    if expected.end == Ending::Keep || expected.end == Ending::Broken && first.end == End::Complete {
        expect_own(&client.response("GET"), row, 0)?;
    } else {
        let (_, more) = client.until_closed();
        if !more.is_empty() {
            return Err(format!("something is said behind the answer: {}", more.escape_ascii()));
        }
    }
    drop(client);
    for number in 1..5 {
        expect_own(&accelerator.fetch(&own(number)), row, number)?;
    }
    // Another client sends the same request.
    let asked = origin.count(&path);
    let mut other = accelerator.connect();
    other.send(&request);
    let second = other.response(method);
    judge(&second, &expected, row).map_err(|why| format!("at the second time, {why}"))?;
    let stored = origin.count(&path) == asked;
    if stored != expected.stored {
        return Err(format!("stored: {stored}"));
    }
    for number in 5..8 {
        expect_own(&accelerator.fetch(&own(number)), row, number)?;
    }
    let answer = match expected.end {
        Ending::Broken => "502, or the beginning and a cut".to_owned(),
        _ => format!("{} {}", first.status(), shown(&first)),
    };
    let connection = match expected.end {
        Ending::Keep => "open",
        Ending::Close => "closed",
        Ending::Cut => "cut",
        Ending::Broken => "open or cut",
    };
    let effect = if stored { "stored" } else { "not stored" };
    Ok(CaseResult {
        answer: answer.trim_end().to_owned(),
        connection: connection.to_owned(),
        effect: vec![effect.to_owned()],
    })
}

/// Returns the content of an answer that is passed on.
fn shown(answer: &Response) -> String {
    if answer.status() >= 500 || answer.body.is_empty() {
        return String::new();
    }
    shortened(&answer.body.escape_ascii().to_string())
}

/// Scripts the origin's answer. Returns whether the row has later bytes; the script waits for `answered`,
/// sends them, and opens `sent`.
fn script(origin: &ScriptedOrigin, path: &str, row: &Row, answered: &Gate, sent: &Gate) -> bool {
    let (first, later, then) = (row.wire('<'), row.wire('%'), row.one('!').to_owned());
    let (answered, sent) = (answered.clone(), sent.clone());
    let is_later = !later.is_empty();
    origin.on(path, move |_, reply| {
        reply.send(&first)?;
        if !later.is_empty() {
            answered.pass();
            reply.send(&later)?;
            sent.open();
        }
        Ok(match then.as_str() {
            "close" => Next::Close,
            "stall" => reply.stall(),
            _ => Next::KeepAlive,
        })
    });
    is_later
}

/// Checks that an answer is the one that the row expects.
fn judge(answer: &Response, expected: &Expected, row: &Row) -> Result<(), String> {
    let head = answer.text_of_head();
    let cut = answer.end != End::Complete;
    if expected.end == Ending::Broken {
        let is_told = cut || answer.status() == 502;
        return if is_told { Ok(()) } else { Err(format!("it passes for whole: {head}{}", answer.text())) };
    }
    if answer.status() != expected.status || cut != (expected.end == Ending::Cut) {
        return Err(format!("{:?} {} {head}{}", answer.end, expected.status, answer.text()));
    }
    // An error page of the accelerator has its own text.
    if answer.status() != 502 && answer.body != expected.content {
        return Err(format!("the content is {}", answer.body.escape_ascii()));
    }
    if head.contains("poison") || answer.text().contains("poison") {
        return Err(format!("poison: {head}{}", answer.text()));
    }
    for field in row.all('+') {
        let (name, value) = field.split_once(": ").ok_or("a field without a value")?;
        if !answer.head.headers.all(name).chain(answer.trailers.all(name)).any(|is| is == value) {
            return Err(format!("there is no {field} in {head}"));
        }
    }
    for name in row.all('-') {
        if answer.header(name).is_some() || answer.trailers.first(name).is_some() {
            return Err(format!("there is {name} in {head}"));
        }
    }
    Ok(())
}

fn expect_own(answer: &Response, row: &Row, number: usize) -> Result<(), String> {
    let want = format!("own /own/{}/{number}", row.name);
    if answer.text() == want && answer.end == End::Complete {
        return Ok(());
    }
    Err(format!("{want} is answered with {}{}", answer.text_of_head(), answer.text()))
}
