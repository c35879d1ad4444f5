// How soon a browser shows what a mail service has: an inbox of 500, a mail, a mail that has just been taken. Prints one
// line of JSON, in milliseconds, for the bench (`make bench PART=mail`), which starts a service for it.
//
// MAIL_URL and MAIL_SMTP say where the service is, KIND whose it is (`ours` or `mailpit`), ROUNDS how often each page is
// loaded, MAILS how many are stored, ARRIVALS how many are waited for, CHROMIUM which browser.
"use strict";

const net = require("node:net");
const { run } = require("./harness.cjs");

const { MAIL_URL: base, MAIL_SMTP: smtp, KIND: kind } = process.env;
const [rounds, mails, arrivals] = ["ROUNDS", "MAILS", "ARRIVALS"].map((name) => Number(process.env[name]));
const PATIENCE_MS = 30_000;
const ARRIVAL_EVERY_MS = 60;
const now = () => performance.timeOrigin + performance.now();

/** Where each of them has its list, a mail, and what of it is looked for. */
const PAGES = {
  ours: { list: "/inbox/figures@night.test", row: ".row", mail: (id) => `/inbox/figures@night.test/${id}`, shown: "iframe.frame" },
  mailpit: { list: "/", row: "#message-page .message", mail: (id) => `/view/${id}`, shown: "#preview-html" },
}[kind];

/** A session that stays open; `hand` says when the mail was taken. */
async function session() {
  const [host, port] = smtp.split(":");
  const socket = net.connect(Number(port), host);
  socket.setEncoding("utf8").setNoDelay(true);
  let [heard, tell] = ["", null];
  socket.on("data", (text) => {
    heard += text;
    if (!/^\d{3}(?: [^\n]*)?\r\n$/m.test(heard)) return;
    const [reply, at] = [heard, now()];
    heard = "";
    tell([reply, at]);
  });
  const ask = (line) => new Promise((done) => {
    tell = done;
    if (line !== null) socket.write(`${line}\r\n`);
  });
  await ask(null);
  await ask("EHLO figures.test");
  return {
    async hand(mail) {
      await ask("MAIL FROM:<a@figures.test>");
      await ask("RCPT TO:<figures@night.test>");
      await ask("DATA");
      const [reply, at] = await ask(`${mail.replace(/\r?\n/g, "\r\n")}\r\n.`);
      if (!reply.startsWith("250")) throw new Error(reply);
      return at;
    },
    close: () => socket.end("QUIT\r\n"),
  };
}

/** When `selector` was on the screen for the first time: in the frame behind the one in which it was found. */
function watch(selector) {
  const look = () => {
    if (!document.querySelector(selector)) return requestAnimationFrame(look);
    requestAnimationFrame(() => (window.shownAt = performance.now()));
  };
  requestAnimationFrame(look);
}

/** Loads a page in a context of its own, so that nothing is there from before. */
async function load(browser, path, selector) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.addInitScript(watch, selector);
  await page.goto(`${base}${path}`);
  await page.waitForFunction(() => window.shownAt);
  const told = await page.evaluate(() => {
    const painted = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
    const wait = (done) => (painted() === undefined ? requestAnimationFrame(() => wait(done)) : done());
    return new Promise(wait).then(() => ({ paint: painted(), shown: window.shownAt }));
  });
  await context.close();
  return told;
}

/** From when each mail was taken to when its row was on the screen. */
async function arrive(browser) {
  const page = await (await browser.newContext({ viewport: { width: 1200, height: 800 }, reducedMotion: "reduce" })).newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(`${base}${PAGES.list}`);
  await page.waitForSelector(PAGES.row);
  if (kind === "ours") await page.waitForSelector("#live[data-state=on]");
  else await page.waitForTimeout(2_000);
  await page.evaluate((selector) => {
    window.seen = {};
    new MutationObserver(() => {
      const rows = [...document.querySelectorAll(selector)].slice(0, 5).map((row) => row.textContent);
      requestAnimationFrame(() => setTimeout(() => {
        for (const row of rows) {
          const number = row.match(/arrival-(\d+)/)?.[1];
          if (number) window.seen[number] ??= performance.timeOrigin + performance.now();
        }
      }));
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  }, PAGES.row);
  const smtp = await session();
  const taken = [];
  for (let n = 0; n < arrivals; n++) {
    taken.push(await smtp.hand(`From: Ann <a@b.test>\nSubject: arrival-${n}-\n\nText ${n}\n`));
    await page.waitForTimeout(ARRIVAL_EVERY_MS);
  }
  await page.waitForFunction((last) => window.seen[last], arrivals - 1);
  smtp.close();
  const seen = await page.evaluate(() => window.seen);
  return taken.map((at, n) => (seen[n] === undefined ? PATIENCE_MS : seen[n] - at));
}

run(async (browser) => {
  const smtp = await session();
  for (let n = 0; n < mails; n++) {
    const html = `<html><body><h1>Berth ${n}</h1>${"<p style='color:#246'>Platform 7, at nine, as ever.</p>".repeat(60)}</body></html>`;
    await smtp.hand(`From: Shop ${n} <s${n}@shop.test>\nTo: figures@night.test\nSubject: Mail ${n}\nMIME-Version: 1.0\nContent-Type: text/html; charset=utf-8\n\n${html}\n`);
  }
  smtp.close();
  const told = await (await fetch(`${base}/api/v1/messages?limit=1`)).json();
  const id = told.messages[0].ID;
  const loads = { list: [], mail: [] };
  for (let round = 0; round < rounds; round++) {
    loads.list.push(await load(browser, PAGES.list, PAGES.row));
    loads.mail.push(await load(browser, PAGES.mail(id), PAGES.shown));
  }
  const row = await arrive(browser);
  const of = (what, which) => loads[what].map((one) => one[which]);
  console.log(JSON.stringify({
    "inbox of 500, first paint": of("list", "paint"), "inbox of 500, its rows on the screen": of("list", "shown"),
    "a mail, first paint": of("mail", "paint"), "a mail, its frame on the screen": of("mail", "shown"),
    "from 250 to the row on the screen": row,
  }));
});
