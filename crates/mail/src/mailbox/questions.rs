//! Answers that a core gives to pages and APIs. Walks over many mails are cut into steps, between which the
//! loop serves its peers.

use std::{net::IpAddr, rc::Rc};

use crate::{
    abuse::Judgement,
    counters::Counter,
    mailbox::mailboxes::{Inbox, MailId, Scope, Unavailable},
    smtp::{
        connection::ROOM_EVERY,
        envelope::{AppendFault, Envelope, Trace},
        session::{self, TurnOutcome},
        tail::{PART_BYTES, PartFault},
    },
    store::{
        annotations::Note,
        core::{Core, ListEntry, Question},
        index::{Place, StepOutcome, WalkControl},
        list_head,
    },
};

/// Mails visited in one step of a walk: a fraction of a millisecond.
const STEPS: usize = 2048;
/// Maximum number of times that a walk restarts after losing its position. After that, the answer contains
/// the mails found so far.
const WALKS_MAX: usize = 8;
/// Number of mails deleted before the task yields to the loop.
const DELETES: usize = 256;

/// Answers a question, immediately or in a separate task.
pub(crate) fn answer(core: &Rc<Core>, question: Question) {
    // Sending fails if the client is gone; the answer is dropped then.
    match question {
        Question::Mail { id, answer } => {
            let place = core.mails.index.borrow().place(id, core.now_ms());
            let found = place.map(|place| list_entry(core, place));
            let _ = answer.send(found);
        }
        Question::Mails { ids, answer } => {
            let place = |id: &MailId| core.mails.index.borrow().place(*id, core.now_ms());
            let _ = answer.send(ids.iter().filter_map(place).map(|place| list_entry(core, place)).collect());
        }
        Question::List { scope, skip, limit, answer } => {
            let core = Rc::clone(core);
            tokio::task::spawn_local(async move {
                let places = walk(&core, WalkTarget::Scope(&scope), skip.saturating_add(limit)).await;
                let wanted = places.into_iter().skip(skip);
                let _ = answer.send(wanted.map(|place| list_entry(&core, place)).collect());
            });
        }
        Question::Count { scope, answer } => {
            let known = core.mails.index.borrow().count(&scope);
            if let Some(count) = known {
                let _ = answer.send(count);
                return;
            }
            let core = Rc::clone(core);
            tokio::task::spawn_local(async move {
                let _ = answer.send(walk(&core, WalkTarget::Scope(&scope), usize::MAX).await.len() as u64);
            });
        }
        Question::Delete { ids, answer } => {
            let core = Rc::clone(core);
            tokio::task::spawn_local(async move {
                let _ = answer.send(delete(&core, &ids).await);
            });
        }
        Question::DeleteAll { scope, answer } => {
            let core = Rc::clone(core);
            tokio::task::spawn_local(async move {
                let mut places = walk(&core, WalkTarget::Scope(&scope), usize::MAX).await;
                if scope == Scope::All {
                    places.extend(walk(&core, WalkTarget::Others, usize::MAX).await);
                }
                let ids: Vec<MailId> = places.into_iter().map(|place| place.id).collect();
                let _ = answer.send(delete(&core, &ids).await);
            });
        }
        Question::Hurry { ids, expires_ms, answer } => {
            let core = Rc::clone(core);
            tokio::task::spawn_local(async move {
                let _ = answer.send(expire_early(&core, &ids, expires_ms).await);
            });
        }
        Question::Stored { from, most, answer } => {
            let _ = answer.send(core.mails.index.borrow().stored(from, most));
        }
        Question::Note { notes, answer } => {
            let core = Rc::clone(core);
            tokio::task::spawn_local(async move {
                let _ = answer.send(write_note(&core, &notes).await);
            });
        }
        Question::Deliver { peer, from, recipients, raw, answer } => {
            let core = Rc::clone(core);
            tokio::task::spawn_local(async move {
                let delivered = deliver(&core, peer, &from, &recipients, &raw).await;
                if delivered.is_err() {
                    core.count(Counter::Refused);
                }
                let _ = answer.send(delivered);
            });
        }
    }
}

fn list_entry(core: &Core, place: Place) -> ListEntry {
    ListEntry { place, summary: core.mails.summaries.borrow().find(place.id) }
}

/// Entries that a walk visits.
#[derive(Clone, Copy)]
enum WalkTarget<'a> {
    Scope(&'a Scope),
    /// Entries in this core's inboxes for mails that were first delivered to another inbox.
    Others,
}

/// Returns up to `limit` mails, newest first.
async fn walk(core: &Core, over: WalkTarget<'_>, limit: usize) -> Vec<Place> {
    let mut places = Vec::new();
    for _ in 0..WALKS_MAX {
        places.clear();
        if limit == 0 {
            break;
        }
        let now_ms = core.now_ms();
        let mut walk = match over {
            WalkTarget::Scope(scope) => core.mails.index.borrow().walk(scope),
            WalkTarget::Others => core.mails.index.borrow().walk_others(),
        };
        let stepped = loop {
            let stepped = core.mails.index.borrow().step(&mut walk, STEPS, now_ms, |place| {
                places.push(place);
                if places.len() < limit { WalkControl::No } else { WalkControl::Yes }
            });
            if stepped != StepOutcome::More {
                break stepped;
            }
            tokio::task::yield_now().await;
        };
        if stepped == StepOutcome::End {
            break;
        }
    }
    places
}

/// Deletes mails permanently and returns how many existed. Once this returns, a crash does not bring them
/// back.
async fn delete(core: &Core, ids: &[MailId]) -> Result<u64, String> {
    let (mut count, mut last, mut unwritten) = (0, None, 0u64);
    for batch in ids.chunks(DELETES) {
        for &id in batch {
            let Some(gone) = core.remove(id) else { continue };
            count += 1;
            core.count(Counter::Deleted);
            match core.remove_from_inbox(gone, true) {
                Some(ticket) => last = last.max(Some(ticket)),
                None => unwritten += 1,
            }
        }
        tokio::task::yield_now().await;
    }
    if let Some(last) = last {
        core.wait_durable(last).await.map_err(|error| error.to_string())?;
    }
    if unwritten > 0 {
        return Err(format!(
            "{unwritten} deletions could not be written to disk, and may be undone by a restart"
        ));
    }
    Ok(count)
}

/// Makes mails expire earlier. Once this returns, a crash does not undo it.
async fn expire_early(core: &Core, ids: &[MailId], expires_ms: u64) -> Result<(), Unavailable> {
    let (mut last, mut refused) = (None, Ok(()));
    for &id in ids {
        match core.expire_early(id, expires_ms) {
            Ok(ticket) => last = last.max(ticket),
            Err(why) => refused = Err(why),
        }
    }
    if let Some(last) = last {
        core.wait_durable(last).await.map_err(|error| Unavailable::Disk(error.to_string()))?;
    }
    refused
}

/// Stores the flags and tags of mails. Once this returns, a crash does not undo it.
async fn write_note(core: &Core, notes: &[(MailId, Note)]) -> Result<(), Unavailable> {
    let mut last = None;
    for batch in notes.chunks(DELETES) {
        for (id, note) in batch {
            last = last.max(core.write_note(*id, note)?);
        }
        tokio::task::yield_now().await;
    }
    if let Some(last) = last {
        core.wait_durable(last).await.map_err(|error| Unavailable::Disk(error.to_string()))?;
    }
    Ok(())
}

/// Accepts a mail that `peer` submitted through the API.
async fn deliver(
    core: &Core,
    peer: IpAddr,
    from: &str,
    recipients: &[String],
    raw: &[u8],
) -> Result<Vec<MailId>, Unavailable> {
    let config = core.config();
    let refuse = |why: String| Err(Unavailable::Refused(why));
    if raw.len() as u64 > config.limits.mail_bytes_max {
        return refuse(format!(
            "the mail has {} bytes; at most {} are accepted",
            raw.len(),
            config.limits.mail_bytes_max
        ));
    }
    if recipients.is_empty() {
        return refuse("the mail has no recipient".to_owned());
    }
    if recipients.len() > config.limits.recipients_max {
        return refuse(format!(
            "the mail has {} recipients; at most {} are accepted",
            recipients.len(),
            config.limits.recipients_max
        ));
    }
    let mut envelope = Envelope { from: from.into(), ..Envelope::default() };
    for recipient in recipients {
        let inbox = match Inbox::of(recipient, &config.default_domain) {
            Ok(inbox) => inbox,
            Err(fault) => return refuse(format!("{recipient}: {fault}")),
        };
        if !config.domains.is_empty() && config.domains.iter().all(|domain| **domain != *inbox.domain) {
            return refuse(format!("{recipient}: mail for this domain is not accepted"));
        }
        envelope.add(inbox, recipient);
    }
    if check_abuse(core, peer, &envelope, raw)? {
        core.count(Counter::Tarpitted);
        tokio::time::sleep(config.rates.tarpit).await;
    }
    envelope.begin(core, Trace { hello: "", peer, protocol: "HTTP" }, core.now_ms());
    let ids = envelope.recipients.iter().map(|recipient| recipient.id).filter(|id| id.0 != 0).collect();
    let tries = config.limits.room_time_max.as_millis() / ROOM_EVERY.as_millis();
    for piece in raw.chunks(PART_BYTES) {
        envelope.take(piece);
        for tried in 0..=tries {
            match envelope.write_part(core, peer) {
                Ok(()) => break,
                Err(PartFault::Room) if tried < tries => {
                    core.make_room();
                    tokio::time::sleep(ROOM_EVERY).await;
                }
                Err(not_taken) => return refuse_api_mail(core, &mut envelope, peer, not_taken.into()),
            }
        }
    }
    for tried in 0..=tries {
        match envelope.append_to_log(core, peer, core.now_ms()) {
            Ok(kept) => {
                let mut turn = TurnOutcome::default();
                session::push_pending(kept, &mut turn);
                return if turn.settle(core).await { Ok(ids) } else { refuse("the disk failed".to_owned()) };
            }
            Err(AppendFault::Room | AppendFault::Behind) if tried < tries => {
                core.make_room();
                tokio::time::sleep(ROOM_EVERY).await;
            }
            Err(not_kept) => return refuse_api_mail(core, &mut envelope, peer, not_kept),
        }
    }
    unreachable!("the last try ends it")
}

/// Discards a mail that was submitted through the API but could not be stored, and returns the error.
fn refuse_api_mail(
    core: &Core,
    envelope: &mut Envelope,
    peer: IpAddr,
    why: AppendFault,
) -> Result<Vec<MailId>, Unavailable> {
    envelope.tail.give_up(core, peer);
    let (counter, why) = match why {
        AppendFault::Behind => {
            return Err(Unavailable::Refused(
                "a core of the server has fallen behind; try again later".to_owned(),
            ));
        }
        AppendFault::TooLarge => (Counter::TooLarge, "the mail is larger than the limit"),
        AppendFault::Full(counter) => (counter, "too many mails are being received; try again later"),
        AppendFault::Room => (Counter::StoreFull, "the store has no room now; try again later"),
    };
    core.count(counter);
    Err(Unavailable::Refused(why.to_owned()))
}

/// Checks a mail submitted through the API against bans and rates, as an SMTP session does at each command.
/// Returns whether the response is to be delayed.
fn check_abuse(core: &Core, peer: IpAddr, envelope: &Envelope, raw: &[u8]) -> Result<bool, Unavailable> {
    let (abuse, now_ms) = (core.clients.abuse.borrow(), core.now_ms());
    let mut is_slow = false;
    let mut look = |judgement| match judgement {
        Judgement::Fine => Ok(()),
        Judgement::Slow => {
            is_slow = true;
            Ok(())
        }
        Judgement::Refuse(reply, counter) => {
            core.count(counter);
            Err(match reply.code {
                // The client may try again later.
                400..500 => Unavailable::TooOften(reply.text),
                _ => Unavailable::Refused(reply.text.to_owned()),
            })
        }
    };
    look(abuse.address(peer))?;
    look(abuse.sender(&envelope.from, peer, now_ms))?;
    for recipient in &envelope.recipients {
        look(abuse.recipient(&recipient.inbox, now_ms))?;
    }
    look(abuse.mail(list_head::fields(raw).subject, raw, now_ms))?;
    Ok(is_slow && !core.config().rates.tarpit.is_zero())
}
