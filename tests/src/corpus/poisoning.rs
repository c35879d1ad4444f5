//! Cache poisoning: one client's request must not change another's answer. The origin echoes all that it
//! receives, in an answer that any client may get from the store.

use super::{CaseResult, each, table::Row};
use crate::{Accelerator, Answer, Response, ScriptedOrigin, message::date, origin::Seen};

/// Word that one client sends and no other may receive.
const EVIL: &str = "evil";

/// Results for the second client, as the data names them.
pub(super) const SEPARATE: &str = "an answer for each client";
pub(super) const CLEAN: &str = "one stored answer, without the attacker's word";
pub(super) const SHARED: &str = "one stored answer, with the attacker's word";

/// Runs the table; an error says how the result differs from the row.
pub(super) fn run(rows: &[Row]) -> Vec<Result<CaseResult, String>> {
    let origin = ScriptedOrigin::start();
    let all = rows.to_vec();
    origin.otherwise(move |seen, reply| {
        let mut answer = Answer::new(200, echo(seen));
        for row in all.iter().filter(|row| is_of(row, seen)) {
            for field in row.all('<') {
                let (name, value) = field.split_once(':').unwrap_or_default();
                // A date long ago, from which a heuristic lifetime would be computed.
                let value = value.trim().replace("LONG-AGO", &date(-30 * 86_400));
                answer = answer.header(name, &value);
            }
        }
        reply.answer(&answer)
    });
    let accelerator = Accelerator::before(&origin.url()).start();
    each(rows, |row| row_through(&accelerator, &origin, row))
}

/// Returns whether a request belongs to a row: its target contains the row's name.
fn is_of(row: &Row, seen: &Seen) -> bool {
    seen.target.split(['/', '?', ';', '&', '%', '\\', '.']).any(|part| part == row.name)
}

/// Returns all that the origin received, as text.
fn echo(seen: &Seen) -> String {
    let fields: Vec<String> = seen.headers.0.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let body = String::from_utf8_lossy(&seen.body).into_owned();
    format!("{} {}\n{}\n{body}", seen.method, seen.target, fields.join("\n"))
}

fn row_through(accelerator: &Accelerator, origin: &ScriptedOrigin, row: &Row) -> Result<CaseResult, String> {
    let attack = row.wire('>');
    let mut innocent = row.wire('&');
    if innocent.is_empty() {
        innocent = format!("GET /{} HTTP/1.1\r\nHost: site.test\r\n\r\n", row.name).into_bytes();
    }
    let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase().contains(EVIL);
    if !holds(&attack) || holds(&innocent) {
        return Err(format!("{EVIL:?} is to be in the first request and not in the second"));
    }
    let asked = || origin.all_seen().iter().filter(|seen| is_of(row, seen)).count();
    let ask = |bytes: &[u8]| -> Response {
        let mut client = accelerator.connect();
        client.send(bytes);
        client.response("GET")
    };
    let first = ask(&attack);
    let expected = row.one('=');
    if let Ok(status) = expected.parse::<u16>() {
        if first.status() != status || asked() != 0 {
            return Err(format!("answered {} and asked {} times", first.status(), asked()));
        }
    } else if first.status() != 200 {
        return Err(format!("the attacker got {}{}", first.text_of_head(), first.text()));
    }
    let second = ask(&innocent);
    if second.status() != 200 {
        return Err(format!("the innocent got {}{}", second.text_of_head(), second.text()));
    }
    let shows_evil = holds(&second.body) || holds(&second.head.bytes);
    let came = match (asked(), shows_evil) {
        _ if expected.parse::<u16>().is_ok() && !shows_evil => expected,
        (1, false) => "one",
        (1, true) => "one evil",
        (2, false) => "two",
        other => return Err(format!("{other:?}: {}", second.text())),
    };
    if came != expected {
        return Err(format!("{came} and not {expected}: {}", second.text()));
    }
    let answer = match came {
        "one" => CLEAN,
        "one evil" => SHARED,
        "two" => SEPARATE,
        status => status,
    };
    Ok(CaseResult { answer: answer.to_owned(), connection: String::new(), effect: Vec::new() })
}
