//! Answers to requests in the system account, built on a separate thread: the monitoring pages, in the form
//! that tools expect.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Interval};

use super::{ANSWER_BYTES_MAX, OPTIONS_BYTES_MAX, Server, server_info, to_bytes};
use crate::{
    accounts::identity::AccountId,
    counters::Counter,
    delivery::batch::Batch,
    mesh::links::Message,
    monitor::{
        connz,
        inspector::Looker,
        leafz,
        look::NoAnswer,
        page::{self, PageError, PageRequest},
        query::Query,
        snapshot::{ConnectionSnapshot, Totals},
        subsz,
        system::question::{Page, Question, Subject, SystemEvent},
        times::moment,
        varz,
    },
};

/// Interval between STATSZ messages while the system account has subscribers (nats-server's
/// `statsHBInterval`).
const STATSZ_EVERY: Duration = Duration::from_secs(10);
/// JSON keys of requests, with the corresponding names in a URL's query.
const NAMES: [(&str, &str); 3] =
    [("subscriptions", "subs"), ("subscriptions_detail", "detail"), ("account", "acc")];

enum Next {
    Told(Option<SystemEvent>),
    Tick,
}

/// Answers requests in the system account until all loops have ended.
pub(crate) async fn answer_all(mut told: mpsc::Receiver<SystemEvent>, looker: impl Fn() -> Looker) {
    let mut seq = 0;
    let mut ticks: Option<Interval> = None;
    loop {
        // The timer is off while the system account has no subscribers.
        let is_heard = looker().shared.counters.total(Counter::SystemSubscriptions) > 0;
        if !is_heard {
            ticks = None;
        } else if ticks.is_none() {
            // The first tick comes immediately, so that a new subscriber gets the server's state.
            ticks = Some(tokio::time::interval(STATSZ_EVERY));
        }
        let tick = async {
            match &mut ticks {
                Some(ticks) => ticks.tick().await,
                None => std::future::pending().await,
            }
        };
        let next = tokio::select! {
            next = told.recv() => Next::Told(next),
            _ = tick => Next::Tick,
        };
        let looker = looker();
        seq += 1;
        match next {
            Next::Told(None) => return,
            Next::Told(Some(SystemEvent::Subscribed)) => {}
            Next::Told(Some(SystemEvent::Asked(question))) => {
                if let Some(answer) = answer(&looker, &question, seq).await {
                    say(&looker, question.core, &question.reply, &answer);
                }
            }
            Next::Tick => {
                let totals = looker.totals();
                let subject = format!("$SYS.SERVER.{}.STATSZ", totals.server_id);
                say(&looker, 0, subject.as_bytes(), &statsz(&looker, &totals, seq));
            }
        }
    }
}

fn say(looker: &Looker, core: usize, subject: &[u8], answer: &Value) {
    let mut body = to_bytes(answer);
    if body.len() > ANSWER_BYTES_MAX {
        let description = "the answer is too long: use limit and offset";
        body = to_bytes(
            &json!({"server": answer["server"], "error": {"code": 500, "description": description}}),
        );
    }
    let outside = looker.outside.lock();
    // A loop that does not accept the message is stopping or hangs, so the answer is dropped.
    _ = outside.send(core, Message::Publish(Batch::of_server(AccountId::SYSTEM, subject, &body)));
    outside.flush();
}

/// Builds the answer to a request in the system account; `None` if the request is for other servers.
async fn answer(looker: &Looker, question: &Question, seq: u64) -> Option<Value> {
    let totals = looker.totals();
    let server = server_info(&Server::from(&totals), seq);
    let failed = |code: u16, description: String| {
        Some(json!({"server": server, "error": {"code": code, "description": description}}))
    };
    let options = match &question.options[..] {
        [] => Value::Null,
        long if long.len() > OPTIONS_BYTES_MAX => return failed(400, "the options are too long".to_owned()),
        text => match serde_json::from_slice::<Value>(text) {
            Ok(options) => options,
            Err(error) => return failed(400, error.to_string()),
        },
    };
    if !is_meant(&totals, &options) {
        return None;
    }
    let asked = PageRequest { looker: looker.clone() };
    let data = match question.about {
        Subject::Server(Page::Statsz) => return Some(statsz(looker, &totals, seq)),
        Subject::Server(Page::Idz) => {
            return Some(json!({"name": server["name"], "host": server["host"], "id": server["id"]}));
        }
        Subject::Server(page) => of_server(&asked, page, &options).await,
        Subject::Account(page) => {
            if !looker.settings.identities.accounts().iter().any(|name| **name == *question.account) {
                return failed(500, format!("Account {} does not exist", question.account));
            }
            match of_account(&asked, page, &question.account, &options).await {
                // This answer has an older format than the others.
                Ok(Some(mut conns)) if page == Page::Conns => {
                    conns["server"] = server;
                    return Some(conns);
                }
                Ok(Some(data)) => Ok(data),
                Ok(None) => return None,
                Err(error) => Err(error),
            }
        }
        Subject::Accounts => of_accounts(&asked, &options).await,
    };
    match data {
        Ok(data) => Some(json!({"server": server, "data": data})),
        Err(PageError::Wrong(description)) => failed(500, description),
        Err(PageError::NoAnswer) => failed(503, NoAnswer.to_string()),
    }
}

/// Returns whether a request's filter matches this server.
fn is_meant(totals: &Totals, options: &Value) -> bool {
    let word = |key: &str| options[key].as_str().filter(|word| !word.is_empty());
    let tags = options["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    word("server_name").is_none_or(|name| totals.server_name.contains(name))
        && word("host").is_none_or(|host| totals.address.ip().to_string().contains(host))
        && word("cluster").is_none()
        && word("domain").is_none()
        && tags.into_iter().all(|tag| totals.server_tags.iter().any(|own| own.eq_ignore_ascii_case(tag)))
}

async fn of_server(asked: &PageRequest, page: Page, options: &Value) -> Result<Value, PageError> {
    let query = Query::of_json(options, &NAMES);
    match page {
        Page::Varz => Ok(varz::page(asked, &BTreeMap::new())),
        Page::Connz => connz::page(asked, &query).await,
        Page::Subsz => subsz::page(asked, &query).await,
        Page::Routez => Ok(page::routes(asked)),
        Page::Gatewayz => Ok(page::gateways(asked)),
        Page::Leafz => leafz::page(asked).await,
        Page::Accountz => match options["account"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => {
                let mut page = page::head(&asked.looker.totals());
                page["account_detail"] = info(asked, name).await?;
                Ok(page)
            }
            None => Ok(page::accounts(asked)),
        },
        Page::Jsz => Ok(jetstream(asked)),
        Page::Healthz => Ok(json!({"status": "ok", "status_code": 200})),
        _ => Err("not supported".to_owned().into()),
    }
}

async fn of_account(
    asked: &PageRequest,
    page: Page,
    account: &str,
    options: &Value,
) -> Result<Option<Value>, PageError> {
    let mut options = if options.is_object() { options.clone() } else { json!({}) };
    options["acc"] = account.into();
    options["account"] = account.into();
    if page == Page::Subsz {
        options["subscriptions"] = true.into();
    }
    let query = Query::of_json(&options, &NAMES);
    Ok(Some(match page {
        Page::Connz => connz::page(asked, &query).await?,
        Page::Subsz => subsz::page(asked, &query).await?,
        Page::Leafz => leafz::page(asked).await?,
        Page::Jsz => jetstream(asked),
        Page::Info => info(asked, account).await?,
        Page::Conns => match statz(asked).await?.into_iter().find(|one| one["acc"] == account) {
            Some(one) if one["conns"] != 0 => one,
            _ => return Ok(None),
        },
        _ => {
            let all = statz(asked).await?.into_iter().filter(|one| one["acc"] == account);
            let used: Vec<Value> = all.filter(|one| is_shown(one, &options)).collect();
            if used.is_empty() {
                return Ok(None);
            }
            let mut page = page::head(&asked.looker.totals());
            page["account_statz"] = used.into();
            page
        }
    }))
}

fn is_shown(one: &Value, options: &Value) -> bool {
    one["conns"] != 0 || options["include_unused"] == true
}

async fn of_accounts(asked: &PageRequest, options: &Value) -> Result<Value, PageError> {
    let wanted: Option<Vec<&str>> = options["accounts"]
        .as_array()
        .filter(|names| !names.is_empty())
        .map(|names| names.iter().filter_map(Value::as_str).collect());
    let is_wanted =
        |one: &Value| wanted.as_ref().is_none_or(|names| names.iter().any(|name| one["acc"] == **name));
    let all = statz(asked).await?;
    let shown: Vec<Value> = all.into_iter().filter(|one| is_wanted(one) && is_shown(one, options)).collect();
    let mut page = page::head(&asked.looker.totals());
    page["account_statz"] = shown.into();
    Ok(page)
}

/// Builds the statistics of each account's connected clients.
async fn statz(asked: &PageRequest) -> Result<Vec<Value>, PageError> {
    let open = asked.looker.open().await?;
    let of = |name: &str| {
        let mine = || open.iter().map(|(_, one)| one).filter(|one| one.account == name);
        let sum = |what: fn(&ConnectionSnapshot) -> u64| mine().map(what).sum::<u64>();
        json!({
            "acc": name,
            "conns": mine().count(),
            "leafnodes": 0,
            "total_conns": mine().count(),
            "num_subscriptions": sum(|one| one.subscriptions as u64),
            "sent": {"msgs": sum(|one| one.messages_out), "bytes": sum(|one| one.payload_out_bytes)},
            "received": {"msgs": sum(|one| one.messages_in), "bytes": sum(|one| one.payload_in_bytes)},
            "slow_consumers": 0,
        })
    };
    Ok(asked.looker.settings.identities.accounts().iter().map(|name| of(name)).collect())
}

async fn info(asked: &PageRequest, account: &str) -> Result<Value, PageError> {
    let statz = statz(asked).await?;
    let Some(one) = statz.iter().find(|one| one["acc"] == account) else {
        return Err(format!("Account {account} does not exist").into());
    };
    let identities = &asked.looker.settings.identities;
    Ok(json!({
        "account_name": account,
        "update_time": moment(asked.looker.shared.started),
        "is_system": identities.account_name(AccountId::SYSTEM) == account,
        "expired": false,
        "complete": true,
        "jetstream_enabled": false,
        "leafnode_connections": 0,
        "client_connections": one["conns"],
        "subscriptions": one["num_subscriptions"],
    }))
}

/// Builds an empty JetStream page. The feed has no JetStream, but tools request the page.
fn jetstream(asked: &PageRequest) -> Value {
    let mut page = page::head(&asked.looker.totals());
    for key in ["memory", "storage", "reserved_memory", "reserved_storage", "accounts", "ha_assets"] {
        page[key] = 0.into();
    }
    for key in ["streams", "consumers", "messages", "bytes"] {
        page[key] = 0.into();
    }
    page["disabled"] = true.into();
    page["config"] = json!({"max_memory": 0, "max_storage": 0});
    page["api"] = json!({"total": 0, "errors": 0});
    page
}

fn statsz(looker: &Looker, totals: &Totals, seq: u64) -> Value {
    let process = varz::Process::read();
    let uptime = totals.now.duration_since(totals.started).unwrap_or_default();
    json!({
        "server": server_info(&Server::from(totals), seq),
        "statsz": {
            "start": moment(totals.started),
            "mem": process.resident_bytes,
            "cores": totals.cores,
            "cpu": process.cpu_percent(uptime),
            "connections": totals.connections,
            "total_connections": totals.total_connections,
            "active_accounts": looker.settings.identities.accounts().len(),
            "subscriptions": totals.subscriptions,
            "sent": {"msgs": totals.messages_out, "bytes": totals.payload_out_bytes},
            "received": {"msgs": totals.messages_in, "bytes": totals.payload_in_bytes},
            "slow_consumers": totals.slow_consumers.iter().sum::<u64>(),
            "active_servers": 1,
        },
    })
}
