// The list beside the mail: live arrival, what is selected, what is deleted and brought back, the border between the two.
"use strict";

const ROWS_MAX = 200;
const UNDO_MS = 10_000;
const LIST_MIN_PX = 280;
const LIST_MAX_PX = 720;
const LIST_STEP_PX = 24;

const board = () => one("#board");
const rows = () => all("#board .row");
const rowOf = (id) => one(`#board .row[data-id="${CSS.escape(id)}"]`);
const openId = () => one(".mail[data-id]")?.dataset.id;
const listBase = () => one("#inbox")?.dataset.base;
// The page of the list, to come back to.
let listUrl = "";

// Counts: of all mails and of those that nobody opened, wherever they stand.
function count(what, by) {
  let now = 0;
  for (const cell of all(`[data-${what}]`)) {
    now = Math.max(0, Number(cell.dataset[what]) + by);
    cell.dataset[what] = String(now);
    cell.textContent = new Intl.NumberFormat("en").format(now);
  }
  for (const ending of all(`[data-plural=${what}]`)) ending.hidden = now === 1;
  if (what === "unread" && one("[data-unread]")) {
    document.title = document.title.replace(/^\(\d+\) /, "");
    if (now > 0) document.title = `(${now}) ${document.title}`;
  }
}

function setTitle(words) {
  const unread = Number(one("[data-unread]")?.dataset.unread ?? 0);
  document.title = unread > 0 ? `(${unread}) ${words}` : words;
}

function setRead(row, read) {
  if (!row || row.classList.contains("read") === read) return;
  row.classList.toggle("read", read);
  if (read) one(".unread", row)?.remove();
  else one(".subject", row).insertAdjacentHTML("afterbegin", '<span class="hidden unread">unread: </span>');
  count("unread", read ? -1 : 1);
}

function showEmpty() {
  const none = rows().length === 0;
  const empty = one("#empty");
  if (empty) empty.hidden = !none;
  one("#picks")?.toggleAttribute("hidden", none);
  one("#delete-all")?.toggleAttribute("hidden", none);
}

function live() {
  const inbox = one("#inbox[data-events]");
  if (!inbox || !window.EventSource) return;
  const lamp = one("#live");
  const state = (name, words) => {
    lamp.dataset.state = name;
    one(".live-text", lamp).textContent = words;
  };
  const events = new EventSource(inbox.dataset.events);
  events.addEventListener("open", () => state("on", "live"));
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) state("off", "not live: reload the page");
    else state("wait", "connecting again");
  });
  events.addEventListener("arrived", (event) => {
    if (rowOf(event.lastEventId)) return;
    const template = document.createElement("template");
    // The server's own row, with everything in it escaped.
    template.innerHTML = event.data;
    const row = template.content.firstElementChild;
    row.classList.add("arriving");
    board().prepend(row);
    while (board().children.length > ROWS_MAX) board().lastElementChild.remove();
    count("total", 1);
    if (!row.classList.contains("read")) count("unread", 1);
    showEmpty();
    steps();
    one("#news").textContent = `New mail from ${one(".from", row).textContent}: ${one(".subject bdi", row).textContent}`;
    refreshTimes();
  });
  events.addEventListener("deleted", (event) => {
    const row = rowOf(event.data);
    if (leaving.has(event.data)) return void leaving.delete(event.data);
    // One that the page did not count: it was on its way out when the page was asked for.
    if (!row && Number(one("[data-total]")?.dataset.total ?? 0) <= rows().length) return;
    count("total", -1);
    if (row && !row.classList.contains("read")) count("unread", -1);
    row?.remove();
    showEmpty();
    steps();
    if (event.data === openId()) say("This mail has been deleted.");
  });
  // Too much happened at once to be told one by one.
  events.addEventListener("reload", () => location.reload());
  addEventListener("pagehide", () => events.close());
}

// What the page says for a while at its foot.
let silence = 0;
function say(words, undo) {
  const toast = one("#toast");
  one(".toast-text", toast).textContent = words;
  one("#undo").hidden = !undo;
  toast.hidden = false;
  clearTimeout(silence);
  silence = setTimeout(() => {
    toast.hidden = true;
    lastDeleted = null;
  }, undo ? UNDO_MS : 4_000);
  lastDeleted = undo ?? null;
}

async function send(pairs) {
  const body = new URLSearchParams(pairs);
  const answer = await fetch(`${listBase()}/change`, { method: "POST", body, headers: { accept: "application/json" } });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error ?? answer.statusText);
  return told;
}

// Deleted a moment ago: the server still has them, and the page does not.
const leaving = new Set();
let lastDeleted = null;

/** Takes rows off the page, and remembers where they were. */
function takeOff(ids) {
  const taken = [];
  for (const id of ids) {
    leaving.add(id);
    const row = rowOf(id);
    if (!row) continue;
    taken.push({ row, before: row.nextElementSibling });
    count("total", -1);
    if (!row.classList.contains("read")) count("unread", -1);
    row.remove();
  }
  showPicked();
  showEmpty();
  return taken;
}

async function remove(ids, all) {
  if (!all && ids.length === 0) return;
  const open = openId();
  const isOpen = open !== undefined && ids.includes(open);
  const following = isOpen ? neighbour(open, 1, ids) ?? neighbour(open, -1, ids) : null;
  try {
    const told = await send(all ? [["do", "delete-all"]] : [["do", "delete"], ...ids.map((id) => ["id", id])]);
    const taken = takeOff(ids);
    const undo = told.batch && { batch: told.batch, taken: taken.reverse(), ids, open: isOpen ? open : null, all };
    say(`${told.count} ${told.count === 1 ? "mail" : "mails"} deleted.`, undo);
    if (isOpen) {
      if (following) await openMail(following);
      else closeMail();
    }
    steps();
  } catch (error) {
    say(`Not deleted: ${error.message}`);
  }
}

async function undo() {
  const deleted = lastDeleted;
  if (!deleted) return;
  try {
    await send([["do", "undo"], ["batch", deleted.batch]]);
    if (deleted.all) return void location.reload();
    for (const { row, before } of deleted.taken) {
      board().insertBefore(row, before?.isConnected ? before : null);
      one("input", row).checked = false;
      count("total", 1);
      if (!row.classList.contains("read")) count("unread", 1);
    }
    for (const id of deleted.ids) leaving.delete(id);
    showPicked();
    showEmpty();
    say("Brought back.");
    if (deleted.open && rowOf(deleted.open)) await openMail(rowOf(deleted.open));
    steps();
  } catch (error) {
    say(`Not brought back: ${error.message}`);
  }
}

async function mark(ids, read) {
  if (ids.length === 0) return;
  try {
    await send([["do", read ? "read" : "unread"], ...ids.map((id) => ["id", id])]);
    for (const id of ids) setRead(rowOf(id), read);
  } catch (error) {
    say(`Not marked: ${error.message}`);
  }
}

/** Tags a mail, or takes a tag off it, and shows it anew with the tags that it has then. */
async function tag(id, what, name) {
  try {
    const told = await send([["do", what], ["tag", name], ["id", id]]);
    const row = rowOf(id);
    if (row) showTags(row, told.tags);
    if (openId() === id) await openPage(location.href, id, false);
    say(what === "tag" ? `Tagged ${name.trim()}.` : `The tag ${name} is taken off.`);
    one("#tagging summary")?.focus();
  } catch (error) {
    say(`Not tagged: ${error.message}`);
  }
}

function showTags(row, tags) {
  let marks = one(".marks", row);
  if (!marks) {
    marks = document.createElement("span");
    marks.className = "marks";
    one("a", row).append(marks);
  }
  for (const old of all(".tag", marks)) old.remove();
  for (const name of tags) {
    const said = document.createElement("span");
    said.className = "tag";
    said.textContent = name;
    marks.append(" ", said);
  }
  if (!marks.textContent.trim()) marks.remove();
}

function openTagging() {
  const tagging = one("#tagging");
  if (!tagging) return;
  tagging.open = true;
  one("input[name=tag]", tagging).focus();
}

// What is selected.
const picked = () => all("#board input:checked").map((box) => box.value);
let lastPicked = null;

function showPicked() {
  const n = picked().length;
  for (const button of all(".picks-bar .bar-button")) button.disabled = n === 0;
  const said = one("#picked");
  if (said) said.textContent = n > 0 ? `${n} selected` : "";
  const every = one("#pick-all");
  if (!every) return;
  every.checked = n > 0 && n === rows().length;
  every.indeterminate = n > 0 && !every.checked;
}

/** With the shift key, all between the last one and this. */
function pick(box, event) {
  const boxes = all("#board input");
  const [from, to] = [boxes.indexOf(lastPicked), boxes.indexOf(box)];
  if (event.shiftKey && from >= 0) {
    for (const between of boxes.slice(Math.min(from, to), Math.max(from, to) + 1)) between.checked = box.checked;
  }
  lastPicked = box;
  showPicked();
}

function pickAll(wanted) {
  for (const box of all("#board input")) box.checked = wanted;
  showPicked();
}

// A mail is opened beside the list, which stays as it is.
function neighbour(id, step, without = []) {
  const list = rows();
  let at = list.findIndex((row) => row.dataset.id === id);
  if (at < 0) return null;
  do at += step;
  while (list[at] && without.includes(list[at].dataset.id));
  return list[at] ?? null;
}

/** What leads to the mails above and below goes where they are now. */
function steps() {
  const id = openId();
  for (const link of all("[data-step]")) {
    const row = id && neighbour(id, Number(link.dataset.step));
    if (row) link.href = one("a", row).href;
  }
}

const wide = matchMedia("(min-width: 900px)");

async function openMail(row) {
  return openPage(one("a", row).href, row.dataset.id);
}

let opening = 0;
async function openPage(url, id, push = true) {
  const asked = ++opening;
  const part = new URL(url);
  part.searchParams.set("part", "reading");
  try {
    const answer = await fetch(part);
    if (!answer.ok) throw new Error(answer.statusText);
    const words = await answer.text();
    // Another was asked for meanwhile.
    if (asked !== opening) return;
    // The server's own page; no script of it would run.
    const article = new DOMParser().parseFromString(words, "text/html").querySelector(".mail");
    if (!article) throw new Error("no mail");
    const reading = one("#reading");
    reading.replaceChildren(document.adoptNode(article));
    reading.scrollTop = 0;
    document.body.classList.add("reads");
    if (push) history.pushState({ mail: id }, "", url);
    shown(id);
    setTitle(article.dataset.title);
  } catch {
    location.assign(url);
  }
}

/** After a mail was put on the page. */
function shown(id) {
  for (const row of rows()) {
    const open = row.dataset.id === id;
    row.classList.toggle("open", open);
    if (open) one("a", row).setAttribute("aria-current", "true");
    else one("a", row).removeAttribute("aria-current");
  }
  const row = id && rowOf(id);
  if (row) {
    setRead(row, true);
    if (wide.matches) row.scrollIntoView({ block: "nearest" });
  }
  for (const frame of all("iframe.frame")) dressFrame(frame);
  refreshTimes();
  steps();
}

function closeMail(push = true) {
  if (!listUrl) return void location.assign(one("[data-up]")?.href ?? "/");
  const nothing = document.createElement("div");
  nothing.className = "nothing-open";
  nothing.innerHTML = "<p>No mail is open.</p>";
  one("#reading").replaceChildren(nothing);
  document.body.classList.remove("reads");
  if (push) history.pushState({}, "", listUrl);
  setTitle(`${one("#inbox").dataset.address} · ${one("#inbox").dataset.name}`);
  const was = one(".row.open a");
  shown(null);
  was?.focus();
}

// The border between list and mail.
function setListWidth(px, keep) {
  const width = Math.round(Math.min(LIST_MAX_PX, Math.max(LIST_MIN_PX, px)));
  document.documentElement.style.setProperty("--list", `${width}px`);
  one("#border").setAttribute("aria-valuenow", String(width));
  if (keep) memory.save("list-width", width);
}

function border() {
  const handle = one("#border");
  if (!handle) return;
  const width = () => one("#list").getBoundingClientRect().width;
  const known = memory.load("list-width");
  handle.setAttribute("aria-valuenow", String(typeof known === "number" ? known : 400));
  handle.addEventListener("pointerdown", (event) => {
    // Else the browser selects text, and takes the pointer away.
    event.preventDefault();
    handle.focus();
    handle.setPointerCapture(event.pointerId);
    handle.classList.add("dragged");
  });
  handle.addEventListener("pointermove", (event) => {
    if (handle.hasPointerCapture(event.pointerId)) setListWidth(event.clientX, false);
  });
  handle.addEventListener("lostpointercapture", () => {
    handle.classList.remove("dragged");
    setListWidth(width(), true);
  });
  handle.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -LIST_STEP_PX, ArrowRight: LIST_STEP_PX }[event.key];
    if (step) setListWidth(width() + step, true);
  });
}

/** A form of the page, done without leaving it. Whether it was. */
function doForm(form, button) {
  // A field named "id" hides the property of that name.
  if (form.getAttribute("id") === "picks") {
    const ids = picked();
    if (button.value === "delete") remove(ids);
    else mark(ids, button.value === "read");
    return true;
  }
  if ("one" in form.dataset) {
    const id = form.elements.id.value;
    if (button.value === "delete") remove([id]);
    else mark([id], false);
    return true;
  }
  if ("tag" in form.dataset) {
    tag(form.elements.id.value, button?.value ?? "tag", form.elements.tag.value);
    return true;
  }
  if ("all" in form.dataset) {
    form.closest("details").open = false;
    remove(rows().map((row) => row.dataset.id), true);
    return true;
  }
  return false;
}
