// What pages can do beyond links and forms: live arrival, keys, times that stay right, a memory of what was read.
"use strict";

const READ_MAX = 500;
const ROWS_MAX = 200;
const RELATIVE_EVERY_MS = 15_000;
const COUNTERS_EVERY_MS = 2_000;

// What this browser remembers. Storage may be forbidden; then it remembers nothing.
const memory = {
  load(key) {
    try {
      return JSON.parse(localStorage.getItem(key)) ?? [];
    } catch {
      return [];
    }
  },
  save(key, value) {
    try {
      localStorage.setItem(key, JSON.stringify(value));
    } catch {
      // Full or forbidden.
    }
  },
};

function switchTheme() {
  const root = document.documentElement;
  const night = root.dataset.theme
    ? root.dataset.theme === "night"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = night ? "day" : "night";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // It holds for this page.
  }
}

function relative(then, now) {
  const s = Math.max(0, Math.round((now - then) / 1000));
  if (s < 10) return "now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

function refreshTimes() {
  const now = Date.now();
  for (const time of all("time[datetime]")) time.textContent = relative(Date.parse(time.dateTime), now);
}

// Unread is bold: by this browser, because an inbox has no owner.
function markRead() {
  const mail = one(".mail[data-id]");
  if (mail) {
    const key = `read ${mail.dataset.address}`;
    const read = memory.load(key).filter((id) => id !== mail.dataset.id);
    read.push(mail.dataset.id);
    memory.save(key, read.slice(-READ_MAX));
  }
  const inbox = one("#inbox");
  if (inbox) {
    const read = new Set(memory.load(`read ${inbox.dataset.address}`));
    for (const row of all(".row")) row.classList.toggle("read", read.has(row.dataset.id));
  }
}

function live() {
  const inbox = one("#inbox[data-events]");
  if (!inbox || !window.EventSource) return;
  const board = one("#board");
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
    if (one(`.row[data-id="${CSS.escape(event.lastEventId)}"]`, board)) return;
    const template = document.createElement("template");
    // The server's own row, with everything in it escaped.
    template.innerHTML = event.data;
    const row = template.content.firstElementChild;
    row.classList.add("arriving");
    board.prepend(row);
    while (board.children.length > ROWS_MAX) board.lastElementChild.remove();
    one("#empty").hidden = true;
    one("#news").textContent = `New mail from ${one(".from", row).textContent}: ${one(".subject", row).textContent}`;
    refreshTimes();
  });
  events.addEventListener("deleted", (event) => {
    one(`.row[data-id="${CSS.escape(event.data)}"]`, board)?.remove();
    one("#empty").hidden = board.children.length > 0;
  });
  // Too much happened at once to be told one by one.
  events.addEventListener("reload", () => location.reload());
  addEventListener("pagehide", () => events.close());
}

function counters() {
  const list = one("[data-counters]");
  if (!list) return;
  const format = new Intl.NumberFormat("en");
  const show = (totals) => {
    for (const cell of all("[data-count]", list)) cell.textContent = format.format(totals[cell.dataset.count] ?? 0);
  };
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(list.dataset.counters);
      if (answer.ok) show(await answer.json());
    } catch {
      // The next round tries again.
    }
  }, COUNTERS_EVERY_MS);
}

function move(step) {
  const rows = all("#board a");
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + step));
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const search = one("#q") ?? one("#address");
  const actions = {
    j: () => move(1),
    k: () => move(-1),
    o: () => one("#board a:focus")?.click(),
    u: () => one("[data-up]")?.click(),
    "/": () => search?.focus(),
    "?": () => one("#help").showModal(),
  };
  const action = actions[event.key];
  if (action && !one("dialog[open]")) {
    event.preventDefault();
    action();
  }
}

async function copy(button) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = words), 1500);
}

document.addEventListener("keydown", keys);
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "theme") switchTheme();
  else if (button?.id === "keys") one("#help").showModal();
  else if (button?.dataset.copy) copy(button);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-width]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && chooseWidth(link)) event.preventDefault();
});
for (const frame of all("iframe.frame")) dressFrame(frame);
markRead();
refreshTimes();
setInterval(refreshTimes, RELATIVE_EVERY_MS);
live();
counters();
// Back from a mail: the page may come out of the browser's memory as it was.
addEventListener("pageshow", (event) => event.persisted && location.reload());
