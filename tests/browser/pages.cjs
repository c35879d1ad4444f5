// What a person does with the mail pages, in a real browser: on a desk and on a phone, by day and by night.
//
// MAIL_URL and MAIL_SMTP say where the service is, SHOTS where screenshots go, CHROMIUM which browser. Each step says
// itself; the first that fails ends the run with its reason.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const http = require("node:http");
const net = require("node:net");
const path = require("node:path");
const { accessible, eachLook, run } = require("./harness.cjs");

const base = process.env.MAIL_URL;
const [smtpHost, smtpPort] = process.env.MAIL_SMTP.split(":");
const shots = process.env.SHOTS;
const tricks = JSON.parse(fs.readFileSync(path.join(__dirname, "tricks.json"), "utf8"));
const PATIENCE_MS = 30_000;

/** Hands a mail to the service by SMTP. */
function send(to, mail) {
  const lines = ["EHLO test", "MAIL FROM:<test@sender.test>", `RCPT TO:<${to}>`, "DATA", null, "QUIT"];
  const data = mail.replace(/\r?\n/g, "\r\n").replace(/^\./gm, "..") + "\r\n.\r\n";
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(smtpPort), smtpHost);
    let heard = "";
    socket.setEncoding("utf8");
    socket.on("error", reject);
    socket.on("data", (text) => {
      heard += text;
      const end = heard.match(/^(\d)\d\d(?: .*)?\r\n$/m);
      if (!end || !heard.endsWith("\r\n") || /^\d{3}-[^\n]*\n$/.test(heard.split("\r\n").slice(-2).join("\r\n"))) return;
      if (!["2", "3"].includes(end[1])) return reject(new Error(heard));
      heard = "";
      if (lines.length === 0) return resolve();
      const line = lines.shift();
      socket.write(line === null ? data : `${line}\r\n`);
    });
    socket.on("close", resolve);
  });
}

/** Counts what is fetched from another site. */
async function remoteSite() {
  const site = { hits: 0 };
  const server = http.createServer((request, response) => {
    site.hits += 1;
    response.setHeader("content-type", "image/gif");
    response.end(Buffer.from("R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==", "base64"));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  site.url = `http://127.0.0.1:${server.address().port}`;
  site.close = () => server.close();
  return site;
}

async function visit(browser, name, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("dialog", (dialog) => assert.fail(`a dialog opened: ${dialog.message()}`));
  page.on("pageerror", (error) => assert.fail(`the page's script failed: ${error}`));
  const foreign = [];
  context.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:")) foreign.push(request.url());
  });
  let step = 0;
  const look = async (what) => {
    step += 1;
    await page.screenshot({ path: path.join(shots, `${name}-${step}-${what.replaceAll(" ", "-")}.png`) });
    await accessible(page, `${what} (${name})`);
    console.log(`ok ${name}: ${what}`);
  };
  const inbox = `${name}@night.test`;
  const remote = await remoteSite();

  await page.goto(base);
  await look("home");
  await page.fill("#address", ` ${name.toUpperCase()}+tag@Night.test `);
  await page.press("#address", "Enter");
  await page.waitForURL(`${base}/inbox/${inbox}`);
  await page.waitForSelector("#live[data-state=on]");
  assert.ok(await page.isVisible("text=Nothing has arrived yet"));
  await look("empty inbox");

  await send(inbox, `From: Ann Lee <ann@friends.test>\nTo: ${inbox}\nSubject: Meet me at nine\n\nPlatform 7.\nhttps://night.test/platform\n`);
  await page.waitForSelector(".row >> text=Meet me at nine");
  assert.match(await page.textContent("#news"), /New mail from Ann Lee: Meet me at nine/);
  assert.ok(await page.isHidden("#empty"));
  await send(inbox, [
    `From: Shop <news@shop.test>`, `To: ${inbox}`, `Subject: Winter sale`, `MIME-Version: 1.0`,
    `Content-Type: text/html; charset=utf-8`, ``,
    `<h1>Sale</h1><p>All berths <a href="${remote.url}/go">here</a></p><img src="${remote.url}/open.gif" alt="Picture">`,
    `<div style="background:url(${remote.url}/style.gif)">x</div>`, ``,
  ].join("\n"));
  await page.waitForSelector(".row >> text=Winter sale");
  assert.equal(await page.locator(".row").count(), 2);
  await look("inbox with arrivals");

  await page.keyboard.press("j");
  await page.keyboard.press("o");
  await page.waitForSelector(".mail h1 >> text=Winter sale");
  const frame = page.frameLocator("iframe.frame");
  await frame.locator("h1 >> text=Sale").waitFor();
  assert.match(await page.textContent(".blocked"), /2 remote items from 127\.0\.0\.1:\d+ blocked/);
  assert.equal(remote.hits, 0, "nothing is fetched before the reader asks");
  await look("message with remote content blocked");
  await page.click(".blocked a.button");
  await page.waitForURL(/remote=load/);
  await frame.locator("img").evaluate((image) => image.complete || new Promise((done) => (image.onload = image.onerror = done)));
  assert.equal(remote.hits, 2, "the picture, and what its style names");
  await look("message with remote content loaded");
  for (const tab of ["Text", "Headers", "Source"]) {
    await page.click(`.tabs >> text=${tab}`);
    await page.waitForSelector(`.tabs [aria-current=page] >> text=${tab}`);
    await look(`message ${tab.toLowerCase()}`);
  }

  await page.keyboard.press("u");
  await page.waitForURL(`${base}/inbox/${inbox}`);
  assert.ok(await page.locator(".row.read >> text=Winter sale").count(), "what was opened is no longer bold");
  await page.keyboard.press("?");
  assert.ok(await page.isVisible("#help"));
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  await page.keyboard.type("platform from:ann");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=1 mail found among 2");
  await look("search");

  await page.click(".row >> text=Meet me at nine");
  assert.ok(await page.isVisible("a >> text=https://night.test/platform"));
  await page.click(".actions >> text=Delete");
  await page.waitForURL(`${base}/inbox/${inbox}`);
  assert.equal(await page.locator(".row >> text=Meet me at nine").count(), 0);

  const nasty = tricks.map((trick) => `<div>${trick}</div>`).join("\n");
  await send(inbox, `From: <script>alert(1)</script>\nSubject: <img src=x onerror=alert(1)>\nContent-Type: text/html\n\n${nasty}\n`);
  await page.waitForSelector(".row >> text=<img src=x onerror=alert(1)>");
  const before = foreign.length;
  await page.click(".row >> text=<img src=x");
  await frame.locator("body").waitFor({ state: "attached" });
  for (const tab of ["Text", "Headers", "Source", "HTML"]) await page.click(`.tabs >> text=${tab}`);
  await frame.locator("body").waitFor({ state: "attached" });
  assert.deepEqual(foreign.slice(before), [], "a hostile mail fetches nothing");
  // Each alone too: one may hide another.
  for (const [n, trick] of tricks.entries()) {
    if (name !== "desktop-dark") break;
    await send(`trick${n}@night.test`, `Subject: trick ${n}\nContent-Type: text/html\n\n${trick}\n`);
    await page.goto(`${base}/inbox/trick${n}@night.test`);
    await page.click(".row a");
    await page.waitForSelector("iframe.frame");
    await frame.locator("body").waitFor({ state: "attached" });
  }
  assert.deepEqual(foreign.slice(before), [], "no trick fetches anything");
  console.log(`ok ${name}: no script of a mail runs, nothing is fetched`);

  await page.goto(`${base}/about`);
  await look("about");
  await page.goto(`${base}/api`);
  await look("api");
  await page.goto(`${base}/terms`);
  await look("terms");
  await page.goto(`${base}/inbox/a%20b`);
  assert.ok(await page.isVisible("text=This is no address"));
  await look("error");
  await page.click("#theme");
  await page.reload();
  assert.ok(await page.evaluate(() => document.documentElement.dataset.theme), "the theme is remembered");
  await accessible(page, `the other theme (${name})`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  assert.ok(!wide, "nothing sticks out to the side");
  remote.close();
  await context.close();
}

async function withoutScripts(browser) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(base);
  await page.fill("#address", "plain@night.test");
  await page.click("text=Open");
  assert.ok(await page.isVisible("text=Nothing has arrived yet"));
  await send("plain@night.test", "From: a@b.test\nSubject: no scripts\n\nhello\n");
  await page.reload();
  await page.click(".row a");
  assert.ok(await page.isVisible("text=hello"));
  await page.click(".actions >> text=Delete");
  assert.ok(await page.isVisible("text=Nothing has arrived yet"));
  console.log("ok without scripts: open, read, delete");
  await context.close();
}

run(async (browser) => {
  await eachLook(800, (name, options) => visit(browser, name, options));
  await withoutScripts(browser);
});
