// What pages can do beyond links and forms: keys, times that stay right, counters, copying.
"use strict";

const RELATIVE_EVERY_MS = 15_000;
const COUNTERS_EVERY_MS = 2_000;

function switchTheme() {
  const root = document.documentElement;
  const night = root.dataset.theme
    ? root.dataset.theme === "night"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = night ? "day" : "night";
  memory.save("theme", root.dataset.theme);
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

/** To the mail below or above: opened if one is open, else pointed at. */
function move(step) {
  const open = openId();
  if (open !== undefined) {
    const row = neighbour(open, step);
    if (row) return void openMail(row);
    const link = one(`[data-step="${step}"]`);
    return void (link && !rowOf(open) && link.click());
  }
  const links = all("#board a");
  if (links.length === 0) return;
  const at = links.indexOf(document.activeElement?.closest(".row a") ?? one("a", document.activeElement?.closest(".row") ?? document));
  const next = at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + step));
  links[next].focus();
  links[next].scrollIntoView({ block: "nearest" });
}

/** The mail that a key is about: the one pointed at, or the one that is open. */
const pointedAt = () => document.activeElement?.closest(".row") ?? (openId() && rowOf(openId()));

function meant() {
  const ids = picked();
  if (ids.length > 0) return ids;
  const id = pointedAt()?.dataset.id ?? openId();
  return id ? [id] : [];
}

const actions = {
  j: () => move(1),
  k: () => move(-1),
  o: () => one("#board a:focus")?.click(),
  u: () => one("[data-up]")?.click(),
  x: () => {
    const row = pointedAt();
    if (row) one("input", row).click();
  },
  a: () => pickAll(picked().length < rows().length),
  d: () => remove(meant()),
  z: () => undo(),
  m: () => {
    const ids = meant();
    mark(ids, !rowOf(ids[0])?.classList.contains("read"));
  },
  t: () => openTagging(),
  "/": () => (one("#q") ?? one("#address"))?.focus(),
  "?": () => one("#help").showModal(),
};

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (one("dialog[open]")) return;
  const tab = /^[1-5]$/.test(event.key) && all(".tabs a")[Number(event.key) - 1];
  const action = tab ? () => tab.click() : actions[event.key];
  if (!action || (!one("#inbox") && !["/", "?", "u"].includes(event.key))) return;
  event.preventDefault();
  action();
}

async function copy(button) {
  const words = button.title;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    say("Copied.");
  } catch {
    say("This browser does not let a page copy.");
  }
  button.title = words;
}

/** A link that this page can follow by itself. Whether it does. */
function follow(link) {
  if (link.dataset.width) return chooseWidth(link);
  if (!one("#inbox") || link.hasAttribute("download") || link.target) return false;
  if ("up" in link.dataset && one(".mail")) return listUrl ? (closeMail(), true) : false;
  const row = link.closest(".row");
  if (row) return openMail(row), true;
  if (link.dataset.step) {
    const to = openId() && neighbour(openId(), Number(link.dataset.step));
    return to ? (openMail(to), true) : false;
  }
  // Another view of the same mail.
  if (link.closest(".mail") && link.origin === location.origin && openId()) return openPage(link.href, openId()), true;
  return false;
}

document.addEventListener("keydown", keys);
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "theme") switchTheme();
  else if (button?.id === "keys") one("#help").showModal();
  else if (button?.id === "undo") undo();
  else if (button?.dataset.copy) copy(button);
  const link = event.target.closest("a[href]");
  const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
  if (link && plain && follow(link)) event.preventDefault();
  if (event.target.id === "pick-all") pickAll(event.target.checked);
  else if (event.target.matches("#board input")) pick(event.target, event);
});
document.addEventListener("submit", (event) => {
  if (one("#inbox") && doForm(event.target, event.submitter)) event.preventDefault();
});
addEventListener("popstate", (event) => {
  const mail = event.state?.mail;
  if (mail) openPage(location.href, mail, false);
  else if (one("#inbox") && location.pathname === new URL(listUrl || "/", location).pathname) closeMail(false);
  else location.reload();
});

if (one("#inbox")) {
  const open = openId();
  listUrl = open ? (one("[data-up]")?.href ?? "") : location.href;
  history.replaceState({ mail: open }, "");
  shown(open ?? null);
  showPicked();
  live();
  border();
}
refreshTimes();
setInterval(refreshTimes, RELATIVE_EVERY_MS);
counters();
// Back from elsewhere: the page may come out of the browser's memory as it was.
addEventListener("pageshow", (event) => event.persisted && location.reload());
