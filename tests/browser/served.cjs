// The whole service in a browser: the page comes through the accelerator, and a mail that arrives shows without a reload.
//
// SERVE_URL says where the accelerator is, SMTP where mail is taken, FEED_WS where browsers may connect to the feed, SHOTS where screenshots go, CHROMIUM which browser.
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const net = require("node:net");
const path = require("node:path");
const { run } = require("./harness.cjs");

const { SERVE_URL: base, SMTP: smtp, FEED_WS: feed, SHOTS: shots } = process.env;
const PATIENCE_MS = 60_000;

/** Hands a mail over by SMTP, all commands at once. */
function send(to, subject) {
  const [host, port] = smtp.split(":");
  const mail = `From: Ann <ann@friends.test>\r\nSubject: ${subject}\r\n\r\nPlatform 7.\r\n`;
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), host, () => {
      const commands = ["EHLO test", "MAIL FROM:<ann@friends.test>", `RCPT TO:<${to}>`, `BDAT ${mail.length} LAST`];
      socket.write(`${commands.join("\r\n")}\r\n${mail}QUIT\r\n`);
    });
    let heard = "";
    socket.on("data", (bytes) => (heard += bytes));
    socket.on("error", reject);
    socket.on("close", () => (/^250 2\.0\.0 .*kept/m.test(heard) ? resolve() : reject(new Error(heard))));
  });
}

run(async (browser) => {
  const page = await (await browser.newContext({ viewport: { width: 1200, height: 800 }, reducedMotion: "reduce" })).newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("pageerror", (error) => assert.fail(`the page's script failed: ${error}`));

  // What trickles in of itself.
  const first = await page.goto(`${base}/inbox/demo@localhost`);
  assert.ok(first.headers()["cache-status"] || first.headers().via || first.headers().age, "it came through the accelerator");
  await page.waitForSelector("#live[data-state=on]");
  await page.waitForSelector(".row");
  await page.screenshot({ path: path.join(shots, "demo.png") });
  console.log("ok a sample arrived");

  await page.goto(`${base}/inbox/bob@night.test`);
  await page.waitForSelector("#live[data-state=on]");
  assert.equal(await page.locator(".row").count(), 0);
  await send("bob@night.test", "Meet me at nine");
  await page.waitForSelector(".row >> text=Meet me at nine");
  await page.screenshot({ path: path.join(shots, "live.png") });
  console.log("ok a mail arrived live");

  await page.reload();
  await page.waitForSelector(".row >> text=Meet me at nine");
  await page.click(".row a");
  await page.waitForSelector(".mail h1 >> text=Meet me at nine");
  assert.ok(await page.isVisible("text=Platform 7."));
  console.log("ok it is there after a reload, and opens");

  // A page of anybody's, without a policy of its own, that this browser happens to visit.
  const site = http.createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<title>evil</title>"));
  await new Promise((listening) => site.listen(0, "127.0.0.1", listening));
  for (const address of [`http://127.0.0.1:${site.address().port}/`, "data:text/html,<title>evil</title>"]) {
    await page.goto(address);
    const outcome = await page.evaluate(
      (url) =>
        new Promise((done) => {
          const socket = new WebSocket(url);
          socket.onopen = () => done("open");
          socket.onerror = () => done("refused");
        }),
      feed,
    );
    assert.equal(outcome, "refused", address);
  }
  site.close();
  console.log("ok a page of another origin hears nothing");
});
